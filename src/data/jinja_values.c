/* The values of templates: operators, filters, tests and methods, as Python has them. See jinja.h.
 *
 * Places in strings count characters, not bytes. Letters outside of ASCII keep their case: no template of a model changes that of text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "data/jinja.h"

json_t ls__jinja_undefined = { .type = JSON_NULL, .refcount = (size_t)-1 };

enum { MAX_BYTES = 1 << 26, MAX_ITEMS = 1 << 20 }; /* of a string, of a list */

typedef struct text {
    const char *p;
    size_t count;
} text;

static text text_of(const json_t *value)
{
    return (text){ json_string_value(value), json_string_length(value) };
}

static json_t *make_string(const char *p, size_t count)
{
    json_t *s = count <= MAX_BYTES ? json_stringn(p, count) : NULL;
    if (!s && count > MAX_BYTES)
        ls__fail(LS_EFORMAT, "a text of more than %d MiB", MAX_BYTES >> 20);
    else if (!s)
        ls__fail(LS_EFORMAT, "a text that is not UTF-8, or out of memory");
    return s;
}

static json_t *no_memory(void)
{
    ls__fail(LS_ENOMEM, "out of memory");
    return NULL;
}

const char *ls__jinja_type(const json_t *value)
{
    static const char *const names[] = { "an object", "a list", "a string", "an integer",
                                         "a number",  "true",   "false",    "none" };
    return value == &ls__jinja_undefined ? "undefined" : names[json_typeof(value)];
}

bool ls__jinja_true(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return json_object_size(value) > 0;
    case JSON_ARRAY: return json_array_size(value) > 0;
    case JSON_STRING: return json_string_length(value) > 0;
    case JSON_INTEGER: return json_integer_value(value) != 0;
    case JSON_REAL: return json_real_value(value) < 0 || json_real_value(value) > 0;
    default: return json_is_true(value);
    }
}

/* Python's truth values are numbers, too. */
static bool is_number(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v);
}

static double number_of(const json_t *v)
{
    return json_is_true(v) ? 1 : json_is_false(v) ? 0 : json_number_value(v);
}

static json_int_t integer_of(const json_t *v)
{
    return json_is_true(v) ? 1 : json_is_false(v) ? 0 : json_integer_value(v);
}

bool ls__jinja_equal(const json_t *a, const json_t *b)
{
    if (is_number(a) && is_number(b)) return !(number_of(a) < number_of(b)) && !(number_of(a) > number_of(b));
    return json_equal(a, b);
}

/* ---- Text. */

/* A number as Python prints it. */
static void print_real(double x, char *out, size_t bytes)
{
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(out, bytes, "%.*g", digits, x);
        if (!isnan(x) && !(strtod(out, NULL) < x) && !(strtod(out, NULL) > x)) break;
    }
    int exponent = x < 0 || x > 0 ? (int)floor(log10(fabs(x))) : 0;
    if (isfinite(x) && exponent >= -4 && exponent < 16)
        snprintf(out, bytes, "%.*f", digits - 1 > exponent + 1 ? digits - 1 - exponent : 1, x);
}

