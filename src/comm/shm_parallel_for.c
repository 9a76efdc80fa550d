/* parallel_for in shared memory. See parallel_for.h. Chunks are claimed as in shm_reduce.c, in one round. */
#include "comm/heap.h"
#include "comm/shm.h"
#include "comm/wait.h"

static ls_status progress(ls_group *g, ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    ls__shm_slot *slot = ls__shm_slot_of(g, w->number);
    size_t chunk = (size_t)w->root;
    uint64_t chunks = (w->count + chunk - 1) / chunk;
    uint64_t next = atomic_load_explicit(&slot->claimed, memory_order_relaxed);
    ls__shm_work_of(w)->rounds = 1;
    if (next < chunks) ls__shm_claims_begin(g, w);
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
        if (atomic_fetch_add_explicit(&slot->done[0], 1, memory_order_acq_rel) + 1 == chunks) ls__group_wake(g);
        next = atomic_load_explicit(&slot->claimed, memory_order_relaxed);
    }
    ls__shm_claims_end(g);
    return atomic_load_explicit(&slot->done[0], memory_order_acquire) == chunks ? LS_OK : LS_PENDING;
}

/* Chunks are done by the ranks that wait, so a rank is needed only while it has one. */
const ls__shm_algorithm ls__shm_parallel_for = { .progress = progress, .needs = ls__shm_may_have_chunk };
