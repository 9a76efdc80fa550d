/* Data files: a list of names and globs, opened together and read at any position from any thread. */
#ifndef LS_DATA_SOURCE_H
#define LS_DATA_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "lockstep/data.h"

/* Identifies a file and its state. Every change of the file changes this. */
typedef struct ls__identity {
    uint64_t inode, bytes;
    int64_t modified, changed; /* ns: when its contents, when its inode */
} ls__identity;

ls__identity ls__identity_of(const struct stat *st);
bool ls__identity_same(const ls__identity *a, const ls__identity *b);

/* How a file is compressed. */
typedef enum ls__packing {
    LS__PACKED_NOT = 0,
    LS__PACKED_GZIP = 1,
    LS__PACKED_ZSTD = 2,
} ls__packing;

typedef struct ls__source {
    char *path;
    _Atomic int fd; /* -1: not kept open, because there are too many files; each read opens it */
    uint64_t bytes;
    ls__identity identity; /* which file it was when it was opened */
    _Atomic int delay_us;  /* for benchmarks: added time of each read; 0 after redirect */
    /* Text only: */
    ls_data_format format; /* never auto once it was opened as text */
    ls__packing packing;   /* of the bytes that ls__source_read() gives */
    uint64_t base;         /* unpacked: where in the file of `fd` it begins */
    bool unpacked;         /* `fd` is the list's file of unpacked text, and `bytes` counts that */
} ls__source;

typedef struct ls__sources {
    ls__source *files;
    size_t count;
    int unpacked_fd;   /* an unnamed file with the decompressed text; -1: none */
    size_t empty;      /* empty files, which were skipped */
    char *first_empty; /* NULL: none */
    size_t left_out;   /* files in folders with an unknown suffix */
    char *first_left_out;
} ls__sources;

/* Opens `paths`: names of files, globs and folders, see ls__names_find(). Files that are empty are skipped. A name or a glob
 * that matches nothing, a file that cannot be read, a FIFO, nothing but empty files: LS_E... with the name; nothing stays
 * open. */
LS_MUST_CHECK ls_status ls__sources_open(ls__sources *out, const char *const *paths, size_t n_paths);
void ls__sources_close(ls__sources *sources);
/* Logs which files were skipped. */
void ls__sources_warn(const ls__sources *sources);

/* How many descriptors one list of files may keep open: a quarter of the process's limit. */
size_t ls__sources_keep(void);
/* Closes the descriptors; reads open the files again. */
void ls__sources_rest(ls__sources *sources);

/* Reads exactly bytes [offset, offset + bytes). A file that became shorter since, or another one, is LS_EIO. */
LS_MUST_CHECK ls_status ls__source_read(const ls__source *source, void *out, size_t bytes, uint64_t offset);

/* From now on the bytes are read from `path`, a copy of the file as it is now. Other threads may be reading. On failure (for example if
 * the file has changed since it was opened) nothing changes. */
LS_MUST_CHECK ls_status ls__source_redirect(ls__source *source, const char *path);

#endif
