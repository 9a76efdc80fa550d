/* The fast loops of nn.h, compiled once per instruction set by nn_plain.c, nn_neon.c, nn_avx2.c and nn_avx512.c, which define
 * LS__TABLE, LS__TABLE_NAME, and what gemm_loops.h may use. Plain C for the compiler to vectorize; `omp simd` promises that an
 * output is an input element by element or not at all. */
#include <math.h>
#include <stddef.h>
#include "kern/nn.h"
#include "kern/nn_math.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- Sums over a row: LANES partial sums, the tail added to the first ones, folded in halves. */

typedef struct lanes {
    float at[LS__LANES];
} lanes;

/* Halves are added by hand: in a loop, and with an initializer above, compilers spend longer on it than a short row takes. */
typedef float halves_16 __attribute__((vector_size(64)));
typedef float halves_8 __attribute__((vector_size(32)));
typedef float halves_4 __attribute__((vector_size(16)));
_Static_assert(LS__LANES == 32, "fold() adds 16 and 16");

INLINE lanes no_lanes(void)
{
    lanes s;
    halves_16 zero = { 0 };
    memcpy(s.at, &zero, sizeof zero);
    memcpy(s.at + 16, &zero, sizeof zero);
    return s;
}

INLINE float fold(const lanes *s)
{
    halves_16 a, b;
    memcpy(&a, s->at, sizeof a);
    memcpy(&b, s->at + 16, sizeof b);
    a += b;
    halves_8 c = __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7) +
                 __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
    halves_4 d = __builtin_shufflevector(c, c, 0, 1, 2, 3) + __builtin_shufflevector(c, c, 4, 5, 6, 7);
    return (d[0] + d[2]) + (d[1] + d[3]);
}

/* for (each i) s.at[i mod LANES] += EXPR(i), vectorized */
#define OVER_LANES(s, n, EXPR)                                         \
    do {                                                               \
        size_t whole_ = (n) - (n) % LS__LANES;                         \
        for (size_t i0_ = 0; i0_ < whole_; i0_ += LS__LANES)           \
            _Pragma("omp simd") for (size_t l = 0; l < LS__LANES; l++) \
            {                                                          \
                size_t i = i0_ + l;                                    \
                (s).at[l] += (EXPR);                                   \
            }                                                          \
        for (size_t l = 0; l < (n)-whole_; l++) {                      \
            size_t i = whole_ + l;                                     \
            (s).at[l] += (EXPR);                                       \
        }                                                              \
    } while (0)

static float sum(const float *x, size_t n)
{
    lanes s = no_lanes();
    OVER_LANES(s, n, x[i]);
    return fold(&s);
}

static float dot(const float *a, const float *b, size_t n)
{
    lanes s = no_lanes();
    OVER_LANES(s, n, a[i] * b[i]);
    return fold(&s);
}

/* The larger; a NaN on either side stays. */
INLINE float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

static float max(const float *x, size_t n)
{
    lanes m;
    for (size_t l = 0; l < LS__LANES; l++) m.at[l] = x[0];
    size_t whole = n - n % LS__LANES;
    for (size_t i = 0; i < whole; i += LS__LANES)
#pragma omp simd
        for (size_t l = 0; l < LS__LANES; l++) m.at[l] = larger(m.at[l], x[i + l]);
    for (size_t l = 0; l < n - whole; l++) m.at[l] = larger(m.at[l], x[whole + l]);
    for (size_t width = LS__LANES / 2; width; width /= 2)
        for (size_t l = 0; l < width; l++) m.at[l] = larger(m.at[l], m.at[l + width]);
    return m.at[0];
}

/* ---- Activations: value and derivative. */

INLINE float identity(float x)
{
    return x;
}
INLINE float identity_slope(float x)
{
    (void)x;
    return 1.0f;
}

