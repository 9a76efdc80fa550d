/* The event ring: what happened when, in a fixed piece of memory.
 *
 * Any thread of a rank writes, without locks and without waiting; the oldest events are overwritten. A reader (in
 * this process or in another one that maps the memory) copies events out and learns how many it missed. Recording is
 * here; what events mean is the business of `measure`. */
#ifndef LS_RECORD_RING_H
#define LS_RECORD_RING_H

#include <stdatomic.h>
#include "lockstep/record.h"

/* Of a batch that was taken: how many were ready when it was asked for; which worker built it, -1: not known; and how long ago, in
 * microseconds. */
static inline uint64_t ls__batch_bits(int ready, int worker, int64_t age_us)
{
    uint64_t age = age_us < 0 ? 0 : age_us > UINT32_MAX ? UINT32_MAX : (uint64_t)age_us;
    return ((uint64_t)ready & 0xffff) | ((uint64_t)(worker + 1) & 0xffff) << 16 | age << 32;
}

static inline int ls__batch_ready(uint64_t bits)
{
    return (int)(bits & 0xffff);
}

static inline int ls__batch_worker(uint64_t bits)
{
    return (int)(bits >> 16 & 0xffff) - 1;
}

static inline int64_t ls__batch_age_us(uint64_t bits)
{
    return (int64_t)(bits >> 32);
}

typedef struct ls__ring ls__ring;

/* Bytes of memory for a ring of `capacity` events; `capacity` is a power of two. */
size_t ls__ring_bytes(size_t capacity);
/* Makes a ring in the caller's zeroed memory, aligned to 64. */
ls__ring *ls__ring_init(void *memory, size_t capacity);

/* Records an event now. Costs tens of nanoseconds. `ring` may be NULL: nothing is recorded. */
void ls__ring_add(ls__ring *ring, ls_event_kind kind, uint64_t a, uint64_t b);
/* The same with a time that the caller already has. */
void ls__ring_add_at(ls__ring *ring, int64_t time, ls_event_kind kind, uint64_t a, uint64_t b);

/* Copies events into out[0..max), oldest first, starting at *position (0 at first), and moves *position past them.
 * *missed counts the events that were overwritten before they could be read. Returns how many were copied. One
 * reader's position is its own: several readers do not disturb each other. */
size_t ls__ring_read(const ls__ring *ring, uint64_t *position, ls_event *out, size_t max, uint64_t *missed);
/* The position behind the newest event. */
uint64_t ls__ring_head(const ls__ring *ring);
size_t ls__ring_capacity(const ls__ring *ring);

#endif
