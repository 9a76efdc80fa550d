/* Time in which ranks were runnable but not scheduled. */
#ifndef LS_MEASURE_CONTENTION_H
#define LS_MEASURE_CONTENTION_H

#include "measure/model.h"

typedef struct ls__contention {
    int present;                    /* ranks that there are */
    int ranks;                      /* of those, with a run-queue delay that is worth reporting */
    double least, most;             /* ns of a step, of these ranks */
    double least_share, most_share; /* the same as a share of the rank's own step */
    bool oversubscribed;            /* more threads compute than there are cores */
} ls__contention;

ls__contention ls__contention_find(const ls_run *run);
/* Adds the findings, with all that contention costs. `rank`: the one that stands out; -1: none does. */
void ls__contention_add(ls_run *run, const ls__contention *c, int rank);

/* ns of a step that would be saved if the hypervisor took no core away. */
double ls__gain_without_steal(const ls_run *run);

#endif
