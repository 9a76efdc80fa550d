/* Low-rank updates: y += scale b (a x), for up to three neighbouring parts of y's columns. See lora.h.
 *
 * The result is y's own memory where its maker does not read it in backward. Kept for backward is only h = scale a x, (rows, ranks). What x
 * becomes by activation and dropout is computed again. The gradient of the result is that of y. */
#include "tensor/lora.h"

#include <string.h>
#include "kern/gemm.h"
#include "tensor/dropout.h"
#include "tensor/rows.h"

enum { MAX_PARTS = 3 };

typedef struct lora {
    ls__lora_args o;
    int64_t ranks;         /* of all parts */
    ls__buffer *h;         /* (rows, ranks) */
    ls__dropout_mask mask; /* if o.dropout > 0 */
} lora;

static ls__gemm *add_product(ls__gemm *list, int *count, ls__gemm g)
{
    list[*count] = g;
    return &list[(*count)++];
}

static void run(ls_tape *t, const ls__gemm *list, int count)
{
    ls__gemm_run(list, count, t->threads, t->workspace, &t->tick);
}

/* x after activation and dropout: x itself, or in *scratch. NULL: memory ran out. */
static const float *read_input(ls_tape *t, const lora *s, const ls_tensor *x, ls__buffer **scratch)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t rows = ls__rows(x), in = ls__cols(x);
    *scratch = NULL;
    if (!s->o.input_activation && !(s->o.dropout > 0)) return x->data;
    if (!(*scratch = ls__buffer_take(t, (size_t)(rows * in)))) return NULL;
    float *to = (*scratch)->data;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * in > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *from = x->data + r * in;
        if (s->o.input_activation)
            k->activate[s->o.input_activation](to + r * in, from, (size_t)in), from = to + r * in;
        if (s->o.dropout > 0) ls__dropout_apply(&s->mask, to + r * in, from, (size_t)in, (uint64_t)(r * in));
    }
    return to;
}

/* dx from dh, (rows, ranks). */
static void input_back(ls_tape *t, const lora *s, ls_tensor *x, const float *dh)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t rows = ls__rows(x), in = ls__cols(x);
    bool add, direct = !s->o.input_activation && !(s->o.dropout > 0);
    float *dx = ls__grad(t, x, &add);
    ls__buffer *scratch = dx && !direct ? ls__buffer_take(t, (size_t)(rows * in)) : NULL;
    if (!dx || t->status) return;
    for (int64_t i = 0, at = 0, r; i < s->o.count; i++, at += r) {
        const ls_param *a = s->o.parts[i].a;
        r = a->shape[0];
        run(t,
            &(ls__gemm){ .m = rows,
                         .n = in,
                         .k = r,
                         .a = dh + at,
                         .lda = s->ranks,
                         .b = a->value,
                         .ldb = in,
                         .c = direct ? dx : scratch->data,
                         .ldc = in,
                         .add = i || (direct && add) },
            1);
    }
    if (direct) return;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * in > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        float *d = scratch->data + r * in;
        if (s->o.dropout > 0) ls__dropout_apply(&s->mask, d, d, (size_t)in, (uint64_t)(r * in));
        if (s->o.input_activation)
            k->activate_back[s->o.input_activation](dx + r * in, d, x->data + r * in, (size_t)in, add);
        else if (add)
            k->add(dx + r * in, dx + r * in, d, (size_t)in);
        else
            memcpy(dx + r * in, d, (size_t)in * sizeof *d);
    }
    ls__buffer_drop(t, scratch);
}

static ls_status lora_back(ls_tape *t, ls__node *n)
{
    const lora *s = n->state;
    ls_tensor *x = n->in[0], *y = n->out;
    int64_t rows = ls__rows(x), in = ls__cols(x), cols = ls__cols(y), ranks = s->ranks;
    const float *dy = y->grad->data;
    ls__buffer *scratch, *d = ls__buffer_take(t, (size_t)(rows * ranks));
    const float *input = read_input(t, s, x, &scratch);
    if (!d || !input) return t->status;
    ls__gemm list[2 * MAX_PARTS];
    int count = 0;
    for (int64_t i = 0, at = 0, r; i < s->o.count; i++, at += r) {
        const ls__lora_part *p = &s->o.parts[i];
        bool add;
        float *db = ls__param_grad(t, p->b, &add);
        int64_t out = p->b->shape[0];
        r = p->a->shape[0];
        add_product(list, &count,
                    (ls__gemm){ .m = rows,
                                .n = r,
                                .k = out,
                                .a = dy + p->first,
                                .lda = cols,
                                .b = p->b->value,
                                .ldb = r,
                                .c = d->data + at,
                                .ldc = ranks });
        if (db)
            add_product(list, &count,
                        (ls__gemm){ .m = out,
                                    .n = r,
                                    .k = rows,
                                    .a = dy + p->first,
                                    .lda = cols,
                                    .a_trans = true,
                                    .b = s->h->data + at,
                                    .ldb = ranks,
                                    .c = db,
                                    .ldc = r,
                                    .add = add });
    }
    run(t, list, count);
    ls__nn_kernels_best()->scale(d->data, s->o.scale, d->data, (size_t)(rows * ranks));
    count = 0;
    for (int64_t i = 0, at = 0, r; i < s->o.count; i++, at += r) {
        bool add;
        float *da = ls__param_grad(t, s->o.parts[i].a, &add);
        r = s->o.parts[i].a->shape[0];
        if (da)
            add_product(list, &count,
                        (ls__gemm){ .m = r,
                                    .n = in,
                                    .k = rows,
                                    .a = d->data + at,
                                    .lda = ranks,
                                    .a_trans = true,
                                    .b = input,
                                    .ldb = in,
                                    .c = da,
                                    .ldc = in,
                                    .add = add });
    }
    run(t, list, count);
    ls__buffer_drop(t, scratch);
    input_back(t, s, x, d->data);
    ls__buffer_drop(t, d);
    ls__buffer_drop(t, s->h);
    return t->status ? t->status : ls__grad_share(t, n->in[1], y->grad);
}
static const ls__operation op_lora = { "lora", lora_back };

