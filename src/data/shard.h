/* Files of tokens: llm.c's with their header, and bare rows of numbers as nanoGPT writes them. */
#ifndef LS_DATA_SHARD_H
#define LS_DATA_SHARD_H

#include "data/format.h"
#include "data/source.h"
#include "lockstep/data.h"

typedef struct ls__shard {
    ls_data_format format; /* never auto */
    size_t width;          /* bytes of a token: 2 or 4 */
    uint64_t begin;        /* byte of the first token */
    uint64_t tokens;
} ls__shard;

/* Finds out what a file is and whether its size agrees. `format` is what the user says it is. */
LS_MUST_CHECK ls_status ls__shard_examine(const ls__source *file, ls_data_format format, ls__shard *out);

/* Reads tokens [first, first + count) as numbers. One of `vocab_size` or more (0: of 2^31 or more) is LS_EFORMAT with
 * its place. */
LS_MUST_CHECK ls_status ls__shard_read(const ls__source *file, const ls__shard *shard, uint64_t first, size_t count,
                                       uint32_t vocab_size, int32_t *out);

/* Reads tokens [first, first + count] of a shard of uint16, count at most LS__SHARD_PAIRS: the first `count` of them as
 * inputs, the last `count` as targets. What ls__shard_read() and two copies do, in one go. */
enum { LS__SHARD_PAIRS = 4096 };
LS_MUST_CHECK ls_status ls__shard_read_pairs(const ls__source *file, const ls__shard *shard, uint64_t first,
                                             size_t count, uint32_t vocab_size, int32_t *restrict inputs,
                                             int32_t *restrict targets);

#endif
