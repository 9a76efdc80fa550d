/* What `lockstep tune` found, as text: on the terminal and in the comments of config.toml. */
#ifndef LS_CLI_TUNE_RESULT_H
#define LS_CLI_TUNE_RESULT_H

#include <stdio.h>
#include "cli/tune_race.h"

/* A table of the set-ups of a race. `before` begins each line. */
void tune_print_race(FILE *to, const char *before, const tune_race *race);
/* The choice of two races, and how much faster it is than the given set-up. `before` begins the line. */
void tune_print_gain(FILE *to, const char *before, const tune_race *races, const char *choice);

#endif
