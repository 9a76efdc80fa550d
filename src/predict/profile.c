/* From a run to the numbers of a step. See profile.h. */
#include "predict/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/stats.h"

enum {
    LEAST_STEPS = 10, /* fewer do not show how steps vary */
    READY_STEPS = 32, /* from which the order of gradients is taken */
    PARTS = 4,        /* of a run, whose medians show how far a repetition would be off */
    MOST_SLOTS = 64,  /* of a rank, whose times are compared */
};

static const double *metadata(const ls_run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) return run->rank[r].metadata;
    return NULL;
}

static double known(const double *m, ls_metadata_kind kind, double otherwise)
{
    return isfinite(m[kind]) && m[kind] >= 0 && m[kind] < 1e15 ? m[kind] : otherwise;
}

/* Cores and rates are known to the local root of each node; the first that has them counts. */
static void read_node(ls__step_profile *p, const ls_run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const double *m = run->rank[r].metadata;
        if (!run->rank[r].present || !(known(m, LS_METADATA_CORES, 0) >= 1)) continue;
        p->speed.cores = m[LS_METADATA_CORES];
        p->speed.gemm_one = known(m, LS_METADATA_GEMM_ONE, 0);
        p->speed.gemm_all = known(m, LS_METADATA_GEMM_ALL, 0);
        p->speed.stream_one = known(m, LS_METADATA_STREAM_ONE, 0);
        p->speed.stream_all = known(m, LS_METADATA_STREAM_ALL, 0);
        p->speed.memory_one = known(m, LS_METADATA_MEMORY_ONE, p->speed.stream_one);
        p->speed.memory_all = known(m, LS_METADATA_MEMORY_ALL, p->speed.stream_all);
        p->speed.cache = known(m, LS_METADATA_CACHE, 0);
        return;
    }
}

/* Names the metadata that a prediction needs of the node and the record lacks. */
static ls_status missing_node(const ls_run *run)
{
    static const struct {
        ls_metadata_kind kind;
        const char *name;
    } needed[] = { { LS_METADATA_CORES, "LS_METADATA_CORES" },
                   { LS_METADATA_GEMM_ONE, "LS_METADATA_GEMM_ONE" },
                   { LS_METADATA_GEMM_ALL, "LS_METADATA_GEMM_ALL" },
                   { LS_METADATA_STREAM_ONE, "LS_METADATA_STREAM_ONE" },
                   { LS_METADATA_STREAM_ALL, "LS_METADATA_STREAM_ALL" } };
    char list[200] = "";
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        size_t at = strlen(list);
        if (known(metadata(run), needed[i].kind, 0) > 0) continue;
        snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", needed[i].name);
    }
    return ls__fail(
        LS_EINVAL,
        "%s: the record does not have the number and the speed of the node's cores (missing: %s); 'lockstep "
        "train' records them, a loop of your own passes them to ls_record_metadata()",
        run->path, list);
}

static ls_status read_setup(ls__step_profile *p, const ls_run *run)
{
    const double *m = metadata(run);
    int last_node = 0;
    for (int r = 0; r < run->ranks; r++) {
        int on = 0;
        for (int s = 0; s < run->ranks; s++) on += run->rank[s].node == run->rank[r].node;
        if (on > p->local) p->local = on;
        if (run->rank[r].node > last_node) last_node = run->rank[r].node;
    }
    p->ranks = run->ranks;
    p->nodes = last_node + 1;
    p->slots = (int)known(m, LS_METADATA_SLOTS, run->ranks);
    p->threads = (int)fmax(1, known(m, LS_METADATA_THREADS, 1));
    p->wire_bytes = (int)known(m, LS_METADATA_WIRE, 4) == 2 ? 2 : 4;
    p->workers = (int)known(m, LS_METADATA_WORKERS, 0);
    p->prefetch = (int)known(m, LS_METADATA_PREFETCH, 0);
    p->overlap = known(m, LS_METADATA_OVERLAP, 1) != 0;
    p->sharded = known(m, LS_METADATA_SHARDED, 0) != 0;
    p->bucket_bytes = (size_t)known(m, LS_METADATA_BUCKET, 0);
    p->tokens = known(m, LS_METADATA_TOKENS, 0);
    read_node(p, run);
    if (p->slots < p->ranks || p->slots > 1 << 20)
        return ls__fail(LS_EINVAL, "%s: %d slots on %d ranks: the record is incomplete", run->path, p->slots, p->ranks);
    if (!(p->speed.cores >= 1) && !(known(m, LS_METADATA_TORCH, 0) > 0)) return missing_node(run);
    return LS_OK;
}

