/* The training's data: files to datasets, a part kept back for evaluation, and loaders over both. */
#include "train/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"

/* Which samples are for training and which for evaluation. */
static ls_status split(ls_train *t)
{
    const ls_train_options *o = &t->options;
    uint64_t samples = t->data->count, kept_back = 0;
    if (o->eval_every > 0 && !t->val_data) {
        kept_back = samples / 20;
        if (!kept_back && samples > 1) kept_back = 1;
        if (!kept_back)
            return ls__fail(LS_EINVAL, "the data is one sequence of %d tokens; there is none to evaluate on",
                            o->length);
    }
    uint64_t needed = (uint64_t)o->rows * (uint64_t)o->slots, left = samples - kept_back;
    if (o->last == LS_LAST_KEEP) needed = 1;
    if (o->last == LS_LAST_DROP && o->order == LS_ORDER_TORCH)
        needed = (uint64_t)o->torch_ranks; /* a short step will do */
    if (left < needed)
        return ls__fail(LS_EINVAL,
                        "the data has %llu %s of %d tokens to train on; a step needs %llu (%d slots of %d): use "
                        "more data, %sa smaller batch",
                        (unsigned long long)left, o->padded ? "documents" : "sequences", o->length,
                        (unsigned long long)needed, o->slots, o->rows, o->padded ? "or " : "shorter sequences or ");
    ls_status status = ls__slice_open(&t->train_part, t->data, 0, left);
    if (!status && kept_back) status = ls__slice_open(&t->val_data, t->data, left, kept_back);
    return status;
}

static ls_status open_loaders(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_loader_options options = { .workers = o->workers == 0  ? LS_WORKERS_AUTO
                                             : o->workers < 0 ? 0
                                                              : o->workers,
                                  .rows = (size_t)o->rows,
                                  .slots = o->slots,
                                  .rank = t->parallel.rank,
                                  .ranks = t->parallel.size,
                                  .prefetch = o->prefetch,
                                  .order = o->order,
                                  .order_ranks = o->torch_ranks,
                                  .seed = o->seed,
                                  .drop_last = o->last != LS_LAST_KEEP,
                                  .drop_step = o->last == LS_LAST_DROP_STEP };
    ls_status status = ls_loader_open(&t->loader, t->train_part, &options);
    if (status || !t->val_data) return status;
    ls_loader_options val = { .rows = (size_t)o->rows, .slots = 1, .order = LS_ORDER_SEQUENTIAL, .epochs = 1 };
    status = ls_loader_open(&t->val_loader, t->val_data, &val);
    if (!status) t->val_start = ls_loader_tell(t->val_loader);
    return status;
}

/* ---- Staging: copies are made while training has begun with the originals. */

static void use_copy(void *user, size_t file, const char *path)
{
    ls_dataset *d = user;
    if (d->redirect(d->self, file, path)) ls__log(LS_LOG_WARNING, "%s; the copy is not used", ls_error());
}

static ls_status stage(ls_train *t)
{
    const ls_train_options *o = &t->options;
    if (!o->stage) return LS_OK;
    if (!o->n_data) return ls__fail(LS_EINVAL, "the built-in corpus is in no file; there is nothing to stage");
    ls_stage_options options = {
        .folder = o->stage, .limit = o->stage_limit, .background = true, .ready = use_copy, .user = t->data
    };
    ls_status status = ls_stage_open(&t->stage, o->data, o->n_data, &options);
    if (status || !o->n_val_data) return status;
    options.user = t->val_data;
    return ls_stage_open(&t->val_stage, o->val_data, o->n_val_data, &options);
}

static bool has_file(const char *folder, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n < (int)sizeof path && access(path, R_OK) == 0;
}

ls_status ls__train_open_tokenizer(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_status status = ls__source_is_text(o->data, o->n_data, &t->is_text);
    if (status) return status;
    const char *name = o->tokenizer;
    if (!name && o->init && (has_file(o->init, "tokenizer.json") || has_file(o->init, "vocab.json"))) name = o->init;
    if (!name && t->is_text) name = "bytes";
    if (!o->n_data && name && strcmp(name, "bytes") != 0)
        return ls__fail(LS_EINVAL, "the built-in corpus is made of bytes; the tokenizer '%s' needs data of its own",
                        name);
    return name ? ls_tokenizer_open(&t->tokenizer, name) : LS_OK;
}

