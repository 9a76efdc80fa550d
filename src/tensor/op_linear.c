/* Linear layer: activation(input_activation(x) w + b) + add, fused into the matrix product.
 *
 * Bias, activation and residual are applied to each tile of the product while it is in the cache, and input_activation to x as it is
 * packed, in backward again. The result of an activation that only the next layer reads is never stored, which saves a third of the
 * memory traffic of an MLP. Backward converts the gradient of the result to that of x w + b, then computes the two products of the
 * gradient. */
#include "tensor/tape.h"

#include "kern/gemm.h"
#include "tensor/rows.h"

typedef struct linear {
    ls_linear_options o;
    ls__buffer *before; /* x w + b, kept for the activation's slope; NULL: not needed */
} linear;

typedef struct finish_args {
    const ls__nn_kernels *kernels;
    ls_activation activation;
    const float *bias; /* (out) or NULL */
    const float *more; /* (rows, out) or NULL; backward: x */
    float *out;        /* (rows, out) */
    bool add;          /* backward: to out */
} finish_args;

static void finish_tile(const ls__gemm *g, const ls__tile *tile)
{
    const finish_args *a = g->user;
    for (int64_t r = tile->row; r < tile->row + tile->rows; r++) {
        int64_t at = r * g->n + tile->col;
        a->kernels->finish[a->activation](a->out + at, g->c + at, a->bias ? a->bias + tile->col : NULL,
                                          a->more ? a->more + at : NULL, (size_t)tile->cols);
    }
}

/* input_activation(x) in a buffer; NULL: none to apply, or memory ran out. */
static ls__buffer *activated_input(ls_tape *t, const linear *s, const ls_tensor *x)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t rows = ls__rows(x), in = ls__cols(x);
    ls__buffer *to = s->o.input_activation ? ls__buffer_take(t, (size_t)(rows * in)) : NULL;
    if (!to) return NULL;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * in > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++)
        k->activate[s->o.input_activation](to->data + r * in, x->data + r * in, (size_t)in);
    return to;
}

/* A tile of the gradient of input_activation(x) becomes that of x, in place. */
static void finish_input(const ls__gemm *g, const ls__tile *tile)
{
    const finish_args *a = g->user;
    for (int64_t r = tile->row; r < tile->row + tile->rows; r++) {
        int64_t at = r * g->n + tile->col;
        a->kernels->activate_back[a->activation](a->out + at, g->c + at, a->more + at, (size_t)tile->cols, a->add);
    }
}

/* dx from dy, the gradient of x w + b. */
static void input_back(ls_tape *t, const ls__node *n, const float *dy, int64_t out)
{
    const linear *s = n->state;
    ls_tensor *x = n->in[0];
    int64_t rows = ls__rows(x), in = ls__cols(x);
    bool add;
    float *dx = ls__grad(t, x, &add);
    if (!dx) return;
    finish_args f = { ls__nn_kernels_best(), s->o.input_activation, NULL, x->data, dx, add };
    ls__buffer *apart = s->o.input_activation && add ? ls__buffer_take(t, (size_t)(rows * in)) : NULL;
    if (t->status) return;
    ls__gemm g = { .m = rows,
                   .n = in,
                   .k = out,
                   .a = dy,
                   .lda = out,
                   .b = n->param[1]->value,
                   .b16 = n->param[1]->half,
                   .ldb = s->o.transposed ? in : out,
                   .b_trans = !s->o.transposed,
                   .c = apart ? apart->data : dx,
                   .ldc = in,
                   .add = add && !apart,
                   .finish = s->o.input_activation ? finish_input : NULL,
                   .user = &f,
                   .reads = s->o.input_activation ? x->data : NULL };
    ls__gemm_run(&g, 1, t->threads, t->workspace, &t->tick);
    ls__buffer_drop(t, apart);
}

/* dw from dy. */
static void weight_back(ls_tape *t, const ls__node *n, const float *dy, int64_t out)
{
    const linear *s = n->state;
    const ls_tensor *x = n->in[0];
    int64_t rows = ls__rows(x), in = ls__cols(x);
    bool add;
    float *dw = ls__param_grad(t, n->param[1], &add);
    if (!dw) return;
    ls__gemm g = { .m = in,
                   .n = out,
                   .k = rows,
                   .a = x->data,
                   .lda = in,
                   .a_trans = true,
                   .b = dy,
                   .ldb = out,
                   .c = dw,
                   .ldc = s->o.transposed ? in : out,
                   .add = add };
    ls__buffer *scratch = NULL;
    if (s->o.transposed) { /* then x is the product's B, which is not activated on the way */
        scratch = activated_input(t, s, x);
        if (t->status) return;
        g.m = out, g.a = dy, g.lda = out;
        g.n = in, g.b = scratch ? scratch->data : x->data, g.ldb = in;
    } else if (s->o.input_activation)
        g.activate = ls__nn_kernels_best()->activate[s->o.input_activation];
    ls__gemm_run(&g, 1, t->threads, t->workspace, &t->tick);
    ls__buffer_drop(t, scratch);
}

