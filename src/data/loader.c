/* The loader: workers build batches ahead of the trainer and deliver them in order.
 *
 * Batches of a rank have numbers: number = (epoch * steps + step) * own slots + slot. A worker takes the next number, gets its samples
 * from the sampler, builds the batch in a buffer and puts it at index number mod capacity. The trainer takes the numbers in
 * order, in whatever order they were finished. At most `ahead` numbers are given out beyond the last one that the trainer has
 * taken (back-pressure). Buffers are reused, so that steady operation allocates nothing.
 *
 * A failure is a batch too: its status and message reach the trainer in order.
 *
 * One lock, held to pass batches on, never while one is built. `work` wakes workers, `done` wakes the trainer. seek() begins a new
 * generation: batches that workers still build for the old one return to the pool. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/futex.h"
#include "base/log.h"
#include "base/slots.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/loader.h"
#include "data/tuner.h"
#include "lockstep/data.h"

enum { MAX_WORKERS = LS__LOADER_WORKERS, MAX_AHEAD = 4096, SPIN_NS = 20000 };

typedef struct buffer {
    ls_batch batch;
    struct buffer *next_free;
    uint8_t *memory;
    int64_t load_ns, built;
    int worker;
    ls_status status;
    char message[1024]; /* of a failure */
} buffer;

typedef struct worker {
    ls_loader *loader;
    int index;
    pthread_t thread;
    bool ready;              /* init was called and went well */
    void *state;             /* the dataset's */
    _Atomic uint64_t sample; /* being read */
    _Atomic int64_t since;   /* when it began */
} worker;

struct ls_loader {
    const ls_dataset *dataset;
    ls_loader_options o;
    ls_sampler *sampler;
    uint64_t steps; /* of an epoch */
    int first, own; /* slots of this rank */
    uint64_t end;   /* the number after the last batch; UINT64_MAX: none */
    size_t bytes;   /* of a buffer's memory */
    size_t offsets[LS_MAX_FIELDS];
    uint64_t fingerprint;

    pthread_mutex_t lock; /* what follows, except where noted */
    pthread_cond_t work, done;
    uint64_t next;  /* number to be given out */
    uint64_t taken; /* number that the trainer takes next */
    uint64_t generation;
    _Atomic(buffer *) places[MAX_AHEAD]; /* written under lock; looked at without */
    buffer *pool;
    bool stop;
    int active; /* workers that may take numbers */
    int ahead;  /* numbers that may be out */

    /* the trainer's alone: */
    worker *workers; /* (MAX_WORKERS); [0] serves the inline loader */
    int started;     /* threads */
    buffer *held;    /* handed out last */
    bool missed;     /* the batch was not there when it was asked for */
    ls_status failed;
    int64_t returned; /* when next() returned last; 0: not yet */
    bool spins;       /* there is more than one core */
    bool automatic;
    ls__tuner tuner;
    ls_loader_stats stats;
};

/* ---- Buffers. */

static void plan_memory(ls_loader *l)
{
    size_t at = 0;
    for (int f = 0; f < l->dataset->n_fields; f++) {
        const ls_field *field = &l->dataset->fields[f];
        l->offsets[f] = at;
        at += (l->o.batch_size * field->count * ls_dtype_size(field->type) + 63) / 64 * 64;
    }
    l->bytes = at + l->o.batch_size * sizeof(uint64_t);
}

static buffer *buffer_open(const ls_loader *l)
{
    buffer *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->memory = aligned_alloc(64, (l->bytes + 63) / 64 * 64);
    if (!b->memory) {
        free(b);
        return NULL;
    }
    for (int f = 0; f < l->dataset->n_fields; f++) b->batch.fields[f] = b->memory + l->offsets[f];
    b->batch.samples = (uint64_t *)(void *)(b->memory + l->bytes - l->o.batch_size * sizeof(uint64_t));
    return b;
}

static void buffer_free(buffer *b)
{
    if (!b) return;
    free(b->memory);
    free(b);
}

/* A buffer from the pool or a new one. The lock is held when called. */
static buffer *take_buffer(ls_loader *l)
{
    buffer *b = l->pool;
    if (!b) return buffer_open(l);
    l->pool = b->next_free;
    return b;
}

/* The lock is held when called. */
static void give_buffer(ls_loader *l, buffer *b)
{
    if (!b) return;
    b->next_free = l->pool;
    l->pool = b;
}

