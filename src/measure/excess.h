/* What a rank spends beyond the other ranks, and what of it stands out: in most steps (persistent.c) or in a few (intermittent.c). */
#ifndef LS_MEASURE_EXCESS_H
#define LS_MEASURE_EXCESS_H

#include "measure/model.h"

/* A cause is a phase or LS__UNSCHEDULED: run-queue delay and steal. */
enum { LS__UNSCHEDULED = LS_PHASE_COUNT };

typedef struct ls__lost {
    double cost;         /* ns of a step, mean of all steps; 0: nothing stands out */
    double clear;        /* of that, clear of what other ranks lose in the same way */
    bool localized;      /* it is in one segment of the phase */
    bool spread;         /* it is in all segments of the phase, as if the core were slow */
    bool once;           /* it was computing, and in no segment more than once */
    int64_t steps;       /* how many steps show it */
    int64_t first, last; /* their numbers */
    double own,
        other; /* time of this rank and of the others: persistent: medians; intermittent: means of those steps */
} ls__lost;

/* One view of a cause: all of it, its off-CPU time, or its segments. */
typedef struct ls__excess_table {
    double *excess;     /* [ranks][steps]: time beyond the median of the other ranks in that step */
    double *rise;       /* [ranks][steps]: of that, beyond the rank's own median, too */
    double *median;     /* [ranks]: of the excess */
    double *deviation;  /* [ranks]: MAD of the excess */
    double *low, *high; /* [ranks]: limits of a rise that is repeated, and of one that is not */
} ls__excess_table;

typedef struct ls__excess {
    const ls_run *run;
    size_t steps, ranks;
    double step;  /* the median */
    bool crowded; /* there are more ranks than cores */
    int cause;    /* that the rest is about */
    ls__excess_table all, off_cpu,
        segments;         /* segments: has no excess; its rise is that of one segment clear of the next */
    double *segment_rise; /* [ranks][steps]: of the segment that rises most; NaN: not known */
    uint32_t *segment;    /* [ranks][steps]: which one that is */
    double *segment_median, *segment_apart; /* [ranks]: median excess of a segment; the same, clear of the next one */
    double *others_median;                  /* [ranks]: what is high among the other ranks' all.median */
    double *noise;          /* [ranks][steps]: what forward and backward of the other ranks took beyond their medians */
    uint32_t *list;         /* [steps]: scratch */
    ls__lost *intermittent; /* [ranks] */
    double *scratch;        /* [steps] */
    double *high;           /* [ranks]: scratch */
    double *across;         /* [2 * ranks]: scratch */
} ls__excess;

LS_MUST_CHECK ls_status ls__excess_open(ls__excess **out, const ls_run *run, bool crowded);
void ls__excess_free(ls__excess **excess);

/* Fills the tables with all ranks' times of one cause. */
LS_MUST_CHECK ls_status ls__excess_compare(ls__excess *e, int cause);
/* persistent.c: what the rank loses in most steps. */
ls__lost ls__excess_persistent(const ls__excess *e, int rank);
/* intermittent.c: what it loses in a few steps, beyond that. ls__excess_compare() finds it for all ranks. */
void ls__excess_find_intermittent(ls__excess *e);
static inline ls__lost ls__excess_intermittent(const ls__excess *e, int rank)
{
    return e->intermittent[rank];
}

/* Time of a rank in a step: in a phase, what it caused itself; or unscheduled. */
double ls__spent(const ls_run *run, const ls_step_rank *s, int cause);

/* ---- For persistent.c and intermittent.c. */

static inline const ls_step_rank *ls__excess_cell(const ls__excess *e, size_t rank, size_t step)
{
    return &e->run->steps[e->run->first_counted + step].rank[rank];
}
static inline bool ls__computes(int cause)
{
    return cause == LS_PHASE_FORWARD || cause == LS_PHASE_BACKWARD;
}
bool ls__is_persistent(const ls__excess *e, const ls__excess_table *t, size_t rank);
/* Fills out, [ranks]: what is high among the other ranks' values, which is their upper quartile, so that a second straggler does not hide
 * the first. */
void ls__high_of_others(const ls__excess *e, const double *values, double *out);
/* Adds a step to those that show the lost time. */
void ls__lost_add(const ls__excess *e, ls__lost *lost, size_t rank, size_t step);
ls__lost ls__lost_mean(ls__lost lost);

#endif
