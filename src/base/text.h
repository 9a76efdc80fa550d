/* Text: untrusted text (names in files, file names, messages of other processes) made printable, and texts of several parts. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The plural "s" after a number: "%d rank%s", n, ls__s(n). */
static inline const char *ls__s(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Bytes of the UTF-8 character at `s`, 0 if there is none: no overlong forms, no surrogates, nothing above U+10FFFF.
 * Does not read beyond the first invalid byte, so a text that ends in NUL is safe. */
int ls__utf8_length(const char *s);
/* The character of `n` bytes at `s`. */
uint32_t ls__utf8_code_point(const char *s, int n);

/* Whether the character of `n` bytes at `s` controls a terminal or is invisible: C0 and C1 controls, line
 * and paragraph separators, direction marks, zero-width characters, tags. */
bool ls__utf8_is_control(const char *s, int n);

/* Copies `text` as one printable line: controls and bytes that are not UTF-8 become \xNN, everything else
 * is unchanged. Text that does not fit is truncated with "..."; `bytes` is at least 4. Printable text is unchanged, so this may be
 * applied twice. Returns the length of `out`. */
size_t ls__printable(char *out, size_t bytes, const char *text);

/* The same in malloc'ed memory, of the first `length` bytes or up to a NUL; NULL: out of memory. */
char *ls__printable_copy(const char *text, size_t length);

/* Appends to the text in out[bytes]; what does not fit is cut off. */
void ls__append(char *out, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
