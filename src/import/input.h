/* The bytes of a trace: a plain, gzip or zstd file, or standard input, read once from start to end. */
#ifndef LS_IMPORT_INPUT_H
#define LS_IMPORT_INPUT_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__input ls__input; /* about 100 KiB; zstd: up to 128 MiB more, as its window is */

/* `path` "-": standard input. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__input_open(ls__input **out, const char *path);
/* Text in memory, plain or compressed, which must outlive it. */
LS_MUST_CHECK ls_status ls__input_open_memory(ls__input **out, const void *data, size_t bytes);
void ls__input_free(ls__input **input);

/* Up to `bytes` of the text, as many as come at once; *got is 0 only at its end. Compressed data that are cut off or corrupt end there: see
 * ls__input_is_cut(). */
LS_MUST_CHECK ls_status ls__input_read(ls__input *input, void *out, size_t bytes, size_t *got);
/* Whether the compressed data were truncated or corrupt. */
bool ls__input_is_cut(const ls__input *input);
/* How many bytes of the file have been read, and how many there are (0: not known). */
uint64_t ls__input_position(const ls__input *input);
uint64_t ls__input_size(const ls__input *input);

#endif
