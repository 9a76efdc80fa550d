/* Records with named fields. See table.h. */
#include "data/table.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Kinds. */

/* The suffix of a name, without .gz and the like; *n: its length. */
static const char *suffix_of(const char *path, size_t *n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *end = name + strlen(name);
    static const char *const packed[] = { ".gz", ".zst", ".zstd" };
    for (size_t i = 0; i < 3; i++) {
        size_t k = strlen(packed[i]);
        if ((size_t)(end - name) > k && !strcasecmp(end - k, packed[i])) {
            end -= k;
            break;
        }
    }
    const char *dot = end;
    while (dot > name && *dot != '.') dot--;
    *n = (size_t)(end - dot);
    return dot;
}

ls__table_kind ls__table_kind_of(const char *path, const char *text, size_t bytes)
{
    static const struct {
        const char *suffix;
        ls__table_kind kind;
    } known[] = { { ".jsonl", LS__TABLE_JSONL },
                  { ".ndjson", LS__TABLE_JSONL },
                  { ".json", LS__TABLE_JSONL },
                  { ".csv", LS__TABLE_CSV },
                  { ".tsv", LS__TABLE_TSV } };
    size_t n, i = 0;
    const char *suffix = suffix_of(path, &n);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strlen(known[k].suffix) == n && !strncasecmp(suffix, known[k].suffix, n)) return known[k].kind;
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) i = 3;
    while (i < bytes && memchr(" \t\r\n", text[i], 4)) i++;
    if (i < bytes && text[i] == '{') return LS__TABLE_JSONL;
    const char *end = i < bytes ? memchr(text + i, '\n', bytes - i) : NULL;
    size_t line = end ? (size_t)(end - text) : bytes;
    return i < line && memchr(text + i, '\t', line - i) ? LS__TABLE_TSV : LS__TABLE_CSV;
}

/* ---- Records. */

/* The end of the record that begins at `at`: its line feed, or the end of the text. In CSV quotes may hold line feeds; *lines
 * counts them. */
static size_t end_of(ls__table_kind kind, const char *text, size_t bytes, size_t at, uint64_t *lines)
{
    bool quoted = false;
    if (kind != LS__TABLE_CSV) {
        const char *end = memchr(text + at, '\n', bytes - at);
        return end ? (size_t)(end - text) : bytes;
    }
    for (; at < bytes; at++) {
        if (text[at] == '"') quoted = !quoted; /* a doubled quote toggles twice */
        if (text[at] != '\n') continue;
        if (!quoted) return at;
        ++*lines;
    }
    return bytes;
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!memchr(" \t\r", text[i], 3)) return false;
    return true;
}

bool ls__table_next(ls__table_kind kind, const char *text, size_t bytes, ls__table_cursor *c, ls__table_record *out)
{
    if (!c->at && bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) c->at = 3;
    while (c->at < bytes) {
        uint64_t inside = 0;
        size_t begin = c->at, end = end_of(kind, text, bytes, begin, &inside);
        *out = (ls__table_record){ .offset = begin, .bytes = end - begin, .line = c->lines + 1 };
        c->at = end + (end < bytes);
        c->lines += inside + 1;
        if (out->bytes && text[end - 1] == '\r') out->bytes--;
        if (!is_blank(text + begin, out->bytes)) return true;
    }
    return false;
}

/* ---- Cells of CSV and TSV. */

typedef struct scan {
    const char *text;
    size_t bytes, at;
    char separator;
    bool quotes;
    const char *problem;
} scan;

/* The next cell, decoded into `memory` where it has quotes. False: it is not valid. */
static bool next_cell(scan *s, char **memory, const char **out, size_t *n)
{
    if (!s->quotes || s->at >= s->bytes || s->text[s->at] != '"') {
        const char *end = memchr(s->text + s->at, s->separator, s->bytes - s->at);
        *out = s->text + s->at;
        *n = end ? (size_t)(end - *out) : s->bytes - s->at;
        s->at += *n;
        return true;
    }
    char *to = *memory;
    *out = to;
    for (s->at++; s->at < s->bytes; s->at++) {
        if (s->text[s->at] == '"' && (++s->at >= s->bytes || s->text[s->at] != '"')) {
            *n = (size_t)(to - *out);
            *memory = to;
            if (s->at >= s->bytes || s->text[s->at] == s->separator) return true;
            s->problem = "text after a closing quote";
            return false;
        }
        *to++ = s->text[s->at];
    }
    s->problem = "a quote is not closed";
    return false;
}

