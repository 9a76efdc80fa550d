/* Optimisers over ranges of the flat block. What differs between parameters is only whether they decay, so a range is
 * cut at the places' borders and each piece goes through the kernel. State exists for the optimiser's own range alone.
 *
 * Padding between places has gradient zero and value zero and is left out. */
#include "lockstep/nn.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/status.h"
#include "kern/optim.h"

enum { CHUNK = 1 << 16 }; /* elements a thread updates at a time */

struct ls_optimizer {
    ls_optimizer_options options; /* defaults filled in */
    const ls_place *places;       /* the caller's */
    size_t n_places;
    size_t begin, end;
    ls__arena memory;
    float *m, *v; /* [end - begin]; v is AdamW's alone; NULL where there is no such state */
};

ls_status ls_optimizer_options_check(ls_optimizer_options *o)
{
    if (o->kind != LS_ADAMW && o->kind != LS_SGD)
        return ls__fail(LS_EINVAL, "optimizer: there is no kind %d", (int)o->kind);
    if (o->beta1 == 0) o->beta1 = 0.9f;
    if (o->beta2 == 0) o->beta2 = 0.95f;
    if (o->eps == 0) o->eps = 1e-8f;
    if (o->momentum == 0) o->momentum = 0.9f;
    if (o->weight_decay == 0 && o->kind == LS_ADAMW) o->weight_decay = 0.1f;
    if (o->threads <= 0) o->threads = omp_get_max_threads();
    if (!(o->beta1 > 0 && o->beta1 < 1 && o->beta2 > 0 && o->beta2 < 1 && o->momentum < 1))
        return ls__fail(LS_EINVAL, "optimizer: beta1 %g, beta2 %g, momentum %g: each must be below 1 and not negative",
                        (double)o->beta1, (double)o->beta2, (double)o->momentum);
    if (!(o->eps > 0 && isfinite(o->weight_decay)))
        return ls__fail(LS_EINVAL, "optimizer: eps %g must be above 0 and decay %g finite", (double)o->eps,
                        (double)o->weight_decay);
    return LS_OK;
}

/* State arrays. */
static size_t arrays_of(const ls_optimizer_options *o)
{
    return o->kind == LS_ADAMW ? 2 : o->momentum >= 0;
}

/* Each begins on a cache line. */
static size_t padded(size_t elements)
{
    return (elements + 15) / 16 * 16;
}

size_t ls_optimizer_floats(const ls_optimizer_options *options, size_t elements)
{
    return arrays_of(options) * padded(elements);
}

ls_status ls_optimizer_open(ls_optimizer **out, const ls_place *places, size_t n_places, size_t begin, size_t end,
                            const ls_optimizer_options *options)
{
    *out = NULL;
    if (begin > end) return ls__fail(LS_EINVAL, "optimizer: the range %zu to %zu is no range", begin, end);
    ls_optimizer *o = calloc(1, sizeof *o);
    if (!o) return ls__fail(LS_ENOMEM, "optimizer: out of memory");
    o->options = options ? *options : (ls_optimizer_options){ 0 };
    o->places = places;
    o->n_places = n_places;
    o->begin = begin;
    o->end = end;
    ls_status status = ls_optimizer_options_check(&o->options);
    size_t floats = ls_optimizer_floats(&o->options, end - begin);
    float *memory = o->options.memory;
    if (!status && floats && !memory) {
        status = ls__arena_open(&o->memory, floats * sizeof(float));
        memory = status ? NULL : ls__arena_take(&o->memory, floats * sizeof(float)); /* fresh pages: zero */
    }
    if (!status && floats) {
        o->m = memory;
        if (arrays_of(&o->options) > 1) o->v = memory + padded(end - begin);
    }
    if (status) ls_optimizer_free(&o);
    *out = o;
    return status;
}

void ls_optimizer_free(ls_optimizer **optimizer)
{
    ls_optimizer *o = *optimizer;
    if (!o) return;
    ls__arena_close(&o->memory);
    free(o);
    *optimizer = NULL;
}

/* What the kernels need, for one step: [0] without decay, [1] with. */
typedef struct step_args {
    ls__adamw_args adamw[2];
    ls__sgd_args sgd[2];
} step_args;

static step_args make_args(const ls_optimizer_options *o, int64_t step, float lr, float grad_scale)
{
    step_args a;
    double t = (double)(step + 1);
    for (int decays = 0; decays < 2; decays++) {
        double decay = decays && o->weight_decay > 0 ? (double)o->weight_decay : 0;
        a.adamw[decays] = (ls__adamw_args){
            .grad_scale = grad_scale,
            .keep = (float)(1 - (double)lr * decay),
            .beta1 = o->beta1,
            .beta2 = o->beta2,
            .step_size = (float)((double)lr / (1 - pow((double)o->beta1, t))),
            .denom_scale = (float)(1 / sqrt(1 - pow((double)o->beta2, t))),
            .eps = o->eps,
        };
        a.sgd[decays] = (ls__sgd_args){
            .grad_scale = grad_scale, .decay = (float)decay, .momentum = o->momentum > 0 ? o->momentum : 0, .lr = lr
        };
    }
    return a;
}

/* Elements [from, to); grads[0] is that of element `first`. */
static void update_piece(const ls_optimizer *o, const step_args *a, bool decays, float *values, const float *grads,
                         size_t first, size_t from, size_t to)
{
    size_t chunks = (to - from + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(o->options.threads) schedule(static) if (chunks > 1)
    for (size_t c = 0; c < chunks; c++) {
        size_t at = from + c * CHUNK, n = to - at < CHUNK ? to - at : CHUNK, own = at - o->begin;
        if (o->options.kind == LS_ADAMW)
            ls__adamw(values + at, grads + (at - first), o->m + own, o->v + own, n, &a->adamw[decays]);
        else
            ls__sgd(values + at, grads + (at - first), o->m ? o->m + own : NULL, n, &a->sgd[decays]);
    }
}

ls_status ls_optimizer_update_part(ls_optimizer *o, float *values, const float *grads, size_t begin, size_t end,
                                   int64_t step, float lr, float grad_scale)
{
    if (begin < o->begin || end > o->end || begin > end)
        return ls__fail(LS_EINVAL, "optimizer: elements %zu to %zu are not in its range %zu to %zu", begin, end,
                        o->begin, o->end);
    step_args args = make_args(&o->options, step, lr, grad_scale);
    for (size_t i = 0; i < o->n_places; i++) {
        const ls_place *p = &o->places[i];
        size_t from = p->offset > begin ? p->offset : begin;
        size_t to = p->offset + p->count < end ? p->offset + p->count : end;
        if (from < to) update_piece(o, &args, p->dims > 1 || o->options.decay_all, values, grads, begin, from, to);
    }
    return LS_OK;
}

ls_status ls_optimizer_update(ls_optimizer *o, float *values, const float *grads, size_t begin, size_t end,
                              int64_t step, float lr, float grad_scale)
{
    return ls_optimizer_update_part(o, values, grads + begin, begin, end, step, lr, grad_scale);
}

int ls_optimizer_state(ls_optimizer *o, int i, const char **name, float **data)
{
    static const char *const adamw[] = { "exp_avg", "exp_avg_sq" };
    int count = o->options.kind == LS_ADAMW ? 2 : o->options.momentum > 0;
    if (i >= 0 && i < count) {
        *name = o->options.kind == LS_ADAMW ? adamw[i] : "momentum_buffer";
        *data = i ? o->v : o->m;
    }
    return count;
}
