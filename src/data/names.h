/* The names of data files: which files are meant, and what their ends say about them. */
#ifndef LS_DATA_NAMES_H
#define LS_DATA_NAMES_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef enum ls__name_kind {
    LS__NAME_OTHER = 0,
    LS__NAME_TEXT = 1,  /* .txt, .text */
    LS__NAME_JSONL = 2, /* .jsonl, .ndjson */
    LS__NAME_JSON = 3,  /* .json: JSON lines, or one value in the whole file */
    LS__NAME_SHARD = 4, /* .bin */
} ls__name_kind;

/* What the end of a name says; an end .gz, .zst or .zstd behind it does not count. */
ls__name_kind ls__name_kind_of(const char *path);

typedef struct ls__names {
    char **items;
    size_t count, room;
    size_t left_out; /* files in folders that are of no kind we know */
    char *example;   /* one of those; NULL: there is none */
} ls__names;

/* The files that `paths` mean: names, globs, whose matches come in the order of their bytes, and folders. Of a folder
 * these are the files directly in it, in the order of their bytes, whose names end like data: .txt, .text, .jsonl,
 * .ndjson, perhaps with .gz or .zst behind it, .json.gz, .json.zst and .bin. One with files for training and for
 * validation, by their names, is LS_EINVAL. Nothing is opened. On failure the list is empty. */
LS_MUST_CHECK ls_status ls__names_find(ls__names *out, const char *const *paths, size_t n_paths);
void ls__names_free(ls__names *names);

#endif
