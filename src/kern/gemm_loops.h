/* The inner loops of matrix products; part of nn_loops.h, compiled once per instruction set.
 *
 * B is packed into panels of 16 columns, [n / 16][k][16], zeros after the last column. A block of ROWS x (WIDE * 16)
 * sums stays in registers over all of k. Each element is one chain of fused multiply-adds in the order of k, from 0 or
 * from what C holds: the bits depend neither on the instruction set nor on how a caller cuts rows, columns and k. */
#include "kern/fma.h"

enum { PANEL = LS__PANEL };

#if defined(LS__AVX512)
#include <immintrin.h>
enum { ROWS = 14, BLOCK = 6 * ROWS, WIDE = 2 };
#define VECTOR_BYTES    64
#define SPLAT(x)        ((vec)_mm512_set1_ps(x))
#define MADD(a, b, sum) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(sum)))
#elif defined(LS__AVX2)
#include <immintrin.h>
enum { ROWS = 6, BLOCK = 16 * ROWS, WIDE = 1 };
#define VECTOR_BYTES    32
#define SPLAT(x)        ((vec)_mm256_set1_ps(x))
#define MADD(a, b, sum) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(sum)))
#elif defined(LS__NEON)
#include <arm_neon.h>
enum { ROWS = 6, BLOCK = 16 * ROWS, WIDE = 1 };
#define VECTOR_BYTES    16
#define SPLAT(x)        ((vec)vdupq_n_f32(x))
#define MADD(a, b, sum) ((vec)vfmaq_f32((float32x4_t)(sum), (float32x4_t)(a), (float32x4_t)(b)))
#else
enum { ROWS = 4, BLOCK = 24 * ROWS, WIDE = 1 };
#define VECTOR_BYTES 16
#define PLAIN        1
#endif
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
enum { WIDTH = VECTOR_BYTES / 4, VECTORS = PANEL / WIDTH };

/* Most of a step's time: not slowed down by a sanitizer's checks. Its callers, packing and edges, are checked. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined", "thread")))

UNCHECKED INLINE vec load(const float *from)
{
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

UNCHECKED INLINE void store(float *to, vec x)
{
    memcpy(to, &x, sizeof x);
}

/* ---- Packing */

/* Rows that are copied at a time, across all columns: memory is read along its rows. */
enum { PACK_ROWS = 8 };

static void pack(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n)
{
    for (int64_t from = 0; from < k; from += PACK_ROWS) {
        int64_t to = from + PACK_ROWS < k ? from + PACK_ROWS : k;
        for (int64_t j = 0; j < n; j += PANEL) {
            int64_t cols = n - j < PANEL ? n - j : PANEL;
            for (int64_t i = from; i < to; i++) {
                float *out = panels + j * k + i * PANEL;
                __builtin_prefetch(b + (i + PACK_ROWS) * ldb + j);
                if (cols == PANEL)
                    memcpy(out, b + i * ldb + j, PANEL * sizeof *out);
                else
                    for (int64_t l = 0; l < PANEL; l++) out[l] = l < cols ? b[i * ldb + j + l] : 0.0f;
            }
        }
    }
}

/* The first `rows` (at most SQUARE) rows of SQUARE become columns, `step` apart; only `rows` elements of each are written. */
#if defined(LS__AVX512)
enum { SQUARE = 16 };
INLINE void transpose(float *out, int step, const float *in, int64_t ld, const int rows)
{
    __m512 r[16], t[16];
    const __mmask16 written = (__mmask16)((1u << rows) - 1);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = i < rows ? _mm512_loadu_ps(in + i * ld) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 2]);
        __m512d c = _mm512_castps_pd(t[i + 1]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        _mm512_mask_storeu_ps(out + step * i, written, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
        _mm512_mask_storeu_ps(out + step * (i + 4), written, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88));
        _mm512_mask_storeu_ps(out + step * (i + 8), written, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
        _mm512_mask_storeu_ps(out + step * (i + 12), written, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd));
    }
}
#else
#if defined(LS__AVX2)
enum { SQUARE = 8 };
#else
enum { SQUARE = 4 };
#endif
typedef float quad __attribute__((vector_size(16)));

