/* See data_stall.h. */
#include "record/data_stall.h"

#define STALL_SHARE \
    0.05 /* of the wall time: waiting beyond the fastest rank, or of all ranks, that is worth reporting */
#define ALL_SHARE   0.25 /* of the slowest rank's waiting: if the fastest waits for less, slow data are one rank's */
#define BUILD_SLACK 1.5  /* times the time to build a batch: no rank waits longer than that for data */
#define SLOW_FACTOR 1.5  /* times as long to build a batch as on the other ranks */

bool ls__data_is_slow(const ls__data_load *r, const ls__data_load *others)
{
    return r->batches > 0 && others->batches > 0 && others->build > 0 &&
           r->build / r->batches > SLOW_FACTOR * others->build / others->batches;
}

bool ls__data_is_late(const ls__data_load *r)
{
    if (!(r->batches > 0)) return false;
    if (r->missed >= 0) return 2 * r->missed > r->batches;
    return r->waited <= BUILD_SLACK * r->build;
}

bool ls__data_stalls(const ls__data_load *r)
{
    return ls__data_is_late(r) && r->waited > STALL_SHARE * r->wall;
}

ls__data_stall ls__data_stall_find(const ls__data_load *all, int ranks, int *slowest, int *fastest)
{
    bool late = true;
    *slowest = *fastest = 0;
    if (ranks < 1) return LS__DATA_KEEPS_UP;
    for (int r = 0; r < ranks; r++) {
        if (all[r].waited > all[*slowest].waited) *slowest = r;
        if (all[r].waited < all[*fastest].waited) *fastest = r;
        late = late && ls__data_is_late(&all[r]);
    }
    const ls__data_load *most = &all[*slowest], *least = &all[*fastest];
    if (!(most->wall > 0)) return LS__DATA_KEEPS_UP;
    if (late && least->waited >= ALL_SHARE * most->waited && most->waited > STALL_SHARE * most->wall)
        return LS__DATA_STALLS_ALL;
    if (ranks > 1 && ls__data_is_late(most) && most->waited - least->waited > STALL_SHARE * most->wall)
        return LS__DATA_STALLS_RANK;
    return LS__DATA_KEEPS_UP;
}
