/* Groups and the queues of their works: what is the same for every transport. */
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "record/record.h"

static const char *const op_names[LS_OP_COUNT] = { "sum", "mean", "min", "max", "product" };

void ls__describe(ls__fingerprint fingerprint, uint64_t number, uint64_t count, char *out, size_t bytes)
{
    unsigned call = fingerprint & 0xff, type = fingerprint >> 8 & 0xff, op = fingerprint >> 16 & 0xff;
    int root = (int32_t)(fingerprint >> 32);
    const char *name = call < LS_COLLECTIVE_KINDS ? ls_collective_name((uint8_t)call) : "unknown call";
    if (ls__is_p2p(call)) {
        snprintf(out, bytes, "%s %s rank %d (%llu of %s)", name, call == LS_COLLECTIVE_SEND ? "to" : "from", root,
                 (unsigned long long)count, ls_dtype_name(type));
        return;
    }
    int n = snprintf(out, bytes, "%s #%llu", name, (unsigned long long)number);
    if (call == LS_COLLECTIVE_BARRIER || n < 0 || (size_t)n >= bytes) return;
    char more[48] = "";
    if (call <= LS_COLLECTIVE_REDUCE_SCATTER && op < LS_OP_COUNT) snprintf(more, sizeof more, ", %s", op_names[op]);
    if (root >= 0) snprintf(more + strlen(more), sizeof more - strlen(more), ", root %d", root);
    snprintf(out + n, bytes - (size_t)n, " (%llu of %s%s)", (unsigned long long)count, ls_dtype_name(type), more);
}

void ls__describe_awaited(const ls_work *w, char *out, size_t bytes)
{
    ls_work theirs = { .kind = w->kind, .type = w->type, .op = w->op, .root = w->root };
    if (ls__is_p2p(w->kind)) {
        theirs.kind = w->kind == LS_COLLECTIVE_SEND ? LS_COLLECTIVE_RECEIVE : LS_COLLECTIVE_SEND;
        theirs.root = w->group->rank;
    }
    ls__describe(ls__work_fingerprint(&theirs), w->number, w->count, out, bytes);
}

ls_status ls__group_new(ls_world *world, const ls__transport *transport, int rank, int size, ls_group **out)
{
    ls_group *g = calloc(1, sizeof *g);
    *out = g;
    if (!g) return ls__fail(LS_ENOMEM, "group: out of memory");
    g->world = world;
    g->transport = transport;
    g->rank = rank;
    g->size = size;
    g->next_of_world = world->groups;
    world->groups = g;
    return LS_OK;
}

static bool is_busy(const ls_group *g)
{
    return g->collectives.first || g->p2p.first;
}

static void empty_queues(ls_group *g)
{
    if (is_busy(g)) g->world->busy_groups--;
    g->collectives = g->p2p = (ls__queue){ 0 };
}

void ls__group_discard(ls_group *g)
{
    if (!g) return;
    empty_queues(g);
    ls_group **link = &g->world->groups;
    while (*link != g) link = &(*link)->next_of_world;
    *link = g->next_of_world;
    for (ls_work *w; (w = g->made);) {
        g->made = w->made_before;
        free(w);
    }
    free(g);
}

ls_status ls__group_break(ls_group *g, ls_status status, const char *text)
{
    if (!g->broken) {
        g->broken = status;
        snprintf(g->broken_text, sizeof g->broken_text, "%s", text);
        empty_queues(g);
    }
    return ls__fail(g->broken, "%s", g->broken_text);
}

void ls_group_free(ls_group **pg)
{
    ls_group *g = *pg;
    if (!g) return;
    g->transport->release(g);
    ls__group_discard(g);
    *pg = NULL;
}

int ls_group_rank(const ls_group *group)
{
    return group->rank;
}

int ls_group_size(const ls_group *group)
{
    return group->size;
}

void ls_group_abort(ls_group *group, const char *reason)
{
    char text[LS__JOB_FAILURE_BYTES];
    snprintf(text, sizeof text, "rank %d aborted the group: %s", group->rank, reason ? reason : "no reason given");
    group->transport->abort(group, LS_EABORTED, text);
}

/* A number that the members of the new group agree on and that others hardly have. */
static uint16_t split_id(const ls_group *parent, uint64_t made_at, int color)
{
    uint64_t h = ((uint64_t)parent->id << 48) ^ (made_at << 24) ^ (uint64_t)(uint32_t)color;
    h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
    uint16_t id = (uint16_t)(h >> 48);
    return id ? id : 1;
}

