/* Matrix products. See gemm.h.
 *
 * Three ways, chosen by shape. All of them compute the same bits.
 *
 * Wide   Many rows. B is packed into panels that all threads share; a thread takes a block of rows of A and multiplies it
 *        with panel after panel. Two panels (DEPTH x 32) stay in the L1 cache, the block of A in the L2 cache, the
 *        packed B in the L3 cache.
 * Thin   One block of rows at most. Threads share the columns; each packs a few panels of B into its L2 cache and
 *        multiplies them with all of A.
 * Direct Very few rows, and B is stored row by row: packing would cost more than it saves.
 *
 * A is read where it lies if its rows do. It is copied if it is stored by columns, if it must be activated, and if its
 * rows are a multiple of 4 KiB apart: then a column of them would fall into a few sets of the L1 cache. */
#include "kern/gemm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kern/nn.h"
#include "lockstep/base.h"

enum {
    DEPTH = 384,       /* k at a time: two panels are 48 KiB */
    CHUNK_COLS = 3072, /* of B that are packed at a time: 4.5 MiB */
    GROUP_COLS = 256,  /* columns of a block that are finished at a time, while in the L2 cache */
    PACK_COLS = 128,   /* of B that a thread packs at a time: memory is read in long pieces */
    THIN_COLS = 128,   /* of B that a thread packs and uses at once: 192 KiB */
    DIRECT_ROWS = 4,
    DIRECT_COLS = 1024,
    PAD = 16,             /* floats between copied rows: another set of the L1 cache for each */
    MOST_BLOCK_ROWS = 280 /* of any kernel */
};
enum {
    PANEL_FLOATS = DEPTH * CHUNK_COLS,
    BLOCK_FLOATS = MOST_BLOCK_ROWS * (DEPTH + PAD),
    ROUND = 32, /* floats; keeps every part of the workspace aligned */
};
_Static_assert(BLOCK_FLOATS >= THIN_COLS * DEPTH, "a thread's part of the workspace holds either");

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

/* A product under way. */
typedef struct job {
    const ls__gemm *g;
    const ls__nn_kernels *kernels;
    int threads;
    int64_t each;  /* k at a time */
    bool copy;     /* A is copied */
    float *shared; /* PANEL_FLOATS: panels of B, or all of A copied */
    float *own;    /* BLOCK_FLOATS per thread */
    const ls__tick *tick;
    _Atomic int64_t next; /* piece of work; below */
} job;

static bool copies(const ls__gemm *g)
{
    return g->a_trans || g->activate || g->lda % 1024 == 0;
}

/* Floats between slices of A, and of B, when several slices of k are copied one behind another. */
static int64_t left_floats(int64_t rows, int64_t k)
{
    return ceil_div(rows * (k + PAD), ROUND) * ROUND;
}

static int64_t panel_floats(int64_t k, int64_t cols)
{
    return ceil_div(cols, LS__PANEL) * LS__PANEL * k;
}

/* ---- Threads. Pieces are numbered; a thread takes the next one until there are none left. */

/* Waits for the other threads. The one that comes first sets the numbers back. */
static void meet(job *j)
{
    if (j->threads == 1) {
        atomic_store_explicit(&j->next, 0, memory_order_relaxed);
        return;
    }
#pragma omp barrier
#pragma omp single
    atomic_store_explicit(&j->next, 0, memory_order_relaxed);
}

static bool take(job *j, int64_t pieces, int64_t *piece)
{
    *piece = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
    return *piece < pieces;
}

/* ---- Operands */

/* A piece of A, rows [row, row + rows) and k [depth, depth + k), copied to `to` if need be. */
static ls__left left_of(const job *j, float *to, int64_t row, int64_t rows, int64_t depth, int64_t k)
{
    const ls__gemm *g = j->g;
    int64_t group = j->kernels->rows;
    const float *a = g->a_trans ? g->a + depth * g->lda + row : g->a + row * g->lda + depth;
    if (!j->copy) return (ls__left){ a, g->lda, 1, group * g->lda };
    if (g->a_trans) {
        j->kernels->pack_rows(to, a, g->lda, rows, k);
        if (g->activate) g->activate(to, to, (size_t)(ceil_div(rows, group) * group * k));
        return (ls__left){ to, 1, group, group * k };
    }
    int64_t ld = k + PAD;
    for (int64_t r = 0; r < rows; r++) {
        if (g->activate)
            g->activate(to + r * ld, a + r * g->lda, (size_t)k);
        else
            memcpy(to + r * ld, a + r * g->lda, (size_t)k * sizeof *to);
    }
    return (ls__left){ to, ld, 1, group * ld };
}

/* The same for a piece that was copied before. */
static ls__left copied_left(const job *j, const float *at, int64_t k)
{
    int64_t group = j->kernels->rows, ld = k + PAD;
    return j->g->a_trans ? (ls__left){ at, 1, group, group * k } : (ls__left){ at, ld, 1, group * ld };
}