static ls_status settle_order(ls_train *t)
{
    ls_train_options *o = &t->options;
    bool torch = o->order == LS_ORDER_TORCH;
    if (o->order == LS_ORDER_BALANCED && !o->padded)
        return ls__fail(LS_EINVAL,
                        "packed sequences are all of one length; the balanced order is for padded documents");
    if (o->torch_ranks && !torch)
        return ls__fail(LS_EINVAL, "the number of ranks that an order deals to belongs to the torch order only");
    if (o->torch_ranks < 0 || (o->torch_ranks && o->slots % o->torch_ranks))
        return ls__fail(LS_EINVAL, "torch's order cannot deal %d slots to %d ranks; the ranks must divide the slots",
                        o->slots, o->torch_ranks);
    if (torch && !o->torch_ranks) o->torch_ranks = t->parallel.size;
    if (!o->last) o->last = torch ? LS_LAST_KEEP : LS_LAST_DROP;
    t->uneven = o->padded || o->last == LS_LAST_KEEP || (torch && o->last == LS_LAST_DROP);
    return LS_OK;
}

ls_status ls__train_open_data(ls_train *t)
{
    ls_train_options *o = &t->options;
    bool val_is_text = t->is_text;
    ls_status status = o->n_val_data ? ls__source_is_text(o->val_data, o->n_val_data, &val_is_text) : LS_OK;
    if (!status && val_is_text != t->is_text)
        status = ls__fail(LS_EINVAL, "%s: training and validation data are of two kinds, text and token shards",
                          o->val_data[0]);
    if (!status) status = settle_order(t);
    if (!status) status = ls__source_open(&t->data, o->data, o->n_data, t->tokenizer, o);
    if (!status && o->n_val_data) status = ls__source_open(&t->val_data, o->val_data, o->n_val_data, t->tokenizer, o);
    if (!status) status = split(t);
    if (!status) status = stage(t);
    if (!status) status = open_loaders(t);
    if (status) return status;
    t->epoch_steps = ls_loader_steps(t->loader);
    if (!o->steps && o->epochs > 0) o->steps = (int64_t)ceil(o->epochs * (double)t->epoch_steps);
    if (!o->steps) o->steps = 1000;
    o->schedule.steps = o->steps;
    if (o->schedule.warmup < 0) o->schedule.warmup = o->steps / 20;
    return LS_OK;
}

void ls__train_close_data(ls_train *t)
{
    ls_loader_free(&t->val_loader);
    ls_loader_free(&t->loader);
    ls_stage_free(&t->val_stage);
    ls_stage_free(&t->stage);
    ls_dataset_free(&t->train_part);
    ls_dataset_free(&t->val_data);
    ls_dataset_free(&t->data);
    ls_tokenizer_free(&t->tokenizer);
}

/* Padded rows end where the longest of the batch does: the rest would be computed for nothing. Lengths are rounded up,
 * for kernels and for buffers that fit again. */
static int64_t trim(const ls_batch *b, int64_t length)
{
    enum { ROUND = 16 };
    int64_t to = ((int64_t)b->longest + ROUND - 1) / ROUND * ROUND;
    if (to >= length) return length;
    int32_t *tokens = b->fields[LS_FIELD_INPUTS], *targets = b->fields[LS_FIELD_TARGETS];
    float *weights = b->fields[LS_FIELD_WEIGHTS];
    for (int64_t r = 1; r < (int64_t)b->rows; r++) {
        memmove(tokens + r * to, tokens + r * length, (size_t)to * sizeof *tokens);
        memmove(targets + r * to, targets + r * length, (size_t)to * sizeof *targets);
        memmove(weights + r * to, weights + r * length, (size_t)to * sizeof *weights);
    }
    return to;
}

static ls__micro_batch micro_batch(const ls_batch *b, const ls_train_options *o)
{
    ls__micro_batch out = { .weight = (double)b->tokens, .tokens = (double)b->tokens };
    int64_t length = o->length;
    const float *weights = NULL;
    if (o->padded) {
        length = trim(b, length);
        weights = b->fields[LS_FIELD_WEIGHTS];
        out.weight = 0;
        for (int64_t i = 0; i < (int64_t)b->rows * length; i++) out.weight += (double)weights[i];
    }
    if (out.weight > 0)
        out.model = (ls_model_batch){ .rows = (int64_t)b->rows,
                                      .length = length,
                                      .tokens = b->fields[LS_FIELD_INPUTS],
                                      .targets = b->fields[LS_FIELD_TARGETS],
                                      .weights = weights };
    return out;
}

ls_status ls__train_load(ls_train *t, ls__micro_batch *out)
{
    ls_batch *b;
    ls_status status = ls_loader_next(t->loader, &b);
    if (!status) *out = micro_batch(b, &t->options);
    return status;
}

ls_status ls__train_load_val(ls_train *t, bool first, ls__micro_batch *out)
{
    ls_batch *b;
    ls_status status = first ? ls_loader_seek(t->val_loader, &t->val_start) : LS_OK;
    if (!status) status = ls_loader_next(t->val_loader, &b);
    if (!status) *out = micro_batch(b, &t->options);
    return status;
}
