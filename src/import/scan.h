/* JSON in memory, looked at without building anything. Text may be damaged: strings may hold control characters, and a function that
 * comes to `end` within a value returns NULL, as it does where there is no such value. */
#ifndef LS_IMPORT_SCAN_H
#define LS_IMPORT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct ls__text { /* a part of the document; not ended by NUL */
    const char *at;
    size_t bytes;
} ls__text;

const char *ls__scan_space(const char *p, const char *end);
/* Past the string whose first character (after the quote) is at p; *out: what is between the quotes, escapes as they are. */
const char *ls__scan_string(const char *p, const char *end, ls__text *out);
/* Past the value at p: a string, number, word, object or array. */
const char *ls__scan_value(const char *p, const char *end);
/* Past the object or array that p is `depth` levels within. */
const char *ls__scan_out(const char *p, const char *end, int depth);
/* Past a key and its colon, at the value; *key: the key. NULL: there is none. */
const char *ls__scan_key(const char *p, const char *end, ls__text *key);

/* The value of a key of the object at p (which begins with '{'); false: there is none. A string comes without its quotes. */
bool ls__scan_find(const char *p, const char *end, const char *key, ls__text *out);

static inline bool ls__text_is(ls__text t, const char *word)
{
    size_t n = strlen(word);
    return t.bytes == n && !memcmp(t.at, word, n);
}
static inline bool ls__text_begins(ls__text t, const char *word)
{
    size_t n = strlen(word);
    return t.bytes >= n && !memcmp(t.at, word, n);
}
bool ls__text_contains(ls__text t, const char *word);
/* A decimal number times 1000, rounded towards zero: microseconds with decimals as nanoseconds. False: it is not a number, or
 * beyond 2^62. */
bool ls__text_thousandths(ls__text t, int64_t *out);
/* An integer; a number with a fraction loses it, and quotes around it do not matter. */
bool ls__text_integer(ls__text t, int64_t *out);
/* Copies a string without its escapes, cut to `bytes` - 1, as text for people to read. */
void ls__text_copy(ls__text t, char *out, size_t bytes);

#endif
