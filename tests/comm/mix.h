/* A random mix of calls: collectives, sends and receives on several groups that come and go, started or blocking, tested
 * and waited for in any order. What is called is the same on all ranks; how (blocking or not, in which memory, when it is
 * waited for) is each rank's own choice. Every result is compared with one that this file computes from the inputs of
 * all ranks. Runs on any world. */
#ifndef LS_TESTS_COMM_MIX_H
#define LS_TESTS_COMM_MIX_H

#include "lockstep/comm.h"

enum { MIX_WHY = 1024 };

typedef struct mix_options {
    uint64_t seed;
    int calls;
    size_t largest; /* bytes of a block, at most */
} mix_options;

/* All ranks call it. Returns 0, or 1 with the reason in why[MIX_WHY]. */
int mix_run(ls_world *world, const mix_options *options, char *why);

#endif
