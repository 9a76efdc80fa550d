/* Evaluation of a model: the loss of every token, once.
 *
 * Packed data are one sequence of tokens, cut into windows of the sequence length; each window is an independent context. Every token
 * except the very first is predicted once: what remains after the last full window is one more, shorter window. Batches are the same
 * samples on any number of ranks, rank r computes every size-th, and the losses are added sample by sample in double precision, in
 * order: so the bits do not depend on the number of ranks.
 *
 * Bits per byte: all nats, divided by ln 2 and by the bytes of the predicted tokens' text. The token that ends a document must be
 * predicted, too, but has no bytes. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/launcher.h"
#include "data/tokenizer.h"
#include "nn/model.h"
#include "train/data_files.h"
#include "train/eval.h"
#include "train/hold_out.h"
#include "train/training.h"

/* Sums of one sample. */
typedef struct sums {
    double nats, weight, tokens, bytes;
} sums;
enum { SUMS = sizeof(sums) / sizeof(double) };

typedef struct evaluation {
    const ls_eval_options *o;
    ls_train_saved *run;     /* NULL: the folder has no run.json */
    ls_train_options data;   /* how the data are read */
    ls_tokenizer *tokenizer; /* NULL: none */
    ls_model *model;
    ls_tape *tape;
    int rows, rank, size;
    ls__parts parts;
    ls_dataset *tail; /* the same tokens one by one, for what the last window leaves; NULL: there is nothing */
    ls_dataset *set;  /* what is evaluated: one of the parts */
    uint64_t tail_first, tail_tokens;
    uint64_t samples;
    sums *all; /* [samples + 1] */
    /* a batch: */
    int32_t *tokens, *targets;
    float *weights, *losses;
    uint8_t *mask;
} evaluation;

static bool has_file(const char *folder, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n < (int)sizeof path && access(path, R_OK) == 0;
}

/* ---- What is evaluated, and with what. */

static ls_status choose_data(evaluation *e)
{
    const ls_eval_options *o = e->o;
    ls_train_options *d = &e->data;
    if (e->run) {
        *d = e->run->options;
    } else if (!o->n_data) {
        return ls__fail(LS_EINVAL,
                        "%s: not a run folder, so there is no validation data; give files to evaluate on, data=FILES",
                        o->model);
    }
    if (o->n_data) {
        *d = (ls_train_options){ .data = o->data,
                                 .n_data = o->n_data,
                                 .data_format = o->data_format,
                                 .field = o->field,
                                 .prompt_field = o->prompt_field,
                                 .weight_field = o->weight_field,
                                 .on_bad = o->on_bad,
                                 .pad = o->pad || o->chat,
                                 .chat = o->chat,
                                 .seq_len = d->seq_len };
    } else if (d->n_val_data) {
        d->data = d->val_data;
        d->n_data = d->n_val_data;
        d->n_val_data = 0;
        d->val_fraction = 0;
    } else if (!(d->val_fraction > 0)) {
        return ls__fail(LS_EINVAL,
                        "%s: the run has no validation data and held none out; give files to evaluate on, data=FILES",
                        o->model);
    }
    if (o->seq_len) d->seq_len = o->seq_len;
    return LS_OK;
}

static ls_status open_tokenizer(evaluation *e, bool is_text, int vocab)
{
    const ls_eval_options *o = e->o;
    const char *name = o->tokenizer;
    bool has_own = has_file(o->model, "tokenizer.json") || has_file(o->model, "vocab.json");
    if (!name && has_own) name = o->model;
    if (!name && is_text && vocab <= 257) name = "bytes";
    if (!name && is_text)
        return ls__fail(LS_EINVAL, "%s: the model has no tokenizer; give the one that it was trained with", o->model);
    ls_status status = name ? ls_tokenizer_open(&e->tokenizer, name, NULL) : LS_OK;
    if (status || !name) return status;
    if ((status = ls__check_tokenizer(e->tokenizer, name, o->model, has_own, vocab))) return status;
    if (!e->data.n_data && e->tokenizer->bpe)
        return ls__fail(LS_EINVAL, "the built-in corpus consists of bytes; the tokenizer '%s' needs other data", name);
    return LS_OK;
}

