/* Multiple choice: which ending of a text a model takes for the most likely. As lm-evaluation-harness counts it: an ending's score
 * is the sum of the log-probabilities of its tokens after the context's; accuracy takes the highest score, accuracy_norm the
 * highest score per character. Files of tokens are counted as llm.c does it: no other tokens before the context, and accuracy_norm
 * per token. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "data/choices.h"
#include "data/tokenizer.h"
#include "nn/model.h"
#include "train/training.h"

enum { FILE_LIMIT = 1 << 28, ENDINGS = LS__CHOICES_MAX };

/* One ending after its context. */
typedef struct row {
    int32_t *tokens; /* [length + 1] */
    size_t length;   /* of inputs */
    size_t scored;   /* the last ones, whose targets are the ending's */
} row;

typedef struct evaluation {
    const ls_choices_options *o;
    ls__questions questions;
    ls_tokenizer *tokenizer;
    ls_encoder *encoder;
    ls_model *model;
    ls_tape *tape;
    int rank, size;
    size_t together; /* questions of a batch */
    size_t context;
    double *scores; /* [questions][ENDINGS] */
    row *rows;      /* [together * ENDINGS] */
    /* (rows, longest): */
    int32_t *inputs, *targets;
    float *losses;
    size_t room;
} evaluation;

/* ---- Opening. */

static ls_status open_tokenizer(evaluation *e, int vocab)
{
    const ls_choices_options *o = e->o;
    static const char *const files[] = { "tokenizer.json", "vocab.json" };
    bool has_own = false;
    for (int i = 0; i < 2; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/%s", o->model, files[i]);
        has_own = has_own || (n < (int)sizeof path && !access(path, R_OK));
    }
    const char *name = o->tokenizer ? o->tokenizer : has_own ? o->model : vocab <= 257 ? "bytes" : NULL;
    if (!name)
        return ls__fail(LS_EINVAL, "%s: the model has no tokenizer; give the one that it was trained with", o->model);
    ls_status status = ls_tokenizer_open(&e->tokenizer, name, NULL);
    if (!status) status = ls__check_tokenizer(e->tokenizer, name, o->model, has_own, vocab);
    return status ? status : ls_encoder_open(&e->encoder, e->tokenizer);
}

/* A file of tokens fits the model. */
static ls_status check_tokens(const evaluation *e, int vocab)
{
    if (e->o->tokenizer) return ls__fail(LS_EINVAL, "%s: has tokens, not texts; leave out the tokenizer", e->o->data);
    for (size_t i = 0; i < e->questions.count; i++) {
        const uint16_t *p = e->questions.items[i].tokens;
        for (int k = 0; k <= e->questions.items[i].count; k++, p += 1 + *p)
            for (int t = 1; t <= *p; t++)
                if (p[t] >= vocab)
                    return ls__fail(LS_EINVAL,
                                    "%s: question %zu: token %d is not in the model's vocabulary of %d; llm.c's files "
                                    "have the tokens of GPT-2; for other models give HellaSwag's JSON lines",
                                    e->o->data, i, p[t], vocab);
    }
    return LS_OK;
}

static ls_status open_all(evaluation *e)
{
    const ls_choices_options *o = e->o;
    ls_lm_options sizes;
    char *text = NULL;
    size_t bytes;
    e->size = o->world ? ls_world_size(o->world) : 1;
    e->rank = o->world ? ls_world_rank(o->world) : 0;
    ls_status status = ls__lm_options_read(o->model, &sizes);
    if (!status && ls__lm_type_of(sizes.kind)->encoder)
        status = ls__fail(LS_EUNSUPPORTED, "%s: is an encoder; the choice is for models that generate text", o->model);
    if (!status) status = ls__file_read(o->data, FILE_LIMIT, &text, &bytes);
    if (!status) status = ls__questions_parse(&e->questions, o->data, text, bytes);
    free(text);
    if (!status) status = e->questions.tokens ? check_tokens(e, sizes.vocab_size) : open_tokenizer(e, sizes.vocab_size);
    if (!status) status = ls__lm_open(&e->model, &sizes);
    if (!status) status = ls_model_bind(e->model, NULL, NULL, false);
    if (!status) status = ls_model_load(e->model, o->model);
    if (!status)
        status = ls_tape_open(&e->tape,
                              &(ls_tape_options){ .threads = o->threads > 0 ? o->threads : omp_get_max_threads() });
    if (status) return status;
    e->context = (size_t)sizes.context;
    e->together = (size_t)(o->batch_size > 0 ? o->batch_size : 8);
    e->together = e->together < 4 ? 1 : e->together / 4;
    e->scores = calloc(e->questions.count, ENDINGS * sizeof *e->scores);
    e->rows = calloc(e->together * ENDINGS, sizeof *e->rows);
    return e->scores && e->rows ? LS_OK : ls__fail(LS_ENOMEM, "eval: no memory for %zu questions", e->questions.count);
}

