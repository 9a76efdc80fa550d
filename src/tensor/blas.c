/* SGEMM in tiles. See blas.h.
 *
 * OpenBLAS packs both operands of every call, so a tile should be large and roughly square: packing costs
 * 1/rows + 1/cols of the arithmetic. Small tiles feed more threads. The cut aims at tiles of TILE_FLOPS at least, and
 * at an even count. */
#include "tensor/blas.h"

#include <cblas.h>

enum {
    ROW_UNIT = 8,   /* OpenBLAS's x86 kernels are 4 to 8 rows (our rows are its columns) */
    COL_UNIT = 32,  /* ... by 8 to 32 columns; a tile that ends inside one wastes lanes */
    MAX_ROWS = 512, /* a tile's panels stay within its packing buffers */
    MAX_COLS = 1024,
    MIN_SIDE = 192,
};
static const double TILE_FLOPS = 6e7; /* 0.5 ms or so on one core: far above the cost of dealing a tile */

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

/* How a product is cut: `down` x `across` tiles of rows x cols, the last ones smaller. */
typedef struct cut {
    int64_t down, across, rows, cols;
} cut;

static cut cut_into(const ls__gemm *g, int64_t down, int64_t across)
{
    cut c = { .rows = ceil_div(ceil_div(g->m, down), ROW_UNIT) * ROW_UNIT,
              .cols = ceil_div(ceil_div(g->n, across), COL_UNIT) * COL_UNIT };
    c.down = ceil_div(g->m, c.rows);
    c.across = ceil_div(g->n, c.cols);
    return c;
}

/* The cut of a shape: of all that give enough tiles, the one that packs the least. */
static cut cut_of(const ls__gemm *g)
{
    int64_t want = (int64_t)(2.0 * (double)g->m * (double)g->n * (double)g->k / TILE_FLOPS);
    want = want < 1 ? 1 : want > 8 ? 8 : want;
    int64_t least_down = ceil_div(g->m, MAX_ROWS), least_across = ceil_div(g->n, MAX_COLS);
    cut best = cut_into(g, least_down, least_across);
    double best_cost = 0;
    for (int64_t down = least_down; down < least_down + 8; down++) {
        int64_t across = ceil_div(want, down);
        if (across < least_across) across = least_across;
        if ((down > 1 && g->m / down < MIN_SIDE) || (across > 1 && g->n / across < MIN_SIDE)) continue;
        cut c = cut_into(g, down, across);
        double cost = (double)c.down * (double)g->n + (double)c.across * (double)g->m;
        if (c.down * c.across % 2 && c.down * c.across > 1) cost *= 1.1;
        if (best_cost == 0 || cost < best_cost) best = c, best_cost = cost;
    }
    return best;
}

enum { MAX_BATCH = 16 };

void ls__gemm_run(const ls__gemm *products, int count, int threads)
{
    for (; count > MAX_BATCH; count -= MAX_BATCH, products += MAX_BATCH) ls__gemm_run(products, MAX_BATCH, threads);
    cut cuts[MAX_BATCH];
    int64_t first[MAX_BATCH + 1] = { 0 };
    for (int i = 0; i < count; i++) {
        cuts[i] = products[i].uncut ? (cut){ 1, 1, products[i].m, products[i].n } : cut_of(&products[i]);
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