INLINE quad load_quad(const float *from)
{
    quad x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* Four rows of four. */
INLINE void transpose_quad(float *out, int step, const float *in, int64_t ld)
{
    quad r0 = load_quad(in), r1 = load_quad(in + ld), r2 = load_quad(in + 2 * ld), r3 = load_quad(in + 3 * ld);
    quad a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    quad c = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    quad columns[4] = { __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
                        __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7) };
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) memcpy(out + l * step, &columns[l], sizeof columns[l]);
}

#if defined(LS__AVX2)
INLINE void transpose_eight(float *out, int step, const float *in, int64_t ld)
{
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(in + i * ld);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + step * i, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + step * (i + 4), _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
#endif

INLINE void transpose(float *out, int step, const float *in, int64_t ld, const int rows)
{
#if defined(LS__AVX2)
    if (rows == 8) {
        transpose_eight(out, step, in, ld);
        return;
    }
#endif
    for (int i = 0; i < SQUARE; i += 4) {
        int r = 0;
        for (; r + 4 <= rows; r += 4) transpose_quad(out + i * step + r, step, in + r * ld + i, ld);
        for (; r < rows; r++)
            for (int l = 0; l < 4; l++) out[(i + l) * step + r] = in[r * ld + i + l];
    }
}
#endif

static void pack_transposed(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n)
{
    for (int64_t j = 0; j < n; j += PANEL, panels += k * PANEL) {
        int64_t cols = n - j < PANEL ? n - j : PANEL, i = 0;
        if (cols == PANEL)
            for (; i + SQUARE <= k; i += SQUARE) {
                for (int64_t l = i % PANEL; l < i % PANEL + SQUARE; l++) /* the next panel's rows, a line each */
                    __builtin_prefetch(b + (j + PANEL + l) * ldb + i - i % PANEL);
                for (int64_t l = 0; l < PANEL; l += SQUARE)
                    transpose(panels + i * PANEL + l, PANEL, b + (j + l) * ldb + i, ldb, SQUARE);
            }
        for (; i < k; i++)
            for (int64_t l = 0; l < PANEL; l++) panels[i * PANEL + l] = l < cols ? b[(j + l) * ldb + i] : 0.0f;
    }
}

/* Stored (k, m): a group's part of each row is copied. */
static void pack_columns(float *out, const float *a, int64_t lda, int64_t whole, int64_t k)
{
    for (int64_t from = 0; from < k; from += PACK_ROWS)
        for (int64_t at = 0; at < whole; at += ROWS)
            for (int64_t i = from; i < k && i < from + PACK_ROWS; i++)
                memcpy(out + at * k + i * ROWS, a + i * lda + at, ROWS * sizeof *out);
}

static void pack_rows(float *out, const float *a, int64_t lda, bool trans, int64_t m, int64_t k)
{
    int64_t whole = m - m % ROWS;
    if (trans) pack_columns(out, a, lda, whole, k);
    for (int64_t at = 0; !trans && at < whole; at += ROWS) {
        int64_t i = 0;
        for (; i + SQUARE <= k; i += SQUARE) {
            for (int r = 0; r < ROWS; r++) __builtin_prefetch(a + (at + r) * lda + i + 4 * SQUARE);
            int r = 0;
#pragma GCC unroll 4
            for (; r + SQUARE <= ROWS; r += SQUARE)
                transpose(out + at * k + i * ROWS + r, ROWS, a + (at + r) * lda + i, lda, SQUARE);
            if (ROWS % SQUARE) transpose(out + at * k + i * ROWS + r, ROWS, a + (at + r) * lda + i, lda, ROWS % SQUARE);
        }
        for (; i < k; i++)
            for (int r = 0; r < ROWS; r++) out[at * k + i * ROWS + r] = a[(at + r) * lda + i];
    }
    for (int64_t i = 0; whole < m && i < k; i++)
        for (int64_t r = 0; r < ROWS; r++)
            out[whole * k + i * ROWS + r] = whole + r >= m ? 0.0f
                                            : trans        ? a[i * lda + whole + r]
                                                           : a[(whole + r) * lda + i];
}

/* ---- Multiplying */

#ifdef PLAIN

/* One row of a panel times a, as ls__fma() computes it. */
static __attribute__((noinline)) void exact_step(vec *next, float a, const float *panel, const vec *sum)
{
    for (int j = 0; j < PANEL; j++) next[j / 4][j % 4] = ls__fma(a, panel[j], sum[j / 4][j % 4]);
}

UNCHECKED INLINE void plain_row(float *c, const float *a, int64_t a_col, const float *panel, int64_t k, bool add)
{
    vec sum[4], next[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) sum[v] = add ? load(c + 4 * v) : (vec){ 0 };
    for (int64_t i = 0; i < k; i++, panel += PANEL, a += a_col) {
        ls__four_flags unsure = { 0 };
        double factor = (double)*a;
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) next[v] = ls__fma_twice(factor, load(panel + 4 * v), sum[v], &unsure);
        typedef int64_t two __attribute__((vector_size(16)));
        if (__builtin_expect((((two)unsure)[0] | ((two)unsure)[1]) != 0, 0)) {
            vec from[4] = { sum[0], sum[1], sum[2], sum[3] }, to[4];
            exact_step(to, *a, panel, from);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) next[v] = to[v];
        }
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) sum[v] = next[v];
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) store(c + 4 * v, sum[v]);
}

