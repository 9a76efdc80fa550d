/* The mpi transport: groups whose ranks are on several machines.
 *
 * Inside a machine ranks share memory, as in shm.h; between machines they send messages (net.h). Each collective has
 * two parts. First the fingerprints: members post theirs in shared memory, the first member of each machine (the
 * leader) sends those of its machine to the other leaders, and when all are there and agree, says so. Small data
 * travels in the same messages, so that a small collective is one exchange. Then, for large data, a pipeline of rounds
 * (multi_pipeline.c) in which every member carries its share over the network.
 *
 * One collective of a group is under way at a time on each rank, and none begins before all ranks of the machine have
 * finished the one before: their arrivals for the next one say so. Hence everything that a collective uses in shared
 * memory is there once, except what is published before that is known, which is there twice and used in turn.
 *
 * A control block lies in each machine's job:
 *   control      how far the leader is, and the group's failure
 *   local[L]     one per member on this machine: its arrivals, and how far it is with rounds
 *   mail[2][p]   small data of all members of the group
 *   staging[L][W]  input that lies outside the window, by round
 *   recv_window[W]     what came from other machines, by round; every member takes from it what it needs
 */
#ifndef LS_COMM_MULTI_H
#define LS_COMM_MULTI_H

#include "comm/cluster.h"
#include "comm/group.h"
#include "comm/canonical.h"

enum {
    LS__MULTI_DEPTH = 32,          /* rounds under way, at most */
    LS__MULTI_EAGER_BYTES = 4096,  /* small data of one rank, at most */
    LS__MULTI_EAGER_TOTAL = 65536, /* and of all ranks together, so that it is still one quick message */
    LS__MULTI_EAGER_LEAST = 64,
    LS__MULTI_WORLD = 1, /* the number of the group of all ranks */
};
/* arrival.at of a buffer outside the window. */
#define LS__MULTI_STAGED UINT64_MAX
/* How long a rank that leaves its world waits for the others' notices that they do, too. */
#define LS__MULTI_AWAIT_NS 100000000

typedef struct ls__multi_arrival {
    _Alignas(64) _Atomic uint64_t number; /* 1 + the collective's number, once all the rest is there */
    int64_t stamp;
    ls__fingerprint fingerprint;
    uint64_t count;
    uint64_t at;                      /* of the input in the window; LS__MULTI_STAGED; 0: none, or nobody asks */
    _Alignas(64) _Atomic uint32_t in; /* rounds of input that others can read */
    _Atomic uint32_t recv_window;     /* rounds in which this rank has written its part of the recv_window */
    _Atomic uint32_t out;             /* rounds that this rank is through with */
} ls__multi_arrival;

typedef struct ls__multi_local {
    int32_t job;                                   /* its local rank in the job, for bells and states; fixed */
    _Alignas(64) _Atomic uint64_t finished;        /* collectives that it is through with */
    _Atomic uint64_t last_fingerprint, last_count; /* the last of them */
    ls__multi_arrival arrival[2];
} ls__multi_local;

typedef struct ls__multi_control {
    _Alignas(64) _Atomic uint32_t references; /* members that have not left */
    _Alignas(64) _Atomic uint64_t agreed;     /* collectives that all machines agreed on */
    int64_t last_arrival[2];                  /* of such a collective, by this machine's clock, and who it was */
    int32_t last_rank[2];
    _Alignas(64) ls__failure failure;
} ls__multi_control;

/* A message of a round. */
typedef struct ls__message {
    int peer; /* rank in the world */
    size_t offset, bytes;
    uint8_t *data;
    ls__net_request request;
} ls__message;

/* Messages that go or come together. Their memory grows as needed and is kept. */
typedef struct ls__message_batch {
    ls__message *list;
    int count, room;
    uint8_t *memory;
    size_t used, memory_room;
} ls__message_batch;

/* A round under way. In the first exchange what the round is made of travels, in the second what was made of it. */
typedef struct ls__multi_slot {
    ls__message_batch first_in, first_out, second_in, second_out;
} ls__multi_slot;

/* A chunk of a send or receive; see multi_pair.c. */
typedef struct ls__fragment {
    struct ls__fragment *next;
    ls__net_request request;
    size_t bytes;
    uint8_t data[];
} ls__fragment;

/* A member that has left, and what it had done by then. */
typedef struct ls__leave {
    bool left;
    int64_t when;            /* ls_now() when the notice came */
    uint64_t finished;       /* collectives */
    uint64_t sent, received; /* messages to this rank, and from it */
} ls__leave;

typedef struct ls__p2p_counts {
    uint64_t sent, received;
} ls__p2p_counts;

