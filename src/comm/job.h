/* The job: what the ranks of one machine and their launcher share.
 *
 * It is one memfd, made by the launcher (or by the first rank of a machine under mpirun) and inherited by descriptor:
 * it has no name, so there is nothing to leak, to squat or to attach to. It begins with the header below; behind it
 * lies the heap that groups and buffers are taken from (heap.h). Every process maps the whole window once, so an
 * offset means the same place to all, and a pointer is base + offset.
 *
 * Who writes what: `state` and its details of a rank: the launcher, or the watcher under mpirun. `futex` and `sleepers`:
 * see shm_wait.c. `failure`: whoever comes first. All fields that change are atomics. */
#ifndef LS_COMM_JOB_H
#define LS_COMM_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include "lockstep/comm.h"

enum {
    LS__JOB_MAX_RANKS = 512,     /* on one machine */
    LS__JOB_MAX_EXTENTS = 16384, /* chunks of the heap taken at once */
    LS__JOB_FAILURE_BYTES = 768, /* text of a failure */
};

/* The variable that holds the descriptor's number. */
#define LS__JOB_FD_VARIABLE "LOCKSTEP_JOB_FD"

typedef enum ls__rank_state {
    LS__RANK_STARTING = 0, /* its process has not attached yet */
    LS__RANK_RUNNING = 1,
    LS__RANK_STOPPED = 2, /* `detail`: the signal that stopped it */
    LS__RANK_EXITED = 3,  /* `detail`: its exit code */
    LS__RANK_KILLED = 4,  /* `detail`: the signal that killed it */
    LS__RANK_GONE = 5,    /* it ended; how, only mpirun knows */
} ls__rank_state;

/* A failure that everyone shall see. The first one stays. */
typedef struct ls__failure {
    _Atomic uint32_t set; /* 0: none; 1: being written; 2: there */
    int32_t status;       /* ls_status */
    int32_t rank;         /* the rank that it is about; -1: none */
    char text[LS__JOB_FAILURE_BYTES];
} ls__failure;

typedef struct ls__job_rank {
    _Alignas(64) _Atomic uint32_t futex; /* futex word; rung when something this rank may wait for has happened */
    _Atomic uint32_t sleepers;           /* its threads that sleep, or are about to, on the futex */
    _Alignas(64) _Atomic uint32_t state; /* ls__rank_state */
    _Atomic int32_t detail;              /* by state */
    _Atomic int64_t since;               /* ls_now() of the last change of state */
    _Atomic int32_t pid;
} ls__job_rank;

/* heap.c's table of what is taken, sorted by offset. */
typedef struct ls__job_heap {
    _Alignas(64) _Atomic uint32_t lock; /* 0: free; otherwise 1 + the local rank that holds it */
    uint32_t extents;                   /* under lock */
    struct {
        uint64_t offset, bytes;
    } extent[LS__JOB_MAX_EXTENTS]; /* under lock */
} ls__job_heap;

typedef struct ls__job {
    char magic[16]; /* names the layout: a program of another version must not touch it */
    uint64_t window_bytes;
    int32_t ranks;      /* on this machine */
    int32_t timeout_ms; /* the launcher's --timeout; 0: none given */
    int32_t cores;      /* that the launcher could use: with more ranks than that, waiting must not spin */
    _Alignas(64) ls__failure failure;
    _Alignas(64) _Atomic uint64_t
        world_group; /* heap offset of the all-ranks group's control block; 0: not there yet */
    ls__job_rank rank[LS__JOB_MAX_RANKS];
    ls__job_heap heap;
} ls__job;

/* Makes a job for `ranks` ranks in a new memfd (close-on-exec) and maps it. */
LS_MUST_CHECK ls_status ls__job_create(int ranks, int timeout_ms, ls__job **out, int *fd);
/* Maps the job of an inherited descriptor, after checking that it is one. The descriptor stays open. */
LS_MUST_CHECK ls_status ls__job_attach(int fd, ls__job **out);
void ls__job_detach(ls__job **job);

/* Records a failure unless one is there already, and wakes everyone. */
void ls__job_fail(ls__job *job, ls_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Says what became of a rank's process, and wakes everyone so that those who wait for it look. */
void ls__job_set_state(ls__job *job, int rank, ls__rank_state state, int detail);
/* "was killed by signal 9 (Killed)", "exited with code 3", "is stopped by SIGSTOP, for 1.2 s": for messages. */
void ls__job_describe_state(const ls__job *job, int rank, char *out, size_t bytes);

/* Wakes the sleeping threads of one rank, or of all. */
void ls__job_wake(ls__job *job, int rank);
void ls__job_wake_all(ls__job *job);

#endif
