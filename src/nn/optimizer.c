/* Optimizers over ranges of the flat block. Parameters differ in whether they decay, and for Muon in their kernel, so a range is
 * divided at the borders of places, and a kernel updates each part. State exists only for the optimizer's own range.
 *
 * Padding between places has gradient zero and value zero and is skipped.
 *
 * CONTRIBUTING.md has what a new optimizer needs. */
#include "nn/optimizer.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/math.h"
#include "base/status.h"
#include "kern/optim.h"
#include "nn/muon.h"

enum { CHUNK = 1 << 16, MAX_STATES = LS__OPTIM_MAX_STATES, LINE = 16 }; /* LINE: floats of a cache line */

typedef struct type {
    const char *states[MAX_STATES]; /* names, as in torch */
    float weight_decay;             /* default */
    /* of a parameter; NULL: one with the most states */
    ls__optim_kernel (*kernel)(const ls_optimizer_options *o, const ls_place *p);
    ls__optim_args (*args)(const ls_optimizer_options *o, const ls_place *p, int64_t step, float lr, float decay);
} type;

static ls__optim_kernel adamw_kernel(const ls_optimizer_options *o, const ls_place *p)
{
    (void)o, (void)p;
    return LS__OPTIM_ADAMW;
}

static ls__optim_args adamw_args(const ls_optimizer_options *o, const ls_place *p, int64_t step, float lr, float decay)
{
    (void)p;
    return (ls__optim_args){
        .adamw = { .keep = (float)(1 - (double)lr * (double)decay),
                   .beta1 = o->beta1,
                   .beta2 = o->beta2,
                   .step_size = (float)((double)lr / (1 - ls__math_power((double)o->beta1, step + 1))),
                   .denom_scale = (float)(1 / sqrt(1 - ls__math_power((double)o->beta2, step + 1))),
                   .eps = o->eps },
    };
}

static ls__optim_kernel sgd_kernel(const ls_optimizer_options *o, const ls_place *p)
{
    (void)p;
    return o->momentum > 0 ? LS__OPTIM_SGD_MOMENTUM : LS__OPTIM_SGD;
}

static ls__optim_args sgd_args(const ls_optimizer_options *o, const ls_place *p, int64_t step, float lr, float decay)
{
    (void)p, (void)step;
    return (ls__optim_args){ .sgd = { .decay = decay, .momentum = o->momentum, .lr = lr } };
}

static ls__optim_kernel muon_kernel(const ls_optimizer_options *o, const ls_place *p)
{
    (void)o;
    return p && ls__muon_has(p) ? LS__OPTIM_MUON : LS__OPTIM_ADAMW;
}

static float muon_momentum(const ls_optimizer_options *o)
{
    return o->momentum > 0 ? o->momentum : 0;
}

static ls__optim_args muon_args(const ls_optimizer_options *o, const ls_place *p, int64_t step, float lr, float decay)
{
    if (!ls__muon_has(p)) return adamw_args(o, p, step, lr, decay);
    return (ls__optim_args){ .muon = { .keep = (float)(1 - (double)lr * (double)decay),
                                       .momentum = muon_momentum(o),
                                       .lr = (float)((double)lr * ls__muon_rate(p->shape[0], p->shape[1])) } };
}

static const type types[LS_OPTIMIZER_COUNT] = {
    [LS_ADAMW] = { .states = { "exp_avg", "exp_avg_sq" },
                   .weight_decay = 0.1f,
                   .kernel = adamw_kernel,
                   .args = adamw_args },
    /* Of a matrix, the first is the momentum, and the second the direction of the step. */
    [LS_MUON] = { .states = { "exp_avg", "exp_avg_sq" },
                  .weight_decay = 0.1f,
                  .kernel = muon_kernel,
                  .args = muon_args },
    [LS_SGD] = { .states = { "momentum_buffer" }, .kernel = sgd_kernel, .args = sgd_args },
};

struct ls_optimizer {
    ls_optimizer_options options; /* defaults filled in */
    const type *type;
    const ls_place *places; /* user-owned */
    size_t n_places;
    bool sorted; /* in the order of their offsets */
    size_t begin, end;
    ls__arena memory;
    float *states[MAX_STATES]; /* [end - begin] each; NULL beyond what the kernels have */
    ls__muon muon;
    size_t *matrices; /* numbers of the places that Muon updates, most expensive first */
    size_t n_matrices;
};

