/* What the probes share: a model of a folder, its passes over batches, and the tensors that they write. */
#ifndef LS_TESTS_PROBE_H
#define LS_TESTS_PROBE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/nn.h"
#include "nn/safetensors.h"

enum { PROBE_TENSORS = 4000 };

typedef struct probe {
    ls_model *model;
    ls_tape *tape;
    ls__st_tensor *out;
    size_t n_out;
} probe;

static inline void probe_add(probe *p, const char *prefix, const char *name, ls__st_type type, int dims,
                             const int64_t *shape, const void *data)
{
    size_t *sizes = malloc(LS_MAX_DIMS * sizeof *sizes), count = 1;
    char full[400];
    for (int i = 0; i < dims; i++) sizes[i] = (size_t)shape[i], count *= sizes[i];
    void *copy = malloc(count * 4);
    memcpy(copy, data, count * 4);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    p->out[p->n_out++] =
        (ls__st_tensor){ .name = strdup(full), .type = type, .rank = (size_t)dims, .shape = sizes, .data = copy };
}

/* Parameters or buffers, from a flat block. */
static inline void probe_add_places(probe *p, const char *prefix, const ls_place *places, size_t n, const float *data)
{
    for (size_t i = 0; i < n; i++)
        probe_add(p, prefix, places[i].name, LS__ST_F32, places[i].dims, places[i].shape, data + places[i].offset);
}

/* Opens the model of a folder, loads it and saves it again. */
static inline ls_status probe_open(probe *p, const ls_model_options *o, const char *folder, const char *saved)
{
    ls_status status = ls_model_open(&p->model, o);
    if (!status) status = ls_model_bind(p->model, NULL, NULL, true);
    if (!status) status = ls_model_load(p->model, folder);
    if (!status) status = ls_model_save(p->model, saved);
    if (!status) status = ls_tape_open(&p->tape, NULL);
    p->out = calloc(PROBE_TENSORS, sizeof *p->out);
    return status;
}

static inline ls_status probe_logits(probe *p, const ls_model_batch *batch)
{
    ls_param *params;
    int n = ls_model_params(p->model, &params);
    ls_status status = ls_tape_begin(p->tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL });
    ls_tensor *x = status ? NULL : ls_model_logits(p->model, p->tape, batch);
    if (!status) status = ls_tape_status(p->tape);
    if (!status) probe_add(p, "", "logits", LS__ST_F32, x->dims, x->shape, x->data);
    return status;
}

/* The gradients of the first batch, and the losses of a step on each. clip 0: gradients are not clipped. */
static inline ls_status probe_train(probe *p, size_t steps, ls_model_batch (*batch_of)(const void *user, size_t step),
                                    const void *user, const ls_optimizer_options *options, double clip, float lr)
{
    const ls_place *places;
    size_t n_places = ls_model_places(p->model, &places), elements = ls_model_elements(p->model);
    float *losses = calloc(steps, sizeof *losses), *grads = ls_model_grads(p->model);
    ls_optimizer *optimizer;
    ls_param *params;
    int n = ls_model_params(p->model, &params);
    ls_status status = ls_optimizer_open(&optimizer, places, n_places, 0, elements, options);
    for (size_t step = 0; step < steps && !status; step++) {
        ls_model_batch batch = batch_of(user, step);
        status = ls_tape_begin(p->tape, params, n, NULL);
        ls_tensor *loss = status ? NULL : ls_model_loss(p->model, p->tape, &batch);
        if (!status) status = ls_tape_backward(p->tape, loss);
        if (status) break;
        losses[step] = loss->data[0];
        if (!step) probe_add_places(p, "grad.", places, n_places, grads);
        if (clip > 0) ls_clip_grad_norm(grads, elements, clip, 0);
        ls_optimizer_update(optimizer, ls_model_values(p->model), grads, (int64_t)step, lr);
    }
    if (!status) probe_add(p, "", "losses", LS__ST_F32, 1, (int64_t[]){ (int64_t)steps }, losses);
    ls_optimizer_free(&optimizer);
    free(losses);
    return status;
}

/* Writes what was added and returns an exit code. The system frees the memory. */
static inline int probe_end(const probe *p, ls_status status, const char *program, const char *out)
{
    if (!status) status = ls__st_write(out, p->out, p->n_out, NULL, 0);
    if (status) fprintf(stderr, "%s: %s\n", program, ls_error());
    return status ? 1 : 0;
}

#endif
