/* Groups that only their members open. They have no collective in common yet, so the first member publishes the place of the group's memory
 * in the caller's store. Members on several nodes also have to agree on a number for the group, so all of them publish. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/group.h"
#include "comm/net.h"

/* What the first member publishes in the store. */
typedef struct stored_place {
    uint64_t place;
    int64_t status; /* of making it; 0: done */
} stored_place;

/* Equal on all members, and most likely different from that of another group. */
static uint16_t id_of(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (; *key; key++) h = (h ^ (unsigned char)*key) * 1099511628211u;
    uint16_t id = (uint16_t)(h >> 48 ^ h >> 32 ^ h >> 16 ^ h);
    return id ? id : 1;
}

/* *rank: this process's place among the members; *several: they are on more than one node. */
static ls_status check_members(const ls_world *world, const int *ranks, int n, int *rank, bool *several)
{
    *rank = -1;
    *several = false;
    if (n < 1 || n > world->size)
        return ls__fail(LS_EINVAL, "group: invalid number of members %d; the world has %d ranks", n, world->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->size)
            return ls__fail(LS_EINVAL, "group: unknown rank %d; the world has ranks 0 to %d", ranks[i],
                            world->size - 1);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i]) return ls__fail(LS_EINVAL, "group: rank %d is listed twice", ranks[i]);
        if (ranks[i] == world->rank) *rank = i;
        if (ls__world_node_of(world, ranks[i]) != world->node) *several = true;
    }
    if (*rank < 0) return ls__fail(LS_EINVAL, "group: rank %d is not one of the members", world->rank);
    return LS_OK;
}

/* ---- On several nodes. */

/* What each member publishes, once before and once after it has made its part. */
typedef struct stored_member {
    int64_t number; /* the lowest that it can take */
    uint64_t place;
    int64_t status;
} stored_member;

/* Every member publishes, and gets what all others have published. */
static ls_status exchange(const ls__new_group *new, const ls_store *store, const char *key, const char *phase,
                          const stored_member *mine, stored_member *all)
{
    const ls_world *world = new->world;
    int timeout_ms = world->timeout_ms < 0 ? -1 : world->timeout_ms;
    char name[256];
    snprintf(name, sizeof name, "%s/%s/%d", key, phase, new->rank);
    ls_status status = ls__store_set(store, name, mine, sizeof *mine);
    if (status) return ls__store_failed(status, world->rank, name);
    for (int i = 0; i < new->size; i++) {
        all[i] = *mine;
        if (i == new->rank) continue;
        snprintf(name, sizeof name, "%s/%s/%d", key, phase, i);
        status = ls__store_get(store, name, &all[i], sizeof all[i], timeout_ms);
        if (status == LS_ETIMEOUT)
            return ls__fail(LS_ETIMEOUT, "rank %d: rank %d did not open the group %s within %.1f s", world->rank,
                            new->world_ranks[i], key, world->timeout_ms / 1e3);
        if (status) return ls__store_failed(status, world->rank, name);
        if (all[i].status)
            return ls__fail(LS_EPEER, "rank %d: rank %d could not make the group %s: %s", world->rank,
                            new->world_ranks[i], key, ls_status_text((ls_status)all[i].status));
    }
    return LS_OK;
}

static ls_status open_on_nodes(ls__new_group *new, const ls_store *store, const char *key, ls_group **out)
{
    ls_world *world = new->world;
    const ls__transport *transport = ls__transport_find(world, 2);
    stored_member mine = { .number = world->next_group }, *all = malloc((size_t) new->size * sizeof *all);
    if (!all) return ls__fail(LS_ENOMEM, "group: out of memory");
    ls_status status = exchange(new, store, key, "number", &mine, all), made = LS_OK;
    if (status) goto done;
    for (int i = 0; i < new->size; i++)
        if (all[i].number > mine.number) mine.number = all[i].number;
    new->number = (int)mine.number;
    world->next_group = new->number + 1;
    made = transport->make(new, &mine.place);
    char why[LS__FAILURE_BYTES];
    snprintf(why, sizeof why, "%s", ls_error());
    mine.status = made;
    status = exchange(new, store, key, "place", &mine, all);
    if (made) {
        status = ls__fail(made, "%s", why);
        goto done;
    }
    uint64_t place = status ? 0 : all[ls__new_group_local_root(new)].place;
    if (!status && place >= world->job->bytes)
        status = ls__fail(LS_EFORMAT, "rank %d: a value below key %s in the store is not valid", world->rank, key);
    if (!status)
        status = transport->enter(new, place, out);
    else
        transport->discard(new);
done:
    free(all);
    return status;
}

ls_status ls_group_open(ls_world *world, const int *ranks, int n, const ls_store *store, const char *key,
                        ls_group **out)
{
    LS__NEED(out, "out");
    ls__new_group new = { .world = world, .size = n, .world_ranks = ranks };
    stored_place found = { 0 };
    *out = NULL;
    LS__NEED(world, "world");
    LS__NEED(ranks, "ranks");
    LS__NEED(key, "key");
    if (n > 1 && (!store || !store->set || !store->get))
        return ls__fail(LS_EINVAL, "group: a store with set and get is needed");
    bool several;
    ls_status status = check_members(world, ranks, n, &new.rank, &several);
    if (status) return status;
    if (several) {
        status = open_on_nodes(&new, store, key, out);
        if (*out) (*out)->id = id_of(key);
        return status;
    }
    const ls__transport *transport = ls__transport_find(world, 1);
    if (new.rank == 0) {
        found.status = status = transport->make(&new, &found.place);
        if (n > 1) {
            char text[LS__FAILURE_BYTES];
            snprintf(text, sizeof text, "%s", ls_error());
            ls_status stored = ls__store_set(store, key, &found, sizeof found);
            if (status)
                status = ls__fail(status, "%s", text);
            else if (stored)
                status = ls__store_failed(stored, world->rank, key);
        }
    } else {
        status = ls__store_get(store, key, &found, sizeof found, world->timeout_ms < 0 ? -1 : world->timeout_ms);
        if (status == LS_ETIMEOUT)
            return ls__fail(LS_ETIMEOUT, "rank %d: rank %d did not open the group %s within %.1f s", world->rank,
                            ranks[0], key, world->timeout_ms / 1e3);
        if (status) return ls__store_failed(status, world->rank, key);
        if (found.status)
            return ls__fail(LS_EPEER, "rank %d: rank %d could not make the group %s: %s", world->rank, ranks[0], key,
                            ls_status_text((ls_status)found.status));
        if (!world->job || found.place >= world->job->bytes)
            return ls__fail(LS_EFORMAT, "rank %d: the value of key %s in the store is not valid", world->rank, key);
    }
    if (!status) status = transport->enter(&new, found.place, out);
    if (status && !*out && transport->discard) transport->discard(&new);
    if (*out) (*out)->id = id_of(key);
    return status;
}
