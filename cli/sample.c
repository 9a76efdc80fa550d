/* Text from a model. See sample.h. */
#include "cli/sample.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "cli/escape.h"
#include "train/prompt.h"

static ls_status feed_prompt(ls_generator *g, int sequence, const ls_tokenizer *tokenizer, const char *prompt,
                             sample_cost *cost)
{
    size_t count = 0;
    int64_t begin = ls_now();
    ls_status status = ls__prompt_feed(g, sequence, tokenizer, prompt, &count);
    cost->prompt_ns += ls_now() - begin;
    cost->prompt_tokens += (int64_t)count;
    return status;
}

/* Text that was generated, of which a part may be held back because a stop text could begin there. */
typedef struct text {
    char *bytes;
    size_t length, room, written;
} text;

/* Afterwards there is room for a zero, too. */
static bool text_add(text *t, const uint8_t *bytes, size_t count)
{
    if (t->length + count >= t->room) {
        size_t room = 2 * (t->length + count) + 64;
        char *more = realloc(t->bytes, room);
        if (!more) return false;
        t->bytes = more;
        t->room = room;
    }
    memcpy(t->bytes + t->length, bytes, count);
    t->length += count;
    return true;
}

/* Looks for stop texts that end after byte `from`. Returns whether one was found: the text then ends before it. *safe is how much of the
 * text cannot be part of one. */
static bool find_stop(text *t, size_t from, const sample_options *o, size_t *safe)
{
    size_t first = t->length;
    bool found = false;
    *safe = t->length;
    for (size_t i = 0; i < o->n_stops; i++) {
        size_t n = strlen(o->stops[i]), begin = from > n ? from - n : 0;
        if (!n) continue;
        for (size_t at = begin; at < t->length; at++) {
            size_t left = t->length - at, same = left < n ? left : n;
            if (memcmp(t->bytes + at, o->stops[i], same) != 0) continue;
            if (same == n && at < first) first = at, found = true;
            if (same < n && at < *safe) *safe = at;
            if (same < n) break;
        }
    }
    if (found) t->length = *safe = first;
    return found;
}

/* Whether the text ends with this token; otherwise its bytes are added. "end", "stop" or NULL; *safe as above. */
static const char *add_token(text *t, const ls_tokenizer *tokenizer, const sample_options *o, int32_t token,
                             size_t *safe, ls_status *status)
{
    size_t bytes = 0, before = t->length;
    *safe = t->length;
    if (token == ls_tokenizer_end_token(tokenizer)) return "end";
    for (int i = 0; i < o->n_ends; i++)
        if (token == o->ends[i]) return "end";
    const uint8_t *piece = ls_tokenizer_token_bytes(tokenizer, token, &bytes);
    if (piece && !text_add(t, piece, bytes)) /* a model may have more tokens than its tokenizer */
        *status = ls__fail(LS_ENOMEM, "generate: out of memory");
    return find_stop(t, before, o, safe) ? "stop" : NULL;
}

/* More tokens, and their text as far as it cannot be part of a stop text. tokens: [max_tokens], or NULL; `trim`: white space at the
 * beginning is left out. */
static ls_status go_on(ls_generator *g, const ls_tokenizer *tokenizer, const sample_options *o, screen *out, bool trim,
                       int32_t *tokens, text *t, sample_cost *cost)
{
    int64_t begin = ls_now();
    ls_status status = LS_OK;
    bool ended = false;
    for (int i = 0; i < o->max_tokens && !status && !ended && !(o->stop && *o->stop); i++) {
        int32_t token = 0;
        size_t safe = 0;
        status = ls_generator_next(g, &token, NULL);
        if (status) break;
        if (tokens) tokens[i] = token;
        cost->tokens++;
        ended = add_token(t, tokenizer, o, token, &safe, &status) != NULL;
        while (trim && t->written < safe && strchr(" \t\n", t->bytes[t->written])) t->written++;
        trim = trim && t->written == safe;
        if (safe > t->written) screen_put(out, t->bytes + t->written, safe - t->written);
        t->written = safe > t->written ? safe : t->written;
        fflush(out->to);
    }
    cost->ns += ls_now() - begin;
    if (t->length > t->written) screen_put(out, t->bytes + t->written, t->length - t->written);
    screen_end(out);
    return status;
}

