/* How many workers, and how far ahead: the rule of `--workers auto`. Pure: input are times, output are decisions. */
#ifndef LS_DATA_TUNER_H
#define LS_DATA_TUNER_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__tuner {
    int workers, prefetch; /* the current decision */
    int max_workers;
    /* the present window: */
    int batches;
    int64_t wait, compute, load;
    bool decided; /* the first window is over */
    bool changed; /* the last window ended with a change; the present one is mixed and does not count */
    /* across windows: */
    int calm;             /* consecutive windows in which fewer workers would have been enough */
    int patience;         /* how many of them are needed; doubles when a worker was removed too soon */
    bool shrunk;          /* the last change removed workers */
    int starved;          /* consecutive windows with waiting although there are enough workers */
    double waited_before; /* part of the time, before the prefetch grew last */
    int futile;           /* consecutive times that this did not help; stops at FUTILE */
    int best;             /* more workers than this did not help; 0: not known */
    int workers_before;   /* a growth under trial: what it grew from; 0: none */
    int64_t pace_before;  /* time of a batch before the growth */
} ls__tuner;

void ls__tuner_init(ls__tuner *t, int max_workers);

/* One batch: how long the trainer waited for it (0 if it was ready), computed before it, and how long it took to load. True if
 * workers or prefetch changed; `reason` is then the reason as text. */
bool ls__tuner_feed(ls__tuner *t, int64_t wait, int64_t compute, int64_t load, char *reason, size_t room);

#endif
