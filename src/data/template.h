/* The special tokens that a tokenizer's template puts around a text, or around a pair of texts: [CLS] A [SEP] B [SEP]. */
#ifndef LS_DATA_TEMPLATE_H
#define LS_DATA_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include "lockstep/data.h"

enum {
    LS__TEMPLATE_MAX = 16,
    LS__TEMPLATE_A = -1, /* the first text */
    LS__TEMPLATE_B = -2, /* the second */
};

typedef struct ls__template_item {
    int32_t token; /* a special token, or one of the above */
    int32_t type;  /* token type of it, or of the text */
} ls__template_item;

typedef struct ls__template {
    ls__template_item item[LS__TEMPLATE_MAX];
    int count;
} ls__template;

/* For one text, and for a pair; count 0: nothing is known. */
typedef struct ls__templates {
    ls__template single, pair;
} ls__templates;

/* From the post_processor of a tokenizer.json. Other post-processors than templates leave *out empty; a template that is invalid is
 * LS_EFORMAT. */
LS_MUST_CHECK ls_status ls__templates_parse(ls__templates *out, const char *path, const json_t *post_processor);

/* The template of a tokenizer. Without one: [CLS] A [SEP] B [SEP], or <s> A </s> B </s>, or the end token, if the vocabulary has them. */
ls__template ls__template_of(const ls_tokenizer *tokenizer, bool pair);
/* Writes the tokens that the template of tokenizer.json puts before a text, as <s>, and returns how many; 0 without a template. */
size_t ls__template_begin(const ls_tokenizer *tokenizer, int32_t tokens[LS__TEMPLATE_MAX]);
/* Special tokens that it adds. */
int ls__template_tokens(const ls__template *t);

/* Shortens two texts of `a` and `b` tokens to `room` tokens together, the longer one first, as transformers does. */
void ls__truncate_pair(size_t room, size_t *a, size_t *b);
/* Writes the tokens of a template and the token types, and returns how many: at most a + b + ls__template_tokens(). b may be NULL. */
size_t ls__template_fill(const ls__template *t, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b,
                         int32_t *tokens, int32_t *types);

/* The token with this text; -1: none. */
int32_t ls__tokenizer_find(const ls_tokenizer *tokenizer, const char *text);

#endif
