/* Replaces the library's names of options by those of the command line. See option_names.h.
 *
 * Messages also quote names of files, which may be made of the same words: val_data/a.txt. A word that touches what a path is made of
 * or a quote, or that a colon follows as it follows the file of a message, is left as it is. */
#include "cli/option_names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "train/settings.h"

/* Options that are not settings of a run, or have other names. Settings whose name is one word are left alone unless a value
 * follows (lr=0.5): it may be an ordinary word. */
static const struct {
    const char *library, *program;
} words[] = {
    { "overwrite", "--overwrite" },
    { "run_dir", "--run-dir" },
    { "skip_bad", "--on-bad skip" },
};

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool in_name(const char *message, const char *word, size_t length)
{
    static const char parts[] = "/.-~@+%'\"";
    const char *end = word + length;
    if (word > message && strchr(parts, word[-1])) return true;
    if (*end == '.') return end[1] && end[1] != ' ';
    return *end && strchr(":/-~@+%'\"", *end);
}

/* Whether a word of `length` is the field of an option: val_fraction is --val-fraction. */
static bool is_field(const char *word, size_t length, const char *option)
{
    const char *name = option + 2;
    if (strlen(name) != length || (word[length] != '=' && !memchr(word, '_', length))) return false;
    for (size_t i = 0; i < length; i++)
        if (word[i] != (name[i] == '-' ? '_' : name[i])) return false;
    return true;
}

static const char *program_word(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].library) == length && !memcmp(word, words[i].library, length)) return words[i].program;
    for (int i = 0; i < ls__n_settings; i++)
        if (is_field(word, length, ls__settings[i].option)) return ls__settings[i].option;
    return NULL;
}

const char *words_of_program(const char *message)
{
    static char text[2048];
    size_t n = 0;
    text[0] = 0;
    for (const char *at = message; *at && n + 1 < sizeof text;) {
        size_t length = 0;
        while (is_word(at[length])) length++;
        const char *word = length && !in_name(message, at, length) ? program_word(at, length) : NULL;
        if (!length) length = 1;
        n += (size_t)snprintf(text + n, sizeof text - n, "%.*s", word ? (int)strlen(word) : (int)length,
                              word ? word : at);
        at += length;
    }
    return text;
}
