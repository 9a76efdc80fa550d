/* Marks of phases and steps, and the record of a world's events. See lockstep/comm.h and record/record.h. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "record/record.h"
#include "record/sample.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/cluster.h"
#include "comm/group.h"

enum { WRITE_NS = 250000000 }; /* what is recorded is written so often, for those who look on */

struct ls_record {
    ls_world *world;
    ls__record *file;
    ls__sampler sampler;
    int64_t last_write;
    int n_named; /* rows of threads whose names are in the file */
};

static void sample_process(ls_record *r, int64_t now, bool all)
{
    const ls__thread_times *t = &r->sampler.threads;
    ls__sample_process(&r->sampler, r->world->ring, now, all);
    for (; r->n_named < t->count; r->n_named++)
        ls__record_name(r->file, LS__NAME_THREAD, (uint32_t)r->n_named, t->row[r->n_named].name);
}

/* ---- Marks. */

void ls_mark_begin(ls_world *world, ls_phase phase)
{
    int64_t now = ls__world_sample(world, ls_now());
    ls__ring_add_at(world->ring, now, LS_EVENT_PHASE_BEGIN, (uint64_t)phase, 0);
}

void ls_mark_end(ls_world *world, ls_phase phase)
{
    int64_t now = ls__world_sample(world, ls_now());
    ls__ring_add_at(world->ring, now, LS_EVENT_PHASE_END, (uint64_t)phase, 0);
    /* Many layers and micro-batches make more events in a step than the ring holds. */
    if (world->record) ls__record_relieve(world->record->file);
}

void ls_mark_step(ls_world *world, int64_t step)
{
    ls_record *r = world->record;
    int64_t now = ls__world_sample(world, ls_now());
    if (r) sample_process(r, now, false);
    ls__ring_add_at(world->ring, now, LS_EVENT_STEP, (uint64_t)step, 0);
    if (!r) return;
    bool due = now - r->last_write > WRITE_NS;
    if (due) r->last_write = now;
    ls__record_drain(r->file, due);
}

/* ---- Recording. */

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

static void make_head(const ls_world *w, char *out, size_t bytes)
{
    char cores[512], host[65] = "";
    struct timespec now;
    list_cores(cores, sizeof cores);
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '?';
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(out, bytes,
             "{\"lockstep\":\"%s\",\"rank\":%d,\"ranks\":%d,\"node\":%d,\"local_rank\":%d,\"host\":\"%s\",\"pid\":%d,"
             "\"cores\":\"%s\",\"threads\":%d,\"transport\":\"%s\",\"start\":%lld,\"time\":%lld.%06ld}",
             ls_version(), w->identity.rank, w->identity.size, w->node, w->identity.local_rank, host, (int)getpid(),
             cores, ls__cpu_count(), w->transport, (long long)ls_now(), (long long)now.tv_sec, now.tv_nsec / 1000);
}

ls_status ls_record_open(ls_record **out, ls_world *world, const char *folder, const ls_record_options *options)
{
    char head[2048];
    *out = NULL;
    if (world->record) return ls__fail(LS_ESTATE, "record: this world's events are being recorded already");
    ls_record *r = calloc(1, sizeof *r);
    if (!r) return ls__fail(LS_ENOMEM, "record: out of memory");
    make_head(world, head, sizeof head);
    ls_status status = ls__record_open(&r->file, folder, world->identity.rank, head, world->ring,
                                       options ? options->segment_bytes : 0);
    if (status) {
        free(r);
        return status;
    }
    if (world->cluster)
        ls__record_clock(r->file, -world->cluster->clock_ahead[world->cluster->node_of[0]],
                         world->cluster->clock_error);
    for (size_t i = 0; i < world->n_names; i++) ls__record_name(r->file, LS__NAME_SPAN, (uint32_t)i, world->names[i]);
    for (int i = 0; i < LS_FACTS; i++)
        if (world->has_fact >> i & 1) ls__record_fact(r->file, (ls__fact_kind)i, world->facts[i]);
    ls__sampler_open(&r->sampler, NULL);
    ls__record_fact(r->file, LS_FACT_ENERGY, (double)r->sampler.energy.access);
    r->world = world;
    world->record = r;
    *out = r;
    return LS_OK;
}

void ls_record_free(ls_record **pr)
{
    ls_record *r = *pr;
    if (!r) return;
    int64_t now = ls__world_sample(r->world, ls_now());
    sample_process(r, now, true);
    r->world->record = NULL;
    ls__record_close(&r->file);
    ls__sampler_close(&r->sampler);
    free(r);
    *pr = NULL;
}

void ls__record_pause(ls_record *r, bool paused)
{
    if (!r) return;
    if (paused) {
        ls__record_drain(r->file, 0);
    } else {
        ls__record_skip(r->file);
        r->sampler.last = ls_now(); /* nothing was saved up meanwhile */
    }
    r->world->record = paused ? NULL : r;
}

/* ---- What other layers know. */

int64_t ls__world_sample(ls_world *world, int64_t now)
{
    if (!world->record) return now;
    ls__thread_counts c = ls__sample_take(&world->record->sampler, now);
    ls__sample_put(world->ring, &c);
    return c.time;
}

void ls__world_mark(ls_world *world, ls__event_kind kind, uint64_t a, uint64_t b)
{
    int64_t now = ls_now();
    if (world->record && ls__sample_is_due(&world->record->sampler, now, 2 * (size_t)a + (kind == LS_EVENT_SPAN_USED)))
        now = ls__world_sample(world, now);
    ls__ring_add_at(world->ring, now, kind, a, b);
}

int64_t ls__world_blocked_since(ls_world *world, uint64_t call, int64_t begin, int64_t now)
{
    ls__thread_counts c = { .time = now };
    if (world->record) c = ls__sample_take(&world->record->sampler, c.time);
    ls__ring_add_at(world->ring, c.time, LS_EVENT_BLOCKED, call, (uint64_t)(c.time - begin));
    ls__sample_put(world->ring, &c);
    return c.time;
}

void ls__world_fact(ls_world *world, ls__fact_kind fact, double value)
{
    world->facts[fact] = value;
    world->has_fact |= 1u << fact;
    if (world->record) ls__record_fact(world->record->file, fact, value);
}

void ls__world_names(ls_world *world, const char *const *names, size_t count)
{
    char **copy = calloc(count ? count : 1, sizeof *copy);
    if (!copy) return; /* reports will do without */
    for (size_t i = 0; i < count; i++) copy[i] = strdup(names[i] ? names[i] : "");
    ls__world_forget_names(world);
    world->names = copy;
    world->n_names = count;
    for (size_t i = 0; i < count && world->record; i++)
        ls__record_name(world->record->file, LS__NAME_SPAN, (uint32_t)i, copy[i] ? copy[i] : "");
}

void ls__world_operation_name(ls_world *world, uint32_t index, const char *name)
{
    if (world->record) ls__record_name(world->record->file, LS__NAME_OPERATION, index, name);
}

int64_t ls__world_blocked(const ls_world *world)
{
    return atomic_load_explicit(&world->blocked, memory_order_relaxed);
}

void ls__world_forget_names(ls_world *world)
{
    for (size_t i = 0; i < world->n_names; i++) free(world->names[i]);
    free(world->names);
    world->names = NULL;
    world->n_names = 0;
}
