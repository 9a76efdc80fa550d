/* The heap in job memory, for control blocks and for buffers that collectives reduce in place.
 *
 * Any rank allocates and frees; offsets mean the same place to all ranks. The table of allocations is in job memory, too, under a
 * lock that ranks hold for a few hundred nanoseconds. If a rank is killed right then, later allocations fail with LS_EPEER. Offset 0
 * is never returned. */
#ifndef LS_COMM_HEAP_H
#define LS_COMM_HEAP_H

#include "comm/job.h"

/* Makes the lock of a new job. */
LS_MUST_CHECK ls_status ls__heap_init(ls__job *job);
/* Of a job without ranks: these are allocated. False, and none is: they overlap, or are not the heap's. */
bool ls__heap_hold(ls__job *job, const ls__extent *held, size_t n);
/* Allocates `bytes` (rounded up to 4,096), zero-filled. `fd` is the job's memfd; with `backed`, the pages exist when the call
 * returns, so that too little memory is an error here and not a SIGBUS later. */
LS_MUST_CHECK ls_status ls__heap_take(ls__job *job, int fd, size_t bytes, bool backed, uint64_t *offset);
/* The same with any content. */
LS_MUST_CHECK ls_status ls__heap_take_any(ls__job *job, int fd, size_t bytes, bool backed, uint64_t *offset);
/* The size of what starts at `offset`; 0: nothing does. */
uint64_t ls__heap_bytes(ls__job *job, uint64_t offset);
/* Frees what starts at `offset`, and returns its pages to the system; `fd` -1: they stay, for a job that was renewed. */
void ls__heap_give(ls__job *job, int fd, uint64_t offset);
/* Returns the pages of all that is not allocated to the system. */
void ls__heap_trim(ls__job *job, int fd);

/* The heap offset of `p` if all of [p, p + bytes) is job memory, else 0. */
static inline uint64_t ls__heap_offset(const ls__job *job, const void *p, size_t bytes)
{
    uintptr_t base = (uintptr_t)job, at = (uintptr_t)p;
    if (at <= base || at - base > job->bytes || bytes > job->bytes - (at - base)) return 0;
    return at - base;
}
static inline void *ls__heap_at(ls__job *job, uint64_t offset)
{
    return (char *)job + offset;
}

#endif
