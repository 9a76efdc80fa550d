/* A ring of events with many writers and any number of readers.
 *
 * A writer takes a ticket with one atomic addition; the ticket determines its entry. Each entry has a version: 2t+1
 * while ticket t is being written, 2t+2 when it is complete. A reader copies an entry and accepts it only if the version was 2t+2
 * before and after the copy. Fields are relaxed atomics, so a race between reader
 * and writer is defined behaviour; on x86 that costs nothing.
 *
 * A writer that is preempted while the whole ring is overwritten may return to an entry that a newer ticket has used; it then sees
 * the newer version and drops its event. (The window between check and write is two instructions; a reader would reject such an
 * event and count it as missed.) */
#include "record/ring.h"

#include <string.h>

typedef struct place {
    _Atomic uint64_t version;
    _Atomic int64_t time;
    _Atomic uint64_t kind_thread;
    _Atomic uint64_t a, b;
} place;

enum { KNOWN = 64 }; /* threads that a ring identifies */

struct ls__ring {
    uint64_t capacity;
    uint64_t serial;       /* unique in this process */
    _Atomic uint32_t more; /* thread numbers assigned beyond KNOWN */
    char pad[64 - 20];
    _Atomic uint64_t head; /* next ticket */
    char pad2[64 - 8];
    _Atomic uint64_t threads[KNOWN]; /* the thread of each number; 0: none yet */
    place places[];
};

/* Rings and threads are counted from 1. */
static _Atomic uint64_t rings, threads;

size_t ls__ring_bytes(size_t capacity)
{
    return sizeof(ls__ring) + capacity * sizeof(place);
}

ls__ring *ls__ring_init(void *memory, size_t capacity)
{
    ls__ring *ring = memory;
    ring->capacity = capacity;
    ring->serial = atomic_fetch_add_explicit(&rings, 1, memory_order_relaxed) + 1;
    return ring;
}

/* The number of thread `self` in the ring's list; a new thread is added. */
static uint32_t find_thread(ls__ring *ring, uint64_t self)
{
    for (uint32_t i = 0; i < KNOWN; i++) {
        uint64_t has = atomic_load_explicit(&ring->threads[i], memory_order_relaxed);
        if (!has && atomic_compare_exchange_strong_explicit(&ring->threads[i], &has, self, memory_order_relaxed,
                                                            memory_order_relaxed))
            return i;
        if (has == self) return i;
    }
    return KNOWN + atomic_fetch_add_explicit(&ring->more, 1, memory_order_relaxed);
}

/* A process has seldom more than one ring, so a thread caches its number in the ring that it used last, by the ring's serial number: a
 * new ring may be at the address of an old one. A thread that alternates between rings has one number in each. */
static uint32_t thread_number(ls__ring *ring)
{
    static _Thread_local uint64_t self, known;
    static _Thread_local uint32_t number;
    if (known != ring->serial) {
        if (!self) self = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
        number = find_thread(ring, self);
        known = ring->serial;
    }
    return number;
}

void ls__ring_add_at(ls__ring *ring, int64_t time, ls_event_kind kind, uint64_t a, uint64_t b)
{
    if (!ring) return;
    uint64_t ticket = atomic_fetch_add_explicit(&ring->head, 1, memory_order_relaxed);
    place *p = &ring->places[ticket & (ring->capacity - 1)];
    if (atomic_load_explicit(&p->version, memory_order_relaxed) > 2 * ticket) return;
    atomic_store_explicit(&p->version, 2 * ticket + 1, memory_order_relaxed);
    /* Each field is a release store, so that none is visible before its version. */
    atomic_store_explicit(&p->time, time, memory_order_release);
    atomic_store_explicit(&p->kind_thread, (uint64_t)kind << 32 | thread_number(ring), memory_order_release);
    atomic_store_explicit(&p->a, a, memory_order_release);
    atomic_store_explicit(&p->b, b, memory_order_release);
    atomic_store_explicit(&p->version, 2 * ticket + 2, memory_order_release);
}

void ls__ring_add(ls__ring *ring, ls_event_kind kind, uint64_t a, uint64_t b)
{
    if (ring) ls__ring_add_at(ring, ls_now(), kind, a, b);
}

/* Copies the event of `ticket`: 1 if it is complete, 0 if not yet, -1 if it was overwritten. */
static int copy_event(const ls__ring *ring, uint64_t ticket, ls_event *out)
{
    const place *p = &ring->places[ticket & (ring->capacity - 1)];
    uint64_t before = atomic_load_explicit(&p->version, memory_order_acquire);
    if (before < 2 * ticket + 2) return 0;
    if (before > 2 * ticket + 2) return -1;
    out->time = atomic_load_explicit(&p->time, memory_order_acquire);
    uint64_t kind_thread = atomic_load_explicit(&p->kind_thread, memory_order_acquire);
    out->a = atomic_load_explicit(&p->a, memory_order_acquire);
    out->b = atomic_load_explicit(&p->b, memory_order_acquire);
    if (atomic_load_explicit(&p->version, memory_order_relaxed) != before) return -1;
    out->kind = (uint32_t)(kind_thread >> 32);
    out->thread = (uint32_t)kind_thread;
    return 1;
}

size_t ls__ring_read(const ls__ring *ring, uint64_t *position, ls_event *out, size_t max, uint64_t *missed)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    if (head > ring->capacity && *position < head - ring->capacity) {
        *missed += head - ring->capacity - *position;
        *position = head - ring->capacity;
    }
    size_t n = 0;
    while (n < max && *position < head) {
        int got = copy_event(ring, *position, &out[n]);
        if (got == 0) break; /* its writer has not finished; the next call reads it */
        if (got > 0)
            n++;
        else
            ++*missed;
        ++*position;
    }
    return n;
}

uint64_t ls__ring_head(const ls__ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_acquire);
}

size_t ls__ring_capacity(const ls__ring *ring)
{
    return ring->capacity;
}
