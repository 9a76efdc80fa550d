/* How many ranks V micro-batches can be spread over. */
#ifndef LS_DDP_SLOTS_H
#define LS_DDP_SLOTS_H

#include "lockstep/base.h"

/* LS_EINVAL unless each of `ranks` can have one of the slots. */
LS_MUST_CHECK ls_status ls__slots_check(int slots, int ranks);

#endif
