/* lockstep/ddp.h: data parallelism for any training loop. Hand over spans of gradients, say which are ready.
 *
 *     ls_ddp_begin(ddp, more_follow ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, samples_in_this_micro_batch);
 *     for (layer = last; layer >= 0; layer--) {
 *         backward(layer);                       // writes the gradient of the sum over its samples
 *         if (ls_ddp_ready(ddp, layer)) ...      // may start a bucket's all-reduce
 *     }
 *     if (ls_ddp_finish(ddp, &result)) ...       // after LS_DDP_SYNC, gradients hold the global mean
 *
 * Gradients  Each backward writes its own gradient, over whatever was there; adding up micro-batches is done here, in
 *            canonical order, so that bits do not depend on how micro-batches are spread over ranks. Between begin and
 *            finish of LS_DDP_SYNC a span that was said to be ready belongs to lockstep.
 * No sync    Whether gradients are synchronised is decided when they become ready, by the mode given to begin: there is
 *            no wrong place to put it.
 * Mean       The result is the sum over all micro-batches of all ranks, divided by the sum of their weights: exact also
 *            for a short last group, for micro-batches of different sizes, and for ranks that have run out of data.
 * Threads    one at a time. All ranks make the same begin and finish calls; spans may become ready in any order, though
 *            buckets are started in the same order everywhere. Other collectives on the world's group, and other ddps of
 *            the world, may come in between, if they come at the same place among the ready calls on every rank.
 * Failure    LS_EINVAL and LS_ESTATE harm nothing; any other error aborts the world's group with its message, so that no
 *            rank waits for another in vain, and every later call of the ddp but free returns it again. */
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
    float *grad;      /* the caller's memory: copied to where it is reduced, and back. NULL: ls_ddp_grad() tells where
                         lockstep put it, and nothing is copied. All spans of a ddp are of one kind */
    size_t count;     /* elements */
} ls_span;

/* Values by name. */
typedef struct ls_named {
    const char *name;
    float *data;
    size_t count;
} ls_named;

/* What is done with buffers: what a model keeps besides parameters, such as the running statistics of batch norms, which
 * each rank computes from its own part of the batch. */
typedef enum ls_buffers {
    LS_BUFFERS_BROADCAST = 0, /* everyone gets rank 0's */
    LS_BUFFERS_MEAN = 1,      /* everyone gets the mean over the ranks */
} ls_buffers;

typedef enum ls_ddp_mode {
    LS_DDP_SYNC = 0,       /* the last micro-batch of a step */
    LS_DDP_ACCUMULATE = 1, /* more follow */
} ls_ddp_mode;

/* Called for each bucket; may change the data, and must not call its ddp. A status other than LS_OK ends the step with it on this rank; the others get
 * LS_EABORTED with the same message. */
typedef ls_status (*ls_bucket_fn)(void *user, int index, float *data, size_t count);

typedef struct ls_ddp_options {
    size_t bucket_bytes;       /* a bucket is closed when it has this much; 0: 4 MiB, on several machines 256 KiB */
    size_t first_bucket_bytes; /* the first one, so that communication starts early; 0: 1 MiB, or 256 KiB */
    int slots;        /* micro-batches of a step over all ranks; a rank must have a power of two of them (or be alone),
                         else the sum would depend on the number of ranks. 0: not checked */
    bool any_order;   /* slots that do not divide so are accepted; the bits then depend on the number of ranks */
    bool bf16;        /* buckets travel as bfloat16, added in float32; the bits then depend on the number of ranks */
    bool means;       /* gradients handed over are means over their micro-batch, not sums */
    bool keep_sums;   /* leave the sum undivided: the caller divides by result.weight, say in its update */
    bool fixed_order; /* keep the order of the spans; default: after the first step, the order in which rank 0's became
                         ready, which moves gradients that lockstep allocated (result.moved) */
    bool to_first;    /* the result is written to the machine's first rank only, where all its ranks read it:
                         ls_ddp_sums(). For one update that they share instead of one each */
    bool no_overlap;  /* start nothing before finish: to measure what overlap is worth */
    const ls_named
        *buffers; /* made the same on all ranks at the end of each LS_DDP_SYNC; lent for the ddp's life; NULL: none */
    size_t n_buffers;
    ls_buffers buffer_mode;
    ls_bucket_fn before; /* when a bucket is full, before it is reduced; NULL: none */
    ls_bucket_fn after;  /* when it is reduced; with to_first on the machine's first rank only; NULL: none */
    void *user;          /* for both */
} ls_ddp_options;

/* Collective. `spans` in the order in which backward is expected to finish them. Names, counts and options must be the
 * same on all ranks: a difference is LS_EMISMATCH, and the message names it. On failure *out is NULL. The world must
 * outlive the ddp. */
LS_API LS_MUST_CHECK ls_status ls_ddp_open(ls_ddp **out, ls_world *world, const ls_span *spans, size_t n_spans,
                                           const ls_ddp_options *options);
/* Not a collective call. In the middle of a step, when buckets have been started, it aborts the world's group: the others
 * cannot complete the step either. */
LS_API void ls_ddp_free(ls_ddp **ddp);

