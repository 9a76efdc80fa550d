/* Collectives joined over the ranks. Each rank recorded its own arrival; the last rank follows from all of them on one clock. Where a
 * rank's events are missing, what the call itself reported to the others is used. */
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/limits.h"
#include "measure/model.h"

/* Calls by their key: open addressing, a power of two of places. It stays with the run. */
struct ls__call_table {
    uint64_t *keys; /* call + 1; 0: free */
    uint32_t *index;
    size_t mask;
    int64_t *cells; /* what the collectives' arrays point into */
};
typedef ls__call_table table;

static size_t place_of(const table *t, uint64_t call)
{
    uint64_t h = (call + 1) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & t->mask;
    while (t->keys[i] && t->keys[i] != call + 1) i = (i + 1) & t->mask;
    return i;
}

static bool is_first_start(const ls_event *e)
{
    return e->kind == LS_EVENT_COLL_START && e->a != UINT64_MAX;
}

static ls_status make_table(const ls_run *run, table *t, size_t *calls)
{
    size_t starts = 0, room = 64;
    *calls = 0;
    for (int r = 0; r < run->ranks; r++)
        for (size_t i = 0; i < run->rank[r].n_events; i++) starts += is_first_start(&run->rank[r].events[i]);
    while (room < 2 * starts) room *= 2;
    t->keys = calloc(room, sizeof *t->keys);
    t->index = malloc(room * sizeof *t->index);
    t->mask = room - 1;
    if (!t->keys || !t->index || starts > UINT32_MAX)
        return ls__fail(LS_ENOMEM, "%s: no memory for its events", run->path);
    for (int r = 0; r < run->ranks; r++)
        for (size_t i = 0; i < run->rank[r].n_events; i++) {
            const ls_event *e = &run->rank[r].events[i];
            if (!is_first_start(e)) continue;
            size_t at = place_of(t, e->a);
            if (!t->keys[at]) t->index[at] = (uint32_t)(*calls)++;
            t->keys[at] = e->a + 1;
        }
    return LS_OK;
}

enum { ARRAYS = 7 }; /* of a number per rank, of each collective; all in one block of memory */

static ls_status make_collectives(ls_run *run, table *t, size_t calls)
{
    size_t p = (size_t)run->ranks, cells, bytes;
    if (!calls) return LS_OK;
    if (__builtin_mul_overflow(calls, ARRAYS * p, &cells) || __builtin_mul_overflow(cells, sizeof(int64_t), &bytes))
        return ls__fail(LS_ENOMEM, "%s: no memory for %zu collectives", run->path, calls);
    t->cells = calloc(cells, sizeof *t->cells);
    run->collectives = calloc(calls, sizeof *run->collectives);
    if (!t->cells || !run->collectives)
        return ls__fail(LS_ENOMEM, "%s: no memory for %zu collectives", run->path, calls);
    run->n_collectives = calls;
    for (size_t i = 0; i < calls; i++) {
        ls_run_collective *m = &run->collectives[i];
        int64_t **arrays[ARRAYS] = { &m->arrival, &m->done, &m->blocked, &m->wait, &m->entered, &m->left, &m->ready };
        for (size_t k = 0; k < ARRAYS; k++) *arrays[k] = t->cells + (ARRAYS * i + k) * p;
        m->bucket = m->last_rank = m->attribution = -1;
        m->step = -1;
    }
    return LS_OK;
}

static ls_run_collective *collective_of(ls_run *run, const table *t, uint64_t call)
{
    size_t at = place_of(t, call);
    return t->keys[at] ? &run->collectives[t->index[at]] : NULL;
}

/* Fills in what rank r recorded. A bucket is full before it is started; that time is kept until then. */
static ls_status fill(ls_run *run, const table *t, int r)
{
    int64_t *ready = calloc(LS__MOST_BUCKETS, sizeof *ready);
    if (!ready) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < run->rank[r].n_events; i++) {
        const ls_event *e = &run->rank[r].events[i];
        ls_run_collective *m = NULL;
        if (e->kind == LS_EVENT_BUCKET_READY && e->a < LS__MOST_BUCKETS) ready[e->a] = e->time;
        if (e->kind == LS_EVENT_BUCKET_START && e->a < LS__MOST_BUCKETS && (m = collective_of(run, t, e->b))) {
            m->bucket = (int32_t)e->a;
            m->ready[r] = ready[e->a];
        }
        if (e->kind != LS_EVENT_COLL_START && e->kind != LS_EVENT_COLL_DONE && e->kind != LS_EVENT_BLOCKED) continue;
        if (!(m = collective_of(run, t, e->a))) continue;
        if (e->kind == LS_EVENT_COLL_START) {
            m->call = e->a;
            m->kind = (uint8_t)(e->b >> 56);
            m->bytes = ls__max(m->bytes, (int64_t)(e->b & (UINT64_MAX >> 8)));
            m->arrival[r] = e->time;
        } else if (e->kind == LS_EVENT_COLL_DONE) {
            m->done[r] = e->time;
            /* What the call itself reported, should ranks be missing. */
            int last = (int)(e->b >> 48);
            int64_t late = m->arrival[r] + (int64_t)(e->b & (UINT64_MAX >> 16));
            if (last < run->ranks && !run->rank[last].present && m->arrival[r] && late > m->last_arrival) {
                m->last_arrival = late;
                m->last_rank = last;
            }
        } else {
            int64_t ns = ls__min(ls__blocked_ns(e), INT64_MAX / 4);
            if (!m->left[r]) m->entered[r] = e->time - ns;
            m->blocked[r] = ls__min(m->blocked[r] + ns, INT64_MAX / 4);
            m->left[r] = e->time;
        }
    }
    free(ready);
    return LS_OK;
}

