/* The event ring: what happened when, in a fixed piece of memory.
 *
 * Any thread of a rank writes, without locks and without waiting; the oldest events are overwritten. A reader (in
 * this process or in another one that maps the memory) copies events out and learns how many it missed. Recording is
 * here; what events mean is the business of `measure`. */
#ifndef LS_RECORD_RING_H
#define LS_RECORD_RING_H

#include <stdatomic.h>
#include "lockstep/base.h"

/* What an event is about. Values are part of the recorded format: only ever append. 32 and above are the profiler's. A
 * "call" is a collective: (group << 48 | number in its group), the same word on all its members. */
#define LS_EVENT_LIST(X)                                                                                           \
    X(LS_EVENT_NONE, 0, "none")                                                                                    \
    X(LS_EVENT_COLL_START, 1, "collective started")   /* this rank arrived. a: call, b: kind << 56 | bytes */      \
    X(LS_EVENT_COLL_ARRIVED, 2, "all ranks arrived")  /* reserved: the time is in COLL_DONE */                     \
    X(LS_EVENT_COLL_DONE, 3, "collective done")       /* a: call, b: last rank << 48 | its arrival - ours in ns */ \
    X(LS_EVENT_PHASE_BEGIN, 4, "phase begins")        /* a: ls_phase; phases nest */                               \
    X(LS_EVENT_PHASE_END, 5, "phase ends")            /* a: ls_phase */                                            \
    X(LS_EVENT_STEP, 6, "step begins")                /* a: step; it lasts until the next one begins */            \
    X(LS_EVENT_BLOCKED, 7, "stood in a call")         /* until now. a: call, b: ns */                              \
    X(LS_EVENT_COMM_WORK, 8, "carried calls forward") /* until now, while computing. a: ns */                      \
    X(LS_EVENT_BUCKET_READY, 9, "bucket full")        /* a: bucket, b: bytes */                                    \
    X(LS_EVENT_BUCKET_START, 10, "bucket started")    /* a: bucket, b: call */                                     \
    X(LS_EVENT_SPAN_READY, 11, "gradient ready")      /* a: span, b: micro-batch */                                \
    X(LS_EVENT_BATCH, 12, "batch taken")              /* a: ns it took to build, b: see ls__batch_bits() */        \
    X(LS_EVENT_SAMPLE, 13, "resources")               /* a: ls__sample, b: value */                                \
    X(LS_EVENT_FACT, 14, "fact")                      /* a: ls__fact_kind, b: bits of a double */                  \
    X(LS_EVENT_CLOCK, 15, "clock compared")           /* a: ns ahead of rank 0's (signed), b: ns of uncertainty */ \
    X(LS_EVENT_LOST, 16, "events lost")      /* before this. a: how many, overwritten before they were written */  \
    X(LS_EVENT_END, 17, "record closed")     /* in order: the last step ends here */                               \
    X(LS_EVENT_SPAN_USED, 18, "weight used") /* in forward. a: its gradient's span */                              \
    X(LS_EVENT_OPERATION, 32, "operation")   /* until now. a: its name << 1 | backward, b: ns */

/* What a sample is of: counters of this process since its start, unless said otherwise. */
#define LS_SAMPLE_LIST(X)                                                                                \
    X(LS_SAMPLE_CPU, 0, "cpu ns")                    /* of all threads */                                \
    X(LS_SAMPLE_MAIN_CPU, 1, "cpu ns of the thread") /* that makes the steps */                          \
    X(LS_SAMPLE_DELAY, 2, "ns waited for a core")    /* the same thread, when it could run */            \
    X(LS_SAMPLE_VOLUNTARY, 3, "voluntary switches")                                                      \
    X(LS_SAMPLE_INVOLUNTARY, 4, "involuntary switches")                                                  \
    X(LS_SAMPLE_MINOR, 5, "page faults")                                                                 \
    X(LS_SAMPLE_MAJOR, 6, "page faults from disk")                                                       \
    X(LS_SAMPLE_RESIDENT, 7, "resident bytes")    /* now */                                              \
    X(LS_SAMPLE_STEAL, 8, "stolen ns")            /* of the machine, all cores */                        \
    X(LS_SAMPLE_ENERGY, 9, "microjoules")         /* of the machine's packages, since we look */         \
    X(LS_SAMPLE_CORE, 10, "core")                 /* where the thread is now */                          \
    X(LS_SAMPLE_THREAD, 11, "cpu ns of a thread") /* a: its row << 8 | this; LS__NAME_THREAD names it */ \
    X(LS_SAMPLE_READ, 12, "bytes read from disk")

