/* lockstep/record.h: what a rank does and when, recorded to a file that `lockstep report` and lockstep/measure.h read.
 *
 *     ls_record *record;
 *     if (ls_record_open(&record, "run/events", &(ls_record_options){ .rank = 0, .ranks = 2 })) ...
 *     for (step = 1; step <= steps; step++) {
 *         ls_record_step(record, step);
 *         ls_record_begin(record, LS_PHASE_DATA);
 *         ...
 *         ls_record_end(record, LS_PHASE_DATA);
 *     }
 *     ls_record_free(&record);
 *
 * Any program can record: no world and no collectives of lockstep are needed, only the number of this rank. A world (lockstep/comm.h)
 * has its own record, ls_world_record(), to which its collectives and reducers add their events.
 *
 * Threads  a record belongs to one thread at a time, the one that runs the steps. ls_record_event() and ls_record_collective() may
 *          be called by any thread, also at the same time.
 * Failure  only opening and starting can fail. If the disk becomes full, recording stops with one warning in the log. All other
 *          functions do nothing if the record is NULL.
 * Cost     a call takes about 50 ns. While a file is written, calls that begin a step, or begin or end a phase, also sample the
 *          kernel's counters, which takes some microseconds, at most 1% of the time. 1 MiB of memory, and files of at most twice
 *          `segment_bytes`.
 * Fork     not usable in a child of fork().
 * Several  a process may have any number of records, each for a different rank or folder. */
#ifndef LOCKSTEP_RECORD_H
#define LOCKSTEP_RECORD_H

#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Recording. */

typedef struct ls_record ls_record;

typedef struct ls_record_options {
    int rank, ranks;       /* rank number and number of ranks, at most 65,536; ranks 0: 1 */
    int node;              /* node number, from 0 */
    int local_rank;        /* its number among the ranks of its node */
    const char *transport; /* name of the transport, at most 7 characters; NULL: "none" */
    /* largest size of a file, at least what its names and 64 KiB of events take, at most 1 TiB; the newest one or two files are kept;
     * 0: 32 MiB */
    size_t segment_bytes;
    void *reserved[2];
} ls_record_options;

/* Opens the record of one rank. `folder`: see ls_record_start(); NULL: the newest events stay in memory until that is called.
 * `options` NULL: rank 0 of 1. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_record_open(ls_record **out, const char *folder, const ls_record_options *options);
/* Writes events to FOLDER/rank-R.bin from now on, including those in memory. The folder is created; an older file of this rank is
 * replaced, and a record that still writes to it stops with a warning. LS_ESTATE if it was started already. */
LS_API LS_MUST_CHECK ls_status ls_record_start(ls_record *record, const char *folder);
/* Writes remaining events and closes the file. Later events stay in memory. */
LS_API void ls_record_stop(ls_record *record);
/* Writes all events so far, for readers of a run in progress. Otherwise steps do so every 0.25 s. */
LS_API void ls_record_flush(ls_record *record);
/* Stops and frees. Not for the record of a world, which the world frees. */
LS_API void ls_record_free(ls_record **record);

/* ---- Marks. */

/* What a rank does with its time. Waiting and communication need no marks: collectives record them. */
#define LS_PHASE_LIST(X)                    \
    X(LS_PHASE_OTHER, 0, "other")           \
    X(LS_PHASE_DATA, 1, "data")             \
    X(LS_PHASE_FORWARD, 2, "forward")       \
    X(LS_PHASE_BACKWARD, 3, "backward")     \
    X(LS_PHASE_UPDATE, 4, "update")         \
    X(LS_PHASE_WAIT, 5, "waiting")          \
    X(LS_PHASE_COMM, 6, "communication")    \
    X(LS_PHASE_CHECKPOINT, 7, "checkpoint") \
    X(LS_PHASE_EVAL, 8, "eval")

typedef enum ls_phase {
#define X(name, value, text) name = (value),
    LS_PHASE_LIST(X)
#undef X
} ls_phase;
enum { LS_PHASE_COUNT = 0 LS_PHASE_LIST(LS_COUNT_ENTRY) };

/* "forward"; never NULL, also for invalid numbers. */
LS_API const char *ls_phase_name(ls_phase phase);

/* Step `step` begins, and the previous one ends. Numbers are >= 0 and increase; a step with another number is left out. */
LS_API void ls_record_step(ls_record *record, int64_t step);
/* Phases nest: time is attributed to the innermost, until its end. */
LS_API void ls_record_begin(ls_record *record, ls_phase phase);
LS_API void ls_record_end(ls_record *record, ls_phase phase);

/* ---- Collectives. */