ls_status ls__optimizer_options_check(ls_optimizer_options *o)
{
    if ((unsigned)o->kind >= LS_OPTIMIZER_COUNT) return ls__fail(LS_EINVAL, "optimizer: invalid kind %d", (int)o->kind);
    if (o->beta1 == 0) o->beta1 = 0.9f;
    if (o->beta2 == 0) o->beta2 = 0.95f;
    if (o->eps == 0) o->eps = 1e-8f;
    if (o->momentum == 0) o->momentum = o->kind == LS_MUON ? 0.95f : 0.9f;
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
    return ls__optim_states[types[o->kind].kernel(o, NULL)];
}

/* Each state begins on a cache line. */
static size_t padded(size_t elements)
{
    return (elements + LINE - 1) / LINE * LINE;
}

size_t ls__optimizer_state_floats(const ls_optimizer_options *options, size_t elements)
{
    return (size_t)state_count(options) * padded(elements);
}

/* Multiplications of an iteration. */
static double cost(const ls_place *p)
{
    double rows = (double)p->shape[0], cols = (double)p->shape[1], n = rows < cols ? rows : cols;
    return n * (2 * rows * cols + n * n);
}

/* The matrices of its range. */
static ls_status open_muon(ls_optimizer *o)
{
    if (o->options.kind != LS_MUON || !o->n_places) return LS_OK;
    if (!(o->matrices = calloc(o->n_places, sizeof *o->matrices)))
        return ls__fail(LS_ENOMEM, "optimizer: out of memory");
    for (size_t i = 0; i < o->n_places; i++) {
        const ls_place *p = &o->places[i];
        if (!ls__muon_has(p) || p->offset >= o->end || p->offset + p->count <= o->begin) continue;
        if (p->offset < o->begin || p->offset + p->count > o->end)
            return ls__fail(LS_EINVAL,
                            "optimizer: the range from %zu to %zu has a part of the matrix '%s' (%zu to %zu); muon "
                            "needs whole matrices",
                            o->begin, o->end, p->name, p->offset, p->offset + p->count);
        size_t at = o->n_matrices++;
        for (; at && cost(&o->places[o->matrices[at - 1]]) < cost(p); at--) o->matrices[at] = o->matrices[at - 1];
        o->matrices[at] = i;
    }
    return ls__muon_open(&o->muon, o->places, o->n_places, o->options.threads);
}

/* Where the last place ends; 0 if that is more than memory can hold with its state. */
static size_t end_of(const ls_place *places, size_t n_places)
{
    const size_t most = (size_t)PTRDIFF_MAX / sizeof(float) / MAX_STATES - LINE;
    size_t last = 0;
    for (size_t i = 0; i < n_places; i++) {
        if (places[i].offset > most || places[i].count > most - places[i].offset) return 0;
        if (places[i].offset + places[i].count > last) last = places[i].offset + places[i].count;
    }
    return last;
}

ls_status ls__optimizer_open_in(ls_optimizer **out, const ls_place *places, size_t n_places, size_t begin, size_t end,
                                const ls_optimizer_options *options, float *memory)
{
    *out = NULL;
    if (n_places && !places)
        return ls__fail(LS_EINVAL, "optimizer: places must not be NULL for a count of %zu", n_places);
    if (begin > end) return ls__fail(LS_EINVAL, "optimizer: the range begins at %zu, after its end %zu", begin, end);
    size_t last = padded(end_of(places, n_places));
    if (end > last)
        return ls__fail(LS_EINVAL, "optimizer: the range ends at %zu, after the last place, which ends at %zu", end,
                        last);
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
    o->sorted = true;
    for (size_t i = 1; i < n_places; i++)
        o->sorted = o->sorted && places[i].offset >= places[i - 1].offset + places[i - 1].count;
    if ((status = open_muon(o))) goto fail;
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
    ls__muon_close(&o->muon);
    free(o->matrices);
    free(o);
    *optimizer = NULL;
}

