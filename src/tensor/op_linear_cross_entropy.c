/* Output projection and softmax cross-entropy, fused, in chunks of rows.
 *
 * The logits of a batch are by far the largest tensor of a small language model: 1,024 tokens times 50,257 words are 206 MB, and
 * their gradient has the same size. Here a chunk of rows is projected, converted in place to the gradient of its logits, and
 * multiplied into both gradients. There are three products, as for any linear layer. Because the gradients are computed in forward,
 * the result must be the loss that backward starts from.
 *
 * The 1/sum of the softmax is not applied to the chunk, which would need another pass over it, but to the (chunk, C) matrices: to the
 * rows of dx at the end, and to the rows of x before the product for dw.
 *
 * The gradient of the target's logit is softmax - 1. The 1 is left out of the chunk and applied to dx and dw after the products: it is as
 * large as all of the softmax together, and within the product for dx, a sum over the vocabulary, every later addition would be
 * rounded at its size. */
#include "tensor/cross_entropy.h"

#include "kern/gemm.h"
#include "kern/vector.h"
#include "tensor/rows.h"

enum {
    /* Logits of a chunk: 128 MiB. For each chunk w is packed twice and dw read and written: with 64 MiB all of it took 4 % longer (1,024
     * tokens, 50,257 words, C = 384, Zen 4), and with 256 MiB 1 % less. */
    CHUNK_ELEMENTS = 1 << 25,
};

typedef struct head {
    ls__buffer *dx; /* (rows, C) */
} head;

/* The data of a chunk. */
typedef struct chunk {
    int64_t first, rows, C, V;
    double divisor;
    float *logits;  /* (rows, V) */
    float *losses;  /* (rows of all) */
    float *factors; /* (rows): weight / (divisor * sum) */
    float *scaled;  /* (rows, C): x times factors; after the products, room for a row of weights */
} chunk;

static ls_status head_back(ls_tape *t, ls__node *n)
{
    const head *s = n->state;
    if (t->root != n->out)
        return ls__fail(LS_ESTATE, "linear_cross_entropy: its result must be the loss given to ls_tape_backward(); use "
                                   "ls_linear and ls_cross_entropy to compute with it");
    if (!s->dx) return LS_OK;
    ls_status status = ls__grad_share(t, n->in[0], s->dx);
    ls__buffer_drop(t, s->dx);
    return status;
}
static const ls__operation op_head = { "linear_cross_entropy", head_back };

static void softmax_rows(ls_tape *t, const chunk *c, const ls_cross_entropy_options *o)
{
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 4)
    for (int64_t r = 0; r < c->rows; r++) {
        float w = ls__row_weight(o, c->first + r);
        int32_t target = w != 0 ? o->targets[c->first + r] : 0;
        ls__predict_row(o, c->logits + r * c->V, c->V, c->first + r);
        float sum = ls__softmax_row(c->logits + r * c->V, c->V, target, &c->losses[c->first + r]);
        c->factors[r] = w != 0 ? (float)((double)w / (c->divisor * (double)sum)) : 0.0f;
    }
}

/* The 1 of the targets: taken from dx and dw. */
static void subtract_targets(const chunk *c, const ls_cross_entropy_options *o, const float *x, const ls_param *w,
                             float *dx, float *dw)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t C = c->C;
    for (int64_t r = 0; r < c->rows; r++) {
        float weight = ls__row_weight(o, c->first + r);
        if (weight == 0) continue;
        float factor = -(float)((double)weight / c->divisor);
        int64_t at = o->targets[c->first + r] * C;
        if (dx && w->half) ls__bf16_to_f32(c->scaled, w->half + at, (size_t)C);
        if (dx) k->axpy(dx + r * C, factor, w->half ? c->scaled : w->value + at, (size_t)C);
        if (dw) k->axpy(dw + at, factor, x + r * C, (size_t)C);
    }
}

