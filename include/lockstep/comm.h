/* lockstep/comm.h: the world of ranks, groups of them, and the collectives of a group.
 *
 * Threads  any thread may call the collectives of a group, wait for works and test them, and free a group. Calls from several threads
 *          take turns; while one waits for other ranks, the others proceed. The calls of one group must come in the same order on
 *          every rank, so use a group per thread. A world is opened, split into groups and freed by one thread at a time.
 * Fork     not usable in a child of fork(), which does not get the shared memory either; other ranks do not notice its exit. exec is fine.
 * Order    every member of a group calls the same collectives in the same order. Each has a fingerprint (number, kind, type, count,
 *          root); a difference is an error on all ranks that names both sides. Ranks that wait for each other in two groups, because they
 *          call them in different orders, end with the timeout, if there is one.
 * Bits     sums are in canonical order, tree(n) = tree(m) + tree(n - m) with m the largest power of two below n, over the ranks in
 *          order: the same bits on every rank, in every run, over every transport. bfloat16 and float16 are added in float32 and rounded
 *          once.
 * Failure  LS_EINVAL is detected before data moves and has no effect. Any other error ends the group: later calls return the same
 *          code and message, and only abort and free still work. A collective in which all members have done their part may still
 *          complete.
 * Leaving  when a rank frees a group or its world, or its process exits, members that wait for it fail at once, on every node, with
 *          LS_EPEER and a message that names it. What it did before it left counts: collectives that it completed, and messages that
 *          it sent, complete on the other ranks too. Under mpirun and srun a process that has freed its world waits at its exit until
 *          all ranks have, or one has failed.
 * Signals  the library does not change any signal action. SIGPIPE is blocked while MPI is called: a connection whose other end died
 *          is an error of the call and does not end the process. */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include <stdbool.h>
#include "lockstep/base.h"
#include "lockstep/record.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_world ls_world; /* all ranks of the job, as this process sees them */
typedef struct ls_group ls_group; /* ranks that call collectives together */
typedef struct ls_work ls_work;   /* a started collective */

/* A key-value store of the caller: values that one rank sets, all can get. A status other than LS_OK fails the call of lockstep with
 * it, and with the store's message (ls_error_set() sets one). */
typedef struct ls_store {
    void *user;
    /* Sets a key that was not set before. */
    ls_status (*set)(void *user, const char *key, const void *value, size_t bytes);
    /* Waits until the key is set, at most timeout_ms (< 0: no limit; then LS_ETIMEOUT), and writes its value, which has `bytes`. */
    ls_status (*get)(void *user, const char *key, void *value, size_t bytes, int timeout_ms);
    void *reserved[2];
} ls_store;

/* Moves messages between nodes where there is no MPI, over connections of the caller, such as those of another library. It only has to
 * deliver whole messages from one rank to another, in order: sums are computed by this library, so the bits are the same as with MPI. */
typedef struct ls_network ls_network; /* what a carrier reports to */
typedef struct ls_carrier {
    const char *name; /* for messages: "gloo" */
    void *user;
    /* Connects all ranks; called by all of them together if they are on more than one node. From then on the carrier may call
     * ls_network_sent(), ls_network_received() and ls_network_failed(), from any thread. If it fails, no other function is called. */
    ls_status (*open)(void *user, ls_network *network);
    /* Sends a message without waiting for it to arrive. `data` does not change until ls_network_sent(network, message). */
    ls_status (*send)(void *user, int to, const void *data, size_t bytes, void *message);
    /* Closes the connections. With `healthy`, it returns when all messages are sent. Messages that arrive after the call are not
     * reported, and once it has returned the carrier makes no calls. */
    void (*close)(void *user, bool healthy);
    void *reserved[2];
} ls_carrier;
/* Called by a carrier: a message was sent, and its data is no longer needed; a message arrived; the connection to a rank is lost, which
 * fails the calls that need the network. */
LS_API void ls_network_sent(ls_network *network, void *message);
LS_API void ls_network_received(ls_network *network, int from, const void *data, size_t bytes);
LS_API void ls_network_failed(ls_network *network, int rank, const char *why);

