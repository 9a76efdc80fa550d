/* Names of data files: expands globs and folders, and reads suffixes. */
#ifndef LS_DATA_NAMES_H
#define LS_DATA_NAMES_H

#include <stdbool.h>
#include "lockstep/data.h"

/* What a file's suffix implies. */
typedef struct ls__suffix {
    ls_data_format format; /* auto: unknown suffix */
    bool is_json;          /* .json: JSON lines, or one value in the whole file */
    bool compressed;       /* another suffix .gz, .zst or .zstd follows */
} ls__suffix;

ls__suffix ls__suffix_of(const char *path);

typedef struct ls__names {
    char **items;
    size_t count, room;
    size_t left_out; /* files in folders with an unknown suffix */
    char *example;   /* one of those; NULL: none */
} ls__names;

/* Expands `paths`: names, globs and folders. The matches of a glob and the files of a folder are sorted by their bytes. Of a
 * folder, the files directly in it with a known suffix are used: .txt, .text, .jsonl, .ndjson, each also with .gz or .zst,
 * .json.gz, .json.zst and .bin. A folder that by its file names has both training and validation data is LS_EINVAL. No file
 * is opened. On failure the list is empty. */
LS_MUST_CHECK ls_status ls__names_find(ls__names *out, const char *const *paths, size_t n_paths);
void ls__names_free(ls__names *names);

#endif