static void find_last_arrival(ls_run *run, ls_run_collective *m)
{
    for (int r = 0; r < run->ranks; r++)
        if (m->arrival[r] && (m->last_rank < 0 || m->arrival[r] > m->last_arrival)) {
            m->last_arrival = m->arrival[r];
            m->last_rank = r;
        }
}

/* How long rank r was blocked in collectives before the last rank arrived. */
static void find_waits(ls_run *run, const table *t, int r)
{
    for (size_t i = 0; i < run->rank[r].n_events; i++) {
        const ls_event *e = &run->rank[r].events[i];
        ls_run_collective *m = e->kind == LS_EVENT_BLOCKED ? collective_of(run, t, e->a) : NULL;
        if (!m || m->last_rank == r) continue;
        int64_t ns = ls__min(ls__blocked_ns(e), INT64_MAX / 4);
        int64_t wait = ls__max(0, ls__min(m->last_arrival, e->time) - (e->time - ns));
        m->wait[r] = ls__min(m->wait[r] + wait, INT64_MAX / 4);
    }
}

static int by_arrival(const void *a, const void *b)
{
    const ls_run_collective *x = a, *y = b;
    if (x->last_arrival != y->last_arrival) return x->last_arrival > y->last_arrival ? 1 : -1;
    return (x->call > y->call) - (x->call < y->call);
}

ls_status ls__run_join_collectives(ls_run *run)
{
    size_t calls = 0;
    table *t = ls__run_internal_of(run)->calls = calloc(1, sizeof *t);
    ls_status status = t ? make_table(run, t, &calls) : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    if (!status) status = make_collectives(run, t, calls);
    bool moved = true;
    for (int pass = 0; pass < 2 && moved && !status; pass++) {
        if (pass && run->n_collectives)
            memset(t->cells, 0, run->n_collectives * ARRAYS * (size_t)run->ranks * sizeof *t->cells);
        for (int r = 0; r < run->ranks && !status && run->n_collectives; r++) status = fill(run, t, r);
        if (!status && pass == 0) status = ls__run_check_clocks(run, &moved);
        for (size_t i = 0; i < run->n_collectives && moved && pass == 0; i++) run->collectives[i].last_arrival = 0;
    }
    if (status) return status;
    for (size_t i = 0; i < run->n_collectives; i++) find_last_arrival(run, &run->collectives[i]);
    for (int r = 0; r < run->ranks && run->n_collectives; r++) find_waits(run, t, r);
    for (size_t i = 0; i < run->n_collectives; i++)
        for (int r = 0; r < run->ranks; r++) {
            ls_run_collective *m = &run->collectives[i];
            m->waited += m->wait[r];
            m->longest = ls__max(m->longest, m->wait[r]);
        }
    if (run->n_collectives) qsort(run->collectives, run->n_collectives, sizeof *run->collectives, by_arrival);
    for (size_t i = 0; i < run->n_collectives; i++) t->index[place_of(t, run->collectives[i].call)] = (uint32_t)i;
    return LS_OK;
}

const ls_run_collective *ls__run_collective_of(const ls_run *run, uint64_t call)
{
    const table *t = ls__run_internal_of(run)->calls;
    if (!run->n_collectives || call == UINT64_MAX) return NULL;
    size_t at = place_of(t, call);
    return t->keys[at] ? &run->collectives[t->index[at]] : NULL;
}

void ls__run_collectives_free(ls_run *run)
{
    table *t = run->internal ? ls__run_internal_of(run)->calls : NULL;
    if (!t) return;
    free(t->keys);
    free(t->index);
    free(t->cells);
    free(t);
    ls__run_internal_of(run)->calls = NULL;
}
