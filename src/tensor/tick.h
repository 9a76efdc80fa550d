/* A call now and then from within long operations, by the thread that runs the tape: see ls_tape_on_tick(). */
#ifndef LS_TENSOR_TICK_H
#define LS_TENSOR_TICK_H

#include <omp.h>
#include "lockstep/tensor.h"

typedef struct ls__tick {
    ls_tick_fn fn; /* NULL: nobody wants to be called */
    void *user;
} ls__tick;

/* Between two pieces of an operation; from any of its threads. */
static inline void ls__tick_now(const ls__tick *t)
{
    if (t && t->fn && omp_get_thread_num() == 0) t->fn(t->user);
}

#endif
