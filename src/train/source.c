/* Which dataset is right for the files, the built-in corpus as one, and parts of datasets. */
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
    *text = !ends_with(path, ".bin");
    /* A pattern is for the data layer to expand; only its end can be judged. */
    if (!*text || strpbrk(path, "*?[")) return LS_OK;
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

/* ---- The built-in corpus */

typedef struct built_in {
    ls_dataset dataset;
    size_t length;
    char text[BUILT_IN_BYTES];
} built_in;

static ls_status built_in_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const built_in *b = self;
    const uint8_t *text = (const uint8_t *)b->text + sample * b->length;
    int32_t *inputs = row->fields[LS_FIELD_INPUTS], *targets = row->fields[LS_FIELD_TARGETS];
    (void)worker;
    for (size_t i = 0; i < b->length; i++) {
        inputs[i] = text[i];
        targets[i] = text[i + 1];
    }
    row->tokens = row->length = b->length;
    return LS_OK;
}

static ls_status built_in_open(ls_dataset **out, int length)
{
    if (length >= BUILT_IN_BYTES)
        return ls__fail(LS_EINVAL, "the built-in corpus has %d bytes, too few for a sequence of %d and its target",
                        (int)BUILT_IN_BYTES, length);
    built_in *b = malloc(sizeof *b);
    if (!b) return ls__fail(LS_ENOMEM, "built-in corpus: out of memory");
    ls__corpus_fill(b->text, BUILT_IN_BYTES, 0);
    b->length = (size_t)length;
    b->dataset = (ls_dataset){ .count = (BUILT_IN_BYTES - 1) / (uint64_t)length,
                               .n_fields = 2,
                               .fields = { { "inputs", LS_I32, b->length }, { "targets", LS_I32, b->length } },
                               .self = b,
                               .get = built_in_get,
                               .free = free };
    *out = &b->dataset;
    return LS_OK;
}

/* What the options ask for must be something that such files have. */
static ls_status check_kind(const char *const *paths, size_t n_paths, bool text, const ls_train_options *o)
{
    const char *what = n_paths ? paths[0] : "the built-in corpus";
    bool json = o->field || o->prompt_field || o->weight_field;
    if (n_paths && !text && (o->padded || json || o->text_format))
        return ls__fail(LS_EINVAL, "%s: token shards have no documents, fields or format of text; padding is for text",
                        what);
    if (!n_paths && (o->padded || json || o->text_format))
        return ls__fail(LS_EINVAL, "%s is one row of bytes; padding and fields are for text of your own", what);
    if ((o->prompt_field || o->weight_field) && !o->padded)
        return ls__fail(LS_EINVAL, "fields with prompts and weights are for padded documents");
    for (size_t i = 0; json && i < n_paths && o->text_format != LS_TEXT_JSONL; i++)
        if (o->text_format || !(ends_with(paths[i], ".jsonl") || ends_with(paths[i], ".ndjson")))
            return ls__fail(LS_EINVAL,
                            "%s: is plain text by its name or the format asked for; only JSON lines have fields",
                            paths[i]);
    if (o->read_delay_us && (text || !n_paths))
        return ls__fail(LS_EINVAL, "%s: only reads from token shards can be slowed down", what);
    return LS_OK;
}

ls_status ls__source_open(ls_dataset **out, const char *const *paths, size_t n_paths, const ls_tokenizer *tokenizer,
                          const ls_train_options *o)
{
    bool text;
    *out = NULL;
    ls_status status = ls__source_is_text(paths, n_paths, &text);
    if (!status) status = check_kind(paths, n_paths, text, o);
    if (status) return status;
    if (!n_paths) return built_in_open(out, o->length);
    ls_text_options texts = { .paths = paths,
                              .n_paths = n_paths,
                              .format = o->text_format,
                              .field = o->field,
                              .prompt_field = o->prompt_field,
                              .weight_field = o->weight_field,
                              .padded = o->padded,
                              .lengths = o->order == LS_ORDER_BALANCED,
                              .tokenizer = tokenizer,
                              .seq_len = (size_t)o->length };
    if (text) return ls_text_open(out, &texts);
    ls_tokens_options shards = { .paths = paths,
                                 .n_paths = n_paths,
                                 .seq_len = (size_t)o->length,
                                 .vocabulary = (uint32_t)o->model.vocab,
                                 .read_delay_us = o->read_delay_us };
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

static ls_status slice_redirect(void *self, size_t file, const char *path)
{
    const slice *s = self;
    return s->whole->redirect(s->whole->self, file, path);
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
    s->dataset.redirect = whole->redirect ? slice_redirect : NULL;
    s->dataset.free = free;
    *out = &s->dataset;
    return LS_OK;
}
