/* Making and ending groups over several machines.
 *
 * The first member on each machine takes the control block from its job's heap; the others learn where it is through a
 * collective of the parent (for the group of all ranks, of the network itself). A group that a split leaves with
 * members of one machine only is a group in shared memory like any other. */
#include "comm/multi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/heap.h"
#include "comm/shm.h"

enum {
    ROUND_PER_PART = 60 << 10, /* of a round goes to each carrier and machine; see below */
    ROUND_AT_MOST = 8 << 20,   /* and what that may come to */
    DEPTH_MIN = 4,
    MAX_GROUPS = LS__NET_MAX_TAG >> LS__TAG_KIND_BITS,
};

/* ---- The private view. */

/* Numbers the machines of the group in the order of their first members. */
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

/* How large a round is, and how many are under way. Messages of 60 KiB with 32 of them under way between two ranks keep
 * a TCP link of 1 Gbit/s full in both directions (0.95 of its rate is data). Open MPI sends up to 64 KiB, its own head
 * included, without asking first; with 256 KiB it was 0.92, with 1 MiB 0.86, and with a fourth of them under way a process
 * that had to wait for a core left the link empty. With many machines there are many messages anyway. */
static void plan_rounds(ls__multi *m, size_t p)
{
    m->depth = (uint32_t)(LS__MULTI_DEPTH / (m->nodes - 1));
    if (m->depth < DEPTH_MIN) m->depth = DEPTH_MIN;
    m->round_bytes = (size_t)ROUND_PER_PART * (size_t)m->slices * (size_t)m->nodes;
    if (m->round_bytes > ROUND_AT_MOST) m->round_bytes = ROUND_AT_MOST;
    if (m->cluster->staging_bytes) m->round_bytes = m->cluster->staging_bytes / m->depth;
    if (m->round_bytes < 64 * p) m->round_bytes = 64 * p; /* a block for each rank must fit */
    m->round_bytes = (m->round_bytes + 4095) / 4096 * 4096;
}

/* The view of a group whose members have these ranks in the world; `rank` is this one's place among them. */
static ls_status new_view(ls_world *world, int id, const int *world_of, int p, int rank, ls__multi **out)
{
    size_t n = (size_t)p;
    ls__multi *m = calloc(1, sizeof *m);
    *out = m;
    if (!m) goto fail;
    m->cluster = world->cluster;
    m->id = id;
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
    memcpy(m->world_of, world_of, n * sizeof(int));
    place_members(m, p);
    plan_sums(m, p);
    m->node = m->node_of[rank];
    m->local = m->local_of[rank];
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
    size_t locals, eager, staging, recv_window, bytes;
} layout;

static layout plan_control(const ls__multi *m, int p)
{
    layout l;
    l.locals = (sizeof(ls__multi_control) + 63) / 64 * 64;
    l.eager = l.locals + (size_t)m->locals * sizeof(ls__multi_local);
    l.staging = (l.eager + 2 * (size_t)p * m->eager_bytes + 4095) / 4096 * 4096;
    l.recv_window = l.staging + (size_t)m->locals * m->depth * m->round_bytes;
    l.bytes = l.recv_window + m->depth * m->round_bytes;
    return l;
}

static ls_status make_control(ls_world *world, const ls__multi *m, int p, uint64_t *at)
{
    layout l = plan_control(m, p);
    ls_status status = ls__heap_take(world->job, world->job_fd, l.bytes, false, at);
    if (status) return status;
    char *base = ls__heap_at(world->job, *at);
    ls__multi_control *c = (ls__multi_control *)(void *)base;
    c->failure.rank = -1;
    atomic_store(&c->references, (uint32_t)m->locals);
    ls__multi_local *local = (ls__multi_local *)(void *)(base + l.locals);
    for (int i = 0; i < m->locals; i++)
        local[i].job = m->cluster->local_of[m->world_of[ls__multi_member(m, m->node, i)]];
    return LS_OK;
}

/* Joins view and control block to a group; the view belongs to the group from then on, also on failure. */
static ls_status make_group(ls_world *world, ls__multi *m, int rank, int p, uint64_t at, ls_group **out)
{
    ls_status status = ls__group_new(world, &ls__multi_transport, rank, p, out);
    if (status) {
        free_view(m);
        return status;
    }
    layout l = plan_control(m, p);
    uint8_t *base = ls__heap_at(world->job, at);
    m->group = *out;
    m->control = (ls__multi_control *)(void *)base;
    m->control_at = at;
    m->locals_at = (ls__multi_local *)(void *)(base + l.locals);
    m->eager = base + l.eager;
    m->staging = base + l.staging;
    m->recv_window = base + l.recv_window;
    m->next = m->cluster->groups;
    m->cluster->groups = m;
    (*out)->impl = m;
    ls__notice_group_made(m);
    return LS_OK;
}