/* ---- Building a batch, in whatever thread. */

static ls_status worker_begin(worker *w)
{
    ls_loader *l = w->loader;
    if (w->ready) return LS_OK;
    ls_status status = LS_OK;
    if (l->o.worker_init) status = l->o.worker_init(l->o.user, w->index);
    if (!status && l->dataset->worker_open) status = l->dataset->worker_open(l->dataset->self, w->index, &w->state);
    if (status) return ls__fail_within(status < 0 ? status : LS_ESTATE, "starting loader worker %d", w->index);
    w->ready = true;
    return LS_OK;
}

static void worker_end(worker *w)
{
    const ls_dataset *d = w->loader->dataset;
    if (w->ready && d->worker_free) d->worker_free(d->self, w->state);
    w->ready = false;
}

static ls_status read_rows(worker *w, ls_batch *batch)
{
    const ls_dataset *d = w->loader->dataset;
    for (size_t r = 0; r < batch->batch_size; r++) {
        ls_row row = { 0 };
        for (int f = 0; f < d->n_fields; f++)
            row.fields[f] = (uint8_t *)batch->fields[f] + r * d->fields[f].count * ls_dtype_size(d->fields[f].type);
        atomic_store_explicit(&w->sample, batch->samples[r], memory_order_relaxed);
        atomic_store_explicit(&w->since, ls_now(), memory_order_relaxed);
        ls_status status = d->get(d->self, w->state, batch->samples[r], &row);
        if (status)
            return ls__fail_within(status < 0 ? status : LS_ESTATE,
                                   "epoch %zu, step %zu, slot %d, row %zu (sample %zu)", (size_t)batch->epoch,
                                   (size_t)batch->step, batch->slot, r, (size_t)batch->samples[r]);
        batch->tokens += row.tokens;
        if (row.length > batch->longest) batch->longest = row.length;
    }
    return LS_OK;
}

static void build_slot(worker *w, buffer *b, uint64_t step, int slot)
{
    ls_loader *l = w->loader;
    int64_t begin = ls_now();
    ls_batch *batch = &b->batch;
    batch->epoch = step / l->steps;
    batch->step = step % l->steps;
    batch->slot = slot;
    batch->batch_size = batch->tokens = batch->longest = 0;
    b->status = ls__fail(LS_OK, "%s", ""); /* a function of the dataset that fails may set no message */
    b->status = worker_begin(w);
    if (!b->status)
        b->status = ls_sampler_get_samples(l->sampler, batch->epoch, batch->step, batch->slot,
                                           (uint64_t *)(uintptr_t)batch->samples, &batch->batch_size);
    if (!b->status) b->status = read_rows(w, batch);
    if (b->status) snprintf(b->message, sizeof b->message, "%s", ls_error());
    atomic_store_explicit(&w->since, 0, memory_order_relaxed);
    b->built = ls_now();
    b->load_ns = b->built - begin;
}

static void build(worker *w, buffer *b, uint64_t number)
{
    uint64_t own = (uint64_t)w->loader->own;
    build_slot(w, b, number / own, w->loader->first + (int)(number % own));
}

/* ---- Workers. */

/* Waits until it may take the next number. False: it must stop. The lock is held when called. */
static bool wait_for_work(worker *w)
{
    ls_loader *l = w->loader;
    while (!l->stop) {
        if (w->index < l->active && l->next < l->end && l->next - l->taken < (uint64_t)l->ahead) return true;
        pthread_cond_wait(&l->work, &l->lock);
    }
    return false;
}

