/* Collectives in which each receiver copies what is for it out of the senders' memory: all-gather, broadcast, gather, scatter,
 * all-to-all, reduce-scatter.
 *
 * Only the senders' data must be visible to others. What is not job memory passes through its rank's staging in rounds; a round holds
 * the same part of each of the sender's blocks. A sender is done when every receiver has copied the last round; until then others
 * read its buffer. */
#include "comm/shm.h"

#include <string.h>
#include "comm/heap.h"
#include "comm/traits.h"
#include "comm/wait.h"
#include "kern/copy.h"
#include "kern/reduce.h"

/* A destination of this size does not stay in the cache, so its lines need not be read first. */
static const size_t STREAM_BYTES = 16 << 20;

static void plan_rounds(const ls_group *g, const ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    size_t block = w->block_bytes, blocks = (size_t)ls__work_blocks(w);
    t->round_bytes = t->any_staged ? ls__shm_of(g)->control->round_bytes / blocks / 64 * 64 : block;
    t->rounds = (uint32_t)((block + t->round_bytes - 1) / t->round_bytes);
}

static size_t round_length(const ls_work *w, uint32_t j)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    size_t left = w->block_bytes - (size_t)j * t->round_bytes;
    return left < t->round_bytes ? left : t->round_bytes;
}

/* The number of rounds that every receiver has copied. */
static uint32_t copied_by_all(const ls_group *g, const ls_work *w)
{
    uint32_t least = ls__shm_work_of(w)->rounds;
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank || !ls__work_receives(w, r)) continue;
        uint32_t out = atomic_load_explicit(&ls__shm_arrival_of(g, w->number, r)->out, memory_order_acquire);
        if (out < least) least = out;
    }
    return least;
}

/* Fills this rank's staging as far as receivers have emptied it. */
static void fill_staging(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    if (!ls__shm_claim_staging(g, w)) return;
    size_t block = w->block_bytes;
    int blocks = ls__work_blocks(w);
    bool filled = false;
    while (t->in < t->rounds && t->in < copied_by_all(g, w) + LS__SHM_ROUNDS) {
        uint8_t *to = ls__shm_staging_of(g, g->rank, t->in);
        for (int b = 0; b < blocks; b++)
            memcpy(to + (size_t)b * t->round_bytes,
                   (const char *)w->send + (size_t)b * block + (size_t)t->in * t->round_bytes, round_length(w, t->in));
        atomic_store_explicit(&ls__shm_arrival_of(g, w->number, g->rank)->in, ++t->in, memory_order_release);
        filled = true;
    }
    if (filled) ls__group_wake(g);
}

/* Round j of what `from` has for this rank; NULL if it is not there yet. */
static const uint8_t *source(const ls_group *g, const ls_work *w, int from, uint32_t j)
{
    size_t block = w->block_bytes, round_bytes = ls__shm_work_of(w)->round_bytes;
    size_t mine = ls__traits_of[w->kind].send_blocks ? (size_t)g->rank : 0;
    if (from == g->rank) return (const uint8_t *)w->send + mine * block + (size_t)j * round_bytes;
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, from);
    if (arrival->at != LS__SHM_STAGED)
        return (const uint8_t *)ls__heap_at(g->world->job, arrival->at) + mine * block + (size_t)j * round_bytes;
    if (atomic_load_explicit(&arrival->in, memory_order_acquire) <= j) return NULL;
    return ls__shm_staging_of(g, from, j) + mine * round_bytes;
}

/* Copies this rank's next round from all senders; false if one of them has not staged it yet. */
static bool copy_round(ls_group *g, const ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    const ls__traits *traits = &ls__traits_of[w->kind];
    uint32_t j = ls__shm_work_of(w)->out;
    size_t block = w->block_bytes, length = round_length(w, j);
    bool stream = block >= STREAM_BYTES;
    for (int r = 0; r < g->size; r++) {
        bool sends = ls__work_sends(w, r);
        s->in[r] = sends ? source(g, w, r, j) : NULL;
        if (sends && !s->in[r]) return false;
    }
    uint8_t *to = (uint8_t *)w->recv + (size_t)j * ls__shm_work_of(w)->round_bytes;
    if (traits->reduces) {
        void *out = to;
        ls__reduce_arrays(w->type, w->op, &out, 1, s->in, g->size, length / ls_dtype_size(w->type), stream);
        return true;
    }
    for (int r = 0; r < g->size; r++) {
        uint8_t *place = traits->recv_blocks ? to + (size_t)r * block : to;
        if (s->in[r] && s->in[r] != place) ls__copy_bytes(place, s->in[r], length, stream);
    }
    return true;
}

static bool needs(const ls_group *g, const ls_work *w, int rank)
{
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, rank);
    uint32_t rounds = ls__shm_work_of(w)->rounds;
    if (ls__work_receives(w, rank) && atomic_load_explicit(&arrival->out, memory_order_acquire) < rounds) return true;
    return arrival->at == LS__SHM_STAGED && atomic_load_explicit(&arrival->in, memory_order_acquire) < rounds;
}

static ls_status progress(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    if (!t->rounds) plan_rounds(g, w);
    ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, g->rank);
    bool receiver = ls__work_receives(w, g->rank), sender = ls__work_sends(w, g->rank);
    do {
        if (t->staged) fill_staging(g, w);
        if (!receiver || t->out == t->rounds || !copy_round(g, w)) break;
        atomic_store_explicit(&arrival->out, ++t->out, memory_order_release);
        ls__group_wake(g);
    } while (t->out < t->rounds || (t->staged && t->in < t->rounds));
    bool received = !receiver || t->out == t->rounds;
    bool sent = !sender || ((!t->staged || t->in == t->rounds) && copied_by_all(g, w) == t->rounds);
    return received && sent ? LS_OK : LS_PENDING;
}

const ls__shm_algorithm ls__shm_move = { .progress = progress, .needs = needs };
