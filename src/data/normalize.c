/* Normalizers. NFC works on sequences of characters that can combine: one that cannot combine with anything before it, and all that
 * follow until the next such. Nearly all text consists of sequences of one character, which are copied. */
#include "data/normalize.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/unicode.h"

enum { HANGUL = 0xac00, HANGUL_COUNT = 11172, JAMO_L = 0x1100, JAMO_V = 0x1161, JAMO_T = 0x11a7 };

/* ---- Memory. */

void ls__text_buffer_free(ls__text_buffer *b)
{
    free(b->bytes);
    *b = (ls__text_buffer){ 0 };
}

ls_status ls__text_buffer_reserve(ls__text_buffer *b, size_t more)
{
    if (more <= b->room - b->count) return LS_OK;
    size_t room = b->room + b->room / 2 + more + 64;
    uint8_t *grown = realloc(b->bytes, room);
    if (!grown) return ls__fail(LS_ENOMEM, "no memory for a text of %zu bytes", room);
    b->bytes = grown;
    b->room = room;
    return LS_OK;
}

ls_status ls__text_buffer_add(ls__text_buffer *b, const void *bytes, size_t count)
{
    ls_status status = ls__text_buffer_reserve(b, count);
    if (!status && count) memcpy(b->bytes + b->count, bytes, count);
    if (!status) b->count += count;
    return status;
}

static ls_status add_code(ls__text_buffer *b, int32_t c)
{
    ls_status status = ls__text_buffer_reserve(b, 4);
    if (!status) b->count += ls__utf8_put(b->bytes + b->count, c);
    return status;
}

void ls__normalizer_free(ls__normalizer *n)
{
    for (int i = 0; i < 2; i++) ls__text_buffer_free(&n->text[i]);
    free(n->codes);
    free(n->order);
    *n = (ls__normalizer){ 0 };
}

/* ---- Tables. */

/* The row of a sorted table whose first column is c; NULL: none. */
static const int32_t *row_of(const int32_t (*table)[3], size_t count, int32_t c)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle][0] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && table[low][0] == c ? table[low] : NULL;
}

static int32_t combining_class(int32_t c)
{
    size_t low = 0, high = ls__combining_count;
    if (c < 0x300) return 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ls__combining[middle][1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ls__combining_count && ls__combining[low][0] <= c ? ls__combining[low][2] : 0;
}

/* What two characters become; -1: they stay two. */
static int32_t composed(int32_t a, int32_t b)
{
    if (a >= JAMO_L && a < JAMO_L + 19 && b >= JAMO_V && b < JAMO_V + 21)
        return HANGUL + ((a - JAMO_L) * 21 + (b - JAMO_V)) * 28;
    if (a >= HANGUL && a < HANGUL + HANGUL_COUNT && (a - HANGUL) % 28 == 0 && b > JAMO_T && b < JAMO_T + 28)
        return a + (b - JAMO_T);
    size_t low = 0, high = ls__compositions_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const int32_t *row = ls__compositions[middle];
        if (row[0] < a || (row[0] == a && row[1] < b))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == ls__compositions_count) return -1;
    const int32_t *row = ls__compositions[low];
    return row[0] == a && row[1] == b ? row[2] : -1;
}

/* The full decomposition of a character, at most 4; returns how many. */
static size_t decompose(int32_t c, int32_t out[4])
{
    if (c >= HANGUL && c < HANGUL + HANGUL_COUNT) {
        int32_t i = c - HANGUL;
        out[0] = JAMO_L + i / 588;
        out[1] = JAMO_V + i % 588 / 28;
        out[2] = JAMO_T + i % 28;
        return i % 28 ? 3 : 2;
    }
    const int32_t *row = c < 0xc0 ? NULL : row_of(ls__decompositions, ls__decompositions_count, c);
    if (!row) {
        out[0] = c;
        return 1;
    }
    /* Only the first part can be decomposed further if there are two. */
    size_t n = decompose(row[1], out);
    if (row[2] && n < 4) out[n++] = row[2];
    return n;
}

/* ---- NFC. */

static int compare(const void *va, const void *vb)
{
    uint64_t a = *(const uint64_t *)va, b = *(const uint64_t *)vb;
    return (a > b) - (a < b);
}

