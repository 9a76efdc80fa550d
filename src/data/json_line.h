/* Reads some fields of one JSON line. Other fields are skipped: a number may have any size, NaN and Infinity (as Python writes them)
 * are numbers, and bytes need not be UTF-8. */
#ifndef LS_DATA_JSON_LINE_H
#define LS_DATA_JSON_LINE_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__json_field {
    const char *name;
    bool is_number; /* read a number; default: a string */
    bool either;    /* read one of the two */
    bool is_raw;    /* read any value: its JSON as text */
    /* filled in: */
    bool found;       /* it is there, and of that type */
    const char *text; /* of a string: inside the line, or in the reader's memory until the next line; NULL: not found */
    size_t bytes;
    double number;
} ls__json_field;

/* Memory for strings with escapes. All zero at first. */
typedef struct ls__json_line {
    char *memory;
    size_t room;
} ls__json_line;

/* Reads an object of `count` bytes. Strings are UTF-8; of an escaped surrogate without its other half U+FFFD is made. A
 * byte order mark before the object does not count. What is wrong is LS_EFORMAT with *at and *problem (static text), and
 * no message; so is a field that comes twice. A field that is not there, or of another type, is not an error: see `found`.
 * LS_ENOMEM: no memory. */
LS_MUST_CHECK ls_status ls__json_line_read(ls__json_line *reader, const char *line, size_t count,
                                           ls__json_field *fields, int n_fields, size_t *at, const char **problem);
void ls__json_line_free(ls__json_line *reader);

#endif
