/* Marks within forward (weights used) and backward (gradients ready) cut a phase into stretches, a layer's product each. What a phase takes
 * varies by a tenth, with caches and neighbours; so does a stretch, but that is a tenth of much less. A delay that comes all at once lies in one
 * stretch, and stands out there long before it does in the phase. */
#include "measure/fine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/status.h"
#include "measure/find.h"

enum { MOST = 1 << 25 }; /* numbers kept, at most: 128 MiB */

typedef struct grid {
    const ls_run *run;
    ls_phase phase;
    uint32_t mark;
    size_t ranks, steps, stretches;
    float *ns;  /* [ranks][steps][stretches] */
    bool *good; /* [ranks][steps]: the step has as many stretches as all */
} grid;

/* Of [from, to], what rank r's pieces say was spent in the phase. `at`: a piece that is not behind `from`; moves on. */
static double spent_between(const grid *g, const ls_run_rank *r, size_t *at, int64_t from, int64_t to)
{
    double sum = 0;
    while (*at + 2 < r->n_pieces && r->pieces[*at + 1].begin <= from) ++*at;
    for (size_t i = *at; i + 1 < r->n_pieces && r->pieces[i].begin < to; i++) {
        const ls_piece *p = &r->pieces[i];
        int64_t length = ls__min(p[1].begin, to) - ls__max(p->begin, from);
        if (p->phase == g->phase && !p->shared && length > 0) sum += (double)length;
    }
    return sum;
}

/* Called for the stretches of a rank, step by step. */
typedef void (*stretch_fn)(grid *g, size_t rank, size_t step, size_t index, double ns);

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
        if (step >= 0 && (size_t)step < g->steps)
            tell(g, rank, (size_t)step, index, spent_between(g, r, &at, from, e->time));
        index++;
        from = end ? -1 : e->time;
    }
}

static void count_stretch(grid *g, size_t rank, size_t step, size_t index, double ns)
{
    (void)rank;
    (void)step;
    (void)ns;
    if (index >= g->stretches) g->stretches = index + 1;
}

static float *cell(const grid *g, size_t rank, size_t step)
{
    return g->ns + (rank * g->steps + step) * g->stretches;
}

static void put_stretch(grid *g, size_t rank, size_t step, size_t index, double ns)
{
    if (index >= g->stretches) return;
    cell(g, rank, step)[index] = (float)ns;
    g->good[rank * g->steps + step] = index + 1 == g->stretches;
}

/* Takes off what is usual: rise [ranks][steps] becomes the largest of all stretches. `room` is for steps or ranks. */
static void compare(const grid *g, size_t k, double *rise, double *room, double *usual)
{
    for (size_t r = 0; r < g->ranks; r++) {
        size_t n = 0;
        for (size_t i = 0; i < g->steps; i++)
            if (g->good[r * g->steps + i]) room[n++] = (double)cell(g, r, i)[k];
        usual[r] = ls__median(room, n);
    }
    for (size_t i = 0; i < g->steps; i++)
        for (size_t r = 0; r < g->ranks; r++) {
            size_t n = 0;
            if (!g->good[r * g->steps + i]) continue;
            for (size_t q = 0; q < g->ranks; q++)
                if (q != r && g->good[q * g->steps + i]) room[n++] = (double)cell(g, q, i)[k];
            if (!n) continue;
            double own = (double)cell(g, r, i)[k], more = fmin(own - usual[r], own - ls__median(room, n));
            rise[r * g->steps + i] = fmax(rise[r * g->steps + i], more);
        }
}

static void take_off_delays(const grid *g, double *rise)
{
    for (size_t r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < g->steps; i++) {
            const ls_step_rank *s = &g->run->steps[g->run->n_warm + i].rank[r];
            rise[r * g->steps + i] =
                fmax(0, rise[r * g->steps + i] - (double)s->delay[g->phase] - (double)s->stolen[g->phase]);
        }
}

ls_status ls__fine_rise(const ls_run *run, ls_phase phase, double *rise)
{
    grid g = { .run = run, .phase = phase, .ranks = (size_t)run->ranks, .steps = ls__counted(run) };
    ls_status status = LS_OK;
    memset(rise, 0, g.ranks * g.steps * sizeof *rise);
    if (phase != LS_PHASE_FORWARD && phase != LS_PHASE_BACKWARD) return LS_OK;
    g.mark = phase == LS_PHASE_FORWARD ? LS_EVENT_SPAN_USED : LS_EVENT_SPAN_READY;
    for (size_t r = 0; r < g.ranks; r++) walk_stretches(&g, r, count_stretch);
    if (g.stretches < 2 || g.stretches > MOST / g.steps || g.stretches * g.steps > MOST / g.ranks) return LS_OK;
    size_t most = g.steps > g.ranks ? g.steps : g.ranks;
    g.ns = calloc(g.ranks * g.steps * g.stretches, sizeof *g.ns);
    g.good = calloc(g.ranks * g.steps, sizeof *g.good);
    double *room = malloc((most + g.ranks) * sizeof *room);
    if (!g.ns || !g.good || !room) status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t r = 0; r < g.ranks && !status; r++) walk_stretches(&g, r, put_stretch);
    for (size_t k = 0; k < g.stretches && !status; k++) compare(&g, k, rise, room, room + most);
    if (!status) take_off_delays(&g, rise);
    free(g.ns);
    free(g.good);
    free(room);
    return status;
}
