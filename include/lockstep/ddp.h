/* lockstep/ddp.h: data parallelism for any training loop. Pass spans of gradients, report which are ready.
 *
 *     ls_ddp_begin(ddp, more_follow ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, samples_in_this_micro_batch);
 *     for (layer = last; layer >= 0; layer--) {
 *         backward(layer);                       // writes the gradient of the sum over its samples
 *         if (ls_ddp_ready(ddp, layer)) ...      // may start a bucket's all-reduce
 *     }
 *     if (ls_ddp_finish(ddp, &result)) ...       // after LS_DDP_SYNC, gradients hold the global mean
 *
 * Gradients  Each backward overwrites the gradients. lockstep adds up the micro-batches, in canonical order, so that the bits
 *            do not depend on how micro-batches are spread over ranks. Between begin and finish of LS_DDP_SYNC a span
 *            that is ready belongs to lockstep.
 * No sync    After begin with LS_DDP_ACCUMULATE, spans that become ready are only added up on this rank; after LS_DDP_SYNC their sums
 *            are also reduced over all ranks.
 * Mean       The result is the sum over all micro-batches of all ranks, divided by the sum of their weights. It is exact also
 *            for a short last step, for micro-batches of different sizes, and for ranks that have run out of data.
 * Threads    one at a time. All ranks make the same begin and finish calls; spans may become ready in any order, and
 *            buckets are started in the same order on all ranks. Other collectives on the world's group, and other ddps of
 *            the world, may come in between, if they come at the same place among the ready calls on every rank.
 * Failure    LS_EINVAL and LS_ESTATE have no effect. Any other error aborts the world's group with its message, so that no
 *            rank waits for one that failed, and every later call of the ddp except free returns it again. */
#ifndef LOCKSTEP_DDP_H
#define LOCKSTEP_DDP_H

#include <stdbool.h>
#include "lockstep/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_ddp ls_ddp;

/* A parameter's gradient. */
typedef struct ls_span {
    const char *name; /* for messages; copied; NULL: "span 3" */
    /* user-owned memory: copied to where it is reduced, and back. NULL: lockstep allocates it and nothing is copied;
     * see ls_ddp_grad(). All spans of a ddp are of one kind */
    float *grad;
    size_t count; /* elements */
} ls_span;

/* Values by name. */
typedef struct ls_named {
    const char *name;
    float *data;
    size_t count;
} ls_named;

/* How buffers are made equal. Buffers are what a model keeps besides parameters, such as the running statistics of batch
 * norms, which each rank computes from its own part of the batch. */
typedef enum ls_buffers {
    LS_BUFFERS_BROADCAST = 0, /* all ranks get rank 0's */
    LS_BUFFERS_MEAN = 1,      /* all ranks get the mean over the ranks */
} ls_buffers;

typedef enum ls_ddp_mode {
    LS_DDP_SYNC = 0,       /* the last micro-batch of a step */
    LS_DDP_ACCUMULATE = 1, /* more follow */
} ls_ddp_mode;

/* The order in which gradients are added. */
typedef enum ls_sum_order {
    /* the same bits on any number of ranks, from 1 to the number of slots. With `slots` 0, and with hooks and bfloat16, only where each
     * rank has the same power of two of the micro-batches, or is the only rank */
    LS_SUM_ORDER_CANONICAL = 0,
    LS_SUM_ORDER_ANY = 1, /* any number of slots; the bits then depend on the number of ranks */
} ls_sum_order;

/* The element type in which gradients are communicated. They are always added in float32. */
#define LS_WIRE_LIST(X)          \
    X(LS_WIRE_F32, 0, "float32") \
    X(LS_WIRE_BF16, 1, "bfloat16") /* half the bytes; the bits then depend on the number of ranks */

typedef enum ls_wire {
#define X(name, value, text) name = (value),
    LS_WIRE_LIST(X)
#undef X
} ls_wire;
enum { LS_WIRE_COUNT = 0 LS_WIRE_LIST(LS_COUNT_ENTRY) };

/* The micro-batches of a rank, if a step has `slots` of them: the consecutive range [*first, *first + *count). The first
 * slots % ranks ranks have one more than the others. LS_EINVAL unless 0 <= rank < ranks and slots >= 1. */
LS_API LS_MUST_CHECK ls_status ls_slots_of_rank(int slots, int ranks, int rank, int *first, int *count);

/* ---- Communication hooks: replace the all-reduce of a bucket, for example by a compressed one. */

typedef struct ls_bucket_span {
    size_t span;   /* index, as in ls_ddp_open() */
    size_t offset; /* in ls_bucket.grads, in elements */
    size_t count;
} ls_bucket_span;

