/* Opening and closing a training: defaults, checks, and the order in which things come to be. Everything that can be
 * wrong with the input is found before the first file is written. */
#include "train/training.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "tensor/blas.h"
#include "train/checkpoint.h"
#include "train/record.h"
#include "train/profile.h"

static ls_status check_count(const char *name, int value, int high)
{
    if (value >= 1 && value <= high) return LS_OK;
    return ls__fail(LS_EINVAL, "%s is %d; it must be from 1 to %d", name, value, high);
}

static ls_status fill_options(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_status status;
    if (!o->rows) o->rows = 8;
    if (!o->slots) o->slots = t->parallel.size;
    if (o->clip == 0) o->clip = 1;
    if (o->clip < 0) o->clip = 0;
    if (!o->eval_batches) o->eval_batches = 16;
    if (o->val_fraction == 0 && o->eval_every > 0 && !o->n_val_data) o->val_fraction = 0.05;
    if (o->val_fraction != 0 && (!(o->val_fraction > 0 && o->val_fraction < 1) || o->n_val_data))
        return ls__fail(LS_EINVAL, "%g of the data cannot be held out for validation; %s", o->val_fraction,
                        o->n_val_data ? "there is validation data already" : "name a share above 0 and below 1");
    if (o->keep <= 0) o->keep = 2;
    if (o->threads <= 0) o->threads = omp_get_max_threads(); /* the launcher gives each rank its share of the cores */
    if (o->schedule.lr == 0) o->schedule.lr = 1e-3f;
    if (o->schedule.lr_end == 0) o->schedule.lr_end = o->schedule.lr / 10;
    if (o->schedule.lr_end < 0) o->schedule.lr_end = 0;
    o->optimizer.threads = o->threads;
    if ((status = check_count("the batch size", o->rows, 1 << 20))) return status;
    if ((status = check_count("the number of slots", o->slots, 1 << 20))) return status;
    if ((status = check_count("the number of threads", o->threads, 1 << 12))) return status;
    if (o->steps < 0 || !(o->epochs >= 0 && o->epochs < 1e9))
        return ls__fail(LS_EINVAL, "%lld steps and %g epochs: neither may be negative", (long long)o->steps, o->epochs);
    if (!(o->schedule.lr > 0 && isfinite(o->schedule.lr)))
        return ls__fail(LS_EINVAL, "the learning rate is %g; it must be above 0", (double)o->schedule.lr);
    if (o->checkpoint_every < 0)
        return ls__fail(LS_EINVAL, "a checkpoint every %lld steps is not possible", (long long)o->checkpoint_every);
    if (o->eval_every < 0 || o->eval_batches < 0 || isnan(o->clip))
        return ls__fail(LS_EINVAL,
                        "evaluation every %lld steps over %d batches, clipping at %g: none may "
                        "be negative",
                        (long long)o->eval_every, o->eval_batches, o->clip);
    return ls_optimizer_options_check(&o->optimizer);
}

/* Settles the model's sizes, by `init` or by the options and the data, and the sequence length. */
static ls_status settle_sizes(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_gpt2_options sizes = o->model;
    ls_status status = LS_OK;
    if (o->init) {
        if ((status = ls_gpt2_options_read(o->init, &sizes))) return status;
        if (o->model.dropout != 0) {
            sizes.dropout = o->model.dropout;
            sizes.embd_dropout = o->model.embd_dropout;
            sizes.attn_dropout = o->model.attn_dropout;
        }
    }
    if (sizes.dropout < 0) sizes.dropout = 0;
    if (!o->length) o->length = sizes.context && sizes.context < 256 ? sizes.context : 256;
    if (!sizes.context) sizes.context = o->length;
    if ((status = check_count("the sequence length", o->length, 1 << 26))) return status;
    if (o->length > sizes.context)
        return ls__fail(LS_EINVAL, "sequences of %d token%s do not fit the model's context of %d", o->length,
                        ls__s(o->length), sizes.context);
    if ((status = ls__train_open_tokenizer(t, sizes.vocab))) return status;
    if (!sizes.vocab) sizes.vocab = t->tokenizer ? (int)ls_tokenizer_vocabulary(t->tokenizer) : 50257;
    if ((status = ls_gpt2_options_check(&sizes))) return status;
    o->model = sizes;
    return LS_OK;
}

