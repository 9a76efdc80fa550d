/* Added tokens: texts that are tokens independently of the merges ("<|endoftext|>", "<|im_start|>"...). */
#ifndef LS_DATA_ADDED_H
#define LS_DATA_ADDED_H

#include <stdbool.h>
#include "lockstep/base.h"

/* A token as in added_tokens of tokenizer.json. */
typedef struct ls__added_token {
    const uint8_t *bytes;
    size_t count;
    const uint8_t *sought; /* what is searched for, if normalizing changes it; NULL: the bytes */
    size_t sought_count;
    uint32_t id;
    bool special;        /* a control token, not text */
    bool normalized;     /* searched after the others, in the remaining text */
    bool lstrip, rstrip; /* includes the white space before it, after it */
    bool single_word;    /* only if no word character is next to it */
} ls__added_token;

/* All zero is an empty set. */
typedef struct ls__added {
    /* once sealed: those that are not normalized, then the others, each sorted by their bytes */
    ls__added_token *tokens;
    size_t count, room;
    size_t first[2][257];   /* where those of a phase begin whose first byte is this or more */
    bool across;            /* some token contains white space or takes what follows: see ls__added_may_cut() */
    bool across_normalized; /* such a token is searched in text that is normalized */
} ls__added;

void ls__added_free(ls__added *added);
/* The bytes are copied. Of two that are the same text, the one with the smaller id counts. */
LS_MUST_CHECK ls_status ls__added_add(ls__added *added, const ls__added_token *token);
/* What is searched for in place of token number `i`'s text; nothing: it is never found. The bytes are copied. */
LS_MUST_CHECK ls_status ls__added_seek(ls__added *added, size_t i, const void *bytes, size_t count);
/* All are there. */
void ls__added_seal(ls__added *added);
/* The token that is exactly this text; NULL: none. Before it is sealed, too. */
const ls__added_token *ls__added_find(const ls__added *added, const void *bytes, size_t count);

/* Changes the text between tokens that are not normalized before the others are searched in it; `begins`: the whole text begins with it. */
typedef ls_status (*ls__added_normal_fn)(void *user, const uint8_t **text, size_t *bytes, bool begins);

/* Calls `text` for what is between added tokens and `token` for each of those, in order, until one fails: what Hugging Face's
 * tokenizers do. `normalize` may be NULL. */
typedef ls_status (*ls__added_text_fn)(void *user, const uint8_t *text, size_t bytes);
typedef ls_status (*ls__added_token_fn)(void *user, uint32_t id);
LS_MUST_CHECK ls_status ls__added_split(const ls__added *added, const uint8_t *text, size_t bytes,
                                        ls__added_normal_fn normalize, ls__added_text_fn on_text,
                                        ls__added_token_fn on_token, void *user);

/* Whether a text may be cut in two at `at`, between a character that is not white space and one that is, without a change of the
 * tokens: no added token extends across that position or includes white space after it. */
bool ls__added_may_cut(const ls__added *added, const uint8_t *text, size_t bytes, size_t at);

#endif