/* Both gradients of a chunk: dx (its rows) is overwritten, dw overwritten by the first chunk unless `add`. */
static void chunk_back(ls_tape *t, const chunk *c, const ls_cross_entropy_options *o, const float *x, const ls_param *w,
                       float *dx, float *dw, bool add)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t C = c->C, V = c->V;
    ls__gemm g[2];
    int count = 0;
    if (dx)
        g[count++] = (ls__gemm){ .m = c->rows,
                                 .n = C,
                                 .k = V,
                                 .a = c->logits,
                                 .lda = V,
                                 .b = w->value,
                                 .b16 = w->half,
                                 .ldb = C,
                                 .c = dx,
                                 .ldc = C };
    if (dw) {
        for (int64_t r = 0; r < c->rows; r++) k->scale(c->scaled + r * C, c->factors[r], x + r * C, (size_t)C);
        g[count++] = (ls__gemm){ .m = V,
                                 .n = C,
                                 .k = c->rows,
                                 .a = c->logits,
                                 .lda = V,
                                 .a_trans = true,
                                 .b = c->scaled,
                                 .ldb = C,
                                 .c = dw,
                                 .ldc = C,
                                 .add = add };
    }
    ls__gemm_run(g, count, t->threads, t->workspace, &t->tick);
    for (int64_t r = 0; dx && r < c->rows; r++) k->scale(dx + r * C, c->factors[r], dx + r * C, (size_t)C);
    subtract_targets(c, o, x, w, dx, dw);
}

/* Rows of a chunk: chunks are as equal as possible, with at most CHUNK_ELEMENTS logits. */
static int64_t chunk_rows(int64_t rows, int64_t V)
{
    int64_t most = CHUNK_ELEMENTS / V;
    if (most < 64) most = 64;
    int64_t chunks = (rows + most - 1) / most;
    int64_t each = ((rows + chunks - 1) / chunks + 7) / 8 * 8;
    return ls__min(each, rows);
}

ls_tensor *ls_linear_cross_entropy(ls_tape *t, ls_tensor *x, ls_param *w, const ls_cross_entropy_options *o)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x) || !ls__param_given(t, op_head.name, w)) return NULL;
    int64_t rows = ls__rows(x), C = ls__cols(x), V = w->shape[0], each = chunk_rows(rows, V);
    chunk c = { .C = C, .V = V };
    if (!ls__param_fits(t, op_head.name, w, V, C, 0, 0, x)) return NULL;
    if (!ls__targets_fit(t, op_head.name, o, rows, V, &c.divisor)) return NULL;
    head s = { 0 };
    ls__tape_record_args record = { .op = &op_head,
                                    .in = { x },
                                    .param = { w },
                                    .state = &s,
                                    .state_bytes = sizeof s,
                                    .flops = 2.0 * (double)rows * (double)C * (double)V };
    ls_tensor *y = ls__result(t, 1, (int64_t[]){ 1 });
    if (ls__tape_will_record(t, &record)) record.flops *= 1 + (x->needs_grad ? 1 : 0) + (w->grad ? 1 : 0);
    if (ls__tape_will_record(t, &record) && x->needs_grad) s.dx = ls__buffer_take_own(t, (size_t)(rows * C));
    size_t large = (size_t)(each * V), little = (size_t)(rows + each + each * C);
    float *aliased = ls__alias_rest(t, large + little);
    ls__buffer *logits = aliased ? NULL : ls__buffer_take(t, large),
               *small = aliased ? NULL : ls__buffer_take(t, little);
    if (t->status) return NULL;
    c.logits = aliased ? aliased : logits->data;
    c.losses = aliased ? aliased + large : small->data;
    c.factors = c.losses + rows;
    c.scaled = c.factors + each;
    for (; c.first < rows; c.first += each) {
        c.rows = ls__min(each, rows - c.first);
        const float *xc = x->data + c.first * C;
        ls__gemm_run(&(ls__gemm){ .m = c.rows,
                                  .n = V,
                                  .k = C,
                                  .a = xc,
                                  .lda = C,
                                  .b = w->value,
                                  .b16 = w->half,
                                  .ldb = C,
                                  .b_trans = true,
                                  .c = c.logits,
                                  .ldc = V },
                     1, t->threads, t->workspace, &t->tick);
        softmax_rows(t, &c, o);
        if (!ls__tape_will_record(t, &record)) continue;
        bool add = false;
        float *dw = ls__param_grad(t, w, &add);
        chunk_back(t, &c, o, xc, w, s.dx ? s.dx->data + c.first * C : NULL, dw, add);
    }
    y->data[0] = ls__sum_losses(o, c.losses, rows, c.divisor);
    ls__buffer_drop(t, small);
    ls__buffer_drop(t, logits);
    return ls__tape_record(t, y, &record);
}
