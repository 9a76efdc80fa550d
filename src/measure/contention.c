/* Cores that other programs use, or too many threads of the job itself.
 *
 * A thread that is runnable but not scheduled is in a run queue; the kernel counts that time, and records have it for the main thread. No
 * rank causes it, and where all ranks lose alike no rank stands out by it. So it is found by its cost: a step without it takes as long as
 * the rank that has most else to do. */
#include "measure/contention.h"

#include <math.h>
#include <string.h>
#include "measure/findings.h"
#include "measure/limits.h"

/* ---- What a step would take. */

/* Whether a thread computes: its CPU time bounds what the rank can reach. */
static bool computes(const char *name)
{
    return !strcmp(name, "main") || !strncmp(name, "ls-compute-", 11);
}

/* The least of a step that the rank needs, as a share: the busiest of its computing threads. */
static double least_share(const ls_run_rank *r)
{
    double most = 0;
    for (size_t i = 0; i < r->n_thread; i++)
        if (computes(r->thread[i].name)) most = fmax(most, r->thread[i].share);
    return fmin(1, most);
}

typedef struct loss {
    double all;      /* without waiting */
    double in_calls; /* of that: while the rank communicated, so that the others were blocked in the same call */
} loss;

static loss steal_in(const ls_run *run, int rank, const ls_step_rank *s)
{
    (void)run, (void)rank;
    loss l = { .in_calls = (double)s->steal[LS_PHASE_COMM] };
    for (int p = 0; p < LS_PHASE_COUNT; p++)
        if (p != LS_PHASE_WAIT) l.all += (double)s->steal[p];
    return l;
}

/* Where several threads compute, the main one is off-CPU until the last of them is done, and those lose their cores as it does. */
static loss sched_delay_in(const ls_run *run, int rank, const ls_step_rank *s)
{
    const ls_run_rank *r = &run->rank[rank];
    loss l = { .all = (double)ls__sched_delay(run, s), .in_calls = (double)ls__sched_delay_in_calls(run, s) };
    if (r->metadata[LS_METADATA_THREADS] > 1)
        for (int p = LS_PHASE_FORWARD; p <= LS_PHASE_UPDATE; p++) l.all += (double)s->off_cpu[p];
    l.all = fmin(l.all, fmax(0, 1 - least_share(r)) * (double)(s->end - s->begin));
    return l;
}

typedef loss loss_function(const ls_run *, int rank, const ls_step_rank *);

/* A step of all ranks. */
typedef struct losses {
    const ls_step_rank *rank; /* [ranks]; NULL: there is no such step */
    loss total;
    double communicates; /* least time that a rank was in communication without losing anything */
} losses;

static losses sum_losses(const ls_run *run, const ls_step_rank *all, loss_function *lost)
{
    losses x = { .rank = all, .communicates = INFINITY };
    for (int r = 0; r < run->ranks; r++) {
        if (!all[r].present) continue;
        loss l = lost(run, r, &all[r]);
        x.total.all += l.all;
        x.total.in_calls += l.in_calls;
        x.communicates = fmin(x.communicates, (double)all[r].ns[LS_PHASE_COMM] - l.in_calls);
    }
    return x;
}

/* Time in which rank s may have been blocked because of what other ranks lost: its waiting, and communication that lasted because others
 * did not do their part. */
static double blocked(const losses *x, const ls_step_rank *s, loss l)
{
    double longer = (double)s->ns[LS_PHASE_COMM] - l.in_calls - x->communicates;
    return (double)s->ns[LS_PHASE_WAIT] + fmin(longer, x->total.in_calls - l.in_calls);
}

/* ns that step `x` would take if no rank lost `lost`. A rank's waiting disappears with it as far as the other ranks lost that much in the
 * same step, or at the end of the step before; the rest of the waiting has other reasons. */
static double step_without(const ls_run *run, const losses *x, const losses *before, loss_function *lost)
{
    double without = 0;
    for (int r = 0; r < run->ranks; r++) {
        const ls_step_rank *s = &x->rank[r];
        if (!s->present) continue;
        loss l = lost(run, r, s);
        double by_others = x->total.all - l.all;
        if (before->rank) {
            loss b = lost(run, r, &before->rank[r]);
            by_others += fmax(0, before->total.all - b.all - blocked(before, &before->rank[r], b));
        }
        without = fmax(without, (double)(s->end - s->begin) - l.all - fmin(blocked(x, s, l), by_others));
    }
    return without;
}

