/* Chunks of text to tokens. */
#ifndef LS_DATA_TOKENIZE_H
#define LS_DATA_TOKENIZE_H

#include "data/documents.h"

/* A list of tokens. All zero: empty; free `tokens` at the end. */
typedef struct ls__token_list {
    int32_t *tokens;
    size_t count, room;
    uint64_t documents; /* ends of documents among them */
    ls__bad_lines bad;  /* lines that were skipped */
} ls__token_list;

LS_MUST_CHECK ls_status ls__token_list_add(ls__token_list *list, const int32_t *tokens, size_t count);

/* Adds the tokens of a chunk's documents, with the tokenizer's end token (if it has one) after each. */
LS_MUST_CHECK ls_status ls__tokenize_chunk(const ls__chunk *chunk, const ls__fields *fields,
                                           const ls_tokenizer *tokenizer, ls_encoder *encoder, ls__token_list *list);

#endif
