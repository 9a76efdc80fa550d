/* Text as a dataset. The files are divided into units at the start, and a unit is what a worker reads and tokenizes:
 *
 *   packed   about 16 KiB of text. All units are tokenized once, in parallel, to count the tokens before each; sample i then begins
 *            in the unit that has token i * seq_len. A worker keeps its last unit, for orders that continue there.
 *   padded   one document, which is one sample; its tokens are counted at the start only if requested. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "data/chat.h"
#include "data/datasets.h"
#include "data/format.h"
#include "data/parallel.h"
#include "data/tokenize.h"
#include "data/unpack.h"

enum { PACKED_UNIT = 1 << 14, PADDED_CHUNK = 1 << 20 };

typedef struct unit {
    uint64_t offset;
    uint64_t start; /* packed: tokens before it; padded: its work, for the balanced order */
    uint32_t file;
    uint32_t bytes;
    uint32_t line; /* number of its first line; 0: not known */
    bool last;     /* of its file */
} unit;

typedef struct text {
    ls_dataset dataset; /* what the caller holds */
    ls__sources sources;
    ls__fields fields;      /* the texts are ours */
    ls_chat_template *chat; /* NULL: documents are texts */
    const ls_tokenizer *tokenizer;
    size_t seq_len;
    bool padded, lengths;
    unit *units;
    size_t n_units, room;
    uint64_t tokens; /* packed: of all units */
    ls__bad_lines bad;
    uint64_t documents;
} text;

/* The state of a worker. */
typedef struct text_worker {
    ls_encoder *encoder;
    const ls_tokenizer *tokenizer;
    bool chats; /* documents are chats */
    ls__chunk chunk;
    ls__token_list list;
    size_t unit;   /* whose tokens are in `list`; SIZE_MAX: none */
    size_t prompt; /* padded: how many of them are the prompt's */
    ls__chat_encoder chat;
    const uint8_t *answers; /* of a chat: 1 for tokens with a loss */
    float weight;           /* padded: the document's */
} text_worker;

static void text_free(void *self)
{
    text *t = self;
    ls__sources_close(&t->sources);
    ls_chat_template_free(&t->chat);
    free((char *)(uintptr_t)t->fields.text);
    free((char *)(uintptr_t)t->fields.prompt);
    free((char *)(uintptr_t)t->fields.weight);
    free(t->units);
    free(t);
}

static void worker_free(void *self, void *state)
{
    (void)self;
    text_worker *w = state;
    if (!w) return;
    ls_encoder_free(&w->encoder);
    ls__chat_encoder_free(&w->chat);
    free(w->chunk.bytes);
    free(w->list.tokens);
    free(w);
}

static ls_status worker_open(void *self, int worker, void **state)
{
    (void)worker;
    const text *t = self;
    text_worker *w = calloc(1, sizeof *w);
    *state = NULL;
    if (!w) return ls__fail(LS_ENOMEM, "no memory for a worker that tokenizes");
    w->unit = SIZE_MAX;
    w->tokenizer = t->tokenizer;
    w->chats = t->chat;
    ls_status status = ls_encoder_open(&w->encoder, t->tokenizer);
    if (status)
        worker_free(self, w);
    else
        *state = w;
    return status;
}

/* Reads a unit into the worker's chunk. */
static ls_status read_unit(const text *t, const unit *u, text_worker *w)
{
    const ls__source *file = &t->sources.files[u->file];
    char *bytes = realloc(w->chunk.bytes, u->bytes + 1);
    if (!bytes) return ls__fail(LS_ENOMEM, "%s: no memory for %u bytes of text", file->path, u->bytes);
    w->chunk = (ls__chunk){ .file = file,
                            .format = file->format,
                            .offset = u->offset,
                            .line = u->line,
                            .bytes = bytes,
                            .count = u->bytes,
                            .last = u->last };
    /* Padded, plain files are read line by line: a file as one sample would be cut off almost entirely. */
    if (t->padded && !ls__format_of(w->chunk.format)->by_line) w->chunk.format = LS_FORMAT_LINES;
    return ls__source_read(file, bytes, u->bytes, u->offset);
}

/* ---- Packed. */

