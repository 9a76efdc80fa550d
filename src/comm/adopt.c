/* Memory of the caller's that becomes job memory where it is.
 *
 * Peers map nothing: the pages of the caller's mapping are replaced by pages of the job's memfd, which every rank of the node has mapped
 * already. So adoption is a call of one rank, and the memory is gone when its owner unmaps it.
 *
 * The owner may unmap it without a word, and the address may then be somebody else's memory. So before an all-reduce uses such an address,
 * a byte that is written through the job's own mapping must appear there. An all-reduce owns its buffer; other collectives may share
 * theirs with calls under way, and treat adopted memory as any other. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/status.h"
#include "comm/group.h"
#include "comm/heap.h"

enum { PAGE = 4096 };

struct ls__adopted {
    uintptr_t begin;
    size_t bytes;
    uint64_t at; /* heap offset */
};

static void forget(ls_world *w, int i)
{
    ls__heap_give(w->job, w->job_fd, w->adopted[i].at);
    w->adopted[i] = w->adopted[--w->n_adopted];
}

/* Whether what is written to job memory at `at` appears at `p`. Leaves both as they were. */
static bool is_alias(const ls_world *w, volatile uint8_t *p, uint64_t at)
{
    volatile uint8_t *q = ls__heap_at(w->job, at);
    uint8_t there = *q, here = *p, other = here ^ 0xff;
    *q = other;
    bool alias = *p == other;
    *q = alias ? here : there;
    return alias;
}

uint64_t ls__adopted_offset(ls_world *w, void *p, size_t bytes)
{
    uintptr_t begin = (uintptr_t)p;
    for (int i = 0; i < w->n_adopted; i++) {
        const struct ls__adopted *a = &w->adopted[i];
        if (begin < a->begin || begin - a->begin >= a->bytes || bytes > a->bytes - (begin - a->begin)) continue;
        uint64_t at = a->at + (begin - a->begin);
        if (is_alias(w, p, at) && is_alias(w, (uint8_t *)p + bytes - 1, at + bytes - 1)) return at;
        forget(w, i); /* it was unmapped, and the address is in use again */
        return 0;
    }
    return 0;
}

/* Replaces the pages, whose contents are kept. */
static ls_status replace(ls_world *w, void *memory, size_t bytes, uint64_t at)
{
    memcpy(ls__heap_at(w->job, at), memory, bytes);
    void *p = mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, w->job_fd, (off_t)at);
    if (p == MAP_FAILED) return ls__fail_errno("adopt: cannot map %zu bytes of shared memory", bytes);
    madvise(p, bytes, MADV_HUGEPAGE);
    madvise(p, bytes, MADV_POPULATE_WRITE); /* not in the first collective; older kernels do not know this advice */
    return LS_OK;
}

static ls_status adopt(ls_world *w, void *memory, size_t bytes)
{
    uintptr_t begin = (uintptr_t)memory;
    for (int i = w->n_adopted; i--;) {
        const struct ls__adopted *a = &w->adopted[i];
        if (begin >= a->begin + a->bytes || a->begin >= begin + bytes) continue;
        uintptr_t both = begin > a->begin ? begin : a->begin;
        if (!is_alias(w, (uint8_t *)memory + (both - begin), a->at + (both - a->begin)))
            forget(w, i); /* unmapped since */
        else if (begin == a->begin && bytes == a->bytes)
            return LS_OK;
        else
            return ls__fail(LS_EINVAL, "adopt: a part of the %zu bytes at %p was adopted before", bytes, memory);
    }
    struct ls__adopted *more = realloc(w->adopted, (size_t)(w->n_adopted + 1) * sizeof *more);
    if (!more) return ls__fail(LS_ENOMEM, "adopt: out of memory");
    w->adopted = more;
    uint64_t at;
    ls_status status = ls__heap_take(w->job, w->job_fd, bytes, true, &at);
    if (status) return status;
    status = replace(w, memory, bytes, at);
    if (status)
        ls__heap_give(w->job, w->job_fd, at);
    else
        w->adopted[w->n_adopted++] = (struct ls__adopted){ .begin = begin, .bytes = bytes, .at = at };
    return status;
}

ls_status ls_world_adopt(ls_world *world, void *memory, size_t bytes)
{
    LS__NEED(world, "world");
    LS__NEED(memory, "memory");
    uintptr_t begin = (uintptr_t)memory;
    if (begin % PAGE || bytes % PAGE || !bytes || bytes > PTRDIFF_MAX)
        return ls__fail(LS_EINVAL, "adopt: %zu bytes at %p are not whole pages of %d bytes", bytes, memory, PAGE);
    if (msync(memory, bytes, MS_ASYNC))
        return ls__fail(LS_EINVAL, "adopt: not all of the %zu bytes at %p are mapped", bytes, memory);
    if (!world->job) return LS_OK;
    uintptr_t window = (uintptr_t)world->job;
    if (begin < window + world->job->bytes && window < begin + bytes)
        return ls__fail(LS_EINVAL, "adopt: the memory at %p is shared memory of the job already", memory);
    ls__world_enter(world);
    ls_status status = adopt(world, memory, bytes);
    ls__world_leave(world);
    return status;
}

void ls_world_disown(ls_world *world, const void *memory)
{
    if (!world || !memory || !world->job) return;
    ls__world_enter(world);
    for (int i = world->n_adopted; i--;)
        if (world->adopted[i].begin == (uintptr_t)memory) forget(world, i);
    ls__world_leave(world);
}
