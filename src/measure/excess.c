/* Tables of what each rank spends beyond the others, with their medians, deviations and limits.
 *
 * The excess of a step is the rank's time minus the median of the other ranks' in the same step. Its rise is what remains above the
 * rank's own median, too: otherwise it would be a step in which all ranks were slow, or the others fast.
 *
 * Off-CPU time has a table of its own. Computing varies with caches and neighbours, but a thread that computes does not sleep, so a
 * sleep stands out where the same time on a core would not. Segments of a phase have one, too; see segments.c. */
#include "measure/excess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/findings.h"
#include "measure/limits.h"
#include "measure/segments.h"
#include "measure/stats.h"

#define cell ls__excess_cell

double ls__spent(const ls_run *run, const ls_step_rank *s, int cause)
{
    if (cause < LS_PHASE_COUNT) return (double)s->own[cause];
    double sum = (double)ls__sched_delay(run, s);
    for (int p = 0; p < LS_PHASE_COUNT; p++)
        if (p != LS_PHASE_WAIT && p != LS_PHASE_COMM) sum += (double)s->steal[p];
    return sum;
}

static double off_cpu(const ls_run *run, const ls_step_rank *s, int cause)
{
    (void)run;
    return cause < LS_PHASE_COUNT ? (double)s->off_cpu[cause] : 0;
}

/* Fills t->excess; t->rise gets the ranks' own times, of which fill() makes rises. */
static void subtract_median_of_others(ls__excess *e, ls__excess_table *t,
                                      double (*of)(const ls_run *, const ls_step_rank *, int))
{
    for (size_t i = 0; i < e->steps; i++) {
        size_t n = 0;
        for (size_t r = 0; r < e->ranks; r++)
            if (cell(e, r, i)->present) e->across[n++] = of(e->run, cell(e, r, i), e->cause);
        ls__sort(e->across, n);
        for (size_t r = 0; r < e->ranks; r++) {
            double value = cell(e, r, i)->present ? of(e->run, cell(e, r, i), e->cause) : 0;
            t->rise[r * e->steps + i] = value;
            t->excess[r * e->steps + i] = cell(e, r, i)->present ? value - ls__median_without(e->across, n, value) : 0;
        }
    }
}

static double median_of(const ls__excess *e, const double *values)
{
    memcpy(e->scratch, values, e->steps * sizeof *values);
    return ls__median(e->scratch, e->steps);
}

bool ls__is_persistent(const ls__excess *e, const ls__excess_table *t, size_t rank)
{
    double least = ls__computes(e->cause) ? LS__PERSISTENT_COMPUTE : LS__PERSISTENT_PLACE;
    return t->median[rank] > least * e->step &&
           t->median[rank] > LS__PERSISTENT_ERRORS * t->deviation[rank] / sqrt((double)e->steps);
}

void ls__high_of_others(const ls__excess *e, const double *values, double *out)
{
    double *sorted = e->across + e->ranks; /* `values` may be the first half */
    size_t n = 0;
    for (size_t r = 0; r < e->ranks; r++)
        if (cell(e, r, 0)->present) sorted[n++] = values[r];
    ls__sort(sorted, n);
    for (size_t r = 0; r < e->ranks; r++)
        out[r] = cell(e, r, 0)->present ? ls__percentile_without(sorted, n, values[r], LS__OTHERS_QUARTILE) : 0;
}

static void set_limits(ls__excess *e, ls__excess_table *t)
{
    double *tails = e->across;
    for (size_t r = 0; r < e->ranks; r++) {
        memcpy(e->scratch, t->rise + r * e->steps, e->steps * sizeof *e->scratch);
        tails[r] = ls__trimmed_max(e->scratch, e->steps, LS__TAIL_TRIM);
    }
    ls__high_of_others(e, tails, t->high);
    for (size_t r = 0; r < e->ranks; r++) {
        t->low[r] = fmax(fmax(LS__RISE_NS, LS__RISE_SHARE * e->step), LS__RISE_DEVIATIONS * t->deviation[r]);
        t->high[r] = fmax(t->low[r], LS__RISE_TAIL * t->high[r]);
    }
}

static void fill(ls__excess *e, ls__excess_table *t, double (*of)(const ls_run *, const ls_step_rank *, int))
{
    size_t n = e->steps, p = e->ranks;
    subtract_median_of_others(e, t, of);
    for (size_t r = 0; r < p; r++) {
        double *excess = t->excess + r * n, *rise = t->rise + r * n, own = median_of(e, rise);
        t->median[r] = median_of(e, excess);
        t->deviation[r] = ls__mad(excess, n, t->median[r], e->scratch);
        double base = ls__is_persistent(e, t, r) ? t->median[r] : fmax(t->median[r], 0);
        for (size_t i = 0; i < n; i++) rise[i] = fmin(excess[i] - base, rise[i] - own);
    }
    set_limits(e, t);
}

