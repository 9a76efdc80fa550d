/* Products of matrices in panels: attention, and the inner loop of tensor/blas.c; part of nn_loops.h, compiled once per instruction set.
 *
 * B is packed into panels of 16 columns, [n / 16][k][16], zeros behind the last column; it is packed once and used for
 * many strips of A, which is read where it lies. A block of ROWS x 16 sums stays in registers over all of k; each of
 * its elements is summed in the order of k, so the bits do not depend on how a caller cuts rows and columns.
 *
 * These are the only loops here that fuse multiplication and addition (where the CPU can): like SGEMM's, their last bits
 * depend on the instruction set. */

enum { PANEL = LS__PANEL };

#if defined(__AVX512F__)
enum { ROWS = 12 };
#define VECTOR_BYTES    64
#define SPLAT(x)        ((vec)_mm512_set1_ps(x))
#define MADD(a, b, sum) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(sum)))
#elif defined(__AVX2__)
enum { ROWS = 6 };
#define VECTOR_BYTES    32
#define SPLAT(x)        ((vec)_mm256_set1_ps(x))
#define MADD(a, b, sum) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(sum)))
#else
enum { ROWS = 3 };
#define VECTOR_BYTES    16
#define SPLAT(x)        ((vec){ (x), (x), (x), (x) })
#define MADD(a, b, sum) ((a) * (b) + (sum))
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
enum { WIDTH = VECTOR_BYTES / 4, VECTORS = PANEL / WIDTH };

/* Where a step spends its time: not slowed down by a sanitizer's checks. What calls it, packing and edges, is checked. */
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

/* Four rows of four become four columns. */
INLINE void transpose_4x4(float *out, const float *in, int64_t ld)
{
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    four r0 = *(const four *)in, r1 = *(const four *)(in + ld), r2 = *(const four *)(in + 2 * ld),
         r3 = *(const four *)(in + 3 * ld);
    four a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    four c = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(four *)out = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    *(four *)(out + PANEL) = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    *(four *)(out + 2 * PANEL) = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    *(four *)(out + 3 * PANEL) = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

static void pack_transposed(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n)
{
    for (int64_t j = 0; j < n; j += PANEL, panels += k * PANEL) {
        int64_t cols = n - j < PANEL ? n - j : PANEL, i = 0;
        if (cols == PANEL)
            for (; i + 4 <= k; i += 4) {
                for (int64_t l = i % PANEL; l < i % PANEL + 4; l++) /* the next panel's rows, a line each */
                    __builtin_prefetch(b + (j + PANEL + l) * ldb + i - i % PANEL);
                for (int64_t l = 0; l < PANEL; l += 4)
                    transpose_4x4(panels + i * PANEL + l, b + (j + l) * ldb + i, ldb);
            }
        for (; i < k; i++)
            for (int64_t l = 0; l < PANEL; l++) panels[i * PANEL + l] = l < cols ? b[(j + l) * ldb + i] : 0.0f;
    }
}

/* A (m, k) in groups of ROWS rows, [m / ROWS][k][ROWS], so that a block reads one stream. */
INLINE void pack_group(float *out, const float *a, int64_t lda, int64_t k, bool whole)
{
    int64_t i = 0;
    if (whole) /* four rows at a time; the last four may reach into the next group, and what they spill is overwritten */
        for (; i + 4 < k; i += 4) {
            float square[ROWS / 4 + 1][4 * PANEL];
            for (int q = 0; 4 * q < ROWS; q++) transpose_4x4(square[q], a + 4 * q * lda + i, lda);
            for (int l = 0; l < 4; l++)
                for (int q = 0; 4 * q < ROWS; q++)
                    memcpy(out + (i + l) * ROWS + 4 * q, square[q] + l * PANEL, 4 * sizeof *out);
        }
    for (; i < k; i++)
        for (int r = 0; r < ROWS; r++) out[i * ROWS + r] = a[r * lda + i];
}

INLINE void pack_last_group(float *out, const float *a, int64_t a_row, int64_t a_col, int64_t rows, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t r = 0; r < ROWS; r++) out[i * ROWS + r] = r < rows ? a[r * a_row + i * a_col] : 0.0f;
}

