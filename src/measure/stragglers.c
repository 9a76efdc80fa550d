/* Stragglers: a rank that spends more time in a phase than the others do, so that they wait for it.
 *
 * What stands out, in most steps or now and then, is found in excess.c. It must cost a least share of the run, or it is not worth a line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "base/text.h"
#include "measure/contention.h"
#include "measure/excess.h"
#include "measure/findings.h"

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
    double workers = run->rank[rank].metadata[LS_METADATA_WORKERS], load = 0, others = 0, batches = 0, all = 0;
    for (size_t i = run->n_warmup; i < run->n_steps; i++)
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
                 "its reads are slow: keep its data on a local disk%s, or read ahead with more %sworkers%s",
                 ls__is_train(run) ? " (--stage)" : "", ls__is_train(run) ? "--" : "",
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
    const char *phase = cause < LS_PHASES ? ls_phase_name((ls_phase)cause) : "run-queue delay";
    char how[64] = "";
    if (!usual && j->steps == 1) snprintf(how, sizeof how, ", all of it in one step of %zu", n);
    if (!usual && j->steps > 1) snprintf(how, sizeof how, ", in %lld of %zu steps", (long long)j->steps, n);
    if (cause == LS_PHASES)
        snprintf(f->what, sizeof f->what, "rank %d was runnable but not scheduled for %s of a step%s", rank,
                 ls__duration(j->own * (double)j->steps / (double)n, a), how);
    else
        snprintf(f->what, sizeof f->what, "rank %d stalls all ranks %s a step in %s%s", rank,
                 ls__duration((double)f->cost, a), cause == LS_PHASE_DATA ? "data loading" : phase, how);
    snprintf(f->evidence, sizeof f->evidence, "its %s takes %s, the others' %s; in all they wait %s a step for it",
             phase, ls__duration(j->own, a), ls__duration(j->other, b), ls__duration(waited_for(run, rank), c));
    f->expected = (int64_t)(step - (double)f->cost);
    if (j->once) {
        size_t at = strlen(f->evidence);
        snprintf(f->evidence + at, sizeof f->evidence - at, "; it was computing, and the same did not happen again");
        snprintf(f->change, sizeof f->change,
                 "see whether it comes again; once may be noise: a machine's host stops a core for a moment and counts "
                 "it as "
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
        snprintf(f->change, sizeof f->change, "give all ranks equal work (equal-length sequences)%s",
                 ls__is_train(run) ? "; see 'lockstep train --profile' for the layer" : "");
        break;
    }
    case LS_PHASES:
        snprintf(f->change, sizeof f->change,
                 "another program uses its core (%s on %s): stop it, or bind the rank to another core with 'taskset'",
                 run->rank[rank].cores, run->rank[rank].host);
        break;
    case LS_PHASE_CHECKPOINT:
        snprintf(f->change, sizeof f->change, "checkpoint less often, or to a faster disk");
        break;
    default:
        snprintf(f->change, sizeof f->change,
                 "give all ranks equal work: equal-length sequences, the same number of threads and the same "
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

/* What was found of a rank in forward and in backward: whether it has one reason is seen from both. */
typedef struct losses {
    ls__loss usual[2], sudden[2];
} losses;

/* What is lost in most steps and what is lost beyond that now and then is one finding: the same rank, the same phase. */
static void add_losses(ls_run *run, int rank, int cause, const ls__loss *usual, const ls__loss *sudden)
{
    double least = ls_run_step_mean(run) * (cause == LS_PHASES || cause == LS_PHASE_OTHER ? COARSE_WORTH : WORTH);
    bool often = usual->clear > least, seldom = sudden->clear > least;
    ls__loss all = often && (!seldom || usual->cost >= sudden->cost) ? *usual : *sudden;
    if (!often && !seldom) return;
    if (often && seldom) {
        all.cost = usual->cost + sudden->cost;
        all.once = false;
    }
    add_loss(run, rank, cause, &all, often);
}

