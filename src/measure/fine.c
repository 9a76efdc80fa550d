/* Marks within forward (weights used) and backward (gradients ready) cut a phase into stretches, a layer's product each. What a phase takes
 * varies by a tenth, with caches and neighbours; so does a stretch, but that is a tenth of much less. A delay that comes all at once lies in one
 * stretch, and stands out there long before it does in the phase. A core that is slow for a while is so in many stretches. */
#include "measure/fine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/status.h"
#include "measure/find.h"

enum {
    MOST = 1 << 25, /* numbers kept, at most: 128 MiB */
    UNSURE = 30000, /* ns without a core that do not matter */
    CLOSE = 30000   /* ns between marks of one place */
};
#define CLEAR 2.0 /* what is apart must be clear of so many times the next */

typedef struct grid {
    const ls_run *run;
    ls_phase phase;
    uint32_t mark;
    size_t ranks, steps, stretches;
    float *ns;     /* [ranks][steps][stretches] */
    bool *good;    /* [ranks][steps]: the step has as many stretches as all */
    float *unsure; /* [ranks][steps]: ns without a core, in one of them */
} grid;

/* Of [from, to], what rank r's pieces say was spent in the phase; NAN: they do not tell. *unsure: of that, may have been without a core. `at`:
 * a piece that is not behind `from`; moves on. */
static double spent_between(const grid *g, const ls_run_rank *r, size_t *at, int64_t from, int64_t to, double *unsure)
{
    double sum = 0, most = UNSURE;
    *unsure = 0;
    while (*at + 2 < r->n_pieces && r->pieces[*at + 1].begin <= from) ++*at;
    for (size_t i = *at; i + 1 < r->n_pieces && r->pieces[i].begin < to; i++) {
        const ls_piece *p = &r->pieces[i];
        int64_t length = ls__min(p[1].begin, to) - ls__max(p->begin, from), whole = p[1].begin - p->begin;
        if (p->phase != g->phase || p->shared || length <= 0) continue;
        int64_t lost = p->delay + (p->cpu >= 0 && !p->slept ? ls__max(0, whole - p->cpu - p->delay) : 0);
        bool inside = whole - length < CLOSE; /* marks come in pairs, and only one of them with a sample */
        sum += (double)(inside ? ls__max(0, length - lost) : length);
        if (!inside && length > CLOSE) *unsure += (double)lost, most += 0.05 * (double)whole; /* in it, or elsewhere */
    }
    return *unsure > most ? (double)NAN : sum;
}

/* Called for the stretches of a rank, step by step. */
typedef void (*stretch_fn)(grid *g, size_t rank, size_t step, size_t index, double ns, double unsure);

static void walk_stretches(grid *g, size_t rank, stretch_fn tell)
{
    const ls_run_rank *r = &g->run->rank[rank];
    size_t at = 0, index = 0;
    ptrdiff_t step = -1;
    int64_t from = -1;
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (e->thread != r->main_thread) continue;
        if (e->kind == LS_EVENT_STEP) {
            step = ls__run_step_at(g->run, (int)rank, e->time) - (ptrdiff_t)g->run->n_warm;
            index = 0;
            from = -1;
        }
        if (e->kind == LS_EVENT_PHASE_BEGIN && e->a == (uint64_t)g->phase) from = e->time;
        bool end = e->kind == LS_EVENT_PHASE_END && e->a == (uint64_t)g->phase;
        if ((!end && e->kind != g->mark) || from < 0) continue;
        double unsure, ns = spent_between(g, r, &at, from, e->time, &unsure);
        if (step >= 0 && (size_t)step < g->steps) tell(g, rank, (size_t)step, index, ns, unsure);
        index++;
        from = end ? -1 : e->time;
    }
}

static void count_stretch(grid *g, size_t rank, size_t step, size_t index, double ns, double unsure)
{
    (void)rank;
    (void)step;
    (void)ns;
    (void)unsure;
    if (index >= g->stretches) g->stretches = index + 1;
}

static float *cell(const grid *g, size_t rank, size_t step)
{
    return g->ns + (rank * g->steps + step) * g->stretches;
}

static void put_stretch(grid *g, size_t rank, size_t step, size_t index, double ns, double unsure)
{
    if (index >= g->stretches) return;
    cell(g, rank, step)[index] = (float)ns;
    g->good[rank * g->steps + step] = index + 1 == g->stretches;
    if (unsure > (double)g->unsure[rank * g->steps + step]) g->unsure[rank * g->steps + step] = (float)unsure;
}

