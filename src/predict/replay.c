/* See replay.h. The model, term by term:
 *
 * Compute    a slot reads weights and gradients from memory and computes the rest in a core's own caches. With n threads that
 *            compute on a node, the former goes by the rate of adding arrays and the latter by that of products that the node was
 *            measured to give to n. More threads than cores take turns (cores.h).
 * Data       a loader with w workers has a batch every build / w; what the step does not cover of that is waited for.
 * Buckets    within a node the ranks themselves add, so that their time adds up to the step, overlapped or not. Between nodes a
 *            bucket is sent when it is full and the link is free: what is left at the end of backward is exposed. The processor
 *            works for the network while the link sends, so the slower of the two counts; before the end of backward it takes
 *            that time from backward.
 * Update     one pass over memory, by all ranks of a node together or by each.
 * Small      collectives without data cost their latency.
 *
 * Of a run of PyTorch only buckets and their rate are known (torch_run.c): they are sent in order, beside backward. */
#include "predict/replay.h"

#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "ddp/plan.h"
#include "predict/cores.h"

enum { MOST_TASKS = 4096 }; /* of a node that are simulated one by one */

static const double SMALL_NS = 3000; /* of a collective within a node */
static const double WAKE_NS = 3e5; /* more, if ranks sleep while they wait, because there are more of them than cores */
/* Processor time that TCP and MPI take per byte sent, and that of receiving as many; bench/wide. */
static const double NETWORK_CPU_PER_BYTE = 1.0;
static const double MESSAGE_NS = 3000;   /* processor time of a message */
static const double EXCHANGE_NS = 15000; /* until it is noticed: 4 bytes in bench/wide, less the link's latency */
static const double POLL_NS = 200000;    /* in backward, messages are looked for as often (ls_ddp_poll()) */
static const double PAYLOAD = 0.956;     /* of what a link carries; the rest is headers of packets of 1500 bytes */
/* Of a slot, for each element at most: the weight is read in forward and in backward, the gradient is read and written. All else that
 * a slot reads and writes mostly stays in a core's own caches. */
static const double MEMORY_BYTES = 16, MEMORY_USE = 12;
static const double MOST_MEMORY_SHARE = 0.5;
/* Of the optimizer's arrays for each element: the weight, its gradient and two moments, of which all but the gradient are written,
 * too; and of the gradient's norm, where that is not computed together with the sum. */
static const double ADD_SHARE = 0.6;
static const double STATE_BYTES = 16, UPDATE_BYTES = 28, NORM_BYTES = 4;

/* ---- The nodes of the recorded set-up and of this one. */

static ls__load recorded_load(const ls__step_profile *p)
{
    return (ls__load){ .speed = &p->speed, .threads = (double)p->local * p->threads, .cores = p->speed.cores };
}

static ls__load load_of(const ls__replay *r, int local)
{
    return (ls__load){ .speed = &r->profile->speed,
                       .threads = (double)local * r->profile->threads,
                       .cores = r->setup.cores };
}

/* ---- Computing. */

/* To add the gradients of so many slots of a rank. If the record does not show it: slower than arrays are added in memory. Of a run of
 * PyTorch no rate is known, and it is part of its slots. */
static double accumulate_time(const ls__step_profile *p, const ls__load *l, int slots)
{
    ls__load had = recorded_load(p);
    if (p->beside) return 0;
    double state = STATE_BYTES * (double)p->elements,
           bytes = slots < 2 ? 0 : 12.0 * slots - 8; /* the sum of ls__accumulate_bytes() */
    double rate = p->add_rate > 0 ? p->add_rate * ls__load_stream(l, state) / ls__load_stream(&had, state)
                                  : ADD_SHARE * ls__load_stream(l, state) * p->threads;
    return bytes * (double)p->elements / rate;
}

/* What slots take longer because of other programs, relative to the record. Those have the cores that are free. With a thread on each
 * core, they take from some threads, as recorded; with more threads, a part of all cores: Linux shares them among sessions, however
 * many threads one has. */
static double others(const ls__step_profile *p, const ls__load *l)
{
    ls__load had = recorded_load(p);
    if (l->threads < l->cores) return p->unshared;
    if (l->threads == l->cores && had.threads == had.cores) return 1;
    return fmax(1, p->unshared / (1 - fmin(0.5, p->others / p->speed.cores)));
}

/* The time of so many slots of a rank under a load, if its threads have their cores. */
static double slots_time(const ls__step_profile *p, const ls__load *l, int slots)
{
    ls__load had = recorded_load(p);
    int had_slots = ls__slots_of(p->slots, p->ranks, 0);
    double elements = (double)p->elements, used = MEMORY_USE * elements / p->threads;
    double slot = fmax(p->slot / 2, p->slot - accumulate_time(p, &had, had_slots) / had_slots);
    double had_rate = ls__load_stream(&had, used * had.threads), rate = ls__load_stream(l, used * l->threads);
    double bytes = p->bytes > 0 ? fmin(p->bytes, MEMORY_BYTES * elements) : MEMORY_BYTES * elements;
    double memory = fmin(bytes / had_rate / p->threads, slot * MOST_MEMORY_SHARE);
    double each = (slot - memory) * ls__load_gemm(&had) / ls__load_gemm(l) + memory * had_rate / rate;
    return (each * slots + accumulate_time(p, l, slots)) * others(p, l);
}

