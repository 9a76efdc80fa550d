/* Worlds, groups and works as the files of this layer see them, and the table of functions that a transport fills.
 *
 * A work is one call of a collective. Collectives of a group are numbered in the order of the calls and queued. Send and receive have
 * a queue of their own, since they match by rank and not by number. A work leaves its queue when it is done, in any order; from then
 * on only its owner (the caller's handle, or a blocking call's stack) refers to it. Works come from the group's free list, so a
 * steady program allocates nothing.
 *
 * A rank that waits for a work makes progress on all groups of the world that have works under way: ranks may wait for works of
 * several groups in different orders. */
#ifndef LS_COMM_GROUP_H
#define LS_COMM_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "comm/failure.h"
#include "comm/job.h"
#include "comm/launcher.h"
#include "comm/parallel_for.h"
#include "comm/slot_parts.h"
#include "comm/private.h"
#include "lockstep/comm.h"
#include "record/collectives.h"
#include "record/ring.h"

/* The build for bench/checks has neither fingerprints nor time stamps nor events, to measure what they cost. */
#ifdef LOCKSTEP_BARE
enum { LS__CHECKED = 0 };
#else
enum { LS__CHECKED = 1 };
#endif

/* What must be equal on all ranks, besides number and count, in one word: kind, type, reduction, caller, root. */
typedef uint64_t ls__fingerprint;

/* How long a work has been waited for; see wait.h. */
typedef struct ls__wait {
    uint32_t spins;     /* times that there was nothing to do */
    bool stop_logged;   /* a stopped rank was logged */
    int64_t idle;       /* ns without progress */
    int64_t checked_at; /* ls_now() of the last check for missing ranks; 0: none yet */
    uint64_t mark;      /* the transport's measure of progress at that time */
} ls__wait;

enum { LS__WORK_STATE_BYTES = 64 };
enum { LS__WORLD_GROUP = 1 }; /* the number of the group of all ranks; see ls__new_group */

struct ls_work {
    ls_group *group;
    ls_work *next, *prev; /* in its queue; `next` also in the free list */
    ls_work *made_before; /* in the list of all works that the group has allocated */
    ls_collective_kind kind;
    ls_dtype type;
    ls_op op;
    ls__caller caller;
    int root; /* send, receive: the other rank; parallel_for: elements of a chunk; -1: none */
    size_t count;
    size_t block_bytes; /* of `count` elements; known once the arguments are checked */
    const void *send;   /* collectives that work in place have send == recv */
    void *recv;
    ls__chunk_fn chunk_fn; /* parallel_for only, with its argument */
    void *user;
    ls__slot_parts *parts; /* the sum is over parts of the ranks; NULL: over the ranks */
    uint64_t number;       /* of the collective in its group, from 0 */
    bool on_stack;         /* belongs to a blocking call, not to the free list */
    bool done;
    bool arrived;  /* all ranks have arrived, and agree */
    int last_rank; /* the last to arrive, by rank in the world */
    int64_t last_arrival;
    int64_t started; /* ls_now() of this rank's arrival */
    int64_t ended;   /* and of its end; 0: it has not ended */
    ls__wait wait;
    /* The transport's own, zero at first: ls__shm_work, ls__multi_work. Bytes, so that a transport is known only to its own files. */
    union {
        max_align_t align;
        unsigned char bytes[LS__WORK_STATE_BYTES];
    } state;
};

/* What a member publishes about itself in the group's control block, for the members on its node. Written by that member only. */
typedef struct ls__member {
    _Alignas(64) _Atomic uint64_t finished; /* it has completed all collectives with lower numbers */
    _Atomic uint64_t last_fingerprint, last_count;
    _Atomic uint64_t last_number; /* 1 + the number of the last collective that it completed; 0: none */
    _Atomic uint64_t claiming;    /* 1 + the number of the collective of which it may have a chunk; 0: none */
    _Alignas(64) _Atomic uint64_t
        waiting_fingerprint; /* what it sleeps in; 0: nothing (an all-reduce has a root of -1) */
    _Atomic uint64_t waiting_count, waiting_number;
    /* Read in every collective, so in a line that is hardly ever written. */
    _Alignas(64) int32_t job_rank; /* its local rank in the job, for futex words and states; fixed */
    int32_t world_rank;            /* fixed */
    _Atomic bool left;             /* it has freed the group */
} ls__member;

/* A group in the making, as its members know it. */
typedef struct ls__new_group {
    ls_world *world;
    int size, rank;         /* rank: this process's, in the new group */
    const int *world_ranks; /* by member */
    int number;             /* no other group that shares a rank with this one has it */
    void *view;             /* what make() leaves for enter(); see discard() */
} ls__new_group;

