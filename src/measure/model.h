/* The stages from events to answers, in their order. Each fills its part of the run and leaves the others alone. */
#ifndef LS_MEASURE_MODEL_H
#define LS_MEASURE_MODEL_H

#include "base/arith.h"
#include "lockstep/measure.h"

/* meet.c: collectives, joined over ranks: who arrived when, who stood in the call how long. */
LS_MUST_CHECK ls_status ls__run_join_collectives(ls_run *run);
void ls__run_collectives_free(ls_run *run);
/* The collective of a call; NULL: there is none. */
const ls_run_collective *ls__run_collective_of(const ls_run *run, uint64_t call);
/* clocks.c: what the collectives say of clocks that drifted; *moved: events were shifted, and the collectives must be filled again. */
LS_MUST_CHECK ls_status ls__run_check_clocks(ls_run *run, bool *moved);
/* account.c: each rank's time as intervals, and steps as sums of them. */
LS_MUST_CHECK ls_status ls__run_account(ls_run *run);
/* figures.c: fills run->step_mean, which is asked for often. */
void ls__run_step_mean(ls_run *run);
/* use.c: how each rank uses its device. */
LS_MUST_CHECK ls_status ls__run_use(ls_run *run);
/* blame.c: for each collective that somebody waited at, who made him wait and where that one lost its time. */
LS_MUST_CHECK ls_status ls__run_attribute(ls_run *run);
/* find.c: what it all costs, and what to change. */
LS_MUST_CHECK ls_status ls__run_find(ls_run *run);

/* Index of the step in run->steps during which rank r was at `time`; -1: none. */
ptrdiff_t ls__run_step_at(const ls_run *run, int rank, int64_t time);

/* load.c: something a reader of the report should know. */
void ls__run_note(ls_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* blame.c. The median sorts the values, too. */
void ls__sort(double *values, size_t n);
double ls__median(double *values, size_t n);

/* How long the thread stood in the call that an LS_EVENT_BLOCKED tells of. A call that was over before the thread came to wait for it has
 * a negative time, which is none. */
static inline int64_t ls__blocked_ns(const ls_event *e)
{
    return e->b <= INT64_MAX ? (int64_t)e->b : 0;
}

#endif