/* Name, value, text; which ranks send and which receive (NONE, ALL, ROOT, OTHERS: all but the root); whether the input of a rank that
 * sends, and the output of one that receives, is one array (WHOLE) or a block for each rank (BLOCKS); whether values are reduced. */
#define LS_COLLECTIVE_LIST(X)                                                                 \
    X(LS_COLLECTIVE_ALLREDUCE, 0, "allreduce", ALL, ALL, WHOLE, WHOLE, true)                  \
    X(LS_COLLECTIVE_REDUCE, 1, "reduce", ALL, ROOT, WHOLE, WHOLE, true)                       \
    X(LS_COLLECTIVE_REDUCE_SCATTER, 2, "reduce_scatter", ALL, ALL, BLOCKS, WHOLE, true)       \
    X(LS_COLLECTIVE_ALLGATHER, 3, "allgather", ALL, ALL, WHOLE, BLOCKS, false)                \
    X(LS_COLLECTIVE_BROADCAST, 4, "broadcast", ROOT, OTHERS, WHOLE, WHOLE, false)             \
    X(LS_COLLECTIVE_GATHER, 5, "gather", ALL, ROOT, WHOLE, BLOCKS, false)                     \
    X(LS_COLLECTIVE_SCATTER, 6, "scatter", ROOT, ALL, BLOCKS, WHOLE, false)                   \
    X(LS_COLLECTIVE_ALLTOALL, 7, "alltoall", ALL, ALL, BLOCKS, BLOCKS, false)                 \
    X(LS_COLLECTIVE_BARRIER, 8, "barrier", NONE, NONE, WHOLE, WHOLE, false)                   \
    /* lockstep's own: a loop whose chunks the ranks of a node share, such as an update */    \
    X(LS_COLLECTIVE_PARALLEL_FOR, 9, "parallel_for", ALL, NONE, WHOLE, WHOLE, false)          \
    X(LS_COLLECTIVE_SEND, 10, "send", ALL, NONE, WHOLE, WHOLE, false) /* between two ranks */ \
    X(LS_COLLECTIVE_RECEIVE, 11, "receive", NONE, ALL, WHOLE, WHOLE, false)

typedef enum ls_collective_kind {
#define X(name, value, ...) name = (value),
    LS_COLLECTIVE_LIST(X)
#undef X
} ls_collective_kind;
enum { LS_COLLECTIVE_KINDS = 0 LS_COLLECTIVE_LIST(LS_COUNT_ENTRY) };

/* "allreduce"; never NULL. */
LS_API const char *ls_collective_name(ls_collective_kind kind);

/* A collective as one rank saw it. Ranks are joined by (group, number). */
typedef struct ls_collective {
    uint64_t group;  /* a number or hash, the same on all its members; 0: the group of all ranks */
    uint64_t number; /* of the collective in its group, the same on all members */
    ls_collective_kind kind;
    size_t bytes;    /* of this rank's data */
    int64_t arrived; /* ls_now() when this rank called it */
    int64_t done;    /* and when it was done */
    int64_t blocked; /* ns before `done` in which the thread that runs the steps was blocked. 0: it computed, or
                        another thread records the collective */
    int64_t reserved[2];
} ls_collective;

/* Records a collective that is done. */
LS_API void ls_record_collective(ls_record *record, const ls_collective *collective);
/* The number of a collective in events: a hash of its group << 48 | its number. */
LS_API uint64_t ls_collective_id(uint64_t group, uint64_t number);

/* ---- Numbers and names. They apply to the whole record, also if they are set before ls_record_start(). */

