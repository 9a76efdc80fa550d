/* lockstep/comm.h: the world of ranks, groups of them, and the collectives among them.
 *
 * Threads  a world and its groups belong to one thread at a time; ls_group_abort() may be called from any.
 * Fork     not usable in a child of fork(); exec is fine.
 * Order    every member of a group makes the same calls in the same order. Each call carries a fingerprint (number,
 *          operation, type, count, root); a difference is an error on all ranks that names both sides.
 * Bits     sums are in canonical order, tree(n) = tree(m) + tree(n - m) with m the largest power of two below n, over
 *          the ranks in order: the same bits on every rank, in every run, over every transport. bfloat16 is added in
 *          float32 and rounded once.
 * Failure  LS_EINVAL is found before data moves and harms nothing. Any other error breaks the group: later calls return
 *          the same code and message, and only abort and free still act. A call in which all members have done their
 *          part may still complete.
 * Leaving  a rank that frees a group or its world, or whose process exits, is noticed at once by members that wait for it,
 *          on every machine: LS_EPEER with its name. What it did before it left counts: calls that it completed, and
 *          messages that it sent, complete at the others too. Under mpirun and srun a process that has freed its world
 *          waits at its exit until all ranks have, or one has failed.
 * Signals  the library changes no signal's action. SIGPIPE is held back while MPI is called: a connection whose other
 *          end died is an error of the call and does not end the process. */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include "lockstep/base.h"
#include "lockstep/record.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_world ls_world; /* this process's place in the job */
typedef struct ls_group ls_group; /* ranks that make collective calls together */
typedef struct ls_work ls_work;   /* a started collective */

typedef struct ls_world_options {
    int timeout_ms;       /* how long a rank may be missing before a call fails; 0: what the launcher was told, or
                             30,000; < 0: wait for ever */
    size_t staging_bytes; /* shared memory per rank and group for buffers that are not group memory; 0: 1 MiB, and over
                             several machines what it takes to fill the network */
    const char *mpi;      /* which MPI plug-in: "openmpi", "mpich" or the absolute path of one; NULL: the launcher's */
} ls_world_options;

/* Finds out where this process is: under `lockstep run`, `mpirun`, `srun`, or alone (a world of one rank). Variables
 * of the environment that contradict each other are LS_EINVAL with both quoted. On failure *out is NULL. Alone and
 * under mpirun and srun a process may open its world again after it has freed it; under `lockstep run` a rank opens it once,
 * and a second time is LS_ESTATE. */
LS_API LS_MUST_CHECK ls_status ls_world_open(ls_world **out, const ls_world_options *options);
/* A key-value store that the caller has: values that one rank sets, all can get. */
typedef struct ls_store {
    void *user;
    /* Sets a key that was not set before. */
    ls_status (*set)(void *user, const char *key, const void *value, size_t bytes);
    /* Waits at most timeout_ms (< 0: for ever; then LS_ETIMEOUT) until the key is set, and writes its value, which has `bytes`. */
    ls_status (*get)(void *user, const char *key, void *value, size_t bytes, int timeout_ms);
} ls_store;

/* Opens a world without a launcher: rank `rank` of `size` finds the others through `store`, with keys that begin with "lockstep/"; they must not
 * have been used in it before. All ranks must be on one node and of one user (else LS_EUNSUPPORTED). The callbacks are called from within this call
 * only. A rank that ends without freeing its world is noticed by the others within 0.1 s. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_world_open_store(ls_world **out, const ls_store *store, int rank, int size,
                                                   const ls_world_options *options);
/* Leaves. Frees the world, its memory and its group of all ranks; groups made by split must be freed before. Not a
 * collective call: see "Leaving" above for what it means to the others. */
LS_API void ls_world_free(ls_world **world);

LS_API int ls_world_rank(const ls_world *world);
LS_API int ls_world_size(const ls_world *world);
LS_API int ls_world_local_rank(const ls_world *world); /* among the ranks of this machine */
LS_API int ls_world_local_size(const ls_world *world);
LS_API int ls_world_node(const ls_world *world); /* which machine, counted from 0 */
LS_API int ls_world_node_count(const ls_world *world);
/* "self", "shm" or "mpi": what carries the data. */
LS_API const char *ls_world_transport(const ls_world *world);

/* This rank's record (lockstep/record.h), to which collectives and reducers add their events. It belongs to the world, and keeps the
 * newest events in memory until ls_record_start(). */
LS_API ls_record *ls_world_record(ls_world *world);

/* The group of all ranks; it belongs to the world. */
LS_API ls_group *ls_world_group(ls_world *world);

/* Memory that the ranks of this machine share: collectives on it copy nothing. Aligned to 4,096 and zero. Belongs to
 * the world and is gone with it; ls_world_dealloc() gives it back earlier, accepts NULL, and sets *memory to NULL. Not
 * to be given back while a collective uses it. */
LS_API LS_MUST_CHECK ls_status ls_world_alloc(ls_world *world, size_t bytes, void **memory);
LS_API void ls_world_dealloc(ls_world *world, void **memory);