/* ---- Medians over steps and ranks. */

static double wall_of(const ls_step_rank *s)
{
    return (double)(s->end - s->begin);
}
static double own_compute_of(const ls_step_rank *s)
{
    return (double)(s->own[LS_PHASE_FORWARD] + s->own[LS_PHASE_BACKWARD]);
}
/* With what the cores did for other programs meanwhile. */
static double compute_of(const ls_step_rank *s)
{
    return (double)(s->ns[LS_PHASE_FORWARD] + s->ns[LS_PHASE_BACKWARD]);
}
static double backward_of(const ls_step_rank *s)
{
    return (double)s->own[LS_PHASE_BACKWARD];
}
/* On a core, shared chunks included. */
static double update_of(const ls_step_rank *s)
{
    return (double)(s->ns[LS_PHASE_UPDATE] - s->sched_delay[LS_PHASE_UPDATE] - s->steal[LS_PHASE_UPDATE]);
}
static double data_of(const ls_step_rank *s)
{
    return (double)(s->ns[LS_PHASE_DATA] - s->sched_delay[LS_PHASE_DATA] - s->steal[LS_PHASE_DATA]);
}
static double comm_of(const ls_step_rank *s)
{
    return (double)(s->ns[LS_PHASE_COMM] - s->sched_delay[LS_PHASE_COMM] - s->steal[LS_PHASE_COMM]);
}
static double build_of(const ls_step_rank *s)
{
    return s->batches > 0 ? (double)s->batch_ns / s->batches : 0;
}

/* Whether a step has nothing but training in it. */
static bool is_plain(const ls_run_step *s, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (s->rank[r].ns[LS_PHASE_EVAL] || s->rank[r].ns[LS_PHASE_CHECKPOINT]) return false;
    return true;
}

/* The median of a number over all plain steps and ranks; per slot of the rank, if wanted. */
static double median_of(const ls__step_profile *p, const ls_run *run, double (*of)(const ls_step_rank *), bool per_slot,
                        double *scratch)
{
    size_t n = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        if (!is_plain(&run->steps[i], run->ranks)) continue;
        for (int r = 0; r < run->ranks; r++) {
            int each = per_slot ? ls__slots_of(p->slots, p->ranks, r) : 1;
            if (run->steps[i].rank[r].present && each) scratch[n++] = of(&run->steps[i].rank[r]) / each;
        }
    }
    return ls__median(scratch, n);
}

/* The relative standard error of the median step, if the run were repeated: parts of a run differ as runs do, or less. */
static double repeat_of(const ls_run *run, double *scratch)
{
    double part[PARTS], mean = 0, square = 0;
    size_t counted = run->n_steps - run->first_counted;
    for (int k = 0; k < PARTS; k++) {
        size_t n = 0, from = run->first_counted + counted * (size_t)k / PARTS,
               to = run->first_counted + counted * (size_t)(k + 1) / PARTS;
        for (size_t i = from; i < to; i++)
            if (is_plain(&run->steps[i], run->ranks)) scratch[n++] = wall_of(&run->steps[i].rank[0]);
        part[k] = ls__median(scratch, n);
        mean += part[k] / PARTS;
    }
    for (int k = 0; k < PARTS; k++) square += (part[k] - mean) * (part[k] - mean) / (PARTS - 1);
    return mean > 0 ? sqrt(square) / mean : 0;
}

/* Where each thread had a core, what other programs took of it counts as computing: they will go on. Otherwise ranks took the cores
 * from each other, which the replay finds by itself. */
static double (*busy_time(const ls__step_profile *p))(const ls_step_rank *)
{
    return p->local * p->threads <= p->speed.cores ? compute_of : own_compute_of;
}

static void read_times(ls__step_profile *p, const ls_run *run, double *scratch)
{
    double own = median_of(p, run, own_compute_of, true, scratch);
    p->step = median_of(p, run, wall_of, false, scratch);
    p->slot = median_of(p, run, busy_time(p), true, scratch);
    p->unshared = p->slot > 0 && p->local * p->threads >= p->speed.cores ? fmin(1, own / p->slot) : 1;
    p->backward = own > 0 ? fmin(1, median_of(p, run, backward_of, true, scratch) / own) : 0;
    p->update = median_of(p, run, update_of, false, scratch);
    p->data = median_of(p, run, data_of, true, scratch);
    p->build = median_of(p, run, build_of, false, scratch);
    p->comm = median_of(p, run, comm_of, false, scratch);
    p->repeat = repeat_of(run, scratch);
}

/* ---- Other programs. */

