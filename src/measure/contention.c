/* Cores that other programs use, or too many threads of the job's own.
 *
 * A thread that is runnable but not scheduled stands in a run queue; the kernel counts that time, and records have it for the thread that
 * makes the steps. It is no rank's doing, and where all ranks lose alike nobody stands out by it. So it is found by what it costs: a
 * step without it takes as long as the rank that has most else to do. */
#include "measure/contention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "record/ring.h"
#include "measure/findings.h"

#define WORTH 0.05 /* of a step */

/* How long a rank waits, the others decide. Once all have arrived, a late wake-up is a loss like any other. */
static double in_phases(const int64_t ns[LS_PHASES])
{
    double sum = 0;
    for (int p = 0; p < LS_PHASES; p++)
        if (p != LS_PHASE_WAIT) sum += (double)ns[p];
    return sum;
}

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

static double steal_in(const ls_run_rank *r, const ls_step_rank *s)
{
    (void)r;
    return in_phases(s->steal);
}

/* Where several threads compute, the main one sleeps until the last of them is done, and those lose their cores as it does. */
static double queued_in(const ls_run_rank *r, const ls_step_rank *s)
{
    double lost = in_phases(s->sched_delay), wall = (double)(s->end - s->begin);
    if (r->metadata[LS_METADATA_THREADS] > 1)
        for (int p = LS_PHASE_FORWARD; p <= LS_PHASE_UPDATE; p++) lost += (double)s->off_cpu[p];
    return fmin(lost, fmax(0, 1 - least_share(r)) * wall);
}

/* ns a step that would be saved if no rank lost what `lost` says. What a rank waits for the others goes with it as far as they lost that
 * much; the rest of the waiting has other reasons. */
static double gain_without(const ls_run *run, double (*lost)(const ls_run_rank *, const ls_step_rank *))
{
    double sum = 0;
    for (size_t i = run->n_warmup; i < run->n_steps; i++) {
        const ls_step_rank *all = run->steps[i].rank;
        double wall = 0, n = 0, without = 0, total = 0;
        for (int r = 0; r < run->ranks; r++)
            if (all[r].present) total += lost(&run->rank[r], &all[r]);
        for (int r = 0; r < run->ranks; r++) {
            const ls_step_rank *s = &all[r];
            if (!s->present) continue;
            double own = (double)(s->end - s->begin), gone = lost(&run->rank[r], s);
            wall += own;
            n++;
            without = fmax(without, own - gone - fmin((double)s->ns[LS_PHASE_WAIT], total - gone));
        }
        if (n > 0) sum += fmax(0, wall / n - without);
    }
    return sum / (double)ls__counted(run);
}

double ls__gain_without_steal(const ls_run *run)
{
    return gain_without(run, steal_in);
}

/* ---- Who had the cores. */

typedef struct cores {
    double all;    /* that the ranks may use */
    double own;    /* that they used, on average; NaN: not known */
    double wanted; /* threads that compute */
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
        c.own += x->use.cpu > 0 ? x->use.cpu / x->use.wall : NAN;
        c.wanted += x->metadata[LS_METADATA_THREADS] > 1 ? x->metadata[LS_METADATA_THREADS] : 1;
    }
    return c;
}

ls__contention ls__contention_look(const ls_run *run)
{
    cores n = count_cores(run);
    ls__contention c = { .least = INFINITY, .least_share = INFINITY, .crowded = n.wanted > n.all };
    c.worth = WORTH * ls_run_step_mean(run);
    for (int r = 0; r < run->ranks; r++) {
        if (!run->rank[r].present || !(run->rank[r].use.wall > 0)) continue;
        double delay = run->rank[r].use.sched_delay;
        c.present++;
        if (delay < c.worth) continue;
        if (!c.ranks) c.first = r;
        c.ranks++;
        c.least = fmin(c.least, delay);
        c.most = fmax(c.most, delay);
        c.least_share = fmin(c.least_share, delay / run->rank[r].use.wall);
        c.most_share = fmax(c.most_share, delay / run->rank[r].use.wall);
    }
    return c;
}

/* ---- Words. */

enum { NAMED = 6, TEXT = 160, DELAY = 56 };

static bool is_contended(const ls__contention *c, const ls_run_rank *r)
{
    return r->present && r->use.wall > 0 && r->use.sched_delay >= c->worth;
}

/* "rank 3 was", "ranks 0, 1 were", "all 8 ranks were" */
static void put_ranks(const ls_run *run, const ls__contention *c, char out[TEXT])
{
    size_t at = 0;
    int named = 0;
    if (c->ranks > 2 && c->ranks == c->present) {
        snprintf(out, TEXT, "all %d ranks were", c->ranks);
        return;
    }
    at += (size_t)snprintf(out, TEXT, c->ranks > 1 ? "ranks " : "rank ");
    for (int r = c->first; r < run->ranks && named < NAMED; r++)
        if (is_contended(c, &run->rank[r])) at += (size_t)snprintf(out + at, TEXT - at, "%s%d", named++ ? ", " : "", r);
    if (c->ranks > named) at += (size_t)snprintf(out + at, TEXT - at, " and %d more", c->ranks - named);
    snprintf(out + at, TEXT - at, c->ranks > 1 ? " were" : " was");
}