/* Collective, for a group whose members are all on one machine (else LS_EUNSUPPORTED): one piece of memory that all of
 * them see, zero at first. It belongs to the world; one member may give it back early with ls_world_dealloc(). */
LS_API LS_MUST_CHECK ls_status ls_group_share(ls_group *group, size_t bytes, void **memory);

/* Collective: members with the same `color` (>= 0) form a new group, in the order of `key`, then of rank. With color <
 * 0 a rank takes part in the call and gets no group (*out is NULL). Works of the group may be under way. */
LS_API LS_MUST_CHECK ls_status ls_group_split(ls_group *group, int color, int key, ls_group **out);
/* Called by the members of a new group alone: `ranks` in the world, n of them, in the order of the group and the same on all, this rank among
 * them. They find each other through `store`, by a `key` that no other group has. All must be on one node. */
LS_API LS_MUST_CHECK ls_status ls_group_open(ls_world *world, const int *ranks, int n, const ls_store *store,
                                             const char *key, ls_group **out);
/* Frees a group made by split or open. Works still under way are abandoned, and freed with it. Not a collective call. */
LS_API void ls_group_free(ls_group **group);
LS_API int ls_group_rank(const ls_group *group);
LS_API int ls_group_size(const ls_group *group);
/* Breaks this group for all members; the group it was split from, and those split from it, are not affected. From any
 * thread. Members that wait in a call of the group, or begin one after ls_group_abort() returned, get LS_EABORTED with
 * `reason`. Exactly: on the aborting rank's machine always. To other machines it is a message, which is looked for when a
 * call begins and while one waits; ls_group_abort() returns when the members there have received it, or after 0.2 s if
 * some are not making calls. Until it has arrived, a call may still complete there if the aborting rank had begun it
 * before; no call that it had not begun ever does. */
LS_API void ls_group_abort(ls_group *group, const char *reason);

/* ---- Collectives. Buffers may be any memory; that from ls_world_alloc() is reduced in place without copies. `count`
 * is in elements and may be 0. Except where noted, input and output must not overlap. */

/* Every rank's `buf` becomes the sum (mean, ...) over all ranks. */
LS_API LS_MUST_CHECK ls_status ls_allreduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op);
/* The root's `buf` becomes the sum over all ranks; the others' stay as they are. */
LS_API LS_MUST_CHECK ls_status ls_reduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root);
/* `send` is p blocks of `count`; rank r's `recv` becomes the sum of all ranks' block r. `recv` may be block r of
 * `send`. */
LS_API LS_MUST_CHECK ls_status ls_reduce_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                                 ls_op op);
/* `recv` becomes the p blocks of all ranks' `send`. `send` may be block r of `recv`. */
LS_API LS_MUST_CHECK ls_status ls_allgather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type);
LS_API LS_MUST_CHECK ls_status ls_broadcast(ls_group *g, void *buf, size_t count, ls_dtype type, int root);
/* Like all-gather, at the root only; elsewhere `recv` is ignored and may be NULL. */
LS_API LS_MUST_CHECK ls_status ls_gather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                         int root);
/* Block r of the root's `send` goes to rank r's `recv`; elsewhere `send` is ignored and may be NULL. */
LS_API LS_MUST_CHECK ls_status ls_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type,
                                          int root);
/* Block q of rank r's `send` becomes block r of rank q's `recv`; `count` is a block's. */
LS_API LS_MUST_CHECK ls_status ls_alltoall(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type);
LS_API LS_MUST_CHECK ls_status ls_barrier(ls_group *g);
/* A pair of calls between two ranks. Sends from one rank to another arrive in order. A send may return before its
 * receive was called. Type and count must be the same on both sides. */
LS_API LS_MUST_CHECK ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype type, int to);
LS_API LS_MUST_CHECK ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype type, int from);

/* ---- The same, started now and waited for later. Several may be under way; those of one group begin in the order of
 * the calls. They may finish, and be tested and waited for, in any order, which may differ from rank to rank, with
 * blocking calls in between. Buffers are lent to the group until ls_work_wait() returned or ls_work_test() said LS_OK.
 * Progress is made inside calls, on all groups of the world: a program that computes in between calls ls_work_test() now
 * and then. On error *out is NULL and, for LS_EINVAL, the buffers are untouched. */
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

/* Waits until the work is done and frees it; *work becomes NULL whatever the outcome. */
LS_API LS_MUST_CHECK ls_status ls_work_wait(ls_work **work);
/* Makes what progress is possible without waiting. LS_OK: done (and *work is freed and NULL); LS_PENDING: not yet. Like a
 * wait it fails when a member has left (found within 0.05 s of testing) and when nothing has moved for the timeout, of which a
 * pause between two tests counts for a second at most; *work is NULL then. That ranks wait for each other is for waits to
 * find: who tests may still make the other call. */
LS_API LS_MUST_CHECK ls_status ls_work_test(ls_work **work);

#ifdef __cplusplus
}
#endif
#endif