json_t *ls__jinja_string(json_t *value)
{
    char buffer[400];
    switch (json_typeof(value)) {
    case JSON_STRING: return json_incref(value);
    case JSON_INTEGER: snprintf(buffer, sizeof buffer, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: print_real(json_real_value(value), buffer, sizeof buffer); break;
    case JSON_TRUE: return json_string("True");
    case JSON_FALSE: return json_string("False");
    case JSON_NULL: return json_string(value == &ls__jinja_undefined ? "" : "None");
    default:
        ls__fail(LS_EUNSUPPORTED, "unsupported: %s as text; contents must be strings", ls__jinja_type(value));
        return NULL;
    }
    return json_string(buffer);
}

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
static size_t first_bytes(text t)
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

/* Whether strip() removes a character: white space, or one of `set`. */
static bool strips(const char *p, size_t n, const text *set)
{
    if (!set) return is_space(character(p, n));
    for (size_t i = 0; i + n <= set->count; i++)
        if (!memcmp(set->p + i, p, n) && (i + n == set->count || ((uint8_t)set->p[i + n] & 0xc0) != 0x80)) return true;
    return false;
}

static json_t *strip(json_t *value, bool left, bool right, const json_t *chars)
{
    text t = text_of(value), set = { "", 0 };
    if (json_is_string(chars)) set = text_of(chars);
    const text *given = json_is_string(chars) ? &set : NULL;
    while (left && t.count && strips(t.p, first_bytes(t), given)) {
        size_t n = first_bytes(t);
        t = (text){ t.p + n, t.count - n };
    }
    while (right && t.count && strips(t.p + t.count - last_bytes(t), last_bytes(t), given)) t.count -= last_bytes(t);
    return make_string(t.p, t.count);
}

static const char *find(text in, text what)
{
    return what.count ? memmem(in.p, in.count, what.p, what.count) : in.p;
}

static bool append(json_t *list, json_t *value)
{
    if (value && !json_array_append_new(list, value)) return true;
    if (value) no_memory();
    return false;
}

static json_t *split(json_t *value, const json_t *separator, json_int_t limit)
{
    text rest = text_of(value);
    json_t *out = json_array();
    bool spaces = !json_is_string(separator), good = out;
    text sep = spaces ? (text){ "", 0 } : text_of(separator);
    if (!spaces && !sep.count) {
        ls__fail(LS_EFORMAT, "split() by an empty text");
        good = false;
    }
    while (good) {
        const char *at = NULL;
        size_t skip = sep.count;
        if (spaces) {
            for (size_t n; rest.count && is_space(character(rest.p, n = first_bytes(rest)));)
                rest.p += n, rest.count -= n;
            if (!rest.count) break;
            for (size_t i = 0; i < rest.count && !at;) {
                size_t n = first_bytes((text){ rest.p + i, rest.count - i });
                if (is_space(character(rest.p + i, n))) at = rest.p + i, skip = n;
                i += n;
            }
        } else {
            at = find(rest, sep);
        }
        if (limit >= 0 && (json_int_t)json_array_size(out) >= limit) at = NULL;
        size_t n = at ? (size_t)(at - rest.p) : rest.count;
        good = append(out, make_string(rest.p, n));
        if (!at) break;
        rest = (text){ at + skip, rest.count - n - skip };
    }
    if (!good) json_decref(out);
    return good ? out : NULL;
}

static json_t *join(const char *between, size_t bytes, json_t *list)
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
        if (total > MAX_BYTES) ls__fail(LS_EFORMAT, "a text of more than %d MiB", MAX_BYTES >> 20);
        good = s && total <= MAX_BYTES;
        json_decref(s);
    }
    if (to && fclose(to)) good = false;
    if (good) result = make_string(out, count);
    free(out);
    return result;
}

static json_t *replace(json_t *value, json_t *from, json_t *to)
{
    if (!json_is_string(from) || !json_is_string(to) || !json_string_length(from)) {
        ls__fail(LS_EFORMAT, "replace() needs two texts, of which the first is not empty");
        return NULL;
    }
    json_t *parts = split(value, from, -1);
    json_t *out = parts ? join(json_string_value(to), json_string_length(to), parts) : NULL;
    json_decref(parts);
    return out;
}

typedef enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL } letter_case;