static ls_status reserve_codes(ls__normalizer *n, size_t count)
{
    if (count <= n->room) return LS_OK;
    size_t room = 2 * count + 64;
    int32_t *codes = realloc(n->codes, room * sizeof *codes);
    if (codes) n->codes = codes;
    uint64_t *order = realloc(n->order, room * sizeof *order);
    if (order) n->order = order;
    if (!codes || !order) return ls__fail(LS_ENOMEM, "no memory for a sequence of %zu combining characters", count);
    n->room = room;
    return LS_OK;
}

/* Sorts characters that are not starters by their class; equal ones keep their order. */
static void sort_marks(ls__normalizer *n, size_t count)
{
    for (size_t from = 0, to; from < count; from = to + 1) {
        for (to = from; to < count; to++) {
            uint64_t class = (uint64_t)combining_class(n->codes[to]);
            if (!class) break;
            n->order[to] = class << 56 | (uint64_t)(to - from) << 24 | (uint32_t)n->codes[to];
        }
        if (to - from < 2) continue;
        qsort(n->order + from, to - from, sizeof *n->order, compare);
        for (size_t i = from; i < to; i++) n->codes[i] = (int32_t)(n->order[i] & 0xffffff);
    }
}

/* Composes what can be; returns how many characters are left. */
static size_t compose(int32_t *codes, size_t count)
{
    size_t starter = SIZE_MAX, out = 0;
    int32_t last = 0; /* the class of the last character since the starter */
    for (size_t i = 0; i < count; i++) {
        int32_t c = codes[i], class = combining_class(c);
        bool blocked = starter == SIZE_MAX || (out - starter > 1 && last >= class);
        int32_t both = blocked ? -1 : composed(codes[starter], c);
        if (both >= 0) {
            codes[starter] = both;
            continue;
        }
        if (!class) starter = out;
        last = class;
        codes[out++] = c;
    }
    return out;
}

/* The characters from p to end, in their composed form. */
static ls_status add_composed(ls__normalizer *n, const uint8_t *p, const uint8_t *end, ls__text_buffer *out)
{
    size_t count = 0, bytes;
    for (; p < end; p += bytes) {
        ls_status status = reserve_codes(n, count + 4);
        if (status) return status;
        count += decompose(ls__utf8_get(p, end, &bytes), n->codes + count);
    }
    sort_marks(n, count);
    count = compose(n->codes, count);
    for (size_t i = 0; i < count; i++) {
        ls_status status = add_code(out, n->codes[i]);
        if (status) return status;
    }
    return LS_OK;
}

/* The first place at or after p that NFC may change; `end`: none. *from is where the sequence begins that it is in. */
static const uint8_t *first_change(const uint8_t *p, const uint8_t *end, const uint8_t **from)
{
    const uint8_t *before = NULL; /* the last character */
    size_t bytes;
    while (p < end) {
        while (p < end && *p < 0x80) before = p++;
        if (p == end) break;
        int32_t c = ls__utf8_get(p, end, &bytes);
        uint8_t form = c < 0 ? 0 : ls__form_of(c);
        if (form & LS__FORM_UNSTABLE) {
            *from = before ? before : p;
            return p;
        }
        if (form & LS__FORM_CHANGES) {
            *from = p;
            return p;
        }
        before = c < 0 ? NULL : p;
        p += bytes;
    }
    return end;
}

static ls_status to_nfc(ls__normalizer *n, const uint8_t *p, const uint8_t *end, ls__text_buffer *out)
{
    ls_status status = LS_OK;
    while (!status && p < end) {
        const uint8_t *from = end, *to = first_change(p, end, &from);
        status = ls__text_buffer_add(out, p, (size_t)(from - p));
        if (to == end || status) break;
        for (size_t bytes; to < end; to += bytes) { /* to the end of the sequence */
            int32_t c = ls__utf8_get(to, end, &bytes);
            if (to > from && (c < 0 || !(ls__form_of(c) & LS__FORM_UNSTABLE))) break;
        }
        status = add_composed(n, from, to, out);
        p = to;
    }
    return status;
}

/* ---- The others. */

static ls_status add_lowered(ls__text_buffer *out, int32_t c)
{
    if (c < 0x80) return add_code(out, c >= 'A' && c <= 'Z' ? c + 32 : c);
    const int32_t *row = row_of(ls__lowered, ls__lowered_count, c);
    ls_status status = add_code(out, row ? row[1] : c);
    return !status && row && row[2] ? add_code(out, row[2]) : status;
}

