/* Marks within forward (weights used) and backward (gradients ready) cut a phase into segments, a layer's product each. What a phase takes
 * varies by a tenth, with caches and neighbours; so does a segment, but that is a tenth of much less. A delay that comes all at once lies in one
 * segment, and stands out there long before it does in the phase. A core that is slow for a while is so in many segments. */
#include "measure/segments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/findings.h"

enum { MOST = 1 << 25 }; /* numbers kept, at most: 128 MiB */
#define CLEAR 2.0        /* what is apart must be clear of so many times the next */

typedef struct segment {
    int64_t begin, end;
} segment;

typedef struct grid {
    const ls_run *run;
    ls_phase phase;
    uint32_t mark;
    size_t ranks, steps, segments;
    float *ns;    /* [ranks][steps][segments] */
    bool *good;   /* [ranks][steps]: the step has as many segments as all */
    float *least; /* [ranks][segments]: what they take in a good step */
    segment *now; /* [segments]: of the step that is being walked through */
} grid;

static float *cell(const grid *g, size_t rank, size_t step)
{
    return g->ns + (rank * g->steps + step) * g->segments;
}

/* ---- Filling the grid. */

/* Called for each step of a rank; its segments are in g->now, if there are not too many. *interval: one that is not behind them; moves on. */
typedef void (*step_fn)(grid *g, size_t rank, size_t step, size_t segments, size_t *interval);

static void walk_steps(grid *g, size_t rank, step_fn tell)
{
    const ls_run_rank *r = &g->run->rank[rank];
    size_t interval = 0, n = 0;
    ptrdiff_t step = -1;
    int64_t from = -1;
    if (!r->n_intervals) return;
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (e->thread != r->main_thread && e->kind != LS_EVENT_END) continue;
        if (e->kind == LS_EVENT_STEP || e->kind == LS_EVENT_END) {
            if (step >= 0 && (size_t)step < g->steps) tell(g, rank, (size_t)step, n, &interval);
            step = ls__run_step_at(g->run, (int)rank, e->time) - (ptrdiff_t)g->run->n_warmup;
            n = 0;
            from = -1;
        }
        if (e->kind == LS_EVENT_PHASE_BEGIN && e->a == (uint64_t)g->phase) from = e->time;
        bool end = e->kind == LS_EVENT_PHASE_END && e->a == (uint64_t)g->phase;
        if ((!end && e->kind != g->mark) || from < 0) continue;
        if (g->now && n < g->segments) g->now[n] = (segment){ from, e->time };
        n++;
        from = end ? -1 : e->time;
    }
}

static void count_segments(grid *g, size_t rank, size_t step, size_t segments, size_t *interval)
{
    (void)rank;
    (void)step;
    (void)interval;
    if (segments > g->segments) g->segments = segments;
}

/* What they take by the clock. */
static void put_step(grid *g, size_t rank, size_t step, size_t segments, size_t *interval)
{
    const ls_run_rank *r = &g->run->rank[rank];
    if (segments != g->segments) return;
    g->good[rank * g->steps + step] = true;
    for (size_t k = 0; k < segments; k++) {
        const segment *s = &g->now[k];
        int64_t sum = 0;
        while (*interval + 2 < r->n_intervals && r->intervals[*interval + 1].begin <= s->begin) ++*interval;
        for (const ls_interval *p = r->intervals + *interval;
             p < r->intervals + r->n_intervals - 1 && p->begin < s->end; p++)
            if (p->phase == g->phase && !p->shared) sum += ls__min(p[1].begin, s->end) - ls__max(p->begin, s->begin);
        cell(g, rank, step)[k] = (float)ls__max(0, sum);
    }
}

/* Takes `lost` off the segments [first, last) of a step. Where it was lost is where it took longest beyond the usual; or, if that does
 * not account for it, where it took longest. */