static void look_at(ls_run *run, const ls__excess *e, int rank, int cause, losses *l)
{
    ls__loss usual = ls__excess_usual(e, rank), sudden = ls__excess_sudden(e, rank);
    if (cause == LS_PHASE_FORWARD || cause == LS_PHASE_BACKWARD) {
        l->usual[cause == LS_PHASE_BACKWARD] = usual;
        l->sudden[cause == LS_PHASE_BACKWARD] = sudden;
    } else {
        add_losses(run, rank, cause, &usual, &sudden);
    }
}

/* ---- Slow cores. */

static void add_slow(ls_run *run, int rank, double cost, double spent, const char *where)
{
    /* A thread that loses its core again and again finds cold caches each time: that is told with the lost core. */
    if (cost < run->rank[rank].use.sched_delay / 2) return;
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
        "sequences are longer",
        run->rank[rank].cores, run->rank[rank].host);
}

/* A rank that takes longer in forward and in backward, each in most steps and in like measure, does not have more to do there, nor does
 * one that takes longer all over a phase: its core is slower, by its clock, its caches, or a neighbour that shares it. */
static void look_at_speed(ls_run *run, int rank, const losses *l)
{
    static const ls__loss none = { 0 };
    const ls__loss *usual = l->usual;
    double least = WORTH * ls_run_step_mean(run), a = usual[0].cost / fmax(1, usual[0].own),
           b = usual[1].cost / fmax(1, usual[1].own);
    bool count[2] = { usual[0].cost > least, usual[1].cost > least };
    bool both = count[0] && count[1] && !usual[0].placed && !usual[1].placed && a < 2 * b && b < 2 * a;
    if (both)
        add_slow(run, rank, usual[0].cost + usual[1].cost, usual[0].own + usual[1].own, "forward and in backward");
    for (int i = 0; i < 2; i++) {
        bool slow = both || (count[i] && usual[i].spread);
        if (slow && !both) add_slow(run, rank, usual[i].cost, usual[i].own, i ? "backward" : "forward");
        add_losses(run, rank, i ? LS_PHASE_BACKWARD : LS_PHASE_FORWARD, slow ? &none : &usual[i], &l->sudden[i]);
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

/* What one rank loses beyond the others. `joint`: that ranks are not scheduled is told of all of them together; *worst becomes the one that
 * stands out in it, if one does. */
static ls_status compare_ranks(ls_run *run, bool crowded, bool joint, int *worst)
{
    static const int causes[] = { LS_PHASE_DATA,       LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_UPDATE,
                                  LS_PHASE_CHECKPOINT, LS_PHASE_EVAL,    LS_PHASE_OTHER,    LS_PHASES };
    ls__excess *e = NULL;
    losses *all = calloc((size_t)run->ranks, sizeof *all);
    ls_status status = all ? ls__excess_open(&e, run, crowded) : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t c = 0; c < sizeof causes / sizeof *causes && !status; c++) {
        if (crowded && causes[c] == LS_PHASES) continue;
        status = ls__excess_look_at(e, causes[c]);
        double most = COARSE_WORTH * ls_run_step_mean(run);
        for (int r = 0; r < run->ranks && !status; r++) {
            if (!run->steps[run->n_warmup].rank[r].present) continue;
            if (joint && causes[c] == LS_PHASES) {
                double clear = ls__excess_usual(e, r).clear;
                if (clear > most) most = clear, *worst = r;
            } else {
                look_at(run, e, r, causes[c], &all[r]);
            }
        }
    }
    for (int r = 0; r < run->ranks && !status; r++) look_at_speed(run, r, &all[r]);
    free(all);
    ls__excess_free(&e);
    return status;
}

ls_status ls__find_stragglers(ls_run *run)
{
    ls__contention c = ls__contention_look(run);
    bool crowded = is_crowded(run), joint = c.ranks > 1 || (c.ranks && (c.present == 1 || c.crowded));
    int worst = -1;
    ls_status status = LS_OK;
    if (c.present > 1 && ls__counted(run) < FEWEST)
        ls__run_note(run, "%zu step%s counted, too few to tell a slow rank from chance; %d would do", ls__counted(run),
                     ls__s((int64_t)ls__counted(run)), FEWEST);
    else if (c.present > 1)
        status = compare_ranks(run, crowded, joint, &worst);
    if (!status && joint) ls__contention_add(run, &c, worst);
    return status;
}
