/* The transport of a world of one rank: every collective is a copy, or nothing. */
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/traits.h"

static bool serves(const ls_world *world, int nodes)
{
    (void)nodes;
    return !world->job;
}

static void run_chunks(const ls_work *w)
{
    size_t chunk = (size_t)w->root;
    for (size_t begin = 0; begin < w->count; begin += chunk)
        w->chunk_fn(w->user, &w->send, begin, w->count - begin < chunk ? w->count : begin + chunk);
}

static ls_status start(ls_group *g, ls_work *w)
{
    ls_status status = ls__group_check_failed(g);
    if (status) return status;
    size_t bytes = w->block_bytes;
    w->started = w->last_arrival = ls_now();
    w->arrived = true;
    ls__event_start(w, bytes);
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR)
        run_chunks(w);
    else if (bytes && w->recv != w->send)
        memcpy(w->recv, w->send, bytes);
    ls__event_done(w);
    return LS_OK;
}

/* The work was done when it started. */
static ls_status progress(ls_group *g, ls_work *w)
{
    (void)w;
    return ls__group_check_failed(g);
}

static ls_status make(ls__new_group *n, uint64_t *place)
{
    (void)n;
    *place = 0;
    return LS_OK;
}

static ls_status enter(ls__new_group *n, uint64_t place, ls_group **out)
{
    (void)place;
    ls_status status = ls__group_new(n->world, &ls__self_transport, 0, 1, out);
    if (status) return status;
    ls_group *g = *out;
    g->locals = 1;
    g->failure = calloc(1, sizeof *g->failure); /* another thread may abort the group */
    if (g->failure) return LS_OK;
    ls__group_discard(g);
    *out = NULL;
    return ls__fail(LS_ENOMEM, "group: out of memory");
}

static ls_status join(ls_world *world, ls_group **out)
{
    return enter(&(ls__new_group){ .world = world, .size = 1 }, 0, out);
}

static void abort_group(ls_group *g, ls_status status, const char *text, bool wait)
{
    (void)wait;
    ls__group_set_failure(g, status, text);
}

static void release(ls_group *g)
{
    free(g->failure);
}

const ls__transport ls__self_transport = {
    .name = "self",
    .serves = serves,
    .join = join,
    .make = make,
    .enter = enter,
    .start = start,
    .progress = progress,
    .idle = progress,
    .check_failed = ls__group_check_failed,
    .check_peers = progress,
    .abort = abort_group,
    .release = release,
};
