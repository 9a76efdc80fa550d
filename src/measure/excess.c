/* What a rank spends beyond the others, and what of it stands out.
 *
 * The excess of a step is the rank's time in the phase minus the median of the others' in the same step. If its median over all steps is
 * large, it is usual. If not, single steps may stand out. Such a step must rise above the others in that step, and above what the rank
 * itself usually takes: otherwise it is a step in which all were slow, or the others quick. The rise must be clear of three things:
 * a least share of a step, the deviation of this rank's other steps, and the tail, which is how far the others' worst steps rise in
 * that phase. The tail is not asked of what comes again. In a step in which the machine is restless and all are slower, more is asked. And what
 * such steps cost together must be clear of what they cost others: a rank that is now and then as late as anybody is no straggler.
 *
 * Time off_cpu is looked at by itself too. Computing varies, by caches and neighbours; but a thread that computes does not sleep, so a
 * sleep stands out where the same time at work would not. And so are the segments that a phase is made of; see fine.c.
 *
 * What stands out at work while computing, and never again at that place, may be the machine's: see LS__CHANCE. */
#include "measure/excess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/findings.h"
#include "measure/segments.h"

/* Shares of a step. Two ranks of one machine compute at speeds that differ by some hundredths for good, by their place on the chip. */
#define USUAL  0.04 /* median excess of forward and backward */
#define PLACE  0.03 /* the same, at one place of them, or in another phase */
#define SUDDEN 0.03 /* rise of a single step */
#define NOISE  3.0  /* and so many deviations */
#define TAIL   1.7  /* and so many times the tail of the others */
#define TURNS  2.0  /* and all such steps together, what others lose in such steps */
#define UNREST 2.0  /* and so many times what the others rise in that step, where there are some */
#define ALIKE  1.5  /* two steps lose the same if neither loses so many times the other's */
#define LEAST  50e3 /* and so many ns: less is the clock and the cache */

typedef struct table {
    double *excess, *rise; /* [ranks][steps] */
    double *usual;         /* [ranks]: median excess */
    double *low, *limit;   /* [ranks]: what a rise must exceed if it comes again, and if it comes once */
    double *deviation;     /* [ranks] */
} table;

struct ls__excess {
    const ls_run *run;
    size_t steps, ranks;
    double step;  /* the median */
    bool crowded; /* there are more ranks than cores */
    int cause;
    table all, off_cpu, fine; /* fine: its rise is what is apart; see fine.h */
    double *most;             /* [ranks][steps]; and what follows [ranks]: the same file's */
    double *usual, *usual_apart;
    double *unrest;   /* [ranks][steps]: what the others' forward and backward took beyond their usual, the median */
    uint32_t *place;  /* [ranks][steps]: see fine.h */
    uint32_t *list;   /* [steps] */
    ls__loss *sudden; /* [ranks] */
    double *room;     /* [steps] */
    double *now;      /* [2 * ranks] */
};

double ls__spent(const ls_step_rank *s, int cause)
{
    double sum = 0;
    if (cause < LS_PHASES) return (double)s->own[cause];
    for (int p = 0; p < LS_PHASES; p++)
        if (p != LS_PHASE_WAIT && p != LS_PHASE_COMM) sum += (double)s->sched_delay[p] + (double)s->steal[p];
    return sum;
}

static double slept(const ls_step_rank *s, int cause)
{
    return cause < LS_PHASES ? (double)s->off_cpu[cause] : 0;
}

static const ls_step_rank *cell(const ls__excess *e, size_t rank, size_t step)
{
    return &e->run->steps[e->run->n_warmup + step].rank[rank];
}

/* The median of n sorted values without one of them. */
static double median_without(const double *sorted, size_t n, double value)
{
    size_t at = 0, h = (n - 1) / 2;
    if (n < 2) return 0;
    while (at + 1 < n && sorted[at] < value) at++;
    double upper = sorted[h < at ? h : h + 1];
    return (n - 1) % 2 ? upper : (sorted[h - 1 < at ? h - 1 : h] + upper) / 2;
}

/* Fills t->excess; t->rise gets the ranks' own times, of which fill() makes rises. */
static void compare_ranks(ls__excess *e, table *t, double (*of)(const ls_step_rank *, int))
{
    for (size_t i = 0; i < e->steps; i++) {
        size_t n = 0;
        for (size_t r = 0; r < e->ranks; r++)
            if (cell(e, r, i)->present) e->now[n++] = of(cell(e, r, i), e->cause);
        ls__sort(e->now, n);
        for (size_t r = 0; r < e->ranks; r++) {
            double value = cell(e, r, i)->present ? of(cell(e, r, i), e->cause) : 0;
            t->rise[r * e->steps + i] = value;
            t->excess[r * e->steps + i] = cell(e, r, i)->present ? value - median_without(e->now, n, value) : 0;
        }
    }
}