/* How data moves in a group. LS__TRANSPORT_LIST has all transports. */
typedef struct ls__transport {
    const char *name;
    /* Whether it can carry the data of a group on this many nodes of the world. */
    bool (*serves)(const ls_world *world, int nodes);
    /* Joins the group of all ranks. */
    ls_status (*join)(ls_world *world, ls_group **out);

    /* A split makes a group in two steps, with an exchange of places between them.
     * On the first member of each node: allocates what the members on the node share. *place: where; 0 on other members. */
    ls_status (*make)(ls__new_group *n, uint64_t *place);
    /* Builds this member's group. `place` is that of the first member on this node. */
    ls_status (*enter)(ls__new_group *n, uint64_t place, ls_group **out);
    /* Frees n->view if enter() was not called. NULL: there is none. */
    void (*discard)(ls__new_group *n);

    /* Publishes the work, or leaves that to progress() if it must wait for something: a start never waits for other ranks. */
    ls_status (*start)(ls_group *g, ls_work *w);
    /* Does what can be done now: LS_OK done, LS_PENDING not yet. */
    ls_status (*progress)(ls_group *g, ls_work *w);
    /* Sleeps until progress may be possible again. Fails if a rank ended, on abort and on timeout. `w` is what the caller waits for. */
    ls_status (*idle)(ls_group *g, ls_work *w);
    /* Without waiting: if the group has failed, breaks it and returns its status. */
    ls_status (*check_failed)(ls_group *g);
    /* Without waiting, and cheap when called often: has a rank that this work waits for ended or left, or did the time run out? Work
     * that can be completed is. */
    ls_status (*check_peers)(ls_group *g, ls_work *w);
    /* From any thread: fails the group for all members. `wait`: until members on other nodes have received it, or some time passed. */
    void (*abort)(ls_group *g, ls_status status, const char *text, bool wait);
    /* Frees the transport's part of the group. */
    void (*release)(ls_group *g);
} ls__transport;

/* Works under way, in the order of the calls. */
typedef struct ls__queue {
    ls_work *first, *last;
} ls__queue;

typedef struct ls__mailbox ls__mailbox;

struct ls_group {
    ls_world *world;
    ls_group *next_of_world; /* in the world's list */
    const ls__transport *transport;
    void *impl;           /* the transport's */
    ls__failure *failure; /* where all members on this node see it */
    ls__member *members;  /* those on this node, in job memory; NULL: a world of one rank */
    int locals, local;    /* how many those are, and which is this one */
    int rank, size;
    uint16_t id;            /* the same on all members; 0: all ranks. For events */
    _Atomic uint8_t caller; /* an ls__caller; see ls__group_begin_call() */
    uint64_t next_number;
    ls__queue collectives, p2p; /* under way: not done, and the group is not broken */
    ls_work *free_works;
    ls_work *made;        /* all works that were allocated; freed with the group */
    ls__mailbox *mailbox; /* of messages with tags; NULL: there were none */
    ls_status broken;     /* what every later call returns, with this text */
    char broken_text[LS__FAILURE_BYTES];
};

struct ls_world {
    pthread_mutex_t lock; /* held in calls on works and groups; see ls__world_enter() */
    _Atomic int callers;  /* threads that wait for the lock */
    pthread_t opener;     /* the thread that opened the world, to which its record belongs */
    int rank, size, local_rank, local_size;
    int node, nodes;
    ls__job *job; /* NULL: a world of one rank */
    int job_fd;
    int kept_fd;   /* kept memory of an elastic job; 0: none */
    bool owns_job; /* it mapped the job memory itself (ranks that are threads share one mapping) */
    int timeout_ms;
    size_t staging_bytes;
    ls_record *record;           /* this rank's events; NULL while the world is opened */
    ls__ring *ring;              /* the record's ring, so that an event of a collective costs one call */
    _Atomic int64_t blocked;     /* ns that this rank has been blocked in collectives */
    ls_group *group;             /* of all ranks */
    ls_group *groups;            /* all groups */
    int busy_groups;             /* those with works under way */
    int next_group;              /* number of the next group that a split makes */
    void *allocations;           /* without a job: list of what ls_world_alloc() returned */
    struct ls__adopted *adopted; /* what ls_world_adopt() made job memory; see adopt.c */
    int n_adopted;
    struct ls__cluster *cluster; /* under mpirun and srun; see cluster.h */
    ls_world *next_open;         /* there: in the list of this process's worlds */
};

/* transport.c: the first transport of the list that serves such a group. */
const ls__transport *ls__transport_find(const ls_world *world, int nodes);
/* The list, cheaper ones first: NAME.c defines ls__NAME_transport. */
#define LS__TRANSPORT_LIST(X) X(self) X(shm) X(multi)
#define X(name)               extern const ls__transport ls__##name##_transport;
LS__TRANSPORT_LIST(X)
#undef X

static inline ls__fingerprint ls__work_fingerprint(const ls_work *w)
{
    return (uint64_t)w->kind | (uint64_t)w->type << 8 | (uint64_t)w->op << 16 | (uint64_t)w->caller << 24 |
           (uint64_t)(uint32_t)w->root << 32;
}
static inline ls_collective_kind ls__fingerprint_kind(ls__fingerprint fingerprint)
{
    return (ls_collective_kind)(fingerprint & 0xff);
}
static inline int ls__fingerprint_root(ls__fingerprint fingerprint)
{
    return (int32_t)(fingerprint >> 32);
}

