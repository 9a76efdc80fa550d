/* Text in JSON and HTML. See escape.h. */
#include "cli/escape.h"

#include <stdint.h>

/* Length of the UTF-8 character at `s`, 0 if there is none: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int utf8_length(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* Control characters, and those that turn the direction of the text around them. */
static int is_control(const unsigned char *s, int n)
{
    if (n == 1) return s[0] < 0x20 || s[0] == 0x7f;
    if (n == 2) return s[0] == 0xc2 && s[1] < 0xa0;
    return n == 3 && s[0] == 0xe2 &&
           ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) || (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
}

typedef const char *(*special_fn)(char c);

static void put(FILE *to, const char *text, special_fn special)
{
    const unsigned char *s = (const unsigned char *)(text ? text : "");
    while (*s) {
        int n = utf8_length(s);
        const char *other = n == 1 ? special((char)*s) : NULL;
        if (!n || (!other && is_control(s, n)))
            fputs("\xef\xbf\xbd", to);
        else if (other)
            fputs(other, to);
        else
            fwrite(s, 1, (size_t)n, to);
        s += n ? n : 1;
    }
}

static const char *special_json(char c)
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\t': return "\\t";
    default: return NULL;
    }
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

void put_json(FILE *to, const char *text)
{
    put(to, text, special_json);
}

void put_html(FILE *to, const char *text)
{
    put(to, text, special_html);
}
