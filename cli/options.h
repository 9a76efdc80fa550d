/* Options of a command as a table: name, kind of value, destination and help text. */
#ifndef LS_CLI_OPTIONS_H
#define LS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum option_kind {
    OPTION_HEADING, /* not an option: a line in the help */
    OPTION_FLAG,    /* bool; --name=false turns it off */
    OPTION_INT,     /* int */
    OPTION_LONG,    /* int64_t */
    OPTION_SEED,    /* uint64_t */
    OPTION_SIZE,    /* uint64_t, at least 1: 200G, 64Mi */
    OPTION_AUTO,    /* int, or the word auto: -1 */
    OPTION_FLOAT,   /* float */
    OPTION_DOUBLE,  /* double */
    OPTION_TEXT,    /* const char * */
    OPTION_PERHAPS, /* const char *: the argument after it, or "" if an option or nothing follows */
    OPTION_CHOICE,  /* int: the place of the word in `choices` */
    OPTION_LIST,    /* option_list: all arguments up to the next option */
    OPTION_FILES, /* option_list: all arguments that are not options; not together with OPTION_LIST. `value` names them
                       in the message when there are none; NULL: there may be none */
} option_kind;

/* Arguments of an OPTION_LIST; they are next to each other in argv. */
typedef struct option_list {
    char **items;
    size_t count;
} option_list;

typedef struct option_row {
    option_kind kind;
    const char *name; /* with its dashes: "--lr" */
    void *to;
    const char *value;          /* what the help calls the value; NULL for flags */
    const char *help;           /* {} stands for the choices. NULL: another name of the option before, not shown */
    double low, high;           /* of numbers; both 0: any */
    const char *const *choices; /* words, NULL after the last */
} option_row;

/* Parses an integer option: 20000, 2e4, 1.5e6, or with a unit: k, M, G, T (powers of 1,000),
 * Ki, Mi, Gi, Ti. */
bool options_parse_size(const char *text, uint64_t *out);

/* The row of an argument, --steps or --steps=3 or -n2; NULL: there is none. */
const option_row *options_find(const option_row *rows, const char *argument);
/* Whether the argument after this one is its value. */
bool options_takes_next(const option_row *r, const char *argument);
/* An option's help, with its choices filled in. */
enum { OPTION_HELP = 1500 }; /* room for the longest help: that of --model, with all names */
void options_describe(const option_row *r, char *out, size_t room);

/* Parses argv[1..] into the rows' destinations. `plain` gets the one argument that is not an option, or is NULL if none is allowed.
 * Returns -1 to continue, or an exit code: --help or an error was printed. */
int options_read(const char *command, const char *intro, const option_row *rows, const char **plain, int argc,
                 char **argv);

#endif
