/* lockstep/measure.h: analysis of what ranks recorded: where the time went, who made whom wait, why, and what to change.
 *
 *     ls_run *run;
 *     if (ls_run_open(&run, "runs/last", NULL)) ...
 *     for (size_t i = run->first_counted; i < run->n_steps; i++) ... run->steps[i].rank[r].ns[LS_PHASE_DATA] ...
 *     for (size_t i = 0; i < run->n_findings; i++) ... ls_finding_name(run->findings[i].kind) ...
 *
 * Data     ls_run and what it points to are plain data, meant to be read; do not change them. The functions below compute the
 *          figures that every form of a report shows.
 * Times    nanoseconds; points in time are on the clock of rank 0's node, whatever node they were taken on.
 * Input    a run that is being written, was cut off, or lacks ranks is read as far as possible; `notes` list what is missing.
 *          Files are not trusted.
 * Text     none: findings and notes are enums and numbers. `lockstep report` turns them into sentences.
 * Threads  a run is read-only once opened and may be read by many threads.
 * Layout   structs are allocated by the library; new members take the place of `reserved`. */
#ifndef LOCKSTEP_MEASURE_H
#define LOCKSTEP_MEASURE_H

#include <stdbool.h>
#include "lockstep/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What one rank recorded. */

/* A part of the main thread's time in one phase. It ends where the next interval begins. */
typedef struct ls_interval {
    int64_t begin;
    ls_phase phase;
    bool
        shared; /* in work that the ranks of a node divide as they go (an update): which rank does how much is chance */
    /* a sample was taken at its end; its counters are divided among the intervals since the sample before */
    bool counted;
    bool slept;          /* there were voluntary context switches */
    int64_t cpu;         /* of its time: on a core; < 0: not known */
    int64_t sched_delay; /* run-queue delay: runnable but not scheduled */
    int64_t steal;       /* taken by the hypervisor: neither of these, and it did not sleep */
} ls_interval;

/* A thread of a rank. Threads with the same name that follow each other, such as checkpoint writers, are one row. */
typedef struct ls_run_thread {
    char name[32]; /* "main" makes the steps; lockstep's own begin with "ls-"; "": all that have no row */
    double cpu;    /* ns on a core */
    double share;  /* of a core, over the counted steps or what is known of them */
} ls_run_thread;

typedef enum ls_use_level {
    LS_USE_EVEN = 0,
    LS_USE_UNDER = 1, /* busy for less of a step than the other ranks: it waits for them */
    LS_USE_OVER = 2,  /* busy for more: they wait for it */
} ls_use_level;

/* How a rank uses its cores: means of a counted step, in ns unless stated otherwise. */
typedef struct ls_resource_use {
    double wall;
    double cpu;         /* of all threads */
    double busy;        /* the main thread was on a core or runnable: not waiting, off-CPU or exposed communication */
    double median_busy; /* the same of the median rank */
    double wait;        /* for other ranks */
    double off_cpu;     /* not runnable: waiting for a device, a lock, another thread */
    double sched_delay; /* of busy: run-queue delay; of communication within a machine, too, which is in busy then */
    double steal;       /* taken by the hypervisor */
    double voluntary, involuntary, minor, major; /* context switches, page faults */
    double read_bytes;
    double resident; /* bytes, the maximum; 0: not known */
    double mfu;      /* matrix products as a share of the SGEMM rate measured on its threads; NaN: not known */
    double watts;    /* of its node's processor packages, on average; NaN: not known */
    ls_use_level level;
    double reserved[4];
} ls_resource_use;

typedef struct ls_run_rank {
    bool present;    /* its file could be read */
    bool closed;     /* it ended in order; otherwise it is still running, or was killed */
    int rank, ranks; /* which of how many */
    int node, local; /* its node, and its local rank */
    char host[65];
    int pid, threads;
    char cores[128];     /* that it may run on: "0-3,8" */
    char transport[8];   /* self, shm or mpi */
    int64_t start;       /* its record began */
    double start_time;   /* the same as seconds since 1970 */
    int64_t clock_ahead; /* of rank 0's clock, and the uncertainty of that */
    int64_t clock_uncertainty;
    uint64_t lost;    /* events overwritten before they were written */
    uint64_t invalid; /* events left out because their time, or the clock that they state, is impossible */
    bool cut;         /* the file ends within a block */
    double metadata[LS_METADATA_MAX]; /* by ls_metadata_kind; NaN: not known */
    ls_event *events;                 /* in order of time, which is on the run's clock */
    size_t n_events;
    uint32_t main_thread;   /* the one that makes the steps */
    ls_interval *intervals; /* its time without gaps, from the first step on; the last one only ends the one before */
    size_t n_intervals;
    char **span_names; /* [n_spans]; an entry may be NULL */
    size_t n_spans;
    char **operation_names; /* the profiler's */
    size_t n_operations;
    char **thread_names;
    size_t n_thread_names;
    ls_run_thread *thread; /* [n_thread] */
    size_t n_thread;
    ls_resource_use use;    /* if there are counted steps */
    uint64_t segment_bytes; /* largest size of its files; 0: not known */
    uint64_t lost_files;    /* files that newer ones have replaced: the beginning is lost with them */
    void *reserved[2];
} ls_run_rank;

