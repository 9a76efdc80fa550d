/* The reducer's state, for the files that it is made of: open.c (coming and going) and ddp.c (a step). */
#ifndef LS_DDP_REDUCER_H
#define LS_DDP_REDUCER_H

#include "comm/job.h"
#include "ddp/counter.h"
#include "ddp/on_sum.h"
#include "ddp/plan.h"

typedef enum ls__bucket_state { LS__FILLING, LS__FULL, LS__STARTED, LS__DONE } ls__bucket_state;

typedef struct ls__bucket {
    ls__bucket_plan plan;
    ls__bucket_state state;
    size_t left; /* spans that are not ready */
    ls_ddp *ddp; /* whose it is, for sum_chunk() */
    ls_work *work;
} ls__bucket;

/* What the ranks add up at the end of a step. */
enum { LS__TOTAL_WEIGHT, LS__TOTAL_UNUSED, LS__TOTAL_JOINED, LS__TOTALS };

struct ls_ddp {
    ls_world *world;
    ls_group *group;
    ls_record *record; /* this rank's events */
    ls_group *machine; /* the ranks of this machine; the same group if there is only one */
    ls_ddp_options options;
    size_t n;
    char **names;
    size_t *counts, *offsets; /* elements; place in the block */
    uint32_t *bucket_of;
    uint32_t *order; /* spans in the order of the block */
    float **foreign; /* the caller's gradients; NULL: they are views into the block */
    float *block;    /* gradients, in shared memory */
    float *sums;     /* the reduced ones: this block, or with to_first that of the machine's first rank */
    _Atomic uint32_t
        *leavers;      /* ranks of the machine that have freed their ddp, counted behind `sums`; the last one gives it
                                  back. NULL without to_first */
    ls__sum_fn on_sum; /* sees the sums as they are written; NULL: nobody */
    void *on_sum_user;
    uint16_t *wire; /* the same as bfloat16; NULL without options.bf16 */
    size_t total;   /* elements of the block */
    ls__bucket *buckets;
    size_t n_buckets, next_start, next_done;
    double totals[LS__TOTALS]; /* see agree() in ddp.c */
    ls_work *agreement;        /* their sum over the ranks, started; NULL: not under way */

    ls_status failed; /* a step failed and the group is broken: what every later call returns, with this text */
    char failed_text[LS__JOB_FAILURE_BYTES];
    bool touched; /* something that was started did not end well: another rank may still write to the block */
    bool in_hook; /* a function of the caller's is running */
    bool running; /* between begin and finish */
    ls_ddp_mode mode;
    double weight, weight_sum; /* of this micro-batch; of all since the last sync */
    uint32_t micro;            /* micro-batches put aside since the last sync */
    uint64_t epoch;            /* micro-batches ever; a span is ready if its mark is this */
    uint64_t *ready_mark;
    uint8_t *used; /* ready in some micro-batch since the last sync; after it, on some rank */
    uint32_t *ready_order;
    size_t n_ready;
    bool rebuilt;
    bool driven;       /* over a network: ls_ddp_poll() has something to do */
    int64_t polled;    /* when it last did */
    bool joining;      /* this rank has run out of data */
    bool named_unused; /* they have been logged */
    ls__counter counter;
    ls_ddp_stats stats;
};

/* Waits for everything that is started, whatever becomes of it; notes in d->touched if not all of it ended well. */
void ls__ddp_drain(ls_ddp *d);
/* Lays spans out in the order of d->order, and cuts buckets. */
LS_MUST_CHECK ls_status ls__ddp_plan(ls_ddp *d);

#endif
