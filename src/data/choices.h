/* Questions with several endings, of which one is right: HellaSwag's JSON lines. */
#ifndef LS_DATA_CHOICES_H
#define LS_DATA_CHOICES_H

#include <jansson.h>
#include "lockstep/base.h"

enum { LS__CHOICES_MAX = 16 }; /* endings of a question */

typedef struct ls__question {
    json_t *context; /* a string */
    json_t *endings; /* a list of strings */
    int right;       /* which of them */
} ls__question;

typedef struct ls__questions {
    ls__question *items;
    size_t count, room;
} ls__questions;

/* Reads lines with "endings" and "label", and "activity_label", "ctx_a" and "ctx_b", or "ctx" alone. Texts are cleaned as
 * lm-evaluation-harness cleans them. LS_EFORMAT with path and line; *out is empty then. */
LS_MUST_CHECK ls_status ls__questions_parse(ls__questions *out, const char *path, const char *text, size_t bytes);
void ls__questions_free(ls__questions *questions);

#endif
