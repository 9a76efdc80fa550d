/* Finds added tokens in text by the rules of Hugging Face's tokenizers: at the first position where any token begins, the longest
 * one is taken; tokens that are not normalized are found first, the others in the remaining text once it is normalized.
 *
 * The tokens are sorted, and a search narrows the range of those that begin with the bytes seen so far, so its cost hardly depends
 * on the number of tokens. Where no token begins with a byte, it is one table look-up. */
#include "data/added.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/split.h"

void ls__added_free(ls__added *a)
{
    for (size_t i = 0; i < a->count; i++) {
        if (a->tokens[i].sought != a->tokens[i].bytes) free((uint8_t *)(uintptr_t)a->tokens[i].sought);
        free((uint8_t *)(uintptr_t)a->tokens[i].bytes);
    }
    free(a->tokens);
    *a = (ls__added){ 0 };
}

const ls__added_token *ls__added_find(const ls__added *a, const void *bytes, size_t count)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->tokens[i].count == count && memcmp(a->tokens[i].bytes, bytes, count) == 0) return &a->tokens[i];
    return NULL;
}

ls_status ls__added_add(ls__added *a, const ls__added_token *token)
{
    if (!token->count) return ls__fail(LS_EFORMAT, "an added token has no content");
    if (a->count == a->room) {
        size_t room = 2 * a->room + 16;
        ls__added_token *grown = realloc(a->tokens, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for %zu added tokens", room);
        a->tokens = grown;
        a->room = room;
    }
    uint8_t *bytes = malloc(token->count);
    if (!bytes) return ls__fail(LS_ENOMEM, "no memory for %zu added tokens", a->count);
    memcpy(bytes, token->bytes, token->count);
    a->tokens[a->count] = *token;
    a->tokens[a->count].sought = a->tokens[a->count].bytes = bytes;
    a->tokens[a->count].sought_count = token->count;
    a->count++;
    return LS_OK;
}

ls_status ls__added_seek(ls__added *a, size_t i, const void *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1);
    if (!copy) return ls__fail(LS_ENOMEM, "no memory for %zu added tokens", a->count);
    if (count) memcpy(copy, bytes, count);
    a->tokens[i].sought = copy;
    a->tokens[i].sought_count = count;
    return LS_OK;
}

