/* Seeing the sums while they are in the cache: for a trainer that needs their norm before it can use them.
 *
 * On one machine, whoever is awake adds up a block of a bucket over the ranks and writes it to the first rank's block
 * (to_first). The trainer's function is called right then, so that its own pass over the sums costs no memory traffic. */
#ifndef LS_DDP_ON_SUM_H
#define LS_DDP_ON_SUM_H

#include "lockstep/ddp.h"

enum {
    LS__SUM_BLOCK = 4096, /* elements: what is handed over at a time; fits the L1 or L2 cache */
    LS__SUM_RANKS = 512,  /* on one machine */
};

/* Elements [begin, end) of the flat block `sums` are final. Both ends are multiples of LS__SUM_BLOCK or ends of a bucket.
 * Called on any rank of the machine, once for each element a step, while others do other parts. */
typedef void (*ls__sum_fn)(void *user, const float *sums, size_t begin, size_t end);

/* From the next step on; NULL: no more. Needs to_first and one machine, and no bf16 or hooks: LS_EUNSUPPORTED otherwise. */
LS_MUST_CHECK ls_status ls__ddp_on_sum(ls_ddp *ddp, ls__sum_fn fn, void *user);

/* Where bucket i begins in the flat block; the number of them is in ls_ddp_stats. */
size_t ls__ddp_bucket_begin(const ls_ddp *ddp, size_t bucket);
/* The option bucket_bytes that is in force. */
size_t ls__ddp_bucket_bytes(const ls_ddp *ddp);

#endif
