/* Filling help texts. See help.h. */
#include "cli/help.h"

#include <stdbool.h>
#include <string.h>

/* Appends one word to the line; `column` is the end of the line. */
static void put_word(FILE *to, const char *word, int length, int indent, int *column, bool first)
{
    if (!first && *column + 1 + length > HELP_COLUMNS) {
        fprintf(to, "\n%*s", indent, "");
        *column = indent;
    } else if (!first) {
        fputc(' ', to);
        ++*column;
    }
    fwrite(word, 1, (size_t)length, to);
    /* Characters, not bytes. */
    for (int i = 0; i < length; i++) *column += (word[i] & 0xc0) != 0x80;
}

/* Where the second column of a table's row begins: after the first gap of two spaces or more. 0: there is none. */
static int second_column(const char *line, int length)
{
    int at = (int)strspn(line, " ");
    for (; at + 2 < length; at++)
        if (line[at] == ' ' && line[at + 1] == ' ') {
            while (at < length && line[at] == ' ') at++;
            return at < length ? at : 0;
        }
    return 0;
}

/* Words up to the end of the line, or of the paragraph, in which a line's end is a space. Returns the rest. */
static const char *fill(FILE *to, const char *text, bool paragraph, int indent, int column)
{
    for (bool first = true;; first = false) {
        int n = (int)strcspn(text, " \n");
        put_word(to, text, n, indent, &column, first);
        text += n;
        while (*text == ' ') text++;
        if (*text == '\n' && (!paragraph || text[1] == '\n' || text[1] == ' ' || !text[1])) break;
        if (*text == '\n') text++;
        if (!*text) break;
    }
    fputc('\n', to);
    return *text ? text + 1 : text;
}

void help_print(FILE *to, const char *text)
{
    while (*text) {
        int length = (int)strcspn(text, "\n");
        if (!length) {
            fputc('\n', to);
            text++;
        } else if (*text == ' ') {
            int column = second_column(text, length);
            int skip = column ? column : (int)strspn(text, " ");
            fwrite(text, 1, (size_t)skip, to);
            text = fill(to, text + skip, false, skip, skip);
        } else {
            bool usage = !strncmp(text, "usage:", 6);
            text = fill(to, text, !usage, usage ? 10 : 0, 0);
        }
    }
}
