/* The data of a run: from files to datasets, and loaders over them. */
#include "train/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "data/loader.h"
#include "data/template.h"
#include "data/tokenizer.h"
#include "train/kept.h"

static ls_status check_enough(const ls_train *t)
{
    const ls_train_options *o = &t->options;
    uint64_t needed = (uint64_t)o->batch_size * (uint64_t)o->slots, left = t->parts.train->count;
    if (o->last == LS_LAST_KEEP) needed = 1;
    if (o->last == LS_LAST_DROP && o->order == LS_ORDER_TORCH)
        needed = (uint64_t)o->torch_ranks; /* a short step will do */
    if (left >= needed) return LS_OK;
    if (!t->task->windows)
        return ls__fail(LS_EINVAL,
                        "the data has %llu %s%s to train on; a step needs %llu (%d slot%s of %d): use more data, or a "
                        "smaller batch",
                        (unsigned long long)left, t->task->sample, ls__s((int64_t)left), (unsigned long long)needed,
                        o->slots, ls__s(o->slots), o->batch_size);
    return ls__fail(LS_EINVAL,
                    "the data has %llu %s%s of %d token%s to train on; a step needs %llu (%d slot%s of %d): use "
                    "more data, %sa smaller batch",
                    (unsigned long long)left, o->pad ? "document" : "sequence", ls__s((int64_t)left), o->seq_len,
                    ls__s(o->seq_len), (unsigned long long)needed, o->slots, ls__s(o->slots), o->batch_size,
                    o->pad ? "or " : "shorter sequences or ");
}

static ls_status open_loaders(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_loader_options options = { .workers = o->workers == 0  ? LS_WORKERS_AUTO
                                             : o->workers < 0 ? 0
                                                              : o->workers,
                                  .batch_size = (size_t)o->batch_size,
                                  .slots = o->slots,
                                  .rank = t->parallel.rank,
                                  .world_size = t->parallel.size,
                                  .prefetch = o->prefetch,
                                  .order = o->order,
                                  .torch_world_size = o->torch_ranks,
                                  .seed = o->seed,
                                  .drop_last = o->last != LS_LAST_KEEP,
                                  .drop_step = o->last == LS_LAST_DROP_STEP };
    ls_status status = ls_loader_open(&t->loader, t->parts.train, &options);
    if (status || !t->val_data) return status;
    /* A few batches represent all: always the same ones, spread over the data. */
    ls_loader_options val = { .batch_size = (size_t)o->batch_size, .slots = 1, .seed = o->seed, .epochs = 1 };
    status = ls_loader_open(&t->val_loader, t->val_data, &val);
    if (!status) t->val_start = ls_loader_get_state(t->val_loader);
    return status;
}

/* ---- Staging: files are copied while training reads the originals. */

static void use_copy(void *user, size_t file, const char *path)
{
    ls_dataset *d = user;
    if (d->redirect(d->self, file, path)) ls__log(LS_LOG_WARNING, "%s; the copy is not used", ls_error());
}

/* The same where held-out data are a separate dataset. */
static void use_copy_for_all(void *user, size_t file, const char *path)
{
    const ls_train *t = user;
    use_copy(t->parts.data, file, path);
    if (t->parts.val_documents) use_copy(t->val_data, file, path);
}

static ls_status stage(ls_train *t)
{
    const ls_train_options *o = &t->options;
    if (!o->stage) return LS_OK;
    if (!o->n_data) return ls__fail(LS_EINVAL, "the built-in corpus is not in a file; there is nothing to stage");
    ls_stage_options options = {
        .folder = o->stage, .limit = o->stage_limit, .background = true, .ready = use_copy_for_all, .user = t
    };
    ls_status status = ls_stage_open(&t->stage, o->data, o->n_data, &options);
    if (status || !o->n_val_data) return status;
    options.ready = use_copy;
    options.user = t->val_data;
    return ls_stage_open(&t->val_stage, o->val_data, o->n_val_data, &options);
}

static bool has_file(const char *folder, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n < (int)sizeof path && access(path, R_OK) == 0;
}

