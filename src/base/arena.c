/* Arenas over one reserved mapping. See arena.h. */
#include "base/arena.h"

#include <sys/mman.h>
#include <unistd.h>
#include "base/status.h"

enum { ALIGN = 64 }; /* a cache line, and the widest vector */

ls_status ls__arena_open(ls__arena *a, size_t limit)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *a = (ls__arena){ 0 };
    if (limit == 0 || limit > SIZE_MAX - page) return ls__fail(LS_EINVAL, "arena: invalid size of %zu bytes", limit);
    limit = (limit + page - 1) / page * page;
    void *p = mmap(NULL, limit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return ls__fail_errno("arena: reserving %zu bytes of address space", limit);
    madvise(p, limit, MADV_HUGEPAGE);
    a->base = p;
    a->limit = limit;
    return LS_OK;
}

void ls__arena_close(ls__arena *a)
{
    if (a->base) munmap(a->base, a->limit);
    *a = (ls__arena){ 0 };
}

void *ls__arena_take(ls__arena *a, size_t bytes)
{
    size_t room = a->limit - a->used;
    if (bytes > room || (bytes + ALIGN - 1) / ALIGN * ALIGN > room) {
        ls__fail(LS_ENOMEM, "arena is full: %zu bytes requested, %zu of %zu left", bytes, room, a->limit);
        return NULL;
    }
    void *p = a->base + a->used;
    a->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (a->used > a->peak) a->peak = a->used;
    return p;
}

void *ls__arena_take_array(ls__arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        ls__fail(LS_ENOMEM, "arena: %zu elements of %zu bytes: the product overflows", count, size);
        return NULL;
    }
    return ls__arena_take(a, bytes);
}
