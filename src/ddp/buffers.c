/* Makes buffers equal on all ranks. They are many and small (a few hundred vectors of batch norms), so they are packed into one
 * message. */
#include "ddp/reducer.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

ls_status ls__buffers_sync(ls_world *world, const ls_named *buffers, size_t n, ls_buffers mode)
{
    ls_group *group = ls_world_group(world);
    int ranks = ls_world_size(world);
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++) total += buffers[i].count;
    if (ranks == 1 || !total) return LS_OK;
    float *packed = malloc(total * sizeof *packed);
    if (!packed) {
        ls_status status = ls__fail(LS_ENOMEM, "buffers: no memory for %zu elements", total);
        ls_group_abort(group, ls_error()); /* the other ranks would wait for this one */
        return status;
    }
    for (size_t i = 0; i < n; at += buffers[i++].count)
        memcpy(packed + at, buffers[i].data, buffers[i].count * sizeof *packed);
    ls_status status = mode == LS_BUFFERS_MEAN ? ls_allreduce(group, packed, total, LS_F32, LS_SUM)
                                               : ls_broadcast(group, packed, total, LS_F32, 0);
    if (mode == LS_BUFFERS_MEAN)
        for (size_t i = 0; i < total; i++) packed[i] /= (float)ranks;
    at = 0;
    for (size_t i = 0; i < n && !status; at += buffers[i++].count)
        memcpy(buffers[i].data, packed + at, buffers[i].count * sizeof *packed);
    free(packed);
    return status;
}