static ls_status to_lower(const uint8_t *p, const uint8_t *end, ls__text_buffer *out)
{
    ls_status status = LS_OK;
    for (size_t bytes; p < end && !status; p += bytes) {
        int32_t c = ls__utf8_get(p, end, &bytes);
        status = c < 0 ? ls__text_buffer_add(out, p, 1) : add_lowered(out, c);
    }
    return status;
}

static ls_status replace(const ls__step *s, const uint8_t *p, const uint8_t *end, ls__text_buffer *out)
{
    ls_status status = LS_OK;
    while (p < end && !status) {
        const uint8_t *found = memmem(p, (size_t)(end - p), s->a, s->a_bytes);
        status = ls__text_buffer_add(out, p, (size_t)((found ? found : end) - p));
        if (!found || status) break;
        status = ls__text_buffer_add(out, s->b, s->b_bytes);
        p = found + s->a_bytes;
    }
    return status;
}

/* One character, decomposed and without its accents. Reordering would only move accents. */
static ls_status add_bare(ls__text_buffer *out, const ls__step *s, int32_t c)
{
    int32_t parts[4];
    size_t count = s->flags & LS__STEP_ACCENTS ? decompose(c, parts) : 1;
    if (!(s->flags & LS__STEP_ACCENTS)) parts[0] = c;
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (s->flags & LS__STEP_ACCENTS && ls__form_of(parts[i]) & LS__FORM_MARK) continue;
        status = s->flags & LS__STEP_LOWER ? add_lowered(out, parts[i]) : add_code(out, parts[i]);
    }
    return status;
}

static ls_status to_bert(const ls__step *s, const uint8_t *p, const uint8_t *end, ls__text_buffer *out)
{
    bool clean = s->flags & LS__STEP_CLEAN, lower = s->flags & LS__STEP_LOWER;
    ls_status status = LS_OK;
    for (size_t bytes; p < end && !status; p += bytes) {
        if (*p >= 0x20 && *p < 0x7f) {
            bytes = 1;
            status = ls__text_buffer_reserve(out, 1);
            if (!status) out->bytes[out->count++] = lower && *p >= 'A' && *p <= 'Z' ? *p + 32 : *p;
            continue;
        }
        int32_t c = ls__utf8_get(p, end, &bytes);
        if (c < 0) c = 0xfffd;
        uint8_t form = ls__form_of(c);
        if (clean && form & LS__FORM_REMOVED) continue;
        if (clean && form & LS__FORM_SPACE) c = ' ';
        bool apart = s->flags & LS__STEP_CJK && form & LS__FORM_CJK;
        if (apart) status = add_code(out, ' ');
        if (!status) status = add_bare(out, s, c);
        if (apart && !status) status = add_code(out, ' ');
    }
    return status;
}

static ls_status apply(ls__normalizer *n, const ls__step *s, const uint8_t *p, const uint8_t *end, ls__text_buffer *out)
{
    switch (s->kind) {
    case LS__STEP_NFC: return to_nfc(n, p, end, out);
    case LS__STEP_LOWERCASE: return to_lower(p, end, out);
    case LS__STEP_REPLACE: return replace(s, p, end, out);
    case LS__STEP_BERT_NORMALIZER: return to_bert(s, p, end, out);
    default: break;
    }
    ls_status status = ls__text_buffer_add(out, s->a, s->a_bytes); /* LS__STEP_PREPEND */
    return status ? status : ls__text_buffer_add(out, p, (size_t)(end - p));
}

ls_status ls__normalize(ls__normalizer *n, const ls__steps *steps, const uint8_t **text, size_t *bytes)
{
    for (size_t i = 0, turn = 0; i < steps->count && *bytes; i++) {
        const uint8_t *from = NULL, *end = *text + *bytes;
        if (steps->step[i].kind == LS__STEP_NFC && first_change(*text, end, &from) == end) continue;
        ls__text_buffer *out = &n->text[turn];
        out->count = 0;
        ls_status status = apply(n, &steps->step[i], *text, end, out);
        if (status) return status;
        *text = out->bytes;
        *bytes = out->count;
        turn = !turn;
    }
    return LS_OK;
}