static void *work(void *arg)
{
    worker *w = arg;
    ls_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (wait_for_work(w)) {
        buffer *b = take_buffer(l);
        if (!b) { /* memory may become available again; the trainer's timeout limits the wait */
            pthread_mutex_unlock(&l->lock);
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
            pthread_mutex_lock(&l->lock);
            continue;
        }
        uint64_t number = l->next++, generation = l->generation;
        pthread_mutex_unlock(&l->lock);
        build(w, b, number);
        b->worker = w->index;
        pthread_mutex_lock(&l->lock);
        if (generation != l->generation) {
            give_buffer(l, b);
            continue;
        }
        l->places[number % MAX_AHEAD] = b;
        if (number == l->taken) pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    worker_end(w);
    return NULL;
}

/* Lets `workers` workers run, each `prefetch` batches ahead; starts threads that are missing. */
static ls_status set_workers(ls_loader *l, int workers, int prefetch)
{
    ls_status status = LS_OK;
    while (l->started < workers && !status) {
        char name[32];
        snprintf(name, sizeof name, "ls-load-%d", l->started);
        worker *w = &l->workers[l->started];
        *w = (worker){ .loader = l, .index = l->started };
        status = ls__thread_start(&w->thread, name, work, w);
        if (!status) l->started++;
    }
    if (status && !l->started) return status;
    if (workers > l->started) {
        ls__log(LS_LOG_WARNING, "loader: only %d of %d workers could be started: %s", l->started, workers, ls_error());
        workers = l->started;
    }
    pthread_mutex_lock(&l->lock);
    l->active = workers;
    l->ahead = workers * prefetch < MAX_AHEAD ? workers * prefetch : MAX_AHEAD;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    l->stats.workers = workers;
    l->stats.prefetch = prefetch;
    return LS_OK;
}

/* ---- Opening and closing. */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t fingerprint_of(const ls_loader *l)
{
    uint64_t h = mix(mix(mix(1, l->dataset->count), l->o.seed), (uint64_t)l->o.order);
    h = mix(mix(mix(h, l->o.batch_size), (uint64_t)l->o.slots), l->o.drop_last);
    /* torch's order depends on the world size. */
    return l->o.order == LS_ORDER_TORCH
               ? mix(mix(mix(h, (uint64_t)l->o.torch_world_size), l->o.no_shuffle), l->o.drop_step)
               : h;
}

static ls_status open_sampler(ls_loader *l)
{
    const ls_loader_options *o = &l->o;
    ls_sampler_options so = { .samples = l->dataset->count,
                              .order = o->order,
                              .seed = o->seed,
                              .batch_size = o->batch_size,
                              .slots = o->slots,
                              .world_size = o->torch_world_size,
                              .drop_last = o->drop_last,
                              .drop_step = o->drop_step,
                              .no_shuffle = o->no_shuffle,
                              .length = l->dataset->length,
                              .user = l->dataset->self };
    ls_status status = ls_sampler_open(&l->sampler, &so);
    if (status) return status;
    l->steps = ls_sampler_steps(l->sampler);
    if (!l->steps)
        return ls__fail(LS_EINVAL, "loader: %zu sample%s cannot fill one step of %d slot%s of %zu; drop_last drops all",
                        (size_t)l->dataset->count, ls__s((int64_t)l->dataset->count), o->slots, ls__s(o->slots),
                        o->batch_size);
    l->first = ls__slots_first(o->slots, o->world_size, o->rank);
    l->own = ls__slots_count(o->slots, o->world_size, o->rank);
    uint64_t per_epoch;
    if (!o->epochs || __builtin_mul_overflow(l->steps, (uint64_t)l->own, &per_epoch) ||
        __builtin_mul_overflow(per_epoch, o->epochs, &l->end))
        l->end = UINT64_MAX;
    return LS_OK;
}

ls_status ls_loader_open(ls_loader **out, const ls_dataset *dataset, const ls_loader_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(dataset, "dataset");
    ls_loader *l = calloc(1, sizeof *l);
    if (!l) return ls__fail(LS_ENOMEM, "loader: out of memory");
    l->dataset = dataset;
    if (options) l->o = *options;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&l->work, NULL);
    pthread_mutex_init(&l->lock, NULL);

    ls_status status = ls__loader_check(dataset, &l->o);
    if (!status) status = open_sampler(l);
    if (status) goto fail;
    plan_memory(l);
    l->fingerprint = fingerprint_of(l);
    l->stats.batch_bytes = l->bytes;
    l->automatic = l->o.workers == LS_WORKERS_AUTO;
    l->spins = ls__cpu_count() > 1;
    l->workers = calloc(MAX_WORKERS, sizeof *l->workers);
    /* The first buffer is taken here, so that a batch too large for the memory is refused at the start. */
    l->pool = buffer_open(l);
    if (!l->workers || !l->pool) {
        status = ls__fail(LS_ENOMEM, "loader: no memory for a batch of %zu bytes", l->bytes);
        goto fail;
    }
    if (l->automatic) {
        ls__tuner_init(&l->tuner, l->o.max_workers);
        if (l->o.prefetch) l->tuner.prefetch = l->o.prefetch;
        status = set_workers(l, l->tuner.workers, l->tuner.prefetch);
    } else if (l->o.workers) {
        status = set_workers(l, l->o.workers, l->o.prefetch ? l->o.prefetch : 2);
    } else {
        l->workers[0] = (worker){ .loader = l };
    }
    if (status) goto fail;
    *out = l;
    return LS_OK;
fail:
    ls_loader_free(&l);
    return status;
}