/* A bucket, as a hook sees it. It stays the same from step to step, except for `weight` and what is in `grads`. */
typedef struct ls_bucket {
    int index; /* buckets are started in this order, from 0, on all ranks */
    /* [count]: in start() the sum of this rank's micro-batches; after finish() the sum over all ranks. The padding
     * between spans is zero and must stay zero */
    float *grads;
    size_t count;
    const ls_bucket_span *spans;
    size_t n_spans;
    ls_group *group; /* the world's group, for the hook's collectives */
    bool is_read;    /* false: this rank's `grads` are not read after finish(); see reduce_to_local_root */
    double weight;   /* in finish(): of the step, over all ranks; lockstep divides by it afterwards */
} ls_bucket;

/* Both functions are called on every rank, bucket by bucket in the order of their index, so both may make collective
 * calls. They must not call their ddp. A status other than LS_OK fails the step with it on this rank: the group is
 * aborted, works of earlier buckets are waited for, and the other ranks get LS_EABORTED with the same message, in the same
 * step. LS_EINVAL, LS_ESTATE and any status above zero become LS_EABORTED, because from a ddp they do not mean a failed step. An
 * error of the group that a hook returns is passed on as it is.
 *
 * start   The bucket's gradients are complete; backward is usually still running. Leaves the work to wait for in *work, which
 *         is NULL before, or waits itself and leaves NULL. A work left there is waited for also if start fails.
 * finish  In ls_ddp_finish(), when all buckets' works are done. All ranks wait for the last one's, with a barrier. NULL:
 *         nothing to do. */
typedef struct ls_comm_hook {
    /* NULL: no hook, the default by `wire`; then finish must be NULL, too */
    ls_status (*start)(void *user, const ls_bucket *bucket, ls_work **work);
    ls_status (*finish)(void *user, const ls_bucket *bucket);
    void *user;
} ls_comm_hook;

/* For hooks: starts the sum of `buf` over the ranks in canonical order, to where the result is read: to all ranks, or with
 * reduce_to_local_root on one node to rank 0. With the bucket's own `grads` it is what the default hook does. */
LS_API LS_MUST_CHECK ls_status ls_bucket_reduce(const ls_bucket *bucket, void *buf, size_t count, ls_dtype type,
                                                ls_work **work);

typedef struct ls_ddp_options {
    size_t bucket_bytes;       /* a bucket is closed at this size; 0: 4 MiB, on several nodes 256 KiB */
    size_t first_bucket_bytes; /* the first one, so that communication starts early; 0: 1 MiB, or 256 KiB */
    /* micro-batches of a step over all ranks, at least one per rank; each rank makes those of ls_slots_of_rank(), in order. 0: not
     * checked, and each rank's micro-batches are added up before the ranks' are */
    int slots;
    ls_sum_order sum_order;
    ls_wire wire;
    bool grads_averaged; /* gradients passed in are means over their micro-batch, not sums */
    bool keep_sums;      /* do not divide the sum: the caller divides by result.weight, say in its update */
    /* keep the order of the spans; default: after the first step, the order in which rank 0's became ready, which moves
     * gradients that lockstep allocated (result.moved). Hooks, bfloat16 and reduce_to_local_root imply it */
    bool fixed_order;
    /* the result is written once per node, to its local root's memory, where all ranks of the node read it:
     * ls_ddp_reduced(). For one update that they share instead of one each */
    bool reduce_to_local_root;
    bool no_overlap; /* start nothing before finish: to measure what overlap is worth */
    /* made equal on all ranks at the end of each LS_DDP_SYNC; used during the ddp's life; NULL: none */
    const ls_named *buffers;
    size_t n_buffers;
    ls_buffers buffer_mode;
    ls_comm_hook hook; /* zero: all-reduce in the type of `wire` */
    void *reserved[2]; /* NULL */
} ls_ddp_options;

/* Collective. `spans` in the order in which backward is expected to finish them. Names, counts and options must be the
 * same on all ranks: a difference is LS_EMISMATCH, and the message names it. On failure *out is NULL. The world must
 * outlive the ddp. */
LS_API LS_MUST_CHECK ls_status ls_ddp_open(ls_ddp **out, ls_world *world, const ls_span *spans, size_t n_spans,
                                           const ls_ddp_options *options);
/* Not a collective call. In the middle of a step, when buckets have been started, it aborts the world's group: the other
 * ranks cannot complete the step either. */
LS_API void ls_ddp_free(ls_ddp **ddp);

/* Where backward writes span i's gradient. Gradients that lockstep allocated are in one block, the first span last, each padded
 * to a multiple of 16 elements: the layout of a model whose parameters are in the order of forward. */
LS_API float *ls_ddp_grad(const ls_ddp *ddp, size_t span);
/* Where span i's reduced gradient is read, after finish of LS_DDP_SYNC: the same place, or with reduce_to_local_root that of
 * the local root, in the same layout. The local root writes its next gradients there, so all ranks of the node must be done with
 * it before that one begins again: end the shared update with a barrier or another collective. */
LS_API const float *ls_ddp_reduced(const ls_ddp *ddp, size_t span);

/* `weight`: of the micro-batch in the mean, usually its samples or tokens, from 1e-30 to 1e30; 0: it adds nothing, whatever
 * its gradients hold (a rank that has run out of data begins and finishes with 0 and reports nothing ready). */