/* Where backward writes span i's gradient. */
LS_API float *ls_ddp_grad(const ls_ddp *ddp, size_t span);

/* With to_first: the flat block of reduced gradients (means, or with keep_sums the sums), after finish of LS_DDP_SYNC. It is
 * where the machine's first rank writes its next gradients, so all must have done with it before that one begins again: end the
 * shared update with a barrier or another collective. Span i is at ls_ddp_offset(). Without to_first: this rank's own block;
 * NULL if gradients are the caller's memory. */
LS_API const float *ls_ddp_sums(const ls_ddp *ddp);
/* Where span i lies in the flat block of ls_ddp_elements() floats, both in elements. Spans are padded to multiples of 16
 * and the first one lies last: the order of a model whose parameters lie in the order of forward. */
LS_API size_t ls_ddp_offset(const ls_ddp *ddp, size_t span);
LS_API size_t ls_ddp_elements(const ls_ddp *ddp);

/* `weight`: what the micro-batch counts in the mean, usually its samples or tokens, from 1e-30 to 1e30; 0: it adds nothing,
 * whatever its gradients hold (a rank that has run out of data begins and finishes with 0 and says nothing ready). */
LS_API LS_MUST_CHECK ls_status ls_ddp_begin(ls_ddp *ddp, ls_ddp_mode mode, double weight);
/* Span i's gradient of this micro-batch is complete, and its weights will not be read any more. Once per span. */
LS_API LS_MUST_CHECK ls_status ls_ddp_ready(ls_ddp *ddp, size_t span);

/* Moves on what is under way, without waiting. Between machines the network has to be driven, and ready() may come too seldom
 * for that: call this every millisecond or so while backward computes, in the same thread. It costs nothing if there is nothing
 * to do; on one machine there never is. An error comes again from the next call. */
LS_API LS_MUST_CHECK ls_status ls_ddp_poll(ls_ddp *ddp);

typedef struct ls_ddp_result {
    double weight;  /* of all micro-batches of all ranks since the last sync */
    int64_t unused; /* spans that were ready on no rank; their gradient is zero */
    bool moved;     /* ask ls_ddp_grad() again */
    int joined;     /* ranks that have run out of data: see ls_ddp_join() */
} ls_ddp_result;

/* Ends a micro-batch. Spans not said to be ready count as zero. With LS_DDP_SYNC, waits until all gradients are reduced.
 * `result` may be NULL and is filled after LS_DDP_SYNC. */
LS_API LS_MUST_CHECK ls_status ls_ddp_finish(ls_ddp *ddp, ls_ddp_result *result);

/* Uneven data: a rank that has none left calls this instead of going on. It takes part in the others' steps with zeros, so
 * that their mean stays exact, until all ranks have called it. After each of those steps gradients hold the mean as usual, and
 * `step` is called so that this rank makes the same update as the others; NULL: nothing is done. A status other than LS_OK
 * ends it with that, and aborts the group: the others count on this rank. Every rank calls it at its end, also when all had the same amount. */
typedef ls_status (*ls_step_fn)(void *user, const ls_ddp_result *result);
LS_API LS_MUST_CHECK ls_status ls_ddp_join(ls_ddp *ddp, ls_step_fn step, void *user);

/* Whether span i was ready on no rank in the last synchronised step. The first time that there are such spans, rank 0 logs
 * their number and names. */
LS_API bool ls_ddp_unused(const ls_ddp *ddp, size_t span);

typedef struct ls_ddp_stats {
    int64_t steps; /* synchronised */
    int64_t micro_batches;
    int64_t buckets;       /* per step */
    int64_t bytes;         /* reduced per step */
    int64_t started_early; /* buckets started before finish, over all steps */
    int64_t wait_ns;       /* spent in finish, waiting for buckets, over all steps */
    int64_t unused;        /* spans that were ready on no rank, in the last step */
    int64_t joined;        /* steps in which this rank had no data any more */
    int64_t buffer_bytes;  /* of buffers that are made the same, per step */
} ls_ddp_stats;
LS_API ls_ddp_stats ls_ddp_get_stats(const ls_ddp *ddp);

/* ---- Parameters at the start. */

/* Collective: everyone gets rank `root`'s values. */
LS_API LS_MUST_CHECK ls_status ls_params_broadcast(ls_world *world, const ls_named *params, size_t n, int root);
/* Collective: LS_EMISMATCH on all ranks if any value differs anywhere; names the first such parameter and two ranks. */
LS_API LS_MUST_CHECK ls_status ls_params_verify(ls_world *world, const ls_named *params, size_t n);

/* Collective: makes buffers the same on all ranks, in one message. With ls_ddp_options.buffers that is done at each sync. */
LS_API LS_MUST_CHECK ls_status ls_buffers_sync(ls_world *world, const ls_named *buffers, size_t n, ls_buffers mode);

/* The numbers of ranks that `slots` micro-batches can be spread over in canonical order, as text ("1, 2, 4, 8"). */
LS_API void ls_slots_ranks(int slots, char *out, size_t bytes);
/* LS_EINVAL with that list unless `slots` can be spread over `ranks`. */
LS_API LS_MUST_CHECK ls_status ls_slots_check(int slots, int ranks);

#ifdef __cplusplus
}
#endif
#endif
