/* The plain versions of the optimisers' loops. */
#include "kern/optim.h"

#include <math.h>

void ls__adamw_reference(float *w, const float *g, float *m, float *v, size_t count, const ls__adamw_args *a)
{
    for (size_t i = 0; i < count; i++) {
        float grad = g[i] * a->grad_scale;
        m[i] = a->beta1 * m[i] + (1 - a->beta1) * grad;
        v[i] = a->beta2 * v[i] + (1 - a->beta2) * (grad * grad);
        float denominator = sqrtf(v[i]) * a->denom_scale + a->eps;
        w[i] = a->keep * w[i] - a->step_size * (m[i] / denominator);
    }
}

void ls__sgd_reference(float *w, const float *g, float *m, size_t count, const ls__sgd_args *a)
{
    for (size_t i = 0; i < count; i++) {
        float move = g[i] * a->grad_scale + a->decay * w[i];
        if (a->momentum != 0) move = m[i] = a->momentum * m[i] + move;
        w[i] -= a->lr * move;
    }
}

double ls__sum_squares_reference(const float *x, size_t count)
{
    double lane[16] = { 0 };
    for (size_t i = 0; i < count; i++) lane[i % 16] += (double)x[i] * (double)x[i];
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}
