/* The command line of `lockstep train`. */
#include "cli/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/formats.h"
#include "cli/last_run.h"
#include "cli/near.h"
#include "nn/model.h"

static const char intro[] =
    "usage: lockstep train [OPTIONS]\n"
    "\n"
    "Trains a GPT. Without --data: a small GPT on a built-in corpus of stories, in less than a minute.\n"
    "Writes run.json, metrics.jsonl (one object per step) and the model as a Hugging Face folder\n"
    "(config.json, model.safetensors) to the run folder. Ctrl-C stops after the current step and saves; 'lockstep "
    "train --resume' continues.\n";

#define X(name, value, text) text,
static const char *const optimizers[] = { LS_OPTIMIZER_LIST(X) NULL };
#undef X
static const char *const wires[] = { "float32", "bfloat16", NULL };
static const char *const updates[] = { "sharded", "replicated", NULL };
static const char *const sums[] = { "canonical", "any", NULL };
static const char *const orders[] = { "shuffled", "sequential", "torch", "balanced", NULL }; /* as ls_order */
static const char *const on_bad[] = { "stop", "skip", NULL };
static const char *const lasts[] = { "drop", "keep", "drop-step", NULL }; /* as ls_last, from 1 */
static const char *const schedules[] = { "constant", "linear", "cosine", NULL };

/* Values as they stand on the command line, where 0 means 0; the library's 0 means its default. */
typedef struct raw {
    int optimizer, schedule, workers, update, wire, sum, order, input, on_bad, last;
    float lr_end, weight_decay, momentum, dropout;
    double clip, bucket_mb;
    const char *inject;
} raw;

