/* The state of a run, shared by the files of this layer. */
#ifndef LS_TRAIN_TRAINING_H
#define LS_TRAIN_TRAINING_H

#include <stdatomic.h>
#include "lockstep/data.h"
#include "lockstep/train.h"
#include "train/best.h"
#include "train/hold_out.h"
#include "train/loading.h"
#include "train/parallel.h"
#include "train/run_dir.h"
#include "train/settings.h"
#include "train/source.h"
#include "train/task.h"

/* What operations cost. */
typedef struct ls__segment_cost {
    bool counted; /* in this slot */
    double flops, bytes;
} ls__segment_cost;

struct ls_train {
    ls_train_options options;  /* defaults filled in; its pointers are the caller's and used in ls_train_open() only */
    const ls__task_type *task; /* of the options */
    void *task_state;          /* its own; NULL: none */
    bool new_head;             /* the model of `init` has another head, or none */
    int64_t step;              /* optimizer steps so far */
    int64_t skipped;           /* steps skipped because they were not finite */
    int skipped_in_a_row;
    bool failed;                  /* a step failed; no more are possible */
    bool validating;              /* batches are made of validation data */
    bool evaluating;              /* open for an evaluation only: `init` is the model as it is */
    ls_progress_fn eval_progress; /* of evaluations, on the first rank; NULL: none */
    void *eval_user;
    _Atomic bool stop_wanted; /* on this rank */
    bool stopping;            /* some rank wants to stop; the same on all ranks */

    ls__best best;         /* the best evaluation so far */
    bool watches_best;     /* it is looked for */
    int best_metric;       /* number of the metric; -1: the loss */
    const char *best_name; /* of the metric */
    bool best_is_larger;   /* a larger value is better */
    char *prompt, *sample; /* of texts while training; NULL: none */

    bool is_text;               /* the data is text, not shards of tokens */
    ls_tokenizer *tokenizer;    /* NULL: none, for shards */
    const char *tokenizer_name; /* owned by the caller, like the options */
    ls__parts parts;            /* the data, and what is held out of them */
    ls_dataset *val_data;       /* parts.val, or separate validation data; NULL: none */
    ls_loader *loader, *val_loader;
    ls_loader_state data_at; /* the loader's position after the last step */
    ls_loader_state val_start;
    ls_stage *stage, *val_stage; /* NULL: none */
    uint64_t epoch_steps;        /* steps of an epoch */
    bool uneven;                 /* steps differ in weight: padding, or short last steps */
    ls__loading loading;

    ls_model *model;
    ls_tape *tape;
    ls_optimizer *optimizer;
    ls__parallel parallel; /* sums gradients over slots and ranks */
    float *statistics;     /* (slots, buffer elements): of batch norms in this step; NULL: the model has no buffers */
    struct ls__together *together;            /* of synchronized batch norms; NULL: none */
    struct ls__train_kept *kept;              /* an elastic run's state; NULL: the run is not elastic */
    struct ls__checkpoint_writer *checkpoint; /* NULL: none written yet */
    bool recorded;                            /* this run started the world's record */
    ls_loader_stats loader_before;            /* at the previous batch */
    int64_t injected;                         /* the step of the last artificial delay */
    int64_t blocked;                          /* ns blocked in collectives before this step */
    int64_t clock;                            /* when the last phase ended */
    struct ls__profile *profile;              /* NULL: none */
    ls__segment_cost segment;                 /* since the last mark */
    bool threads_found, warmup_found;         /* options.threads, schedule.warmup are defaults */
    char *run_dir;                            /* options.run_dir, of all ranks */
    /* kept because the options' texts are gone after ls_train_open() */
    ls__setting_value settings[LS__MAX_SETTING_VALUES];
    int n_settings;
    ls__run_dir run;  /* path NULL: none, or this is not the first rank */
    double data_hash; /* of samples of parts.train */
    json_t *files[2]; /* what identifies the files of data and val_data, on the first rank */
    bool continued;   /* a later generation of an elastic run, with the options of its first */
    double flops_per_token;
    double peak_gflops; /* the best measured so far; 0: not measured */
};

/* Whether the run continues an earlier one. */
static inline bool ls__train_is_resumed(const ls_train *t)
{
    return t->options.run_dir_mode == LS_RUN_DIR_RESUME;
}

/* Whether the model's sizes are read from `init`. A resumed run has them among its settings; but all generations of an elastic
 * run start with the options of the first. */
static inline bool ls__train_reads_init(const ls_train *t)
{
    return t->options.init && (!ls__train_is_resumed(t) || t->continued);
}

/* True on the rank that writes files. */
static inline bool ls__train_is_first(const ls_train *t)
{
    return t->parallel.rank == 0;
}

/* ---- feed.c: from files to batches. */

/* Finds out whether the data is text, and opens the tokenizer of the options, or the one that the data needs. It must match the one
 * of `init`, if that has one, and a vocabulary of `vocab` tokens (0: not known yet). */
