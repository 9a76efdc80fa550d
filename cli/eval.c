/* lockstep eval: loss, perplexity and bits per byte of a model on its validation data, or on other data. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/format_choices.h"
#include "cli/last_run.h"
#include "cli/options.h"
#include "cli/start_ranks.h"
#include "comm/launcher.h"
#include "lockstep/train.h"

static const char intro[] = "usage: lockstep eval [RUN] [OPTIONS]\n"
                            "\n"
                            "Evaluates the model in the folder RUN (runs/last): loss (nats per token), perplexity, and "
                            "bits per byte of text; accuracy (and F1) of encoders and of models of pictures. Without "
                            "--data: on the run's validation data, which is its "
                            "--val-data or the part of its data that was held out.\n\n";

typedef struct eval_arguments {
    const char *run, *scores;
    option_list data;
    int ranks, task;
    bool json, quiet;
    ls_eval_options options;
} eval_arguments;

static int read_arguments(eval_arguments *a, int argc, char **argv)
{
    ls_eval_options *o = &a->options;
    static const char *const on_bads[] = { "stop", "skip", NULL }, *const tasks[] = { "auto", "hellaswag", NULL };
#define X(name, value, text) #text,
    static const char *const image_formats[] = { LS_IMAGE_FORMAT_LIST(X) NULL };
#undef X
    int format = 0, on_bad = 0, image_format = 0;
    const option_row rows[] = {
        { OPTION_CHOICE, "--task", &a->task, "TASK", "{}: that of the model, or the choice of endings (auto)", 0, 0,
          tasks },
        { OPTION_LIST, "--data", &a->data, "FILES",
          "files to evaluate on: text, JSON lines, token shards, rows with labels, or pictures", 0, 0, NULL },
        { OPTION_TEXT, "--scores", &a->scores, "FILE", "hellaswag: write the scores of all endings, as JSON lines", 0,
          0, NULL },
        { OPTION_TEXT, "--tokenizer", &o->tokenizer, "NAME", "bytes, tokenizer.json, or a folder (the run's)", 0, 0,
          NULL },
        { OPTION_CHOICE, "--data-format", &format, "FORMAT", "{} (auto: by name and first bytes)", 0, 0,
          format_choices(FORMATS_ALL) },
        { OPTION_CHOICE, "--on-bad", &on_bad, "WHAT", "on an invalid JSON line: {} (stop)", 0, 0, on_bads },
        { OPTION_TEXT, "--field", &o->field, "NAME", "JSON lines: field with the text (text)", 0, 0, NULL },
        { OPTION_TEXT, "--pair-field", &o->pair_field, "NAME", "classify: field with a second text (the run's)", 0, 0,
          NULL },
        { OPTION_TEXT, "--label-field", &o->label_field, "NAME", "classify: field with the label (the run's)", 0, 0,
          NULL },
        { OPTION_CHOICE, "--image-format", &image_format, "FORMAT", "format of pictures: {} (auto)", 0, 0,
          image_formats },
        { OPTION_FLAG, "--pad", &o->pad, NULL, "one document per sequence, truncated or padded (packed)", 0, 0, NULL },
        { OPTION_FLAG, "--chat", &o->chat, NULL, "JSON lines with messages; loss on the assistant's answers", 0, 0,
          NULL },
        { OPTION_TEXT, "--prompt-field", &o->prompt_field, "NAME", "with --pad: field with a prompt, which has no loss",
          0, 0, NULL },
        { OPTION_TEXT, "--weight-field", &o->weight_field, "NAME", "with --pad: field with the weight of the loss (1)",
          0, 0, NULL },
        { OPTION_INT, "--seq-len", &o->seq_len, "N", "sequence length in tokens (the run's, or the context)", 1,
          1 << 26, NULL },
        { OPTION_INT, "--batch-size", &o->batch_size, "N", "micro-batch size (the run's; language models: 8)", 1,
          1 << 20, NULL },
        { OPTION_INT, "-n", &a->ranks, "N", "ranks to start on this machine (1; mpirun: its ranks)", 1, 512, NULL },
        { OPTION_INT, "--threads", &o->threads, "N", "threads per rank (all cores); does not affect results", 1, 4096,
          NULL },
        { OPTION_FLAG, "--json", &a->json, NULL, "print one JSON object", 0, 0, NULL },
        { OPTION_FLAG, "--quiet", &a->quiet, NULL, "do not show progress", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("eval", intro, rows, &a->run, argc, argv);
    if (code >= 0) return code;
    o->data_format = format_chosen(FORMATS_ALL, format);
    o->on_bad = (ls_on_bad)on_bad;
    o->image_format = (ls_image_format)image_format;
    if (!a->data.count && (format || image_format || o->pair_field || o->label_field || on_bad || o->field ||
                           o->prompt_field || o->weight_field || o->pad || o->chat)) {
        fprintf(stderr, "lockstep eval: the run defines how its data are read; these options need --data\n");
        return EXIT_USAGE;
    }
    bool how = format || image_format || o->pair_field || o->label_field || on_bad || o->field || o->prompt_field ||
               o->weight_field || o->pad || o->chat || o->seq_len;
    const char *wrong = a->task && a->data.count != 1 ? "--task hellaswag needs --data with one file"
                        : a->task && how              ? "--task hellaswag: options of how text is read have no effect"
                        : !a->task && a->scores       ? "--scores is for --task hellaswag"
                                                      : NULL;
    if (wrong) {
        fprintf(stderr, "lockstep eval: %s\n", wrong);
        return EXIT_USAGE;
    }
    if (!(a->run = last_run_or(a->run, "eval"))) return EXIT_USAGE;
    o->model = a->run;
    o->data = (const char *const *)a->data.items;
    o->n_data = a->data.count;
    return -1;
}

/* What callbacks need. */
typedef struct watch {
    int64_t begin;
    FILE *scores; /* NULL: they are not written */
} watch;

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    const int64_t *begin = &((const watch *)user)->begin;
    static int64_t shown;
    int64_t now = ls_now();
    if (done < total && now - shown < 100000000) return;
    shown = now;
    double seconds = (double)(now - *begin) * 1e-9, left = seconds / (double)done * (double)(total - done);
    fprintf(stderr, "\rmicro-batch %llu of %llu, %d:%02d left\033[K%s", (unsigned long long)done,
            (unsigned long long)total, (int)left / 60, (int)left % 60, done < total ? "" : "\r\033[K");
}

