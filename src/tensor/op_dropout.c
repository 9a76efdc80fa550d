/* Dropout. The mask is a function of (seed, pass, number of the dropout in the pass, element): backward recomputes it, and it is
 * the same on any rank and for any number of threads. */
#include "tensor/tape.h"

#include "base/random.h"
#include "tensor/dropout.h"
#include "tensor/rows.h"

void ls__dropout_apply(const ls__dropout_mask *d, float *out, const float *x, size_t n, uint64_t first)
{
    enum { GROUP = 256 };
    uint32_t bits[GROUP];
    while (n) {
        size_t m = n < GROUP ? n : GROUP;
        ls__random_fill_u32(bits, m, d->seed, d->stream, first);
        for (size_t i = 0; i < m; i++) out[i] = bits[i] >= d->threshold ? x[i] * d->scale : 0.0f;
        out += m, x += m, first += m, n -= m;
    }
}

ls__dropout_mask ls__dropout_next(ls_tape *t, float p)
{
    return (ls__dropout_mask){ .seed = t->pass.seed,
                               .stream = t->pass.stream << 16 | (t->streams++ & 0xffff),
                               .threshold = (uint32_t)((double)p * 4294967296.0),
                               .scale = 1.0f / (1.0f - p) };
}

enum { CHUNK = 4096 };

static ls_status dropout_back(ls_tape *t, ls__node *n)
{
    const ls__dropout_mask *d = n->state;
    ls_tensor *x = n->in[0];
    const float *dy = n->out->grad->data;
    int64_t count = ls_tensor_count(x);
    bool add;
    float *dx = ls__grad(t, x, &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (count > LS__WORTH_THREADS)
    for (int64_t i = 0; i < count; i += CHUNK) {
        size_t m = (size_t)ls__min(CHUNK, count - i);
        float chunk[CHUNK];
        ls__dropout_apply(d, add ? chunk : dx + i, dy + i, m, (uint64_t)i);
        if (add) ls__nn_kernels_best()->add(dx + i, dx + i, chunk, m);
    }
    return LS_OK;
}
static const ls__operation op_dropout = { "dropout", dropout_back };

ls_tensor *ls_dropout(ls_tape *t, ls_tensor *x, float p)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    if (!(p >= 0 && p < 1))
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "dropout: p is %g; it must be >= 0 and < 1", (double)p));
    if (t->pass.mode == LS_PASS_EVAL || p == 0) return x;
    ls_tensor *y = ls__result(t, x->dims, x->shape);
    if (!y) return NULL;
    ls__dropout_mask d = ls__dropout_next(t, p);
    int64_t count = ls_tensor_count(x);
#pragma omp parallel for num_threads(t->threads) schedule(static) if (count > LS__WORTH_THREADS)
    for (int64_t i = 0; i < count; i += CHUNK)
        ls__dropout_apply(&d, y->data + i, x->data + i, (size_t)ls__min(CHUNK, count - i), (uint64_t)i);
    return ls__tape_record(
        t, y, &(ls__tape_record_args){ .op = &op_dropout, .in = { x }, .state = &d, .state_bytes = sizeof d });
}