ls_status ls__eval_check_unchanged(const ls_train_saved *run, const ls_train_options *d, const char *model)
{
    json_t *now;
    bool val = !(d->val_fraction > 0);
    ls_status status = ls__data_files_json(d->data, d->n_data, &now);
    if (!status && (status = ls__settings_check_files(run, val, now)))
        status = ls__fail_within(status, "%s: %s; to evaluate on files as they are now, name them", model,
                                 val ? "the run's validation data have changed"
                                     : "the data have changed, so what was held out of them is not known");
    json_decref(now);
    return status;
}

/* Packed data shorter than a sequence are one short sequence. */
static ls_status open_data(evaluation *e, bool is_text)
{
    ls_train_options *d = &e->data;
    ls_status status = ls__parts_open(&e->parts, d, e->tokenizer, is_text);
    if (status != LS_EINVAL || e->o->seq_len || d->pad || !d->n_data) return status;
    int length = d->seq_len;
    ls__parts whole;
    d->seq_len = 1;
    if (ls__parts_open(&whole, d, e->tokenizer, is_text)) { /* it failed for another reason */
        d->seq_len = length;
        return ls__parts_open(&e->parts, d, e->tokenizer, is_text);
    }
    uint64_t count = whole.train->count;
    ls__parts_free(&whole);
    d->seq_len = count < (uint64_t)length ? (int)count : length;
    return ls__parts_open(&e->parts, d, e->tokenizer, is_text);
}

static ls_status open_model(evaluation *e)
{
    const ls_eval_options *o = e->o;
    ls_lm_options sizes;
    ls_train_options *d = &e->data;
    bool is_text;
    ls_status status = ls__lm_options_read(o->model, &sizes);
    if (!status && (o->pair_field || o->label_field || o->image_format))
        status = ls__fail(LS_EINVAL, "pair_field, label_field and image_format are for the tasks classify and images");
    if (!status) status = choose_data(e);
    if (status) return status;
    if (!d->seq_len) d->seq_len = sizes.context < 1024 ? sizes.context : 1024;
    if (d->seq_len > sizes.context)
        return ls__fail(LS_EINVAL, "a sequence length of %d token%s exceeds the model's context of %d", d->seq_len,
                        ls__s(d->seq_len), sizes.context);
    d->model.vocab_size = sizes.vocab_size;
    if ((status = ls__source_is_text(d->data, d->n_data, d, &is_text))) return status;
    if ((status = open_tokenizer(e, is_text, sizes.vocab_size))) return status;
    if (!o->n_data && !e->rank && (status = ls__eval_check_unchanged(e->run, d, o->model))) return status;
    if ((status = open_data(e, is_text))) return status;
    if ((status = ls__lm_open(&e->model, &sizes))) return status;
    if ((status = ls_model_bind(e->model, NULL, NULL, false))) return status;
    if ((status = ls_model_load(e->model, o->model))) return status;
    return ls_tape_open(&e->tape, &(ls_tape_options){ .threads = o->threads > 0 ? o->threads : omp_get_max_threads() });
}

/* Packed tokens are cut into full windows. What remains after the last one is read from the same data with windows of one token. */
static ls_status open_tail(evaluation *e)
{
    ls_train_options one = e->data;
    uint64_t length = (uint64_t)e->data.seq_len;
    ls_hold_out choice = { .fraction = one.val_fraction, .seed = one.seed, .held_out = true };
    bool blocks = e->parts.val && !e->parts.val_documents;
    if (one.pad || blocks) return LS_OK;
    one.seq_len = 1;
    ls_status status =
        ls__source_open(&e->tail, one.data, one.n_data, e->tokenizer, &one, e->parts.val ? &choice : NULL);
    if (status) return status;
    e->tail_first = e->set->count * length;
    e->tail_tokens = e->tail->count - e->tail_first;
    return LS_OK;
}

static ls_status take_memory(evaluation *e)
{
    size_t count = (size_t)e->rows * (size_t)e->data.seq_len;
    e->all = calloc(e->samples + 1, sizeof *e->all);
    e->tokens = calloc(count, sizeof *e->tokens);
    e->targets = calloc(count, sizeof *e->targets);
    e->weights = calloc(count, sizeof *e->weights);
    e->losses = calloc(count, sizeof *e->losses);
    e->mask = calloc(count, 1);
    if (e->all && e->tokens && e->targets && e->weights && e->losses && e->mask) return LS_OK;
    return ls__fail(LS_ENOMEM, "eval: no memory for %zu samples", (size_t)e->samples);
}

