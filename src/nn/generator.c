/* Text from a language model: reads tokens, keeps their keys and values, samples the next token.
 *
 * Positions are absolute, so a full context cannot slide: the newer half of the tokens is read again from position 0. The random
 * number that selects a token is a function of the seed and of the number of tokens sampled before. */
#include "nn/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/math.h"
#include "base/random.h"
#include "base/status.h"

struct ls_generator {
    ls_model *model; /* the caller's */
    const ls__lm_type *type;
    ls_tape *tape;
    ls_generator_options options;
    int context, vocab_size;
    int32_t *tokens;  /* [context]: the tokens that were read, oldest first */
    int length;       /* of tokens */
    uint64_t sampled; /* tokens so far */
    ls__arena memory;
    ls_kv_cache *caches; /* [layers] */
    float *logits;       /* (V) */
    float *order;        /* (V): scratch for finding the k-th largest */
    bool ready;          /* logits are valid */
};

static const uint64_t STREAM = (uint64_t)1 << 62; /* not used by weights or dropout */

static ls_status take_memory(ls_generator *g)
{
    const ls_lm_options *o = ls_model_lm(g->model);
    size_t layers = (size_t)o->layers, vocab = (size_t)o->vocab_size;
    size_t row = (size_t)o->context * g->type->cache_width(o);
    size_t bytes = layers * (2 * (row * sizeof(float) + 64) + sizeof *g->caches) +
                   ((size_t)o->context + 2 * vocab) * sizeof(float) + 5 * 64;
    ls_status status = ls__arena_open(&g->memory, bytes);
    if (status) return status;
    g->tokens = ls__arena_take_array(&g->memory, (size_t)o->context, sizeof *g->tokens);
    g->logits = ls__arena_take_array(&g->memory, vocab, sizeof *g->logits);
    g->order = ls__arena_take_array(&g->memory, vocab, sizeof *g->order);
    g->caches = ls__arena_take_array(&g->memory, layers, sizeof *g->caches);
    for (size_t i = 0; i < layers; i++)
        g->caches[i] = (ls_kv_cache){ .k = ls__arena_take_array(&g->memory, row, sizeof(float)),
                                      .v = ls__arena_take_array(&g->memory, row, sizeof(float)),
                                      .capacity = o->context };
    return LS_OK;
}

ls_status ls_generator_open(ls_generator **out, ls_model *model, const ls_generator_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(model, "model");
    const ls_lm_options *o = ls_model_lm(model);
    if (!o) return ls__fail(LS_EINVAL, "generator: '%s' is not a language model", model->type->name);
    if (!ls_model_values(model))
        return ls__fail(LS_ESTATE, "generator: the model has no memory; call ls_model_bind() first");
    ls_generator *g = calloc(1, sizeof *g);
    if (!g) return ls__fail(LS_ENOMEM, "generator: out of memory");
    g->model = model;
    g->type = model->type->lm;
    g->context = o->context;
    g->vocab_size = o->vocab_size;
    g->options = options ? *options : (ls_generator_options){ 0 };
    if (g->options.temperature == 0) g->options.temperature = 1;
    if (g->options.top_k <= 0 || g->options.top_k > g->vocab_size) g->options.top_k = g->vocab_size;
    ls_tape_options tape = { .threads = g->options.threads };
    ls_status status = isfinite(g->options.temperature)
                           ? ls_tape_open(&g->tape, &tape)
                           : ls__fail(LS_EINVAL, "generator: the temperature must be finite");
    if (!status) status = take_memory(g);
    if (status) ls_generator_free(&g);
    *out = g;
    return status;
}

void ls_generator_free(ls_generator **generator)
{
    ls_generator *g = generator ? *generator : NULL;
    if (!g) return;
    ls_tape_free(&g->tape);
    ls__arena_close(&g->memory);
    free(g);
    *generator = NULL;
}

