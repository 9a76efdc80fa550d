/* What the kernel counts about this process and its main thread, as events. */
#ifndef LS_BASE_SAMPLE_H
#define LS_BASE_SAMPLE_H

#include "base/ring.h"

typedef struct ls__sampler {
    int schedstat;     /* /proc/thread-self/schedstat of the main thread; -1: the kernel has none */
    int64_t cost;      /* ns of one thread sample, measured */
    int64_t last;      /* when the last one was taken, or left out */
    int64_t saved;     /* ns that may be spent on samples now */
    int64_t last_slow; /* when the dear ones were: threads, stolen time, energy */
} ls__sampler;

/* For the calling thread, which makes the steps. */
void ls__sampler_open(ls__sampler *s);
void ls__sampler_close(ls__sampler *s);

/* Between two phases: CPU time, time without a core and voluntary switches of the thread, at `now`. Left out where samples would
 * cost more than a 400th of the time; what is not used is saved up for a while. */
void ls__sample_thread(ls__sampler *s, ls__ring *ring, int64_t now);
/* At the end of a step: the process's counters, and once a second what is dear to read. */
void ls__sample_process(ls__sampler *s, ls__ring *ring, int64_t now);

#endif
