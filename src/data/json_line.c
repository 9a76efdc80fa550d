/* One line of JSON lines. See json_line.h.
 *
 * The object is scanned once, without a tree. Strings without a backslash, nearly all, are returned in place; others are decoded
 * into the reader's memory, which has room for the whole line, since decoding never makes a string longer. */
#include "data/json_line.h"

#include <stdlib.h>
#include <string.h>
#include "base/text.h"

enum { MAX_DEPTH = 1024, NUMBER_BYTES = 400 };

typedef struct scan {
    const char *begin, *p, *end;
    const char *problem; /* NULL: none so far */
    char *memory;        /* where the next decoded string goes */
} scan;

static bool fails(scan *s, const char *problem)
{
    if (!s->problem) s->problem = problem;
    return false;
}

static void skip_blanks(scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static bool take(scan *s, char c, const char *problem)
{
    skip_blanks(s);
    if (s->p >= s->end) return fails(s, "unexpected end");
    if (*s->p != c) return fails(s, problem);
    s->p++;
    return true;
}

/* ---- Strings. */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Four hexadecimal digits at `p`; -1: there are none. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* The end of the string whose first character is at s->p: s->p moves past its quote, *bytes is what comes before. */
static bool find_end(scan *s, size_t *bytes, bool *escaped)
{
    const char *from = s->p;
    *escaped = false;
    for (; s->p < s->end; s->p++) {
        unsigned char c = (unsigned char)*s->p;
        if (c == '"') {
            *bytes = (size_t)(s->p++ - from);
            return true;
        }
        if (c < 0x20) return fails(s, "control character in a string");
        if (c != '\\') continue;
        *escaped = true;
        if (++s->p >= s->end) break;
        if (*s->p == 'u' ? hex4(s->p + 1, s->end) < 0 : !memchr("\"\\/bfnrt", *s->p, 8))
            return fails(s, "unknown escape in a string");
    }
    return fails(s, "unterminated string");
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* The character of "uXXXX" at `p`, perhaps followed by its other half; *p moves past both. */
static uint32_t unescape_u(const char **p, const char *end)
{
    uint32_t c = (uint32_t)hex4(*p + 1, end);
    *p += 5;
    if (c < 0xd800 || c > 0xdfff) return c;
    int32_t low = c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end) : -1;
    if (low < 0xdc00 || low > 0xdfff) return 0xfffd;
    *p += 6;
    return 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
}

/* Decodes a string that find_end() has gone over. */
static size_t decode(const char *p, size_t bytes, char *out)
{
    static const char letters[] = "bfnrt", values[] = "\b\f\n\r\t";
    const char *end = p + bytes;
    char *to = out;
    while (p < end) {
        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        p++;
        if (*p == 'u') {
            to = put_utf8(to, unescape_u(&p, end));
            continue;
        }
        const char *letter = strchr(letters, *p);
        *to++ = letter ? values[letter - letters] : *p;
        p++;
    }
    return (size_t)(to - out);
}

/* The first place that is not UTF-8; NULL: all is. At least a quote follows the text. */
static const char *not_utf8(const char *p, size_t bytes)
{
    const char *end = p + bytes;
    while (p < end) {
        int n = (unsigned char)*p < 0x80 ? 1 : ls__utf8_length(p);
        if (!n || n > end - p) return p;
        p += n;
    }
    return NULL;
}

/* A string, from its quote on, decoded. */
static bool read_string(scan *s, const char **text, size_t *bytes)
{
    bool escaped;
    if (!take(s, '"', "missing string")) return false;
    const char *from = s->p;
    if (!find_end(s, bytes, &escaped)) return false;
    *text = from;
    if (!escaped) return true;
    *bytes = decode(from, *bytes, s->memory);
    s->memory[*bytes] = 0; /* so that looking for UTF-8 stops there */
    *text = s->memory;
    s->memory += *bytes;
    return true;
}

/* ---- Other values. */

static bool skip_digits(scan *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return s->p > from || fails(s, "invalid value");
}

/* A number of any size. */
static bool skip_number(scan *s, const char **from)
{
    skip_blanks(s);
    *from = s->p;
    if (s->p < s->end && *s->p == '-') s->p++;
    static const char *const words[] = { "NaN", "Infinity" };
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) < n || memcmp(s->p, words[i], n)) continue;
        s->p += n;
        return true;
    }
    if (!skip_digits(s)) return false;
    if (s->p < s->end && *s->p == '.' && (s->p++, !skip_digits(s))) return false;
    if (s->p >= s->end || (*s->p != 'e' && *s->p != 'E')) return true;
    s->p++;
    if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
    return skip_digits(s);
}

static bool read_number(scan *s, double *out)
{
    const char *from;
    char text[NUMBER_BYTES], *end;
    if (!skip_number(s, &from)) return false;
    size_t n = (size_t)(s->p - from);
    if (n >= sizeof text) return fails(s, "number with too many digits");
    memcpy(text, from, n);
    text[n] = 0;
    *out = strtod(text, &end);
    return !*end || fails(s, "no number");
}