/* ---- Steps. Arrays [LS_PHASE_COUNT] are per phase, in ns. */

typedef struct ls_step_rank {
    bool present;
    int64_t begin, end;
    /* add up to end - begin. Waiting: in a call before the last rank arrived; communication: the rest of the time in calls, when
     * the rank did nothing else */
    int64_t ns[LS_PHASE_COUNT];
    int64_t overlapped;              /* communication that ran while this rank did something else; part of no phase */
    int64_t own[LS_PHASE_COUNT];     /* what the rank itself caused: without sched_delay, steal and shared time */
    int64_t off_cpu[LS_PHASE_COUNT]; /* of that, not runnable */
    int64_t sched_delay[LS_PHASE_COUNT];          /* run-queue delay */
    int64_t steal[LS_PHASE_COUNT];                /* taken by the hypervisor: neither of these, nor on a core */
    int64_t cpu;                                  /* CPU time of all threads; < 0: not known */
    int64_t voluntary, involuntary, minor, major; /* context switches, page faults */
    int64_t resident;                             /* bytes at the end */
    int64_t read_bytes;                           /* from disk */
    int32_t batches;                              /* taken from the loader */
    int32_t batches_ready;                        /* sum over those: how many were ready when one was asked for */
    int32_t batches_missed;                       /* of those: none was ready */
    int64_t batch_ns;                             /* sum over those: time to build one */
    int64_t reserved[2];
} ls_step_rank;

typedef struct ls_run_step {
    int64_t number;
    int64_t begin, end; /* the first rank's begin, the last one's end */
    ls_step_rank *rank; /* [ranks] */
} ls_run_step;

/* ---- Collectives, and who arrived last. */

typedef struct ls_run_collective {
    uint64_t call;    /* group << 48 | number */
    uint8_t kind;     /* ls_collective_kind */
    int32_t bucket;   /* -1: it carried none */
    int64_t bytes;    /* of a rank */
    int64_t step;     /* the number, of the last rank; < 0: before the first step */
    int64_t *arrival; /* [ranks]; 0: not known, or not a member */
    int64_t *done;    /* [ranks]; 0: not known */
    int64_t *blocked; /* [ranks]: ns that the rank was blocked in the call; of a GPU, perhaps in several intervals */
    int64_t *wait;    /* [ranks]: of that, before the last rank arrived */
    int64_t *entered; /* [ranks]: when it was first blocked; 0: never */
    int64_t *left;    /* [ranks]: and until when, at last; 0: never */
    int64_t *ready;   /* [ranks]: the bucket was full; 0: no bucket, or not known */
    int64_t last_arrival;
    int last_rank;
    int64_t waited;  /* by all ranks together, blocked in the call before the last one arrived */
    int64_t longest; /* by one of them */
    int attribution; /* index in `attributions`; -1: none */
} ls_run_collective;

/* A rank that made others wait in a step, and where it lost the time since the collective before. */
typedef struct ls_attribution {
    int64_t step;
    int rank;
    ls_phase phase;
    bool unscheduled; /* run-queue delay or steal: another program, or another rank, had its core */
    int32_t span;     /* backward: the gradient that was late; -1: not known */
    int64_t excess;   /* time lost in the phase, compared with the other ranks */
    int64_t waited;   /* by all others together */
    int64_t longest;  /* by one of them: what it cost the step */
} ls_attribution;

/* Attributions of the counted steps, summed by rank and cause. */
typedef struct ls_wait_cause {
    int rank;
    ls_phase phase;
    bool unscheduled;
    int64_t count;         /* attributions */
    int64_t waited;        /* by all others together */
    int64_t cost, longest; /* ns that it cost the steps: in sum, and the most in one of them */
} ls_wait_cause;

