/* Tuning, for `lockstep tune` and `lockstep train --tune`. */
#ifndef LS_CLI_TUNE_H
#define LS_CLI_TUNE_H

#include <stdbool.h>
#include <stddef.h>

/* Tunes the options of train in argv and prints the result. `choice` gets the options to add, which may be none; with them,
 * tune_copy_words() leaves out what they replace. Returns an exit code. */
int tune_settings(int argc, char **argv, char *choice, size_t bytes);

/* Copies words of a command line of train without --accumulate, if `fixed`: --slots replaces it, since --accumulate would make the
 * training depend on the number of ranks. Returns how many are copied. */
int tune_copy_words(int argc, char **argv, bool fixed, char **to);

#endif
