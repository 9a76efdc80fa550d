/* Text in files. Plain files are one document each; of "lines" files every line is one; of JSON lines every object, with
 * its text in a member.
 *
 * Files are gone over in chunks of about a mebibyte, which is what one thread tokenizes at a time. A chunk of lines ends
 * at a line's end; one of plain text where ls__split_cut() allows it, so that the tokens are those of the whole text. */
#include "data/documents.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/shard.h"
#include "data/split.h"

/* The longest line, or stretch of plain text without white space, that is read. */
static const size_t chunk_limit = (size_t)1 << 30;

static const char *const names[LS_TEXT_FORMAT_COUNT] = { "auto", "plain", "lines", "jsonl" };

const char *ls_text_format_name(ls_text_format format)
{
    return (unsigned)format < LS_TEXT_FORMAT_COUNT ? names[format] : "unknown format";
}

ls_status ls_text_format_parse(const char *name, ls_text_format *out)
{
    for (int i = 0; i < LS_TEXT_FORMAT_COUNT; i++) {
        if (strcmp(name, names[i])) continue;
        *out = (ls_text_format)i;
        return LS_OK;
    }
    return ls__fail(LS_EINVAL, "there is no text format '%s'; known are auto, plain, lines and jsonl", name);
}

ls_status ls__sources_open_text(ls__sources *out, const char *const *paths, size_t n_paths)
{
    ls_status status = ls__sources_open(out, paths, n_paths);
    for (size_t i = 0; !status && i < out->count; i++) {
        bool shard;
        status = ls__shard_has_magic(&out->files[i], &shard);
        if (!status && shard)
            status = ls__fail(LS_EFORMAT, "%s: byte 0: is a shard of tokens already, no text", out->files[i].path);
        if (status) ls__sources_close(out);
    }
    return status;
}

ls_text_format ls__text_format_of(ls_text_format format, const char *path)
{
    if (format != LS_TEXT_AUTO) return format;
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".ndjson")) ? LS_TEXT_JSONL : LS_TEXT_PLAIN;
}

/* Where a chunk of `count` bytes ends: behind its last line, or at the last place where plain text may be cut. 0: it has
 * no such place. */
static size_t last_cut(const ls__chunk *c, size_t count)
{
    if (c->format != LS_TEXT_PLAIN) {
        const char *end = memrchr(c->bytes, '\n', count);
        return end ? (size_t)(end - c->bytes) + 1 : 0;
    }
    /* Nearly always there is one in the last bytes; if not, look further back, twice as far each time. */
    for (size_t back = 256;; back *= 2) {
        size_t from = back < count ? count - back : 1, last = 0;
        for (size_t cut = from; (cut = ls__split_cut((const uint8_t *)c->bytes, cut, count)) < count; cut++) last = cut;
        if (last || from == 1) return last;
    }
}

ls_status ls__chunks_next(ls__chunks *c, ls__chunk *chunk)
{
    while (c->file < c->sources->count && c->offset >= c->sources->files[c->file].bytes) {
        c->file++;
        c->offset = 0;
        c->line = 1;
    }
    if (c->file >= c->sources->count) return LS_END;
    if (!c->offset) c->line = 1;
    const ls__source *file = &c->sources->files[c->file];
    uint64_t left = file->bytes - c->offset;
    chunk->file = file;
    chunk->format = ls__text_format_of(c->format, file->path);
    chunk->offset = c->offset;
    chunk->line = c->line;
    for (size_t want = c->size;; want *= 2) {
        size_t count = want < left ? want : left;
        if (count > chunk_limit)
            return ls__fail(LS_EFORMAT, "%s: byte %zu: %s without end in the next %zu MiB", file->path,
                            (size_t)c->offset, chunk->format == LS_TEXT_PLAIN ? "text without white space" : "a line",
                            chunk_limit >> 20);
        char *bytes = realloc(chunk->bytes, count + 1);
        if (!bytes) return ls__fail(LS_ENOMEM, "%s: no memory for %zu bytes of text", file->path, count);
        chunk->bytes = bytes;
        ls_status status = ls__source_read(file, bytes, count, c->offset);
        if (status) return status;
        chunk->last = count == left;
        chunk->count = chunk->last ? count : last_cut(chunk, count);
        if (chunk->count) break;
    }
    c->offset += chunk->count;
    if (chunk->format != LS_TEXT_PLAIN)
        for (const char *p = chunk->bytes, *end = p + chunk->count; (p = memchr(p, '\n', (size_t)(end - p))); p++)
            c->line++;
    return LS_OK;
}

