/* What communication costs all ranks alike, and what a change would gain: buckets, overlap, the type on the wire, accumulation. Each
 * promise is a small model, written beside it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "record/ring.h"
#include "base/status.h"
#include "measure/findings.h"

/* What buckets are if nobody says otherwise (ddp/open.c): on one machine, and on several. */
static const double USUAL_BUCKET = 4 << 20, NETWORK_BUCKET = 256 << 10;

typedef struct costs {
    double start;    /* ns of a collective, whatever it carries */
    double per_byte; /* ns */
    double total;    /* bytes of a step's buckets */
    double calls;    /* buckets of a step */
    double exposed;  /* ns a step that ranks stand in calls for buckets, all arrived */
    double busy;     /* ns a step from last arrivals to done */
    bool network;    /* they go between machines */
    double rate, of_peak;
} costs;

/* A bucket costs start + bytes * per_byte: the line through all buckets, or, if they are of one size, small calls show the start. */
static costs find_costs(const ls_run *run)
{
    costs c = { .rate = NAN, .of_peak = NAN };
    double small = 0, small_n = 0;
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *row = &run->comm[i];
        ls_comm_mean m = ls_run_comm_mean(run, row);
        if (row->bucket) {
            c.total += m.bytes;
            c.calls += m.count;
            c.busy += m.busy;
            c.exposed += m.exposed;
            c.network = row->network;
            c.rate = m.rate;
            c.of_peak = m.of_peak;
        } else if (row->count && row->bytes / row->count <= 4096 && row->kind == 0) {
            small += (double)row->busy;
            small_n += (double)row->count;
        }
    }
    c.start = small_n > 0 ? small / small_n : 0;
    const ls_comm_fit *fit = &run->bucket_fit;
    double spread = fit->n * fit->xx - fit->x * fit->x;
    if (spread >
        1e-6 * fit->n * fit->xx) { /* buckets of different sizes tell better: large calls take more exchanges */
        double slope = fmax(0, (fit->n * fit->xy - fit->x * fit->y) / spread);
        c.start = fmax(c.start, (fit->y - slope * fit->x) / fit->n);
    }
    if (c.total > 0) c.per_byte = fmax(0, c.busy - c.calls * c.start) / c.total;
    return c;
}

static double metadata_of(const ls_run *run, ls_metadata_kind kind)
{
    return run->rank[ls__first_present(run)].metadata[kind];
}

/* ---- Overlap that is switched off. */

/* A step as it would be if each bucket were started when it is full: its collective takes as long as it did, but begins as soon as all ranks
 * have it ready and the one before is done. */
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

/* ns a step that would be saved, on average. */
static ls_status replay_overlap(const ls_run *run, double *gain)
{
    int64_t *before = calloc((size_t)run->ranks, sizeof *before);
    replay now = { .step = -1 };
    if (!before) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    *gain = 0;
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->bucket < 0 || m->step < run->steps[run->n_warmup].number) continue;
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

static ls_status look_at_overlap(ls_run *run, const costs *c)
{
    double step = ls_run_step_mean(run), gain = 0;
    char a[24], b[24];
    if (metadata_of(run, LS_METADATA_OVERLAP) != 0) return LS_OK; /* on, or not known */
    ls_status status = replay_overlap(run, &gain);
    if (status) return status;
    const char *option = ls__is_train(run) ? "--no-overlap" : "no_overlap in ls_ddp_options";
    if (gain < 0.01 * step) {
        ls__run_note(run, "overlap of communication and backward is disabled (%s); here it would gain less than 1%%",
                     option);
        return LS_OK;
    }
    ls_finding *f = ls__finding_add(run, LS_FINDING_OVERLAP);
    if (!f) return LS_OK;
    f->phase = LS_PHASE_COMM;
    f->steps = (int64_t)ls__counted(run);
    f->cost = (int64_t)gain;
    f->expected = (int64_t)(step - gain);
    snprintf(f->what, sizeof f->what, "overlap of communication and backward is disabled: that costs %s a step",
             ls__duration(gain, a));
    snprintf(f->evidence, sizeof f->evidence,
             "all buckets are started after backward, and take %s of a step; the first were ready earlier",
             ls__duration(c->busy, b));
    snprintf(f->change, sizeof f->change, "leave out %s", option);
    return LS_OK;
}

/* ---- Buckets. */