UNCHECKED static void any_block(int rows, int wide, bool add, float *c, int64_t ldc, const float *a, int64_t a_row,
                                int64_t a_col, const float *panels, int64_t step, int64_t k)
{
    (void)wide, (void)step;
    for (int r = 0; r < rows; r++) plain_row(c + r * ldc, a + r * a_row, a_col, panels, k, add);
}

#else

/* c (rows, wide * 16) = (add: c +) a (rows, k) times panels that are `step` floats apart; `rows`, `wide` and `by_rows` are
 * constants where this is inlined. by_rows: a's rows are contiguous, a_col is 1; else its columns are, a_row is 1. The small
 * loops must be unrolled before the compiler looks at `sum`, or it stays in memory. Rows are reached from a pointer for
 * each three of them: addresses of 14 rows would not fit the registers. */
UNCHECKED INLINE void block(const int rows, const int wide, const bool by_rows, bool add, float *c, int64_t ldc,
                            const float *a, int64_t a_row, int64_t a_col, const float *panels, int64_t step, int64_t k)
{
    enum { THREES = (ROWS + 2) / 3 };
    vec sum[ROWS][WIDE * VECTORS];
    const float *at[THREES];
#pragma GCC unroll 16
    for (int g = 0; g < THREES; g++) at[g] = a + 3 * g * a_row;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < wide * VECTORS; v++) sum[r][v] = SPLAT(0.0f);
    if (add)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
            for (int v = 0; v < wide * VECTORS; v++) sum[r][v] = load(c + r * ldc + v * WIDTH);
    for (int64_t i = 0; i < k; i++) {
        vec b[WIDE * VECTORS];
#pragma GCC unroll 16
        for (int v = 0; v < wide * VECTORS; v++) b[v] = load(panels + v / VECTORS * step + v % VECTORS * WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vec x = SPLAT(by_rows ? at[r / 3][r % 3 * a_row] : a[r]);
#pragma GCC unroll 16
            for (int v = 0; v < wide * VECTORS; v++) sum[r][v] = MADD(x, b[v], sum[r][v]);
        }
        panels += PANEL;
        a += a_col;
#pragma GCC unroll 16
        for (int g = 0; g < THREES; g++) at[g]++;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < wide * VECTORS; v++) store(c + r * ldc + v * WIDTH, sum[r][v]);
}

