/* The shared-memory transport's control block and what its files share.
 *
 * A group's control block is in the job's heap:
 *
 *   control          what the group is, and its failure
 *   members[p]       see ls__member
 *   slots[S]         one per collective under way: which chunks are claimed and done
 *   arrivals[S][p]   what each rank publishes: fingerprint, time, where its data is; one writer per cache line
 *   eager[S][p]      eager messages
 *   staging[p]       a pipeline for buffers that are not job memory
 *   channels[p][p]   point-to-point
 *
 * A collective with number k uses slot k mod S. When all ranks have published their arrival, the fingerprints are compared and the
 * collective begins. A slot is reused only when every rank has finished with it (members[].finished); until then a work that needs it
 * waits in its rank's queue.
 *
 * Three algorithms, chosen by the size that all agree on:
 *   eager    every rank publishes its data, and each computes its result from the p inputs: one exchange of cache lines
 *   reduce   (shm_reduce.c) ranks that wait claim chunks, sum each over the p buffers and write it to all of them: 2*p*n bytes of
 *            traffic, and a rank that is busy elsewhere does not delay the others
 *   move     (shm_move.c) receivers copy what is for them out of the senders' memory
 *
 * Memory order, on CPUs that keep none by themselves (Arm). Whatever is not atomic has one writer at a time, and every hand-over is a
 * release store that the next reader or writer has acquired:
 *
 *   what is handed over                       released by                   acquired by
 *   arrival, eager message, input buffer      arrival.number                gather_arrivals(), check_ahead()
 *   slot (claimed, done)                      rank 0's arrival.number       the same: nobody uses it before all have arrived
 *   slot and eager memory to their next use   member.finished               slot_is_free()
 *   chunks of a sum or a parallel_for         slot.done, an addition        round_done(), progress()
 *   staging, filled                           arrival.in                    round_is_in(), source()
 *   staging or buffer, emptied                arrival.out; slot.done        copied_by_all(); round_done()
 *   bytes of a ring, and their space          channel.head; channel.tail    receive_some(); send_some()
 *   control block, heap memory                references; heap.lock         the last to leave; the next to lock
 *   text of a failure                         failure.set                   ls__failure_is_set()
 *
 * Additions to `done` are releases that follow one another, so the reader of the last one has acquired all of them. Claims are relaxed:
 * a claim hands over no data, and atomic additions give each number once; that a rank may have one (member.claiming) is read only when it
 * has ended. Reports (what a rank waits in, deadlocks) are read while they
 * change and believed only if several looks agree. Waking needs full fences: see wait.h. tests/soak/memory_order weakens each access in
 * turn and has ThreadSanitizer look (its list UNSEEN has those that carry no data); tests/comm/wake_model checks the fences. */
#ifndef LS_COMM_SHM_H
#define LS_COMM_SHM_H

#include "comm/group.h"

enum {
    LS__SHM_SLOTS = 64,             /* published collectives per group; more wait in the queue */
    LS__SHM_ROUNDS = 4,             /* parts of the staging pipeline */
    LS__SHM_INLINE_BYTES = 80,      /* data that fits into the arrival itself, which has two cache lines */
    LS__SHM_EAGER_BYTES = 4096,     /* up to here, one exchange is faster than two */
    LS__SHM_EAGER_SUM_BYTES = 1024, /* the same for all-reduce: all ranks would read and add what one can */
    LS__SHM_EAGER_STRIDE =
        LS__SHM_EAGER_BYTES + 64 /* so that the first lines of the ranks' messages are in different cache sets */
};
/* arrival.at of a buffer that is not job memory. */
#define LS__SHM_STAGED UINT64_MAX

typedef struct ls__shm_arrival {
    _Alignas(128) _Atomic uint64_t number; /* 1 + the collective's number, once all the rest is written */
    int64_t time;                          /* ls_now() */
    ls__fingerprint fingerprint;
    uint64_t count;
    uint64_t at;          /* offset of the data in the job, or LS__SHM_STAGED */
    _Atomic uint32_t in;  /* rounds that this rank has copied into its staging */
    _Atomic uint32_t out; /* rounds that this rank has copied out of other ranks' memory */
    uint8_t payload[LS__SHM_INLINE_BYTES];
} ls__shm_arrival;

typedef struct ls__shm_slot {
    _Alignas(64) _Atomic uint64_t claimed;              /* chunks that a rank has claimed */
    _Alignas(64) _Atomic uint64_t done[LS__SHM_ROUNDS]; /* chunks done in rounds j with j mod ROUNDS = i */
} ls__shm_slot;

typedef struct ls__shm_control {
    uint64_t bytes; /* of the whole block */
    uint32_t size;
    uint32_t channel_bytes; /* of one channel's buffer, a power of two */
    uint64_t round_bytes;   /* of staging: a rank has LS__SHM_ROUNDS of these */
    uint64_t members_at, slots_at, arrivals_at, eager_at, staging_at, channels_at; /* from the block's start */
    _Alignas(64) _Atomic uint32_t references;                                      /* members that have not left */
    _Alignas(64) _Atomic uint32_t slot_waiters; /* members that have works without a slot */
    _Alignas(64) ls__failure failure;
} ls__shm_control;

