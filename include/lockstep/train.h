/* lockstep/train.h: a training run as a library: data, model, optimizer and run folder joined to a loop of steps.
 *
 *     if (ls_train_open(&train, &options)) ...
 *     while ((status = ls_train_step(train, &metrics)) == LS_OK) show(&metrics);
 *     if (status == LS_END) status = ls_train_save(train);
 *
 * Bits     the global batch is `slots` micro-batches in a fixed order, and gradients are summed over them in one fixed
 *          binary tree: the weights depend on the options, the data and the seed, not on the number of ranks or threads.
 * Names    a field and the option of `lockstep train` have the same name: batch_size is --batch-size.
 * Threads  one thread at a time; inside, OpenMP is used.
 * Failure  a step whose loss or gradient is not finite is skipped on all ranks: the weights do not change, the log names the
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

/* The one list of tasks: name, value, name for options and files. */
#define LS_TASK_LIST(X)                                                            \
    X(LS_TASK_LM, 0, lm)             /* predict each token from those before it */ \
    X(LS_TASK_MLM, 1, mlm)           /* predict masked tokens; of encoders */      \
    X(LS_TASK_CLASSIFY, 2, classify) /* classes of texts, or of pairs of texts */  \
    X(LS_TASK_IMAGES, 3, images)     /* classes of pictures */

typedef enum ls_task {
#define X(name, value, text) name = (value),
    LS_TASK_LIST(X)
#undef X
} ls_task;
enum { LS_TASK_COUNT = 0 LS_TASK_LIST(LS_COUNT_ENTRY), LS_MAX_METRICS = 4 };

typedef struct ls_task_info {
    const char *name;                        /* "lm"... */
    const char *model;                       /* its default model, by the name that `lockstep train` has for it */
    const char *unit;                        /* what the speed of a run is counted in: "tokens"... */
    const char *metrics[LS_MAX_METRICS + 1]; /* of its evaluations: "accuracy"...; NULL after the last */
    void *reserved[2];
} ls_task_info;

/* NULL: not a task. */
LS_API const ls_task_info *ls_task_get_info(ls_task task);

/* What is changed at random in pictures of training data; see ls_augment. */
typedef enum ls_augment_kind {
    LS_AUGMENT_AUTO = 0, /* crop and flip; idx (digits): crop */
    LS_AUGMENT_NONE = 1,
    LS_AUGMENT_CROP = 2,
    LS_AUGMENT_FLIP = 3,
    LS_AUGMENT_CROP_FLIP = 4,
} ls_augment_kind;

/* How weights are updated on several ranks. The bits are the same. */
typedef enum ls_update {
    LS_UPDATE_SHARDED = 0,    /* one copy of weights and optimizer state per node; its ranks share the work */
    LS_UPDATE_REPLICATED = 1, /* each rank has its own copy and updates all of it */
} ls_update;

/* The samples at the end of an epoch that do not fill a step. */
typedef enum ls_last {
    LS_LAST_AUTO = 0,      /* drop; with LS_ORDER_TORCH keep, as DistributedSampler does */
    LS_LAST_DROP = 1,      /* skip them (torch: DistributedSampler's drop_last; the last step may still be short) */
    LS_LAST_KEEP = 2,      /* the last step is short; its mean is over the tokens that it has */
    LS_LAST_DROP_STEP = 3, /* torch: drop_last of both DistributedSampler and DataLoader; otherwise as LS_LAST_DROP */
} ls_last;

/* JSON lines that are invalid or lack the field. */
typedef enum ls_on_bad {
    LS_ON_BAD_STOP = 0, /* are an error */
    LS_ON_BAD_SKIP = 1, /* are skipped, and counted in the log */
} ls_on_bad;

/* An artificial delay, to test whether reports find it. */
typedef struct ls_train_delay {
    int rank;
    ls_phase phase; /* data, forward, backward (in the middle layer) or update */
    double ms;      /* 0: none */
    int64_t every;  /* in step `first` and in every `every`-th step after it; 0: only in `first` */
    int64_t first;
    bool off_cpu; /* the rank sleeps; false: it computes, for that much CPU time of its thread */
} ls_train_delay;