/* 1/2 (1 + tanh(u)) is the logistic function of 2u, which loses no digits in the tail. */
#define GELU_A 1.5957691216057308f  /* 2 sqrt(2 / pi) */
#define GELU_B 0.07135481282553148f /* 0.044715 times that */
INLINE float gelu_tanh(float x)
{
    float u = x * (GELU_A + GELU_B * (x * x));
    return x / (1.0f + ls__expf(-u));
}
INLINE float gelu_tanh_slope(float x)
{
    float xx = x * x, u = x * (GELU_A + GELU_B * xx);
    float s = 1.0f / (1.0f + ls__expf(-u));
    return s + x * (s * (1.0f - s)) * (GELU_A + 3.0f * GELU_B * xx);
}

INLINE float gelu_erf(float x)
{
    return 0.5f * x * (1.0f + ls__erff(x * 0.70710678118654752f));
}
INLINE float gelu_erf_slope(float x)
{
    float density = 0.3989422804014327f * ls__expf(-0.5f * (x * x));
    return 0.5f * (1.0f + ls__erff(x * 0.70710678118654752f)) + x * density;
}

INLINE float silu(float x)
{
    return x / (1.0f + ls__expf(-x));
}
INLINE float silu_slope(float x)
{
    float s = 1.0f / (1.0f + ls__expf(-x));
    return s * (1.0f + x * (1.0f - s));
}

INLINE float relu(float x)
{
    return x < 0 ? 0 : x;
}
INLINE float relu_slope(float x)
{
    return x > 0 ? 1.0f : 0.0f;
}

/* The hyperbolic tangent. Near 0 a series, where 1 - 2 / (1 + exp(2x)) would lose digits. */
INLINE float hyperbolic(float x)
{
    float xx = x * x, far = 1.0f - 2.0f / (1.0f + ls__expf(2.0f * x));
    float near = x * (1.0f + xx * (-0.33333334f + xx * (0.13333334f + xx * (-0.053968254f + xx * 0.021869488f))));
    return xx < 0.09f ? near : far;
}
INLINE float hyperbolic_slope(float x)
{
    float y = hyperbolic(x);
    return 1.0f - y * y;
}

#define ACTIVATION(f)                                                                                   \
    static void activate_##f(float *out, const float *x, size_t n)                                      \
    {                                                                                                   \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) out[i] = f(x[i]);                            \
    }                                                                                                   \
    static void finish_##f(float *out, float *x, const float *bias, const float *more, size_t n)        \
    {                                                                                                   \
        if (bias && more) _Pragma("omp simd") for (size_t i = 0; i < n; i++)                            \
            {                                                                                           \
                float y = x[i] + bias[i];                                                               \
                x[i] = y;                                                                               \
                out[i] = f(y) + more[i];                                                                \
            }                                                                                           \
        else if (bias)                                                                                  \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                          \
            {                                                                                           \
                float y = x[i] + bias[i];                                                               \
                x[i] = y;                                                                               \
                out[i] = f(y);                                                                          \
            }                                                                                           \
        else if (more)                                                                                  \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++) out[i] = f(x[i]) + more[i];              \
        else                                                                                            \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++) out[i] = f(x[i]);                        \
    }                                                                                                   \
    static void activate_back_##f(float *dx, const float *dy, const float *x, size_t n, bool add)       \
    {                                                                                                   \
        if (add)                                                                                        \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++) dx[i] = dx[i] + dy[i] * f##_slope(x[i]); \
        else                                                                                            \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++) dx[i] = dy[i] * f##_slope(x[i]);         \
    }

#define X(name, value, f) ACTIVATION(f)
LS_ACTIVATION_LIST(X)
#undef X

/* ---- Norms. */

static void layer_norm(float *out, const float *x, const float *weight, const float *bias, size_t n, float eps,
                       float *mean_out, float *rstd_out)
{
    float mean = sum(x, n) / (float)n;
    lanes s = no_lanes();
    OVER_LANES(s, n, (x[i] - mean) * (x[i] - mean));
    float rstd = 1.0f / sqrtf(fold(&s) / (float)n + eps);
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    *mean_out = mean;
    *rstd_out = rstd;
}