/* ns of a step that would be saved. */
static double gain_without(const ls_run *run, loss_function *lost)
{
    double sum = 0;
    losses before = { 0 };
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        losses x = sum_losses(run, run->steps[i].rank, lost);
        double wall = 0, n = 0;
        for (int r = 0; r < run->ranks; r++)
            if (x.rank[r].present) wall += (double)(x.rank[r].end - x.rank[r].begin), n++;
        if (n > 0) sum += fmax(0, wall / n - step_without(run, &x, &before, lost));
        before = x;
    }
    return sum / (double)ls__counted(run);
}

double ls__gain_without_steal(const ls_run *run)
{
    return gain_without(run, steal_in);
}

/* ---- Who had the cores. */

typedef struct cores {
    double all;     /* that the ranks may use */
    double used;    /* by the job, on average; NaN: not known */
    double threads; /* that compute */
} cores;

static cores count_cores(const ls_run *run)
{
    cores c = { 0 };
    for (int r = 0; r < run->ranks; r++) {
        const ls_run_rank *x = &run->rank[r];
        bool first = true;
        if (!x->present || !(x->use.wall > 0)) continue;
        for (int q = 0; q < r && first; q++)
            first = !run->rank[q].present || run->rank[q].node != x->node || strcmp(run->rank[q].cores, x->cores) != 0;
        if (first) c.all += x->threads > 0 ? x->threads : 1;
        c.used += x->use.cpu > 0 ? x->use.cpu / x->use.wall : NAN;
        c.threads += x->metadata[LS_METADATA_THREADS] > 1 ? x->metadata[LS_METADATA_THREADS] : 1;
    }
    return c;
}

ls__contention ls__contention_find(const ls_run *run)
{
    cores n = count_cores(run);
    ls__contention c = { .least = INFINITY, .least_share = INFINITY, .oversubscribed = n.threads > n.all };
    double worth = LS__CONTENTION_SHARE * run->step_mean;
    for (int r = 0; r < run->ranks; r++) {
        if (!run->rank[r].present || !(run->rank[r].use.wall > 0)) continue;
        double delay = run->rank[r].use.sched_delay;
        c.present++;
        if (delay < worth) continue;
        c.ranks++;
        c.least = fmin(c.least, delay);
        c.most = fmax(c.most, delay);
        c.least_share = fmin(c.least_share, delay / run->rank[r].use.wall);
        c.most_share = fmax(c.most_share, delay / run->rank[r].use.wall);
    }
    return c;
}

/* ---- Findings. */

static ls_finding *add(ls_run *run, ls_finding_kind kind, ls_remedy remedy, double cost, const ls__contention *c,
                       const cores *n)
{
    ls_finding *f = ls__finding_add(run, kind, LS_PHASE_OTHER, remedy, cost);
    if (f)
        f->evidence.cores = (ls_core_evidence){ .ranks = c->ranks,
                                                .least = c->least,
                                                .most = c->most,
                                                .least_share = c->least_share,
                                                .most_share = c->most_share,
                                                .used = n->used,
                                                .cores = n->all,
                                                .threads = n->threads };
    return f;
}

/* More threads than cores take cores from each other. Fewer do the same work, so no gain is promised. */
static void add_oversubscription(ls_run *run, const ls__contention *c, const cores *n, double cost)
{
    bool ranks = c->present > n->all;
    ls_finding *f =
        add(run, LS_FINDING_OVERSUBSCRIPTION, ranks ? LS_REMEDY_FEWER_RANKS : LS_REMEDY_FEWER_THREADS, cost, c, n);
    if (!f) return;
    f->target = ranks ? n->all : fmax(1, floor(n->all / c->present));
    f->expected = (int64_t)run->step_mean;
}

void ls__contention_add(ls_run *run, const ls__contention *c, int rank)
{
    double step = run->step_mean, cost = gain_without(run, sched_delay_in), mean = 0;
    cores n = count_cores(run);
    if (!c->oversubscribed) {
        ls_finding *f = add(run, LS_FINDING_CONTENTION, LS_REMEDY_FREE_CORES, cost, c, &n);
        if (f) f->rank = rank;
        return;
    }
    /* What the job's own threads take from each other is regained only as far as other programs had the cores. */
    double others = isfinite(n.used) ? fmax(0, 1 - n.used / n.all) : 0;
    cost = others < LS__CORES_FREE ? 0 : fmin(cost, step * others);
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) mean += run->rank[r].use.sched_delay / c->present;
    if (cost > 0) add(run, LS_FINDING_CONTENTION, LS_REMEDY_FREE_CORES, cost, c, &n);
    if (mean - cost > LS__OVERSUBSCRIBED * step) add_oversubscription(run, c, &n, mean - cost);
}
