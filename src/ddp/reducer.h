/* The reducer's state, shared by open.c (open and free), ddp.c (a step) and hook.c (communication hooks). */
#ifndef LS_DDP_REDUCER_H
#define LS_DDP_REDUCER_H

#include "comm/failure.h"
#include "comm/slot_parts.h"
#include "ddp/counter.h"
#include "ddp/on_sum.h"
#include "ddp/plan.h"

typedef enum ls__bucket_state { LS__FILLING, LS__FULL, LS__STARTED, LS__DONE } ls__bucket_state;

typedef struct ls__reduce_bucket {
    ls_bucket seen; /* what hooks see. The first member: ls_bucket_reduce() finds the bucket by its address */
    ls__bucket_plan plan;
    ls__bucket_state state;
    size_t left; /* spans that are not ready */
    ls_ddp *ddp; /* that it belongs to */
    ls_work *work;
} ls__reduce_bucket;

/* What is summed over the ranks at the end of a step. The weight comes last: there is one for each part. */
enum { LS__TOTAL_UNUSED, LS__TOTAL_JOINED, LS__TOTAL_WEIGHT };

struct ls_ddp {
    ls_world *world;
    ls_group *group;
    ls_record *record;    /* this rank's events */
    ls_group *node_group; /* the ranks of this node; the same group if there is only one node */
    ls_ddp_options options;
    ls_comm_hook hook; /* options.hook, or one of lockstep's own */
    size_t n;
    char **names;
    size_t *counts, *offsets; /* elements; place in the block */
    uint32_t *bucket_of;
    uint32_t *order;              /* spans in the order of the block */
    ls_bucket_span *bucket_spans; /* the same as hooks see them */
    float **user_grads;           /* user-owned gradients; NULL: gradients are in the block */
    float *block;                 /* gradients, in shared memory; then this rank's other parts */
    ls__slot_parts *parts; /* the slots are not spread evenly: see comm/slot_parts.h; NULL: each rank has one sum */
    int n_parts;           /* of this rank */
    float *shared_block; /* the local root's block, if the result is elsewhere (ls__ddp_sum_into()); NULL: it is not */
    float *reduced;      /* the result: this block, or with reduce_to_local_root that of the local root */
    /* ranks of the node that have freed their ddp, counted after the end of `reduced`; the last one deallocates it. NULL without
     * reduce_to_local_root */
    _Atomic uint32_t *freed;
    ls__sum_fn on_sum; /* called with sums as they are written; NULL: none */
    void *on_sum_user;
    ls__own_sums own_sums; /* begin NULL: nobody */
    void *wire;            /* the block in the element type of options.wire; NULL: that is float32 */
    size_t total;          /* elements of the block */
    ls__reduce_bucket *buckets;
    size_t n_buckets, next_start, next_done;
    double *totals; /* [n_totals] */
    size_t n_totals;
    ls_work *totals_work; /* their all-reduce; NULL: not under way */

    ls_status failed; /* a step failed and the group is aborted: what every later call returns, with this text */
    char failed_text[LS__FAILURE_BYTES];
    /* a collective on the block failed: another rank may still write to it, so it is not deallocated */
    bool block_in_use;
    bool in_hook; /* a function of the caller is running */
    bool running; /* between begin and finish */
    ls_ddp_mode mode;
    double weight;   /* of this micro-batch */
    uint32_t micro;  /* micro-batches since the last sync */
    int part;        /* of this rank, that this micro-batch belongs to */
    uint32_t before; /* micro-batches of that part before it; they are in the counter */
    bool ends_part;  /* it is the last of its part */
    uint64_t epoch;  /* micro-batches ever; a span is ready if its mark has this value */
    uint64_t *ready_mark;
    uint8_t *used; /* ready in some micro-batch since the last sync; after it, on some rank */
    uint32_t *ready_order;
    size_t n_ready;
    bool rebuilt;
    bool over_network;  /* ls_ddp_poll() has something to do */
    int64_t polled;     /* when it last did */
    bool joining;       /* this rank has run out of data */
    bool unused_logged; /* spans without a gradient have been logged */
    ls__counter counter;
    ls_ddp_stats stats;
};

/* Waits for everything that is started, whatever its outcome; sets d->block_in_use if a work failed. */
void ls__ddp_drain(ls_ddp *d);
/* Lays spans out in the order of d->order, and cuts buckets. */
LS_MUST_CHECK ls_status ls__ddp_plan(ls_ddp *d);

/* Collective: makes buffers equal on all ranks, in one message. */
LS_MUST_CHECK ls_status ls__buffers_sync(ls_world *world, const ls_named *buffers, size_t n, ls_buffers mode);

/* ---- hook.c */

/* The hook that is used: the caller's, or lockstep's own for options.wire. */
void ls__hook_choose(ls_ddp *d);
/* Bytes of an element in communication. */
size_t ls__wire_bytes(ls_wire wire);
/* Calls start() and finish(); the latter may be missing. */
LS_MUST_CHECK ls_status ls__hook_start(ls_ddp *d, ls__reduce_bucket *b);
LS_MUST_CHECK ls_status ls__hook_finish(ls_ddp *d, ls__reduce_bucket *b, double weight);

/* Around a function of the caller. It can leave a message only through a failed call of ours, so it begins with none. */
void ls__hook_enter(ls_ddp *d);
/* Returns the function's status, with a message that begins with `where`. */
LS_MUST_CHECK ls_status ls__hook_leave(ls_ddp *d, ls_status status, const char *where);

#endif