/* A member's private view of the group. */
typedef struct ls__multi {
    struct ls__multi *next; /* in the cluster's list */
    ls_group *group;
    ls__cluster *cluster;
    int id; /* the group's number, the same on all members and part of every tag */

    /* Who is where. Machines are numbered within the group. */
    int nodes, node;      /* machines of this group, and this one */
    int locals, local;    /* members on this machine, and this one's place among them */
    int slices;           /* the most members that a machine has: so many carriers can be busy */
    int *world_of;        /* by member: its rank in the world */
    int *node_of;         /* by member: its machine */
    int *local_of;        /* by member: its place among the members of its machine */
    int *node_size;       /* by machine: members */
    int *node_members;    /* the members of machine 0, those of machine 1, ... */
    int *node_members_at; /* by machine: where its members begin */

    /* The canonical sum: as much as possible added in advance, and nothing. */
    ls__subtree *subtrees[2];
    ls__canonical_step *steps[2];
    int subtree_count[2];

    /* The control block. */
    ls__multi_control *control;
    uint64_t control_at;
    ls__multi_local *locals_at;
    uint8_t *eager, *staging, *recv_window;
    size_t eager_bytes, round_bytes;
    uint32_t depth; /* rounds under way */

    /* Fingerprints. */
    uint64_t published; /* collectives that this rank has published */
    bool headers_sent;
    ls__message_batch headers_in, headers_out;

    /* The pipeline of the collective under way: rounds that have come past each stage. */
    ls__multi_slot slots[LS__MULTI_DEPTH];
    uint32_t opened, filled, combined, received, taken, closed;

    ls__leave *left;                      /* by member: whether it has left the group */
    ls__p2p_counts *p2p_begun, *p2p_done; /* by member: messages to it and from it */
    struct ls__p2p_state *p2p;            /* sends and receives under way */
    ls__fragment *fragments, *leaving;    /* spare ones; those of sends that are done for the caller */
    uint64_t activity;                    /* grows whenever anything happens */
    const void **in;                      /* p pointers, for ls__reduce_arrays() */
    void **partials;                      /* p, and one for each machine */
    void *scratch;                        /* for ls__canonical_partial() */
    float *wide;                          /* for ls__canonical_finish() */
    size_t wide_room;
    uint8_t *own; /* this machine's partial sums of a round */
    size_t own_room;
    ls__net_request **polled; /* for ls__net_test() */
    int polled_room;
    bool busy;      /* messages of this rank are under way */
    uint32_t looks; /* at the network */
} ls__multi;

/* What a message is about: the lowest bits of its tag. The group's number stands above. */
typedef enum ls__multi_kind {
    LS__TAG_CLOCK = 0, /* cluster.c */
    LS__TAG_HEADER,
    LS__TAG_FIRST,
    LS__TAG_SECOND,
    LS__TAG_P2P,
    LS__TAG_NOTICE, /* of all groups: the number is 0 */
} ls__multi_kind;
enum { LS__TAG_KIND_BITS = 3 };

static inline ls__multi *ls__multi_of(const ls_group *g)
{
    return g->impl;
}
static inline int ls__multi_tag(const ls__multi *m, ls__multi_kind kind)
{
    return m->id << LS__TAG_KIND_BITS | (int)kind;
}
static inline ls__multi_arrival *ls__multi_arrival_of(const ls__multi *m, uint64_t number, int local)
{
    return &m->locals_at[local].arrival[number % 2];
}
static inline uint8_t *ls__multi_eager_of(const ls__multi *m, uint64_t number, int rank)
{
    return m->eager + ((number % 2) * (uint64_t)m->group->size + (uint64_t)rank) * m->eager_bytes;
}
static inline uint8_t *ls__multi_staging_of(const ls__multi *m, int local, uint32_t round)
{
    return m->staging + ((size_t)local * m->depth + round % m->depth) * m->round_bytes;
}
static inline uint8_t *ls__multi_recv_window_of(const ls__multi *m, uint32_t round)
{
    return m->recv_window + (round % m->depth) * m->round_bytes;
}
/* The member that is at place `local` (counted round and round) of a machine. */
static inline int ls__multi_member(const ls__multi *m, int node, int local)
{
    return m->node_members[m->node_members_at[node] + local % m->node_size[node]];
}
/* Elements of a block in a round, and where they begin. */
static inline size_t ls__multi_round_begin(const ls_work *w, uint32_t round)
{
    return (size_t)round * (w->round_bytes / ls_dtype_size(w->type));
}
static inline size_t ls__multi_round_count(const ls_work *w, uint32_t round)
{
    size_t left = w->count - ls__multi_round_begin(w, round), most = w->round_bytes / ls_dtype_size(w->type);
    return left < most ? left : most;
}

/* multi_notice.c */
/* Marks the group as failed on this machine and tells the others. `matched`: until they have got it, or some time is
 * over. From any thread. */