/* ---- Findings: causes of lost time. */

#define LS_FINDING_LIST(X)                                                                             \
    X(STRAGGLER, 0, "straggler")               /* one rank makes the others wait, in a phase */        \
    X(SLOW_CORE, 1, "slow_core")               /* one rank computes more slowly in every segment */    \
    X(PREEMPTED, 2, "preempted")               /* another program uses one rank's core */              \
    X(CONTENTION, 3, "contention")             /* other programs use the cores of several ranks */     \
    X(OVERSUBSCRIPTION, 4, "oversubscription") /* the job has more computing threads than cores */     \
    X(DATA, 5, "data")                         /* all ranks wait for data */                           \
    X(BUCKETS, 6, "buckets")                   /* buckets are too small */                             \
    X(COMM, 7, "communication")                /* exposed communication */                             \
    X(OVERLAP, 8, "overlap")                   /* overlap of communication and backward is disabled */ \
    X(PAGE_FAULTS, 9, "page_faults")           /* memory is read back from disk */                     \
    X(STEAL, 10, "steal")                      /* the hypervisor takes cores */                        \
    X(CHECKPOINT, 11, "checkpoint")            /* checkpoints take much of the run */                  \
    X(EVAL, 12, "eval")                        /* evaluation does */                                   \
    X(IMBALANCE, 13, "imbalance")              /* ranks wait for each other; the slowest rank varies */
typedef enum ls_finding_kind {
#define X(name, value, text) LS_FINDING_##name = value,
    LS_FINDING_LIST(X)
#undef X
        LS_FINDING_KINDS
} ls_finding_kind;

/* What to change. */
typedef enum ls_remedy {
    LS_REMEDY_OBSERVE = 0,       /* nothing yet: it happened once and may be noise */
    LS_REMEDY_FASTER_READS,      /* data of the rank: to a local disk, or more workers */
    LS_REMEDY_CHECK_DATA,        /* look at what the rank does to get its data */
    LS_REMEDY_EQUAL_WORK,        /* same work on all ranks */
    LS_REMEDY_FREE_CORE,         /* stop the other program, or bind the rank to another core */
    LS_REMEDY_FREE_CORES,        /* stop the other programs */
    LS_REMEDY_CHECK_CORE,        /* look for what slows the core down */
    LS_REMEDY_FEWER_RANKS,       /* `target` ranks */
    LS_REMEDY_FEWER_THREADS,     /* `target` threads per rank */
    LS_REMEDY_MORE_WORKERS,      /* `target` workers per rank */
    LS_REMEDY_PREFETCH,          /* load the next batch while this one is computed */
    LS_REMEDY_LARGER_BUCKETS,    /* of `target` bytes */
    LS_REMEDY_OVERLAP,           /* enable it */
    LS_REMEDY_HALF_PRECISION,    /* gradients as bfloat16 on the wire; `target` micro-batches would help, too */
    LS_REMEDY_ACCUMULATE,        /* `target` micro-batches per rank and step */
    LS_REMEDY_FEWER_CHECKPOINTS, /* half as many */
    LS_REMEDY_FEWER_EVALS,       /* half as many */
    LS_REMEDY_DEDICATED_CORES,   /* from the machine's host */
    LS_REMEDY_LESS_MEMORY,
    LS_REMEDY_LARGER_BATCHES, /* more work for the same communication, where it is not of gradient buckets */
} ls_remedy;

/* The numbers that a finding follows from: ns per step unless stated otherwise. */
typedef struct ls_rank_evidence { /* STRAGGLER, SLOW_CORE, PREEMPTED */
    double own, others;           /* time of this rank and of the median other rank: the median over the steps if it is
                                     persistent, otherwise the mean of the steps that show it */
    double waited;                /* by the rank that waits longest for this one, in all phases */
    double build, others_build;   /* ns to build a batch, if the rank's batches are slow; 0: they are not */
    int32_t span;                 /* most of it before the gradient of this span; -1: not known */
    bool persistent;              /* in most steps; otherwise intermittent */
    bool forward, backward;       /* SLOW_CORE: where it is slower */
} ls_rank_evidence;

typedef struct ls_core_evidence {   /* CONTENTION, OVERSUBSCRIPTION */
    int ranks;                      /* with a run-queue delay that is worth reporting */
    double least, most;             /* the range of their run-queue delays */
    double least_share, most_share; /* the same as a share of the rank's step */
    double used, cores;             /* cores that the job used on average (NaN: not known), of how many */
    double threads;                 /* that compute */
} ls_core_evidence;

