/* Text in files. A plain file is one document; in "lines" files every line is one; in JSON lines every object, with its text in a
 * field.
 *
 * Files are read in chunks of about a mebibyte, which is what one thread tokenizes at a time. A chunk of lines ends at the end of a
 * line; a chunk of plain text where ls__split_cut() allows it, so that the tokens are those of the whole text. */
#include "data/documents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/random.h"
#include "base/status.h"
#include "data/chat.h"
#include "data/format.h"
#include "data/json_line.h"
#include "data/names.h"
#include "data/recognize.h"
#include "data/split.h"
#include "data/tokenizer.h"
#include "data/unpack.h"

#define STREAM_HOLD_OUT (UINT64_C(3) << 56) /* of the data layer's random numbers; see sampler.c */

/* The longest line, or run of plain text without white space, that is read. */
static const size_t chunk_limit = (size_t)1 << 30;

/* ---- The format. */

/* The format of a text file, by its name. A .json may be JSON lines or one value over many lines, which its first line shows. */
static ls_status choose_format(ls__source *file, ls_data_format asked, const uint8_t *head, size_t count)
{
    ls__suffix suffix = ls__suffix_of(file->path);
    file->format = asked;
    if (asked != LS_FORMAT_AUTO) return LS_OK;
    file->format = ls__format_of(suffix.format)->is_text ? suffix.format : LS_FORMAT_PLAIN;
    if (!suffix.is_json) return LS_OK;
    size_t i = count >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < count && memchr(" \t\r\n", head[i], 4)) i++;
    if (i < count && head[i] == '{') {
        for (i++; i < count && (head[i] == ' ' || head[i] == '\t'); i++) {
        }
        if (i < count && (head[i] == '"' || head[i] == '}')) return LS_OK;
    }
    bool array = i < count && head[i] == '[';
    return ls__fail(LS_EFORMAT,
                    "%s: byte 0: is a single JSON value, not one object per line; convert it to JSON lines%s, or use "
                    "the format plain to read its bytes",
                    file->path, array ? ", for example with jq -c '.[]'" : "");
}

static ls_status check_text(ls__source *file, ls_data_format asked, const uint8_t *head, size_t count, uint64_t bytes)
{
    ls__recognized r = ls__recognize(head, count, bytes);
    if (r.kind == LS__KIND_SHARD) return ls__fail(LS_EFORMAT, "%s: byte 0: is a token shard, not text", file->path);
    if (asked != LS_FORMAT_PLAIN && r.kind != LS__KIND_UNKNOWN) return ls__recognized_fail(file, &r, "text");
    const uint8_t *zero = asked == LS_FORMAT_AUTO ? memchr(head, 0, count) : NULL;
    if (zero)
        return ls__fail(LS_EFORMAT,
                        "%s: byte %zu: is 0, which is not text; use the format plain to read the bytes as they are. "
                        "Token files need no tokenizer: train on them with the format u16 or u32",
                        file->path, (size_t)(zero - head));
    return choose_format(file, asked, head, count);
}

/* The first bytes of the text in a compressed file. */
static ls_status unpacked_head(const ls__source *file, uint8_t head[LS__HEAD], size_t *count)
{
    ls__unpack *u;
    ls_status status = ls__unpack_open(&u, file);
    if (!status) status = ls__unpack_read(u, head, LS__HEAD, count);
    ls__unpack_free(&u);
    return status;
}

static ls_status examine(ls__source *file, ls_data_format asked)
{
    uint8_t head[LS__HEAD];
    size_t count = 0;
    ls_status status = ls__source_head(file, head, &count);
    if (status) return status;
    ls__kind kind = ls__recognize(head, count, file->bytes).kind;
    file->packing = kind == LS__KIND_GZIP ? LS__PACKED_GZIP : kind == LS__KIND_ZSTD ? LS__PACKED_ZSTD : LS__PACKED_NOT;
    if (file->packing == LS__PACKED_NOT) return check_text(file, asked, head, count, file->bytes);
    status = unpacked_head(file, head, &count);
    if (status) return status;
    status = check_text(file, asked, head, count, UINT64_MAX);
    return status ? ls__fail_within(status, "inside the compressed file") : LS_OK;
}

ls_status ls__sources_open_text(ls__sources *out, const char *const *paths, size_t n_paths, ls_data_format format)
{
    if (format != LS_FORMAT_AUTO && !ls__format_of(format)->is_text) {
        char list[100];
        *out = (ls__sources){ .unpacked_fd = -1 };
        ls__format_list(true, list, sizeof list);
        return ls__fail(LS_EINVAL, "format %s is not a text format; use %s", ls__format_name(format), list);
    }
    ls_status status = ls__sources_open(out, paths, n_paths);
    if (status) return status;
    for (size_t i = 0; !status && i < out->count; i++) status = examine(&out->files[i], format);
    if (status)
        ls__sources_close(out);
    else
        ls__sources_warn(out);
    return status;
}

