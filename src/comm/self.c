/* The transport of a world of one: every collective is a copy, or nothing. */
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* What abort() of another thread leaves for the group's own thread to find. */
typedef struct self {
    ls__failure failure;
} self;

static ls_status look(ls_group *g)
{
    self *s = g->impl;
    if (!s || atomic_load_explicit(&s->failure.set, memory_order_acquire) != 2) return LS_OK;
    return ls__group_break(g, (ls_status)s->failure.status, s->failure.text);
}

static void run_chunks(const ls_work *w)
{
    size_t chunk = (size_t)w->root;
    for (size_t begin = 0; begin < w->count; begin += chunk)
        w->chunk_fn(w->user, &w->send, begin, w->count - begin < chunk ? w->count : begin + chunk);
}

static ls_status start(ls_group *g, ls_work *w)
{
    ls_status status = look(g);
    if (status) return status;
    size_t bytes = w->count * ls_dtype_size(w->type);
    w->started = w->last_arrival = ls_now();
    w->seen = 1;
    ls__event_start(w, bytes);
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR)
        run_chunks(w);
    else if (bytes && w->recv != w->send)
        memcpy(w->recv, w->send, bytes);
    ls__event_done(w);
    return LS_OK;
}

static ls_status progress(ls_group *g, ls_work *w)
{
    (void)w;
    return look(g);
}

static ls_status idle(ls_group *g, ls_work *w)
{
    (void)w;
    return look(g);
}

static ls_status watch(ls_group *g, ls_work *w)
{
    (void)w;
    return look(g);
}

static ls_status make(ls_world *world, ls_group **out)
{
    ls_status status = ls__group_new(world, &ls__self_transport, 0, 1, out);
    if (status) return status;
    (*out)->impl = calloc(1, sizeof(self));
    if ((*out)->impl) return LS_OK;
    ls__group_discard(*out);
    *out = NULL;
    return ls__fail(LS_ENOMEM, "group: out of memory");
}

static ls_status split(ls_group *g, int color, int key, ls_group **out)
{
    (void)key;
    return color < 0 ? LS_OK : make(g->world, out);
}

static void abort_group(ls_group *g, ls_status status, const char *text)
{
    self *s = g->impl;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&s->failure.set, &none, 1)) return;
    s->failure.status = (int32_t)status;
    snprintf(s->failure.text, sizeof s->failure.text, "%s", text);
    atomic_store_explicit(&s->failure.set, 2, memory_order_release);
}

static void release(ls_group *g)
{
    free(g->impl);
}

const ls__transport ls__self_transport = {
    .name = "self",
    .start = start,
    .progress = progress,
    .idle = idle,
    .look = look,
    .watch = watch,
    .split = split,
    .abort = abort_group,
    .release = release,
};

ls_status ls__self_join(ls_world *world, ls_group **out)
{
    return make(world, out);
}
