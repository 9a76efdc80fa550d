/* Layer norm and RMS norm over the last dimension.
 *
 * Mean and 1/deviation of each row are kept; backward recomputes the normalized row, which is cheaper than storing it. The gradients
 * of weight and bias are summed in blocks of rows. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

typedef struct norm {
    ls__buffer *statistics; /* (2, rows): means, 1/deviations; RMS norm uses the second half */
    float eps;
    bool rms;
} norm;

static ls_status norm_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const norm *s = n->state;
    ls_tensor *x = n->in[0];
    const float *dy = n->out->grad->data, *weight = n->param[1]->value;
    int64_t rows = ls__rows(x), C = ls__cols(x), blocks = ls__row_blocks(rows);
    const float *mean = s->statistics->data, *rstd = mean + rows;
    bool add = false;
    float *dx = ls__grad(t, x, &add);
    /* (blocks, 2, C) partial sums, and a row each for a gradient that is not needed */
    ls__buffer *partial = ls__buffer_take(t, (size_t)(3 * blocks * C));
    if (t->status) return t->status;
    memset(partial->data, 0, (size_t)(2 * blocks * C) * sizeof(float));
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * C > LS__WORTH_THREADS)
    for (int64_t b = 0; b < blocks; b++) {
        float *dw = partial->data + 2 * b * C, *unwanted = partial->data + (2 * blocks + b) * C;
        for (int64_t r = b * LS__ROW_BLOCK; r < ls__min(rows, (b + 1) * LS__ROW_BLOCK); r++) {
            float *to = dx ? dx + r * C : unwanted;
            if (s->rms)
                k->rms_norm_back(to, dx && add, dy + r * C, x->data + r * C, weight, (size_t)C, rstd[r], dw);
            else
                k->layer_norm_back(to, dx && add, dy + r * C, x->data + r * C, weight, (size_t)C, mean[r], rstd[r], dw,
                                   dw + C);
        }
    }
    float *dbias = ls__param_grad(t, n->param[0], &add);
    if (dbias) ls__fold_blocks(t, dbias, add, partial->data + C, blocks, 2 * C, C);
    float *dweight = ls__param_grad(t, n->param[1], &add);
    if (dweight) ls__fold_blocks(t, dweight, add, partial->data, blocks, 2 * C, C);
    ls__buffer_drop(t, partial);
    ls__buffer_drop(t, s->statistics);
    return LS_OK;
}

/* y and the statistics, from x. */
static void norm_rows(ls_tape *t, const norm *s, const ls_tensor *x, const ls_param *weight, const ls_param *bias,
                      float *y)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t rows = ls__rows(x), C = ls__cols(x);
    float *mean = s->statistics->data, *rstd = mean + rows;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * C > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        if (s->rms)
            k->rms_norm(y + r * C, x->data + r * C, weight->value, (size_t)C, s->eps, &rstd[r]);
        else
            k->layer_norm(y + r * C, x->data + r * C, weight->value, bias->value, (size_t)C, s->eps, &mean[r],
                          &rstd[r]);
    }
}

static void norm_recompute(ls_tape *t, const ls__node *n)
{
    norm_rows(t, n->state, n->in[0], n->param[1], n->param[0], n->out->data);
}

static const ls__operation op_layer_norm = { "layer_norm", norm_back };
static const ls__operation op_rms_norm = { "rms_norm", norm_back };

static ls_tensor *norm_forward(ls_tape *t, const ls__operation *op, ls_tensor *x, ls_param *weight, ls_param *bias,
                               float eps)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    int64_t rows = ls__rows(x), C = ls__cols(x);
    if (!ls__param_fits(t, op->name, weight, C, 0, 0, 0, x)) return NULL;
    if ((bias || op == &op_layer_norm) && !ls__param_fits(t, op->name, bias, C, 0, 0, 0, x)) return NULL;
    ls_tensor *y = ls__result(t, x->dims, x->shape);
    norm s = { .statistics = ls__buffer_take(t, (size_t)(2 * rows)), .eps = eps, .rms = op == &op_rms_norm };
    if (t->status) return NULL;
    norm_rows(t, &s, x, weight, bias, y->data);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = op,
                                                    .in = { x },
                                                    .param = { bias, weight },
                                                    .state = &s,
                                                    .state_bytes = sizeof s,
                                                    .recompute = norm_recompute });
}

ls_tensor *ls_layer_norm(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, float eps)
{
    return norm_forward(t, &op_layer_norm, x, weight, bias, eps);
}

ls_tensor *ls_rms_norm(ls_tape *t, ls_tensor *x, ls_param *weight, float eps)
{
    return norm_forward(t, &op_rms_norm, x, weight, NULL, eps);
}
