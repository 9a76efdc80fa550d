/* The list of findings, and the table of communication that some of them rest on. */
#include "measure/find.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/ring.h"
#include "base/status.h"

enum { MAX_FINDINGS = 512, LARGE = 64 << 10 };

const char *ls__duration(double ns, char out[24])
{
    if (fabs(ns) >= 1e10)
        snprintf(out, 24, "%.0f s", ns / 1e9);
    else if (fabs(ns) >= 1e9)
        snprintf(out, 24, "%.2f s", ns / 1e9);
    else if (fabs(ns) >= 1e8)
        snprintf(out, 24, "%.0f ms", ns / 1e6);
    else if (fabs(ns) >= 1e7)
        snprintf(out, 24, "%.1f ms", ns / 1e6);
    else if (fabs(ns) >= 1e6)
        snprintf(out, 24, "%.2f ms", ns / 1e6);
    else
        snprintf(out, 24, "%.0f us", ns / 1e3);
    return out;
}

ls_finding *ls__finding_add(ls_run *run, ls_finding_kind kind)
{
    if (run->n_findings == MAX_FINDINGS) return NULL;
    if (!run->findings && !(run->findings = calloc(MAX_FINDINGS, sizeof *run->findings))) return NULL;
    ls_finding *f = &run->findings[run->n_findings++];
    *f = (ls_finding){ .kind = kind, .rank = -1, .weight = 1 };
    return f;
}

/* ---- Communication by kind of call. */

static ls_comm_row *row_of(ls_run *run, const ls_meeting *m)
{
    for (size_t i = 0; i < run->n_comm; i++)
        if (run->comm[i].kind == m->kind && run->comm[i].bucket == (m->bucket >= 0)) return &run->comm[i];
    ls_comm_row *more = realloc(run->comm, (run->n_comm + 1) * sizeof *more);
    if (!more) return NULL;
    run->comm = more;
    run->comm[run->n_comm] = (ls_comm_row){ .kind = m->kind, .bucket = m->bucket >= 0 };
    return &run->comm[run->n_comm++];
}

/* What a call took once all were there and the calls before it were done, on average over ranks. */
static double own_time(const ls_run *run, const ls_meeting *m, int64_t *before, double *exposed)
{
    double busy = 0, n = 0;
    *exposed = 0;
    for (int r = 0; r < run->ranks; r++) {
        if (!m->arrival[r] || !m->done[r]) continue;
        n++;
        busy += (double)ls__max(0, m->done[r] - ls__max(m->last_arrival, before[r]));
        before[r] = ls__max(before[r], m->done[r]);
        if (m->left[r])
            *exposed += (double)ls__max(0, m->left[r] - ls__max(m->last_arrival, m->left[r] - m->blocked[r]));
    }
    if (n > 0) *exposed /= n;
    return n > 0 ? busy / n : 0;
}

/* Adds a bucket to the line time = start + bytes * per_byte that is fitted to all of them. */
static void add_to_fit(ls_comm_fit *fit, double bytes, double ns)
{
    fit->n++;
    fit->x += bytes;
    fit->y += ns;
    fit->xx += bytes * bytes;
    fit->xy += bytes * ns;
}

/* ---- What communication takes at least. */

/* Bytes that the memory must move in a call of one machine's ranks, for an array of n bytes: each rank's is read, each result written. */
static double least_traffic(uint8_t kind, double n, double ranks)
{
    enum { ALLREDUCE, REDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST };
    switch (kind) {
    case ALLREDUCE: return 2 * ranks * n;
    case REDUCE:
    case REDUCE_SCATTER:
    case ALLGATHER: return (ranks + 1) * n;
    case BROADCAST: return ranks * n;
    default: return 0;
    }
}

/* Bytes a ns that all ranks of one machine move when they copy; 0: not known. */
static double memory_rate(const ls_run *run, double *room)
{
    size_t n = 0;
    int cores = 1;
    for (int r = 0; r < run->ranks; r++) {
        if (!run->rank[r].present) continue;
        if (run->rank[r].facts[LS_FACT_COPY] > 0) room[n++] = run->rank[r].facts[LS_FACT_COPY];
        if (run->rank[r].threads > cores) cores = run->rank[r].threads;
    }
    bool bound = run->ranks > 1 && strcmp(run->rank[0].cores, run->rank[1].cores) != 0;
    return n ? ls__median(room, n) * (bound || run->ranks < cores ? run->ranks : cores) : 0;
}

/* 0: it is none, as a hostile file may have it. */
static int64_t as_ns(double x)
{
    return x > 0 && x < 1e18 ? (int64_t)x : 0;
}

/* Small arrays are a matter of latency, not of bytes. Of a network nobody knows what it could do: its bound is the best rate that a call
 * of the run reached. */
static ls_status find_bounds(ls_run *run, double best)
{
    double *room = malloc((size_t)run->ranks * sizeof *room);
    if (!room) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    double rate = memory_rate(run, room);
    bool several = false;
    for (int r = 0; r < run->ranks; r++) several = several || run->rank[r].node > 0;
    for (size_t i = 0; i < run->n_comm; i++) {
        ls_comm_row *c = &run->comm[i];
        double bytes = (double)c->bytes;
        if (c->bytes / c->count < LARGE) continue;
        if (several)
            c->bound = as_ns(bytes / best);
        else if (rate > 0)
            c->bound = as_ns(least_traffic(c->kind, bytes, run->ranks) / rate);
    }
    free(room);
    return LS_OK;
}

static ls_status sum_comm(ls_run *run)
{
    double best = 0;
    int64_t *before = calloc((size_t)run->ranks, sizeof *before);
    if (!before) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < run->n_meetings && run->n_steps; i++) {
        const ls_meeting *m = &run->meetings[i];
        if (m->step < run->steps[run->n_warm].number || m->step > run->steps[run->n_steps - 1].number) continue;
        ls_comm_row *row = row_of(run, m);
        if (!row) {
            free(before);
            return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
        }
        double exposed, busy = own_time(run, m, before, &exposed);
        row->count++;
        row->bytes += m->bytes;
        row->waited += m->waited;
        row->busy += (int64_t)busy;
        row->exposed += (int64_t)exposed;
        if (busy > 0 && m->bytes >= LARGE) best = fmax(best, (double)m->bytes / busy);
        if (m->bucket >= 0) add_to_fit(&run->bucket_fit, (double)m->bytes, busy);
    }
    free(before);
    return find_bounds(run, best);
}

static int by_weight(const void *a, const void *b)
{
    const ls_finding *x = a, *y = b;
    double u = (double)x->cost * x->weight, v = (double)y->cost * y->weight;
    return (u < v) - (u > v);
}

ls_status ls__run_find(ls_run *run)
{
    if (!run->n_steps) {
        ls__run_note(run, "no step was recorded from begin to end, so there is nothing to account for");
        return LS_OK;
    }
    ls_status status = sum_comm(run);
    if (!status) status = ls__find_stragglers(run);
    if (!status) status = ls__find_losses(run);
    if (!status && run->n_findings) qsort(run->findings, run->n_findings, sizeof *run->findings, by_weight);
    return status;
}
