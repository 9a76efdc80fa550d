/* Waiting between nodes.
 *
 * The network wakes no rank when a message comes: a rank that waits must poll. It yields the core between polls, first with
 * sched_yield() and then by sleeping on its futex word (wait.h) for some tens of microseconds, so that the kernel has time for packets
 * and the ranks of its own node can still wake it.
 *
 * A failure of the group of all ranks, or of the job, is one of the world: processes then end without waiting for each other. A failure
 * of a smaller group is not. But if no message came from a rank, that rank may have ended; so the world counts as suspect until a
 * collective of all ranks shows that they are running.
 *
 * A failure is written into the group's control block, where all ranks of the node see it, and sent to members on other nodes as an
 * abort message (multi_notice.c).
 *
 * Which rank is missing? A rank that has left sends a notice. One of this node that has not arrived is named, with what it last did.
 * When all ranks of this node have arrived, the local root names the nodes that it has not received from, but gives them half a second
 * more: they know which of their ranks it is, and their abort message then comes first. */
#include "comm/multi.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/status.h"
#include "base/text.h"
#include "comm/wait.h"

enum {
    YIELDS = 100,             /* polls before the first sleep: about as long as a message takes */
    YIELDS_IN_PIPELINE = 10,  /* with rounds under way messages come all the time, and the kernel needs the core */
    IDLE_CALLS_PER_POLL = 16, /* of a rank that has no messages under way */
};
static const int64_t SLEEP_NS = 1000000;   /* without messages under way */
static const int64_t GRACE_NS = 500000000; /* for ranks that know more */

ls_status ls__multi_check_failed(ls_group *g)
{
    const ls__failure *f = ls__group_failure(g);
    if (!f) return LS_OK;
    ls__cluster *c = ls__multi_of(g)->cluster;
    if (f != g->failure || ls__multi_of(g)->id == LS__WORLD_GROUP)
        c->failed = true;
    else if (!g->broken && (f->status == LS_ETIMEOUT || f->status == LS_EIO))
        c->suspect = true;
    return ls__group_break(g, (ls_status)f->status, f->text);
}

/* ---- The network. */

ls_status ls__multi_add_polled(ls__multi *m, int *count, ls__net_request *request)
{
    if (!request->active) return LS_OK;
    if (*count == m->polled_room) {
        int room = m->polled_room ? 2 * m->polled_room : 64;
        ls__net_request **polled = realloc(m->polled, (size_t)room * sizeof *polled);
        if (!polled) return ls__fail(LS_ENOMEM, "no memory for %d requests", room);
        m->polled = polled;
        m->polled_room = room;
    }
    m->polled[(*count)++] = request;
    return LS_OK;
}

static ls_status add_batch(ls__multi *m, int *count, ls__message_batch *b)
{
    ls_status status = LS_OK;
    for (int i = 0; i < b->count && !status; i++) status = ls__multi_add_polled(m, count, &b->list[i].request);
    return status;
}

ls_status ls__multi_poll(ls_group *g)
{
    ls__multi *m = ls__multi_of(g);
    ls__cluster *c = m->cluster;
    int count = 0;
    ls_status status = add_batch(m, &count, &m->headers_in);
    if (!status) status = add_batch(m, &count, &m->headers_out);
    for (int i = 0; i < LS__MULTI_DEPTH && !status; i++) {
        ls__multi_slot *s = &m->slots[i];
        status = add_batch(m, &count, &s->first_in);
        if (!status) status = add_batch(m, &count, &s->first_out);
        if (!status) status = add_batch(m, &count, &s->second_in);
        if (!status) status = add_batch(m, &count, &s->second_out);
    }
    if (!status) status = ls__multi_p2p_poll(g, &count);
    int busy = count;
    if (!status) status = ls__multi_add_polled(m, &count, &c->inbox_request);
    m->busy = busy > 0;
    if (!status && (busy || m->polls++ % IDLE_CALLS_PER_POLL == 0)) status = ls__net_test(c->net, m->polled, count);
    for (int i = 0; i < busy && !status; i++)
        if (!m->polled[i]->active) m->activity++;
    if (!status) status = ls__notice_receive(c);
    if (!status) ls__multi_p2p_reap(m);
    return status ? ls__group_fail_error(g, status) : LS_OK;
}