/* Multiplications and additions of the matrix products, per token, forward and backward: each weight is used three
 * times; causal attention looks at half of the positions. */
static double count_flops(const ls_gpt2_options *m, int length)
{
    double C = m->width, weights = 12 * C * C * m->layers + C * m->vocab;
    return 6 * weights + 6 * C * length * m->layers;
}

/* Names cannot be facts; a number that stands for them can. 52 bits of it fit a double. */
static double hash_fields(const ls_train_options *o)
{
    const char *const names[] = { o->field ? o->field : "text", o->prompt_field, o->weight_field };
    uint64_t hash = (uint64_t)o->text_format + 1 + ((uint64_t)o->shard_format << 8);
    for (int i = 0; i < 3; i++)
        for (const char *c = names[i] ? names[i] : ""; c; c = *c ? c + 1 : NULL)
            hash = (hash ^ (uint8_t)*c) * UINT64_C(1099511628211);
    return (double)(hash >> 12);
}

int ls__train_facts(const ls_train *t, ls__fact *out)
{
    const ls_train_options *o = &t->options;
    const ls_gpt2_options *m = &o->model;
    const ls__fact list[] = {
        { "layers", m->layers, true },
        { "width", m->width, true },
        { "heads", m->heads, true },
        { "vocabulary", m->vocab, true },
        { "context", m->context, true },
        { "dropout", (double)m->dropout, true },
        { "dropout of embeddings", (double)m->embd_dropout, true },
        { "dropout of attention weights", (double)m->attn_dropout, true },
        { "batch size", o->rows, true },
        { "sequence length", o->length, true },
        { "slots", o->slots, true },
        { "steps", (double)o->steps, o->schedule.kind != LS_SCHEDULE_CONSTANT },
        { "learning rate", (double)o->schedule.lr, true },
        { "final learning rate", (double)o->schedule.lr_end, true },
        { "warm-up", (double)o->schedule.warmup, true },
        { "schedule", o->schedule.kind, true },
        { "clipping", o->clip, true },
        { "bfloat16 gradients", o->bf16, true },
        { "optimiser", o->optimizer.kind, true },
        { "beta1", (double)o->optimizer.beta1, true },
        { "beta2", (double)o->optimizer.beta2, true },
        { "momentum", (double)o->optimizer.momentum, true },
        { "weight decay", (double)o->optimizer.weight_decay, true },
        { "seed", (double)o->seed, true },
        { "order", o->order, true },
        { "ranks of the torch order", o->torch_ranks, true },
        { "what becomes of the last samples", o->last, true },
        { "padding", o->padded, true },
        { "the hash of the names of fields", hash_fields(o), true },
        { "samples of training data", (double)t->train_part->count, true },
        { "the hash of the training data", t->data_hash, true },
        { "share of the data held out", o->val_fraction, true },
        { "evaluation", (double)o->eval_every, false },
        { "kind of update", o->update, false },
        { "checkpoint interval", (double)o->checkpoint_every, false },
        { "going on", o->resume, false },
        { "barriers", o->barriers, false },
    };
    _Static_assert(sizeof list / sizeof *list <= LS__MAX_FACTS, "room for all facts");
    memcpy(out, list, sizeof list);
    return sizeof list / sizeof *list;
}

