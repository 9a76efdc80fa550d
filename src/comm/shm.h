/* The shared-memory transport's control block and what its files share.
 *
 * A group's control block lies in the job's heap:
 *
 *   control      what the group is, and its failure
 *   members[p]   one line per rank, written by that rank: how far it is, what it did last, what it waits for
 *   slots[S]     one per collective under way: which chunks are claimed and done
 *   arrivals[S][p]  each rank's arrival: fingerprint, time stamp, where its data is; one writer per line
 *   mail[S][p]   small messages
 *   staging[p]   a pipeline for buffers that are not in the window
 *   channels[p][p]  send and receive
 *
 * A collective with number k uses slot k mod S. A rank arrivals; when all arrivals are there, the fingerprints are compared
 * and the work begins. A slot is used again only when every rank has finished with it (members[].finished).
 *
 * Three ways to do a collective, chosen by the size that all agree on:
 *   small    every rank mails its data and each one computes the result from the p mails: one exchange of lines
 *   reduce   (shm_reduce.c) chunks are claimed one by one by whoever is awake, each summed over the p buffers and
 *            written to all of them: 2*p*n bytes of traffic, and a rank that is busy elsewhere holds nobody up
 *   move     (shm_move.c) receivers take what is theirs out of the senders' memory
 */
#ifndef LS_COMM_SHM_H
#define LS_COMM_SHM_H

#include "comm/group.h"

enum {
    LS__SHM_SLOTS = 64,         /* collectives under way per group */
    LS__SHM_ROUNDS = 4,         /* parts of the staging pipeline */
    LS__SHM_INLINE_BYTES = 16,  /* data that fits into the post itself */
    LS__SHM_EAGER_BYTES = 4096, /* up to here by mail: one exchange beats two */
    LS__SHM_EAGER_STRIDE =
        LS__SHM_EAGER_BYTES + 64 /* so that the first lines do not all want the same place in a cache */
};
/* arrival.at of a buffer outside the window. */
#define LS__SHM_STAGED UINT64_MAX

typedef struct ls__shm_arrival {
    _Alignas(64) _Atomic uint64_t number; /* 1 + the collective's number, once all the rest is there */
    int64_t stamp;
    ls__fingerprint fingerprint;
    uint64_t count;
    uint64_t at;          /* where the data is in the window, or LS__SHM_STAGED */
    _Atomic uint32_t in;  /* rounds that this rank has put into its staging */
    _Atomic uint32_t out; /* rounds that this rank has taken out of others' memory */
    uint8_t payload[LS__SHM_INLINE_BYTES];
} ls__shm_arrival;

typedef struct ls__shm_slot {
    _Alignas(64) _Atomic uint64_t claimed;              /* chunks that someone has taken on */
    _Alignas(64) _Atomic uint64_t done[LS__SHM_ROUNDS]; /* chunks finished in rounds j with j mod ROUNDS = i */
} ls__shm_slot;

typedef struct ls__shm_member {
    _Alignas(64) _Atomic uint64_t finished;        /* this rank is through with so many collectives, the oldest ones */
    _Atomic uint64_t last_fingerprint, last_count; /* the last call that it completed, */
    _Atomic uint64_t last_number;                  /* and 1 + its number; 0: none */
    int32_t local;                                 /* its local rank in the job, for bells and states; fixed */
    int32_t world;                                 /* its rank in the world, for messages; fixed */
    _Atomic bool left;                             /* it has freed the group */
    _Alignas(64) _Atomic uint64_t waiting_fingerprint; /* the call that it sleeps in; 0: none (a barrier is not 0) */
    _Atomic uint64_t waiting_count, waiting_number;
} ls__shm_member;

typedef struct ls__shm_control {
    uint64_t bytes; /* of the whole block */
    uint32_t size;
    uint32_t channel_bytes; /* of one channel's buffer, a power of two */
    uint64_t round_bytes;   /* of staging: a rank has LS__SHM_ROUNDS of these */
    uint64_t members_at, slots_at, arrivals_at, eager_at, staging_at, channels_at; /* from the block's start */
    _Alignas(64) _Atomic uint32_t references;                                      /* members that have not left */
    _Alignas(64) _Atomic uint32_t slot_waiters; /* members that wait for a slot to become free */
    _Alignas(64) ls__failure failure;
} ls__shm_control;

/* One direction between two ranks: a ring of bytes. What each side has begun and completed is there for the other to see,
 * so that neither has to guess whether something will come. */
typedef struct ls__shm_channel {
    _Alignas(64) _Atomic uint64_t head; /* bytes ever written */
    _Atomic uint64_t sends, sent;       /* sends that were begun, and those that are done */
    _Alignas(64) _Atomic uint64_t tail; /* bytes ever read */
    _Atomic uint64_t receives, received;
    _Alignas(64) uint8_t data[];
} ls__shm_channel;

