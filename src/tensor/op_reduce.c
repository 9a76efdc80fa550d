/* Sum and mean over all elements. Threads sum chunks of a fixed length; the sums are added in order, in double. */
#include "tensor/tape.h"

#include "tensor/rows.h"

enum { CHUNK = 4096 };

typedef struct reduction {
    float factor; /* 1 for the sum, 1/count for the mean */
} reduction;

static ls_status reduce_back(ls_tape *t, ls__node *n)
{
    const reduction *s = n->state;
    float d = n->out->grad->data[0] * s->factor;
    int64_t count = ls_tensor_count(n->in[0]);
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (count > LS__WORTH_THREADS)
    for (int64_t i = 0; i < count; i++) dx[i] = add ? dx[i] + d : d;
    return LS_OK;
}

static const ls__operation op_sum = { "sum", reduce_back }, op_mean = { "mean", reduce_back };

static ls_tensor *reduce(ls_tape *t, const ls__operation *op, ls_tensor *x)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    int64_t count = ls_tensor_count(x), chunks = (count + CHUNK - 1) / CHUNK;
    ls_tensor *y = ls__result(t, 1, (int64_t[]){ 1 });
    ls__buffer *sums = ls__buffer_take(t, (size_t)chunks);
    if (t->status) return NULL;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (count > LS__WORTH_THREADS)
    for (int64_t i = 0; i < chunks; i++)
        sums->data[i] = ls__nn_kernels_best()->sum(x->data + i * CHUNK, (size_t)ls__min(CHUNK, count - i * CHUNK));
    double sum = 0;
    for (int64_t i = 0; i < chunks; i++) sum += sums->data[i];
    ls__buffer_drop(t, sums);
    reduction s = { op == &op_mean ? 1.0f / (float)count : 1.0f };
    y->data[0] = (float)(op == &op_mean ? sum / (double)count : sum);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = op, .in = { x }, .state = &s, .state_bytes = sizeof s });
}

ls_tensor *ls_sum(ls_tape *t, ls_tensor *x)
{
    return reduce(t, &op_sum, x);
}

ls_tensor *ls_mean(ls_tape *t, ls_tensor *x)
{
    return reduce(t, &op_mean, x);
}
