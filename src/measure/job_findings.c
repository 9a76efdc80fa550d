/* What all ranks lose alike, and what would be gained by a change. Each promise is a small model, written beside it. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "record/event_file.h"
#include "measure/contention.h"
#include "measure/findings.h"

/* The mean of a step's number over counted steps and ranks. */
static double mean_of(const ls_run *run, double (*of)(const ls_step_rank *s))
{
    double sum = 0, n = 0;
    for (size_t i = run->n_warmup; i < run->n_steps; i++)
        for (int r = 0; r < run->ranks; r++)
            if (run->steps[i].rank[r].present) sum += of(&run->steps[i].rank[r]), n++;
    return n > 0 ? sum / n : 0;
}

static double batch_ns(const ls_step_rank *s)
{
    return (double)s->batch_ns;
}
static double batches(const ls_step_rank *s)
{
    return s->batches;
}
static double major(const ls_step_rank *s)
{
    return (double)s->major;
}
double ls__common(const ls_run *run, ls_phase phase)
{
    double least = INFINITY;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) least = fmin(least, ls_run_mean(run, r, phase));
    return isfinite(least) ? least : 0;
}

int ls__first_present(const ls_run *run)
{
    int r = 0;
    while (r + 1 < run->ranks && !run->rank[r].present) r++;
    return r;
}

/* Time a step in which the rank that waits longest waits for data: the others then wait for that rank. */
static double longest_data(const ls_run *run)
{
    double sum = 0;
    for (size_t i = run->n_warmup; i < run->n_steps; i++) {
        int64_t most = 0;
        for (int r = 0; r < run->ranks; r++) most = ls__max(most, run->steps[i].rank[r].ns[LS_PHASE_DATA]);
        sum += (double)most;
    }
    return sum / (double)ls__counted(run);
}

/* Whether all ranks wait for batches that are not ready. Otherwise slow data are one rank's, which is a finding of its own. */
static bool all_starve(const ls_run *run)
{
    if (ls__common(run, LS_PHASE_DATA) < 0.25 * longest_data(run)) return false;
    for (int r = 0; r < run->ranks; r++) {
        int64_t batches = 0, missed = 0;
        for (size_t i = run->n_warmup; i < run->n_steps; i++) {
            batches += run->steps[i].rank[r].batches;
            missed += run->steps[i].rank[r].batches_missed;
        }
        if (run->rank[r].present && 2 * missed <= batches) return false;
    }
    return true;
}

/* Now this rank waits longer for data and now that one: that is the same finding. */
static void drop_turns(ls_run *run)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].kind != LS_FINDING_STRAGGLER || run->findings[i].phase != LS_PHASE_DATA)
            run->findings[n++] = run->findings[i];
    run->n_findings = n;
}

bool ls__is_train(const ls_run *run)
{
    return run->rank[ls__first_present(run)].metadata[LS_METADATA_TRAIN] > 0;
}

/* Data. Workers that together build batches faster than a step takes them hide all of it: w workers need load / w a step. */
static void look_at_data(ls_run *run)
{
    double step = ls_run_step_mean(run), data = longest_data(run), load = mean_of(run, batch_ns);
    double workers = run->rank[ls__first_present(run)].metadata[LS_METADATA_WORKERS];
    char a[24], b[24];
    if (data < 0.03 * step || !all_starve(run)) return;
    drop_turns(run);
    ls_finding *f = ls__finding_add(run, LS_FINDING_DATA);
    if (!f) return;
    if (!(workers >= 0)) workers = 0;
    double rest = step - data;
    int needed = (int)fmin(512, ceil(1.1 * load / rest));
    if (needed <= (int)workers) needed = (int)workers + 1;
    f->phase = LS_PHASE_DATA;
    f->steps = (int64_t)ls__counted(run);
    f->expected = (int64_t)fmax(rest, load / needed);
    f->cost = (int64_t)step - f->expected;
    snprintf(f->what, sizeof f->what, "training waits %s a step for data", ls__duration(data, a));
    snprintf(f->evidence, sizeof f->evidence,
             "the batches of a step take %s to build with %.0f worker%s, and the rest of the step %s",
             ls__duration(load, a), workers, workers == 1 ? "" : "s", ls__duration(rest, b));
    bool train = ls__is_train(run), staged = run->rank[ls__first_present(run)].metadata[LS_METADATA_STAGED] > 0;
    snprintf(f->change, sizeof f->change, train ? "--workers %d%s%s" : "%d workers%s%s", needed,
             staged ? "" : ", or a copy of the data on a local disk", train && !staged ? " (--stage)" : "");
}

/* A program that does not record its batches. Data that is loaded ahead would hide what all ranks spend on it. */
static void look_at_data_phase(ls_run *run)
{
    double step = ls_run_step_mean(run), data = ls__common(run, LS_PHASE_DATA);
    char a[24];
    if (data < 0.05 * step || mean_of(run, batches) > 0) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_DATA);
    if (!f) return;
    f->phase = LS_PHASE_DATA;
    f->steps = (int64_t)ls__counted(run);
    f->expected = (int64_t)fmax(step - data, data);
    f->cost = (int64_t)step - f->expected;
    snprintf(f->what, sizeof f->what, "%s takes %s a step for data", run->ranks > 1 ? "every rank" : "the program",
             ls__duration(data, a));
    snprintf(f->evidence, sizeof f->evidence, "that is %.0f%% of the step; nothing else is done meanwhile",
             100 * data / step);
    snprintf(f->change, sizeof f->change, "load the next batch in another thread while this one is computed");
}

