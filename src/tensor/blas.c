/* Matrix products, ours and OpenBLAS's. See blas.h.
 *
 * Ours. B is packed once into panels that all threads share; a thread takes a block of rows of A, copies it together, and
 * multiplies it with panel after panel. A panel (DEPTH x 16) stays in the L1 cache, the block of A in the L2 cache, the
 * packed B in the L3 cache. On a Zen 3 core this runs at 95 % of the FMA peak where OpenBLAS 0.3.21 reaches 85 %, and cutting it for
 * threads costs nothing. It needs a CPU with FMA, and enough rows that packing B pays.
 *
 * OpenBLAS does the others. It packs both operands of every call, so tiles should be large; small ones feed more threads.
 * The share of the whole product's speed that is left when it is cut:
 *
 *                              rows in 2   rows in 4   columns in 2   columns in 4
 *     1024 x 1152 x  384           0.98        0.97           0.95           0.92
 *     1024 x  384 x 1536           1.00        1.00           0.95           0.89
 *      384 x 1536 x 1024           0.97        0.92           0.98           0.95
 *
 * Hence rows are cut, to 256 at least, and columns only where there are few rows or very many columns. */
#include "tensor/blas.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>
#include <time.h>
#include "kern/nn.h"
#include "lockstep/base.h"

enum {
    ROW_UNIT = 8,  /* OpenBLAS's x86 kernels are 4 to 8 rows (our rows are its columns) */
    COL_UNIT = 32, /* ... by 8 to 32 columns; a tile that ends inside one wastes lanes */
    MIN_ROWS = 256,
    MAX_ROWS = 512,
    MIN_COLS = 256,
    MAX_COLS = 2048,
};
static const double TILE_FLOPS = 3e7; /* 0.4 ms or so on one core: far above the cost of dealing a tile */

enum {
    DEPTH = 384,       /* k at a time: a panel of 24 KiB and most of six rows of A fit the L1 cache */
    BLOCK_ROWS = 96,   /* a block of A, 144 KiB, fits the L2 cache; a multiple of 6 and 12, the kernels' rows */
    CHUNK_COLS = 3072, /* packed B of 3 MiB */
    GROUP_COLS = 256,  /* columns of a block that are finished at a time, while in the L2 cache */
    PACK_COLS = 128,   /* of B that a thread packs at a time: memory is read in long pieces */
    ROUND_ROWS = 12,
    MIN_OWN_ROWS = 24, /* with fewer rows packing B would take most of the time */
};

void ls__blas_init(void)
{
    openblas_set_num_threads(1);
}

static void product(const ls__gemm *g, const ls__tile *t)
{
    const float *a = g->a_trans ? g->a + t->row : g->a + t->row * g->lda;
    const float *b = g->b_trans ? g->b + t->col * g->ldb : g->b + t->col;
    cblas_sgemm(CblasRowMajor, g->a_trans ? CblasTrans : CblasNoTrans, g->b_trans ? CblasTrans : CblasNoTrans,
                (blasint)t->rows, (blasint)t->cols, (blasint)g->k, 1.0f, a, (blasint)g->lda, b, (blasint)g->ldb,
                g->add ? 1.0f : 0.0f, g->c + t->row * g->ldc + t->col, (blasint)g->ldc);
    if (g->finish) g->finish(g, t);
}

