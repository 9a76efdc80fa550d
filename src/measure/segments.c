/* Marks within forward (weights used) and backward (gradients ready) divide a phase into segments of one matrix product each. Times
 * vary by about a tenth (caches, neighbours): for a segment that is much less time than for a phase. So a single delay, which is in
 * one segment, stands out there even if it is too small to stand out in the phase. A core that is slow for a while is slow in many
 * segments. */
#include "measure/segments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/findings.h"
#include "measure/limits.h"
#include "measure/stats.h"

typedef struct segment {
    int64_t begin, end;
} segment;

typedef struct grid {
    const ls_run *run;
    ls_phase phase;
    uint32_t mark;
    size_t ranks, steps, segments;
    float *ns;    /* [ranks][steps][segments] */
    bool *good;   /* [ranks][steps]: the step has the same number of segments as all */
    float *floor; /* [ranks][segments]: what they take without delays */
    segment *now; /* [segments]: of the step that is being visited */
} grid;

static float *cell(const grid *g, size_t rank, size_t step)
{
    return g->ns + (rank * g->steps + step) * g->segments;
}

/* ---- Filling the grid. */

/* Called for each step of a rank; its segments are in g->now, if there are not too many. *interval: an interval that is not after them; it
 * advances. */
typedef void (*step_fn)(grid *g, size_t rank, size_t step, size_t segments, size_t *interval);

static void walk_steps(grid *g, size_t rank, step_fn visit)
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
            if (step >= 0 && (size_t)step < g->steps) visit(g, rank, (size_t)step, n, &interval);
            step = ls__run_step_at(g->run, (int)rank, e->time) - (ptrdiff_t)g->run->first_counted;
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

/* Wall time of each segment. */
static void fill_step(grid *g, size_t rank, size_t step, size_t segments, size_t *interval)
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

/* Subtracts `lost` from the segments [first, last) of a step: from those that took longest beyond their time without delays; or, if
 * that does not account for it, from those that took longest. */
static void subtract_lost(float *ns, const float *floor, size_t first, size_t last, double lost)
{
    bool beyond = true;
    for (int i = 0; lost > 0 && i < LS__SEGMENT_PREEMPTED; i++) {
        size_t at = first;
        double most = 0;
        for (size_t k = first; k < last; k++) {
            double over = beyond ? (double)(ns[k] - floor[k]) : (double)ns[k];
            if (over > most) most = over, at = k;
        }
        if (most <= 0 && !beyond) return;
        if (most <= 0) beyond = false;
        ns[at] -= (float)fmin(lost, most);
        lost -= most;
    }
}

/* Subtracts what the samples show as not scheduled. A sample is taken where a segment took long, so it is mostly clear which one that
 * was. */
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
            lost += p->sched_delay + p->steal;
            while (last < segments && g->now[last].begin < p[1].begin) last++;
        }
        if (!p->counted && !end) continue;
        if (last > first) subtract_lost(cell(g, rank, step), g->floor + rank * g->segments, first, last, (double)lost);
        if (end) return;
        lost = 0;
        while (first < segments && g->now[first].end <= p[1].begin) first++;
    }
}

/* A low percentile, because some threads lose their core at the same place in most steps. */
static void find_floor(const grid *g, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t k = 0; k < g->segments; k++) {
            size_t n = 0;
            for (size_t i = 0; i < g->steps; i++)
                if (g->good[r * g->steps + i]) room[n++] = (double)cell(g, r, i)[k];
            g->floor[r * g->segments + k] = (float)ls__percentile(room, n, LS__SEGMENT_FLOOR);
        }
}

/* ---- Comparing. */

/* The largest and the second largest of the numbers that were offered. */
typedef struct top {
    double first, second;
    size_t at; /* the first */
} top;

static void offer(top *t, double x, size_t at)
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

/* The median of (time of a segment / its median time), at least 1: a slow core is slow in all segments. `room` is
 * [segments]. */
static double slowdown(const grid *g, const float *ns, const double *medians, double *room)
{
    size_t n = 0;
    for (size_t k = 0; k < g->segments; k++)
        if (medians[k] > LS__SEGMENT_SHORT) room[n++] = (double)ns[k] / medians[k];
    return fmax(1, ls__median(room, n));
}

