/* Loops over rows of channels, as batch norms and poolings need them; part of nn_loops.h, compiled once per instruction set.
 * Each channel is a sum of its own: four rows at a time are added to it, (0 + 1) + (2 + 3), in the order of rows. */

/* sums[c] += the sum over rows of EXPR, an expression of the element number `i` and the channel `c`. */
#define OVER_ROWS(sums, rows, channels, EXPR)                                                         \
    do {                                                                                              \
        size_t r_ = 0;                                                                                \
        for (; r_ + 4 <= (rows); r_ += 4) _Pragma("omp simd") for (size_t c = 0; c < (channels); c++) \
            {                                                                                         \
                float four_[4];                                                                       \
                _Pragma("GCC unroll 4") for (size_t q_ = 0; q_ < 4; q_++)                             \
                {                                                                                     \
                    size_t i = (r_ + q_) * (channels) + c;                                            \
                    four_[q_] = (EXPR);                                                               \
                }                                                                                     \
                (sums)[c] += (four_[0] + four_[1]) + (four_[2] + four_[3]);                           \
            }                                                                                         \
        for (; r_ < (rows); r_++) _Pragma("omp simd") for (size_t c = 0; c < (channels); c++)         \
            {                                                                                         \
                size_t i = r_ * (channels) + c;                                                       \
                (sums)[c] += (EXPR);                                                                  \
            }                                                                                         \
    } while (0)

/* With a constant number of channels the inner loop is a vector or two. */
#define FOR_CHANNELS(channels, CALL) \
    switch (channels) {              \
    case 16: {                       \
        enum { C = 16 };             \
        CALL;                        \
        break;                       \
    }                                \
    case 32: {                       \
        enum { C = 32 };             \
        CALL;                        \
        break;                       \
    }                                \
    case 64: {                       \
        enum { C = 64 };             \
        CALL;                        \
        break;                       \
    }                                \
    default: {                       \
        const size_t C = channels;   \
        CALL;                        \
    }                                \
    }

INLINE void sums_of(float *sums, const float *x, size_t rows, const size_t C)
{
    OVER_ROWS(sums, rows, C, x[i]);
}
static void channel_sums(float *sums, const float *x, size_t rows,
                         size_t channels){ FOR_CHANNELS(channels, sums_of(sums, x, rows, C)) }

INLINE void squares_of(float *sums, const float *x, const float *mean, size_t rows, const size_t C)
{
    OVER_ROWS(sums, rows, C, (x[i] - mean[c]) * (x[i] - mean[c]));
}
static void channel_squares(float *sums, const float *x, const float *mean, size_t rows,
                            size_t channels){ FOR_CHANNELS(channels, squares_of(sums, x, mean, rows, C)) }

INLINE void affine_of(float *out, const float *x, const float *more, const float *factor, const float *shift,
                      const bool relu, size_t rows, const size_t C)
{
    for (size_t r = 0; r < rows; r++)
#pragma omp simd
        for (size_t c = 0; c < C; c++) {
            size_t i = r * C + c;
            float y = factor[c] * x[i] + shift[c];
            if (more) y += more[i];
            out[i] = relu ? (y <= 0.0f ? 0.0f : y) : y;
        }
}
static void channel_affine(float *out, const float *x, const float *more, const float *factor, const float *shift,
                           bool relu, size_t rows, size_t channels)
{
    if (relu && more)
        FOR_CHANNELS(channels, affine_of(out, x, more, factor, shift, true, rows, C))
    else if (relu)
        FOR_CHANNELS(channels, affine_of(out, x, NULL, factor, shift, true, rows, C))
    else
        FOR_CHANNELS(channels, affine_of(out, x, more, factor, shift, false, rows, C))
}

