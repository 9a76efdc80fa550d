/* What a rank spends beyond the others, and what of it stands out. */
#ifndef LS_MEASURE_EXCESS_H
#define LS_MEASURE_EXCESS_H

#include "measure/model.h"

/* What is lost while computing, once at a place, may be the machine's doing as well: hosts stop a virtual core for milliseconds and do not
 * say so. It counts so much. */
#define LS__CHANCE 0.125

/* A cause is a phase or, LS_PHASES, time without a core. */
typedef struct ls__excess ls__excess;

typedef struct ls__loss {
    double cost;       /* ns a step, on average over all steps; 0: none that stands out */
    double clear;      /* of that, clear of what others lose in the same way */
    bool placed;       /* it is at one place of the phase */
    bool spread;       /* it is all over the phase, as if the core were slow, and at no place in particular */
    bool once;         /* it was computing, and at no place more than once */
    int64_t steps;     /* how many steps show it */
    double own, other; /* mean time of this rank and of the others in those steps */
} ls__loss;

LS_MUST_CHECK ls_status ls__excess_open(ls__excess **out, const ls_run *run, bool crowded);
void ls__excess_free(ls__excess **excess);

/* Looks at all ranks' times of one cause, for the two that follow. */
LS_MUST_CHECK ls_status ls__excess_look_at(ls__excess *e, int cause);
/* In most steps. */
ls__loss ls__excess_usual(const ls__excess *e, int rank);
/* Now and then, beyond what is usual. */
ls__loss ls__excess_sudden(const ls__excess *e, int rank);

/* What a rank spent in a step: in a phase, what it is itself the reason of; or without a core. */
double ls__spent(const ls_step_rank *s, int cause);

#endif
