/* lockstep/measure.h: from the events that ranks recorded to answers: where the time went, who made whom wait, and why.
 *
 *     ls_run *run;
 *     if (ls_run_open(&run, "runs/last", NULL)) ...
 *     for (size_t i = 0; i < run->n_steps; i++) ... run->steps[i].rank[r].ns[LS_PHASE_DATA] ...
 *
 * Times    nanoseconds; points in time are on the clock of rank 0's machine, whatever machine they were taken on.
 * Input    a run that is being written, was cut off, or lacks ranks is read as far as it goes; `notes` say what is missing.
 *          Files are not trusted.
 * Threads  a run is read-only once opened and may be read by many. */
#ifndef LOCKSTEP_MEASURE_H
#define LOCKSTEP_MEASURE_H

#include <stdbool.h>
#include "lockstep/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What one rank recorded. */

/* What the rank's main thread did, from here to the next interval. */
typedef struct ls_interval {
    int64_t begin;
    ls_phase phase;
    bool shared; /* in a call that deals out work: who does how much is chance */
    bool
        counted; /* a sample was taken at its end: cpu and sched_delay are of it and those since the sample before, and shared out to them */
    bool slept;  /* it gave up its core of its own accord: to wait for a device, a lock, another thread */
    int64_t cpu; /* of the interval's time: on a core; < 0: not known */
    int64_t sched_delay; /* runnable but not scheduled */
} ls_interval;

/* A thread of a rank, with those of its name before it: one that is started for each checkpoint is one row. */
typedef struct ls_run_thread {
    char name[32]; /* "main" makes the steps; lockstep's own begin with "ls-"; "": all that have no row of their own */
    double cpu;    /* ns on a core */
    double share;  /* of a core, over the counted steps or what is known of them */
} ls_run_thread;

typedef enum ls_use_level {
    LS_USE_EVEN = 0,
    LS_USE_UNDER = 1, /* busy for less of a step than the other ranks: it waits for them */
    LS_USE_OVER = 2,  /* busy for more: they wait for it */
} ls_use_level;

/* How a rank uses its device: means of a counted step, in ns where nothing else is said. */
typedef struct ls_resource_use {
    double wall;
    double cpu;         /* of all threads */
    double busy;        /* its main thread had, or wanted, a core: all but waiting, exposed communication and sleep */
    double median_busy; /* the same of the median rank */
    double wait;        /* for other ranks */
    double off_cpu;     /* of its own accord: for a device, a lock, another thread */
    double sched_delay; /* runnable but not scheduled, outside of calls: in calls others decide how long it takes */
    double steal;       /* taken by the hypervisor */
    double voluntary, involuntary, minor, major; /* switches, page faults */
    double read_bytes;
    double resident;      /* bytes, the most that was seen; 0: not known */
    double mfu;           /* its matrix products as a share of what SGEMM reaches on its threads; NaN: not known */
    double watts;         /* of its machine's processor packages, on average; NaN: not known */
    ls_use_level verdict; /* beside the other ranks */
} ls_resource_use;

typedef struct ls_run_rank {
    bool present;    /* its file could be read */
    bool closed;     /* it ended in order; otherwise it is still running, or was killed */
    int rank, ranks; /* which of how many */
    int node, local; /* its machine, and which of that one's ranks it is */
    char host[65];
    int pid, threads;
    char cores[128];     /* that it may run on: "0-3,8" */
    char transport[8];   /* self, shm or mpi */
    int64_t start;       /* its record began */
    double start_time;   /* the same as seconds since 1970 */
    int64_t clock_ahead; /* of rank 0's clock, and how sure that is */
    int64_t clock_uncertainty;
    uint64_t lost;                    /* events overwritten before they were written */
    bool cut;                         /* the file ends within a block */
    double metadata[LS_METADATA_MAX]; /* by ls_metadata_kind; NaN: not known */
    ls_event *events;                 /* in order of time, which is on the run's clock */
    size_t n_events;
    uint32_t main_thread; /* the one that makes the steps */
    ls_interval
        *intervals; /* its time without gaps, from the first step on; the last interval only ends the one before */
    size_t n_intervals;
    char **span_names; /* [n_spans]; an entry may be NULL */
    size_t n_spans;
    char **operation_names; /* the profiler's */
    size_t n_operations;
    char **thread_names;
    size_t n_thread_names;
    ls_run_thread *thread; /* [n_thread] */
    size_t n_thread;
    ls_resource_use use; /* if there are counted steps */
} ls_run_rank;

/* ---- A step. */

