/* A GPU's time. The rank's row is that of its device: a kernel counts for the phase in which the host launched it, time in which only
 * communication ran is time blocked in that collective, and time without kernels for the phase that the host was in, which is what the
 * device waited for. */
#include <stdlib.h>
#include <string.h>
#include "base/arith.h"
#include "base/status.h"
#include "import/trace.h"

enum { CLOSE_NS = 10000 }; /* a shorter pause between two kernels is not time in which something was waited for */
enum { GAP_NS = 30000 };   /* if the queue is not empty, the next kernel begins within this time */

static ls_status no_memory(const ls__trace *t)
{
    return ls__fail(LS_ENOMEM, "%s: no memory for its kernels", t->path);
}

static int kernel_order(const void *a, const void *b)
{
    const ls__kernel *x = a, *y = b;
    if (x->begin != y->begin) return x->begin > y->begin ? 1 : -1;
    return (x->end > y->end) - (x->end < y->end);
}

static int launch_order(const void *a, const void *b)
{
    const ls__launch *x = a, *y = b;
    if (x->correlation != y->correlation) return x->correlation > y->correlation ? 1 : -1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static const ls__launch *launch_of(const ls__trace *t, uint32_t correlation)
{
    size_t low = 0, high = t->launches.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->launches.at[middle].correlation < correlation)
            low = middle + 1;
        else
            high = middle;
    }
    const ls__launch *l = low < t->launches.count ? &t->launches.at[low] : NULL;
    return l && l->correlation == correlation && correlation ? l : NULL;
}

/* ---- Communication kernels as collectives. */

/* The call on the host in which the kernel was launched; -1: not known. */
static ptrdiff_t call_of(const ls__trace *t, const ls__launch *l)
{
    size_t low = 0, high = t->calls.count;
    if (!l) return -1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->calls.at[middle].begin <= l->begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t k = low; k-- > 0 && low - k < 64;)
        if (t->calls.at[k].thread == l->thread && t->calls.at[k].end >= l->begin) return (ptrdiff_t)k;
    return -1;
}

static int call_order(const void *a, const void *b)
{
    const ls__call *x = a, *y = b;
    if (x->arrived != y->arrived) return x->arrived > y->arrived ? 1 : -1;
    return (x->done > y->done) - (x->done < y->done);
}

/* One collective for each kernel, or for the kernels of one call. Those of an unknown kind are left out. */
static ls_status take_kernels(ls__trace *t)
{
    size_t *taken = malloc((t->calls.count + 1) * sizeof *taken); /* index + 1 of the collective of a call */
    size_t n = 0;
    if (!taken) return no_memory(t);
    memset(taken, 0, (t->calls.count + 1) * sizeof *taken);
    for (size_t i = 0; i < t->comms.count; i++) {
        ls__call c = t->comms.at[i];
        const ls__launch *l = launch_of(t, t->comm_launch.at[i]);
        ptrdiff_t host = call_of(t, l);
        c.in_backward = l && ls__trace_phase_at(t, l->begin) == LS_PHASE_BACKWARD;
        if (host >= 0) {
            const ls__call *h = &t->calls.at[host];
            if (c.group == UINT32_MAX && h->group != UINT32_MAX) {
                c.kind = h->kind;
                c.bytes = h->bytes;
                c.sequence = h->sequence;
                c.group = h->group;
                c.sends = h->sends;
            }
            if (taken[host]) {
                ls__call *first = &t->comms.at[taken[host] - 1];
                first->arrived = ls__min(first->arrived, c.arrived);
                first->done = ls__max(first->done, c.done);
                continue;
            }
        }
        if (c.kind >= LS_COLLECTIVE_KINDS) continue;
        if (host >= 0) taken[host] = n + 1;
        t->comms.at[n++] = c;
    }
    free(taken);
    free(t->calls.at);
    t->calls.at = t->comms.at;
    t->calls.count = n;
    t->calls.room = t->comms.room;
    t->comms.at = NULL;
    t->comms.count = t->comms.room = 0;
    if (n) qsort(t->calls.at, n, sizeof *t->calls.at, call_order);
    return LS_OK;
}

/* ---- Where the device's time goes. */

static bool is_memory(uint8_t kind)
{
    return kind == LS__KERNEL_COPY || kind == LS__KERNEL_SET;
}

typedef struct sweep {
    int64_t until[3]; /* computation, memory, communication: known to run until then */
    int64_t at;       /* sums are complete up to here */
} sweep;

/* Adds up to `to`, where the next kernel begins. */
static void advance(ls__device *d, sweep *s, int64_t to)
{
    while (s->at < to) {
        int64_t next = to;
        bool on[3];
        for (int k = 0; k < 3; k++) {
            on[k] = s->until[k] > s->at;
            if (on[k]) next = ls__min(next, s->until[k]);
        }
        int64_t ns = next - s->at;
        if (on[0]) d->compute += ns;
        if (on[1]) d->memory += ns;
        if (on[2]) d->comm += ns;
        if (on[0] && on[2]) d->overlap += ns;
        if (on[2] && !on[0]) d->exposed += ns;
        if (on[1] && !on[0] && !on[2]) d->copies += ns;
        if (!on[0] && !on[1] && !on[2]) d->idle += ns;
        s->at = next;
    }
}