void ls_loader_free(ls_loader **loader)
{
    ls_loader *l = loader ? *loader : NULL;
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->started; i++) pthread_join(l->workers[i].thread, NULL);
    if (l->workers && !l->started && l->workers[0].loader) worker_end(&l->workers[0]);
    for (int i = 0; i < MAX_AHEAD; i++) buffer_free(l->places[i]);
    while (l->pool) {
        buffer *b = l->pool;
        l->pool = b->next_free;
        buffer_free(b);
    }
    buffer_free(l->held);
    ls_sampler_free(&l->sampler);
    free(l->workers);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    free(l);
    *loader = NULL;
}

/* ---- The trainer's side. */

/* Describes which worker is late, and with which sample. The lock is held when called. */
static ls_status timed_out(const ls_loader *l)
{
    uint64_t step = l->taken / (uint64_t)l->own;
    const worker *slowest = NULL;
    int64_t since = INT64_MAX;
    for (int i = 0; i < l->started; i++) {
        int64_t began = atomic_load_explicit(&l->workers[i].since, memory_order_relaxed);
        if (!began || began > since) continue;
        since = began;
        slowest = &l->workers[i];
    }
    char who[100] = "no worker is reading";
    if (slowest)
        snprintf(who, sizeof who, "worker %d has been reading sample %zu for %.1f s", slowest->index,
                 (size_t)atomic_load_explicit(&slowest->sample, memory_order_relaxed),
                 (double)(ls_now() - since) * 1e-9);
    return ls__fail(LS_ETIMEOUT, "loader: timeout: no batch of epoch %zu, step %zu, slot %d after %.1f s; %s",
                    (size_t)(step / l->steps), (size_t)(step % l->steps), l->first + (int)(l->taken % (uint64_t)l->own),
                    l->o.timeout_ms * 1e-3, who);
}

/* Batches that wait for the trainer. The lock is held when called. */
static int count_ready(const ls_loader *l)
{
    int n = 0;
    for (uint64_t i = l->taken; i < l->next; i++) n += l->places[i % MAX_AHEAD] != NULL;
    return n;
}