typedef struct ls_world_options {
    /* how long a rank may be missing before a collective fails; 0: the launcher's --timeout, or 30,000; < 0: no limit */
    int timeout_ms;
    /* shared memory per rank and group for buffers that are not from ls_world_alloc(), at most 1 GiB; 0: 1 MiB, and between nodes
     * what it takes to keep the network busy */
    size_t staging_bytes;
    const char *mpi; /* MPI plug-in: "openmpi", "mpich" or an absolute path; NULL: the one of the launcher */
    /* For programs that another launcher started: rank `rank` of `size` finds the others through this store, with keys that begin
     * with "lockstep/" and must not have been used in it before. Its functions are called while the world is opened, and not later.
     * All ranks must pass the same size (else LS_EMISMATCH) and be of one user. When a rank ends without freeing its world, the
     * others fail within 0.1 s. NULL: the launcher decides */
    const ls_store *store;
    int rank, size;
    const ls_carrier *carrier; /* with a store: moves bytes between nodes; NULL: other nodes are LS_EUNSUPPORTED */
    void *reserved[2];
} ls_world_options;

/* Joins the job that this process was started in by `lockstep run`, `mpirun` or `srun`, or the ranks that options->store connects;
 * without either, a world of one rank. Environment variables that contradict each other are LS_EINVAL, and the message quotes both.
 * Under `lockstep run` a rank opens its world once, and a second time is LS_ESTATE; otherwise a process may open it again after it
 * has freed it. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_world_open(ls_world **out, const ls_world_options *options);
/* Leaves. Frees the world, its memory and its group of all ranks; groups made by split must be freed before. Not a collective: see
 * "Leaving" above for what happens on other ranks. */
LS_API void ls_world_free(ls_world **world);

LS_API int ls_world_rank(const ls_world *world);
LS_API int ls_world_size(const ls_world *world);

/* Where this rank is. */
typedef struct ls_world_info {
    int local_rank, local_size; /* among the ranks of this node, and their number */
    int node, nodes;            /* this node, counted from 0, and their number */
    /* how data moves between all ranks: "self" (one rank), "shm" (one node) or "mpi" (several nodes, by MPI or by a carrier) */
    const char *transport;
    void *reserved[2];
} ls_world_info;
LS_API ls_world_info ls_world_get_info(const ls_world *world);

/* This rank's record (lockstep/record.h), to which collectives and reducers add their events. It belongs to the world, and keeps the
 * newest events in memory until ls_record_start(). */
LS_API ls_record *ls_world_record(ls_world *world);

/* The group of all ranks; it belongs to the world. */
LS_API ls_group *ls_world_group(ls_world *world);

/* Memory that the ranks of this node share: collectives on it need no copies. Aligned to 4,096 and zero-filled. It belongs to the world
 * and is freed with it; ls_world_dealloc() frees it earlier, accepts NULL, and sets *memory to NULL. Do not free it while a collective
 * uses it. */
LS_API LS_MUST_CHECK ls_status ls_world_alloc(ls_world *world, size_t bytes, void **memory);
LS_API void ls_world_dealloc(ls_world *world, void **memory);
/* Makes the caller's memory shared, as if it were from ls_world_alloc(), at its address and with its contents. It must be whole
 * pages (of 4,096 bytes) of a mapping that the caller owns, for example of another library's file descriptor, which then no longer
 * backs these pages. Nothing else may use them during the call. Not a collective: it is for this rank alone. The owner unmaps the
 * pages as before; after that ls_world_disown() frees the shared memory behind them. Without it that happens when the same
 * addresses are adopted again, or found to be other memory, or the job ends. In a world of one rank there is nothing to do. On
 * failure the memory is as it was. */
LS_API LS_MUST_CHECK ls_status ls_world_adopt(ls_world *world, void *memory, size_t bytes);
LS_API void ls_world_disown(ls_world *world, const void *memory);

/* Collective: members with the same `color` (>= 0) form a new group, ordered by `key`, then by rank. With color < 0 a rank takes part in
 * the call and gets no group (*out is NULL). Works of the group may be under way. */
