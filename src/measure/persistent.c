/* What a rank loses in most steps: the median of its excess is large. If it is in one segment, that is work or a delay there; if it is in
 * all segments alike, the core is slow. */
#include <math.h>
#include "measure/excess.h"
#include "measure/limits.h"
#include "measure/stats.h"

static double median_spent(const ls__excess *e, size_t rank)
{
    for (size_t i = 0; i < e->steps; i++) e->scratch[i] = ls__spent(e->run, ls__excess_cell(e, rank, i), e->cause);
    return ls__median(e->scratch, e->steps);
}

ls__lost ls__excess_persistent(const ls__excess *e, int rank)
{
    ls__lost lost = { 0 };
    if (e->segment_apart[rank] > LS__PERSISTENT_PLACE * e->step) { /* false if it is NaN */
        lost.cost = e->segment_median[rank];
        lost.localized = true;
    } else if (ls__is_persistent(e, &e->all, (size_t)rank)) {
        lost.cost = e->all.median[rank];
        lost.spread = e->segment_apart[rank] < LS__SPREAD_SHARE * lost.cost;
        /* Segments are not known, but other ranks compute slowly, too: some cores are slower. */
        if (ls__computes(e->cause) && isnan(e->segment_apart[rank]) &&
            lost.cost < LS__RISE_TAIL * e->others_median[rank])
            lost.spread = true;
    } else {
        return lost;
    }
    for (size_t i = 0; i < e->steps; i++) ls__lost_add(e, &lost, (size_t)rank, i);
    lost = ls__lost_mean(lost);
    /* Means could contradict the median: a few steps in which the others were slower are enough. */
    lost.own = median_spent(e, (size_t)rank);
    lost.other = lost.own - e->all.median[rank];
    return lost;
}