/* The largest and the second largest number that was shown. */
typedef struct top {
    double first, second;
} top;

static void show(top *t, double x)
{
    if (x > t->first)
        t->second = t->first, t->first = x;
    else if (x > t->second)
        t->second = x;
}

/* Stretch k of rank r in step i and the median of the others'; false: not known. */
static bool values(const grid *g, size_t r, size_t i, size_t k, double *own, double *others, double *room)
{
    size_t n = 0;
    if (!g->good[r * g->steps + i]) return false;
    for (size_t q = 0; q < g->ranks; q++)
        if (q != r && g->good[q * g->steps + i] && !isnan(cell(g, q, i)[k])) room[n++] = (double)cell(g, q, i)[k];
    *own = (double)cell(g, r, i)[k];
    *others = ls__median(room, n);
    return n > 0 && !isnan(*own);
}

/* Fills `usual`, [ranks][stretches], with what each stretch takes; and what it takes beyond the others into out->usual. */
static void find_usual(const grid *g, ls__fine *out, double *usual, double *room)
{
    double *beyond = room, *others = room + g->steps;
    for (size_t r = 0; r < g->ranks; r++) {
        top t = { 0 };
        bool known = true;
        for (size_t k = 0; k < g->stretches; k++) {
            double own, other;
            size_t n = 0, m = 0;
            for (size_t i = 0; i < g->steps; i++)
                if (values(g, r, i, k, &own, &other, others)) beyond[n++] = own - other;
            show(&t, ls__median(beyond, n));
            known = known && 2 * n > g->steps;
            for (size_t i = 0; i < g->steps; i++)
                if (g->good[r * g->steps + i] && !isnan(cell(g, r, i)[k])) beyond[m++] = (double)cell(g, r, i)[k];
            usual[r * g->stretches + k] = ls__median(beyond, m);
        }
        out->usual[r] = known ? t.first : (double)NAN;
        out->usual_apart[r] = known ? t.first - CLEAR * t.second : (double)NAN;
    }
}

static void compare(const grid *g, ls__fine *out, const double *usual, double *room)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < g->steps; i++) {
            top t = { 0 };
            bool known = true;
            for (size_t k = 0; k < g->stretches && known; k++) {
                double own, other;
                known = values(g, r, i, k, &own, &other, room);
                if (known) show(&t, fmin(own - usual[r * g->stretches + k], own - other));
            }
            if (!known) continue;
            out->most[r * g->steps + i] = t.first;
            out->apart[r * g->steps + i] = t.first - CLEAR * t.second - (double)g->unsure[r * g->steps + i];
        }
}

ls_status ls__fine_fill(const ls_run *run, ls_phase phase, ls__fine *out)
{
    grid g = { .run = run, .phase = phase, .ranks = (size_t)run->ranks, .steps = ls__counted(run) };
    ls_status status = LS_OK;
    for (size_t i = 0; i < g.ranks * g.steps; i++) out->most[i] = (double)NAN, out->apart[i] = 0;
    for (size_t r = 0; r < g.ranks; r++) out->usual[r] = out->usual_apart[r] = (double)NAN;
    if (phase != LS_PHASE_FORWARD && phase != LS_PHASE_BACKWARD) return LS_OK;
    g.mark = phase == LS_PHASE_FORWARD ? LS_EVENT_SPAN_USED : LS_EVENT_SPAN_READY;
    for (size_t r = 0; r < g.ranks; r++) walk_stretches(&g, r, count_stretch);
    if (g.stretches < 4 || g.stretches > MOST / g.steps || g.stretches * g.steps > MOST / g.ranks) return LS_OK;
    g.ns = calloc(g.ranks * g.steps * g.stretches, sizeof *g.ns);
    g.good = calloc(g.ranks * g.steps, sizeof *g.good);
    g.unsure = calloc(g.ranks * g.steps, sizeof *g.unsure);
    double *room = malloc((g.steps + g.ranks) * sizeof *room), *usual = malloc(g.ranks * g.stretches * sizeof *usual);
    if (!g.ns || !g.good || !g.unsure || !room || !usual) status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t r = 0; r < g.ranks && !status; r++) walk_stretches(&g, r, put_stretch);
    if (!status) {
        find_usual(&g, out, usual, room);
        compare(&g, out, usual, room);
    }
    free(g.ns);
    free(g.good);
    free(g.unsure);
    free(room);
    free(usual);
    return status;
}
