/* Accounting: a rank's main thread as a row of intervals without gaps, and steps as sums of intervals.
 *
 * An interval belongs to the innermost phase that is open; where the thread was blocked in a call, to waiting until the last rank arrived
 * and to communication after that. (A parallel_for without data is the phase's own work once all have arrived.) So phases add up to the
 * wall time by construction, and what is not marked is "other". */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/limits.h"
#include "measure/model.h"

typedef struct walk {
    const ls_run *run;
    ls_run_rank *r;
    int64_t at; /* intervals are known up to here */
    ls_phase stack[LS__PHASE_DEPTH];
    size_t begun[LS__PHASE_DEPTH]; /* of each of those: the step it was begun in, counted from 1 */
    int depth;
    size_t step;
    int64_t unended[LS_PHASE_COUNT]; /* times that a phase was begun and not ended */
    size_t room;
    size_t sampled; /* the first interval after the last sample */
    uint64_t last[LS_SAMPLE_COUNT];
    bool has[LS_SAMPLE_COUNT];
    int64_t cpu, sched_delay; /* what the counters of the sample that is being read rose by; < 0: not known */
} walk;

static ls_phase top(const walk *w)
{
    return w->depth ? w->stack[w->depth - 1] : LS_PHASE_OTHER;
}

/* From w->at to `until` the thread was in `phase`. */
static ls_status add_interval(walk *w, int64_t until, ls_phase phase)
{
    ls_run_rank *r = w->r;
    if (until <= w->at) return LS_OK;
    if (r->n_intervals + 1 >= w->room) {
        w->room = w->room ? 2 * w->room : 256;
        ls_interval *more = realloc(r->intervals, w->room * sizeof *more);
        if (!more) return ls__fail(LS_ENOMEM, "%s: out of memory", w->run->path);
        r->intervals = more;
    }
    r->intervals[r->n_intervals++] = (ls_interval){ .begin = w->at, .phase = phase, .cpu = -1 };
    w->at = until;
    return LS_OK;
}

/* The thread was blocked in a call until e->time. */
static ls_status add_blocked(walk *w, const ls_event *e)
{
    int64_t begin = e->time - ls__min(ls__blocked_ns(e), e->time - w->at);
    const ls_run_collective *m = ls__run_collective_of(w->run, e->a);
    ls_status status = add_interval(w, begin, top(w));
    if (!status && m && m->last_rank != w->r->rank)
        status = add_interval(w, ls__min(m->last_arrival, e->time), LS_PHASE_WAIT);
    bool own = m && m->kind == LS_COLLECTIVE_PARALLEL_FOR && !m->bytes;
    size_t before = w->r->n_intervals;
    if (!status) status = add_interval(w, e->time, own ? top(w) : LS_PHASE_COMM);
    if (!status && own && w->r->n_intervals > before) w->r->intervals[before].shared = true;
    return status;
}

/* What a counter rose by since its last sample; -1: not known. */
static int64_t rise(walk *w, ls_sample_kind kind, uint64_t value)
{
    int64_t by =
        w->has[kind] && value >= w->last[kind] ? (int64_t)ls__min((int64_t)(value - w->last[kind]), INT64_MAX / 4) : -1;
    w->last[kind] = value;
    w->has[kind] = true;
    return by;
}

static int64_t length_of(const walk *w, size_t i, int64_t until)
{
    return (i + 1 < w->r->n_intervals ? w->r->intervals[i + 1].begin : until) - w->r->intervals[i].begin;
}

static bool in_call(const ls_interval *p)
{
    return p->phase == LS_PHASE_WAIT || p->phase == LS_PHASE_COMM || p->shared;
}

/* Divides what the counters rose by among the intervals since the last samples, which are taken at the ends of phases and calls, so that
 * there is mostly one. If there are several: run-queue delay by their length, and CPU time first to those outside of calls, because a
 * thread sleeps in calls. cpu, delay < 0: not known. */
