/* Records: marks, samples and events of one rank. See lockstep/record.h.
 *
 * All threads add events to a ring in memory. The thread that runs the steps owns the rest: it samples the kernel's counters at its
 * marks, and writes the ring's events to the file at the end of its steps. `owner` is that thread while a file is written. One
 * comparison with it decides whether a call does more than add to the ring, so calls of other threads touch nothing else. */
#include "record/record.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"
#include "base/thread.h"
#include "record/counters.h"
#include "record/event_file.h"

enum {
    EVENTS = 1 << 14,    /* in memory, 40 bytes each: some seconds of a busy program */
    WRITE_NS = 250000000 /* longest interval between writes, for readers of a run in progress */
};

struct ls_record {
    ls__ring *ring;
    ls__event_file *file;
    ls__counters counters;
    _Atomic uintptr_t owner; /* pthread_self() of the thread that runs the steps; 0: no file */
    bool paused;
    int64_t last_write;
    int n_named; /* rows of threads whose names were recorded */
    ls_record_options options;
    char transport[8];
};

static uintptr_t this_thread(void)
{
    return (uintptr_t)pthread_self();
}

/* Whether the caller runs the steps, and a file is written. */
static bool is_owner(const ls_record *r)
{
    uintptr_t owner = atomic_load_explicit(&r->owner, memory_order_relaxed);
    return owner && owner == this_thread();
}

static void set_owner(ls_record *r, uintptr_t thread)
{
    atomic_store_explicit(&r->owner, thread, memory_order_relaxed);
}

static void sample_process(ls_record *r, int64_t now, bool all)
{
    const ls__thread_times *t = &r->counters.threads;
    ls__counters_sample_process(&r->counters, r->ring, now, all);
    for (; r->n_named < t->count; r->n_named++)
        ls__event_file_name(r->file, LS_NAME_THREAD, (uint32_t)r->n_named, t->row[r->n_named].name);
}

/* The calling thread runs the steps from now on: its counters are sampled. */
static void make_this_thread_owner(ls_record *r)
{
    ls__counters_open(&r->counters, NULL);
    r->n_named = 0;
    set_owner(r, this_thread());
}

/* ---- Opening. */

/* "0-3,8" */
static void list_cores(char *out, size_t bytes)
{
    cpu_set_t set;
    size_t n = 0;
    *out = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return;
    for (int i = 0; i < CPU_SETSIZE && n + 16 < bytes; i++) {
        if (!CPU_ISSET((size_t)i, &set)) continue;
        int last = i;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET((size_t)last + 1, &set)) last++;
        n += (size_t)snprintf(out + n, bytes - n, last > i ? "%s%d-%d" : "%s%d", n ? "," : "", i, last);
        i = last;
    }
}

/* Escapes a text for JSON. */
static void replace_unprintable(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
}

static void format_header(const ls_record *r, char *out, size_t bytes)
{
    const ls_record_options *o = &r->options;
    char cores[512], host[65] = "";
    struct timespec now;
    list_cores(cores, sizeof cores);
    gethostname(host, sizeof host - 1);
    replace_unprintable(host);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(out, bytes,
             "{\"lockstep\":\"%s\",\"rank\":%d,\"ranks\":%d,\"node\":%d,\"local_rank\":%d,\"host\":\"%s\",\"pid\":%d,"
             "\"cores\":\"%s\",\"threads\":%d,\"transport\":\"%s\",\"start\":%lld,\"time\":%lld.%06ld}",
             ls_version(), o->rank, o->ranks, o->node, o->local_rank, host, (int)getpid(), cores, ls__cpu_count(),
             r->transport, (long long)ls_now(), (long long)now.tv_sec, now.tv_nsec / 1000);
}