/* JSON has no NaN: what is not known is null. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* What an evaluation of another task than lm has. */
static json_t *task_json(const eval_arguments *a, const ls_eval_result *r, int ranks)
{
    json_t *root = json_pack("{s:s, s:s, s:b, s:o, s:I, s:i, s:f}", "model", a->run, "task",
                             ls_task_get_info(r->task)->name, "held_out", r->held_out, "loss", number(r->loss),
                             "samples", (json_int_t)r->sequences, "ranks", ranks, "seconds", r->seconds);
    const ls_task_info *info = ls_task_get_info(r->task);
    for (int i = 0; root && info->metrics[i]; i++) json_object_set_new(root, info->metrics[i], number(r->metrics[i]));
    if (root && r->task == LS_TASK_MLM) {
        json_object_set_new(root, "perplexity", number(r->perplexity));
        json_object_set_new(root, "tokens", json_integer((json_int_t)r->tokens));
    }
    if (root && r->seq_len) json_object_set_new(root, "seq_len", json_integer(r->seq_len));
    return root;
}

/* Takes `root`. */
static int print_object(const eval_arguments *a, json_t *root)
{
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) : NULL;
    if (text)
        printf("%s\n", text);
    else
        fprintf(stderr, "lockstep eval: %s: the name is not valid UTF-8, or out of memory\n", printable(a->run));
    free(text);
    json_decref(root);
    return text ? EXIT_DONE : EXIT_FAILED;
}

static int print_json(const eval_arguments *a, const ls_eval_result *r, int ranks)
{
    json_t *root = r->task != LS_TASK_LM ? task_json(a, r, ranks)
                                         : json_pack("{s:s, s:b, s:o, s:o, s:o, s:I, s:o, s:I, s:i, s:i, s:f}", "model",
                                                     a->run, "held_out", r->held_out, "loss", number(r->loss),
                                                     "perplexity", number(r->perplexity), "bits_per_byte",
                                                     number(r->bits_per_byte), "tokens", (json_int_t)r->tokens, "bytes",
                                                     number(r->bytes), "sequences", (json_int_t)r->sequences, "seq_len",
                                                     r->seq_len, "ranks", ranks, "seconds", r->seconds);
    return print_object(a, root);
}
static int print_text(const eval_arguments *a, const ls_eval_result *r)
{
    const char *what = a->data.count ? "the given data"
                       : r->held_out ? "data held out of the run"
                                     : "the run's validation data";
    printf("%s on %s: ", printable(a->run), what);
    if (r->task != LS_TASK_LM) {
        const char *sample = r->task == LS_TASK_IMAGES ? "image" : r->task == LS_TASK_MLM ? "sequence" : "row";
        printf("%llu %s%s", (unsigned long long)r->sequences, sample, ls__s((int64_t)r->sequences));
        if (r->task == LS_TASK_MLM)
            printf(", %llu masked token%s", (unsigned long long)r->tokens, ls__s((int64_t)r->tokens));
        printf("\nloss           %.6f nats\n", r->loss);
        if (r->task == LS_TASK_MLM) printf("perplexity     %.6g\n", r->perplexity);
        const ls_task_info *info = ls_task_get_info(r->task);
        for (int i = 0; info->metrics[i]; i++) printf("%-14s %.6f\n", info->metrics[i], r->metrics[i]);
        return EXIT_DONE;
    }
    if (r->documents) printf("%llu document%s, ", (unsigned long long)r->documents, ls__s((int64_t)r->documents));
    printf("%llu token%s in sequences of %d", (unsigned long long)r->tokens, ls__s((int64_t)r->tokens), r->seq_len);
    if (isfinite(r->bits_per_byte)) printf(", %.0f byte%s", r->bytes, ls__s((int64_t)r->bytes));
    printf("\nloss           %.6f nats per token\nperplexity     %.6g\n", r->loss, r->perplexity);
    if (isfinite(r->bits_per_byte))
        printf("bits per byte  %.6f\n", r->bits_per_byte);
    else
        printf("bits per byte  unknown: %s\n",
               r->bytes == 0 ? "the predicted tokens have no bytes" : "no tokenizer; set one with --tokenizer");
    return EXIT_DONE;
}