/* How much a counter of a rank rose per ns, while steps were counted. */
static double rise_of(const ls_run *run, int rank, ls_sample_kind kind)
{
    const ls_run_rank *x = &run->rank[rank];
    const ls_event *first = NULL, *last = NULL;
    int64_t from = run->steps[run->first_counted].rank[rank].begin, to = run->steps[run->n_steps - 1].rank[rank].end;
    for (size_t i = 0; i < x->n_events; i++) {
        const ls_event *e = &x->events[i];
        if (e->kind != LS_EVENT_SAMPLE || e->a != kind || e->time < from || e->time > to) continue;
        if (!first) first = e;
        last = e;
    }
    if (!first || last->time <= first->time || last->b < first->b) return NAN;
    return (double)(last->b - first->b) / (double)(last->time - first->time);
}

static void read_others(ls__step_profile *p, const ls_run *run)
{
    double others = rise_of(run, 0, LS_SAMPLE_BUSY);
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].node == run->rank[0].node) others -= rise_of(run, r, LS_SAMPLE_CPU);
    p->others = others > 0 ? fmin(others, p->speed.cores) : 0; /* 0 if it is not known */
}

/* ---- What operations read and write. */

static void read_bytes(ls__step_profile *p, const ls_run *run)
{
    const ls_run_rank *x = &run->rank[0];
    double bytes = 0, slots = 0;
    for (size_t i = 0; i < x->n_events; i++) {
        if (x->events[i].kind != LS_EVENT_SEGMENT) continue;
        float part;
        memcpy(&part, &(uint32_t){ (uint32_t)x->events[i].b }, sizeof part);
        if (part >= 0 && part < 1e15f) bytes += (double)part;
        slots += x->events[i].a == (LS_SEGMENT_END << 1 | 1);
    }
    if (slots > 0) p->bytes = bytes / slots;
}

/* ---- Adding the gradients of slots. */

double ls__accumulate_bytes(int before, int slots)
{
    if (slots < 2) return 0;
    if (before + 1 == slots) return 4 + 4 * __builtin_popcount((unsigned)before);
    return 8 + 4 * __builtin_ctz(~(unsigned)before);
}

/* The time in backward of each slot of each step on one rank: out[step * slots + slot]. Returns the number of steps that have all. */
static size_t list_backward(const ls_run *run, int rank, int slots, double *out)
{
    const ls_run_rank *x = &run->rank[rank];
    size_t n = 0, k = 0;
    for (size_t s = run->first_counted; s < run->n_steps; s++) {
        const ls_step_rank *step = &run->steps[s].rank[rank];
        double *times = out + n * (size_t)slots;
        int slot = -1;
        ls_phase before = LS_PHASE_OTHER;
        while (k < x->n_intervals && x->intervals[k].begin < step->begin) k++;
        for (int i = 0; i < slots; i++) times[i] = 0;
        for (; k + 1 < x->n_intervals && x->intervals[k].begin < step->end; k++) {
            const ls_interval *p = &x->intervals[k];
            if (p->phase == LS_PHASE_FORWARD && before != LS_PHASE_FORWARD) slot++;
            if (p->phase == LS_PHASE_BACKWARD && slot >= 0 && slot < slots)
                times[slot] += (double)(p[1].begin - p->begin - p->sched_delay - p->steal);
            if (p->phase == LS_PHASE_FORWARD || p->phase == LS_PHASE_BACKWARD) before = p->phase;
        }
        n += slot + 1 == slots;
    }
    return n;
}

/* Slots differ by how much is added in them: the slope of the median times over the bytes. */
static ls_status read_add_rate(ls__step_profile *p, const ls_run *run)
{
    int slots = ls__slots_of(p->slots, p->ranks, 0);
    size_t steps = run->n_steps - run->first_counted;
    if (slots < 3 || slots > MOST_SLOTS || !p->elements || p->slots % p->ranks) return LS_OK;
    double *times = malloc((steps + 1) * (size_t)slots * sizeof *times), *one = malloc((steps + 1) * sizeof *one);
    double mean_b = 0, mean_t = 0, product = 0, square = 0, median[MOST_SLOTS];
    ls_status status = times && one ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    size_t n = status ? 0 : list_backward(run, 0, slots, times);
    for (int i = 0; i < slots && n; i++) {
        for (size_t s = 0; s < n; s++) one[s] = times[s * (size_t)slots + (size_t)i];
        median[i] = ls__median(one, n);
        mean_b += ls__accumulate_bytes(i, slots) / slots;
        mean_t += median[i] / slots;
    }
    for (int i = 0; i < slots && n; i++) {
        double b = ls__accumulate_bytes(i, slots) - mean_b;
        product += b * (median[i] - mean_t);
        square += b * b;
    }
    if (product > 0) p->add_rate = (double)p->elements * square / product;
    free(times);
    free(one);
    return status;
}

