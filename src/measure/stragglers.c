/* Stragglers: a rank that spends more time in a phase than the others do, so that they wait for it.
 *
 * What stands out, in most steps or in a few, is found by persistent.c and intermittent.c. Here it becomes findings: it must cost a least
 * share of the run, and what has one cause is one finding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/contention.h"
#include "measure/excess.h"
#include "measure/findings.h"
#include "measure/limits.h"

/* ns of a step that the rank that waited longest waited for `rank`. */
static double waited_for(const ls_run *run, int rank)
{
    int64_t most = 0;
    for (int q = 0; q < run->ranks; q++)
        if (run->rank[q].present) most = ls__max(most, run->wait_matrix[(size_t)q * (size_t)run->ranks + (size_t)rank]);
    return (double)most / (double)ls__counted(run);
}

/* ns of a step that the rank is in communication without losing its core; *delay: what it loses meanwhile. */
static double communicates(const ls_run *run, int rank, double *delay)
{
    double sum = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++)
        sum += (double)ls__sched_delay_in_calls(run, &run->steps[i].rank[rank]);
    *delay = sum / (double)ls__counted(run);
    return ls_run_mean(run, rank, LS_PHASE_COMM) - *delay;
}

/* ns of a step that another rank was blocked in communication because `rank` was not scheduled and did not do its part. */
static double blocked_by(const ls_run *run, int rank)
{
    double delay, of_other, own = communicates(run, rank, &delay), most = 0;
    for (int q = 0; q < run->ranks; q++)
        if (q != rank && run->rank[q].present) most = fmax(most, communicates(run, q, &of_other) - own);
    return fmin(most, delay);
}

/* What a rank does beyond the others is lost by all that wait for it; by those that it shares cores with, a part at least. */
static double cost_of(const ls_run *run, int rank, double excess)
{
    return fmin(excess, fmax(waited_for(run, rank), excess / run->ranks));
}

static double cost_of_preemption(const ls_run *run, int rank, double excess)
{
    return fmin(excess, fmax(waited_for(run, rank) + blocked_by(run, rank), excess / run->ranks));
}

/* ---- Backward: which gradient is late. */

/* Adds up, per span, the time since the gradient before it. gaps is [spans]. */
static void sum_gaps(const ls_run_rank *r, double *gaps, size_t spans)
{
    int64_t before = 0;
    memset(gaps, 0, spans * sizeof *gaps);
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (e->kind == LS_EVENT_PHASE_BEGIN && e->a == LS_PHASE_BACKWARD) before = e->time;
        if (e->kind != LS_EVENT_SPAN_READY || e->a >= spans) continue;
        if (before) gaps[e->a] += (double)(e->time - before);
        before = e->time;
    }
}

/* The span before whose readiness `rank` loses most, compared with another rank; -1: not known. */
static int32_t late_span(const ls_run *run, int rank)
{
    int other = rank ? 0 : 1;
    size_t spans = run->rank[rank].n_spans;
    if (run->ranks < 2 || !spans || run->rank[other].n_spans != spans) return -1;
    double *own = malloc(2 * spans * sizeof *own), best = 0;
    int32_t at = -1;
    if (!own) return -1;
    sum_gaps(&run->rank[rank], own, spans);
    sum_gaps(&run->rank[other], own + spans, spans);
    for (size_t i = 0; i < spans; i++)
        if (own[i] - own[spans + i] > best) best = own[i] - own[spans + i], at = (int32_t)i;
    free(own);
    return at;
}

/* ---- Evidence and remedy. */

/* Slow reads, or something else that the rank does in its data phase? `own`: time of its data phase, if that is persistent. */
static void explain_data(const ls_run *run, int rank, double own, ls_finding *f)
{
    ls__data_load own_load = ls__data_load_of(run, rank), others = { 0 };
    for (int q = 0; q < run->ranks; q++) {
        ls__data_load l = ls__data_load_of(run, q);
        if (q != rank) others.build += l.build, others.batches += l.batches;
    }
    f->remedy = LS_REMEDY_CHECK_DATA;
    if (!ls__data_is_late(&own_load) || !ls__data_is_slow(&own_load, &others)) return;
    f->remedy = LS_REMEDY_FASTER_READS;
    f->evidence.rank.build = own_load.build / own_load.batches;
    f->evidence.rank.others_build = others.build / others.batches;
    /* What is read ahead costs the step nothing: neither what is beyond the others', nor the rest. */
    f->expected = (int64_t)fmax(0, run->step_mean - fmax((double)f->cost, own));
}

