/* Text from a language model: reads tokens, keeps their keys and values, samples the next token.
 *
 * Several sequences may be generated side by side: each has its own tokens and caches, and one pass computes the next token of all.
 * A row of a matrix product does not depend on the others, so the text is that of each sequence alone.
 *
 * A full context cannot slide, because positions are absolute (or keys are rotated by them): the newer half of the tokens is read
 * again from position 0. The random number that selects a token is a function of the seed, the sequence and the number of tokens sampled
 * before. */
#include "nn/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/math.h"
#include "base/random.h"
#include "base/status.h"

/* One sequence. */
typedef struct sequence {
    int32_t *tokens;     /* [context]: the tokens that were read, oldest first */
    int length;          /* of tokens */
    uint64_t sampled;    /* tokens so far */
    ls_kv_cache *caches; /* [layers] */
    float *logits;       /* (V) */
    bool ready;          /* logits are valid */
} sequence;

struct ls_generator {
    ls_model *model; /* the caller's */
    const ls__lm_type *type;
    ls_tape *tape;
    ls_generator_options options;
    int context, vocab_size, layers;
    ls__arena memory;
    sequence *sequences;  /* [options.sequences] */
    float *scores;        /* (V): logits after the penalty */
    float *weights;       /* (V): relative to the largest */
    float *order;         /* (V): scratch for sorting */
    uint8_t *seen;        /* (V) */
    ls_kv_cache *caches;  /* [layers][sequences]: those of a pass */
    int32_t *pass_tokens; /* [sequences] */
    int *which;           /* [sequences]: those of a pass */
};

static const uint64_t STREAM = (uint64_t)1 << 62; /* not used by weights or dropout */

static ls_status take_memory(ls_generator *g)
{
    const ls_lm_options *o = &g->model->lm;
    size_t layers = (size_t)o->layers, vocab = (size_t)o->vocab_size, context = (size_t)o->context;
    size_t n = (size_t)g->options.sequences, row, rows, bytes;
    if (__builtin_mul_overflow(context, g->type->cache_width(o) * sizeof(float), &row) ||
        __builtin_mul_overflow(2 * n * layers, row + 64 + sizeof(ls_kv_cache), &rows) ||
        __builtin_add_overflow(rows, n * ((context + vocab) * sizeof(float) + 512) + 16 * vocab + 1024, &bytes))
        return ls__fail(LS_ENOMEM, "generator: %zu caches of %zu tokens are too large", n, context);
    ls_status status = ls__arena_open(&g->memory, bytes);
    if (status) return status;
    g->sequences = ls__arena_take_array(&g->memory, n, sizeof *g->sequences);
    g->scores = ls__arena_take_array(&g->memory, vocab, sizeof *g->scores);
    g->weights = ls__arena_take_array(&g->memory, vocab, sizeof *g->weights);
    g->order = ls__arena_take_array(&g->memory, vocab, sizeof *g->order);
    g->seen = ls__arena_take_array(&g->memory, vocab, sizeof *g->seen);
    g->caches = ls__arena_take_array(&g->memory, n * layers, sizeof *g->caches);
    g->pass_tokens = ls__arena_take_array(&g->memory, n, sizeof *g->pass_tokens);
    g->which = ls__arena_take_array(&g->memory, n, sizeof *g->which);
    for (size_t s = 0; s < n; s++) {
        sequence *q = &g->sequences[s];
        q->tokens = ls__arena_take_array(&g->memory, context, sizeof *q->tokens);
        q->logits = ls__arena_take_array(&g->memory, vocab, sizeof *q->logits);
        q->caches = ls__arena_take_array(&g->memory, layers, sizeof *q->caches);
        for (size_t i = 0; i < layers; i++)
            q->caches[i] = (ls_kv_cache){ .k = ls__arena_take(&g->memory, row),
                                          .v = ls__arena_take(&g->memory, row),
                                          .capacity = o->context };
    }
    return LS_OK;
}

static ls_status check_options(const ls_generator_options *o)
{
    if (!isfinite(o->temperature)) return ls__fail(LS_EINVAL, "generator: the temperature must be finite");
    if (!(o->top_p >= 0 && o->top_p <= 1) || !(o->min_p >= 0 && o->min_p <= 1))
        return ls__fail(LS_EINVAL, "generator: top_p is %g and min_p %g; both must be from 0 to 1", (double)o->top_p,
                        (double)o->min_p);
    if (!(o->repetition_penalty > 0 && o->repetition_penalty <= 1e6f))
        return ls__fail(LS_EINVAL, "generator: repetition_penalty is %g; it must be above 0",
                        (double)o->repetition_penalty);
    if (o->sequences < 1 || o->sequences > 4096)
        return ls__fail(LS_EINVAL, "generator: %d sequences; 1 to 4096 are possible", o->sequences);
    return LS_OK;
}