/* How many times that a node needs for the slots of its ranks, if the cores are shared evenly: the ranks with fewer slots end first and
 * leave their cores to the others. */
static double node_turns(const ls__replay *r)
{
    int most = r->each,
        full = r->setup.slots % r->setup.ranks; /* ranks with one slot more than the others; 0: all are equal */
    int local = r->local, longer = full ? (full + r->setup.nodes - 1) / r->setup.nodes : local;
    if (!full || longer > local) longer = local;
    ls__load all = load_of(r, local), last = load_of(r, longer);
    return ((most - (longer < local)) * ls__load_turns(&all) + (longer < local) * ls__load_turns(&last)) / most;
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
    const ls__step_profile *p = r->profile;
    double n = r->local, traffic = (p->sharded ? n + 1 : 2 * n) * bytes;
    if (r->local < 2) return 0;
    ls__load l = load_of(r, r->local);
    return traffic / ls__load_stream_all(&l, (n + 1) * sizeof(float) * (double)p->elements) * r->comm_factor + SMALL_NS;
}

/* Until a rank that waits has a core again, where there are more of them than cores. */
static double wake_time(const ls__replay *r)
{
    ls__load l = load_of(r, r->local);
    double turns = ls__load_turns(&l);
    return turns > 1 ? WAKE_NS * turns : 0;
}

/* Messages to all other nodes, and theirs. */
static double exchange_time(const ls__replay *r)
{
    return r->setup.link_latency + EXCHANGE_NS + (r->setup.nodes - 1) * MESSAGE_NS;
}

/* Processor time of a rank for its part of a bucket that is exchanged between nodes. */
static double network_cpu_time(const ls__replay *r, double bytes)
{
    double m = r->setup.nodes, wire = bytes / sizeof(float) * r->setup.wire_bytes;
    return m < 2 || r->profile->beside ? 0 : 2 * wire * (m - 1) / m / r->local * NETWORK_CPU_PER_BYTE;
}

/* To exchange it between nodes: each node sends a part to every other one, and gets back all sums. What is sent is in the kernel's
 * buffers or on the link while the processor prepares the next message. */
static double link_time(const ls__replay *r, double bytes)
{
    double m = r->setup.nodes, wire = bytes / sizeof(float) * r->setup.wire_bytes;
    if (m < 2) return 0;
    bool stated = r->setup.link_rate != r->profile->link_rate; /* what was recorded is payload alone */
    double rate = r->setup.link_rate * (stated ? PAYLOAD : 1);
    return 2 * (exchange_time(r) + wake_time(r)) + fmax(2 * wire * (m - 1) / m / rate, network_cpu_time(r, bytes));
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
    double across = r->setup.nodes < 2 ? 0 : exchange_time(r);
    return fmax(1, r->profile->small) * (within + across + wake_time(r));
}

/* Time that the exchange of buckets adds to a backward pass that takes so long by itself. */
static double exchange_buckets(const ls__replay *r, double backward)
{
    double now = 0, computed = 0; /* of backward, by now */
    for (size_t b = 0; b < r->n_buckets; b++) {
        const ls__bucket_cost *k = &r->buckets[b];
        double full = r->setup.overlap == LS_OVERLAP_ON ? k->ready * backward : backward, bytes = (double)k->bytes;
        if (full > computed) {
            now += full - computed;
            computed = full;
        }
        double takes = r->profile->beside ? beside_time(r, bytes) : link_time(r, bytes);
        double cpu = network_cpu_time(r, bytes);
        if (computed < backward && !r->profile->beside) takes += 2 * POLL_NS / 2; /* of both exchanges */
        computed = fmin(backward, computed + takes - cpu);
        now += takes;
    }
    return now + (backward - computed) - backward;
}

