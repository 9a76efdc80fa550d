/* The table of formats, and the functions of its rows. See format.h.
 *
 * llm.c's shards begin with 256 int32, of which {magic, version, tokens} are used; {20240520, 1} is followed by uint16 and
 * {20240801, 7} by uint32. nanoGPT writes uint16 without a header. */
#include "data/format.h"

#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "data/json_line.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are read without swapping bytes");

/* ---- llm.c. */

static void llmc_words(const uint8_t *head, size_t count, int32_t words[3])
{
    memset(words, 0, 3 * sizeof *words);
    memcpy(words, head, count < 3 * sizeof *words ? count : 3 * sizeof *words);
}

static bool llmc_detect(const ls__format *f, const uint8_t *head, size_t count)
{
    int32_t words[3];
    llmc_words(head, count, words);
    return count >= sizeof *words && (uint32_t)words[0] == f->magic;
}

static ls_status llmc_open(const ls__format *f, const ls__source *file, const uint8_t *head, size_t count,
                           ls__shard_header *out)
{
    int32_t words[3];
    llmc_words(head, count, words);
    if ((uint32_t)words[0] != f->magic)
        return ls__fail(LS_EFORMAT, "%s: byte 0: %d is not the magic number of a shard of format %s (%u)", file->path,
                        words[0], f->name, f->magic);
    if ((uint32_t)words[1] != f->version)
        return ls__fail(LS_EFORMAT, "%s: byte 4: version %d of an llm.c shard; only %u is supported", file->path,
                        words[1], f->version);
    *out = (ls__shard_header){ .has_count = true, .count = words[2] };
    return LS_OK;
}

static void llmc_write(const ls__format *f, uint64_t tokens, uint8_t *header)
{
    int32_t words[3] = { (int32_t)f->magic, (int32_t)f->version, (int32_t)tokens };
    memset(header, 0, f->header_bytes);
    memcpy(header, words, sizeof words);
}

/* ---- JSON lines. */

static ls_status line_fails(const ls__line *l, uint64_t offset, const char *what, const char *about)
{
    char number[40] = "";
    if (l->number) snprintf(number, sizeof number, " (line %zu)", (size_t)l->number);
    return ls__fail(LS_EFORMAT, "%s: byte %zu%s: %s%s", l->file->path, (size_t)offset, number, what, about);
}

static ls_status parse_json(const ls__line *l, const ls__fields *f, ls__json_line *json, ls__document *d)
{
    size_t at = 0;
    const char *name = f->text ? f->text : f->chat ? "messages" : "text", *problem;
    ls__json_field fields[3] = { { .name = name, .is_raw = f->chat } };
    int n = 1, prompt = f->prompt ? n++ : -1, weight = f->weight ? n++ : -1;
    if (prompt > 0) fields[prompt].name = f->prompt;
    if (weight > 0) fields[weight] = (ls__json_field){ .name = f->weight, .is_number = true };
    ls_status status = ls__json_line_read(json, l->bytes, l->count, fields, n, &at, &problem);
    if (status == LS_ENOMEM)
        return ls__fail(LS_ENOMEM, "%s: no memory for a line of %zu bytes", l->file->path, l->count);
    if (status) return line_fails(l, l->offset + at, "not a JSON object: ", problem);
    if (!fields[0].text) return line_fails(l, l->offset, f->chat ? "no field " : "no string in field ", name);
    if (prompt > 0 && !fields[prompt].text) return line_fails(l, l->offset, "no string in field ", f->prompt);
    if (weight > 0) d->weight = fields[weight].found ? fields[weight].number : -1;
    if (!(d->weight >= 0) || d->weight > 1e30)
        return line_fails(l, l->offset, "no number from 0 to 1e30 in field ", f->weight);
    d->text = fields[0].text;
    d->text_bytes = fields[0].bytes;
    if (prompt > 0) d->prompt = fields[prompt].text;
    if (prompt > 0) d->prompt_bytes = fields[prompt].bytes;
    return LS_OK;
}

/* ---- The table. */

static const ls__format formats[LS_FORMAT_COUNT] = {
    [LS_FORMAT_AUTO] = { .name = "auto" },
    [LS_FORMAT_PLAIN] = { .name = "plain", .suffixes = { ".txt", ".text" }, .is_text = true },
    [LS_FORMAT_LINES] = { .name = "lines", .is_text = true, .by_line = true },
    [LS_FORMAT_JSONL] = { .name = "jsonl",
                          .suffixes = { ".jsonl", ".ndjson", ".json" },
                          .is_text = true,
                          .by_line = true,
                          .parse_line = parse_json },
    [LS_FORMAT_LLMC16] = { .name = "llmc16",
                           .token_bytes = 2,
                           .header_bytes = 1024,
                           .magic = 20240520,
                           .version = 1,
                           .detect = llmc_detect,
                           .open = llmc_open,
                           .write = llmc_write },
    [LS_FORMAT_LLMC32] = { .name = "llmc32",
                           .token_bytes = 4,
                           .header_bytes = 1024,
                           .magic = 20240801,
                           .version = 7,
                           .detect = llmc_detect,
                           .open = llmc_open,
                           .write = llmc_write },
    [LS_FORMAT_U16] = { .name = "u16", .suffixes = { ".bin" }, .token_bytes = 2 },
    [LS_FORMAT_U32] = { .name = "u32", .token_bytes = 4 },
};

const ls__format *ls__format_of(ls_data_format format)
{
    return &formats[(unsigned)format < LS_FORMAT_COUNT ? format : LS_FORMAT_AUTO];
}

const char *ls__format_name(ls_data_format format)
{
    return (unsigned)format < LS_FORMAT_COUNT ? formats[format].name : "unknown format";
}

ls_status ls__format_parse(const char *name, ls_data_format *out)
{
    char list[200];
    size_t n = 0;
    for (int i = 0; i < LS_FORMAT_COUNT; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", formats[i].name);
        if (strcmp(name, formats[i].name)) continue;
        *out = (ls_data_format)i;
        return LS_OK;
    }
    return ls__fail(LS_EINVAL, "unknown data format '%s'; must be one of %s", name, list);
}

ls_data_format ls__format_by_head(const uint8_t *head, size_t count)
{
    for (int i = 0; i < LS_FORMAT_COUNT; i++)
        if (formats[i].detect && formats[i].detect(&formats[i], head, count)) return (ls_data_format)i;
    return LS_FORMAT_AUTO;
}

void ls__format_list(bool text, char *out, size_t room)
{
    size_t n = 0;
    const char *before = NULL;
    *out = 0;
    for (int i = 1; i <= LS_FORMAT_COUNT; i++) {
        bool end = i == LS_FORMAT_COUNT;
        if (!end && formats[i].is_text != text) continue;
        if (before && n < room) n += (size_t)snprintf(out + n, room - n, "%s%s", n ? end ? " or " : ", " : "", before);
        before = end ? NULL : formats[i].name;
    }
}
