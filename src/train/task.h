/* Tasks: what a run trains a model for.
 *
 * A task is one file, task_NAME.c, with a table as below, and one row of LS_TASK_LIST (lockstep/train.h). Opening, stepping and
 * evaluating know a task through its table alone. */
#ifndef LS_TRAIN_TASK_H
#define LS_TRAIN_TASK_H

#include "lockstep/data.h"
#include "lockstep/nn.h"
#include "lockstep/train.h"

/* A micro-batch for the model, and its weight. */
typedef struct ls__micro_batch {
    ls_model_batch model; /* batch_size 0: nothing to compute, in a short last step */
    int64_t targets;      /* how many `model` has */
    double weight;        /* sum of the weights of its losses */
    double tokens;        /* for the speed, in the unit of ls_task_info */
    double bytes;         /* in evaluations: of the targets' text, weighted like their losses; 0: not known */
} ls__micro_batch;

/* What an evaluation counts: sums over micro-batches, which are exact over any number of ranks, and the metrics made of them. */
typedef struct ls__scoring {
    size_t (*n_counts)(const ls_train_options *o);
    /* Adds to `counts` what a micro-batch has; `predictions` are its classes of largest logit, one per target. */
    void (*count)(const ls_train_options *o, const ls__micro_batch *b, const int32_t *predictions, double *counts);
    /* metrics: in the order of ls_task_info.metrics */
    void (*score)(const ls_train_options *o, const double *counts, double *metrics);
} ls__scoring;

/* One metric: the fraction of targets, without those of weight 0, that were predicted. */
extern const ls__scoring ls__accuracy;

typedef struct ls__task_type {
    ls_task_info info;
    const char *sample; /* what a sample is called in messages */
    /* samples are windows or documents of text (source.c), as long as the sequence length, not rows or images */
    bool windows;
    bool uneven;   /* micro-batches differ in weight */
    bool encoder;  /* the model is an encoder, and texts get the special tokens of the tokenizer's template */
    bool eval_all; /* an evaluation is over all validation data by default */

    /* ---- Opening, in this order. */
    /* Determines what the options leave open and what depends on `init`: the sizes of the model; opens the tokenizer. */
    ls_status (*prepare)(ls_train *t);
    /* Opens files as a dataset; hold_out: see ls__source_open(). On failure *out is NULL. */
    ls_status (*open_data)(ls_dataset **out, const char *const *paths, size_t n_paths, const ls_tokenizer *tokenizer,
                           const ls_train_options *o, const ls_hold_out *hold_out);
    /* Opens t->model, without memory, and sets t->flops_per_token. */
    ls_status (*open_model)(ls_train *t);
    /* Frees t->task_state, if the task has one; NULL: it has none. */
    void (*close)(ls_train *t);

    /* ---- Steps. */
    /* The loader's batch as a micro-batch, in its memory or in t->task_state: valid until the next call. */
    ls_status (*make_batch)(ls_train *t, const ls_batch *b, ls__micro_batch *out);
    /* The weight of a full step: the loss of a micro-batch is its sum divided by this. */
    double (*full_weight)(const ls_train_options *o);
    /* micro_batch.tokens of a full step, without padding. */
    double (*step_tokens)(const ls_train_options *o);

    /* of evaluations; NULL: nothing is counted, and the only metric is bits per byte, of losses and bytes */
    const ls__scoring *scoring;
} ls__task_type;

const ls__task_type *ls__task_of(ls_task task); /* NULL: not a task */
double ls__task_step_samples(const ls_train_options *o);

/* ---- What tasks on text share (task_lm.c). */

/* See ls__task_type.prepare: a language model of the options or of `init`, and its tokenizer. */
LS_MUST_CHECK ls_status ls__task_prepare_text(ls_train *t);
LS_MUST_CHECK ls_status ls__task_open_lm(ls_train *t);
double ls__task_step_tokens(const ls_train_options *o);

#endif