static void divide_counters(walk *w, int64_t cpu, int64_t delay, int64_t slept, int64_t until)
{
    ls_run_rank *r = w->r;
    if (w->sampled >= r->n_intervals || until <= r->intervals[w->sampled].begin) return;
    double all = (double)(until - r->intervals[w->sampled].begin), free[2] = { 0 };
    for (size_t i = w->sampled; i < r->n_intervals; i++) {
        ls_interval *p = &r->intervals[i];
        int64_t length = length_of(w, i, until);
        p->sched_delay = delay > 0 ? ls__min((int64_t)((double)delay * (double)length / all), length) : 0;
        free[in_call(p)] += (double)(length - p->sched_delay);
    }
    if (cpu < 0) return;
    double share[2];
    share[0] = free[0] > 0 ? fmin(1, (double)cpu / free[0]) : 0;
    share[1] = free[1] > 0 ? fmin(1, fmax(0, (double)cpu - free[0]) / free[1]) : 0;
    for (size_t i = w->sampled; i < r->n_intervals; i++) {
        ls_interval *p = &r->intervals[i];
        p->cpu = (int64_t)(share[in_call(p)] * (double)(length_of(w, i, until) - p->sched_delay));
        p->slept = slept > 0;
    }
}

/* Thread samples come in threes, CPU time first and switches last; all are of the moment of the first. */
static ls_status add_sample(walk *w, const ls_event *e)
{
    if (e->a != LS_SAMPLE_MAIN_CPU && e->a != LS_SAMPLE_DELAY && e->a != LS_SAMPLE_VOLUNTARY) return LS_OK;
    ls_status status = add_interval(w, e->time, top(w));
    int64_t by = rise(w, (ls_sample_kind)e->a, e->b);
    if (e->a == LS_SAMPLE_MAIN_CPU) w->cpu = by, w->sched_delay = -1;
    if (e->a == LS_SAMPLE_DELAY) w->sched_delay = by;
    if (e->a != LS_SAMPLE_VOLUNTARY) return status;
    divide_counters(w, w->cpu, w->sched_delay, by, w->at);
    if (w->r->n_intervals) w->r->intervals[w->r->n_intervals - 1].counted = true;
    w->sampled = w->r->n_intervals;
    return status;
}

/* A phase that is begun anew, and was begun in an earlier step, was not ended there. Without this its time would go on until the end. */
static void enter(walk *w, ls_phase phase)
{
    for (int i = 0; i < w->depth; i++)
        if (w->stack[i] == phase && w->begun[i] < w->step) {
            w->unended[phase]++;
            w->depth = i;
        }
    if (w->depth == LS__PHASE_DEPTH) return;
    w->begun[w->depth] = w->step;
    w->stack[w->depth++] = phase;
}

static void leave(walk *w, ls_phase phase)
{
    int depth = w->depth;
    while (depth && w->stack[depth - 1] != phase) depth--;
    if (depth) w->depth = depth - 1;
}

static ls_status walk_event(walk *w, const ls_event *e)
{
    ls_status status = LS_OK;
    switch (e->kind) {
    case LS_EVENT_STEP: w->step++; /* fall through */
    case LS_EVENT_END: status = add_interval(w, e->time, top(w)); break;
    case LS_EVENT_PHASE_BEGIN:
        status = add_interval(w, e->time, top(w));
        if (e->a < LS_PHASE_COUNT) enter(w, (ls_phase)e->a);
        break;
    case LS_EVENT_PHASE_END:
        status = add_interval(w, e->time, top(w));
        leave(w, (ls_phase)e->a);
        break;
    case LS_EVENT_LOST: /* ends of phases may be among what was lost */
        status = add_interval(w, e->time, LS_PHASE_OTHER);
        w->depth = 0;
        break;
    case LS_EVENT_BLOCKED: status = add_blocked(w, e); break;
    case LS_EVENT_COMM_WORK:
        status = add_interval(w, e->time - ls__min((int64_t)(e->a & (UINT64_MAX >> 1)), e->time - w->at), top(w));
        if (!status) status = add_interval(w, e->time, LS_PHASE_COMM);
        break;
    case LS_EVENT_SAMPLE: status = add_sample(w, e); break;
    default: break;
    }
    return status;
}