/* A model depends on the numbers of its tokens, so its tokenizer must not be replaced by another. */
ls_status ls__check_tokenizer(const ls_tokenizer *tokenizer, const char *name, const char *model, bool has_own,
                              int vocab)
{
    int tokens = (int)ls_tokenizer_vocab_size(tokenizer),
        padding = 128; /* vocabularies are often rounded up to a multiple of this */
    int32_t first;
    if (vocab && tokens > vocab)
        return ls__fail(LS_EINVAL, "%s: the tokenizer has %d tokens, more than the model's vocabulary of %d", name,
                        tokens, vocab);
    if (model && !has_own && (tokens + padding - 1) / padding * padding < vocab)
        return ls__fail(LS_EINVAL,
                        "%s: the model has a vocabulary of %d tokens and no tokenizer, and '%s' has %d tokens: use the "
                        "tokenizer that the model was trained with",
                        model, vocab, name, tokens);
    if (!has_own || name == model) return LS_OK;
    ls_tokenizer *own;
    ls_status status = ls_tokenizer_open(&own, model, NULL);
    if (!status && !ls__tokenizer_is_part(tokenizer, own, &first))
        status = ls__fail(LS_EINVAL,
                          "the model in %s has its own tokenizer, in which token %d differs from '%s': leave out the "
                          "tokenizer, or train a model from scratch",
                          model, first, name);
    ls_tokenizer_free(&own);
    return status;
}

/* A tokenizer without a token that ends a text, but with a template: the template's last token separates documents. */
static void separate_by_template(ls_tokenizer *tokenizer)
{
    ls__template form = ls__template_of(tokenizer, false);
    if (tokenizer->end < 0 && form.count && form.item[form.count - 1].token >= 0)
        tokenizer->end = form.item[form.count - 1].token;
}

ls_status ls__train_open_tokenizer(ls_train *t, int vocab)
{
    const ls_train_options *o = &t->options;
    ls_status status = t->task->windows ? ls__source_is_text(o->data, o->n_data, o, &t->is_text) : LS_OK;
    if (status) return status;
    const char *name = o->tokenizer;
    bool has_own = o->init && (has_file(o->init, "tokenizer.json") || has_file(o->init, "vocab.json") ||
                               has_file(o->init, "vocab.txt"));
    if (!name && has_own) name = o->init;
    if (!name && (t->is_text || !t->task->windows)) name = "bytes";
    if (!name && o->end_token)
        return ls__fail(LS_EINVAL, "the end token '%s' is for text; the data are token shards", o->end_token);
    if (!name) return LS_OK;
    t->tokenizer_name = name;
    ls_tokenizer_options named = { .end_token = o->end_token, .chat_template = o->chat_template };
    if ((status = ls_tokenizer_open(&t->tokenizer, name, &named))) return status;
    if (t->task->encoder) separate_by_template(t->tokenizer);
    if (t->is_text && o->n_data && !o->chat && (status = ls__tokenizer_check_end(t->tokenizer, name))) return status;
    if (!o->n_data && t->tokenizer->bpe)
        return ls__fail(LS_EINVAL, "the built-in corpus consists of bytes; the tokenizer '%s' needs other data", name);
    return ls__check_tokenizer(t->tokenizer, name, o->init, has_own, vocab);
}

static ls_status choose_order(ls_train *t)
{
    ls_train_options *o = &t->options;
    bool torch = o->order == LS_ORDER_TORCH;
    if (o->order == LS_ORDER_BALANCED && !o->pad && t->task->windows)
        return ls__fail(LS_EINVAL, "packed sequences have equal lengths; the balanced order is for padded documents");
    if (o->torch_ranks && !torch) return ls__fail(LS_EINVAL, "torch_ranks is for the torch order only");
    if (torch && !o->torch_ranks) o->torch_ranks = t->parallel.size;
    if (o->torch_ranks < 0 || (o->torch_ranks && o->slots % o->torch_ranks))
        return ls__fail(
            LS_EINVAL,
            "torch_ranks=%d: %d slot%s cannot be divided among %d ranks; slots must be a multiple of the ranks",
            o->torch_ranks, o->slots, ls__s(o->slots), o->torch_ranks);
    if (!o->last) o->last = torch ? LS_LAST_KEEP : LS_LAST_DROP;
    t->uneven = t->task->uneven || o->pad || o->last == LS_LAST_KEEP || (torch && o->last == LS_LAST_DROP);
    return LS_OK;
}

enum { WARMUP = 150 }; /* steps, at least */

