/* Tuning, for `lockstep tune` and `lockstep train --tune`. */
#ifndef LS_CLI_TUNE_H
#define LS_CLI_TUNE_H

#include <stddef.h>

/* Tunes the options of train in argv and prints the result. `choice` gets the options to add, which may be none. Returns an exit code. */
int tune_settings(int argc, char **argv, char *choice, size_t bytes);

#endif