ls_status ls_group_split(ls_group *group, int color, int key, ls_group **out)
{
    *out = NULL;
    if (group->broken) return ls__fail(group->broken, "%s", group->broken_text);
    uint64_t made_at = group->next_number;
    ls_status status = group->transport->split(group, color, key, out);
    if (*out) (*out)->id = split_id(group, made_at, color);
    return status;
}

int ls__split_pick(const ls__split_entry *all, int p, int color, int *ranks)
{
    int n = 0;
    for (int r = 0; r < p; r++) {
        if (all[r].color != color) continue;
        int i = n++;
        for (; i > 0 && all[ranks[i - 1]].key > all[r].key; i--) ranks[i] = ranks[i - 1];
        ranks[i] = r;
    }
    return n;
}

void ls__event_start(const ls_work *w, size_t bytes)
{
    if (!LS__CHECKED) return;
    ls_record_event(w->group->world->record, w->started, LS_EVENT_COLL_START, ls__group_word(w->group, w->number),
                    (uint64_t)w->kind << 56 | bytes);
}

void ls__event_done(ls_work *w)
{
    if (!LS__CHECKED) return;
    int64_t waited = w->last_arrival - w->started;
    w->ended = ls_now();
    ls_record_event(w->group->world->record, w->ended, LS_EVENT_COLL_DONE, ls__group_word(w->group, w->number),
                    (uint64_t)w->last_rank << 48 | (uint64_t)(waited > 0 ? waited : 0));
}

void ls__event_blocked(const ls_work *w, int64_t begin)
{
    if (!LS__CHECKED) return;
    /* It may have ended just before the caller began to wait for it. */
    int64_t end = w->ended ? w->ended : ls_now();
    int64_t now = ls__record_blocked(w->group->world->record, ls__group_word(w->group, w->number), begin,
                                     end > begin ? end : begin);
    atomic_fetch_add_explicit(&w->group->world->blocked, now - begin, memory_order_relaxed);
}

int64_t ls__world_blocked_ns(const ls_world *world)
{
    return atomic_load_explicit(&world->blocked, memory_order_relaxed);
}

uint64_t ls__group_next_word(const ls_group *group)
{
    return ls__group_word(group, group->next_number);
}

/* ---- Works under way. */

static ls__queue *queue_of(ls_work *w)
{
    return ls__is_p2p(w->kind) ? &w->group->p2p : &w->group->collectives;
}

void ls__group_enqueue(ls_work *w)
{
    ls__queue *q = queue_of(w);
    if (!is_busy(w->group)) w->group->world->busy_groups++;
    w->next = NULL;
    w->prev = q->last;
    if (q->last)
        q->last->next = w;
    else
        q->first = w;
    q->last = w;
}

/* A work is done: takes it out of its queue. */
static void retire(ls_work *w)
{
    ls__queue *q = queue_of(w);
    w->done = true;
    if (w->prev)
        w->prev->next = w->next;
    else
        q->first = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        q->last = w->prev;
    if (!is_busy(w->group)) w->group->world->busy_groups--;
}

/* Sends (receives) to the same rank are served in the order of the calls. */
static bool is_behind_another(const ls_work *w)
{
    for (const ls_work *e = w->group->p2p.first; e != w; e = e->next)
        if (e->kind == w->kind && e->root == w->root) return true;
    return false;
}

ls_status ls__group_progress(ls_group *g)
{
    if (g->broken) return ls__fail(g->broken, "%s", g->broken_text);
    for (ls_work *w = g->collectives.first, *next; w; w = next) {
        next = w->next;
        ls_status status = g->transport->progress(g, w);
        if (status < 0) return status;
        if (status == LS_OK)
            retire(w);
        else if (w->seen < g->size)
            break; /* ranks arrive in order: where one is missing here, it is missing behind too */
    }
    for (ls_work *w = g->p2p.first, *next; w; w = next) {
        next = w->next;
        if (is_behind_another(w)) continue;
        ls_status status = g->transport->progress(g, w);
        if (status < 0) return status;
        if (status == LS_OK) retire(w);
    }
    return LS_OK;
}

void ls__others_progress(const ls_group *g)
{
    for (ls_group *o = g->world->groups; o; o = o->next_of_world)
        if (o != g && is_busy(o)) (void)!ls__group_progress(o);
}

ls_status ls__world_progress(ls_group *g)
{
    ls_status status = ls__group_progress(g);
    if (!status && ls__others_busy(g)) ls__others_progress(g);
    return status;
}
