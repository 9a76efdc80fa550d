/* Task classify: the class of a text, or of a pair of texts. Samples are rows of JSON lines, CSV or TSV (data/rows.c). */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "data/rows.h"
#include "nn/model.h"
#include "train/training.h"

enum { ROUND = 16 }; /* lengths are rounded up, for the kernels and so that buffers can be reused */

typedef struct classify {
    char *labels; /* memory of options.labels, if they were found */
} classify;

static void close_task(ls_train *t)
{
    classify *c = t->task_state;
    if (c) free(c->labels);
    free(c);
    t->task_state = NULL;
}

static ls__rows_options rows_of(const ls_train_options *o)
{
    return (ls__rows_options){ .field = o->field,
                               .pair_field = o->pair_field,
                               .label_field = o->label_field,
                               .labels = o->labels,
                               .classes = o->model.classes,
                               .seq_len = (size_t)o->seq_len,
                               .skip_bad = o->on_bad == LS_ON_BAD_SKIP };
}

static int count_names(const char *labels)
{
    int n = 1;
    for (const char *p = labels; *p; p++) n += *p == ',';
    return n;
}

/* The names of the classes: of the options, of the model to start from, or of the data. */
static ls_status find_labels(ls_train *t, classify *c, int *classes)
{
    ls_train_options *o = &t->options;
    ls__rows_options rows = rows_of(o);
    char *names = NULL;
    int found = 0;
    ls_status status = LS_OK;
    if (!o->labels && ls__train_reads_init(t) && *classes) status = ls__hf_labels_read(o->init, &c->labels);
    if (!o->labels && c->labels) o->labels = c->labels;
    if (status || o->labels) return status;
    rows.paths = o->data;
    rows.n_paths = o->n_data;
    if ((status = ls__rows_labels(&rows, &names, &found))) return status;
    c->labels = names;
    o->labels = names;
    if (names && found < 2)
        return ls__fail(LS_EINVAL,
                        "%s: all rows have the label '%.60s'; a classifier needs two classes: name all with labels=A,B",
                        o->data[0], names);
    if (!*classes) *classes = found < 2 ? 2 : found;
    return LS_OK;
}

static ls_status prepare(ls_train *t)
{
    ls_train_options *o = &t->options;
    int asked = o->model.classes;
    if (!o->n_data)
        return ls__fail(LS_EINVAL, "the task classify needs data with labels; the built-in corpus has none");
    if (o->pad || o->prompt_field || o->weight_field || o->data_format || o->chat)
        return ls__fail(LS_EINVAL,
                        "pad, prompt_field, weight_field, chat and data_format are for the tasks lm and mlm");
    ls_status status = ls__task_prepare_text(t);
    if (status) return status;
    int own = o->model.classes, classes = asked ? asked : own;
    classify *c = t->task_state = calloc(1, sizeof *c);
    if (!c) return ls__fail(LS_ENOMEM, "train: out of memory");
    if ((status = find_labels(t, c, &classes))) return status;
    if (o->labels && asked && count_names(o->labels) != asked)
        return ls__fail(LS_EINVAL, "classes=%d, but there are %d labels: %.200s", asked, count_names(o->labels),
                        o->labels);
    if (o->labels) classes = count_names(o->labels);
    if (classes < 2) /* transformers takes a head of one for a regression */
        return ls__fail(LS_EINVAL, "%sclasses=%d: a classifier needs two classes at least",
                        asked || o->labels ? "" : "the model has ", classes);
    if (ls__train_reads_init(t)) t->new_head = own != classes;
    o->model.classes = classes;
    return ls__lm_options_check(&o->model);
}

static ls_status open_data(ls_dataset **out, const char *const *paths, size_t n_paths, const ls_tokenizer *tokenizer,
                           const ls_train_options *o, const ls_hold_out *hold_out)
{
    ls__rows_options rows = rows_of(o);
    (void)hold_out;
    rows.paths = paths;
    rows.n_paths = n_paths;
    rows.tokenizer = tokenizer;
    return ls__rows_open(out, &rows);
}

