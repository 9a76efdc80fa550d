/* Stragglers: a rank that spends more time in a phase than the others do, so that they wait for it.
 *
 * What stands out, in most steps or now and then, is found in excess.c. It must cost a least share of the run, or it is not worth a line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/status.h"
#include "measure/excess.h"
#include "measure/find.h"

enum { FEWEST = 5 }; /* steps */

/* Cost of all steps together, of the run. */
#define WORTH 0.0015
#define COARSE_WORTH \
    0.03 /* the same for cores, where some other program always runs for a moment, and for what has no name */

/* ns a step that the rank that waited longest stood waiting for `rank`. */
static double waited_for(const ls_run *run, int rank)
{
    int64_t most = 0;
    for (int q = 0; q < run->ranks; q++)
        most = ls__max(most, run->wait_matrix[(size_t)q * (size_t)run->ranks + (size_t)rank]);
    return (double)most / (double)ls__counted(run);
}

/* ---- Backward: which gradient comes late. */

/* Adds up, per span, the time from the gradient before it. gaps is [spans]. */
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

/* ---- Words. */

static void advise_data(const ls_run *run, int rank, double own, ls_finding *f)
{
    double workers = run->rank[rank].facts[LS_FACT_WORKERS], load = 0, others = 0, batches = 0, all = 0;
    for (size_t i = run->n_warm; i < run->n_steps; i++)
        for (int q = 0; q < run->ranks; q++) {
            const ls_step_rank *s = &run->steps[i].rank[q];
            if (q == rank)
                load += (double)s->batch_ns, batches += s->batches;
            else
                others += (double)s->batch_ns, all += s->batches;
        }
    if (batches > 0) load /= batches;
    if (all > 0) others /= all;
    if (others > 0 && load > 1.5 * others) {
        char a[24], b[24];
        size_t at = strlen(f->evidence);
        snprintf(f->evidence + at, sizeof f->evidence - at, "; its batches take %s to build, the others' %s",
                 ls__duration(load, a), ls__duration(others, b));
        snprintf(f->change, sizeof f->change,
                 "its reads are slow: keep its data on a local disk (--stage), or read ahead with more "
                 "--workers%s",
                 workers >= 1 ? "" : " (it has none)");
        /* What is read ahead costs the step nothing: neither what is beyond the others', nor the rest. */
        f->expected = (int64_t)fmax(0, ls_run_step_mean(run) - fmax((double)f->cost, own));
    } else {
        snprintf(f->change, sizeof f->change, "look at what that rank does %s",
                 ls__is_train(run)
                     ? "between taking a batch and forward; more --workers help only if building batches is slow"
                     : "to get its data");
    }
}

static void describe(const ls_run *run, int rank, int cause, const ls__loss *j, bool usual, ls_finding *f)
{
    char a[24], b[24], c[24];
    double step = ls_run_step_mean(run);
    size_t n = ls__counted(run);
    const char *phase = cause < LS_PHASES ? ls_phase_name((ls_phase)cause) : "waiting for a core";
    char how[64] = "";
    if (!usual && j->steps == 1) snprintf(how, sizeof how, ", all of it in one step of %zu", n);
    if (!usual && j->steps > 1) snprintf(how, sizeof how, ", in %lld of %zu steps", (long long)j->steps, n);
    if (cause == LS_PHASES)
        snprintf(f->what, sizeof f->what, "rank %d had no core for %s of a step when it could have run%s", rank,
                 ls__duration(j->own * (double)j->steps / (double)n, a), how);
    else
        snprintf(f->what, sizeof f->what, "rank %d cost everyone %s a step in %s%s", rank,
                 ls__duration((double)f->cost, a), phase, how);
    snprintf(f->evidence, sizeof f->evidence, "its %s takes %s, the others' %s; in all they wait %s a step for it",
             phase, ls__duration(j->own, a), ls__duration(j->other, b), ls__duration(waited_for(run, rank), c));
    f->expected = (int64_t)(step - (double)f->cost);
    if (j->once) {
        size_t at = strlen(f->evidence);
        snprintf(f->evidence + at, sizeof f->evidence - at, "; it was computing, and lost nothing at that place again");
        snprintf(
            f->change, sizeof f->change,
            "see whether it comes again; once may be the machine, which stops a core for a moment and counts it as "
            "work");
        return;
    }
    switch (cause) {
    case LS_PHASE_DATA: advise_data(run, rank, usual ? j->own : 0, f); break;
    case LS_PHASE_BACKWARD: {
        int32_t span = late_span(run, rank);
        if (span >= 0 && run->rank[rank].span_names[span]) {
            size_t at = strlen(f->evidence);
            snprintf(f->evidence + at, sizeof f->evidence - at, "; most of it before the gradient of '%.80s'",
                     run->rank[rank].span_names[span]);
        }
        snprintf(f->change, sizeof f->change, "give all ranks equal work (rows of equal length)%s",
                 ls__is_train(run) ? "; see 'lockstep train --profile' for the layer" : "");
        break;
    }
    case LS_PHASES:
        snprintf(f->change, sizeof f->change,
                 "its core (%s on %s) is shared: end the other program there, or bind the rank elsewhere "
                 "with 'taskset'",
                 run->rank[rank].cores, run->rank[rank].host);
        break;
    case LS_PHASE_CHECKPOINT:
        snprintf(f->change, sizeof f->change, "checkpoint less often, or to a faster disk");
        break;
    default:
        snprintf(f->change, sizeof f->change,
                 "give all ranks equal work: rows of equal length, the same number of threads and the same "
                 "kind of core");
    }
}