LS_API LS_MUST_CHECK ls_status ls_group_split(ls_group *group, int color, int key, ls_group **out);
/* Called by the members of a new group only: `ranks` in the world, n of them, in the order of the group and the same on all, this rank
 * included. They find each other through `store`, by a `key` (and keys that begin with it) that no other group has. */
LS_API LS_MUST_CHECK ls_status ls_group_open(ls_world *world, const int *ranks, int n, const ls_store *store,
                                             const char *key, ls_group **out);
/* Frees a group made by split or open. Works still under way are abandoned, and freed with it. Not a collective. */
LS_API void ls_group_free(ls_group **group);
LS_API int ls_group_rank(const ls_group *group);
LS_API int ls_group_size(const ls_group *group);
/* Ends this group for all members; the group it was split from, and those split from it, are not affected. From any thread. Members
 * that wait in a collective of the group, or start one after ls_group_abort() returned, get LS_EABORTED with `reason`. On the aborting
 * rank's node that always holds. Members on other nodes get an abort message, which they check for when a collective starts and while
 * one waits; ls_group_abort() returns when they have received it, or after 0.2 s if some make no calls. Until it has arrived, a
 * collective may still complete there if the aborting rank had started it before; one that it had not started never completes. */
LS_API void ls_group_abort(ls_group *group, const char *reason);

/* ---- Collectives. Buffers may be any memory that is aligned to the size of an element (else LS_EINVAL); memory from ls_world_alloc() is
 * reduced in place without copies. `count` is in elements and may be 0. Except where noted, input and output must not overlap. p is the
 * size of the group. */

/* Every rank's `buf` becomes the sum (mean, ...) over all ranks. */
LS_API LS_MUST_CHECK ls_status ls_allreduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op);
/* The root's `buf` becomes the sum over all ranks; on other ranks it does not change. */
LS_API LS_MUST_CHECK ls_status ls_reduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root);
/* `send` is p blocks of `count`; rank r's `recv` becomes the sum of all ranks' block r. `recv` may be block r of `send`. */
LS_API LS_MUST_CHECK ls_status ls_reduce_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                                 ls_op op);
/* `recv` becomes the p blocks of all ranks' `send`. `send` may be block r of `recv`. */
LS_API LS_MUST_CHECK ls_status ls_allgather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type);
LS_API LS_MUST_CHECK ls_status ls_broadcast(ls_group *g, void *buf, size_t count, ls_dtype type, int root);
/* Like all-gather, at the root only; on other ranks `recv` is ignored and may be NULL. */
LS_API LS_MUST_CHECK ls_status ls_gather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                         int root);
/* Rank r's `recv` becomes block r of the root's `send`; on other ranks `send` is ignored and may be NULL. */
LS_API LS_MUST_CHECK ls_status ls_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                          int root);
/* Block q of rank r's `send` becomes block r of rank q's `recv`; `count` is that of a block. */
LS_API LS_MUST_CHECK ls_status ls_alltoall(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type);
/* All-gather of blocks of different sizes: rank r's `send` has counts[r] elements, and `recv` becomes the blocks of all ranks, one after
 * the other. All ranks pass the same p counts; a difference is LS_EMISMATCH on all ranks, before data moves. `send` must not be in
 * `recv`. */
LS_API LS_MUST_CHECK ls_status ls_allgatherv(ls_group *g, const void *send, void *recv, const size_t *counts,
                                             ls_dtype type);
/* All-to-all of blocks of different sizes: `send` is a block of send_counts[q] elements for each rank q, one after the other, and `recv`
 * a block of recv_counts[q] from each. What a rank sends and what the other one expects must agree (else LS_EMISMATCH, before data
 * moves). Both of these are made of several collectives, and block. */
LS_API LS_MUST_CHECK ls_status ls_alltoallv(ls_group *g, const void *send, const size_t *send_counts, void *recv,
                                            const size_t *recv_counts, ls_dtype type);
/* out[i] = factor * in[i] for floating-point types; `out` may be `in`. The factor is a float32 for types up to 32 bits, and each product is
 * rounded once. Not a collective. Call it before a reducing collective with LS_SUM if each rank has a factor of its own. */
