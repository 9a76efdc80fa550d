/* Communication by kind of collective, and what it takes at least.
 *
 * Within a machine the least is what the memory needs to move the bytes, at the rate of a copy that each rank measures when it starts.
 * The peak of a link between machines is not known, so it is the best rate that the run itself sustained, counted in bytes on
 * the wire. A single collective is not a measure of it: switches, sockets and shapers buffer some milliseconds of traffic. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/findings.h"
#include "measure/limits.h"
#include "record/collectives.h"
#include "record/ring.h"

/* ---- What a collective must move. */

static double count_of(ls__members members, double ranks)
{
    return members == LS__ALL ? ranks : members == LS__ROOT ? 1 : members == LS__OTHERS ? ranks - 1 : 0;
}

/* NULL: not a collective that moves data to other ranks, or not a kind. */
static const ls__traits *traits_of(uint8_t kind)
{
    const ls__traits *t = kind < LS_COLLECTIVE_KINDS ? &ls__traits_of[kind] : NULL;
    return t && t->sends && t->receives ? t : NULL;
}

/* Bytes that the memory of one machine must move at least: each input is read, each output written. n: bytes of an input. */
static double least_traffic(uint8_t kind, double n, double ranks)
{
    const ls__traits *t = traits_of(kind);
    if (!t) return 0;
    double block = t->send_blocks ? n / ranks : n;
    return count_of(t->sends, ranks) * n + count_of(t->receives, ranks) * (t->recv_blocks ? ranks : 1) * block;
}

/* Bytes that the link of a machine must carry at least in one direction. */
static double least_wire(uint8_t kind, double n, double ranks, double machines)
{
    const ls__traits *t = traits_of(kind);
    if (!t) return 0;
    double elsewhere = (machines - 1) / machines;
    if (t->send_blocks && t->recv_blocks) return n * ranks / machines * elsewhere;
    if (t->send_blocks) return n * elsewhere;
    if (t->recv_blocks) return n * ranks * elsewhere;
    return ls__is_rooted((ls_collective_kind)kind) ? n : 2 * n * elsewhere; /* the sum of a part, then all parts */
}

typedef struct members {
    int ranks, machines;
} members;

/* `seen`: [ranks], any values; a machine counts at its first rank of the collective. */
static members members_of(const ls_run *run, const ls_run_collective *m, bool *seen)
{
    members n = { 0 };
    memset(seen, 0, (size_t)run->ranks * sizeof *seen);
    for (int r = 0; r < run->ranks; r++) {
        int node = run->rank[r].node;
        if (!m->arrival[r]) continue;
        n.ranks++;
        if (node < 0 || node >= run->ranks || seen[node]) continue; /* there are no more machines than ranks */
        seen[node] = true;
        n.machines++;
    }
    return n;
}

/* ---- The table. */

static ls_comm_row *row_of(ls_run *run, const ls_run_collective *m, bool network)
{
    for (size_t i = 0; i < run->n_comm; i++) {
        ls_comm_row *c = &run->comm[i];
        if (c->kind == m->kind && c->bucket == (m->bucket >= 0) && c->network == network) return c;
    }
    ls_comm_row *more = realloc(run->comm, (run->n_comm + 1) * sizeof *more);
    if (!more) return NULL;
    run->comm = more;
    run->comm[run->n_comm] = (ls_comm_row){ .kind = m->kind, .bucket = m->bucket >= 0, .network = network };
    return &run->comm[run->n_comm++];
}

/* What a collective took once all were there and those before it were done, on average over ranks. */
static double own_time(const ls_run *run, const ls_run_collective *m, int64_t *before, double *exposed)
{
    double busy = 0, n = 0;
    *exposed = 0;
    for (int r = 0; r < run->ranks; r++) {
        if (!m->arrival[r] || !m->done[r]) continue;
        n++;
        busy += (double)ls__max(0, m->done[r] - ls__max(m->last_arrival, before[r]));
        before[r] = ls__max(before[r], m->done[r]);
        *exposed += (double)(m->blocked[r] - m->wait[r]);
    }
    if (n > 0) *exposed /= n;
    return n > 0 ? busy / n : 0;
}

/* Adds a bucket to the line time = start + bytes * per_byte that is fitted to all of them. */
static void add_to_fit(ls__comm_fit *fit, double bytes, double ns)
{
    fit->n++;
    fit->x += bytes;
    fit->y += ns;
    fit->xx += bytes * bytes;
    fit->xy += bytes * ns;
}

/* ---- The peak of the links. */

/* Large collectives between machines, in order. */
typedef struct flow {
    double *bytes, *ns;
    size_t count;
} flow;

