/* Where the ranks of an MPI job are: which nodes there are, which ranks share memory, and the memory that they share.
 *
 * Every rank sends information about itself to all others. Ranks of one node are numbered by their rank in the world; the first makes
 * the job memory, and the others open it through /proc/PID/fd, which the kernel allows only to processes of the same user. No file
 * system ever contains a name of it.
 *
 * No launcher of lockstep watches such a job. A rank that waits checks through pidfds whether the processes of its node are still
 * running; mpirun is usually faster and ends them all. */
#ifndef LS_COMM_CLUSTER_H
#define LS_COMM_CLUSTER_H

#include "comm/job.h"
#include "comm/net.h"

struct ls__multi;

enum { LS__HOST_BYTES = 64 };

/* What a message is about: the lowest bits of its tag. The group's number is above them. */
typedef enum ls__tag_kind {
    LS__TAG_CLOCK = 0,
    LS__TAG_HEADER,
    LS__TAG_FIRST,
    LS__TAG_SECOND,
    LS__TAG_P2P,
    LS__TAG_NOTICE, /* of all groups: the number is 0 */
} ls__tag_kind;
enum { LS__TAG_KIND_BITS = 3 };

/* Peer info: what a rank publishes about itself. Two ranks are on one node, and share memory, if the first three are equal: one kernel,
 * one PID namespace, one host name (containers, and the hosts of an emulated cluster, share the kernel). */
typedef struct ls__peer_info {
    char boot_id[40]; /* the kernel's */
    uint64_t pid_namespace;
    char host[LS__HOST_BYTES];
    int32_t pid;
    int32_t job_fd;         /* local root: the descriptor of the job memory; -1: it has failed */
    uint64_t staging_bytes; /* 0: not given */
    uint64_t nonce;         /* rank 0's is that of the world: see ls__notice */
    char error[200];        /* why this rank cannot join; "": it can */
} ls__peer_info;

/* What a member of a group on several nodes sends to the others; see multi_notice.c. */
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
        received;                 /* of a leave: completed collectives, and messages to and from the receiver of this */
    char text[LS__FAILURE_BYTES]; /* of an abort: the last, since only what is needed is sent */
} ls__notice;

/* A notice that came before its group was made. */
typedef struct ls__early {
    struct ls__early *next;
    int from;
    ls__notice notice;
} ls__early;

typedef struct ls__cluster {
    ls__net *net;
    int rank, size;
    int node, nodes; /* this node, and how many there are */
    int local_rank, local_size;
    int *node_of, *local_of;       /* by rank */
    char (*hosts)[LS__HOST_BYTES]; /* by node */
    int64_t *clock_ahead;          /* by node: how far its clock is ahead of ours, in ns */
    int64_t clock_error;           /* uncertainty of that for the first node */
    size_t staging_bytes;          /* the smallest that a rank asked for; 0: none did */
    int *watched;                  /* pidfds by local rank; -1: ourselves, or gone */
    bool unwatched;                /* the launcher watches all ranks, and ends them when one is lost */

    uint64_t nonce; /* of this world; the same on all ranks */

    /* Of the multi transport (multi_notice.c). */
    struct ls__multi *groups; /* all groups on several nodes */
    int newest_group;         /* the highest number of those that this rank has made */
    ls__notice inbox;
    ls__net_request inbox_request;
    bool inbox_awaited; /* a receive was published */
    ls__early *early;
    int early_count;
    bool *left;          /* by rank: it has freed its world, and waits at its exit for all others to do so */
    _Atomic bool failed; /* the world has: a rank will not end in order, and MPI is not finalized */
    bool suspect;        /* a smaller group failed, possibly because a rank ended; see multi_wait.c */
    bool abandoned;      /* messages of a smaller group may never complete: the job memory stays mapped */
} ls__cluster;

/* Fills in the peer info of this process. `host`: NULL, or a name to use instead of the system's. */
void ls__peer_info_fill(ls__peer_info *info, const char *host, size_t staging_bytes);
/* Numbers the nodes in the order of their first ranks, and the ranks of each. Returns the number of nodes. */
int ls__cluster_place(const ls__peer_info *peers, int n, int *node_of, int *local_of);

/* Exchanges peer info over `net`, which belongs to the cluster from then on, also on failure. */
LS_MUST_CHECK ls_status ls__cluster_open(ls__cluster **out, ls__net *net, const ls__peer_info *info, int timeout_ms);
/* Makes or opens the job memory of this node. All ranks succeed or fail together. */
LS_MUST_CHECK ls_status ls__cluster_share(ls__cluster *c, int timeout_ms, ls__job **job, int *fd);
void ls__cluster_free(ls__cluster **cluster);

/* Checks whether processes of this node have ended or are stopped, and records that in the job. */
void ls__cluster_watch(ls__cluster *c, ls__job *job);

#endif
