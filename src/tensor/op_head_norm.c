/* RMS norm of each head of queries and keys (QK-norm), with one weight for all query heads and one for all key heads. Values are
 * copied. Backward recomputes the normalized heads; the gradients of the weights are summed in blocks of rows. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

typedef struct head_norm {
    int64_t heads, kv_heads, D;
    float eps;
    ls__buffer *rrms; /* (rows, heads + kv_heads): 1 / root mean square */
} head_norm;

static ls_status head_norm_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const head_norm *s = n->state;
    const float *x = n->in[0]->data, *dy = n->out->grad->data, *kw = n->param[0]->value, *qw = n->param[1]->value;
    int64_t rows = ls__rows(n->out), cols = ls__cols(n->out), normed = s->heads + s->kv_heads, D = s->D;
    int64_t blocks = ls__row_blocks(rows);
    bool add = false;
    float *dx = ls__grad(t, n->in[0], &add);
    ls__buffer *partial = ls__buffer_take(t, (size_t)(blocks * (2 * D + cols))); /* and a row that is not wanted */
    if (t->status) return t->status;
    memset(partial->data, 0, (size_t)(2 * blocks * D) * sizeof(float));
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * cols > LS__WORTH_THREADS)
    for (int64_t b = 0; b < blocks; b++) {
        float *dw = partial->data + 2 * b * D, *unwanted = partial->data + 2 * blocks * D + b * cols;
        for (int64_t r = b * LS__ROW_BLOCK; r < ls__min(rows, (b + 1) * LS__ROW_BLOCK); r++) {
            float *to = dx ? dx + r * cols : unwanted;
            for (int64_t h = 0; h < normed; h++) {
                bool key = h >= s->heads;
                k->rms_norm_back(to + h * D, dx && add, dy + r * cols + h * D, x + r * cols + h * D, key ? kw : qw,
                                 (size_t)D, s->rrms->data[r * normed + h], key ? dw : dw + D);
            }
            size_t rest = (size_t)(cols - normed * D);
            const float *values = dy + r * cols + normed * D;
            if (dx && add)
                k->add(to + normed * D, to + normed * D, values, rest);
            else
                memcpy(to + normed * D, values, rest * sizeof *to);
        }
    }
    for (int i = 0; i < 2; i++) {
        float *dw = ls__param_grad(t, n->param[i], &add);
        if (dw) ls__fold_blocks(t, dw, add, partial->data + i * D, blocks, 2 * D, D);
    }
    ls__buffer_drop(t, partial);
    ls__buffer_drop(t, s->rrms);
    return LS_OK;
}
static const ls__operation op_head_norm = { "head_norm", head_norm_back };

ls_tensor *ls_head_norm(ls_tape *t, ls_tensor *qkv, ls_param *q_weight, ls_param *k_weight, int heads, int kv_heads,
                        float eps)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, qkv, qkv) || !ls__param_given(t, "head_norm", q_weight)) return NULL;
    int64_t rows = ls__rows(qkv), cols = ls__cols(qkv), D = q_weight->shape[0], normed = (int64_t)heads + kv_heads;
    if (!ls__param_fits(t, "head_norm", q_weight, D, 0, 0, 0, qkv)) return NULL;
    if (!ls__param_fits(t, "head_norm", k_weight, D, 0, 0, 0, qkv)) return NULL;
    if (heads < 1 || kv_heads < 1 || cols < normed * D)
        return ls__shape_error(t, "head_norm", "input", qkv->dims, qkv->shape, q_weight->name, q_weight->dims,
                               q_weight->shape, "a row must have room for the heads");
    ls_tensor *y = ls__result(t, qkv->dims, qkv->shape);
    head_norm s = { .heads = heads, .kv_heads = kv_heads, .D = D, .eps = eps };
    s.rrms = ls__buffer_take(t, (size_t)(rows * normed));
    if (t->status) return NULL;
    const ls__nn_kernels *k = ls__nn_kernels_best();
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * cols > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *from = qkv->data + r * cols;
        float *to = y->data + r * cols;
        for (int64_t h = 0; h < normed; h++)
            k->rms_norm(to + h * D, from + h * D, (h < heads ? q_weight : k_weight)->value, (size_t)D, eps,
                        &s.rrms->data[r * normed + h]);
        memcpy(to + normed * D, from + normed * D, (size_t)(cols - normed * D) * sizeof *to);
    }
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = &op_head_norm,
                                                    .in = { qkv },
                                                    .param = { k_weight, q_weight },
                                                    .state = &s,
                                                    .state_bytes = sizeof s,
                                                    .unread = true });
}
