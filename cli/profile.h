/* The profile of a run, as `lockstep profile`, `lockstep train --profile` and the report's page show it. */
#ifndef LS_CLI_PROFILE_H
#define LS_CLI_PROFILE_H

#include <stdio.h>
#include "lockstep/base.h"

enum { PROFILE_NAME = 240 }; /* bytes of a line's name: PyTorch's operators differ at their ends */

/* Operations that share a line. */
typedef struct profile_line {
    char name[PROFILE_NAME], shape[48];
    double ms, backward_ms, flops, bytes, memory, calls; /* over all steps */
} profile_line;

typedef struct profile_table {
    profile_line *lines; /* most expensive first */
    size_t count;
    double ms, backward_ms; /* of all */
} profile_table;

typedef struct profile {
    double rank, ranks, threads, first_step, steps;
    double step_ms, data_ms, forward_ms, backward_ms, update_ms, other_ms; /* over all steps */
    double peak_gflops, activation_bytes, resident_bytes;
    profile_table forward, backward, layers;
    profile_line *memory;
} profile;

/* Reads the profile of `rank` from the run's folder. LS_ENOENT if there is none, LS_EFORMAT if the file is something else; then *out is
 * empty. */
LS_MUST_CHECK ls_status profile_read(profile *out, const char *run_dir, int rank);
void profile_free(profile *p);
/* Reads and prints it. */
LS_MUST_CHECK ls_status profile_print(const char *run_dir, int rank, FILE *to);

#endif