LS_MUST_CHECK ls_status ls__train_open_tokenizer(ls_train *t, int vocab);
/* LS_EINVAL unless a tokenizer matches a model with a vocabulary of `vocab` tokens (0: not known yet), and the tokenizer in the
 * folder `model`, if it `has_own`. `model` NULL: it is a new one. */
LS_MUST_CHECK ls_status ls__check_tokenizer(const ls_tokenizer *tokenizer, const char *name, const char *model,
                                            bool has_own, int vocab);
/* Opens data, validation data and their loaders; fills in what depends on them (steps, warm-up). */
LS_MUST_CHECK ls_status ls__train_open_data(ls_train *t);
void ls__train_close_data(ls_train *t);
/* Cuts padded rows at the end of the longest of the batch, since the rest has no effect. Moves them together and returns their
 * new length. */
int64_t ls__trim_rows(int64_t rows, int64_t length, size_t longest, int32_t *tokens, int32_t *targets, float *weights);
/* The next micro-batch; valid until the next call. */
LS_MUST_CHECK ls_status ls__train_load(ls_train *t, ls__micro_batch *out);
/* Of any slot of the step after t->data_at. The next micro-batch stays the same. */
LS_MUST_CHECK ls_status ls__train_load_slot(ls_train *t, int slot, ls__micro_batch *out);
/* Bytes of a token's text: a token that ends a document has none. */
double ls__token_bytes(const ls_tokenizer *tokenizer, int32_t token);
/* The same from the validation data, from its beginning if `first`; LS_END after the last. */
LS_MUST_CHECK ls_status ls__train_load_val(ls_train *t, bool first, ls__micro_batch *out);
/* The weight of a full step: the loss of a micro-batch is its sum divided by this. */
static inline double ls__train_full_weight(const ls_train *t)
{
    return t->task->full_weight(&t->options);
}

/* ---- data_hash.c */
double ls__train_hash_data(const ls_train *t);

/* ---- step.c: the phases of a step, one function each. */

/* The loss of a micro-batch, recorded on the tape unless eval. */
LS_MUST_CHECK ls_status ls__train_forward(ls_train *t, int slot, const ls_model_batch *batch, bool eval,
                                          ls_tensor **loss);
/* Norm, clipping, and one update of all weights. `scale` turns the summed gradients into their mean. */
LS_MUST_CHECK ls_status ls__train_update(ls_train *t, double loss, double scale, ls_train_metrics *metrics);

/* ---- statistics.c: the buffers of a model (batch norms), counted in the order of slots. */

LS_MUST_CHECK ls_status ls__statistics_open(ls_train *t);
void ls__statistics_close(ls_train *t);
/* Before the forward pass of a micro-batch. */
void ls__statistics_slot(ls_train *t, int slot);
/* After all of a step: every rank gets those of all ranks. A collective call. */
LS_MUST_CHECK ls_status ls__statistics_gather(ls_train *t);
/* With the update of a step that is not skipped. */
void ls__statistics_count(ls_train *t);

/* ---- together.c: micro-batches that are computed together, for synchronized batch norms. */

struct ls__together;
/* Opens t->together if the options ask for it. */
LS_MUST_CHECK ls_status ls__together_open(ls_train *t);
void ls__together_close(ls_train *t);
/* The micro-batches of this rank; losses and tokens: one for each. Then as if they had been computed one after another. */
LS_MUST_CHECK ls_status ls__together_run(ls_train *t, ls_train_metrics *m, double *losses, double *tokens,
                                         double *weight);

/* ---- evaluate.c: the mean loss over the validation data, and metrics as the task has them. */
typedef struct ls__evaluation {
    double loss, weight; /* the mean, and the weight of all losses */
    double metrics[LS_MAX_METRICS];
} ls__evaluation;
LS_MUST_CHECK ls_status ls__train_evaluate(ls_train *t, ls__evaluation *out);

/* After t->step was counted: evaluation, the line of metrics and a checkpoint, as they are due; without `line` the last alone. */
LS_MUST_CHECK ls_status ls__train_finish(ls_train *t, ls_train_metrics *m, bool line);

/* ---- samples.c: texts while training. */

LS_MUST_CHECK ls_status ls__samples_open(ls_train *t);
void ls__samples_close(ls_train *t);
/* If one is due after the last step: first rank. */
LS_MUST_CHECK ls_status ls__samples_add(ls_train *t, ls_train_metrics *m);

/* ---- kept.c: for tests, a rank may be killed at numbered points. */
void ls__train_point(const ls_train *t, int point);
/* The measured speed of matrix products, which later generations need not measure again. */
double *ls__train_kept_peak(const ls_train *t);

/* LS_ESTATE if an update was begun and not finished: weights and state then belong to no step and must not be saved. */
LS_MUST_CHECK ls_status ls__train_check_consistent(const ls_train *t);

#endif
