/* Where in forward or backward a step took longer than it does. */
#ifndef LS_MEASURE_FINE_H
#define LS_MEASURE_FINE_H

#include "measure/model.h"

/* rise: [ranks][counted steps], what one stretch between two marks took beyond the same stretch in that rank's other steps and on the
 * other ranks in that step: of the stretch in which that is most. Time without a core in the phase is taken off. 0 where it is not
 * known: there are no marks in the phase, they are not the same in each step, or there are too many. */
LS_MUST_CHECK ls_status ls__fine_rise(const ls_run *run, ls_phase phase, double *rise);

#endif