static ls_status tokens_of_unit(const text *t, size_t index, text_worker *w)
{
    if (w->unit == index) return LS_OK;
    const unit *u = &t->units[index];
    uint64_t expected = (index + 1 < t->n_units ? u[1].start : t->tokens) - u->start;
    w->unit = SIZE_MAX;
    w->list.count = 0;
    ls_status status = expected ? read_unit(t, u, w) : LS_OK;
    if (!status && expected) status = ls__tokenize_chunk(&w->chunk, &t->fields, t->tokenizer, w->encoder, &w->list);
    if (status) return status;
    if (w->list.count != expected)
        return ls__fail(LS_EIO, "%s: byte %zu: %zu tokens, expected %zu; the file was changed", w->chunk.file->path,
                        (size_t)u->offset, w->list.count, (size_t)expected);
    w->unit = index;
    return LS_OK;
}

static size_t unit_of(const text *t, uint64_t token)
{
    size_t low = 0, high = t->n_units;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (t->units[middle].start <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static ls_status packed_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const text *t = self;
    text_worker *w = worker;
    ls_status status = ls__sample_check(&t->dataset, worker, sample);
    if (status) return status;
    int32_t *inputs = row->fields[LS_FIELD_INPUTS], *targets = row->fields[LS_FIELD_TARGETS];
    uint64_t first = sample * t->seq_len;
    for (size_t done = 0, u = unit_of(t, first); done <= t->seq_len; u++) {
        status = tokens_of_unit(t, u, w);
        if (status) return status;
        for (size_t i = first + done - t->units[u].start; i < w->list.count && done <= t->seq_len; i++, done++) {
            if (done < t->seq_len) inputs[done] = w->list.tokens[i];
            if (done) targets[done - 1] = w->list.tokens[i];
        }
    }
    row->tokens = row->length = t->seq_len;
    return LS_OK;
}

/* ---- Padded. */

/* The documents' tokens are a row: inputs up to the last but one, targets from the second on. */
static ls_status fill_row(void *user, const ls__document *d)
{
    text_worker *w = user;
    const int32_t *tokens;
    size_t count, prompt = 0;
    ls_status status = LS_OK;
    w->weight = (float)d->weight;
    if (w->chats) {
        status = ls__chat_encode(&w->chat, w->encoder, w->tokenizer, d->text, d->text_bytes, d->answers, d->n_answers,
                                 &tokens, &w->answers, &count);
        return status ? status : ls__token_list_add(&w->list, tokens, count);
    }
    if (d->prompt) {
        status = ls_encode(w->encoder, d->prompt, d->prompt_bytes, &tokens, &prompt);
        if (!status) status = ls__token_list_add(&w->list, tokens, prompt);
    }
    if (!status) status = ls_encode(w->encoder, d->text, d->text_bytes, &tokens, &count);
    if (!status) status = ls__token_list_add(&w->list, tokens, count);
    w->prompt = prompt;
    return status;
}

/* To check only whether a line is valid. */
static ls_status ignore_document(void *user, const ls__document *d)
{
    (void)user, (void)d;
    return LS_OK;
}

static ls_status padded_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const text *t = self;
    text_worker *w = worker;
    int32_t *inputs = row->fields[LS_FIELD_INPUTS], *targets = row->fields[LS_FIELD_TARGETS];
    float *weights = row->fields[LS_FIELD_WEIGHTS];
    uint8_t *mask = row->fields[LS_FIELD_MASK];
    int32_t end = ls_tokenizer_end_token(t->tokenizer);
    ls_status status = ls__sample_check(&t->dataset, worker, sample);
    if (status) return status;
    w->list.count = 0;
    status = read_unit(t, &t->units[sample], w);
    if (!status) status = ls__chunk_documents(&w->chunk, &t->fields, NULL, fill_row, w);
    if (!status && end >= 0 && !t->chat) status = ls__token_list_add(&w->list, &end, 1);
    if (status) return status;

    const uint8_t *answers = t->chat && w->list.count ? w->answers : NULL;
    size_t n = w->list.count > t->seq_len ? t->seq_len : w->list.count ? w->list.count - 1 : 0;
    int32_t padding = end >= 0 ? end : 0;
    row->tokens = 0;
    row->length = n;
    for (size_t i = 0; i < t->seq_len; i++) {
        bool used = i < n, wanted = used && (answers ? answers[i + 1] : i + 1 >= w->prompt);
        bool counts = wanted && w->weight > 0;
        inputs[i] = used ? w->list.tokens[i] : padding;
        targets[i] = used ? w->list.tokens[i + 1] : padding;
        weights[i] = counts ? w->weight : 0;
        mask[i] = used;
        row->tokens += counts;
    }
    return LS_OK;
}