/* What to do if the run folder exists. */
typedef enum ls_run_dir_mode {
    LS_RUN_DIR_NEW = 0,       /* LS_EINVAL if it holds a run or a model */
    LS_RUN_DIR_NUMBERED = 1,  /* append "-2" or the next free number to its name */
    LS_RUN_DIR_OVERWRITE = 2, /* remove the run in it at once, and a model when there is a new one */
    /* continue the run in it from its newest intact checkpoint, on any number of ranks. The other options must be those of the run
     * (see ls_train_saved_open()), except for ranks, threads, workers and others that do not affect results, and `steps`, to
     * which the schedule of the learning rate then extends */
    LS_RUN_DIR_RESUME = 3,
} ls_run_dir_mode;

typedef struct ls_train_options {
    ls_task task; /* 0: LS_TASK_LM */

    /* ---- Data */
    const char *const *data; /* text or token shards; NULL: a built-in corpus of stories */
    size_t n_data;
    const char *const *val_data; /* for evaluation; NULL: a part of `data`, see val_fraction */
    size_t n_val_data;
    /* this fraction of `data` is held out for evaluation and never trained on: documents of text, or blocks of
     * sequences where there are none, chosen by the seed. 0: 0.05 if eval_every is set and there is no val_data, else
     * none */
    double val_fraction;
    /* of text: see ls_tokenizer_open(); for shards, what they were made with, to be saved with the model; NULL: that of
     * `init` if it has one, otherwise bytes for text and none for shards */
    const char *tokenizer;
    const char *end_token; /* its token that ends a text and separates documents; NULL: see ls_tokenizer_end_token() */
    ls_data_format data_format; /* 0: by the files' names and first bytes */
    ls_on_bad on_bad;
    /* JSON lines: the field with the text; NULL: "text". classify: JSON lines, CSV or TSV; NULL: it and pair_field by usual names */
    const char *field;
    const char *pair_field;  /* classify: the field with a second text; NULL: see field */
    const char *label_field; /* classify: the field with the label; NULL: "label", or another usual name */
    /* classify: names of the classes, separated by commas; NULL: those of `init` or of the data; numbers need none */
    const char *labels;
    double mask_fraction; /* mlm: of the tokens; 0: 0.15 */
    /* text: a sequence is a document, truncated or padded; the loss is the mean over the tokens that are not padding.
     * Default: packed, documents one after another */
    bool pad;
    const char *prompt_field; /* padded JSON lines: a text in front that has no loss; NULL: none */
    /* padded JSON lines: a number, the weight of the document's tokens in the loss; NULL: 1 */
    const char *weight_field;
    /* JSON lines of chats, in the field "messages" or `field`; the loss is on the assistant's answers. Implies pad. See ls_text_options */
    bool chat;
    const char *chat_template; /* see ls_tokenizer_options; NULL: the tokenizer's */
    ls_order order;            /* 0: shuffled; balanced is for padded data */
    int torch_ranks;           /* LS_ORDER_TORCH: the world size that it assumes; 0: the world's size */
    ls_last last;
    int workers;  /* threads that build batches ahead; 0: found at run time; < 0: none */
    int prefetch; /* batches ahead per worker; 0: 2, or found at run time */
    /* a folder on this node's disk, to which the files are copied while training runs; see ls_stage_open(); NULL: they are read
     * where they are */
    const char *stage;
    uint64_t stage_limit; /* bytes of all copies in it; 0: the free space of the disk */
    int read_delay_us;    /* for measurements: each read from a shard takes that much longer, until it is staged */

    /* ---- Batch */
    int batch_size; /* sequences of a micro-batch; 0: 8, or 64 images */
    int seq_len;    /* tokens of a sequence; 0: 256, or the context of `init` if that is shorter */

    /* ---- Ranks */
    ls_world *world; /* all its ranks open the same run; it must outlive the run. NULL: this process alone */
    int slots;       /* micro-batches of a step, over all ranks, at least one per rank; 0: one per rank */
    ls_sum_order sum_order;
    ls_update update;
    double bucket_mb; /* gradient bucket size in MiB; 0: see ddp.h */
    ls_wire wire;
    bool no_overlap; /* communicate only after backward: to measure what overlap is worth */

    /* ---- Model */
    ls_lm_options model; /* vocab_size 0: the tokenizer's, or 50,257; context 0: seq_len; others: see nn.h */
    /* a folder with a model to start from, as ls_model_save() or transformers writes it. Its config.json determines
     * `model` except for the dropouts, where 0 is that of the folder and < 0 none. NULL: random weights */
    const char *init;
    /* adapters are trained, and the model of `init` is frozen: "r=16,alpha=32,dropout=0.05,target=q_proj+v_proj,rslora,base=bf16",
     * of which all may be left out; the run folder then holds an adapter. If `init` holds an adapter of the same form, it is
     * trained further. NULL: all weights are trained */
    const char *lora;

    /* ---- Task images */
    /* blocks all 0: ResNet-20; channels, size and classes 0: those of the data (folders: 224, or 32 without `stem`) */
    ls_resnet_options resnet;
    /* layers > 0: a vision transformer instead; size, channels, classes, mean and std are those of `resnet` */
    ls_vit_options vit;
    ls_image_format image_format; /* 0: by the files */
    ls_augment_kind augment;
    /* batch norms use the statistics of all micro-batches of a step, not of each by itself: a step is then that of one large
     * micro-batch. Memory for activations and gradients of all micro-batches of a rank */
    bool sync_norm;

    /* ---- Optimizer and schedule */
    int64_t steps; /* optimizer steps; 0: by `epochs`; both 0: 1,000 */
    double epochs; /* passes over the data */
    /* lr 0: 1e-3; lr_end 0: a tenth of lr; < 0: 0; warmup < 0: 150 steps, or a tenth of all if that is more and the
     * schedule is not constant; steps is filled in */
    ls_schedule schedule;
    ls_optimizer_options optimizer; /* threads is filled in */
    double clip;                    /* max norm of all gradients together; 0: 1; < 0: none */
    int64_t eval_every; /* steps between evaluations; 0: a tenth of the steps if there is validation data, else none */
    int eval_batches;   /* micro-batches of an evaluation; 0: 16, or all where a task has classes */
    /* the metric of evaluations by which the best is chosen: "loss", or one of ls_task_info. Its checkpoint is kept, and when the
     * run is over its model is saved instead of the last; NULL: none, or with `patience` the loss */
    const char *best;
    int patience;   /* the run is over after that many evaluations in a row that are not the best so far; 0: never */
    uint64_t seed;  /* of weights, order and dropout */
    int threads;    /* 0: the cores that this process may run on */
    bool recompute; /* recompute activations in backward: less memory, more time, the same bits */

    /* ---- Checkpoints, in the run folder: at the end and when the run is stopped, so that it can be resumed */
    int64_t checkpoint_every; /* and at this interval of steps; 0: only then */
    bool no_checkpoint;       /* none at all: the run cannot be resumed */
    int keep;                 /* how many of the newest intact checkpoints are kept; 0: 2 */

    /* ---- Output */
    /* the run folder: created if missing, and locked; LS_EINVAL if another process trains in it; NULL: no files. A run without a
     * step leaves no folder */
    const char *run_dir;
    ls_run_dir_mode run_dir_mode;
    const char *config;    /* a text that is stored in the run folder as config.toml; NULL: none */
    int64_t metrics_every; /* steps between lines of metrics.jsonl; evaluations and the last step always; 0: 1 */
    int64_t sample_every;  /* lm: steps between samples of text, in samples.jsonl and in metrics.sample; 0: none */
    int sample_tokens;     /* of a sample; 0: 300; < 0: none */
    /* that samples continue; NULL: a line feed, or the beginning of a story with the built-in corpus */
    const char *prompt;
    bool no_tensorboard; /* no event files for TensorBoard in the run folder */
    bool no_record;      /* no events in the run folder */
    bool profile;        /* measure the cost of each operation; see ls_train_save_profile() */
    /* a barrier before each phase, the classic way to measure waiting: slower, and shows nothing within phases */
    bool barriers;
    ls_train_delay inject; /* for tests */
    void *reserved[2];     /* NULL */
} ls_train_options;