static void drop_rows(evaluation *e)
{
    for (size_t i = 0; e->rows && i < e->together * ENDINGS; i++) free(e->rows[i].tokens);
    if (e->rows) memset(e->rows, 0, e->together * ENDINGS * sizeof *e->rows);
}

static void close_all(evaluation *e)
{
    drop_rows(e);
    free(e->rows);
    free(e->scores);
    free(e->inputs);
    free(e->targets);
    free(e->losses);
    ls_tape_free(&e->tape);
    ls_model_free(&e->model);
    ls_encoder_free(&e->encoder);
    ls_tokenizer_free(&e->tokenizer);
    ls__questions_free(&e->questions);
}

/* ---- Rows. */

/* Special tokens that the tokenizer puts before a text, such as <s>; returns how many. tokens: [LS__TEMPLATE_MAX], or NULL. */
static size_t special_tokens(const evaluation *e, int32_t *tokens)
{
    const ls__template *form = &e->tokenizer->rules.templates.single;
    int n = 0;
    while (n < form->count && form->item[n].token != LS__TEMPLATE_A) n++;
    if (n == form->count) return 0;
    for (int i = 0; tokens && i < n; i++) tokens[i] = form->item[i].token;
    return (size_t)n;
}

/* Tokens of the context. White space at its end belongs to the ending, whose first token has it. */
static ls_status count_context(evaluation *e, const json_t *context, size_t *count)
{
    const char *text = json_string_value(context);
    size_t bytes = strlen(text);
    const int32_t *tokens;
    while (bytes && strchr(" \t\n", text[bytes - 1])) bytes--;
    return ls_encode(e->encoder, text, bytes, &tokens, count);
}

/* Inputs and targets of the first `count` tokens, of which the last `scored` are the ending's; of too many, the end. */
static void cut_row(const evaluation *e, row *r, size_t count, size_t scored)
{
    size_t first = count > e->context + 1 ? count - e->context - 1 : 0;
    memmove(r->tokens, r->tokens + first, (count - first) * sizeof *r->tokens);
    r->length = count - first ? count - first - 1 : 0;
    r->scored = scored < r->length ? scored : r->length;
}

/* The context and an ending of a file of tokens. */
static ls_status fill_from_tokens(const evaluation *e, const ls__question *q, int ending, row *r)
{
    const uint16_t *context = q->tokens, *p = context + 1 + *context;
    for (int i = 0; i < ending; i++) p += 1 + *p;
    if (!(r->tokens = malloc(((size_t)*context + *p + 1) * sizeof *r->tokens)))
        return ls__fail(LS_ENOMEM, "eval: out of memory");
    for (size_t i = 0; i < *context; i++) r->tokens[i] = context[1 + i];
    for (size_t i = 0; i < *p; i++) r->tokens[*context + i] = p[1 + i];
    cut_row(e, r, (size_t)*context + *p, *p);
    return LS_OK;
}

/* The context and an ending of a file of texts. */
static ls_status fill_row(evaluation *e, const ls__question *q, int ending, size_t before, row *r)
{
    const int32_t *tokens;
    size_t count, special = special_tokens(e, NULL);
    int32_t start = ls_tokenizer_end_token(e->tokenizer);
    const char *text = json_string_value(json_array_get(q->endings, (size_t)ending));
    json_t *whole = json_sprintf("%s %s", json_string_value(q->context), text);
    if (!whole) return ls__fail(LS_ENOMEM, "eval: out of memory");
    ls_status status = ls_encode(e->encoder, json_string_value(whole), json_string_length(whole), &tokens, &count);
    json_decref(whole);
    if (status) return status;
    if (!(r->tokens = malloc((count + LS__TEMPLATE_MAX + 2) * sizeof *r->tokens)))
        return ls__fail(LS_ENOMEM, "eval: out of memory");
    special_tokens(e, r->tokens);
    if (!special && !before && start >= 0) r->tokens[special++] = start; /* the end of a text stands for no context */
    memcpy(r->tokens + special, tokens, count * sizeof *tokens);
    cut_row(e, r, count + special, count > before ? count - before : 0);
    return LS_OK;
}

static ls_status make_room(evaluation *e, size_t count)
{
    if (count <= e->room) return LS_OK;
    free(e->inputs);
    free(e->targets);
    free(e->losses);
    e->inputs = malloc(count * sizeof *e->inputs);
    e->targets = malloc(count * sizeof *e->targets);
    e->losses = malloc(count * sizeof *e->losses);
    e->room = e->inputs && e->targets && e->losses ? count : 0;
    return e->room ? LS_OK : ls__fail(LS_ENOMEM, "eval: no memory for %zu tokens", count);
}

