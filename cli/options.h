/* Options of a command, as a table: what each is called, what it takes, where it goes, and its line of help. */
#ifndef LS_CLI_OPTIONS_H
#define LS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum option_kind {
    OPTION_HEADING, /* no option: a line in the help */
    OPTION_FLAG,    /* bool */
    OPTION_INT,     /* int */
    OPTION_LONG,    /* int64_t */
    OPTION_SEED,    /* uint64_t */
    OPTION_SIZE,    /* uint64_t, at least 1: 200G, 64Mi */
    OPTION_AUTO,    /* int, or the word auto: -1 */
    OPTION_FLOAT,   /* float */
    OPTION_DOUBLE,  /* double */
    OPTION_TEXT,    /* const char * */
    OPTION_PERHAPS, /* const char *: the argument behind it, or "" if none follows but an option */
    OPTION_CHOICE,  /* int: the place of the word in `choices` */
    OPTION_LIST,    /* option_list: all arguments up to the next option */
    OPTION_FILES,   /* option_list: all arguments that are no options; not together with OPTION_LIST. `value` names them
                       in the message when there are none; NULL: there may be none */
} option_kind;

/* Arguments of an OPTION_LIST; they lie in argv one behind the other. */
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
    const char *const *choices; /* words, NULL behind the last */
} option_row;

/* An integer as all integer options take it: 20000, 2e4, 1.5e6, or with a unit behind it: k, M, G, T (powers of 1,000),
 * Ki, Mi, Gi, Ti. */
bool options_parse_size(const char *text, uint64_t *out);

/* Reads argv[1..] into the rows' places. `plain` gets the one argument that is no option, or is NULL if there may be
 * none. Returns -1 to go on, or an exit code: --help was asked for and printed, or a message was. */
int options_read(const char *command, const char *intro, const option_row *rows, const char **plain, int argc,
                 char **argv);

#endif
