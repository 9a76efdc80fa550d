/* Where the ranks of an MPI job are: which machines there are, who shares memory with whom, and the memory they share.
 *
 * Every rank tells the others about its machine. Ranks of one machine are numbered by their rank in the world; the
 * first makes the job's memory, and the others open it through /proc/PID/fd, which the kernel grants to processes of
 * the same user only. No file system ever holds a name of it.
 *
 * No launcher of ours watches such a job. A rank that waits looks through pidfds whether the processes it shares a
 * machine with are still there; mpirun usually is faster and ends them all. */
#ifndef LS_COMM_CLUSTER_H
#define LS_COMM_CLUSTER_H

#include "comm/job.h"
#include "comm/net.h"

struct ls__multi;

enum { LS__HOST_BYTES = 64 };

/* What a rank says about itself. Two ranks share memory if the first three are the same: one kernel (machine), one view
 * of processes, one host name (containers, and the hosts of a cluster on one machine, share the kernel). */
typedef struct ls__peer_info {
    char machine[40]; /* the kernel's boot id */
    uint64_t processes;
    char host[LS__HOST_BYTES];
    int32_t pid;
    int32_t job_fd;         /* the first of a machine: the descriptor of the job's memory; -1: it has failed */
    uint64_t staging_bytes; /* 0: not said */
    uint64_t nonce;         /* rank 0's is the world's: see ls__notice */
    char why[200];          /* of a failure */
} ls__peer_info;

/* What a member of a group over several machines tells the others; see multi_notice.c. */
typedef enum ls__notice_kind {
    LS__NOTICE_ABORT = 1, /* the group has failed, or was aborted */
    LS__NOTICE_LEAVE = 2, /* the sender has freed the group */
} ls__notice_kind;

typedef struct ls__notice {
    uint64_t world; /* its nonce */
    int32_t kind;   /* ls__notice_kind */
    int32_t group;  /* its number, see multi.h */
    int32_t status; /* of an abort */
    uint64_t finished, sent,
        received; /* of a leave: completed collectives, and messages to and from the receiver of this */
    char text[LS__JOB_FAILURE_BYTES]; /* of an abort: the last, since only what is needed is sent */
} ls__notice;

/* One that came before its group was made. */
typedef struct ls__early {
    struct ls__early *next;
    int from;
    ls__notice notice;
} ls__early;

typedef struct ls__cluster {
    ls__net *net;
    int rank, size;
    int node, nodes; /* this machine, and how many there are */
    int local_rank, local_size;
    int *node_of, *local_of;       /* by rank */
    char (*hosts)[LS__HOST_BYTES]; /* by machine */
    int64_t *clock_ahead;          /* by machine: how far its clock is ahead of ours, in ns */
    int64_t clock_error;           /* how far off that may be for the first machine */
    size_t staging_bytes;          /* the smallest that anyone asked for; 0: nobody did */
    int *watched;                  /* pidfds by local rank; -1: ourselves, or gone */

    uint64_t nonce; /* of this world; the same on all ranks */

    /* The mpi transport's (multi_notice.c). */
    struct ls__multi *groups; /* all groups over several machines */
    int next_group;           /* number of the next one */
    int newest_group;         /* the highest number of a group that this rank has made */
    ls__notice inbox;
    ls__net_request inbox_request;
    bool inbox_awaited; /* a receive was published */
    ls__early *early;
    int early_count;
    bool *left;          /* by rank: it has freed its world in order, and waits for all to do so at its end */
    _Atomic bool failed; /* the world has: a rank will not end in order, and MPI is not shut down */
    bool suspect;        /* a smaller group failed in a way that may have been a rank's end; see multi_wait.c */
    bool abandoned;      /* messages of a smaller group may be under way for ever: the job's memory stays */
} ls__cluster;

/* Fills in the info of this process. `host`: NULL, or a name to use instead of the system's. */
void ls__peer_info_fill(ls__peer_info *info, const char *host, size_t staging_bytes);
/* Numbers the machines in the order of their first ranks, and the ranks of each. Returns the number of machines. */
int ls__cluster_place(const ls__peer_info *peers, int n, int *node_of, int *local_of);

/* Exchanges peers over `net`, which belongs to the cluster from then on, also on failure. */
LS_MUST_CHECK ls_status ls__cluster_open(ls__cluster **out, ls__net *net, const ls__peer_info *info, int timeout_ms);
/* Makes or opens the memory of this machine's ranks. All ranks succeed or fail together. */
LS_MUST_CHECK ls_status ls__cluster_share(ls__cluster *c, int timeout_ms, ls__job **job, int *fd);
void ls__cluster_free(ls__cluster **cluster);

/* Looks whether processes of this machine have ended or are stopped, and says so in the job. */
void ls__cluster_watch(ls__cluster *c, ls__job *job);

#endif
