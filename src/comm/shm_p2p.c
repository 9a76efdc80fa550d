/* Point-to-point: a ring of bytes per direction between two ranks.
 *
 * A message is a header (type and count), then the data, padded to 16 bytes. The sender writes as far as there is space, the receiver
 * reads as far as there is data; a message may be longer than the ring. A send is done when all of it is in the ring. */
#include "comm/shm.h"

#include <string.h>
#include "comm/wait.h"

typedef struct message_header {
    uint64_t type;
    uint64_t count;
} message_header;

static ls__shm_channel *channel(const ls_group *g, int from, int to)
{
    const ls__shm *s = ls__shm_of(g);
    size_t each = sizeof(ls__shm_channel) + s->control->channel_bytes;
    return (ls__shm_channel *)(s->channels + ((size_t)from * (size_t)g->size + (size_t)to) * each);
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies between the ring at stream position `at` and memory, wrapping at its end. */
static void ring_write(ls__shm_channel *c, size_t ring, uint64_t at, const void *data, size_t bytes)
{
    size_t first = min(bytes, ring - at % ring);
    memcpy(c->data + at % ring, data, first);
    memcpy(c->data, (const char *)data + first, bytes - first);
}

static void ring_read(const ls__shm_channel *c, size_t ring, uint64_t at, void *data, size_t bytes)
{
    size_t first = min(bytes, ring - at % ring);
    memcpy(data, c->data + at % ring, first);
    memcpy((char *)data + first, c->data, bytes - first);
}

static size_t padded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

ls_status ls__shm_p2p_start(ls_group *g, ls_work *w)
{
    bool sends = w->kind == LS_COLLECTIVE_SEND;
    ls__shm_channel *c = sends ? channel(g, g->rank, w->root) : channel(g, w->root, g->rank);
    w->number = atomic_load_explicit(sends ? &c->sends : &c->receives, memory_order_relaxed);
    atomic_store_explicit(sends ? &c->sends : &c->receives, w->number + 1, memory_order_release);
    w->started = w->last_arrival = ls_now();
    w->last_rank = g->world->rank;
    return LS_OK;
}

static ls_status send_some(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    ls__shm_channel *c = channel(g, g->rank, w->root);
    size_t ring = ls__shm_of(g)->control->channel_bytes, bytes = w->block_bytes;
    uint64_t head = atomic_load_explicit(&c->head, memory_order_relaxed);
    size_t room = ring - (size_t)(head - atomic_load_explicit(&c->tail, memory_order_acquire));
    size_t before = t->moved;
    if (t->moved == 0) {
        if (room < sizeof(message_header)) return LS_PENDING;
        message_header m = { .type = w->type, .count = w->count };
        ring_write(c, ring, head, &m, sizeof m);
        t->moved = sizeof m;
        room -= sizeof m;
    }
    size_t data = t->moved - sizeof(message_header), part = min(bytes - data, room);
    if (part < bytes - data) part = part / 16 * 16; /* only the end is padded */
    if (part) ring_write(c, ring, head + (t->moved - before), (const char *)w->send + data, part);
    t->moved += part;
    bool all = t->moved == sizeof(message_header) + bytes;
    uint64_t now = head + (t->moved - before);
    if (all) {
        now += padded(bytes) - bytes;
        atomic_store_explicit(&c->sent, w->number + 1, memory_order_relaxed);
    }
    if (now != head) {
        atomic_store_explicit(&c->head, now, memory_order_release);
        ls__group_wake(g);
    }
    return all ? LS_OK : LS_PENDING;
}

static ls_status receive_some(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    ls__shm_channel *c = channel(g, w->root, g->rank);
    size_t ring = ls__shm_of(g)->control->channel_bytes, bytes = w->block_bytes;
    uint64_t tail = atomic_load_explicit(&c->tail, memory_order_relaxed);
    size_t there = (size_t)(atomic_load_explicit(&c->head, memory_order_acquire) - tail);
    size_t before = t->moved;
    if (t->moved == 0) {
        message_header m;
        if (there < sizeof m) return LS_PENDING;
        ring_read(c, ring, tail, &m, sizeof m);
        if (m.type != w->type || m.count != w->count)
            return ls__group_fail(g, LS_EMISMATCH,
                                  "rank %d receives %zu of %s from rank %d, which sends %llu of %s; both must agree",
                                  g->world->rank, w->count, ls_dtype_name(w->type), g->members[w->root].world_rank,
                                  (unsigned long long)m.count, ls_dtype_name((ls_dtype)m.type));
        t->moved = sizeof m;
        there -= sizeof m;
    }
    size_t data = t->moved - sizeof(message_header), part = min(bytes - data, there);
    if (part) ring_read(c, ring, tail + (t->moved - before), (char *)w->recv + data, part);
    t->moved += part;
    bool all = t->moved == sizeof(message_header) + bytes;
    uint64_t now = tail + (t->moved - before);
    if (all) {
        now += padded(bytes) - bytes;
        atomic_store_explicit(&c->received, w->number + 1, memory_order_relaxed);
    }
    if (now != tail) {
        atomic_store_explicit(&c->tail, now, memory_order_release);
        ls__group_wake(g);
    }
    return all ? LS_OK : LS_PENDING;
}

ls_status ls__shm_p2p_progress(ls_group *g, ls_work *w)
{
    return w->kind == LS_COLLECTIVE_SEND ? send_some(g, w) : receive_some(g, w);
}

bool ls__shm_p2p_stuck(const ls_group *g, int rank, int partner, ls_collective_kind kind, uint64_t number)
{
    if (kind == LS_COLLECTIVE_RECEIVE)
        return atomic_load_explicit(&channel(g, partner, rank)->sends, memory_order_acquire) <= number;
    const ls__shm_channel *c = channel(g, rank, partner);
    uint64_t received =
        atomic_load_explicit(&c->received, memory_order_acquire); /* before `receives`, which may grow */
    bool partner_receives = atomic_load_explicit(&c->receives, memory_order_acquire) != received;
    uint64_t there = atomic_load_explicit(&c->head, memory_order_acquire) - atomic_load(&c->tail);
    return !partner_receives && atomic_load(&c->sent) <= number && there == ls__shm_of(g)->control->channel_bytes;
}