/* ---- Reports of ranks on other nodes. */

static const char *host_of(const ls__multi *m, int member)
{
    return m->cluster->hosts[m->cluster->node_of[m->world_of[member]]];
}

/* "host node1 (ranks 2, 3)" */
static void describe_node(const ls__multi *m, int node, char *out, size_t bytes)
{
    int first = ls__multi_member(m, node, 0);
    int n = snprintf(out, bytes, "host %s (ranks %d", host_of(m, first), m->world_of[first]);
    for (int i = 1; i < m->node_size[node] && n > 0 && (size_t)n < bytes; i++)
        n += snprintf(out + n, bytes - (size_t)n, i == 8 ? ", ..." : ", %d", m->world_of[ls__multi_member(m, node, i)]);
    if (n > 0 && (size_t)n < bytes) snprintf(out + n, bytes - (size_t)n, ")");
}

/* The member that the first receive under way waits for; -1: none. */
static int awaited_member(const ls__multi *m)
{
    const ls__message_batch *b = &m->headers_in;
    for (int i = 0; i <= 2 * LS__MULTI_DEPTH; i++) {
        for (int k = 0; k < b->count; k++)
            if (b->list[k].request.active)
                for (int r = 0; r < m->group->size; r++)
                    if (m->world_of[r] == b->list[k].peer) return r;
        const ls__multi_slot *s = &m->slots[i / 2 % LS__MULTI_DEPTH];
        b = i % 2 ? &s->second_in : &s->first_in;
    }
    return -1;
}

static ls_status fail_silent(ls_group *g, const ls_work *w)
{
    const ls__multi *m = ls__multi_of(g);
    char what[160], where[200];
    ls__describe_work(w, what, sizeof what);
    int rank = ls__is_p2p(w->kind) ? w->root : awaited_member(m);
    double seconds = g->world->timeout_ms / 1e3;
    if (rank < 0)
        return ls__group_fail(g, LS_ETIMEOUT, "rank %d: %s made no progress for %.1f s", g->world->rank, what, seconds);
    describe_node(m, m->node_of[rank], where, sizeof where);
    if (!w->arrived && !ls__is_p2p(w->kind))
        return ls__group_fail(g, LS_ETIMEOUT,
                              "rank %d: received nothing from %s for %s within %.1f s; a rank there is late or has "
                              "ended, or the network is down",
                              g->world->rank, where, what, seconds);
    return ls__group_fail(
        g, LS_ETIMEOUT,
        "rank %d: %s: rank %d on %s sent nothing for %.1f s; it is late or has ended, or the network is "
        "down",
        g->world->rank, what, m->world_of[rank], where, seconds);
}

/* Whether a member has left and so will not do its part of this work. What it did before is on its way. */
static bool has_left(const ls__multi *m, const ls_work *w, int rank)
{
    const ls__leave *l = &m->left[rank];
    if (!l->left) return false;
    if (!ls__is_p2p(w->kind)) return l->finished <= w->number;
    return rank == w->root && w->number >= (w->kind == LS_COLLECTIVE_SEND ? l->received : l->sent);
}

static ls_status check_left(ls_group *g, const ls_work *w)
{
    const ls__multi *m = ls__multi_of(g);
    char what[160];
    for (int r = 0; r < g->size; r++) {
        if (!has_left(m, w, r)) continue;
        ls__describe_awaited(w, what, sizeof what);
        return ls__group_fail(g, LS_EPEER,
                              "rank %d on host %s left the group and will not call %s; it completed %llu "
                              "collective%s of this group",
                              m->world_of[r], host_of(m, r), what, (unsigned long long)m->left[r].finished,
                              ls__s((int64_t)m->left[r].finished));
    }
    return LS_OK;
}

