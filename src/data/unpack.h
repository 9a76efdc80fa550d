/* Compressed files, read from their beginning to their end. */
#ifndef LS_DATA_UNPACK_H
#define LS_DATA_UNPACK_H

#include "data/source.h"

typedef struct ls__unpack ls__unpack; /* takes a few MiB at most for gzip, up to 128 MiB for zstd */

/* Begins to read `file`, which must outlive it. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__unpack_open(ls__unpack **out, const ls__source *file);
void ls__unpack_free(ls__unpack **unpack);

/* The next bytes of the text; *got is less than `bytes` only at its end. Data that are cut, corrupt or a decompression bomb
 * are LS_EFORMAT with the byte of the compressed file. */
LS_MUST_CHECK ls_status ls__unpack_read(ls__unpack *unpack, void *out, size_t bytes, size_t *got);
/* How many bytes of the compressed file have been used up. */
uint64_t ls__unpack_position(const ls__unpack *unpack);

/* Unpacks the compressed files of a list into a file without a name, in $TMPDIR or /var/tmp, so that they can be read at any
 * place; from then on they are like the others. The file goes with the list, however the process ends. */
LS_MUST_CHECK ls_status ls__sources_unpack(ls__sources *sources);

#endif
