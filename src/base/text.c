/* Text of unknown origin. See text.h.
 *
 * Backslashes are left alone: escaping them too would make \xNN unambiguous, but a message that is escaped several times (a rank's
 * error inside another's) would accumulate backslashes. */
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ls__utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n > 2 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
                  (s[0] == 0xf4 && s[1] > 0x8f)))
        return 0;
    return n;
}

uint32_t ls__utf8_code_point(const char *text, int n)
{
    const unsigned char *s = (const unsigned char *)text;
    static const unsigned char lead[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t c = s[0] & lead[n];
    for (int i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3fu);
    return c;
}

bool ls__utf8_is_control(const char *s, int n)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        { 0, 0x1f },        { 0x7f, 0x9f },     { 0xad, 0xad },     { 0x61c, 0x61c },
        { 0x180e, 0x180e }, { 0x200b, 0x200b }, { 0x200e, 0x200f }, { 0x2028, 0x202e },
        { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe0fff },
    };
    uint32_t c = ls__utf8_code_point(s, n);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].from && c <= ranges[i].to) return true;
    return false;
}

size_t ls__printable(char *out, size_t bytes, const char *text)
{
    size_t used = 0, fits = 0; /* fits: the length that leaves room for "..." */
    while (*text) {
        char unit[4 * 4 + 1];
        int n = ls__utf8_length(text), width = n;
        if (n && !ls__utf8_is_control(text, n)) {
            memcpy(unit, text, (size_t)n);
        } else {
            n = n ? n : 1;
            width = 0;
            for (int i = 0; i < n; i++) width += snprintf(unit + width, 5, "\\x%02x", (unsigned char)text[i]);
        }
        if (used + (size_t)width >= bytes) {
            memcpy(out + fits, "...", 4);
            return fits + 3;
        }
        memcpy(out + used, unit, (size_t)width);
        used += (size_t)width;
        text += n;
        if (used + 4 <= bytes) fits = used;
    }
    out[used] = 0;
    return used;
}

char *ls__printable_copy(const char *text, size_t length)
{
    char *raw = strndup(text, length), *copy = NULL;
    if (raw) {
        size_t bytes = 4 * strlen(raw) + 4;
        copy = malloc(bytes);
        if (copy) ls__printable(copy, bytes, raw);
        free(raw);
    }
    return copy;
}

void ls__append(char *out, size_t bytes, const char *format, ...)
{
    size_t at = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + at, bytes - at, format, args);
    va_end(args);
}
