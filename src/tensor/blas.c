/* SGEMM in tiles. See blas.h.
 *
 * OpenBLAS packs both operands of every call, so tiles should be large; small ones feed more threads. Measured on one
 * core of a Zen 3 with operands out of the cache, the share of the whole product's speed that is left when it is cut:
 *
 *                              rows in 2   rows in 4   columns in 2   columns in 4
 *     1024 x 1152 x  384           0.98        0.97           0.95           0.92
 *     1024 x  384 x 1536           1.00        1.00           0.95           0.89
 *      384 x 1536 x 1024           0.97        0.92           0.98           0.95
 *
 * Hence rows are cut, to 256 at least, and columns only where there are few rows or very many columns. */
#include "tensor/blas.h"

#include <cblas.h>

enum {
    ROW_UNIT = 8,  /* OpenBLAS's x86 kernels are 4 to 8 rows (our rows are its columns) */
    COL_UNIT = 32, /* ... by 8 to 32 columns; a tile that ends inside one wastes lanes */
    MIN_ROWS = 256,
    MAX_ROWS = 512,
    MIN_COLS = 256,
    MAX_COLS = 2048,
};
static const double TILE_FLOPS = 3e7; /* 0.4 ms or so on one core: far above the cost of dealing a tile */

void ls__blas_init(void)
{
    openblas_set_num_threads(1);
}

static void product(const ls__gemm *g, const ls__tile *t)
{
    const float *a = g->a_trans ? g->a + t->row : g->a + t->row * g->lda;
    const float *b = g->b_trans ? g->b + t->col * g->ldb : g->b + t->col;
    cblas_sgemm(CblasRowMajor, g->a_trans ? CblasTrans : CblasNoTrans, g->b_trans ? CblasTrans : CblasNoTrans,
                (blasint)t->rows, (blasint)t->cols, (blasint)g->k, g->alpha == 0 ? 1 : g->alpha, a, (blasint)g->lda, b,
                (blasint)g->ldb, g->beta, g->c + t->row * g->ldc + t->col, (blasint)g->ldc);
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

enum { MAX_BATCH = 16 };

void ls__gemm_run(const ls__gemm *products, int count, int threads)
{
    for (; count > MAX_BATCH; count -= MAX_BATCH, products += MAX_BATCH) ls__gemm_run(products, MAX_BATCH, threads);
    cut cuts[MAX_BATCH];
    int64_t first[MAX_BATCH + 1] = { 0 };
    for (int i = 0; i < count; i++) {
        cuts[i] = cut_of(&products[i]);
        first[i + 1] = first[i] + cuts[i].down * cuts[i].across;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t tile = 0; tile < first[count]; tile++) {
        int p = 0;
        while (tile >= first[p + 1]) p++;
        const ls__gemm *g = &products[p];
        const cut *c = &cuts[p];
        int64_t at = tile - first[p], row = at / c->across * c->rows, col = at % c->across * c->cols;
        product(g, &(ls__tile){ row, g->m - row < c->rows ? g->m - row : c->rows, col,
                                g->n - col < c->cols ? g->n - col : c->cols });
    }
}