/* Why nothing ran before kernel k, from `from` on. */
static void explain_idle(ls__trace *t, const ls__kernel *k, int64_t from)
{
    ls__device *d = &t->device;
    int64_t ns = k->begin - from;
    const ls__launch *l = launch_of(t, k->launch);
    if (l && l->begin > from) {
        d->idle_host += ns;
        size_t low = 0, high = t->intervals.count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (t->intervals.at[middle].end <= from)
                low = middle + 1;
            else
                high = middle;
        }
        for (const ls__trace_interval *p; low < t->intervals.count && (p = &t->intervals.at[low])->begin < k->begin;
             low++)
            if (p->phase == LS_PHASE_DATA) d->idle_data += ls__min(p->end, k->begin) - ls__max(p->begin, from);
    } else if (ns < GAP_NS) {
        d->idle_gap += ns;
    } else {
        d->idle_other += ns;
    }
}

static void sum_device(ls__trace *t)
{
    ls__device *d = &t->device;
    sweep s = { .until = { INT64_MIN, INT64_MIN, INT64_MIN } };
    int64_t until = INT64_MIN;
    for (size_t i = 0; i < t->kernels.count; i++) {
        const ls__kernel *k = &t->kernels.at[i];
        int class = k->kind == LS__KERNEL_COMM ? 2 : is_memory(k->kind) ? 1 : 0;
        if (!i) d->begin = s.at = until = k->begin;
        if (k->begin > until) explain_idle(t, k, until);
        until = ls__max(until, k->end);
        advance(d, &s, k->begin);
        s.until[class] = ls__max(s.until[class], k->end);
        d->kind[k->kind] += k->end - k->begin;
    }
    d->end = until;
    advance(d, &s, until);
}

/* The time between the kernels of each stream by itself. */
static ls_status sum_streams(ls__trace *t)
{
    uint32_t n = t->threads.count;
    int64_t *until = malloc(((size_t)n + 1) * sizeof *until);
    uint32_t *row = calloc((size_t)n + 1, sizeof *row);
    ls_status status = until && row ? LS_OK : no_memory(t);
    for (size_t i = 0; i < t->kernels.count && !status; i++) {
        const ls__kernel *k = &t->kernels.at[i];
        if (k->stream >= n) continue;
        if (!row[k->stream]) {
            if (!LS__ADD(&t->streams, (ls__stream){ .thread = k->stream })) status = no_memory(t);
            row[k->stream] = (uint32_t)t->streams.count;
            until[k->stream] = k->begin;
        }
        if (status) break;
        ls__stream *s = &t->streams.at[row[k->stream] - 1];
        int64_t ns = k->begin - until[k->stream];
        const ls__launch *l = launch_of(t, k->launch);
        if (ns > 0 && l && l->begin > until[k->stream])
            s->idle_host += ns;
        else if (ns > 0 && ns < GAP_NS)
            s->idle_gap += ns;
        else if (ns > 0)
            s->idle_other += ns;
        s->kernels++;
        s->busy += ls__max(0, k->end - ls__max(k->begin, until[k->stream]));
        until[k->stream] = ls__max(until[k->stream], k->end);
    }
    free(until);
    free(row);
    return status;
}

/* ---- The device's row. */

typedef struct row {
    LS__LIST(ls__trace_interval) intervals;
    bool ok;
} row;

static void put(row *r, int64_t begin, int64_t end, ls_phase phase)
{
    ls__trace_interval *last = r->intervals.count ? &r->intervals.at[r->intervals.count - 1] : NULL;
    if (end <= begin || !r->ok) return;
    if (last && last->phase == (uint8_t)phase && last->end == begin)
        last->end = end;
    else if (phase != LS_PHASE_OTHER)
        r->ok = LS__ADD(&r->intervals, (ls__trace_interval){ begin, end, (uint8_t)phase });
}

/* The host's phases from `begin` to `end`, in which the device has nothing to do. */
static void put_host(row *r, const ls__trace *t, int64_t begin, int64_t end, size_t *at)
{
    while (*at < t->intervals.count && t->intervals.at[*at].end <= begin) ++*at;
    for (size_t i = *at; i < t->intervals.count && t->intervals.at[i].begin < end; i++)
        put(r, ls__max(begin, t->intervals.at[i].begin), ls__min(end, t->intervals.at[i].end),
            (ls_phase)t->intervals.at[i].phase);
}

/* Where only communication runs: the call that is under way there. What is none, or a send, which is not joined, is communication alone. */
static void put_wait(row *r, ls__trace *t, int64_t begin, int64_t end, size_t *call)
{
    while (*call < t->calls.count && t->calls.at[*call].done <= begin) ++*call;
    for (size_t i = *call; i < t->calls.count && t->calls.at[i].arrived < end; i++) {
        ls__call *c = &t->calls.at[i];
        int64_t from = ls__max(begin, c->arrived), to = ls__min(end, c->done);
        if (to <= from || c->sends) continue;
        put(r, begin, from, LS_PHASE_COMM);
        if (r->ok) r->ok = LS__ADD(&t->waits, (ls__trace_wait){ from, to, (uint32_t)i });
        c->blocked += to - from;
        begin = to;
    }
    put(r, begin, end, LS_PHASE_COMM);
}

