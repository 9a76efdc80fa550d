/* Sum and update in one pass: for a trainer whose weights and optimiser state lie in memory that its ranks share.
 *
 * Instead of writing the sum of a bucket back to p gradients, from where p updates would read it again, whoever is awake
 * adds up a block of it in its cache and hands it to the trainer, who updates the weights there and then. A span is
 * ready only after the last use of its weights, so the update is safe as soon as all ranks have come. */
#ifndef LS_DDP_FUSED_H
#define LS_DDP_FUSED_H

#include "lockstep/ddp.h"

enum {
    LS__FUSED_BLOCK = 4096, /* elements: the sum and the state's blocks stay in the L2 cache */
    LS__FUSED_RANKS = 512,  /* on one machine */
};

/* `sum` holds elements [begin, end) of the flat block, summed over all micro-batches and ranks. Called on any rank of the
 * machine, once for each element a step, while others do other parts. */
typedef void (*ls__sum_fn)(void *user, const float *sum, size_t begin, size_t end);

/* From the next step on, sums go to `fn` and gradients are not written back; NULL: they are again. Only where all ranks
 * are on one machine, and without bf16, hooks or memory of the caller's: LS_EUNSUPPORTED otherwise. */
LS_MUST_CHECK ls_status ls__ddp_on_sum(ls_ddp *ddp, ls__sum_fn fn, void *user);

#endif
