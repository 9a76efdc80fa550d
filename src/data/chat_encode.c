/* The tokens of a chat, and which of them are answers. See chat.h.
 *
 * A text is tokenized as a whole, since words may begin before an answer does. Where a token is in the text follows from its bytes: text is
 * its tokens one after another, apart from white space that an added token takes and spaces that a tokenizer puts in front. Text that
 * is normalized (NFC) is normalized before, part by part. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/chat.h"
#include "data/tokenizer.h"

enum { LOST = 256 }; /* bytes within which the place of a token is looked for */

void ls__chat_encoder_free(ls__chat_encoder *c)
{
    ls__normalizer_free(&c->normalizer);
    ls__text_buffer_free(&c->text);
    ls__text_buffer_free(&c->places);
    ls__text_buffer_free(&c->mask);
}

static const ls__step *nfc_of(const ls_tokenizer *t)
{
    const ls__steps *all = &t->rules.normalize;
    for (size_t i = 0; i < all->count; i++)
        if (all->step[i].kind == LS__STEP_NFC) return &all->step[i];
    return NULL;
}

/* Adds text from `*at` to `end`, normalized. */
static ls_status add_part(ls__chat_encoder *c, const ls__step *nfc, const char *text, size_t *at, size_t end)
{
    ls__steps steps = { .count = 1 };
    const uint8_t *part = (const uint8_t *)text + *at;
    size_t bytes = end - *at;
    steps.step[0] = *nfc;
    *at = end;
    ls_status status = ls__normalize(&c->normalizer, &steps, &part, &bytes);
    return status ? status : ls__text_buffer_add(&c->text, part, bytes);
}

/* A walk over a text, token by token. */
typedef struct walk {
    const char *text;
    size_t bytes, at;
    bool lost; /* the last token was not found, as that for something unknown is not */
} walk;

static bool is_at(const walk *w, size_t at, const uint8_t *token, size_t count)
{
    return count <= w->bytes - at && !memcmp(w->text + at, token, count);
}

static ls__text_span move(walk *w, size_t begin, size_t count)
{
    w->at = begin + count;
    w->lost = false;
    return (ls__text_span){ begin, w->at };
}

/* Where the next token is; empty: it is not in the text. */
static ls__text_span place_of(walk *w, const uint8_t *token, size_t count)
{
    char byte[8] = "";
    if (count == 6 && !memcmp(token, "<0x", 3) &&
        !is_at(w, w->at, token, count)) { /* a byte of a character that is no token */
        memcpy(byte, token + 3, 2);
        *byte = (char)strtoul(byte, NULL, 16);
        token = (const uint8_t *)byte;
        count = 1;
    }
    if (is_at(w, w->at, token, count)) return move(w, w->at, count);
    /* A space that was put in front. */
    if (count && *token == ' ' && !w->lost && is_at(w, w->at, token + 1, count - 1)) return move(w, w->at, count - 1);
    size_t left = w->bytes - w->at, near = left < LOST + count ? left : LOST + count;
    const char *there = count ? memmem(w->text + w->at, near, token, count) : NULL;
    if (there) return move(w, (size_t)(there - w->text), count);
    w->lost = true;
    return (ls__text_span){ w->at, w->at };
}

/* The text as it will be tokenized, and where the spans are in it. */
static ls_status normalize(ls__chat_encoder *c, const ls__step *nfc, const char **text, size_t *bytes,
                           ls__text_span *spans, size_t n_spans)
{
    size_t at = 0;
    ls_status status = LS_OK;
    c->text.count = 0;
    for (size_t i = 0; i < n_spans && !status; i++) {
        status = add_part(c, nfc, *text, &at, spans[i].begin);
        spans[i].begin = c->text.count;
        if (!status) status = add_part(c, nfc, *text, &at, spans[i].end);
        spans[i].end = c->text.count;
    }
    if (!status) status = add_part(c, nfc, *text, &at, *bytes);
    *text = (const char *)c->text.bytes;
    *bytes = c->text.count;
    return status;
}

ls_status ls__chat_encode(ls__chat_encoder *c, ls_encoder *encoder, const ls_tokenizer *tokenizer, const char *text,
                          size_t bytes, const ls__text_span *spans, size_t n_spans, const int32_t **tokens,
                          const uint8_t **mask, size_t *count)
{
    const ls__step *nfc = nfc_of(tokenizer);
    ls_status status = ls__text_buffer_reserve(&c->places, (n_spans + 1) * sizeof *spans);
    if (status) return status;
    ls__text_span *places = (ls__text_span *)(void *)c->places.bytes;
    if (n_spans) memcpy(places, spans, n_spans * sizeof *spans);
    if (nfc) status = normalize(c, nfc, &text, &bytes, places, n_spans);
    if (!status) status = ls_encode(encoder, text, bytes, tokens, count);
    if (!status) status = ls__text_buffer_reserve(&c->mask, *count + 1);
    if (status) return status;
    walk w = { .text = text, .bytes = bytes };
    for (size_t i = 0, s = 0, n; i < *count; i++) {
        const uint8_t *token = ls_tokenizer_token_bytes(tokenizer, (*tokens)[i], &n);
        ls__text_span place = place_of(&w, token ? token : (const uint8_t *)"", token ? n : 0);
        while (s < n_spans && places[s].end <= place.begin) s++;
        bool empty = place.end == place.begin;
        c->mask.bytes[i] = s < n_spans && place.end + empty > places[s].begin;
    }
    *mask = c->mask.bytes;
    return LS_OK;
}