static void layer_norm_back(float *dx, bool add, const float *dy, const float *x, const float *weight, size_t n,
                            float mean, float rstd, float *dweight, float *dbias)
{
    lanes a = no_lanes(), b = no_lanes();
    OVER_LANES(a, n, dy[i] * weight[i]);
    OVER_LANES(b, n, dy[i] * weight[i] * ((x[i] - mean) * rstd));
    float mean_g = fold(&a) / (float)n, mean_gx = fold(&b) / (float)n;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float g = dy[i], xhat = (x[i] - mean) * rstd;
        dweight[i] += g * xhat;
        dbias[i] += g;
        float d = (g * weight[i] - mean_g - xhat * mean_gx) * rstd;
        dx[i] = add ? dx[i] + d : d;
    }
}

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float eps, float *rrms_out)
{
    float rrms = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = x[i] * rrms * weight[i];
    *rrms_out = rrms;
}

static void rms_norm_back(float *dx, bool add, const float *dy, const float *x, const float *weight, size_t n,
                          float rrms, float *dweight)
{
    lanes s = no_lanes();
    OVER_LANES(s, n, dy[i] * weight[i] * (x[i] * rrms));
    float mean_gx = fold(&s) / (float)n;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float g = dy[i], xhat = x[i] * rrms;
        dweight[i] += g * xhat;
        float d = (g * weight[i] - xhat * mean_gx) * rrms;
        dx[i] = add ? dx[i] + d : d;
    }
}

/* ---- Softmax. */

static void exp_all(float *out, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = ls__expf(x[i]);
}

static float exp_shift_sum(float *x, size_t n, float factor, float shift)
{
    lanes s = no_lanes();
    OVER_LANES(s, n, (x[i] = ls__expf(factor * x[i] - shift)));
    return fold(&s);
}

static void softmax_back(float *p, float *ds, size_t n, float factor, float shift, float norm, float d)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float e = ls__expf(factor * p[i] - shift) * norm;
        p[i] = e;
        ds[i] = e * (ds[i] - d) * factor;
    }
}

#include "kern/gemm_loops.h"
#include "kern/conv_loops.h"
#include "kern/channel_loops.h"
#include "kern/winograd_loops.h"
#include "kern/llama_loops.h"

/* ---- Element by element. */

static void add_two(float *out, const float *a, const float *b, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void mul_two(float *out, const float *a, const float *b, size_t n, bool add)
{
    if (add)
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] = out[i] + a[i] * b[i];
    else
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] = a[i] * b[i];
}

static void axpy(float *y, float factor, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = y[i] + factor * x[i];
}

static void scale(float *out, float factor, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = factor * x[i];
}

#define ACTIVATE(name, value, f)      [name] = activate_##f,
#define FINISH(name, value, f)        [name] = finish_##f,
#define ACTIVATE_BACK(name, value, f) [name] = activate_back_##f,

extern const ls__nn_kernels LS__TABLE;
const ls__nn_kernels LS__TABLE = {
    .name = LS__TABLE_NAME,
    .exp = exp_all,
    .activate = { LS_ACTIVATION_LIST(ACTIVATE) },
    .finish = { LS_ACTIVATION_LIST(FINISH) },
    .activate_back = { LS_ACTIVATION_LIST(ACTIVATE_BACK) },
    .layer_norm = layer_norm,
    .layer_norm_back = layer_norm_back,
    .rms_norm = rms_norm,
    .rms_norm_back = rms_norm_back,
    .max = max,
    .sum = sum,
    .dot = dot,
    .exp_shift_sum = exp_shift_sum,
    .softmax_back = softmax_back,
    .swiglu = swiglu,
    .swiglu_back = swiglu_back,
    .rotate = rotate,
    .rows = ROWS,
    .block_rows = BLOCK,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .pack_rows = pack_rows,
    .panel_product = panel_product,
    .direct_product = direct_product,
    .window_product = window_product,
    .winograd_in = winograd_in,
    .winograd_out = winograd_out,
    .channel_sums = channel_sums,
    .channel_squares = channel_squares,
    .channel_affine = channel_affine,
    .channel_back_sums = channel_back_sums,
    .channel_norm_back = channel_norm_back,
    .channel_max = channel_max,
    .channel_max_back = channel_max_back,
    .add = add_two,
    .mul = mul_two,
    .axpy = axpy,
    .scale = scale,
};
