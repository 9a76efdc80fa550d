/* Optimizers over ranges of the flat block. Parameters differ only in whether they decay, so a range is divided at the borders
 * of places, and the kernel updates each part. State exists only for the optimizer's own range.
 *
 * Padding between places has gradient zero and value zero and is skipped.
 *
 * CONTRIBUTING.md has what a new optimizer needs. */
#include "nn/optimizer.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/math.h"
#include "base/status.h"
#include "kern/optim.h"

enum { CHUNK = 1 << 16, MAX_STATES = LS__OPTIM_MAX_STATES };

typedef struct type {
    const char *states[MAX_STATES]; /* names, as in torch */
    float weight_decay;             /* default */
    ls__optim_kernel (*kernel)(const ls_optimizer_options *o);
    ls__optim_args (*args)(const ls_optimizer_options *o, int64_t step, float lr, float decay);
} type;

static ls__optim_kernel adamw_kernel(const ls_optimizer_options *o)
{
    (void)o;
    return LS__OPTIM_ADAMW;
}

static ls__optim_args adamw_args(const ls_optimizer_options *o, int64_t step, float lr, float decay)
{
    return (ls__optim_args){
        .adamw = { .keep = (float)(1 - (double)lr * (double)decay),
                   .beta1 = o->beta1,
                   .beta2 = o->beta2,
                   .step_size = (float)((double)lr / (1 - ls__math_power((double)o->beta1, step + 1))),
                   .denom_scale = (float)(1 / sqrt(1 - ls__math_power((double)o->beta2, step + 1))),
                   .eps = o->eps },
    };
}

static ls__optim_kernel sgd_kernel(const ls_optimizer_options *o)
{
    return o->momentum > 0 ? LS__OPTIM_SGD_MOMENTUM : LS__OPTIM_SGD;
}

static ls__optim_args sgd_args(const ls_optimizer_options *o, int64_t step, float lr, float decay)
{
    (void)step;
    return (ls__optim_args){ .sgd = { .decay = decay, .momentum = o->momentum, .lr = lr } };
}

static const type types[LS_OPTIMIZER_COUNT] = {
    [LS_ADAMW] = { .states = { "exp_avg", "exp_avg_sq" },
                   .weight_decay = 0.1f,
                   .kernel = adamw_kernel,
                   .args = adamw_args },
    [LS_SGD] = { .states = { "momentum_buffer" }, .kernel = sgd_kernel, .args = sgd_args },
};

struct ls_optimizer {
    ls_optimizer_options options; /* defaults filled in */
    const type *type;
    ls__optim_kernel kernel;
    const ls_place *places; /* user-owned */
    size_t n_places;
    size_t begin, end;
    ls__arena memory;
    float *states[MAX_STATES]; /* [end - begin] each; NULL beyond what the kernel has */
};

ls_status ls__optimizer_options_check(ls_optimizer_options *o)
{
    if ((unsigned)o->kind >= LS_OPTIMIZER_COUNT) return ls__fail(LS_EINVAL, "optimizer: invalid kind %d", (int)o->kind);
    if (o->beta1 == 0) o->beta1 = 0.9f;
    if (o->beta2 == 0) o->beta2 = 0.95f;
    if (o->eps == 0) o->eps = 1e-8f;
    if (o->momentum == 0) o->momentum = 0.9f;
    if (o->weight_decay == 0) o->weight_decay = types[o->kind].weight_decay;
    if (o->threads < 0) return ls__fail(LS_EINVAL, "optimizer: threads is %d; it must be >= 0", o->threads);
    if (!o->threads) o->threads = omp_get_max_threads();
    if (!(o->beta1 > 0 && o->beta1 < 1 && o->beta2 > 0 && o->beta2 < 1 && o->momentum < 1))
        return ls__fail(LS_EINVAL, "optimizer: beta1 is %g, beta2 %g, momentum %g; each must be >= 0 and < 1",
                        (double)o->beta1, (double)o->beta2, (double)o->momentum);
    if (!(o->eps > 0 && isfinite(o->weight_decay)))
        return ls__fail(LS_EINVAL, "optimizer: eps is %g, which must be > 0; weight_decay is %g, which must be finite",
                        (double)o->eps, (double)o->weight_decay);
    return LS_OK;
}

static int state_count(const ls_optimizer_options *o)
{
    return ls__optim_states[types[o->kind].kernel(o)];
}

/* Each state begins on a cache line. */
static size_t padded(size_t elements)
{
    return (elements + 15) / 16 * 16;
}

