/* The library's words and the program's. See words.h. */
#include "cli/words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *library, *program;
} words[] = {
    { "sum_order", "--sum-order" }, { "end_token", "--end-token" },  { "no_record", "--no-record" },
    { "overwrite", "--overwrite" }, { "skip_bad", "--on-bad skip" },
};

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

const char *words_of_program(const char *message)
{
    static char text[2048];
    size_t n = 0;
    for (const char *at = message; *at && n + 1 < sizeof text;) {
        size_t length = 1, i = 0;
        if (at == message || !is_word(at[-1]))
            for (; i < sizeof words / sizeof *words; i++) {
                length = strlen(words[i].library);
                if (!strncmp(at, words[i].library, length) && !is_word(at[length])) break;
            }
        else
            i = sizeof words / sizeof *words;
        if (i < sizeof words / sizeof *words) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", words[i].program);
            at += length;
        } else {
            text[n++] = *at++;
        }
    }
    text[n < sizeof text ? n : sizeof text - 1] = 0;
    return text;
}
