/* The mpi transport: groups whose ranks are on several nodes.
 *
 * Inside a node ranks share memory, as in shm.h; between nodes they send messages (net.h). Each collective has two parts. First the
 * fingerprints: members publish theirs in shared memory, the local root of each node sends those of its node to the other local
 * roots, and when it has all and they agree, publishes that. Eager messages are part of the same messages, so that an eager collective is
 * one exchange. Then, for large data, a pipeline of rounds (multi_pipeline.c) in which every member carries its share over the
 * network.
 *
 * One collective of a group is under way at a time on each rank, and none begins before all ranks of the node have finished the one
 * before: their arrival at the next one shows that. Hence everything that a collective uses in shared memory exists once, except what
 * is published before that is known, which exists twice and is used in turn.
 *
 * A control block is in each node's job memory:
 *   control          how far the local root is, and the group's failure
 *   members[L]       one per member on this node; see ls__member
 *   arrivals[L][2]   what they publish, and how far they are with rounds
 *   eager[2][p]      eager messages of all members of the group
 *   staging[L][D]    input that is not job memory, by round
 *   recv_window[D]   what came from other nodes, by round; every member copies from it what it needs
 */
#ifndef LS_COMM_MULTI_H
#define LS_COMM_MULTI_H

#include "comm/canonical.h"
#include "comm/cluster.h"
#include "comm/group.h"

enum {
    LS__MULTI_DEPTH = 32,          /* rounds under way, at most */
    LS__MULTI_EAGER_BYTES = 4096,  /* eager message of one rank, at most */
    LS__MULTI_EAGER_TOTAL = 65536, /* and of all ranks together, so that they are still one fast message */
    LS__MULTI_EAGER_LEAST = 64,
};
/* arrival.at of a buffer that is not job memory. */
#define LS__MULTI_STAGED UINT64_MAX
/* How long a rank that leaves its world waits for the notices of other ranks that leave, too. */
#define LS__MULTI_AWAIT_NS 100000000

typedef struct ls__multi_arrival {
    _Alignas(64) _Atomic uint64_t number; /* 1 + the collective's number, once all the rest is written */
    int64_t time;                         /* ls_now() */
    ls__fingerprint fingerprint;
    uint64_t count;
    uint64_t at; /* offset of the input in the job; LS__MULTI_STAGED; 0: none, or no rank reads it */
    _Alignas(64) _Atomic uint32_t in; /* rounds of input that others can read */
    _Atomic uint32_t received;        /* rounds in which this rank's part of the receive window is complete */
    _Atomic uint32_t out;             /* rounds that this rank is done with */
} ls__multi_arrival;