/* A member's private view of the group. */
typedef struct ls__shm {
    ls__shm_control *control;
    uint64_t control_at; /* heap offset */
    ls__shm_member *members;
    ls__shm_slot *slots;
    ls__shm_arrival *arrivals;
    uint8_t *eager, *staging, *channels;
    uint64_t all_finished;       /* every member is known to be through with this many */
    const ls_work *staging_user; /* whose rounds are in this rank's staging */
    bool oversubscribed;         /* more ranks than cores */
    const void **in;             /* p pointers, for ls__reduce_arrays() */
    void **out;                  /* likewise */
} ls__shm;

static inline ls__shm *ls__shm_of(const ls_group *g)
{
    return g->impl;
}
static inline ls__shm_arrival *ls__shm_arrival_of(const ls_group *g, uint64_t number, int rank)
{
    return &ls__shm_of(g)->arrivals[(number % LS__SHM_SLOTS) * (uint64_t)g->size + (uint64_t)rank];
}
static inline ls__shm_slot *ls__shm_slot_of(const ls_group *g, uint64_t number)
{
    return &ls__shm_of(g)->slots[number % LS__SHM_SLOTS];
}
/* Where a rank's small message is. */
static inline uint8_t *ls__shm_eager_of(const ls_group *g, uint64_t number, int rank, size_t bytes)
{
    if (bytes <= LS__SHM_INLINE_BYTES) return ls__shm_arrival_of(g, number, rank)->payload;
    return ls__shm_of(g)->eager +
           ((number % LS__SHM_SLOTS) * (uint64_t)g->size + (uint64_t)rank) * LS__SHM_EAGER_STRIDE;
}
/* Where round j of a rank's staging is. */
static inline uint8_t *ls__shm_staging_of(const ls_group *g, int rank, uint32_t round)
{
    const ls__shm *s = ls__shm_of(g);
    return s->staging + ((uint64_t)rank * LS__SHM_ROUNDS + round % LS__SHM_ROUNDS) * s->control->round_bytes;
}

/* Bytes that a rank contributes: p blocks or one, by the call; 0 if this rank contributes none. */
size_t ls__shm_send_bytes(const ls_work *w, int rank);
/* p if the call's input is cut into a block per rank, else 1. */
int ls__shm_send_blocks(const ls_work *w);

/* shm_wait.c */
ls_status ls__shm_idle(ls_group *g, ls_work *w);
ls_status ls__shm_watch(ls_group *g, ls_work *w);
/* The group's or the job's failure, if there is one: breaks the group and returns its status. */
ls_status ls__shm_look(ls_group *g);
/* Breaks the group for all members, with this text. Returns the status the group is broken with. */
ls_status ls__shm_break(ls_group *g, ls_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void ls__shm_abort(ls_group *g, ls_status status, const char *text);
/* Wakes members that sleep. Call after a release store that one of them may wait for. */
void ls__shm_ring(ls_group *g);

/* shm_reduce.c, shm_move.c, shm_apply.c, shm_pair.c: progress on a work whose ranks have all arrived. */
ls_status ls__shm_reduce_progress(ls_group *g, ls_work *w);
ls_status ls__shm_move_progress(ls_group *g, ls_work *w);
ls_status ls__shm_parallel_for_progress(ls_group *g, ls_work *w);
ls_status ls__shm_p2p_start(ls_group *g, ls_work *w);
ls_status ls__shm_p2p_progress(ls_group *g, ls_work *w);
/* Whether `rank`'s send to `partner` (receive from it) with this number cannot end before the partner makes another call. */
bool ls__shm_p2p_stuck(const ls_group *g, int rank, int partner, ls_collective_kind kind, uint64_t number);
/* Whether a work whose ranks have all arrived needs something of `rank` that is not there yet. */
bool ls__shm_reduce_lacks(const ls_group *g, const ls_work *w, int rank);
bool ls__shm_move_lacks(const ls_group *g, const ls_work *w, int rank);
bool ls__shm_lacks(const ls_group *g, const ls_work *w, int rank);

/* Sets left[r] for members, by rank in the world, that have freed the group. */
void ls__shm_note_left(const ls_group *g, bool *left);
/* Makes the control block of a group; members[i] are the local rank in the job and the rank in the world. */
LS_MUST_CHECK ls_status ls__shm_make(ls_world *world, int p, const int32_t (*members)[2], uint64_t *at);
/* This rank's view of a control block. */
LS_MUST_CHECK ls_status ls__shm_enter(ls_world *world, uint64_t at, int rank, ls_group **out);

/* True once this rank may use its staging for `w`: earlier users are through. */
bool ls__shm_claim_staging(ls_group *g, const ls_work *w);

#endif
