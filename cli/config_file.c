/* Parsing and writing files of options. See config_file.h.
 *
 * Strings are unescaped into one block that is as large as the file: no string becomes longer than it is written. */
#include "cli/config_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "cli/escape.h"

enum {
    MAX_BYTES = 1 << 20,
    MAX_ENTRIES = 1000, /* several times the options that there are */
};

static const char supported[] = "a value is \"text\", 'text', a number, true, false, or [\"text\", ...]";

typedef struct reader {
    config_file *out;
    const char *path;
    const char *at, *end;
    int line;
    char *free; /* the rest of the block for texts */
    size_t room_entries, room_headings;
} reader;

static ls_status fail(const reader *r, const char *what)
{
    return ls__fail(LS_EFORMAT, "%s:%d: %s", printable(r->path), r->line, what);
}

static ls_status no_memory(const reader *r)
{
    return ls__fail(LS_ENOMEM, "%s: out of memory", printable(r->path));
}

/* The byte at hand; 0 at the end. The text itself has no 0 bytes. */
static char peek(const reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static void skip_blanks(reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t') r->at++;
}

static void skip_comment(reader *r)
{
    if (peek(r) == '#')
        while (r->at < r->end && *r->at != '\n') r->at++;
}

/* A line feed, after a carriage return or not. */
static bool skip_line_end(reader *r)
{
    if (peek(r) == '\r' && r->at + 1 < r->end && r->at[1] == '\n') r->at++;
    if (peek(r) != '\n') return false;
    r->at++;
    r->line++;
    return true;
}

/* Blanks, comments and line ends. */
static void skip_space(reader *r)
{
    do {
        skip_blanks(r);
        skip_comment(r);
    } while (skip_line_end(r));
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* A bare name, in the block. */
static const char *read_name(reader *r)
{
    char *name = r->free;
    for (; is_name_byte(peek(r)); r->at++) *r->free++ = *r->at == '_' ? '-' : *r->at;
    *r->free++ = 0;
    return name;
}

/* Appends a character as UTF-8, which is shorter than its escape. */
static void put_character(reader *r, uint32_t c)
{
    if (c < 0x80) {
        *r->free++ = (char)c;
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t first[] = { 0, 0xc0, 0xe0, 0xf0 };
    *r->free++ = (char)(first[more] | c >> 6 * more);
    while (more--) *r->free++ = (char)(0x80 | (c >> 6 * more & 0x3f));
}

/* \uXXXX and \UXXXXXXXX, behind the letter. */
static ls_status read_unicode(reader *r, int digits)
{
    uint32_t c = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        char x = peek(r);
        int value = x >= '0' && x <= '9'   ? x - '0'
                    : x >= 'a' && x <= 'f' ? x - 'a' + 10
                    : x >= 'A' && x <= 'F' ? x - 'A' + 10
                                           : -1;
        if (value < 0) return fail(r, "\\u takes 4 hexadecimal digits, and \\U takes 8");
        c = c << 4 | (uint32_t)value;
    }
    if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return fail(r, "this escape is no character that a string may have");
    put_character(r, c);
    return LS_OK;
}

static ls_status read_escape(reader *r)
{
    static const char letters[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    char c = peek(r);
    const char *found = c ? strchr(letters, c) : NULL;
    if (c) r->at++;
    if (c == 'u' || c == 'U') return read_unicode(r, c == 'u' ? 4 : 8);
    if (!found) return fail(r, "unknown escape; \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX and \\UXXXXXXXX are supported");
    *r->free++ = values[found - letters];
    return LS_OK;
}

/* A string in quotes of one kind or the other. */
static ls_status read_string(reader *r, const char **out)
{
    char quote = *r->at++;
    *out = r->free;
    if (r->end - r->at >= 2 && r->at[0] == quote && r->at[1] == quote)
        return fail(r, "strings of several lines are not supported; use \\n");
    while (peek(r) != quote) {
        char c = peek(r);
        if (!c || c == '\n' || c == '\r') return fail(r, "the string has no end in this line");
        if (((uint8_t)c < ' ' && c != '\t') || c == 127)
            return fail(r, "a control character in a string; write it as \\uXXXX");
        r->at++;
        ls_status status = LS_OK;
        if (c == '\\' && quote == '"')
            status = read_escape(r);
        else
            *r->free++ = c;
        if (status) return status;
    }
    r->at++;
    *r->free++ = 0;
    return LS_OK;
}

static ls_status add_item(reader *r, config_entry *e, const char *text)
{
    const char **more = e->count & (e->count - 1) ? e->items /* grows at powers of two */
                                                  : realloc(e->items, (e->count ? 2 * e->count : 1) * sizeof *more);
    if (!more) return no_memory(r);
    e->items = more;
    e->items[e->count++] = text;
    return LS_OK;
}

static ls_status read_list(reader *r, config_entry *e)
{
    ls_status status = LS_OK;
    e->kind = CONFIG_LIST;
    r->at++;
    for (;;) {
        const char *text;
        skip_space(r);
        if (peek(r) == ']') break;
        if (peek(r) != '"' && peek(r) != '\'') return fail(r, "an array holds strings: [\"one\", \"two\"]");
        if ((status = read_string(r, &text))) return status;
        if ((status = add_item(r, e, text))) return status;
        skip_space(r);
        if (peek(r) == ',')
            r->at++;
        else if (peek(r) != ']')
            return fail(r, "expected ',' or ']' in an array");
    }
    r->at++;
    return LS_OK;
}

/* true, false, or what begins like a number. Whether it is one is checked by its reader, which knows the option. */
static ls_status read_word(reader *r, config_entry *e)
{
    char *word = r->free;
    for (char c; (c = peek(r)), is_name_byte(c) || c == '.' || c == '+' || c == ':'; r->at++)
        if (c != '_') *r->free++ = c;
    *r->free++ = 0;
    e->kind = !strcmp(word, "true") ? CONFIG_TRUE : !strcmp(word, "false") ? CONFIG_FALSE : CONFIG_NUMBER;
    const char *first = word + (*word == '+' || *word == '-');
    if (e->kind == CONFIG_NUMBER && !((*first >= '0' && *first <= '9') || *first == '.')) return fail(r, supported);
    return add_item(r, e, word);
}

static ls_status read_value(reader *r, config_entry *e)
{
    const char *text;
    char c = peek(r);
    if (c == '[') return read_list(r, e);
    if (c != '"' && c != '\'') return read_word(r, e);
    e->kind = CONFIG_TEXT;
    ls_status status = read_string(r, &text);
    return status ? status : add_item(r, e, text);
}

/* Room for one more at *list, zeroed. */
static void *grow(void **list, size_t count, size_t *room, size_t size)
{
    if (count == *room) {
        size_t more = *room ? 2 * *room : 16;
        void *moved = realloc(*list, more * size);
        if (!moved) return NULL;
        *list = moved;
        *room = more;
    }
    return memset((char *)*list + count * size, 0, size);
}

static ls_status read_heading(reader *r)
{
    config_file *f = r->out;
    void *list = f->headings;
    config_heading *h = grow(&list, f->n_headings, &r->room_headings, sizeof *h);
    if (!h) return no_memory(r);
    f->headings = list;
    f->n_headings++;
    h->line = r->line;
    r->at++;
    skip_blanks(r);
    h->name = read_name(r);
    skip_blanks(r);
    if (!*h->name || peek(r) != ']') return fail(r, "a heading is [name]; tables in tables are not supported");
    r->at++;
    return LS_OK;
}

static ls_status read_entry(reader *r)
{
    config_file *f = r->out;
    void *list = f->entries;
    if (f->count == MAX_ENTRIES) return fail(r, "more names than there are options");
    config_entry *e = grow(&list, f->count, &r->room_entries, sizeof *e);
    if (!e) return no_memory(r);
    f->entries = list;
    f->count++;
    e->line = r->line;
    e->name = read_name(r);
    skip_blanks(r);
    if (!*e->name || peek(r) != '=') return fail(r, "expected name = value; names have letters, digits, '-' and '_'");
    for (size_t i = 0; i + 1 < f->count; i++)
        if (!strcmp(f->entries[i].name, e->name))
            return ls__fail(LS_EFORMAT, "%s:%d: '%s' is given twice, first in line %d", printable(r->path), r->line,
                            e->name, f->entries[i].line);
    r->at++;
    skip_blanks(r);
    return read_value(r, e);
}

static ls_status read_all(reader *r)
{
    for (;;) {
        skip_space(r);
        if (r->at == r->end) return LS_OK;
        ls_status status = peek(r) == '[' ? read_heading(r) : read_entry(r);
        if (status) return status;
        skip_blanks(r);
        skip_comment(r);
        if (r->at < r->end && !skip_line_end(r)) return fail(r, "unexpected text after the value");
    }
}

ls_status config_file_parse(config_file *out, const char *path, const char *text, size_t bytes)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, which some editors write */
    *out = (config_file){ 0 };
    reader r = { .out = out, .path = path, .at = text, .end = text + bytes, .line = 1 };
    if (bytes > MAX_BYTES) return fail(&r, "the file is larger than 1 MiB: not a configuration");
    if (memchr(text, 0, bytes)) return fail(&r, "the file has a 0 byte: not a text");
    if (bytes >= 3 && !memcmp(text, mark, 3)) r.at += 3;
    /* Each text is shorter than what it is read from, or equal to it and followed by a byte that is not in it. */
    out->memory = r.free = malloc(bytes + 2);
    ls_status status = r.free ? read_all(&r) : no_memory(&r);
    if (status) config_file_free(out);
    return status;
}

ls_status config_file_read(config_file *out, const char *path)
{
    char *text = NULL;
    size_t bytes;
    *out = (config_file){ 0 };
    ls_status status = ls__file_read(path, MAX_BYTES, &text, &bytes);
    if (!status) status = config_file_parse(out, path, text, bytes);
    free(text);
    return status;
}

void config_file_free(config_file *f)
{
    for (size_t i = 0; i < f->count; i++) free(f->entries[i].items);
    free(f->entries);
    free(f->headings);
    free(f->memory);
    *f = (config_file){ 0 };
}

void config_put_text(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else if ((uint8_t)*text < ' ' || *text == 127)
            fprintf(to, "\\u%04x", (unsigned)(uint8_t)*text);
        else
            fputc(*text, to);
    }
    fputc('"', to);
}