typedef struct ls__multi_control {
    _Alignas(64) _Atomic uint32_t references; /* members that have not left */
    _Alignas(64) _Atomic uint64_t agreed;     /* collectives that all nodes agreed on */
    int64_t last_arrival[2];                  /* at such a collective, by this node's clock, and which rank it was */
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

/* Messages that are sent or received together. Their memory grows as needed and is kept. */
typedef struct ls__message_batch {
    ls__message *list;
    int count, room;
    uint8_t *memory;
    size_t used, memory_room;
} ls__message_batch;

/* A round under way. The first exchange carries inputs or partial sums, the second one results. */
typedef struct ls__multi_slot {
    ls__message_batch first_in, first_out, second_in, second_out;
} ls__multi_slot;

/* Part of a point-to-point message; see multi_p2p.c. */
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

    /* Which member is where. Nodes are numbered within the group. */
    int nodes, node;      /* nodes of this group, and this one */
    int locals, local;    /* members on this node, and this one's place among them */
    int slices;           /* the most members on a node: so many can carry data at the same time */
    int *world_of;        /* by member: its rank in the world */
    int *node_of;         /* by member: its node */
    int *local_of;        /* by member: its place among the members of its node */
    int *node_size;       /* by node: members */
    int *node_members;    /* the members of node 0, those of node 1, ... */
    int *node_members_at; /* by node: where its members begin */

    /* The canonical sum: with as many partial sums as possible added in advance, and with none. */
    ls__subtree *subtrees[2];
    ls__canonical_step *steps[2];
    int subtree_count[2];

    /* The control block. */
    ls__multi_control *control;
    uint64_t control_at;
    ls__multi_arrival (*arrivals)[2]; /* by member of this node */
    uint8_t *eager, *staging, *recv_window;
    size_t eager_bytes, round_bytes;
    uint32_t depth; /* rounds under way */

    /* Fingerprints. */
    uint64_t published; /* collectives that this rank has published */
    bool headers_sent;
    ls__message_batch headers_in, headers_out;

    /* The pipeline of the collective under way: rounds that have passed each stage. */
    ls__multi_slot slots[LS__MULTI_DEPTH];
    uint32_t opened, filled, combined, received, delivered, closed;

    ls__leave *left;                      /* by member: whether it has left the group */
    ls__p2p_counts *p2p_begun, *p2p_done; /* by member: messages to it and from it */
    struct ls__p2p_state *p2p;            /* sends and receives under way */
    ls__fragment *fragments, *leaving;    /* spare ones; those of sends that are done for the caller */
    uint64_t activity;                    /* grows whenever anything happens */
    const void **in;                      /* p pointers, for ls__reduce_arrays() */
    void **partials;                      /* p, and one for each node */
    void *scratch;                        /* for ls__canonical_partial() */
    float *wide;                          /* for ls__canonical_finish() */
    size_t wide_room;
    uint8_t *own; /* this node's partial sums of a round */
    size_t own_room;
    ls__net_request **polled; /* for ls__net_test() */
    int polled_room;
    bool busy;      /* messages of this rank are under way */
    uint32_t polls; /* of the network */
} ls__multi;

/* The transport's part of a work. */
typedef struct ls__multi_work {
    bool staged;        /* this rank's data passes through staging */
    uint32_t rounds;    /* of the pipeline; 0: not planned yet */
    uint32_t in;        /* rounds copied into staging */
    size_t round_bytes; /* of a block, per round */
    struct ls__p2p_state *p2p;
} ls__multi_work;
_Static_assert(sizeof(ls__multi_work) <= LS__WORK_STATE_BYTES, "the state must fit into a work");

