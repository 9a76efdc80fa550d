/* What the kernel counts about this process and its main thread, as events. */
#ifndef LS_RECORD_COUNTERS_H
#define LS_RECORD_COUNTERS_H

#include <stdbool.h>
#include "record/energy.h"
#include "record/ring.h"
#include "record/thread_times.h"

enum { LS__COUNTERS_PLACES = 1024 };

typedef struct ls__thread_counts {
    int64_t time;                    /* at which they were taken */
    uint64_t cpu, delay;             /* ns on a core; ns without one when it could run, since the first sample */
    uint64_t voluntary, involuntary; /* switches */
    uint64_t told, assumed; /* of the delay: by the kernel when last asked; and since, for want of another reason */
    bool taken;
} ls__thread_counts;

typedef struct ls__counters {
    int schedstat;                    /* /proc/thread-self/schedstat of the main thread; -1: the kernel has none */
    int64_t cost;                     /* ns of one thread sample, measured */
    int64_t taken;                    /* when the last one was taken */
    int64_t last;                     /* or left out */
    int64_t saved;                    /* ns that may be spent on samples now */
    int64_t last_process;             /* when the process's counters were read */
    int64_t last_slow;                /* when the dear ones were: threads, stolen time, energy */
    ls__thread_counts before;         /* the last thread sample */
    int64_t marked;                   /* the last mark or sample */
    float usual[LS__COUNTERS_PLACES]; /* ns from one to the mark of a place; 0: not known yet */
    ls__energy energy;
    ls__thread_times threads;
} ls__counters;

/* For the calling thread, which makes the steps. `powercap`: see ls__energy_open(). */
void ls__counters_open(ls__counters *s, const char *powercap);
void ls__counters_close(ls__counters *s);

/* Between two phases: what the kernel counts of the thread, at `now`. Left out (not `taken`) where samples would cost more than a 330th
 * of the time (what is not used is saved up for a while), or where the last one was taken a moment ago. The time is `now`, or later if the thread lost its core meanwhile: what
 * is marked there should bear that time. */
ls__thread_counts ls__counters_sample(ls__counters *s, int64_t now);
/* Whether to take a sample at a mark in the middle of a phase. `place` tells the marks of a step apart. Yes if enough was saved up for it; and
 * if it took much longer than usual to come here: then the counters tell whether the thread had its core meanwhile. */
bool ls__counters_is_due(ls__counters *s, int64_t now, size_t place);
void ls__thread_counts_add(ls__ring *ring, const ls__thread_counts *c);
/* At the end of a step: the process's counters, unless that was a moment ago; and once a second, or if `all`, what is dear to read. Threads are told by their row in
 * s->threads; names of rows that are new are the caller's business. */
void ls__counters_sample_process(ls__counters *s, ls__ring *ring, int64_t now, bool all);

#endif
