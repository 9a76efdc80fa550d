/* Text to shards: threads tokenize chunks, and the results are written in order, so the shards are the same for any number of
 * threads. They get their names when all are complete (shard_set.h). The header of llm.c has the number of tokens, which is known
 * only at the end for the last shard, so a shard's tokens are kept in memory until it is full. */
#include "data/tokenize.h"

#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "data/parallel.h"
#include "data/shard.h"
#include "data/shard_set.h"
#include "data/tokenizer.h"

enum { CHUNK_BYTES = 1 << 20 };
static const uint64_t default_shard_tokens = 100000000;

typedef struct job {
    const ls_tokenize_options *o;
    ls__fields fields;
    ls_data_format format;
    uint64_t shard_tokens;
    ls__sources sources;
    uint64_t total, done; /* bytes of all files */
    ls__bad_lines bad;
    ls__shard_set *set;
    ls_tokenize_result result;
    /* the shard being filled: */
    uint8_t *shard; /* grows as needed */
    size_t shard_room;
    uint64_t filled; /* tokens */
} job;

ls_status ls__token_list_add(ls__token_list *l, const int32_t *tokens, size_t count)
{
    if (count > l->room - l->count) {
        size_t room = l->room + l->room / 2 + count;
        int32_t *grown = realloc(l->tokens, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for %zu tokens", room);
        l->tokens = grown;
        l->room = room;
    }
    if (count) memcpy(l->tokens + l->count, tokens, count * sizeof *tokens);
    l->count += count;
    return LS_OK;
}

typedef struct chunk_work {
    ls_encoder *encoder;
    int32_t end;
    ls__token_list *list;
} chunk_work;

static ls_status tokenize_document(void *user, const ls__document *d)
{
    chunk_work *w = user;
    const int32_t *tokens;
    size_t count;
    ls_status status = ls__encode_part(w->encoder, d->continues, d->text, d->text_bytes, &tokens, &count);
    if (!status) status = ls__token_list_add(w->list, tokens, count);
    if (!status && d->ends && w->end >= 0) status = ls__token_list_add(w->list, &w->end, 1);
    w->list->documents += d->ends;
    return status;
}

ls_status ls__tokenize_chunk(const ls__chunk *chunk, const ls__fields *fields, const ls_tokenizer *tokenizer,
                             ls_encoder *encoder, ls__token_list *list)
{
    chunk_work w = { .encoder = encoder, .end = ls_tokenizer_end_token(tokenizer), .list = list };
    return ls__chunk_documents(chunk, fields, &list->bad, tokenize_document, &w);
}

static void discard(void *result)
{
    ls__token_list *p = result;
    if (!p) return;
    free(p->tokens);
    free(p);
}

static ls_status work(void *user, void *state, const ls__chunk *chunk, void **result)
{
    const job *j = user;
    ls__token_list *p = calloc(1, sizeof *p);
    if (!p) return ls__fail(LS_ENOMEM, "no memory for tokens");
    ls_status status = ls__tokenize_chunk(chunk, &j->fields, j->o->tokenizer, state, p);
    if (status)
        discard(p);
    else
        *result = p;
    return status;
}

static ls_status open_encoder(void *user, void **state)
{
    const job *j = user;
    ls_encoder *e;
    ls_status status = ls_encoder_open(&e, j->o->tokenizer);
    *state = e;
    return status;
}

static void free_encoder(void *user, void *state)
{
    (void)user;
    ls_encoder *e = state;
    ls_encoder_free(&e);
}

static size_t width_of(const job *j)
{
    return ls__format_of(j->format)->token_bytes;
}

static ls_status finish_shard(job *j)
{
    char *path = ls__shard_set_path(j->set, j->result.shards);
    if (!path) return ls__fail(LS_ENOMEM, "%s: out of memory", j->o->output);
    ls__file_writer *w;
    uint8_t header[LS__MAX_HEADER];
    const ls__format *f = ls__format_of(j->format);
    ls_status status = ls__file_writer_open(&w, path);
    if (!status && f->write) {
        f->write(f, j->filled, header);
        status = ls__file_writer_add(w, header, f->header_bytes);
    }
    if (!status) status = ls__file_writer_add(w, j->shard, j->filled * width_of(j));
    if (!status) status = ls__file_writer_commit(&w);
    ls__file_writer_cancel(&w);
    free(path);
    j->result.shards += !status;
    j->filled = 0;
    return status;
}

static ls_status fill_shard(job *j, const int32_t *tokens, size_t count)
{
    size_t width = width_of(j);
    if ((j->filled + count) * width > j->shard_room) {
        size_t room = (j->filled + count) * width * 3 / 2;
        if (room > j->shard_tokens * width) room = j->shard_tokens * width;
        uint8_t *grown = realloc(j->shard, room);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for a shard of %zu bytes; use smaller shards", room);
        j->shard = grown;
        j->shard_room = room;
    }
    uint8_t *to = j->shard + j->filled * width;
    if (width == 4)
        memcpy(to, tokens, count * 4);
    else
        for (size_t i = 0; i < count; i++) {
            uint16_t token = (uint16_t)tokens[i];
            memcpy(to + 2 * i, &token, 2);
        }
    j->filled += count;
    return LS_OK;
}

static ls_status put(void *user, const ls__chunk *chunk, void *result)
{
    job *j = user;
    ls__token_list *p = result;
    ls_status status = LS_OK;
    for (size_t at = 0; !status && at < p->count;) {
        uint64_t left = j->shard_tokens - j->filled;
        size_t n = p->count - at < left ? p->count - at : left;
        status = fill_shard(j, p->tokens + at, n);
        at += n;
        if (!status && j->filled == j->shard_tokens) status = finish_shard(j);
    }
    j->result.documents += p->documents;
    j->result.tokens += p->count;
    j->result.bytes += chunk->count;
    j->done += chunk->consumed;
    ls__bad_lines_add(&j->bad, &p->bad);
    discard(p);
    if (!status && j->o->progress) j->o->progress(j->o->user, j->done, j->total);
    return status;
}

static ls_status check_options(job *j)
{
    const ls_tokenize_options *o = j->o;
    uint32_t vocab_size = ls_tokenizer_vocab_size(o->tokenizer);
    j->format = o->shard_format;
    if (j->format == LS_FORMAT_AUTO) j->format = vocab_size <= 1 << 16 ? LS_FORMAT_LLMC16 : LS_FORMAT_LLMC32;
    if (!width_of(j))
        return ls__fail(LS_EINVAL, "format %s is not a format of token shards", ls__format_name(j->format));
    if (vocab_size > 1 << 16 && width_of(j) == 2)
        return ls__fail(LS_EINVAL, "a vocabulary of %u does not fit shards of format %s; use llmc32 or u32", vocab_size,
                        ls__format_name(j->format));
    j->shard_tokens = o->shard_tokens ? o->shard_tokens : default_shard_tokens;
    if (j->shard_tokens > INT32_MAX) return ls__fail(LS_EINVAL, "a shard holds at most %d tokens", INT32_MAX);
    return LS_OK;
}

ls_status ls_tokenize(const ls_tokenize_options *o, ls_tokenize_result *result)
{
    LS__NEED(o, "options");
    LS__NEED(result, "result");
    job j = { .o = o, .fields = { .text = o->field, .skip_bad = o->skip_bad } };
    *result = (ls_tokenize_result){ 0 };
    LS__NEED(o->tokenizer, "options.tokenizer");
    LS__NEED(o->output, "options.output");
    ls_status status = check_options(&j);
    if (!status) status = ls__sources_open_text(&j.sources, o->paths, o->n_paths, o->format);
    if (status) return status;
    status = ls__shard_set_open(&j.set, o->output, o->replace);
    if (status) {
        ls__sources_close(&j.sources);
        return status;
    }
    for (size_t i = 0; i < j.sources.count; i++) j.total += j.sources.files[i].bytes;
    ls__chunk_job p = { .chunks = { .sources = &j.sources, .tokenizer = o->tokenizer, .size = CHUNK_BYTES },
                        .threads = o->threads,
                        .user = &j,
                        .open = open_encoder,
                        .free = free_encoder,
                        .work = work,
                        .put = put,
                        .discard = discard };
    status = ls__chunk_job_run(&p);
    if (!status && j.filled) status = finish_shard(&j);
    if (!status && !j.result.tokens)
        status = ls__fail(LS_EFORMAT, "%s: byte 0: no text in %s", j.sources.files[0].path,
                          j.sources.count > 1 ? "this and the other files" : "this file");
    j.result.bad_lines = j.bad.count;
    if (!status) status = ls__shard_set_commit(&j.set);
    if (!status) ls__bad_lines_warn(&j.bad);
    if (status) j.result.shards = 0;
    ls__shard_set_cancel(&j.set);
    free(j.shard);
    ls__sources_close(&j.sources);
    *result = j.result;
    return status;
}
