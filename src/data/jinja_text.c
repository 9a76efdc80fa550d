/* Strings of templates, as Python has them, and JSON. See jinja_values.h.
 *
 * Letters outside of ASCII keep their case: no template of a model changes that of text. */
#include "data/jinja_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

typedef ls__jinja_chars text;

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The character of `n` bytes. */
static uint32_t character(const char *p, size_t n)
{
    static const uint8_t first[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t c = (uint8_t)*p & first[n];
    for (size_t i = 1; i < n; i++) c = c << 6 | ((uint8_t)p[i] & 0x3f);
    return c;
}

/* Bytes of the character that begins, or ends, at an end of the text, which is UTF-8. */
size_t ls__jinja_first_bytes(text t)
{
    size_t n = 1;
    while (n < t.count && ((uint8_t)t.p[n] & 0xc0) == 0x80) n++;
    return n < 4 ? n : 4;
}

static size_t last_bytes(text t)
{
    size_t n = 1;
    while (n < t.count && n < 4 && ((uint8_t)t.p[t.count - n] & 0xc0) == 0x80) n++;
    return n;
}

/* Whether ls__jinja_strip() removes a character: white space, or one of `set`. */
static bool strips(const char *p, size_t n, const text *set)
{
    if (!set) return is_space(character(p, n));
    for (size_t i = 0; i + n <= set->count; i++)
        if (!memcmp(set->p + i, p, n) && (i + n == set->count || ((uint8_t)set->p[i + n] & 0xc0) != 0x80)) return true;
    return false;
}

json_t *ls__jinja_strip(json_t *value, bool left, bool right, const json_t *chars)
{
    text t = ls__jinja_chars_of(value), set = { "", 0 };
    if (json_is_string(chars)) set = ls__jinja_chars_of(chars);
    const text *given = json_is_string(chars) ? &set : NULL;
    while (left && t.count && strips(t.p, ls__jinja_first_bytes(t), given)) {
        size_t n = ls__jinja_first_bytes(t);
        t = (text){ t.p + n, t.count - n };
    }
    while (right && t.count && strips(t.p + t.count - last_bytes(t), last_bytes(t), given)) t.count -= last_bytes(t);
    return ls__jinja_make_string(t.p, t.count);
}

const char *ls__jinja_find(text in, text what)
{
    return what.count ? memmem(in.p, in.count, what.p, what.count) : in.p;
}

bool ls__jinja_append(json_t *list, json_t *value)
{
    if (value && !json_array_append_new(list, value)) return true;
    if (value) ls__jinja_no_memory();
    return false;
}

json_t *ls__jinja_split(json_t *value, const json_t *separator, json_int_t limit)
{
    text rest = ls__jinja_chars_of(value);
    json_t *out = json_array();
    bool spaces = !json_is_string(separator), good = out;
    text sep = spaces ? (text){ "", 0 } : ls__jinja_chars_of(separator);
    if (!spaces && !sep.count) {
        ls__fail(LS_EFORMAT, "split() by an empty text");
        good = false;
    }
    while (good) {
        const char *at = NULL;
        size_t skip = sep.count;
        if (spaces) {
            for (size_t n; rest.count && is_space(character(rest.p, n = ls__jinja_first_bytes(rest)));)
                rest.p += n, rest.count -= n;
            if (!rest.count) break;
            for (size_t i = 0; i < rest.count && !at;) {
                size_t n = ls__jinja_first_bytes((text){ rest.p + i, rest.count - i });
                if (is_space(character(rest.p + i, n))) at = rest.p + i, skip = n;
                i += n;
            }
        } else {
            at = ls__jinja_find(rest, sep);
        }
        if (limit >= 0 && (json_int_t)json_array_size(out) >= limit) at = NULL;
        size_t n = at ? (size_t)(at - rest.p) : rest.count;
        good = ls__jinja_append(out, ls__jinja_make_string(rest.p, n));
        if (!at) break;
        rest = (text){ at + skip, rest.count - n - skip };
    }
    if (!good) json_decref(out);
    return good ? out : NULL;
}

json_t *ls__jinja_join(const char *between, size_t bytes, json_t *list)
{
    char *out = NULL;
    size_t count = 0, total = 0, i;
    json_t *item, *result = NULL;
    FILE *to = open_memstream(&out, &count);
    bool good = to;
    json_array_foreach(list, i, item)
    {
        json_t *s = good ? ls__jinja_string(item) : NULL;
        if (s && i) fwrite(between, 1, bytes, to);
        if (s) fwrite(json_string_value(s), 1, json_string_length(s), to);
        total += bytes + json_string_length(s);
        if (total > LS__JINJA_MAX_BYTES) ls__fail(LS_EFORMAT, "a text of more than %d MiB", LS__JINJA_MAX_BYTES >> 20);
        good = s && total <= LS__JINJA_MAX_BYTES;
        json_decref(s);
    }
    if (to && fclose(to)) good = false;
    if (good) result = ls__jinja_make_string(out, count);
    free(out);
    return result;
}

json_t *ls__jinja_replace(json_t *value, json_t *from, json_t *to)
{
    if (!json_is_string(from) || !json_is_string(to) || !json_string_length(from)) {
        ls__fail(LS_EFORMAT, "replace() needs two texts, of which the first is not empty");
        return NULL;
    }
    json_t *parts = ls__jinja_split(value, from, -1);
    json_t *out = parts ? ls__jinja_join(json_string_value(to), json_string_length(to), parts) : NULL;
    json_decref(parts);
    return out;
}

json_t *ls__jinja_change_case(json_t *value, ls__jinja_case want)
{
    text t = ls__jinja_chars_of(value);
    char *out = malloc(t.count + 1);
    bool inside = false;
    for (size_t i = 0; out && i < t.count; i++) {
        char c = t.p[i];
        bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
        bool raise =
            want == LS__JINJA_UPPER || (want == LS__JINJA_TITLE && !inside) || (want == LS__JINJA_CAPITAL && !i);
        out[i] = (char)(raise && lower ? c - 32 : !raise && upper ? c + 32 : c);
        inside = lower || upper || (uint8_t)c >= 0x80;
    }
    json_t *s = out ? ls__jinja_make_string(out, t.count) : ls__jinja_no_memory();
    free(out);
    return s;
}

/* ---- JSON, as Python writes it. */

static bool dump(FILE *to, json_t *value, int indent, int level)
{
    const char *key;
    json_t *item;
    size_t i = 0, n;
    bool object = json_is_object(value), good = true;
    if (value == &ls__jinja_undefined) {
        ls__fail(LS_EFORMAT, "tojson of something undefined");
        return false;
    }
    if (json_is_real(value)) {
        json_t *s = ls__jinja_string(value);
        if (s) fputs(json_string_value(s), to);
        json_decref(s);
        return s;
    }
    if (!object && !json_is_array(value)) return !json_dumpf(value, to, JSON_ENCODE_ANY);
    n = object ? json_object_size(value) : json_array_size(value);
    fputc(object ? '{' : '[', to);
#define BEFORE()                                                        \
    do {                                                                \
        if (i++) fputs(indent < 0 ? ", " : ",", to);                    \
        if (indent >= 0) fprintf(to, "\n%*s", indent *(level + 1), ""); \
    } while (0)
    if (object) {
        json_object_foreach(value, key, item)
        {
            BEFORE();
            json_t *name = json_string(key);
            good = good && name && !json_dumpf(name, to, JSON_ENCODE_ANY);
            fputs(": ", to);
            good = good && dump(to, item, indent, level + 1);
            json_decref(name);
        }
    } else {
        size_t k;
        json_array_foreach(value, k, item)
        {
            BEFORE();
            good = good && dump(to, item, indent, level + 1);
        }
    }
#undef BEFORE
    if (n && indent >= 0) fprintf(to, "\n%*s", indent * level, "");
    fputc(object ? '}' : ']', to);
    return good;
}

json_t *ls__jinja_to_json(json_t *value, const json_t *indent)
{
    char *out = NULL;
    size_t count = 0;
    FILE *to = open_memstream(&out, &count);
    if (!to) return ls__jinja_no_memory();
    int spaces = json_is_integer(indent) && json_integer_value(indent) >= 0 && json_integer_value(indent) <= 32
                     ? (int)json_integer_value(indent)
                     : -1;
    bool good = dump(to, value, spaces, 0);
    if (fclose(to)) good = false;
    json_t *s = good ? ls__jinja_make_string(out, count) : NULL;
    free(out);
    return s;
}
