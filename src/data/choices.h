/* Questions with several endings, of which one is right: HellaSwag's JSON lines, or llm.c's files of tokens. */
#ifndef LS_DATA_CHOICES_H
#define LS_DATA_CHOICES_H

#include <jansson.h>
#include "lockstep/base.h"

enum {
    LS__CHOICES_MAX = 16, /* endings of a question */
    LS__CHOICES_MAGIC = 20240522
};

typedef struct ls__question {
    int count, right; /* endings, and which of them is right */
    json_t *context;  /* a string, and a list of them; NULL in a file of tokens */
    json_t *endings;
    const uint16_t
        *tokens; /* a number and so many tokens: of the context, then of each ending. NULL in a file of texts */
} ls__question;

typedef struct ls__questions {
    ls__question *items;
    size_t count, room;
    uint16_t *tokens; /* what the questions point to; NULL: texts */
} ls__questions;

/* Reads either form. Texts: lines with "endings" and "label", and "activity_label", "ctx_a" and "ctx_b", or "ctx" alone, cleaned as
 * lm-evaluation-harness cleans them. Tokens: see choices_llmc.c. LS_EFORMAT with path and line, or number of the question; *out is
 * empty then. */
LS_MUST_CHECK ls_status ls__questions_parse(ls__questions *out, const char *path, const char *text, size_t bytes);
/* A file of tokens alone, which begins with LS__CHOICES_MAGIC. */
LS_MUST_CHECK ls_status ls__questions_parse_llmc(ls__questions *out, const char *path, const char *data, size_t bytes);
void ls__questions_free(ls__questions *questions);

#endif
