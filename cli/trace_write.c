/* From a run to trace events.
 *
 * A rank is a process of the trace (its number + 1: process 0 is special to Perfetto), and tracks are threads whose numbers are
 * unique in the whole trace, since Perfetto finds a thread's name by its number alone. The first track of a rank has its steps and, inside
 * them, what the thread that makes them did. Below it are its collectives, on as many tracks as are under way at once:
 * slices of one track must nest or follow each other. A bucket's slice begins when the bucket is full, and holds two: waiting for
 * the last rank, and moving data. An arrow leads from the place in backward where the bucket became full to its sum. Each thread of the
 * loader has a track with the batches that it built.
 *
 * Slices begin in the order in which they are written where times are equal, and an arrow's ends are within slices: that is what
 * the importers ask for, and what tests/cli/check_trace.py checks. */
#include "cli/trace_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "record/ring.h"
#include "cli/escape.h"

enum {
    TRACKS = 1000,
    MAIN_TRACK = 1,
    OPERATION_TRACK = 2,
    FIRST_LANE = 10,
    LANES = 200,
    FIRST_WORKER = 300,
    WORKERS = 256
};

typedef struct trace {
    FILE *to;
    const ls_run *run;
    int64_t zero;      /* the trace's time 0 */
    bool some;         /* an event was written: the next one needs a comma */
    uint64_t *by_step; /* collectives, by step and last arrival */
    size_t at;         /* of those, the next step's first */
    size_t *interval;  /* [ranks]: the next interval */
    int64_t *lane_end; /* [ranks * LANES]: when the track's last slice ends */
    int *lanes;        /* [ranks]: tracks in use */
    size_t *event;     /* [ranks]: the next event */
    size_t *batch;     /* [ranks]: the next event, for batches */
    int64_t *built;    /* [ranks * WORKERS]: when the worker's last slice ends; INT64_MIN: it has no track yet */
    bool *operations;  /* [ranks]: has a track of operations */
    uint64_t flows;
} trace;

static void begin_event(trace *t, const char *kind, int rank, int track)
{
    fprintf(t->to, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%lld", t->some ? ",\n" : "", kind, rank + 1,
            (long long)(rank + 1) * TRACKS + track);
    t->some = true;
}

