/* Whether data loading slows a run down. */
#ifndef LS_TRAIN_LOADING_H
#define LS_TRAIN_LOADING_H

#include "lockstep/data.h"
#include "lockstep/train.h"

/* Sums over the steps of this process. */
typedef struct ls__loading {
    int64_t steps;
    double wait_ms, total_ms; /* since the warm-up */
    ls_loader_stats before;   /* of the loader, at that time */
    bool reported;            /* the log has named the rank whose data come late */
} ls__loading;

/* Data loading on one rank, without the first steps of a long run. */
typedef struct ls__rank_loading {
    double wait_ms;        /* waiting for batches */
    double total_ms;       /* of all steps */
    double load_ms;        /* to build a batch, on average */
    double compute_ms;     /* between two batches, on average */
    int workers, prefetch; /* now */
} ls__rank_loading;

/* The rank whose data come late and stall all ranks, and a sentence about it; -1: none. Pure. */
int ls__late_rank(const ls__rank_loading *all, int ranks, char *text, size_t bytes);

/* After every step: adds up, and now and then compares the ranks and logs what it finds. Collective. */
LS_MUST_CHECK ls_status ls__train_note_loading(ls_train *t, const ls_train_metrics *m);

#endif
