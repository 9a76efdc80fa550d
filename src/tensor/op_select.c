/* Rows of a tensor by number: the first token of each sequence, or the tokens that have a loss. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

typedef struct selection {
    int64_t *rows, count;
} selection;

/* A row may be selected several times, so gradients are added one after the other. */
static ls_status select_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const selection *s = n->state;
    const float *dy = n->out->grad->data;
    int64_t C = ls__cols(n->out);
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
    if (!add) memset(dx, 0, (size_t)ls_tensor_count(n->in[0]) * sizeof *dx);
    for (int64_t i = 0; i < s->count; i++) {
        float *to = dx + s->rows[i] * C;
        k->add(to, to, dy + i * C, (size_t)C);
    }
    return LS_OK;
}

static const ls__operation op_select = { "select_rows", select_back };

ls_tensor *ls_select_rows(ls_tape *t, ls_tensor *x, const int64_t *rows, int64_t count)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    if (!rows || count < 1)
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "select_rows: %lld rows; at least one is needed",
                                         (long long)(rows ? count : 0)));
    int64_t all = ls__rows(x), C = ls__cols(x);
    selection s = { .rows = ls__tape_array(t, (size_t)count, sizeof *s.rows), .count = count };
    ls_tensor *y = ls__result(t, 2, (int64_t[]){ count, C });
    if (!s.rows || !y) return NULL;
    for (int64_t i = 0; i < count; i++) {
        if (rows[i] < 0 || rows[i] >= all)
            return ls__tape_fail(t, ls__fail(LS_EINVAL, "select_rows: row %lld of a tensor of %lld rows",
                                             (long long)rows[i], (long long)all));
        s.rows[i] = rows[i];
        memcpy(y->data + i * C, x->data + rows[i] * C, (size_t)C * sizeof(float));
    }
    return ls__tape_record(
        t, y, &(ls__tape_record_args){ .op = &op_select, .in = { x }, .state = &s, .state_bytes = sizeof s });
}