static int read_rows(train_arguments *a, raw *r, int argc, char **argv)
{
    ls_train_options *t = &a->train;
    const double many = 2147483647, any = 1e18;
    const option_row rows[] = {
        { OPTION_HEADING, "Data", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_LIST, "--data", &a->data, "FILES",
          "text, JSON lines (also .gz, .zst), or token shards; files, patterns, folders", 0, 0, NULL },
        { OPTION_LIST, "--val-data", &a->val_data, "FILES", "validation data (default: a part of --data)", 0, 0, NULL },
        { OPTION_DOUBLE, "--val-fraction", &t->val_fraction, "X",
          "hold out this fraction of --data (0.05 if evaluating)", 1e-9, 0.999, NULL },
        { OPTION_TEXT, "--tokenizer", &t->tokenizer, "NAME", "bytes (default), tokenizer.json, or a folder with one", 0,
          0, NULL },
        { OPTION_TEXT, "--end-token", &t->end_token, "TEXT", "token that ends a document (the tokenizer's eos_token)",
          0, 0, NULL },
        { OPTION_INT, "--batch-size", &t->rows, "N", "micro-batch size per rank (8)", 1, many, NULL },
        { OPTION_INT, "--seq-len", &t->length, "N", "sequence length in tokens (256; built-in corpus: 64)", 1, many,
          NULL },
        { OPTION_CHOICE, "--data-format", &r->input, "FORMAT", "{} (auto: by name and first bytes)", 0, 0,
          format_choices(FORMATS_ALL) },
        { OPTION_CHOICE, "--on-bad", &r->on_bad, "WHAT", "on an invalid JSON line: {} (stop)", 0, 0, on_bad },
        { OPTION_TEXT, "--field", &t->field, "NAME", "JSON lines: field with the text (text)", 0, 0, NULL },
        { OPTION_FLAG, "--pad", &t->padded, NULL, "one document per sequence, truncated or padded (packed)", 0, 0,
          NULL },
        { OPTION_TEXT, "--prompt-field", &t->prompt_field, "NAME", "with --pad: field with a prompt, which has no loss",
          0, 0, NULL },
        { OPTION_TEXT, "--weight-field", &t->weight_field, "NAME", "with --pad: field with the weight of the loss (1)",
          0, 0, NULL },
        { OPTION_CHOICE, "--order", &r->order, "KIND", "{} (shuffled)", 0, 0, orders },
        { OPTION_INT, "--torch-ranks", &t->torch_ranks, "N", "world size assumed by --order torch (that of the run)", 1,
          many, NULL },
        { OPTION_CHOICE, "--last", &r->last, "KIND", "an epoch's short last step: {} (drop; torch: keep)", 0, 0,
          lasts },
        { OPTION_AUTO, "--workers", &r->workers, "N", "threads that load batches, or auto: tuned (auto)", 0, 256,
          NULL },
        { OPTION_AUTO, "--prefetch", &t->prefetch, "N", "batches ahead per worker (2; auto: tuned)", 1, 4096, NULL },
        { OPTION_TEXT, "--stage", &t->stage, "DIR", "copy the files to DIR on a local disk, read them there", 0, 0,
          NULL },
        { OPTION_SIZE, "--stage-limit", &t->stage_limit, "BYTES",
          "limit of all copies there, e.g. 200G (the free space)", 0, 0, NULL },
        { OPTION_INT, "--read-delay-us", &t->read_delay_us, "N", "for benchmarks: make each read of a shard slower (0)",
          0, 60000000, NULL },
        { OPTION_INT, "--accumulate", &a->accumulate, "N", "micro-batches per step on each rank (1)", 1, many, NULL },
        { OPTION_HEADING, "Ranks", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_INT, "-n", &a->ranks, "N", "ranks to start on this machine (1; mpirun: its ranks)", 1, 512, NULL },
        { OPTION_INT, "--slots", &t->slots, "N", "micro-batches per step over all ranks (one each)", 1, many, NULL },
        { OPTION_CHOICE, "--sum-order", &r->sum, "KIND", "canonical, or any: any slots, other bits (canonical)", 0, 0,
          sums },
        { OPTION_CHOICE, "--update", &r->update, "KIND", "sharded: one copy per node, or replicated (sharded)", 0, 0,
          updates },
        { OPTION_DOUBLE, "--bucket-mb", &r->bucket_mb, "X", "gradient bucket size in MiB (4; over a network 0.25)",
          1e-3, 1e6, NULL },
        { OPTION_CHOICE, "--wire", &r->wire, "TYPE", "gradient communication dtype: float32 or bfloat16 (float32)", 0,
          0, wires },
        { OPTION_FLAG, "--no-overlap", &t->no_overlap, NULL, "disable overlap of communication and backward", 0, 0,
          NULL },
        { OPTION_HEADING, "Model", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_TEXT, "--model", &a->model, "NAME", "small (default), gpt2, gpt2-medium, gpt2-large, gpt2-xl", 0, 0,
          NULL },
        { OPTION_TEXT, "--init", &t->init, "DIR", "start from the model in DIR (a run or Hugging Face folder)", 0, 0,
          NULL },
        { OPTION_INT, "--layers", &t->model.layers, "N", "transformer blocks", 1, many, NULL },
        { OPTION_INT, "--width", &t->model.width, "N", "embedding dimension", 1, many, NULL },
        { OPTION_INT, "--heads", &t->model.heads, "N", "attention heads", 1, many, NULL },
        { OPTION_INT, "--vocab-size", &t->model.vocab_size, "N", "vocabulary size (the tokenizer's; shards: 50257)", 1,
          many, NULL },
        { OPTION_INT, "--context", &t->model.context, "N", "longest sequence (--seq-len)", 1, many, NULL },
        { OPTION_FLOAT, "--dropout", &r->dropout, "P", "dropout probability (0; --init: from its config.json)", 0,
          0.999, NULL },
        { OPTION_HEADING, "Training", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_LONG, "--steps", &t->steps, "N", "optimizer steps (1000)", 1, any, NULL },
        { OPTION_DOUBLE, "--epochs", &t->epochs, "X", "passes over the data, instead of --steps", 1e-9, 1e9, NULL },
        { OPTION_FLOAT, "--lr", &t->schedule.lr, "X", "peak learning rate (0.001; small: 0.003)", 1e-30, 1e30, NULL },
        { OPTION_FLOAT, "--lr-end", &r->lr_end, "X", "final learning rate (a tenth of --lr)", 0, 1e30, NULL },
        { OPTION_CHOICE, "--schedule", &r->schedule, "KIND", "{} (cosine)", 0, 0, schedules },
        { OPTION_LONG, "--warmup", &t->schedule.warmup, "N", "warm-up steps (a tenth of --steps, at least 150)", 0, any,
          NULL },
        { OPTION_CHOICE, "--optimizer", &r->optimizer, "KIND", "{} (adamw)", 0, 0, optimizers },
        { OPTION_FLOAT, "--weight-decay", &r->weight_decay, "X", "weight decay (adamw: 0.1; sgd: 0)", 0, 1e30, NULL },
        { OPTION_FLOAT, "--beta1", &t->optimizer.beta1, "X", "adamw: decay of the first moment (0.9)", 1e-9, 0.9999999,
          NULL },
        { OPTION_FLOAT, "--beta2", &t->optimizer.beta2, "X", "adamw: decay of the second moment (0.95)", 1e-9,
          0.9999999, NULL },
        { OPTION_FLOAT, "--momentum", &r->momentum, "X", "sgd: momentum (0.9)", 0, 0.9999999, NULL },
        { OPTION_DOUBLE, "--clip", &r->clip, "X", "max grad norm, 0: no clipping (1)", 0, 1e30, NULL },
        { OPTION_LONG, "--eval-every", &t->eval_every, "N", "steps between evaluations (a tenth, if there is data)", 1,
          any, NULL },
        { OPTION_INT, "--eval-batches", &t->eval_batches, "N", "micro-batches per evaluation (16)", 1, many, NULL },
        { OPTION_SEED, "--seed", &t->seed, "N", "seed of weights, order and dropout (0)", 0, 0, NULL },
        { OPTION_AUTO, "--threads", &t->threads, "N", "threads per rank (auto: all cores); does not affect results", 1,
          4096, NULL },
        { OPTION_HEADING, "Output", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_TEXT, "--run-dir", &a->run_dir, "DIR", "run folder (runs/NAME; runs/last links to it)", 0, 0, NULL },
        { OPTION_TEXT, "--name", &a->name, "NAME", "name of the run (its start time)", 0, 0, NULL },
        { OPTION_LONG, "--log-every", &a->log_every, "N", "steps between log lines, if not on a terminal", 1, any,
          NULL },
        { OPTION_INT, "--sample-tokens", &a->sample_tokens, "N", "tokens of the text sample at the end, 0: none (300)",
          0, many, NULL },
        { OPTION_LONG, "--checkpoint-every", &t->checkpoint_every, "N",
          "steps between checkpoints (0: only at the end)", 0, any, NULL },
        { OPTION_INT, "--keep", &t->keep, "N", "number of checkpoints to keep (2)", 1, many, NULL },
        { OPTION_PERHAPS, "--resume", &a->resume, "[DIR]",
          "continue the run in DIR (runs/last) with its options; --steps may be larger", 0, 0, NULL },
        { OPTION_FLAG, "--overwrite", &t->overwrite, NULL, "replace a run or model that is in the run folder", 0, 0,
          NULL },
        { OPTION_FLAG, "--no-checkpoint", &t->no_checkpoint, NULL, "write no checkpoints, not even at the end", 0, 0,
          NULL },
        { OPTION_LONG, "--metrics-every", &t->metrics_every, "N", "steps between lines of metrics.jsonl (1)", 1, any,
          NULL },
        { OPTION_FLAG, "--no-tensorboard", &t->no_tensorboard, NULL, "write no event files for TensorBoard", 0, 0,
          NULL },
        { OPTION_FLAG, "--no-record", &t->no_record, NULL, "do not record events for 'lockstep report'", 0, 0, NULL },
        { OPTION_FLAG, "--barriers", &t->barriers, NULL, "add a barrier before each phase, to compare measurements", 0,
          0, NULL },
        { OPTION_TEXT, "--inject", &r->inject, "R:P:MS", "for tests: delay rank R by MS ms in phase P of each step", 0,
          0, NULL },
        { OPTION_FLAG, "--profile", &t->profile, NULL, "measure each operation; see 'lockstep profile'", 0, 0, NULL },
        { OPTION_TEXT, "--prompt", &a->prompt, "TEXT", "prompt of the text sample", 0, 0, NULL },
        { OPTION_FLAG, "--quiet", &a->quiet, NULL, "print only errors", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    return options_read("train", intro, rows, NULL, argc, argv);
}

/* The model's size by name; what was given by itself on the command line comes before. */
static int settle_model(train_arguments *a)
{
    ls_lm_options *m = &a->train.model, size = { .layers = 2, .width = 128, .heads = 4 };
    if (a->model && strcmp(a->model, "small") != 0) {
        if (ls_lm_preset(a->model, &size)) {
            near_word near = { .asked = a->model, .length = strlen(a->model) };
            near_offer(&near, "small");
            for (int kind = 0; kind < LS_LM_COUNT; kind++) {
                const ls__lm_type *type = ls__lm_type_of((ls_lm_kind)kind);
                for (size_t i = 0; i < type->n_presets; i++) near_offer(&near, type->presets[i].name);
            }
            fprintf(stderr, "lockstep train: --model: %s, or small%s\n", ls_error(), near_text(&near));
            return EXIT_USAGE;
        }
        /* A vocabulary follows from the data, a context from the sequences, unless asked for. */
        size.vocab_size = size.context = 0;
    } else if (a->train.schedule.lr == 0) {
        a->train.schedule.lr = 0.003f;
    }
    bool reshaped = m->width && m->width != size.width;
    m->kind = size.kind;
    if (!m->layers) m->layers = size.layers;
    if (!m->width) m->width = size.width;
    if (!m->heads) m->heads = reshaped ? 0 : size.heads;
    return -1;
}

/* RANK:PHASE:MS[:EVERY[:FIRST[:HOW]]] */
static int read_inject(const char *text, ls_train_delay *d)
{
    static const ls_phase phases[] = { LS_PHASE_DATA, LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_UPDATE };
    char phase[16] = "", how[8] = "work", more;
    long long every = 1, first = 1;
    int n = sscanf(text, "%d:%15[a-z]:%lf:%lld:%lld:%7[a-z]%c", &d->rank, phase, &d->ms, &every, &first, how, &more);
    d->every = every;
    d->first = first;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (!strcmp(phase, ls_phase_name(phases[i]))) d->phase = phases[i];
    d->asleep = !strcmp(how, "sleep");
    bool good = n >= 3 && n <= 6 && (d->asleep || !strcmp(how, "work")) && every >= 0 && first >= 1;
    if (good && d->phase && d->rank >= 0 && d->ms > 0 && d->ms < 1e6) return -1;
    fprintf(stderr,
            "lockstep train: --inject: '%s' must be RANK:PHASE:MS[:EVERY[:FIRST[:HOW]]]; PHASE is data, forward, "
            "backward or update, HOW is work or sleep\n",
            text);
    return EXIT_USAGE;
}

/* What contradicts itself, or lacks what belongs to it. `a` holds what the command line says and nothing else. */
static int check_together(const train_arguments *a, const raw *r)
{
    const ls_train_options *t = &a->train;
    const char *wrong = NULL;
    if (t->init &&
        (t->model.layers || t->model.width || t->model.heads || t->model.vocab_size || t->model.context || a->model))
        wrong = "--init: the folder defines the model; leave out --model, --layers, --width, --heads, "
                "--vocab-size and --context";
    else if (a->run_dir && a->name)
        wrong = "--run-dir and --name exclude each other";
    else if (a->run_dir && !*a->run_dir)
        wrong = "--run-dir: must not be empty";
    else if (a->name && (!*a->name || *a->name == '.' || strchr(a->name, '/') || !strcmp(a->name, "last")))
        wrong =
            "--name: must be the name of a folder in runs/, without '/' or a leading dot, and not 'last'; --run-dir "
            "takes any path";
    else if (t->steps && t->epochs > 0)
        wrong = "--steps and --epochs exclude each other";
    else if (a->resume && t->overwrite)
        wrong = "--overwrite and --resume exclude each other";
    else if (a->resume && *a->resume && (a->run_dir || a->name))
        wrong = "--resume selects the run; leave out --run-dir and --name";
    else if (t->no_checkpoint && t->checkpoint_every)
        wrong = "--no-checkpoint and --checkpoint-every exclude each other";
    else if (a->accumulate && t->slots)
        wrong = "--accumulate (micro-batches per rank) and --slots (over all ranks) exclude each other";
    else if (a->resume)
        return -1;
    else if (t->stage_limit && !t->stage)
        wrong = "--stage-limit needs --stage";
    else if (!a->data.count && t->stage)
        wrong = "--stage: the built-in corpus is not in a file; give files with --data";
    else if (r->order == LS_ORDER_BALANCED && !t->padded)
        wrong = "--order balanced needs --pad; packed sequences have equal lengths";
    if (!wrong) return -1;
    fprintf(stderr, "lockstep train: %s\n", wrong);
    return EXIT_USAGE;
}

/* Values that stand for "not given". */
static const raw nothing = { .optimizer = -1,
                             .schedule = -1,
                             .workers = -2,
                             .update = -1,
                             .wire = -1,
                             .sum = -1,
                             .order = -1,
                             .input = -1,
                             .on_bad = -1,
                             .last = -1,
                             .lr_end = -1,
                             .weight_decay = -1,
                             .momentum = -1,
                             .dropout = -1,
                             .clip = -1 };

/* What was given goes over what is there: the defaults, or the options of the run that is resumed. 0 stands for 0 here and for
 * the default in the library, where a negative number means none. */
static void apply_raw(ls_train_options *t, const raw *r)
{
    if (r->optimizer >= 0) t->optimizer.kind = (ls_optimizer_kind)r->optimizer;
    if (r->schedule >= 0) t->schedule.kind = (ls_schedule_kind)r->schedule;
    if (r->lr_end >= 0) t->schedule.lr_end = r->lr_end == 0 ? -1 : r->lr_end;
    if (r->weight_decay >= 0) t->optimizer.weight_decay = r->weight_decay == 0 ? -1 : r->weight_decay;
    if (r->momentum >= 0) t->optimizer.momentum = r->momentum == 0 ? -1 : r->momentum;
    if (r->dropout >= 0) t->model.dropout = r->dropout == 0 ? -1 : r->dropout;
    if (r->clip >= 0) t->clip = r->clip == 0 ? -1 : r->clip;
    if (r->workers >= -1) t->workers = r->workers < 0 ? 0 : r->workers == 0 ? -1 : r->workers;
    if (r->update >= 0) t->update = (ls_update)r->update;
    if (r->sum >= 0) t->sum_order = (ls_sum_order)r->sum;
    if (r->wire >= 0) t->wire = (ls_wire)r->wire;
    if (r->order >= 0) t->order = (ls_order)r->order;
    if (r->input >= 0) t->data_format = format_chosen(FORMATS_ALL, r->input);
    if (r->on_bad >= 0) t->skip_bad = r->on_bad == 1;
    if (r->last >= 0) t->last = (ls_last)(r->last + 1);
    if (r->bucket_mb > 0) t->bucket_bytes = (size_t)(r->bucket_mb * (1 << 20));
}

/* Finds the run, reads its options, and reads the command line once more over them. `a` holds what was given. */
static int resume(train_arguments *a, raw *r, int argc, char **argv)
{
    const ls_train_options given = a->train;
    train_arguments own = *a;
    if (*own.resume) own.run_dir = own.resume;
    if (own.name && asprintf(&own.named, "runs/%s", own.name) >= 0) own.run_dir = own.named;
    if (!own.run_dir && !(own.run_dir = last_run_or(NULL, "train"))) return EXIT_USAGE;
    *a = own;
    ls_status status = ls_train_saved_open(&a->saved, own.run_dir);
    if (status == LS_ENOENT) {
        fprintf(stderr, "lockstep train: --resume %s: not a run folder: it has no run.json\n", printable(own.run_dir));
        return EXIT_USAGE;
    }
    if (status) return exit_failure("train", status);
    a->train = a->saved->options;
    *r = nothing;
    int code = read_rows(a, r, argc, argv);
    a->run_dir = own.run_dir;
    ls_train_options *t = &a->train;
    t->resume = true;
    if (code >= 0) return code;
    if (given.epochs > 0) t->steps = 0; /* they say it anew */
    if (a->accumulate) t->slots = 0;
    if (a->model) {
        ls_lm_options *m = &t->model;
        if (!given.model.layers) m->layers = 0;
        if (!given.model.width) m->width = 0;
        if (!given.model.heads) m->heads = 0;
        return settle_model(a);
    }
    return -1;
}

/* A list of the arguments to read: reading moves them and lists point into it, so whoever needs them again takes a copy. */
static char **copy_words(int argc, char **argv)
{
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (copy)
        memcpy(copy, argv, (size_t)argc * sizeof *copy);
    else
        fprintf(stderr, "lockstep train: out of memory\n");
    return copy;
}

int train_arguments_read(train_arguments *a, int argc, char **argv)
{
    raw r = nothing;
    *a = (train_arguments){ .sample_tokens = 300, .train = { .schedule = { .warmup = -1 } } };
    char **words = copy_words(argc, argv), **again = words ? copy_words(argc, argv) : NULL;
    a->words[0] = words;
    a->words[1] = again;
    if (!again) return EXIT_FAILED;
    int code = read_rows(a, &r, argc, words);
    if (code < 0) code = check_together(a, &r);
    if (code >= 0) return code;
    ls_train_options *t = &a->train;
    if (a->resume) {
        code = resume(a, &r, argc, again);
    } else {
        t->schedule.kind = LS_SCHEDULE_COSINE;
        if (!t->init) code = settle_model(a);
        if (!t->length && !t->init) t->length = a->data.count ? 256 : 64;
    }
    if (code >= 0) return code;
    if (r.inject && (code = read_inject(r.inject, &t->inject)) >= 0) return code;
    apply_raw(t, &r);
    if (t->prefetch < 0) t->prefetch = 0; /* auto */
    if (a->data.count) {
        t->data = (const char *const *)a->data.items;
        t->n_data = a->data.count;
    }
    if (a->val_data.count) {
        t->val_data = (const char *const *)a->val_data.items;
        t->n_val_data = a->val_data.count;
    }
    return train_arguments_check(a, argc, argv);
}

void train_arguments_free(train_arguments *a)
{
    ls_train_saved_free(&a->saved);
    free(a->named);
    free(a->words[0]);
    free(a->words[1]);
}