/* Exposed communication, if backward of the slowest rank takes so long after all its other slots. */
static double exposed(const ls__replay *r, double backward)
{
    double within = 0;
    if (r->setup.ranks < 2) return 0;
    for (size_t b = 0; b < r->n_buckets && !r->profile->beside; b++)
        within += node_time(r, (double)r->buckets[b].bytes);
    bool sent = r->setup.nodes > 1 || r->profile->beside;
    return (sent ? exchange_buckets(r, backward) : 0) + within + small_time(r);
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

/* Relative to the recorded one, by the bytes and the rate at which they are passed. */
static double update_time(const ls__replay *r)
{
    const ls__step_profile *p = r->profile;
    ls__load had = recorded_load(p), has = load_of(r, r->local);
    double state = STATE_BYTES * (double)p->elements;
    bool had_sums = p->sharded && p->ranks > 1 && p->nodes == 1,
         has_sums = p->sharded && r->setup.ranks > 1 && r->setup.nodes == 1;
    double bytes = (UPDATE_BYTES + (has_sums ? 0 : NORM_BYTES)) / (UPDATE_BYTES + (had_sums ? 0 : NORM_BYTES));
    if (p->sharded) return p->update * bytes * ls__load_stream_all(&had, state) / ls__load_stream_all(&has, state);
    return p->update * bytes * ls__load_stream(&had, state * p->local) / ls__load_stream(&has, state * r->local) *
           ls__load_turns(&has) / ls__load_turns(&had);
}

static double slow_of(const ls__replay *r)
{
    return fmax(1, r->setup.slow_rank);
}

/* The work of the node's ranks, if the cores are divided without loss. What a slower rank has left when the others are done, it
 * computes by itself. */
static double share_evenly(const ls__replay *r, double one)
{
    ls__load by_itself = load_of(r, 1);
    return one * (node_turns(r) + (slow_of(r) - 1) * ls__load_turns(&by_itself));
}

/* The work of the node's ranks, one slower than another by chance and the first `slow` times as slow, on whole cores. `one`: of the
 * rank with the most slots, if it had its cores. */
static double take_turns(const ls__replay *r, double one, double slow, int cores, uint64_t draw)
{
    const ls__step_profile *p = r->profile;
    int n = r->local * p->threads;
    double work[MOST_TASKS];
    for (int i = 0; i < n; i++) {
        int rank = i / p->threads, slots = ls__slots_of(r->setup.slots, r->setup.ranks, rank * r->setup.nodes);
        work[i] = one / r->each * slots * ls__noise_draw_rank(&p->noise, rank, slots, draw);
        if (!rank) work[i] *= slow;
    }
    return ls__share_cores(work, n, cores, draw);
}

/* By luck with the ticks, the simulation may end a little earlier with more work. A slower rank does not make a step faster. */
static double share_cores(const ls__replay *r, double one, int cores, uint64_t draw)
{
    double even = take_turns(r, one, 1, cores, draw), slow = slow_of(r);
    return slow > 1 ? fmax(even, take_turns(r, one, slow, cores, draw)) : even;
}

/* When the last rank is done. */
static double last_rank(const ls__replay *r, double one, const ls__noise_draw *draw, uint64_t number)
{
    ls__load all = load_of(r, r->local);
    double slow = r->setup.slow_rank > 1 ? fmax(draw->slowest, draw->typical * r->setup.slow_rank) : draw->slowest;
    if (!number || ls__load_turns(&all) <= 1) return one * node_turns(r) * slow;
    double evenly = share_evenly(r, one * draw->typical);
    if (all.threads > MOST_TASKS) return evenly;
    if (all.cores >= 1) return share_cores(r, one * draw->typical, (int)all.cores, number);
    /* Less than a core is not faster than one. */
    return fmax(evenly, all.threads > 1 ? share_cores(r, one * draw->typical, 1, number) : one * slow);
}

static double replay(const ls__replay *r, const ls__noise_draw *draw, uint64_t number, double term[LS_TERM_COUNT])
{
    const ls__step_profile *p = r->profile;
    ls__load by_itself = load_of(r, 1), all = load_of(r, r->local);
    by_itself.cores = fmax(by_itself.cores, p->threads);
    double alone = slots_time(p, &by_itself, r->each), one = slots_time(p, &all, r->each), shared = one * node_turns(r);
    double last = last_rank(r, one, draw, number);
    for (int i = 0; i < LS_TERM_COUNT; i++) term[i] = 0;
    term[LS_TERM_COMPUTE] = alone * draw->typical;
    term[LS_TERM_SHARING] = (shared - alone) * draw->typical;
    term[LS_TERM_IMBALANCE] = last - shared * draw->typical;
    term[LS_TERM_COMM] = exposed(r, last / r->each * p->backward);
    term[LS_TERM_UPDATE] = update_time(r);
    double sum = 0;
    for (int i = 0; i < LS_TERM_COUNT; i++) sum += term[i];
    term[LS_TERM_DATA] = (r->data_base + ls__replay_stall(r, sum / r->each)) * r->each;
    return sum + term[LS_TERM_DATA];
}

double ls__replay_step(const ls__replay *r, const ls__noise_draw *draw, uint64_t number, double term[LS_TERM_COUNT])
{
    double cores = r->setup.cores, fewer = floor(cores), sum[2], part[2][LS_TERM_COUNT];
    if (fewer < 1 || fewer == cores || (double)r->local * r->profile->threads <= fewer)
        return replay(r, draw, number, term);
    /* The scheduler is simulated on whole cores. A fraction is between the two, by what a core has to do. */
    for (int i = 0; i < 2; i++) {
        ls__replay whole = *r;
        whole.setup.cores = fewer + i;
        sum[i] = replay(&whole, draw, number, part[i]);
    }
    double share = (1 / fewer - 1 / cores) / (1 / fewer - 1 / (fewer + 1));
    for (int i = 0; i < LS_TERM_COUNT; i++) term[i] = part[0][i] + share * (part[1][i] - part[0][i]);
    return sum[0] + share * (sum[1] - sum[0]);
}
