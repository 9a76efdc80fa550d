/* What a rank loses in a few steps. A step's rise must be clear of a least share of a step, of the deviation of the rank's other
 * steps, and, unless it is repeated, of the tail: how far the other ranks' worst steps rise in that phase. In a step in which the
 * others compute more slowly, too, more is required. And all such steps together must cost more than they cost other ranks: a rank
 * that is in a few steps as late as any other is not a straggler.
 *
 * What stands out while computing, on a core, and not twice in one segment, may be the machine's: see LS__ONCE_WEIGHT. */
#include <math.h>
#include "measure/excess.h"
#include "measure/limits.h"

#define cell ls__excess_cell

/* A thread that lost its core returns to cold caches. What it then takes longer is not its own doing either. */
static bool has_cold_caches(const ls__excess *e, const ls_step_rank *s, double rise)
{
    if (e->crowded || e->cause >= LS_PHASE_COUNT || (double)(s->sched_delay[e->cause] + s->steal[e->cause]) < rise)
        return false;
    return rise < LS__COLD_CACHE * ((double)s->own[e->cause] - rise);
}

/* The steps of a rank in which a segment may stand out, in e->list. */
static size_t list_outstanding(const ls__excess *e, size_t rank)
{
    size_t n = 0;
    for (size_t i = 0; i < e->steps; i++)
        if (e->segments.rise[rank * e->steps + i] > e->segments.low[rank]) e->list[n++] = (uint32_t)i;
    return n;
}

/* Whether what stands out in `step` does so in other steps, too, in the same segment and to the same extent, and is not one of many
 * that do so elsewhere. A machine may be noisy for some steps in a row: neighbours do not count. `n`: of the list. */
static bool is_repeated(const ls__excess *e, size_t rank, size_t step, size_t n)
{
    const double *rise = e->segment_rise + rank * e->steps;
    const uint32_t *segment = e->segment + rank * e->steps;
    size_t same = 1;
    for (size_t k = 0; k < n && n < LS__REPEATS_MOST; k++) {
        size_t i = e->list[k];
        if ((i + 1 >= step && i <= step + 1) || segment[i] != segment[step]) continue;
        if (rise[i] < LS__ALIKE * rise[step] && rise[step] < LS__ALIKE * rise[i]) same++;
    }
    return same > 1 && 2 * same >= n;
}

/* What a rise must exceed: less if it is repeated. */
static double limit_of(const ls__excess *e, const ls__excess_table *t, size_t rank)
{
    size_t n = 0;
    for (size_t i = 0; i < e->steps; i++) n += t->rise[rank * e->steps + i] > t->low[rank];
    return n > 1 ? t->low[rank] : t->high[rank];
}

/* What stands out in a step of the phase as a whole, where its segments are not known. */
static double outstanding_phase(const ls__excess *e, size_t rank, size_t step, double limit)
{
    size_t at = rank * e->steps + step;
    if (ls__computes(e->cause)) limit = e->all.high[rank] + LS__RISE_NOISE * e->noise[at];
    double rise = e->all.rise[at];
    return isnan(e->segment_rise[at]) && rise > limit && !has_cold_caches(e, cell(e, rank, step), rise) ? rise : 0;
}

static double outstanding_segment(const ls__excess *e, size_t rank, size_t step, size_t n, bool *repeated)
{
    size_t at = rank * e->steps + step;
    double rise = e->segments.rise[at];
    *repeated = rise > e->segments.low[rank] && is_repeated(e, rank, step, n);
    return *repeated || rise > e->segments.high[rank] ? e->segment_rise[at] : 0;
}

static ls__lost sum_outstanding(const ls__excess *e, size_t rank)
{
    ls__lost lost = { 0 };
    double limit = limit_of(e, &e->all, rank), limit_off_cpu = limit_of(e, &e->off_cpu, rank);
    bool sure = !ls__computes(e->cause), repeated;
    size_t n = list_outstanding(e, rank);
    for (size_t i = 0; i < e->steps; i++) {
        double off_cpu = e->off_cpu.rise[rank * e->steps + i], out = outstanding_phase(e, rank, i, limit);
        if (out > 0 && lost.steps) sure = true;
        if (off_cpu > limit_off_cpu) out = fmax(out, off_cpu), sure = true;
        out = fmax(out, outstanding_segment(e, rank, i, n, &repeated));
        if (repeated) sure = true;
        if (!(out > 0)) continue;
        lost.cost += out / (double)e->steps;
        ls__lost_add(e, &lost, rank, i);
    }
    lost.once = !sure;
    return ls__lost_mean(lost);
}

void ls__excess_find_intermittent(ls__excess *e)
{
    for (size_t r = 0; r < e->ranks; r++)
        e->intermittent[r] = cell(e, r, 0)->present ? sum_outstanding(e, r) : (ls__lost){ 0 };
    for (int once = 0; once < 2; once++) {
        /* What may be noise counts little against what is not. */
        for (size_t r = 0; r < e->ranks; r++)
            e->across[r] = e->intermittent[r].cost * (e->intermittent[r].once && !once ? LS__ONCE_WEIGHT : 1);
        ls__high_of_others(e, e->across, e->high);
        for (size_t r = 0; r < e->ranks; r++)
            if (e->intermittent[r].once == once) e->intermittent[r].clear -= LS__OTHERS_FACTOR * e->high[r];
    }
}