static void add_loss(ls_run *run, int rank, int cause, const ls__loss *loss, bool usual)
{
    /* What it does beyond the others is lost by all who wait for it; by those it shares cores with, a part at least. */
    double cost = fmin(loss->cost, fmax(waited_for(run, rank), loss->cost / run->ranks));
    ls_finding *f = ls__finding_add(run, cause == LS_PHASES ? LS_FINDING_CORE : LS_FINDING_STRAGGLER);
    if (!f) return;
    f->rank = rank;
    f->phase = cause < LS_PHASES ? (ls_phase)cause : LS_PHASE_OTHER;
    f->cost = (int64_t)cost;
    f->steps = loss->steps;
    if (loss->once) f->weight = LS__CHANCE;
    describe(run, rank, cause, loss, usual, f);
}

/* What is usual in forward and backward goes to `speed`: whether it has one reason is seen from both. */
static void look_at(ls_run *run, const ls__excess *e, int rank, int cause, ls__loss speed[2])
{
    double least = ls_run_step_mean(run) * (cause == LS_PHASES || cause == LS_PHASE_OTHER ? COARSE_WORTH : WORTH);
    ls__loss usual = ls__excess_usual(e, rank), sudden = ls__excess_sudden(e, rank);
    if (cause == LS_PHASE_FORWARD || cause == LS_PHASE_BACKWARD)
        speed[cause == LS_PHASE_BACKWARD] = usual;
    else if (usual.clear > least)
        add_loss(run, rank, cause, &usual, true);
    bool told = cause == LS_PHASES && usual.clear > least; /* once is enough */
    if (sudden.clear > least && !told) add_loss(run, rank, cause, &sudden, false);
}

/* ---- Slow cores. */

static void add_slow(ls_run *run, int rank, double cost, double spent, const char *where)
{
    ls_finding *f = ls__finding_add(run, LS_FINDING_CORE);
    char a[24], b[24];
    if (!f) return;
    f->rank = rank;
    f->phase = LS_PHASE_OTHER;
    f->cost = (int64_t)fmin(cost, fmax(waited_for(run, rank), cost / run->ranks));
    f->steps = (int64_t)ls__counted(run);
    f->expected = (int64_t)ls_run_step_mean(run) - f->cost;
    snprintf(f->what, sizeof f->what, "rank %d computes %.0f%% slower than the others, in %s", rank,
             100 * cost / fmax(1, spent - cost), where);
    snprintf(f->evidence, sizeof f->evidence, "it takes %s there, the others %s, and at no place in particular",
             ls__duration(spent, a), ls__duration(spent - cost, b));
    snprintf(
        f->change, sizeof f->change,
        "its core (%s on %s) is slower: look for other programs on it or on its twin, and at its clock rate; or its "
        "rows are longer",
        run->rank[rank].cores, run->rank[rank].host);
}

