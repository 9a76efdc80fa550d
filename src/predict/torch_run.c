/* Runs of PyTorch, recorded or imported. Their records have buckets instead of single gradients, and neither cores nor what they do
 * together. So a rank is taken to compute as it did, and communication, which NCCL or Gloo's threads carry out beside it, to be as fast
 * as the recorded buckets were. Set-ups for which that does not hold are refused; see check_torch() in predict.c. */
#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "predict/profile.h"

enum { MOST_BUCKETS = 4096 };

typedef struct bucket_sum {
    double share, n;
    int64_t bytes;
} bucket_sum;

/* ---- Micro-batches: how often backward follows forward in a step. */

typedef struct pass_count {
    int passes, loads; /* loads: of data */
} pass_count;

static pass_count count_passes(const ls_run_rank *x, size_t *at, const ls_step_rank *step)
{
    pass_count n = { 0 };
    ls_phase last = LS_PHASE_BACKWARD, before = LS_PHASE_OTHER;
    while (*at < x->n_intervals && x->intervals[*at].begin < step->begin) ++*at;
    for (; *at < x->n_intervals && x->intervals[*at].begin < step->end; ++*at) {
        ls_phase phase = x->intervals[*at].phase;
        if (phase == LS_PHASE_BACKWARD && last == LS_PHASE_FORWARD) n.passes++;
        if (phase == LS_PHASE_DATA && before != LS_PHASE_DATA) n.loads++;
        if (phase == LS_PHASE_FORWARD || phase == LS_PHASE_BACKWARD) last = phase;
        if (phase == LS_PHASE_FORWARD || phase == LS_PHASE_BACKWARD || phase == LS_PHASE_DATA) before = phase;
    }
    return n;
}

/* Of a step on each rank. 0: not known, and *why has the reason: passes may be something else, such as those of several models. */
static int count_micro_batches(const ls_run *run, const char **why)
{
    int found = -1;
    for (int r = 0; r < run->ranks; r++) {
        size_t at = 0;
        for (size_t i = run->first_counted; i < run->n_steps; i++) {
            const ls_step_rank *step = &run->steps[i].rank[r];
            if (!step->present) continue;
            pass_count n = count_passes(&run->rank[r], &at, step);
            *why = found >= 0 && n.passes != found ? "steps differ in how often backward follows forward"
                   : n.passes > 1 && n.loads && n.loads != n.passes
                       ? "backward follows forward more than once in a step, but data are not loaded as often"
                       : NULL;
            if (*why) return 0;
            found = n.passes;
        }
    }
    if (found < 1) *why = "backward does not follow forward in a step";
    return found > 0 ? found : 0;
}

/* ---- Buckets. */

typedef struct backward_time { /* of a step on the first rank */
    int64_t number;
    int64_t first, begin, end; /* begin of the first pass and of the last one, and its end */
    int64_t blocked_all;       /* of the time from `first` on, in collectives */
    int64_t blocked;           /* from `begin` on */
    bool inside, again;        /* again: forward came since */
} backward_time;

static size_t list_backward(const ls_run_rank *x, backward_time *out, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n_events; i++) {
        const ls_event *e = &x->events[i];
        if (e->kind == LS_EVENT_STEP && (!n || out[n - 1].number != (int64_t)e->a)) {
            if (n == room) break;
            out[n++] = (backward_time){ .number = (int64_t)e->a };
        }
        backward_time *b = n ? &out[n - 1] : NULL;
        if (b && b->inside && e->kind == LS_EVENT_BLOCKED) {
            int64_t from = e->time - (int64_t)e->b;
            b->blocked_all += from >= b->first ? (int64_t)e->b : 0;
            b->blocked += from >= b->begin ? (int64_t)e->b : 0;
        }
        if (b && e->kind == LS_EVENT_PHASE_BEGIN && e->a == LS_PHASE_FORWARD) b->again = true;
        if (!b || e->a != LS_PHASE_BACKWARD) continue;
        if (e->kind == LS_EVENT_PHASE_END) b->end = e->time, b->inside = false;
        if (e->kind != LS_EVENT_PHASE_BEGIN) continue;
        b->inside = true;
        if (!b->first) b->first = e->time;
        if (!b->begin || b->again) b->begin = e->time, b->blocked = 0;
        b->again = false;
    }
    return n;
}