void ls__gemm_one(const ls__gemm *g)
{
    product(g, &(ls__tile){ 0, g->m, 0, g->n });
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t between(int64_t low, int64_t x, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* How a product is cut: `down` x `across` tiles of rows x cols, the last ones smaller. */
typedef struct cut {
    int64_t down, across, rows, cols;
} cut;

static cut cut_of(const ls__gemm *g)
{
    if (g->uncut) return (cut){ 1, 1, g->m, g->n };
    int64_t worth = (int64_t)(2.0 * (double)g->m * (double)g->n * (double)g->k / TILE_FLOPS);
    if (worth < 1) worth = 1;
    int64_t height = between(MIN_ROWS, g->m / 8, MAX_ROWS);
    int64_t down = between(1, (g->m + height / 2) / height, worth);
    if (down > 1 && down % 2) down++; /* an even number, for two threads */
    int64_t across = ceil_div(g->n, MAX_COLS);
    if (down == 1) across = between(across, g->n / MIN_COLS, between(across, worth, 4));
    cut c = { .rows = ceil_div(ceil_div(g->m, down), ROW_UNIT) * ROW_UNIT,
              .cols = ceil_div(ceil_div(g->n, across), COL_UNIT) * COL_UNIT };
    c.down = ceil_div(g->m, c.rows);
    c.across = ceil_div(g->n, c.cols);
    return c;
}

static void library_run(const ls__gemm *g, int threads, const ls__tick *tick)
{
    cut c = cut_of(g);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (c.down * c.across > 1)
    for (int64_t tile = 0; tile < c.down * c.across; tile++) {
        int64_t row = tile / c.across * c.rows, col = tile % c.across * c.cols;
        product(g, &(ls__tile){ row, between(0, g->m - row, c.rows), col, between(0, g->n - col, c.cols) });
        ls__tick_now(tick);
    }
}

/* ---- Our own */

enum { PANEL_FLOATS = DEPTH * CHUNK_COLS, BLOCK_FLOATS = DEPTH * BLOCK_ROWS };

size_t ls__gemm_workspace(int threads)
{
    return (size_t)PANEL_FLOATS + (size_t)threads * BLOCK_FLOATS;
}

/* What is packed of B at a time: rows [depth, end) and columns [col, col + cols), as slices of `each` rows. */
typedef struct part {
    int64_t depth, end, each, col, cols;
    float *panels; /* a slice's panels behind those of the slice before */
} part;

static int64_t slice_floats(const part *p)
{
    return p->each * ceil_div(p->cols, LS__PANEL) * LS__PANEL;
}

/* Packs columns [at, at + PACK_COLS) of slice `slice`. */
static void pack_panels(const ls__gemm *g, const part *p, int64_t slice, int64_t at)
{
    const ls__nn_kernels *kernels = ls__nn_kernels_best();
    int64_t depth = p->depth + slice * p->each, k = between(0, p->end - depth, p->each), col = p->col + at;
    float *to = p->panels + slice * slice_floats(p) + at * k;
    int64_t cols = between(0, p->cols - at, PACK_COLS);
    if (g->b_trans)
        kernels->pack_transposed(to, g->b + col * g->ldb + depth, g->ldb, k, cols);
    else
        kernels->pack(to, g->b + depth * g->ldb + col, g->ldb, k, cols);
}

/* A piece of what finish will read lies in many short rows, which the CPU does not foresee. */
static void fetch(const ls__gemm *g, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t c = col; c < col + cols; c += 16) __builtin_prefetch(g->reads + r * g->n + c, 0, 2);
}

/* A block of rows times the part. Its piece of C stays in the cache from slice to slice. */
static void block_product(const ls__gemm *g, const part *p, int64_t row, int64_t rows, float *block)
{
    const ls__nn_kernels *kernels = ls__nn_kernels_best();
    const float *panels = p->panels;
    for (int64_t depth = p->depth; depth < p->end; depth += p->each, panels += slice_floats(p)) {
        int64_t k = between(0, p->end - depth, p->each);
        const float *a = g->a_trans ? g->a + depth * g->lda + row : g->a + row * g->lda + depth;
        kernels->pack_rows(block, a, g->lda, g->a_trans, rows, k);
        if (g->activate) g->activate(block, block, (size_t)(ceil_div(rows, ROUND_ROWS) * ROUND_ROWS * k));
        for (int64_t at = 0; at < p->cols; at += GROUP_COLS) {
            int64_t cols = between(0, p->cols - at, GROUP_COLS);
            if (g->reads && depth + k == g->k) fetch(g, row, rows, p->col + at, cols);
            kernels->packed_product(g->c + row * g->ldc + p->col + at, g->ldc, block, panels + at * k, rows, cols, k,
                                    g->add || depth);
            if (g->finish && depth + k == g->k) g->finish(g, &(ls__tile){ row, rows, p->col + at, cols });
        }
    }
}

static void own_run(const ls__gemm *g, int threads, float *workspace, const ls__tick *tick)
{
    /* As many blocks for one thread as for another, and all but equal. */
    int64_t blocks = ceil_div(g->m, BLOCK_ROWS * threads) * threads, units = ceil_div(g->m, ROUND_ROWS);
    part p = { .each = ceil_div(ceil_div(g->k, ceil_div(g->k, DEPTH)), 8) * 8, .panels = workspace };
#pragma omp parallel num_threads(threads) firstprivate(p)
    for (p.col = 0; p.col < g->n; p.col += CHUNK_COLS) {
        p.cols = between(0, g->n - p.col, CHUNK_COLS);
        int64_t slices = PANEL_FLOATS / slice_floats(&p), packs = ceil_div(p.cols, PACK_COLS);
        for (p.depth = 0; p.depth < g->k; p.depth += slices * p.each) {
            p.end = between(0, p.depth + slices * p.each, g->k);
            float *block = workspace + PANEL_FLOATS + (size_t)omp_get_thread_num() * BLOCK_FLOATS;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < ceil_div(p.end - p.depth, p.each) * packs; i++)
                pack_panels(g, &p, i / packs, i % packs * PACK_COLS);
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < blocks; i++) {
                int64_t row = units * i / blocks * ROUND_ROWS, end = units * (i + 1) / blocks * ROUND_ROWS;
                if (row < end) block_product(g, &p, row, between(0, g->m, end) - row, block);
                ls__tick_now(tick);
            }
        }
    }
}

bool ls__gemm_packs(const ls__gemm *g)
{
    return !g->library && g->m >= MIN_OWN_ROWS && ls__nn_kernels_best()->fused;
}

void ls__gemm_run(const ls__gemm *products, int count, int threads, float *workspace, const ls__tick *tick)
{
    for (int i = 0; i < count; i++) {
        const ls__gemm *g = &products[i];
        if (ls__gemm_packs(g))
            own_run(g, threads, workspace, tick);
        else
            library_run(g, threads, tick);
    }
}

/* A thread's own time is right even where other programs have its core by turns; that of several is the clock's. */
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
