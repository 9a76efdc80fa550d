/* Matrix products. See gemm.h.
 *
 * Three ways, chosen by shape. All of them compute the same bits.
 *
 * Wide   Many rows. B is packed into panels that all threads share; a thread takes a block of rows of A and multiplies it
 *        with panel after panel. Two panels (DEPTH x 32) stay in the L1 cache, the block of A and what is packed of B at
 *        a time in the L2 cache.
 * Thin   Few rows. Threads share the columns; each packs a few panels of B into its L2 cache and
 *        multiplies them with all of A.
 * Direct Very few rows, and B is stored row by row: packing would cost more than it saves.
 *
 * A is read in place if its rows are contiguous and there are few columns. Otherwise it is copied into groups of rows, as the inner loop
 * reads them: 8 % faster. It must be copied if it is to be activated, and if its rows are a multiple of 4 KiB apart: then a
 * column of them would fall into a few sets of the L1 cache. */
#include "kern/gemm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kern/float_mode.h"
#include "kern/nn.h"
#include "kern/vector.h"
#include "lockstep/base.h"

enum {
    DEPTH = 512,      /* k at a time: two panels are 64 KiB */
    CHUNK_COLS = 384, /* of B that are packed at a time: 768 KiB; more if A is copied block by block */
    GROUP_COLS = 128, /* columns of a block that are finished at a time, while in the L2 cache */
    PACK_COLS = 128,  /* of B that a thread packs at a time: memory is read in long runs */
    THIN_COLS = 128,  /* of B that a thread packs and uses at once, or fewer: 256 KiB */
    DIRECT_ROWS = 4,
    DIRECT_COLS = 1024,
    COPY_COLS = 512, /* from this many columns on, copying A pays */
    THIN_ROWS = 256,
    MOST_BLOCK_ROWS = 96,    /* of any kernel */
    SPARE = 32,              /* floats between parts of the workspace, which stay aligned */
    LEFT_FLOATS = 768 * 1024 /* of A, copied at once: 3 MiB */
};
enum {
    PANEL_FLOATS = DEPTH * CHUNK_COLS,
    BLOCK_FLOATS = THIN_COLS * DEPTH,
};
_Static_assert(BLOCK_FLOATS >= MOST_BLOCK_ROWS * DEPTH, "a thread's part of the workspace holds either");

/* Less is not worth waking another thread: 20 us or so on one core. */
static const double THREAD_FLOPS = 2e6;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How a product is computed. Depends on its shape and on the kernels. */
typedef struct plan {
    enum { DIRECT, THIN, WIDE } way;
    int64_t each;  /* k at a time */
    int64_t chunk; /* columns of B that are packed at a time, if wide */
    int64_t rows;  /* of A, rounded up to what is multiplied at a time */
    bool copy;     /* A is copied: all of it at once (a slice of k at once, if wide), or block by block */
    bool whole;
    size_t panel_floats, left_floats; /* of the workspace that the threads share */
} plan;

/* A product under way. */
typedef struct job {
    const ls__gemm *g;
    const ls__nn_kernels *kernels;
    plan plan;
    int threads;
    float *panels, *left; /* shared: B in panels, A copied */
    float *own;           /* BLOCK_FLOATS per thread */
    const ls__tick *tick;
    _Atomic int64_t next; /* ticket; see take() */
} job;

/* A thread's view of it. */
typedef struct share {
    job *j;
    float *own;
    int team;      /* threads that are there: perhaps fewer than were asked for */
    int64_t first; /* ticket of this phase */
} share;

static int64_t panel_floats(int64_t k, int64_t cols)
{
    return ceil_div(cols, LS__PANEL) * LS__PANEL * k;
}

/* Equal slices of k, none longer than `most`. */
static int64_t slice_of(int64_t k, int64_t most)
{
    return min(ceil_div(ceil_div(k, ceil_div(k, most)), 8) * 8, most);
}

