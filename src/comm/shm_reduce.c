/* All-reduce and reduce of large buffers.
 *
 * The buffers are split into chunks. A rank claims the next chunk, sums it over all ranks in canonical order, writes the sum to
 * every rank's buffer, and continues; the collective is done when all chunks are. Each input is read once and each output written
 * once, which is the minimum. The bits of a chunk do not depend on the rank that computes it, so a rank that is busy computing
 * gradients need not take part: those that wait do its share.
 *
 * Buffers that are not job memory pass through their rank's staging in rounds: copy in, sum in place, copy out, with a few rounds
 * under way at once. Then all ranks work in rounds. If no rank stages, there is one round with everything in it.
 *
 * Two ranks that both stage exchange: each reads the other's staging, adds its own buffer, and writes to its own buffer only. That moves
 * less than copying the sum out, and needs one exchange instead of two. */
#include "comm/shm.h"

#include <string.h>
#include "comm/heap.h"
#include "comm/traits.h"
#include "comm/wait.h"
#include "kern/copy.h"
#include "kern/reduce.h"

enum {
    CHUNK_MIN = 8 << 10,   /* a claim takes about 100 ns: less than a tenth of the work */
    CHUNK_MAX = 256 << 10, /* p chunks of this size fit into the cache, and late ranks still find work */
};

/* Bytes of round j. */
static size_t round_length(const ls_work *w, uint32_t j)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    size_t left = w->block_bytes - (size_t)j * t->round_bytes;
    return left < t->round_bytes ? left : t->round_bytes;
}

/* Whole cache lines, the same in every round. */
static size_t chunk_bytes(const ls_group *g, const ls_work *w)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    size_t each = (t->round_bytes + (size_t)g->size - 1) / (size_t)g->size;
    if (each < CHUNK_MIN) each = CHUNK_MIN;
    if (each > CHUNK_MAX) each = CHUNK_MAX;
    return (each + 63) / 64 * 64;
}

static uint64_t chunks_per_round(const ls_group *g, const ls_work *w)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    size_t chunk = chunk_bytes(g, w);
    return (t->round_bytes + chunk - 1) / chunk;
}

static void plan_rounds(const ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    size_t bytes = w->block_bytes;
    t->round_bytes = t->any_staged || t->staged ? ls__shm_of(g)->control->round_bytes : bytes;
    t->rounds = (uint32_t)((bytes + t->round_bytes - 1) / t->round_bytes);
}

/* Whether two ranks exchange; known when both have arrived. */
static bool is_exchange(const ls_group *g, const ls_work *w)
{
    return g->size == 2 && w->kind == LS_COLLECTIVE_ALLREDUCE && !w->parts && ls__shm_work_of(w)->staged &&
           ls__shm_arrival_of(g, w->number, 1 - g->rank)->at == LS__SHM_STAGED;
}

static bool round_done(const ls_group *g, const ls_work *w, uint32_t j)
{
    uint64_t done =
        atomic_load_explicit(&ls__shm_slot_of(g, w->number)->done[j % LS__SHM_ROUNDS], memory_order_acquire);
    return done >= (j / LS__SHM_ROUNDS + 1) * chunks_per_round(g, w);
}

static bool all_rounds_done(const ls_group *g, const ls_work *w)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    uint32_t first = t->rounds > LS__SHM_ROUNDS ? t->rounds - LS__SHM_ROUNDS : 0;
    for (uint32_t j = first; j < t->rounds; j++)
        if (!round_done(g, w, j)) return false;
    return true;
}

/* Copies the next round into staging. */
static void copy_in(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    memcpy(ls__shm_staging_of(g, g->rank, t->in), (const char *)w->send + (size_t)t->in * t->round_bytes,
           round_length(w, t->in));
    atomic_store_explicit(&ls__shm_arrival_of(g, w->number, g->rank)->in, ++t->in, memory_order_release);
}

void ls__shm_reduce_prepare(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    plan_rounds(g, w);
    if (ls__shm_claim_staging(g, w))
        while (t->in < t->rounds && t->in < LS__SHM_ROUNDS) copy_in(g, w);
}

/* Copies finished rounds out of staging and new ones in, as far as there is room. */
static void move_staging(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    if (!ls__shm_claim_staging(g, w)) return;
    bool receives = ls__work_receives(w, g->rank);
    bool filled = false;
    for (;;) {
        if (t->out < t->in && round_done(g, w, t->out)) {
            if (receives)
                memcpy((char *)w->recv + (size_t)t->out * t->round_bytes, ls__shm_staging_of(g, g->rank, t->out),
                       round_length(w, t->out));
            t->out++;
        } else if (t->in < t->rounds && t->in - t->out < LS__SHM_ROUNDS) {
            copy_in(g, w);
            filled = true;
        } else {
            break;
        }
    }
    if (filled) ls__group_wake(g);
}

static bool round_is_in(const ls_group *g, const ls_work *w, uint32_t j)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    if (!t->any_staged) return true;
    for (int r = 0; r < g->size; r++) {
        const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, r);
        if (arrival->at == LS__SHM_STAGED && atomic_load_explicit(&arrival->in, memory_order_acquire) <= j)
            return false;
    }
    return true;
}