ls_status ls_generator_open(ls_generator **out, ls_model *model, const ls_generator_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(model, "model");
    const ls_lm_options *o = &model->lm;
    if (!model->type->lm) return ls__fail(LS_EINVAL, "generator: '%s' is not a language model", model->type->name);
    if (model->type->lm->encoder)
        return ls__fail(LS_EUNSUPPORTED, "generator: %s is an encoder, which does not generate text",
                        model->type->name);
    if (!ls_model_values(model))
        return ls__fail(LS_ESTATE, "generator: the model has no memory; call ls_model_bind() first");
    ls_generator *g = calloc(1, sizeof *g);
    if (!g) return ls__fail(LS_ENOMEM, "generator: out of memory");
    g->model = model;
    g->type = model->type->lm;
    g->context = o->context;
    g->vocab_size = o->vocab_size;
    g->layers = o->layers;
    g->options = options ? *options : (ls_generator_options){ 0 };
    if (g->options.temperature == 0) g->options.temperature = 1;
    if (g->options.top_k <= 0 || g->options.top_k > g->vocab_size) g->options.top_k = g->vocab_size;
    if (g->options.repetition_penalty == 0) g->options.repetition_penalty = 1;
    if (!g->options.sequences) g->options.sequences = 1;
    ls_tape_options tape = { .threads = g->options.threads };
    ls_status status = check_options(&g->options);
    if (!status) status = ls_tape_open(&g->tape, &tape);
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

/* ---- Reading */

/* Runs T tokens of each of the n sequences in `which` through the model. With caches, the tokens before are there. */
static ls_status run(ls_generator *g, const int32_t *tokens, int n, int T, bool cached)
{
    ls_param *params;
    int n_params = ls_model_params(g->model, &params);
    ls_status status = ls_tape_begin(g->tape, params, n_params, &(ls_pass){ .mode = LS_PASS_EVAL });
    if (status) return status;
    for (int i = 0; i < g->layers * n && cached; i++) g->caches[i] = g->sequences[g->which[i % n]].caches[i / n];
    ls_tensor *x = g->type->hidden(g->model, g->tape, tokens, n, T, cached ? g->caches : NULL);
    for (int i = 0; i < g->layers * n && cached; i++) g->sequences[g->which[i % n]].caches[i / n] = g->caches[i];
    if (x && T > 1) { /* the last row of the one sequence */
        int64_t width = x->shape[2];
        x = ls_tape_input(g->tape, x->data + (T - 1) * width, 2, (int64_t[]){ 1, width });
    }
    x = x ? ls__lm_project(g->model, g->tape, x) : NULL;
    status = ls_tape_status(g->tape);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        sequence *q = &g->sequences[g->which[i]];
        memcpy(q->logits, x->data + (size_t)i * (size_t)g->vocab_size, (size_t)g->vocab_size * sizeof *q->logits);
        q->ready = true;
    }
    return LS_OK;
}

/* Drops the older half of a full context. */
static void make_room(ls_generator *g, sequence *q)
{
    int keep = g->context / 2;
    memmove(q->tokens, q->tokens + q->length - keep, (size_t)keep * sizeof *q->tokens);
    q->length = keep;
    for (int i = 0; i < g->layers; i++) q->caches[i].length = 0;
}

static ls_status check_index(const ls_generator *g, int index)
{
    if (index >= 0 && index < g->options.sequences) return LS_OK;
    return ls__fail(LS_EINVAL, "generator: sequence %d of %d", index, g->options.sequences);
}

ls_status ls_generator_feed(ls_generator *g, int index, const int32_t *tokens, size_t count)
{
    LS__NEED(g, "generator");
    LS__NEED(tokens, "tokens");
    ls_status status = check_index(g, index);
    if (status) return status;
    if (!count) return ls__fail(LS_EINVAL, "generator: count must be >= 1");
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= g->vocab_size)
            return ls__fail(LS_EINVAL, "generator: token %d at index %zu is outside of the vocabulary of %d", tokens[i],
                            i, g->vocab_size);
    sequence *q = &g->sequences[index];
    while (count) {
        int first = g->options.no_cache ? 0 : q->length;
        if (q->length == g->context) {
            make_room(g, q);
            first = 0;
        }
        size_t room = (size_t)(g->context - q->length), n = count < room ? count : room;
        memcpy(q->tokens + q->length, tokens, n * sizeof *tokens);
        q->length += (int)n;
        tokens += n;
        count -= n;
        g->which[0] = index;
        status = run(g, q->tokens + first, 1, q->length - first, !g->options.no_cache);
        if (status) return status;
    }
    return LS_OK;
}

ls_status ls_generator_rewind(ls_generator *g, int index, size_t length)
{
    LS__NEED(g, "generator");
    ls_status status = check_index(g, index);
    if (status) return status;
    sequence *q = &g->sequences[index];
    if (length > (size_t)q->length)
        return ls__fail(LS_EINVAL, "generator: sequence %d has %d tokens; it cannot go back to %zu", index, q->length,
                        length);
    q->length = (int)length;
    q->ready = false;
    for (int i = 0; i < g->layers && !g->options.no_cache; i++) q->caches[i].length = q->length;
    return LS_OK;
}

