/* The reference versions of the loops of nn.h: textbook formulas in double precision. The tests compare the fast ones
 * with them. Matrix products have none here: their tests have a chain of fmaf(). */
#include "kern/nn.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double identity(double x)
{
    return x;
}
static double identity_slope(double x)
{
    (void)x;
    return 1;
}

static double gelu_tanh(double x)
{
    return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); /* (1 + tanh) / 2 */
}
static double gelu_tanh_slope(double x)
{
    double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 0.134145 * x * x);
}

static double gelu_erf(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}
static double gelu_erf_slope(double x)
{
    return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

static double silu(double x)
{
    return x * sigmoid(x);
}
static double silu_slope(double x)
{
    double s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

static double relu(double x)
{
    return x < 0 ? 0 : x;
}
static double relu_slope(double x)
{
    return x > 0 ? 1 : 0;
}

static double hyperbolic(double x)
{
    return tanh(x);
}
static double hyperbolic_slope(double x)
{
    return 1 - tanh(x) * tanh(x);
}

static void exp_all(float *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)exp((double)x[i]);
}

#define ACTIVATION(name, number, f)                                                                          \
    static void activate_##f(float *out, const float *x, size_t n)                                           \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++) out[i] = (float)f(x[i]);                                              \
    }                                                                                                        \
    static void finish_##f(float *out, float *x, const float *bias, const float *more, size_t n)             \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++) {                                                                     \
            if (bias) x[i] += bias[i];                                                                       \
            out[i] = (float)(f(x[i]) + (more ? (double)more[i] : 0));                                        \
        }                                                                                                    \
    }                                                                                                        \
    static void activate_back_##f(float *dx, const float *dy, const float *x, size_t n, bool add)            \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++) dx[i] = (float)((add ? (double)dx[i] : 0) + dy[i] * f##_slope(x[i])); \
    }
LS_ACTIVATION_LIST(ACTIVATION)

static float sum(const float *x, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += x[i];
    return (float)s;
}

static float dot(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)a[i] * b[i];
    return (float)s;
}

static float max(const float *x, size_t n)
{
    float m = x[0];
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) return x[i];
        if (x[i] > m) m = x[i];
    }
    return m;
}

static void layer_norm(float *out, const float *x, const float *weight, const float *bias, size_t n, float eps,
                       float *mean_out, float *rstd_out)
{
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean);
    double rstd = 1 / sqrt(var / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) out[i] = (float)((x[i] - mean) * rstd * weight[i] + bias[i]);
    *mean_out = (float)mean;
    *rstd_out = (float)rstd;
}

static void layer_norm_back(float *dx, bool add, const float *dy, const float *x, const float *weight, size_t n,
                            float mean, float rstd, float *dweight, float *dbias)
{
    double g = 0, gx = 0;
    for (size_t i = 0; i < n; i++) {
        g += (double)dy[i] * weight[i];
        gx += (double)dy[i] * weight[i] * ((double)x[i] - mean) * rstd;
    }
    for (size_t i = 0; i < n; i++) {
        double xhat = ((double)x[i] - mean) * rstd, y = dy[i];
        dweight[i] = (float)(dweight[i] + y * xhat);
        dbias[i] = (float)(dbias[i] + y);
        dx[i] = (float)((add ? (double)dx[i] : 0) + (y * weight[i] - g / (double)n - xhat * gx / (double)n) * rstd);
    }
}

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float eps, float *rrms_out)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    double rrms = 1 / sqrt(squares / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) out[i] = (float)(x[i] * rrms * weight[i]);
    *rrms_out = (float)rrms;
}

static void rms_norm_back(float *dx, bool add, const float *dy, const float *x, const float *weight, size_t n,
                          float rrms, float *dweight)
{
    double gx = 0;
    for (size_t i = 0; i < n; i++) gx += (double)dy[i] * weight[i] * x[i] * rrms;
    for (size_t i = 0; i < n; i++) {
        double xhat = (double)x[i] * rrms, y = dy[i];
        dweight[i] = (float)(dweight[i] + y * xhat);
        dx[i] = (float)((add ? (double)dx[i] : 0) + (y * weight[i] - xhat * gx / (double)n) * rrms);
    }
}

/* ---- Rows of channels. */

static void channel_sums(float *sums, const float *x, size_t rows, size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        double s = sums[c];
        for (size_t r = 0; r < rows; r++) s += x[r * channels + c];
        sums[c] = (float)s;
    }
}

static void channel_squares(float *sums, const float *x, const float *mean, size_t rows, size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        double s = sums[c];
        for (size_t r = 0; r < rows; r++) {
            double d = (double)x[r * channels + c] - mean[c];
            s += d * d;
        }
        sums[c] = (float)s;
    }
}

static void channel_affine(float *out, const float *x, const float *more, const float *factor, const float *shift,
                           bool relu, size_t rows, size_t channels)
{
    for (size_t i = 0; i < rows * channels; i++) {
        size_t c = i % channels;
        double y = (double)factor[c] * x[i] + shift[c] + (more ? (double)more[i] : 0);
        out[i] = relu && y <= 0 ? 0.0f : (float)y;
    }
}