/* Where byte `offset` of round j of a rank's buffer is. */
static uint8_t *data_at(const ls_group *g, const ls_work *w, int rank, uint32_t j, size_t offset)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, rank);
    if (arrival->at == LS__SHM_STAGED) return ls__shm_staging_of(g, rank, j) + offset;
    return (uint8_t *)ls__heap_at(g->world->job, arrival->at) + (size_t)j * t->round_bytes + offset;
}

static void reduce_chunk(ls_group *g, const ls_work *w, uint32_t j, size_t chunk)
{
    ls__shm *s = ls__shm_of(g);
    size_t begin = chunk * chunk_bytes(g, w), length = round_length(w, j);
    if (begin >= length) return; /* the last round may be short */
    size_t bytes = length - begin < chunk_bytes(g, w) ? length - begin : chunk_bytes(g, w);
    int outs = 0;
    const ls__slot_parts *p = w->parts;
    for (int r = 0; r < g->size; r++) {
        s->in[r] = data_at(g, w, r, j, begin);
        if (ls__work_receives(w, r)) s->out[outs++] = data_at(g, w, r, j, begin);
    }
    for (int i = 0; p && i < p->n; i++)
        p->in[i] = (const uint8_t *)s->in[p->part[i].rank] + (size_t)p->part[i].place * p->stride;
    if (p)
        ls__slot_parts_sum(p, p->leaves, 0, s->out, outs, p->in, bytes / sizeof(float));
    else
        ls__reduce_arrays(w->type, w->op, s->out, outs, s->in, g->size, bytes / ls_dtype_size(w->type), false);
}

/* ---- Two ranks that exchange. */

/* Writes the sum of round j to this rank's buffer. */
static void sum_round(ls_group *g, const ls_work *w, uint32_t j)
{
    ls__shm *s = ls__shm_of(g);
    uint8_t *own = (uint8_t *)w->recv + (size_t)j * ls__shm_work_of(w)->round_bytes;
    void *out = own;
    s->in[g->rank] = own;
    s->in[1 - g->rank] = ls__shm_staging_of(g, 1 - g->rank, j);
    ls__reduce_arrays(w->type, w->op, &out, 1, s->in, 2, round_length(w, j) / ls_dtype_size(w->type), false);
}

static ls_status exchange(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    ls__shm_arrival *mine = ls__shm_arrival_of(g, w->number, g->rank);
    const ls__shm_arrival *theirs = ls__shm_arrival_of(g, w->number, 1 - g->rank);
    uint32_t read; /* rounds that the other rank has read */
    for (bool moved = true; moved;) {
        moved = false;
        read = atomic_load_explicit(&theirs->out, memory_order_acquire);
        if (t->in < t->rounds && t->in < read + LS__SHM_ROUNDS && ls__shm_claim_staging(g, w)) {
            copy_in(g, w);
            moved = true;
        }
        if (t->out < t->in && atomic_load_explicit(&theirs->in, memory_order_acquire) > t->out) {
            sum_round(g, w, t->out);
            atomic_store_explicit(&mine->out, ++t->out, memory_order_release);
            moved = true;
        }
        if (moved) ls__group_wake(g);
    }
    return t->out == t->rounds && read == t->rounds ? LS_OK : LS_PENDING;
}

static bool needs(const ls_group *g, const ls_work *w, int rank)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, rank);
    if (is_exchange(g, w) && atomic_load_explicit(&arrival->out, memory_order_acquire) < t->rounds) return true;
    return (arrival->at == LS__SHM_STAGED && atomic_load_explicit(&arrival->in, memory_order_acquire) < t->rounds) ||
           ls__shm_may_have_chunk(g, w, rank);
}

static ls_status progress(ls_group *g, ls_work *w)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    ls__shm_slot *slot = ls__shm_slot_of(g, w->number);
    if (!t->rounds) plan_rounds(g, w);
    if (is_exchange(g, w)) return exchange(g, w);
    uint64_t per_round = chunks_per_round(g, w), chunks = per_round * t->rounds;
    uint64_t next = atomic_load_explicit(&slot->claimed, memory_order_relaxed);
    if (next < chunks) ls__shm_claims_begin(g, w);
    for (;;) {
        if (t->staged) move_staging(g, w);
        if (next >= chunks || !round_is_in(g, w, (uint32_t)(next / per_round))) break;
        if (!atomic_compare_exchange_weak_explicit(&slot->claimed, &next, next + 1, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        uint32_t j = (uint32_t)(next / per_round);
        reduce_chunk(g, w, j, next % per_round);
        atomic_fetch_add_explicit(&slot->done[j % LS__SHM_ROUNDS], 1, memory_order_release);
        if (round_done(g, w, j)) ls__group_wake(g);
        next = atomic_load_explicit(&slot->claimed, memory_order_relaxed);
    }
    ls__shm_claims_end(g);
    bool done = t->staged ? t->out == t->rounds : all_rounds_done(g, w);
    return done ? LS_OK : LS_PENDING;
}

const ls__shm_algorithm ls__shm_reduce = { .progress = progress, .needs = needs };
