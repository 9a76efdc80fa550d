/* Text as tokens, and parts of datasets. Text files are mapped; nothing is copied but what a batch needs. Shards are the
 * business of the data layer. */
#include "train/source.h"

#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "train/corpus.h"

enum { BUILT_IN_BYTES = 512 << 10 };

/* ---- What kind of file */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static ls_status is_text_file(const char *path, bool *text)
{
    ls__file_map map;
    *text = false;
    /* A glob is for the data layer to expand; text files come with names of their own. */
    if (ends_with(path, ".bin")) return LS_OK;
    ls_status status = ls__file_map_open(&map, path);
    if (status) return status;
    uint32_t magic = 0;
    if (map.bytes >= 1024) memcpy(&magic, map.data, sizeof magic);
    *text = magic != 20240520 && magic != 20240801;
    ls__file_map_close(&map);
    return LS_OK;
}

ls_status ls__source_is_text(const char *const *paths, size_t n_paths, bool *text)
{
    *text = true;
    for (size_t i = 0; i < n_paths; i++) {
        bool this_one;
        ls_status status = is_text_file(paths[i], &this_one);
        if (status) return status;
        if (i && this_one != *text)
            return ls__fail(LS_EINVAL, "%s is %s, but %s is %s; use files of one kind", paths[i],
                            this_one ? "text" : "a token shard", paths[0], *text ? "text" : "a token shard");
        *text = this_one;
    }
    return LS_OK;
}

/* ---- Text */

typedef struct text_file {
    ls__file_map map;
    char *name;
} text_file;

typedef struct text_data {
    ls_dataset dataset;
    size_t n;
    text_file *files; /* built-in corpus: none */
    char *built_in;
    size_t length;
    uint32_t vocab;
} text_data;

static void text_free(void *self)
{
    text_data *t = self;
    for (size_t i = 0; t->files && i < t->n; i++) {
        ls__file_map_close(&t->files[i].map);
        free(t->files[i].name);
    }
    free(t->files);
    free(t->built_in);
    free(t);
}

/* The file that byte *at of the whole lies in; *at becomes the place in it. */
static size_t find_file(const text_data *t, uint64_t *at)
{
    size_t i = 0;
    while (i + 1 < t->n && *at >= t->files[i].map.bytes) *at -= t->files[i++].map.bytes;
    return i;
}

static ls_status text_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const text_data *t = self;
    int32_t *inputs = row->fields[LS_FIELD_INPUTS], *targets = row->fields[LS_FIELD_TARGETS];
    uint64_t at = sample * t->length;
    size_t file = t->built_in ? 0 : find_file(t, &at);
    (void)worker;
    for (size_t i = 0; i <= t->length; i++, at++) {
        while (!t->built_in && at >= t->files[file].map.bytes) at -= t->files[file++].map.bytes;
        uint32_t token = t->built_in ? (uint8_t)t->built_in[at] : t->files[file].map.data[at];
        if (token >= t->vocab)
            return ls_dataset_fail(LS_EINVAL, "%s: byte %llu is %u, beyond the model's vocabulary of %u",
                                   t->built_in ? "built-in corpus" : t->files[file].name, (unsigned long long)at, token,
                                   t->vocab);
        if (i < t->length) inputs[i] = (int32_t)token;
        if (i) targets[i - 1] = (int32_t)token;
    }
    row->tokens = row->length = t->length;
    return LS_OK;
}

/* Opens the files; *bytes is what they hold together. */
static ls_status open_files(text_data *t, const char *const *paths, uint64_t *bytes)
{
    t->files = calloc(t->n, sizeof *t->files);
    if (!t->files) return ls__fail(LS_ENOMEM, "data: out of memory");
    for (size_t i = 0; i < t->n; i++) {
        t->files[i].name = strdup(paths[i]);
        if (!t->files[i].name) return ls__fail(LS_ENOMEM, "data: out of memory");
        ls_status status = ls__file_map_open(&t->files[i].map, paths[i]);
        if (status) return status;
        *bytes += t->files[i].map.bytes;
    }
    return LS_OK;
}

static ls_status text_open(ls_dataset **out, const char *const *paths, size_t n_paths, int length, int vocab)
{
    uint64_t bytes = 0;
    ls_status status = LS_OK;
    text_data *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "data: out of memory");
    t->n = n_paths;
    t->length = (size_t)length;
    t->vocab = (uint32_t)vocab;
    if (n_paths) {
        status = open_files(t, paths, &bytes);
    } else if (!(t->built_in = malloc(BUILT_IN_BYTES))) {
        status = ls__fail(LS_ENOMEM, "built-in corpus: out of memory");
    } else {
        ls__corpus_fill(t->built_in, BUILT_IN_BYTES, 0);
        bytes = BUILT_IN_BYTES;
    }
    if (!status && bytes < (uint64_t)length + 1)
        status = ls__fail(LS_EINVAL, "%s%s: %llu bytes are too few for one sequence of %d and its target", paths[0],
                          n_paths > 1 ? " and the others" : "", (unsigned long long)bytes, length);
    if (status) {
        text_free(t);
        return status;
    }
    t->dataset = (ls_dataset){ .count = (bytes - 1) / (uint64_t)length,
                               .n_fields = 2,
                               .fields = { { "inputs", LS_I32, t->length }, { "targets", LS_I32, t->length } },
                               .self = t,
                               .get = text_get,
                               .free = text_free };
    *out = &t->dataset;
    return LS_OK;
}

ls_status ls__source_open(ls_dataset **out, const char *const *paths, size_t n_paths, int length, int vocab)
{
    bool text;
    *out = NULL;
    ls_status status = ls__source_is_text(paths, n_paths, &text);
    if (status) return status;
    if (text) return text_open(out, paths, n_paths, length, vocab);
    ls_tokens_options shards = {
        .paths = paths, .n_paths = n_paths, .seq_len = (size_t)length, .vocabulary = (uint32_t)vocab
    };
    return ls_tokens_open(out, &shards);
}

/* ---- A part of a dataset */

typedef struct slice {
    ls_dataset dataset;
    const ls_dataset *whole;
    uint64_t first;
} slice;

static ls_status slice_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const slice *s = self;
    return s->whole->get(s->whole->self, worker, s->first + sample, row);
}

static uint64_t slice_length(void *self, uint64_t sample)
{
    const slice *s = self;
    return s->whole->length(s->whole->self, s->first + sample);
}

static ls_status slice_worker_open(void *self, int worker, void **state)
{
    const slice *s = self;
    return s->whole->worker_open(s->whole->self, worker, state);
}

static void slice_worker_free(void *self, void *state)
{
    const slice *s = self;
    s->whole->worker_free(s->whole->self, state);
}

ls_status ls__slice_open(ls_dataset **out, const ls_dataset *whole, uint64_t first, uint64_t count)
{
    slice *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return ls__fail(LS_ENOMEM, "data: out of memory");
    s->whole = whole;
    s->first = first;
    s->dataset = *whole;
    s->dataset.count = count;
    s->dataset.self = s;
    s->dataset.get = slice_get;
    s->dataset.length = whole->length ? slice_length : NULL;
    s->dataset.worker_open = whole->worker_open ? slice_worker_open : NULL;
    s->dataset.worker_free = whole->worker_free ? slice_worker_free : NULL;
    s->dataset.free = free;
    *out = &s->dataset;
    return LS_OK;
}