static json_t *change_case(json_t *value, letter_case want)
{
    text t = text_of(value);
    char *out = malloc(t.count + 1);
    bool inside = false;
    for (size_t i = 0; out && i < t.count; i++) {
        char c = t.p[i];
        bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
        bool raise = want == CASE_UPPER || (want == CASE_TITLE && !inside) || (want == CASE_CAPITAL && !i);
        out[i] = (char)(raise && lower ? c - 32 : !raise && upper ? c + 32 : c);
        inside = lower || upper || (uint8_t)c >= 0x80;
    }
    json_t *s = out ? make_string(out, t.count) : no_memory();
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

static json_t *to_json(json_t *value, const json_t *indent)
{
    char *out = NULL;
    size_t count = 0;
    FILE *to = open_memstream(&out, &count);
    if (!to) return no_memory();
    int spaces = json_is_integer(indent) && json_integer_value(indent) >= 0 && json_integer_value(indent) <= 32
                     ? (int)json_integer_value(indent)
                     : -1;
    bool good = dump(to, value, spaces, 0);
    if (fclose(to)) good = false;
    json_t *s = good ? make_string(out, count) : NULL;
    free(out);
    return s;
}

/* ---- Operators. */

static json_t *wrong_types(const char *what, const json_t *a, const json_t *b)
{
    ls__fail(LS_EFORMAT, "%s of %s and %s", what, ls__jinja_type(a), ls__jinja_type(b));
    return NULL;
}

static json_t *add_values(json_t *a, json_t *b)
{
    if (json_is_string(a) && json_is_string(b)) {
        text x = text_of(a), y = text_of(b);
        char *both = malloc(x.count + y.count + 1);
        if (!both) return no_memory();
        memcpy(both, x.p, x.count);
        memcpy(both + x.count, y.p, y.count);
        json_t *out = make_string(both, x.count + y.count);
        free(both);
        return out;
    }
    if (json_is_array(a) && json_is_array(b)) {
        json_t *out = json_array_size(a) + json_array_size(b) <= MAX_ITEMS ? json_copy(a) : NULL;
        if (out && !json_array_extend(out, b)) return out;
        json_decref(out);
        ls__fail(LS_EFORMAT, "a list of more than %d elements", MAX_ITEMS);
        return NULL;
    }
    return wrong_types("the sum", a, b);
}

static json_t *calculate(ls__jinja_op op, const json_t *a, const json_t *b)
{
    json_int_t x = integer_of(a), y = integer_of(b), z = 0;
    double u = number_of(a), v = number_of(b);
    bool real = json_is_real(a) || json_is_real(b) || op == LS__JINJA_DIV, over = false;
    if (op >= LS__JINJA_DIV && op <= LS__JINJA_MOD && !(v < 0) && !(v > 0)) {
        ls__fail(LS_EFORMAT, "division by zero");
        return NULL;
    }
    if (real) {
        double w = op == LS__JINJA_ADD         ? u + v
                   : op == LS__JINJA_SUB       ? u - v
                   : op == LS__JINJA_MUL       ? u * v
                   : op == LS__JINJA_DIV       ? u / v
                   : op == LS__JINJA_FLOOR_DIV ? floor(u / v)
                                               : u - v * floor(u / v);
        json_t *out = json_real(w);
        if (!out) ls__fail(LS_EFORMAT, "a number is not finite");
        return out;
    }
    over = y == -1 && op >= LS__JINJA_DIV && op <= LS__JINJA_MOD && x == INT64_MIN;
    if (op == LS__JINJA_ADD) over = __builtin_add_overflow(x, y, &z);
    if (op == LS__JINJA_SUB) over = __builtin_sub_overflow(x, y, &z);
    if (op == LS__JINJA_MUL) over = __builtin_mul_overflow(x, y, &z);
    if (over) {
        ls__fail(LS_EFORMAT, "a number is too large");
        return NULL;
    }
    if (op == LS__JINJA_MOD) z = (x % y + y) % y;
    if (op == LS__JINJA_FLOOR_DIV) z = x / y - (x % y != 0 && (x % y < 0) != (y < 0));
    return json_integer(z);
}

/* Whether `in` contains `what`; -1: it cannot contain anything. */
static int contains(const json_t *in, const json_t *what)
{
    size_t i;
    json_t *item;
    if (json_is_string(in) && json_is_string(what)) return find(text_of(in), text_of(what)) != NULL;
    if (json_is_object(in)) return json_is_string(what) && json_object_get(in, json_string_value(what));
    json_array_foreach(in, i, item) if (ls__jinja_equal(item, what)) return 1;
    if (json_is_array(in) || in == &ls__jinja_undefined) return 0;
    wrong_types("'in'", what, in);
    return -1;
}

static json_t *compare(ls__jinja_op op, const json_t *a, const json_t *b)
{
    int sign;
    if (is_number(a) && is_number(b)) {
        sign = (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
    } else if (json_is_string(a) && json_is_string(b)) {
        text x = text_of(a), y = text_of(b);
        sign = memcmp(x.p, y.p, x.count < y.count ? x.count : y.count);
        if (!sign) sign = (x.count > y.count) - (x.count < y.count);
    } else {
        return wrong_types("the comparison", a, b);
    }
    return json_boolean(op == LS__JINJA_LT   ? sign < 0
                        : op == LS__JINJA_LE ? sign <= 0
                        : op == LS__JINJA_GT ? sign > 0
                                             : sign >= 0);
}

json_t *ls__jinja_binary(ls__jinja_op op, json_t *a, json_t *b)
{
    int found;
    switch (op) {
    case LS__JINJA_EQ: return json_boolean(ls__jinja_equal(a, b));
    case LS__JINJA_NE: return json_boolean(!ls__jinja_equal(a, b));
    case LS__JINJA_IN:
    case LS__JINJA_NOT_IN:
        found = contains(b, a);
        return found < 0 ? NULL : json_boolean(found == (op == LS__JINJA_IN));
    case LS__JINJA_LT:
    case LS__JINJA_LE:
    case LS__JINJA_GT:
    case LS__JINJA_GE: return compare(op, a, b);
    case LS__JINJA_CONCAT: {
        json_t *x = ls__jinja_string(a), *y = x ? ls__jinja_string(b) : NULL, *out = y ? add_values(x, y) : NULL;
        json_decref(x);
        json_decref(y);
        return out;
    }
    default:
        if (is_number(a) && is_number(b)) return calculate(op, a, b);
        return op == LS__JINJA_ADD ? add_values(a, b) : wrong_types("arithmetic", a, b);
    }
}

/* ---- Elements. */

/* The characters of a string, as a list. */
static json_t *characters(json_t *value)
{
    json_t *out = json_array();
    text t = text_of(value);
    while (out && t.count) {
        size_t n = first_bytes(t);
        if (!append(out, make_string(t.p, n))) {
            json_decref(out);
            return NULL;
        }
        t.p += n;
        t.count -= n;
    }
    return out;
}

json_t *ls__jinja_item(json_t *of, json_t *key)
{
    json_t *found = NULL, *list = NULL;
    if (of == &ls__jinja_undefined) {
        ls__fail(LS_EFORMAT, "an element of something undefined");
        return NULL;
    }
    if (json_is_object(of) && json_is_string(key)) found = json_object_get(of, json_string_value(key));
    if ((json_is_array(of) || json_is_string(of)) && json_is_integer(key)) {
        list = json_is_array(of) ? json_incref(of) : characters(of);
        json_int_t i = json_integer_value(key), n = (json_int_t)json_array_size(list);
        if (i < 0) i += n;
        found = i >= 0 && i < n ? json_array_get(list, (size_t)i) : NULL;
    }
    json_incref(found);
    json_decref(list);
    return found ? found : &ls__jinja_undefined;
}

static bool bound(const json_t *value, json_int_t count, json_int_t low, json_int_t high, json_int_t *out)
{
    if (!value || (json_is_null(value) && value != &ls__jinja_undefined)) return true;
    if (!json_is_integer(value)) {
        ls__fail(LS_EFORMAT, "a slice with %s as a bound", ls__jinja_type(value));
        return false;
    }
    json_int_t i = json_integer_value(value);
    if (i < 0) i += count;
    *out = i < low ? low : i > high ? high : i;
    return true;
}

json_t *ls__jinja_slice(json_t *of, json_t *from, json_t *to, json_t *step)
{
    bool string = json_is_string(of);
    if (!string && !json_is_array(of)) {
        ls__fail(LS_EFORMAT, "a slice of %s", ls__jinja_type(of));
        return NULL;
    }
    json_int_t by = json_is_integer(step) ? json_integer_value(step) : 1;
    json_t *list = string ? characters(of) : json_incref(of), *out = list ? json_array() : NULL;
    json_int_t n = (json_int_t)json_array_size(list), last = by < 0 ? n - 1 : n, first = by < 0 ? -1 : 0;
    json_int_t i = by < 0 ? last : first, end = by < 0 ? first : last;
    bool good = out && bound(from, n, first, last, &i) && bound(to, n, first, last, &end);
    if (good && (!by || by > n + 1 || by < -n - 1)) {
        if (!by) ls__fail(LS_EFORMAT, "a slice with steps of 0");
        good = by;
        by = by < 0 ? -n - 1 : n + 1; /* one element at most */
    }
    for (; good && (by < 0 ? i > end : i < end); i += by)
        good = !json_array_append(out, json_array_get(list, (size_t)i));
    json_t *result = good ? string ? join("", 0, out) : json_incref(out) : NULL;
    json_decref(out);
    json_decref(list);
    return result;
}

static json_t *pairs(json_t *object, bool keys, bool values)
{
    json_t *out = json_array(), *value;
    const char *key;
    json_object_foreach(object, key, value)
    {
        json_t *item = keys && values ? json_pack("[s, O]", key, value) : keys ? json_string(key) : json_incref(value);
        if (!append(out, item)) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* ---- Arguments. */

static json_t *argument(const ls__jinja_args *args, size_t i, const char *name)
{
    json_t *given = args ? json_array_get(args->list, i) : NULL;
    return given ? given : args && name ? json_object_get(args->named, name) : NULL;
}

static json_t *unsupported(const char *what, const char *name, const json_t *value)
{
    ls__fail(LS_EUNSUPPORTED, "unsupported: %s '%s' of %s", what, name, ls__jinja_type(value));
    return NULL;
}

/* ---- Methods. */

static json_t *string_method(const char *name, json_t *value, const ls__jinja_args *args)
{
    json_t *first = argument(args, 0, NULL), *second = argument(args, 1, NULL);
    text t = text_of(value), part = json_is_string(first) ? text_of(first) : (text){ "", 0 };
    if (!strcmp(name, "strip")) return strip(value, true, true, first);
    if (!strcmp(name, "lstrip")) return strip(value, true, false, first);
    if (!strcmp(name, "rstrip")) return strip(value, false, true, first);
    if (!strcmp(name, "upper")) return change_case(value, CASE_UPPER);
    if (!strcmp(name, "lower")) return change_case(value, CASE_LOWER);
    if (!strcmp(name, "title")) return change_case(value, CASE_TITLE);
    if (!strcmp(name, "capitalize")) return change_case(value, CASE_CAPITAL);
    if (!strcmp(name, "split")) return split(value, first, json_is_integer(second) ? json_integer_value(second) : -1);
    if (!strcmp(name, "replace") && first && second) return replace(value, first, second);
    if (!strcmp(name, "join") && json_is_array(first)) return join(t.p, t.count, first);
    if (!json_is_string(first)) return unsupported("method", name, value);
    bool fits = part.count <= t.count;
    if (!strcmp(name, "startswith")) return json_boolean(fits && !memcmp(t.p, part.p, part.count));
    if (!strcmp(name, "endswith")) return json_boolean(fits && !memcmp(t.p + t.count - part.count, part.p, part.count));
    if (!strcmp(name, "find")) {
        const char *at = find(t, part);
        json_int_t place = at ? 0 : -1;
        for (const char *p = t.p; at && p < at; p++) place += ((uint8_t)*p & 0xc0) != 0x80;
        return json_integer(place);
    }
    return unsupported("method", name, value);
}

json_t *ls__jinja_method(const char *name, json_t *value, const ls__jinja_args *args)
{
    json_t *key = argument(args, 0, NULL), *otherwise = argument(args, 1, NULL);
    if (value == &ls__jinja_undefined) {
        ls__fail(LS_EFORMAT, "method '%s' of something undefined", name);
        return NULL;
    }
    if (json_is_string(value)) return string_method(name, value, args);
    if (json_is_object(value)) {
        if (!strcmp(name, "items")) return pairs(value, true, true);
        if (!strcmp(name, "keys")) return pairs(value, true, false);
        if (!strcmp(name, "values")) return pairs(value, false, true);
        if (!strcmp(name, "get") && json_is_string(key)) {
            json_t *found = json_object_get(value, json_string_value(key));
            return found ? json_incref(found) : otherwise ? json_incref(otherwise) : json_null();
        }
    }
    return unsupported("method", name, value);
}

/* ---- Tests. */

int ls__jinja_test(const char *name, json_t *value, const ls__jinja_args *args)
{
    bool defined = value != &ls__jinja_undefined, integer = json_is_integer(value);
    json_t *other = argument(args, 0, NULL);
    if (!strcmp(name, "defined")) return defined;
    if (!strcmp(name, "undefined")) return !defined;
    if (!strcmp(name, "none")) return defined && json_is_null(value);
    if (!strcmp(name, "string")) return json_is_string(value);
    if (!strcmp(name, "mapping")) return json_is_object(value);
    if (!strcmp(name, "iterable") || !strcmp(name, "sequence"))
        return json_is_array(value) || json_is_string(value) || json_is_object(value) || !defined;
    if (!strcmp(name, "number")) return is_number(value);
    if (!strcmp(name, "integer")) return integer;
    if (!strcmp(name, "float")) return json_is_real(value);
    if (!strcmp(name, "boolean")) return json_is_boolean(value);
    if (!strcmp(name, "true")) return json_is_true(value);
    if (!strcmp(name, "false")) return json_is_false(value);
    if (!strcmp(name, "odd") && integer) return json_integer_value(value) % 2 != 0;
    if (!strcmp(name, "even") && integer) return json_integer_value(value) % 2 == 0;
    if (other && (!strcmp(name, "equalto") || !strcmp(name, "eq"))) return ls__jinja_equal(value, other);
    if (other && !strcmp(name, "ne")) return !ls__jinja_equal(value, other);
    if (other && !strcmp(name, "in")) return contains(other, value);
    if (integer && json_is_integer(other) && json_integer_value(other) > 0 && !strcmp(name, "divisibleby"))
        return json_integer_value(value) % json_integer_value(other) == 0;
    unsupported("test", name, value);
    return -1;
}

/* ---- Filters. */

/* The elements of a list, with an attribute that passes a test, or does not. */
static json_t *select_by(json_t *list, bool want, const ls__jinja_args *args)
{
    json_t *attribute = argument(args, 0, NULL), *test = argument(args, 1, NULL), *other = argument(args, 2, NULL);
    json_t *out = json_array(), *item;
    size_t i;
    bool good = out && json_is_string(attribute);
    if (!good) ls__fail(LS_EFORMAT, "selectattr needs the name of an attribute");
    json_array_foreach(list, i, item)
    {
        if (!good) break;
        json_t *value = ls__jinja_item(item, attribute), *given = other ? json_pack("[O]", other) : NULL;
        int passes = !value ? -1
                     : json_is_string(test)
                         ? ls__jinja_test(json_string_value(test), value, &(ls__jinja_args){ .list = given })
                         : ls__jinja_true(value);
        good = passes >= 0;
        if (passes == want && json_array_append(out, item)) good = false;
        json_decref(given);
        json_decref(value);
    }
    if (!good) json_decref(out);
    return good ? out : NULL;
}

static json_t *map_by(json_t *list, json_t *attribute)
{
    json_t *out = json_array(), *item;
    size_t i;
    bool good = json_is_string(attribute);
    if (!good) ls__fail(LS_EUNSUPPORTED, "unsupported: filter 'map' without attribute");
    json_array_foreach(list, i, item) good = good && append(out, ls__jinja_item(item, attribute));
    if (!good) json_decref(out);
    return good ? out : NULL;
}

static json_t *length_of(json_t *value)
{
    json_int_t n = json_is_object(value) ? (json_int_t)json_object_size(value) : (json_int_t)json_array_size(value);
    text t = text_of(value);
    for (size_t i = 0; json_is_string(value) && i < t.count; i++) n += ((uint8_t)t.p[i] & 0xc0) != 0x80;
    return json_integer(n);
}

static json_t *list_filter(const char *name, json_t *list, const ls__jinja_args *args)
{
    json_t *first = argument(args, 0, "d"), *by = args ? json_object_get(args->named, "attribute") : NULL;
    if (!strcmp(name, "list")) return json_incref(list);
    if (!strcmp(name, "selectattr")) return select_by(list, true, args);
    if (!strcmp(name, "rejectattr")) return select_by(list, false, args);
    if (!strcmp(name, "map")) return map_by(list, by);
    if (!strcmp(name, "join") && !by) {
        text t = json_is_string(first) ? text_of(first) : (text){ "", 0 };
        return join(t.p, t.count, list);
    }
    return unsupported("filter", name, list);
}

json_t *ls__jinja_filter(const char *name, json_t *value, const ls__jinja_args *args)
{
    bool defined = value != &ls__jinja_undefined, empty = !defined || json_is_null(value);
    json_t *first = argument(args, 0, NULL), *second = argument(args, 1, NULL);
    if (!strcmp(name, "default") || !strcmp(name, "d")) {
        json_t *flag = argument(args, 1, "boolean"), *other = argument(args, 0, "default_value");
        bool keep = defined && !(flag && ls__jinja_true(flag) && !ls__jinja_true(value));
        return keep ? json_incref(value) : other ? json_incref(other) : json_string("");
    }
    if (!strcmp(name, "tojson")) {
        json_t *ascii = args ? json_object_get(args->named, "ensure_ascii") : NULL,
               *indent = argument(args, 0, "indent");
        size_t known = args && json_object_get(args->named, "indent") ? 1 : 0;
        if (ascii && !ls__jinja_true(ascii)) known++;
        if (args && json_object_size(args->named) > known) return unsupported("arguments of filter", name, value);
        return to_json(value, indent);
    }
    if (!strcmp(name, "string") || !strcmp(name, "safe")) return ls__jinja_string(value);
    if ((!strcmp(name, "length") || !strcmp(name, "count")) &&
        (!defined || json_is_string(value) || json_is_array(value) || json_is_object(value)))
        return length_of(value);
    if (!strcmp(name, "items") && (json_is_object(value) || !defined)) return pairs(value, true, true);
    if (!strcmp(name, "int") && is_number(value)) return json_integer((json_int_t)number_of(value));
    if (json_is_array(value)) {
        json_t *minus = json_integer(-1), *zero = json_integer(0), *out;
        out = !strcmp(name, "first")     ? ls__jinja_item(value, zero)
              : !strcmp(name, "last")    ? ls__jinja_item(value, minus)
              : !strcmp(name, "reverse") ? ls__jinja_slice(value, NULL, NULL, minus)
                                         : list_filter(name, value, args);
        json_decref(zero);
        json_decref(minus);
        return out;
    }
    /* These take anything for text. */
    json_t *s = !strcmp(name, "list") && json_is_string(value) ? characters(value) : NULL;
    if (s || empty) return s ? s : unsupported("filter", name, value);
    if (!(s = ls__jinja_string(value))) return NULL;
    json_t *out = !strcmp(name, "trim")                         ? strip(s, true, true, argument(args, 0, "chars"))
                  : !strcmp(name, "upper")                      ? change_case(s, CASE_UPPER)
                  : !strcmp(name, "lower")                      ? change_case(s, CASE_LOWER)
                  : !strcmp(name, "title")                      ? change_case(s, CASE_TITLE)
                  : !strcmp(name, "capitalize")                 ? change_case(s, CASE_CAPITAL)
                  : !strcmp(name, "replace") && first && second ? replace(s, first, second)
                                                                : unsupported("filter", name, value);
    json_decref(s);
    return out;
}
