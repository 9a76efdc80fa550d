/* The files that data come from: a list of names and globs, opened together and read at any place from any thread. */
#ifndef LS_DATA_SOURCE_H
#define LS_DATA_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "lockstep/base.h"

/* Which file it is, and in which state. Whoever changes the file changes this. */
typedef struct ls__identity {
    uint64_t inode, bytes;
    int64_t modified, changed; /* ns: when its contents, when its inode */
} ls__identity;

ls__identity ls__identity_of(const struct stat *st);
bool ls__identity_same(const ls__identity *a, const ls__identity *b);

typedef struct ls__source {
    char *path;
    _Atomic int fd; /* -1: not kept open, because there are too many; each read opens it */
    uint64_t bytes;
    ls__identity identity; /* which file it was when it was opened */
    _Atomic int delay_us;  /* for measurements: what each read takes longer; gone after redirect */
} ls__source;

typedef struct ls__sources {
    ls__source *files;
    size_t count;
} ls__sources;

/* Opens `paths`: names of files, or globs, whose matches come in the order of their bytes. A name or a glob that
 * matches nothing, a file that is empty or cannot be read, a folder, a FIFO: LS_E... with its name; nothing stays
 * open. */
LS_MUST_CHECK ls_status ls__sources_open(ls__sources *out, const char *const *paths, size_t n_paths);
void ls__sources_close(ls__sources *sources);

/* The names alone, globs expanded; nothing is opened. For ls__sources_free_names(). */
LS_MUST_CHECK ls_status ls__sources_names(const char *const *paths, size_t n_paths, char ***names, size_t *count);
void ls__sources_free_names(char **names, size_t count);

/* How many descriptors one list of files may keep open: a quarter of what the process may have. */
size_t ls__sources_keep(void);
/* Closes the descriptors; reads open the files again. */
void ls__sources_rest(ls__sources *sources);

/* Reads exactly bytes [offset, offset + bytes). A file that became shorter since, or another one, is LS_EIO. */
LS_MUST_CHECK ls_status ls__source_read(const ls__source *source, void *out, size_t bytes, uint64_t offset);

/* From now on the bytes are read from `path`, a copy of the file as it is now. Other threads may be reading meanwhile. On
 * failure (the file is not what it was when it was opened, for one) nothing changes. */
LS_MUST_CHECK ls_status ls__source_redirect(ls__source *source, const char *path);

#endif