static bool computes(int cause)
{
    return cause == LS_PHASE_FORWARD || cause == LS_PHASE_BACKWARD;
}

static double median_of(const ls__excess *e, const double *values)
{
    memcpy(e->room, values, e->steps * sizeof *values);
    return ls__median(e->room, e->steps);
}

/* How far the worst steps of a rank rise: one in fifty, the worst at least, may rise higher. */
static double tail_of(const ls__excess *e, const double *rise)
{
    size_t above = e->steps / 50;
    memcpy(e->room, rise, e->steps * sizeof *rise);
    ls__sort(e->room, e->steps);
    return e->room[e->steps - 1 - above];
}

static bool is_usual(const ls__excess *e, const table *t, size_t rank)
{
    double least = computes(e->cause) ? USUAL : PLACE;
    return t->usual[rank] > least * e->step && t->usual[rank] > 3 * t->deviation[rank] / sqrt((double)e->steps);
}

/* What is high among the other ranks. There may be more than one straggler: the highest quarter is not asked. `values` is e->now. */
static double high_of_others(const ls__excess *e, const double *values, size_t rank)
{
    double *others = e->now + e->ranks;
    size_t m = 0;
    for (size_t q = 0; q < e->ranks; q++)
        if (q != rank && cell(e, q, 0)->present) others[m++] = values[q];
    ls__sort(others, m);
    return m ? others[3 * m / 4] : 0;
}

static void set_limits(ls__excess *e, table *t)
{
    double *tails = e->now;
    for (size_t r = 0; r < e->ranks; r++) tails[r] = tail_of(e, t->rise + r * e->steps);
    for (size_t r = 0; r < e->ranks; r++) {
        t->low[r] = fmax(fmax(LEAST, SUDDEN * e->step), NOISE * t->deviation[r]);
        t->limit[r] = fmax(t->low[r], TAIL * high_of_others(e, tails, r));
    }
}

static void fill(ls__excess *e, table *t, double (*of)(const ls_step_rank *, int))
{
    size_t n = e->steps, p = e->ranks;
    compare_ranks(e, t, of);
    for (size_t r = 0; r < p; r++) {
        double *excess = t->excess + r * n, *rise = t->rise + r * n, own = median_of(e, rise);
        t->usual[r] = median_of(e, excess);
        for (size_t i = 0; i < n; i++) e->room[i] = fabs(excess[i] - t->usual[r]);
        t->deviation[r] = 1.4826 * ls__median(e->room, n);
        double base = is_usual(e, t, r) ? t->usual[r] : fmax(t->usual[r], 0);
        for (size_t i = 0; i < n; i++) rise[i] = fmin(excess[i] - base, rise[i] - own);
    }
    set_limits(e, t);
}

/* What is apart is a rise already; of one that is there in most steps, the limit must be clear. */
static ls_status fill_fine(ls__excess *e, table *t)
{
    size_t n = e->steps;
    ls__segments out = {
        .most = e->most, .place = e->place, .apart = t->rise, .usual = e->usual, .usual_apart = e->usual_apart
    };
    ls_status status = ls__segments_fill(e->run, e->cause < LS_PHASES ? (ls_phase)e->cause : LS_PHASE_OTHER, &out);
    for (size_t r = 0; r < e->ranks && !status; r++) {
        double *rise = t->rise + r * n;
        for (size_t i = 0; i < n; i++) rise[i] = fmax(0, rise[i]);
        double usual = median_of(e, rise);
        for (size_t i = 0; i < n; i++) e->room[i] = fabs(rise[i] - usual);
        t->deviation[r] = 1.4826 * ls__median(e->room, n) + usual / NOISE;
    }
    if (!status) set_limits(e, t);
    return status;
}

/* A thread that lost its core to another program comes back to cold caches: what it then takes longer, up to half of the phase, is
 * not its own doing either. */
static bool disturbed(const ls__excess *e, const ls_step_rank *s, double rise)
{
    if (e->crowded || e->cause >= LS_PHASES || (double)(s->sched_delay[e->cause] + s->steal[e->cause]) < rise)
        return false;
    return rise < 0.5 * ((double)s->own[e->cause] - rise);
}

