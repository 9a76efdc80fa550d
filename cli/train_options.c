/* The command line of `lockstep train`. */
#include "cli/train_options.h"

#include <stdio.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/near.h"

static const char intro[] =
    "usage: lockstep train [OPTIONS]\n"
    "\n"
    "Trains a GPT. Without --data: a small one on a built-in corpus of stories, which takes less than a minute.\n"
    "The run's folder gets run.json, metrics.jsonl (an object a step) and the model as a Hugging Face folder\n"
    "(config.json, model.safetensors). Ctrl-C ends after the current step and saves.\n";

static const char *const optimizers[] = { "adamw", "sgd", NULL };
static const char *const wires[] = { "float32", "bfloat16", NULL };
static const char *const updates[] = { "sharded", "replicated", NULL };
static const char *const sums[] = { "canonical", "fast", NULL };
static const char *const orders[] = { "shuffled", "sequential", "torch", "balanced", NULL }; /* as ls_order */
/* As ls_text_format, and behind it ls_shard_format from 1 on. */
static const char *const data_formats[] = { "auto", "plain", "lines", "jsonl", "llmc16", "llmc32", "u16", "u32", NULL };
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
        { OPTION_LIST, "--val-data", &a->val_data, "FILES", "for evaluation (default: a part of --data)", 0, 0, NULL },
        { OPTION_DOUBLE, "--val-fraction", &t->val_fraction, "X",
          "or hold out this share of --data (0.05 if evaluating)", 1e-9, 0.999, NULL },
        { OPTION_TEXT, "--tokenizer", &t->tokenizer, "NAME", "bytes (default), tokenizer.json, or a folder with one", 0,
          0, NULL },
        { OPTION_INT, "--batch-size", &t->rows, "N", "sequences of a micro-batch (8)", 1, many, NULL },
        { OPTION_INT, "--seq-len", &t->length, "N", "tokens of a sequence (256; built-in corpus: 64)", 1, many, NULL },
        { OPTION_CHOICE, "--data-format", &r->input, "FORMAT",
          "auto, plain, lines, jsonl, llmc16, llmc32, u16, u32 (auto: by name and first bytes)", 0, 0, data_formats },
        { OPTION_CHOICE, "--input", &r->input, "FORMAT", NULL, 0, 0, data_formats },
        { OPTION_CHOICE, "--on-bad", &r->on_bad, "WHAT", "a bad JSON line: stop, or skip it (stop)", 0, 0, on_bad },
        { OPTION_TEXT, "--field", &t->field, "NAME", "JSON lines: the field with the text (text)", 0, 0, NULL },
        { OPTION_FLAG, "--pad", &t->padded, NULL, "a sequence is one document, cut off or padded (packed)", 0, 0,
          NULL },
        { OPTION_TEXT, "--prompt-field", &t->prompt_field, "NAME", "with --pad: a text before it, without loss", 0, 0,
          NULL },
        { OPTION_TEXT, "--weight-field", &t->weight_field, "NAME", "with --pad: what a document's loss counts (1)", 0,
          0, NULL },
        { OPTION_CHOICE, "--order", &r->order, "KIND", "shuffled, sequential, torch or balanced (shuffled)", 0, 0,
          orders },
        { OPTION_INT, "--torch-ranks", &t->torch_ranks, "N", "ranks that torch's order deals to (those there are)", 1,
          many, NULL },
        { OPTION_CHOICE, "--last", &r->last, "KIND",
          "an epoch's short last step: drop, keep, drop-step (drop; torch: keep)", 0, 0, lasts },
        { OPTION_AUTO, "--workers", &r->workers, "N", "threads that read ahead, or auto: found (auto)", 0, 256, NULL },
        { OPTION_INT, "--prefetch", &t->prefetch, "N", "batches ahead for each of them (2; auto: found)", 1, 4096,
          NULL },
        { OPTION_TEXT, "--stage", &t->stage, "DIR", "copy the files to DIR on this machine, read them there", 0, 0,
          NULL },
        { OPTION_SIZE, "--stage-limit", &t->stage_limit, "BYTES", "of all copies in it, like 200G (the disk's room)", 0,
          0, NULL },
        { OPTION_INT, "--read-delay-us", &t->read_delay_us, "N", "to measure: reads from shards take longer (0)", 0,
          60000000, NULL },
        { OPTION_INT, "--accumulate", &a->accumulate, "N", "micro-batches of a step on each rank (1)", 1, many, NULL },
        { OPTION_HEADING, "Ranks", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_INT, "-n", &a->ranks, "N", "ranks to start on this machine (1, or those of mpirun)", 1, 512, NULL },
        { OPTION_INT, "--slots", &t->slots, "N", "micro-batches of a step over all ranks (one each)", 1, many, NULL },
        { OPTION_CHOICE, "--sum-order", &r->sum, "KIND", "canonical, or fast: any slots, other bits (canonical)", 0, 0,
          sums },
        { OPTION_CHOICE, "--update", &r->update, "KIND", "sharded: one copy a machine, or replicated (sharded)", 0, 0,
          updates },
        { OPTION_DOUBLE, "--bucket-mb", &r->bucket_mb, "X",
          "MiB of gradients that travel together (4; over a network 0.25)", 1e-3, 1e6, NULL },
        { OPTION_CHOICE, "--wire", &r->wire, "TYPE",
          "gradients travel as float32, or bfloat16: half the bytes (float32)", 0, 0, wires },
        { OPTION_FLAG, "--no-overlap", &t->no_overlap, NULL, "gradients travel after backward, not during it", 0, 0,
          NULL },
        { OPTION_HEADING, "Model", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_TEXT, "--model", &a->model, "NAME", "small (default), gpt2, gpt2-medium, gpt2-large, gpt2-xl", 0, 0,
          NULL },
        { OPTION_TEXT, "--init", &t->init, "DIR", "start from the model in DIR (a run, or a Hugging Face folder)", 0, 0,
          NULL },
        { OPTION_INT, "--layers", &t->model.layers, "N", "transformer blocks", 1, many, NULL },
        { OPTION_INT, "--width", &t->model.width, "N", "channels", 1, many, NULL },
        { OPTION_INT, "--heads", &t->model.heads, "N", "attention heads", 1, many, NULL },
        { OPTION_INT, "--vocab-size", &t->model.vocab, "N", "tokens (those of the tokenizer; shards: 50257)", 1, many,
          NULL },
        { OPTION_INT, "--context", &t->model.context, "N", "longest sequence (that of --seq-len)", 1, many, NULL },
        { OPTION_FLOAT, "--dropout", &r->dropout, "P", "while training (0; --init: as its config.json has it)", 0,
          0.999, NULL },
        { OPTION_HEADING, "Training", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_LONG, "--steps", &t->steps, "N", "updates (1000)", 1, any, NULL },
        { OPTION_DOUBLE, "--epochs", &t->epochs, "X", "passes over the data, instead of --steps", 1e-9, 1e9, NULL },
        { OPTION_FLOAT, "--lr", &t->schedule.lr, "X", "learning rate, the highest (0.001; small: 0.003)", 1e-30, 1e30,
          NULL },
        { OPTION_FLOAT, "--lr-end", &r->lr_end, "X", "learning rate at the end (a tenth of --lr)", 0, 1e30, NULL },
        { OPTION_CHOICE, "--schedule", &r->schedule, "KIND", "constant, linear or cosine (cosine)", 0, 0, schedules },
        { OPTION_LONG, "--warmup", &t->schedule.warmup, "N", "warm-up steps (a twentieth)", 0, any, NULL },
        { OPTION_CHOICE, "--optimizer", &r->optimizer, "KIND", "adamw or sgd (adamw)", 0, 0, optimizers },
        { OPTION_FLOAT, "--weight-decay", &r->weight_decay, "X", "0.1 for adamw, 0 for sgd", 0, 1e30, NULL },
        { OPTION_FLOAT, "--beta1", &t->optimizer.beta1, "X", "0.9", 1e-9, 0.9999999, NULL },
        { OPTION_FLOAT, "--beta2", &t->optimizer.beta2, "X", "0.95", 1e-9, 0.9999999, NULL },
        { OPTION_FLOAT, "--momentum", &r->momentum, "X", "of sgd (0.9)", 0, 0.9999999, NULL },
        { OPTION_DOUBLE, "--clip", &r->clip, "X", "limit of the gradients' global norm, 0: none (1)", 0, 1e30, NULL },
        { OPTION_LONG, "--eval-every", &t->eval_every, "N", "steps between evaluations (a tenth, if there is data)", 1,
          any, NULL },
        { OPTION_INT, "--eval-batches", &t->eval_batches, "N", "micro-batches of an evaluation (16)", 1, many, NULL },
        { OPTION_SEED, "--seed", &t->seed, "N", "of weights, order and dropout (0)", 0, 0, NULL },
        { OPTION_INT, "--threads", &t->threads, "N", "default: the cores there are; changes no bit", 1, 4096, NULL },
        { OPTION_HEADING, "Output", NULL, NULL, NULL, 0, 0, NULL },
        { OPTION_TEXT, "--run-dir", &a->run_dir, "DIR", "the run's folder (runs/NAME, and runs/last points to it)", 0,
          0, NULL },
        { OPTION_TEXT, "--name", &a->name, "NAME", "of the run (the time of its start)", 0, 0, NULL },
        { OPTION_LONG, "--log-every", &a->log_every, "N", "steps between lines, when not on a terminal", 1, any, NULL },
        { OPTION_INT, "--sample-tokens", &a->sample_tokens, "N", "length of the sample at the end, 0: none (300)", 0,
          many, NULL },
        { OPTION_LONG, "--checkpoint-every", &t->checkpoint_every, "N", "steps between checkpoints (none)", 1, any,
          NULL },
        { OPTION_INT, "--keep", &t->keep, "N", "how many of the newest checkpoints stay (2)", 1, many, NULL },
        { OPTION_FLAG, "--resume", &t->resume, NULL, "go on with the run in --run-dir, from its newest checkpoint", 0,
          0, NULL },
        { OPTION_LONG, "--metrics-every", &t->metrics_every, "N", "steps between lines of metrics.jsonl (1)", 1, any,
          NULL },
        { OPTION_FLAG, "--no-tensorboard", &t->no_tensorboard, NULL, "write no event files for TensorBoard", 0, 0,
          NULL },
        { OPTION_FLAG, "--no-record", &t->no_record, NULL, "no events for 'lockstep report' in the run's folder", 0, 0,
          NULL },
        { OPTION_FLAG, "--barriers", &t->barriers, NULL, "a barrier before each phase, to compare ways of measuring", 0,
          0, NULL },
        { OPTION_TEXT, "--inject", &r->inject, "R:P:MS", "for tests: rank R loses MS ms in phase P of each step", 0, 0,
          NULL },
        { OPTION_FLAG, "--profile", &t->profile, NULL, "count what each operation costs; see 'lockstep profile'", 0, 0,
          NULL },
        { OPTION_TEXT, "--prompt", &a->prompt, "TEXT", "that the sample begins with", 0, 0, NULL },
        { OPTION_FLAG, "--quiet", &a->quiet, NULL, "print only what went wrong", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    return options_read("train", intro, rows, NULL, argc, argv);
}