static plan plan_of(const ls__gemm *g, const ls__nn_kernels *k)
{
    plan p = { .way = WIDE, .each = slice_of(g->k, DEPTH), .rows = ceil_div(g->m, k->rows) * k->rows };
    bool must_copy = g->a_trans || g->activate || g->lda % 1024 == 0;
    p.copy = must_copy || g->n >= COPY_COLS;
    if (g->m <= DIRECT_ROWS && !g->b_trans && !g->activate && !g->b16) {
        p.way = DIRECT;
        return p;
    }
    int64_t slices = ceil_div(g->k, p.each);
    if (g->m <= THIN_ROWS) {
        p.whole = p.copy && p.rows * slices * p.each <= LEFT_FLOATS;
        if (!must_copy && !p.whole) p.copy = false;
        if (p.whole || !p.copy) p.way = THIN;
    }
    if (p.way == WIDE) {
        p.whole = p.copy && g->n > CHUNK_COLS && p.rows * p.each <= LEFT_FLOATS;
        /* Blocks are copied again for each chunk of B: then it takes the memory that A does not use. */
        int64_t most =
            p.copy && !p.whole ? (PANEL_FLOATS + LEFT_FLOATS) / p.each / GROUP_COLS * GROUP_COLS : CHUNK_COLS;
        p.chunk = ceil_div(ceil_div(g->n, ceil_div(g->n, most)), GROUP_COLS) * GROUP_COLS;
        p.panel_floats = (size_t)(panel_floats(p.each, min(g->n, p.chunk)) + SPARE) / SPARE * SPARE;
    }
    if (p.whole) p.left_floats = (size_t)(p.rows * (p.way == THIN ? slices : 1) * p.each + SPARE) / SPARE * SPARE;
    return p;
}

/* ---- Threads. A phase's tiles are numbered; a thread takes the next one until there are none left, and then waits for the others
 * before it begins the next phase. The numbers come from a counter that is never set back: in each phase every thread takes one more than
 * there is, so all know where the next begins. */

static bool take(share *s, int64_t tiles, int64_t *tile)
{
    *tile = atomic_fetch_add_explicit(&s->j->next, 1, memory_order_relaxed) - s->first;
    if (*tile < tiles) return true;
    s->first += tiles + s->team;
    return false;
}

static void barrier(const share *s)
{
    if (s->team == 1) return;
#pragma omp barrier
}

/* ---- Operands */

/* Copies rows [row, row + rows) and k [depth, depth + k) of A. */
static void copy_a(const job *j, float *to, int64_t row, int64_t rows, int64_t depth, int64_t k)
{
    const ls__gemm *g = j->g;
    j->kernels->pack_rows(to, g->a_trans ? g->a + depth * g->lda + row : g->a + row * g->lda + depth, g->lda,
                          g->a_trans, rows, k);
    if (g->activate) g->activate(to, to, (size_t)(ceil_div(rows, j->kernels->rows) * j->kernels->rows * k));
}

static ls__left copied(const job *j, const float *at, int64_t k)
{
    return (ls__left){ at, 1, j->kernels->rows, j->kernels->rows * k };
}

static ls__left in_place(const job *j, int64_t row, int64_t depth)
{
    return (ls__left){ j->g->a + row * j->g->lda + depth, j->g->lda, 1, j->kernels->rows * j->g->lda };
}

/* From bfloat16, a panel and WIDEN of k at a time, which are widened in the L1 cache. */
static void pack_b16(const job *j, float *to, int64_t depth, int64_t k, int64_t col, int64_t cols)
{
    enum { WIDEN = 64 };
    const ls__gemm *g = j->g;
    float wide[LS__PANEL * WIDEN];
    for (int64_t c = 0; c < cols; c += LS__PANEL)
        for (int64_t d = 0; d < k; d += WIDEN) {
            int64_t n = min(LS__PANEL, cols - c), m = min(WIDEN, k - d);
            float *panel = to + c * k + d * LS__PANEL;
            if (g->b_trans) {
                for (int64_t i = 0; i < n; i++)
                    ls__bf16_to_f32(wide + i * WIDEN, g->b16 + (col + c + i) * g->ldb + depth + d, (size_t)m);
                j->kernels->pack_transposed(panel, wide, WIDEN, m, n);
            } else {
                for (int64_t i = 0; i < m; i++)
                    ls__bf16_to_f32(wide + i * LS__PANEL, g->b16 + (depth + d + i) * g->ldb + col + c, (size_t)n);
                j->kernels->pack(panel, wide, LS__PANEL, m, n);
            }
        }
}