size_t ls__optimizer_state_floats(const ls_optimizer_options *options, size_t elements)
{
    return (size_t)state_count(options) * padded(elements);
}

ls_status ls__optimizer_open_in(ls_optimizer **out, const ls_place *places, size_t n_places, size_t begin, size_t end,
                                const ls_optimizer_options *options, float *memory)
{
    *out = NULL;
    if (n_places && !places) return ls__fail(LS_EINVAL, "optimizer: %zu places at NULL", n_places);
    if (begin > end) return ls__fail(LS_EINVAL, "optimizer: the range begins at %zu, after its end %zu", begin, end);
    ls_optimizer *o = calloc(1, sizeof *o);
    if (!o) return ls__fail(LS_ENOMEM, "optimizer: out of memory");
    o->options = options ? *options : (ls_optimizer_options){ 0 };
    o->places = places;
    o->n_places = n_places;
    o->begin = begin;
    o->end = end;
    ls_status status = ls__optimizer_options_check(&o->options);
    if (status) goto fail;
    o->type = &types[o->options.kind];
    o->kernel = o->type->kernel(&o->options);
    size_t floats = ls__optimizer_state_floats(&o->options, end - begin);
    if (floats && !memory) {
        if ((status = ls__arena_open(&o->memory, floats * sizeof(float)))) goto fail;
        memory = ls__arena_take(&o->memory, floats * sizeof(float)); /* new pages are zero */
    }
    for (int i = 0; i < state_count(&o->options); i++) o->states[i] = memory + (size_t)i * padded(end - begin);
    *out = o;
    return LS_OK;
fail:
    ls_optimizer_free(&o);
    return status;
}

ls_status ls_optimizer_open(ls_optimizer **out, const ls_place *places, size_t n_places, size_t begin, size_t end,
                            const ls_optimizer_options *options)
{
    LS__NEED(out, "out");
    return ls__optimizer_open_in(out, places, n_places, begin, end, options, NULL);
}

void ls_optimizer_free(ls_optimizer **optimizer)
{
    ls_optimizer *o = optimizer ? *optimizer : NULL;
    if (!o) return;
    ls__arena_close(&o->memory);
    free(o);
    *optimizer = NULL;
}

/* Elements [from, to). */
static void update_part(const ls_optimizer *o, const ls__optim_args *args, float *values, const float *grads,
                        size_t from, size_t to)
{
    size_t chunks = (to - from + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(o->options.threads) schedule(static) if (chunks > 1)
    for (size_t c = 0; c < chunks; c++) {
        size_t at = from + c * CHUNK, n = to - at < CHUNK ? to - at : CHUNK;
        float *states[MAX_STATES];
        for (int i = 0; i < MAX_STATES; i++) states[i] = o->states[i] ? o->states[i] + (at - o->begin) : NULL;
        ls__optim_update(o->kernel, values + at, grads + at, states, n, args);
    }
}

ls_status ls__optimizer_update_range(ls_optimizer *o, float *values, const float *grads, size_t begin, size_t end,
                                     int64_t step, float lr, float grad_scale)
{
    if (begin < o->begin || end > o->end || begin > end)
        return ls__fail(LS_EINVAL, "optimizer: elements %zu to %zu are not in its range %zu to %zu", begin, end,
                        o->begin, o->end);
    ls__optim_args args[2]; /* without and with decay */
    for (int decays = 0; decays < 2; decays++) {
        float decay = decays && o->options.weight_decay > 0 ? o->options.weight_decay : 0;
        args[decays] = o->type->args(&o->options, step, lr, decay);
        args[decays].grad_scale = grad_scale;
    }
    for (size_t i = 0; i < o->n_places; i++) {
        const ls_place *p = &o->places[i];
        size_t from = p->offset > begin ? p->offset : begin;
        size_t to = p->offset + p->count < end ? p->offset + p->count : end;
        if (from < to) update_part(o, &args[p->dims > 1 || o->options.decay_all], values, grads, from, to);
    }
    return LS_OK;
}

void ls_optimizer_update(ls_optimizer *o, float *values, const float *grads, int64_t step, float lr)
{
    ls_status status = ls__optimizer_update_range(o, values, grads, o->begin, o->end, step, lr, 1);
    (void)status; /* the range is valid */
}

int ls_optimizer_state(ls_optimizer *o, int i, const char **name, float **data)
{
    int count = state_count(&o->options);
    if (i >= 0 && i < count) {
        *name = o->type->states[i];
        *data = o->states[i];
    }
    return count;
}