LS_API LS_MUST_CHECK ls_status ls_ddp_begin(ls_ddp *ddp, ls_ddp_mode mode, double weight);
/* Span i's gradient of this micro-batch is complete, and its weights will not be read any more. Once per span. */
LS_API LS_MUST_CHECK ls_status ls_ddp_ready(ls_ddp *ddp, size_t span);

/* Makes progress on what is started, without waiting. Between nodes the network has to be driven, and ready() may be called too
 * seldom for that: call this every millisecond or so while backward computes, in the same thread. It costs nothing if there is
 * nothing to do; on one node there never is. An error is returned again by the next call. */
LS_API LS_MUST_CHECK ls_status ls_ddp_poll(ls_ddp *ddp);

typedef struct ls_ddp_result {
    double weight;  /* of all micro-batches of all ranks since the last sync */
    int64_t unused; /* spans that were ready on no rank; their gradient is zero */
    bool moved;     /* ask ls_ddp_grad() again; never with gradients of the caller */
    int joined;     /* ranks that have run out of data: see ls_ddp_join() */
    double reserved[2];
} ls_ddp_result;

/* Ends a micro-batch. Spans that are not ready count as zero. With LS_DDP_SYNC, waits until all gradients are reduced.
 * `result` may be NULL and is filled after LS_DDP_SYNC. */
LS_API LS_MUST_CHECK ls_status ls_ddp_finish(ls_ddp *ddp, ls_ddp_result *result);

/* Uneven data: a rank that has none left calls this. It takes part in the remaining steps with zeros, so that their mean
 * stays exact, until all ranks have called it. After each of those steps gradients hold the mean as usual, and `step` is called
 * so that this rank makes the same update; NULL: nothing is done. A status other than LS_OK ends it as a hook's does, and aborts
 * the group. Micro-batches that this rank has accumulated and not synchronized are part of the next step; if no rank has data
 * left, that is one more step, in which all ranks call `step`. Every rank calls it at its end, also when all had the same amount
 * of data. */
typedef ls_status (*ls_step_fn)(void *user, const ls_ddp_result *result);
LS_API LS_MUST_CHECK ls_status ls_ddp_join(ls_ddp *ddp, ls_step_fn step, void *user);

/* Whether span i was ready on no rank in the last synchronized step. The first time that there are such spans, rank 0 logs
 * their number and names. */
LS_API bool ls_ddp_unused(const ls_ddp *ddp, size_t span);

typedef struct ls_ddp_stats {
    int64_t steps; /* synchronized */
    int64_t micro_batches;
    int64_t buckets;       /* per step */
    int64_t bytes;         /* of gradients per step, as sent by the default hook */
    int64_t started_early; /* buckets started before ls_ddp_finish() was called, over all steps */
    int64_t wait_ns;       /* spent in finish, waiting for buckets, over all steps */
    int64_t unused;        /* spans that were ready on no rank, in the last step */
    int64_t joined;        /* steps in which this rank had run out of data */
    int64_t buffer_bytes;  /* of buffers that are made equal, per step */
    int64_t reserved[4];
} ls_ddp_stats;
LS_API ls_ddp_stats ls_ddp_get_stats(const ls_ddp *ddp);

/* ---- Parameters at the start. */

/* Collective: all ranks get rank `root`'s values. */
LS_API LS_MUST_CHECK ls_status ls_params_broadcast(ls_world *world, const ls_named *params, size_t n, int root);
/* Collective: LS_EMISMATCH on all ranks if any value differs anywhere; names the first such parameter and two ranks. */
LS_API LS_MUST_CHECK ls_status ls_params_verify(ls_world *world, const ls_named *params, size_t n);

/* ---- Elastic jobs (lockstep run --elastic) continue when ranks are killed: the launcher starts all ranks again, perhaps another number
 * of them, and they continue from the state that was committed last. In other jobs nothing is kept, and the calls do nothing. */

typedef struct ls_elastic ls_elastic;

/* Collective. `arrays`: what the program needs to continue (weights, optimizer state), with the same values on all ranks; they are used
 * until ls_elastic_free(). If earlier ranks of the job have committed a state, the arrays get it and *step is its step. Otherwise they stay
 * as they are, and *step is 0. Names and counts must be those of the earlier ranks, else LS_EMISMATCH; no memory for two copies is
 * LS_ENOMEM. A job has one state: a second ls_elastic with the same arrays is that state again. */
LS_API LS_MUST_CHECK ls_status ls_elastic_open(ls_elastic **out, ls_world *world, const ls_named *arrays, size_t n,
                                               int64_t *step);
/* Collective, after each step, counted from 1: the arrays' values are what later ranks continue from. Each rank copies its share. If a rank
 * dies during the call, the state before it stays. */
LS_API LS_MUST_CHECK ls_status ls_elastic_commit(ls_elastic *elastic, int64_t step);
LS_API void ls_elastic_free(ls_elastic **elastic);

#ifdef __cplusplus
}
#endif
#endif