static void put_time(trace *t, const char *key, int64_t ns)
{
    if (ns < 0) ns = 0;
    fprintf(t->to, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_name(trace *t, const char *name)
{
    fputs(",\"name\":\"", t->to);
    put_json(t->to, name);
    fputc('"', t->to);
}

/* A slice whose arguments follow; the caller ends it. */
static void begin_slice(trace *t, int rank, int track, const char *category, const char *name, int64_t begin,
                        int64_t end)
{
    begin_event(t, "X", rank, track);
    put_time(t, "ts", begin - t->zero);
    put_time(t, "dur", end - begin);
    fprintf(t->to, ",\"cat\":\"%s\"", category);
    put_name(t, name);
}

static void name_track(trace *t, int rank, int track, const char *name)
{
    begin_event(t, "M", rank, track);
    fputs(",\"name\":\"thread_name\",\"args\":{\"name\":\"", t->to);
    put_json(t->to, name);
    fputs("\"}}", t->to);
    begin_event(t, "M", rank, track);
    fprintf(t->to, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", track);
}

static void name_rank(trace *t, int rank)
{
    const ls_run_rank *r = &t->run->rank[rank];
    begin_event(t, "M", rank, MAIN_TRACK);
    fprintf(t->to, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank %d of %d", rank, t->run->ranks);
    if (strcmp(r->host, "-")) { /* which an imported trace may lack */
        fputs(" on ", t->to);
        put_json(t->to, r->host);
    }
    fputs("\"}}", t->to);
    begin_event(t, "M", rank, MAIN_TRACK);
    fprintf(t->to, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", rank);
    name_track(t, rank, MAIN_TRACK, "steps");
}

static void put_counter(trace *t, int rank, const char *name, const char *unit, int64_t time, double value)
{
    if (!isfinite(value)) return;
    begin_event(t, "C", rank, MAIN_TRACK);
    put_time(t, "ts", time - t->zero);
    put_name(t, name);
    fprintf(t->to, ",\"args\":{\"%s\":%.6g}}", unit, value);
}

/* ---- Collectives */

/* "rank 1: data (span h.0...)": why the collective's last rank was late. */
static void put_cause(trace *t, const ls_run_collective *m)
{
    const ls_run *run = t->run;
    fprintf(t->to, "\"last rank\":%d", m->last_rank);
    if (m->attribution < 0 || (size_t)m->attribution >= run->n_attributions) return;
    const ls_attribution *d = &run->attributions[m->attribution];
    fprintf(t->to, ",\"cause\":\"rank %d lost %.3f ms in %s%s", d->rank, (double)d->excess / 1e6,
            ls_phase_name(d->phase), d->unscheduled ? ", unscheduled" : "");
    if (d->span >= 0 && d->rank >= 0 && d->rank < run->ranks && (size_t)d->span < run->rank[d->rank].n_spans &&
        run->rank[d->rank].span_names[d->span]) {
        fputs(", before the gradient of ", t->to);
        put_json(t->to, run->rank[d->rank].span_names[d->span]);
    }
    fputc('"', t->to);
}

/* A track that is free at `begin`. If there is none, the slice is left out. */
static int take_lane(trace *t, int rank, int64_t begin, int64_t end)
{
    int64_t *ends = t->lane_end + (size_t)rank * LANES;
    int i = 0;
    while (i < LANES && ends[i] > begin) i++;
    if (i == LANES) return -1;
    ends[i] = end;
    for (; t->lanes[rank] <= i; t->lanes[rank]++) {
        char name[40];
        snprintf(name, sizeof name, t->lanes[rank] ? "collectives (%d)" : "collectives", t->lanes[rank] + 1);
        name_track(t, rank, FIRST_LANE + t->lanes[rank], name);
    }
    return i;
}

static void put_flow(trace *t, const char *kind, int rank, int track, int64_t time, uint64_t id)
{
    begin_event(t, kind, rank, track);
    put_time(t, "ts", time - t->zero);
    fprintf(t->to, ",\"cat\":\"bucket\",\"name\":\"ready to reduced\",\"id\":%" PRIu64 "%s}", id,
            *kind == 'f' ? ",\"bp\":\"e\"" : "");
}

/* Whether the rank's first track has a slice at `time`: within one of its intervals' steps. */
static bool in_step(const ls_run *run, int rank, const ls_run_step *s, int64_t time)
{
    (void)run;
    return s->rank[rank].present && time >= s->rank[rank].begin && time < s->rank[rank].end;
}

static void put_collective(trace *t, const ls_run_collective *m, int rank, const ls_run_step *s)
{
    int64_t arrival = m->arrival[rank], done = m->done[rank], ready = m->ready[rank];
    if (!arrival || done < arrival) return;
    int64_t begin = ready && ready < arrival ? ready : arrival;
    int64_t all_arrived = m->last_arrival < arrival ? arrival : m->last_arrival > done ? done : m->last_arrival;
    int lane = take_lane(t, rank, begin, done);
    if (lane < 0) return;
    char name[64];
    int track = FIRST_LANE + lane;
    if (m->bucket >= 0)
        snprintf(name, sizeof name, "bucket %d", m->bucket);
    else
        snprintf(name, sizeof name, "%s", ls_collective_name(m->kind));
    begin_slice(t, rank, track, m->bucket >= 0 ? "bucket" : "call", name, begin, done);
    fprintf(t->to, ",\"args\":{\"call\":\"%s\",\"number\":%" PRIu64 ",\"bytes\":%" PRId64 ",\"blocked, ms\":%.3f}}",
            ls_collective_name(m->kind), m->call & 0xffffffffffffu, m->bytes, (double)m->blocked[rank] / 1e6);
    if (all_arrived > arrival) {
        snprintf(name, sizeof name, "waits for rank %d", m->last_rank);
        begin_slice(t, rank, track, "wait", name, arrival, all_arrived);
        fputs(",\"args\":{", t->to);
        put_cause(t, m);
        fputs("}}", t->to);
    }
    if (done > all_arrived) {
        begin_slice(t, rank, track, "move", m->bucket >= 0 ? "reduces" : "moves", all_arrived, done);
        double rate = (double)m->bytes / (double)(done - all_arrived);
        fprintf(t->to, ",\"args\":{\"GB/s\":%.3f}}", rate);
    }
    if (ready && done > all_arrived && in_step(t->run, rank, s, ready) && ready <= all_arrived) {
        put_flow(t, "s", rank, MAIN_TRACK, ready, ++t->flows);
        put_flow(t, "f", rank, track, all_arrived, t->flows);
    }
}

/* ---- Steps */

/* The collective in which the rank is blocked at `time`. */
static const ls_run_collective *blocked_in(const trace *t, size_t first, size_t last, int rank, int64_t time)
{
    for (size_t i = first; i < last; i++) {
        const ls_run_collective *m = &t->run->collectives[t->by_step[i]];
        if (m->blocked[rank] > 0 && time >= m->entered[rank] && time < m->left[rank]) return m;
    }
    return NULL;
}

/* A rank's main thread was in one phase, and if that is waiting, for one rank and cause, from `from` to `to`. Samples cut a phase into
 * many intervals; a trace shall show the phase. */
typedef struct slice {
    int64_t from, to;
    ls_phase phase;
    const ls_run_collective *in; /* the collective that it waits in; NULL: none that is known */
    int64_t cpu, sched_delay;    /* cpu < 0: not known */
} slice;

static bool same_cause(const ls_run_collective *a, const ls_run_collective *b)
{
    return a == b || (a && b && a->last_rank == b->last_rank && a->attribution == b->attribution);
}

static void put_slice(trace *t, int rank, const slice *s)
{
    char name[64];
    const char *comma = "";
    if (s->in)
        snprintf(name, sizeof name, "waiting for rank %d", s->in->last_rank);
    else
        snprintf(name, sizeof name, "%s", ls_phase_name(s->phase));
    begin_slice(t, rank, MAIN_TRACK, "phase", name, s->from, s->to);
    fputs(",\"args\":{", t->to);
    if (s->in) {
        put_cause(t, s->in);
        comma = ",";
    }
    if (s->cpu >= 0) fprintf(t->to, "%s\"on a core, ms\":%.3f", comma, (double)s->cpu / 1e6), comma = ",";
    if (s->sched_delay > 0) fprintf(t->to, "%s\"run-queue delay, ms\":%.3f", comma, (double)s->sched_delay / 1e6);
    fputs("}}", t->to);
}

static void put_intervals(trace *t, const ls_run_step *s, int rank, size_t first, size_t last)
{
    const ls_run_rank *r = &t->run->rank[rank];
    int64_t begin = s->rank[rank].begin, end = s->rank[rank].end;
    size_t i = t->interval[rank];
    slice now = { 0 }; /* nothing yet */
    while (i + 1 < r->n_intervals && r->intervals[i + 1].begin <= begin) i++;
    for (; i + 1 < r->n_intervals && r->intervals[i].begin < end; i++) {
        const ls_interval *p = &r->intervals[i];
        int64_t from = p->begin > begin ? p->begin : begin, to = p[1].begin < end ? p[1].begin : end;
        if (to <= from) continue;
        slice next = { .from = from, .to = to, .phase = p->phase, .cpu = p->cpu, .sched_delay = p->sched_delay };
        if (p->phase == LS_PHASE_WAIT) next.in = blocked_in(t, first, last, rank, from + (to - from) / 2);
        if (now.to == from && now.phase == next.phase && same_cause(now.in, next.in)) {
            now.to = to;
            now.cpu = now.cpu >= 0 && next.cpu >= 0 ? now.cpu + next.cpu : -1;
            now.sched_delay += next.sched_delay;
            continue;
        }
        if (now.to > now.from) put_slice(t, rank, &now);
        now = next;
    }
    if (now.to > now.from) put_slice(t, rank, &now);
    t->interval[rank] = i ? i - 1 : 0;
}

/* The profiler's operations in a step. They follow each other, between hooks that communicate. */
static void put_operations(trace *t, const ls_run_step *s, int rank)
{
    const ls_run_rank *r = &t->run->rank[rank];
    int64_t begin = s->rank[rank].begin, end = s->rank[rank].end, last = begin;
    size_t i = t->event[rank];
    while (i < r->n_events && r->events[i].time <= begin) i++;
    for (; i < r->n_events && r->events[i].time <= end; i++) {
        const ls_event *e = &r->events[i];
        if (e->kind != LS_EVENT_OPERATION) continue;
        int64_t from = e->b < (uint64_t)(e->time - last) ? e->time - (int64_t)e->b : last;
        uint64_t name = e->a >> 1;
        if (e->time <= from) continue;
        if (!t->operations[rank]) name_track(t, rank, OPERATION_TRACK, "operations");
        t->operations[rank] = true;
        begin_slice(t, rank, OPERATION_TRACK, "operation",
                    name < r->n_operations && r->operation_names[name] ? r->operation_names[name] : "operation", from,
                    e->time);
        fprintf(t->to, ",\"args\":{\"pass\":\"%s\"}}", e->a & 1 ? "backward" : "forward");
        last = e->time;
    }
    t->event[rank] = i;
}

/* What the loader's workers built of the batches that were taken in a step. */
static void put_batches(trace *t, const ls_run_step *s, int rank)
{
    const ls_run_rank *r = &t->run->rank[rank];
    size_t i = t->batch[rank];
    while (i < r->n_events && r->events[i].time <= s->rank[rank].begin) i++;
    for (; i < r->n_events && r->events[i].time <= s->rank[rank].end; i++) {
        const ls_event *e = &r->events[i];
        int worker = e->kind == LS_EVENT_BATCH ? ls__batch_worker(e->b) : -1;
        if (worker < 0 || worker >= WORKERS || e->a > INT64_MAX / 4) continue;
        int64_t *last = &t->built[(size_t)rank * WORKERS + (size_t)worker];
        int64_t to = e->time - 1000 * ls__batch_age_us(e->b), from = to - (int64_t)e->a;
        if (from < *last && *last <= to) from = *last; /* by rounding */
        if (from < *last || from < t->zero || to <= from) continue;
        if (*last == INT64_MIN) {
            char name[32];
            snprintf(name, sizeof name, "loader %d", worker);
            name_track(t, rank, FIRST_WORKER + worker, name);
        }
        *last = to;
        begin_slice(t, rank, FIRST_WORKER + worker, "batch", "batch", from, to);
        fprintf(t->to, ",\"args\":{\"for step\":%" PRId64 ",\"was ready for, ms\":%.3f,\"ready when asked\":%d}}",
                s->number, (double)ls__batch_age_us(e->b) / 1e3, ls__batch_ready(e->b));
    }
    t->batch[rank] = i;
}

static void put_step(trace *t, const ls_run_step *s, size_t first, size_t last)
{
    const ls_run *run = t->run;
    for (int r = 0; r < run->ranks; r++) {
        const ls_step_rank *mine = &s->rank[r];
        if (!mine->present || mine->end <= mine->begin) continue;
        char name[40];
        snprintf(name, sizeof name, "step %" PRId64, s->number);
        begin_slice(t, r, MAIN_TRACK, "step", name, mine->begin, mine->end);
        fputs(",\"args\":{", t->to);
        for (int p = 0; p < LS_PHASE_COUNT; p++)
            if (mine->ns[p]) fprintf(t->to, "\"%s, ms\":%.3f,", ls_phase_name((ls_phase)p), (double)mine->ns[p] / 1e6);
        fprintf(t->to, "\"overlapped communication, ms\":%.3f}}", (double)mine->overlapped / 1e6);
        put_intervals(t, s, r, first, last);
        put_operations(t, s, r);
        put_batches(t, s, r);
        for (size_t i = first; i < last; i++) put_collective(t, &run->collectives[t->by_step[i]], r, s);
        if (mine->resident > 0)
            put_counter(t, r, "resident memory", "MiB", mine->end - 1, (double)mine->resident / (1 << 20));
        if (mine->cpu >= 0)
            put_counter(t, r, "CPU use", "cores", mine->begin, (double)mine->cpu / (double)(mine->end - mine->begin));
        double tokens = run->rank[r].metadata[LS_METADATA_TOKENS];
        if (r == 0 && tokens > 0)
            put_counter(t, r, "throughput", "tokens/s", mine->begin, tokens * 1e9 / (double)(mine->end - mine->begin));
        if (mine->batches > 0)
            put_counter(t, r, "batches ready when asked", "batches", mine->begin,
                        (double)mine->batches_ready / (double)mine->batches);
    }
}

static const ls_run *sorted_run; /* qsort() hands nothing on */

static int by_step_and_time(const void *a, const void *b)
{
    const ls_run_collective *x = &sorted_run->collectives[*(const uint64_t *)a],
                            *y = &sorted_run->collectives[*(const uint64_t *)b];
    if (x->step != y->step) return (x->step > y->step) - (x->step < y->step);
    return (x->last_arrival > y->last_arrival) - (x->last_arrival < y->last_arrival);
}

int64_t trace_write(FILE *to, const ls_run *run, const trace_options *o)
{
    size_t ranks = (size_t)run->ranks;
    trace t = { .to = to, .run = run };
    int64_t written = 0;
    t.by_step = calloc(run->n_collectives + 1, sizeof *t.by_step);
    t.interval = calloc(ranks + 1, sizeof *t.interval);
    t.lane_end = calloc(ranks * LANES + 1, sizeof *t.lane_end);
    t.lanes = calloc(ranks + 1, sizeof *t.lanes);
    t.event = calloc(ranks + 1, sizeof *t.event);
    t.operations = calloc(ranks + 1, sizeof *t.operations);
    t.batch = calloc(ranks + 1, sizeof *t.batch);
    t.built = calloc(ranks * WORKERS + 1, sizeof *t.built);
    if (!t.batch || !t.built || !t.event || !t.operations || !t.by_step || !t.interval || !t.lane_end || !t.lanes) {
        written = -1;
        goto done;
    }
    for (size_t i = 0; i < run->n_collectives; i++) t.by_step[i] = i;
    sorted_run = run;
    qsort(t.by_step, run->n_collectives, sizeof *t.by_step, by_step_and_time);
    for (size_t i = 0; i < ranks * LANES; i++) t.lane_end[i] = INT64_MIN;
    for (size_t i = 0; i < ranks * WORKERS; i++) t.built[i] = INT64_MIN;
    t.zero = run->n_steps ? run->steps[0].begin : 0;
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"lockstep\"},\"traceEvents\":[\n", to);
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) name_rank(&t, r);
    for (size_t i = 0; i < run->n_steps; i++) {
        const ls_run_step *s = &run->steps[i];
        while (t.at < run->n_collectives && run->collectives[t.by_step[t.at]].step < s->number) t.at++;
        size_t end = t.at;
        while (end < run->n_collectives && run->collectives[t.by_step[end]].step == s->number) end++;
        if (s->number < o->first || s->number > o->last) continue;
        if (!written++) t.zero = s->begin;
        put_step(&t, s, t.at, end);
    }
    fputs("\n]}\n", to);
done:
    free(t.built);
    free(t.batch);
    free(t.operations);
    free(t.event);
    free(t.lanes);
    free(t.lane_end);
    free(t.interval);
    free(t.by_step);
    return written;
}