typedef struct ls_data_evidence { /* DATA */
    double waited;                /* by the rank that waits longest */
    double build;                 /* to build the batches of a step; NaN: not recorded */
    double rest;                  /* of the step */
} ls_data_evidence;

typedef struct ls_comm_evidence { /* BUCKETS, COMM, OVERLAP */
    double exposed, busy;         /* of the buckets' collectives; without buckets, of all */
    double bytes, calls;          /* of a step */
    double latency;               /* of a collective without data */
    double rate, of_peak;         /* see ls_comm_mean */
    double hidden;                /* share of busy that overlaps with computing */
    bool network;                 /* between nodes */
} ls_comm_evidence;

typedef struct ls_finding {
    ls_finding_kind kind;
    ls_remedy remedy;
    int rank;            /* -1: all, or several */
    ls_phase phase;      /* LS_PHASE_OTHER if it is not bound to one */
    int64_t cost;        /* ns of a step, on average */
    double weight;       /* 1; less where it may be noise: findings are in the order of cost * weight */
    int64_t expected;    /* ns of a step once the change is made */
    int64_t steps;       /* how many steps show it */
    int64_t first, last; /* numbers of the first and the last of them */
    double target;       /* what the remedy sets; NaN: nothing */
    union {
        ls_rank_evidence rank;
        ls_core_evidence cores;
        ls_data_evidence data;
        ls_comm_evidence comm;
        double lost;   /* STEAL, CHECKPOINT, EVAL, IMBALANCE: ns of a step */
        double faults; /* PAGE_FAULTS: major ones of a step */
        double reserved[16];
    } evidence;
} ls_finding;
/* "straggler"; the name in JSON. */
LS_API const char *ls_finding_name(ls_finding_kind kind);

/* ---- Notes: what is missing or odd in the record. */

#define LS_NOTE_LIST(X)                                                                                               \
    X(UNREADABLE, 0, "unreadable")     /* a file of `rank`: `text` has the error */                                   \
    X(WRONG_RANK, 1, "wrong_rank")     /* the file of `rank` belongs to rank `number`; it is ignored */               \
    X(WRONG_SIZE, 2, "wrong_size")     /* the file of `rank` belongs to a run with `number` ranks; it is ignored */   \
    X(TRUNCATED, 3, "truncated")       /* the file of `rank` ends within a block */                                   \
    X(LOST, 4, "lost")                 /* `number` events of `rank` came faster than they could be written */         \
    X(MISSING, 5, "missing")           /* `number` ranks have no readable events; `rank` is the first */              \
    X(NO_BEGINNING, 6, "no_beginning") /* the first `number` ns are no longer recorded */                             \
    X(NO_STEPS_OF_RANK, 7, "no_steps_of_rank") /* `rank` recorded no complete step; the steps are without it */       \
    X(NO_STEPS, 8, "no_steps")                 /* no rank did */                                                      \
    X(FEW_STEPS, 9, "few_steps")    /* too few steps to distinguish a slow rank from noise; `number` are needed */    \
    X(CLOCK, 10, "clock")           /* the clock of node `rank` moved by up to `number` ns; corrected */              \
    X(NO_OVERLAP, 11, "no_overlap") /* overlap is disabled, which costs nothing here */                               \
    X(NO_COLLECTIVES, 12,                                                                                             \
      "no_collectives")       /* `rank` takes `number` ns longer in the phase `text`, but there are no collectives */ \
    X(INVALID, 13, "invalid") /* `number` events of `rank` have an impossible time or clock and are left out */       \
    X(STEP_NUMBERS, 14, "step_numbers") /* `number` steps of `rank` are left out: their numbers do not increase */    \
    X(NOT_ENDED, 15, "not_ended")   /* `rank` began the phase `text` `number` times without ending it in that step */ \
    X(WAIT_MARKS, 16, "wait_marks") /* `number` ns of a step are marked as waiting, but there are no collectives */
typedef enum ls_note_kind {
#define X(name, value, text) LS_NOTE_##name = value,
    LS_NOTE_LIST(X)
#undef X
} ls_note_kind;

typedef struct ls_note {
    ls_note_kind kind;
    int rank;
    int64_t number;
    char *text; /* NULL, except for LS_NOTE_UNREADABLE, LS_NOTE_NO_COLLECTIVES and LS_NOTE_NOT_ENDED */
} ls_note;
/* "missing"; the name in JSON. */
LS_API const char *ls_note_name(ls_note_kind kind);

