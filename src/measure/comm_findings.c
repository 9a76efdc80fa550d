/* What communication costs all ranks alike, and what a change would gain: buckets, overlap, the type on the wire, accumulation. Each
 * expected time is a small model, described with it. */
#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "measure/findings.h"
#include "measure/limits.h"

/* Default bucket sizes (ddp/open.c): on one machine, and on several. */
static const double DEFAULT_BUCKET = 4 << 20, NETWORK_BUCKET = 256 << 10;

typedef struct costs {
    ls_comm_evidence of; /* exposed: while all had arrived */
    double per_byte;     /* ns */
} costs;

/* A bucket costs latency + bytes * per_byte: the least-squares line through all buckets, or, if they are of one size, small calls show the
 * latency. */
static costs find_costs(const ls_run *run)
{
    ls_comm_evidence c = { .rate = NAN, .of_peak = NAN };
    double small = 0, small_n = 0;
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *row = &run->comm[i];
        ls_comm_mean m = ls_run_get_comm_mean(run, row);
        if (row->bucket) {
            c.bytes += m.bytes;
            c.calls += m.count;
            c.busy += m.busy;
            c.exposed += m.exposed;
            c.network = row->network;
            c.rate = m.rate;
            c.of_peak = m.of_peak;
        } else if (row->count && row->bytes / row->count <= LS__LATENCY_BYTES && row->kind == 0) {
            small += (double)row->busy;
            small_n += (double)row->count;
        }
    }
    c.latency = small_n > 0 ? small / small_n : 0;
    const ls__comm_fit *fit = &ls__run_internal_of(run)->bucket_fit;
    double spread = fit->n * fit->xx - fit->x * fit->x;
    if (spread > 1e-6 * fit->n * fit->xx) { /* buckets of different sizes are better evidence */
        double slope = fmax(0, (fit->n * fit->xy - fit->x * fit->y) / spread);
        c.latency = fmax(c.latency, (fit->y - slope * fit->x) / fit->n);
    }
    c.hidden = c.busy > 0 ? fmax(0, 1 - c.exposed / c.busy) : 0;
    return (costs){ .of = c, .per_byte = c.bytes > 0 ? fmax(0, c.busy - c.calls * c.latency) / c.bytes : 0 };
}

/* ---- Overlap that is disabled. */

/* A step as it would be if each bucket were started when it is full: its collective takes as long as it did, but begins as soon as
 * all ranks have it ready and the one before is done. */
typedef struct replay {
    int64_t step;
    int64_t first, end; /* the first bucket's last arrival, and the last one's end, as recorded */
    int64_t would_end;
    bool known;
} replay;

static double gain_of(const replay *p)
{
    return p->known ? (double)ls__max(0, p->end - ls__max(p->would_end, p->first)) : 0;
}

/* ns per step that would be saved, on average. */
static ls_status replay_overlap(const ls_run *run, double *gain)
{
    int64_t *before = calloc((size_t)run->ranks, sizeof *before);
    replay now = { .step = -1 };
    if (!before) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    *gain = 0;
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->bucket < 0 || m->step < run->steps[run->first_counted].number) continue;
        if (m->step > run->steps[run->n_steps - 1].number) break;
        if (m->step != now.step) {
            *gain += gain_of(&now);
            now = (replay){ .step = m->step, .first = m->last_arrival, .known = true };
        }
        int64_t ready = 0, done = 0, took = 0;
        for (int r = 0; r < run->ranks; r++) {
            if (!m->arrival[r] || !m->done[r]) continue;
            if (!m->ready[r]) now.known = false;
            ready = ls__max(ready, m->ready[r]);
            done = ls__max(done, m->done[r]);
            took = ls__max(took, m->done[r] - ls__max(m->last_arrival, before[r]));
            before[r] = ls__max(before[r], m->done[r]);
        }
        now.end = ls__max(now.end, done);
        now.would_end = ls__max(now.would_end, ready) + took;
    }
    *gain = (*gain + gain_of(&now)) / (double)ls__counted(run);
    free(before);
    return LS_OK;
}

static ls_status find_disabled_overlap(ls_run *run, const costs *c)
{
    double gain = 0;
    if (ls__metadata(run, LS_METADATA_OVERLAP) != 0) return LS_OK; /* on, or not known */
    ls_status status = replay_overlap(run, &gain);
    if (status) return status;
    if (gain < LS__OVERLAP_SHARE * run->step_mean) {
        ls__run_note(run, LS_NOTE_NO_OVERLAP, -1, 0, NULL);
        return LS_OK;
    }
    ls_finding *f = ls__finding_add(run, LS_FINDING_OVERLAP, LS_PHASE_COMM, LS_REMEDY_OVERLAP, gain);
    if (f) f->evidence.comm = c->of;
    return LS_OK;
}

