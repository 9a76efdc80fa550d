/* Optimizers as the trainer uses them: state in memory that ranks share, and updates of parts with a factor. */
#ifndef LS_NN_OPTIMIZER_H
#define LS_NN_OPTIMIZER_H

#include "kern/optim.h"
#include "lockstep/nn.h"

/* Fills in the defaults and checks. */
LS_MUST_CHECK ls_status ls__optimizer_options_check(ls_optimizer_options *options);
/* Floats of state for `elements`; options checked. */
size_t ls__optimizer_state_floats(const ls_optimizer_options *options, size_t elements);
/* As ls_optimizer_open(), with user-owned memory for the state: ls__optimizer_state_floats(), aligned to 64 bytes, zero. Ranks
 * that update different elements may share it. NULL: the optimizer allocates it. */
LS_MUST_CHECK ls_status ls__optimizer_open_in(ls_optimizer **out, const ls_place *places, size_t n_places, size_t begin,
                                              size_t end, const ls_optimizer_options *options, float *memory);
/* Before an update: the number of matrices that have to be prepared, and preparing some of them, in any order, by any rank that shares the
 * state. Repeating it changes nothing, until an update has begun. */
size_t ls__optimizer_matrices(const ls_optimizer *optimizer);
void ls__optimizer_prepare(ls_optimizer *optimizer, const float *grads, size_t first, size_t end, float grad_scale);
/* Updates elements [begin, end) of the optimizer's range. Each gradient is multiplied by `grad_scale` first (clipping, or 1).
 * Parts may be updated in any order, each once per step; the result is the same. With `undo`, which may be NULL, the old values
 * are copied, from element `begin` on; then places must be in the order of their offsets, and this thread does it all. */
LS_MUST_CHECK ls_status ls__optimizer_update_range(ls_optimizer *optimizer, float *values, const float *grads,
                                                   size_t begin, size_t end, int64_t step, float lr, float grad_scale,
                                                   const ls__optim_undo *undo);

#endif
