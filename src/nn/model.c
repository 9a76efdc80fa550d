/* What all models share: the flat block, its memory, its initial values.
 *
 * Parameters are in the order of the forward pass, so backward finishes them from the end of the block to its beginning, and a
 * bucket of gradients is contiguous. */
#include "nn/model.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "base/status.h"
#include "nn/lora.h"
#include "tensor/hooks.h"

enum {
    ALIGN = 16,           /* elements; a cache line */
    INIT_CHUNK = 1 << 16, /* elements that one thread fills at a time */
};

static const int64_t MAX_ELEMENTS = (int64_t)1 << 42; /* 16 TiB of float32; so that sizes cannot overflow */

/* Random streams of initial values are at the end of the range, so no others use them. */
static uint64_t init_stream(size_t place)
{
    return UINT64_MAX - place;
}

static bool grow(ls__places *p)
{
    size_t room = p->room ? 2 * p->room : 32;
    ls_place *list = realloc(p->list, room * sizeof *list);
    if (list) p->list = list;
    float *init = realloc(p->init, room * sizeof *init);
    if (init) p->init = init;
    if (!list || !init) return false;
    p->room = room;
    return true;
}

size_t ls__places_add(ls__places *p, float init, int64_t d0, int64_t d1, int64_t d2, int64_t d3, const char *format,
                      ...)
{
    int64_t shape[4] = { d0, d1, d2, d3 }, count = 1;
    char *name = NULL;
    va_list args;
    va_start(args, format);
    if (p->failed || (p->count == p->room && !grow(p)) || vasprintf(&name, format, args) < 0) p->failed = true;
    va_end(args);
    if (p->failed) return 0;
    ls_place *place = &p->list[p->count];
    *place = (ls_place){ .name = name, .offset = p->elements, .shape = { 1, 1, 1, 1 } };
    p->init[p->count] = init;
    for (int i = 0; i < 4 && shape[i]; i++) {
        place->shape[place->dims++] = shape[i];
        if (__builtin_mul_overflow(count, shape[i], &count) || count > MAX_ELEMENTS) p->failed = true;
        if (p->failed) count = 1;
    }
    place->count = (size_t)count;
    p->elements += (size_t)(count + ALIGN - 1) / ALIGN * ALIGN;
    if (p->elements > (size_t)MAX_ELEMENTS) p->failed = true;
    return p->count++;
}

void ls__places_mark_table(ls__places *p)
{
    if (!p->failed) p->list[p->count - 1].is_table = true;
}

void ls__places_free(ls__places *p)
{
    for (size_t i = 0; i < p->count; i++) free((char *)(uintptr_t)p->list[i].name);
    free(p->list);
    free(p->init);
    *p = (ls__places){ 0 };
}

ls_model *ls__model_make(const ls__model_type *type)
{
    ls_model *m = calloc(1, sizeof *m);
    if (!m) {
        ls__fail(LS_ENOMEM, "%s: out of memory", type->name);
        return NULL;
    }
    m->type = type;
    m->end = LS__END_DEFAULT;
    return m;
}

ls_status ls__model_finish(ls_model **model)
{
    ls_model *m = *model;
    size_t n = m->places.count;
    if (!m->places.failed && !m->buffer_places.failed) m->params = calloc(n, sizeof *m->params);
    if (!m->params) {
        const char *name = m->type->name;
        ls_model_free(model);
        return ls__fail(LS_ENOMEM, "%s: a model of this size does not fit in memory", name);
    }
    for (size_t i = 0; i < n; i++) {
        const ls_place *place = &m->places.list[i];
        m->params[i] = (ls_param){ .name = place->name, .dims = place->dims };
        memcpy(m->params[i].shape, place->shape, sizeof place->shape);
    }
    return LS_OK;
}

void ls_model_free(ls_model **model)
{
    ls_model *m = model ? *model : NULL;
    if (!m) return;
    free(m->config);
    free(m->generation);
    free(m->labels);
    free(m->params);
    ls__lora_free(m);
    ls__places_free(&m->places);
    ls__places_free(&m->frozen_places);
    ls__places_free(&m->buffer_places);
    ls__arena_close(&m->memory);
    free(m);
    *model = NULL;
}

