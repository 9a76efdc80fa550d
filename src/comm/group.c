/* Groups, splitting them, and the queues of their works: what is the same for every transport. */
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "comm/cluster.h"
#include "comm/traits.h"

/* ---- Messages. */

static const char *const op_names[LS_OP_COUNT] = { "sum", "mean", "min", "max", "product", "and", "or", "xor" };

static const char *const caller_names[LS__CALLERS] = {
    [LS__CALLER_SPLIT] = "ls_group_split",
    [LS__CALLER_DDP_OPEN] = "ls_ddp_open",
    [LS__CALLER_ELASTIC_OPEN] = "ls_elastic_open",
    [LS__CALLER_PARAMS_VERIFY] = "ls_params_verify",
};

ls__caller ls__group_begin_call(ls_group *g, ls__caller caller)
{
    uint8_t before = atomic_load_explicit(&g->caller, memory_order_relaxed);
    if (before == LS__CALLER_USER) atomic_store_explicit(&g->caller, (uint8_t)caller, memory_order_relaxed);
    return (ls__caller)before;
}

void ls__group_end_call(ls_group *g, ls__caller before)
{
    atomic_store_explicit(&g->caller, (uint8_t)before, memory_order_relaxed);
}

static void describe_call(ls__fingerprint fingerprint, uint64_t number, uint64_t count, char *out, size_t bytes)
{
    /* A peer's fingerprint may be anything. */
    unsigned kind = fingerprint & 0xff, type = fingerprint >> 8 & 0xff, op = fingerprint >> 16 & 0xff;
    int root = ls__fingerprint_root(fingerprint);
    const char *name = ls_collective_name((uint8_t)kind);
    if (ls__is_p2p(kind)) {
        snprintf(out, bytes, "%s %s rank %d (%llu of %s)", name, kind == LS_COLLECTIVE_SEND ? "to" : "from", root,
                 (unsigned long long)count, ls_dtype_name(type));
        return;
    }
    int n = snprintf(out, bytes, "%s #%llu", name, (unsigned long long)number);
    if (kind == LS_COLLECTIVE_BARRIER || n < 0 || (size_t)n >= bytes) return;
    char more[48] = "";
    if (kind < LS_COLLECTIVE_KINDS && ls__traits_of[kind].reduces && op < LS_OP_COUNT)
        snprintf(more, sizeof more, ", %s", op_names[op]);
    if (root >= 0) snprintf(more + strlen(more), sizeof more - strlen(more), ", root %d", root);
    snprintf(out + n, bytes - (size_t)n, " (%llu of %s%s)", (unsigned long long)count, ls_dtype_name(type), more);
}

void ls__describe(ls__fingerprint fingerprint, uint64_t number, uint64_t count, char *out, size_t bytes)
{
    unsigned caller = fingerprint >> 24 & 0xff;
    describe_call(fingerprint, number, count, out, bytes);
    size_t n = strlen(out);
    if (caller && caller < LS__CALLERS) snprintf(out + n, bytes - n, " of %s()", caller_names[caller]);
}

void ls__describe_group(const ls_group *g, char out[LS__GROUP_TEXT])
{
    enum { SHOWN = 8 };
    const ls_world *world = g->world;
    bool all = g == world->group;
    *out = '\0';
    if (!g->members || !world->groups || !world->groups->next_of_world) return;
    if (all || !ls__group_on_one_node(g)) {
        snprintf(out, LS__GROUP_TEXT, all ? " (group of all ranks)" : " (a group of %d ranks)", g->size);
        return;
    }
    int n = snprintf(out, LS__GROUP_TEXT, " (group of ranks");
    for (int i = 0; i < g->size && i < SHOWN; i++)
        n += snprintf(out + n, LS__GROUP_TEXT - (size_t)n, "%s %d", i ? "," : "", g->members[i].world_rank);
    snprintf(out + n, LS__GROUP_TEXT - (size_t)n, g->size > SHOWN ? ", ...)" : ")");
}

void ls__describe_work(const ls_work *w, char *out, size_t bytes)
{
    ls__describe(ls__work_fingerprint(w), w->number, w->count, out, bytes);
}

void ls__describe_awaited(const ls_work *w, char *out, size_t bytes)
{
    ls_work theirs = { .kind = w->kind, .type = w->type, .op = w->op, .caller = w->caller, .root = w->root };
    if (ls__is_p2p(w->kind)) {
        theirs.kind = w->kind == LS_COLLECTIVE_SEND ? LS_COLLECTIVE_RECEIVE : LS_COLLECTIVE_SEND;
        theirs.root = w->group->rank;
    }
    ls__describe(ls__work_fingerprint(&theirs), w->number, w->count, out, bytes);
}

