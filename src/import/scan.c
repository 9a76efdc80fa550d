/* See scan.h. Most of a trace is skipped, so that is what must be fast: 16 bytes at a time where the processor can (SSE2 is part of
 * every x86-64), else one. */
#include "import/scan.h"

#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

const char *ls__scan_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* The next quote or backslash; `end`: there is none. */
static const char *next_quote(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        int hits = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)));
        if (hits) return p + __builtin_ctz((unsigned)hits);
    }
#endif
    while (p < end && *p != '"' && *p != '\\') p++;
    return p;
}

const char *ls__scan_string(const char *p, const char *end, ls__text *out)
{
    const char *begin = p;
    for (;;) {
        p = next_quote(p, end);
        if (p >= end) return NULL;
        if (*p == '"') break;
        p += 2; /* an escape */
    }
    if (out) *out = (ls__text){ begin, (size_t)(p - begin) };
    return p + 1;
}

/* The next quote or bracket of any kind. */
static const char *next_bracket(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), open = _mm_set1_epi8('{'), shut = _mm_set1_epi8('}'),
                  low = _mm_set1_epi8(0x20);
    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p), y = _mm_or_si128(x, low); /* [ as {, ] as } */
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(y, open), _mm_cmpeq_epi8(y, shut));
        int hits = _mm_movemask_epi8(_mm_or_si128(hit, _mm_cmpeq_epi8(x, quote)));
        if (hits) return p + __builtin_ctz((unsigned)hits);
    }
#endif
    while (p < end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}') p++;
    return p;
}

const char *ls__scan_out(const char *p, const char *end, int depth)
{
    while (depth > 0) {
        p = next_bracket(p, end);
        if (p >= end) return NULL;
        char c = *p++;
        if (c == '"') {
            p = ls__scan_string(p, end, NULL);
            if (!p) return NULL;
        } else {
            depth += (c | 0x20) == '{' ? 1 : -1;
        }
    }
    return p;
}

static bool ends_word(char c)
{
    return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == ':' || c == '"';
}

const char *ls__scan_value(const char *p, const char *end)
{
    if (p >= end) return NULL;
    if (*p == '"') return ls__scan_string(p + 1, end, NULL);
    if (*p == '{' || *p == '[') return ls__scan_out(p + 1, end, 1);
    const char *begin = p;
    while (p < end && !ends_word(*p)) p++;
    return p == begin || p == end ? NULL : p; /* a number at the very end may continue */
}

const char *ls__scan_key(const char *p, const char *end, ls__text *key)
{
    p = ls__scan_space(p, end);
    if (p >= end || *p != '"') return NULL;
    p = ls__scan_string(p + 1, end, key);
    if (!p) return NULL;
    p = ls__scan_space(p, end);
    if (p >= end || *p != ':') return NULL;
    return ls__scan_space(p + 1, end);
}

bool ls__scan_find(const char *p, const char *end, const char *key, ls__text *out)
{
    if (p >= end || *p != '{') return false;
    for (p++; p;) {
        ls__text name;
        const char *value = ls__scan_key(p, end, &name);
        if (!value) return false;
        p = ls__scan_value(value, end);
        if (!p) return false;
        if (ls__text_is(name, key)) {
            bool quoted = *value == '"';
            *out = (ls__text){ value + quoted, (size_t)(p - value) - 2u * quoted };
            return true;
        }
        p = ls__scan_space(p, end);
        if (p >= end || *p != ',') return false;
        p++;
    }
    return false;
}

bool ls__text_contains(ls__text t, const char *word)
{
    return t.bytes && memmem(t.at, t.bytes, word, strlen(word)) != NULL;
}

/* A number with an exponent: rare, and of no great precision. */
static bool by_double(ls__text t, double scale, int64_t *out)
{
    char copy[64];
    if (t.bytes >= sizeof copy) return false;
    memcpy(copy, t.at, t.bytes);
    copy[t.bytes] = 0;
    char *rest;
    double x = strtod(copy, &rest) * scale;
    if (rest == copy || *rest || !(x > -4.6e18 && x < 4.6e18)) return false;
    *out = (int64_t)x;
    return true;
}

static bool decimal(ls__text t, int digits, int64_t *out)
{
    const char *p = t.at, *end = t.at + t.bytes;
    uint64_t value = 0;
    bool minus = p < end && *p == '-', some = false;
    p += minus;
    for (; p < end && *p >= '0' && *p <= '9'; p++, some = true) {
        if (value > (UINT64_C(1) << 62) / 10) return false;
        value = value * 10 + (uint64_t)(*p - '0');
    }
    bool fraction = p < end && *p == '.';
    p += fraction;
    for (; digits > 0; digits--) {
        int digit = fraction && p < end && *p >= '0' && *p <= '9' ? *p++ - '0' : 0;
        if (value > (UINT64_C(1) << 62) / 10) return false;
        value = value * 10 + (uint64_t)digit;
    }
    while (fraction && p < end && *p >= '0' && *p <= '9') p++;
    if (!some || value > UINT64_C(1) << 62) return false;
    *out = minus ? -(int64_t)value : (int64_t)value;
    return p == end;
}

static ls__text unquoted(ls__text t)
{
    if (t.bytes >= 2 && *t.at == '"' && t.at[t.bytes - 1] == '"') return (ls__text){ t.at + 1, t.bytes - 2 };
    return t;
}

bool ls__text_thousandths(ls__text t, int64_t *out)
{
    t = unquoted(t);
    return decimal(t, 3, out) || by_double(t, 1e3, out);
}

bool ls__text_integer(ls__text t, int64_t *out)
{
    t = unquoted(t);
    return decimal(t, 0, out) || by_double(t, 1, out);
}

/* The four hexadecimal digits of an escape; -1: they are not. */
static int hex_of(const char *p, const char *end)
{
    int value = 0;
    for (int i = 0; i < 4; i++, p++) {
        if (p >= end) return -1;
        int digit = *p >= '0' && *p <= '9'                     ? *p - '0'
                    : (*p | 0x20) >= 'a' && (*p | 0x20) <= 'f' ? (*p | 0x20) - 'a' + 10
                                                               : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A character as UTF-8; returns its bytes, 1 to 3. Halves of a pair, and NUL, are question marks. */
static size_t put_character(char *out, int c)
{
    if (c <= 0 || (c >= 0xd800 && c < 0xe000)) c = '?';
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    out[0] = (char)(0xe0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 0x3f));
    out[2] = (char)(0x80 | (c & 0x3f));
    return 3;
}

void ls__text_copy(ls__text t, char *out, size_t bytes)
{
    char plain[512];
    size_t n = 0;
    for (size_t i = 0; i < t.bytes && n + 4 < sizeof plain && n + 1 < bytes; i++) {
        char c = t.at[i];
        if (c == '\\' && i + 1 < t.bytes) {
            c = t.at[++i];
            int code = c == 'u' ? hex_of(t.at + i + 1, t.at + t.bytes) : -1;
            if (code >= 0) {
                n += put_character(plain + n, code);
                i += 4;
                continue;
            }
            if (c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f') {
                c = ' ';
            }
        }
        plain[n++] = c ? c : '?';
    }
    plain[n] = 0;
    ls__printable(out, bytes, plain);
}