/* The model's size by name; what was given by itself on the command line comes before. */
static int settle_model(train_arguments *a)
{
    ls_gpt2_options *m = &a->train.model, size = { .layers = 2, .width = 128, .heads = 4 };
    if (a->model && strcmp(a->model, "small") != 0) {
        if (ls_gpt2_preset(a->model, &size)) {
            static const char *const names[] = { "small", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl" };
            near_word near = { .asked = a->model, .length = strlen(a->model) };
            for (size_t i = 0; i < sizeof names / sizeof *names; i++) near_offer(&near, names[i]);
            fprintf(stderr, "lockstep train: --model: %s, or small%s\n", ls_error(), near_text(&near));
            return EXIT_USAGE;
        }
        /* A vocabulary follows from the data, a context from the sequences, unless asked for. */
        size.vocab = size.context = 0;
    } else if (a->train.schedule.lr == 0) {
        a->train.schedule.lr = 0.003f;
    }
    bool reshaped = m->width && m->width != size.width;
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
            "lockstep train: --inject: '%s' is not RANK:PHASE:MS[:EVERY[:FIRST[:HOW]]]; phases are data, forward, "
            "backward and update, and HOW is work or sleep\n",
            text);
    return EXIT_USAGE;
}

int train_arguments_read(train_arguments *a, int argc, char **argv)
{
    raw r = { .schedule = LS_SCHEDULE_COSINE,
              .lr_end = -1,
              .weight_decay = -1,
              .momentum = -1,
              .dropout = -1,
              .clip = -1,
              .workers = -1,
              .last = -1 };
    *a = (train_arguments){ .sample_tokens = 300, .train = { .schedule = { .warmup = -1 } } };
    int code = read_rows(a, &r, argc, argv);
    if (code >= 0) return code;
    ls_train_options *t = &a->train;
    if (t->init &&
        (t->model.layers || t->model.width || t->model.heads || t->model.vocab || t->model.context || a->model)) {
        fprintf(stderr, "lockstep train: --init: the folder says how large the model is; leave out --model, --layers, "
                        "--width, --heads, --vocab-size and --context\n");
        return EXIT_USAGE;
    }
    if (a->run_dir && a->name) {
        fprintf(stderr, "lockstep train: --run-dir names the folder; --name has no use beside it\n");
        return EXIT_USAGE;
    }
    if (t->steps && t->epochs > 0) {
        fprintf(stderr, "lockstep train: --steps and --epochs both say how long; give one\n");
        return EXIT_USAGE;
    }
    if (t->resume && !a->run_dir) {
        fprintf(stderr, "lockstep train: --resume goes on with a run: say which with --run-dir\n");
        return EXIT_USAGE;
    }
    if (a->accumulate && t->slots) {
        fprintf(stderr, "lockstep train: --accumulate counts micro-batches on each rank, --slots over all; give one\n");
        return EXIT_USAGE;
    }
    if (t->stage_limit && !t->stage) {
        fprintf(stderr, "lockstep train: --stage-limit says how much the copies may take: say where with --stage\n");
        return EXIT_USAGE;
    }
    if (!a->data.count && t->stage) {
        fprintf(stderr, "lockstep train: --stage: the built-in corpus is in no file; name files with --data\n");
        return EXIT_USAGE;
    }
    if (r.order == LS_ORDER_BALANCED && !t->padded) {
        fprintf(stderr, "lockstep train: --order balanced: packed sequences are all of one length; it is for --pad\n");
        return EXIT_USAGE;
    }
    if (!t->init && (code = settle_model(a)) >= 0) return code;
    if (!t->length && !t->init) t->length = a->data.count ? 256 : 64;
    if (r.inject && (code = read_inject(r.inject, &t->inject)) >= 0) return code;
    t->optimizer.kind = (ls_optimizer_kind)r.optimizer;
    t->schedule.kind = (ls_schedule_kind)r.schedule;
    /* -1 stands for "not given" here and for "none" in the library, where 0 is the default. */
    t->schedule.lr_end = r.lr_end < 0 ? 0 : r.lr_end == 0 ? -1 : r.lr_end;
    t->optimizer.weight_decay = r.weight_decay < 0 ? 0 : r.weight_decay == 0 ? -1 : r.weight_decay;
    t->optimizer.momentum = r.momentum < 0 ? 0 : r.momentum == 0 ? -1 : r.momentum;
    t->model.dropout = r.dropout < 0 ? 0 : r.dropout == 0 ? -1 : r.dropout;
    t->clip = r.clip < 0 ? 0 : r.clip == 0 ? -1 : r.clip;
    t->workers = r.workers < 0 ? 0 : r.workers == 0 ? -1 : r.workers;
    t->update = (ls_update)r.update;
    t->any_order = r.sum == 1;
    t->bf16 = r.wire == 1;
    t->order = (ls_order)r.order;
    if (r.input < LS_TEXT_FORMAT_COUNT)
        t->text_format = (ls_text_format)r.input;
    else
        t->shard_format = (ls_shard_format)(r.input - LS_TEXT_FORMAT_COUNT + 1);
    t->skip_bad = r.on_bad == 1;
    t->last = (ls_last)(r.last + 1);
    t->bucket_bytes = (size_t)(r.bucket_mb * (1 << 20));
    t->data = (const char *const *)a->data.items;
    t->n_data = a->data.count;
    t->val_data = (const char *const *)a->val_data.items;
    t->n_val_data = a->val_data.count;
    return -1;
}
