/* Task mlm: predict tokens that were masked, as BERT was trained. A sequence is the template's special tokens around a window of
 * text, or around a document with padding. Of the tokens of the text a fraction is chosen (15 %); of these 80 % become the mask
 * token, 10 % a random token, and 10 % stay. Which ones depends on seed, epoch, sample and position alone, so they are the same on
 * any number of ranks, new in every epoch, and the same in every evaluation. */
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "data/template.h"
#include "nn/model.h"
#include "train/training.h"

#define STREAM_MASK (UINT64_C(5) << 56) /* plus the epoch; see hold_out.c */

enum { ROUND = 16 }; /* lengths are rounded up, for the kernels and so that buffers can be reused */

/* The arrays of a micro-batch, (batch_size, seq_len). */
typedef struct mlm {
    ls__template form;
    int32_t mask, end, tokens_in_all;
    int32_t *tokens, *types, *targets, *lengths; /* lengths: (batch_size) */
    float *weights;
} mlm;

static void close_task(ls_train *t)
{
    mlm *m = t->task_state;
    if (!m) return;
    free(m->tokens);
    free(m->types);
    free(m->targets);
    free(m->lengths);
    free(m->weights);
    free(m);
    t->task_state = NULL;
}

static ls_status find_tokens(const ls_train *t, mlm *m)
{
    const ls_train_options *o = &t->options;
    m->mask = ls__tokenizer_find(t->tokenizer, "[MASK]");
    if (m->mask < 0) m->mask = ls__tokenizer_find(t->tokenizer, "<mask>");
    if (m->mask < 0)
        return ls__fail(LS_EINVAL,
                        "%s: the tokenizer has no mask token ([MASK] or <mask>), which the task mlm needs; "
                        "use the tokenizer of an encoder",
                        t->tokenizer_name);
    m->form = ls__template_of(t->tokenizer, false);
    m->end = ls_tokenizer_end_token(t->tokenizer);
    m->tokens_in_all = (int32_t)ls_tokenizer_vocab_size(t->tokenizer);
    int added = ls__template_tokens(&m->form);
    if (o->seq_len <= added)
        return ls__fail(LS_EINVAL,
                        "a sequence length of %d token%s: the tokenizer adds %d special tokens; it must be longer",
                        o->seq_len, ls__s(o->seq_len), added);
    return LS_OK;
}

static ls_status prepare(ls_train *t)
{
    ls_train_options *o = &t->options;
    if (o->prompt_field || o->weight_field || o->chat)
        return ls__fail(LS_EINVAL, "prompt_field, weight_field and chat are for the task lm");
    if (o->mask_fraction == 0) o->mask_fraction = 0.15;
    if (!(o->mask_fraction > 0 && o->mask_fraction < 1))
        return ls__fail(LS_EINVAL, "mask_fraction=%g: must be above 0 and below 1", o->mask_fraction);
    ls_status status = ls__task_prepare_text(t);
    if (status) return status;
    o->model.classes = 0;
    t->new_head = ls__train_reads_init(t); /* a folder may have a classifier, or no head */
    if (!t->tokenizer) return ls__fail(LS_EINVAL, "the task mlm is for text; the data are token shards");
    mlm *m = t->task_state = calloc(1, sizeof *m);
    size_t rows = (size_t)o->batch_size, all = rows * (size_t)o->seq_len;
    if (m && (status = find_tokens(t, m))) return status;
    if (!m || !(m->tokens = calloc(all, sizeof *m->tokens)) || !(m->types = calloc(all, sizeof *m->types)) ||
        !(m->targets = calloc(all, sizeof *m->targets)) || !(m->lengths = calloc(rows, sizeof *m->lengths)) ||
        !(m->weights = calloc(all, sizeof *m->weights)))
        return ls__fail(LS_ENOMEM, "train: out of memory");
    return LS_OK;
}

/* Windows leave room for the special tokens. */
static ls_status open_data(ls_dataset **out, const char *const *paths, size_t n_paths, const ls_tokenizer *tokenizer,
                           const ls_train_options *o, const ls_hold_out *hold_out)
{
    ls_train_options shorter = *o;
    ls__template form = ls__template_of(tokenizer, false);
    *out = NULL;
    if (!n_paths) return ls__fail(LS_EINVAL, "the task mlm needs data; the built-in corpus is for the task lm");
    shorter.seq_len -= ls__template_tokens(&form);
    return ls__source_open(out, paths, n_paths, tokenizer, &shorter, hold_out);
}