/* ---- Multiple choice. */

static void write_scores(void *user, uint64_t question, const double *scores, int endings, int right)
{
    FILE *to = ((const watch *)user)->scores;
    if (!to) return;
    fprintf(to, "{\"question\": %llu, \"label\": %d, \"scores\": [", (unsigned long long)question, right);
    for (int i = 0; i < endings; i++) fprintf(to, "%s%.9g", i ? ", " : "", scores[i]);
    fputs("]}\n", to);
}

static int print_choices(const eval_arguments *a, const ls_choices_result *r, int ranks)
{
    if (a->json) {
        json_t *root = json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:i, s:f}", "model", a->run, "task", "hellaswag",
                                 "questions", (json_int_t)r->questions, "acc", number(r->accuracy), "acc_stderr",
                                 number(r->accuracy_error), "acc_norm", number(r->accuracy_norm), "acc_norm_stderr",
                                 number(r->accuracy_norm_error), "ranks", ranks, "seconds", r->seconds);
        return print_object(a, root);
    }
    printf("%s on %s: %llu question%s\n", printable(a->run), printable(a->data.items[0]),
           (unsigned long long)r->questions, ls__s((int64_t)r->questions));
    printf("accuracy       %.4f \u00b1 %.4f\naccuracy norm  %.4f \u00b1 %.4f (log-probability per %s)\n", r->accuracy,
           r->accuracy_error, r->accuracy_norm, r->accuracy_norm_error, r->per_token ? "token" : "character");
    return EXIT_DONE;
}

static ls_status run_choices(const eval_arguments *a, watch *w, bool first, ls_choices_result *result)
{
    const ls_eval_options *o = &a->options;
    ls_choices_options c = { .model = o->model,
                             .world = o->world,
                             .data = a->data.items[0],
                             .tokenizer = o->tokenizer,
                             .batch_size = o->batch_size,
                             .threads = o->threads,
                             .progress = o->progress,
                             .each = write_scores,
                             .user = w };
    if (first && a->scores && !(w->scores = fopen(a->scores, "w")))
        return ls__fail_errno("%s: cannot be written", a->scores);
    ls_status status = ls_eval_choices(&c, result);
    if (w->scores && fclose(w->scores) && !status) status = ls__fail_errno("%s: cannot be written", a->scores);
    return status;
}

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int eval_command(int argc, char **argv)
{
    eval_arguments a = { 0 };
    ls__launch_info identity;
    ls_world *world = NULL;
    ls_eval_result result;
    ls_choices_result choices;
    watch w = { .begin = ls_now() };
    int code = read_arguments(&a, argc, argv);
    if (code >= 0) return code;
    ls_status status = ls__launch_info_read(&identity, from_environment, NULL);
    if (!status && identity.launcher == LS__LAUNCHER_NONE && a.ranks > 1) return start_ranks(a.ranks, 0, argc, argv);
    if (!status && identity.launcher != LS__LAUNCHER_NONE) status = ls_world_open(&world, NULL);
    if (status) return exit_failure("eval", status);
    int ranks = world ? ls_world_size(world) : 1;
    bool first = !world || ls_world_rank(world) == 0;
    if (a.ranks && a.ranks != ranks) {
        if (first) fprintf(stderr, "lockstep eval: -n %d, but the launcher started %d; leave out -n\n", a.ranks, ranks);
        code = EXIT_USAGE;
    } else {
        a.options.world = world;
        if (first && !a.quiet && isatty(STDERR_FILENO)) a.options.progress = show_progress;
        a.options.user = &w;
        status = a.task ? run_choices(&a, &w, first, &choices) : ls_eval(&a.options, &result);
        if (status && first)
            code = exit_failure("eval", status);
        else if (status)
            code = exit_code(status);
        else
            code = !first   ? EXIT_DONE
                   : a.task ? print_choices(&a, &choices, ranks)
                   : a.json ? print_json(&a, &result, ranks)
                            : print_text(&a, &result);
    }
    ls_world_free(&world);
    return code;
}