static void take_off(float *ns, const float *least, size_t first, size_t last, double lost)
{
    enum { PLACES = 64 }; /* a interval does not lose its core more often */
    bool usual = true;
    for (int i = 0; lost > 0 && i < PLACES; i++) {
        size_t at = first;
        double most = 0;
        for (size_t k = first; k < last; k++) {
            double over = usual ? (double)(ns[k] - least[k]) : (double)ns[k];
            if (over > most) most = over, at = k;
        }
        if (most <= 0 && !usual) return;
        if (most <= 0) usual = false;
        ns[at] -= (float)fmin(lost, most);
        lost -= most;
    }
}

/* Takes off what the samples say was without a core. A sample is taken where a segment took long, so it is mostly clear which one that was. */
static void correct_step(grid *g, size_t rank, size_t step, size_t segments, size_t *interval)
{
    const ls_run_rank *r = &g->run->rank[rank];
    if (segments != g->segments) return;
    while (*interval + 2 < r->n_intervals && r->intervals[*interval + 1].begin <= g->now[0].begin) ++*interval;
    size_t first = 0, last = 0;
    int64_t lost = 0;
    for (const ls_interval *p = r->intervals + *interval; p < r->intervals + r->n_intervals - 1; p++) {
        bool end = p[1].begin >= g->now[segments - 1].end;
        if (p->phase == g->phase && !p->shared) {
            int64_t length = p[1].begin - p->begin;
            lost += p->sched_delay + (p->cpu >= 0 && !p->slept ? ls__max(0, length - p->cpu - p->sched_delay) : 0);
            while (last < segments && g->now[last].begin < p[1].begin) last++;
        }
        if (!p->counted && !end) continue;
        if (last > first) take_off(cell(g, rank, step), g->least + rank * g->segments, first, last, (double)lost);
        if (end) return;
        lost = 0;
        while (first < segments && g->now[first].end <= p[1].begin) first++;
    }
}

/* The lowest tenth, for each rank and segment, of its steps: some lose their core at the same place in most steps. */
static void find_least(const grid *g, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t k = 0; k < g->segments; k++) {
            size_t n = 0;
            for (size_t i = 0; i < g->steps; i++)
                if (g->good[r * g->steps + i]) room[n++] = (double)cell(g, r, i)[k];
            ls__sort(room, n);
            g->least[r * g->segments + k] = n ? (float)room[n / 10] : 0;
        }
}

/* ---- Looking at it. */

/* The largest and the second largest number that was shown. */
typedef struct top {
    double first, second;
    size_t at; /* the first */
} top;

static void show(top *t, double x, size_t at)
{
    if (x > t->first)
        t->second = t->first, t->first = x, t->at = at;
    else if (x > t->second)
        t->second = x;
}

/* Segment k of rank r in step i and the median of the others'; false: not known. */
static bool values(const grid *g, size_t r, size_t i, size_t k, double *own, double *others, double *room)
{
    size_t n = 0;
    if (!g->good[r * g->steps + i]) return false;
    for (size_t q = 0; q < g->ranks; q++)
        if (q != r && g->good[q * g->steps + i]) room[n++] = (double)cell(g, q, i)[k];
    *own = (double)cell(g, r, i)[k];
    *others = ls__median(room, n);
    return n > 0;
}

/* How many times as long as usual the segments take, the median; 1 if less: a slow core is so all over. `room` is [segments]. */
static double pace(const grid *g, const float *ns, const double *usual, double *room)
{
    enum { SHORT = 20000 };
    size_t n = 0;
    for (size_t k = 0; k < g->segments; k++)
        if (usual[k] > SHORT) room[n++] = (double)ns[k] / usual[k];
    return fmax(1, ls__median(room, n));
}

/* Fills `usual`, [ranks][segments], with what each segment takes. */
static void find_usual(const grid *g, double *usual, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t k = 0; k < g->segments; k++) {
            size_t n = 0;
            for (size_t i = 0; i < g->steps; i++)
                if (g->good[r * g->steps + i]) room[n++] = (double)cell(g, r, i)[k];
            usual[r * g->segments + k] = n ? ls__median(room, n) : (double)NAN;
        }
}

