/* Making and leaving groups on several nodes.
 *
 * The first member on each node allocates the control block in its job's heap; the others learn its place through a collective of the
 * parent group (for the group of all ranks, of the network itself). */
#include "comm/multi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/heap.h"

enum {
    ROUND_PER_PART = 60 << 10, /* bytes of a round for each carrier and node; see below */
    ROUND_MAX = 8 << 20,       /* bytes of a round, at most */
    DEPTH_MIN = 4,
    MAX_GROUPS = LS__NET_MAX_TAG >> LS__TAG_KIND_BITS,
};

/* ---- The private view. */

/* Numbers the nodes of the group in the order of their first members. */
static void place_members(ls__multi *m, int p)
{
    const ls__cluster *c = m->cluster;
    for (int r = 0; r < p; r++) {
        int q = 0;
        while (c->node_of[m->world_of[q]] != c->node_of[m->world_of[r]]) q++;
        m->node_of[r] = q == r ? m->nodes++ : m->node_of[q];
        m->local_of[r] = m->node_size[m->node_of[r]]++;
    }
    for (int k = 0, at = 0; k < m->nodes; k++) {
        m->node_members_at[k] = at;
        at += m->node_size[k];
        if (m->node_size[k] > m->slices) m->slices = m->node_size[k];
    }
    for (int r = 0; r < p; r++) m->node_members[m->node_members_at[m->node_of[r]] + m->local_of[r]] = r;
}

static void plan_sums(ls__multi *m, int p)
{
    for (int leaves = 0; leaves < 2; leaves++) {
        m->subtree_count[leaves] = ls__canonical_subtrees(m->node_of, p, leaves, m->subtrees[leaves]);
        ls__canonical_steps(m->subtrees[leaves], m->subtree_count[leaves], p, m->steps[leaves]);
    }
}

static void free_view(ls__multi *m)
{
    if (!m) return;
    for (int i = 0; i < LS__MULTI_DEPTH; i++) {
        ls__multi_slot *s = &m->slots[i];
        ls__batch_free(&s->first_in);
        ls__batch_free(&s->first_out);
        ls__batch_free(&s->second_in);
        ls__batch_free(&s->second_out);
    }
    ls__batch_free(&m->headers_in);
    ls__batch_free(&m->headers_out);
    ls__multi_p2p_free(m);
    void *owned[] = { m->world_of,    m->node_of,     m->local_of, m->node_size, m->node_members, m->node_members_at,
                      m->subtrees[0], m->subtrees[1], m->steps[0], m->steps[1],  m->in,           m->partials,
                      m->scratch,     m->wide,        m->own,      m->polled,    m->left,         m->p2p_begun,
                      m->p2p_done };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(m);
}

/* How large a round is, and how many are under way. Messages of 60 KiB with 32 of them under way between two ranks keep a TCP link of
 * 1 Gbit/s full in both directions (0.95 of its rate is data). Open MPI sends up to 64 KiB, its own header included, without a
 * handshake; with 256 KiB it was 0.92, with 1 MiB 0.86, and with a fourth of them under way a process that had to wait for a core left
 * the link idle. With many nodes there are many messages anyway. */
static void plan_rounds(ls__multi *m, size_t p)
{
    m->depth = (uint32_t)(LS__MULTI_DEPTH / (m->nodes - 1));
    if (m->depth < DEPTH_MIN) m->depth = DEPTH_MIN;
    m->round_bytes = (size_t)ROUND_PER_PART * (size_t)m->slices * (size_t)m->nodes;
    if (m->round_bytes > ROUND_MAX) m->round_bytes = ROUND_MAX;
    if (m->cluster->staging_bytes) m->round_bytes = m->cluster->staging_bytes / m->depth;
    if (m->round_bytes < 64 * p) m->round_bytes = 64 * p; /* a block for each rank must fit */
    m->round_bytes = (m->round_bytes + 4095) / 4096 * 4096;
}