/* ---- Variation. */

/* Compute time of each plain step on each rank, relative to the median per slot. */
static ls_status read_noise(ls__step_profile *p, const ls_run *run, double *scratch)
{
    double (*of)(const ls_step_rank *) = busy_time(p);
    size_t n = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        if (!is_plain(&run->steps[i], run->ranks)) continue;
        for (int r = 0; r < run->ranks; r++)
            scratch[n * (size_t)run->ranks + (size_t)r] =
                of(&run->steps[i].rank[r]) / ls__slots_of(p->slots, p->ranks, r) / p->slot;
        n++;
    }
    return ls__noise_open(&p->noise, scratch, n, run->ranks, ls__slots_of(p->slots, p->ranks, 0));
}

/* ---- Gradients: how large, and when ready. */

typedef struct ready_sum {
    double share, n;
    uint64_t bytes;
} ready_sum;

/* Of one backward pass: events [from, to) of a rank. */
static void add_ready(ready_sum *sums, size_t n_spans, const ls_event *e, size_t from, size_t to, uint64_t micro)
{
    int64_t begin = e[from].time, end = begin;
    for (size_t i = from; i < to; i++)
        if (e[i].kind == LS_EVENT_SPAN_READY && (e[i].b & 0xffff) == micro) end = e[i].time;
    for (size_t i = from; i < to && end > begin; i++) {
        if (e[i].kind != LS_EVENT_SPAN_READY || (e[i].b & 0xffff) != micro || e[i].a >= n_spans) continue;
        sums[e[i].a].share += (double)(e[i].time - begin) / (double)(end - begin);
        sums[e[i].a].bytes = e[i].b >> 16;
        sums[e[i].a].n++;
    }
}

/* Takes the newest backward passes of one rank in which gradients are synchronized. */
static void read_ready(ready_sum *sums, size_t n_spans, const ls_run_rank *x, uint64_t micro)
{
    int passes = 0;
    size_t end = 0;
    for (size_t i = x->n_events; i-- > 0 && passes < READY_STEPS;) {
        const ls_event *e = &x->events[i];
        if (e->thread != x->main_thread || e->a != LS_PHASE_BACKWARD) continue;
        if (e->kind == LS_EVENT_PHASE_END) end = i;
        if (e->kind != LS_EVENT_PHASE_BEGIN || !end) continue;
        add_ready(sums, n_spans, x->events, i, end, micro);
        end = 0;
        passes++;
    }
}

static int by_ready(const void *a, const void *b)
{
    double x = ((const ls__span_cost *)a)->ready, y = ((const ls__span_cost *)b)->ready;
    return (x > y) - (x < y);
}

/* No spans, if the record has none: then buckets cannot be packed anew. */
static ls_status read_spans(ls__step_profile *p, const ls_run *run)
{
    const ls_run_rank *x = &run->rank[0];
    size_t n = x->n_spans;
    if (!x->present || !n) return LS_OK;
    ready_sum *sums = calloc(n, sizeof *sums);
    p->spans = calloc(n, sizeof *p->spans);
    if (!sums || !p->spans) {
        free(sums);
        return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    }
    read_ready(sums, n, x, (uint64_t)ls__slots_of(p->slots, p->ranks, 0) - 1);
    for (size_t i = 0; i < n; i++) {
        size_t count = sums[i].bytes / sizeof(float);
        if (!(sums[i].n > 0) || !count || count > (size_t)1 << 44) continue;
        p->spans[p->n_spans++] = (ls__span_cost){ .count = count, .ready = sums[i].share / sums[i].n };
        p->elements += count;
    }
    qsort(p->spans, p->n_spans, sizeof *p->spans, by_ready);
    free(sums);
    return LS_OK;
}

/* ---- Communication. */

static void read_comm(ls__step_profile *p, const ls_run *run)
{
    for (size_t i = 0; i < run->n_comm; i++) {
        ls_comm_mean m = ls_run_get_comm_mean(run, &run->comm[i]);
        if (!run->comm[i].bucket && run->comm[i].kind != LS_COLLECTIVE_PARALLEL_FOR) p->small += m.count;
        if (run->comm[i].bucket && run->comm[i].network && isfinite(m.rate)) p->link_rate = m.rate;
    }
}

