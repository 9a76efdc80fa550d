/* Element-wise operations, and tensors that are not computed: inputs, parameters, views. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

enum { CHUNK = 4096 }; /* elements that a thread processes at a time */

/* for each chunk [i, i + n) of `count` elements, distributed over the threads */
#define FOR_CHUNKS(t, count)                                                                                         \
    _Pragma(                                                                                                         \
        "omp parallel for num_threads(t->threads) schedule(static) if (count > LS__WORTH_THREADS)") for (int64_t i = \
                                                                                                             0;      \
                                                                                                         i < count;  \
                                                                                                         i += CHUNK)
#define CHUNK_LENGTH(count, i) ((size_t)ls__min(CHUNK, (count) - (i)))

ls_tensor *ls_tape_input(ls_tape *t, const float *data, int dims, const int64_t *shape)
{
    static const ls_tensor none;
    if (!ls__operation_begin(t, &none, &none)) return NULL;
    if (!data) return ls__tape_fail(t, ls__fail(LS_EINVAL, "tape: the input's data is NULL"));
    return ls__view(t, data, dims, shape);
}

static ls_status param_back(ls_tape *t, ls__node *n)
{
    ls_param *p = n->param[0];
    const float *dy = n->out->grad->data;
    int64_t count = ls_tensor_count(n->out);
    bool add;
    float *dp = ls__param_grad(t, p, &add);
    if (dp && add)
        FOR_CHUNKS(t, count) ls__nn_kernels_best()->add(dp + i, dp + i, dy + i, CHUNK_LENGTH(count, i));
    else if (dp)
        memcpy(dp, dy, (size_t)count * sizeof *dp);
    return LS_OK;
}
static const ls__operation op_param = { "param", param_back };

ls_tensor *ls_tape_param(ls_tape *t, ls_param *p)
{
    static const ls_tensor none;
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, &none, &none) || !ls__param_given(t, "param", p)) return NULL;
    ls_tensor *y = ls__view(t, p->value, p->dims, p->shape);
    return y ? ls__tape_record(t, y, &(ls__tape_record_args){ .op = &op_param, .param = { p } }) : NULL;
}

static ls_status reshape_back(ls_tape *t, ls__node *n)
{
    return ls__grad_share(t, n->in[0], n->out->grad);
}
static const ls__operation op_reshape = { "reshape", reshape_back };

ls_tensor *ls_reshape(ls_tape *t, ls_tensor *x, int dims, const int64_t *shape)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    ls_tensor *y = ls__view(t, x->data, dims, shape);
    if (!y) return NULL;
    if (ls_tensor_count(x) != ls_tensor_count(y))
        return ls__shape_error(t, "reshape", "input", x->dims, x->shape, "shape", dims, shape, "the counts differ");
    y->memory = x->memory;
    if (y->memory) y->memory->refs++;
    return ls__tape_record(t, y, &(ls__tape_record_args){ .op = &op_reshape, .in = { x } });
}

typedef struct activate {
    ls_activation activation;
} activate;

static ls_status activate_back(ls_tape *t, ls__node *n)
{
    const activate *s = n->state;
    ls_tensor *x = n->in[0];
    const float *dy = n->out->grad->data;
    int64_t count = ls_tensor_count(x);
    bool add;
    float *dx = ls__grad(t, x, &add);
    if (!dx) return t->status;
    FOR_CHUNKS(t, count)
    ls__nn_kernels_best()->activate_back[s->activation](dx + i, dy + i, x->data + i, CHUNK_LENGTH(count, i), add);
    return LS_OK;
}
static const ls__operation op_activate = { "activate", activate_back };

