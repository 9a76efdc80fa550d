/* The kernel's counters of this process and its main thread, as events. */
#ifndef LS_RECORD_COUNTERS_H
#define LS_RECORD_COUNTERS_H

#include <stdbool.h>
#include "record/energy.h"
#include "record/ring.h"
#include "record/thread_times.h"

enum { LS__COUNTERS_PLACES = 1024 };

typedef struct ls__thread_counts {
    int64_t time;                    /* of the sample */
    uint64_t cpu, delay;             /* ns on a core; run-queue delay in ns, since the first sample */
    uint64_t voluntary, involuntary; /* context switches */
    uint64_t counted,
        inferred; /* parts of `delay`: as the kernel counted it at the last reading; inferred since then */
    bool taken;
} ls__thread_counts;

typedef struct ls__counters {
    int schedstat;                    /* /proc/thread-self/schedstat of the main thread; -1: the kernel has none */
    int64_t cost;                     /* measured ns of one thread sample */
    int64_t taken;                    /* when the last one was taken */
    int64_t last;                     /* or skipped */
    int64_t saved;                    /* ns that may be spent on samples now */
    int64_t last_process;             /* when the process's counters were read */
    int64_t last_slow;                /* when the expensive ones were read: threads, steal, energy */
    ls__thread_counts before;         /* the last thread sample */
    int64_t marked;                   /* the last mark or sample */
    float usual[LS__COUNTERS_PLACES]; /* usual ns from the previous mark to that of a place; 0: unknown */
    ls__energy energy;
    ls__thread_times threads;
} ls__counters;

/* For the calling thread, which runs the steps. `powercap`: see ls__energy_open(). */
void ls__counters_open(ls__counters *s, const char *powercap);
void ls__counters_close(ls__counters *s);

/* Between two phases: the kernel's counters of the thread at `now`. Skipped (not `taken`) if samples would cost more than 1/330 of the time
 * (unused time is saved up for a while), or if the last sample is recent. The time is `now`, or later if the thread was preempted
 * meanwhile: the mark should have that time. */
ls__thread_counts ls__counters_sample(ls__counters *s, int64_t now);
/* Whether to take a sample at a mark within a phase. `place` identifies the mark in a step. True if enough time was saved up, or if the
 * time since the previous mark was much longer than usual: the counters then show whether the thread was scheduled. */
bool ls__counters_is_due(ls__counters *s, int64_t now, size_t place);
void ls__thread_counts_add(ls__ring *ring, const ls__thread_counts *c);
/* At the end of a step: the process's counters, unless they were read recently; and once per second, or if `all`, the expensive ones.
 * Threads are identified by their row in s->threads; the caller records the names of new rows. */
void ls__counters_sample_process(ls__counters *s, ls__ring *ring, int64_t now, bool all);

#endif