/* ---- Checking. */

/* A send or receive whose other rank is on this node and has ended. What it sent may still be on its way for a moment. */
static ls_status check_partner(ls_group *g, const ls_work *w)
{
    const ls__multi *m = ls__multi_of(g);
    int local = m->local_of[w->root];
    if (m->node_of[w->root] != m->node || w->wait.idle < GRACE_NS || !ls__member_has_ended(g, local)) return LS_OK;
    return ls__fail_gone(g, w, local, false);
}

/* Is a rank of this node gone, stopped or late, or are other nodes? A stopped rank has the whole timeout from its stop. */
static ls_status check_members(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    ls__cluster_watch(m->cluster, g->world->job);
    bool p2p = ls__is_p2p(w->kind), expired = ls__wait_expired(w);
    ls_status status = p2p ? check_partner(g, w) : LS_OK;
    if (status) return status;
    for (int i = 0; i < m->locals && !p2p; i++) {
        bool ended = ls__member_has_ended(g, i); /* read before what it did, which is complete if it has ended */
        if (i == m->local || atomic_load_explicit(&g->members[i].finished, memory_order_acquire) > w->number) continue;
        bool published =
            atomic_load_explicit(&ls__multi_arrival_of(m, w->number, i)->number, memory_order_acquire) == w->number + 1;
        if (ended) return ls__fail_gone(g, w, i, false);
        ls__wait_log_stop(g, w, i);
        if (ls__member_may_resume(g, i, 0)) return LS_OK;
        if (expired && !published) return ls__fail_late(g, w, i);
    }
    /* A rank on another node is first reported by its own node, then by the local roots, then by all. */
    bool first = m->local == 0 || p2p;
    int64_t timeout = (int64_t)g->world->timeout_ms * 1000000, late = w->wait.idle - timeout;
    /* On a busy machine a local root may get no core for a while, and only it knows which machine is silent. */
    return expired && late > (first ? GRACE_NS : 2 * GRACE_NS + timeout / 4) ? fail_silent(g, w) : LS_OK;
}

/* If something has happened since the last time, the wait starts again. */
static void note_activity(const ls__multi *m, ls_work *w)
{
    if (w->wait.mark == m->activity + 1) return;
    w->wait.mark = m->activity + 1;
    w->wait.checked_at = w->wait.idle = 0;
    w->wait.spins = 0;
}

ls_status ls__multi_check_peers(ls_group *g, ls_work *w)
{
    note_activity(ls__multi_of(g), w);
    if (!ls__wait_is_due(w)) return LS_OK;
    ls__wait_count(w, w->wait.mark, true);
    ls_status status = check_left(g, w);
    return status ? status : check_members(g, w);
}

/* ---- Waiting. */

/* Whether messages of this rank are under way, of any group. */
static bool has_messages(const ls__cluster *c)
{
    for (const ls__multi *m = c->groups; m; m = m->next)
        if (m->busy && ls__group_is_busy(m->group)) return true;
    return false;
}

ls_status ls__multi_idle(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    note_activity(m, w);
    if (w->wait.spins++ < (ls__multi_work_of(w)->rounds > 1 ? YIELDS_IN_PIPELINE : YIELDS)) {
        sched_yield();
        return LS_OK;
    }
    /* Peers are checked before sleeping and not after it: a work that can be completed is. */
    ls_status status = ls__group_check_failed_in(g, w);
    if (w->done) return status;
    if (!status) status = check_left(g, w);
    if (!status && ls__wait_is_due(w)) {
        ls__wait_count(w, w->wait.mark, false);
        status = check_members(g, w);
    }
    return status ? status : ls__wait_sleep(g, w, has_messages(m->cluster) ? LS__NET_NAP_NS : SLEEP_NS);
}
