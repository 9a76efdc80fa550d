/* The expression of GPT-2, written as code:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * The alternatives are tried in this order. A contraction is tried only at an apostrophe. A space belongs to the run of letters,
 * numbers or others that follows it. White space before something else leaves out its last character (\s+(?!\S) steps back by
 * one), unless it is a single one (\s+).
 *
 * There is no look-behind, so a word does not depend on what comes before it; and no word continues from a character that is not
 * white space to one that is. ls__split_cut() relies on both. */
#include "data/split.h"
#include "data/unicode.h"

enum { O = LS__OTHER, L = LS__LETTER, N = LS__NUMBER, S = LS__SPACE };

static const uint8_t ascii[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* control */
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O, /* digits */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* A to Z */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* a to z */
};

static bool continues(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

/* The code point at p, whose first byte is not ASCII; -1 if it is not valid UTF-8 (too short, overlong, a surrogate,
 * beyond U+10FFFF). */
static int32_t decode(const uint8_t *p, const uint8_t *end, size_t *bytes)
{
    size_t left = (size_t)(end - p);
    if (p[0] >= 0xc2 && p[0] <= 0xdf && left >= 2 && continues(p[1])) {
        *bytes = 2;
        return (p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if ((p[0] & 0xf0) == 0xe0 && left >= 3 && continues(p[1]) && continues(p[2])) {
        int32_t c = (p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f);
        *bytes = 3;
        return c >= 0x800 && (c < 0xd800 || c > 0xdfff) ? c : -1;
    }
    if ((p[0] & 0xf8) == 0xf0 && left >= 4 && continues(p[1]) && continues(p[2]) && continues(p[3])) {
        int32_t c = (p[0] & 0x07) << 18 | (p[1] & 0x3f) << 12 | (p[2] & 0x3f) << 6 | (p[3] & 0x3f);
        *bytes = 4;
        return c >= 0x10000 && c <= 0x10ffff ? c : -1;
    }
    return -1;
}

static ls__char_class beyond_ascii(const uint8_t *p, const uint8_t *end, size_t *bytes)
{
    int32_t c = decode(p, end, bytes);
    if (c >= 0) return (ls__char_class)(ls__class_blocks[ls__class_index[c >> 8]][(c & 255) >> 2] >> 2 * (c & 3) & 3);
    *bytes = 1;
    return LS__OTHER;
}

ls__char_class ls__char_at(const uint8_t *p, const uint8_t *end, size_t *bytes)
{
    if (*p >= 128) return beyond_ascii(p, end, bytes);
    *bytes = 1;
    return (ls__char_class)ascii[*p];
}

int32_t ls__utf8_get(const uint8_t *p, const uint8_t *end, size_t *bytes)
{
    *bytes = 1;
    if (*p < 128) return *p;
    int32_t c = decode(p, end, bytes);
    if (c < 0) *bytes = 1;
    return c;
}

size_t ls__utf8_put(uint8_t *p, int32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = n - 1; i > 0; i--, c >>= 6) p[i] = (uint8_t)(0x80 | (c & 0x3f));
    p[0] = (uint8_t)(lead[n] | c);
    return n;
}

bool ls__is_word(const uint8_t *p, const uint8_t *end)
{
    size_t bytes, low = 0, high = ls__word_range_count;
    int32_t c = *p < 128 ? *p : decode(p, end, &bytes);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ls__word_ranges[middle][1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return c >= 0 && low < ls__word_range_count && ls__word_ranges[low][0] <= c;
}

/* The end of a run of characters of one class. */
static inline const uint8_t *run(const uint8_t *p, const uint8_t *end, ls__char_class class)
{
    for (;;) {
        while (p < end && *p < 128 && ascii[*p] == class) p++;
        if (p == end || *p < 128) return p;
        size_t bytes;
        if (beyond_ascii(p, end, &bytes) != class) return p;
        p += bytes;
    }
}

/* Length of the contraction at an apostrophe; 0 if it is not one. */
static size_t contraction(const uint8_t *p, const uint8_t *end)
{
    if (end - p < 2) return 0;
    uint8_t a = p[1], b = end - p > 2 ? p[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t white_space(const uint8_t *text, const uint8_t *end)
{
    const uint8_t *p = text, *last = text;
    size_t bytes;
    while (p < end && ls__char_at(p, end, &bytes) == LS__SPACE) {
        last = p;
        p += bytes;
    }
    return (size_t)((p == end || last == text ? p : last) - text);
}

size_t ls__split(const uint8_t *text, const uint8_t *end)
{
    if (text == end) return 0;
    size_t bytes;
    if (*text == '\'' && (bytes = contraction(text, end))) return bytes;
    const uint8_t *p = *text == ' ' && end - text > 1 ? text + 1 : text;
    ls__char_class class = ls__char_at(p, end, &bytes);
    if (class == LS__SPACE) return white_space(text, end);
    return (size_t)(run(p + bytes, end, class) - text);
}

/* ---- The expression of Llama 3 and Qwen, which GPT-4 has, too:
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * Any single character that is neither letter, number nor the end of a line belongs to the letters after it; the ends of lines
 * belong to the punctuation before them; white space ends with its last end of a line. */

static bool is_break(uint8_t byte)
{
    return byte == '\r' || byte == '\n';
}

/* Like contraction(), in upper and lower case. The long s (U+017F) is an s, too. */
static size_t contraction_any_case(const uint8_t *p, const uint8_t *end)
{
    if (end - p < 2) return 0;
    if (end - p > 2 && p[1] == 0xc5 && p[2] == 0xbf) return 3;
    uint8_t a = p[1] | 0x20, b = end - p > 2 ? p[2] | 0x20 : 0;
    if (p[1] >= 0x80) return 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t white_space_to_break(const uint8_t *text, const uint8_t *end)
{
    const uint8_t *stop = NULL;
    size_t bytes;
    for (const uint8_t *p = text; p < end && ls__char_at(p, end, &bytes) == LS__SPACE; p += bytes)
        if (is_break(*p)) stop = p + 1;
    return stop ? (size_t)(stop - text) : white_space(text, end);
}

static size_t numbers(const uint8_t *text, const uint8_t *end, uint32_t limit)
{
    const uint8_t *p = text;
    size_t bytes;
    for (uint32_t n = 0; p < end && (!limit || n < limit) && ls__char_at(p, end, &bytes) == LS__NUMBER; n++) p += bytes;
    return (size_t)(p - text);
}

size_t ls__split_llama(const uint8_t *text, const uint8_t *end, uint32_t digits)
{
    if (text == end) return 0;
    size_t bytes, second;
    if (*text == '\'' && (bytes = contraction_any_case(text, end))) return bytes;
    ls__char_class class = ls__char_at(text, end, &bytes);
    const uint8_t *next = text + bytes;
    if (class == LS__LETTER) return (size_t)(run(next, end, class) - text);
    if (class == LS__NUMBER) return numbers(text, end, digits);
    ls__char_class after = next < end ? ls__char_at(next, end, &second) : LS__SPACE;
    if (after == LS__LETTER && !is_break(*text)) return (size_t)(run(next + second, end, after) - text);
    if (class == LS__SPACE && !(*text == ' ' && after == LS__OTHER)) return white_space_to_break(text, end);
    const uint8_t *p = run(next, end, LS__OTHER);
    while (p < end && is_break(*p)) p++;
    return (size_t)(p - text);
}

/* Whether the character that ends before `p` is white space. */
static bool space_before(const uint8_t *text, const uint8_t *p)
{
    const uint8_t *first = p - 1;
    while (first > text && p - first < 4 && continues(*first)) first--;
    size_t bytes;
    return ls__char_at(first, p, &bytes) == LS__SPACE && bytes == (size_t)(p - first);
}

size_t ls__split_cut(const uint8_t *text, size_t from, size_t bytes)
{
    for (size_t i = from ? from : 1; i < bytes; i++)
        if (text[i] < 128 && ascii[text[i]] == LS__SPACE && !space_before(text, text + i)) return i;
    return bytes;
}