typedef ls_status (*document_fn)(void *user, const ls__document *document);

/* Where in which file a line is, for messages. */
static ls_status line_fails(const ls__chunk *c, uint64_t offset, uint64_t line, const char *what, const char *about)
{
    char number[40] = "";
    if (line) snprintf(number, sizeof number, " (line %zu)", (size_t)line);
    return ls__fail(LS_EFORMAT, "%s: byte %zu%s: %s%s", c->file->path, (size_t)offset, number, what, about);
}

/* A string member of a JSON object. */
static const char *string_of(const json_t *object, const char *name, size_t *bytes)
{
    const json_t *value = json_object_get(object, name);
    *bytes = json_is_string(value) ? json_string_length(value) : 0;
    return json_string_value(value);
}

static ls_status json_document(const ls__chunk *c, const ls__fields *f, const char *bytes, size_t count, uint64_t line,
                               document_fn each, void *user)
{
    json_error_t error;
    ls__document d = { .weight = 1, .ends = true, .offset = c->offset + (uint64_t)(bytes - c->bytes) };
    json_t *root = json_loadb(bytes, count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root) return line_fails(c, d.offset + (uint64_t)error.position, line, "no valid JSON: ", error.text);
    const char *name = f->text ? f->text : "text";
    const json_t *weight = f->weight ? json_object_get(root, f->weight) : NULL;
    ls_status status = LS_OK;
    d.text = string_of(root, name, &d.text_bytes);
    if (f->prompt) d.prompt = string_of(root, f->prompt, &d.prompt_bytes);
    if (weight) d.weight = json_number_value(weight);
    if (!json_is_object(root))
        status = line_fails(c, d.offset, line, "not a JSON object", "");
    else if (!d.text)
        status = line_fails(c, d.offset, line, "no text in member ", name);
    else if (f->prompt && !d.prompt)
        status = line_fails(c, d.offset, line, "no text in member ", f->prompt);
    else if (f->weight && (!json_is_number(weight) || !(d.weight >= 0) || d.weight > 1e30))
        status = line_fails(c, d.offset, line, "no number from 0 to 1e30 in member ", f->weight);
    else
        status = each(user, &d);
    json_decref(root);
    return status;
}

static bool is_blank(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

ls_status ls__chunk_documents(const ls__chunk *c, const ls__fields *fields, document_fn each, void *user)
{
    if (c->format == LS_TEXT_PLAIN) {
        ls__document d = {
            .text = c->bytes, .text_bytes = c->count, .weight = 1, .ends = c->last, .offset = c->offset
        };
        return each(user, &d);
    }
    uint64_t line = c->line;
    for (size_t at = 0; at<c->count; line += line> 0) {
        const char *text = c->bytes + at, *end = memchr(text, '\n', c->count - at);
        size_t count = end ? (size_t)(end - text) : c->count - at;
        at += count + (end != NULL);
        if (is_blank(text, count)) continue;
        ls_status status;
        if (c->format == LS_TEXT_JSONL) {
            status = json_document(c, fields, text, count, line, each, user);
        } else {
            if (count && text[count - 1] == '\r') count--;
            ls__document d = { .text = text,
                               .text_bytes = count,
                               .weight = 1,
                               .ends = true,
                               .offset = c->offset + (uint64_t)(text - c->bytes) };
            status = each(user, &d);
        }
        if (status) return status;
    }
    return LS_OK;
}