/* Elements [from, to), by this thread. */
static void update_some(const ls_optimizer *o, ls__optim_kernel kernel, const ls__optim_args *args, float *values,
                        const float *grads, size_t from, size_t to, const ls__optim_undo *undo)
{
    float *states[MAX_STATES];
    for (int i = 0; i < MAX_STATES; i++) states[i] = o->states[i] ? o->states[i] + (from - o->begin) : NULL;
    ls__optim_update(kernel, values + from, grads + from, states, to - from, args, undo);
}

/* Elements [from, to). A parallel region of one thread would cost more than a small part itself. */
static void update_part(const ls_optimizer *o, ls__optim_kernel kernel, const ls__optim_args *args, float *values,
                        const float *grads, size_t from, size_t to)
{
    size_t chunks = (to - from + CHUNK - 1) / CHUNK;
    if (chunks == 1 || o->options.threads == 1) {
        update_some(o, kernel, args, values, grads, from, to, NULL);
        return;
    }
#pragma omp parallel for num_threads(o->options.threads) schedule(static)
    for (size_t c = 0; c < chunks; c++) {
        size_t at = from + c * CHUNK, end = to - at < CHUNK ? to : at + CHUNK;
        update_some(o, kernel, args, values, grads, at, end, NULL);
    }
}

/* Elements [from, to) are in no place and stay as they are, also if they are restored with those around them. */
static void copy_padding(const ls_optimizer *o, const float *values, size_t from, size_t to, const ls__optim_undo *undo)
{
    for (size_t e = from, at = undo->before; e < to; e++, at++) {
        *ls__undo_at(undo->copy, at, 0) = values[e];
        for (int i = 0; i < MAX_STATES; i++)
            if (o->states[i]) *ls__undo_at(undo->copy, at, 1 + i) = o->states[i][e - o->begin];
    }
}

/* The first place that ends after an element. A trainer may update small blocks, each of which is in few of many places. */
static size_t first_place(const ls_optimizer *o, size_t element)
{
    size_t low = 0, high = o->n_places;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (o->places[middle].offset + o->places[middle].count <= element)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ls_status ls__optimizer_update_range(ls_optimizer *o, float *values, const float *grads, size_t begin, size_t end,
                                     int64_t step, float lr, float grad_scale, const ls__optim_undo *undo)
{
    size_t copied = begin;
    if (begin < o->begin || end > o->end || begin > end)
        return ls__fail(LS_EINVAL, "optimizer: elements %zu to %zu are not in its range %zu to %zu", begin, end,
                        o->begin, o->end);
    for (size_t i = o->sorted ? first_place(o, begin) : 0; i < o->n_places; i++) {
        const ls_place *p = &o->places[i];
        size_t from = p->offset > begin ? p->offset : begin;
        size_t to = p->offset + p->count < end ? p->offset + p->count : end;
        if (from >= to && o->sorted) break;
        if (from >= to) continue;
        bool decays = (p->dims > 1 || o->options.decay_all) && o->options.weight_decay > 0;
        ls__optim_args args = o->type->args(&o->options, p, step, lr, decays ? o->options.weight_decay : 0);
        args.grad_scale = grad_scale;
        if (undo) {
            ls__optim_undo part = *undo;
            part.before = undo->before + (copied - begin);
            copy_padding(o, values, copied, from, &part);
            part.before = undo->before + (from - begin);
            update_some(o, o->type->kernel(&o->options, p), &args, values, grads, from, to, &part);
            copied = to;
        } else {
            update_part(o, o->type->kernel(&o->options, p), &args, values, grads, from, to);
        }
    }
    return LS_OK;
}

size_t ls__optimizer_matrices(const ls_optimizer *o)
{
    return o->n_matrices;
}

void ls__optimizer_prepare(ls_optimizer *o, const float *grads, size_t first, size_t end, float grad_scale)
{
    for (size_t i = first; i < end; i++) {
        const ls_place *p = &o->places[o->matrices[i]];
        size_t at = p->offset - o->begin;
        ls__muon_direction(&o->muon, o->states[1] + at, o->states[0] + at, grads + p->offset, p->shape[0], p->shape[1],
                           muon_momentum(&o->options), grad_scale);
    }
}

void ls_optimizer_update(ls_optimizer *o, float *values, const float *grads, int64_t step, float lr)
{
    ls__optimizer_prepare(o, grads, 0, o->n_matrices, 1);
    ls_status status = ls__optimizer_update_range(o, values, grads, o->begin, o->end, step, lr, 1, NULL);
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