static uint64_t padded_length(void *self, uint64_t sample)
{
    return ((const text *)self)->units[sample].start;
}

static ls_status text_redirect(void *self, size_t file, const char *path)
{
    text *t = self;
    if (file >= t->sources.count)
        return ls__fail(LS_EINVAL, "file %zu is out of range; there are %zu", file, t->sources.count);
    return ls__source_redirect(&t->sources.files[file], path);
}

/* ---- Opening. */

static ls_status add_unit(text *t, const ls__chunk *chunk, uint64_t offset, size_t bytes, uint64_t line,
                          uint64_t tokens)
{
    if (t->n_units == t->room) {
        size_t room = 2 * t->room + 64;
        unit *grown = realloc(t->units, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for an index of %zu chunks of text", room);
        t->units = grown;
        t->room = room;
    }
    t->units[t->n_units++] = (unit){ .offset = offset,
                                     .start = t->tokens,
                                     .file = (uint32_t)(chunk->file - t->sources.files),
                                     .bytes = (uint32_t)bytes,
                                     .line = line <= UINT32_MAX ? (uint32_t)line : 0,
                                     .last = offset + bytes == chunk->file->bytes };
    t->tokens += tokens;
    return LS_OK;
}

static ls_status open_state(void *user, void **state)
{
    return worker_open(user, 0, state);
}

/* What one chunk gives, for the list of units. */
typedef struct indexed {
    size_t tokens; /* packed */
    uint64_t documents;
    ls__bad_lines bad;
    uint32_t lengths[]; /* padded: what the row of each line will hold; BAD: it is skipped */
} indexed;

static const uint32_t BAD = UINT32_MAX;

static ls_status count_tokens(void *user, void *state, const ls__chunk *chunk, void **result)
{
    const text *t = user;
    text_worker *w = state;
    indexed *found = calloc(1, sizeof *found);
    if (!found) return ls__fail(LS_ENOMEM, "no memory for an index of the text");
    w->list.count = 0;
    w->list.bad = (ls__bad_lines){ 0 };
    w->list.documents = 0;
    ls_status status = ls__tokenize_chunk(chunk, &t->fields, t->tokenizer, w->encoder, &w->list);
    found->tokens = w->list.count;
    found->documents = w->list.documents;
    found->bad = w->list.bad;
    if (status)
        free(found);
    else
        *result = found;
    return status;
}

static ls_status put_packed(void *user, const ls__chunk *chunk, void *result)
{
    text *t = user;
    indexed *found = result;
    ls_status status = add_unit(t, chunk, chunk->offset, chunk->count, chunk->line, found->tokens);
    ls__bad_lines_add(&t->bad, &found->bad);
    t->documents += found->documents;
    free(found);
    return status;
}

typedef struct line_at {
    size_t next, begin, count; /* where to look on; the line */
    uint64_t number;           /* of the line */
} line_at;

/* The next line of a chunk that is not blank; false: there is none. */
static bool next_line(const ls__chunk *chunk, line_at *l)
{
    while (l->next < chunk->count) {
        const char *line = chunk->bytes + l->next, *end = memchr(line, '\n', chunk->count - l->next);
        size_t n = end ? (size_t)(end - line) : chunk->count - l->next, blank = 0;
        while (blank < n && (line[blank] == ' ' || line[blank] == '\t' || line[blank] == '\r')) blank++;
        l->number = l->next ? l->number + 1 : chunk->line;
        l->begin = l->next;
        l->count = n;
        l->next += n + (end != NULL);
        if (blank < n) return true;
    }
    return false;
}

/* What the row of one line will hold, or whether it is bad. */
static ls_status measure_line(const text *t, text_worker *w, const ls__chunk *chunk, const line_at *l, uint32_t *length,
                              ls__bad_lines *bad)
{
    ls__chunk line = { .file = chunk->file,
                       .format = ls__format_of(chunk->file->format)->by_line ? chunk->file->format : LS_FORMAT_LINES,
                       .offset = chunk->offset + l->begin,
                       .line = l->number,
                       .bytes = chunk->bytes + l->begin,
                       .count = l->count,
                       .last = true };
    uint64_t before = bad->count;
    w->list.count = 0;
    ls_status status = ls__chunk_documents(&line, &t->fields, bad, t->lengths ? fill_row : ignore_document, w);
    size_t tokens = w->list.count + (!t->chat && ls_tokenizer_end_token(t->tokenizer) >= 0);
    *length = (uint32_t)(!t->lengths ? l->count : tokens > t->seq_len ? t->seq_len : tokens ? tokens - 1 : 0);
    if (bad->count > before) *length = BAD;
    return status;
}

/* Looks at each line, if there is anything to be found out about it: a JSON line that is wrong is found before the first step. */
static ls_status measure_lines(void *user, void *state, const ls__chunk *chunk, void **result)
{
    const text *t = user;
    size_t lines = 0;
    if (!t->lengths && !ls__format_of(chunk->file->format)->parse_line) return LS_OK;
    for (line_at l = { 0 }; next_line(chunk, &l);) lines++;
    indexed *found = calloc(1, sizeof *found + lines * sizeof *found->lengths);
    if (!found) return ls__fail(LS_ENOMEM, "%s: no memory for the lengths of %zu lines", chunk->file->path, lines);
    ls_status status = LS_OK;
    lines = 0;
    for (line_at l = { 0 }; !status && next_line(chunk, &l);)
        status = measure_line(t, state, chunk, &l, &found->lengths[lines++], &found->bad);
    if (status)
        free(found);
    else
        *result = found;
    return status;
}

static ls_status put_lines(void *user, const ls__chunk *chunk, void *result)
{
    text *t = user;
    indexed *found = result;
    size_t i = 0;
    ls_status status = LS_OK;
    for (line_at l = { 0 }; !status && next_line(chunk, &l); i++) {
        if (!ls__has_document(&t->fields, chunk->file, chunk->offset + l.begin)) continue;
        if (found && found->lengths[i] == BAD) continue;
        t->documents++;
        t->tokens = found ? found->lengths[i] : l.count;
        status = add_unit(t, chunk, chunk->offset + l.begin, l.count, l.number, 0);
    }
    if (found) ls__bad_lines_add(&t->bad, &found->bad);
    free(found);
    return status;
}

static bool has_json(const text *t)
{
    for (size_t i = 0; i < t->sources.count; i++)
        if (ls__format_of(t->sources.files[i].format)->parse_line) return true;
    return false;
}

static ls_status index_files(text *t, int threads)
{
    ls__chunk_job p = { /* Padded, only line ends matter here. */
                        .chunks = { .sources = &t->sources,
                                    .format = t->padded ? LS_FORMAT_LINES : LS_FORMAT_AUTO,
                                    .tokenizer = t->tokenizer,
                                    .size = t->padded ? PADDED_CHUNK : PACKED_UNIT },
                        .threads = t->padded && !t->lengths && !has_json(t) ? 1 : threads,
                        .user = t,
                        .open = open_state,
                        .free = worker_free,
                        .work = t->padded ? measure_lines : count_tokens,
                        .put = t->padded ? put_lines : put_packed,
                        .discard = free
    };
    ls_status status = ls__chunk_job_run(&p);
    if (status) return status;
    ls__bad_lines_warn(&t->bad);
    const ls__source *last = &t->sources.files[t->sources.count - 1];
    if (t->padded && !t->n_units)
        return ls__fail(LS_EINVAL, "%s: byte %zu: no documents in the data", last->path, (size_t)last->bytes);
    if (!t->padded && t->tokens <= t->seq_len)
        return ls__fail(LS_EINVAL, "%s: byte %zu: the data have only %zu token%s; a sequence length of %zu needs %zu",
                        last->path, (size_t)last->bytes, (size_t)t->tokens, ls__s((int64_t)t->tokens), t->seq_len,
                        t->seq_len + 1);
    return LS_OK;
}

static const char *copy_of(const char *name, ls_status *status)
{
    char *copy = name ? strdup(name) : NULL;
    if (name && !copy) *status = ls__fail(LS_ENOMEM, "no memory for a dataset");
    return copy;
}

/* Fields are JSON's; a plain file that is to have some is a mistake. */
static ls_status check_fields(const ls__sources *sources, const ls_text_options *o)
{
    bool asked = o->field || o->prompt_field || o->weight_field || o->skip_bad || o->chat;
    const char *fields[] = { o->field ? o->field : o->chat ? "messages" : "text", o->prompt_field, o->weight_field };
    for (int i = 1; i < 3; i++)
        for (int k = 0; k < i; k++)
            if (fields[i] && fields[k] && !strcmp(fields[i], fields[k]))
                return ls__fail(LS_EINVAL, "field '%s' is used twice; text, prompt and weight must be different fields",
                                fields[i]);
    for (size_t i = 0; asked && i < sources->count; i++)
        if (!ls__format_of(sources->files[i].format)->parse_line)
            return ls__fail(
                LS_EINVAL,
                "%s: is plain text by its name or the format; only JSON lines have fields and can have invalid lines",
                sources->files[i].path);
    return LS_OK;
}

ls_status ls_text_open(ls_dataset **out, const ls_text_options *o)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(o, "options");
    LS__NEED(o->tokenizer, "options.tokenizer");
    if (!o->seq_len || o->seq_len > INT32_MAX)
        return ls__fail(LS_EINVAL, "sequence length %zu: must be >= 1", o->seq_len);
    if (!(o->hold_out.fraction >= 0 && o->hold_out.fraction <= 1))
        return ls__fail(LS_EINVAL, "hold_out.fraction is %g: must be from 0 to 1", o->hold_out.fraction);
    if (o->chat && (!o->padded || o->prompt_field))
        return ls__fail(LS_EINVAL, "chats are padded, one per sample, and have no field with a prompt");
    text *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "no memory for a dataset");
    t->tokenizer = o->tokenizer;
    t->seq_len = o->seq_len;
    t->padded = o->padded;
    t->lengths = o->count_tokens;
    t->fields.skip_bad = o->skip_bad;
    ls_status status = LS_OK;
    t->fields.text = copy_of(o->field, &status);
    t->fields.prompt = o->padded ? copy_of(o->prompt_field, &status) : NULL;
    t->fields.weight = o->padded ? copy_of(o->weight_field, &status) : NULL;
    if (!status && o->chat) status = ls_chat_template_open(&t->chat, o->tokenizer);
    t->fields.chat = t->chat;
    if (!status) status = ls__sources_open_text(&t->sources, o->paths, o->n_paths, o->format);
    if (!status) status = check_fields(&t->sources, o);
    if (!status) status = ls__sources_unpack(&t->sources);
    t->fields.hold_out = o->hold_out;
    t->fields.files = t->sources.files;
    if (!status) status = index_files(t, o->threads);
    if (status) {
        text_free(t);
        return status;
    }
    t->dataset = (ls_dataset){
        .count = t->padded ? t->n_units : (t->tokens - 1) / t->seq_len,
        .n_fields = t->padded ? 4 : 2,
        .fields = { { "inputs", LS_I32, t->seq_len },
                    { "targets", LS_I32, t->seq_len },
                    { "weights", LS_F32, t->seq_len },
                    { "mask", LS_U8, t->seq_len } },
        .self = t,
        .get = t->padded ? padded_get : packed_get,
        .length = t->padded ? padded_length : NULL,
        .redirect = text_redirect,
        .worker_open = worker_open,
        .worker_free = worker_free,
        .free = text_free,
    };
    *out = &t->dataset;
    return LS_OK;
}

uint64_t ls__text_documents(const ls_dataset *dataset)
{
    const text *t = dataset->self;
    return t->documents;
}