INLINE void back_sums_of(float *sums, float *with_x, float *dy, const float *y, const float *x, const float *mean,
                         size_t rows, const size_t C)
{
    if (y)
        for (size_t r = 0; r < rows; r++)
#pragma omp simd
            for (size_t c = 0; c < C; c++) dy[r * C + c] = y[r * C + c] > 0.0f ? dy[r * C + c] : 0.0f;
    OVER_ROWS(sums, rows, C, dy[i]);
    OVER_ROWS(with_x, rows, C, dy[i] * (x[i] - mean[c]));
}
/* In parts that stay in the L1 cache, a multiple of four rows. */
static void channel_back_sums(float *sums, float *with_x, float *dy, const float *y, const float *x, const float *mean,
                              size_t rows, size_t channels)
{
    size_t each = channels < 512 ? 2048 / channels / 4 * 4 : 4;
    if (each < 4) each = 4;
    for (size_t r = 0; r < rows; r += each) {
        size_t n = rows - r < each ? rows - r : each, at = r * channels;
        FOR_CHANNELS(channels, back_sums_of(sums, with_x, dy + at, y ? y + at : NULL, x + at, mean, n, C))
    }
}

INLINE void back_of(float *dx, const bool add, const float *dy, const float *x, const float *factor, const float *shift,
                    const float *mean, const float *slope, size_t rows, const size_t C)
{
    for (size_t r = 0; r < rows; r++)
#pragma omp simd
        for (size_t c = 0; c < C; c++) {
            size_t i = r * C + c;
            float d = factor[c] * (dy[i] - shift[c] - (x[i] - mean[c]) * slope[c]);
            dx[i] = add ? dx[i] + d : d;
        }
}
static void channel_norm_back(float *dx, bool add, const float *dy, const float *x, const float *factor,
                              const float *shift, const float *mean, const float *slope, size_t rows, size_t channels)
{
    if (add)
        FOR_CHANNELS(channels, back_of(dx, true, dy, x, factor, shift, mean, slope, rows, C))
    else
        FOR_CHANNELS(channels, back_of(dx, false, dy, x, factor, shift, mean, slope, rows, C))
}

/* Of the n rows of a window, the largest value of each channel and the place of its row; the first of equal ones; a NaN is
 * larger than all. Rows that are NULL are not there. */
static void channel_max(float *out, uint8_t *places, const float *const *rows, int n, size_t channels)
{
    enum { C = 16 };
    for (size_t at = 0; at < channels; at += C) {
        size_t count = channels - at < C ? channels - at : C;
        float best[C];
        int32_t place[C];
        bool first = true;
        for (int w = 0; w < n; w++) {
            const float *x = rows[w];
            if (!x) continue;
            if (first) {
                for (size_t c = 0; c < C; c++) best[c] = c < count ? x[at + c] : 0.0f;
                for (size_t c = 0; c < C; c++) place[c] = w;
            } else if (count == C) {
#pragma omp simd
                for (size_t c = 0; c < C; c++) {
                    float value = x[at + c];
                    bool more = value > best[c] || value != value;
                    place[c] = more ? w : place[c];
                    best[c] = more ? value : best[c];
                }
            } else {
                for (size_t c = 0; c < count; c++) {
                    float value = x[at + c];
                    bool more = value > best[c] || value != value;
                    place[c] = more ? w : place[c];
                    best[c] = more ? value : best[c];
                }
            }
            first = false;
        }
        for (size_t c = 0; c < count && !first; c++) {
            out[at + c] = best[c];
            places[at + c] = (uint8_t)place[c];
        }
    }
}

/* dx += dy where the maximum was at `place` */
static void channel_max_back(float *dx, const float *dy, const uint8_t *places, int place, size_t channels)
{
    size_t at = 0;
    for (; at + 16 <= channels; at += 16) {
        int32_t own[16];
        for (size_t c = 0; c < 16; c++) own[c] = places[at + c];
#pragma omp simd
        for (size_t c = 0; c < 16; c++) dx[at + c] += own[c] == place ? dy[at + c] : 0.0f;
    }
    for (; at < channels; at++) dx[at] += places[at] == place ? dy[at] : 0.0f;
}