/* Views of broken groups: MPI may still hold their memory. A process has one MPI, and so one such list. */
static pthread_mutex_t abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static ls__multi *abandoned;
static int
    numbers_abandoned; /* groups have higher numbers than those, also in later worlds: old messages are not theirs */

/* ---- The group of all ranks. */

ls_status ls__multi_join(ls_world *world, ls_group **out)
{
    ls__cluster *c = world->cluster;
    size_t n = (size_t)c->size;
    int *world_of = malloc(n * sizeof *world_of);
    uint64_t *places = malloc(n * sizeof *places), place = 0;
    ls__multi *m = NULL;
    ls_status status = LS_OK;
    *out = NULL;
    if (!world_of || !places) {
        status = ls__fail(LS_ENOMEM, "world: out of memory");
        goto done;
    }
    for (int r = 0; r < c->size; r++) world_of[r] = r;
    c->next_group = LS__MULTI_WORLD;
    status = new_view(world, c->next_group++, world_of, c->size, c->rank, &m);
    pthread_mutex_lock(&abandoned_lock);
    if (c->next_group < numbers_abandoned) c->next_group = numbers_abandoned;
    pthread_mutex_unlock(&abandoned_lock);
    if (!status && m->local == 0) status = make_control(world, m, c->size, &place);
    if (status) place = UINT64_MAX;
    char why[200];
    strncpy(why, ls_error(), sizeof why - 1);
    why[sizeof why - 1] = 0;
    ls_status told = ls__net_allgather(c->net, &place, places, sizeof place, world->timeout_ms);
    if (status) ls__fail(status, "%s", why);
    if (!status) status = told;
    for (int r = 0; r < c->size && !status; r++)
        if (places[r] == UINT64_MAX) status = ls__fail(LS_EPEER, "rank %d could not make its part of the world", r);
    if (!status) status = ls__notice_receive(c);
    if (!status) {
        status = make_group(world, m, c->rank, c->size, places[ls__multi_member(m, m->node, 0)], out);
        m = NULL;
    }
done:
    free_view(m);
    free(world_of);
    free(places);
    return status;
}

/* ---- Split. */

/* A number that no group has which shares a rank with this one: all members pass over the highest that any would take.
 */
static ls_status agree_on_number(ls_group *g, const ls__split_entry *all, int *id)
{
    *id = 0;
    for (int r = 0; r < g->size; r++)
        if (all[r].number > *id) *id = all[r].number;
    if (*id < MAX_GROUPS) {
        ls__multi_of(g)->cluster->next_group = *id + 1;
        return LS_OK;
    }
    return ls__multi_break(g, LS_EUNSUPPORTED, "split: %d groups were made before, and there are no numbers left", *id);
}

/* The new group's part on this machine: makes it if this rank is the machine's first. `m` is NULL where all members are
 * on one machine. */
static ls_status make_part(ls_group *g, const ls__multi *m, const int *ranks, int n, uint64_t *place)
{
    const ls__multi *parent = ls__multi_of(g);
    *place = 0;
    if (m) return m->local == 0 ? make_control(g->world, m, n, place) : LS_OK;
    if (ranks[0] != g->rank) return LS_OK;
    int32_t(*members)[2] = malloc((size_t)n * sizeof *members);
    if (!members) return ls__fail(LS_ENOMEM, "split: out of memory");
    for (int i = 0; i < n; i++) {
        members[i][1] = parent->world_of[ranks[i]];
        members[i][0] = parent->cluster->local_of[members[i][1]];
    }
    ls_status status = ls__shm_make(g->world, n, (const int32_t(*)[2])members, place);
    free(members);
    return status;
}