/* What segments.c returns is a rise already. Where a segment rises in most steps, the limit must be clear of that. */
static ls_status fill_segments(ls__excess *e, ls__excess_table *t)
{
    size_t n = e->steps;
    ls__segments out = { .rise = e->segment_rise,
                         .segment = e->segment,
                         .apart = t->rise,
                         .median = e->segment_median,
                         .median_apart = e->segment_apart };
    ls_status status =
        ls__segments_compare(e->run, e->cause < LS_PHASE_COUNT ? (ls_phase)e->cause : LS_PHASE_OTHER, &out);
    for (size_t r = 0; r < e->ranks && !status; r++) {
        double *rise = t->rise + r * n;
        for (size_t i = 0; i < n; i++) rise[i] = fmax(0, rise[i]);
        double median = median_of(e, rise);
        t->deviation[r] = ls__mad(rise, n, median, e->scratch) + median / LS__RISE_DEVIATIONS;
    }
    if (!status) set_limits(e, t);
    return status;
}

ls_status ls__excess_compare(ls__excess *e, int cause)
{
    e->cause = cause;
    fill(e, &e->all, ls__spent);
    ls__high_of_others(e, e->all.median, e->others_median);
    fill(e, &e->off_cpu, off_cpu);
    ls_status status = fill_segments(e, &e->segments);
    if (!status) ls__excess_find_intermittent(e);
    return status;
}

void ls__lost_add(const ls__excess *e, ls__lost *lost, size_t rank, size_t step)
{
    double own = ls__spent(e->run, cell(e, rank, step), e->cause);
    int64_t number = e->run->steps[e->run->first_counted + step].number;
    if (!lost->steps++) lost->first = number;
    lost->last = number;
    lost->own += own;
    lost->other += own - e->all.excess[rank * e->steps + step];
}

ls__lost ls__lost_mean(ls__lost lost)
{
    if (lost.steps) lost.own /= (double)lost.steps, lost.other /= (double)lost.steps;
    lost.clear = lost.cost;
    return lost;
}

/* What the other ranks' computing took beyond their medians, step by step. */
static void find_noise(ls__excess *e)
{
    size_t n = e->steps;
    for (size_t r = 0; r < e->ranks; r++) {
        if (!cell(e, r, 0)->present) continue;
        double *row = e->noise + r * n;
        for (size_t i = 0; i < n; i++)
            row[i] = ls__spent(e->run, cell(e, r, i), LS_PHASE_FORWARD) +
                     ls__spent(e->run, cell(e, r, i), LS_PHASE_BACKWARD);
        double median = median_of(e, row);
        for (size_t i = 0; i < n; i++) row[i] -= median;
    }
    for (size_t i = 0; i < n; i++) {
        size_t present = 0;
        for (size_t r = 0; r < e->ranks; r++)
            if (cell(e, r, i)->present) e->across[present++] = e->noise[r * n + i];
        ls__sort(e->across, present);
        for (size_t r = 0; r < e->ranks; r++) {
            double *own = &e->noise[r * n + i];
            /* One other rank is not enough to judge the machine by. */
            bool known = cell(e, r, i)->present && present > 2;
            *own = known ? fmax(0, ls__median_without(e->across, present, *own)) : 0;
        }
    }
}

static double median_step(const ls__excess *e)
{
    for (size_t i = 0; i < e->steps; i++) {
        double sum = 0, count = 0;
        for (size_t r = 0; r < e->ranks; r++)
            if (cell(e, r, i)->present) sum += (double)(cell(e, r, i)->end - cell(e, r, i)->begin), count++;
        e->scratch[i] = sum / fmax(1, count);
    }
    return ls__median(e->scratch, e->steps);
}

ls_status ls__excess_open(ls__excess **out, const ls_run *run, bool crowded)
{
    size_t n = ls__counted(run), p = (size_t)run->ranks, table = n * p;
    ls__excess *e = *out = calloc(1, sizeof *e);
    double *at = e ? malloc((7 * table + 18 * p + n) * sizeof *at) : NULL;
    ls__lost *intermittent = at ? malloc(p * sizeof *intermittent) : NULL;
    uint32_t *segment = intermittent ? malloc((table + n) * sizeof *segment) : NULL;
    if (!segment) {
        free(intermittent);
        free(at);
        free(e);
        *out = NULL;
        return ls__fail(LS_ENOMEM, "%s: no memory for %zu steps of %zu ranks", run->path, n, p);
    }
    *e = (ls__excess){ .run = run, .steps = n, .ranks = p, .crowded = crowded };
    e->intermittent = intermittent;
    e->segment = segment;
    e->list = segment + table;
    double **by_step[] = { &e->all.excess /* owns the memory */,
                           &e->all.rise,
                           &e->off_cpu.excess,
                           &e->off_cpu.rise,
                           &e->segments.rise,
                           &e->segment_rise,
                           &e->noise };
    for (size_t i = 0; i < 7; i++, at += table) *by_step[i] = at;
    ls__excess_table *tables[] = { &e->all, &e->off_cpu, &e->segments };
    for (int i = 0; i < 3; i++) {
        double **by_rank[] = { &tables[i]->median, &tables[i]->deviation, &tables[i]->low, &tables[i]->high };
        for (int k = 0; k < 4; k++, at += p) *by_rank[k] = at;
    }
    e->segment_median = at;
    e->segment_apart = at + p;
    e->others_median = at + 2 * p;
    e->high = at + 3 * p;
    e->across = at + 4 * p;
    e->scratch = at + 6 * p;
    e->step = median_step(e);
    find_noise(e);
    return LS_OK;
}

void ls__excess_free(ls__excess **pe)
{
    if (!*pe) return;
    free((*pe)->all.excess);
    free((*pe)->intermittent);
    free((*pe)->segment);
    free(*pe);
    *pe = NULL;
}