/* The result: y's memory, or a copy. */
static ls_tensor *take_over(ls_tape *t, ls_tensor *y)
{
    bool free_to_write = !y->maker || y->maker->unread || t->pass.mode == LS_PASS_EVAL || t->discarding;
    if (!(y->memory && y->memory->refs == 1 && free_to_write)) {
        ls_tensor *copy = ls__result(t, y->dims, y->shape);
        if (copy) memcpy(copy->data, y->data, (size_t)ls_tensor_count(y) * sizeof(float));
        return copy;
    }
    ls_tensor *same = ls__view(t, y->data, y->dims, y->shape);
    if (!same) return NULL;
    same->memory = y->memory; /* so that the next operation can write there, too */
    y->memory = NULL;
    return same;
}

static bool parts_fit(ls_tape *t, const lora *s, const ls_tensor *x, const ls_tensor *y)
{
    for (int i = 0; i < s->o.count; i++) {
        const ls__lora_part *p = &s->o.parts[i];
        if (!ls__param_given(t, "lora", p->a) || !ls__param_given(t, "lora", p->b)) return false;
        int64_t r = p->a->shape[0], out = p->b->shape[0];
        if (!ls__param_fits(t, "lora", p->a, r, ls__cols(x), 0, 0, x)) return false;
        if (!ls__param_fits(t, "lora", p->b, out, r, 0, 0, y)) return false;
        if (p->first < 0 || p->first + out > ls__cols(y)) {
            ls__shape_error(t, "lora", "result", y->dims, y->shape, p->b->name, p->b->dims, p->b->shape,
                            "its columns end before those of the update");
            return false;
        }
    }
    return true;
}

ls_tensor *ls__lora(ls_tape *t, ls_tensor *x, ls_tensor *y, const ls__lora_args *args)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, y)) return NULL;
    lora s = { .o = *args };
    if (!parts_fit(t, &s, x, y)) return NULL;
    if (t->pass.mode == LS_PASS_EVAL) s.o.dropout = 0;
    if (s.o.dropout > 0) s.mask = ls__dropout_next(t, s.o.dropout);
    int64_t rows = ls__rows(x), in = ls__cols(x), cols = ls__cols(y), weights = 0;
    ls__tape_record_args record = {
        .op = &op_lora, .in = { x, y }, .state = &s, .state_bytes = sizeof s, .unread = true
    };
    for (int i = 0; i < args->count; i++) {
        s.ranks += args->parts[i].a->shape[0];
        weights += args->parts[i].a->shape[0] * (in + args->parts[i].b->shape[0]);
        record.param[2 * (args->count - 1 - i)] = args->parts[i].b; /* backward is done with the last first */
        record.param[2 * (args->count - 1 - i) + 1] = args->parts[i].a;
    }
    record.flops = 2.0 * (double)rows * (double)weights;
    record.back_flops = record.flops * (x->needs_grad ? 2 : 1.5);
    ls__buffer *scratch = NULL;
    s.h = ls__buffer_take(t, (size_t)(rows * s.ranks));
    ls_tensor *z = take_over(t, y);
    const float *input = s.h && z ? read_input(t, &s, x, &scratch) : NULL;
    if (!input) return NULL;
    ls__gemm down[MAX_PARTS], up[MAX_PARTS];
    int n_down = 0, n_up = 0;
    for (int64_t i = 0, at = 0, r; i < args->count; i++, at += r) {
        const ls__lora_part *p = &args->parts[i];
        r = p->a->shape[0];
        add_product(down, &n_down,
                    (ls__gemm){ .m = rows,
                                .n = r,
                                .k = in,
                                .a = input,
                                .lda = in,
                                .b = p->a->value,
                                .ldb = in,
                                .b_trans = true,
                                .c = s.h->data + at,
                                .ldc = s.ranks });
        add_product(up, &n_up,
                    (ls__gemm){ .m = rows,
                                .n = p->b->shape[0],
                                .k = r,
                                .a = s.h->data + at,
                                .lda = s.ranks,
                                .b = p->b->value,
                                .ldb = r,
                                .b_trans = true,
                                .c = z->data + p->first,
                                .ldc = cols,
                                .add = true });
    }
    run(t, down, n_down);
    ls__nn_kernels_best()->scale(s.h->data, s.o.scale, s.h->data, (size_t)(rows * s.ranks));
    run(t, up, n_up);
    ls__buffer_drop(t, scratch);
    if (!ls__tape_will_record(t, &record)) ls__buffer_drop(t, s.h);
    return ls__tape_record(t, z, &record);
}