/* ---- The run. */

typedef struct ls_comm_row { /* collectives of one kind, summed over the counted steps; of one rank, on average */
    uint8_t kind;
    bool bucket;
    bool network; /* between nodes */
    int64_t count;
    int64_t bytes;   /* of one rank */
    int64_t wire;    /* bytes that a node must send for them, if `network` */
    int64_t busy;    /* from the last arrival, or the end of the call before, until done; mean of the ranks */
    int64_t exposed; /* of that, ranks were blocked in the call */
    int64_t waited;  /* by all ranks together, before the last one arrived */
    int64_t bound;   /* the least that `busy` could be; see docs/MEASURE.md; 0: not known */
    int64_t reserved[2];
} ls_comm_row;

typedef struct ls_run {
    char *path;
    int ranks;
    ls_run_rank *rank; /* [ranks] */
    ls_run_step *steps;
    size_t n_steps; /* only steps that all present ranks recorded in full */
    /* steps from here on enter the averages: not the warm-up, nor what is outside of the window */
    size_t first_counted;
    double step_mean; /* ns: mean wall time of a counted step */
    double tokens;    /* of a step, of all ranks; 0: not known */
    ls_run_collective *collectives;
    size_t n_collectives;
    ls_attribution *attributions;
    size_t n_attributions;
    int64_t *wait_matrix;       /* [waiter * ranks + last]: ns over all counted steps */
    ls_wait_cause *wait_causes; /* most expensive first */
    size_t n_wait_causes;
    ls_comm_row *comm;
    size_t n_comm;
    ls_finding *findings; /* most expensive first */
    size_t n_findings;
    ls_note *notes;
    size_t n_notes;
    void *internal; /* the library's */
    void *reserved[8];
} ls_run;

typedef struct ls_run_options {
    size_t newest_bytes; /* read at most this many bytes of each rank's newest events; 0: all */
    bool events_only;    /* no steps, collectives and findings */
    int64_t window_ns;   /* count only the newest steps that fit into this time; 0: all */
    size_t window_steps; /* and at most this many; 0: all */
    void *reserved[2];
} ls_run_options;

/* Reads RUN/events (or a folder of event files). LS_ENOENT if there are none, LS_EFORMAT if none could be read. On failure *out
 * is NULL. */
LS_API LS_MUST_CHECK ls_status ls_run_open(ls_run **out, const char *path, const ls_run_options *options);
LS_API void ls_run_free(ls_run **run);

/* ---- Figures. Every form of a report shows these, so that they agree. */

/* Mean over the counted steps and all ranks (rank < 0) or one: ns of a phase in a step. 0 if there is no such rank or phase. */
LS_API double ls_run_mean(const ls_run *run, int rank, ls_phase phase);
/* Communication that ran while a rank did something else: ns of a step, of all ranks (rank < 0) or one. */
LS_API double ls_run_overlapped(const ls_run *run, int rank);
/* Time of a phase in which the main thread was runnable but not scheduled, by run-queue delay or steal: ns of a step, likewise. */
LS_API double ls_run_unscheduled(const ls_run *run, int rank, ls_phase phase);

/* Collectives of one kind: means of a counted step, in ns unless stated otherwise. NaN: not known. */
typedef struct ls_comm_mean {
    double count;
    double bytes;         /* of a rank */
    double busy, exposed; /* see ls_comm_row */
    double waited;        /* of a rank, for the last one */
    double hidden;        /* share of busy in which ranks computed */
    double rate;          /* bytes per ns: of a rank's array; between nodes, of what a node sends */
    double of_peak;       /* share of the peak bandwidth: the least that busy could be, divided by what it was */
    double reserved[4];
} ls_comm_mean;
LS_API ls_comm_mean ls_run_get_comm_mean(const ls_run *run, const ls_comm_row *row);

/* How a rank gets its data: means of a counted step. */
typedef struct ls_run_loading {
    double batches;    /* taken in a step; 0: none was, and the rest is not known */
    double build;      /* ns to build one */
    double waited;     /* ns of a step in the data phase */
    double ready;      /* share of batches that were ready when asked for */
    double queue;      /* batches that were ready then */
    double workers;    /* NaN: not known */
    double busy;       /* share of the workers' time that building takes; NaN: there are none */
    double read_bytes; /* from disk, in a step */
    double reserved[4];
} ls_run_loading;
LS_API ls_run_loading ls_run_get_loading(const ls_run *run, int rank);

#ifdef __cplusplus
}
#endif
#endif