/* One direction between two ranks: a ring of bytes. What each side has begun and completed is visible to the other, so that neither
 * has to guess whether a message will come. */
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
    ls__shm_slot *slots;
    ls__shm_arrival *arrivals;
    uint8_t *eager, *staging, *channels;
    uint64_t all_finished;       /* every member is known to have finished this many */
    const ls_work *staging_user; /* whose rounds are in this rank's staging */
    bool awaits_slot;            /* it is one of control->slot_waiters: works in the queue have no slot yet */
    bool oversubscribed;         /* more ranks than cores */
    const void **in;             /* p pointers, for ls__reduce_arrays() */
    void **out;                  /* likewise */
} ls__shm;

/* The transport's part of a work. */
typedef struct ls__shm_work {
    int seen;           /* ranks whose arrival was seen and whose fingerprint was checked */
    bool staged;        /* this rank's data passes through staging */
    bool any_staged;    /* some rank's does */
    bool published;     /* other ranks see it; before that it waits for a free slot */
    uint32_t rounds;    /* of the staging pipeline; 0: not planned yet */
    uint32_t in, out;   /* rounds copied in, and out, by this rank */
    size_t round_bytes; /* of a block, per round */
    size_t moved;       /* send, receive: bytes so far, message header included */
    /* What another rank was last seen to wait in while it waited for this one, and how often in a row. */
    uint32_t deadlock_looks;
    uint64_t deadlock_fingerprint, deadlock_number;
} ls__shm_work;
_Static_assert(sizeof(ls__shm_work) <= LS__WORK_STATE_BYTES, "the state must fit into a work");

static inline ls__shm *ls__shm_of(const ls_group *g)
{
    return g->impl;
}
static inline ls__shm_work *ls__shm_work_of(const ls_work *w)
{
    return (ls__shm_work *)(void *)&w->state;
}
static inline ls__shm_arrival *ls__shm_arrival_of(const ls_group *g, uint64_t number, int rank)
{
    return &ls__shm_of(g)->arrivals[(number % LS__SHM_SLOTS) * (uint64_t)g->size + (uint64_t)rank];
}
static inline ls__shm_slot *ls__shm_slot_of(const ls_group *g, uint64_t number)
{
    return &ls__shm_of(g)->slots[number % LS__SHM_SLOTS];
}
/* Where a rank's eager message is. */
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

/* How a collective that is not eager is carried out once all ranks have arrived. */
typedef struct ls__shm_algorithm {
    ls_status (*progress)(ls_group *g, ls_work *w);
    /* Whether the work needs something of `rank` that it has not done yet. NULL: never. */
    bool (*needs)(const ls_group *g, const ls_work *w, int rank);
} ls__shm_algorithm;
extern const ls__shm_algorithm ls__shm_reduce, ls__shm_move, ls__shm_parallel_for;
/* Before a staged work of ls__shm_reduce is published: copies what staging holds, while other ranks are on their way. */
void ls__shm_reduce_prepare(ls_group *g, ls_work *w);

/* Around the claims of a work's chunks. A rank that dies with a chunk leaves it undone. */
static inline void ls__shm_claims_begin(const ls_group *g, const ls_work *w)
{
    atomic_store_explicit(&g->members[g->rank].claiming, w->number + 1, memory_order_relaxed);
}
static inline void ls__shm_claims_end(const ls_group *g)
{
    atomic_store_explicit(&g->members[g->rank].claiming, 0, memory_order_relaxed);
}
static inline bool ls__shm_may_have_chunk(const ls_group *g, const ls_work *w, int rank)
{
    return atomic_load_explicit(&g->members[rank].claiming, memory_order_relaxed) == w->number + 1;
}

/* Whether a work whose ranks have all arrived needs something of `rank` that it has not done yet. */
bool ls__shm_needs(const ls_group *g, const ls_work *w, int rank);
/* True once this rank may use its staging for `w`: earlier users have finished. */
bool ls__shm_claim_staging(ls_group *g, const ls_work *w);

/* shm_wait.c */
ls_status ls__shm_idle(ls_group *g, ls_work *w);
ls_status ls__shm_check_peers(ls_group *g, ls_work *w);

/* shm_p2p.c */
ls_status ls__shm_p2p_start(ls_group *g, ls_work *w);
ls_status ls__shm_p2p_progress(ls_group *g, ls_work *w);
/* Whether `rank`'s send to `partner` (or receive from it) with this number cannot end before the partner calls something else. */
bool ls__shm_p2p_stuck(const ls_group *g, int rank, int partner, ls_collective_kind kind, uint64_t number);

/* shm_group.c */
bool ls__shm_serves(const ls_world *world, int nodes);
LS_MUST_CHECK ls_status ls__shm_join(ls_world *world, ls_group **out);
LS_MUST_CHECK ls_status ls__shm_make(ls__new_group *n, uint64_t *place);
LS_MUST_CHECK ls_status ls__shm_enter(ls__new_group *n, uint64_t place, ls_group **out);
void ls__shm_release(ls_group *g);

#endif
