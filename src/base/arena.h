/* An arena: memory that is allocated in parts and freed all at once, or back to a mark.
 *
 * Address space for the whole limit is reserved at the start and pages are allocated on first touch, so pointers never move
 * and a loop that allocates and resets causes no system calls. One thread at a time. */
#ifndef LS_BASE_ARENA_H
#define LS_BASE_ARENA_H

#include "lockstep/base.h"

typedef struct ls__arena {
    uint8_t *base; /* NULL: not open */
    size_t used;   /* bytes in use, including padding */
    size_t peak;   /* the maximum of `used` */
    size_t limit;  /* bytes reserved */
} ls__arena;

/* Reserves address space for `limit` bytes (rounded up to pages). Huge pages are requested, not required. */
LS_MUST_CHECK ls_status ls__arena_open(ls__arena *a, size_t limit);
void ls__arena_close(ls__arena *a);

/* `bytes` aligned to 64, contents undefined; NULL if the limit is reached. */
void *ls__arena_take(ls__arena *a, size_t bytes);
/* The same, for `count` elements of `size`, overflow checked. */
void *ls__arena_take_array(ls__arena *a, size_t count, size_t size);

static inline size_t ls__arena_mark(const ls__arena *a)
{
    return a->used;
}
/* Frees everything allocated since `mark`. The process keeps the pages. */
static inline void ls__arena_reset(ls__arena *a, size_t mark)
{
    a->used = mark;
}

#endif
