/* Matrix products. The only door to the BLAS.
 *
 * A product is cut into tiles by its shape alone; each tile is one single-threaded SGEMM; tiles are dealt to threads.
 * So the bits do not depend on the number of threads. */
#ifndef LS_TENSOR_BLAS_H
#define LS_TENSOR_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* A piece of a product's result. */
typedef struct ls__tile {
    int64_t row, rows, col, cols;
} ls__tile;

/* C = alpha op(A) op(B) + beta C, row by row; op(A) is (m, k), op(B) is (k, n). */
typedef struct ls__gemm {
    int64_t m, n, k;
    bool a_trans, b_trans; /* A is stored (k, m); B is stored (n, k) */
    const float *a;
    int64_t lda; /* elements between rows as stored */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    float alpha; /* 0 means 1: nobody multiplies by zero */
    float beta;
    bool uncut; /* one tile, whatever its size: the caller has cut along k */
    /* Called after each tile by the thread that computed it, while it is in that thread's cache; NULL: nothing. */
    void (*finish)(const struct ls__gemm *g, const ls__tile *tile);
    const void *user;
} ls__gemm;

/* Once per process at least, before the others; cheap. Tells the BLAS to use one thread per call. */
void ls__blas_init(void);
/* Computes `count` independent products with `threads` threads. */
void ls__gemm_run(const ls__gemm *products, int count, int threads);
/* One product in the calling thread, not cut; for callers that do the cutting themselves. */
void ls__gemm_one(const ls__gemm *g);

#endif