static void add_lost(ls_run *run, int rank, int cause, const ls__lost *lost, bool persistent)
{
    ls_finding_kind kind = cause == LS__UNSCHEDULED ? LS_FINDING_PREEMPTED : LS_FINDING_STRAGGLER;
    if (kind == LS_FINDING_STRAGGLER && !run->n_collectives) {
        ls__run_note(run, LS_NOTE_NO_COLLECTIVES, rank, (int64_t)lost->cost, ls_phase_name((ls_phase)cause));
        return;
    }
    ls_remedy remedy = cause == LS__UNSCHEDULED       ? LS_REMEDY_FREE_CORE
                       : cause == LS_PHASE_CHECKPOINT ? LS_REMEDY_FEWER_CHECKPOINTS
                                                      : LS_REMEDY_EQUAL_WORK;
    ls_finding *f = ls__finding_add(run, kind, cause < LS_PHASE_COUNT ? (ls_phase)cause : LS_PHASE_OTHER, remedy,
                                    kind == LS_FINDING_PREEMPTED ? cost_of_preemption(run, rank, lost->cost)
                                                                 : cost_of(run, rank, lost->cost));
    if (!f) return;
    f->rank = rank;
    f->steps = lost->steps;
    f->first = lost->first;
    f->last = lost->last;
    f->evidence.rank = (ls_rank_evidence){
        .own = lost->own, .others = lost->other, .waited = waited_for(run, rank), .span = -1, .persistent = persistent
    };
    if (lost->once) {
        f->weight = LS__ONCE_WEIGHT;
        f->remedy = LS_REMEDY_OBSERVE;
    } else if (cause == LS_PHASE_DATA) {
        explain_data(run, rank, persistent ? lost->own : 0, f);
    } else if (cause == LS_PHASE_BACKWARD) {
        f->evidence.rank.span = late_span(run, rank);
    }
}

/* What was found of a rank in forward and in backward: whether it has one reason is seen from both. */
typedef struct lost_times {
    ls__lost persistent[2], intermittent[2];
} lost_times;

/* What is lost in most steps and what is lost beyond that in a few is one finding: the same rank, the same phase. */
static void add_both(ls_run *run, int rank, int cause, const ls__lost *persistent, const ls__lost *intermittent)
{
    double least =
        run->step_mean * (cause == LS__UNSCHEDULED || cause == LS_PHASE_OTHER ? LS__WORTH_COARSE : LS__WORTH_STRAGGLER);
    bool often = persistent->clear > least, seldom = intermittent->clear > least;
    ls__lost all = often && (!seldom || persistent->cost >= intermittent->cost) ? *persistent : *intermittent;
    if (!often && !seldom) return;
    if (often && seldom) {
        all.cost = persistent->cost + intermittent->cost;
        all.once = false;
    }
    add_lost(run, rank, cause, &all, often);
}

static void judge(ls_run *run, const ls__excess *e, int rank, int cause, lost_times *l)
{
    ls__lost persistent = ls__excess_persistent(e, rank), intermittent = ls__excess_intermittent(e, rank);
    if (ls__computes(cause)) {
        l->persistent[cause == LS_PHASE_BACKWARD] = persistent;
        l->intermittent[cause == LS_PHASE_BACKWARD] = intermittent;
    } else {
        add_both(run, rank, cause, &persistent, &intermittent);
    }
}

/* ---- Slow cores. */

static void add_slow_core(ls_run *run, int rank, double excess, double own, bool forward, bool backward)
{
    /* A thread that loses its core again and again finds cold caches each time: that is reported with the lost core. */
    if (excess < run->rank[rank].use.sched_delay / 2) return;
    ls_finding *f =
        ls__finding_add(run, LS_FINDING_SLOW_CORE, LS_PHASE_OTHER, LS_REMEDY_CHECK_CORE, cost_of(run, rank, excess));
    if (!f) return;
    f->rank = rank;
    f->evidence.rank = (ls_rank_evidence){ .own = own,
                                           .others = own - excess,
                                           .waited = waited_for(run, rank),
                                           .span = -1,
                                           .persistent = true,
                                           .forward = forward,
                                           .backward = backward };
}

/* A rank that takes longer in forward and in backward, each in most steps and by about the same share, does not have more to do
 * there, nor does one that takes longer in all segments of a phase: its core is slower, by its clock, its caches, or a neighbour
 * that shares it. */