/* ---- Threads. */

void ls__world_enter(ls_world *world)
{
    if (!pthread_mutex_trylock(&world->lock)) return;
    atomic_fetch_add(&world->callers, 1);
    if (world->job) ls__job_wake(world->job, world->local_rank); /* the thread that has it may sleep */
    pthread_mutex_lock(&world->lock);
    atomic_fetch_sub(&world->callers, 1);
}

void ls__world_leave(ls_world *world)
{
    pthread_mutex_unlock(&world->lock);
}

void ls__world_yield(ls_world *world)
{
    if (!atomic_load_explicit(&world->callers, memory_order_relaxed)) return;
    pthread_mutex_unlock(&world->lock);
    nanosleep(&(struct timespec){ .tv_nsec = 20000 },
              NULL); /* a mutex is not fair: without a pause this thread would get it again */
    ls__world_enter(world);
}

/* ---- Groups. */

ls_status ls__group_new(ls_world *world, const ls__transport *transport, int rank, int size, ls_group **out)
{
    ls_group *g = calloc(1, sizeof *g);
    *out = g;
    if (!g) return ls__fail(LS_ENOMEM, "group: out of memory");
    g->world = world;
    g->transport = transport;
    g->rank = rank;
    g->size = size;
    ls__world_enter(world);
    g->next_of_world = world->groups;
    world->groups = g;
    ls__world_leave(world);
    return LS_OK;
}

static void empty_queues(ls_group *g)
{
    if (ls__group_is_busy(g)) g->world->busy_groups--;
    g->collectives = g->p2p = (ls__queue){ 0 };
}

void ls__group_discard(ls_group *g)
{
    if (!g) return;
    empty_queues(g);
    ls__mailbox_free(g->mailbox);
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
    return ls__group_broken(g);
}

ls_status ls__group_broken(const ls_group *g)
{
    return ls__fail(g->broken, "%s", g->broken_text);
}

ls_status ls__group_status(const ls_group *group)
{
    return group->broken;
}

bool ls__group_is_broken(const ls_group *group)
{
    return group->broken;
}

void ls_group_free(ls_group **pg)
{
    ls_group *g = pg ? *pg : NULL;
    if (!g) return;
    ls_world *world = g->world;
    ls__world_enter(world);
    g->transport->release(g);
    ls__group_discard(g);
    ls__world_leave(world);
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
    if (!group) return;
    char text[LS__FAILURE_BYTES];
    snprintf(text, sizeof text, "rank %d aborted the group: %s", group->rank, reason ? reason : "no reason given");
    group->transport->abort(group, LS_EABORTED, text, true);
}

/* ---- Splitting. Members exchange colors and keys, the first member of each new group on each node allocates what the members there
 * share, and a second exchange makes its place known. */

/* What each member contributes to the first exchange. */
typedef struct split_entry {
    int32_t color, key;
    int32_t number; /* the number of its next group */
    int32_t world_rank;
} split_entry;
enum { ENTRY_WORDS = sizeof(split_entry) / sizeof(int32_t) };

/* A group id for events that is equal on all members of the new group and most likely differs from those of other groups. */
static uint16_t split_id(const ls_group *parent, uint64_t made_at, int color)
{
    uint64_t h = ((uint64_t)parent->id << 48) ^ (made_at << 24) ^ (uint64_t)(uint32_t)color;
    h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
    uint16_t id = (uint16_t)(h >> 48);
    return id ? id : 1;
}

/* Writes the ranks of `color`, ordered by key, then by rank; returns how many there are. */
static int pick_members(const split_entry *all, int p, int color, int *ranks)
{
    int n = 0;
    for (int r = 0; r < p && color >= 0; r++) {
        if (all[r].color != color) continue;
        int i = n++;
        for (; i > 0 && all[ranks[i - 1]].key > all[r].key; i--) ranks[i] = ranks[i - 1];
        ranks[i] = r;
    }
    return n;
}

int ls__new_group_local_root(const ls__new_group *n)
{
    int i = 0;
    while (ls__world_node_of(n->world, n->world_ranks[i]) != n->world->node) i++;
    return i;
}

static int count_nodes(const ls__new_group *n)
{
    int nodes = 0;
    for (int i = 0; i < n->size; i++) {
        int node = ls__world_node_of(n->world, n->world_ranks[i]), k = 0;
        while (ls__world_node_of(n->world, n->world_ranks[k]) != node) k++;
        nodes += k == i;
    }
    return nodes;
}