void ls__notice_abort(const ls__multi *m, ls_status status, const char *text, bool matched);
/* Tells the other members that this rank leaves; `in_order`: by freeing the group. */
void ls__notice_leave(const ls__multi *m, bool in_order);
/* This process ends without having freed its groups: tells the members of all of them. */
void ls__notice_leave_all(const ls__cluster *c);
/* Takes in the notice that has come, if one has, and waits for the next. */
LS_MUST_CHECK ls_status ls__notice_receive(ls__cluster *c);
/* The same after a look at the network. */
LS_MUST_CHECK ls_status ls__notice_look(ls__cluster *c);
/* Notices may have come before the group was there. */
void ls__notice_group_made(ls__multi *m);

/* multi_wait.c: failures, and waiting. */
ls_status ls__multi_idle(ls_group *g, ls_work *w);
ls_status ls__multi_watch(ls_group *g, ls_work *w);
ls_status ls__multi_look(ls_group *g);
ls_status ls__multi_break(ls_group *g, ls_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void ls__multi_abort(ls_group *g, ls_status status, const char *text);
/* Something that is not the caller's mistake failed, with a message in ls_error(): breaks the group with it. */
ls_status ls__multi_give_up(ls_group *g, ls_status status);
/* Wakes members of this machine that sleep. Call after a release store that one of them may wait for. */
void ls__multi_ring(const ls__multi *m);
/* Looks after the network. */
LS_MUST_CHECK ls_status ls__multi_poll(ls_group *g);

/* multi_pipeline.c: the pipeline, and batches of messages. */
LS_MUST_CHECK ls_status ls__multi_pipeline(ls_group *g, ls_work *w);
/* Adds a message to a round's batch; one of 0 bytes is left out. `data`: NULL for memory of the batch. `again`: the
 * same data as the message before. */
LS_MUST_CHECK ls_status ls__batch_add(ls__message_batch *b, int peer, size_t bytes, uint8_t *data, bool again);
/* Gives the batch's messages their memory. */
LS_MUST_CHECK ls_status ls__batch_place(ls__message_batch *b);
LS_MUST_CHECK ls_status ls__batch_send(const ls__multi *m, ls__message_batch *b, ls__multi_kind kind);
LS_MUST_CHECK ls_status ls__batch_recv(const ls__multi *m, ls__message_batch *b, ls__multi_kind kind);
/* Whether all of its messages have gone, or come. */
bool ls__batch_done(const ls__message_batch *b);
void ls__batch_free(ls__message_batch *b);
/* Input of round `round`, block `block`, of a member on this machine. */
const uint8_t *ls__multi_input(const ls_group *g, const ls_work *w, int local, int block, uint32_t round);
/* Memory of at least `bytes`: the old one, or a new one in its place with nothing in it. NULL: there is none
 * (LS_ENOMEM). */
void *ls__multi_grow(void *memory, size_t *room, size_t bytes);

/* What a collective does in a round; the pipeline calls these in order. */
typedef struct ls__pipeline_ops {
    /* Lists the messages of a round. */
    ls_status (*plan)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    /* All input of this machine is there: fills in first_out. NULL: nothing to do. */
    ls_status (*fill)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    /* first_in has come: fills in second_out, and this rank's part of the recv_window. */
    ls_status (*combine)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    /* The recv_window is complete: takes this rank's results. */
    ls_status (*take)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    bool lends; /* others take from this rank's input until they are through */
    bool chain; /* one machine's second messages are the next one's first */
} ls__pipeline_ops;
/* multi_reduce.c, multi_move.c */
extern const ls__pipeline_ops ls__pipeline_reduce, ls__pipeline_reduce_scatter;
extern const ls__pipeline_ops ls__pipeline_broadcast, ls__pipeline_allgather, ls__pipeline_exchange;

/* multi_pair.c */
ls_status ls__multi_p2p_progress(ls_group *g, ls_work *w);
/* Adds the requests of sends and receives to the list that is polled. */
LS_MUST_CHECK ls_status ls__multi_p2p_poll(ls_group *g, int *count);
LS_MUST_CHECK ls_status ls__multi_add_polled(ls__multi *m, int *count, ls__net_request *request);
void ls__multi_p2p_reap(ls__multi *m);
/* Gives up the receives under way. */
void ls__multi_p2p_cancel(ls__multi *m);
/* Frees the spare fragments. */
void ls__multi_p2p_free(ls__multi *m);

/* multi_group.c: this rank's part of the group of all ranks. */
LS_MUST_CHECK ls_status ls__multi_join(ls_world *world, ls_group **out);
ls_status ls__multi_split(ls_group *g, int color, int key, ls_group **out);
void ls__multi_release(ls_group *g);

#endif
