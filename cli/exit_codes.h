/* The one table of exit codes. lockstep(1) prints it for users, and tests/cli/exit_codes walks through the commands with it. */
#ifndef LS_CLI_EXIT_CODES_H
#define LS_CLI_EXIT_CODES_H

#include "lockstep/base.h"

enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,           /* the work failed, its output could not be written, or a check found a fault */
    EXIT_USAGE = 2,            /* the command line or an input cannot be right */
    EXIT_TIMEOUT = 124,        /* a rank was stopped for longer than the timeout */
    EXIT_NOT_EXECUTABLE = 126, /* `run`: the program is there and cannot be executed */
    EXIT_NOT_FOUND = 127,      /* `run`: program not found */
    EXIT_SIGNAL = 128, /* plus the signal's number: it ended the training, or killed the first rank that failed */
};

/* The code of a failed call: EXIT_USAGE where an argument or an input is to blame (it is missing, or not what it claims to
 * be), EXIT_FAILED for all else. */
int exit_code(ls_status status);

/* Likewise for commands that look for faults in files: one that is found is EXIT_FAILED, a file that is missing is not. */
int exit_code_of_check(ls_status status);

/* Prints "lockstep COMMAND: " and ls_error() in the program's words, and returns exit_code(status). */
int exit_failure(const char *command, ls_status status);

/* Flushes stdout. The first time that it cannot be written, a message reports that and its consequence, if not NULL; the exit code
 * follows at the end. */
void exit_check_output(const char *consequence);

/* Closes stdout at the end of the program. What was printed may still be on its way: if it cannot be written, a message reports
 * that, and a success becomes EXIT_FAILED. */
int exit_closing_output(int code);

#endif