static char separator_of(ls__table_kind kind)
{
    return kind == LS__TABLE_TSV ? '\t' : ',';
}

static ls_status make_room(ls__table_reader *r, size_t bytes)
{
    if (r->room >= bytes) return LS_OK;
    char *memory = realloc(r->memory, bytes + 1);
    if (!memory) return LS_ENOMEM;
    r->memory = memory;
    r->room = bytes;
    return LS_OK;
}

static ls_status read_cells(ls__table_kind kind, ls__table_reader *r, const char *record, size_t bytes, int columns,
                            ls__cell *cells, int n_cells, size_t *at, const char **problem)
{
    scan s = { .text = record, .bytes = bytes, .separator = separator_of(kind), .quotes = kind == LS__TABLE_CSV };
    if (make_room(r, bytes)) return LS_ENOMEM;
    char *memory = r->memory;
    int column = 0;
    for (bool more = true; more; column++) {
        const char *text = record;
        size_t n = 0;
        bool good = next_cell(&s, &memory, &text, &n);
        *at = s.at < bytes ? s.at : bytes;
        *problem = s.problem;
        if (!good) return LS_EFORMAT;
        for (int i = 0; i < n_cells; i++)
            if (cells[i].column == column) cells[i].found = true, cells[i].text = text, cells[i].bytes = n;
        more = s.at < bytes;
        s.at++; /* the separator */
    }
    if (column == columns) return LS_OK;
    *problem = column < columns ? "fewer fields than the first record" : "more fields than the first record";
    return LS_EFORMAT;
}

int ls__table_column(ls__table_kind kind, const char *header, size_t bytes, const char *name, int *columns, int *same)
{
    ls__table_reader r = { 0 };
    scan s = { .text = header, .bytes = bytes, .separator = separator_of(kind), .quotes = kind == LS__TABLE_CSV };
    int found = -1, count = 0;
    *columns = 0;
    if (same) *same = 0;
    if (make_room(&r, bytes)) return -1;
    char *memory = r.memory;
    for (bool more = true; more; ++*columns) {
        const char *text = header;
        size_t n = 0;
        if (!next_cell(&s, &memory, &text, &n)) break;
        if (name && strlen(name) == n && !memcmp(name, text, n) && !count++) found = *columns;
        more = s.at < bytes;
        s.at++;
    }
    ls__table_reader_free(&r);
    if (same) *same = count;
    return found;
}

/* ---- Any record. */

ls_status ls__table_read(ls__table_kind kind, ls__table_reader *r, const char *record, size_t bytes, int columns,
                         ls__cell *cells, int n_cells, size_t *at, const char **problem)
{
    ls__json_field fields[LS__MAX_CELLS];
    int used[LS__MAX_CELLS], n = 0;
    *at = 0;
    *problem = NULL;
    for (int i = 0; i < n_cells; i++) {
        cells[i].found = cells[i].is_number = false;
        cells[i].text = NULL;
        cells[i].bytes = 0;
        if (cells[i].column < 0 || n == LS__MAX_CELLS) continue;
        used[n] = i;
        fields[n++] = (ls__json_field){ .name = cells[i].name, .either = true };
    }
    if (kind != LS__TABLE_JSONL) return read_cells(kind, r, record, bytes, columns, cells, n_cells, at, problem);
    ls_status status = ls__json_line_read(&r->json, record, bytes, fields, n, at, problem);
    for (int i = 0; i < n && !status; i++) {
        ls__cell *c = &cells[used[i]];
        c->found = fields[i].found;
        c->is_number = fields[i].found && !fields[i].text;
        c->text = fields[i].text;
        c->bytes = fields[i].bytes;
        c->number = fields[i].number;
    }
    return status;
}

void ls__table_reader_free(ls__table_reader *r)
{
    ls__json_line_free(&r->json);
    free(r->memory);
    *r = (ls__table_reader){ 0 };
}
