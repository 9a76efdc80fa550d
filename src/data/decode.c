/* Tokens to text, for models whose tokens are not bytes: each decoder of tokenizer.json turns a list of texts into another one, and the
 * last one's texts are put together. Bytes of byte_fallback that are not valid UTF-8 stay what they are, where tokenizers writes
 * U+FFFD for each.
 *
 * Where tokens are needed one at a time (a text that is generated, the bytes that a loss is spread over), each has a piece, which the
 * decoders make of it if it stands inside a text. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/normalize.h"
#include "data/tokenizer.h"

typedef struct texts {
    ls__text_buffer all;
    size_t *end; /* (count) */
    size_t count, room;
} texts;

static void free_texts(texts *t)
{
    ls__text_buffer_free(&t->all);
    free(t->end);
    *t = (texts){ 0 };
}

static const uint8_t *text_at(const texts *t, size_t i, size_t *bytes)
{
    size_t from = i ? t->end[i - 1] : 0;
    *bytes = t->end[i] - from;
    return t->all.bytes + from;
}

static ls_status add(texts *t, const void *bytes, size_t count)
{
    return ls__text_buffer_add(&t->all, bytes, count);
}

/* What was added since the last is a text. */
static ls_status end_text(texts *t)
{
    if (t->count == t->room) {
        size_t room = 2 * t->room + 64, *end = realloc(t->end, room * sizeof *end);
        if (!end) return ls__fail(LS_ENOMEM, "no memory for the text of %zu tokens", t->count);
        t->end = end;
        t->room = room;
    }
    t->end[t->count++] = t->all.count;
    return LS_OK;
}

