/* V micro-batches over p ranks keep the canonical order if V / p is a power of two, or p = 1. See slots.h. */
#include "ddp/slots.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"

static bool fits(int slots, int ranks)
{
    if (ranks == 1) return slots >= 1;
    if (ranks < 1 || slots % ranks) return false;
    int each = slots / ranks;
    return (each & (each - 1)) == 0;
}

void ls__slots_ranks(int slots, char *out, size_t bytes)
{
    size_t used = 0;
    if (!bytes) return;
    out[0] = 0;
    if (slots < 1) return;
    int twos = __builtin_ctz((unsigned)slots), odd = slots >> twos;
    /* One rank, then all whose share is a power of two. */
    for (int i = odd == 1 ? 0 : -1; i <= twos && used < bytes; i++) {
        int n = snprintf(out + used, bytes - used, "%s%d", used ? ", " : "", i < 0 ? 1 : odd << i);
        if (n < 0) return;
        used += (size_t)n;
    }
}

ls_status ls__slots_check(int slots, int ranks)
{
    if (slots < 1) return ls__fail(LS_EINVAL, "slots=%d: must be an integer >= 1", slots);
    if (fits(slots, ranks)) return LS_OK;
    char list[256];
    ls__slots_ranks(slots, list, sizeof list);
    bool one = !strcmp(list, "1");
    return ls__fail(
        LS_EINVAL,
        "%d slot%s cannot be spread over %d ranks so that the sum keeps its order; possible %s %s rank%s, or "
        "choose another number of slots, or allow any order (sum_order any)",
        slots, ls__s(slots), ranks, one ? "is" : "are", list, ls__s(one));
}
