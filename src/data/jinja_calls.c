/* Methods, tests and filters of templates, by name. See jinja_values.h. */
#include "data/jinja_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

typedef ls__jinja_chars text;

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
    text t = ls__jinja_chars_of(value), part = json_is_string(first) ? ls__jinja_chars_of(first) : (text){ "", 0 };
    if (!strcmp(name, "strip")) return ls__jinja_strip(value, true, true, first);
    if (!strcmp(name, "lstrip")) return ls__jinja_strip(value, true, false, first);
    if (!strcmp(name, "rstrip")) return ls__jinja_strip(value, false, true, first);
    if (!strcmp(name, "upper")) return ls__jinja_change_case(value, LS__JINJA_UPPER);
    if (!strcmp(name, "lower")) return ls__jinja_change_case(value, LS__JINJA_LOWER);
    if (!strcmp(name, "title")) return ls__jinja_change_case(value, LS__JINJA_TITLE);
    if (!strcmp(name, "capitalize")) return ls__jinja_change_case(value, LS__JINJA_CAPITAL);
    if (!strcmp(name, "split"))
        return ls__jinja_split(value, first, json_is_integer(second) ? json_integer_value(second) : -1);
    if (!strcmp(name, "replace") && first && second) return ls__jinja_replace(value, first, second);
    if (!strcmp(name, "join") && json_is_array(first)) return ls__jinja_join(t.p, t.count, first);
    if (!json_is_string(first)) return unsupported("method", name, value);
    bool fits = part.count <= t.count;
    if (!strcmp(name, "startswith")) return json_boolean(fits && !memcmp(t.p, part.p, part.count));
    if (!strcmp(name, "endswith")) return json_boolean(fits && !memcmp(t.p + t.count - part.count, part.p, part.count));
    if (!strcmp(name, "find")) {
        const char *at = ls__jinja_find(t, part);
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
        if (!strcmp(name, "items")) return ls__jinja_pairs(value, true, true);
        if (!strcmp(name, "keys")) return ls__jinja_pairs(value, true, false);
        if (!strcmp(name, "values")) return ls__jinja_pairs(value, false, true);
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
    if (!strcmp(name, "number")) return ls__jinja_is_number(value);
    if (!strcmp(name, "integer")) return integer;
    if (!strcmp(name, "float")) return json_is_real(value);
    if (!strcmp(name, "boolean")) return json_is_boolean(value);
    if (!strcmp(name, "true")) return json_is_true(value);
    if (!strcmp(name, "false")) return json_is_false(value);
    if (!strcmp(name, "odd") && integer) return json_integer_value(value) % 2 != 0;
    if (!strcmp(name, "even") && integer) return json_integer_value(value) % 2 == 0;
    if (other && (!strcmp(name, "equalto") || !strcmp(name, "eq"))) return ls__jinja_equal(value, other);
    if (other && !strcmp(name, "ne")) return !ls__jinja_equal(value, other);
    if (other && !strcmp(name, "in")) return ls__jinja_contains(other, value);
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
    json_array_foreach(list, i, item) good = good && ls__jinja_append(out, ls__jinja_item(item, attribute));
    if (!good) json_decref(out);
    return good ? out : NULL;
}

static json_t *length_of(json_t *value)
{
    json_int_t n = json_is_object(value) ? (json_int_t)json_object_size(value) : (json_int_t)json_array_size(value);
    text t = ls__jinja_chars_of(value);
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
        text t = json_is_string(first) ? ls__jinja_chars_of(first) : (text){ "", 0 };
        return ls__jinja_join(t.p, t.count, list);
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
        return ls__jinja_to_json(value, indent);
    }
    if (!strcmp(name, "string") || !strcmp(name, "safe")) return ls__jinja_string(value);
    if ((!strcmp(name, "length") || !strcmp(name, "count")) &&
        (!defined || json_is_string(value) || json_is_array(value) || json_is_object(value)))
        return length_of(value);
    if (!strcmp(name, "items") && (json_is_object(value) || !defined)) return ls__jinja_pairs(value, true, true);
    if (!strcmp(name, "int") && ls__jinja_is_number(value)) return json_integer((json_int_t)ls__jinja_number(value));
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
    json_t *s = !strcmp(name, "list") && json_is_string(value) ? ls__jinja_characters(value) : NULL;
    if (s || empty) return s ? s : unsupported("filter", name, value);
    if (!(s = ls__jinja_string(value))) return NULL;
    json_t *out = !strcmp(name, "trim")         ? ls__jinja_strip(s, true, true, argument(args, 0, "chars"))
                  : !strcmp(name, "upper")      ? ls__jinja_change_case(s, LS__JINJA_UPPER)
                  : !strcmp(name, "lower")      ? ls__jinja_change_case(s, LS__JINJA_LOWER)
                  : !strcmp(name, "title")      ? ls__jinja_change_case(s, LS__JINJA_TITLE)
                  : !strcmp(name, "capitalize") ? ls__jinja_change_case(s, LS__JINJA_CAPITAL)
                  : !strcmp(name, "replace") && first && second ? ls__jinja_replace(s, first, second)
                                                                : unsupported("filter", name, value);
    json_decref(s);
    return out;
}
