/* The inner loops of convolutions; part of nn_loops.h, compiled once per instruction set, after gemm_loops.h.
 *
 * A product whose left operand is a window that moves over an image: its k elements are `runs` runs of k, each `gap` floats
 * after the end of the one before (the lines of a window, or the lines of an image). Nothing is unfolded or copied; the sums
 * stay in registers over all runs. The chain of an element is that of gemm_loops.h: in the order of k, run after run. */

#ifdef PLAIN

UNCHECKED static void any_window(int rows, int wide, bool add, float *c, int64_t ldc, const float *a, int64_t a_row,
                                 int64_t a_col, int64_t runs, int64_t gap, const float *panels, int64_t step, int64_t k)
{
    for (int64_t s = 0; s < runs; s++, a += k * a_col + gap, panels += k * PANEL)
        any_block(rows, wide, add || s, c, ldc, a, a_row, a_col, panels, step, k);
}

#else

/* As block() of gemm_loops.h, with runs. */
UNCHECKED INLINE void window(const int rows, const int wide, const bool by_rows, bool add, float *c, int64_t ldc,
                             const float *a, int64_t a_row, int64_t a_col, int64_t runs, int64_t gap,
                             const float *panels, int64_t step, int64_t k)
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
    for (int64_t s = 0; s < runs; s++) {
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
        a += gap;
#pragma GCC unroll 16
        for (int g = 0; g < THREES; g++) at[g] += gap;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < wide * VECTORS; v++) store(c + r * ldc + v * WIDTH, sum[r][v]);
}

UNCHECKED static void any_window(int rows, int wide, bool add, float *c, int64_t ldc, const float *a, int64_t a_row,
                                 int64_t a_col, int64_t runs, int64_t gap, const float *panels, int64_t step, int64_t k)
{
    switch (2 * (rows * WIDE + wide - 1) + (a_col == 1)) {
#define CASE(n, wide, by_rows)                                                              \
    case 2 * (n * WIDE + wide - 1) + by_rows:                                               \
        window(n, wide, by_rows, add, c, ldc, a, a_row, a_col, runs, gap, panels, step, k); \
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

/* A block that may end inside a panel: the first `cols` of its columns exist. */
INLINE void one_window(float *c, int64_t ldc, int64_t cols, int rows, bool add, const float *a, int64_t a_row,
                       int64_t a_col, int64_t runs, int64_t gap, const float *panels, int64_t step, int64_t k)
{
    int wide = WIDE > 1 && cols > PANEL ? WIDE : 1;
    if (cols >= wide * PANEL) {
        any_window(rows, wide, add, c, ldc, a, a_row, a_col, runs, gap, panels, step, k);
        return;
    }
    enum { LD = WIDE * PANEL };
    float edge[ROWS * LD] = { 0 };
    for (int r = 0; add && r < rows; r++) memcpy(edge + r * LD, c + r * ldc, (size_t)cols * sizeof *c);
    any_window(rows, wide, add, edge, LD, a, a_row, a_col, runs, gap, panels, step, k);
    for (int r = 0; r < rows; r++) memcpy(c + r * ldc, edge + r * LD, (size_t)cols * sizeof *c);
}

/* Rows are divided into equal blocks: 16 are 8 and 8, not 14 and 2. */
static void window_product(float *c, int64_t ldc, const ls__window *a, const float *panels, int64_t m, int64_t n,
                           bool add)
{
    int64_t depth = a->runs * a->k, blocks = (m + ROWS - 1) / ROWS, each = blocks ? (m + blocks - 1) / blocks : 0;
    for (int64_t j = 0; j < n; j += WIDE * PANEL, panels += depth * WIDE * PANEL)
        for (int64_t i = 0; i < m; i += each)
            one_window(c + i * ldc + j, ldc, n - j, (int)(m - i < each ? m - i : each), add, a->at + i * a->row, a->row,
                       a->col, a->runs, a->gap, panels, depth * PANEL, a->k);
}