/* The best rate over collectives that follow each other and together take long enough; over all of them if they do not. */
static double sustained_rate(const flow *f)
{
    double bytes = 0, ns = 0, best = 0;
    size_t first = 0;
    for (size_t i = 0; i < f->count; i++) {
        bytes += f->bytes[i];
        ns += f->ns[i];
        for (; first < i && ns - f->ns[first] >= LS__SUSTAINED_NS; first++)
            bytes -= f->bytes[first], ns -= f->ns[first];
        if (ns >= LS__SUSTAINED_NS || (i + 1 == f->count && !first)) best = fmax(best, bytes / fmax(1, ns));
    }
    return best;
}

/* Bytes per ns that all ranks of one machine move when they copy; 0: not known. A rank that others slowed down measured too little,
 * so the best of the ranks counts. */
static double memory_rate(const ls_run *run)
{
    double best = 0;
    int cores = 1;
    for (int r = 0; r < run->ranks; r++) {
        if (!run->rank[r].present) continue;
        if (run->rank[r].metadata[LS_METADATA_COPY] > best) best = run->rank[r].metadata[LS_METADATA_COPY];
        if (run->rank[r].threads > cores) cores = run->rank[r].threads;
    }
    bool bound = run->ranks > 1 && strcmp(run->rank[0].cores, run->rank[1].cores) != 0;
    return best * (bound || run->ranks < cores ? run->ranks : cores);
}

/* 0: not a valid one, as a hostile file may have it. */
static int64_t as_whole(double x)
{
    return x > 0 && x < 1e18 ? (int64_t)x : 0;
}

/* Numbers of a hostile file may be too large for a sum. */
static void add(int64_t *sum, int64_t more)
{
    if (__builtin_add_overflow(*sum, more, sum)) *sum = INT64_MAX;
}

static void find_bounds(ls_run *run, const flow *f)
{
    double memory = memory_rate(run), link = sustained_rate(f);
    bool several = false;
    for (int r = 0; r < run->ranks; r++) several = several || run->rank[r].node > 0;
    for (size_t i = 0; i < run->n_comm; i++) {
        ls_comm_row *c = &run->comm[i];
        if (c->bytes / c->count < LS__BANDWIDTH_BYTES) continue;
        if (c->network)
            c->bound = as_whole((double)c->wire / link);
        else if (memory > 0 && !several) /* how many ranks of several machines share a memory is not known */
            c->bound = as_whole(least_traffic(c->kind, (double)c->bytes, run->ranks) / memory);
    }
}

static ls_status add_up(ls_run *run, flow *f, int64_t *before, bool *seen)
{
    int64_t first = run->steps[run->first_counted].number, last = run->steps[run->n_steps - 1].number;
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->step < first || m->step > last) continue;
        members n = members_of(run, m, seen);
        ls_comm_row *row = row_of(run, m, n.machines > 1);
        if (!row) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
        double exposed, busy = own_time(run, m, before, &exposed);
        row->count += n.ranks;
        add(&row->bytes, as_whole((double)m->bytes * n.ranks));
        add(&row->waited, m->waited);
        add(&row->busy, as_whole(busy * n.ranks));
        add(&row->exposed, as_whole(exposed * n.ranks));
        if (m->bucket >= 0) add_to_fit(&ls__run_internal_of(run)->bucket_fit, (double)m->bytes, busy);
        if (!row->network) continue;
        double wire = least_wire(m->kind, (double)m->bytes, n.ranks, n.machines);
        add(&row->wire, as_whole(wire * n.ranks));
        if (m->bytes < LS__BANDWIDTH_BYTES || !(busy > 0)) continue;
        f->bytes[f->count] = wire;
        f->ns[f->count++] = busy;
    }
    return LS_OK;
}

/* From sums over ranks to what one rank has of it, on average: of many small groups, each rank is in few. */
static void average(ls_run *run)
{
    int64_t present = 0;
    for (int r = 0; r < run->ranks; r++) present += run->rank[r].present;
    for (size_t i = 0; i < run->n_comm; i++) {
        ls_comm_row *c = &run->comm[i];
        int64_t *const sums[] = { &c->count, &c->bytes, &c->wire, &c->busy, &c->exposed };
        for (size_t k = 0; k < sizeof sums / sizeof *sums; k++)
            *sums[k] = *sums[k] / present + (*sums[k] % present * 2 >= present);
        c->count = ls__max(1, c->count);
    }
}

ls_status ls__sum_comm(ls_run *run)
{
    size_t p = (size_t)run->ranks;
    int64_t *before = calloc(p, sizeof *before);
    bool *seen = calloc(p, sizeof *seen);
    flow f = { .bytes = malloc((2 * run->n_collectives + 1) * sizeof *f.bytes) };
    ls_status status = before && seen && f.bytes ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    if (!status) {
        f.ns = f.bytes + run->n_collectives;
        status = add_up(run, &f, before, seen);
    }
    if (!status) average(run);
    if (!status) find_bounds(run, &f);
    free(f.bytes);
    free(seen);
    free(before);
    return status;
}