static void add_step(const ls__excess *e, ls__loss *loss, size_t rank, size_t step)
{
    double own = ls__spent(cell(e, rank, step), e->cause);
    loss->steps++;
    loss->own += own;
    loss->other += own - e->all.excess[rank * e->steps + step];
}

static ls__loss mean_loss(ls__loss loss)
{
    if (loss.steps) loss.own /= (double)loss.steps, loss.other /= (double)loss.steps;
    loss.clear = loss.cost;
    return loss;
}

/* The steps of a rank in which a segment may stand out, in e->list. */
static size_t list_outstanding(const ls__excess *e, size_t rank)
{
    size_t n = 0;
    for (size_t i = 0; i < e->steps; i++)
        if (e->fine.rise[rank * e->steps + i] > e->fine.low[rank]) e->list[n++] = (uint32_t)i;
    return n;
}

/* Whether what stands out in step `step` does so in other steps too, at the same place and to the same extent, and is not one of many that
 * do so elsewhere. A machine may be restless for some steps on end: those next to it do not count. `n`: of the list. */
static bool comes_again(const ls__excess *e, size_t rank, size_t step, size_t n)
{
    enum { MANY = 10000 }; /* then it is not apart from the others */
    const double *most = e->most + rank * e->steps;
    const uint32_t *place = e->place + rank * e->steps;
    size_t same = 1;
    for (size_t k = 0; k < n && n < MANY; k++) {
        size_t i = e->list[k];
        if ((i + 1 >= step && i <= step + 1) || place[i] != place[step]) continue;
        if (most[i] < ALIKE * most[step] && most[step] < ALIKE * most[i]) same++;
    }
    return same > 1 && 2 * same >= n;
}

/* What a rise must exceed: less if it comes again. */
static double limit_of(const ls__excess *e, const table *t, size_t rank)
{
    size_t n = 0;
    for (size_t i = 0; i < e->steps; i++) n += t->rise[rank * e->steps + i] > t->low[rank];
    return n > 1 ? t->low[rank] : t->limit[rank];
}

/* What stands out in a step of all of the phase, where no segments are known; of time off_cpu; and of a segment. */
static double look_at_all(const ls__excess *e, size_t rank, size_t step, double limit)
{
    size_t at = rank * e->steps + step;
    if (computes(e->cause)) limit = e->all.limit[rank] + UNREST * e->unrest[at];
    double rise = e->all.rise[at];
    return isnan(e->most[at]) && rise > limit && !disturbed(e, cell(e, rank, step), rise) ? rise : 0;
}

static double look_at_fine(const ls__excess *e, size_t rank, size_t step, size_t n, bool *again)
{
    size_t at = rank * e->steps + step;
    double rise = e->fine.rise[at];
    *again = rise > e->fine.low[rank] && comes_again(e, rank, step, n);
    return *again || rise > e->fine.limit[rank] ? e->most[at] : 0;
}

static ls__loss sum_sudden(const ls__excess *e, size_t rank)
{
    ls__loss loss = { 0 };
    double limit = limit_of(e, &e->all, rank), limit_off_cpu = limit_of(e, &e->off_cpu, rank);
    bool sure = !computes(e->cause), again;
    size_t n = list_outstanding(e, rank);
    for (size_t i = 0; i < e->steps; i++) {
        double off_cpu = e->off_cpu.rise[rank * e->steps + i], out = look_at_all(e, rank, i, limit);
        if (out > 0 && loss.steps) sure = true;
        if (off_cpu > limit_off_cpu) out = fmax(out, off_cpu), sure = true;
        out = fmax(out, look_at_fine(e, rank, i, n, &again));
        if (again) sure = true;
        if (!(out > 0)) continue;
        loss.cost += out / (double)e->steps;
        add_step(e, &loss, rank, i);
    }
    loss.once = !sure;
    return mean_loss(loss);
}

ls_status ls__excess_look_at(ls__excess *e, int cause)
{
    e->cause = cause;
    fill(e, &e->all, ls__spent);
    fill(e, &e->off_cpu, slept);
    ls_status status = fill_fine(e, &e->fine);
    if (status) return status;
    for (size_t r = 0; r < e->ranks; r++) e->sudden[r] = sum_sudden(e, r);
    for (size_t r = 0; r < e->ranks; r++) {
        /* What may be chance is no match for what is not. */
        for (size_t q = 0; q < e->ranks; q++)
            e->now[q] = e->sudden[q].cost * (e->sudden[q].once && !e->sudden[r].once ? LS__CHANCE : 1);
        e->sudden[r].clear -= TURNS * high_of_others(e, e->now, r);
    }
    return LS_OK;
}