/* Numbers about a run for the analysis. */
#define LS_METADATA_LIST(X)                                                                                            \
    X(LS_METADATA_PEAK, 0, "peak_gflops") /* SGEMM on this rank's threads */                                           \
    X(LS_METADATA_FLOPS, 1, "flops")      /* of this rank in a step */                                                 \
    X(LS_METADATA_TOKENS, 2, "tokens")    /* of all ranks in a step */                                                 \
    X(LS_METADATA_SLOTS, 3, "slots")      /* micro-batches of a step, of all ranks */                                  \
    X(LS_METADATA_BUCKET, 4, "bucket_bytes")                                                                           \
    X(LS_METADATA_BUCKETS, 5, "buckets")                                                                               \
    X(LS_METADATA_WORKERS, 6, "workers")             /* of the loader; 0: none */                                      \
    X(LS_METADATA_WORKERS_FIXED, 7, "workers_fixed") /* 1: set by the user, 0: chosen automatically */                 \
    X(LS_METADATA_PREFETCH, 8, "prefetch")           /* batches built ahead */                                         \
    X(LS_METADATA_THREADS, 9, "threads")             /* that compute */                                                \
    X(LS_METADATA_PARAMETERS, 10, "parameters")                                                                        \
    X(LS_METADATA_BARRIERS, 11, "barriers") /* 1: a barrier before each phase, on request */                           \
    X(LS_METADATA_STAGED, 12, "staged")     /* 1: data is read from a local copy */                                    \
    X(LS_METADATA_ENERGY, 13, "energy")     /* counters of energy: 0: none, 1: not readable for this user, 2: read */  \
    X(LS_METADATA_COPY, 14, "copy_gbps")    /* GB/s of reads and writes of this rank when all ranks copy */            \
    X(LS_METADATA_OVERLAP, 15, "overlap")   /* 0: buckets are reduced after backward only */                           \
    X(LS_METADATA_WIRE, 16, "wire_bytes")   /* per gradient element in communication; 2: bfloat16 */                   \
    X(LS_METADATA_TRAIN, 17, "lockstep_train")  /* 1: recorded by lockstep train: advice may name its options */       \
    X(LS_METADATA_KERNELS, 18, "kernels")       /* that compute: 0: plain, 1: neon, 2: avx2, 3: avx512 */              \
    X(LS_METADATA_TORCH, 19, "torch")           /* 1: PyTorch ran the steps: advice names its settings */              \
    X(LS_METADATA_SHARDED, 20, "sharded")       /* 1: the ranks of a node share the update, 0: each makes all of it */ \
    X(LS_METADATA_CORES, 21, "cores")           /* that the ranks of this node may use together */                     \
    X(LS_METADATA_GEMM_ONE, 22, "gemm_one")     /* GFLOP/s of one thread when one core of the node computes... */      \
    X(LS_METADATA_GEMM_ALL, 23, "gemm_all")     /* ...and when all cores do */                                         \
    X(LS_METADATA_STREAM_ONE, 24, "stream_one") /* GB/s of a thread that adds arrays, likewise */                      \
    X(LS_METADATA_STREAM_ALL, 25, "stream_all")                                                                        \
    X(LS_METADATA_MEMORY_ONE, 26, "memory_one") /* the same of arrays that do not fit into the caches */               \
    X(LS_METADATA_MEMORY_ALL, 27, "memory_all")                                                                        \
    X(LS_METADATA_CACHE, 28, "cache_bytes") /* of the largest cache of a core */

typedef enum ls_metadata_kind {
#define X(name, value, text) name = (value),
    LS_METADATA_LIST(X)
#undef X
} ls_metadata_kind;
enum { LS_METADATA_COUNT = 0 LS_METADATA_LIST(LS_COUNT_ENTRY) };
#define LS_METADATA_MAX 32 /* upper limit of kinds in later versions */

/* May be called again when the number changes. */
LS_API void ls_record_metadata(ls_record *record, ls_metadata_kind kind, double value);

typedef enum ls_name_kind {
    LS_NAME_SPAN = 0,      /* of a gradient */
    LS_NAME_OPERATION = 1, /* of an operation of the model */
    LS_NAME_THREAD = 2,    /* of a thread; recorded automatically */
} ls_name_kind;

/* Names the object that events refer to by `index` (< 2^20). Copied, up to 200 bytes; replaces an earlier name. */
LS_API void ls_record_name(ls_record *record, ls_name_kind kind, uint32_t index, const char *text);
/* The clock of this rank's node is `ahead` ns ahead of that of rank 0's node, +- `uncertainty`. Needed by ranks on other nodes than
 * rank 0, or their times cannot be compared; may be repeated, since clocks drift. */
LS_API void ls_record_clock(ls_record *record, int64_t ahead, int64_t uncertainty);

/* ---- Events. Steps, phases, collectives, metadata and clocks have their own functions above; others are added by ls_record_event().
 *
 * These lists are part of the file format: values never change, new ones are appended, readers skip unknown ones. A
 * "collective" in a field is ls_collective_id(). */