/* Starts that are saved shorten what is hidden and what is not in the same proportion. */
static bool look_at_buckets(ls_run *run, const costs *c, double exposed)
{
    double step = ls_run_step_mean(run), usual = c->network ? NETWORK_BUCKET : USUAL_BUCKET;
    double calls = 1 + ceil(c->total / usual),
           saved = c->busy > 0 ? exposed * (c->calls - calls) * c->start / c->busy : 0;
    char a[24], b[24];
    if (c->calls <= 2 * calls || saved <= 0.03 * step) return false;
    ls_finding *f = ls__finding_add(run, LS_FINDING_BUCKETS);
    if (!f) return true;
    f->phase = LS_PHASE_COMM;
    f->steps = (int64_t)ls__counted(run);
    f->cost = (int64_t)fmin(saved, exposed);
    f->expected = (int64_t)step - f->cost;
    snprintf(f->what, sizeof f->what,
             "buckets are too small: %.0f collectives a step take %s before they carry anything", c->calls,
             ls__duration(c->calls * c->start, a));
    snprintf(f->evidence, sizeof f->evidence, "a collective takes %s, a bucket carries %.0f KiB",
             ls__duration(c->start, b), c->total / c->calls / 1024);
    if (ls__is_train(run))
        snprintf(f->change, sizeof f->change, "--bucket-mb %g (%.0f collectives)", usual / (1 << 20), calls);
    else
        snprintf(f->change, sizeof f->change,
                 "larger buckets: %.0f collectives with bucket_bytes %.0f in ls_ddp_options", calls, usual);
    return true;
}

/* ---- Exposed communication. */

static void describe_exposed(const costs *c, ls_finding *f, double exposed)
{
    char a[24], volume[40], rate[64] = "";
    snprintf(volume, sizeof volume, "%.1f %s", c->total / (c->total < 1e5 ? 1 << 10 : 1 << 20),
             c->total < 1e5 ? "KiB" : "MiB");
    if (c->network && c->rate > 0)
        snprintf(rate, sizeof rate, ", %.3g Mbit/s on a machine's link (%.0f%% of its peak)", c->rate * 8e3,
                 100 * c->of_peak);
    else if (c->rate > 0)
        snprintf(rate, sizeof rate, " at %.2f GB/s", c->rate);
    snprintf(f->what, sizeof f->what, "exposed communication%s: %s of a step", c->network ? " between machines" : "",
             ls__duration(exposed, a));
    snprintf(f->evidence, sizeof f->evidence, "%s a step%s; %.0f%% of the communication overlaps with computing",
             volume, rate, c->busy > 0 ? 100 * fmax(0, 1 - c->exposed / c->busy) : 0);
}

/* Between machines: what the bytes take at the link's peak is halved, and what was hidden stays so. Otherwise twice the micro-batches:
 * the same work and half the communication for each. */
static void look_at_exposed(ls_run *run, const costs *c, double exposed)
{
    double step = ls_run_step_mean(run), own = metadata_of(run, LS_METADATA_SLOTS) / run->ranks;
    bool train = ls__is_train(run), wide = c->network && metadata_of(run, LS_METADATA_WIRE) == 4;
    double saved =
        wide ? fmin(exposed, (c->of_peak > 0 ? c->busy * c->of_peak : c->total * c->per_byte) / 2) : exposed / 2;
    if (exposed < 0.05 * step) return;
    ls_finding *f = ls__finding_add(run, LS_FINDING_COMM);
    if (!f) return;
    f->phase = LS_PHASE_COMM;
    f->steps = (int64_t)ls__counted(run);
    f->cost = (int64_t)saved;
    f->expected = (int64_t)(step - saved);
    describe_exposed(c, f, exposed);
    char more[40] = "ls_ddp_begin(), LS_DDP_ACCUMULATE";
    if (train) snprintf(more, sizeof more, "--accumulate %.0f", own > 0 ? 2 * own : 2.0);
    if (wide)
        snprintf(f->change, sizeof f->change,
                 "%s: half the bytes, with gradients rounded to bfloat16 on their way; or more micro-batches between "
                 "optimizer steps (%s)",
                 train ? "--wire bfloat16" : "LS_WIRE_BF16 in ls_ddp_options", more);
    else
        snprintf(f->change, sizeof f->change,
                 "more micro-batches between optimizer steps (%s): twice the work for the same communication; the "
                 "expected time is of half such a step",
                 more);
}

/* ns a step in which ranks were runnable but not scheduled while they communicated, all together. Within a machine, who has no core does
 * not do its part, and the others stand in the call meanwhile: that is told with the lost cores. (Between machines a rank that has no core
 * mostly had nothing to do but look whether something has come.) */
static double queued_in_calls(const ls_run *run)
{
    double sum = 0;
    for (size_t i = run->n_warmup; i < run->n_steps; i++)
        for (int r = 0; r < run->ranks; r++) sum += (double)run->steps[i].rank[r].sched_delay[LS_PHASE_COMM];
    return sum / (double)ls__counted(run);
}

ls_status ls__advise_comm(ls_run *run)
{
    costs c = find_costs(run);
    double exposed = ls__common(run, LS_PHASE_COMM);
    if (!c.network) exposed = fmax(0, exposed - queued_in_calls(run));
    if (run->ranks < 2 || c.calls <= 0) return LS_OK;
    ls_status status = look_at_overlap(run, &c);
    if (!status && !look_at_buckets(run, &c, exposed)) look_at_exposed(run, &c, exposed);
    return status;
}