static ls_status open_model(ls_train *t)
{
    ls_status status = ls__task_open_lm(t);
    return status || !t->options.labels ? status : ls__model_set_labels(t->model, t->options.labels);
}

/* Cuts rows at the end of the longest of the batch, since the rest has no effect. */
static ls_status make_batch(ls_train *t, const ls_batch *b, ls__micro_batch *out)
{
    int32_t *tokens = b->fields[LS__ROWS_TOKENS], *types = b->fields[LS__ROWS_TYPES];
    const int32_t *lengths = b->fields[LS__ROWS_LENGTH];
    size_t from = (size_t)t->options.seq_len, to = (b->longest + ROUND - 1) / ROUND * ROUND;
    *out = (ls__micro_batch){ .weight = (double)b->batch_size, .targets = (int64_t)b->batch_size };
    if (to > from) to = from;
    for (size_t r = 0; r < b->batch_size; r++) {
        out->tokens += lengths[r];
        if (!r || to == from) continue;
        memmove(tokens + r * to, tokens + r * from, to * sizeof *tokens);
        memmove(types + r * to, types + r * from, to * sizeof *types);
    }
    if (b->batch_size)
        out->model = (ls_model_batch){ .batch_size = (int64_t)b->batch_size,
                                       .seq_len = (int64_t)to,
                                       .tokens = tokens,
                                       .types = t->options.model.types > 1 ? types : NULL,
                                       .lengths = lengths,
                                       .targets = b->fields[LS__ROWS_LABEL] };
    return LS_OK;
}

/* ---- Evaluation. For each class: how often it was predicted rightly, predicted, and there. */
enum { RIGHT, PREDICTED, THERE, PER_CLASS };

static size_t n_counts(const ls_train_options *o)
{
    return (size_t)o->model.classes * PER_CLASS;
}

static void count(const ls_train_options *o, const ls__micro_batch *b, const int32_t *predictions, double *counts)
{
    (void)o;
    for (int64_t i = 0; i < b->targets; i++) {
        int32_t target = b->model.targets[i];
        counts[target * PER_CLASS + THERE]++;
        counts[predictions[i] * PER_CLASS + PREDICTED]++;
        if (predictions[i] == target) counts[target * PER_CLASS + RIGHT]++;
    }
}

/* The harmonic mean of precision and recall. */
static double f1(const double *c)
{
    return c[PREDICTED] + c[THERE] > 0 ? 2 * c[RIGHT] / (c[PREDICTED] + c[THERE]) : 0;
}

/* F1 of class 1 if there are two, as GLUE has it; otherwise the mean over all classes. */
static void score(const ls_train_options *o, const double *counts, double *metrics)
{
    double all = 0, right = 0, sum = 0;
    int classes = o->model.classes;
    for (int i = 0; i < classes; i++) {
        all += counts[i * PER_CLASS + THERE];
        right += counts[i * PER_CLASS + RIGHT];
        sum += f1(counts + i * PER_CLASS);
    }
    metrics[0] = all > 0 ? right / all : 0;
    metrics[1] = classes == 2 ? f1(counts + PER_CLASS) : sum / classes;
}

static const ls__scoring scoring = { .n_counts = n_counts, .count = count, .score = score };

extern const ls__task_type ls__task_classify;
const ls__task_type ls__task_classify = {
    .info = { .name = "classify", .model = "bert", .unit = "tokens", .metrics = { "accuracy", "f1" } },
    .sample = "row",
    .encoder = true,
    .eval_all = true,
    .prepare = prepare,
    .open_data = open_data,
    .open_model = open_model,
    .close = close_task,
    .make_batch = make_batch,
    .full_weight = ls__task_step_samples,
    .step_tokens = ls__task_step_tokens,
    .scoring = &scoring,
};
