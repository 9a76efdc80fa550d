/* Every collective, for every type, reduction and a list of counts, in shared and in private memory, against what one
 * process computes from the same inputs. It runs on any world: ranks as threads, under lockstep run, under mpirun. */
#ifndef LS_TESTS_COMM_SUITE_H
#define LS_TESTS_COMM_SUITE_H

#include "lockstep/comm.h"

enum { SUITE_WHY = 1024 };

typedef struct suite_options {
    const size_t *counts; /* ends with SIZE_MAX */
    int quick;            /* only a few types and reductions */
} suite_options;

/* All ranks call it. Returns 0, or 1 with the reason in why[SUITE_WHY]. */
int suite_run(ls_world *world, const suite_options *options, char *why);

#endif
