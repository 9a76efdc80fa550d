/* The loops of neural networks, one row or one run of elements at a time; the caller divides rows among threads.
 *
 * exp and erf are polynomials of our own: the same bits in every compiler, every libm and every instruction set. Sums
 * over a row go through LS__LANES partial sums that are folded in a fixed order, so they have the same bits whatever
 * the width of the CPU's vectors. NaN goes in and comes out: it is never clamped away.
 *
 * Pointers are aligned to the element. An output may be the same memory as an input where that is said. */
#ifndef LS_KERN_NN_H
#define LS_KERN_NN_H

#include <stdbool.h>
#include <stdint.h>
#include "lockstep/base.h"

enum { LS__LANES = 32 }; /* partial sums of a row: four vectors of AVX2 hide the latency of an addition */

enum { LS__PANEL = 16 }; /* columns of a panel */

/* The left operand of a product: group g of `rows` rows (see below) begins at at + g * group, and element (r, i) of it
 * is r * row + i * col further; row or col is 1. */
typedef struct ls__left {
    const float *at;
    int64_t row, col, group;
} ls__left;

/* The left operand of a convolution: element (r, i) of run s is at + r * row + s * (k * col + gap) + i * col; row or col is 1.
 * See conv_loops.h. */
typedef struct ls__window {
    const float *at;
    int64_t row, col;
    int64_t runs, k, gap;
} ls__window;

