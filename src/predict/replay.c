/* See replay.h. The model, term by term:
 *
 * Compute    a slot reads weights and gradients from memory and computes the rest in a core's own caches. With n threads that
 *            compute on a node, the former goes by the rate of copies and the latter by that of products that the node was measured
 *            to give to n. More threads than cores share them, and a rank that is waited for must get a core first.
 * Data       a loader with w workers has a batch every build / w; what the step does not cover of that is waited for.
 * Buckets    within a node the ranks themselves add, so that their time adds up to the step, overlapped or not. Between nodes a
 *            bucket is sent when it is full and the link is free: what is left at the end of backward is exposed. Sending
 *            takes processor time from backward.
 * Update     one pass over memory, by all ranks of a node together or by each.
 * Small      collectives without data cost their latency.
 *
 * Of a run of PyTorch only buckets and their rate are known (torch_run.c): they are sent in order, beside backward. */
#include "predict/replay.h"

#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "ddp/plan.h"

static const double SMALL_NS = 3000; /* of a collective within a node */
/* With more threads than cores, a rank that others wait for must first get a core: a time slice of the scheduler in each step, and
 * more where the cores do not have equally many, until the scheduler has moved some. */
static const double TAKE_TURNS_NS = 3e6, UNEVEN_TURNS_NS = 9e6;
/* Processor time that TCP and MPI take per byte sent, and that of receiving as many; bench/wide. */
static const double NETWORK_CPU_PER_BYTE = 1.0;
static const double MESSAGE_NS = 3000; /* processor time of a message */
static const double PAYLOAD = 0.956;   /* of what a link carries; the rest is headers of packets of 1500 bytes */
/* Of a slot, for each element: the weight is read in forward and in backward, the gradient is read and written. All else that a slot reads
 * and writes mostly stays in a core's own caches. */
static const double MEMORY_BYTES = 16;
static const double MOST_MEMORY_SHARE = 0.5;

static double between(double one, double all, double n, double cores)
{
    if (cores <= 1 || n <= 1) return one;
    return n >= cores ? all : one + (all - one) * (n - 1) / (cores - 1);
}

static double computing_threads(const ls__step_profile *p, int local)
{
    return (double)local * p->threads;
}

static double gemm_rate(const ls__step_profile *p, int local)
{
    return between(p->gemm_one, p->gemm_all, computing_threads(p, local), p->cores);
}

static double stream_rate(const ls__step_profile *p, int local)
{
    return between(p->stream_one, p->stream_all, computing_threads(p, local), p->cores);
}

/* How many threads share a core. */
static double turns(const ls__step_profile *p, int local)
{
    return fmax(1, computing_threads(p, local) / p->cores);
}

/* A slot's time with so many ranks on the node, without turns. */
static double slot_time(const ls__step_profile *p, int local)
{
    double memory = MEMORY_BYTES * (double)p->elements / (stream_rate(p, p->local) * p->threads);
    memory = fmin(memory, p->slot * MOST_MEMORY_SHARE);
    return (p->slot - memory) * gemm_rate(p, p->local) / gemm_rate(p, local) +
           memory * stream_rate(p, p->local) / stream_rate(p, local);
}

/* How many slot times a node needs for the slots of its ranks, if the cores are shared evenly: the ranks with fewer slots end first and
 * leave their cores to the others. */
static double node_slots(const ls__replay *r)
{
    const ls__step_profile *p = r->profile;
    int most = r->each,
        full = r->setup.slots % r->setup.ranks; /* ranks with one slot more than the others; 0: all are equal */
    int local = r->local, longer = full ? (full + r->setup.nodes - 1) / r->setup.nodes : local;
    if (!full || longer > local) longer = local;
    return (most - (longer < local)) * turns(p, local) + (longer < local) * turns(p, longer);
}

/* ---- Buckets. */