static ls_status add_replaced(texts *out, const uint8_t *p, size_t count, const void *a, size_t a_bytes, const void *b,
                              size_t b_bytes)
{
    const uint8_t *end = p + count, *found;
    ls_status status = LS_OK;
    while (!status && p < end && (found = memmem(p, (size_t)(end - p), a, a_bytes))) {
        status = add(out, p, (size_t)(found - p));
        if (!status) status = add(out, b, b_bytes);
        p = found + a_bytes;
    }
    return status ? status : add(out, p, (size_t)(end - p));
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The byte that "<0x0A>" means; -1: it is another text. */
static int byte_of(const uint8_t *text, size_t count)
{
    if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex(text[3]), low = hex(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static ls_status add_byte(texts *out, const uint8_t *text, size_t count)
{
    int value = byte_of(text, count);
    uint8_t byte = (uint8_t)value;
    return value < 0 ? add(out, text, count) : add(out, &byte, 1);
}

static ls_status add_stripped(texts *out, const ls__step *s, const uint8_t *text, size_t count)
{
    for (uint32_t n = 0; n < s->number && count >= s->a_bytes && !memcmp(text, s->a, s->a_bytes); n++) {
        text += s->a_bytes;
        count -= s->a_bytes;
    }
    for (uint32_t n = 0; n < s->number2 && count >= s->a_bytes; n++) {
        if (memcmp(text + count - s->a_bytes, s->a, s->a_bytes) != 0) break;
        count -= s->a_bytes;
    }
    return add(out, text, count);
}

/* What BERT's decoder corrects in English. */
static ls_status add_cleaned(texts *out, const uint8_t *text, size_t count)
{
    static const char *const pairs[][2] = { { " .", "." },     { " ?", "?" },           { " !", "!" },
                                            { " ,", "," },     { " ' ", "'" },          { " n't", "n't" },
                                            { " 'm", "'m" },   { " do not", " don't" }, { " 's", "'s" },
                                            { " 've", "'ve" }, { " 're", "'re" } };
    texts turns[2] = { 0 };
    ls_status status = LS_OK;
    if (!count) return LS_OK; /* there may be no text at all to search in */
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !status; i++) {
        if (!memmem(text, count, pairs[i][0], strlen(pairs[i][0]))) continue;
        texts *t = text == turns[0].all.bytes ? &turns[1] : &turns[0];
        t->all.count = 0;
        status = add_replaced(t, text, count, pairs[i][0], strlen(pairs[i][0]), pairs[i][1], strlen(pairs[i][1]));
        text = t->all.bytes;
        count = t->all.count;
    }
    if (!status) status = add(out, text, count);
    for (int i = 0; i < 2; i++) free_texts(&turns[i]);
    return status;
}

/* Text number i, which is not the first if `inside`. */
static ls_status decode_wordpiece(texts *out, const ls__step *s, const uint8_t *text, size_t count, bool inside)
{
    texts one = { 0 };
    bool continues = count >= s->a_bytes && !memcmp(text, s->a, s->a_bytes);
    ls_status status = inside && !continues ? add(&one, " ", 1) : LS_OK;
    size_t skip = inside && continues ? s->a_bytes : 0;
    if (!status) status = add(&one, text + skip, count - skip);
    if (!status)
        status = s->flags & LS__STEP_CLEAN ? add_cleaned(out, one.all.bytes, one.all.count)
                                           : add(out, one.all.bytes, one.all.count);
    free_texts(&one);
    return status;
}

static ls_status decode_one(texts *out, const ls__step *s, const uint8_t *text, size_t count, bool inside)
{
    switch (s->kind) {
    case LS__STEP_REPLACE: return add_replaced(out, text, count, s->a, s->a_bytes, s->b, s->b_bytes);
    case LS__STEP_METASPACE:
        return add_replaced(out, text, count, s->a, s->a_bytes, " ", inside || !(s->flags & LS__STEP_PREFIX));
    case LS__STEP_BYTE_FALLBACK: return add_byte(out, text, count);
    case LS__STEP_STRIP: return add_stripped(out, s, text, count);
    case LS__STEP_WORDPIECE: return decode_wordpiece(out, s, text, count, inside);
    default: return add(out, text, count);
    }
}

static ls_status apply(texts *out, const ls__step *s, const texts *in)
{
    ls_status status = LS_OK;
    if (s->kind == LS__STEP_FUSE) {
        status = add(out, in->all.bytes, in->all.count);
        return status || !in->count ? status : end_text(out);
    }
    for (size_t i = 0; i < in->count && !status; i++) {
        size_t count;
        const uint8_t *text = text_at(in, i, &count);
        status = decode_one(out, s, text, count, i > 0);
        if (!status) status = end_text(out);
    }
    return status;
}

/* The texts of tokens, in the vocabulary. */
static ls_status begin(texts *out, const ls_tokenizer *t, const int32_t *tokens, size_t count)
{
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && !status; i++) {
        size_t bytes;
        const uint8_t *text = ls__bpe_bytes(t->bpe, (uint32_t)tokens[i], &bytes);
        if (i && !t->rules.decode.count) status = add(out, " ", 1); /* as without a decoder */
        if (!status) status = add(out, text, bytes);
        if (!status) status = end_text(out);
    }
    return status;
}

ls_status ls__decode(const ls_tokenizer *t, const int32_t *tokens, size_t count, char **out, size_t *bytes)
{
    texts now = { 0 };
    ls_status status = begin(&now, t, tokens, count);
    for (size_t i = 0; i < t->rules.decode.count && !status; i++) {
        texts next = { 0 };
        status = apply(&next, &t->rules.decode.step[i], &now);
        free_texts(&now);
        now = next;
    }
    *bytes = now.all.count;
    if (!status) status = add(&now, "", 1);
    *out = status ? NULL : (char *)now.all.bytes;
    if (status)
        *bytes = 0;
    else
        now.all = (ls__text_buffer){ 0 };
    free_texts(&now);
    return status;
}

/* ---- Pieces. */

static ls_status make_piece(texts *out, const ls_tokenizer *t, uint32_t id)
{
    texts now = { 0 };
    size_t bytes;
    const uint8_t *text = ls__bpe_bytes(t->bpe, id, &bytes);
    if (!text) return end_text(out);
    ls_status status = t->rules.decode.count ? LS_OK : add(&now, " ", 1);
    if (!status) status = add(&now, text, bytes);
    for (size_t i = 0; i < t->rules.decode.count && !status; i++) {
        const ls__step *s = &t->rules.decode.step[i];
        texts next = { 0 };
        if (s->kind == LS__STEP_STRIP) continue; /* it acts at the ends of a text */
        status = decode_one(&next, s, now.all.bytes, now.all.count, true);
        free_texts(&now);
        now = next;
    }
    if (!status) status = add(out, now.all.bytes, now.all.count);
    free_texts(&now);
    return status ? status : end_text(out);
}

ls_status ls__pieces_make(ls_tokenizer *t)
{
    texts all = { 0 };
    if (t->rules.model == LS__MODEL_BYTES) return LS_OK;
    ls_status status = end_text(&all); /* the first begins at 0 */
    for (uint32_t id = 0; id < ls__bpe_tokens(t->bpe) && !status; id++) status = make_piece(&all, t, id);
    if (!status) status = add(&all, "", 1); /* so that it is not NULL */
    if (status)
        free_texts(&all);
    else
        t->pieces = (ls__pieces){ .bytes = all.all.bytes, .at = all.end };
    return status;
}

void ls__pieces_free(ls__pieces *p)
{
    free(p->bytes);
    free(p->at);
    *p = (ls__pieces){ 0 };
}
