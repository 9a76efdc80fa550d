/* See best.h. */
#include "train/best.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "nn/model.h"
#include "train/checkpoint.h"
#include "train/training.h"

enum { BEST_OF_LOSS = -1 };

static const struct {
    const char *name;
    bool larger; /* is better */
} known[] = { { "loss", false }, { "bits_per_byte", false }, { "accuracy", true }, { "f1", true } };

/* The metrics of a task for a message. */
static const char *list_metrics(const ls__task_type *task, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "loss");
    for (int i = 0; task->info.metrics[i] && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, ", %s", task->info.metrics[i]);
    return text;
}

ls_status ls__best_open(ls_train *t)
{
    const ls_train_options *o = &t->options;
    char text[128];
    int found = -2;
    if (o->patience < 0) return ls__fail(LS_EINVAL, "patience=%d: must not be negative", o->patience);
    if (!o->best && !o->patience) return LS_OK;
    if (o->best && o->no_checkpoint)
        return ls__fail(LS_EINVAL, "best: keeps a checkpoint, and no_checkpoint is set; leave out one of them");
    const char *metric = o->best ? o->best : "loss";
    if (!strcmp(metric, "loss")) found = BEST_OF_LOSS;
    for (int i = 0; t->task->info.metrics[i]; i++)
        if (!strcmp(metric, t->task->info.metrics[i])) found = i;
    if (found < BEST_OF_LOSS)
        return ls__fail(LS_EINVAL, "best=%.40s: evaluations of the task %s have no such metric; they have %s", metric,
                        t->task->info.name, list_metrics(t->task, text, sizeof text));
    if (!t->val_data)
        return ls__fail(LS_EINVAL, "best and patience need validation data; set val_data or val_fraction");
    if (!strcmp(metric, "bits_per_byte") && !t->tokenizer)
        return ls__fail(LS_EINVAL, "best=bits_per_byte: needs a tokenizer; without one, bytes are not known");
    t->best_metric = found;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(metric, known[i].name)) {
            t->best_is_larger = known[i].larger;
            t->best_name = known[i].name;
        }
    t->watches_best = true;
    return LS_OK;
}

void ls__best_note(ls_train *t, double loss, const double metrics[LS_MAX_METRICS])
{
    ls__best *b = &t->best;
    if (!t->watches_best) return;
    double x = t->best_metric < 0 ? loss : metrics[t->best_metric];
    bool better = isfinite(x) && (!b->step || (t->best_is_larger ? x > b->value : x < b->value));
    if (better)
        *b = (ls__best){ .step = t->step, .value = x };
    else
        b->since++;
}

bool ls__best_is_kept(const ls_train *t)
{
    return t->watches_best && t->options.run_dir && !t->options.no_checkpoint;
}

bool ls__train_is_over(const ls_train *t)
{
    const ls_train_options *o = &t->options;
    return t->step >= o->steps || (o->patience && t->watches_best && t->best.since >= o->patience);
}

ls_status ls__best_save(ls_train *t)
{
    ls_model *m = t->model;
    float *values = m->values, *buffers = m->buffers;
    size_t count = ls_model_elements(m), n_buffers = ls__model_buffer_elements(m);
    if (!ls__best_is_kept(t) || !t->best.step || t->best.step == t->step) return LS_ENOENT;
    /* Ranks may share the weights, and a rank that replaces a lost one needs those of the last step: they stay. */
    float *own = aligned_alloc(64, (count * sizeof *own + 63) / 64 * 64);
    float *own_buffers = malloc((n_buffers + 1) * sizeof *own_buffers);
    ls_status status = own && own_buffers ? ls__checkpoint_read_weights(t, t->best.step, own, own_buffers)
                                          : ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    if (status) {
        ls__log(LS_LOG_WARNING, "%s; the model of the last step is saved instead of the best", ls_error());
        status = LS_ENOENT;
    } else {
        m->values = own;
        if (n_buffers) m->buffers = own_buffers;
        status = ls_model_save(m, t->run.path);
        m->values = values;
        m->buffers = buffers;
    }
    free(own);
    free(own_buffers);
    return status;
}

ls_train_best ls_train_get_best(const ls_train *t)
{
    return (ls_train_best){ .metric = t->watches_best ? t->best_name : NULL,
                            .step = t->best.step,
                            .value = t->best.value,
                            .evaluations = t->best.since,
                            .ended = t->step < t->options.steps && ls__train_is_over(t) };
}