void ls__model_set_end(ls_model *model, int32_t token)
{
    model->end = token < 0 ? -1 : token;
}

ls_status ls__model_set_labels(ls_model *model, const char *labels)
{
    char *copy = labels ? strdup(labels) : NULL;
    if (labels && !copy) return ls__fail(LS_ENOMEM, "%s: out of memory", model->type->name);
    free(model->labels);
    model->labels = copy;
    return LS_OK;
}

void ls_model_set_recompute(ls_model *model, bool recompute)
{
    model->recompute = recompute;
}

size_t ls_model_places(const ls_model *model, const ls_place **places)
{
    *places = model->places.list;
    return model->places.count;
}

size_t ls_model_elements(const ls_model *model)
{
    return model->places.elements;
}

size_t ls_model_param_count(const ls_model *model)
{
    size_t sum = 0;
    for (size_t i = 0; i < model->places.count; i++) sum += model->places.list[i].count;
    return sum;
}

size_t ls_model_buffers(const ls_model *model, const ls_place **places, float **data)
{
    *places = model->buffer_places.list;
    *data = model->buffers;
    return model->buffer_places.count;
}

size_t ls__model_buffer_elements(const ls_model *model)
{
    return model->buffer_places.elements;
}

void ls__model_set_statistics(ls_model *model, float *statistics)
{
    model->statistics = statistics;
}

/* Buffers are, for each norm, mean, variance and a counter of batches, which is 0 in statistics that no pass wrote. */
void ls__model_add_statistics(ls_model *m, const float *statistics)
{
    for (size_t i = 0; i + 2 < m->buffer_places.count; i += 3) {
        const ls_place *p = &m->buffer_places.list[i];
        if (statistics[p[2].offset] == 0) continue;
        ls__batch_norm_update(m->buffers + p[0].offset, statistics + p[0].offset, 0, p[0].count);
        ls__batch_norm_update(m->buffers + p[1].offset, statistics + p[1].offset, 0, p[1].count);
        m->buffers[p[2].offset] += statistics[p[2].offset];
    }
}

float *ls_model_values(const ls_model *model)
{
    return model->values;
}

float *ls_model_grads(const ls_model *model)
{
    return model->grads;
}

int ls_model_params(const ls_model *model, ls_param **params)
{
    *params = model->params;
    return (int)(model->frozen_places.count + model->places.count);
}

void ls_model_set_grads(ls_model *m, float *grads)
{
    ls_param *params = m->params + m->frozen_places.count;
    m->grads = grads;
    for (size_t i = 0; i < m->places.count; i++) params[i].grad = grads + m->places.list[i].offset;
}

ls_status ls_model_bind(ls_model *m, float *values, float *grads, bool train)
{
    LS__NEED(m, "model");
    size_t bytes = m->places.elements * sizeof(float), buffer_bytes = m->buffer_places.elements * sizeof(float);
    if (m->values) return ls__fail(LS_ESTATE, "%s: the model is bound already", m->type->name);
    if (((uintptr_t)values | (uintptr_t)grads) % 64)
        return ls__fail(LS_EINVAL, "%s: the flat blocks must be aligned to 64 bytes", m->type->name);
    size_t frozen_bytes = ls__model_frozen_bytes(m);
    size_t own = (values ? 0 : bytes) + (grads || !train ? 0 : bytes) + buffer_bytes + (m->frozen ? 0 : frozen_bytes);
    if (own) {
        ls_status status = ls__arena_open(&m->memory, own);
        if (status) return ls__fail_within(status, "%s: %zu parameters", m->type->name, ls_model_param_count(m));
    }
    m->values = values ? values : ls__arena_take(&m->memory, bytes);
    m->grads = grads || !train ? grads : ls__arena_take(&m->memory, bytes);
    m->buffers = buffer_bytes ? ls__arena_take(&m->memory, buffer_bytes) : NULL;
    if (frozen_bytes && !m->frozen) m->frozen = ls__arena_take(&m->memory, frozen_bytes);
    size_t n_frozen = m->frozen_places.count;
    for (size_t i = 0; i < n_frozen; i++) ls__frozen_at(m, i, &m->params[i].value, &m->params[i].half);
    for (size_t i = 0; i < m->places.count; i++) m->params[n_frozen + i].value = m->values + m->places.list[i].offset;
    if (m->grads) ls_model_set_grads(m, m->grads);
    for (size_t i = 0; i < m->buffer_places.count; i++) {
        const ls_place *place = &m->buffer_places.list[i];
        for (size_t k = 0; k < place->count; k++)
            m->buffers[place->offset + k] = m->buffer_places.init[i] == LS__INIT_ONES ? 1.0f : 0.0f;
    }
    return LS_OK;
}

