/* Softmax cross-entropy of logits. The fused form for large vocabularies is in op_linear_cross_entropy.c. */
#include "tensor/cross_entropy.h"

#include <string.h>
#include "base/math.h"
#include "tensor/rows.h"

bool ls__targets_fit(ls_tape *t, const char *op, const ls_cross_entropy_options *o, int64_t rows, int64_t V,
                     double *divisor)
{
    double weights = 0;
    if (!o || !o->targets) {
        ls__tape_fail(t, ls__fail(LS_EINVAL, "%s: the targets are NULL", op));
        return false;
    }
    for (int64_t r = 0; r < rows; r++) {
        float w = ls__row_weight(o, r);
        weights += w;
        if (w == 0 || (o->targets[r] >= 0 && o->targets[r] < V)) continue;
        ls__tape_fail(t, ls__fail(LS_EINVAL, "%s: target %d of row %lld is outside of the %lld classes", op,
                                  o->targets[r], (long long)r, (long long)V));
        return false;
    }
    *divisor = o->divisor != 0 ? o->divisor : weights != 0 ? weights : 1;
    return true;
}

float ls__softmax_row(float *row, int64_t V, int32_t target, float *loss)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    float max = k->max(row, (size_t)V), at_target = row[target];
    float sum = k->exp_shift_sum(row, (size_t)V, 1.0f, max);
    *loss = (float)(ls__math_log((double)sum) + (double)max - (double)at_target);
    return sum;
}

void ls__predict_row(const ls_cross_entropy_options *o, const float *row, int64_t V, int64_t r)
{
    if (!o->predictions) return;
    int64_t best = ls__row_weight(o, r) != 0 ? 0 : -1;
    for (int64_t i = 1; best >= 0 && i < V; i++)
        if (row[i] > row[best]) best = i;
    o->predictions[r] = (int32_t)best;
}

float ls__sum_losses(const ls_cross_entropy_options *o, const float *losses, int64_t rows, double divisor)
{
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        float w = ls__row_weight(o, r);
        if (w != 0) sum += (double)w * (double)losses[r];
        if (o->row_losses) o->row_losses[r] = w != 0 ? losses[r] : 0.0f;
    }
    return (float)(sum / divisor);
}

typedef struct cross_entropy {
    ls__buffer *rows; /* (rows, V): softmax minus one-hot, weighted and divided */
} cross_entropy;

static ls_status cross_entropy_back(ls_tape *t, ls__node *n)
{
    const cross_entropy *s = n->state;
    const ls__nn_kernels *k = ls__nn_kernels_best();
    float d = n->out->grad->data[0];
    int64_t rows = ls__rows(n->in[0]), V = ls__cols(n->in[0]);
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * V > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *from = s->rows->data + r * V;
        if (add)
            k->axpy(dx + r * V, d, from, (size_t)V);
        else
            k->scale(dx + r * V, d, from, (size_t)V);
    }
    ls__buffer_drop(t, s->rows);
    return LS_OK;
}
static const ls__operation op_cross_entropy = { "cross_entropy", cross_entropy_back };

ls_tensor *ls_cross_entropy(ls_tape *t, ls_tensor *logits, const ls_cross_entropy_options *o)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, logits, logits)) return NULL;
    int64_t rows = ls__rows(logits), V = ls__cols(logits);
    double divisor;
    if (!ls__targets_fit(t, "cross_entropy", o, rows, V, &divisor)) return NULL;
    ls_tensor *y = ls__result(t, 1, (int64_t[]){ 1 });
    cross_entropy s = { .rows = ls__buffer_take(t, (size_t)(rows * V)) };
    ls__buffer *losses = ls__buffer_take(t, (size_t)rows);
    if (t->status) return NULL;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * V > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        float w = ls__row_weight(o, r), *row = s.rows->data + r * V;
        ls__predict_row(o, logits->data + r * V, V, r);
        if (w == 0) {
            memset(row, 0, (size_t)V * sizeof *row);
            continue;
        }
        memcpy(row, logits->data + r * V, (size_t)V * sizeof *row);
        float sum = ls__softmax_row(row, V, o->targets[r], &losses->data[r]);
        row[o->targets[r]] -= sum;
        ls__nn_kernels_best()->scale(row, (float)((double)w / (divisor * (double)sum)), row, (size_t)V);
    }
    y->data[0] = ls__sum_losses(o, losses->data, rows, divisor);
    ls__buffer_drop(t, losses);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){
                               .op = &op_cross_entropy, .in = { logits }, .state = &s, .state_bytes = sizeof s });
}
