/* SwiGLU: silu(gate) times up, both halves of a row. Backward recomputes the gate from its input, so the result need not be kept. */
#include "tensor/tape.h"

#include "tensor/rows.h"

static ls_status swiglu_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const float *x = n->in[0]->data, *dy = n->out->grad->data;
    int64_t rows = ls__rows(n->out), C = ls__cols(n->out);
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * C > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *gate = x + 2 * r * C;
        float *to = dx + 2 * r * C;
        k->swiglu_back(to, to + C, add, dy + r * C, gate, gate + C, (size_t)C);
    }
    return LS_OK;
}

static void swiglu_rows(const ls_tape *t, const ls_tensor *x, const ls_tensor *y)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t rows = ls__rows(y), C = ls__cols(y);
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * C > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *gate = x->data + 2 * r * C;
        k->swiglu(y->data + r * C, gate, gate + C, (size_t)C);
    }
}

static void swiglu_recompute(ls_tape *t, const ls__node *n)
{
    swiglu_rows(t, n->in[0], n->out);
}

static const ls__operation op_swiglu = { "swiglu", swiglu_back };

ls_tensor *ls_swiglu(ls_tape *t, ls_tensor *x)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    char text[LS__SHAPE_TEXT];
    int64_t shape[LS_MAX_DIMS];
    for (int i = 0; i < x->dims; i++) shape[i] = x->shape[i];
    if (ls__cols(x) % 2)
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "swiglu: input %s must have an even last dimension",
                                         ls__shape_text(text, x->dims, x->shape)));
    shape[x->dims - 1] /= 2;
    ls_tensor *y = ls__result(t, x->dims, shape);
    if (!y) return NULL;
    swiglu_rows(t, x, y);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = &op_swiglu, .in = { x }, .recompute = swiglu_recompute });
}
