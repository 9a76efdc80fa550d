/* Token shards as a dataset: all files as one sequence, divided into samples of seq_len inputs, whose targets are shifted by one
 * token. The last sample ends before the last token; fewer than seq_len tokens at the very end are not used. */
#include "data/shard.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "data/datasets.h"

typedef struct tokens {
    ls_dataset dataset; /* what the caller holds */
    ls__sources sources;
    ls__shard *shards; /* (files) */
    uint64_t *starts;  /* (files + 1): how many tokens come before each file */
    size_t seq_len;
    uint32_t vocab_size;
} tokens;

static void tokens_free(void *self)
{
    tokens *t = self;
    ls__sources_close(&t->sources);
    free(t->shards);
    free(t->starts);
    free(t);
}

/* The file that contains token `at`. */
static size_t file_of(const tokens *t, uint64_t at)
{
    size_t low = 0, high = t->sources.count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (t->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static ls_status read_across(const tokens *t, uint64_t at, size_t count, int32_t *out)
{
    for (size_t file = file_of(t, at); count; file++) {
        uint64_t left = t->starts[file + 1] - at;
        size_t n = count < left ? count : left;
        ls_status status =
            ls__shard_read(&t->sources.files[file], &t->shards[file], at - t->starts[file], n, t->vocab_size, out);
        if (status) return status;
        at += n;
        out += n;
        count -= n;
    }
    return LS_OK;
}

/* Inputs and targets that are read at a time. */
enum { CHUNK = LS__SHARD_PAIRS };

static ls_status tokens_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const tokens *t = self;
    ls_status status = ls__sample_check(&t->dataset, worker, sample);
    if (status) return status;
    int32_t *inputs = row->fields[LS_FIELD_INPUTS], *targets = row->fields[LS_FIELD_TARGETS];
    for (size_t done = 0; done < t->seq_len;) {
        size_t n = t->seq_len - done < CHUNK ? t->seq_len - done : CHUNK;
        uint64_t at = sample * t->seq_len + done;
        size_t file = file_of(t, at);
        if (t->shards[file].width == 2 && at + n < t->starts[file + 1]) {
            status = ls__shard_read_pairs(&t->sources.files[file], &t->shards[file], at - t->starts[file], n,
                                          t->vocab_size, inputs + done, targets + done);
        } else {
            int32_t read[CHUNK + 1];
            status = read_across(t, at, n + 1, read);
            if (!status) memcpy(inputs + done, read, n * sizeof *read);
            if (!status) memcpy(targets + done, read + 1, n * sizeof *read);
        }
        if (status) return status;
        done += n;
    }
    row->tokens = row->length = t->seq_len;
    return LS_OK;
}

static ls_status tokens_redirect(void *self, size_t file, const char *path)
{
    tokens *t = self;
    if (file >= t->sources.count)
        return ls__fail(LS_EINVAL, "file %zu is out of range; there are %zu", file, t->sources.count);
    return ls__source_redirect(&t->sources.files[file], path);
}

static ls_status examine_all(tokens *t, ls_data_format format)
{
    size_t files = t->sources.count;
    t->shards = calloc(files, sizeof *t->shards);
    t->starts = calloc(files + 1, sizeof *t->starts);
    if (!t->shards || !t->starts) return ls__fail(LS_ENOMEM, "no memory for a list of %zu shards", files);
    for (size_t i = 0; i < files; i++) {
        ls_status status = ls__shard_examine(&t->sources.files[i], format, &t->shards[i]);
        if (status) return status;
        t->starts[i + 1] = t->starts[i] + t->shards[i].tokens;
    }
    uint64_t total = t->starts[files];
    if (total > t->seq_len) return LS_OK;
    return ls__fail(LS_EINVAL, "%s%s: byte %zu: the data have only %zu token%s; a sequence length of %zu needs %zu",
                    t->sources.files[files - 1].path, files > 1 ? " (the last file)" : "",
                    (size_t)t->sources.files[files - 1].bytes, (size_t)total, ls__s((int64_t)total), t->seq_len,
                    t->seq_len + 1);
}

ls_status ls_tokens_open(ls_dataset **out, const ls_tokens_options *o)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(o, "options");
    if (!o->seq_len || o->seq_len > INT32_MAX)
        return ls__fail(LS_EINVAL, "sequence length %zu: must be >= 1", o->seq_len);
    tokens *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "no memory for a dataset");
    t->seq_len = o->seq_len;
    t->vocab_size = o->vocab_size;
    ls_status status = ls__sources_open(&t->sources, o->paths, o->n_paths);
    if (!status) ls__sources_warn(&t->sources);
    if (!status) status = examine_all(t, o->format);
    if (status) {
        tokens_free(t);
        return status;
    }
    t->dataset = (ls_dataset){
        .count = (t->starts[t->sources.count] - 1) / t->seq_len,
        .n_fields = 2,
        .fields = { { "inputs", LS_I32, t->seq_len }, { "targets", LS_I32, t->seq_len } },
        .self = t,
        .get = tokens_get,
        .redirect = tokens_redirect,
        .free = tokens_free,
    };
    *out = &t->dataset;
    return LS_OK;
}

void ls__tokens_set_read_delay(ls_dataset *dataset, int delay_us)
{
    tokens *t = dataset->self;
    for (size_t i = 0; i < t->sources.count; i++) t->sources.files[i].delay_us = delay_us;
}

uint64_t ls__tokens_count(const ls_dataset *dataset)
{
    const tokens *t = dataset->self;
    return t->starts[t->sources.count];
}