static void pack_b(const job *j, float *to, int64_t depth, int64_t k, int64_t col, int64_t cols)
{
    const ls__gemm *g = j->g;
    if (g->b16)
        pack_b16(j, to, depth, k, col, cols);
    else if (g->b_trans)
        j->kernels->pack_transposed(to, g->b + col * g->ldb + depth, g->ldb, k, cols);
    else
        j->kernels->pack(to, g->b + depth * g->ldb + col, g->ldb, k, cols);
}

/* The short rows of what finish will read, which the CPU does not foresee. */
static void fetch(const ls__gemm *g, const ls__tile *t)
{
    for (int64_t r = t->row; r < t->row + t->rows; r++)
        for (int64_t c = t->col; c < t->col + t->cols; c += 16) __builtin_prefetch(g->reads + r * g->n + c, 0, 2);
}

/* One tile of C, one slice of k. */
static void multiply(const job *j, const ls__tile *t, const ls__left *a, const float *panels, int64_t depth, int64_t k)
{
    const ls__gemm *g = j->g;
    bool last = depth + k == g->k;
    if (g->reads && last) fetch(g, t);
    j->kernels->panel_product(g->c + t->row * g->ldc + t->col, g->ldc, a, panels, k, t->rows, t->cols, k,
                              g->add || depth);
    if (g->finish && last) g->finish(g, t);
}

/* ---- Wide */

/* What is multiplied between two barriers: k [depth, depth + k), columns [col, col + cols). */
typedef struct part {
    int64_t depth, k, col, cols;
} part;

/* The rows are divided among the threads, and each part into equal blocks, which are taken in turns: whoever takes which, all end at about
 * the same time. */
static int64_t block_count(const job *j)
{
    return ceil_div(j->g->m, j->kernels->block_rows * j->threads) * j->threads;
}

static ls__tile block_at(const job *j, int64_t i)
{
    int64_t unit = j->kernels->rows, units = ceil_div(j->g->m, unit), each = block_count(j) / j->threads;
    int64_t turn = i % j->threads, from = units * turn / j->threads, of = units * (turn + 1) / j->threads - from;
    i /= j->threads;
    int64_t row = (from + of * i / each) * unit;
    return (ls__tile){ .row = row, .rows = min((from + of * (i + 1) / each) * unit, j->g->m) - row };
}

/* Columns of B that a thread packs at a time: as often one thread as another. */
static int64_t pack_cols(const job *j, int64_t cols)
{
    int64_t pieces = ceil_div(ceil_div(cols, PACK_COLS), j->threads) * j->threads;
    return ceil_div(ceil_div(cols, pieces), LS__PANEL) * LS__PANEL;
}

static void copy_part(share *s, const part *p)
{
    const job *j = s->j;
    int64_t each = pack_cols(j, p->cols), lefts = j->plan.whole && p->col == 0 ? block_count(j) : 0, i;
    while (take(s, lefts + ceil_div(p->cols, each), &i)) {
        if (i < lefts) {
            ls__tile t = block_at(j, i);
            if (t.rows > 0) copy_a(j, j->left + t.row * p->k, t.row, t.rows, p->depth, p->k);
        } else {
            int64_t at = (i - lefts) * each;
            pack_b(j, j->panels + at * p->k, p->depth, p->k, p->col + at, min(each, p->cols - at));
        }
    }
}

