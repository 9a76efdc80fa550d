/* Counts the distinct words of a text. */
#ifndef LS_DATA_TALLY_H
#define LS_DATA_TALLY_H

#include "data/source.h"
#include "lockstep/data.h"

typedef struct ls__tally_entry {
    size_t at;       /* in `bytes` */
    uint32_t length; /* 0: a free entry */
    uint64_t count;
} ls__tally_entry;

/* A hash table of words. All zero: empty. */
typedef struct ls__tally {
    ls__tally_entry *places;
    size_t mask, used;
    uint8_t *bytes;
    size_t bytes_used, bytes_room;
} ls__tally;

void ls__tally_free(ls__tally *t);
LS_MUST_CHECK ls_status ls__tally_add(ls__tally *t, const uint8_t *word, size_t length, uint64_t count);

/* Counts the words of all files in the options, in parallel. */
LS_MUST_CHECK ls_status ls__tally_texts(ls__tally *t, const ls_bpe_options *o);

#endif