/* An interval in which only kernels of communication run. `comm`: the intervals of those, in order. */
static void put_gap(row *r, ls__trace *t, int64_t begin, int64_t end, const ls__trace_interval *comm, size_t n_comm,
                    size_t *at, size_t *host, size_t *call)
{
    while (*at < n_comm && comm[*at].end <= begin) ++*at;
    for (size_t i = *at; begin < end; i++) {
        int64_t from = i < n_comm ? ls__min(ls__max(comm[i].begin, begin), end) : end;
        put_host(r, t, begin, from, host);
        int64_t to = i < n_comm ? ls__min(comm[i].end, end) : end;
        if (from < to) put_wait(r, t, from, to, call);
        begin = ls__max(from, to);
    }
}

static ls_status make_row(ls__trace *t)
{
    row r = { .ok = true }, comm = { .ok = true };
    size_t at = 0, host = 0, call = 0;
    for (size_t i = 0; i < t->kernels.count; i++)
        if (t->kernels.at[i].kind == LS__KERNEL_COMM) {
            const ls__kernel *k = &t->kernels.at[i];
            int64_t begin =
                comm.intervals.count ? ls__max(k->begin, comm.intervals.at[comm.intervals.count - 1].end) : k->begin;
            put(&comm, begin, k->end, LS_PHASE_COMM);
        }
    int64_t until = t->steps.count ? ls__min(t->steps.at[0].begin, t->kernels.at[0].begin) : t->kernels.at[0].begin;
    for (size_t i = 0; i < t->kernels.count && r.ok && comm.ok; i++) {
        const ls__kernel *k = &t->kernels.at[i];
        if (k->kind == LS__KERNEL_COMM || k->end <= until) continue;
        const ls__launch *l = launch_of(t, k->launch);
        ls_phase phase = ls__trace_phase_at(t, l ? l->begin : k->begin);
        bool close = i && k->begin > until && k->begin - until < CLOSE_NS;
        if (k->begin > until && !close)
            put_gap(&r, t, until, k->begin, comm.intervals.at, comm.intervals.count, &at, &host, &call);
        put(&r, close ? until : ls__max(k->begin, until), k->end, phase);
        until = k->end;
    }
    int64_t last = ls__max(t->device.end, t->steps.count ? t->steps.at[t->steps.count - 1].end : 0);
    if (last > until) put_gap(&r, t, until, last, comm.intervals.at, comm.intervals.count, &at, &host, &call);
    free(comm.intervals.at);
    if (!r.ok || !comm.ok) {
        free(r.intervals.at);
        return no_memory(t);
    }
    free(t->intervals.at);
    t->intervals.at = r.intervals.at;
    t->intervals.count = r.intervals.count;
    t->intervals.room = r.intervals.room;
    return LS_OK;
}

static ls_status unpack(ls__trace *t)
{
    size_t kernels = t->packed_kernels.count, launches = t->packed_launches.count;
    int64_t f[LS__DELTAS_FIELDS];
    t->kernels.at = reallocarray(NULL, kernels + 1, sizeof *t->kernels.at);
    t->launches.at = reallocarray(NULL, launches + 1, sizeof *t->launches.at);
    if (!t->kernels.at || !t->launches.at) return no_memory(t);
    while (ls__deltas_take(&t->packed_launches, f))
        t->launches.at[t->launches.count++] =
            (ls__launch){ .begin = f[0], .correlation = (uint32_t)f[1], .thread = (uint32_t)f[2] };
    while (ls__deltas_take(&t->packed_kernels, f))
        t->kernels.at[t->kernels.count++] = (ls__kernel){ .begin = f[0],
                                                          .end = f[0] + f[1],
                                                          .launch = (uint32_t)f[2],
                                                          .stream = (uint16_t)(f[3] / LS__KERNEL_KINDS),
                                                          .kind = (uint8_t)(f[3] % LS__KERNEL_KINDS) };
    return LS_OK;
}

ls_status ls__trace_device(ls__trace *t)
{
    if (!t->packed_kernels.count) return LS_OK;
    ls_status status = unpack(t);
    if (status) return status;
    ls__sort_nearly(t->kernels.at, t->kernels.count, sizeof *t->kernels.at, kernel_order);
    ls__sort_nearly(t->launches.at, t->launches.count, sizeof *t->launches.at, launch_order);
    status = take_kernels(t);
    sum_device(t);
    if (!status) status = sum_streams(t);
    if (!status) status = make_row(t);
    /* What was only needed for that is given back before the next rank is read. */
    free(t->kernels.at);
    free(t->launches.at);
    free(t->comm_launch.at);
    t->kernels.at = NULL;
    t->launches.at = NULL;
    t->comm_launch.at = NULL;
    t->kernels.count = t->kernels.room = t->launches.count = t->launches.room = t->comm_launch.count =
        t->comm_launch.room = 0;
    return status;
}
