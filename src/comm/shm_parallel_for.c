/* Work that all members do together, chunk by chunk. See apply.h; the claiming is that of shm_reduce.c with one round. */
#include "comm/heap.h"
#include "comm/shm.h"

ls_status ls__shm_parallel_for_progress(ls_group *g, ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    ls__shm_slot *slot = ls__shm_slot_of(g, w->number);
    size_t chunk = (size_t)w->root;
    uint64_t chunks = (w->count + chunk - 1) / chunk;
    uint64_t next = atomic_load_explicit(&slot->claimed, memory_order_relaxed);
    while (next < chunks) {
        if (!atomic_compare_exchange_weak_explicit(&slot->claimed, &next, next + 1, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        for (int r = 0; r < g->size; r++) {
            uint64_t at = ls__shm_arrival_of(g, w->number, r)->at;
            s->in[r] = at ? ls__heap_at(g->world->job, at) : NULL;
        }
        size_t begin = next * chunk, end = w->count - begin < chunk ? w->count : begin + chunk;
        w->chunk_fn(w->user, s->in, begin, end);
        if (atomic_fetch_add_explicit(&slot->done[0], 1, memory_order_acq_rel) + 1 == chunks) ls__shm_ring(g);
        next = atomic_load_explicit(&slot->claimed, memory_order_relaxed);
    }
    return atomic_load_explicit(&slot->done[0], memory_order_acquire) == chunks ? LS_OK : LS_PENDING;
}
