/* Records made up by a test: a rank's events at times of the test's choosing, written and read by the real code. */
#ifndef LS_TESTS_RECORDS_H
#define LS_TESTS_RECORDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/file.h"
#include "record/event_file.h"
#include "lockstep/measure.h"

#define MS 1000000

typedef struct rank_record {
    ls__ring *ring;
    ls__event_file *file;
    int64_t shift; /* of this rank's clock */
    uint64_t cpu, sched_delay, voluntary;
} rank_record;

static inline void begin_record_on(rank_record *r, const char *folder, int rank, int ranks, int node, size_t segment,
                                   int core)
{
    char head[200];
    size_t bytes = (ls__ring_bytes(1 << 14) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    *r = (rank_record){ .ring = ls__ring_init(memory, 1 << 14) };
    snprintf(head, sizeof head,
             "{\"rank\":%d,\"ranks\":%d,\"node\":%d,\"host\":\"h\",\"cores\":\"%d\",\"threads\":1,\"start\":1}", rank,
             ranks, node, core);
    r->file = ls__event_file_new(r->ring);
    assert_int_equal(ls__event_file_start(r->file, folder, rank, head, segment), LS_OK);
}

/* Each rank on a core of its own. */
static inline void begin_record(rank_record *r, const char *folder, int rank, int ranks, int node, size_t segment)
{
    begin_record_on(r, folder, rank, ranks, node, segment, rank);
}

static inline void add(rank_record *r, int64_t time, ls_event_kind kind, uint64_t a, uint64_t b)
{
    ls__ring_add_at(r->ring, time + r->shift, kind, a, b);
}

/* The thread was on its core all the time since the last sample but for `delay` and, if it slept, `off_cpu`. */
static inline void sample(rank_record *r, int64_t time, int64_t cpu, int64_t delay, bool slept)
{
    r->cpu += (uint64_t)cpu;
    r->sched_delay += (uint64_t)delay;
    r->voluntary += slept;
    add(r, time, LS_EVENT_SAMPLE, LS_SAMPLE_MAIN_CPU, r->cpu);
    add(r, time, LS_EVENT_SAMPLE, LS_SAMPLE_DELAY, r->sched_delay);
    add(r, time, LS_EVENT_SAMPLE, LS_SAMPLE_VOLUNTARY, r->voluntary);
}

/* Like a rank that is killed: what it has written until now becomes the record in `folder`. (A record that is closed ends at the real
 * clock's time, which is not the test's.) */
static inline void end_killed(rank_record *r, const char *live, const char *folder_of_run, int rank)
{
    char from[200], to[200], *data;
    size_t bytes;
    ls__event_file_drain(r->file, true);
    snprintf(from, sizeof from, "%s/rank-%d.bin", live, rank);
    snprintf(to, sizeof to, "%s/rank-%d.bin", folder_of_run, rank);
    assert_int_equal(ls__file_make_dir(folder_of_run), LS_OK);
    assert_int_equal(ls__file_read(from, 1 << 28, &data, &bytes), LS_OK);
    assert_int_equal(ls__file_write(to, data, bytes), LS_OK);
    free(data);
    ls__event_file_free(&r->file);
    free(r->ring);
}

static inline void end_record(rank_record *r)
{
    ls__event_file_free(&r->file);
    free(r->ring);
}

#endif
