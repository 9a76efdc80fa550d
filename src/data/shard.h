/* Files of tokens. */
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

/* Decides the format of a file and checks its size. `format` is the user's choice. */
LS_MUST_CHECK ls_status ls__shard_examine(const ls__source *file, ls_data_format format, ls__shard *out);

/* Reads tokens [first, first + count). A token >= vocab_size (0: >= 2^31) is LS_EFORMAT with its position. */
LS_MUST_CHECK ls_status ls__shard_read(const ls__source *file, const ls__shard *shard, uint64_t first, size_t count,
                                       uint32_t vocab_size, int32_t *out);

/* Reads tokens [first, first + count] of a shard of uint16, count at most LS__SHARD_PAIRS: the first `count` of them as
 * inputs, the last `count` as targets. The same as ls__shard_read() and two copies, but faster. */
enum { LS__SHARD_PAIRS = 4096 };
LS_MUST_CHECK ls_status ls__shard_read_pairs(const ls__source *file, const ls__shard *shard, uint64_t first,
                                             size_t count, uint32_t vocab_size, int32_t *restrict inputs,
                                             int32_t *restrict targets);

#endif
