/* Threads and cores. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include "lockstep/base.h"

enum { LS__THREAD_NAME = 16, LS__MAX_ENDED = 32 }; /* bytes of a name, as the kernel has it */

/* Starts `run(arg)` in a thread with all signals blocked (they belong to the main thread) and a name that top
 * and gdb show (at most 15 characters). */
LS_MUST_CHECK ls_status ls__thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg);

/* The CPU time of all ended threads of one name. */
typedef struct ls__thread_ended {
    char name[LS__THREAD_NAME];
    uint64_t cpu; /* ns */
} ls__thread_ended;

/* Copies the list of ended threads that ls__thread_start() had started; returns the number of names, at most `max`. Names beyond
 * LS__MAX_ENDED are not recorded. */
int ls__threads_ended(ls__thread_ended *out, int max);

/* The number of cores that this process may run on (its affinity, not the machine's size); at least 1. */
int ls__cpu_count(void);

#endif