/* What depends on the steps of an epoch. */
static ls_status choose_steps(ls_train *t)
{
    ls_train_options *o = &t->options;
    t->epoch_steps = ls_loader_steps(t->loader);
    if (!o->steps && o->epochs > 0) o->steps = (int64_t)ceil(o->epochs * (double)t->epoch_steps);
    if (!o->steps) o->steps = 1000;
    o->schedule.steps = o->steps;
    /* With a shorter warm-up small models overshoot: in the first twenty steps they learn how frequent each token is, all
     * weights move in the same direction, and the loss jumps by several nats. */
    bool given = o->schedule.warmup >= 0, longer = o->schedule.kind != LS_SCHEDULE_CONSTANT && o->steps / 10 > WARMUP;
    t->warmup_found = !given;
    if (!given) o->schedule.warmup = longer ? o->steps / 10 : WARMUP;
    if (given && !ls__train_is_resumed(t) && o->schedule.warmup > o->steps)
        return ls__fail(
            LS_EINVAL,
            "warmup=%lld exceeds steps=%lld: the learning rate would never reach its peak; make the warm-up "
            "shorter, or the run longer",
            (long long)o->schedule.warmup, (long long)o->steps);
    if (!o->eval_batches && t->val_data && t->task->eval_all) {
        uint64_t all = ls_loader_steps(t->val_loader);
        o->eval_batches = all < INT32_MAX ? (int)all : INT32_MAX;
    }
    if (!o->eval_batches) o->eval_batches = 16;
    bool by_default = !o->eval_every && t->val_data;
    if (by_default) o->eval_every = o->steps >= 10 ? o->steps / 10 : 1;
    if (!t->val_data || !ls__train_is_first(t) || ls__train_kept_is_ready(t)) return LS_OK;
    uint64_t count = t->parts.val_documents ? t->parts.val_documents : t->val_data->count;
    const char *what = t->task->windows && (t->parts.val_documents || o->pad) ? "document" : t->task->sample;
    ls__log(LS_LOG_INFO, "validation: %llu %s%s %s, every %lld step%s%s and at the end", (unsigned long long)count,
            what, ls__s((int64_t)count), o->n_val_data ? "of the validation data" : "held out of the data",
            (long long)o->eval_every, ls__s(o->eval_every), by_default ? " (a tenth of the run)" : "");
    return LS_OK;
}

ls_status ls__train_open_data(ls_train *t)
{
    ls_train_options *o = &t->options;
    bool val_is_text = t->is_text;
    ls_status status =
        o->n_val_data && t->task->windows ? ls__source_is_text(o->val_data, o->n_val_data, o, &val_is_text) : LS_OK;
    if (!status && val_is_text != t->is_text)
        status = ls__fail(LS_EINVAL, "%s: training and validation data must both be text or both token shards",
                          o->val_data[0]);
    if (!status) status = choose_order(t);
    if (!status) status = ls__parts_open(&t->parts, o, t->tokenizer, t->is_text);
    t->val_data = t->parts.val;
    if (!status && o->n_val_data)
        status = t->task->open_data(&t->val_data, o->val_data, o->n_val_data, t->tokenizer, o, NULL);
    if (!status) status = check_enough(t);
    if (!status) status = stage(t);
    if (!status) status = open_loaders(t);
    return status ? status : choose_steps(t);
}

void ls__train_close_data(ls_train *t)
{
    ls_loader_free(&t->val_loader);
    ls_loader_free(&t->loader);
    ls_stage_free(&t->val_stage);
    ls_stage_free(&t->stage);
    if (t->val_data != t->parts.val) ls_dataset_free(&t->val_data);
    ls__parts_free(&t->parts);
    ls_tokenizer_free(&t->tokenizer);
}

double ls__token_bytes(const ls_tokenizer *tokenizer, int32_t token)
{
    size_t count = 0;
    if (token == ls_tokenizer_end_token(tokenizer)) return 0;
    ls_tokenizer_token_bytes(tokenizer, token, &count);
    return (double)count;
}

/* Lengths are rounded up, for the kernels and so that buffers can be reused. */
int64_t ls__trim_rows(int64_t rows, int64_t length, size_t longest, int32_t *tokens, int32_t *targets, float *weights)
{
    enum { ROUND = 16 };
    int64_t to = ((int64_t)longest + ROUND - 1) / ROUND * ROUND;
    if (to >= length) return length;
    for (int64_t r = 1; r < rows; r++) {
        memmove(tokens + r * to, tokens + r * length, (size_t)to * sizeof *tokens);
        memmove(targets + r * to, targets + r * length, (size_t)to * sizeof *targets);
        memmove(weights + r * to, weights + r * length, (size_t)to * sizeof *weights);
    }
    return to;
}

ls_status ls__train_load(ls_train *t, ls__micro_batch *out)
{
    ls_batch *b;
    ls_status status = ls_loader_next(t->loader, &b);
    t->validating = false;
    if (!status) status = t->task->make_batch(t, b, out);
    return status;
}

ls_status ls__train_load_slot(ls_train *t, int slot, ls__micro_batch *out)
{
    ls_batch *b;
    ls_status status = ls__loader_get(t->loader, &t->data_at, slot, &b);
    t->validating = false;
    if (!status) status = t->task->make_batch(t, b, out);
    return status;
}

ls_status ls__train_load_val(ls_train *t, bool first, ls__micro_batch *out)
{
    ls_batch *b;
    ls_status status = first ? ls_loader_seek(t->val_loader, &t->val_start) : LS_OK;
    if (!status) status = ls_loader_next(t->val_loader, &b);
    t->validating = true;
    if (!status) status = t->task->make_batch(t, b, out);
    return status;
}
