/* lockstep/train.h: training as a library: data, model, optimiser and run directory joined to a loop of steps.
 *
 *     if (ls_train_open(&train, &options)) ...
 *     while ((status = ls_train_step(train, &metrics)) == LS_OK) show(&metrics);
 *     if (status == LS_END) status = ls_train_save(train);
 *
 * Bits     the global batch is `slots` micro-batches in a fixed order, and gradients are summed over them in one fixed
 *          binary tree: the weights depend on the options, the data and the seed, not on the number of ranks or threads.
 * Threads  a training belongs to one thread at a time; inside it uses OpenMP.
 * Failure  a step whose loss or gradient is not finite is skipped on all ranks: the weights stay as they are, the log names the
 *          first parameter, and metrics.skipped counts it. Ten such steps in a row, or weights that are not finite, are
 *          LS_ENOTFINITE; the state before can be saved. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include "lockstep/base.h"
#include "lockstep/comm.h"
#include "lockstep/data.h"
#include "lockstep/ddp.h"
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who updates the weights, on several ranks. The bits are the same. */
typedef enum ls_update {
    LS_UPDATE_SHARDED = 0,    /* one copy of weights and optimiser state per machine; its ranks share the work */
    LS_UPDATE_REPLICATED = 1, /* each rank has its own copy and updates all of it */
} ls_update;

/* The samples of an epoch that do not fill a whole step. */
typedef enum ls_last {
    LS_LAST_DEFAULT = 0, /* drop; for the torch order keep, as DistributedSampler does */
    LS_LAST_DROP = 1, /* they are left out (torch: DistributedSampler's drop_last, its last step may still be short) */
    LS_LAST_KEEP = 2, /* the last step is short; its mean is over the tokens that it has */
    LS_LAST_DROP_STEP = 3, /* torch: DistributedSampler's and DataLoader's drop_last; others: as LS_LAST_DROP */
} ls_last;

/* A delay put in on purpose, to see what it does and whether reports find it. */
typedef struct ls_train_delay {
    int rank;
    ls_phase phase; /* data, forward, backward (in the middle layer's) or update */
    double ms;      /* 0: none */
    int64_t every;  /* in step `first` and every so many after it; 0: only in `first` */
    int64_t first;
    bool asleep; /* false: at work, so long by the thread's own CPU time */
} ls_train_delay;

