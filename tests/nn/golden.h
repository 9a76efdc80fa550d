/* What the tests against transformers and PEFT share: a golden file, and a model that computes on its batches. */
#ifndef LS_TESTS_GOLDEN_H
#define LS_TESTS_GOLDEN_H

#include <math.h>
#include "check.h"
#include "nn/model.h"
#include "nn/safetensors.h"

enum { ROWS = 3, LENGTH = 11, STEPS = 10, VOCAB = 37 }; /* of all golden files */

typedef struct golden {
    const char *name;
    ls__st_reader *file;
    ls_model *model;
    ls_tape *tape;
} golden;

static inline ls__st_reader *golden_file(const char *prefix, const char *name)
{
    char path[4096];
    ls__st_reader *out;
    snprintf(path, sizeof path, "%s/tests/nn/golden/%s%s.safetensors", getenv("LOCKSTEP_SOURCE"), prefix, name);
    check_ok(ls__st_open(&out, path));
    return out;
}

/* The tensor "kind", or "kind.name". */
static inline const ls__st_tensor *golden_find(ls__st_reader *file, const char *kind, const char *name)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s%s", kind, name ? "." : "", name ? name : "");
    const ls__st_tensor *t = ls__st_find(file, full);
    if (!t) fail_msg("the golden file has no %s", full);
    return t;
}

/* Returns its bytes. */
static inline size_t golden_read(ls__st_reader *file, const char *kind, void *out, size_t room)
{
    const ls__st_tensor *t = golden_find(file, kind, NULL);
    assert_true(t->bytes <= room);
    check_ok(ls__st_read(t, 0, t->bytes, out));
    return t->bytes;
}

static inline void golden_values(ls__st_reader *file, const ls_place *places, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++) {
        const ls__st_tensor *t = golden_find(file, "weight", places[i].name);
        assert_int_equal(t->bytes / 4, places[i].count);
        check_ok(ls__st_to_f32(t, 0, places[i].count, values + places[i].offset));
    }
}

/* The options in `config_file`, a model with them and these adapters (r 0: none), and a tape. */
static inline void golden_model(golden *g, ls__st_reader *config_file, const ls_lora_options *lora, int threads)
{
    char text[16384];
    ls_model_options o = { 0 };
    size_t bytes = golden_read(config_file, "config", text, sizeof text);
    check_ok(ls__hf_config_parse(g->name, text, bytes, &o.lm));
    if (lora) o.lora = *lora;
    check_ok(ls_model_open(&g->model, &o));
    check_ok(ls_model_bind(g->model, NULL, NULL, true));
    check_ok(ls_tape_open(&g->tape, &(ls_tape_options){ .threads = threads }));
    const ls_place *places;
    size_t n = ls_model_places(g->model, &places);
    golden_values(g->file, places, n, ls_model_values(g->model));
}

static inline void golden_free(golden *g)
{
    ls_tape_free(&g->tape);
    ls_model_free(&g->model);
    ls__st_free(&g->file);
}

/* The largest difference of `count` values from element `first` on, relative to the largest value. */
static inline void check_near(const golden *g, const char *what, const float *got, const ls__st_tensor *expected,
                              size_t first, size_t count, double limit)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        float e;
        check_ok(ls__st_to_f32(expected, first + i, 1, &e));
        worst = fmax(worst, fabs((double)got[i] - (double)e));
        largest = fmax(largest, fabs((double)e));
    }
    if (!(worst <= limit * largest))
        fail_msg("%s: %s: off by %g of %g (limit %g)", g->name, what, worst, largest, limit);
}

static inline ls_tensor *golden_logits(ls_model *model, ls_tape *tape, const ls_model_batch *batch)
{
    ls_param *params;
    int n = ls_model_params(model, &params);
    check_ok(ls_tape_begin(tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *logits = ls_model_logits(model, tape, batch);
    check_ok(ls_tape_status(tape));
    return logits;
}

/* Computes loss and gradients. */
static inline double golden_pass(const golden *g, const ls_model_batch *batch)
{
    ls_param *params;
    int n = ls_model_params(g->model, &params);
    check_ok(ls_tape_begin(g->tape, params, n, NULL));
    ls_tensor *loss = ls_model_loss(g->model, g->tape, batch);
    check_ok(ls_tape_backward(g->tape, loss));
    return (double)loss->data[0];
}

/* The gradients of all parameters whose names do not contain one of `skipped` (NULL after the last). */
static inline void check_gradients(const golden *g, const char *const *skipped, double limit)
{
    const ls_place *places;
    size_t n = ls_model_places(g->model, &places);
    for (size_t i = 0; i < n; i++) {
        bool skip = false;
        for (const char *const *s = skipped; s && *s; s++) skip = skip || strstr(places[i].name, *s);
        if (skip) continue;
        const ls__st_tensor *expected = golden_find(g->file, "grad", places[i].name);
        assert_int_equal(expected->bytes / 4, places[i].count);
        check_near(g, places[i].name, ls_model_grads(g->model) + places[i].offset, expected, 0, places[i].count, limit);
    }
}

/* The losses of STEPS steps of AdamW with clipped gradients. */
static inline void check_losses(const golden *g, ls_model_batch (*batch_of)(const void *user, int step),
                                const void *user, double limit)
{
    const ls_place *places;
    ls_optimizer *optimizer;
    size_t n = ls_model_places(g->model, &places), elements = ls_model_elements(g->model);
    float *grads = ls_model_grads(g->model);
    check_ok(ls_optimizer_open(&optimizer, places, n, 0, elements, &(ls_optimizer_options){ .threads = 1 }));
    for (int step = 0; step < STEPS; step++) {
        float expected;
        ls_model_batch batch = batch_of(user, step);
        double loss = golden_pass(g, &batch);
        check_ok(ls__st_to_f32(golden_find(g->file, "losses", NULL), (size_t)step, 1, &expected));
        if (!(fabs(loss - (double)expected) <= limit * (double)expected))
            fail_msg("%s: step %d: loss %.7g, torch has %.7g", g->name, step, loss, (double)expected);
        ls_clip_grad_norm(grads, elements, 1, 1);
        ls_optimizer_update(optimizer, ls_model_values(g->model), grads, step, 3e-3f);
    }
    ls_optimizer_free(&optimizer);
}

#endif