LS_API LS_MUST_CHECK ls_status ls_premultiply(void *out, const void *in, size_t count, ls_dtype type, double factor);
LS_API LS_MUST_CHECK ls_status ls_barrier(ls_group *g);
/* Point-to-point. Messages from one rank to another arrive in order. A send may return before the receive was called. Type and count must
 * be equal on both sides. Two ranks of a node that wait for each other are named (LS_EMISMATCH); a cycle of three or more ends with the
 * timeout, if there is one. */
LS_API LS_MUST_CHECK ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype type, int to);
LS_API LS_MUST_CHECK ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype type, int from);

/* ---- The same without blocking: started now and waited for later. Any number may be under way, and starting one does not wait for
 * other ranks; those of one group start in the order of the calls. They may finish, and be tested and waited for, in any order, which
 * may differ from rank to rank, with blocking calls in between. The group uses the buffers until ls_work_wait() has returned, or
 * ls_work_test() has returned LS_OK. Progress is made inside calls, on all groups of the world: a program that computes in between
 * should call ls_work_test() now and then. On error *out is NULL and, for LS_EINVAL, the buffers are unchanged. */
LS_API LS_MUST_CHECK ls_status ls_allreduce_start(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op,
                                                  ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_reduce_start(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root,
                                               ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_reduce_scatter_start(ls_group *g, const void *send, void *recv, size_t count,
                                                       ls_dtype type, ls_op op, ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_allgather_start(ls_group *g, const void *send, void *recv, size_t count,
                                                  ls_dtype type, ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_broadcast_start(ls_group *g, void *buf, size_t count, ls_dtype type, int root,
                                                  ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_gather_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                               int root, ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_scatter_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                                int root, ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_alltoall_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                                 ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_barrier_start(ls_group *g, ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_send_start(ls_group *g, const void *buf, size_t count, ls_dtype type, int to,
                                             ls_work **out);
LS_API LS_MUST_CHECK ls_status ls_recv_start(ls_group *g, void *buf, size_t count, ls_dtype type, int from,
                                             ls_work **out);

/* Waits until the work is done and frees it; *work becomes NULL in any case. */
LS_API LS_MUST_CHECK ls_status ls_work_wait(ls_work **work);
/* Makes progress without waiting. LS_OK: done (*work is freed and NULL); LS_PENDING: not yet. Like a wait it fails when a member has left
 * (detected within 0.05 s of testing) and when nothing has moved for the timeout, of which a pause between two tests counts for a second
 * at most; *work is NULL then. Deadlocks are detected by waits only: a rank that tests may still make the matching call. */
LS_API LS_MUST_CHECK ls_status ls_work_test(ls_work **work);

/* ---- Messages with tags. Between two ranks of a group use either these or the calls without tags. Messages of one tag from one rank
 * arrive in order; a receive takes the first message that has its tag, whatever other messages came before it. Progress is made inside
 * calls. A group's messages belong to one thread at a time. */
typedef struct ls_p2p ls_p2p; /* a send or receive with a tag */
/* receive from whichever rank sends first; all other members must stay in the group meanwhile */
#define LS_ANY_RANK (-1)

/* The buffer is used until the message is done. On error *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_send_tagged(ls_group *g, const void *buf, size_t bytes, int to, int64_t tag,
                                              ls_p2p **out);
LS_API LS_MUST_CHECK ls_status ls_recv_tagged(ls_group *g, void *buf, size_t bytes, int from, int64_t tag,
                                              ls_p2p **out);
/* Waits until the message is done and frees it; *message becomes NULL in any case. *from, if not NULL, is the other rank. A message of
 * another size than the buffer is LS_EMISMATCH, is dropped, and does not end the group. */
LS_API LS_MUST_CHECK ls_status ls_p2p_wait(ls_p2p **message, int *from);
/* Makes progress without waiting. LS_OK: done, and freed; LS_PENDING: not yet. */
LS_API LS_MUST_CHECK ls_status ls_p2p_test(ls_p2p **message, int *from);
/* Cancels a receive whose message has not begun to arrive; waits for any other. Accepts NULL. */
LS_API void ls_p2p_cancel(ls_p2p **message);

#ifdef __cplusplus
}
#endif
#endif