typedef struct ls_step_rank {
    bool present;
    int64_t begin, end;
    int64_t ns
        [LS_PHASES]; /* add up to end - begin. Waiting: for a rank that had not arrived; communication: the rest of the
                                 time in calls, when the rank did nothing else */
    int64_t overlapped; /* communication under way while this rank did something else; part of no phase */
    int64_t
        own[LS_PHASES]; /* of each phase, what the rank itself is the reason of: without delay, steal and shared time */
    int64_t off_cpu[LS_PHASES];     /* of that, waiting of its own accord: for a device, a lock, another thread */
    int64_t sched_delay[LS_PHASES]; /* of each phase, runnable but not scheduled */
    int64_t steal[LS_PHASES];       /* neither that, nor on a core, nor off_cpu: the machine itself had no core */
    int64_t cpu;                    /* CPU time of all threads; < 0: not known */
    int64_t voluntary, involuntary, minor, major; /* switches, page faults */
    int64_t resident;                             /* bytes at the end */
    int64_t read_bytes;                           /* from disk */
    int32_t batches;                              /* taken from the loader */
    int32_t batches_ready;  /* that were waiting when one was asked for, in sum over those taken */
    int32_t batches_missed; /* taken ones for which none was */
    int64_t batch_ns;       /* to build those taken, in sum */
} ls_step_rank;

typedef struct ls_run_step {
    int64_t number;
    int64_t begin, end; /* the first rank's begin, the last one's end */
    ls_step_rank *rank; /* [ranks] */
} ls_run_step;

/* ---- Collectives: collectives, and who came last. */

typedef struct ls_run_collective {
    uint64_t call;    /* group << 48 | number */
    uint8_t kind;     /* ls_collective_kind */
    int32_t bucket;   /* -1: it carried none */
    int64_t bytes;    /* of a rank */
    int64_t step;     /* the number, of the last rank; < 0: before the first step */
    int64_t *arrival; /* [ranks]; 0: not known, or no member */
    int64_t *done;    /* [ranks]; 0: not known */
    int64_t *blocked; /* [ranks]: the rank stood in the call so long, until `left` */
    int64_t *left;    /* [ranks] */
    int64_t *ready;   /* [ranks]: the bucket was full; 0: none, or not known */
    int64_t last_arrival;
    int last_rank;
    int64_t waited;  /* by all ranks together, standing in the call before the last one came */
    int64_t longest; /* by one of them */
    int attribution; /* index in `attributions`; -1: nobody's */
} ls_run_collective;

/* A rank that made others wait, and where it lost the time since the collective before. */
typedef struct ls_attribution {
    int64_t step;
    int rank;
    ls_phase phase;
    bool unscheduled; /* runnable but not scheduled: another program, or another rank, had its core */
    int32_t span;     /* backward: the gradient that came late; -1: not known */
    int64_t excess;   /* time lost in the phase, compared with the other ranks */
    int64_t waited;   /* by all others together */
    int64_t longest;  /* by one of them: what it cost the step */
} ls_attribution;

/* ---- Answers. */

typedef enum ls_finding_kind {
    LS_FINDING_STRAGGLER = 0, /* a rank makes the others wait, in a phase */
    LS_FINDING_CORE = 1,      /* a rank's core is shared */
    LS_FINDING_DATA = 2,      /* all ranks wait for data */
    LS_FINDING_BUCKETS = 3,   /* too small, or too large to overlap */
    LS_FINDING_COMM = 4,      /* communication that is not hidden */
    LS_FINDING_MEMORY = 5,    /* page faults from disk */
    LS_FINDING_STEAL = 6,     /* the machine's cores are taken by its host */
    LS_FINDING_CHECKPOINT = 7,
    LS_FINDING_EVAL = 8,
    LS_FINDING_IMBALANCE = 9, /* different ranks come last, by chance or by uneven work */
    LS_FINDING_OVERLAP = 10,  /* buckets are reduced after backward, because that was asked for */
} ls_finding_kind;

typedef struct ls_finding {
    ls_finding_kind kind;
    int rank; /* -1: all */
    ls_phase phase;
    int64_t cost;       /* ns of a step, on average */
    double weight;      /* 1; less where it may as well be chance: findings are in the order of cost * weight */
    int64_t expected;   /* ns of a step once the change is made */
    int64_t steps;      /* in how many steps it was seen */
    char what[320];     /* "rank 1 cost everyone 41.0 ms a step in data loading" */
    char evidence[320]; /* "its data phase takes 52 ms, the others' 11 ms" */
    char change[320];   /* "stage the data (--stage), or more --workers" */
} ls_finding;