/* ---- The rest. */

/* The one checkpoint that every run ends with is nobody's choice. */
static bool checkpoints_before_the_end(const ls_run *run)
{
    for (size_t i = run->n_warmup; i + 1 < run->n_steps; i++)
        for (int r = 0; r < run->ranks; r++)
            if (run->steps[i].rank[r].present && run->steps[i].rank[r].ns[LS_PHASE_CHECKPOINT] > 0) return true;
    return false;
}

static void look_at_phase(ls_run *run, ls_phase phase, ls_finding_kind kind, const char *what, const char *change)
{
    double step = ls_run_step_mean(run), own = 0;
    char a[24];
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) own = fmax(own, ls_run_mean(run, r, phase));
    if (own < 0.05 * step) return;
    ls_finding *f = ls__finding_add(run, kind);
    if (!f) return;
    f->phase = phase;
    f->cost = (int64_t)(own / 2);
    f->expected = (int64_t)(step - own / 2);
    f->steps = (int64_t)ls__counted(run);
    snprintf(f->what, sizeof f->what, "%s %s of a step, on average", what, ls__duration(own, a));
    snprintf(f->evidence, sizeof f->evidence, "%.0f%% of the run", 100 * own / step);
    snprintf(f->change, sizeof f->change, "%s", change);
}

static void look_at_machine(ls_run *run)
{
    double step = ls_run_step_mean(run), taken = ls__gain_without_steal(run), faults = mean_of(run, major);
    char a[24];
    if (taken > 0.05 * step) {
        ls_finding *f = ls__finding_add(run, LS_FINDING_STEAL);
        if (!f) return;
        f->cost = (int64_t)taken;
        f->expected = (int64_t)(step - taken);
        f->steps = (int64_t)ls__counted(run);
        snprintf(f->what, sizeof f->what, "the machine's host took cores away: that costs %s a step (steal)",
                 ls__duration(taken, a));
        snprintf(f->evidence, sizeof f->evidence,
                 "threads were neither off-CPU of their own accord nor in a run queue, and yet got no CPU time");
        snprintf(f->change, sizeof f->change, "a virtual machine shares its host: ask for dedicated cores");
    }
    if (faults > 1) {
        ls_finding *f = ls__finding_add(run, LS_FINDING_MEMORY);
        if (!f) return;
        f->cost = (int64_t)fmin(0.5 * step, faults * 1e5);
        f->expected = (int64_t)step - f->cost;
        f->steps = (int64_t)ls__counted(run);
        snprintf(f->what, sizeof f->what, "memory comes from disk: %.1f page faults a step", faults);
        snprintf(f->evidence, sizeof f->evidence, "each costs about 0.1 ms");
        snprintf(f->change, sizeof f->change,
                 "the data or the model do not fit in memory: fewer ranks, a smaller batch, or no swap");
    }
}

/* Waiting that no rank is to blame for. */
static void look_at_waiting(ls_run *run)
{
    double step = ls_run_step_mean(run), waiting = ls_run_mean(run, -1, LS_PHASE_WAIT), attributed = 0;
    char a[24];
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].kind == LS_FINDING_STRAGGLER || run->findings[i].kind == LS_FINDING_CORE ||
            run->findings[i].kind == LS_FINDING_STEAL)
            attributed += (double)run->findings[i].cost;
    if (all_starve(run)) attributed += fmax(0, longest_data(run) - ls_run_mean(run, -1, LS_PHASE_DATA));
    if (waiting - attributed < 0.1 * step) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_IMBALANCE);
    if (!f) return;
    f->phase = LS_PHASE_WAIT;
    f->cost = (int64_t)(waiting - attributed);
    f->expected = (int64_t)step - f->cost;
    f->steps = (int64_t)ls__counted(run);
    snprintf(f->what, sizeof f->what, "ranks wait %s a step for each other: no single straggler",
             ls__duration(waiting - attributed, a));
    snprintf(f->evidence, sizeof f->evidence, "the slowest rank varies");
    snprintf(f->change, sizeof f->change,
             "equal work in each step (equal-length sequences), or more micro-batches between optimizer steps");
}

ls_status ls__find_losses(ls_run *run)
{
    look_at_data(run);
    look_at_data_phase(run);
    ls_status status = ls__advise_comm(run);
    if (checkpoints_before_the_end(run) || !ls__is_train(run))
        look_at_phase(run, LS_PHASE_CHECKPOINT, LS_FINDING_CHECKPOINT, "checkpoints take",
                      ls__is_train(run) ? "checkpoint half as often (--checkpoint-every)" : "checkpoint half as often");
    look_at_phase(run, LS_PHASE_EVAL, LS_FINDING_EVAL, "evaluation takes",
                  ls__is_train(run) ? "evaluate half as often (--eval-every), or on fewer batches"
                                    : "evaluate half as often, or on fewer batches");
    look_at_machine(run);
    look_at_waiting(run);
    return status;
}
