/* The values of templates inside: what jinja_values.c (kinds, operators, elements), jinja_text.c (strings, JSON) and jinja_calls.c
 * (methods, tests, filters) share. Functions that return a json_t return a new reference, or NULL after ls__fail(). */
#ifndef LS_DATA_JINJA_VALUES_H
#define LS_DATA_JINJA_VALUES_H

#include "data/jinja.h"

enum { LS__JINJA_MAX_BYTES = 1 << 26, LS__JINJA_MAX_ITEMS = 1 << 20 }; /* of a string, of a list */

/* The bytes of a string. */
typedef struct ls__jinja_chars {
    const char *p;
    size_t count;
} ls__jinja_chars;

/* ---- jinja_values.c */

ls__jinja_chars ls__jinja_chars_of(const json_t *value);
json_t *ls__jinja_make_string(const char *p, size_t count);
/* Fails with LS_ENOMEM. */
json_t *ls__jinja_no_memory(void);
/* Whether it is a number; true and false are, as in Python. */
bool ls__jinja_is_number(const json_t *v);
double ls__jinja_number(const json_t *v);
/* Whether `in` contains `what`; -1: it cannot contain anything. */
int ls__jinja_contains(const json_t *in, const json_t *what);
/* The characters of a string, as a list. */
json_t *ls__jinja_characters(json_t *value);
/* Keys, values, or lists of both. */
json_t *ls__jinja_pairs(json_t *object, bool keys, bool values);

/* ---- jinja_text.c */

/* Bytes of the first character, which is UTF-8. */
size_t ls__jinja_first_bytes(ls__jinja_chars t);
/* NULL: it is not there. */
const char *ls__jinja_find(ls__jinja_chars in, ls__jinja_chars what);
/* Takes the reference to `value`; false: out of memory, or the list is too long. */
bool ls__jinja_append(json_t *list, json_t *value);
json_t *ls__jinja_strip(json_t *value, bool left, bool right, const json_t *chars);
json_t *ls__jinja_split(json_t *value, const json_t *separator, json_int_t limit);
json_t *ls__jinja_join(const char *between, size_t bytes, json_t *list);
json_t *ls__jinja_replace(json_t *value, json_t *from, json_t *to);
typedef enum ls__jinja_case { LS__JINJA_UPPER, LS__JINJA_LOWER, LS__JINJA_TITLE, LS__JINJA_CAPITAL } ls__jinja_case;
json_t *ls__jinja_change_case(json_t *value, ls__jinja_case want);
/* As Python's json.dumps() writes it. */
json_t *ls__jinja_to_json(json_t *value, const json_t *indent);

#endif