static void pack_rows(float *out, const float *a, int64_t lda, bool a_trans, int64_t m, int64_t k)
{
    int64_t whole = m - m % ROWS;
    if (whole < m)
        pack_last_group(out + whole * k, a + whole * (a_trans ? 1 : lda), a_trans ? 1 : lda, a_trans ? lda : 1,
                        m - whole, k);
    if (!a_trans) {
        for (int64_t at = 0; at < whole; at += ROWS)
            pack_group(out + at * k, a + at * lda, lda, k, m - at >= (ROWS + 3) / 4 * 4);
        return;
    }
    for (int64_t from = 0; from < k; from += PACK_ROWS)
        for (int64_t at = 0; at < whole; at += ROWS)
            for (int64_t i = from; i < k && i < from + PACK_ROWS; i++)
                memcpy(out + at * k + i * ROWS, a + i * lda + at, ROWS * sizeof *out);
}

/* c (rows x 16) = (add: c +) a (rows x k) times one panel; `rows` and `add` are constants where this is inlined. The
 * small loops must be unrolled before the compiler looks at `sum`, or it stays in memory. */
UNCHECKED INLINE void block(const int rows, const bool add, float *c, int64_t ldc, const float *a, int64_t a_row,
                            int64_t a_col, const float *panel, int64_t k)
{
    vec sum[ROWS][VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) sum[r][v] = add ? load(c + r * ldc + v * WIDTH) : SPLAT(0.0f);
    for (int64_t i = 0; i < k; i++, panel += PANEL, a += a_col) {
        vec b[VECTORS];
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) b[v] = load(panel + v * WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vec x = SPLAT(a[r * a_row]);
#pragma GCC unroll 16
            for (int v = 0; v < VECTORS; v++) sum[r][v] = MADD(x, b[v], sum[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) store(c + r * ldc + v * WIDTH, sum[r][v]);
}

UNCHECKED static void any_block(int rows, bool add, float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col,
                                const float *panel, int64_t k)
{
    switch (2 * rows + add) {
#define CASE(n)                                                            \
    case 2 * n: block(n, false, c, ldc, a, a_row, a_col, panel, k); break; \
    case 2 * n + 1: block(n, true, c, ldc, a, a_row, a_col, panel, k); break;
        CASE(1)
        CASE(2)
        CASE(3)
#if defined(__AVX2__)
        CASE(4)
        CASE(5)
        CASE(6)
#endif
#if defined(__AVX512F__)
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
#endif
#undef CASE
    default: break;
    }
}

/* The same for a block that may end inside a panel: cols of its 16 columns exist. */
INLINE void one_block(float *c, int64_t ldc, int64_t cols, int rows, const float *a, int64_t a_row, int64_t a_col,
                      const float *panel, int64_t k, bool add)
{
    if (cols >= PANEL) {
        any_block(rows, add, c, ldc, a, a_row, a_col, panel, k);
        return;
    }
    float edge[ROWS * PANEL] = { 0 };
    for (int r = 0; add && r < rows; r++) memcpy(edge + r * PANEL, c + r * ldc, (size_t)cols * sizeof *c);
    any_block(rows, add, edge, PANEL, a, a_row, a_col, panel, k);
    for (int r = 0; r < rows; r++) memcpy(c + r * ldc, edge + r * PANEL, (size_t)cols * sizeof *c);
}

static void panel_product(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col, const float *panels,
                          int64_t depth, int64_t m, int64_t n, int64_t k, bool add)
{
    for (int64_t j = 0; j < n; j += PANEL, panels += depth * PANEL)
        for (int64_t i = 0; i < m; i += ROWS)
            one_block(c + i * ldc + j, ldc, n - j, (int)(m - i < ROWS ? m - i : ROWS), a + i * a_row, a_row, a_col,
                      panels, k, add);
}

static void packed_product(float *c, int64_t ldc, const float *rows, const float *panels, int64_t m, int64_t n,
                           int64_t k, bool add)
{
    for (int64_t j = 0; j < n; j += PANEL, panels += k * PANEL)
        for (int64_t i = 0; i < m; i += ROWS) {
            /* the next block's part of c, which it will load or overwrite */
            for (int64_t r = i + ROWS; r < i + 2 * ROWS && r < m; r++) __builtin_prefetch(c + r * ldc + j, 1);
            one_block(c + i * ldc + j, ldc, n - j, (int)(m - i < ROWS ? m - i : ROWS), rows + i * k, 1, ROWS, panels, k,
                      add);
        }
}