static void block_product(const job *j, const part *p, const ls__tile *block, float *own)
{
    ls__left a = j->plan.copy ? copied(j, j->plan.whole ? j->left + block->row * p->k : own, p->k)
                              : in_place(j, block->row, p->depth);
    if (j->plan.copy && !j->plan.whole) copy_a(j, own, block->row, block->rows, p->depth, p->k);
    for (int64_t at = 0; at < p->cols; at += GROUP_COLS)
        multiply(j, &(ls__tile){ block->row, block->rows, p->col + at, min(GROUP_COLS, p->cols - at) }, &a,
                 j->panels + at * p->k, p->depth, p->k);
}

static void wide(share *s)
{
    const job *j = s->j;
    const ls__gemm *g = j->g;
    part p;
    int64_t i;
    for (p.depth = 0; p.depth < g->k; p.depth += j->plan.each)
        for (p.col = 0; p.col < g->n; p.col += j->plan.chunk) {
            p.k = min(j->plan.each, g->k - p.depth);
            p.cols = min(j->plan.chunk, g->n - p.col);
            if (p.depth || p.col) barrier(s); /* the panels are still in use */
            copy_part(s, &p);
            barrier(s);
            while (take(s, block_count(j), &i)) {
                ls__tile t = block_at(j, i);
                if (t.rows > 0) block_product(j, &p, &t, s->own);
                ls__tick_now(j->tick);
            }
        }
}

/* ---- Thin */

/* Columns that a thread takes at a time, whole panels, two by two: fewer if that divides the work better. */
static int64_t thin_cols(const job *j)
{
    int64_t best = 0, least = 0;
    for (int64_t cols = THIN_COLS; cols > 0; cols -= 2 * LS__PANEL) {
        int64_t most = ceil_div(ceil_div(j->g->n, cols), j->threads) * cols; /* of one thread */
        if (best && 50 * most >= 49 * least) continue;
        best = cols;
        least = most;
    }
    return best;
}

static void thin(share *s)
{
    const job *j = s->j;
    const ls__gemm *g = j->g;
    int64_t cols = thin_cols(j);
    int64_t each = j->plan.each, slices = ceil_div(g->k, each), step = j->plan.rows * each, i;
    if (j->plan.whole) {
        while (take(s, slices, &i)) copy_a(j, j->left + i * step, 0, g->m, i * each, min(each, g->k - i * each));
        barrier(s);
    }
    while (take(s, ceil_div(g->n, cols), &i)) {
        ls__tile t = { 0, g->m, i * cols, min(cols, g->n - i * cols) };
        for (int64_t slice = 0; slice < slices; slice++) {
            int64_t depth = slice * each, k = min(each, g->k - depth);
            pack_b(j, s->own, depth, k, t.col, t.cols);
            ls__left a = j->plan.whole ? copied(j, j->left + slice * step, k) : in_place(j, 0, depth);
            multiply(j, &t, &a, s->own, depth, k);
        }
        ls__tick_now(j->tick);
    }
}

/* ---- Direct */

static void direct(share *s)
{
    const job *j = s->j;
    const ls__gemm *g = j->g;
    int64_t i;
    while (take(s, ceil_div(g->n, DIRECT_COLS), &i)) {
        ls__tile t = { 0, g->m, i * DIRECT_COLS, min(DIRECT_COLS, g->n - i * DIRECT_COLS) };
        j->kernels->direct_product(g->c + t.col, g->ldc, g->a, g->a_trans ? 1 : g->lda, g->a_trans ? g->lda : 1,
                                   g->b + t.col, g->ldb, g->m, t.cols, g->k, g->add);
        if (g->finish) g->finish(g, &t);
        ls__tick_now(j->tick);
    }
}

/* ---- Calls */

static void run_share(job *j, int thread, int team)
{
    share s = { j, j->own + (size_t)thread * BLOCK_FLOATS, team, 0 };
    switch (j->plan.way) {
    case DIRECT: direct(&s); break;
    case THIN: thin(&s); break;
    case WIDE: wide(&s); break;
    }
}

