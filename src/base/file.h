/* Files: read whole, mapped, and written so that a reader sees the old contents or the new, never a part. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include "lockstep/base.h"

/* What the name of a temporary file contains: ".NAME.tmp-" and a random number. */
#define LS__FILE_TEMPORARY ".tmp-"

/* A file being written beside its final place. */
typedef struct ls__file_writer ls__file_writer;

/* Starts writing `path`: a temporary file beside it, which nobody reads. A link or a pipe at that place will be replaced, not
 * followed; a device is refused. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__file_writer_open(ls__file_writer **out, const char *path);
/* The same for a path that the user named as the output, and only for such: a device, a pipe or /dev/stdout is written to directly,
 * unless another user's link leads there. */
LS_MUST_CHECK ls_status ls__file_writer_open_named(ls__file_writer **out, const char *path);
LS_MUST_CHECK ls_status ls__file_writer_add(ls__file_writer *w, const void *data, size_t bytes);
/* Everything so far is on disk: of several files that belong together, none is renamed before all are. */
LS_MUST_CHECK ls_status ls__file_writer_sync(ls__file_writer *w);
/* Syncs, renames into place, syncs the folder, and frees *w, also on failure (then `path` is as it was). */
LS_MUST_CHECK ls_status ls__file_writer_commit(ls__file_writer **w);
/* Gives up: removes the temporary file and frees *w. Accepts NULL. */
void ls__file_writer_cancel(ls__file_writer **w);

/* All of the above for contents that are in memory. */
LS_MUST_CHECK ls_status ls__file_write(const char *path, const void *data, size_t bytes);
LS_MUST_CHECK ls_status ls__file_write_named(const char *path, const void *data, size_t bytes);

/* Opens a regular file for reading and tells its size. For anything else (a folder, a FIFO...) it fails; *fd is -1. */
LS_MUST_CHECK ls_status ls__file_open(const char *path, int *fd, size_t *bytes);

/* Reads a whole regular file into malloc'ed memory with a 0 byte behind it. A file of over `limit` bytes, a folder or a
 * FIFO is an error. The caller frees *out. */
LS_MUST_CHECK ls_status ls__file_read(const char *path, size_t limit, char **out, size_t *bytes);

/* A file mapped for reading. An empty file has data NULL and bytes 0. */
typedef struct ls__file_map {
    const uint8_t *data;
    size_t bytes;
} ls__file_map;
LS_MUST_CHECK ls_status ls__file_map_open(ls__file_map *out, const char *path);
void ls__file_map_close(ls__file_map *m);

/* Makes a file that was not there: what was at that place is removed, and no link is followed. `flags` as for open(2). */
LS_MUST_CHECK ls_status ls__file_create(const char *path, int flags, int *fd);

/* Removes the files of a folder whose names begin and contain so. A link that another user put in the folder's place is not
 * followed. */
void ls__file_remove(const char *folder, const char *begin, const char *contains);
/* Removes what killed writers left in a folder of files whose names begin with `begin`. */
void ls__file_remove_temporaries(const char *folder, const char *begin);

/* Makes a folder and those above it, like mkdir -p. */
LS_MUST_CHECK ls_status ls__file_make_dir(const char *path);
/* LS_EINVAL if the path is a link that another user made, or is there and no folder. */
LS_MUST_CHECK ls_status ls__file_check_own_dir(const char *path);
/* Both: makes it, and the last of them is no link that another user made. */
LS_MUST_CHECK ls_status ls__file_make_own_dir(const char *path);

#endif