static ls_status check(const ls_record_options *o)
{
    if (o->ranks < 1 || o->ranks > LS__EVENT_FILE_MAX_RANKS)
        return ls__fail(LS_EINVAL, "record: ranks is %d; must be an integer from 1 to %d", o->ranks,
                        (int)LS__EVENT_FILE_MAX_RANKS);
    if (o->rank < 0 || o->rank >= o->ranks)
        return ls__fail(LS_EINVAL, "record: rank is %d; must be between 0 and %d", o->rank, o->ranks - 1);
    if (o->node < 0 || o->local_rank < 0 || o->local_rank >= o->ranks)
        return ls__fail(LS_EINVAL, "record: rank %d cannot be local rank %d of node %d", o->rank, o->local_rank,
                        o->node);
    if (o->node > LS__EVENT_FILE_MAX_RANKS)
        return ls__fail(LS_EINVAL, "record: node is %d; must be at most %d", o->node, (int)LS__EVENT_FILE_MAX_RANKS);
    if (o->segment_bytes > LS__EVENT_FILE_MAX_SEGMENT)
        return ls__fail(LS_EINVAL, "record: segment_bytes is %zu; must be at most %zu (1 TiB)", o->segment_bytes,
                        (size_t)LS__EVENT_FILE_MAX_SEGMENT);
    if (o->transport && strlen(o->transport) >= sizeof((ls_record *)0)->transport)
        return ls__fail(LS_EINVAL, "record: transport is '%.20s'; must have at most 7 characters", o->transport);
    return LS_OK;
}

