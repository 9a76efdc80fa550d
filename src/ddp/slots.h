/* Which numbers of ranks can add V micro-batches in canonical order. */
#ifndef LS_DDP_SLOTS_H
#define LS_DDP_SLOTS_H

#include "lockstep/base.h"

/* The numbers of ranks that `slots` micro-batches can be spread over in canonical order, as text ("1, 2, 4, 8"). */
void ls__slots_ranks(int slots, char *out, size_t bytes);
/* LS_EINVAL with that list unless `slots` can be spread over `ranks`. */
LS_MUST_CHECK ls_status ls__slots_check(int slots, int ranks);

#endif