/* Results of a step. Times are wall time in milliseconds and add up to `step_ms`. */
typedef struct ls_train_metrics {
    int64_t step;  /* counted from 1 */
    int64_t steps; /* of the whole run */
    double epoch;  /* passes over the data so far */
    double loss;   /* mean over the tokens of the global batch, before the update */
    double lr;
    double grad_norm;    /* before clipping; like the loss, NaN or infinite in a skipped step */
    int64_t skipped;     /* steps skipped so far, since the run was opened, because they were not finite */
    double tokens_per_s; /* tokens (of lm: with a loss), or the unit of ls_task_info */
    double step_ms, data_ms, forward_ms, backward_ms, update_ms, other_ms;
    double blocked_ms; /* of these, blocked in collectives: waiting for other ranks, and exposed communication */
    double eval_loss;  /* of the evaluation after this step; negative: there was none */
    double eval_metrics[LS_MAX_METRICS]; /* of the same; ls_task_info has their names */
    double gflops; /* 10^9 floating-point operations per second in the matrix products of the step, of all ranks */
    /* what matrix products reach on all ranks' threads, as measured by the first rank; 0 on other ranks */
    double peak_gflops;
    uint64_t memory_bytes; /* resident now */
    /* the prompt and what the model wrote after this step, on the first rank; NULL: none. Valid until the next step */
    const char *sample;
    double reserved[4];
} ls_train_metrics;