static ls_status linear_back(ls_tape *t, ls__node *n)
{
    linear *s = n->state;
    ls_tensor *y = n->out;
    int64_t rows = ls__rows(y), out = ls__cols(y);
    ls_status status = ls__grad_share(t, s->o.add, y->grad);
    if (status) return status;
    if (s->before) {
        /* in place, unless the residual shares it */
        ls__buffer *d = y->grad;
        if (d->refs > 1) d = ls__buffer_take(t, (size_t)(rows * out));
        if (!d) return t->status;
        const ls__nn_kernels *k = ls__nn_kernels_best();
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * out > LS__WORTH_THREADS)
        for (int64_t r = 0; r < rows; r++)
            k->activate_back[s->o.activation](d->data + r * out, y->grad->data + r * out, s->before->data + r * out,
                                              (size_t)out, false);
        ls__buffer_drop(t, s->before);
        if (d != y->grad) {
            ls__buffer_drop(t, y->grad);
            y->grad = d;
        }
    }
    bool add;
    float *db = ls__param_grad(t, n->param[0], &add);
    if (db && (status = ls__column_sums(t, db, add, y->grad->data, rows, out))) return status;
    input_back(t, n, y->grad->data, out);
    if (!t->status) weight_back(t, n, y->grad->data, out);
    return t->status;
}

static void linear_recompute(ls_tape *t, const ls__node *n)
{
    const linear *s = n->state;
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t rows = ls__rows(n->out), out = ls__cols(n->out);
    float *y = n->out->data;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * out > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++)
        k->activate[s->o.activation](y + r * out, s->before->data + r * out, (size_t)out);
}

static const ls__operation op_linear = { "linear", linear_back };

ls_tensor *ls_linear(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_linear_options *options)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x) || !ls__param_given(t, "linear", w)) return NULL;
    linear s = { .o = options ? *options : (ls_linear_options){ 0 } };
    if (!ls__activation_exists(t, "linear", s.o.activation)) return NULL;
    if (!ls__activation_exists(t, "linear", s.o.input_activation)) return NULL;
    int64_t in = ls__cols(x), rows = ls__rows(x), out = w->dims == 2 ? w->shape[s.o.transposed ? 0 : 1] : 1;
    if (!ls__param_fits(t, "linear", w, s.o.transposed ? out : in, s.o.transposed ? in : out, 0, 0, x)) return NULL;
    if (b && !ls__param_fits(t, "linear", b, out, 0, 0, 0, x)) return NULL;
    if (in > INT32_MAX || out > INT32_MAX || rows > INT32_MAX)
        return ls__shape_error(t, "linear", "input", x->dims, x->shape, w->name, w->dims, w->shape,
                               "sizes end at 2^31");

    int64_t shape[LS_MAX_DIMS];
    for (int i = 0; i < x->dims; i++) shape[i] = x->shape[i];
    shape[x->dims - 1] = out;
    ls_tensor *y = ls__result(t, x->dims, shape);
    if (!y) return NULL;
    if (s.o.add && !ls__same_shape(y, s.o.add))
        return ls__shape_error(t, "linear", "result", y->dims, y->shape, "add", s.o.add->dims, s.o.add->shape,
                               "both must be the same");
    double flops = 2.0 * (double)rows * (double)in * (double)out;
    ls__tape_record_args record = { .op = &op_linear,
                                    .in = { x, s.o.add },
                                    .param = { b, w },
                                    .state = &s,
                                    .state_bytes = sizeof s,
                                    .unread = !s.o.activation,
                                    .flops = flops,
                                    .back_flops = flops * ((x->needs_grad ? 1 : 0) + (w->grad ? 1 : 0)) };
    if (s.o.activation && !s.o.add) record.recompute = linear_recompute; /* it can be computed from what is kept */
    if (s.o.activation && ls__tape_will_record(t, &record)) {
        s.before = ls__buffer_take(t, (size_t)(rows * out));
        if (!s.before) return NULL;
    }
    finish_args f = { ls__nn_kernels_best(),          s.o.activation, b ? b->value : NULL,
                      s.o.add ? s.o.add->data : NULL, y->data,        false };
    ls__gemm g = { .m = rows,
                   .n = out,
                   .k = in,
                   .a = x->data,
                   .lda = in,
                   .b = w->value,
                   .b16 = w->half,
                   .ldb = s.o.transposed ? in : out,
                   .b_trans = s.o.transposed,
                   .c = s.before ? s.before->data : y->data,
                   .ldc = out,
                   .finish = b || s.o.activation || s.o.add ? finish_tile : NULL,
                   .user = &f,
                   .reads = f.more };
    if (s.o.input_activation) g.activate = f.kernels->activate[s.o.input_activation];
    ls__gemm_run(&g, 1, t->threads, t->workspace, &t->tick);
    return ls__tape_record(t, y, &record);
}
