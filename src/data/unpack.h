/* Compressed files, read from their beginning to their end. */
#ifndef LS_DATA_UNPACK_H
#define LS_DATA_UNPACK_H

#include "data/source.h"

typedef struct ls__unpack ls__unpack; /* takes a few MiB at most for gzip, up to 128 MiB for zstd */

/* Begins to read `file`, which must outlive it. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__unpack_open(ls__unpack **out, const ls__source *file);
void ls__unpack_free(ls__unpack **unpack);

/* The next bytes of the text; *got is less than `bytes` only at its end. Data that are truncated, corrupt or a decompression bomb
 * are LS_EFORMAT with the byte of the compressed file. */
LS_MUST_CHECK ls_status ls__unpack_read(ls__unpack *unpack, void *out, size_t bytes, size_t *got);
/* How many bytes of the compressed file have been read. */
uint64_t ls__unpack_position(const ls__unpack *unpack);

/* Decompresses the compressed files of a list into an unnamed file, in $TMPDIR or /var/tmp, so that they can be read at any
 * position; from then on they are read like the others. The file disappears with the process. */
LS_MUST_CHECK ls_status ls__sources_unpack(ls__sources *sources);

#endif