static ls_status pack(ls__replay *r)
{
    const ls__step_profile *p = r->profile;
    size_t n = p->n_spans, total;
    if (!n) return LS_OK;
    size_t *counts = malloc(n * sizeof *counts), *offsets = malloc(n * sizeof *offsets);
    uint32_t *order = malloc(n * sizeof *order);
    ls__bucket_plan *plans = malloc(n * sizeof *plans);
    r->buckets = calloc(n, sizeof *r->buckets);
    bool ready = counts && offsets && order && plans && r->buckets;
    for (size_t i = 0; ready && i < n; i++) counts[i] = p->spans[i].count, order[i] = (uint32_t)i;
    if (ready) {
        size_t cap = r->setup.bucket_bytes;
        r->n_buckets = ls__plan_buckets(counts, order, n, cap, cap, offsets, plans, &total);
    }
    for (size_t b = 0; b < r->n_buckets; b++) {
        r->buckets[b].bytes = plans[b].count * sizeof(float);
        for (size_t k = 0; k < plans[b].spans; k++)
            r->buckets[b].ready = fmax(r->buckets[b].ready, p->spans[plans[b].first + k].ready);
    }
    free(counts);
    free(offsets);
    free(order);
    free(plans);
    return ready ? LS_OK : ls__fail(LS_ENOMEM, "predict: out of memory");
}

ls_status ls__replay_open(ls__replay *r, const ls__step_profile *p, const ls_setup *setup)
{
    *r = (ls__replay){ .profile = p, .setup = *setup, .comm_factor = 1 };
    r->local = (setup->ranks + setup->nodes - 1) / setup->nodes;
    r->each = ls__slots_of(setup->slots, setup->ranks, 0);
    if (setup->ranks > 1 && !p->n_spans)
        return p->beside ? ls__fail(LS_EUNSUPPORTED,
                                    "no bucket of gradients is recorded with its size, so communication cannot be "
                                    "predicted; traces need DistributedDataParallel and, with Gloo, record_shapes=True")
                         : ls__fail(LS_EUNSUPPORTED, "the record does not have the sizes of the gradients "
                                                     "(LS_EVENT_SPAN_READY), so communication cannot be predicted; "
                                                     "'lockstep train' and loops that call ls_ddp_ready() record them");
    return setup->ranks > 1 ? pack(r) : LS_OK;
}

void ls__replay_close(ls__replay *r)
{
    free(r->buckets);
    *r = (ls__replay){ 0 };
}

/* ---- Communication. */

/* To add a bucket's gradients of the ranks of one node. */
static double node_time(const ls__replay *r, double bytes)
{
    double n = r->local, traffic = (r->profile->sharded ? n + 1 : 2 * n) * bytes;
    double rate = stream_rate(r->profile, r->local) * fmin(computing_threads(r->profile, r->local), r->profile->cores);
    if (r->local < 2) return 0;
    return traffic / rate * r->comm_factor + SMALL_NS;
}

/* To exchange it between nodes: each node sends a part to every other one, and gets back all sums. */
static double link_time(const ls__replay *r, double bytes)
{
    double m = r->setup.nodes, wire = bytes / sizeof(float) * r->setup.wire_bytes;
    if (m < 2) return 0;
    bool stated = r->setup.link_rate != r->profile->link_rate; /* what was recorded is payload alone */
    double rate = r->setup.link_rate * (stated ? PAYLOAD : 1);
    return 2 * (r->setup.link_latency + (m - 1) * MESSAGE_NS + wire * (m - 1) / m / rate);
}

/* A bucket of a run of PyTorch: as fast as the recorded ones were; over a link that was stated, by its rate. */
static double beside_time(const ls__replay *r, double bytes)
{
    const ls__step_profile *p = r->profile;
    double n = r->setup.ranks, had = p->ranks, wire = bytes / sizeof(float) * r->setup.wire_bytes;
    bool stated = r->setup.nodes > 1 && r->setup.link_rate != p->link_rate;
    if (stated) {
        double within = p->nodes == 1 && r->local > 1 && p->own_rate > 0
                            ? wire / p->own_rate * ((r->local - 1.0) / r->local) / ((had - 1) / had)
                            : 0;
        return within + link_time(r, bytes);
    }
    return p->own_rate > 0 && had > 1 ? wire / p->own_rate * ((n - 1) / n) / ((had - 1) / had) : 0;
}