/* Takes batch number `taken` out of its place, waiting for it. */
static ls_status wait_for_batch(ls_loader *l, buffer **out)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += l->o.timeout_ms / 1000;
    until.tv_nsec += l->o.timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;

    _Atomic(buffer *) *place = &l->places[l->taken % MAX_AHEAD];
    ls_status status = LS_OK;
    pthread_mutex_lock(&l->lock);
    give_buffer(l, l->held);
    l->held = NULL;
    l->missed = !*place;
    l->stats.ready = count_ready(l);
    if (!*place && l->spins) {
        /* Where a batch takes microseconds, sleeping and waking up would take most of the time. */
        pthread_mutex_unlock(&l->lock);
        for (int64_t end = ls_now() + SPIN_NS; !*place && ls_now() < end;) ls__cpu_relax();
        pthread_mutex_lock(&l->lock);
    }
    while (!*place && !status) {
        if (!l->o.timeout_ms)
            pthread_cond_wait(&l->done, &l->lock);
        else if (pthread_cond_timedwait(&l->done, &l->lock, &until) == ETIMEDOUT && !*place)
            status = timed_out(l);
    }
    if (!status) {
        *out = *place;
        *place = NULL;
        if (!(*out)->status) l->taken++;
        if (l->active == l->started)
            pthread_cond_signal(&l->work); /* one number more, one worker */
        else
            pthread_cond_broadcast(&l->work); /* a signal might wake one that may not take a number */
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Inline: builds the batch here. */
static void build_now(ls_loader *l, buffer **out)
{
    give_buffer(l, l->held);
    l->held = NULL;
    *out = take_buffer(l); /* there is always the one made by open */
    build(&l->workers[0], *out, l->taken);
    (*out)->worker = -1;
    if (!(*out)->status) l->taken++;
}

static void tune(ls_loader *l, int64_t wait, int64_t compute, int64_t load)
{
    char reason[300];
    int workers = l->tuner.workers, prefetch = l->tuner.prefetch;
    if (!ls__tuner_feed(&l->tuner, wait, compute, load, reason, sizeof reason)) return;
    if (set_workers(l, l->tuner.workers, l->tuner.prefetch)) return;
    l->tuner.workers = l->stats.workers;
    ls__log(LS_LOG_INFO, "loader: batch %zu: workers %d -> %d, prefetch %d -> %d: %s", (size_t)l->stats.batches,
            workers, l->tuner.workers, prefetch, l->tuner.prefetch, reason);
}

ls_status ls_loader_next(ls_loader *l, ls_batch **out)
{
    LS__NEED(l, "loader");
    LS__NEED(out, "out");
    *out = NULL;
    if (l->failed) return ls__fail(l->failed, "%s", l->held->message);
    if (l->taken >= l->end) return LS_END;
    int64_t asked = ls_now();
    buffer *b = NULL;
    ls_status status = LS_OK;
    if (l->started)
        status = wait_for_batch(l, &b);
    else
        build_now(l, &b);
    int64_t now = ls_now(), wait = now - asked, compute = l->returned ? asked - l->returned : 0;
    l->stats.wait_ns += wait;
    l->returned = now;
    if (status) return status;
    l->held = b;
    if (b->status) {
        l->failed = b->status;
        return ls__fail(b->status, "%s", b->message);
    }
    /* The time to return a batch that is ready is not waiting that workers could reduce. */
    if (l->automatic && l->stats.batches) tune(l, l->missed ? wait : 0, compute, b->load_ns);
    l->stats.batches++;
    l->stats.load_ns += b->load_ns;
    l->stats.worker = b->worker;
    l->stats.built = b->built;
    *out = &b->batch;
    return LS_OK;
}

ls_status ls__loader_get(ls_loader *l, const ls_loader_state *at, int slot, ls_batch **out)
{
    worker w = { .loader = l };
    pthread_mutex_lock(&l->lock);
    give_buffer(l, l->held);
    l->held = take_buffer(l);
    pthread_mutex_unlock(&l->lock);
    if (!l->held) return ls__fail(LS_ENOMEM, "loader: no memory for a batch of %zu bytes", l->bytes);
    build_slot(&w, l->held, at->epoch * l->steps + at->step, slot);
    worker_end(&w);
    *out = &l->held->batch;
    return l->held->status ? ls__fail(l->held->status, "%s", l->held->message) : LS_OK;
}

uint64_t ls_loader_steps(const ls_loader *l)
{
    return l->steps;
}

ls_loader_state ls_loader_get_state(const ls_loader *l)
{
    uint64_t step = l->taken / (uint64_t)l->own;
    return (ls_loader_state){ .epoch = step / l->steps, .step = step % l->steps, .fingerprint = l->fingerprint };
}

ls_status ls_loader_seek(ls_loader *l, const ls_loader_state *state)
{
    LS__NEED(l, "loader");
    LS__NEED(state, "state");
    if (state->fingerprint != l->fingerprint)
        return ls__fail(LS_EINVAL,
                        "loader: the saved position belongs to other data, another order or another batch shape; use "
                        "the same samples, order, seed, slots and batch size as the run that saved it");
    if (state->step >= l->steps || state->epoch > (UINT64_MAX >> 1) / l->steps / (uint64_t)l->own)
        return ls__fail(LS_EINVAL, "loader: epoch %zu, step %zu does not exist; an epoch has %zu step%s",
                        (size_t)state->epoch, (size_t)state->step, (size_t)l->steps, ls__s((int64_t)l->steps));
    pthread_mutex_lock(&l->lock);
    l->generation++;
    l->next = l->taken = (state->epoch * l->steps + state->step) * (uint64_t)l->own;
    for (int i = 0; i < MAX_AHEAD; i++) {
        give_buffer(l, l->places[i]);
        l->places[i] = NULL;
    }
    give_buffer(l, l->held);
    l->held = NULL;
    l->failed = LS_OK;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return LS_OK;
}

ls_loader_stats ls_loader_get_stats(const ls_loader *l)
{
    return l->stats;
}
