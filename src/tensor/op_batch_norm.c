/* Batch norm over (B, C, H, W): each channel is normalized over images and positions. A channel is one task; its sums are added
 * image by image, in double. */
#include "tensor/tape.h"

#include <math.h>
#include "tensor/rows.h"

typedef struct batch_norm {
    int64_t B, C, places;
    ls__buffer *statistics; /* (2, C): mean, 1/deviation of this batch */
} batch_norm;

static ls_status batch_norm_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const batch_norm *s = n->state;
    const float *x = n->in[0]->data, *dy = n->out->grad->data;
    bool add = false, add_weight = false, add_bias = false;
    float *dx = ls__grad(t, n->in[0], &add), *dbias = ls__param_grad(t, n->param[0], &add_bias);
    float *dweight = ls__param_grad(t, n->param[1], &add_weight);
    if (t->status) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t c = 0; c < s->C; c++) {
        float mean = s->statistics->data[c], rstd = s->statistics->data[s->C + c];
        double sum = 0, with_x = 0;
        for (int64_t b = 0; b < s->B; b++) {
            int64_t at = (b * s->C + c) * s->places;
            sum += k->sum(dy + at, (size_t)s->places);
            with_x += k->dot_from(dy + at, x + at, mean, (size_t)s->places);
        }
        with_x *= rstd;
        if (dbias) dbias[c] = (add_bias ? dbias[c] : 0.0f) + (float)sum;
        if (dweight) dweight[c] = (add_weight ? dweight[c] : 0.0f) + (float)with_x;
        double count = (double)(s->B * s->places);
        for (int64_t b = 0; dx && b < s->B; b++) {
            int64_t at = (b * s->C + c) * s->places;
            k->batch_norm_back(dx + at, add, dy + at, x + at, (size_t)s->places, n->param[1]->value[c] * rstd,
                               (float)(sum / count), mean, (float)(with_x / count * rstd));
        }
    }
    ls__buffer_drop(t, s->statistics);
    return LS_OK;
}

static const ls__operation op_batch_norm = { "batch_norm", batch_norm_back };

/* Mean and variance of a channel of this batch; updates the running statistics. */
static void measure(const batch_norm *s, const float *x, int64_t c, ls_batch_norm_state *run, float *mean, float *var)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    double sum = 0, squares = 0, count = (double)(s->B * s->places);
    for (int64_t b = 0; b < s->B; b++) sum += k->sum(x + (b * s->C + c) * s->places, (size_t)s->places);
    *mean = (float)(sum / count);
    for (int64_t b = 0; b < s->B; b++)
        squares += k->deviation(x + (b * s->C + c) * s->places, *mean, (size_t)s->places);
    *var = (float)(squares / count);
    float m = run->momentum != 0 ? run->momentum : 0.1f;
    run->mean[c] = (1 - m) * run->mean[c] + m * *mean;
    run->var[c] = (1 - m) * run->var[c] + m * (float)(squares / (count > 1 ? count - 1 : 1));
}

ls_tensor *ls_batch_norm(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, ls_batch_norm_state *run)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x) || !ls__param_given(t, "batch_norm", weight)) return NULL;
    if (!run || !run->mean || !run->var)
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "batch_norm: the running statistics are NULL"));
    if (x->dims != 4)
        return ls__shape_error(t, "batch_norm", "input", x->dims, x->shape, weight->name, weight->dims, weight->shape,
                               "the input must be (B, C, H, W)");
    batch_norm s = { .B = x->shape[0], .C = x->shape[1], .places = x->shape[2] * x->shape[3] };
    if (!ls__param_fits(t, "batch_norm", weight, s.C, 0, 0, 0, x)) return NULL;
    if (!ls__param_fits(t, "batch_norm", bias, s.C, 0, 0, 0, x)) return NULL;
    ls_tensor *y = ls__result(t, 4, x->shape);
    s.statistics = ls__buffer_take(t, (size_t)(2 * s.C));
    if (t->status) return NULL;
    float eps = run->eps != 0 ? run->eps : 1e-5f;
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t c = 0; c < s.C; c++) {
        float mean = run->mean[c], var = run->var[c];
        if (t->pass.mode != LS_PASS_EVAL) measure(&s, x->data, c, run, &mean, &var);
        float rstd = 1.0f / sqrtf(var + eps), factor = weight->value[c] * rstd;
        s.statistics->data[c] = mean;
        s.statistics->data[s.C + c] = rstd;
        for (int64_t b = 0; b < s.B; b++) {
            int64_t at = (b * s.C + c) * s.places;
            k->affine(y->data + at, x->data + at, factor, bias->value[c] - mean * factor, (size_t)s.places);
        }
    }
    return ls__tape_record(
        t, y,
        &(ls__tape_record_args){
            .op = &op_batch_norm, .in = { x }, .param = { bias, weight }, .state = &s, .state_bytes = sizeof s });
}