static void channel_back_sums(float *sums, float *with_x, float *dy, const float *y, const float *x, const float *mean,
                              size_t rows, size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        double s = sums[c], w = with_x[c];
        for (size_t i = c; i < rows * channels; i += channels) {
            if (y && !(y[i] > 0)) dy[i] = 0;
            s += dy[i];
            w += dy[i] * ((double)x[i] - mean[c]);
        }
        sums[c] = (float)s;
        with_x[c] = (float)w;
    }
}

static void channel_norm_back(float *dx, bool add, const float *dy, const float *x, const float *factor,
                              const float *shift, const float *mean, const float *slope, size_t rows, size_t channels)
{
    for (size_t i = 0; i < rows * channels; i++) {
        size_t c = i % channels;
        double d = factor[c] * ((double)dy[i] - shift[c] - ((double)x[i] - mean[c]) * slope[c]);
        dx[i] = (float)((add ? (double)dx[i] : 0) + d);
    }
}

static void channel_max(float *out, uint8_t *places, const float *const *rows, int n, size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        int best = -1;
        for (int w = 0; w < n; w++)
            if (rows[w] && (best < 0 || rows[w][c] > rows[best][c] || isnan(rows[w][c]))) best = w;
        if (best < 0) continue;
        out[c] = rows[best][c];
        places[c] = (uint8_t)best;
    }
}

static void channel_max_back(float *dx, const float *dy, const uint8_t *places, int place, size_t channels)
{
    for (size_t c = 0; c < channels; c++)
        if (places[c] == place) dx[c] += dy[c];
}

/* B^T d B and A^T m A, as matrices. */
static void winograd_in(float *v, size_t step, const float *x, int64_t line, size_t channels)
{
    static const double bt[4][4] = { { 1, 0, -1, 0 }, { 0, 1, 1, 0 }, { 0, -1, 1, 0 }, { 0, 1, 0, -1 } };
    for (size_t c = 0; c < channels; c++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                double sum = 0;
                for (int a = 0; a < 4; a++)
                    for (int b = 0; b < 4; b++)
                        sum += bt[i][a] * bt[j][b] * x[a * line + (int64_t)(b * (int64_t)channels) + (int64_t)c];
                v[(size_t)(4 * i + j) * step + c] = (float)sum;
            }
}

static void winograd_out(float *y, int64_t line, int rows, int cols, const float *m, size_t step, size_t channels,
                         bool add)
{
    static const double at[2][4] = { { 1, 1, 1, 0 }, { 0, 1, -1, -1 } };
    for (size_t c = 0; c < channels; c++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) {
                float *to = y + i * line + (int64_t)((size_t)j * channels + c);
                double sum = add ? (double)*to : 0;
                for (int a = 0; a < 4; a++)
                    for (int b = 0; b < 4; b++) sum += at[i][a] * at[j][b] * m[(size_t)(4 * a + b) * step + c];
                *to = (float)sum;
            }
}

static float exp_shift_sum(float *x, size_t n, float factor, float shift)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) {
        double e = exp((double)factor * x[i] - shift);
        s += e;
        x[i] = (float)e;
    }
    return (float)s;
}

static void softmax_back(float *p, float *ds, size_t n, float factor, float shift, float norm, float d)
{
    for (size_t i = 0; i < n; i++) {
        double e = exp((double)factor * p[i] - shift) * norm;
        p[i] = (float)e;
        ds[i] = (float)(e * ((double)ds[i] - d) * factor);
    }
}

static void swiglu(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)(silu(gate[i]) * up[i]);
}

static void swiglu_back(float *dgate, float *dup, bool add, const float *dy, const float *gate, const float *up,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double g = (double)dy[i] * up[i] * silu_slope(gate[i]), u = dy[i] * silu(gate[i]);
        dgate[i] = (float)((add ? (double)dgate[i] : 0) + g);
        dup[i] = (float)((add ? (double)dup[i] : 0) + u);
    }
}

static void rotate(float *x, const float *cosines, const float *sines, size_t half, bool back)
{
    for (size_t i = 0; i < half; i++) {
        double a = x[i], b = x[half + i], c = cosines[i], s = back ? -sines[i] : sines[i];
        x[i] = (float)(a * c - b * s);
        x[half + i] = (float)(b * c + a * s);
    }
}

static void add_two(float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void mul_two(float *out, const float *a, const float *b, size_t n, bool add)
{
    for (size_t i = 0; i < n; i++) out[i] = (add ? out[i] : 0) + a[i] * b[i];
}

static void axpy(float *y, float factor, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += factor * x[i];
}

static void scale(float *out, float factor, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = factor * x[i];
}

#define ACTIVATE(name, number, f)      [name] = activate_##f,
#define FINISH(name, number, f)        [name] = finish_##f,
#define ACTIVATE_BACK(name, number, f) [name] = activate_back_##f,

const ls__nn_kernels ls__nn_kernels_reference = {
    .name = "reference",
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
    .channel_sums = channel_sums,
    .channel_squares = channel_squares,
    .channel_affine = channel_affine,
    .channel_back_sums = channel_back_sums,
    .channel_norm_back = channel_norm_back,
    .channel_max = channel_max,
    .winograd_in = winograd_in,
    .winograd_out = winograd_out,
    .channel_max_back = channel_max_back,
    .exp_shift_sum = exp_shift_sum,
    .softmax_back = softmax_back,
    .swiglu = swiglu,
    .swiglu_back = swiglu_back,
    .rotate = rotate,
    .add = add_two,
    .mul = mul_two,
    .axpy = axpy,
    .scale = scale,
};
