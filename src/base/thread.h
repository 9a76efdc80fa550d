/* Threads and cores. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <pthread.h>
#include "lockstep/base.h"

/* Starts `run(arg)` in a thread with all signals blocked (they belong to the main thread) and a name that shows up
 * in top and gdb (at most 15 characters are kept). */
LS_MUST_CHECK ls_status ls__thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg);

/* How many cores this process may run on (its affinity, not the machine's size); at least 1. */
int ls__cpu_count(void);

#endif
