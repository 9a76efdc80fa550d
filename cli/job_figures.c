/* See job_figures.h. Numbers that need more than sums over the ranks are lockstep/measure.h's. */
#include "cli/job_figures.h"

#include <math.h>
#include <stdio.h>
#include "cli/amount.h"
#include "cli/findings_text.h"

#define LABEL(out, ...) snprintf((out)->label, sizeof(out)->label, __VA_ARGS__)
#define VALUE(out, ...) snprintf((out)->value, sizeof(out)->value, __VA_ARGS__)

/* ---- How the ranks use their cores and memory. */

typedef struct use_sum {
    double cpu, wall, unscheduled, resident, most;
    int threads, ranks;
} use_sum;

static use_sum sum_use(const ls_run *run)
{
    use_sum s = { 0 };
    double delay = 0, steal = 0;
    for (int r = 0; r < run->ranks; r++) {
        const ls_resource_use *u = &run->rank[r].use;
        if (!run->rank[r].present || !(u->wall > 0)) continue;
        s.ranks++;
        s.cpu += u->cpu;
        s.wall += u->wall;
        delay += u->sched_delay;
        steal += u->steal;
        s.resident += u->resident;
        s.most = fmax(s.most, u->resident);
        if (run->rank[r].threads > s.threads) s.threads = run->rank[r].threads;
    }
    s.unscheduled = delay + steal;
    return s;
}

static const char *mean_words(const use_sum *s)
{
    return s->ranks > 1 ? ", mean of the ranks" : "";
}

static double unscheduled(const ls_run *run)
{
    use_sum s = sum_use(run);
    return s.unscheduled > 0 ? s.unscheduled : (double)NAN;
}
static void put_unscheduled(const ls_run *run, double x, job_figure_text *out)
{
    use_sum s = sum_use(run);
    VALUE(out, "%s", amount_share(x / s.wall).text);
    LABEL(out, "unscheduled (run-queue delay or steal)%s", mean_words(&s));
    out->warn = x > 0.05 * s.wall;
}

static double cores_busy(const ls_run *run)
{
    use_sum s = sum_use(run);
    return s.cpu > 0 ? s.cpu / s.wall : (double)NAN;
}
static void put_cores_busy(const ls_run *run, double x, job_figure_text *out)
{
    use_sum s = sum_use(run);
    VALUE(out, "%.2f of %d", x, s.threads);
    LABEL(out, "core%s busy%s", s.threads == 1 ? "" : "s", mean_words(&s));
}

static double peak_memory(const ls_run *run)
{
    use_sum s = sum_use(run);
    return s.most > 0 ? s.most : (double)NAN;
}
static void put_peak_memory(const ls_run *run, double x, job_figure_text *out)
{
    use_sum s = sum_use(run);
    VALUE(out, "%s", amount_bytes(x).text);
    if (s.ranks > 1)
        LABEL(out, "peak memory of a rank; %s in total", amount_bytes(s.resident).text);
    else
        LABEL(out, "peak memory");
}

static double mfu(const ls_run *run)
{
    double sum = 0, count = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].use.wall > 0 && isfinite(run->rank[r].use.mfu))
            sum += run->rank[r].use.mfu, count++;
    return count > 0 ? sum / count : (double)NAN;
}
static void put_mfu(const ls_run *run, double x, job_figure_text *out)
{
    (void)run;
    VALUE(out, "%s", amount_share(x).text);
    LABEL(out, "MFU (%% of measured SGEMM)%s",
          x > 1 ? "; above 100% because other programs used the cores while SGEMM was measured" : "");
}

/* ---- What a step consists of. */

static double computing(const ls_run *run)
{
    double sum = 0;
    for (int i = LS_PHASE_FORWARD; i <= LS_PHASE_UPDATE; i++) sum += ls_run_mean(run, -1, (ls_phase)i);
    return sum;
}
static void put_computing(const ls_run *run, double x, job_figure_text *out)
{
    VALUE(out, "%s", amount_share(x / run->step_mean).text);
    LABEL(out, "of the step is forward, backward and update");
}

static double waiting(const ls_run *run)
{
    return run->ranks > 1 && findings_waits_known(run) ? ls_run_mean(run, -1, LS_PHASE_WAIT) : (double)NAN;
}
static void put_waiting(const ls_run *run, double x, job_figure_text *out)
{
    double step = run->step_mean;
    VALUE(out, "%s", amount_share(x / step).text);
    LABEL(out, "waiting for other ranks, %s per step", amount_ns(x).text);
    out->warn = x > 0.1 * step;
}

static double exposed(const ls_run *run)
{
    return run->ranks > 1 ? ls_run_mean(run, -1, LS_PHASE_COMM) : (double)NAN;
}
static void put_exposed(const ls_run *run, double x, job_figure_text *out)
{
    double step = run->step_mean;
    VALUE(out, "%s", amount_share(x / step).text);
    LABEL(out, "exposed communication; %s per step overlapped", amount_ns(ls_run_overlapped(run, -1)).text);
    out->warn = x > 0.1 * step;
}

/* ---- How fast it is. */

static double step_mean(const ls_run *run)
{
    return run->step_mean;
}
static void title_step(double x, char *out, size_t bytes)
{
    snprintf(out, bytes, ", %s per step", amount_ns(x).text);
}

static double token_rate(const ls_run *run)
{
    double tokens = run->tokens, step = run->step_mean;
    return tokens > 0 && step > 0 ? tokens / step * 1e9 : (double)NAN;
}
static void title_tokens(double x, char *out, size_t bytes)
{
    snprintf(out, bytes, ", %.0f tokens/s", x);
}

const job_figure job_figures[] = {
    { "step_ns", step_mean, title_step, NULL },   { NULL, token_rate, title_tokens, NULL },
    { NULL, computing, NULL, put_computing },     { NULL, waiting, NULL, put_waiting },
    { NULL, exposed, NULL, put_exposed },         { NULL, mfu, NULL, put_mfu },
    { NULL, unscheduled, NULL, put_unscheduled }, { NULL, cores_busy, NULL, put_cores_busy },
    { NULL, peak_memory, NULL, put_peak_memory },
};
const int n_job_figures = sizeof job_figures / sizeof *job_figures;

run_change run_compare(const ls_run *before, const ls_run *after, int phase)
{
    double step = before->step_mean;
    run_change c = { .before = step, .after = after->step_mean };
    if (phase < LS_PHASE_COUNT) {
        c.before = ls_run_mean(before, -1, (ls_phase)phase);
        c.after = ls_run_mean(after, -1, (ls_phase)phase);
    }
    c.share = step > 0 ? (c.after - c.before) / step : 0;
    return c;
}