/* A rank that takes longer in forward and in backward, each in most steps and in like measure, does not have more to do there, nor does
 * one that takes longer all over a phase: its core is slower, by its clock, its caches, or a neighbour that shares it. */
static void look_at_speed(ls_run *run, int rank, const ls__loss usual[2])
{
    double least = WORTH * ls_run_step_mean(run), a = usual[0].cost / fmax(1, usual[0].own),
           b = usual[1].cost / fmax(1, usual[1].own);
    bool count[2] = { usual[0].cost > least, usual[1].cost > least };
    if (count[0] && count[1] && !usual[0].placed && !usual[1].placed && a < 2 * b && b < 2 * a) {
        add_slow(run, rank, usual[0].cost + usual[1].cost, usual[0].own + usual[1].own, "forward and in backward");
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (!count[i]) continue;
        if (usual[i].spread)
            add_slow(run, rank, usual[i].cost, usual[i].own, i ? "backward" : "forward");
        else
            add_loss(run, rank, i ? LS_PHASE_BACKWARD : LS_PHASE_FORWARD, &usual[i], true);
    }
}

/* More ranks than cores: everybody waits for a core, and who does more is chance. */
static bool is_crowded(const ls_run *run)
{
    int ranks = 0, cores = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].node == 0) {
            ranks++;
            if (run->rank[r].threads > cores) cores = run->rank[r].threads;
        }
    bool bound = ranks > 1 && strcmp(run->rank[0].cores, run->rank[1].cores) != 0;
    return !bound && ranks > cores;
}

static void look_at_crowd(ls_run *run)
{
    double delay = 0, n = 0, step = ls_run_step_mean(run);
    char a[24];
    for (size_t i = run->n_warm; i < run->n_steps; i++)
        for (int r = 0; r < run->ranks; r++)
            if (run->steps[i].rank[r].present) delay += ls__spent(&run->steps[i].rank[r], LS_PHASES), n++;
    if (n > 0) delay /= n;
    if (delay < 0.1 * step) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_CORE);
    if (!f) return;
    f->cost = (int64_t)delay;
    f->expected = (int64_t)step;
    f->steps = (int64_t)ls__counted(run);
    snprintf(f->what, sizeof f->what, "there are more ranks than cores: each has none for %s of a step",
             ls__duration(delay, a));
    snprintf(f->evidence, sizeof f->evidence, "%d ranks share the cores %s", run->ranks, run->rank[0].cores);
    snprintf(f->change, sizeof f->change, "as many ranks as cores (-n %d) do the same work with less waiting",
             run->rank[0].threads > 0 ? run->rank[0].threads : 1);
}

ls_status ls__find_stragglers(ls_run *run)
{
    static const int causes[] = { LS_PHASE_DATA,       LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_UPDATE,
                                  LS_PHASE_CHECKPOINT, LS_PHASE_EVAL,    LS_PHASE_OTHER,    LS_PHASES };
    int present = 0;
    for (int r = 0; r < run->ranks; r++) present += run->steps[run->n_warm].rank[r].present;
    if (present < 2) return LS_OK;
    if (ls__counted(run) < FEWEST) {
        ls__run_note(run, "%zu steps count, too few to tell a slow rank from chance; %d would do", ls__counted(run),
                     FEWEST);
        return LS_OK;
    }
    bool crowded = is_crowded(run);
    ls__excess *e = NULL;
    ls__loss(*speed)[2] = calloc((size_t)run->ranks, sizeof *speed);
    ls_status status = speed ? ls__excess_open(&e, run, crowded) : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t c = 0; c < sizeof causes / sizeof *causes && !status; c++) {
        if (crowded && causes[c] == LS_PHASES) continue;
        status = ls__excess_look_at(e, causes[c]);
        for (int r = 0; r < run->ranks && !status; r++)
            if (run->steps[run->n_warm].rank[r].present) look_at(run, e, r, causes[c], speed[r]);
    }
    for (int r = 0; r < run->ranks && !status; r++) look_at_speed(run, r, speed[r]);
    if (crowded) look_at_crowd(run);
    free(speed);
    ls__excess_free(&e);
    return status;
}