static inline ls__multi *ls__multi_of(const ls_group *g)
{
    return g->impl;
}
static inline ls__multi_work *ls__multi_work_of(const ls_work *w)
{
    return (ls__multi_work *)(void *)&w->state;
}
static inline int ls__multi_tag(const ls__multi *m, ls__tag_kind kind)
{
    return m->id << LS__TAG_KIND_BITS | (int)kind;
}
static inline ls__multi_arrival *ls__multi_arrival_of(const ls__multi *m, uint64_t number, int local)
{
    return &m->arrivals[local][number % 2];
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
/* The member at place `local`, modulo the number of members, of a node. */
static inline int ls__multi_member(const ls__multi *m, int node, int local)
{
    return m->node_members[m->node_members_at[node] + local % m->node_size[node]];
}
/* Elements of a block in a round, and where they begin. */
static inline size_t ls__multi_round_begin(const ls_work *w, uint32_t round)
{
    return (size_t)round * (ls__multi_work_of(w)->round_bytes / ls_dtype_size(w->type));
}
static inline size_t ls__multi_round_count(const ls_work *w, uint32_t round)
{
    size_t left = w->count - ls__multi_round_begin(w, round);
    size_t most = ls__multi_work_of(w)->round_bytes / ls_dtype_size(w->type);
    return left < most ? left : most;
}

/* multi_notice.c */
/* Fails the group on this node and sends a notice to members on other nodes. `wait`: until they have received it, or some time has
 * passed. From any thread. */
void ls__notice_abort(const ls__multi *m, ls_status status, const char *text, bool wait);
/* Sends the other members a notice that this rank leaves; `in_order`: by freeing the group. */
void ls__notice_leave(const ls__multi *m, bool in_order);
/* This process ends without having freed its groups: sends notices to the members of all of them. */
void ls__notice_leave_all(const ls__cluster *c);
/* Handles the notice that has come, if one has, and waits for the next. */
LS_MUST_CHECK ls_status ls__notice_receive(ls__cluster *c);
/* The same after polling the network. */
LS_MUST_CHECK ls_status ls__notice_poll(ls__cluster *c);
/* Handles notices that came before the group was made. */
void ls__notice_group_made(ls__multi *m);

/* multi_wait.c */
ls_status ls__multi_idle(ls_group *g, ls_work *w);
ls_status ls__multi_check_peers(ls_group *g, ls_work *w);
ls_status ls__multi_check_failed(ls_group *g);
/* Polls the network. */
LS_MUST_CHECK ls_status ls__multi_poll(ls_group *g);
LS_MUST_CHECK ls_status ls__multi_add_polled(ls__multi *m, int *count, ls__net_request *request);

/* multi_batch.c */
/* Adds a message to a batch; one of 0 bytes is left out. `data`: NULL for memory of the batch. `same`: the data of the message before. */
LS_MUST_CHECK ls_status ls__batch_add(ls__message_batch *b, int peer, size_t bytes, uint8_t *data, bool same);
/* Gives the batch's messages their memory. */
LS_MUST_CHECK ls_status ls__batch_place(ls__message_batch *b);
LS_MUST_CHECK ls_status ls__batch_send(const ls__multi *m, ls__message_batch *b, ls__tag_kind kind);
LS_MUST_CHECK ls_status ls__batch_recv(const ls__multi *m, ls__message_batch *b, ls__tag_kind kind);
/* Whether all of its messages were sent, or received. */
bool ls__batch_done(const ls__message_batch *b);
/* Empties it; the memory stays. */
void ls__batch_reset(ls__message_batch *b);
void ls__batch_free(ls__message_batch *b);
/* Memory of at least `bytes`: the old one, or new memory in its place with nothing in it. NULL: LS_ENOMEM. */
void *ls__multi_grow(void *memory, size_t *room, size_t bytes);

/* multi_pipeline.c */
LS_MUST_CHECK ls_status ls__multi_pipeline(ls_group *g, ls_work *w);
/* Input of round `round`, block `block`, of a member on this node. */
const uint8_t *ls__multi_input(const ls_group *g, const ls_work *w, int local, int block, uint32_t round);

/* What a collective does in a round; the pipeline calls these in order. Those that may be NULL have nothing to do then. */
typedef struct ls__pipeline_ops {
    /* Lists the messages of a round. */
    ls_status (*plan)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    /* All input of this node can be read: fills in first_out. May be NULL. */
    ls_status (*fill)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    /* first_in has come: fills in second_out, and this rank's part of the receive window. May be NULL. */
    ls_status (*combine)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    /* The receive window is complete: copies this rank's results. */
    ls_status (*deliver)(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot);
    bool input_is_read; /* others read this rank's input until they are done */
    bool chain;         /* the second messages of a node are the first ones of the next */
    bool sliced; /* a round is one part of the data, split among the ranks; otherwise a part of each rank's block */
} ls__pipeline_ops;
/* multi_reduce.c, multi_move.c */
extern const ls__pipeline_ops ls__pipeline_reduce, ls__pipeline_reduce_scatter;
extern const ls__pipeline_ops ls__pipeline_broadcast, ls__pipeline_allgather, ls__pipeline_exchange;

/* multi_p2p.c */
ls_status ls__multi_p2p_progress(ls_group *g, ls_work *w);
/* Adds the requests of sends and receives to the list that is polled. */
LS_MUST_CHECK ls_status ls__multi_p2p_poll(ls_group *g, int *count);
/* Frees the fragments of sends that have completed. */
void ls__multi_p2p_reap(ls__multi *m);
/* Cancels the receives under way. */
void ls__multi_p2p_cancel(ls__multi *m);
/* Frees the spare fragments. */
void ls__multi_p2p_free(ls__multi *m);

/* multi_group.c */
bool ls__multi_serves(const ls_world *world, int nodes);
LS_MUST_CHECK ls_status ls__multi_join(ls_world *world, ls_group **out);
LS_MUST_CHECK ls_status ls__multi_make(ls__new_group *n, uint64_t *place);
LS_MUST_CHECK ls_status ls__multi_enter(ls__new_group *n, uint64_t place, ls_group **out);
void ls__multi_discard(ls__new_group *n);
void ls__multi_release(ls_group *g);

#endif