typedef struct ls_train_options {
    /* ---- Ranks */
    ls_world *world;     /* all its ranks open the same training; it must outlive it. NULL: this process alone */
    ls_update update;    /* 0: sharded */
    size_t bucket_bytes; /* gradients that travel together; 0: see ddp.h */
    ls_sum_order sum_order;
    ls_wire wire;
    bool no_overlap; /* gradients travel only after backward: to measure what overlap is worth */

    /* ---- Data */
    const char *const *data; /* text or token shards; NULL: a built-in corpus of stories */
    size_t n_data;
    const char *const *val_data; /* for evaluation; NULL: a part of `data`, see val_fraction */
    size_t n_val_data;
    double
        val_fraction; /* this share of `data` is held out for evaluation and never trained on: documents of text, or blocks of
                            sequences where there are none, chosen by seed. 0: 0.05 if eval_every is set and there is no
                            val_data, else none */
    const char
        *tokenizer; /* of text: see ls_tokenizer_open(); for shards, what they were made with, to be kept beside the
                              model; NULL: that of `init` if it has one, otherwise bytes for text and none for shards */
    const char *end_token; /* its token that ends a text and separates documents; NULL: see ls_tokenizer_end_token() */
    ls_data_format data_format; /* 0: by the files' names and first bytes */
    const char *field;          /* JSON lines: the field with the text; NULL: "text" */
    bool skip_bad;              /* JSON lines: leave out lines that are wrong; default: they are an error */
    bool padded; /* text: a sequence is a document, cut off or padded; the loss is the mean over the tokens that
                                   are there. Default: packed, documents behind one another */
    const char *prompt_field; /* padded JSON lines: a text before it that carries no loss; NULL: none */
    const char *weight_field; /* padded JSON lines: a number, what the loss of the document's tokens counts; NULL: 1 */
    ls_order order;           /* 0: shuffled; balanced is for padded data */
    int torch_ranks; /* torch: the ranks that its order deals to, on whatever number of ranks; 0: those there are */
    ls_last last;
    int workers;          /* threads that read data ahead; 0: as many as it takes; < 0: none */
    int prefetch;         /* batches ahead for each of them; 0: 2, or found */
    const char *stage;    /* a folder on this machine that the files are copied to while training has begun; see
                             ls_stage_open(); NULL: they are read where they are */
    uint64_t stage_limit; /* bytes of all copies in it; 0: what the disk has room for */
    int read_delay_us;    /* for measurements: each read from a shard takes so much longer, until it is staged */

    /* ---- Model */
    ls_lm_options model; /* vocab 0: the tokenizer's, or 50,257; context 0: `length`; others: see nn.h */
    const char *init;    /* a folder with a model to start from, as ls_model_save() or transformers writes it; its
                              sizes count, and of `model` only the dropout: 0: that of the folder; < 0: none. NULL: random
                              weights */

    /* ---- Batch */
    int rows;   /* sequences of a micro-batch; 0: 8 */
    int length; /* tokens of a sequence; 0: 256, or the context of `init` if that is shorter */
    int slots;  /* micro-batches of a step, over all ranks; 0: one per rank */

    /* ---- How long, and how */
    int64_t steps;                  /* 0: as many as `epochs` have; both 0: 1,000 */
    double epochs;                  /* passes over the data */
    ls_schedule schedule;           /* lr 0: 1e-3; lr_end 0: a tenth of lr; < 0: 0; warmup < 0: 150
           steps, or a tenth of all if that is more and the schedule is not constant; steps is filled in */
    ls_optimizer_options optimizer; /* threads is filled in */
    double clip;                    /* limit of the gradients' global norm; 0: 1; < 0: none */
    int64_t eval_every; /* steps between evaluations; 0: a tenth of the steps if there is something to evaluate
           on (val_data, val_fraction), else none */
    int eval_batches;   /* micro-batches of an evaluation; 0: 16 */
    uint64_t seed;
    int threads; /* 0: the cores that this process may run on */

    /* ---- Checkpoints, in the run directory: at the end and when the run is stopped, so that it can be resumed */
    int64_t checkpoint_every; /* and every so many steps; 0: only then */
    bool no_checkpoint;       /* none at all: the run cannot be resumed */
    int keep;                 /* the newest so many that are intact; 0: 2 */
    bool
        resume; /* the run in `run_dir`, from its newest intact checkpoint, on any number of ranks; the other options must
                    be those of the run (see ls_train_saved_open()), but for ranks, threads, workers and others that do not
                    affect results, and `steps`, to which the schedule of the learning rate then extends */

    int64_t metrics_every; /* steps between lines of metrics.jsonl; evaluations and the last step always; 0: 1 */
    bool no_tensorboard;   /* no event files for TensorBoard in the run directory */
    bool profile;          /* count what each operation costs; see ls_train_save_profile() */

    /* ---- Measuring */
    bool no_record; /* no events in the run directory */
    bool barriers;  /* a barrier before each phase, the classic way to see waiting: slower, and blind inside phases */
    ls_train_delay inject; /* for tests */

    const char
        *run_dir; /* made if it is not there, and locked; one that holds a run or a model is LS_EINVAL, and so is one
                            in which another process trains; NULL: no files. A run that makes no step leaves no folder */
    bool number_run_dir; /* if it is there already, another is made: "-2" or the like is put behind its name */
    bool overwrite;      /* it may hold a run or a model: the run goes at once, the model when there is a new one */
} ls_train_options;

/* What a step did. Times are wall time in milliseconds and add up to `step_ms`. */
typedef struct ls_train_metrics {
    int64_t step;  /* counted from 1 */
    int64_t steps; /* of the whole run */
    double epoch;  /* passes over the data so far */
    double loss;   /* mean over the tokens of the global batch, before the update */
    double lr;
    double grad_norm; /* before clipping; like the loss, NaN or infinite in a step that was skipped */
    int64_t skipped;  /* steps so far, since the training was opened, that were not made because they were not finite */
    double tokens_per_s; /* that carry loss */
    double step_ms, data_ms, forward_ms, backward_ms, update_ms, other_ms;
    double
        blocked_ms; /* of these, this rank stood in calls: waiting for other ranks, and communication that nothing hid */
    double eval_loss;      /* of the evaluation behind this step; negative: there was none */
    double gflops;         /* billions of multiplications and additions a second, matrix products of the step only */
    uint64_t memory_bytes; /* resident now */
} ls_train_metrics;

typedef struct ls_train ls_train;

/* Opens data, makes or reads the model, and makes and locks the run directory. Nothing is written before all else is known to be
 * right. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_train_open(ls_train **out, const ls_train_options *options);
LS_API void ls_train_free(ls_train **train);

/* Asks for an end behind the step that is under way, or the next one: all ranks then end at the same step, when any of them
 * asked. From a signal handler or another thread, too. */