#define LS_EVENT_LIST(X)                                                                                            \
    X(LS_EVENT_NONE, 0, "none")                                                                                     \
    X(LS_EVENT_COLL_START, 1, "collective started")  /* this rank arrived. a: collective, b: kind << 56 | bytes */  \
    X(LS_EVENT_COLL_ARRIVED, 2, "all ranks arrived") /* reserved: the time is in COLL_DONE */                       \
    X(LS_EVENT_COLL_DONE, 3, "collective done") /* a: collective, b: last rank << 48 | its arrival - ours in ns */  \
    X(LS_EVENT_PHASE_BEGIN, 4, "phase begins")  /* a: ls_phase; phases nest */                                      \
    X(LS_EVENT_PHASE_END, 5, "phase ends")      /* a: ls_phase */                                                   \
    X(LS_EVENT_STEP, 6, "step begins")          /* a: step; it lasts until the next one begins */                   \
    X(LS_EVENT_BLOCKED, 7, "blocked in a collective")  /* until now. a: collective, b: ns */                        \
    X(LS_EVENT_COMM_WORK, 8, "progressed collectives") /* until now, while computing. a: ns */                      \
    X(LS_EVENT_BUCKET_READY, 9, "bucket full")         /* a: bucket, b: bytes */                                    \
    X(LS_EVENT_BUCKET_START, 10, "bucket started")     /* a: bucket, b: collective that reduces it */               \
    X(LS_EVENT_SPAN_READY, 11, "gradient ready")       /* a: index of its name, b: bytes << 16 | micro-batch */     \
    X(LS_EVENT_BATCH, 12, "batch received")  /* a: ns it took to build, b: us since it was built << 32 |          \
                                                           (worker + 1) << 16 | batches ready when it was asked for */ \
    X(LS_EVENT_SAMPLE, 13, "sample")         /* a: ls_sample_kind, b: value */                                      \
    X(LS_EVENT_METADATA, 14, "metadata")     /* a: ls_metadata_kind, b: bits of a double */                         \
    X(LS_EVENT_CLOCK, 15, "clock compared")  /* a: ns ahead of rank 0's (signed), b: ns of uncertainty */           \
    X(LS_EVENT_LOST, 16, "events lost")      /* before this. a: how many, overwritten before they were written */   \
    X(LS_EVENT_END, 17, "record closed")     /* in order: the last step ends here */                                \
    X(LS_EVENT_SPAN_USED, 18, "weight used") /* in forward. a: index of its gradient's name */                      \
    X(LS_EVENT_SEGMENT, 19, "segment cost")  /* see LS_SEGMENT_END */                                               \
    X(LS_EVENT_OPERATION, 32, "operation")   /* until now. a: index of its name << 1 | backward, b: ns */

/* A segment lasts from a mark within forward (a weight used) or backward (a gradient ready), or the begin of the phase, to the next
 * mark. Its cost is recorded for the first micro-batch of some steps. a: index of the span whose mark ends it, or LS_SEGMENT_END if
 * the phase does, << 1 | backward; b: flops << 32 | bytes, both as the bits of a float32. */
#define LS_SEGMENT_END (UINT64_C(1) << 20)

typedef enum ls_event_kind {
#define X(name, value, text) name = (value),
    LS_EVENT_LIST(X)
#undef X
} ls_event_kind;

/* What a sample is of: counters of this process since its start, unless the comment says otherwise. */
#define LS_SAMPLE_LIST(X)                                                                                 \
    X(LS_SAMPLE_CPU, 0, "cpu ns")                    /* of all threads */                                 \
    X(LS_SAMPLE_MAIN_CPU, 1, "cpu ns of the thread") /* that runs the steps */                            \
    X(LS_SAMPLE_DELAY, 2, "run-queue delay ns")      /* of the same thread */                             \
    X(LS_SAMPLE_VOLUNTARY, 3, "voluntary switches")                                                       \
    X(LS_SAMPLE_INVOLUNTARY, 4, "involuntary switches")                                                   \
    X(LS_SAMPLE_MINOR, 5, "page faults")                                                                  \
    X(LS_SAMPLE_MAJOR, 6, "page faults from disk")                                                        \
    X(LS_SAMPLE_RESIDENT, 7, "resident bytes")    /* now */                                               \
    X(LS_SAMPLE_STEAL, 8, "steal ns")             /* of the machine, all cores */                         \
    X(LS_SAMPLE_ENERGY, 9, "microjoules")         /* of the machine's packages, since the record began */ \
    X(LS_SAMPLE_CORE, 10, "core")                 /* where the thread is now */                           \
    X(LS_SAMPLE_THREAD, 11, "cpu ns of a thread") /* a: index of its name << 8 | this */                  \
    X(LS_SAMPLE_READ, 12, "bytes read from disk")                                                         \
    X(LS_SAMPLE_BUSY, 13, "busy ns") /* of the machine, all cores */

typedef enum ls_sample_kind {
#define X(name, value, text) name = (value),
    LS_SAMPLE_LIST(X)
#undef X
} ls_sample_kind;
enum { LS_SAMPLE_COUNT = 0 LS_SAMPLE_LIST(LS_COUNT_ENTRY) };

typedef struct ls_event {
    int64_t time;    /* ls_now() */
    uint32_t kind;   /* ls_event_kind */
    uint32_t thread; /* number of the thread that added it, in the order of first events */
    uint64_t a, b;   /* by kind */
} ls_event;

/* Adds an event. `time`: ls_now(), of this moment or earlier; 0: now. */
LS_API void ls_record_event(ls_record *record, int64_t time, ls_event_kind kind, uint64_t a, uint64_t b);

#ifdef __cplusplus
}
#endif
#endif
