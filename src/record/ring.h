/* The event ring: the newest events of a rank, in memory of fixed size.
 *
 * Any thread writes, without locks and without waiting; the oldest events are overwritten. A reader (in this process or in another
 * one that maps the memory) copies events and gets the number that it missed. The ring does not interpret events. */
#ifndef LS_RECORD_RING_H
#define LS_RECORD_RING_H

#include <stdatomic.h>
#include "lockstep/record.h"

/* Of LS_EVENT_BATCH: how many batches were ready when it was requested; the worker that built it, -1: unknown; and how long ago, in
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
/* Initializes a ring in the caller's memory, which is zero and aligned to 64 bytes. */
ls__ring *ls__ring_init(void *memory, size_t capacity);

/* Adds an event with the current time. Costs tens of nanoseconds. `ring` NULL: does nothing. */
void ls__ring_add(ls__ring *ring, ls_event_kind kind, uint64_t a, uint64_t b);
/* The same with a time that the caller already has. */
void ls__ring_add_at(ls__ring *ring, int64_t time, ls_event_kind kind, uint64_t a, uint64_t b);

/* Copies events into out[0..max), oldest first, starting at *position (0 at first), and moves *position past them. *missed counts
 * the events that were overwritten before they could be read. Returns the number copied. Several readers are independent, each with
 * its own position. */
size_t ls__ring_read(const ls__ring *ring, uint64_t *position, ls_event *out, size_t max, uint64_t *missed);
/* The position after the newest event. */
uint64_t ls__ring_head(const ls__ring *ring);
size_t ls__ring_capacity(const ls__ring *ring);

#endif
