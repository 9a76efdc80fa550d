/* Matrix products. The only door to the BLAS, and to our own loops where they are faster.
 *
 * The bits do not depend on the number of threads. With our loops they do not depend on how a product is cut at all: each
 * element is summed in one order. OpenBLAS's depend on the cut, so what goes to it is cut by shape alone, into tiles
 * that are one single-threaded SGEMM each. Which way a product goes depends on its shape and on the CPU. */
#ifndef LS_TENSOR_BLAS_H
#define LS_TENSOR_BLAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tensor/tick.h"

/* A piece of a product's result. */
typedef struct ls__tile {
    int64_t row, rows, col, cols;
} ls__tile;

/* C = op(A) op(B), or C += op(A) op(B), row by row; op(A) is (m, k), op(B) is (k, n). */
typedef struct ls__gemm {
    int64_t m, n, k;
    bool a_trans, b_trans; /* A is stored (k, m); B is stored (n, k) */
    const float *a;
    int64_t lda; /* elements between rows as stored */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;     /* to what C holds */
    bool library; /* by OpenBLAS in any case; for tests and benchmarks */
    bool uncut;   /* ... in one piece */
    /* Applied to the elements of A as they are packed, so that what it makes is never stored; NULL: nothing. Only where
     * ls__gemm_packs(). */
    void (*activate)(float *out, const float *x, size_t n);
    /* Called once for each piece of the result by the thread that computed it, while it is in that thread's cache; NULL:
     * nothing. */
    void (*finish)(const struct ls__gemm *g, const ls__tile *tile);
    const void *user;
    const float *reads; /* (m, n): what finish reads beside C, fetched ahead of it; NULL: nothing */
} ls__gemm;

/* Floats of workspace that ls__gemm_run() needs for so many threads, aligned to 64. */
size_t ls__gemm_workspace(int threads);

/* Once per process at least, before the others; cheap. Tells the BLAS to use one thread per call. */
void ls__blas_init(void);
/* Whether a product goes through our loops, which pack A. */
bool ls__gemm_packs(const ls__gemm *g);
/* Computes `count` independent products, with as many threads as the workspace is for. `tick` may be NULL. */
void ls__gemm_run(const ls__gemm *products, int count, int threads, float *workspace, const ls__tick *tick);
/* GFLOP/s of square products of this size, the best of a few; 0 without memory. One thread is measured by its CPU time, so that other
 * programs on its core do not make it look slower. */
double ls__gemm_peak(int64_t size, int tries, int threads);
/* One product in the calling thread by OpenBLAS, not cut; for callers that do the cutting themselves. */
void ls__gemm_one(const ls__gemm *g);

#endif
