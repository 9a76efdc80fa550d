/* The events that collectives add to this rank's record. */
#include "comm/group.h"

#include "record/record.h"

void ls__event_start(const ls_work *w, size_t bytes)
{
    if (!LS__CHECKED) return;
    ls__ring_add_at(w->group->world->ring, w->started, LS_EVENT_COLL_START,
                    ls__group_collective_id(w->group, w->number), (uint64_t)w->kind << 56 | bytes);
}

void ls__event_done(ls_work *w)
{
    if (!LS__CHECKED) return;
    int64_t waited = w->last_arrival - w->started;
    w->ended = ls_now();
    ls__ring_add_at(w->group->world->ring, w->ended, LS_EVENT_COLL_DONE, ls__group_collective_id(w->group, w->number),
                    (uint64_t)w->last_rank << 48 | (uint64_t)(waited > 0 ? waited : 0));
}

void ls__event_blocked(const ls_work *w, int64_t begin)
{
    if (!LS__CHECKED) return;
    /* It may have ended just before the caller began to wait for it. */
    int64_t end = w->ended ? w->ended : ls_now();
    int64_t now = ls__record_blocked(w->group->world->record, ls__group_collective_id(w->group, w->number), begin,
                                     end > begin ? end : begin);
    /* Not an atomic addition, which would cost more: the world's lock is held. */
    ls_world *world = w->group->world;
    int64_t before = atomic_load_explicit(&world->blocked, memory_order_relaxed);
    atomic_store_explicit(&world->blocked, before + now - begin, memory_order_relaxed);
}

int64_t ls__world_blocked_ns(const ls_world *world)
{
    return atomic_load_explicit(&world->blocked, memory_order_relaxed);
}

uint64_t ls__group_next_collective_id(const ls_group *group)
{
    return ls__group_collective_id(group, group->next_number);
}
