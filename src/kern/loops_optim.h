/* AdamW, SGD and sums of squares; loops.h includes this. Square root and division are IEEE's, so the bits are the same
 * whatever the vector's width. */

static void adamw(float *w, const float *g, float *m, float *v, size_t count, const ls__adamw_args *args)
{
    const ls__adamw_args a = *args;
    const float rest1 = 1 - a.beta1, rest2 = 1 - a.beta2;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float grad = g[i] * a.grad_scale;
        float mean = a.beta1 * m[i] + rest1 * grad;
        float square = a.beta2 * v[i] + rest2 * (grad * grad);
        m[i] = mean;
        v[i] = square;
        w[i] = a.keep * w[i] - a.step_size * (mean / (sqrtf(square) * a.denom_scale + a.eps));
    }
}

static void sgd(float *w, const float *g, float *m, size_t count, const ls__sgd_args *args)
{
    const ls__sgd_args a = *args;
    if (a.momentum == 0) {
#pragma omp simd
        for (size_t i = 0; i < count; i++) w[i] -= a.lr * (g[i] * a.grad_scale + a.decay * w[i]);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float mean = a.momentum * m[i] + (g[i] * a.grad_scale + a.decay * w[i]);
        m[i] = mean;
        w[i] -= a.lr * mean;
    }
}

static double sum_squares(const float *x, size_t count)
{
    enum { LANES = 16 };
    double lane[LANES] = { 0 };
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + (size_t)k] * (double)x[i + (size_t)k];
    }
    for (size_t k = 0; i + k < count; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}
