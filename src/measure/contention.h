/* Time in which ranks were runnable but not scheduled. */
#ifndef LS_MEASURE_CONTENTION_H
#define LS_MEASURE_CONTENTION_H

#include "measure/model.h"

typedef struct ls__contention {
    int present;        /* ranks that there are */
    int ranks, first;   /* that were not scheduled for a twentieth of a step or more, and the first of them */
    double worth;       /* so much of a step, in ns */
    double least, most; /* ns a step that one of those was not */
    double least_share, most_share; /* the same as the report's table has it: of that rank's own step */
    bool crowded;                   /* more threads compute than there are cores */
} ls__contention;

ls__contention ls__contention_look(const ls_run *run);
/* Adds what is found, with all that it costs. `rank`: the one that stands out; -1: none does. */
void ls__contention_add(ls_run *run, const ls__contention *c, int rank);

/* ns a step that would be saved if the machine's host took no core away. */
double ls__gain_without_steal(const ls_run *run);

#endif
