/* Normalizers: what changes text before it is split and tokenized. */
#ifndef LS_DATA_NORMALIZE_H
#define LS_DATA_NORMALIZE_H

#include "data/rules.h"

/* Memory for normalized text; all zero is empty. */
typedef struct ls__text_buffer {
    uint8_t *bytes;
    size_t count, room;
} ls__text_buffer;

void ls__text_buffer_free(ls__text_buffer *buffer);
/* Room for `more` bytes after the first `count`; LS_ENOMEM. */
LS_MUST_CHECK ls_status ls__text_buffer_reserve(ls__text_buffer *buffer, size_t more);
LS_MUST_CHECK ls_status ls__text_buffer_add(ls__text_buffer *buffer, const void *bytes, size_t count);

typedef struct ls__normalizer {
    ls__text_buffer text[2]; /* results of steps, by turns */
    int32_t *codes;          /* a sequence of characters that may combine */
    uint64_t *order;
    size_t room;
} ls__normalizer;

void ls__normalizer_free(ls__normalizer *n);
/* Replaces *text by its normalized form, in the normalizer's memory (until its next call) or where it was if nothing changes. Bytes
 * that are not valid UTF-8 stay as they are; BERT's normalizer takes them for U+FFFD. */
LS_MUST_CHECK ls_status ls__normalize(ls__normalizer *n, const ls__steps *steps, const uint8_t **text, size_t *bytes);

#endif
