/* Recognizes files by their first bytes. */
#ifndef LS_DATA_RECOGNIZE_H
#define LS_DATA_RECOGNIZE_H

#include "data/source.h"

typedef enum ls__kind {
    LS__KIND_UNKNOWN = 0, /* text, raw tokens, or anything else without a signature */
    LS__KIND_SHARD = 1,   /* an llm.c token shard */
    LS__KIND_GZIP = 2,
    LS__KIND_ZSTD = 3,
    LS__KIND_OTHER = 4, /* a known format that is not read */
} ls__kind;

typedef struct ls__recognized {
    ls__kind kind;
    const char *name; /* "a Parquet file"; NULL: unknown */
    const char *hint; /* how to convert it; NULL: unknown */
    bool weak;        /* its signature is so short that raw tokens may begin like it by chance */
} ls__recognized;

enum { LS__HEAD = 4096 }; /* bytes that are looked at */

/* `count` bytes of the beginning of a file of `bytes`; UINT64_MAX: not known. Pure. */
ls__recognized ls__recognize(const uint8_t *head, size_t count, uint64_t bytes);

/* Reads the first bytes of a file, at most LS__HEAD. */
LS_MUST_CHECK ls_status ls__source_head(const ls__source *file, uint8_t head[LS__HEAD], size_t *count);

/* LS_EFORMAT: "FILE: byte 0: is a Parquet file, not text; convert it...". `wanted` is the expected kind. */
ls_status ls__recognized_fail(const ls__source *file, const ls__recognized *r, const char *wanted);

/* Whether files are text or token shards, by their headers and suffixes. All must be of one kind, or LS_EINVAL. */
LS_MUST_CHECK ls_status ls__sources_are_text(const char *const *paths, size_t n_paths, bool *text);

#endif
