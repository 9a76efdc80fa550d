/* Matrix products of any shape.
 *
 * Each element of the result is one chain of fused multiply-adds in the order of k, which begins with 0 or with what C
 * holds. So its bits depend on nothing else: not on the CPU, the number of threads or how the work is cut. */
#ifndef LS_KERN_GEMM_H
#define LS_KERN_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kern/tick.h"

/* A part of a product's result. */
typedef struct ls__tile {
    int64_t row, rows, col, cols;
} ls__tile;

/* C = op(A) op(B), or C += op(A) op(B), row by row; op(A) is (m, k), op(B) is (k, n). C overlaps neither A nor B. */
typedef struct ls__gemm {
    int64_t m, n, k;
    bool a_trans, b_trans; /* A is stored (k, m); B is stored (n, k) */
    const float *a;
    int64_t lda; /* elements between rows as stored */
    const float *b;
    const uint16_t *b16; /* B in bfloat16, instead of b; NULL: none. The bits are those of the same values in float32 */
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add; /* to what C holds */
    /* Applied to the elements of A on their way, so that its result is never stored; NULL: nothing. */
    void (*activate)(float *out, const float *x, size_t n);
    /* Called once for each tile of the result by the thread that computed it, while it is in that thread's cache; NULL:
     * nothing. */
    void (*finish)(const struct ls__gemm *g, const ls__tile *tile);
    const void *user;
    const float *reads; /* (m, n): what finish reads besides C, fetched ahead of it; NULL: nothing */
} ls__gemm;

/* Floats of workspace that any product needs with this many threads, aligned to 64. */
size_t ls__gemm_workspace(int threads);
/* Floats of workspace that this product needs in one thread; often less. */
size_t ls__gemm_workspace_one(const ls__gemm *g);

/* Computes `count` independent products, with as many threads as the workspace is for, all in the caller's floating-point mode.
 * `tick` may be NULL. */
void ls__gemm_run(const ls__gemm *products, int count, int threads, float *workspace, const ls__tick *tick);
/* One product in the calling thread, for callers that have threads of their own. */
void ls__gemm_one(const ls__gemm *g, float *workspace);
/* GFLOP/s of square products of this size, or smaller ones if the CPU is slow; the best of a few; 0 without memory. One thread is
 * measured by its CPU time, so that other programs on its core do not make it look slower. */
double ls__gemm_peak(int64_t size, int tries, int threads);

#endif
