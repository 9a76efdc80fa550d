/* Task lm: predict each token from those before it. Samples are windows of text or shards, or documents with padding. */
#include "base/status.h"
#include "base/text.h"
#include "nn/model.h"
#include "train/training.h"

ls_status ls__task_prepare_text(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_lm_options sizes = o->model;
    ls_status status = LS_OK;
    if (ls__train_reads_init(t)) {
        if ((status = ls__lm_options_read(o->init, &sizes))) return status;
        if (o->model.dropout != 0) sizes.dropout = o->model.dropout;
        if (o->model.dropout != 0 || o->model.embd_dropout != 0) sizes.embd_dropout = o->model.embd_dropout;
        if (o->model.dropout != 0 || o->model.attn_dropout != 0) sizes.attn_dropout = o->model.attn_dropout;
        if (o->model.dropout != 0 || o->model.head_dropout != 0) sizes.head_dropout = o->model.head_dropout;
    }
    const ls__lm_type *type = ls__lm_type_of(sizes.kind);
    if (type && type->encoder != t->task->encoder)
        return ls__fail(LS_EINVAL, "the task %s needs %s; %s is %s%s", t->task->info.name,
                        t->task->encoder ? "an encoder (bert, distilbert or roberta)" : "a model that generates text",
                        type->model.name, type->encoder ? "an encoder" : "not one",
                        type->encoder ? ", for the tasks mlm and classify" : "");
    if (sizes.dropout < 0) sizes.dropout = 0;
    if (!o->seq_len) o->seq_len = sizes.context && sizes.context < 256 ? sizes.context : 256;
    if (!sizes.context) sizes.context = o->seq_len;
    if (o->seq_len < 1 || o->seq_len > 1 << 26)
        return ls__fail(LS_EINVAL, "seq_len=%d: must be from 1 to %d", o->seq_len, 1 << 26);
    if (o->seq_len > sizes.context)
        return ls__fail(LS_EINVAL, "a sequence length of %d token%s exceeds the model's context of %d", o->seq_len,
                        ls__s(o->seq_len), sizes.context);
    if ((status = ls__train_open_tokenizer(t, sizes.vocab_size))) return status;
    if (!sizes.vocab_size) sizes.vocab_size = t->tokenizer ? (int)ls_tokenizer_vocab_size(t->tokenizer) : 50257;
    if ((status = ls__lm_options_check(&sizes))) return status;
    o->model = sizes;
    return LS_OK;
}

ls_status ls__task_open_lm(ls_train *t)
{
    ls_status status = ls__lm_open(&t->model, &t->options.model);
    if (status) return status;
    ls_model_set_recompute(t->model, t->options.recompute);
    t->flops_per_token = ls__lm_flops_per_token(&t->options.model, t->options.seq_len);
    return LS_OK;
}

double ls__task_step_tokens(const ls_train_options *o)
{
    return (double)o->batch_size * (double)o->seq_len * (double)o->slots;
}

static ls_status make_batch(ls_train *t, const ls_batch *b, ls__micro_batch *out)
{
    int64_t length = t->options.seq_len;
    const float *weights = NULL;
    *out = (ls__micro_batch){ .weight = (double)b->tokens, .tokens = (double)b->tokens };
    if (t->options.pad) {
        length = ls__trim_rows((int64_t)b->batch_size, length, b->longest, b->fields[LS_FIELD_INPUTS],
                               b->fields[LS_FIELD_TARGETS], b->fields[LS_FIELD_WEIGHTS]);
        weights = b->fields[LS_FIELD_WEIGHTS];
        out->weight = 0;
        for (int64_t i = 0; i < (int64_t)b->batch_size * length; i++) out->weight += (double)weights[i];
    }
    out->targets = (int64_t)b->batch_size * length;
    const int32_t *targets = b->fields[LS_FIELD_TARGETS];
    for (int64_t i = 0; i < out->targets && t->validating && t->tokenizer; i++)
        if (!weights || weights[i] > 0)
            out->bytes += (weights ? (double)weights[i] : 1.0) * ls__token_bytes(t->tokenizer, targets[i]);
    if (out->weight > 0)
        out->model = (ls_model_batch){ .batch_size = (int64_t)b->batch_size,
                                       .seq_len = length,
                                       .tokens = b->fields[LS_FIELD_INPUTS],
                                       .targets = b->fields[LS_FIELD_TARGETS],
                                       .weights = weights };
    return LS_OK;
}

extern const ls__task_type ls__task_lm;
const ls__task_type ls__task_lm = {
    .info = { .name = "lm", .model = "small", .unit = "tokens", .metrics = { "bits_per_byte" } },
    .sample = "sequence",
    .windows = true,
    .prepare = ls__task_prepare_text,
    .open_data = ls__source_open,
    .open_model = ls__task_open_lm,
    .make_batch = make_batch,
    .full_weight = ls__task_step_tokens,
    .step_tokens = ls__task_step_tokens,
};
