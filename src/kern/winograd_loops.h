/* Winograd's transforms for 3x3 convolutions, F(2x2, 3x3); part of nn_loops.h, compiled once per instruction set.
 *
 * A tile of 4x4 pixels becomes 16 values, and the sums over channels of their products with 16 values of the weights become 2x2 results: 16
 * multiplications instead of 36 (Lavin and Gray, 2015). Channels are a multiple of 16. */

enum { LANES = 16 };

/* B^T d of four values: d0 - d2, d1 + d2, d2 - d1, d1 - d3 */
#define TILE_IN(out, d0, d1, d2, d3)                    \
    _Pragma("omp simd") for (int l = 0; l < LANES; l++) \
    {                                                   \
        (out)[0][l] = (d0)[l] - (d2)[l];                \
        (out)[1][l] = (d1)[l] + (d2)[l];                \
        (out)[2][l] = (d2)[l] - (d1)[l];                \
        (out)[3][l] = (d1)[l] - (d3)[l];                \
    }

static void winograd_in(float *v, size_t step, const float *x, int64_t line, size_t channels)
{
    for (size_t c = 0; c < channels; c += LANES) {
        float t[4][4][LANES]; /* by column: B^T d */
        for (int j = 0; j < 4; j++) {
            const float *d = x + (size_t)j * channels + c;
            TILE_IN(t[j], d, d + line, d + 2 * line, d + 3 * line)
        }
        for (int i = 0; i < 4; i++) {
            float r[4][LANES];
            TILE_IN(r, t[0][i], t[1][i], t[2][i], t[3][i])
            for (int j = 0; j < 4; j++) memcpy(v + (size_t)(4 * i + j) * step + c, r[j], sizeof r[j]);
        }
    }
}

static void winograd_out(float *y, int64_t line, int rows, int cols, const float *m, size_t step, size_t channels,
                         bool add)
{
    for (size_t c = 0; c < channels; c += LANES) {
        float t[2][4][LANES]; /* A^T m: m0 + m1 + m2, m1 - m2 - m3 */
        for (int j = 0; j < 4; j++) {
            const float *a = m + (size_t)j * step + c, *b = a + 4 * step, *d = b + 4 * step, *e = d + 4 * step;
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                t[0][j][l] = (a[l] + b[l]) + d[l];
                t[1][j][l] = (b[l] - d[l]) - e[l];
            }
        }
        for (int i = 0; i < 2 && i < rows; i++) {
            float r[2][LANES];
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                r[0][l] = (t[i][0][l] + t[i][1][l]) + t[i][2][l];
                r[1][l] = (t[i][1][l] - t[i][2][l]) - t[i][3][l];
            }
            for (int j = 0; j < 2 && j < cols; j++) {
                float *to = y + i * line + (size_t)j * channels + c;
                if (add)
#pragma omp simd
                    for (int l = 0; l < LANES; l++) to[l] += r[j][l];
                else
                    memcpy(to, r[j], sizeof r[j]);
            }
        }
    }
}