static ls_status open_all(evaluation *e)
{
    e->rows = e->o->batch_size > 0 ? e->o->batch_size : 8;
    ls_status status = open_model(e);
    if (status) return status;
    e->set = e->parts.val ? e->parts.val : e->parts.train;
    e->samples = e->set->count;
    status = open_tail(e);
    return status ? status : take_memory(e);
}

static void close_all(evaluation *e)
{
    free(e->all);
    free(e->tokens);
    free(e->targets);
    free(e->weights);
    free(e->losses);
    free(e->mask);
    ls_dataset_free(&e->tail);
    ls__parts_free(&e->parts);
    ls_tape_free(&e->tape);
    ls_model_free(&e->model);
    ls_tokenizer_free(&e->tokenizer);
    ls_train_saved_free(&e->run);
}

/* ---- Batches. */

/* The losses of `rows` rows of `length` tokens, added up for each row. */
static ls_status run_batch(evaluation *e, int64_t rows, int64_t length, sums *out)
{
    ls_param *params;
    int n_params = ls_model_params(e->model, &params);
    ls_model_batch batch = { .batch_size = rows,
                             .seq_len = length,
                             .tokens = e->tokens,
                             .targets = e->targets,
                             .weights = e->data.pad ? e->weights : NULL,
                             .row_losses = e->losses };
    double any = 0;
    for (int64_t i = 0; i < rows * length && e->data.pad; i++) any += (double)e->weights[i];
    if (e->data.pad && !(any > 0)) return LS_OK; /* no token has a weight */
    ls_status status = ls_tape_begin(e->tape, params, n_params, &(ls_pass){ .mode = LS_PASS_EVAL });
    if (status) return status;
    ls_model_loss(e->model, e->tape, &batch);
    if ((status = ls_tape_status(e->tape))) return status;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * length; i < (r + 1) * length; i++) {
            double weight = e->data.pad ? (double)e->weights[i] : 1;
            if (!(weight > 0)) continue;
            out[r].nats += weight * (double)e->losses[i];
            out[r].weight += weight;
            out[r].tokens += 1;
            if (e->tokenizer) out[r].bytes += weight * ls__token_bytes(e->tokenizer, e->targets[i]);
        }
    return LS_OK;
}

static ls_status read_row(const evaluation *e, const ls_dataset *set, void *worker, uint64_t sample, size_t at,
                          size_t *length)
{
    ls_row row = { .fields = { e->tokens + at, e->targets + at, e->weights + at, e->mask + at } };
    ls_status status = set->get(set->self, worker, sample, &row);
    if (row.length > *length) *length = row.length;
    return status;
}

static ls_status run_samples(evaluation *e, void *worker, uint64_t first)
{
    uint64_t rows = e->samples - first < (uint64_t)e->rows ? e->samples - first : (uint64_t)e->rows;
    int64_t length = e->data.seq_len;
    size_t longest = 0;
    for (uint64_t r = 0; r < rows; r++) {
        ls_status status = read_row(e, e->set, worker, first + r, (size_t)(r * (uint64_t)length), &longest);
        if (status) return status;
    }
    if (e->data.pad) length = ls__trim_rows((int64_t)rows, length, longest, e->tokens, e->targets, e->weights);
    return run_batch(e, (int64_t)rows, length, e->all + first);
}

static ls_status run_tail(evaluation *e, void *worker)
{
    size_t longest = 0;
    ls_status status = LS_OK;
    for (uint64_t i = 0; i < e->tail_tokens && !status; i++)
        status = read_row(e, e->tail, worker, e->tail_first + i, i, &longest);
    return status ? status : run_batch(e, 1, (int64_t)e->tail_tokens, e->all + e->samples);
}