/* Fills `medians`, [ranks][segments]. */
static void find_medians(const grid *g, double *medians, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t k = 0; k < g->segments; k++) {
            size_t n = 0;
            for (size_t i = 0; i < g->steps; i++)
                if (g->good[r * g->steps + i]) room[n++] = (double)cell(g, r, i)[k];
            medians[r * g->segments + k] = n ? ls__median(room, n) : (double)NAN;
        }
}

/* The medians beyond the other ranks' medians. `others` is [segments]. */
static void compare_medians(const grid *g, ls__segments *out, const double *medians, double *others, double *room)
{
    for (size_t r = 0; r < g->ranks; r++) {
        const double *own = medians + r * g->segments;
        top t = { 0 };
        size_t n = 0;
        if (isnan(own[0])) continue;
        for (size_t k = 0; k < g->segments; k++) {
            n = 0;
            for (size_t q = 0; q < g->ranks; q++)
                if (q != r && !isnan(medians[q * g->segments])) room[n++] = medians[q * g->segments + k];
            others[k] = ls__median(room, n);
            g->floor[k] = (float)own[k];
        }
        if (!n) continue;
        double slow = slowdown(g, g->floor, others, room);
        for (size_t k = 0; k < g->segments; k++) offer(&t, own[k] - slow * others[k], k);
        out->median[r] = t.first;
        out->median_apart[r] = t.first - LS__SEGMENT_APART * t.second;
    }
}

static void compare_steps(const grid *g, ls__segments *out, const double *medians, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < g->steps; i++) {
            top t = { 0 };
            double own, other;
            if (!values(g, r, i, 0, &own, &other, room)) continue;
            double slow = slowdown(g, cell(g, r, i), medians + r * g->segments, room);
            for (size_t k = 0; k < g->segments && values(g, r, i, k, &own, &other, room); k++)
                offer(&t, fmin(own - slow * medians[r * g->segments + k], own - other), k);
            out->rise[r * g->steps + i] = t.first;
            out->segment[r * g->steps + i] = (uint32_t)t.at;
            out->apart[r * g->steps + i] = t.first - LS__SEGMENT_APART * t.second;
        }
}

ls_status ls__segments_compare(const ls_run *run, ls_phase phase, ls__segments *out)
{
    grid g = { .run = run, .phase = phase, .ranks = (size_t)run->ranks, .steps = ls__counted(run) };
    ls_status status = LS_OK;
    for (size_t i = 0; i < g.ranks * g.steps; i++) out->rise[i] = (double)NAN, out->apart[i] = 0;
    for (size_t r = 0; r < g.ranks; r++) out->median[r] = out->median_apart[r] = (double)NAN;
    if (phase != LS_PHASE_FORWARD && phase != LS_PHASE_BACKWARD) return LS_OK;
    g.mark = phase == LS_PHASE_FORWARD ? LS_EVENT_SPAN_USED : LS_EVENT_SPAN_READY;
    for (size_t r = 0; r < g.ranks; r++) walk_steps(&g, r, count_segments);
    if (g.segments < LS__SEGMENTS_FEWEST || g.segments > LS__SEGMENTS_MEMORY / g.steps ||
        g.segments * g.steps > LS__SEGMENTS_MEMORY / g.ranks)
        return LS_OK;
    g.ns = calloc(g.ranks * g.steps * g.segments, sizeof *g.ns);
    g.good = calloc(g.ranks * g.steps, sizeof *g.good);
    g.floor = malloc(g.ranks * g.segments * sizeof *g.floor);
    g.now = malloc(g.segments * sizeof *g.now);
    double *room = malloc((g.steps + g.ranks + g.segments) * sizeof *room),
           *medians = malloc((g.ranks + 1) * g.segments * sizeof *medians);
    if (!g.ns || !g.good || !g.floor || !g.now || !room || !medians)
        status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t r = 0; r < g.ranks && !status; r++) walk_steps(&g, r, fill_step);
    if (!status) {
        find_floor(&g, room);
        for (size_t r = 0; r < g.ranks; r++) walk_steps(&g, r, correct_step);
        find_medians(&g, medians, room);
        compare_medians(&g, out, medians, medians + g.ranks * g.segments, room);
        compare_steps(&g, out, medians, room);
    }
    free(g.ns);
    free(g.good);
    free(g.floor);
    free(g.now);
    free(room);
    free(medians);
    return status;
}
