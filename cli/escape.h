/* Text from files and from users in JSON, in HTML and on a terminal. Whatever it holds, the result is valid UTF-8 and stays
 * text: bytes that are not UTF-8 become U+FFFD or \xNN, and control characters are escaped. */
#ifndef LS_CLI_ESCAPE_H
#define LS_CLI_ESCAPE_H

#include <stdbool.h>
#include <stdio.h>

/* The inside of a JSON string, without its quotes. */
void put_json(FILE *to, const char *text);
/* Likewise, of text that may contain zeros; one must also follow it. */
void put_json_bytes(FILE *to, const char *text, size_t bytes);
/* Text or the inside of a quoted attribute. */
void put_html(FILE *to, const char *text);

/* A word of a command for a shell, in quotes if it needs them. */
void put_shell_word(FILE *to, const char *text);

/* For printf: a name or a path on one line, see ls__printable(). The result is valid until the fourth call from now. */
const char *printable(const char *text);

/* Running text, which comes in parts that need not end between characters. On a terminal only line feeds and tabs act;
 * other controls and bytes that are not UTF-8 are shown as U+FFFD. Otherwise every byte is written unchanged. */
typedef struct screen {
    FILE *to;
    bool terminal;
    char held[5]; /* a character that is not complete yet */
    int used;
} screen;
void screen_put(screen *s, const char *text, size_t bytes);
void screen_end(screen *s);

#endif