static ls_status new_view(const ls__new_group *new, ls__multi **out)
{
    int p = new->size;
    size_t n = (size_t)p;
    ls__multi *m = calloc(1, sizeof *m);
    *out = m;
    if (!m) goto fail;
    m->cluster = new->world->cluster;
    m->id = new->number;
    int **lists[] = { &m->world_of, &m->node_of, &m->local_of, &m->node_size, &m->node_members, &m->node_members_at };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!(*lists[i] = calloc(n, sizeof(int)))) goto fail;
    for (int i = 0; i < 2; i++) {
        m->subtrees[i] = malloc(n * sizeof *m->subtrees[i]);
        m->steps[i] = malloc(n * sizeof *m->steps[i]);
        if (!m->subtrees[i] || !m->steps[i]) goto fail;
    }
    m->in = malloc(n * sizeof *m->in);
    m->partials = malloc(2 * n * sizeof *m->partials);
    m->left = calloc(n, sizeof *m->left);
    m->p2p_begun = calloc(n, sizeof *m->p2p_begun);
    m->p2p_done = calloc(n, sizeof *m->p2p_done);
    if (!m->in || !m->partials || !m->left || !m->p2p_begun || !m->p2p_done) goto fail;
    memcpy(m->world_of, new->world_ranks, n * sizeof(int));
    place_members(m, p);
    plan_sums(m, p);
    m->node = m->node_of[new->rank];
    m->local = m->local_of[new->rank];
    m->locals = m->node_size[m->node];
    m->scratch = malloc(ls__canonical_scratch(m->locals));
    if (!m->scratch) goto fail;
    m->eager_bytes = LS__MULTI_EAGER_TOTAL / n;
    if (m->eager_bytes > LS__MULTI_EAGER_BYTES) m->eager_bytes = LS__MULTI_EAGER_BYTES;
    if (m->eager_bytes < LS__MULTI_EAGER_LEAST) m->eager_bytes = LS__MULTI_EAGER_LEAST;
    plan_rounds(m, n);
    return LS_OK;
fail:
    free_view(m);
    *out = NULL;
    return ls__fail(LS_ENOMEM, "group of %d: out of memory", p);
}

/* ---- The control block. */

typedef struct layout {
    size_t members, arrivals, eager, staging, recv_window, bytes;
} layout;

static layout plan_control(const ls__multi *m, int p)
{
    layout l;
    l.members = (sizeof(ls__multi_control) + 63) / 64 * 64;
    l.arrivals = l.members + (size_t)m->locals * sizeof(ls__member);
    l.eager = l.arrivals + (size_t)m->locals * sizeof *m->arrivals;
    l.staging = (l.eager + 2 * (size_t)p * m->eager_bytes + 4095) / 4096 * 4096;
    l.recv_window = l.staging + (size_t)m->locals * m->depth * m->round_bytes;
    l.bytes = l.recv_window + m->depth * m->round_bytes;
    return l;
}

static ls_status make_control(ls_world *world, const ls__multi *m, int p, uint64_t *place)
{
    layout l = plan_control(m, p);
    ls_status status = ls__heap_take(world->job, world->job_fd, l.bytes, false, place);
    if (status) return status;
    char *base = ls__heap_at(world->job, *place);
    ls__multi_control *c = (ls__multi_control *)(void *)base;
    c->failure.rank = -1;
    atomic_store(&c->references, (uint32_t)m->locals);
    ls__member *member = (ls__member *)(void *)(base + l.members);
    for (int i = 0; i < m->locals; i++) {
        member[i].world_rank = m->world_of[ls__multi_member(m, m->node, i)];
        member[i].job_rank = ls__world_local_of(world, member[i].world_rank);
    }
    return LS_OK;
}

/* ---- The steps of a split; see ls__transport. */

bool ls__multi_serves(const ls_world *world, int nodes)
{
    return world->cluster && nodes > 1;
}

ls_status ls__multi_make(ls__new_group *n, uint64_t *place)
{
    ls__multi *m;
    *place = 0;
    if (n->number >= MAX_GROUPS)
        return ls__fail(LS_EUNSUPPORTED, "a world can make at most %d groups over several nodes", n->number - 1);
    ls_status status = new_view(n, &m);
    if (!status && m->local == 0) status = make_control(n->world, m, n->size, place);
    if (status) {
        free_view(m);
        return status;
    }
    n->view = m;
    return LS_OK;
}

void ls__multi_discard(ls__new_group *n)
{
    free_view(n->view);
    n->view = NULL;
}

ls_status ls__multi_enter(ls__new_group *n, uint64_t place, ls_group **out)
{
    ls__multi *m = n->view;
    ls_status status = ls__group_new(n->world, &ls__multi_transport, n->rank, n->size, out);
    if (status) {
        ls__multi_discard(n);
        return status;
    }
    ls_group *g = *out;
    layout l = plan_control(m, n->size);
    uint8_t *base = ls__heap_at(n->world->job, place);
    m->group = g;
    m->control = (ls__multi_control *)(void *)base;
    m->control_at = place;
    m->arrivals = (ls__multi_arrival(*)[2])(void *)(base + l.arrivals);
    m->eager = base + l.eager;
    m->staging = base + l.staging;
    m->recv_window = base + l.recv_window;
    m->next = m->cluster->groups;
    m->cluster->groups = m;
    g->impl = m;
    g->failure = &m->control->failure;
    g->members = (ls__member *)(void *)(base + l.members);
    g->locals = m->locals;
    g->local = m->local;
    ls__notice_group_made(m);
    return LS_OK;
}

/* Views of broken groups: MPI may still write to their memory. A process has one MPI, and so one such list. */
static pthread_mutex_t abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static ls__multi *abandoned;
/* Groups have higher numbers than abandoned ones, also in later worlds, so that they do not receive old messages. */
static int numbers_abandoned;

