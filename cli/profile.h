/* The table of a profile, as `lockstep profile` and `lockstep train --profile` print it. */
#ifndef LS_CLI_PROFILE_H
#define LS_CLI_PROFILE_H

#include <stdio.h>
#include "lockstep/base.h"

/* Prints the profile of `rank` from the run's folder. LS_EFORMAT if the file is not one. */
LS_MUST_CHECK ls_status profile_print(const char *run_dir, int rank, FILE *to);

#endif
