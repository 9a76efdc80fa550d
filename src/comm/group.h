/* Worlds, groups and works as the files of this layer see them, and the table that a transport fills.
 *
 * A work is one call. Collectives of a group are numbered in the order of the calls and queued; send and receive have
 * a queue of their own, since they pair up by rank and not by number. A work leaves its queue when it is done, in
 * whatever order that happens: from then on only its owner (a handle of the caller's, or a blocking call's stack) refers
 * to it. Works come from the group's free list, so a steady program allocates nothing.
 *
 * Whoever waits for a work makes progress on all groups of the world that have works under way: ranks may wait for
 * works of several groups in different orders. */
#ifndef LS_COMM_GROUP_H
#define LS_COMM_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include "comm/parallel_for.h"
#include "comm/events.h"
#include "comm/launcher.h"
#include "comm/job.h"
#include "lockstep/comm.h"

/* The build for bench/checks has neither fingerprints nor time stamps nor events, to see what they cost. */
#ifdef LOCKSTEP_BARE
enum { LS__CHECKED = 0 };
#else
enum { LS__CHECKED = 1 };
#endif

/* What must be the same on all ranks, in one word: call, type, reduction, root. */
typedef uint64_t ls__fingerprint;

struct ls_work {
    ls_group *group;
    ls_work *next, *prev; /* in its queue; `next` also in the free list */
    ls_work *made_before; /* in the list of all works that the group has allocated */
    ls_collective_kind kind;
    ls_dtype type;
    ls_op op;
    int root; /* for send and receive the other rank; -1: none */
    size_t count;
    const void *send; /* calls that work in place have send == recv */
    void *recv;
    ls__chunk_fn chunk_fn; /* LS_COLLECTIVE_PARALLEL_FOR only, with its argument */
    void *user;
    uint64_t number; /* of the collective in its group, from 0 */
    bool on_stack;   /* belongs to a blocking call, not to the free list */
    bool done;

    /* The transport's own notes. */
    int64_t started;      /* ls_now() of this rank's arrival */
    int64_t ended;        /* and of its end; 0: it has not come */
    int64_t last_arrival; /* and of the last rank's, and which it was */
    int last_rank;
    int seen;                      /* ranks whose arrival was seen and whose fingerprint was checked */
    bool staged;                   /* this rank's data goes through staging */
    bool any_staged;               /* some rank's does */
    uint32_t rounds;               /* chunks of the pipeline */
    uint32_t in, out;              /* rounds copied in, and out, by this rank */
    size_t round_bytes;            /* of a block, per round */
    size_t moved;                  /* send, receive: bytes so far, message head included */
    uint32_t spins;                /* times this call found nothing to do */
    int64_t waited;                /* for how long nothing has moved, time in which we were suspended left out */
    int64_t waiting_since;         /* ls_now() of the last look around */
    uint64_t waiting_mark;         /* what was to be seen then */
    bool stop_noted;               /* a stopped rank was logged */
    bool starting;                 /* waits for a free slot, not for arrivals */
    uint32_t deadlock_looks;       /* how often in a row another rank was seen to wait for this one, */
    uint64_t deadlock_fingerprint; /* in this call */
    uint64_t deadlock_number;
    void *extra; /* a transport's own object, freed by it */
};

typedef struct ls__transport {
    const char *name;
    /* Announces the work. May wait for room. */
    ls_status (*start)(ls_group *g, ls_work *w);
    /* Does what can be done now: LS_OK done, LS_PENDING not yet. */
    ls_status (*progress)(ls_group *g, ls_work *w);
    /* Sleeps until progress may be possible again; fails on death, abort and timeout. `w` is what the caller wants. */
    ls_status (*idle)(ls_group *g, ls_work *w);
    /* Without waiting: has the group failed? Breaks it if so, and returns its status. */
    ls_status (*look)(ls_group *g);
    /* Without waiting, and cheap when called often: is someone gone whom this work waits for, or has its time run out? Work
     * that can be completed is. */
    ls_status (*watch)(ls_group *g, ls_work *w);
    ls_status (*split)(ls_group *g, int color, int key, ls_group **out);
    /* From any thread: breaks the group for all. */
    void (*abort)(ls_group *g, ls_status status, const char *text);
    /* Gives up the transport's part of the group. */
    void (*release)(ls_group *g);
} ls__transport;

/* Works under way, in the order of the calls. */
typedef struct ls__queue {
    ls_work *first, *last;
} ls__queue;

struct ls_group {
    ls_world *world;
    ls_group *next_of_world; /* in the world's list */
    const ls__transport *transport;
    void *impl; /* the transport's */
    int rank, size;
    uint16_t id; /* the same on all members; 0: all ranks. For events */
    uint64_t next_number;
    ls__queue collectives, p2p; /* under way: not done, and the group is not broken */
    ls_work *free_works;
    ls_work *made;    /* all works that were allocated; freed with the group */
    ls_status broken; /* what every later call returns, with this text */
    char broken_text[LS__JOB_FAILURE_BYTES];
};

