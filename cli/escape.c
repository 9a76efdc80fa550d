/* Text in JSON, in HTML and on a terminal. See escape.h. */
#include "cli/escape.h"

#include <ctype.h>
#include <string.h>
#include "base/text.h"

static const char UNKNOWN[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Controls as \uXXXX, so that nothing is lost but what is not UTF-8. */
void put_json_bytes(FILE *to, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        const char *s = text + i;
        int n = ls__utf8_length(s); /* ends at the zero after the text at the latest */
        if (!n) {
            fputs(UNKNOWN, to);
        } else if (*s == '"' || *s == '\\') {
            fprintf(to, "\\%c", *s);
        } else if (*s == '\n' || *s == '\t') {
            fputs(*s == '\n' ? "\\n" : "\\t", to);
        } else if (ls__utf8_is_control(s, n)) {
            uint32_t c = ls__utf8_code_point(s, n);
            if (c > 0xffff)
                fprintf(to, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
            else
                fprintf(to, "\\u%04x", c);
        } else {
            fwrite(s, 1, (size_t)n, to);
        }
        i += n ? (size_t)n : 1;
    }
}

void put_json(FILE *to, const char *text)
{
    if (text) put_json_bytes(to, text, strlen(text));
}

static const char *special_html(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    case '\n': return "\n";
    case '\t': return " ";
    default: return NULL;
    }
}

void put_html(FILE *to, const char *text)
{
    const char *s = text ? text : "";
    while (*s) {
        int n = ls__utf8_length(s);
        const char *other = n == 1 ? special_html(*s) : NULL;
        if (!n || (!other && ls__utf8_is_control(s, n)))
            fputs(UNKNOWN, to);
        else if (other)
            fputs(other, to);
        else
            fwrite(s, 1, (size_t)n, to);
        s += n ? n : 1;
    }
}

void put_shell_word(FILE *to, const char *text)
{
    bool plain = *text, controls = false;
    for (const char *c = text; *c; c++) {
        plain = plain && (isalnum((unsigned char)*c) || strchr("._/+=@%:,-", *c));
        controls = controls || !isprint((unsigned char)*c);
    }
    if (plain) {
        fputs(text, to);
        return;
    }
    fputs(controls ? "$'" : "'", to);
    for (const char *c = text; *c; c++) {
        if (!isprint((unsigned char)*c))
            fprintf(to, "\\x%02x", (unsigned)(unsigned char)*c);
        else if (*c == '\'')
            fputs(controls ? "\\'" : "'\\''", to);
        else if (*c == '\\' && controls)
            fputs("\\\\", to);
        else
            fputc(*c, to);
    }
    fputc('\'', to);
}

const char *printable(const char *text)
{
    enum { BUFFERS = 4, BYTES = 4200 }; /* a path fits */
    static _Thread_local char buffers[BUFFERS][BYTES];
    static _Thread_local int next;
    char *out = buffers[next++ % BUFFERS];
    ls__printable(out, BYTES, text ? text : "");
    return out;
}

static void put_seen(screen *s, const char *c, int n)
{
    bool layout = n == 1 && (*c == '\n' || *c == '\t');
    bool control = n == 1 ? ((unsigned char)*c < 0x20 || *c == 0x7f) && !layout
                          : n == 2 && (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0;
    if (n && !control)
        fwrite(c, 1, (size_t)n, s->to);
    else
        fputs(UNKNOWN, s->to);
}

/* How many bytes a character that begins with this one has; 1 if none does. */
static int announced(char first)
{
    unsigned char c = (unsigned char)first;
    return c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
}

static void put_held(screen *s)
{
    int n = ls__utf8_length(s->held), whole = n ? n : 1;
    put_seen(s, s->held, n);
    s->used -= whole;
    memmove(s->held, s->held + whole, sizeof s->held - (size_t)whole);
}

void screen_put(screen *s, const char *text, size_t bytes)
{
    if (!s->terminal) {
        fwrite(text, 1, bytes, s->to);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        s->held[s->used++] = text[i];
        s->held[s->used] = 0;
        while (s->used && s->used >= announced(s->held[0])) put_held(s);
    }
}

void screen_end(screen *s)
{
    while (s->used) put_held(s);
}