/* A group of one rank has nothing to exchange, and no collective to record. */
static ls_status exchange(ls_group *g, const void *mine, void *all, size_t count, ls_dtype type)
{
    if (g->size > 1) return ls_allgather(g, mine, all, count, type);
    memcpy(all, mine, count * ls_dtype_size(type));
    return LS_OK;
}

typedef struct split_memory {
    split_entry *all;
    uint64_t *places;
    int *ranks, *world_ranks;
} split_memory;

static ls_status split(ls_group *g, int color, int key, const split_memory *m, ls_group **out)
{
    ls_world *world = g->world;
    split_entry mine = { .color = color < 0 ? -1 : color, .key = key };
    mine.number = world->next_group;
    mine.world_rank = world->rank;
    ls_status status = exchange(g, &mine, m->all, ENTRY_WORDS, LS_I32);
    if (status) return status;
    /* All members skip the highest number that any of them would take. */
    for (int r = 0; r < g->size; r++)
        if (m->all[r].number > mine.number) mine.number = m->all[r].number;
    world->next_group = mine.number + 1;

    ls__new_group n = { .world = world, .world_ranks = m->world_ranks, .number = mine.number };
    n.size = pick_members(m->all, g->size, mine.color, m->ranks);
    for (int i = 0; i < n.size; i++) {
        m->world_ranks[i] = m->all[m->ranks[i]].world_rank;
        if (m->ranks[i] == g->rank) n.rank = i;
    }
    uint64_t place = 0;
    const ls__transport *transport = n.size ? ls__transport_find(world, count_nodes(&n)) : NULL;
    if (transport) status = transport->make(&n, &place);
    if (status) {
        char why[LS__FAILURE_BYTES];
        snprintf(why, sizeof why, "%s", ls_error());
        status = ls__group_fail(g, status, "rank %d: split: %s", world->rank, why);
    }
    if (!status) status = exchange(g, &place, m->places, 1, LS_I64);
    if (!transport) return status;
    if (!status) return transport->enter(&n, m->places[m->ranks[ls__new_group_local_root(&n)]], out);
    if (transport->discard) transport->discard(&n);
    return status;
}

ls_status ls_group_split(ls_group *group, int color, int key, ls_group **out)
{
    LS__NEED(group, "group");
    LS__NEED(out, "out");
    size_t p = (size_t)group->size;
    *out = NULL;
    if (group->broken) return ls__group_broken(group);
    uint64_t made_at = group->next_number;
    ls__caller before = ls__group_begin_call(group, LS__CALLER_SPLIT);
    split_memory m = { .all = malloc(p * sizeof *m.all),
                       .places = malloc(p * sizeof *m.places),
                       .ranks = malloc(p * sizeof *m.ranks),
                       .world_ranks = malloc(p * sizeof *m.world_ranks) };
    ls_status status = m.all && m.places && m.ranks && m.world_ranks
                           ? split(group, color, key, &m, out)
                           : ls__group_fail(group, LS_ENOMEM, "rank %d: split: out of memory", group->world->rank);
    free(m.all);
    free(m.places);
    free(m.ranks);
    free(m.world_ranks);
    ls__group_end_call(group, before);
    if (*out) (*out)->id = split_id(group, made_at, color);
    return status;
}

/* ---- Works under way. */

static ls__queue *queue_of(ls_work *w)
{
    return ls__is_p2p(w->kind) ? &w->group->p2p : &w->group->collectives;
}

void ls__group_enqueue(ls_work *w)
{
    ls__queue *q = queue_of(w);
    if (!ls__group_is_busy(w->group)) w->group->world->busy_groups++;
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
    if (!ls__group_is_busy(w->group)) w->group->world->busy_groups--;
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
    if (g->broken) return ls__group_broken(g);
    for (ls_work *w = g->collectives.first, *next; w; w = next) {
        next = w->next;
        ls_status status = g->transport->progress(g, w);
        if (status < 0) return status;
        if (status == LS_OK)
            retire(w);
        else if (!w->arrived)
            break; /* ranks arrive in order: one that is missing here is missing in later collectives, too */
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
        if (o != g && ls__group_is_busy(o)) (void)!ls__group_progress(o);
}

ls_status ls__world_progress(ls_group *g)
{
    ls_status status = ls__group_progress(g);
    if (!status && ls__others_busy(g)) ls__others_progress(g);
    return status;
}