struct ls_world {
    ls__launch_info identity;
    int node, nodes;
    ls__job *job; /* NULL: alone */
    int job_fd;
    bool owns_job; /* maps the job by itself (ranks that are threads share one mapping) */
    int timeout_ms;
    size_t staging_bytes;
    ls_record *record;       /* this rank's events; NULL while the world is opened */
    _Atomic int64_t blocked; /* ns that this rank has been blocked in collectives */
    const char *transport;
    ls_group *group;
    ls_group *groups;            /* all of them */
    int busy_groups;             /* those with works under way */
    void *allocations;           /* alone: list of what ls_world_alloc gave out */
    struct ls__cluster *cluster; /* under mpirun; see cluster.h */
    ls_world *next_open;         /* under mpirun: in the list of this process's worlds */
};

extern const ls__transport ls__self_transport, ls__shm_transport, ls__multi_transport;

static inline bool ls__is_p2p(ls_collective_kind kind)
{
    return kind == LS_COLLECTIVE_SEND || kind == LS_COLLECTIVE_RECEIVE;
}

static inline ls__fingerprint ls__work_fingerprint(const ls_work *w)
{
    return (uint64_t)w->kind | (uint64_t)w->type << 8 | (uint64_t)w->op << 16 | (uint64_t)(uint32_t)w->root << 32;
}

/* "allreduce #12 (8.0 MiB of float32, sum)": for messages. */
void ls__describe(ls__fingerprint fingerprint, uint64_t number, uint64_t count, char *out, size_t bytes);
/* The call that this work waits for others to make: the same one, or a send's receive, a receive's send. */
void ls__describe_awaited(const ls_work *w, char *out, size_t bytes);

/* Makes an empty group object; freed by ls__group_discard(), which takes NULL. */
LS_MUST_CHECK ls_status ls__group_new(ls_world *world, const ls__transport *transport, int rank, int size,
                                      ls_group **out);
void ls__group_discard(ls_group *g);
/* Remembers why the group is broken, unless it is already, and returns the status it is broken with. Its works are under
 * way no more: whoever waits for one gets this status. */
ls_status ls__group_break(ls_group *g, ls_status status, const char *text);
/* Adds a work that has begun to its queue. */
void ls__group_enqueue(ls_work *w);
/* Makes progress on all works of this group. */
LS_MUST_CHECK ls_status ls__group_progress(ls_group *g);
/* Makes progress on the works of all other groups. One that fails is broken, which its next call reports. */
void ls__others_progress(const ls_group *g);
/* Both. Returns this group's status. */
LS_MUST_CHECK ls_status ls__world_progress(ls_group *g);
/* Whether works of other groups are under way. */
static inline bool ls__others_busy(const ls_group *g)
{
    return g->world->busy_groups > (g->collectives.first || g->p2p.first ? 1 : 0);
}

/* What each member tells the others at a split. */
typedef struct ls__split_entry {
    int32_t color, key;
    int32_t number; /* a transport's own; see multi_group.c */
} ls__split_entry;
/* Writes the ranks of `color`, in the order of key, then of rank; returns how many. */
int ls__split_pick(const ls__split_entry *all, int p, int color, int *ranks);

/* A call, as events name it: ls_collective_word(), which for a group of 16 bits is no more than this. */
static inline uint64_t ls__group_word(const ls_group *g, uint64_t number)
{
    return (uint64_t)g->id << 48 | (number & (UINT64_MAX >> 16));
}
/* The events of a call's life, in this rank's ring. */
void ls__event_start(const ls_work *w, size_t bytes);
void ls__event_done(ls_work *w);
/* The caller has stood in this call since `begin`. */
void ls__event_blocked(const ls_work *w, int64_t begin);

/* A world whose ranks may be threads of one process: `job` is shared by all and outlives them. */
LS_MUST_CHECK ls_status ls__world_open_on(ls_world **out, const ls_world_options *options,
                                          const ls__launch_info *identity, ls__job *job, int job_fd, bool owns_job);
/* The same for a rank of an MPI job. On success the cluster belongs to the world; NULL: there is none. */
LS_MUST_CHECK ls_status ls__world_open_in(ls_world **out, const ls_world_options *options,
                                          const ls__launch_info *identity, ls__job *job, int job_fd, bool owns_job,
                                          struct ls__cluster *cluster);

/* self.c: the group of a world of one. */
LS_MUST_CHECK ls_status ls__self_join(ls_world *world, ls_group **out);
/* shm.c: this rank's part of the all-ranks group of a job. */
LS_MUST_CHECK ls_status ls__shm_join(ls_world *world, ls_group **out);

#endif