/* What each rank finds out by itself. */
static ls_status open_own(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_status status;
    if ((status = fill_options(t))) return status;
    if (!o->any_order && (status = ls_slots_check(o->slots, t->parallel.size))) return status;
    if (o->slots % t->parallel.size)
        return ls__fail(LS_EINVAL, "%d slot%s cannot be dealt to %d ranks; the ranks must divide the slots", o->slots,
                        ls__s(o->slots), t->parallel.size);
    if (o->run_dir && !o->resume && ls__train_is_first(t) && (status = ls__run_dir_check(o->run_dir))) return status;
    if ((o->resume || o->checkpoint_every) && !o->run_dir)
        return ls__fail(LS_EINVAL, "checkpoints need a run directory to lie in");
    if ((status = settle_sizes(t))) return status;
    if ((status = ls__train_open_data(t))) return status;
    t->data_hash = ls__train_hash_data(t);
    if ((status = ls_gpt2_open(&t->model, &o->model))) return status;
    t->flops_per_token = count_flops(&o->model, o->length);
    status = ls_tape_open(&t->tape, &(ls_tape_options){ .threads = o->threads });
    return status || !o->profile ? status : ls__profile_open(t);
}

static ls_status open_all(ls_train *t)
{
    ls_status status = ls__parallel_join(t);
    if (!status) status = ls__parallel_agree(t, open_own(t));
    if (!status) status = ls__parallel_compare(t);
    if (!status) status = ls__parallel_open(t);
    if (!status && t->options.resume) status = ls__checkpoint_resume(t);
    if (!status && t->options.run_dir) {
        if (ls__train_is_first(t) && t->options.resume)
            status = ls__run_dir_reopen(&t->run, t->options.run_dir, t);
        else if (ls__train_is_first(t))
            status = ls__run_dir_open(&t->run, t->options.run_dir, t);
        if (!status) status = ls__train_record_open(t);
        status = ls__parallel_agree(t, status);
    }
    return status;
}

ls_status ls_train_open(ls_train **out, const ls_train_options *options)
{
    *out = NULL;
    ls_train *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "training: out of memory");
    t->options = *options;
    t->run.metrics = -1;
    ls_status status = open_all(t);
    if (status) ls_train_free(&t);
    *out = t;
    return status;
}

void ls_train_free(ls_train **train)
{
    ls_train *t = *train;
    if (!t) return;
    ls__checkpoint_close(t);
    ls__train_record_close(t);
    ls__run_dir_close(&t->run);
    ls__profile_close(t);
    ls_tape_free(&t->tape);
    ls_optimizer_free(&t->optimizer);
    ls_model_free(&t->model);
    ls__parallel_close(t);
    ls__train_close_data(t);
    free(t);
    *train = NULL;
}

ls_status ls__train_check_whole(const ls_train *t)
{
    if (ls__parallel_is_whole(t)) return LS_OK;
    return ls__fail(LS_ESTATE,
                    "step %lld was cut off while weights were updated: a part of them is of that step and the rest is "
                    "not; they are not saved",
                    (long long)t->step + 1);
}

ls_status ls_train_save(ls_train *t)
{
    if (!ls__train_is_first(t)) return LS_OK;
    if (!t->run.path) return ls__fail(LS_ESTATE, "this training has no run directory to save to");
    const float *values = ls_model_values(t->model);
    size_t elements = ls_model_elements(t->model), bad = 0;
    for (size_t i = 0; i < elements; i++) bad += isfinite(values[i]) ? 0 : 1;
    ls_status status = ls__train_check_whole(t);
    if (status) return status;
    if (bad)
        return ls__fail(LS_ENOTFINITE, "%s: %zu weights are not finite; the model was not saved", t->run.path, bad);
    status = ls__checkpoint_wait(t);
    if (t->tokenizer) ls_model_set_end(t->model, ls_tokenizer_end(t->tokenizer));
    if (!status && t->tokenizer) status = ls_tokenizer_save(t->tokenizer, t->run.path);
    return status ? status : ls_model_save(t->model, t->run.path);
}

ls_model *ls_train_model(const ls_train *train)
{
    return train->model;
}

const ls_train_options *ls_train_options_of(const ls_train *train)
{
    return &train->options;
}

const ls_tokenizer *ls_train_tokenizer(const ls_train *train)
{
    return train->tokenizer;
}

double ls_train_peak_gflops(ls_train *t)
{
    double gflops = ls__gemm_peak(768, 5, t->options.threads);
    if (gflops > t->peak_gflops) t->peak_gflops = gflops;
    return t->peak_gflops;
}
