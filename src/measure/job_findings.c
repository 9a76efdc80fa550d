/* What all ranks lose alike, and what a change would gain. Each expected time is a small model, described with it. */
#include <math.h>
#include <stdlib.h>
#include "measure/contention.h"
#include "measure/findings.h"
#include "measure/limits.h"

double ls__common(const ls_run *run, ls_phase phase)
{
    double least = INFINITY;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) least = fmin(least, ls_run_mean(run, r, phase));
    return isfinite(least) ? least : 0;
}

double ls__metadata(const ls_run *run, ls_metadata_kind kind)
{
    int r = 0;
    while (r + 1 < run->ranks && !run->rank[r].present) r++;
    return run->rank[r].metadata[kind];
}

/* ---- Data. */

ls__data_load ls__data_load_of(const ls_run *run, int rank)
{
    ls_run_loading l = ls_run_get_loading(run, rank);
    return (ls__data_load){ .wall = run->rank[rank].use.wall,
                            .waited = ls_run_mean(run, rank, LS_PHASE_DATA),
                            .batches = l.batches,
                            .missed = (1 - l.ready) * l.batches,
                            .build = l.build * l.batches };
}

/* Time of a step in which the rank that waits longest waits for data: the others then wait for that rank. */
static double longest_data(const ls_run *run)
{
    double sum = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        int64_t most = 0;
        for (int r = 0; r < run->ranks; r++) most = ls__max(most, run->steps[i].rank[r].ns[LS_PHASE_DATA]);
        sum += (double)most;
    }
    return sum / (double)ls__counted(run);
}

static bool is_data_straggler(const ls_finding *f)
{
    return f->kind == LS_FINDING_STRAGGLER && f->phase == LS_PHASE_DATA;
}

/* Time of a step by which the ranks' waits for data differ, where that is more than a step varies; run-queue delay is not part of it. */
static double uneven_data(const ls_run *run)
{
    double sum = 0, least_of_step = fmax(LS__RISE_NS, LS__RISE_SHARE * run->step_mean);
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        int64_t most = 0, least = INT64_MAX;
        for (int r = 0; r < run->ranks; r++) {
            if (!run->steps[i].rank[r].present) continue;
            most = ls__max(most, run->steps[i].rank[r].own[LS_PHASE_DATA]);
            least = ls__min(least, run->steps[i].rank[r].own[LS_PHASE_DATA]);
        }
        if ((double)(most - least) > least_of_step) sum += (double)(most - least);
    }
    return sum / (double)ls__counted(run);
}

/* ns of a step that a straggler spends beyond the others. */
static double excess_of(const ls_run *run, const ls_finding *f)
{
    return (f->evidence.rank.own - f->evidence.rank.others) * (double)f->steps / (double)ls__counted(run);
}

/* The straggler that nearly all of that is due to. If now this rank waits longer for data and now that one, none is. */
static const ls_finding *data_straggler(const ls_run *run)
{
    const ls_finding *found = NULL;
    for (size_t i = 0; i < run->n_findings; i++)
        if (is_data_straggler(&run->findings[i]) && (!found || run->findings[i].cost > found->cost))
            found = &run->findings[i];
    return found && excess_of(run, found) > LS__DATA_ONE_RANK * uneven_data(run) ? found : NULL;
}

/* The same as longest_data() without what a straggler loses by itself. */
static double common_data(const ls_run *run)
{
    const ls_finding *one = data_straggler(run);
    return fmax(0, longest_data(run) - (one ? excess_of(run, one) : 0));
}

/* Whether all ranks wait for batches that are not ready. Otherwise slow data are one rank's, which is another finding. */
static bool data_stalls_all(const ls_run *run)
{
    const ls_finding *one = data_straggler(run);
    ls__data_load *all = malloc((size_t)run->ranks * sizeof *all);
    int n = 0, slowest = 0, fastest = 0;
    for (int r = 0; r < run->ranks && all; r++) {
        if (!run->rank[r].present) continue;
        all[n] = ls__data_load_of(run, r);
        if (one && one->rank == r) all[n].waited = fmax(0, all[n].waited - excess_of(run, one));
        if (all[n].waited > all[slowest].waited) slowest = n;
        n++;
    }
    /* Which rank is slowest may vary: each step takes as long as its slowest. */
    if (n) all[slowest].waited = common_data(run);
    bool stalls = ls__data_stall_find(all, n, &slowest, &fastest) == LS__DATA_STALLS_ALL;
    free(all);
    return stalls;
}

/* What all ranks lose now and then is the same finding as that they wait for data. */
static void remove_data_stragglers(ls_run *run)
{
    size_t n = 0;
    const ls_finding *one = data_straggler(run);
    for (size_t i = 0; i < run->n_findings; i++)
        if (!is_data_straggler(&run->findings[i]) || one == &run->findings[i]) run->findings[n++] = run->findings[i];
    run->n_findings = n;
}