/* Runs tokens [first, length) through the model; with a cache, those before are in it. */
static ls_status run(ls_generator *g, int first)
{
    ls_param *params;
    int n_params = ls_model_params(g->model, &params), count = g->length - first;
    ls_pass pass = { .mode = LS_PASS_EVAL };
    ls_kv_cache *caches = g->options.no_cache ? NULL : g->caches;
    ls_status status = ls_tape_begin(g->tape, params, n_params, &pass);
    if (status) return status;
    ls_tensor *x = g->type->hidden(g->model, g->tape, g->tokens + first, 1, count, caches);
    if (x) {
        int64_t width = x->shape[2];
        x = ls_tape_input(g->tape, x->data + (count - 1) * width, 2, (int64_t[]){ 1, width });
        x = ls__lm_project(g->model, g->tape, x);
    }
    status = ls_tape_status(g->tape);
    if (status) return status;
    memcpy(g->logits, x->data, (size_t)g->vocab_size * sizeof *g->logits);
    g->ready = true;
    return LS_OK;
}

/* Drops the older half of a full context. */
static void make_room(ls_generator *g)
{
    int keep = g->context / 2;
    memmove(g->tokens, g->tokens + g->length - keep, (size_t)keep * sizeof *g->tokens);
    g->length = keep;
    for (int i = 0; i < ls_model_lm(g->model)->layers; i++) g->caches[i].length = 0;
}

ls_status ls_generator_feed(ls_generator *g, const int32_t *tokens, size_t count)
{
    LS__NEED(g, "generator");
    LS__NEED(tokens, "tokens");
    if (!count) return ls__fail(LS_EINVAL, "generator: count must be >= 1");
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= g->vocab_size)
            return ls__fail(LS_EINVAL, "generator: token %d at index %zu is outside of the vocabulary of %d", tokens[i],
                            i, g->vocab_size);
    while (count) {
        int first = g->options.no_cache ? 0 : g->length;
        if (g->length == g->context) {
            make_room(g);
            first = 0;
        }
        size_t room = (size_t)(g->context - g->length), n = count < room ? count : room;
        memcpy(g->tokens + g->length, tokens, n * sizeof *tokens);
        g->length += (int)n;
        tokens += n;
        count -= n;
        ls_status status = run(g, first);
        if (status) return status;
    }
    return LS_OK;
}

const float *ls_generator_logits(const ls_generator *g)
{
    return g->ready ? g->logits : NULL;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The k-th largest logit; smaller ones are excluded. Ties are included. */
static float threshold(ls_generator *g)
{
    if (g->options.top_k == g->vocab_size) return -INFINITY;
    memcpy(g->order, g->logits, (size_t)g->vocab_size * sizeof *g->order);
    qsort(g->order, (size_t)g->vocab_size, sizeof *g->order, descending);
    return g->order[g->options.top_k - 1];
}

static int sample(ls_generator *g)
{
    int best = 0;
    for (int i = 1; i < g->vocab_size; i++)
        if (g->logits[i] > g->logits[best]) best = i;
    if (g->options.temperature < 0) return best;
    float lowest = threshold(g);
    double sum = 0, scale = 1 / (double)g->options.temperature;
    float *weights = g->order;
    for (int i = 0; i < g->vocab_size; i++) {
        double above = (double)g->logits[i] - (double)g->logits[best];
        weights[i] = g->logits[i] >= lowest ? (float)ls__math_exp(above * scale) : 0;
        sum += (double)weights[i];
    }
    double left = (double)ls__random_uniform(g->options.seed, STREAM, g->sampled) * sum;
    for (int i = 0; i < g->vocab_size; i++) {
        left -= (double)weights[i];
        if (left < 0) return i;
    }
    return best; /* possible by rounding */
}

ls_status ls_generator_next(ls_generator *g, int32_t *token)
{
    LS__NEED(g, "generator");
    LS__NEED(token, "token");
    if (!g->ready) return ls__fail(LS_ESTATE, "generator: no prompt yet; call ls_generator_feed() first");
    for (int i = 0; i < g->vocab_size; i++)
        if (!isfinite(g->logits[i]))
            return ls__fail(LS_ENOTFINITE, "generator: the logit of token %d is not finite; the model is corrupt", i);
    *token = sample(g);
    g->sampled++;
    return ls_generator_feed(g, token, 1);
}