/* ---- The group of all ranks. */

/* All ranks learn the places, and whether any of them failed. */
static ls_status exchange_places(ls__cluster *c, ls_status status, uint64_t place, uint64_t *places, int timeout_ms)
{
    char why[200];
    snprintf(why, sizeof why, "%s", ls_error());
    if (status) place = UINT64_MAX;
    ls_status exchanged = ls__net_allgather(c->net, &place, places, sizeof place, timeout_ms);
    if (status) return ls__fail(status, "%s", why);
    for (int r = 0; r < c->size && !exchanged; r++)
        if (places[r] == UINT64_MAX) return ls__fail(LS_EPEER, "rank %d could not make its part of the world", r);
    return exchanged;
}

ls_status ls__multi_join(ls_world *world, ls_group **out)
{
    ls__cluster *c = world->cluster;
    size_t p = (size_t)c->size;
    int *world_ranks = malloc(p * sizeof *world_ranks);
    uint64_t *places = malloc(p * sizeof *places), place = 0;
    ls__new_group n = { .world = world, .size = c->size, .rank = c->rank, .number = LS__WORLD_GROUP };
    ls_status status = LS_OK;
    *out = NULL;
    if (!world_ranks || !places) {
        status = ls__fail(LS_ENOMEM, "world: out of memory");
        goto done;
    }
    for (int r = 0; r < c->size; r++) world_ranks[r] = r;
    n.world_ranks = world_ranks;
    pthread_mutex_lock(&abandoned_lock);
    if (world->next_group < numbers_abandoned) world->next_group = numbers_abandoned;
    pthread_mutex_unlock(&abandoned_lock);
    status = ls__multi_make(&n, &place);
    status = exchange_places(c, status, place, places, world->timeout_ms);
    if (!status) status = ls__notice_receive(c);
    if (!status)
        status = ls__multi_enter(&n, places[ls__new_group_local_root(&n)], out);
    else
        ls__multi_discard(&n);
done:
    free(world_ranks);
    free(places);
    return status;
}

/* ---- Leaving. */

static void cancel_batch(const ls__multi *m, ls__message_batch *b)
{
    for (int i = 0; i < b->count; i++)
        if (b->list[i].request.active) ls__net_cancel(m->cluster->net, &b->list[i].request);
}

/* Waits until the last messages of a healthy group are sent; they are short, and others wait for them. */
static bool flush(ls_group *g)
{
    ls__multi *m = ls__multi_of(g);
    int polls = 0;
    for (int64_t begin = ls_now(); ls_now() - begin < 1000000000; ls__net_pause(&polls)) {
        if (g->broken || ls__multi_poll(g) || ls__multi_check_failed(g)) return false;
        if (!m->p2p && !m->leaving && ls__batch_done(&m->headers_out) && ls__batch_done(&m->headers_in))
            return !g->collectives.first;
    }
    return false;
}

/* The last group of a world is freed, and with it the receive for notices. Ranks usually leave together, so a short wait is enough to
 * receive all their notices: MPI complains about messages that were never received. A rank that leaves later than that knows that this
 * one has left, and sends it none. */
static void await_others(const ls__multi *m)
{
    int polls = 0;
    for (int64_t begin = ls_now(); ls_now() - begin < LS__MULTI_AWAIT_NS; ls__net_pause(&polls)) {
        int left = 1;
        for (int r = 0; r < m->group->size; r++) left += m->left[r].left;
        if (left == m->group->size || ls__notice_poll(m->cluster)) return;
    }
}

void ls__multi_release(ls_group *g)
{
    ls__multi *m = ls__multi_of(g);
    bool clean = flush(g);
    if (!g->broken) ls__notice_leave(m, clean);
    if (!g->broken && m->id == LS__WORLD_GROUP) await_others(m);
    clean = clean && !ls__multi_check_failed(g);
    ls__multi **link = &m->cluster->groups;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
    if (clean) {
        if (atomic_fetch_sub(&m->control->references, 1) == 1)
            ls__heap_give(g->world->job, g->world->job_fd, m->control_at);
        free_view(m);
        return;
    }
    /* The control block stays, too: a message may still arrive in the receive window. */
    if (m->id == LS__WORLD_GROUP)
        m->cluster->failed = true;
    else
        m->cluster->abandoned = true;
    cancel_batch(m, &m->headers_in);
    for (int i = 0; i < LS__MULTI_DEPTH; i++) {
        cancel_batch(m, &m->slots[i].first_in);
        cancel_batch(m, &m->slots[i].second_in);
    }
    ls__multi_p2p_cancel(m);
    pthread_mutex_lock(&abandoned_lock);
    m->next = abandoned;
    abandoned = m;
    if (numbers_abandoned < g->world->next_group) numbers_abandoned = g->world->next_group;
    pthread_mutex_unlock(&abandoned_lock);
}