/* What a rank's segments usually take beyond the other ranks'. `others` is [segments]. */
static void compare_usual(const grid *g, ls__segments *out, const double *usual, double *others, double *room)
{
    for (size_t r = 0; r < g->ranks; r++) {
        const double *own = usual + r * g->segments;
        top t = { 0 };
        size_t n = 0;
        for (size_t k = 0; k < g->segments; k++) {
            n = 0;
            for (size_t q = 0; q < g->ranks; q++)
                if (q != r && !isnan(usual[q * g->segments])) room[n++] = usual[q * g->segments + k];
            others[k] = ls__median(room, n);
            g->least[k] = (float)own[k];
        }
        if (!n || isnan(own[0])) continue;
        double slow = pace(g, g->least, others, room);
        for (size_t k = 0; k < g->segments; k++) show(&t, own[k] - slow * others[k], k);
        out->usual[r] = t.first;
        out->usual_apart[r] = t.first - CLEAR * t.second;
    }
}

static void compare_steps(const grid *g, ls__segments *out, const double *usual, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < g->steps; i++) {
            top t = { 0 };
            double own, other;
            if (!values(g, r, i, 0, &own, &other, room)) continue;
            double slow = pace(g, cell(g, r, i), usual + r * g->segments, room);
            for (size_t k = 0; k < g->segments && values(g, r, i, k, &own, &other, room); k++)
                show(&t, fmin(own - slow * usual[r * g->segments + k], own - other), k);
            out->most[r * g->steps + i] = t.first;
            out->place[r * g->steps + i] = (uint32_t)t.at;
            out->apart[r * g->steps + i] = t.first - CLEAR * t.second;
        }
}

ls_status ls__segments_fill(const ls_run *run, ls_phase phase, ls__segments *out)
{
    grid g = { .run = run, .phase = phase, .ranks = (size_t)run->ranks, .steps = ls__counted(run) };
    ls_status status = LS_OK;
    for (size_t i = 0; i < g.ranks * g.steps; i++) out->most[i] = (double)NAN, out->apart[i] = 0;
    for (size_t r = 0; r < g.ranks; r++) out->usual[r] = out->usual_apart[r] = (double)NAN;
    if (phase != LS_PHASE_FORWARD && phase != LS_PHASE_BACKWARD) return LS_OK;
    g.mark = phase == LS_PHASE_FORWARD ? LS_EVENT_SPAN_USED : LS_EVENT_SPAN_READY;
    for (size_t r = 0; r < g.ranks; r++) walk_steps(&g, r, count_segments);
    if (g.segments < 4 || g.segments > MOST / g.steps || g.segments * g.steps > MOST / g.ranks) return LS_OK;
    g.ns = calloc(g.ranks * g.steps * g.segments, sizeof *g.ns);
    g.good = calloc(g.ranks * g.steps, sizeof *g.good);
    g.least = malloc(g.ranks * g.segments * sizeof *g.least);
    g.now = malloc(g.segments * sizeof *g.now);
    double *room = malloc((g.steps + g.ranks + g.segments) * sizeof *room),
           *usual = malloc((g.ranks + 1) * g.segments * sizeof *usual);
    if (!g.ns || !g.good || !g.least || !g.now || !room || !usual)
        status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t r = 0; r < g.ranks && !status; r++) walk_steps(&g, r, put_step);
    if (!status) {
        find_least(&g, room);
        for (size_t r = 0; r < g.ranks; r++) walk_steps(&g, r, correct_step);
        find_usual(&g, usual, room);
        compare_usual(&g, out, usual, usual + g.ranks * g.segments, room);
        compare_steps(&g, out, usual, room);
    }
    free(g.ns);
    free(g.good);
    free(g.least);
    free(g.now);
    free(room);
    free(usual);
    return status;
}