/* "allreduce #12 (2097152 of float32, sum)": for messages. */
void ls__describe(ls__fingerprint fingerprint, uint64_t number, uint64_t count, char *out, size_t bytes);
void ls__describe_work(const ls_work *w, char *out, size_t bytes);
/* What this work waits for others to call: the same collective, or the matching send or receive. */
void ls__describe_awaited(const ls_work *w, char *out, size_t bytes);
/* " (group of ranks 0, 2)", as numbers of the world, if this process has several groups; else "". */
enum { LS__GROUP_TEXT = 120 };
void ls__describe_group(const ls_group *g, char out[LS__GROUP_TEXT]);

/* Makes an empty group object; freed by ls__group_discard(), which accepts NULL. */
LS_MUST_CHECK ls_status ls__group_new(ls_world *world, const ls__transport *transport, int rank, int size,
                                      ls_group **out);
void ls__group_discard(ls_group *g);
/* Notes why the group is broken, unless it is already, and returns the status that it is broken with. Its works are no longer under
 * way: a wait for one returns this status. */
ls_status ls__group_break(ls_group *g, ls_status status, const char *text);
/* The error of a group that is broken. */
ls_status ls__group_broken(const ls_group *g);
/* Adds a work that has begun to its queue. */
void ls__group_enqueue(ls_work *w);
/* Makes progress on all works of this group. */
LS_MUST_CHECK ls_status ls__group_progress(ls_group *g);
/* Makes progress on the works of all other groups. One that fails is broken, which its next call reports. */
void ls__others_progress(const ls_group *g);
/* Both. Returns this group's status. */
LS_MUST_CHECK ls_status ls__world_progress(ls_group *g);
static inline bool ls__group_is_busy(const ls_group *g)
{
    return g->collectives.first || g->p2p.first;
}
/* Whether works of other groups are under way. */
static inline bool ls__others_busy(const ls_group *g)
{
    return g->world->busy_groups > (ls__group_is_busy(g) ? 1 : 0);
}
/* The failure of the group, or else of its job; NULL: none. */
static inline const ls__failure *ls__group_failure(const ls_group *g)
{
    if (ls__failure_is_set(g->failure)) return g->failure;
    const ls__job *job = g->world->job;
    return job && ls__failure_is_set(&job->failure) ? &job->failure : NULL;
}
static inline bool ls__group_on_one_node(const ls_group *g)
{
    return g->locals == g->size;
}

/* Calls of several threads take turns. One that waits for other ranks lets go of the lock as soon as another thread wants it: that
 * thread may be about to make the call that another rank waits for. */
void ls__world_enter(ls_world *world);
void ls__world_leave(ls_world *world);
/* Lets other threads of this process have their turn, if any wait for one. */
void ls__world_yield(ls_world *world);

/* tagged.c; accepts NULL. */
void ls__mailbox_free(ls__mailbox *mailbox);

/* adopt.c: the heap offset of an all-reduce's buffer if all of it is in adopted memory, else 0. Not for buffers of works under way. */
uint64_t ls__adopted_offset(ls_world *w, void *p, size_t bytes);
/* memory.c: where an all-reduce's buffer is in job memory, also if that was adopted; 0: nowhere. Other works: ls__heap_offset(). */
uint64_t ls__work_offset(const ls_work *w, size_t bytes);
/* memory.c: frees what ls_world_alloc() returned, where there is no job. */
void ls__world_free_memory(ls_world *w);

/* By rank in the world: its node, and its local rank there. */
int ls__world_node_of(const ls_world *world, int rank);
int ls__world_local_of(const ls_world *world, int rank);
/* The first member on this rank's node. */
int ls__new_group_local_root(const ls__new_group *n);

/* ls_collective_id(), which for a group id of 16 bits is just this. */
static inline uint64_t ls__group_collective_id(const ls_group *g, uint64_t number)
{
    return (uint64_t)g->id << 48 | (number & (UINT64_MAX >> 16));
}
/* events.c: the events of a collective, in this rank's record. */
void ls__event_start(const ls_work *w, size_t bytes);
void ls__event_done(ls_work *w);
/* The caller has been blocked in this collective since `begin`. */
void ls__event_blocked(const ls_work *w, int64_t begin);

/* What a world is opened on. */
typedef struct ls__world_base {
    ls__launch_info info; /* which rank this is */
    ls__job *job;         /* NULL: one rank. Ranks may be threads of one process, which share the mapping */
    int job_fd;
    bool owns_job;               /* the world unmaps it */
    struct ls__cluster *cluster; /* NULL: none. On success it belongs to the world */
} ls__world_base;
LS_MUST_CHECK ls_status ls__world_open_on(ls_world **out, const ls_world_options *options, const ls__world_base *base);

#endif