UNCHECKED static void any_block(int rows, int wide, bool add, float *c, int64_t ldc, const float *a, int64_t a_row,
                                int64_t a_col, const float *panels, int64_t step, int64_t k)
{
    switch (2 * (rows * WIDE + wide - 1) + (a_col == 1)) {
#define CASE(n, wide, by_rows)                                                  \
    case 2 * (n * WIDE + wide - 1) + by_rows:                                   \
        block(n, wide, by_rows, add, c, ldc, a, a_row, a_col, panels, step, k); \
        break;
#if defined(LS__AVX512)
#define CASES(n) CASE(n, 1, false) CASE(n, 1, true) CASE(n, 2, false) CASE(n, 2, true)
#else
#define CASES(n) CASE(n, 1, false) CASE(n, 1, true)
#endif
        CASES(1)
        CASES(2)
        CASES(3)
        CASES(4)
        CASES(5)
        CASES(6)
#if defined(LS__AVX512)
        CASES(7)
        CASES(8)
        CASES(9)
        CASES(10)
        CASES(11)
        CASES(12)
        CASES(13)
        CASES(14)
#endif
#undef CASES
#undef CASE
    default: break;
    }
}

#endif

/* The same for a block that may end inside a panel: the first `cols` of its columns exist. */
INLINE void one_block(float *c, int64_t ldc, int64_t cols, int rows, bool add, const float *a, int64_t a_row,
                      int64_t a_col, const float *panels, int64_t step, int64_t k)
{
    int wide = WIDE > 1 && cols > PANEL ? WIDE : 1;
    if (cols >= wide * PANEL) {
        any_block(rows, wide, add, c, ldc, a, a_row, a_col, panels, step, k);
        return;
    }
    enum { LD = WIDE * PANEL };
    float edge[ROWS * LD] = { 0 };
    for (int r = 0; add && r < rows; r++) memcpy(edge + r * LD, c + r * ldc, (size_t)cols * sizeof *c);
    any_block(rows, wide, add, edge, LD, a, a_row, a_col, panels, step, k);
    for (int r = 0; r < rows; r++) memcpy(c + r * ldc, edge + r * LD, (size_t)cols * sizeof *c);
}

static void panel_product(float *c, int64_t ldc, const ls__left *a, const float *panels, int64_t depth, int64_t m,
                          int64_t n, int64_t k, bool add)
{
    for (int64_t j = 0; j < n; j += WIDE * PANEL, panels += depth * WIDE * PANEL)
        for (int64_t i = 0; i < m; i += ROWS) {
            /* the next block's part of c, which it will load or overwrite */
            for (int64_t r = i + ROWS; r < i + 2 * ROWS && r < m; r++)
                for (int v = 0; v < WIDE; v++) __builtin_prefetch(c + r * ldc + j + v * PANEL, 1);
            one_block(c + i * ldc + j, ldc, n - j, (int)(m - i < ROWS ? m - i : ROWS), add, a->at + i / ROWS * a->group,
                      a->row, a->col, panels, depth * PANEL, k);
        }
}

/* B in place: c (m, n) is read and written once for every four rows of B, which are read in long runs. */
#ifdef PLAIN
#define FMA(a, b, c) ls__fma(a, b, c)
#else
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#endif
static void direct_product(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col, const float *b,
                           int64_t ldb, int64_t m, int64_t n, int64_t k, bool add)
{
    for (int64_t r = 0; !add && r < m; r++) memset(c + r * ldc, 0, (size_t)n * sizeof *c);
    for (int64_t i = 0; i < k; i += 4)
        for (int64_t r = 0; r < m; r++) {
            float *to = c + r * ldc;
            const float *x = a + r * a_row + i * a_col, *y = b + i * ldb;
            if (k - i >= 4) {
                float x0 = x[0], x1 = x[a_col], x2 = x[2 * a_col], x3 = x[3 * a_col];
                const float *y1 = y + ldb, *y2 = y + 2 * ldb, *y3 = y + 3 * ldb;
#pragma omp simd
                for (int64_t j = 0; j < n; j++)
                    to[j] = FMA(x3, y3[j], FMA(x2, y2[j], FMA(x1, y1[j], FMA(x0, y[j], to[j]))));
            } else
                for (int64_t l = 0; l < k - i; l++, y += ldb) {
                    float x0 = x[l * a_col];
#pragma omp simd
                    for (int64_t j = 0; j < n; j++) to[j] = FMA(x0, y[j], to[j]);
                }
        }
}