static void pack_b(const job *j, float *to, int64_t depth, int64_t k, int64_t col, int64_t cols)
{
    const ls__gemm *g = j->g;
    if (g->b_trans)
        j->kernels->pack_transposed(to, g->b + col * g->ldb + depth, g->ldb, k, cols);
    else
        j->kernels->pack(to, g->b + depth * g->ldb + col, g->ldb, k, cols);
}

/* The short rows of what finish will read, which the CPU does not foresee. */
static void fetch(const ls__gemm *g, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t c = col; c < col + cols; c += 16) __builtin_prefetch(g->reads + r * g->n + c, 0, 2);
}

/* One piece of C, one slice of k. */
static void multiply(const job *j, const ls__tile *t, const ls__left *a, const float *panels, int64_t depth, int64_t k)
{
    const ls__gemm *g = j->g;
    bool last = depth + k == g->k;
    if (g->reads && last) fetch(g, t->row, t->rows, t->col, t->cols);
    j->kernels->panel_product(g->c + t->row * g->ldc + t->col, g->ldc, a, panels, k, t->rows, t->cols, k,
                              g->add || depth);
    if (g->finish && last) g->finish(g, t);
}

/* ---- Wide */

/* What is packed of B at a time: rows [depth, end) and columns [col, col + cols), as slices of `each` rows. */
typedef struct part {
    int64_t depth, end, col, cols;
} part;

static void pack_part(job *j, const part *p)
{
    int64_t packs = ceil_div(p->cols, PACK_COLS), i;
    while (take(j, ceil_div(p->end - p->depth, j->each) * packs, &i)) {
        int64_t slice = i / packs, at = i % packs * PACK_COLS, depth = p->depth + slice * j->each;
        int64_t k = min(j->each, p->end - depth);
        pack_b(j, j->shared + slice * panel_floats(j->each, p->cols) + at * k, depth, k, p->col + at,
               min(PACK_COLS, p->cols - at));
    }
}

/* A block of rows times the part. Its piece of C stays in the cache from slice to slice. */
static void block_product(const job *j, const part *p, int64_t row, int64_t rows, float *copy)
{
    const float *panels = j->shared;
    for (int64_t depth = p->depth; depth < p->end; depth += j->each, panels += panel_floats(j->each, p->cols)) {
        int64_t k = min(j->each, p->end - depth);
        ls__left a = left_of(j, copy, row, rows, depth, k);
        for (int64_t at = 0; at < p->cols; at += GROUP_COLS)
            multiply(j, &(ls__tile){ row, rows, p->col + at, min(GROUP_COLS, p->cols - at) }, &a, panels + at * k,
                     depth, k);
    }
}

static void wide(job *j, float *own)
{
    const ls__gemm *g = j->g;
    /* As many blocks for one thread as for another, and all but equal. */
    int64_t unit = j->kernels->rows, units = ceil_div(g->m, unit);
    int64_t blocks = ceil_div(g->m, j->kernels->block_rows * j->threads) * j->threads, i;
    part p;
    for (p.col = 0; p.col < g->n; p.col += CHUNK_COLS) {
        p.cols = min(CHUNK_COLS, g->n - p.col);
        int64_t slices = PANEL_FLOATS / panel_floats(j->each, p.cols);
        for (p.depth = 0; p.depth < g->k; p.depth = p.end) {
            p.end = min(p.depth + slices * j->each, g->k);
            meet(j);
            pack_part(j, &p);
            meet(j);
            while (take(j, blocks, &i)) {
                int64_t row = units * i / blocks * unit, end = min(units * (i + 1) / blocks * unit, g->m);
                if (row < end) block_product(j, &p, row, end - row, own);
                ls__tick_now(j->tick);
            }
        }
    }
}

/* ---- Thin */

/* Floats of A copied, slice behind slice. */
static int64_t thin_step(const ls__gemm *g, const ls__nn_kernels *k, int64_t each)
{
    return left_floats(ceil_div(g->m, k->rows) * k->rows, each);
}

static bool is_thin(const ls__gemm *g, const ls__nn_kernels *k, int64_t each)
{
    return g->m <= k->block_rows && (!copies(g) || ceil_div(g->k, each) * thin_step(g, k, each) <= PANEL_FLOATS);
}

static void thin(job *j, float *own)
{
    const ls__gemm *g = j->g;
    int64_t slices = ceil_div(g->k, j->each), step = thin_step(g, j->kernels, j->each), i;
    if (j->copy) {
        while (take(j, slices, &i))
            left_of(j, j->shared + i * step, 0, g->m, i * j->each, min(j->each, g->k - i * j->each));
        meet(j);
    }
    while (take(j, ceil_div(g->n, THIN_COLS), &i)) {
        ls__tile t = { 0, g->m, i * THIN_COLS, min(THIN_COLS, g->n - i * THIN_COLS) };
        for (int64_t s = 0; s < slices; s++) {
            int64_t depth = s * j->each, k = min(j->each, g->k - depth);
            pack_b(j, own, depth, k, t.col, t.cols);
            ls__left a = j->copy ? copied_left(j, j->shared + s * step, k) : left_of(j, NULL, 0, g->m, depth, k);
            multiply(j, &t, &a, own, depth, k);
        }
        ls__tick_now(j->tick);
    }
}