static void judge_speed(ls_run *run, int rank, const lost_times *l)
{
    static const ls__lost none = { 0 };
    const ls__lost *x = l->persistent;
    double least = LS__WORTH_STRAGGLER * run->step_mean, a = x[0].cost / fmax(1, x[0].own),
           b = x[1].cost / fmax(1, x[1].own);
    bool count[2] = { x[0].cost > least, x[1].cost > least };
    bool sampled =
        run->rank[rank].use.cpu > 0; /* without CPU times it is not known whether it computed at all: imported runs */
    bool both = sampled && count[0] && count[1] && !x[0].localized && !x[1].localized && a < LS__LIKE_SHARES * b &&
                b < LS__LIKE_SHARES * a;
    if (both) add_slow_core(run, rank, x[0].cost + x[1].cost, x[0].own + x[1].own, true, true);
    for (int i = 0; i < 2; i++) {
        bool slow = both || (count[i] && x[i].spread);
        if (slow && !both) add_slow_core(run, rank, x[i].cost, x[i].own, !i, i);
        add_both(run, rank, i ? LS_PHASE_BACKWARD : LS_PHASE_FORWARD, slow ? &none : &x[i], &l->intermittent[i]);
    }
}

/* More ranks than cores: all of them wait for a core, and which one does more is chance. */
static bool is_crowded(const ls_run *run)
{
    int ranks = 0, cores = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].node == 0) {
            ranks++;
            if (run->rank[r].threads > cores) cores = run->rank[r].threads;
        }
    bool bound = ranks > 1 && strcmp(run->rank[0].cores, run->rank[1].cores) != 0;
    return cores && !bound && ranks > cores; /* 0: not known, in imported runs */
}

/* ns of a step that the rank's run-queue delay is beyond that of every other rank. */
static double delayed_more(const ls_run *run, int rank)
{
    double others = 0;
    for (int q = 0; q < run->ranks; q++)
        if (q != rank && run->rank[q].present) others = fmax(others, run->rank[q].use.sched_delay);
    return run->rank[rank].use.sched_delay - others;
}

/* What one rank loses beyond the others. `joint`: contention is one finding for all ranks; *worst becomes the rank that stands out
 * in it, if one does. */
static ls_status compare_ranks(ls_run *run, bool crowded, bool joint, int *worst)
{
    static const int causes[] = { LS_PHASE_DATA,       LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_UPDATE,
                                  LS_PHASE_CHECKPOINT, LS_PHASE_EVAL,    LS_PHASE_OTHER,    LS__UNSCHEDULED };
    ls__excess *e = NULL;
    lost_times *all = calloc((size_t)run->ranks, sizeof *all);
    ls_status status = all ? ls__excess_open(&e, run, crowded) : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t c = 0; c < sizeof causes / sizeof *causes && !status; c++) {
        if (crowded && causes[c] == LS__UNSCHEDULED) continue;
        status = ls__excess_compare(e, causes[c]);
        double most = LS__WORTH_COARSE * run->step_mean;
        for (int r = 0; r < run->ranks && !status; r++) {
            if (!run->steps[run->first_counted].rank[r].present) continue;
            if (joint && causes[c] == LS__UNSCHEDULED) {
                double clear = fmax(ls__excess_persistent(e, r).clear, ls__excess_intermittent(e, r).clear);
                clear = fmin(clear, delayed_more(run, r)); /* some lose little in most steps, others much in some */
                if (clear > most) most = clear, *worst = r;
            } else {
                judge(run, e, r, causes[c], &all[r]);
            }
        }
    }
    for (int r = 0; r < run->ranks && !status; r++) judge_speed(run, r, &all[r]);
    free(all);
    ls__excess_free(&e);
    return status;
}

ls_status ls__find_stragglers(ls_run *run)
{
    ls__contention c = ls__contention_find(run);
    bool crowded = is_crowded(run), joint = c.ranks > 1 || (c.ranks && (c.present == 1 || c.oversubscribed));
    int worst = -1;
    ls_status status = LS_OK;
    if (c.present > 1 && ls__counted(run) < LS__FEWEST_STEPS)
        ls__run_note(run, LS_NOTE_FEW_STEPS, -1, LS__FEWEST_STEPS, NULL);
    else if (c.present > 1)
        status = compare_ranks(run, crowded, joint, &worst);
    if (!status && joint) ls__contention_add(run, &c, worst);
    return status;
}