ls_status sample_text(ls_model *model, const ls_tokenizer *tokenizer, const sample_options *o, const char *prompt,
                      FILE *to, sample_cost *cost)
{
    ls_generator *g;
    text t = { 0 };
    sample_cost own = { 0 };
    ls_status status = ls_generator_open(&g, model, &o->generator);
    if (status) return status;
    status = feed_prompt(g, 0, tokenizer, prompt, &own);
    screen out = { .to = to, .terminal = isatty(fileno(to)) == 1 };
    if (!status) screen_put(&out, prompt, strlen(prompt));
    if (!status) status = go_on(g, tokenizer, o, &out, false, NULL, &t, &own);
    if (cost) *cost = own;
    free(t.bytes);
    ls_generator_free(&g);
    return status;
}

ls_status sample_answer(ls_generator *g, const ls_tokenizer *tokenizer, const sample_options *o, FILE *to,
                        int32_t *tokens, char **answer, sample_cost *cost)
{
    text t = { 0 };
    screen out = { .to = to, .terminal = isatty(fileno(to)) == 1 };
    ls_status status = go_on(g, tokenizer, o, &out, true, tokens, &t, cost);
    if (!text_add(&t, (const uint8_t *)"", 1) && !status) status = ls__fail(LS_ENOMEM, "out of memory");
    *answer = t.bytes;
    return status;
}

void sample_print_cost(const sample_cost *c)
{
    double seconds = (double)c->ns * 1e-9, before = (double)c->prompt_ns * 1e-9;
    fprintf(stderr, "%lld tokens in %.2f s: %.1f tokens/s; prompt: %lld tokens in %.2f s\n", (long long)c->tokens,
            seconds, seconds > 0 ? (double)c->tokens / seconds : 0, (long long)c->prompt_tokens, before);
}

/* One of the texts that are generated side by side. */
typedef struct line {
    text text;
    int32_t *ids; /* of its tokens, the one that ended it included */
    size_t tokens, room;
    const char *end; /* why it ended; NULL: it has not */
} line;

static ls_status line_add(line *l, const ls_tokenizer *tokenizer, const sample_options *o, int32_t token)
{
    size_t safe;
    ls_status status = LS_OK;
    if (l->tokens == l->room) {
        size_t room = 2 * l->room + 64;
        int32_t *more = realloc(l->ids, room * sizeof *more);
        if (!more) return ls__fail(LS_ENOMEM, "generate: out of memory");
        l->ids = more;
        l->room = room;
    }
    l->ids[l->tokens++] = token;
    l->end = add_token(&l->text, tokenizer, o, token, &safe, &status);
    return status;
}

static void line_write(line *l, const char *prompt, FILE *to)
{
    text *t = &l->text;
    fputs("{\"prompt\": \"", to);
    put_json(to, prompt);
    fputs("\", \"text\": \"", to);
    if (t->bytes) t->bytes[t->length] = 0, put_json_bytes(to, t->bytes, t->length);
    fprintf(to, "\", \"tokens\": %zu, \"ids\": [", l->tokens);
    for (size_t i = 0; i < l->tokens; i++) fprintf(to, "%s%d", i ? ", " : "", l->ids[i]);
    fprintf(to, "], \"end\": \"%s\"}\n", l->end ? l->end : "length");
    fflush(to);
}

ls_status sample_many(ls_model *model, const ls_tokenizer *tokenizer, const sample_options *o,
                      const char *const *prompts, size_t count, FILE *to, sample_cost *cost)
{
    ls_generator *g = NULL;
    sample_cost own = { 0 };
    ls_generator_options options = o->generator;
    options.sequences = (int)count;
    line *lines = calloc(count, sizeof *lines);
    int32_t *tokens = calloc(count, sizeof *tokens);
    bool *skip = calloc(count, sizeof *skip);
    ls_status status = lines && tokens && skip ? ls_generator_open(&g, model, &options)
                                               : ls__fail(LS_ENOMEM, "generate: out of memory");
    for (size_t i = 0; i < count && !status; i++) status = feed_prompt(g, (int)i, tokenizer, prompts[i], &own);
    int64_t begin = ls_now();
    size_t left = count;
    for (int step = 0; step < o->max_tokens && !status && left; step++) {
        for (size_t i = 0; i < count; i++) skip[i] = lines[i].end;
        if ((status = ls_generator_next(g, tokens, skip))) break;
        for (size_t i = 0; i < count && !status; i++) {
            if (skip[i]) continue;
            own.tokens++;
            status = line_add(&lines[i], tokenizer, o, tokens[i]);
            if (lines[i].end) left--;
        }
    }
    own.ns = ls_now() - begin;
    for (size_t i = 0; i < count && !status; i++) line_write(&lines[i], prompts[i], to);
    for (size_t i = 0; lines && i < count; i++) {
        free(lines[i].text.bytes);
        free(lines[i].ids);
    }
    free(lines);
    free(tokens);
    free(skip);
    ls_generator_free(&g);
    if (cost) *cost = own;
    return status;
}