/* The cores of those ranks on the first one's machine: "0, 1 of vm". */
static void put_cores(const ls_run *run, const ls__contention *c, char out[TEXT])
{
    const ls_run_rank *first = &run->rank[c->first];
    size_t at = 0;
    int named = 0;
    for (int r = c->first; r < run->ranks; r++) {
        int q = c->first;
        if (!is_contended(c, &run->rank[r]) || run->rank[r].node != first->node) continue;
        while (q < r && (!is_contended(c, &run->rank[q]) || strcmp(run->rank[q].cores, run->rank[r].cores) != 0)) q++;
        if (q < r) continue;
        if (named++ == NAMED) {
            at += (size_t)snprintf(out + at, TEXT - at, " ...");
            break;
        }
        at += (size_t)snprintf(out + at, TEXT - at, "%s%.12s", named > 1 ? ", " : "", run->rank[r].cores);
    }
    snprintf(out + at, TEXT - at, " of %.64s", first->host);
}

static void put_delay(const ls__contention *c, char out[DELAY])
{
    char a[24], b[24];
    ls__duration(c->least, a);
    ls__duration(c->most, b);
    if (strcmp(a, b) != 0)
        snprintf(out, DELAY, "%s to %s", a, b);
    else
        snprintf(out, DELAY, "%s", b);
}

static void add_others(ls_run *run, const ls__contention *c, const cores *n, int rank, double cost)
{
    double step = ls_run_step_mean(run);
    char ranks[TEXT], delay[DELAY], where[TEXT];
    ls_finding *f = ls__finding_add(run, LS_FINDING_CORE);
    if (!f) return;
    put_ranks(run, c, ranks);
    put_cores(run, c, where);
    put_delay(c, delay);
    f->rank = rank;
    f->phase = LS_PHASE_OTHER;
    f->cost = (int64_t)cost;
    f->expected = (int64_t)(step - cost);
    f->steps = (int64_t)ls__counted(run);
    snprintf(f->what, sizeof f->what, "%s runnable but not scheduled for %s of a step: other programs use %s cores",
             ranks, delay, c->ranks > 1 ? "their" : "its");
    size_t at = (size_t)snprintf(f->evidence, sizeof f->evidence, "run-queue delay of %.0f%%", 100 * c->least_share);
    if (lround(100 * c->most_share) > lround(100 * c->least_share))
        at += (size_t)snprintf(f->evidence + at, sizeof f->evidence - at, " to %.0f%%", 100 * c->most_share);
    at += (size_t)snprintf(f->evidence + at, sizeof f->evidence - at, " of a step");
    if (isfinite(n->own))
        at += (size_t)snprintf(f->evidence + at, sizeof f->evidence - at, "; the run got %.2f of %.0f cores", n->own,
                               n->all);
    if (rank >= 0) snprintf(f->evidence + at, sizeof f->evidence - at, "; rank %d lost most", rank);
    snprintf(f->change, sizeof f->change,
             "stop the other programs on cores %s ('top' names them), or run where cores are free", where);
}

/* More threads than cores take cores from each other. Fewer do the same work, so no gain is promised. */
static void add_own(ls_run *run, const ls__contention *c, const cores *n, double cost)
{
    char ranks[TEXT], delay[DELAY];
    ls_finding *f = ls__finding_add(run, LS_FINDING_CORE);
    if (!f) return;
    put_ranks(run, c, ranks);
    put_delay(c, delay);
    f->phase = LS_PHASE_OTHER;
    f->cost = (int64_t)cost;
    f->expected = (int64_t)ls_run_step_mean(run);
    f->steps = (int64_t)ls__counted(run);
    if (c->present > n->all)
        snprintf(f->what, sizeof f->what,
                 "there are more ranks than cores: %s runnable but not scheduled for %s of a step", ranks, delay);
    else
        snprintf(f->what, sizeof f->what,
                 "more threads compute than there are cores: %s runnable but not scheduled for %s of a step", ranks,
                 delay);
    snprintf(f->evidence, sizeof f->evidence, "%d rank%s with %.0f thread%s in all share %.0f core%s", c->present,
             c->present == 1 ? "" : "s", n->wanted, n->wanted > 1 ? "s" : "", n->all, n->all > 1 ? "s" : "");
    if (c->present > n->all)
        snprintf(f->change, sizeof f->change, "as many ranks as cores (-n %.0f) do the same work with less waiting",
                 n->all);
    else
        snprintf(f->change, sizeof f->change, "as many threads as cores (%s %.0f) do the same work with less waiting",
                 ls__is_train(run) ? "--threads" : "OMP_NUM_THREADS", fmax(1, floor(n->all / c->present)));
}

void ls__contention_add(ls_run *run, const ls__contention *c, int rank)
{
    double step = ls_run_step_mean(run), cost = gain_without(run, queued_in), mean = 0;
    cores n = count_cores(run);
    if (!c->crowded) {
        add_others(run, c, &n, rank, cost);
        return;
    }
    /* What its own threads take from each other comes back only as far as others had the cores. */
    double others = isfinite(n.own) ? fmax(0, 1 - n.own / n.all) : 0;
    cost = fmin(cost, step * others);
    if (others < 0.1) cost = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) mean += run->rank[r].use.sched_delay / c->present;
    if (cost > 0) add_others(run, c, &n, -1, cost);
    if (mean - cost > 0.1 * step) add_own(run, c, &n, mean - cost);
}
