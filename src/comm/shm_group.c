/* Making and leaving groups in shared memory. See shm.h. */
#include "comm/shm.h"

#include <stdlib.h>
#include "base/futex.h"
#include "base/status.h"
#include "comm/heap.h"
#include "comm/wait.h"

bool ls__shm_serves(const ls_world *world, int nodes)
{
    return world->job && nodes == 1;
}

static uint64_t align(uint64_t x, uint64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Sizes and places for p members. */
static ls__shm_control plan(int p, size_t staging_bytes)
{
    uint64_t n = (uint64_t)p;
    ls__shm_control c = { .size = (uint32_t)p };
    c.round_bytes = align(staging_bytes / LS__SHM_ROUNDS, 4096);
    if (c.round_bytes < align(64 * n, 4096)) c.round_bytes = align(64 * n, 4096); /* a line per rank and round */
    c.channel_bytes = p <= 4 ? 1 << 16 : p <= 32 ? 1 << 14 : 1 << 12;
    c.members_at = align(sizeof c, 4096);
    c.slots_at = c.members_at + n * sizeof(ls__member);
    c.arrivals_at = align(c.slots_at + LS__SHM_SLOTS * sizeof(ls__shm_slot), _Alignof(ls__shm_arrival));
    c.eager_at = align(c.arrivals_at + LS__SHM_SLOTS * n * sizeof(ls__shm_arrival), 4096);
    c.staging_at = align(c.eager_at + LS__SHM_SLOTS * n * LS__SHM_EAGER_STRIDE, 4096);
    c.channels_at = c.staging_at + n * LS__SHM_ROUNDS * c.round_bytes;
    c.bytes = c.channels_at + n * n * (sizeof(ls__shm_channel) + c.channel_bytes);
    return c;
}

/* The control block is made by the first member. */
ls_status ls__shm_make(ls__new_group *n, uint64_t *place)
{
    ls_world *world = n->world;
    *place = 0;
    if (n->rank != 0) return LS_OK;
    ls__shm_control c = plan(n->size, world->staging_bytes);
    ls_status status = ls__heap_take(world->job, world->job_fd, c.bytes, false, place);
    if (status) return status;
    ls__shm_control *control = ls__heap_at(world->job, *place);
    *control = c;
    control->failure.rank = -1;
    atomic_store(&control->references, (uint32_t)n->size);
    ls__member *m = (ls__member *)((char *)control + c.members_at);
    for (int i = 0; i < n->size; i++) {
        m[i].world_rank = n->world_ranks[i];
        m[i].job_rank = ls__world_local_of(world, n->world_ranks[i]);
    }
    return LS_OK;
}

ls_status ls__shm_enter(ls__new_group *n, uint64_t place, ls_group **out)
{
    ls_world *world = n->world;
    ls__shm_control *c = ls__heap_at(world->job, place);
    int p = (int)c->size;
    ls_group *g;
    ls_status status = ls__group_new(world, &ls__shm_transport, n->rank, p, &g);
    if (status) return status;
    ls__shm *s = calloc(1, sizeof *s + 2 * (size_t)p * sizeof(void *));
    if (!s) {
        ls__group_discard(g);
        return ls__fail(LS_ENOMEM, "group of %d: out of memory", p);
    }
    char *base = (char *)c;
    s->control = c;
    s->control_at = place;
    s->slots = (ls__shm_slot *)(base + c->slots_at);
    s->arrivals = (ls__shm_arrival *)(base + c->arrivals_at);
    s->eager = (uint8_t *)(base + c->eager_at);
    s->staging = (uint8_t *)(base + c->staging_at);
    s->channels = (uint8_t *)(base + c->channels_at);
    s->in = (const void **)(s + 1);
    s->out = (void **)(s->in + p);
    s->oversubscribed = world->job->ranks > world->job->cores;
    g->impl = s;
    g->failure = &c->failure;
    g->members = (ls__member *)(base + c->members_at);
    g->locals = p;
    g->local = n->rank;
    *out = g;
    return LS_OK;
}

/* ---- The group of all ranks. */

/* Waits until the local root has made it. */
static ls_status await_world_group(ls_world *world, uint64_t *place)
{
    ls__job *job = world->job;
    ls__job_rank *me = &job->rank[world->local_rank];
    int64_t deadline = ls_now() + (int64_t)world->timeout_ms * 1000000;
    int root = world->rank - world->local_rank;
    for (;;) {
        uint32_t word = atomic_load(&me->futex);
        atomic_fetch_add(&me->sleepers, 1);
        atomic_thread_fence(memory_order_seq_cst); /* see wait.h */
        *place = atomic_load(&job->world_group);
        bool failed = ls__failure_is_set(&job->failure);
        if (!*place && !failed) ls__futex_wait(&me->futex, word, LS__WAIT_CHECK_NS);
        atomic_fetch_sub(&me->sleepers, 1);
        if (*place) return LS_OK;
        if (failed) return ls__failure_report(&job->failure);
        uint32_t state = atomic_load(&job->rank[0].state);
        bool expired = world->timeout_ms > 0 && ls_now() > deadline;
        char text[96];
        ls__job_describe_state(job, 0, text, sizeof text);
        /* It may have opened its world and left since. */
        if ((state == LS__RANK_EXITED || state == LS__RANK_KILLED) && !atomic_load(&job->world_group))
            return ls__fail(LS_EPEER, "rank %d: rank %d (the local root) %s without opening its world", world->rank,
                            root, text);
        if (expired)
            return ls__fail(LS_ETIMEOUT,
                            "rank %d: rank %d (the local root) did not open its world within %.1f s; it %s",
                            world->rank, root, world->timeout_ms / 1e3, text);
    }
}

ls_status ls__shm_join(ls_world *world, ls_group **out)
{
    ls__job *job = world->job;
    ls__new_group n = { .world = world, .size = job->ranks, .rank = world->local_rank };
    uint64_t place = 0;
    ls_status status;
    *out = NULL;
    if (world->local_rank == 0) {
        int *world_ranks = malloc((size_t)job->ranks * sizeof *world_ranks);
        if (!world_ranks) return ls__fail(LS_ENOMEM, "world: out of memory");
        for (int i = 0; i < job->ranks; i++) world_ranks[i] = world->rank + i;
        n.world_ranks = world_ranks;
        status = ls__shm_make(&n, &place);
        free(world_ranks);
        if (status) return status;
        atomic_store(&job->world_group, place);
        ls__job_wake_all(job);
    } else {
        status = await_world_group(world, &place);
        if (status) return status;
    }
    return ls__shm_enter(&n, place, out);
}

void ls__shm_release(ls_group *g)
{
    ls__shm *s = ls__shm_of(g);
    if (s->awaits_slot) atomic_fetch_sub(&s->control->slot_waiters, 1);
    atomic_store_explicit(&g->members[g->rank].left, true, memory_order_release);
    ls__group_wake(g); /* members that wait for this rank must see it */
    if (atomic_fetch_sub(&s->control->references, 1) == 1)
        ls__heap_give(g->world->job, g->world->job_fd, s->control_at);
    free(s);
}