static void run(const ls__gemm *g, int threads, float *workspace, const ls__tick *tick)
{
    if (g->m == 0 || g->n == 0) return;
    if (g->k == 0) { /* a sum of nothing */
        for (int64_t r = 0; !g->add && r < g->m; r++) memset(g->c + r * g->ldc, 0, (size_t)g->n * sizeof *g->c);
        if (g->finish) g->finish(g, &(ls__tile){ 0, g->m, 0, g->n });
        return;
    }
    const ls__nn_kernels *kernels = ls__nn_kernels_best();
    plan p = plan_of(g, kernels);
    job j = { .g = g,
              .kernels = kernels,
              .plan = p,
              .threads = threads,
              .panels = workspace,
              .left = workspace + p.panel_floats,
              .own = workspace + p.panel_floats + p.left_floats,
              .tick = tick };
    if (threads == 1) {
        run_share(&j, 0, 1);
        return;
    }
    ls__float_mode mode = ls__float_mode_get();
#pragma omp parallel num_threads(threads)
    {
        LS__FLOAT_MODE(mode);
        run_share(&j, omp_get_thread_num(), omp_get_num_threads());
    }
}

size_t ls__gemm_workspace(int threads)
{
    return (size_t)PANEL_FLOATS + LEFT_FLOATS + 2 * SPARE + (size_t)threads * BLOCK_FLOATS;
}

size_t ls__gemm_workspace_one(const ls__gemm *g)
{
    if (g->m == 0 || g->n == 0 || g->k == 0) return 0;
    plan p = plan_of(g, ls__nn_kernels_best());
    return p.panel_floats + p.left_floats + BLOCK_FLOATS;
}

void ls__gemm_run(const ls__gemm *products, int count, int threads, float *workspace, const ls__tick *tick)
{
    for (int i = 0; i < count; i++) {
        const ls__gemm *g = &products[i];
        double worth = 2.0 * (double)g->m * (double)g->n * (double)g->k / THREAD_FLOPS;
        run(g, worth < 1 ? 1 : worth < threads ? (int)worth : threads, workspace, tick);
    }
}

void ls__gemm_one(const ls__gemm *g, float *workspace)
{
    run(g, 1, workspace, NULL);
}

/* A thread's own time is right even where other programs share its core; that of several is the clock's. */
static int64_t time_of(int threads)
{
    struct timespec t;
    if (threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return ls_now();
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* GFLOP/s of one product of this size. */
static double gflops_of(int64_t size, int threads, float *memory)
{
    ls__gemm g = { .m = size, .n = size, .k = size, .a = memory, .lda = size, .ldb = size, .ldc = size };
    g.b = g.a + size * size;
    g.c = memory + 2 * size * size;
    int64_t begin = time_of(threads);
    ls__gemm_run(&g, 1, threads, memory + 3 * size * size, NULL);
    int64_t took = time_of(threads) - begin;
    return 2.0 * (double)size * (double)size * (double)size / (double)(took > 0 ? took : 1);
}

double ls__gemm_peak(int64_t size, int tries, int threads)
{
    enum { LEAST = 64 };
    static const double MOST_NS = 50e6;
    size_t each = (size_t)(size * size);
    float *memory = calloc(3 * each + ls__gemm_workspace(threads), sizeof *memory);
    double best = 0;
    if (!memory) return 0;
    for (size_t i = 0; i < 2 * each; i++) memory[i] = 0.5f;
    if (size > LEAST) {              /* a slow CPU shows its speed with smaller ones */
        gflops_of(LEAST, 1, memory); /* touches the memory */
        double rate = gflops_of(LEAST, 1, memory);
        while (size > LEAST && 2.0 * (double)size * (double)size * (double)size / rate > MOST_NS) size /= 2;
    }
    for (int i = 0; i < tries; i++) {
        double rate = gflops_of(size, threads, memory);
        if (rate > best) best = rate;
    }
    free(memory);
    return best;
}