/* ---- Chunks. */

/* Where a chunk of `count` bytes ends: after its last line, or at the last place where plain text may be cut. 0: it has
 * no such place. */
static size_t last_cut(const ls__chunk *c, size_t count, const ls_tokenizer *tokenizer)
{
    if (ls__format_of(c->format)->by_line) {
        const char *end = memrchr(c->bytes, '\n', count);
        return end ? (size_t)(end - c->bytes) + 1 : 0;
    }
    /* Nearly always there is one in the last bytes; if not, look further back, twice as far each time. */
    for (size_t back = 256;; back *= 2) {
        size_t from = back < count ? count - back : 1, last = 0;
        for (size_t cut = from; (cut = ls__split_cut((const uint8_t *)c->bytes, cut, count)) < count; cut++)
            if (!tokenizer || ls__tokenizer_may_cut(tokenizer, c->bytes, count, cut)) last = cut;
        if (last || from == 1) return last;
    }
}

static ls_status too_long(const ls__chunk *chunk)
{
    return ls__fail(LS_EFORMAT, "%s: byte %zu: %s longer than %zu MiB", chunk->file->path, (size_t)chunk->offset,
                    ls__format_of(chunk->format)->by_line ? "a line" : "text without white space", chunk_limit >> 20);
}

static ls_status make_room(ls__chunk *chunk, size_t count)
{
    char *bytes = realloc(chunk->bytes, count + 1);
    if (!bytes) return ls__fail(LS_ENOMEM, "%s: no memory for %zu bytes of text", chunk->file->path, count);
    chunk->bytes = bytes;
    return LS_OK;
}

/* The next chunk of a file that can be read at any place. */
static ls_status next_plain(const ls__chunks *c, ls__chunk *chunk)
{
    uint64_t left = chunk->file->bytes - c->offset;
    for (size_t want = c->size;; want *= 2) {
        size_t count = want < left ? want : left;
        if (count > chunk_limit) return too_long(chunk);
        ls_status status = make_room(chunk, count);
        if (!status) status = ls__source_read(chunk->file, chunk->bytes, count, c->offset);
        if (status) return status;
        chunk->last = count == left;
        chunk->count = chunk->last ? count : last_cut(chunk, count, c->tokenizer);
        chunk->consumed = chunk->count;
        if (chunk->count) return LS_OK;
    }
}

/* The next chunk of a compressed file. One byte more than wanted is unpacked, to see whether this is the end. */
static ls_status next_packed(ls__chunks *c, ls__chunk *chunk)
{
    size_t have = c->rest_bytes;
    ls_status status = c->unpack ? LS_OK : ls__unpack_open(&c->unpack, chunk->file);
    if (!status) status = make_room(chunk, have);
    if (status) return status;
    if (have) memcpy(chunk->bytes, c->rest, have);
    for (size_t want = c->size;; want *= 2) {
        size_t got = 0;
        if (want > chunk_limit) return too_long(chunk);
        status = make_room(chunk, (have > want ? have : want) + 1);
        if (!status && have <= want) status = ls__unpack_read(c->unpack, chunk->bytes + have, want + 1 - have, &got);
        if (status) return status;
        have += got;
        chunk->last = have <= want;
        chunk->count = chunk->last ? have : last_cut(chunk, want, c->tokenizer);
        if (chunk->count || chunk->last) break;
    }
    c->rest_bytes = have - chunk->count;
    char *rest = realloc(c->rest, c->rest_bytes + 1);
    if (!rest) return ls__fail(LS_ENOMEM, "%s: no memory for %zu bytes of text", chunk->file->path, c->rest_bytes);
    c->rest = rest;
    memcpy(rest, chunk->bytes + chunk->count, c->rest_bytes);
    uint64_t position = ls__unpack_position(c->unpack);
    chunk->consumed = position - c->consumed;
    c->consumed = position;
    return LS_OK;
}

static void next_file(ls__chunks *c)
{
    ls__unpack_free(&c->unpack);
    c->file++;
    c->offset = c->consumed = 0;
    c->rest_bytes = 0;
    c->ended = false;
}

void ls__chunks_close(ls__chunks *c)
{
    ls__unpack_free(&c->unpack);
    free(c->rest);
    c->rest = NULL;
    c->rest_bytes = 0;
}

ls_status ls__chunks_next(ls__chunks *c, ls__chunk *chunk)
{
    for (; c->file < c->sources->count; next_file(c)) {
        const ls__source *file = &c->sources->files[c->file];
        bool packed = file->packing != LS__PACKED_NOT;
        if (packed ? c->ended : c->offset >= file->bytes) continue;
        if (!c->offset) c->line = 1;
        chunk->file = file;
        chunk->format = c->format ? c->format : file->format;
        chunk->offset = c->offset;
        chunk->line = c->line;
        ls_status status = packed ? next_packed(c, chunk) : next_plain(c, chunk);
        if (status) return status;
        c->ended = chunk->last;
        if (!chunk->count) continue;
        c->offset += chunk->count;
        if (ls__format_of(chunk->format)->by_line)
            for (const char *p = chunk->bytes, *end = p + chunk->count; (p = memchr(p, '\n', (size_t)(end - p))); p++)
                c->line++;
        return LS_OK;
    }
    return LS_END;
}

