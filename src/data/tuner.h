/* How many workers, and how far ahead: the rule behind `--workers auto`. Pure: it is fed times and makes decisions. */
#ifndef LS_DATA_TUNER_H
#define LS_DATA_TUNER_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__tuner {
    int workers, prefetch; /* the decision in force */
    int max_workers;
    /* the present window: */
    int batches;
    int64_t wait, compute, load;
    bool decided; /* the first window is over */
    bool changed; /* the last window ended with a change; the present one is mixed and does not count */
    /* across windows: */
    int calm;             /* windows in a row in which fewer workers would have done */
    int patience;         /* how many of them it takes; doubles when a worker was taken away too soon */
    bool shrunk;          /* the last change of workers took some away */
    int starved;          /* windows in a row with waiting although there are workers enough */
    double waited_before; /* part of the time, before the prefetch grew last */
    int futile;           /* times in a row that this did not help; FUTILE: it is given up */
    int best;             /* more workers than this did not help; 0: not known */
    int workers_before;   /* a growth under trial: what it grew from; 0: none */
    int64_t pace_before;  /* time of a batch before the growth */
} ls__tuner;

void ls__tuner_init(ls__tuner *t, int max_workers);

/* Tells of one batch: how long the trainer waited for it (0 if it was there), how long it computed before, how long the batch took to load.
 * True if workers or prefetch changed; `reason` then says why, in words. */
bool ls__tuner_feed(ls__tuner *t, int64_t wait, int64_t compute, int64_t load, char *reason, size_t room);

#endif
