/* Calls in which each receiver takes what is its own out of the senders' memory: all-gather, broadcast, gather,
 * scatter, all-to-all, reduce-scatter.
 *
 * Only the senders' data must be where others see it. What lies outside the window goes through its rank's staging in
 * rounds; a round holds the same stretch of each of the sender's blocks. A sender is through when every receiver has
 * taken the last round; until then its buffer is lent. */
#include "comm/shm.h"

#include <string.h>
#include "comm/heap.h"
#include "kern/copy.h"
#include "kern/reduce.h"

/* A destination of this size does not stay in the cache, so its lines need not be read first. */
static const size_t STREAM_BYTES = 16 << 20;

static bool sends(const ls_work *w, int rank)
{
    return ls__shm_send_bytes(w, rank) > 0;
}

static bool receives(const ls_work *w, int rank)
{
    if (w->kind == LS_COLLECTIVE_GATHER) return rank == w->root;
    if (w->kind == LS_COLLECTIVE_BROADCAST) return rank != w->root;
    return true;
}

static void plan_rounds(const ls_group *g, ls_work *w)
{
    size_t block = w->count * ls_dtype_size(w->type), blocks = (size_t)ls__shm_send_blocks(w);
    w->round_bytes = w->any_staged ? ls__shm_of(g)->control->round_bytes / blocks / 64 * 64 : block;
    w->rounds = (uint32_t)((block + w->round_bytes - 1) / w->round_bytes);
}

static size_t round_length(const ls_work *w, uint32_t j)
{
    size_t left = w->count * ls_dtype_size(w->type) - (size_t)j * w->round_bytes;
    return left < w->round_bytes ? left : w->round_bytes;
}

/* The number of rounds that every receiver has taken. */
static uint32_t taken_by_all(const ls_group *g, const ls_work *w)
{
    uint32_t least = w->rounds;
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank || !receives(w, r)) continue;
        uint32_t out = atomic_load_explicit(&ls__shm_arrival_of(g, w->number, r)->out, memory_order_acquire);
        if (out < least) least = out;
    }
    return least;
}

/* Fills this rank's staging as far as receivers have emptied it. */
static void fill_staging(ls_group *g, ls_work *w)
{
    if (!ls__shm_claim_staging(g, w)) return;
    size_t block = w->count * ls_dtype_size(w->type);
    int blocks = ls__shm_send_blocks(w);
    bool news = false;
    while (w->in < w->rounds && w->in < taken_by_all(g, w) + LS__SHM_ROUNDS) {
        uint8_t *to = ls__shm_staging_of(g, g->rank, w->in);
        for (int b = 0; b < blocks; b++)
            memcpy(to + (size_t)b * w->round_bytes,
                   (const char *)w->send + (size_t)b * block + (size_t)w->in * w->round_bytes, round_length(w, w->in));
        atomic_store_explicit(&ls__shm_arrival_of(g, w->number, g->rank)->in, ++w->in, memory_order_release);
        news = true;
    }
    if (news) ls__shm_ring(g);
}

/* Round j of what `from` has for this rank; NULL if it is not there yet. */
static const uint8_t *source(const ls_group *g, const ls_work *w, int from, uint32_t j)
{
    size_t block = w->count * ls_dtype_size(w->type);
    size_t mine = ls__shm_send_blocks(w) > 1 ? (size_t)g->rank : 0;
    if (from == g->rank) return (const uint8_t *)w->send + mine * block + (size_t)j * w->round_bytes;
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, from);
    if (arrival->at != LS__SHM_STAGED)
        return (const uint8_t *)ls__heap_at(g->world->job, arrival->at) + mine * block + (size_t)j * w->round_bytes;
    if (atomic_load_explicit(&arrival->in, memory_order_acquire) <= j) return NULL;
    return ls__shm_staging_of(g, from, j) + mine * w->round_bytes;
}

/* Takes round w->out from all senders; false if one has not put it in place yet. */
static bool take_round(ls_group *g, const ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    uint32_t j = w->out;
    size_t block = w->count * ls_dtype_size(w->type), length = round_length(w, j);
    bool stream = block >= STREAM_BYTES;
    for (int r = 0; r < g->size; r++) {
        s->in[r] = sends(w, r) ? source(g, w, r, j) : NULL;
        if (sends(w, r) && !s->in[r]) return false;
    }
    uint8_t *to = (uint8_t *)w->recv + (size_t)j * w->round_bytes;
    if (w->kind == LS_COLLECTIVE_REDUCE_SCATTER) {
        void *out = to;
        ls__reduce_arrays(w->type, w->op, &out, 1, s->in, g->size, length / ls_dtype_size(w->type), stream);
        return true;
    }
    bool rooted = w->kind == LS_COLLECTIVE_BROADCAST || w->kind == LS_COLLECTIVE_SCATTER;
    for (int r = 0; r < g->size; r++) {
        uint8_t *place = rooted ? to : to + (size_t)r * block;
        if (s->in[r] && s->in[r] != place) ls__copy_bytes(place, s->in[r], length, stream);
    }
    return true;
}

bool ls__shm_move_lacks(const ls_group *g, const ls_work *w, int rank)
{
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, rank);
    if (receives(w, rank) && atomic_load_explicit(&arrival->out, memory_order_acquire) < w->rounds) return true;
    return arrival->at == LS__SHM_STAGED && atomic_load_explicit(&arrival->in, memory_order_acquire) < w->rounds;
}

ls_status ls__shm_move_progress(ls_group *g, ls_work *w)
{
    if (!w->rounds) plan_rounds(g, w);
    ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, g->rank);
    bool receiver = receives(w, g->rank), sender = sends(w, g->rank);
    do {
        if (w->staged) fill_staging(g, w);
        if (!receiver || w->out == w->rounds || !take_round(g, w)) break;
        atomic_store_explicit(&arrival->out, ++w->out, memory_order_release);
        ls__shm_ring(g);
    } while (w->out < w->rounds || (w->staged && w->in < w->rounds));
    bool received = !receiver || w->out == w->rounds;
    bool sent = !sender || ((!w->staged || w->in == w->rounds) && taken_by_all(g, w) == w->rounds);
    return received && sent ? LS_OK : LS_PENDING;
}
