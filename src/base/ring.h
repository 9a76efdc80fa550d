/* The event ring: what happened when, in a fixed piece of memory.
 *
 * Any thread of a rank writes, without locks and without waiting; the oldest events are overwritten. A reader (in
 * this process or in another one that maps the memory) copies events out and learns how many it missed. Recording is
 * here; what events mean is the business of `measure`. */
#ifndef LS_BASE_RING_H
#define LS_BASE_RING_H

#include <stdatomic.h>
#include "lockstep/base.h"

/* What an event is about. Values are part of the recorded format: only ever append. */
#define LS_EVENT_LIST(X)                                                                                         \
    X(LS_EVENT_NONE, 0, "none")                                                                                  \
    X(LS_EVENT_COLL_START, 1, "collective started")  /* a: sequence number, b: bytes */                          \
    X(LS_EVENT_COLL_ARRIVED, 2, "all ranks arrived") /* a: sequence number, b: last arriver's rank */            \
    X(LS_EVENT_COLL_DONE, 3, "collective done")      /* a: sequence number, b: ns waited for the last arriver */ \
    X(LS_EVENT_PHASE_BEGIN, 4, "phase begins")       /* a: phase */                                              \
    X(LS_EVENT_PHASE_END, 5, "phase ends")           /* a: phase */                                              \
    X(LS_EVENT_STEP, 6, "step begins")               /* a: step */

typedef enum ls__event_kind {
#define X(name, value, text) name = (value),
    LS_EVENT_LIST(X)
#undef X
} ls__event_kind;

typedef struct ls__event {
    int64_t time; /* ls_now() */
    uint32_t kind;
    uint32_t thread; /* the writer's thread number, counted from 0 in order of first event */
    uint64_t a, b;   /* by kind */
} ls__event;

typedef struct ls__ring ls__ring;

/* Bytes of memory for a ring of `capacity` events; `capacity` is a power of two. */
size_t ls__ring_bytes(size_t capacity);
/* Makes a ring in the caller's zeroed memory, aligned to 64. */
ls__ring *ls__ring_init(void *memory, size_t capacity);

/* Records an event now. Costs tens of nanoseconds. `ring` may be NULL: nothing is recorded. */
void ls__ring_add(ls__ring *ring, ls__event_kind kind, uint64_t a, uint64_t b);
/* The same with a time that the caller already has. */
void ls__ring_add_at(ls__ring *ring, int64_t time, ls__event_kind kind, uint64_t a, uint64_t b);

/* Copies events into out[0..max), oldest first, starting at *position (0 at first), and moves *position past them.
 * *missed counts the events that were overwritten before they could be read. Returns how many were copied. One
 * reader's position is its own: several readers do not disturb each other. */
size_t ls__ring_read(const ls__ring *ring, uint64_t *position, ls__event *out, size_t max, uint64_t *missed);

#endif