ls__loss ls__excess_usual(const ls__excess *e, int rank)
{
    ls__loss loss = { 0 };
    if (e->usual_apart[rank] > PLACE * e->step) { /* not if it is NAN */
        loss.cost = e->usual[rank];
        loss.placed = true;
    } else if (is_usual(e, &e->all, (size_t)rank)) {
        loss.cost = e->all.usual[rank];
        loss.spread = e->usual_apart[rank] < 0.5 * loss.cost;
        /* Where one cannot tell, but others compute slowly too: some cores are slower. */
        if (computes(e->cause) && isnan(e->usual_apart[rank]) &&
            loss.cost < TAIL * high_of_others(e, e->all.usual, (size_t)rank))
            loss.spread = true;
    } else {
        return loss;
    }
    for (size_t i = 0; i < e->steps; i++) add_step(e, &loss, (size_t)rank, i);
    return mean_loss(loss);
}

ls__loss ls__excess_sudden(const ls__excess *e, int rank)
{
    return e->sudden[rank];
}

static double computed(const ls_step_rank *s)
{
    return ls__spent(s, LS_PHASE_FORWARD) + ls__spent(s, LS_PHASE_BACKWARD);
}

static void find_unrest(ls__excess *e)
{
    size_t n = e->steps;
    for (size_t r = 0; r < e->ranks; r++) {
        double *row = e->unrest + r * n;
        for (size_t i = 0; i < n; i++) row[i] = computed(cell(e, r, i));
        double usual = median_of(e, row);
        for (size_t i = 0; i < n; i++) row[i] -= usual;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t r = 0; r < e->ranks; r++) e->now[r] = e->now[e->ranks + r] = e->unrest[r * n + i];
        ls__sort(e->now, e->ranks);
        /* Of one other rank alone one cannot tell. */
        for (size_t r = 0; r < e->ranks; r++)
            e->unrest[r * n + i] = e->ranks > 2 ? fmax(0, median_without(e->now, e->ranks, e->now[e->ranks + r])) : 0;
    }
}

ls_status ls__excess_open(ls__excess **out, const ls_run *run, bool crowded)
{
    size_t n = ls__counted(run), p = (size_t)run->ranks;
    ls__excess *e = *out = calloc(1, sizeof *e);
    double *at = e ? malloc((7 * n * p + 14 * p + n + 2 * p) * sizeof *at) : NULL;
    ls__loss *sudden = at ? malloc(p * sizeof *sudden) : NULL;
    uint32_t *place = sudden ? malloc((n * p + n) * sizeof *place) : NULL;
    if (!place) {
        free(sudden);
        free(at);
        free(e);
        *out = NULL;
        return ls__fail(LS_ENOMEM, "%s: no memory for %zu steps of %zu ranks", run->path, n, p);
    }
    *e = (ls__excess){ .run = run, .steps = n, .ranks = p, .crowded = crowded };
    e->sudden = sudden;
    e->place = place;
    e->list = place + n * p;
    e->all.excess = at; /* the first of them owns the memory */
    e->all.rise = at + n * p;
    e->off_cpu.excess = at + 2 * n * p;
    e->off_cpu.rise = at + 3 * n * p;
    e->fine.rise = at + 4 * n * p;
    e->unrest = at + 5 * n * p;
    e->most = at + 6 * n * p;
    e->usual = at + 7 * n * p;
    e->usual_apart = at + 7 * n * p + p;
    at += 7 * n * p + 2 * p;
    table *tables[] = { &e->all, &e->off_cpu, &e->fine };
    for (int i = 0; i < 3; i++) {
        table *t = tables[i];
        t->usual = at;
        t->limit = at + p;
        t->deviation = at + 2 * p;
        t->low = at + 3 * p;
        at += 4 * p;
    }
    e->now = at;
    e->room = at + 2 * p;
    for (size_t i = 0; i < n; i++) {
        double sum = 0, count = 0;
        for (size_t r = 0; r < p; r++)
            if (cell(e, r, i)->present) sum += (double)(cell(e, r, i)->end - cell(e, r, i)->begin), count++;
        e->room[i] = sum / fmax(1, count);
    }
    e->step = ls__median(e->room, n);
    find_unrest(e);
    return LS_OK;
}

void ls__excess_free(ls__excess **pe)
{
    if (!*pe) return;
    free((*pe)->all.excess);
    free((*pe)->sudden);
    free((*pe)->place);
    free(*pe);
    *pe = NULL;
}
