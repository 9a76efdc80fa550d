/* Where in forward or backward a step took longer than it does. */
#ifndef LS_MEASURE_FINE_H
#define LS_MEASURE_FINE_H

#include "measure/model.h"

/* What the segments between two marks took beyond their usual, in that rank's other steps and on the other ranks in that step. */
typedef struct ls__segments {
    double *most;    /* [ranks][counted steps]: of the segment where that is most; NAN: not known */
    uint32_t *place; /* which segment that is */
    double *
        apart; /* the same, clear of twice what the next one rose by: slowness all over the phase is not apart; 0: not known */
    double *usual,
        *usual_apart; /* [ranks]: the same for what is beyond the other ranks in most steps; NAN: not known */
} ls__segments;

/* Not known: there are no marks in the phase, they are not the same in each step, there are too many, or the thread lost its core and
 * no sample tells in which segment. */
LS_MUST_CHECK ls_status ls__segments_fill(const ls_run *run, ls_phase phase, ls__segments *out);

#endif