/* ---- Buckets. */

/* Latency that is saved shortens what is hidden and what is not in the same proportion. */
static bool find_small_buckets(ls_run *run, const costs *c, double exposed)
{
    const ls_comm_evidence *x = &c->of;
    double size = x->network ? NETWORK_BUCKET : DEFAULT_BUCKET, calls = 1 + ceil(x->bytes / size),
           saved = x->busy > 0 ? exposed * (x->calls - calls) * x->latency / x->busy : 0;
    if (x->calls <= LS__BUCKET_FACTOR * calls || saved <= LS__BUCKET_SHARE * run->step_mean) return false;
    ls_finding *f =
        ls__finding_add(run, LS_FINDING_BUCKETS, LS_PHASE_COMM, LS_REMEDY_LARGER_BUCKETS, fmin(saved, exposed));
    if (!f) return true;
    f->target = size;
    f->evidence.comm = *x;
    return true;
}

/* ---- Exposed communication. */

/* Between machines: what the bytes take at the link's peak is halved, and what was hidden stays so. Otherwise twice the micro-batches:
 * the same work and half the communication for each. */
static void find_exposed(ls_run *run, const costs *c, double exposed)
{
    const ls_comm_evidence *x = &c->of;
    double own = ls__metadata(run, LS_METADATA_SLOTS) / run->ranks;
    bool wide = x->network && ls__metadata(run, LS_METADATA_WIRE) == 4;
    double saved =
        wide ? fmin(exposed, (x->of_peak > 0 ? x->busy * x->of_peak : x->bytes * c->per_byte) / 2) : exposed / 2;
    if (exposed < LS__EXPOSED_SHARE * run->step_mean) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_COMM, LS_PHASE_COMM,
                                    wide ? LS_REMEDY_HALF_PRECISION : LS_REMEDY_ACCUMULATE, saved);
    if (!f) return;
    f->target = own > 0 ? 2 * own : 2;
    f->evidence.comm = *x;
    f->evidence.comm.exposed = exposed;
}

/* Without gradient buckets, as under FSDP or tensor parallelism: all collectives together. Twice the work in a step needs the
 * same communication. */
static void find_exposed_others(ls_run *run, double exposed)
{
    ls_comm_evidence x = { .rate = NAN, .of_peak = NAN };
    double open = 0;
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *row = &run->comm[i];
        ls_comm_mean m = ls_run_get_comm_mean(run, row);
        x.bytes += m.bytes;
        x.calls += m.count;
        x.busy += m.busy;
        open += m.exposed;
        x.network = x.network || row->network;
    }
    if (exposed < LS__EXPOSED_SHARE * run->step_mean) return;
    x.hidden = x.busy > 0 ? fmax(0, 1 - open / x.busy) : 0;
    x.exposed = exposed;
    ls_finding *f = ls__finding_add(run, LS_FINDING_COMM, LS_PHASE_COMM, LS_REMEDY_LARGER_BATCHES, exposed / 2);
    if (f) f->evidence.comm = x;
}

/* ns of a step in which ranks were runnable but not scheduled while they communicated, all together. The others are blocked in the call
 * meanwhile: contention.c reports that. */
static double sched_delay_in_calls(const ls_run *run)
{
    double sum = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++)
        for (int r = 0; r < run->ranks; r++) sum += (double)ls__sched_delay_in_calls(run, &run->steps[i].rank[r]);
    return sum / (double)ls__counted(run);
}

ls_status ls__find_in_comm(ls_run *run)
{
    costs c = find_costs(run);
    double exposed = ls__common(run, LS_PHASE_COMM);
    exposed = fmax(0, exposed - sched_delay_in_calls(run));
    if (run->ranks < 2) return LS_OK;
    if (c.of.calls <= 0) {
        if (ls__metadata(run, LS_METADATA_TORCH) == 1) find_exposed_others(run, exposed);
        return LS_OK;
    }
    ls_status status = find_disabled_overlap(run, &c);
    if (!status && !find_small_buckets(run, &c, exposed)) find_exposed(run, &c, exposed);
    return status;
}