typedef struct ls_train ls_train;

/* Opens data, creates or reads the model, and creates and locks the run folder. Nothing is written before everything is
 * checked. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_train_open(ls_train **out, const ls_train_options *options);
LS_API void ls_train_free(ls_train **train);

/* The next step; LS_END when all are done, or after ls_train_stop(). `metrics` may be NULL. */
LS_API LS_MUST_CHECK ls_status ls_train_step(ls_train *train, ls_train_metrics *metrics);
/* Requests an end after the current step, or the next one. All ranks end at the same step, when any of them requested it. May
 * be called from a signal handler or another thread. */
LS_API void ls_train_stop(ls_train *train);
/* Mean loss over the validation data. */
LS_API LS_MUST_CHECK ls_status ls_train_eval(ls_train *train, double *loss);

/* The best evaluation so far, by options.best. */
typedef struct ls_train_best {
    const char *metric;  /* "loss"...; NULL: the run does not look for the best */
    int64_t step;        /* the step of the evaluation; 0: none yet */
    double value;        /* of the metric */
    int64_t evaluations; /* since then */
    bool ended;          /* there were options.patience of them: the run is over before its last step */
    double reserved[4];
} ls_train_best;
LS_API ls_train_best ls_train_get_best(const ls_train *train);

/* Writes the model to the run folder; that of the best evaluation if options.best is set and the run is over. Without a run folder:
 * LS_ESTATE; also when a step failed while weights were being updated, since they then belong to no step. */
LS_API LS_MUST_CHECK ls_status ls_train_save(ls_train *train);
/* Writes a checkpoint of the last completed step, unless there is one, and waits until it is on the disk. Also after an error:
 * LS_ESTATE if the step failed while weights were being updated. On the first rank; no effect on the others. */
LS_API LS_MUST_CHECK ls_status ls_train_checkpoint(ls_train *train);
/* Writes the cost of each operation on this rank to profile/rank-R.json in the run folder; needs the option `profile`. Not a
 * collective call. */
LS_API LS_MUST_CHECK ls_status ls_train_save_profile(ls_train *train);

LS_API ls_model *ls_train_model(const ls_train *train);
/* NULL: the data are shards, and no tokenizer was given. */
LS_API const ls_tokenizer *ls_train_tokenizer(const ls_train *train);
/* The run folder, perhaps with a number appended; NULL: none. Valid until ls_train_free(). */
LS_API const char *ls_train_run_dir(const ls_train *train);
/* Optimizer steps so far, in this process and before. */
LS_API int64_t ls_train_steps_made(const ls_train *train);
/* The options in use, with defaults filled in. */
LS_API const ls_train_options *ls_train_get_options(const ls_train *train);

/* ---- Runs */

/* The options that a run was started with, or resumed with last. */
typedef struct ls_train_saved {
    ls_train_options options; /* as passed to ls_train_open(), without world and run_dir */
    int ranks;
} ls_train_saved;
/* Reads RUN/run.json. The options' texts belong to *out and live as long as it. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_train_saved_open(ls_train_saved **out, const char *run_dir);
LS_API void ls_train_saved_free(ls_train_saved **saved);

/* ---- Evaluation of a trained model. */

