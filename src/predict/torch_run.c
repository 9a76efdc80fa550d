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

typedef struct backward_time { /* of a step on the first rank, from the first backward's begin to the last one's end */
    int64_t number, begin, end;
    int64_t blocked; /* of that, in collectives */
    bool inside;
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
        if (b && b->inside && e->kind == LS_EVENT_BLOCKED && e->time - (int64_t)e->b >= b->begin)
            b->blocked += (int64_t)e->b;
        if (!b || e->a != LS_PHASE_BACKWARD) continue;
        if (e->kind == LS_EVENT_PHASE_BEGIN) b->inside = true;
        if (e->kind == LS_EVENT_PHASE_BEGIN && !b->begin) b->begin = e->time;
        if (e->kind == LS_EVENT_PHASE_END) b->end = e->time, b->inside = false;
    }
    return n;
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
        if (c->bucket < 0 || c->bucket >= MOST_BUCKETS || c->bytes <= 0) continue;
        add_transfer(run, c, &free_at, &bytes, &ns);
        int64_t ready = c->ready[0] ? c->ready[0] : c->arrival[0];
        if (k >= n_steps || steps[k].number != c->step)
            for (k = 0; k < n_steps && steps[k].number != c->step;) k++;
        if (k >= n_steps || !steps[k].begin || steps[k].end - steps[k].begin <= steps[k].blocked || !ready) continue;
        double share = (double)(ready - steps[k].begin) / (double)(steps[k].end - steps[k].begin - steps[k].blocked);
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
        n = list_backward(&run->rank[0], steps, room);
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
