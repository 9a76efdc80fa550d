/* Texts of --help, within 80 columns. */
#ifndef LS_CLI_HELP_H
#define LS_CLI_HELP_H

#include <stdio.h>

enum { HELP_COLUMNS = 80 };

/* Paragraphs are filled. Lines that begin with a space are rows of a table, and what does not fit continues below the row's
 * second column; a usage line continues below its first argument. */
void help_print(FILE *to, const char *text);

#endif
