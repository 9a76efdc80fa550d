/* The values of templates: their kinds, operators and elements, as Python has them. See jinja_values.h.
 *
 * Places in strings count characters, not bytes. */
#include "data/jinja_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

typedef ls__jinja_chars text;

json_t ls__jinja_undefined = { .type = JSON_NULL, .refcount = (size_t)-1 };

text ls__jinja_chars_of(const json_t *value)
{
    return (text){ json_string_value(value), json_string_length(value) };
}

json_t *ls__jinja_make_string(const char *p, size_t count)
{
    json_t *s = count <= LS__JINJA_MAX_BYTES ? json_stringn(p, count) : NULL;
    if (!s && count > LS__JINJA_MAX_BYTES)
        ls__fail(LS_EFORMAT, "a text of more than %d MiB", LS__JINJA_MAX_BYTES >> 20);
    else if (!s)
        ls__fail(LS_EFORMAT, "a text that is not UTF-8, or out of memory");
    return s;
}

json_t *ls__jinja_no_memory(void)
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
bool ls__jinja_is_number(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v);
}

double ls__jinja_number(const json_t *v)
{
    return json_is_true(v) ? 1 : json_is_false(v) ? 0 : json_number_value(v);
}

static json_int_t integer_of(const json_t *v)
{
    return json_is_true(v) ? 1 : json_is_false(v) ? 0 : json_integer_value(v);
}

bool ls__jinja_equal(const json_t *a, const json_t *b)
{
    if (ls__jinja_is_number(a) && ls__jinja_is_number(b))
        return !(ls__jinja_number(a) < ls__jinja_number(b)) && !(ls__jinja_number(a) > ls__jinja_number(b));
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

/* ---- Operators. */

static json_t *wrong_types(const char *what, const json_t *a, const json_t *b)
{
    ls__fail(LS_EFORMAT, "%s of %s and %s", what, ls__jinja_type(a), ls__jinja_type(b));
    return NULL;
}

static json_t *add_values(json_t *a, json_t *b)
{
    if (json_is_string(a) && json_is_string(b)) {
        text x = ls__jinja_chars_of(a), y = ls__jinja_chars_of(b);
        char *both = malloc(x.count + y.count + 1);
        if (!both) return ls__jinja_no_memory();
        memcpy(both, x.p, x.count);
        memcpy(both + x.count, y.p, y.count);
        json_t *out = ls__jinja_make_string(both, x.count + y.count);
        free(both);
        return out;
    }
    if (json_is_array(a) && json_is_array(b)) {
        json_t *out = json_array_size(a) + json_array_size(b) <= LS__JINJA_MAX_ITEMS ? json_copy(a) : NULL;
        if (out && !json_array_extend(out, b)) return out;
        json_decref(out);
        ls__fail(LS_EFORMAT, "a list of more than %d elements", LS__JINJA_MAX_ITEMS);
        return NULL;
    }
    return wrong_types("the sum", a, b);
}

static json_t *calculate(ls__jinja_op op, const json_t *a, const json_t *b)
{
    json_int_t x = integer_of(a), y = integer_of(b), z = 0;
    double u = ls__jinja_number(a), v = ls__jinja_number(b);
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
int ls__jinja_contains(const json_t *in, const json_t *what)
{
    size_t i;
    json_t *item;
    if (json_is_string(in) && json_is_string(what))
        return ls__jinja_find(ls__jinja_chars_of(in), ls__jinja_chars_of(what)) != NULL;
    if (json_is_object(in)) return json_is_string(what) && json_object_get(in, json_string_value(what));
    json_array_foreach(in, i, item) if (ls__jinja_equal(item, what)) return 1;
    if (json_is_array(in) || in == &ls__jinja_undefined) return 0;
    wrong_types("'in'", what, in);
    return -1;
}

static json_t *compare(ls__jinja_op op, const json_t *a, const json_t *b)
{
    int sign;
    if (ls__jinja_is_number(a) && ls__jinja_is_number(b)) {
        sign = (ls__jinja_number(a) > ls__jinja_number(b)) - (ls__jinja_number(a) < ls__jinja_number(b));
    } else if (json_is_string(a) && json_is_string(b)) {
        text x = ls__jinja_chars_of(a), y = ls__jinja_chars_of(b);
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
        found = ls__jinja_contains(b, a);
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
        if (ls__jinja_is_number(a) && ls__jinja_is_number(b)) return calculate(op, a, b);
        return op == LS__JINJA_ADD ? add_values(a, b) : wrong_types("arithmetic", a, b);
    }
}

/* ---- Elements. */

/* The characters of a string, as a list. */
json_t *ls__jinja_characters(json_t *value)
{
    json_t *out = json_array();
    text t = ls__jinja_chars_of(value);
    while (out && t.count) {
        size_t n = ls__jinja_first_bytes(t);
        if (!ls__jinja_append(out, ls__jinja_make_string(t.p, n))) {
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
        list = json_is_array(of) ? json_incref(of) : ls__jinja_characters(of);
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
    json_t *list = string ? ls__jinja_characters(of) : json_incref(of), *out = list ? json_array() : NULL;
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
    json_t *result = good ? string ? ls__jinja_join("", 0, out) : json_incref(out) : NULL;
    json_decref(out);
    json_decref(list);
    return result;
}

json_t *ls__jinja_pairs(json_t *object, bool keys, bool values)
{
    json_t *out = json_array(), *value;
    const char *key;
    json_object_foreach(object, key, value)
    {
        json_t *item = keys && values ? json_pack("[s, O]", key, value) : keys ? json_string(key) : json_incref(value);
        if (!ls__jinja_append(out, item)) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