/* ---- Direct */

static bool is_direct(const ls__gemm *g)
{
    return g->m <= DIRECT_ROWS && !g->b_trans && !g->activate;
}

static void direct(job *j)
{
    const ls__gemm *g = j->g;
    int64_t i;
    while (take(j, ceil_div(g->n, DIRECT_COLS), &i)) {
        ls__tile t = { 0, g->m, i * DIRECT_COLS, min(DIRECT_COLS, g->n - i * DIRECT_COLS) };
        j->kernels->direct_product(g->c + t.col, g->ldc, g->a, g->a_trans ? 1 : g->lda, g->a_trans ? g->lda : 1,
                                   g->b + t.col, g->ldb, g->m, t.cols, g->k, g->add);
        if (g->finish) g->finish(g, &t);
        ls__tick_now(j->tick);
    }
}

/* ---- Calls */

static int64_t slice_of(const ls__gemm *g)
{
    int64_t slices = ceil_div(g->k, DEPTH);
    return slices ? min(ceil_div(ceil_div(g->k, slices), 8) * 8, DEPTH) : DEPTH;
}

static void run_share(job *j, int thread)
{
    float *own = j->own + (size_t)thread * BLOCK_FLOATS;
    if (is_direct(j->g))
        direct(j);
    else if (is_thin(j->g, j->kernels, j->each))
        thin(j, own);
    else
        wide(j, own);
}

static void run(const ls__gemm *g, int threads, float *shared, float *own, const ls__tick *tick)
{
    if (g->k == 0) { /* a sum of nothing */
        for (int64_t r = 0; !g->add && r < g->m; r++) memset(g->c + r * g->ldc, 0, (size_t)g->n * sizeof *g->c);
        if (g->finish) g->finish(g, &(ls__tile){ 0, g->m, 0, g->n });
        return;
    }
    job j = { .g = g,
              .kernels = ls__nn_kernels_best(),
              .threads = threads,
              .each = slice_of(g),
              .copy = copies(g),
              .shared = shared,
              .own = own,
              .tick = tick };
    if (threads == 1)
        run_share(&j, 0);
    else
#pragma omp parallel num_threads(threads)
        run_share(&j, omp_get_thread_num());
}

size_t ls__gemm_workspace(int threads)
{
    return (size_t)PANEL_FLOATS + (size_t)threads * BLOCK_FLOATS;
}

/* The shared part is sized for what is packed there; see wide() and thin(). */
static size_t shared_floats(const ls__gemm *g)
{
    int64_t each = slice_of(g), slices = ceil_div(g->k, each);
    const ls__nn_kernels *k = ls__nn_kernels_best();
    if (is_direct(g) || (is_thin(g, k, each) && !copies(g))) return 0;
    if (is_thin(g, k, each)) return (size_t)(slices * thin_step(g, k, each));
    return (size_t)min(PANEL_FLOATS, slices * panel_floats(each, min(g->n, CHUNK_COLS)));
}

size_t ls__gemm_workspace_one(const ls__gemm *g)
{
    return shared_floats(g) + BLOCK_FLOATS;
}

void ls__gemm_run(const ls__gemm *products, int count, int threads, float *workspace, const ls__tick *tick)
{
    for (int i = 0; i < count; i++) {
        const ls__gemm *g = &products[i];
        double worth = 2.0 * (double)g->m * (double)g->n * (double)g->k / THREAD_FLOPS;
        run(g, worth < 1 ? 1 : worth < threads ? (int)worth : threads, workspace, workspace + PANEL_FLOATS, tick);
    }
}

void ls__gemm_one(const ls__gemm *g, float *workspace)
{
    run(g, 1, workspace, workspace + shared_floats(g), NULL);
}

/* A thread's own time is right even where other programs share its core; that of several is the clock's. */
static int64_t time_of(int threads)
{
    struct timespec t;
    if (threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return ls_now();
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double ls__gemm_peak(int64_t size, int tries, int threads)
{
    size_t each = (size_t)(size * size);
    float *memory = calloc(3 * each + ls__gemm_workspace(threads), sizeof *memory);
    double best = 0;
    for (size_t i = 0; memory && i < 2 * each; i++) memory[i] = 0.5f;
    ls__gemm g = { .m = size, .n = size, .k = size, .a = memory, .lda = size, .ldb = size, .ldc = size };
    for (int i = 0; memory && i < tries; i++) {
        g.b = memory + each;
        g.c = memory + 2 * each;
        int64_t begin = time_of(threads);
        ls__gemm_run(&g, 1, threads, memory + 3 * each, NULL);
        double gflops = 2.0 * (double)each * (double)size / (double)(time_of(threads) - begin);
        if (gflops > best) best = gflops;
    }
    free(memory);
    return best;
}
