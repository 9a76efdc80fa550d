/* Text of unknown origin (names in files, file names, what another process sent) for people to read. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a noun takes behind a number: "%d rank%s", n, ls__s(n). */
static inline const char *ls__s(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Bytes of the UTF-8 character at `s`, 0 if there is none: no overlong forms, no surrogates, nothing above U+10FFFF.
 * Reads no further than the first byte that does not fit, so a text that ends in NUL is safe. */
int ls__utf8_length(const char *s);

/* Whether the character of `n` bytes at `s` steers a terminal or a reader rather than being seen: C0 and C1 controls, line
 * and paragraph separators, marks of direction, characters without width that hide in names, tags. */
bool ls__utf8_is_control(const char *s, int n);

/* Copies `text` so that it is one line and moves no cursor: controls and bytes that are not UTF-8 become \xNN, everything
 * else stays. What does not fit ends in "..."; `bytes` is at least 4. What is printable already comes back unchanged, so
 * text may go through this twice. Returns the length of `out`. */
size_t ls__printable(char *out, size_t bytes, const char *text);

/* The same in memory of its own, of the first `length` bytes or up to a NUL; NULL: out of memory. */
char *ls__printable_copy(const char *text, size_t length);

#endif