static bool skip_word(scan *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) < n || memcmp(s->p, words[i], n)) continue;
        s->p += n;
        return true;
    }
    const char *from;
    return skip_number(s, &from);
}

static bool skip_string(scan *s)
{
    size_t bytes;
    bool escaped;
    return take(s, '"', "missing string") && find_end(s, &bytes, &escaped);
}

/* Any value. Nested ones are kept track of in a stack of bits: 1 is an object, 0 an array. */
static bool skip_value(scan *s)
{
    uint64_t stack[MAX_DEPTH / 64] = { 0 };
    int depth = 0;
    for (;;) {
        skip_blanks(s);
        if (s->p >= s->end) return fails(s, "unexpected end");
        char c = *s->p;
        bool opened = c == '{' || c == '[';
        if (opened) {
            if (depth == MAX_DEPTH) return fails(s, "nested too deeply");
            uint64_t bit = UINT64_C(1) << depth % 64;
            stack[depth / 64] = c == '{' ? stack[depth / 64] | bit : stack[depth / 64] & ~bit;
            depth++;
            s->p++;
            skip_blanks(s);
        } else if (!(c == '"' ? skip_string(s) : skip_word(s))) {
            return false;
        }
        /* After a value: close what ends here, up to a comma. */
        for (; depth; depth--, opened = false) {
            bool object = stack[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
            skip_blanks(s);
            if (s->p < s->end && *s->p == (object ? '}' : ']')) {
                s->p++;
                continue;
            }
            if (!opened && !take(s, ',', "missing ',' between two values")) return false;
            if (object && !(skip_string(s) && take(s, ':', "missing ':' after a name"))) return false;
            break;
        }
        if (!depth) return true;
    }
}

/* ---- The object. */

static bool read_value(scan *s, ls__json_field *field)
{
    skip_blanks(s);
    if (s->p >= s->end) return fails(s, "unexpected end");
    if (field->is_raw) {
        field->found = true;
        field->text = s->p;
        bool good = skip_value(s);
        field->bytes = (size_t)(s->p - field->text);
        return good;
    }
    bool string = *s->p == '"', number = !string && !memchr("{[tfn", *s->p, 5);
    field->found = field->either ? number || string : field->is_number ? number : string;
    if (!field->found) return skip_value(s);
    if (number) return read_number(s, &field->number);
    const char *from = s->p;
    if (!read_string(s, &field->text, &field->bytes)) return false;
    const char *wrong = not_utf8(field->text, field->bytes);
    if (!wrong) return true;
    s->p = wrong >= s->begin && wrong < s->end ? wrong : from; /* decoded, the place in the line is not known */
    return fails(s, "string is not valid UTF-8");
}

static bool read_object(scan *s, ls__json_field *fields, int n_fields)
{
    if (!take(s, '{', "missing '{'")) return false;
    skip_blanks(s);
    if (s->p < s->end && *s->p == '}') {
        s->p++;
        return true;
    }
    for (unsigned seen = 0;;) { /* a bit for each field */
        const char *name;
        size_t bytes;
        ls__json_field *field = NULL;
        if (!read_string(s, &name, &bytes) || !take(s, ':', "missing ':' after a name")) return false;
        for (int i = 0; i < n_fields; i++)
            if (strlen(fields[i].name) == bytes && !memcmp(fields[i].name, name, bytes)) field = &fields[i];
        if (field && seen & 1u << (field - fields)) return fails(s, "duplicate field");
        if (field) seen |= 1u << (field - fields);
        if (!(field ? read_value(s, field) : skip_value(s))) return false;
        skip_blanks(s);
        if (s->p < s->end && *s->p == '}') {
            s->p++;
            return true;
        }
        if (!take(s, ',', "missing ',' between two fields")) return false;
    }
}

ls_status ls__json_line_read(ls__json_line *reader, const char *line, size_t count, ls__json_field *fields,
                             int n_fields, size_t *at, const char **problem)
{
    if (reader->room < count) {
        char *memory = realloc(reader->memory, count + 1);
        if (!memory) return LS_ENOMEM;
        reader->memory = memory;
        reader->room = count;
    }
    scan s = { .begin = line, .p = line, .end = line + count, .memory = reader->memory };
    if (count >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) s.p += 3;
    bool good = read_object(&s, fields, n_fields);
    if (good) skip_blanks(&s);
    if (good && s.p < s.end) good = fails(&s, "trailing characters after the object");
    *at = (size_t)(s.p - line);
    *problem = s.problem;
    return good ? LS_OK : LS_EFORMAT;
}

void ls__json_line_free(ls__json_line *reader)
{
    free(reader->memory);
    *reader = (ls__json_line){ 0 };
}