/* ---- All of it. */

typedef struct ls_comm_row { /* collectives of one kind */
    uint8_t kind;
    bool bucket;
    bool network; /* between machines */
    int64_t count;
    int64_t bytes; /* of one rank, in sum */
    int64_t wire;  /* bytes that a machine must send for them, if `network`; in sum */
    int64_t busy;  /* from the last arrival, or the end of the call before, until done; in sum, on average over ranks */
    int64_t exposed; /* of that, ranks stood in the call */
    int64_t waited;  /* by all ranks together, before the last one came */
    int64_t bound;   /* the least that `busy` could be; see docs/MEASURE.md; 0: not known */
} ls_comm_row;

typedef struct ls_comm_fit { /* sums over buckets of x: bytes and y: ns, for the line through them */
    double n, x, y, xx, xy;
} ls_comm_fit;

typedef struct ls_run {
    char *path;
    int ranks;
    ls_run_rank *rank; /* [ranks] */
    ls_run_step *steps;
    size_t n_steps;   /* only steps that all present ranks recorded in full */
    size_t n_warmup;  /* of these, the first so many are the start and count in no average */
    double step_mean; /* see ls_run_step_mean() */
    ls_run_collective *collectives;
    size_t n_collectives;
    ls_attribution *attributions;
    size_t n_attributions;
    int64_t *wait_matrix; /* [waiter * ranks + last]: ns over all counted steps */
    ls_comm_row *comm;
    ls_comm_fit bucket_fit;
    size_t n_comm;
    ls_finding *findings; /* dearest first */
    size_t n_findings;
    char **notes; /* what is missing or odd, a sentence each */
    size_t n_notes;
    void *memory; /* the library's */
} ls_run;

typedef struct ls_run_options {
    size_t newest_bytes; /* read at most so much of each rank's newest events, for a quick look; 0: all */
    bool events_only;    /* no steps, collectives and findings */
} ls_run_options;

/* Reads RUN/events (or a folder of event files). LS_ENOENT if there are none, LS_EFORMAT if none could be read. On failure *out
 * is NULL. */
LS_API LS_MUST_CHECK ls_status ls_run_open(ls_run **out, const char *path, const ls_run_options *options);
LS_API void ls_run_free(ls_run **run);

/* ---- Figures. Every form of a report shows these, so that they agree. */

/* Mean over the counted steps and all ranks (rank < 0) or one: ns of a phase in a step. */
LS_API double ls_run_mean(const ls_run *run, int rank, ls_phase phase);
/* Mean wall time of a counted step. */
LS_API double ls_run_step_mean(const ls_run *run);
/* Communication that went on while a rank did something else: ns of a step, of all ranks (rank < 0) or one. */
LS_API double ls_run_overlapped(const ls_run *run, int rank);
/* Time of a phase in which the main thread was runnable but not scheduled, by run-queue delay or steal: ns of a step, likewise. */
LS_API double ls_run_unscheduled(const ls_run *run, int rank, ls_phase phase);
/* Tokens of a step, of all ranks; 0: not known. */
LS_API double ls_run_tokens(const ls_run *run);
/* Model FLOPs utilisation: matrix products as a share of what SGEMM was measured to reach, mean of the ranks; NaN: not known. */
LS_API double ls_run_mfu(const ls_run *run);

/* Collectives of one kind: means of a counted step, in ns where nothing else is said. NaN: not known. */
typedef struct ls_comm_mean {
    double count;
    double bytes;         /* of a rank */
    double busy, exposed; /* see ls_comm_row */
    double waited;        /* of a rank, for the last one */
    double hidden;        /* share of busy in which ranks computed */
    double rate;          /* bytes a ns: of a rank's array; between machines, of what a machine sends */
    double of_peak;       /* share of the peak bandwidth: the least that busy could be, beside what it was */
} ls_comm_mean;
LS_API ls_comm_mean ls_run_comm_mean(const ls_run *run, const ls_comm_row *row);

/* Two runs: ns of a step, mean of all ranks, and the difference as a share of the first run's step. */
typedef struct ls_run_change {
    double before, after, share;
} ls_run_change;
/* Of a phase, or of the whole step (LS_PHASES). */
LS_API ls_run_change ls_run_compare(const ls_run *before, const ls_run *after, int phase);

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
} ls_run_loading;
LS_API ls_run_loading ls_run_loading_of(const ls_run *run, int rank);

#ifdef __cplusplus
}
#endif
#endif