/* ---- Documents. */

typedef ls_status (*document_fn)(void *user, const ls__document *document);

void ls__bad_lines_add(ls__bad_lines *to, const ls__bad_lines *more)
{
    if (!to->count) memcpy(to->first, more->first, sizeof to->first);
    to->count += more->count;
}

void ls__bad_lines_warn(const ls__bad_lines *bad)
{
    if (bad->count)
        ls__log(LS_LOG_WARNING, "%zu invalid line%s skipped; the first: %s", (size_t)bad->count,
                bad->count == 1 ? " was" : "s were", bad->first);
}

/* A line that is wrong: skipped and counted, or the end. */
static ls_status bad_line(ls_status status, const ls__fields *f, ls__bad_lines *bad)
{
    if (status != LS_EFORMAT) return status;
    if (!f->skip_bad) return ls__fail(status, "%s; correct the line, or skip such lines (skip_bad)", ls_error());
    ls__bad_lines one = { .count = 1 };
    snprintf(one.first, sizeof one.first, "%s", ls_error());
    if (bad) ls__bad_lines_add(bad, &one);
    return LS_OK;
}

static bool is_blank(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

bool ls__has_document(const ls__fields *f, const ls__source *file, uint64_t offset)
{
    const ls_hold_out *h = &f->hold_out;
    if (!(h->fraction > 0)) return !h->held_out;
    uint64_t number = ls__random_u64(h->seed, STREAM_HOLD_OUT + (uint64_t)(file - f->files), offset);
    return ((double)number < h->fraction * 0x1p64) == h->held_out;
}

/* The text of a chat, whose messages are what the document has so far. */
static ls_status render_chat(const ls__line *l, const ls__fields *f, ls__jinja_text *text, ls__document *d)
{
    json_t *messages;
    char line[40] = "";
    ls_status status = ls__chat_parse(d->text, d->text_bytes, &messages);
    if (!status) status = ls__chat_answers(f->chat, messages, text);
    json_decref(messages);
    d->text = text->bytes;
    d->text_bytes = text->count;
    d->answers = text->spans;
    d->n_answers = text->n_spans;
    if (!status) return LS_OK;
    if (l->number) snprintf(line, sizeof line, " (line %zu)", (size_t)l->number);
    return ls__fail_within(status, "%s: byte %zu%s", l->file->path, (size_t)l->offset, line);
}

/* Bytes of a byte order mark at the beginning of a file. */
static size_t mark_bytes(const ls__chunk *c)
{
    return !c->offset && c->count >= 3 && !memcmp(c->bytes, "\xef\xbb\xbf", 3) ? 3 : 0;
}

ls_status ls__chunk_documents(const ls__chunk *c, const ls__fields *fields, ls__bad_lines *bad, document_fn each,
                              void *user)
{
    const ls__format *format = ls__format_of(c->format);
    size_t mark = mark_bytes(c), at = mark;
    if (!format->by_line) {
        if (!ls__has_document(fields, c->file, 0)) return LS_OK;
        ls__document d = { .text = c->bytes + at,
                           .text_bytes = c->count - at,
                           .weight = 1,
                           .continues = c->offset > 0,
                           .ends = c->last,
                           .offset = c->offset + at };
        return each(user, &d);
    }
    ls__json_line json = { 0 };
    ls__jinja_text chat = { 0 };
    uint64_t line = c->line;
    ls_status status = LS_OK;
    for (; !status && at<c->count; line += line> 0) {
        const char *text = c->bytes + at, *end = memchr(text, '\n', c->count - at);
        size_t count = end ? (size_t)(end - text) : c->count - at;
        at += count + (end != NULL);
        /* Where a document is does not depend on a byte order mark before it. */
        size_t place = (size_t)(text - c->bytes) == mark ? 0 : (size_t)(text - c->bytes);
        if (is_blank(text, count) || !ls__has_document(fields, c->file, c->offset + place)) continue;
        ls__document d = { .text = text,
                           .text_bytes = count && text[count - 1] == '\r' ? count - 1 : count,
                           .weight = 1,
                           .ends = true,
                           .offset = c->offset + (uint64_t)(text - c->bytes) };
        ls__line l = { .file = c->file, .offset = d.offset, .number = line, .bytes = text, .count = count };
        if (format->parse_line) status = format->parse_line(&l, fields, &json, &d);
        if (!status && fields->chat) status = render_chat(&l, fields, &chat, &d);
        if (status) {
            status = bad_line(status, fields, bad);
            continue;
        }
        status = each(user, &d);
    }
    ls__json_line_free(&json);
    ls__jinja_text_free(&chat);
    return status;
}
