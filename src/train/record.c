/* See record.h. */
#include "train/record.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/thread.h"
#include "record/ring.h"
#include "kern/copy.h"
#include "kern/gemm.h"
#include "kern/select.h"
#include "tensor/hooks.h"
#include "train/node_rates.h"
#include "train/inject.h"
#include "train/kept.h"
#include "train/training.h"

/* Otherwise OpenMP's threads all have the program's name. */
static void name_threads(int threads)
{
#pragma omp parallel num_threads(threads)
    {
        char name[32];
        int number = omp_get_thread_num();
        snprintf(name, sizeof name, "ls-compute-%d", number);
        if (number > 0 && strlen(name) < LS__THREAD_NAME) pthread_setname_np(pthread_self(), name);
    }
}

/* GB/s that this rank reads and writes when it copies memory, bypassing the caches. The best of several tries, since other programs
 * may disturb. 0: out of memory. */
static double copy_rate(int ranks)
{
    enum { TRIES = 3, MOST = 32 << 20, LEAST = 4 << 20, ALL = 128 << 20 };
    size_t bytes = (size_t)ALL / (size_t)ranks;
    bytes = bytes < LEAST ? LEAST : bytes > MOST ? MOST : bytes;
    char *memory = malloc(2 * bytes);
    int64_t best = INT64_MAX;
    if (!memory) return 0;
    memset(memory, 1, 2 * bytes);
    for (int i = 0; i < TRIES; i++) {
        int64_t begin = ls_now();
        ls__copy_bytes(memory + bytes, memory, bytes, true);
        int64_t took = ls_now() - begin;
        if (took > 0 && took < best) best = took;
    }
    free(memory);
    return 2 * (double)bytes / (double)best;
}

double ls__train_peak(ls_train *t, double reached)
{
    if (!(t->peak_gflops > 0) && t->kept) t->peak_gflops = *ls__train_kept_peak(t);
    if (!(t->peak_gflops > 0)) t->peak_gflops = ls__gemm_peak(512, 3, t->options.threads);
    if (t->kept && ls__train_is_first(t)) *ls__train_kept_peak(t) = t->peak_gflops;
    if (reached > t->peak_gflops) t->peak_gflops = reached;
    return t->peak_gflops;
}

static void set_metadata(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_record *r = ls_world_record(t->parallel.world);
    ls_loader_stats loader = ls_loader_get_stats(t->loader);
    double tokens = t->task->step_tokens(o);
    ls_record_metadata(r, LS_METADATA_PEAK, ls__train_peak(t, 0)); /* while the other ranks measure theirs */
    if (t->parallel.size > 1 && !t->kept) ls_record_metadata(r, LS_METADATA_COPY, copy_rate(t->parallel.size));
    ls_record_metadata(r, LS_METADATA_FLOPS, t->flops_per_token * tokens / t->parallel.size);
    ls_record_metadata(r, LS_METADATA_TOKENS, tokens);
    ls_record_metadata(r, LS_METADATA_TRAIN, 1);
    ls_record_metadata(r, LS_METADATA_KERNELS, ls__instruction_set_used()->number);
    ls_record_metadata(r, LS_METADATA_SLOTS, o->slots);
    ls_record_metadata(r, LS_METADATA_WORKERS, loader.workers);
    ls_record_metadata(r, LS_METADATA_WORKERS_FIXED, o->workers != 0);
    ls_record_metadata(r, LS_METADATA_PREFETCH, loader.prefetch);
    ls_record_metadata(r, LS_METADATA_THREADS, o->threads);
    ls_record_metadata(r, LS_METADATA_PARAMETERS, (double)ls_model_param_count(t->model));
    ls_record_metadata(r, LS_METADATA_BARRIERS, o->barriers);
    ls_record_metadata(r, LS_METADATA_STAGED, t->stage != NULL);
    ls_record_metadata(r, LS_METADATA_SHARDED, t->parallel.shared);
}

ls_status ls__train_record_open(ls_train *t)
{
    char *folder;
    if (!t->options.run_dir || t->options.no_record) return LS_OK;
    if (asprintf(&folder, "%s/events", t->options.run_dir) < 0) return ls__fail(LS_ENOMEM, "record: out of memory");
    ls_status status = ls_record_start(ls_world_record(t->parallel.world), folder);
    free(folder);
    if (status) return status;
    t->recorded = true;
    name_threads(t->options.threads);
    set_metadata(t);
    return LS_OK;
}

