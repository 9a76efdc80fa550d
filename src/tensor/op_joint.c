/* Several linear layers of one input, whose results are side by side: x w1^T + b1, x w2^T + b2, ...
 *
 * Weights are (out, in). Where they follow each other in memory they are one matrix, and so are their gradients: one product
 * instead of several. The bits are the same in both cases, since each element is one chain of multiply-adds. */
#include "tensor/tape.h"

#include <string.h>
#include "kern/gemm.h"
#include "tensor/rows.h"

enum { MAX_PARTS = 3 };
_Static_assert(2 * MAX_PARTS <= LS__NODE_PARAMS, "a weight and a bias for each part");

typedef struct joint {
    int count;
    bool biased;
    int64_t in, out[MAX_PARTS], total; /* columns of each part; of all */
} joint;

/* Hooks are called in the order of the node's parameters: the last bias first, then the weights. */
static ls_param *bias_of(const joint *s, ls_param *const *params, int i)
{
    return s->biased ? params[s->count - 1 - i] : NULL;
}

static int weight_at(const joint *s, int i)
{
    return (s->biased ? s->count : 0) + s->count - 1 - i;
}

/* The weights of the parts. */
typedef struct values {
    float *full[MAX_PARTS];
    const uint16_t *half[MAX_PARTS];
} values;

/* Whether what is at a[i] is one matrix. */
static bool is_one(const joint *s, float *const a[MAX_PARTS])
{
    for (int i = 0; i + 1 < s->count; i++)
        if (!a[i] || a[i + 1] != a[i] + s->out[i] * s->in) return false;
    return true;
}

static bool are_one(const joint *s, const values *w)
{
    if (!w->half[0]) return is_one(s, w->full);
    for (int i = 0; i + 1 < s->count; i++)
        if (w->half[i + 1] != w->half[i] + s->out[i] * s->in) return false;
    return true;
}

/* Part i, or all of them if they are one. */
static int64_t part_columns(const joint *s, bool one, int i)
{
    return one ? s->total : s->out[i];
}

typedef struct finish_args {
    const float *bias; /* (total) */
    int64_t first;     /* column */
} finish_args;

static void add_bias(const ls__gemm *g, const ls__tile *tile)
{
    const finish_args *a = g->user;
    for (int64_t r = tile->row; r < tile->row + tile->rows; r++) {
        float *c = g->c + r * g->ldc + tile->col;
        ls__nn_kernels_best()->add(c, c, a->bias + a->first + tile->col, (size_t)tile->cols);
    }
}

static ls_status bias_back(ls_tape *t, const joint *s, ls__node *n, const float *dy, int64_t rows)
{
    ls__buffer *sums = ls__buffer_take(t, (size_t)s->total);
    if (!sums) return t->status;
    ls_status status = ls__column_sums(t, sums->data, false, dy, rows, s->total);
    for (int64_t i = 0, at = 0; i < s->count && !status; at += s->out[i++]) {
        bool add;
        float *db = ls__param_grad(t, bias_of(s, n->param, (int)i), &add);
        if (db && add) ls__nn_kernels_best()->add(db, db, sums->data + at, (size_t)s->out[i]);
        if (db && !add) memcpy(db, sums->data + at, (size_t)s->out[i] * sizeof *db);
    }
    ls__buffer_drop(t, sums);
    return status;
}

static void input_back(ls_tape *t, const joint *s, ls__node *n, const float *dy, int64_t rows)
{
    values w = { 0 };
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return;
    for (int i = 0; i < s->count; i++) {
        w.full[i] = n->param[weight_at(s, i)]->value;
        w.half[i] = n->param[weight_at(s, i)]->half;
    }
    bool one = are_one(s, &w);
    for (int64_t i = 0, at = 0; at < s->total; add = true) {
        int64_t k = part_columns(s, one, (int)i);
        ls__gemm g = { .m = rows,
                       .n = s->in,
                       .k = k,
                       .a = dy + at,
                       .lda = s->total,
                       .b = w.full[i],
                       .b16 = w.half[i],
                       .ldb = s->in,
                       .c = dx,
                       .ldc = s->in,
                       .add = add };
        ls__gemm_run(&g, 1, t->threads, t->workspace, &t->tick);
        at += k;
        i++;
    }
}

