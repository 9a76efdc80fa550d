/* Files: read, completely or in part, and written atomically: a reader sees the old contents or the new ones. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include "lockstep/base.h"

/* What the name of a temporary file contains: ".NAME.tmp-" and a random number. */
#define LS__FILE_TEMPORARY ".tmp-"

/* A file being written next to its final place. */
typedef struct ls__file_writer ls__file_writer;

/* Starts writing `path`, by a temporary file next to it. A link or a pipe in its place is replaced, not followed; a device is an
 * error. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__file_writer_open(ls__file_writer **out, const char *path);
/* The same for an output path from the command line only: a device, a pipe or /dev/stdout is written directly, unless a link of
 * another user points there. */
LS_MUST_CHECK ls_status ls__file_writer_open_named(ls__file_writer **out, const char *path);
LS_MUST_CHECK ls_status ls__file_writer_add(ls__file_writer *w, const void *data, size_t bytes);
/* Syncs what was written so far. For several files that belong together: none is renamed before all are synced. */
LS_MUST_CHECK ls_status ls__file_writer_sync(ls__file_writer *w);
/* Syncs, renames into place, syncs the folder, and frees *w, also on failure (then `path` is unchanged). */
LS_MUST_CHECK ls_status ls__file_writer_commit(ls__file_writer **w);
/* Cancels: removes the temporary file and frees *w. Accepts NULL. */
void ls__file_writer_cancel(ls__file_writer **w);

/* All of the above for contents in memory. */
LS_MUST_CHECK ls_status ls__file_write(const char *path, const void *data, size_t bytes);
LS_MUST_CHECK ls_status ls__file_write_named(const char *path, const void *data, size_t bytes);

/* Opens a regular file for reading and returns its size. Anything else (a folder, a FIFO...) is an error; *fd is then -1. */
LS_MUST_CHECK ls_status ls__file_open(const char *path, int *fd, size_t *bytes);

/* Reads a regular file into malloc'ed memory and appends a 0 byte. A file of over `limit` bytes, a folder or a
 * FIFO is an error. The caller frees *out. */
LS_MUST_CHECK ls_status ls__file_read(const char *path, size_t limit, char **out, size_t *bytes);

/* Reads `bytes` bytes at `at` of a file that is open. LS_EFORMAT if it ends before: it was truncated since it was opened. Files are
 * not mapped: to read where a mapped file was truncated kills the process. */
LS_MUST_CHECK ls_status ls__file_read_at(int fd, const char *path, void *to, size_t bytes, size_t at);

/* Creates a new file: an existing one is removed first, and no link is followed. `flags` as for open(2). */
LS_MUST_CHECK ls_status ls__file_create(const char *path, int flags, int *fd);

/* Removes the files of a folder whose names begin and contain so. A folder that is a link of another user is skipped. */
void ls__file_remove(const char *folder, const char *begin, const char *contains);
/* Removes temporary files of killed writers whose names begin with `begin`. */
void ls__file_remove_temporaries(const char *folder, const char *begin);

/* Creates a folder and its parents, like mkdir -p. */
LS_MUST_CHECK ls_status ls__file_make_dir(const char *path);
/* LS_EINVAL if the path is a link of another user, or exists and is not a folder. */
LS_MUST_CHECK ls_status ls__file_check_own_dir(const char *path);
/* Both of the above. */
LS_MUST_CHECK ls_status ls__file_make_own_dir(const char *path);

#endif