/* The intervals of rank r, from its first step on. */
static ls_status walk_rank(ls_run *run, ls_run_rank *r)
{
    walk w = { .run = run, .r = r, .cpu = -1, .sched_delay = -1 };
    ls_status status = LS_OK;
    size_t i = 0;
    while (i < r->n_events && r->events[i].kind != LS_EVENT_STEP) i++;
    if (i == r->n_events) return LS_OK;
    r->main_thread = r->events[i].thread;
    w.at = r->events[i].time;
    for (; i < r->n_events && !status; i++) {
        const ls_event *e = &r->events[i];
        if (e->thread == r->main_thread || e->kind == LS_EVENT_END || e->kind == LS_EVENT_LOST)
            status = walk_event(&w, e);
    }
    if (!status && r->n_intervals)
        r->intervals[r->n_intervals++] = (ls_interval){ .begin = w.at, .phase = LS_PHASE_OTHER, .cpu = -1 };
    for (size_t k = 0; k + 1 < r->n_intervals; k++) {
        ls_interval *p = &r->intervals[k];
        if (p->cpu >= 0 && !p->slept) p->steal = ls__max(0, p[1].begin - p->begin - p->cpu - p->sched_delay);
    }
    for (int k = 0; k < LS_PHASE_COUNT; k++)
        if (w.unended[k]) ls__run_note(run, LS_NOTE_NOT_ENDED, r->rank, w.unended[k], ls_phase_name((ls_phase)k));
    return status;
}

/* ---- Steps. */

typedef struct span { /* a step of one rank */
    int64_t number, begin, end;
} span;

/* The steps that rank r recorded from start to end. */
static ls_status list_steps(ls_run *run, int rank, span **out, size_t *count)
{
    const ls_run_rank *r = &run->rank[rank];
    size_t n = 0, wrong = 0;
    for (size_t i = 0; i < r->n_events; i++) n += r->events[i].kind == LS_EVENT_STEP;
    span *list = malloc((n + 1) * sizeof *list);
    *out = list;
    *count = 0;
    if (!list) return ls__fail(LS_ENOMEM, "%s: no memory for %zu steps", run->path, n);
    n = 0;
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (e->kind == LS_EVENT_LOST && n && list[n - 1].end == 0) n--; /* its end may be lost */
        if (e->kind != LS_EVENT_END && (e->kind != LS_EVENT_STEP || e->thread != r->main_thread)) continue;
        if (n && list[n - 1].end == 0) list[n - 1].end = e->time;
        int64_t number = (int64_t)e->a;
        if (e->kind != LS_EVENT_STEP) continue;
        if (e->a < INT64_MAX && (!n || number > list[n - 1].number))
            list[n++] = (span){ .number = number, .begin = e->time };
        else
            wrong++;
    }
    if (wrong) ls__run_note(run, LS_NOTE_STEP_NUMBERS, rank, (int64_t)wrong, NULL);
    if (n && list[n - 1].end == 0) n--; /* still under way */
    *count = n;
    return LS_OK;
}

/* `at`: [ranks], zero: how far each list is. */
static ls_status join_steps(ls_run *run, span **lists, const size_t *counts, size_t *at)
{
    size_t p = (size_t)run->ranks, first = p, n = 0;
    for (size_t r = p; r-- > 0;)
        if (counts[r]) first = r;
    if (first == p) return LS_OK;
    for (size_t r = 0; r < p; r++)
        if (run->rank[r].present && !counts[r]) ls__run_note(run, LS_NOTE_NO_STEPS_OF_RANK, (int)r, 0, NULL);
    run->steps = calloc(counts[first], sizeof *run->steps);
    ls_step_rank *cells = calloc(counts[first] * p, sizeof *cells);
    if (!run->steps || !cells) {
        free(cells);
        return ls__fail(LS_ENOMEM, "%s: no memory for %zu steps", run->path, counts[first]);
    }
    for (size_t i = 0; i < counts[first]; i++) {
        ls_run_step *s = &run->steps[n];
        bool all = true;
        *s = (ls_run_step){ .number = lists[first][i].number, .rank = cells + n * p };
        for (size_t r = 0; r < p && all; r++) {
            if (!counts[r]) continue;
            while (at[r] < counts[r] && lists[r][at[r]].number < s->number) at[r]++;
            all = at[r] < counts[r] && lists[r][at[r]].number == s->number;
            if (!all) break;
            s->rank[r] = (ls_step_rank){
                .present = true, .begin = lists[r][at[r]].begin, .end = lists[r][at[r]].end, .cpu = -1
            };
            if (!s->begin || s->rank[r].begin < s->begin) s->begin = s->rank[r].begin;
            if (s->rank[r].end > s->end) s->end = s->rank[r].end;
        }
        if (all)
            n++;
        else
            memset(s->rank, 0, p * sizeof *s->rank);
    }
    run->n_steps = n;
    if (!n) {
        free(cells);
        free(run->steps);
        run->steps = NULL;
    }
    return LS_OK;
}