const float *ls_generator_logits(const ls_generator *g, int index)
{
    return check_index(g, index) || !g->sequences[index].ready ? NULL : g->sequences[index].logits;
}

/* ---- Sampling */

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void sort(ls_generator *g, const float *from)
{
    memcpy(g->order, from, (size_t)g->vocab_size * sizeof *g->order);
    qsort(g->order, (size_t)g->vocab_size, sizeof *g->order, descending);
}

/* The k-th largest score; smaller ones are excluded. Ties are included. */
static float lowest_score(ls_generator *g)
{
    if (g->options.top_k == g->vocab_size) return -INFINITY;
    sort(g, g->scores);
    return g->order[g->options.top_k - 1];
}

/* The lowest weight among the largest ones that together are the share top_p of all. */
static float lowest_weight(ls_generator *g, double sum)
{
    float lowest = g->options.min_p; /* the largest weight is 1 */
    if (g->options.top_p <= 0 || g->options.top_p >= 1) return lowest;
    double wanted = (double)g->options.top_p * sum, got = 0;
    sort(g, g->weights);
    int i = 0;
    while (i < g->vocab_size && (got += (double)g->order[i]) < wanted) i++;
    if (i == g->vocab_size) i--; /* possible by rounding */
    return g->order[i] > lowest ? g->order[i] : lowest;
}

static void score(ls_generator *g, const sequence *q)
{
    float penalty = g->options.repetition_penalty;
    memcpy(g->scores, q->logits, (size_t)g->vocab_size * sizeof *g->scores);
    if (penalty == 1) return;
    memset(g->seen, 0, (size_t)g->vocab_size);
    for (int i = 0; i < q->length; i++) {
        float *x = &g->scores[q->tokens[i]];
        if (!g->seen[q->tokens[i]]) *x = *x < 0 ? *x * penalty : *x / penalty;
        g->seen[q->tokens[i]] = 1;
    }
}

static int sample(ls_generator *g, int index)
{
    const sequence *q = &g->sequences[index];
    int best = 0, V = g->vocab_size;
    score(g, q);
    for (int i = 1; i < V; i++)
        if (g->scores[i] > g->scores[best]) best = i;
    if (g->options.temperature < 0) return best;
    float lowest = lowest_score(g);
    double sum = 0, scale = 1 / (double)g->options.temperature;
    for (int i = 0; i < V; i++) {
        double above = (double)g->scores[i] - (double)g->scores[best];
        g->weights[i] = g->scores[i] >= lowest ? (float)ls__math_exp(above * scale) : 0;
        sum += (double)g->weights[i];
    }
    lowest = lowest_weight(g, sum);
    if (lowest > 0) {
        sum = 0;
        for (int i = 0; i < V; i++) {
            if (g->weights[i] < lowest) g->weights[i] = 0;
            sum += (double)g->weights[i];
        }
    }
    double left = (double)ls__random_uniform(g->options.seed, STREAM + (uint64_t)index, q->sampled) * sum;
    for (int i = 0; i < V; i++) {
        left -= (double)g->weights[i];
        if (left < 0) return i;
    }
    return best; /* possible by rounding */
}

static ls_status choose(ls_generator *g, int index, int32_t *token)
{
    sequence *q = &g->sequences[index];
    if (!q->ready) return ls__fail(LS_ESTATE, "generator: no prompt yet; call ls_generator_feed() first");
    for (int i = 0; i < g->vocab_size; i++)
        if (!isfinite(q->logits[i]))
            return ls__fail(LS_ENOTFINITE, "generator: the logit of token %d is not finite; the model is corrupt", i);
    *token = sample(g, index);
    q->sampled++;
    return LS_OK;
}

ls_status ls_generator_next(ls_generator *g, int32_t *tokens, const bool *skip)
{
    LS__NEED(g, "generator");
    LS__NEED(tokens, "tokens");
    ls_status status = LS_OK;
    int n = 0;
    for (int i = 0; i < g->options.sequences && !status; i++)
        if (!skip || !skip[i]) status = choose(g, i, &tokens[i]);
    if (status) return status;
    for (int i = 0; i < g->options.sequences && !status; i++) {
        sequence *q = &g->sequences[i];
        if (skip && skip[i]) continue;
        if (q->length == g->context || g->options.no_cache) { /* has more to read than one token */
            status = ls_generator_feed(g, i, &tokens[i], 1);
            continue;
        }
        q->tokens[q->length++] = tokens[i];
    }
    for (int i = 0; i < g->options.sequences && !status; i++) {
        sequence *q = &g->sequences[i];
        if ((skip && skip[i]) || g->options.no_cache || q->caches[0].length == q->length) continue;
        g->which[n] = i;
        g->pass_tokens[n++] = tokens[i];
    }
    return status || !n ? status : run(g, g->pass_tokens, n, 1, true);
}