/* Questions `first` and following. Rows do not depend on each other, nor on the padding after them. */
static ls_status run_batch(evaluation *e, size_t first)
{
    size_t last = first + e->together < e->questions.count ? first + e->together : e->questions.count, n = 0,
           longest = 1;
    ls_status status = LS_OK;
    drop_rows(e);
    for (size_t i = first; i < last; i++) {
        const ls__question *q = &e->questions.items[i];
        size_t before = 0;
        if (!q->tokens) status = count_context(e, q->context, &before);
        for (int k = 0; k < q->count && !status; k++, n++) {
            status = q->tokens ? fill_from_tokens(e, q, k, &e->rows[n]) : fill_row(e, q, k, before, &e->rows[n]);
            if (e->rows[n].length > longest) longest = e->rows[n].length;
        }
        if (status) return status;
    }
    if ((status = make_room(e, n * longest))) return status;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < longest; i++) {
            bool used = i < e->rows[r].length;
            e->inputs[r * longest + i] = used ? e->rows[r].tokens[i] : 0;
            e->targets[r * longest + i] = used ? e->rows[r].tokens[i + 1] : 0;
        }
    ls_param *params;
    int n_params = ls_model_params(e->model, &params);
    ls_model_batch batch = { .batch_size = (int64_t)n,
                             .seq_len = (int64_t)longest,
                             .tokens = e->inputs,
                             .targets = e->targets,
                             .row_losses = e->losses };
    if ((status = ls_tape_begin(e->tape, params, n_params, &(ls_pass){ .mode = LS_PASS_EVAL }))) return status;
    ls_model_loss(e->model, e->tape, &batch);
    if ((status = ls_tape_status(e->tape))) return status;
    n = 0;
    for (size_t i = first; i < last; i++)
        for (int k = 0; k < e->questions.items[i].count; k++, n++)
            for (size_t t = e->rows[n].length - e->rows[n].scored; t < e->rows[n].length; t++)
                e->scores[i * ENDINGS + (size_t)k] -= (double)e->losses[n * longest + t];
    return LS_OK;
}

static ls_status run_own(evaluation *e)
{
    const ls_choices_options *o = e->o;
    size_t batches = (e->questions.count + e->together - 1) / e->together;
    ls_status status = LS_OK;
    for (size_t b = (size_t)e->rank; b < batches && !status; b += (size_t)e->size) {
        status = run_batch(e, b * e->together);
        if (!status && o->progress && e->rank == 0) o->progress(o->user, b + 1, batches);
    }
    return status;
}

/* ---- The result. */

static size_t characters(const json_t *text)
{
    size_t n = 0;
    for (const char *p = json_string_value(text); p && *p; p++) n += ((unsigned char)*p & 0xc0) != 0x80;
    return n;
}

static bool chooses_right(const ls__question *q, const double *scores, bool normalized)
{
    int best = 0;
    double highest = -INFINITY;
    const uint16_t *p = q->tokens ? q->tokens + 1 + *q->tokens : NULL;
    for (int k = 0; k < q->count; k++) {
        size_t length = p ? *p : characters(json_array_get(q->endings, (size_t)k));
        double score = normalized ? scores[k] / (double)length : scores[k];
        if (score > highest) highest = score, best = k;
        if (p) p += 1 + *p;
    }
    return best == q->right;
}

static void add_up(const evaluation *e, ls_choices_result *r)
{
    double n = (double)e->questions.count, right = 0, normalized = 0;
    for (size_t i = 0; i < e->questions.count; i++) {
        right += chooses_right(&e->questions.items[i], e->scores + i * ENDINGS, false);
        normalized += chooses_right(&e->questions.items[i], e->scores + i * ENDINGS, true);
    }
    *r = (ls_choices_result){ .questions = e->questions.count,
                              .accuracy = right / n,
                              .accuracy_norm = normalized / n,
                              .per_token = e->questions.tokens != NULL };
    r->accuracy_error = sqrt(r->accuracy * (1 - r->accuracy) / (n - 1));
    r->accuracy_norm_error = sqrt(r->accuracy_norm * (1 - r->accuracy_norm) / (n - 1));
}

ls_status ls_eval_choices(const ls_choices_options *options, ls_choices_result *result)
{
    LS__NEED(options, "options");
    LS__NEED(options->model, "options.model");
    LS__NEED(options->data, "options.data");
    LS__NEED(result, "result");
    evaluation e = { .o = options };
    int64_t begin = ls_now();
    *result = (ls_choices_result){ 0 };
    ls_status status = open_all(&e);
    if (!status) status = run_own(&e);
    if (status && e.size > 1) ls_group_abort(ls_world_group(options->world), ls_error());
    if (!status && e.size > 1)
        status = ls_allreduce(ls_world_group(options->world), e.scores, e.questions.count * ENDINGS, LS_F64, LS_SUM);
    for (size_t i = 0; i < e.questions.count * ENDINGS && !status; i++)
        if (!isfinite(e.scores[i]))
            status = ls__fail(LS_ENOTFINITE, "%s: a score is not finite; the model is corrupt", options->model);
    if (!status) add_up(&e, result);
    if (!status && options->each)
        for (size_t i = 0; i < e.questions.count; i++)
            options->each(options->user, i, e.scores + i * ENDINGS, e.questions.items[i].count,
                          e.questions.items[i].right);
    result->seconds = (double)(ls_now() - begin) / 1e9;
    close_all(&e);
    return status;
}
