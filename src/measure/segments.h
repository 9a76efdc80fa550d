/* Segments: the times between neighbouring marks within forward and backward, compared between steps and ranks. */
#ifndef LS_MEASURE_SEGMENTS_H
#define LS_MEASURE_SEGMENTS_H

#include "measure/model.h"

typedef struct ls__segments {
    /* [ranks][counted steps]: of the segment that rises most above its median in the rank's other steps and above the other ranks
     * in that step: the rise (NaN: not known), which segment, and the rise clear of that of the next segment (0: not known). */
    double *rise;
    uint32_t *segment;
    double *apart;
    /* [ranks]: of the segment whose median exceeds the other ranks' most: that excess, and the same clear of the next segment; NaN: not
     * known. */
    double *median, *median_apart;
} ls__segments;

/* Not known: there are no marks in the phase, they are not the same in each step, or there are too many. */
LS_MUST_CHECK ls_status ls__segments_compare(const ls_run *run, ls_phase phase, ls__segments *out);

#endif
