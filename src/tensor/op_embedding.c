/* Embedding: a row of wte for each token plus a row of wpe for each position. */
#include "tensor/tape.h"

#include <string.h>
#include "kern/vector.h"
#include "tensor/rows.h"

typedef struct embedding {
    const int32_t *tokens;
    int64_t B, T;
    int64_t *first; /* (B) */
} embedding;

enum {
    COLUMNS = 64
}; /* columns of the table per thread, which adds all tokens in order, so the order of sums is fixed */

static void tokens_back(const ls_tape *t, const embedding *s, float *dwte, const float *dx, int64_t C)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t c = 0; c < C; c += COLUMNS) {
        size_t n = (size_t)ls__min(COLUMNS, C - c);
        for (int64_t r = 0; r < s->B * s->T; r++) {
            float *to = dwte + s->tokens[r] * C + c;
            k->add(to, to, dx + r * C + c, n);
        }
    }
}

static ls_status embedding_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const embedding *s = n->state;
    const float *dx = n->out->grad->data; /* (B, T, C) */
    ls_param *wte = n->param[0], *wpe = n->param[1];
    int64_t C = wte->shape[1];
    bool add;
    float *dwte = ls__param_grad(t, wte, &add);
    if (dwte) {
        if (!add) memset(dwte, 0, (size_t)(wte->shape[0] * C) * sizeof *dwte);
        tokens_back(t, s, dwte, dx, C);
    }
    float *dwpe = wpe ? ls__param_grad(t, wpe, &add) : NULL;
    if (dwpe) {
        if (!add) memset(dwpe, 0, (size_t)(wpe->shape[0] * C) * sizeof *dwpe);
#pragma omp parallel for num_threads(t->threads) schedule(static)
        for (int64_t c = 0; c < C; c += COLUMNS) {
            size_t n_cols = (size_t)ls__min(COLUMNS, C - c);
            for (int64_t r = 0; r < s->B * s->T; r++) {
                float *to = dwpe + (s->first[r / s->T] + r % s->T) * C + c;
                k->add(to, to, dx + r * C + c, n_cols);
            }
        }
    }
    return LS_OK;
}

static const ls__operation op_embedding = { "embedding", embedding_back };

static void read_row(float *to, const ls_param *table, int64_t row, int64_t C)
{
    if (table->half)
        ls__bf16_to_f32(to, table->half + row * C, (size_t)C);
    else
        memcpy(to, table->value + row * C, (size_t)C * sizeof *to);
}

static void add_half(float *to, const uint16_t *from, int64_t C)
{
    float wide[64];
    for (int64_t c = 0; c < C; c += 64) {
        size_t n = (size_t)ls__min(64, C - c);
        ls__bf16_to_f32(wide, from + c, n);
        ls__nn_kernels_best()->add(to + c, to + c, wide, n);
    }
}

ls_tensor *ls_embedding(ls_tape *t, const int32_t *tokens, int64_t B, int64_t T, ls_param *wte, ls_param *wpe,
                        const int64_t *first)
{
    ls_tensor here = { .dims = 2, .shape = { B, T } };
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, &here, &here) || !ls__param_given(t, "embedding", wte)) return NULL;
    if (!tokens) return ls__tape_fail(t, ls__fail(LS_EINVAL, "embedding: the tokens are NULL"));
    int64_t C = wte->dims == 2 ? wte->shape[1] : 1, V = wte->shape[0];
    ls_tensor *y = ls__result(t, 3, (int64_t[]){ B, T, C });
    if (!y) return NULL;
    if (!ls__param_fits(t, "embedding", wte, V, C, 0, 0, &here)) return NULL;
    if (wpe && !ls__param_fits(t, "embedding", wpe, wpe->shape[0], C, 0, 0, y)) return NULL;
    embedding s = { tokens, B, T, ls__tape_array(t, (size_t)B, sizeof *s.first) };
    if (!s.first) return NULL;
    bool beyond = false;
    for (int64_t b = 0; b < B; b++) {
        s.first[b] = first ? first[b] : 0;
        beyond = beyond || s.first[b] < 0 || (wpe && s.first[b] + T > wpe->shape[0]);
    }
    if (beyond)
        return ls__shape_error(t, "embedding", "tokens", 2, here.shape, (wpe ? wpe : wte)->name,
                               (wpe ? wpe : wte)->dims, (wpe ? wpe : wte)->shape,
                               "the sequence is longer than the context");
    for (int64_t i = 0; i < B * T; i++)
        if (tokens[i] < 0 || tokens[i] >= V)
            return ls__tape_fail(t, ls__fail(LS_EINVAL,
                                             "embedding: token %d at (%lld, %lld) is outside of the vocabulary of %lld",
                                             tokens[i], (long long)(i / T), (long long)(i % T), (long long)V));
#pragma omp parallel for num_threads(t->threads) schedule(static) if (B * T * C > LS__WORTH_THREADS)
    for (int64_t r = 0; r < B * T; r++) {
        float *to = y->data + r * C;
        int64_t position = s.first[r / T] + r % T;
        read_row(to, wte, tokens[r], C);
        if (wpe && wpe->half)
            add_half(to, wpe->half + position * C, C);
        else if (wpe)
            ls__nn_kernels_best()->add(to, to, wpe->value + position * C, (size_t)C);
    }
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){
                               .op = &op_embedding, .param = { wte, wpe }, .state = &s, .state_bytes = sizeof s });
}