LS_API void ls_train_stop(ls_train *train);
/* The next step; LS_END when all are done, or after ls_train_stop(). */
LS_API LS_MUST_CHECK ls_status ls_train_step(ls_train *train, ls_train_metrics *metrics);
/* Mean loss over the validation data. */
LS_API LS_MUST_CHECK ls_status ls_train_eval(ls_train *train, double *loss);
/* What loading did on one rank, without the first steps of a long run. */
typedef struct ls_train_loading {
    double wait_ms;        /* the rank waited for batches */
    double total_ms;       /* of all steps */
    double load_ms;        /* to build a batch, on average */
    double compute_ms;     /* between two batches, on average */
    int workers, prefetch; /* now */
} ls_train_loading;
/* Collective, between two steps: every rank's loading, in `out[number of ranks]`. */
LS_API LS_MUST_CHECK ls_status ls_train_loading_get(ls_train *train, ls_train_loading *out);
/* The rank whose data come late and hold the others up, and a sentence about it; -1: there is none. Pure. */
LS_API int ls_train_late_rank(const ls_train_loading *all, int ranks, char *text, size_t bytes);

/* Writes the model to the run directory. Without one: LS_ESTATE, and so when a step failed while weights were being updated:
 * they are of no step. */
LS_API LS_MUST_CHECK ls_status ls_train_save(ls_train *train);

/* Writes a checkpoint of the last step that was made, unless there is one, and waits until it is on the disk. After an error,
 * too: LS_ESTATE if the step failed while weights were being updated. On the first rank; nothing on the others. */
LS_API LS_MUST_CHECK ls_status ls_train_checkpoint(ls_train *train);

/* Writes what each operation cost on this rank to profile/rank-R.json in the run directory; `profile` must have been asked
 * for. Every rank calls it by itself. */
LS_API LS_MUST_CHECK ls_status ls_train_save_profile(ls_train *train);

LS_API ls_model *ls_train_model(const ls_train *train);
/* Where the run is, if it has a run directory: `run_dir`, perhaps with a number behind it. It lives as long as the training. */
LS_API const char *ls_train_run_dir(const ls_train *train);
/* Steps that were made, in this process and before. */
LS_API int64_t ls_train_steps_made(const ls_train *train);
/* The options in force, defaults filled in. */
LS_API const ls_train_options *ls_train_options_of(const ls_train *train);
/* NULL: the data are shards, and nobody said what they were made with. */
LS_API const ls_tokenizer *ls_train_tokenizer(const ls_train *train);
/* Billions of float32 multiplications and additions a second that matrix products reach here, with the training's
 * threads: the yardstick for metrics.gflops. Each call measures anew, for about 50 ms, and gives the best so far. */
LS_API double ls_train_peak_gflops(ls_train *train);

/* ---- Runs */
/* What a run was started with, or resumed with last. */
typedef struct ls_train_saved {
    ls_train_options options; /* as ls_train_open() takes them; without world and run_dir */
    int ranks;
} ls_train_saved;
/* Reads RUN/run.json. The options' texts belong to *out and live as long as it. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_train_saved_open(ls_train_saved **out, const char *run_dir);
LS_API void ls_train_saved_free(ls_train_saved **saved);

/* ---- Evaluation of a model that was trained. */

typedef struct ls_eval_options {
    const char *model; /* a run's folder, or another with a model */
    ls_world *world;   /* all its ranks evaluate together; the result is the same bits. NULL: this process alone */
    const char *const
        *data; /* text or token shards; NULL: the validation data of the run: val_data, or what it held out */
    size_t n_data;
    const char *tokenizer; /* NULL: that of the folder */
    /* How to read `data`: as in ls_train_options. */
    ls_data_format data_format;
    const char *field, *prompt_field, *weight_field;
    bool padded, skip_bad;
    int rows;                /* sequences of a micro-batch; 0: 8 */
    int length;              /* tokens of a sequence; 0: that of the run, or the model's context, at most 1,024 */
    int threads;             /* 0: the cores that this process may run on */
    ls_progress_fn progress; /* of micro-batches, on the first rank; NULL: none */
    void *user;
} ls_eval_options;

typedef struct ls_eval_result {
    double loss;       /* nats a token: the mean over all that count, weighted as the data say */
    double perplexity; /* exp(loss) */
    double
        bits_per_byte; /* all nats / ln 2 / the bytes that the predicted tokens stand for; NaN: there is no tokenizer */
    uint64_t tokens;   /* that were predicted and count */
    double bytes;      /* that they stand for, weighted like the loss */
    uint64_t sequences;
    uint64_t documents; /* that were held out; 0: not known */
    int length;         /* tokens of a sequence */
    bool held_out;      /* the data are what the run held out */
    double seconds;
} ls_eval_result;

/* Each token but the first is predicted once, within sequences that know nothing of each other. */
LS_API LS_MUST_CHECK ls_status ls_eval(const ls_eval_options *options, ls_eval_result *result);

/* ---- Checkpoint files */
typedef struct ls_checkpoint_info {
    int64_t step;
    size_t elements; /* of the model, padding included */
    size_t bytes;    /* of the file */
} ls_checkpoint_info;
/* Whether a checkpoint is intact: LS_EFORMAT with the reason if not. */
LS_API LS_MUST_CHECK ls_status ls_checkpoint_verify(const char *path, ls_checkpoint_info *info);

#ifdef __cplusplus
}
#endif
#endif
