/* Products of small matrices for attention; part of nn_loops.h, compiled once per instruction set.
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
typedef float vec __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
enum { WIDTH = VECTOR_BYTES / 4, VECTORS = PANEL / WIDTH };

static void pack(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n)
{
    for (int64_t j = 0; j < n; j += PANEL) {
        int64_t cols = n - j < PANEL ? n - j : PANEL;
        for (int64_t i = 0; i < k; i++, panels += PANEL) {
            const float *from = b + i * ldb + j;
            if (cols == PANEL)
                memcpy(panels, from, PANEL * sizeof *panels);
            else
                for (int64_t l = 0; l < PANEL; l++) panels[l] = l < cols ? from[l] : 0.0f;
        }
    }
}

static void pack_transposed(float *panels, const float *b, int64_t ldb, int64_t k, int64_t n)
{
    for (int64_t j = 0; j < n; j += PANEL, panels += k * PANEL) {
        int64_t cols = n - j < PANEL ? n - j : PANEL;
        for (int64_t l = 0; l < PANEL; l++)
            for (int64_t i = 0; i < k; i++) panels[i * PANEL + l] = l < cols ? b[(j + l) * ldb + i] : 0.0f;
    }
}

/* c (rows x 16) = (add: c +) a (rows x k) times one panel; `rows` is a constant where this is inlined. */
INLINE void block(int rows, float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col, const float *panel,
                  int64_t k, bool add)
{
    vec sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sum[r][v] = add ? *(const vec *)(c + r * ldc + v * WIDTH) : (vec){ 0 };
    for (int64_t i = 0; i < k; i++) {
        vec b[VECTORS];
        for (int v = 0; v < VECTORS; v++) b[v] = *(const vec *)(panel + i * PANEL + v * WIDTH);
        for (int r = 0; r < rows; r++) {
            vec x = SPLAT(a[r * a_row + i * a_col]);
            for (int v = 0; v < VECTORS; v++) sum[r][v] = MADD(x, b[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) *(vec *)(c + r * ldc + v * WIDTH) = sum[r][v];
}

static void any_block(int rows, float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col, const float *panel,
                      int64_t k, bool add)
{
    switch (rows) {
#define CASE(n) \
    case n: block(n, c, ldc, a, a_row, a_col, panel, k, add); break;
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

static void panel_product(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_col, const float *panels,
                          int64_t depth, int64_t m, int64_t n, int64_t k, bool add)
{
    for (int64_t j = 0; j < n; j += PANEL, panels += depth * PANEL)
        for (int64_t i = 0; i < m; i += ROWS) {
            int rows = (int)(m - i < ROWS ? m - i : ROWS);
            float *to = c + i * ldc + j;
            if (n - j >= PANEL) {
                any_block(rows, to, ldc, a + i * a_row, a_row, a_col, panels, k, add);
                continue;
            }
            float edge[ROWS * PANEL];
            any_block(rows, edge, PANEL, a + i * a_row, a_row, a_col, panels, k, false);
            for (int r = 0; r < rows; r++)
                for (int64_t l = 0; l < n - j; l++)
                    to[r * ldc + l] = (add ? to[r * ldc + l] : 0.0f) + edge[r * PANEL + l];
        }
}