ptrdiff_t ls__run_step_at(const ls_run *run, int rank, int64_t time)
{
    size_t low = 0, high = run->n_steps;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (run->steps[middle].rank[rank].begin <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low && time < run->steps[low - 1].rank[rank].end ? (ptrdiff_t)low - 1 : -1;
}

/* Adds the intervals of rank r up to steps. */
static void sum_intervals(ls_run *run, int rank)
{
    const ls_run_rank *r = &run->rank[rank];
    size_t k = 0;
    for (size_t i = 0; i + 1 < r->n_intervals; i++) {
        const ls_interval *p = &r->intervals[i];
        int64_t length = p[1].begin - p->begin;
        while (k < run->n_steps && run->steps[k].rank[rank].end <= p->begin) k++;
        if (k == run->n_steps) return;
        ls_step_rank *s = &run->steps[k].rank[rank];
        if (p->begin < s->begin) continue;
        s->ns[p->phase] += length;
        s->sched_delay[p->phase] += p->sched_delay;
        s->steal[p->phase] += p->steal;
        if (p->shared) continue;
        s->own[p->phase] += length - p->sched_delay - p->steal;
        if (p->slept && p->cpu >= 0) s->off_cpu[p->phase] += ls__max(0, length - p->cpu - p->sched_delay);
    }
}

static void add_counter(ls_step_rank *s, ls_sample_kind kind, int64_t by)
{
    switch (kind) {
    case LS_SAMPLE_VOLUNTARY: s->voluntary += by; break;
    case LS_SAMPLE_INVOLUNTARY: s->involuntary += by; break;
    case LS_SAMPLE_MINOR: s->minor += by; break;
    case LS_SAMPLE_MAJOR: s->major += by; break;
    case LS_SAMPLE_READ: s->read_bytes += by; break;
    default: break;
    }
}

/* CPU time of steps [first, last], by their length: short steps are not sampled one by one. */
static void share_cpu(ls_run *run, int rank, size_t first, size_t last, int64_t cpu)
{
    double sum = 0;
    for (size_t k = first; k <= last; k++)
        sum += (double)(run->steps[k].rank[rank].end - run->steps[k].rank[rank].begin);
    for (size_t k = first; k <= last && sum > 0; k++) {
        ls_step_rank *s = &run->steps[k].rank[rank];
        s->cpu = ls__max(s->cpu, 0) + (int64_t)((double)cpu * (double)(s->end - s->begin) / sum);
    }
}

/* Adds counters and batches up to steps. A counter's rise belongs to the step before the sample. */
static void sum_samples(ls_run *run, int rank)
{
    const ls_run_rank *r = &run->rank[rank];
    walk w = { .run = run };
    size_t k = 0, shared = 0;
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (e->kind != LS_EVENT_SAMPLE && e->kind != LS_EVENT_BATCH) continue;
        while (k + 1 < run->n_steps && run->steps[k].rank[rank].end < e->time) k++;
        ls_step_rank *s = &run->steps[k].rank[rank];
        bool inside = e->time > s->begin && e->time <= s->end;
        if (e->kind == LS_EVENT_SAMPLE && e->a < LS_SAMPLE_COUNT) {
            int64_t by = rise(&w, (ls_sample_kind)e->a, e->b);
            if (e->a == LS_SAMPLE_CPU) {
                if (inside && by > 0) share_cpu(run, rank, shared < k ? shared : k, k, by);
                shared = inside ? k + 1 : k;
            } else if (inside && by > 0) {
                add_counter(s, (ls_sample_kind)e->a, by);
            }
            if (inside && e->a == LS_SAMPLE_RESIDENT) s->resident = (int64_t)(e->b & (UINT64_MAX >> 1));
        } else if (inside && e->kind == LS_EVENT_BATCH) {
            s->batches++;
            s->batches_ready += ls__batch_ready(e->b);
            s->batches_missed += !ls__batch_ready(e->b);
            s->batch_ns += ls__min((int64_t)(e->a & (UINT64_MAX >> 1)), INT64_C(1) << 50);
        }
    }
}