static int compare(const void *va, const void *vb)
{
    const ls__added_token *a = va, *b = vb;
    if (a->normalized != b->normalized) return a->normalized ? 1 : -1;
    size_t common = a->sought_count < b->sought_count ? a->sought_count : b->sought_count;
    int order = memcmp(a->sought, b->sought, common);
    if (order) return order;
    if (a->sought_count != b->sought_count) return a->sought_count < b->sought_count ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static bool has_space(const ls__added_token *t)
{
    size_t n;
    for (const uint8_t *p = t->bytes, *end = p + t->count; p < end; p += n)
        if (ls__char_at(p, end, &n) == LS__SPACE) return true;
    return false;
}

void ls__added_seal(ls__added *a)
{
    if (a->count) qsort(a->tokens, a->count, sizeof *a->tokens, compare);
    size_t i = 0;
    for (int phase = 0; phase < 2; phase++)
        for (int byte = 0; byte <= 256; byte++) {
            while (i < a->count && a->tokens[i].normalized == phase &&
                   (!a->tokens[i].sought_count || a->tokens[i].sought[0] < byte))
                i++;
            a->first[phase][byte] = i;
        }
    for (i = 0; i < a->count; i++) {
        const ls__added_token *t = &a->tokens[i];
        bool across = t->rstrip || has_space(t);
        a->across = a->across || across;
        a->across_normalized = a->across_normalized || (across && t->sought != t->bytes);
    }
}

/* The longest token of a phase that the text begins with; NULL: none. */
static const ls__added_token *longest_at(const ls__added *a, int phase, const uint8_t *p, const uint8_t *end)
{
    size_t low = a->first[phase][*p], high = a->first[phase][*p + 1];
    const ls__added_token *best = NULL;
    for (size_t depth = 1; low < high; depth++) {
        /* All in the range agree in `depth` bytes; those that end here come first. */
        if (a->tokens[low].sought_count == depth) best = &a->tokens[low];
        while (low < high && a->tokens[low].sought_count == depth) low++;
        if (p + depth == end) break;
        size_t from = low, to = high;
        while (from < to) {
            size_t middle = (from + to) / 2;
            if (a->tokens[middle].sought[depth] < p[depth])
                from = middle + 1;
            else
                to = middle;
        }
        low = from;
        for (to = high; from < to;) {
            size_t middle = (from + to) / 2;
            if (a->tokens[middle].sought[depth] <= p[depth])
                from = middle + 1;
            else
                to = middle;
        }
        high = from;
    }
    return best;
}

/* The next token of a phase from `p` on, and where it is; NULL: none. */
static const ls__added_token *next_match(const ls__added *a, int phase, const uint8_t **p, const uint8_t *end)
{
    const ls__added_token *found = NULL;
    if (a->first[phase][0] == a->first[phase][256]) return NULL;
    for (const uint8_t *at = *p; at < end; at++) {
        if (a->first[phase][*at] == a->first[phase][*at + 1] || !(found = longest_at(a, phase, at, end))) continue;
        *p = at;
        return found;
    }
    return NULL;
}

/* Where the character begins that ends before `p`. */
static const uint8_t *char_before(const uint8_t *text, const uint8_t *p)
{
    const uint8_t *first = p - 1;
    size_t bytes;
    while (first > text && p - first < 4 && (*first & 0xc0) == 0x80) first--;
    ls__char_at(first, p, &bytes);
    return bytes == (size_t)(p - first) ? first : p - 1; /* invalid UTF-8: a single byte */
}

static bool stands_alone(const uint8_t *text, const uint8_t *begin, const uint8_t *stop, const uint8_t *end)
{
    if (begin > text && ls__is_word(char_before(text, begin), begin)) return false;
    return stop == end || !ls__is_word(stop, end);
}

static const uint8_t *spaces_before(const uint8_t *text, const uint8_t *p)
{
    while (p > text) {
        const uint8_t *before = char_before(text, p);
        size_t bytes;
        if (ls__char_at(before, p, &bytes) != LS__SPACE) break;
        p = before;
    }
    return p;
}

static const uint8_t *spaces_behind(const uint8_t *p, const uint8_t *end)
{
    size_t bytes;
    while (p < end && ls__char_at(p, end, &bytes) == LS__SPACE) p += bytes;
    return p;
}

typedef struct splitting {
    const ls__added *added;
    const uint8_t *text;           /* the whole */
    ls__added_normal_fn normalize; /* NULL: nothing changes */
    ls__added_text_fn on_text;
    ls__added_token_fn on_token;
    void *user;
} splitting;

static ls_status split_phase(const splitting *s, int phase, const uint8_t *text, size_t bytes);

static ls_status put_text(const splitting *s, int phase, const uint8_t *from, const uint8_t *to)
{
    if (from >= to) return LS_OK;
    size_t bytes = (size_t)(to - from);
    if (phase) return s->on_text(s->user, from, bytes);
    ls_status status = s->normalize ? s->normalize(s->user, &from, &bytes, from == s->text) : LS_OK;
    return status || !bytes ? status : split_phase(s, 1, from, bytes);
}

static ls_status split_phase(const splitting *s, int phase, const uint8_t *text, size_t bytes)
{
    const uint8_t *end = text + bytes, *done = text, *at = text;
    const ls__added_token *t;
    ls_status status = LS_OK;
    while (!status && (t = next_match(s->added, phase, &at, end))) {
        const uint8_t *begin = at, *stop = at + t->sought_count;
        at = stop; /* the search continues after the token, even if it is rejected */
        if (t->single_word && !stands_alone(text, begin, stop, end)) continue;
        if (t->lstrip) {
            begin = spaces_before(text, begin);
            if (begin < done) begin = done;
        }
        if (t->rstrip) stop = spaces_behind(stop, end);
        if (begin >= stop) continue; /* nothing is left of a token of spaces that belong to the token before */
        status = put_text(s, phase, done, begin);
        if (!status) status = s->on_token(s->user, t->id);
        done = stop;
    }
    return status ? status : put_text(s, phase, done, end);
}

ls_status ls__added_split(const ls__added *added, const uint8_t *text, size_t bytes, ls__added_normal_fn normalize,
                          ls__added_text_fn on_text, ls__added_token_fn on_token, void *user)
{
    splitting s = {
        .added = added, .text = text, .normalize = normalize, .on_text = on_text, .on_token = on_token, .user = user
    };
    return added->count ? split_phase(&s, 0, text, bytes) : put_text(&s, 0, text, text + bytes);
}

bool ls__added_may_cut(const ls__added *a, const uint8_t *text, size_t bytes, size_t at)
{
    if (a->across_normalized) return false; /* it may look different here */
    for (size_t i = 0; a->across && i < a->count; i++) {
        const ls__added_token *t = &a->tokens[i];
        if (!t->rstrip && !has_space(t)) continue;
        /* One that begins here or before and ends after it, or just here if it takes what follows. */
        size_t first = at >= t->sought_count ? at - t->sought_count + (t->rstrip ? 0 : 1) : 0;
        for (size_t k = first; k < at; k++) { /* it may also continue after what was read */
            size_t common = bytes - k < t->sought_count ? bytes - k : t->sought_count;
            if (memcmp(text + k, t->sought, common) == 0) return false;
        }
    }
    return true;
}
