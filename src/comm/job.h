/* The job: what the ranks of one node and their launcher share.
 *
 * It is one memfd, made by the launcher (or by the local root under mpirun) and inherited as a descriptor: it has no name, so nothing
 * can leak, and no other process can open it. It begins with the header below, followed by the heap that groups and buffers are taken from
 * (heap.h). Every process maps all of this job memory once, so an offset means the same place to all ranks, and a pointer is
 * base + offset.
 *
 * Who writes what: a rank's `state` and its details: the launcher, or under mpirun the ranks that watch it. `futex` and `sleepers`: see
 * wait.h. `failure`: the first that fails. All fields that change are atomics. */
#ifndef LS_COMM_JOB_H
#define LS_COMM_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "comm/failure.h"
#include "lockstep/comm.h"

enum {
    LS__JOB_MAX_RANKS = 512,     /* on one node */
    LS__JOB_MAX_EXTENTS = 16384, /* allocations of the heap at one time */
};

/* The variable that holds the descriptor's number. */
#define LS__JOB_FD_VARIABLE "LOCKSTEP_JOB_FD"

typedef enum ls__rank_state {
    LS__RANK_STARTING = 0, /* its process has not attached yet */
    LS__RANK_RUNNING = 1,
    LS__RANK_STOPPED = 2, /* `detail`: the signal that stopped it */
    LS__RANK_EXITED = 3,  /* `detail`: its exit code */
    LS__RANK_KILLED = 4,  /* `detail`: the signal that killed it */
    LS__RANK_GONE = 5,    /* it ended; only mpirun knows how */
} ls__rank_state;

typedef struct ls__job_rank {
    _Alignas(
        64) _Atomic uint32_t futex; /* futex word; changes when something that this rank may wait for has happened */
    _Atomic uint32_t sleepers;      /* its threads that sleep, or are about to, on the futex word */
    _Alignas(64) _Atomic uint32_t state; /* ls__rank_state */
    _Atomic int32_t detail;              /* by state */
    _Atomic int64_t since;               /* ls_now() of the last change of state */
    _Atomic int32_t pid;
} ls__job_rank;

/* An allocation of the heap. */
typedef struct ls__extent {
    uint64_t offset, bytes;
} ls__extent;

/* heap.c's table of allocations, sorted by offset. */
typedef struct ls__job_heap {
    _Alignas(64) pthread_mutex_t lock;      /* robust: the kernel releases it if its owner dies */
    bool torn;                              /* under lock: an owner died, and the table may be half changed */
    bool used_before;                       /* pages may not be zero: see ls__job_renew() */
    uint32_t extents;                       /* under lock */
    ls__extent extent[LS__JOB_MAX_EXTENTS]; /* under lock */
} ls__job_heap;

typedef struct ls__job {
    char magic[16];        /* names the layout of all job memory: a program of another version must not touch it */
    uint64_t header_bytes; /* sizeof(ls__job): a second check of the layout */
    uint64_t bytes;        /* of all job memory */
    int32_t ranks;         /* on this node */
    int32_t timeout_ms;    /* the launcher's --timeout; 0: none given */
    int32_t cores;         /* that the launcher may use: with more ranks than that, waiting must not spin */
    _Alignas(64) ls__failure failure;
    _Alignas(64) _Atomic uint64_t world_group; /* heap offset of the all-ranks group's control block; 0: not made yet */
    ls__job_rank rank[LS__JOB_MAX_RANKS];
    ls__job_heap heap;
} ls__job;

/* Makes a job for `ranks` ranks in a new memfd (close-on-exec) and maps it. */
LS_MUST_CHECK ls_status ls__job_create(int ranks, int timeout_ms, ls__job **out, int *fd);
/* Makes it a new job, as ls__job_create() does. All its ranks must have ended. Its pages stay, which saves milliseconds. */
LS_MUST_CHECK ls_status ls__job_renew(ls__job *job, int ranks, int timeout_ms);
/* Maps the job of an inherited descriptor, after checking that it is one of this version. The descriptor stays open. */
LS_MUST_CHECK ls_status ls__job_attach(int fd, ls__job **out);
void ls__job_detach(ls__job **job);

/* Sets the job's failure, unless there is one already, and wakes all ranks. */
void ls__job_fail(ls__job *job, ls_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Records what became of a rank's process, and wakes all ranks so that those that wait for it check. */
void ls__job_set_state(ls__job *job, int rank, ls__rank_state state, int detail);
/* "was killed by signal 9 (Killed)", "exited with code 3", "is stopped by SIGSTOP, for 1.2 s": for messages. */
void ls__job_describe_state(const ls__job *job, int rank, char *out, size_t bytes);

/* Wakes the sleeping threads of one rank, or of all. */
void ls__job_wake(ls__job *job, int rank);
void ls__job_wake_all(ls__job *job);

#endif
