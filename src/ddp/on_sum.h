/* A function that gets the sums while they are in the cache, for a trainer that needs their norm before it can use them.
 *
 * On one node, any rank that is free sums a block of a bucket over the ranks and writes it to the local root's block
 * (reduce_to_local_root). The trainer's function is called right then, so that its pass over the sums costs no memory traffic. */
#ifndef LS_DDP_ON_SUM_H
#define LS_DDP_ON_SUM_H

#include "lockstep/ddp.h"

enum {
    LS__SUM_BLOCK = 4096, /* elements passed at a time; fits the L1 or L2 cache */
    LS__SUM_RANKS = 512,  /* on one node */
};

/* Elements [begin, end) of the flat block `sums` are final. Both ends are multiples of LS__SUM_BLOCK or ends of a bucket.
 * Called on any rank of the node, once for each element of a step, at the same time for different parts. */
typedef void (*ls__sum_fn)(void *user, const float *sums, size_t begin, size_t end);

/* From the next step on; NULL: none. Needs reduce_to_local_root, one node and the default hook in float32, otherwise
 * LS_EUNSUPPORTED. */
LS_MUST_CHECK ls_status ls__ddp_on_sum(ls_ddp *ddp, ls__sum_fn fn, void *user);

/* From the next step on sums are written to `sums`, which has the layout of the gradients and is the same memory on all ranks,
 * instead of the local root's block. Needs a function as above. */
void ls__ddp_sum_into(ls_ddp *ddp, float *sums);

/* ---- For an elastic run, which outlives its ranks and what they were computing. */

/* A rank's own sums, before they are reduced: of the largest subtrees of the canonical tree (base/tree.h) over the micro-batches that it
 * has added so far. */
typedef struct ls__own_sums {
    /* `sum` will be overwritten, with what begin() was not called for before end(). */
    void (*begin)(void *user, const float *sum);
    /* `sum` is that of `count` micro-batches, the first of which is number `first` of this rank's step. No rank has been waited for. */
    void (*end)(void *user, const float *sum, int first, int count, double weight);
    void *user;
} ls__own_sums;
void ls__ddp_on_own_sums(ls_ddp *ddp, const ls__own_sums *calls);
/* Blocks that partial sums need, beside those of the parts: each as large as *elements. */
int ls__ddp_levels(const ls_ddp *ddp, size_t *elements);
/* Partial sums will be here: ls__ddp_levels() blocks, which stay the caller's. Before the first step. */
void ls__ddp_give_levels(ls_ddp *ddp, float *memory);
/* This rank's block, where gradients are computed and the last part's sum is, followed by those of its other parts. */
float *ls__ddp_block(const ls_ddp *ddp, int *parts);

/* Where bucket i begins in the flat block; the number of buckets is in ls_ddp_stats. */
size_t ls__ddp_bucket_begin(const ls_ddp *ddp, size_t bucket);
/* The parts that gradients are summed in, if slots are not spread evenly; NULL: each rank has one sum. */
const struct ls__slot_parts *ls__ddp_parts(const ls_ddp *ddp);
/* The value of bucket_bytes in use. */
size_t ls__ddp_bucket_bytes(const ls_ddp *ddp);

#endif