ls_tensor *ls_activate(ls_tape *t, ls_tensor *x, ls_activation activation)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x) || !ls__activation_exists(t, "activate", activation)) return NULL;
    ls_tensor *y = ls__result(t, x->dims, x->shape);
    if (!y) return NULL;
    int64_t count = ls_tensor_count(x);
    FOR_CHUNKS(t, count)
    ls__nn_kernels_best()->activate[activation](y->data + i, x->data + i, CHUNK_LENGTH(count, i));
    activate s = { activation };
    return ls__tape_record(
        t, y, &(ls__tape_record_args){ .op = &op_activate, .in = { x }, .state = &s, .state_bytes = sizeof s });
}

static ls_status add_back(ls_tape *t, ls__node *n)
{
    ls_status status = ls__grad_share(t, n->in[0], n->out->grad);
    return status ? status : ls__grad_share(t, n->in[1], n->out->grad);
}
static const ls__operation op_add = { "add", add_back };

ls_tensor *ls_add(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, a, b)) return NULL;
    if (!ls__same_shape(a, b))
        return ls__shape_error(t, "add", "first", a->dims, a->shape, "second", b->dims, b->shape,
                               "both must be the same");
    ls_tensor *y = ls__result(t, a->dims, a->shape);
    if (!y) return NULL;
    int64_t count = ls_tensor_count(y);
    FOR_CHUNKS(t, count)
    ls__nn_kernels_best()->add(y->data + i, a->data + i, b->data + i, CHUNK_LENGTH(count, i));
    return ls__tape_record(t, y, &(ls__tape_record_args){ .op = &op_add, .in = { a, b } });
}

static ls_status mul_back(ls_tape *t, ls__node *n)
{
    const float *dy = n->out->grad->data;
    int64_t count = ls_tensor_count(n->out);
    for (int side = 0; side < 2; side++) {
        const float *other = n->in[1 - side]->data;
        bool add;
        float *dx = ls__grad(t, n->in[side], &add);
        if (!dx) continue;
        FOR_CHUNKS(t, count)
        ls__nn_kernels_best()->mul(dx + i, dy + i, other + i, CHUNK_LENGTH(count, i), add);
    }
    return t->status;
}
static const ls__operation op_mul = { "mul", mul_back };

ls_tensor *ls_mul(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, a, b)) return NULL;
    if (!ls__same_shape(a, b))
        return ls__shape_error(t, "mul", "first", a->dims, a->shape, "second", b->dims, b->shape,
                               "both must be the same");
    ls_tensor *y = ls__result(t, a->dims, a->shape);
    if (!y) return NULL;
    int64_t count = ls_tensor_count(y);
    FOR_CHUNKS(t, count)
    ls__nn_kernels_best()->mul(y->data + i, a->data + i, b->data + i, CHUNK_LENGTH(count, i), false);
    return ls__tape_record(t, y, &(ls__tape_record_args){ .op = &op_mul, .in = { a, b } });
}

typedef struct scaling {
    float factor;
} scaling;

static ls_status scale_back(ls_tape *t, ls__node *n)
{
    const scaling *s = n->state;
    const float *dy = n->out->grad->data;
    int64_t count = ls_tensor_count(n->out);
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
    const ls__nn_kernels *k = ls__nn_kernels_best();
    FOR_CHUNKS(t, count)
    {
        if (add)
            k->axpy(dx + i, s->factor, dy + i, CHUNK_LENGTH(count, i));
        else
            k->scale(dx + i, s->factor, dy + i, CHUNK_LENGTH(count, i));
    }
    return LS_OK;
}
static const ls__operation op_scale = { "scale", scale_back };

ls_tensor *ls_scale(ls_tape *t, ls_tensor *x, float factor)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    ls_tensor *y = ls__result(t, x->dims, x->shape);
    if (!y) return NULL;
    int64_t count = ls_tensor_count(y);
    FOR_CHUNKS(t, count)
    ls__nn_kernels_best()->scale(y->data + i, factor, x->data + i, CHUNK_LENGTH(count, i));
    scaling s = { factor };
    return ls__tape_record(
        t, y, &(ls__tape_record_args){ .op = &op_scale, .in = { x }, .state = &s, .state_bytes = sizeof s });
}
