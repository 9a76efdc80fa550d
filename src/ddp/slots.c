/* V micro-batches over p ranks. See slots.h and base/slots.h. */
#include "ddp/slots.h"

#include "base/slots.h"
#include "base/status.h"
#include "base/text.h"
#include "lockstep/ddp.h"

ls_status ls__slots_check(int slots, int ranks)
{
    if (slots < 1) return ls__fail(LS_EINVAL, "slots=%d: must be an integer >= 1", slots);
    if (ranks <= slots) return LS_OK;
    return ls__fail(LS_EINVAL, "%d slot%s cannot be spread over %d ranks: use at most %d rank%s, or at least %d slots",
                    slots, ls__s(slots), ranks, slots, ls__s(slots), ranks);
}

ls_status ls_slots_of_rank(int slots, int ranks, int rank, int *first, int *count)
{
    LS__NEED(first, "first");
    LS__NEED(count, "count");
    if (slots < 1 || ranks < 1)
        return ls__fail(LS_EINVAL, "ls_slots_of_rank: slots=%d, ranks=%d: both must be at least 1", slots, ranks);
    if (rank < 0 || rank >= ranks)
        return ls__fail(LS_EINVAL, "ls_slots_of_rank: rank %d does not exist; with ranks=%d it must be from 0 to %d",
                        rank, ranks, ranks - 1);
    *first = ls__slots_first(slots, ranks, rank);
    *count = ls__slots_count(slots, ranks, rank);
    return LS_OK;
}
