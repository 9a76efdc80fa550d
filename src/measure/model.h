/* The stages from events to findings, in their order. Each fills its part of the run. */
#ifndef LS_MEASURE_MODEL_H
#define LS_MEASURE_MODEL_H

#include "base/arith.h"
#include "lockstep/measure.h"

typedef struct ls__call_table ls__call_table;

/* Sums over buckets of x: bytes and y: ns, for a least-squares line. */
typedef struct ls__comm_fit {
    double n, x, y, xx, xy;
} ls__comm_fit;

/* What the stages share beyond the public part: run->internal. */
typedef struct ls__run_internal {
    ls__call_table *calls; /* collectives.c */
    ls__comm_fit bucket_fit;
    bool several_nodes;
} ls__run_internal;

static inline ls__run_internal *ls__run_internal_of(const ls_run *run)
{
    return run->internal;
}

/* collectives.c: collectives, joined over ranks: who arrived when, and how long each was blocked in the call. */
LS_MUST_CHECK ls_status ls__run_join_collectives(ls_run *run);
void ls__run_collectives_free(ls_run *run);
/* The collective of a call; NULL: there is none. */
const ls_run_collective *ls__run_collective_of(const ls_run *run, uint64_t call);
/* clocks.c: corrects clocks that drifted, by the collectives' times; *moved: events were shifted, and the collectives must be filled
 * again. */
LS_MUST_CHECK ls_status ls__run_check_clocks(ls_run *run, bool *moved);
/* account.c: each rank's time as intervals, and steps as sums of them. */
LS_MUST_CHECK ls_status ls__run_account(ls_run *run, const ls_run_options *options);
/* figures.c: fills run->step_mean and run->tokens, which are needed often. */
void ls__run_set_step(ls_run *run);
/* resource_use.c: how each rank uses its cores. */
LS_MUST_CHECK ls_status ls__run_use(ls_run *run);
/* attribution.c: for each collective that ranks waited in, which rank was last and where it lost its time; and the sums of that. */
LS_MUST_CHECK ls_status ls__run_attribute(ls_run *run);
void ls__wait_matrix_free(ls_run *run);
/* findings.c: what all of it costs, and what to change. */
LS_MUST_CHECK ls_status ls__run_find(ls_run *run);

/* Index of the step in run->steps during which rank r was at `time`; -1: none. */
ptrdiff_t ls__run_step_at(const ls_run *run, int rank, int64_t time);

/* load.c: something a reader of the report should know. `text` is copied; NULL: none. */
void ls__run_note(ls_run *run, ls_note_kind kind, int rank, int64_t number, const char *text);

/* How long the thread was blocked, by an LS_EVENT_BLOCKED. A call that was over before the thread came to wait for it has a negative time,
 * which counts as none. */
static inline int64_t ls__blocked_ns(const ls_event *e)
{
    return e->b <= INT64_MAX ? (int64_t)e->b : 0;
}

/* Run-queue delay of a step while the rank communicates. Within a machine, a rank that is not scheduled does not do its part of a
 * collective. Between machines it mostly had nothing to do but to poll, so there it counts as none. */
static inline int64_t ls__sched_delay_in_calls(const ls_run *run, const ls_step_rank *s)
{
    return ls__run_internal_of(run)->several_nodes ? 0 : s->sched_delay[LS_PHASE_COMM];
}

/* Run-queue delay of a step. Without waiting: its length depends on the other ranks. Once all have arrived, a late wake-up is a
 * loss like any other. */
static inline int64_t ls__sched_delay(const ls_run *run, const ls_step_rank *s)
{
    int64_t sum = ls__sched_delay_in_calls(run, s);
    for (int p = 0; p < LS_PHASE_COUNT; p++)
        if (p != LS_PHASE_WAIT && p != LS_PHASE_COMM) sum += s->sched_delay[p];
    return sum;
}

/* Steps that count. */
static inline size_t ls__counted(const ls_run *run)
{
    return run->n_steps - run->first_counted;
}

#endif