static ls__ring *new_ring(void)
{
    size_t bytes = (ls__ring_bytes(EVENTS) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    return memory ? ls__ring_init(memset(memory, 0, bytes), EVENTS) : NULL;
}

ls_status ls_record_open(ls_record **out, const char *folder, const ls_record_options *options)
{
    LS__NEED(out, "out");
    ls_record_options o = options ? *options : (ls_record_options){ 0 };
    *out = NULL;
    if (!o.ranks) o.ranks = 1;
    ls_status status = check(&o);
    if (status) return status;
    ls_record *r = calloc(1, sizeof *r);
    if (!r) return ls__fail(LS_ENOMEM, "record: out of memory");
    r->options = o;
    snprintf(r->transport, sizeof r->transport, "%s", o.transport ? o.transport : "none");
    replace_unprintable(r->transport);
    r->options.transport = NULL; /* the caller's text */
    r->ring = new_ring();
    r->file = r->ring ? ls__event_file_new(r->ring) : NULL;
    if (!r->file) status = ls__fail(LS_ENOMEM, "record: out of memory for %d events", EVENTS);
    if (!status && folder) status = ls_record_start(r, folder);
    if (status) ls_record_free(&r);
    *out = r;
    return status;
}

ls_status ls_record_start(ls_record *r, const char *folder)
{
    char head[2048];
    if (!r || !folder) return ls__fail(LS_EINVAL, "record: record and folder must not be NULL");
    if (ls__event_file_is_open(r->file))
        return ls__fail(LS_ESTATE, "record: rank %d is being recorded already; call ls_record_stop() first",
                        r->options.rank);
    ls_record_stop(r); /* its last file may have ended because the disk was full */
    format_header(r, head, sizeof head);
    ls_status status = ls__event_file_start(r->file, folder, r->options.rank, head, r->options.segment_bytes);
    if (status) return status;
    r->last_write = 0;
    r->paused = false;
    make_this_thread_owner(r);
    ls__event_file_metadata(r->file, LS_METADATA_ENERGY, (double)r->counters.energy.access);
    return LS_OK;
}

void ls_record_stop(ls_record *r)
{
    if (!r || !atomic_load_explicit(&r->owner, memory_order_relaxed)) return;
    int64_t now = ls__record_sample(r, ls_now());
    sample_process(r, now, true);
    set_owner(r, 0);
    ls__event_file_stop(r->file);
    ls__counters_close(&r->counters);
}

void ls_record_flush(ls_record *r)
{
    if (r) ls__event_file_drain(r->file, true);
}

void ls_record_free(ls_record **pr)
{
    ls_record *r = pr ? *pr : NULL;
    if (!r) return;
    ls_record_stop(r);
    ls__event_file_free(&r->file);
    free(r->ring);
    free(r);
    *pr = NULL;
}

ls__ring *ls__record_ring(const ls_record *r)
{
    return r->ring;
}

void ls__record_pause(ls_record *r, bool paused)
{
    if (!r || paused == r->paused || !ls__event_file_is_open(r->file)) return;
    r->paused = paused;
    if (paused) {
        ls__event_file_drain(r->file, false);
        set_owner(r, 0);
    } else {
        ls__event_file_skip(r->file);
        r->counters.last = ls_now(); /* the pause must not count as time allowed for samples */
        set_owner(r, this_thread());
    }
}

/* ---- Marks. */

int64_t ls__record_sample(ls_record *r, int64_t now)
{
    if (!r || !is_owner(r)) return now;
    ls__thread_counts c = ls__counters_sample(&r->counters, now);
    ls__thread_counts_add(r->ring, &c);
    return c.time;
}

void ls_record_begin(ls_record *r, ls_phase phase)
{
    if (!r) return;
    int64_t now = ls__record_sample(r, ls_now());
    ls__ring_add_at(r->ring, now, LS_EVENT_PHASE_BEGIN, (uint64_t)phase, 0);
}

void ls_record_end(ls_record *r, ls_phase phase)
{
    if (!r) return;
    int64_t now = ls__record_sample(r, ls_now());
    ls__ring_add_at(r->ring, now, LS_EVENT_PHASE_END, (uint64_t)phase, 0);
    /* With many layers and micro-batches a step has more events than the ring. */
    if (is_owner(r)) ls__event_file_drain_if_full(r->file);
}

void ls_record_step(ls_record *r, int64_t step)
{
    if (!r) return;
    uintptr_t owner = atomic_load_explicit(&r->owner, memory_order_relaxed);
    if (owner && owner != this_thread()) { /* the record is now used by this thread */
        ls__counters_close(&r->counters);
        make_this_thread_owner(r);
    }
    int64_t now = ls__record_sample(r, ls_now());
    if (owner) sample_process(r, now, false);
    ls__ring_add_at(r->ring, now, LS_EVENT_STEP, (uint64_t)step, 0);
    if (!owner) return;
    bool due = now - r->last_write > WRITE_NS;
    if (due) r->last_write = now;
    ls__event_file_drain(r->file, due);
}

/* ---- Collectives and other events. */

uint64_t ls_collective_id(uint64_t group, uint64_t number)
{
    /* Numbers of 16 bits are used as they are; larger hashes are mixed. 0 is only the group of all ranks. */
    uint64_t folded = (group ^ group >> 16 ^ group >> 32 ^ group >> 48) & 0xffff;
    if (group && !folded) folded = 1;
    return folded << 48 | (number & (UINT64_MAX >> 16));
}

void ls_record_collective(ls_record *r, const ls_collective *c)
{
    if (!r || !c) return;
    uint64_t word = ls_collective_id(c->group, c->number);
    ls__ring_add_at(r->ring, c->arrived, LS_EVENT_COLL_START, word,
                    (uint64_t)c->kind << 56 | (c->bytes & (UINT64_MAX >> 8)));
    /* The last rank is found when all records are read. */
    ls__ring_add_at(r->ring, c->done, LS_EVENT_COLL_DONE, word, (uint64_t)r->options.rank << 48);
    if (c->blocked > 0) ls__ring_add_at(r->ring, c->done, LS_EVENT_BLOCKED, word, (uint64_t)c->blocked);
    if (is_owner(r)) ls__event_file_drain_if_full(r->file);
}

int64_t ls__record_blocked(ls_record *r, uint64_t collective, int64_t begin, int64_t now)
{
    if (!r) return now;
    if (!is_owner(r)) { /* no file, or another thread: the usual case of a small collective that must be fast */
        ls__ring_add_at(r->ring, now, LS_EVENT_BLOCKED, collective, (uint64_t)(now - begin));
        return now;
    }
    ls__thread_counts c = ls__counters_sample(&r->counters, now);
    ls__ring_add_at(r->ring, c.time, LS_EVENT_BLOCKED, collective, (uint64_t)(c.time - begin));
    ls__thread_counts_add(r->ring, &c);
    return c.time;
}

void ls_record_event(ls_record *r, int64_t time, ls_event_kind kind, uint64_t a, uint64_t b)
{
    if (!r) return;
    if (!time) {
        time = ls_now();
        /* Events of gradients and weights are within a phase. A sample there shows in which layer time was lost. */
        if ((kind == LS_EVENT_SPAN_READY || kind == LS_EVENT_SPAN_USED) && is_owner(r) &&
            ls__counters_is_due(&r->counters, time, 2 * (size_t)a + (kind == LS_EVENT_SPAN_USED)))
            time = ls__record_sample(r, time);
    }
    ls__ring_add_at(r->ring, time, kind, a, b);
}

void ls_record_metadata(ls_record *r, ls_metadata_kind kind, double value)
{
    if (r) ls__event_file_metadata(r->file, kind, value);
}

void ls_record_name(ls_record *r, ls_name_kind kind, uint32_t index, const char *text)
{
    if (r) ls__event_file_name(r->file, kind, index, text ? text : "");
}

void ls_record_clock(ls_record *r, int64_t ahead, int64_t uncertainty)
{
    if (r) ls__event_file_clock(r->file, ahead, uncertainty);
}