/* Masks one row of `n` tokens; returns how many have a loss. */
static int mask_row(const mlm *m, const ls_train_options *o, uint64_t epoch, uint64_t sample, size_t n, int32_t *tokens,
                    int32_t *targets, float *weights)
{
    int chosen = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = 2 * (sample * (uint64_t)o->seq_len + i);
        uint64_t a = ls__random_u64(o->seed, STREAM_MASK + epoch, at);
        targets[i] = tokens[i];
        weights[i] = 0;
        bool special = tokens[i] == m->end || tokens[i] == m->mask;
        for (int k = 0; k < m->form.count; k++) special = special || tokens[i] == m->form.item[k].token;
        if (special || (double)(a >> 32) >= o->mask_fraction * 0x1p32) continue;
        uint32_t what = (uint32_t)a % 10;
        weights[i] = 1;
        chosen++;
        if (what < 8)
            tokens[i] = m->mask;
        else if (what == 8)
            tokens[i] = (int32_t)(ls__random_u64(o->seed, STREAM_MASK + epoch, at + 1) % (uint64_t)m->tokens_in_all);
    }
    return chosen;
}

static size_t text_length(const ls_train *t, const ls_batch *b, size_t r, size_t window)
{
    const uint8_t *mask = b->fields[LS_FIELD_MASK];
    size_t n = 0;
    if (!t->options.pad) return window;
    while (n < window && mask[r * window + n]) n++;
    return n;
}

static ls_status make_batch(ls_train *t, const ls_batch *b, ls__micro_batch *out)
{
    const ls_train_options *o = &t->options;
    mlm *m = t->task_state;
    size_t added = (size_t)ls__template_tokens(&m->form), window = (size_t)o->seq_len - added, length = window + added;
    int chosen = 0;
    *out = (ls__micro_batch){ 0 };
    if (o->pad) length = (b->longest + added + ROUND - 1) / ROUND * ROUND;
    if (length > (size_t)o->seq_len) length = (size_t)o->seq_len;
    for (size_t r = 0; r < b->batch_size; r++) {
        const int32_t *text = (const int32_t *)b->fields[LS_FIELD_INPUTS] + r * window;
        int32_t *tokens = m->tokens + r * length, *types = m->types + r * length, *targets = m->targets + r * length;
        float *weights = m->weights + r * length;
        size_t n = ls__template_fill(&m->form, text, text_length(t, b, r, window), NULL, 0, tokens, types);
        chosen += mask_row(m, o, b->epoch, b->samples[r], n, tokens, targets, weights);
        for (size_t i = n; i < length; i++) {
            tokens[i] = types[i] = targets[i] = 0;
            weights[i] = 0;
        }
        m->lengths[r] = (int32_t)(n ? n : 1);
        out->tokens += (double)n;
    }
    out->weight = chosen;
    out->targets = (int64_t)(b->batch_size * length);
    if (chosen)
        out->model = (ls_model_batch){ .batch_size = (int64_t)b->batch_size,
                                       .seq_len = (int64_t)length,
                                       .tokens = m->tokens,
                                       .types = t->options.model.types > 1 ? m->types : NULL,
                                       .lengths = o->pad ? m->lengths : NULL,
                                       .targets = m->targets,
                                       .weights = m->weights };
    return LS_OK;
}

static double full_weight(const ls_train_options *o)
{
    return o->mask_fraction * ls__task_step_tokens(o);
}

extern const ls__task_type ls__task_mlm;
const ls__task_type ls__task_mlm = {
    .info = { .name = "mlm", .model = "bert", .unit = "tokens", .metrics = { "accuracy" } },
    .sample = "sequence",
    .windows = true,
    .uneven = true,
    .encoder = true,
    .prepare = prepare,
    .open_data = open_data,
    .open_model = ls__task_open_lm,
    .close = close_task,
    .make_batch = make_batch,
    .full_weight = full_weight,
    .step_tokens = ls__task_step_tokens,
    .scoring = &ls__accuracy,
};
