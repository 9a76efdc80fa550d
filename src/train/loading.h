/* Whether data loading slows a run down. */
#ifndef LS_TRAIN_LOADING_H
#define LS_TRAIN_LOADING_H

#include "lockstep/data.h"
#include "lockstep/train.h"
#include "record/data_stall.h"

/* Sums over the steps of this process. */
typedef struct ls__loading {
    int64_t steps;
    double wait_ms, total_ms; /* since the warm-up */
    ls_loader_stats before;   /* of the loader, at that time */
    bool reported;            /* the log has named the rank whose data come late */
} ls__loading;

/* Whether data stall one rank, and with it all others, or all ranks; and a sentence about it. `all` in ms. Pure. */
ls__data_stall ls__loading_describe(const ls__data_load *all, const int *workers, int ranks, char *text, size_t bytes);

/* After every step: adds up, and now and then compares the ranks and logs what it finds. Collective. */
LS_MUST_CHECK ls_status ls__train_note_loading(ls_train *t, const ls_train_metrics *m);

#endif
