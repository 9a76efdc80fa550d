/* See small.h. */
#include "comm/eager.h"

#include <string.h>
#include "kern/reduce.h"

static void reduce(const ls_group *g, const ls_work *w, const void **in, size_t offset)
{
    void *out = w->recv;
    if (offset)
        for (int r = 0; r < g->size; r++) in[r] = (const char *)in[r] + offset;
    ls__reduce_arrays(w->type, w->op, &out, 1, in, g->size, w->count, false);
}

static void take(const ls_work *w, const void *from, size_t offset, size_t at)
{
    size_t block = w->count * ls_dtype_size(w->type);
    if (block) memcpy((char *)w->recv + at, (const char *)from + offset, block);
}

void ls__eager_finish(const ls_group *g, const ls_work *w, const void **in)
{
    size_t block = w->count * ls_dtype_size(w->type), own = (size_t)g->rank * block;
    switch (w->kind) {
    case LS_COLLECTIVE_ALLREDUCE: reduce(g, w, in, 0); break;
    case LS_COLLECTIVE_REDUCE:
        if (g->rank == w->root) reduce(g, w, in, 0);
        break;
    case LS_COLLECTIVE_REDUCE_SCATTER: reduce(g, w, in, own); break;
    case LS_COLLECTIVE_ALLGATHER:
        for (int r = 0; r < g->size; r++) take(w, in[r], 0, (size_t)r * block);
        break;
    case LS_COLLECTIVE_GATHER:
        for (int r = 0; r < g->size && g->rank == w->root; r++) take(w, in[r], 0, (size_t)r * block);
        break;
    case LS_COLLECTIVE_BROADCAST:
        if (g->rank != w->root) take(w, in[w->root], 0, 0);
        break;
    case LS_COLLECTIVE_SCATTER: take(w, in[w->root], own, 0); break;
    case LS_COLLECTIVE_ALLTOALL:
        for (int r = 0; r < g->size; r++) take(w, in[r], own, (size_t)r * block);
        break;
    case LS_COLLECTIVE_BARRIER:
    case LS_COLLECTIVE_PARALLEL_FOR:
    case LS_COLLECTIVE_SEND:
    case LS_COLLECTIVE_RECEIVE: break;
    }
}