/* Elements [from, to) of place i, relative to the place. */
static void init_part(ls_model *m, size_t i, size_t from, size_t to, uint64_t seed)
{
    float init = m->places.init[i], *out = m->values + m->places.list[i].offset + from;
    if (init > 0)
        ls__random_fill_normal(out, to - from, 0, init, seed, init_stream(i), from);
    else
        for (size_t k = 0; k < to - from; k++) out[k] = init == LS__INIT_ONES ? 1.0f : 0.0f;
}

ls_status ls__model_init_range(ls_model *m, size_t begin, size_t end, uint64_t seed, int threads)
{
    if (!m->values)
        return ls__fail(LS_ESTATE, "%s: the model has no memory; call ls_model_bind() first", m->type->name);
    if (begin > end || end > m->places.elements)
        return ls__fail(LS_EINVAL, "%s: elements %zu to %zu of a block of %zu", m->type->name, begin, end,
                        m->places.elements);
    if (threads <= 0) threads = omp_get_max_threads();
    for (size_t i = 0; i < m->places.count; i++) {
        const ls_place *place = &m->places.list[i];
        size_t stop = i + 1 < m->places.count ? place[1].offset : m->places.elements; /* padding included */
        size_t from = begin > place->offset ? begin - place->offset : 0;
        size_t to = end < stop ? (end > place->offset ? end - place->offset : 0) : stop - place->offset;
        for (size_t k = from > place->count ? from : place->count; k < to; k++) m->values[place->offset + k] = 0;
        if (to > place->count) to = place->count;
        if (from >= to) continue;
        size_t chunks = (to - from + INIT_CHUNK - 1) / INIT_CHUNK;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (chunks > 1)
        for (size_t c = 0; c < chunks; c++) {
            size_t at = from + c * INIT_CHUNK, stop_at = at + INIT_CHUNK < to ? at + INIT_CHUNK : to;
            init_part(m, i, at, stop_at, seed);
        }
    }
    return LS_OK;
}

ls_status ls_model_init(ls_model *m, uint64_t seed)
{
    LS__NEED(m, "model");
    return ls__model_init_range(m, 0, m->places.elements, seed, 0);
}

ls_cross_entropy_options ls__batch_targets(const ls_model_batch *b)
{
    return (ls_cross_entropy_options){
        .targets = b->targets,
        .weights = b->weights,
        .divisor = b->divisor,
        .row_losses = b->row_losses,
        .predictions = b->predictions,
    };
}

/* Fails the pass unless the model and its batch can be used. */
static bool can_run(const ls_model *m, ls_tape *t, const ls_model_batch *batch)
{
    if (m && m->values && batch) return true;
    if (m && !m->values)
        ls__tape_fail(t, ls__fail(LS_ESTATE, "%s: the model has no memory; call ls_model_bind() first", m->type->name));
    else
        ls__tape_fail(t, ls__fail(LS_EINVAL, "model: the %s is NULL", m ? "batch" : "model"));
    return false;
}

ls_tensor *ls_model_loss(ls_model *model, ls_tape *tape, const ls_model_batch *batch)
{
    return can_run(model, tape, batch) ? model->type->loss(model, tape, batch) : NULL;
}

ls_tensor *ls_model_logits(ls_model *model, ls_tape *tape, const ls_model_batch *batch)
{
    return can_run(model, tape, batch) ? model->type->logits(model, tape, batch) : NULL;
}