static double small_time(const ls__replay *r)
{
    double within = r->local < 2 ? 0 : SMALL_NS;
    double across = r->setup.nodes < 2 ? 0 : 2 * ceil(log2(r->setup.nodes)) * (r->setup.link_latency + MESSAGE_NS);
    bool even = fmod(computing_threads(r->profile, r->local), r->profile->cores) == 0;
    double wait = turns(r->profile, r->local) <= 1 ? 0 : even ? TAKE_TURNS_NS : UNEVEN_TURNS_NS;
    return fmax(1, r->profile->small) * (within + across) + wait;
}

/* Exposed communication, if backward of the slowest rank takes so long after all its other slots. */
static double exposed(const ls__replay *r, double backward)
{
    double now = 0, cpu = 0, within = 0, bytes = 0;
    if (r->setup.ranks < 2) return 0;
    for (size_t b = 0; b < r->n_buckets; b++) {
        const ls__bucket_cost *k = &r->buckets[b];
        double ready = r->setup.overlap == LS_OVERLAP_ON ? k->ready * backward : backward;
        now =
            fmax(now, ready) + (r->profile->beside ? beside_time(r, (double)k->bytes) : link_time(r, (double)k->bytes));
        within += node_time(r, (double)k->bytes);
        bytes += (double)k->bytes / sizeof(float) * r->setup.wire_bytes;
    }
    if (r->profile->beside) return fmax(0, now - backward) + small_time(r);
    if (r->setup.nodes > 1) /* while it computes, a rank neither sends nor receives: the link waits for as long */
        cpu = 2 * bytes * (r->setup.nodes - 1) / r->setup.nodes / r->local * NETWORK_CPU_PER_BYTE;
    double network = r->setup.nodes > 1 ? fmax(now - backward, 0) + cpu : 0;
    return network + within + small_time(r);
}

/* ---- Data. */

double ls__replay_stall(const ls__replay *r, double per_slot)
{
    double build = r->profile->build;
    if (!(build > 0)) return 0;
    if (r->setup.workers <= 0 || r->setup.prefetch <= 0) return build;
    double workers = fmin(r->setup.workers, r->setup.prefetch);
    return fmax(0, build / workers - per_slot);
}

/* ---- A step. */

static double update_time(const ls__replay *r)
{
    const ls__step_profile *p = r->profile;
    double alone = p->update * stream_rate(p, p->local) / stream_rate(p, r->local);
    double share = p->sharded ? fmin(r->local, fmax(1, p->cores / p->threads)) : 1 / turns(p, r->local);
    return alone / share;
}

double ls__replay_step(const ls__replay *r, double typical, double slowest, double term[LS_TERM_COUNT])
{
    const ls__step_profile *p = r->profile;
    double alone = slot_time(p, 1), shared = slot_time(p, r->local) * node_slots(r) / r->each;
    double slow = r->setup.slow_rank > 1 ? fmax(slowest, typical * r->setup.slow_rank) : slowest;
    for (int i = 0; i < LS_TERM_COUNT; i++) term[i] = 0;
    term[LS_TERM_COMPUTE] = alone * r->each * typical;
    term[LS_TERM_SHARING] = (shared - alone) * r->each * typical;
    term[LS_TERM_IMBALANCE] = shared * r->each * (slow - typical);
    term[LS_TERM_COMM] = exposed(r, shared * slow * p->backward);
    term[LS_TERM_UPDATE] = update_time(r);
    double sum = 0;
    for (int i = 0; i < LS_TERM_COUNT; i++) sum += term[i];
    term[LS_TERM_DATA] = (r->data_base + ls__replay_stall(r, sum / r->each)) * r->each;
    return sum + term[LS_TERM_DATA];
}