static const backward_time *backward_of(const backward_time *steps, size_t n_steps, int64_t number, size_t *at)
{
    if (*at >= n_steps || steps[*at].number != number)
        for (*at = 0; *at < n_steps && steps[*at].number != number;) ++*at;
    return *at < n_steps && steps[*at].begin ? &steps[*at] : NULL;
}

static int64_t ready_time(const ls_run_collective *c)
{
    return c->ready[0] ? c->ready[0] : c->arrival[0];
}

static bool is_bucket(const ls_run_collective *c)
{
    return c->bucket >= 0 && c->bucket < MOST_BUCKETS && c->bytes > 0;
}

/* Whether buckets are sent before the last pass of their step, too: gradients are not added up first. */
static bool sends_early(const ls_run *run, const backward_time *steps, size_t n_steps)
{
    size_t k = 0;
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *c = &run->collectives[i];
        const backward_time *b = is_bucket(c) ? backward_of(steps, n_steps, c->step, &k) : NULL;
        if (b && ready_time(c) >= b->first && ready_time(c) < b->begin) return true;
    }
    return false;
}

/* From the last rank's arrival, or the end of the bucket before, to the end. */
static void add_transfer(const ls_run *run, const ls_run_collective *c, int64_t *free_at, double *bytes, double *ns)
{
    int64_t done = 0, begin = c->last_arrival > *free_at ? c->last_arrival : *free_at;
    for (int r = 0; r < run->ranks; r++)
        if (c->done[r] > done) done = c->done[r];
    if (done <= begin) return;
    *bytes += (double)c->bytes;
    *ns += (double)(done - begin);
    *free_at = done;
}

static void sum_buckets(const ls_run *run, const backward_time *steps, size_t n_steps, bucket_sum *sums, double *rate)
{
    double bytes = 0, ns = 0;
    int64_t free_at = 0;
    size_t k = 0;
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *c = &run->collectives[i];
        if (!is_bucket(c)) continue;
        add_transfer(run, c, &free_at, &bytes, &ns);
        int64_t ready = ready_time(c);
        const backward_time *b = backward_of(steps, n_steps, c->step, &k);
        if (!b || b->end - b->begin <= b->blocked || !ready) continue;
        double share = (double)(ready - b->begin) / (double)(b->end - b->begin - b->blocked);
        sums[c->bucket].share += fmax(0, fmin(1, share));
        sums[c->bucket].n++;
        sums[c->bucket].bytes = c->bytes;
    }
    *rate = ns > 0 ? bytes / ns : 0;
}

ls_status ls__torch_run_read(ls__step_profile *p, const ls_run *run)
{
    size_t room = run->n_steps + 2, n = 0;
    backward_time *steps = malloc(room * sizeof *steps);
    bucket_sum *sums = calloc(MOST_BUCKETS, sizeof *sums);
    p->spans = calloc(MOST_BUCKETS, sizeof *p->spans);
    ls_status status = steps && sums && p->spans ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    p->beside = true;
    p->speed =
        (ls__node_speed){ (double)p->local * p->threads, 1, 1, 1, 1, 1, 1, 0 }; /* only ratios of the rates count */
    if (!status) {
        double slots = run->rank[0].metadata[LS_METADATA_SLOTS]; /* an import counts what the host did, on a GPU, too */
        int each = slots >= p->ranks ? p->slots / p->ranks : count_micro_batches(run, &p->no_slots);
        n = list_backward(&run->rank[0], steps, room);
        if (each > 1 && sends_early(run, steps, n))
            p->no_slots = "backward follows forward more than once in a step, and gradients are reduced each time";
        for (size_t i = 0; (p->no_slots || each < 2) && i < n; i++) /* a step is one pass */
            steps[i].begin = steps[i].first, steps[i].blocked = steps[i].blocked_all;
        p->slots = p->no_slots ? p->ranks : each * p->ranks;
        sum_buckets(run, steps, n, sums, &p->own_rate);
    }
    for (size_t i = 0; !status && i < MOST_BUCKETS; i++) {
        size_t count = (size_t)sums[i].bytes / sizeof(float);
        if (!(sums[i].n > 0) || !count) continue;
        p->spans[p->n_spans++] = (ls__span_cost){ .count = count, .ready = sums[i].share / sums[i].n };
        p->elements += count;
        if ((size_t)sums[i].bytes > p->bucket_bytes) p->bucket_bytes = (size_t)sums[i].bytes;
    }
    free(steps);
    free(sums);
    return status;
}