typedef enum ls__sample_kind {
#define X(name, value, text) name = (value),
    LS_SAMPLE_LIST(X)
#undef X
        LS_SAMPLES = 13
} ls__sample_kind;

/* Facts about a run that analysis wants, as numbers. */
#define LS_FACT_LIST(X)                                                                       \
    X(LS_FACT_PEAK, 0, "peak_gflops") /* SGEMM on this rank's threads */                      \
    X(LS_FACT_FLOPS, 1, "flops")      /* of this rank in a step */                            \
    X(LS_FACT_TOKENS, 2, "tokens")    /* of all ranks in a step */                            \
    X(LS_FACT_SLOTS, 3, "slots")      /* micro-batches of a step, of all ranks */             \
    X(LS_FACT_BUCKET, 4, "bucket_bytes")                                                      \
    X(LS_FACT_BUCKETS, 5, "buckets")                                                          \
    X(LS_FACT_WORKERS, 6, "workers")             /* of the loader; 0: none */                 \
    X(LS_FACT_WORKERS_FIXED, 7, "workers_fixed") /* 1: by the user, 0: found while running */ \
    X(LS_FACT_PREFETCH, 8, "prefetch")                                                        \
    X(LS_FACT_THREADS, 9, "threads")                                                          \
    X(LS_FACT_PARAMETERS, 10, "parameters")                                                   \
    X(LS_FACT_BARRIERS, 11, "barriers") /* 1: the classic method was asked for */             \
    X(LS_FACT_STAGED, 12, "staged")     /* 1: data is read from a local copy */               \
    X(LS_FACT_ENERGY, 13, "energy")     /* ls__energy_access */                               \
    X(LS_FACT_COPY, 14, "copy_gbps")    /* that this rank reads and writes when all copy */   \
    X(LS_FACT_OVERLAP, 15, "overlap")   /* 0: buckets are reduced after backward only */      \
    X(LS_FACT_WIRE, 16, "wire_bytes")   /* of a gradient's element on its way; 2: bfloat16 */

typedef enum ls__fact_kind {
#define X(name, value, text) name = (value),
    LS_FACT_LIST(X)
#undef X
        LS_FACTS = 17
} ls__fact_kind;

typedef enum ls__event_kind {
#define X(name, value, text) name = (value),
    LS_EVENT_LIST(X)
#undef X
} ls__event_kind;

typedef struct ls__event {
    int64_t time; /* ls_now() */
    uint32_t kind;
    uint32_t thread; /* the writer's thread number, counted from 0 in order of first event */
    uint64_t a, b;   /* by kind */
} ls__event;

/* Of a batch that was taken: how many were ready when it was asked for; which worker built it, -1: not known; and how long ago, in
 * microseconds. */
static inline uint64_t ls__batch_bits(int ready, int worker, int64_t age_us)
{
    uint64_t age = age_us < 0 ? 0 : age_us > UINT32_MAX ? UINT32_MAX : (uint64_t)age_us;
    return ((uint64_t)ready & 0xffff) | ((uint64_t)(worker + 1) & 0xffff) << 16 | age << 32;
}

static inline int ls__batch_ready(uint64_t bits)
{
    return (int)(bits & 0xffff);
}

static inline int ls__batch_worker(uint64_t bits)
{
    return (int)(bits >> 16 & 0xffff) - 1;
}

static inline int64_t ls__batch_age_us(uint64_t bits)
{
    return (int64_t)(bits >> 32);
}

typedef struct ls__ring ls__ring;

/* Bytes of memory for a ring of `capacity` events; `capacity` is a power of two. */
size_t ls__ring_bytes(size_t capacity);
/* Makes a ring in the caller's zeroed memory, aligned to 64. */
ls__ring *ls__ring_init(void *memory, size_t capacity);

/* Records an event now. Costs tens of nanoseconds. `ring` may be NULL: nothing is recorded. */
void ls__ring_add(ls__ring *ring, ls__event_kind kind, uint64_t a, uint64_t b);
/* The same with a time that the caller already has. */
void ls__ring_add_at(ls__ring *ring, int64_t time, ls__event_kind kind, uint64_t a, uint64_t b);

/* Copies events into out[0..max), oldest first, starting at *position (0 at first), and moves *position past them.
 * *missed counts the events that were overwritten before they could be read. Returns how many were copied. One
 * reader's position is its own: several readers do not disturb each other. */
size_t ls__ring_read(const ls__ring *ring, uint64_t *position, ls__event *out, size_t max, uint64_t *missed);
/* The position behind the newest event. */
uint64_t ls__ring_head(const ls__ring *ring);
size_t ls__ring_capacity(const ls__ring *ring);

#endif
