/* Class token: a row in front of each sequence, and a row of positions added to every row. For vision transformers. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

typedef struct class_token {
    int64_t B, T, C; /* rows of a sequence without the token */
} class_token;

/* Sums over the sequences, in their order. */
static void add_rows(float *to, bool add, const float *dy, const class_token *s, int64_t rows)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    size_t n = (size_t)(rows * s->C);
    for (int64_t b = 0; b < s->B; b++) {
        const float *from = dy + b * (s->T + 1) * s->C;
        if (b || add)
            k->add(to, to, from, n);
        else
            memcpy(to, from, n * sizeof *to);
    }
}

static ls_status class_token_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const class_token *s = n->state;
    const float *dy = n->out->grad->data;
    size_t each = (size_t)(s->T * s->C);
    bool add, add_token, add_positions;
    float *dpositions = ls__param_grad(t, n->param[0], &add_positions);
    float *dtoken = ls__param_grad(t, n->param[1], &add_token);
    if (dpositions) add_rows(dpositions, add_positions, dy, s, s->T + 1);
    if (dtoken) add_rows(dtoken, add_token, dy, s, 1);
    float *dx = ls__grad(t, n->in[0], &add);
    for (int64_t b = 0; b < s->B && dx; b++) {
        float *to = dx + b * s->T * s->C;
        const float *from = dy + (b * (s->T + 1) + 1) * s->C;
        if (add)
            k->add(to, to, from, each);
        else
            memcpy(to, from, each * sizeof *to);
    }
    return t->status;
}

static const ls__operation op_class_token = { "class_token", class_token_back };

ls_tensor *ls_class_token(ls_tape *t, ls_tensor *x, ls_param *token, ls_param *positions)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    int64_t B = x->shape[0], C = ls__cols(x), T = ls__rows(x) / B;
    class_token s = { .B = B, .T = T, .C = C };
    if (!ls__param_fits(t, "class_token", token, 1, 1, C, 0, x)) return NULL;
    if (!ls__param_fits(t, "class_token", positions, 1, T + 1, C, 0, x)) return NULL;
    ls_tensor *y = ls__result(t, 3, (int64_t[]){ B, T + 1, C });
    if (!y) return NULL;
    for (int64_t b = 0; b < B; b++) {
        float *to = y->data + b * (T + 1) * C;
        k->add(to, token->value, positions->value, (size_t)C);
        k->add(to + C, x->data + b * T * C, positions->value + C, (size_t)(T * C));
    }
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = &op_class_token,
                                                    .in = { x },
                                                    .param = { positions, token },
                                                    .state = &s,
                                                    .state_bytes = sizeof s,
                                                    .unread = true });
}
