/* A recorded run as Chrome's trace events, which Perfetto reads too. */
#ifndef LS_CLI_TRACE_WRITE_H
#define LS_CLI_TRACE_WRITE_H

#include <stdio.h>
#include "lockstep/measure.h"

typedef struct trace_options {
    int64_t first, last; /* steps, both included */
} trace_options;

/* Writes the whole JSON object to `to`, step by step. Returns how many steps were written, or < 0: out of memory. */
int64_t trace_write(FILE *to, const ls_run *run, const trace_options *options);

#endif