/* Why a rank has no record: there is no file, or none that can be used. */
static ls_status missing_rank(const ls_run *run, int rank)
{
    for (size_t i = 0; i < run->n_notes; i++) {
        const ls_note *n = &run->notes[i];
        if (n->rank != rank) continue;
        if (n->kind == LS_NOTE_UNREADABLE && n->text)
            return ls__fail(LS_EINVAL,
                            "%s: the record of rank %d is there but cannot be read (%s); a prediction needs all ranks",
                            run->path, rank, n->text);
        if (n->kind == LS_NOTE_WRONG_RANK)
            return ls__fail(LS_EINVAL,
                            "%s: the file of rank %d is that of rank %lld; a prediction needs the files of one run, "
                            "each under its own name",
                            run->path, rank, (long long)n->number);
        if (n->kind == LS_NOTE_WRONG_SIZE)
            return ls__fail(LS_EINVAL,
                            "%s: the file of rank %d is of another run, with %lld rank%s; a prediction needs the files "
                            "of one run",
                            run->path, rank, (long long)n->number, n->number == 1 ? "" : "s");
    }
    return ls__fail(LS_EINVAL, "%s: the record of rank %d is missing; a prediction needs all ranks", run->path, rank);
}

/* Files do not name their run. What all ranks of one state alike, and when their steps were, shows files of others. */
static ls_status check_one_run(const ls_run *run)
{
    static const struct {
        ls_metadata_kind kind;
        const char *name;
    } same[] = { { LS_METADATA_PARAMETERS, "parameters" }, { LS_METADATA_SLOTS, "slots" } };
    const ls_run_rank *first = &run->rank[0];
    const ls_run_step *last = run->n_steps ? &run->steps[run->n_steps - 1] : NULL;
    for (int r = 1; r < run->ranks; r++) {
        const ls_run_rank *x = &run->rank[r];
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
            double a = first->metadata[same[i].kind], b = x->metadata[same[i].kind];
            if (isfinite(a) && isfinite(b) && a != b)
                return ls__fail(LS_EINVAL,
                                "%s: rank 0 recorded %.15g %s, rank %d %.15g: these are files of different runs; a "
                                "prediction needs those of one",
                                run->path, a, same[i].name, r, b);
        }
        /* A step ends on all ranks together; machines may have clocks of their own. */
        if (!last || x->node != first->node || strcmp(x->host, first->host) != 0) continue;
        const ls_step_rank *a = &last->rank[0], *b = &last->rank[r];
        if (a->present && b->present && (a->end < b->begin || b->end < a->begin))
            return ls__fail(LS_EINVAL,
                            "%s: step %lld of rank %d was not at the same time as that of rank 0: these are files of "
                            "different runs; a prediction needs those of one",
                            run->path, (long long)last->number, r);
    }
    return LS_OK;
}

static ls_status check(const ls_run *run)
{
    size_t plain = 0;
    for (int r = 0; r < run->ranks; r++)
        if (!run->rank[r].present) return missing_rank(run, r);
    ls_status status = check_one_run(run);
    if (status) return status;
    for (size_t i = run->first_counted; i < run->n_steps; i++) plain += is_plain(&run->steps[i], run->ranks);
    if (plain < LEAST_STEPS)
        return ls__fail(
            LS_EINVAL,
            "%s: %zu recorded step%s without evaluation or checkpoint; a prediction needs at least %d after "
            "the warm-up: record a longer run",
            run->path, plain, plain == 1 ? "" : "s", (int)LEAST_STEPS);
    return LS_OK;
}

ls_status ls__step_profile_read(ls__step_profile *p, const ls_run *run)
{
    *p = (ls__step_profile){ 0 };
    ls_status status = check(run);
    if (!status) status = read_setup(p, run);
    if (status) return status;
    size_t steps = run->n_steps - run->first_counted, all = steps * (size_t)run->ranks;
    double *scratch = malloc((all + 1) * sizeof *scratch);
    if (!scratch) status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    if (!status) status = p->speed.cores >= 1 ? read_spans(p, run) : ls__torch_run_read(p, run);
    if (!status) {
        read_times(p, run, scratch);
        if (p->step > 0 && p->slot > 0)
            status = read_noise(p, run, scratch);
        else
            status = ls__fail(LS_EINVAL, "%s: no time was recorded in forward and backward", run->path);
        if (!status) status = read_add_rate(p, run);
        read_bytes(p, run);
        read_others(p, run);
        read_comm(p, run);
    }
    free(scratch);
    if (status) ls__step_profile_free(p);
    return status;
}

void ls__step_profile_free(ls__step_profile *p)
{
    ls__noise_close(&p->noise);
    free(p->spans);
    *p = (ls__step_profile){ 0 };
}