/* This rank's batches; the tail is the last one. */
static ls_status run_own(evaluation *e)
{
    void *worker = NULL, *tail_worker = NULL;
    const ls_dataset *set = e->set, *tail = e->tail;
    const ls_eval_options *o = e->o;
    ls_status status = set->worker_open ? set->worker_open(set->self, 0, &worker) : LS_OK;
    uint64_t rows = (uint64_t)e->rows, batches = (e->samples + rows - 1) / rows;
    for (uint64_t b = (uint64_t)e->rank; b < batches && !status; b += (uint64_t)e->size) {
        status = run_samples(e, worker, b * rows);
        if (!status && o->progress && e->rank == 0) o->progress(o->user, b + 1, batches);
    }
    if (!status && e->tail_tokens && batches % (uint64_t)e->size == (uint64_t)e->rank) {
        if (tail->worker_open) status = tail->worker_open(tail->self, 0, &tail_worker);
        if (!status) status = run_tail(e, tail_worker);
        if (tail_worker && tail->worker_free) tail->worker_free(tail->self, tail_worker);
    }
    if (worker && set->worker_free) set->worker_free(set->self, worker);
    return status;
}

static void add_up(const evaluation *e, ls_eval_result *r)
{
    sums total = { 0 };
    for (uint64_t i = 0; i <= e->samples; i++) {
        total.nats += e->all[i].nats;
        total.weight += e->all[i].weight;
        total.tokens += e->all[i].tokens;
        total.bytes += e->all[i].bytes;
    }
    *r = (ls_eval_result){ .loss = total.weight > 0 ? total.nats / total.weight : NAN,
                           .bits_per_byte = total.bytes > 0 ? total.nats / total.bytes / M_LN2 : NAN,
                           .tokens = (uint64_t)total.tokens,
                           .bytes = e->tokenizer ? total.bytes : NAN,
                           .sequences = e->samples + (e->tail_tokens > 0),
                           .documents = e->parts.val_documents,
                           .seq_len = e->data.seq_len,
                           .held_out = e->parts.val != NULL };
    r->perplexity = exp(r->loss);
}

/* That of the run, or what the model in the folder can do. */
static ls_status find_task(const evaluation *e, ls_task *task)
{
    ls_model_options m;
    if (e->run) {
        *task = e->run->options.task;
        return LS_OK;
    }
    ls_status status = ls_model_options_read(e->o->model, &m);
    if (status) return status;
    if (m.kind != LS_MODEL_LM)
        *task = LS_TASK_IMAGES;
    else if (ls__lm_type_of(m.lm.kind)->encoder)
        *task = m.lm.classes ? LS_TASK_CLASSIFY : LS_TASK_MLM;
    return LS_OK;
}

ls_status ls_eval(const ls_eval_options *options, ls_eval_result *result)
{
    LS__NEED(options, "options");
    LS__NEED(options->model, "options.model");
    LS__NEED(result, "result");
    evaluation e = { .o = options, .size = 1 };
    ls_task task = LS_TASK_LM;
    int64_t begin = ls_now();
    *result = (ls_eval_result){ 0 };
    if (options->world) {
        e.rank = ls_world_rank(options->world);
        e.size = ls_world_size(options->world);
    }
    ls_status status = has_file(options->model, "run.json") ? ls_train_saved_open(&e.run, options->model) : LS_OK;
    if (!status) status = find_task(&e, &task);
    if (!status && task != LS_TASK_LM) {
        status = ls__eval_task(options, task, e.run, result);
        result->seconds = (double)(ls_now() - begin) / 1e9;
        ls_train_saved_free(&e.run);
        return status;
    }
    if (!status) status = open_all(&e);
    if (!status) status = run_own(&e);
    /* The other ranks would wait for this one. A failure of the collective itself is theirs, too, and needs no abort. */
    if (status && e.size > 1) ls_group_abort(ls_world_group(options->world), ls_error());
    if (!status && e.size > 1)
        status = ls_allreduce(ls_world_group(options->world), e.all, (e.samples + 1) * SUMS, LS_F64, LS_SUM);
    if (!status) add_up(&e, result);
    if (!status && !(result->tokens > 0))
        status = ls__fail(LS_EINVAL, "%s: no token of the data has a loss", options->model);
    result->seconds = (double)(ls_now() - begin) / 1e9;
    close_all(&e);
    return status;
}