/* The group that this rank gets, from the list of its members. */
static ls_status split_to(ls_group *g, int id, int *ranks, int n, uint64_t *places, ls_group **out)
{
    ls__multi *parent = ls__multi_of(g), *m = NULL;
    int rank = -1, *world_of = malloc((size_t)(n ? n : 1) * sizeof *world_of);
    uint64_t place = 0;
    bool on_one = true;
    ls_status status = world_of ? LS_OK : ls__fail(LS_ENOMEM, "split: out of memory");
    for (int i = 0; i < n && !status; i++) {
        world_of[i] = parent->world_of[ranks[i]];
        on_one = on_one && parent->node_of[ranks[i]] == parent->node;
        if (ranks[i] == g->rank) rank = i;
    }
    if (!status && n && !on_one) status = new_view(g->world, id, world_of, n, rank, &m);
    if (!status && n) status = make_part(g, m, ranks, n, &place);
    free(world_of);
    if (status) {
        free_view(m);
        return ls__multi_give_up(g, status);
    }
    status = ls_allgather(g, &place, places, 1, LS_I64);
    if (status || !n) {
        free_view(m);
        return status;
    }
    uint64_t at = places[ranks[m ? ls__multi_member(m, m->node, 0) : 0]];
    return m ? make_group(g->world, m, rank, n, at, out) : ls__shm_enter(g->world, at, rank, out);
}

ls_status ls__multi_split(ls_group *g, int color, int key, ls_group **out)
{
    size_t p = (size_t)g->size;
    ls__split_entry *all = malloc(p * sizeof *all);
    ls__split_entry mine = { color < 0 ? -1 : color, key, ls__multi_of(g)->cluster->next_group };
    int *ranks = malloc(p * sizeof *ranks), id = 0, n = 0;
    uint64_t *places = malloc(p * sizeof *places);
    ls_status status = LS_OK;
    if (!all || !ranks || !places) status = ls__multi_break(g, LS_ENOMEM, "split: out of memory");
    if (!status) status = ls_allgather(g, &mine, all, 3, LS_I32);
    if (!status) status = agree_on_number(g, all, &id);
    if (!status && color >= 0) n = ls__split_pick(all, g->size, color, ranks);
    if (!status) status = split_to(g, id, ranks, n, places, out);
    free(all);
    free(ranks);
    free(places);
    return status;
}

/* ---- The end. */

static void cancel_batch(const ls__multi *m, ls__message_batch *b)
{
    for (int i = 0; i < b->count; i++)
        if (b->list[i].request.active) ls__net_cancel(m->cluster->net, &b->list[i].request);
}

/* Waits for the last messages of a healthy group to leave; they are short, and others wait for them. */
static bool flush(ls_group *g)
{
    ls__multi *m = ls__multi_of(g);
    int vain = 0;
    for (int64_t begin = ls_now(); ls_now() - begin < 1000000000; ls__net_pause(&vain)) {
        if (g->broken || ls__multi_poll(g) || ls__multi_look(g)) return false;
        if (!m->p2p && !m->leaving && ls__batch_done(&m->headers_out) && ls__batch_done(&m->headers_in))
            return !g->collectives.first;
    }
    return false;
}

/* The last group of a world goes, and with it the receive that notices come into. Ranks usually end together, so a moment
 * of waiting is enough for all their notices to be received: MPI complains of messages that nobody took. Whoever leaves
 * later than that knows that this rank has left, and sends it none. */
static void await_others(const ls__multi *m)
{
    int vain = 0;
    for (int64_t begin = ls_now(); ls_now() - begin < LS__MULTI_AWAIT_NS; ls__net_pause(&vain)) {
        int left = 1;
        for (int r = 0; r < m->group->size; r++) left += m->left[r].left;
        if (left == m->group->size || ls__notice_look(m->cluster)) return;
    }
}

void ls__multi_release(ls_group *g)
{
    ls__multi *m = ls__multi_of(g);
    bool clean = flush(g);
    if (!g->broken) ls__notice_leave(m, clean);
    if (!g->broken && m->id == LS__MULTI_WORLD) await_others(m);
    clean = clean && !ls__multi_look(g);
    ls__multi **link = &m->cluster->groups;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
    if (clean) {
        if (atomic_fetch_sub(&m->control->references, 1) == 1)
            ls__heap_give(g->world->job, g->world->job_fd, m->control_at);
        free_view(m);
        return;
    }
    /* The control block stays, too: a message may still come into the recv_window. */
    if (m->id == LS__MULTI_WORLD)
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
    if (numbers_abandoned < m->cluster->next_group) numbers_abandoned = m->cluster->next_group;
    pthread_mutex_unlock(&abandoned_lock);
}