typedef struct ls_eval_options {
    const char *model; /* a run folder, or another folder with a model */
    ls_world *world;   /* all its ranks evaluate together; the bits are the same. NULL: this process alone */
    /* text or token shards; NULL: the validation data of the run: val_data, or what it held out */
    const char *const *data;
    size_t n_data;
    const char *tokenizer; /* NULL: that of the folder */
    /* How to read `data`: as in ls_train_options. */
    ls_data_format data_format;
    ls_on_bad on_bad;
    const char *field, *prompt_field, *weight_field;
    const char *pair_field, *label_field; /* classify; NULL: as the run, or by usual names */
    ls_image_format image_format;         /* images; 0: by the files */
    bool pad, chat;
    int batch_size; /* samples of a micro-batch; 0: lm 8; other tasks: that of the run, or 8, or 64 images */
    int seq_len;    /* tokens of a sequence; 0: that of the run, or the model's context, at most 1,024; encoders: 256 */
    int threads;    /* 0: the cores that this process may run on */
    ls_progress_fn progress; /* of micro-batches, on the first rank; NULL: none */
    void *user;
    void *reserved[2]; /* NULL */
} ls_eval_options;

typedef struct ls_eval_result {
    double loss;          /* nats a token: the mean over all tokens with a loss, weighted as the data say */
    double perplexity;    /* exp(loss) */
    double bits_per_byte; /* all nats / ln 2 / bytes of the predicted tokens' text; NaN: no tokenizer, or no bytes */
    uint64_t tokens;      /* predicted tokens with a loss */
    double bytes;         /* of their text, weighted like the loss; NaN: there is no tokenizer */
    uint64_t sequences;
    uint64_t documents; /* that were held out; 0: not known */
    int seq_len;        /* tokens of a sequence */
    bool held_out;      /* the data are what the run held out */
    double seconds;
    ls_task task;
    double metrics[LS_MAX_METRICS]; /* see ls_task_info; of tasks other than lm */
    double reserved[4];
} ls_eval_result;

/* The task is that of the run, or what the model can do: language models, encoders with a masked-LM head or a classifier, models of
 * images. lm: every token except the first is predicted once, within sequences that are independent contexts. Other tasks: as
 * evaluations in training (of mlm with the masks of the run's seed), over all samples; perplexity, bits_per_byte and bytes are NaN
 * where they have no meaning. */
LS_API LS_MUST_CHECK ls_status ls_eval(const ls_eval_options *options, ls_eval_result *result);

/* Multiple choice, in the form of HellaSwag. */
typedef struct ls_choices_options {
    const char *model; /* a run folder, or another folder with a model */
    ls_world *world;   /* all its ranks evaluate together; the scores are the same. NULL: this process alone */
    /* JSON lines with "endings", a list of texts, "label", the number of the right one from 0, and the text before them:
     * "activity_label", "ctx_a" and "ctx_b", or "ctx". Or a file of tokens, such as llm.c's hellaswag_val.bin. */
    const char *data;
    const char *tokenizer;   /* NULL: that of the folder; none is used with a file of tokens */
    int batch_size;          /* endings that are computed together; 0: 8 */
    int threads;             /* 0: the cores that this process may run on */
    ls_progress_fn progress; /* of micro-batches, on the first rank; NULL: none */
    /* called for each question when all are done, with the log-probabilities of its endings; NULL: not called */
    void (*each)(void *user, uint64_t question, const double *scores, int endings, int right);
    void *user;
    void *reserved[2]; /* NULL */
} ls_choices_options;

typedef struct ls_choices_result {
    uint64_t questions;
    /* As lm-evaluation-harness counts acc and acc_norm: the share of questions whose right ending has the highest
     * log-probability; or the highest one per character, or per token of a file of tokens, as llm.c counts it. The errors are
     * standard errors of the mean. */
    double accuracy, accuracy_norm, accuracy_error, accuracy_norm_error;
    double seconds;
    bool per_token; /* accuracy_norm is */
    double reserved[4];
} ls_choices_result;

/* Which endings the model prefers. */
LS_API LS_MUST_CHECK ls_status ls_eval_choices(const ls_choices_options *options, ls_choices_result *result);

/* ---- Checkpoint files */
typedef struct ls_checkpoint_info {
    int64_t step;
    size_t elements; /* of the model, padding included */
    size_t bytes;    /* of the file */
    int64_t reserved[2];
} ls_checkpoint_info;
/* Whether a checkpoint is intact: LS_EFORMAT with the reason if it is corrupt. */
LS_API LS_MUST_CHECK ls_status ls_checkpoint_verify(const char *path, ls_checkpoint_info *info);

#ifdef __cplusplus
}
#endif
#endif