static void weight_back(ls_tape *t, const joint *s, ls__node *n, const float *dy, int64_t rows)
{
    float *dw[MAX_PARTS] = { NULL };
    bool add[MAX_PARTS] = { false }, one;
    for (int i = 0; i < s->count; i++) dw[i] = ls__param_grad(t, n->param[weight_at(s, i)], &add[i]);
    one = dw[0] && is_one(s, dw);
    for (int i = 1; i < s->count; i++) one = one && add[i] == add[0];
    for (int64_t i = 0, at = 0, m; at < s->total; i++, at += m) {
        m = part_columns(s, one, (int)i);
        if (!dw[i]) continue;
        ls__gemm g = { .m = m,
                       .n = s->in,
                       .k = rows,
                       .a = dy + at,
                       .lda = s->total,
                       .a_trans = true,
                       .b = n->in[0]->data,
                       .ldb = s->in,
                       .c = dw[i],
                       .ldc = s->in,
                       .add = add[i] };
        ls__gemm_run(&g, 1, t->threads, t->workspace, &t->tick);
    }
}

static ls_status joint_back(ls_tape *t, ls__node *n)
{
    const joint *s = n->state;
    const float *dy = n->out->grad->data;
    int64_t rows = ls__rows(n->out);
    ls_status status = s->biased ? bias_back(t, s, n, dy, rows) : LS_OK;
    if (status) return status;
    input_back(t, s, n, dy, rows);
    if (!t->status) weight_back(t, s, n, dy, rows);
    return t->status;
}

static const ls__operation op_joint = { "linear_joint", joint_back };

static void joint_forward(ls_tape *t, const joint *s, const ls_tensor *x, const values *w, const float *bias, float *y)
{
    bool one = are_one(s, w);
    for (int64_t i = 0, at = 0, cols; at < s->total; i++, at += cols) {
        cols = part_columns(s, one, (int)i);
        finish_args f = { bias, at };
        ls__gemm g = { .m = ls__rows(x),
                       .n = cols,
                       .k = s->in,
                       .a = x->data,
                       .lda = s->in,
                       .b = w->full[i],
                       .b16 = w->half[i],
                       .ldb = s->in,
                       .b_trans = true,
                       .c = y + at,
                       .ldc = s->total,
                       .finish = bias ? add_bias : NULL,
                       .user = &f };
        ls__gemm_run(&g, 1, t->threads, t->workspace, &t->tick);
    }
}

ls_tensor *ls_linear_joint(ls_tape *t, ls_tensor *x, ls_param *const *w, ls_param *const *b, int count)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    if (!w || count < 1 || count > MAX_PARTS)
        return ls__tape_fail(t,
                             ls__fail(LS_EINVAL, "linear_joint: %d weights; 1 to %d are possible", count, MAX_PARTS));
    joint s = { .count = count, .biased = b != NULL, .in = ls__cols(x) };
    ls__tape_record_args record = {
        .op = &op_joint, .in = { x }, .state = &s, .state_bytes = sizeof s, .unread = true
    };
    values weights = { 0 };
    int64_t rows = ls__rows(x), grads = x->needs_grad ? 1 : 0;
    for (int i = 0; i < count; i++) {
        if (!ls__param_given(t, "linear_joint", w[i])) return NULL;
        s.out[i] = w[i]->shape[0];
        s.total += s.out[i];
        if (!ls__param_fits(t, "linear_joint", w[i], s.out[i], s.in, 0, 0, x)) return NULL;
        if (b && !ls__param_fits(t, "linear_joint", b[i], s.out[i], 0, 0, 0, x)) return NULL;
        if (b) record.param[count - 1 - i] = b[i];
        weights.full[i] = w[i]->value;
        weights.half[i] = w[i]->half;
        if (!w[i]->half != !w[0]->half)
            return ls__tape_fail(t, ls__fail(LS_EINVAL, "linear_joint: either all weights are bfloat16 or none"));
    }
    for (int i = 0; i < count; i++) record.param[weight_at(&s, i)] = w[i];
    if (s.in > INT32_MAX || s.total > INT32_MAX || rows > INT32_MAX)
        return ls__shape_error(t, "linear_joint", "input", x->dims, x->shape, w[0]->name, w[0]->dims, w[0]->shape,
                               "sizes end at 2^31");
    int64_t shape[LS_MAX_DIMS];
    for (int i = 0; i < x->dims; i++) shape[i] = x->shape[i];
    shape[x->dims - 1] = s.total;
    ls_tensor *y = ls__result(t, x->dims, shape);
    ls__buffer *bias = b ? ls__buffer_take(t, (size_t)s.total) : NULL;
    if (t->status) return NULL;
    for (int64_t i = 0, at = 0; b && i < count; at += s.out[i++])
        memcpy(bias->data + at, b[i]->value, (size_t)s.out[i] * sizeof(float));
    record.flops = 2.0 * (double)rows * (double)s.in * (double)s.total;
    record.back_flops = record.flops * (double)(grads + (w[0]->grad ? 1 : 0));
    joint_forward(t, &s, x, &weights, bias ? bias->data : NULL, y->data);
    ls__buffer_drop(t, bias);
    return ls__tape_record(t, y, &record);
}
