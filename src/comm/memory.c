/* Memory of a world: shared by the ranks of a node, or private in a world of one rank. */
#include <stdlib.h>
#include <sys/mman.h>
#include "base/status.h"
#include "comm/group.h"
#include "comm/heap.h"

/* A world of one rank has no job and nothing to share: private memory, kept in a list so that ls_world_free() finds it. */
typedef struct allocation {
    struct allocation *next;
    void *memory;
    size_t bytes;
} allocation;

void ls__world_free_memory(ls_world *w)
{
    free(w->adopted);
    for (allocation *a = w->allocations; a;) {
        allocation *next = a->next;
        munmap(a->memory, a->bytes);
        free(a);
        a = next;
    }
}

static ls_status alloc_private(ls_world *w, size_t bytes, void **memory)
{
    allocation *a = malloc(sizeof *a);
    void *p = a ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (p == MAP_FAILED) {
        free(a);
        return ls__fail(LS_ENOMEM, "no memory for %zu bytes", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    *a = (allocation){ .next = w->allocations, .memory = p, .bytes = bytes };
    w->allocations = a;
    *memory = p;
    return LS_OK;
}

static void free_private(ls_world *w, void *p)
{
    for (allocation **link = (allocation **)&w->allocations; *link; link = &(*link)->next) {
        allocation *a = *link;
        if (a->memory != p) continue;
        *link = a->next;
        munmap(p, a->bytes);
        free(a);
        return;
    }
}

ls_status ls_world_alloc(ls_world *world, size_t bytes, void **memory)
{
    LS__NEED(world, "world");
    LS__NEED(memory, "memory");
    *memory = NULL;
    if (bytes > PTRDIFF_MAX) return ls__fail(LS_EINVAL, "alloc: %zu bytes is too large", bytes);
    if (!bytes) bytes = 1;
    if (!world->job) return alloc_private(world, bytes, memory);
    uint64_t at;
    ls_status status = ls__heap_take(world->job, world->job_fd, bytes, true, &at);
    if (!status) *memory = ls__heap_at(world->job, at);
    return status;
}

void ls_world_dealloc(ls_world *world, void **memory)
{
    void *p = memory ? *memory : NULL;
    if (!p) return;
    *memory = NULL;
    uint64_t at = world->job ? ls__heap_offset(world->job, p, 1) : 0;
    if (at) ls__heap_give(world->job, world->job_fd, at);
    if (!world->job) free_private(world, p);
}

uint64_t ls__work_offset(const ls_work *w, size_t bytes)
{
    ls_world *world = w->group->world;
    uint64_t at = ls__heap_offset(world->job, w->send, bytes);
    if (at || !world->n_adopted || w->kind != LS_COLLECTIVE_ALLREDUCE) return at;
    return ls__adopted_offset(world, w->recv, bytes);
}

ls_status ls__group_share(ls_group *group, size_t bytes, void **memory)
{
    ls_world *world = group->world;
    *memory = NULL;
    if (!world->job) return ls_world_alloc(world, bytes, memory);
    if (!ls__group_on_one_node(group))
        return ls__fail(LS_EUNSUPPORTED, "share: the group's ranks are on several nodes; split it by node");
    int64_t at = 0;
    ls_status status = LS_OK, found = LS_OK;
    if (group->rank == 0) {
        found = ls_world_alloc(world, bytes, memory);
        if (!found) at = (int64_t)ls__heap_offset(world->job, *memory, 1);
    }
    status = ls_broadcast(group, &at, 1, LS_I64, 0);
    if (status) return status;
    if (found) return found;
    if (!at) return ls__fail(LS_ENOMEM, "share: rank 0 of the group has no memory for %zu bytes", bytes);
    *memory = ls__heap_at(world->job, (uint64_t)at);
    return LS_OK;
}