typedef struct ls__nn_kernels {
    const char *name; /* "plain", "neon", "avx2", "avx512" */

    /* out[i] = exp(x[i]); out may be x */
    void (*exp)(float *out, const float *x, size_t n);
    /* Indexed by ls_activation. out[i] = f(x[i]); out may be x */
    void (*activate[LS_ACTIVATION_COUNT])(float *out, const float *x, size_t n);
    /* x[i] += bias[i]; out[i] = f(x[i]) (+ more[i]). bias and more may be NULL; out may be x. */
    void (*finish[LS_ACTIVATION_COUNT])(float *out, float *x, const float *bias, const float *more, size_t n);
    /* dx[i] = (add: dx[i] +) dy[i] f'(x[i]); dx may be dy */
    void (*activate_back[LS_ACTIVATION_COUNT])(float *dx, const float *dy, const float *x, size_t n, bool add);

    /* One row of n. out may be x. */
    void (*layer_norm)(float *out, const float *x, const float *weight, const float *bias, size_t n, float eps,
                       float *mean, float *rstd);
    /* dx = (add: dx +) ...; dweight and dbias are added to. dx may be dy. */
    void (*layer_norm_back)(float *dx, bool add, const float *dy, const float *x, const float *weight, size_t n,
                            float mean, float rstd, float *dweight, float *dbias);
    void (*rms_norm)(float *out, const float *x, const float *weight, size_t n, float eps, float *rrms);
    void (*rms_norm_back)(float *dx, bool add, const float *dy, const float *x, const float *weight, size_t n,
                          float rrms, float *dweight);

    float (*max)(const float *x, size_t n); /* NaN if one is; n >= 1 */
    float (*sum)(const float *x, size_t n);
    float (*dot)(const float *a, const float *b, size_t n);
    /* x[i] = exp(factor x[i] - shift); returns their sum */
    float (*exp_shift_sum)(float *x, size_t n, float factor, float shift);
    /* p[i] = exp(factor p[i] - shift) norm; ds[i] = p[i] (ds[i] - d) factor */
    void (*softmax_back)(float *p, float *ds, size_t n, float factor, float shift, float norm, float d);

    /* out[i] = silu(gate[i]) up[i]; out may be gate or up */
    void (*swiglu)(float *out, const float *gate, const float *up, size_t n);
    /* dgate and dup = (add: their contents +) ... */
    void (*swiglu_back)(float *dgate, float *dup, bool add, const float *dy, const float *gate, const float *up,
                        size_t n);
    /* The pairs (x[i], x[half + i]) are rotated by angles that are given as cosines and sines; back: by minus them. */
    void (*rotate)(float *x, const float *cosines, const float *sines, size_t half, bool back);

    /* Matrix products; see gemm_loops.h, and gemm.h for whole ones. B (k, n), row by row with ldb between rows, becomes
     * panels: ceil(n / LS__PANEL) * k * LS__PANEL floats. For pack_transposed B is stored as (n, k). */
    int rows;       /* of A that are multiplied at a time */
    int block_rows; /* of A that should be in the cache together, a multiple of them */
    void (*pack)(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n);
    void (*pack_transposed)(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n);
    /* A (m, k) in groups of `rows` rows: [m / rows][k][rows], zeros after the last row; trans: A is stored (k, m) */
    void (*pack_rows)(float *out, const float *a, int64_t lda, bool trans, int64_t m, int64_t k);
    /* c (m, n) = (add: c +) A B. The panels are `depth` rows deep, of which `k` rows from where `panels` points are used. */
    void (*panel_product)(float *c, int64_t ldc, const ls__left *a, const float *panels, int64_t depth, int64_t m,
                          int64_t n, int64_t k, bool add);
    /* The same for a few rows, with B in place. */
    void (*direct_product)(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col, const float *b,
                           int64_t ldb, int64_t m, int64_t n, int64_t k, bool add);
    /* c (m, n) = (add: c +) A B, where B is (runs k, n) in panels. */
    void (*window_product)(float *c, int64_t ldc, const ls__window *a, const float *panels, int64_t m, int64_t n,
                           bool add);

    /* Of a tile of 4x4 pixels, `line` floats between lines: value i of 16 goes to v + i * step. See winograd_loops.h. */
    void (*winograd_in)(float *v, size_t step, const float *x, int64_t line, size_t channels);
    /* The first `rows` and `cols` of the 2x2 results: y = (add: y +) ... */
    void (*winograd_out)(float *y, int64_t line, int rows, int cols, const float *m, size_t step, size_t channels,
                         bool add);

    /* Rows of channels, contiguous; see channel_loops.h. sums[c] += the sum of x, or of (x - mean[c])^2 */
    void (*channel_sums)(float *sums, const float *x, size_t rows, size_t channels);
    void (*channel_squares)(float *sums, const float *x, const float *mean, size_t rows, size_t channels);
    /* out = factor[c] x + shift[c] (+ more), and 0 where that is negative if `relu`. more may be NULL; out may be x. */
    void (*channel_affine)(float *out, const float *x, const float *more, const float *factor, const float *shift,
                           bool relu, size_t rows, size_t channels);
    /* dy is set to 0 where y is not positive (y NULL: nowhere); sums[c] += dy; with_x[c] += dy (x - mean[c]) */
    void (*channel_back_sums)(float *sums, float *with_x, float *dy, const float *y, const float *x, const float *mean,
                              size_t rows, size_t channels);
    /* dx = (add: dx +) factor[c] (dy - shift[c] - (x - mean[c]) slope[c]); dx may be dy */
    void (*channel_norm_back)(float *dx, bool add, const float *dy, const float *x, const float *factor,
                              const float *shift, const float *mean, const float *slope, size_t rows, size_t channels);
    /* The largest value of each channel among n rows (NULL: not there), and the place of its row; a NaN is the largest. */
    void (*channel_max)(float *out, uint8_t *places, const float *const *rows, int n, size_t channels);
    /* dx += dy where that place is `place` */
    void (*channel_max_back)(float *dx, const float *dy, const uint8_t *places, int place, size_t channels);

    void (*add)(float *out, const float *a, const float *b, size_t n);           /* out may be a or b */
    void (*mul)(float *out, const float *a, const float *b, size_t n, bool add); /* out = (add: out +) a b */
    void (*axpy)(float *y, float factor, const float *x, size_t n);              /* y += factor x */
    void (*scale)(float *out, float factor, const float *x, size_t n);           /* out may be x */
} ls__nn_kernels;

/* Table `index` of those that this CPU can run, best first; NULL past the last. */
const ls__nn_kernels *ls__nn_kernels_at(int index);
/* The one in use; see select.h. */
const ls__nn_kernels *ls__nn_kernels_best(void);

/* The plain versions, in double where that is more exact: what the tests compare with. */
extern const ls__nn_kernels ls__nn_kernels_reference;

#endif
