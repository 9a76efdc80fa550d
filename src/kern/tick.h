/* A hook that long operations call from time to time, in the thread that runs the tape: see ls__tape_on_tick(). */
#ifndef LS_KERN_TICK_H
#define LS_KERN_TICK_H

#include <omp.h>
#include <stddef.h>

typedef void (*ls__tick_fn)(void *user);

typedef struct ls__tick {
    ls__tick_fn fn; /* NULL: no hook */
    void *user;
} ls__tick;

/* Between two chunks of an operation; from any of its threads. */
static inline void ls__tick_now(const ls__tick *t)
{
    if (t && t->fn && omp_get_thread_num() == 0) t->fn(t->user);
}

#endif