/* Workers that together build batches faster than a step takes them hide all of it: w workers need build / w per step. */
static void find_late_batches(ls_run *run)
{
    double step = run->step_mean, waited = common_data(run), build = 0, present = 0;
    double workers = fmax(0, ls__metadata(run, LS_METADATA_WORKERS)); /* 0 if it is not known */
    if (!data_stalls_all(run)) return;
    for (int r = 0; r < run->ranks; r++) {
        ls_run_loading l = ls_run_get_loading(run, r);
        if (run->rank[r].present) build += l.build * l.batches, present++;
    }
    build /= fmax(1, present);
    remove_data_stragglers(run);
    double rest = step - waited, needed = fmin(LS__WORKERS_MOST, ceil(LS__WORKERS_SPARE * build / rest));
    if (needed <= workers) needed = floor(workers) + 1;
    double expected = fmax(rest, build / needed);
    ls_finding *f = ls__finding_add(run, LS_FINDING_DATA, LS_PHASE_DATA, LS_REMEDY_MORE_WORKERS, step - expected);
    if (!f) return;
    f->target = needed;
    f->evidence.data = (ls_data_evidence){ .waited = waited, .build = build, .rest = rest };
}

/* A program that does not record its batches. Data that is loaded ahead would hide what all ranks spend on it. */
static void find_inline_data(ls_run *run)
{
    double step = run->step_mean, data = ls__common(run, LS_PHASE_DATA), batches = 0;
    for (int r = 0; r < run->ranks; r++) batches += ls_run_get_loading(run, r).batches;
    if (data < LS__DATA_UNRECORDED * step || batches > 0) return;
    ls_finding *f =
        ls__finding_add(run, LS_FINDING_DATA, LS_PHASE_DATA, LS_REMEDY_PREFETCH, step - fmax(step - data, data));
    if (f) f->evidence.data = (ls_data_evidence){ .waited = data, .build = NAN, .rest = step - data };
}

/* ---- Checkpoints and evaluation. */

/* The checkpoint that every run of the trainer ends with is not an option. */
static bool checkpoints_before_the_end(const ls_run *run)
{
    for (size_t i = run->first_counted; i + 1 < run->n_steps; i++)
        for (int r = 0; r < run->ranks; r++)
            if (run->steps[i].rank[r].present && run->steps[i].rank[r].ns[LS_PHASE_CHECKPOINT] > 0) return true;
    return !(ls__metadata(run, LS_METADATA_TRAIN) > 0);
}

/* Half as often is half the cost. */
static void find_phase(ls_run *run, ls_phase phase, ls_finding_kind kind, ls_remedy remedy)
{
    double own = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) own = fmax(own, ls_run_mean(run, r, phase));
    if (own < LS__PHASE_SHARE * run->step_mean) return;
    ls_finding *f = ls__finding_add(run, kind, phase, remedy, own / 2);
    if (f) f->evidence.lost = own;
}

/* ---- The machine. */

static void find_steal(ls_run *run)
{
    double lost = ls__gain_without_steal(run);
    if (lost <= LS__STEAL_SHARE * run->step_mean) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_STEAL, LS_PHASE_OTHER, LS_REMEDY_DEDICATED_CORES, lost);
    if (f) f->evidence.lost = lost;
}

static void find_page_faults(ls_run *run)
{
    double faults = 0, present = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) faults += run->rank[r].use.major, present++;
    faults /= fmax(1, present);
    if (faults <= LS__FAULTS) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_PAGE_FAULTS, LS_PHASE_OTHER, LS_REMEDY_LESS_MEMORY,
                                    fmin(0.5 * run->step_mean, faults * LS__FAULT_NS));
    if (f) f->evidence.faults = faults;
}

/* Waiting that no finding explains. */
static void find_imbalance(ls_run *run)
{
    double waiting = ls_run_mean(run, -1, LS_PHASE_WAIT), explained = 0;
    for (size_t i = 0; i < run->n_findings; i++) switch (run->findings[i].kind) {
        case LS_FINDING_STRAGGLER:
        case LS_FINDING_SLOW_CORE:
        case LS_FINDING_PREEMPTED:
        case LS_FINDING_CONTENTION:
        case LS_FINDING_OVERSUBSCRIPTION:
        case LS_FINDING_STEAL: explained += (double)run->findings[i].cost; break;
        default: break;
        }
    if (data_stalls_all(run)) explained += fmax(0, common_data(run) - ls_run_mean(run, -1, LS_PHASE_DATA));
    if (waiting - explained < LS__IMBALANCE_SHARE * run->step_mean) return;
    ls_finding *f =
        ls__finding_add(run, LS_FINDING_IMBALANCE, LS_PHASE_WAIT, LS_REMEDY_EQUAL_WORK, waiting - explained);
    if (f) f->evidence.lost = waiting - explained;
}

ls_status ls__find_for_job(ls_run *run)
{
    find_late_batches(run);
    find_inline_data(run);
    ls_status status = ls__find_in_comm(run);
    if (checkpoints_before_the_end(run))
        find_phase(run, LS_PHASE_CHECKPOINT, LS_FINDING_CHECKPOINT, LS_REMEDY_FEWER_CHECKPOINTS);
    find_phase(run, LS_PHASE_EVAL, LS_FINDING_EVAL, LS_REMEDY_FEWER_EVALS);
    find_steal(run);
    find_page_faults(run);
    find_imbalance(run);
    return status;
}