/* Adds the time outside of calls from `begin` to `end` to the steps' overlap. *interval: one that is not after `begin`; it advances. */
static void add_overlap(ls_run *run, int rank, int64_t begin, int64_t end, size_t *interval)
{
    const ls_run_rank *r = &run->rank[rank];
    while (*interval + 2 < r->n_intervals && r->intervals[*interval + 1].begin <= begin) ++*interval;
    for (size_t i = *interval; i + 1 < r->n_intervals && r->intervals[i].begin < end; i++) {
        const ls_interval *p = &r->intervals[i];
        int64_t from = ls__max(p->begin, begin), to = ls__min(p[1].begin, end);
        if (to <= from || p->phase == LS_PHASE_WAIT || p->phase == LS_PHASE_COMM) continue;
        ptrdiff_t k = ls__run_step_at(run, rank, from);
        if (k >= 0) run->steps[k].rank[rank].overlapped += ls__min(to, run->steps[k].rank[rank].end) - from;
    }
}

/* Communication that ran while the rank did something else: from the last arrival until the rank saw it done, without the time in
 * which it was blocked in this call or in another one. Calls are in the order of their last arrivals, so what several cover counts once. */
static void sum_overlap(ls_run *run, int rank)
{
    int64_t covered = INT64_MIN;
    size_t interval = 0;
    for (size_t i = 0; i < run->n_collectives; i++) {
        ls_run_collective *m = &run->collectives[i];
        if (rank == m->last_rank && m->step < 0) {
            ptrdiff_t k = ls__run_step_at(run, rank, m->last_arrival);
            if (k >= 0) m->step = run->steps[k].number;
        }
        if (!m->done[rank] || !m->arrival[rank] || (m->kind == LS_COLLECTIVE_PARALLEL_FOR && !m->bytes))
            continue; /* that one carries nothing */
        int64_t begin = ls__max(m->last_arrival, covered), end = m->done[rank];
        if (end <= begin) continue;
        covered = end;
        add_overlap(run, rank, begin, end, &interval);
    }
}

/* The first steps fill caches and start threads; they do not count where there are others. */
static size_t count_warmup(size_t steps)
{
    size_t n = steps / LS__WARMUP_SHARE;
    return steps < 4 ? 0 : n < 1 ? 1 : n < LS__WARMUP_MOST ? n : LS__WARMUP_MOST;
}

/* The first step that counts: after the warm-up and within the window. */
static size_t find_first_counted(const ls_run *run, const ls_run_options *o)
{
    size_t first = run->n_steps, warmup = count_warmup(run->n_steps);
    if (!o->window_ns && !o->window_steps) return warmup;
    while (first > 0 && (!o->window_steps || run->n_steps - first < o->window_steps) &&
           (first == run->n_steps || !o->window_ns ||
            run->steps[run->n_steps - 1].end - run->steps[first - 1].begin < o->window_ns))
        first--;
    return first < warmup ? warmup : first;
}

ls_status ls__run_account(ls_run *run, const ls_run_options *options)
{
    size_t p = (size_t)run->ranks;
    span **lists = calloc(p, sizeof *lists);
    size_t *counts = calloc(2 * p, sizeof *counts);
    ls_status status = lists && counts ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t r = 0; r < p && !status; r++) {
        status = walk_rank(run, &run->rank[r]);
        if (!status) status = list_steps(run, (int)r, &lists[r], &counts[r]);
    }
    if (!status) status = join_steps(run, lists, counts, counts + p);
    for (size_t r = 0; r < p && lists; r++) free(lists[r]);
    free(lists);
    free(counts);
    for (size_t r = 0, first = 0; r < p; r++) {
        if (!run->rank[first].present) first = r;
        if (run->rank[r].present && run->rank[r].node != run->rank[first].node)
            ls__run_internal_of(run)->several_nodes = true;
    }
    run->first_counted = find_first_counted(run, options);
    if (!status) ls__run_set_step(run);
    for (int r = 0; r < run->ranks && !status && run->n_steps; r++) {
        if (!run->rank[r].present) continue;
        sum_intervals(run, r);
        sum_samples(run, r);
        sum_overlap(run, r);
    }
    return status;
}