ls_status ls__train_record_node(ls_train *t)
{
    ls_record *r = ls_world_record(t->parallel.world);
    ls__node_rates n;
    if (!t->recorded || ls__train_kept_is_ready(t))
        return LS_OK; /* later generations of an elastic run must not wait for it */
    ls_status status = ls__node_rates_find(t->parallel.node_group, &n);
    if (status || !(n.cores > 0)) return status;
    ls_record_metadata(r, LS_METADATA_CORES, n.cores);
    ls_record_metadata(r, LS_METADATA_GEMM_ONE, n.gemm_one);
    ls_record_metadata(r, LS_METADATA_GEMM_ALL, n.gemm_all);
    ls_record_metadata(r, LS_METADATA_STREAM_ONE, n.stream_one);
    ls_record_metadata(r, LS_METADATA_STREAM_ALL, n.stream_all);
    ls_record_metadata(r, LS_METADATA_MEMORY_ONE, n.memory_one);
    ls_record_metadata(r, LS_METADATA_MEMORY_ALL, n.memory_all);
    ls_record_metadata(r, LS_METADATA_CACHE, n.cache_bytes);
    return LS_OK;
}

void ls__train_record_close(ls_train *t)
{
    if (t->recorded) ls_record_stop(ls_world_record(t->parallel.world));
    t->recorded = false;
}

ls_status ls__train_enter(ls_train *t, ls_phase phase)
{
    ls_world *w = t->parallel.world;
    ls_status status = t->options.barriers ? ls_barrier(ls_world_group(w)) : LS_OK;
    ls_record_begin(ls_world_record(w), phase);
    /* That of backward comes in the middle of it, in one layer. */
    if (phase != LS_PHASE_BACKWARD) ls__inject_delay(t, phase);
    return status;
}

double ls__train_lap(ls_train *t)
{
    int64_t now = ls_now(), before = t->clock;
    t->clock = now;
    return (double)(now - before) / 1e6;
}

double ls__train_leave(ls_train *t, ls_phase phase)
{
    ls_record_end(ls_world_record(t->parallel.world), phase);
    return ls__train_lap(t);
}

static void add_cost(void *user, const ls__op_cost *cost)
{
    ls_train *t = user;
    t->segment.flops += cost->flops;
    t->segment.bytes += cost->bytes;
}

void ls__train_costs_begin(ls_train *t, int micro)
{
    enum { EVERY = 256 };
    if (!t->recorded || t->profile || micro || t->step % EVERY) return;
    t->segment = (ls__segment_cost){ .counted = true };
    ls__tape_on_profile(t->tape, add_cost, t);
}

static uint64_t float_bits(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

void ls__train_costs_mark(ls_train *t, uint64_t span, ls_phase phase)
{
    ls__segment_cost *c = &t->segment;
    if (!c->counted) return;
    ls_record_event(ls_world_record(t->parallel.world), 0, LS_EVENT_SEGMENT, span << 1 | (phase == LS_PHASE_BACKWARD),
                    float_bits(c->flops) << 32 | float_bits(c->bytes));
    c->flops = c->bytes = 0;
    if (span != LS_SEGMENT_END || phase != LS_PHASE_BACKWARD) return;
    c->counted = false;
    ls__tape_on_profile(t->tape, NULL, NULL);
}

void ls__train_note_batch(ls_train *t)
{
    ls_loader_stats s = ls_loader_get_stats(t->loader);
    int64_t load = s.load_ns - t->loader_before.load_ns, wait = s.wait_ns - t->loader_before.wait_ns;
    int64_t now = ls_now();
    /* One that came immediately counts as ready. */
    int ready = s.ready || wait >= 50000 ? s.ready : 1;
    ls_record *r = ls_world_record(t->parallel.world);
    ls_record_event(r, now, LS_EVENT_BATCH, (uint64_t)load, ls__batch_bits(ready, s.worker, (now - s.built) / 1000));
    if (s.workers != t->loader_before.workers) ls_record_metadata(r, LS_METADATA_WORKERS, s.workers);
    if (s.prefetch != t->loader_before.prefetch) ls_record_metadata(r, LS_METADATA_PREFETCH, s.prefetch);
    t->loader_before = s;
}
