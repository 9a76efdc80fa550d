/* Waiting between machines, and how it ends badly.
 *
 * The network makes no sound when something comes: a rank that waits must look. It gives up the core between looks,
 * first by yielding and then by sleeping on its futex in the job for some tens of microseconds, so that the kernel has
 * time for packets and the ranks of its own machine can still wake it.
 *
 * A failure of the group of all ranks, or a rank's death, is one of the world: processes then end without waiting for each
 * other. One of a smaller group is not. But if it was that nothing came from a rank, that rank may be no more; so the world
 * counts as failed until a collective of all ranks shows that they are there.
 *
 * A failure is written into the group's control block, where all ranks of the machine see it, and sent to all members
 * on other machines as a notice (multi_notice.c).
 *
 * Who is missing? A rank that has left says so itself. One of this machine that has not published is named, with what it last
 * did. When all of this machine are there, the leader names the machines that it has not heard of, but gives them half a
 * second more: they know better which of their ranks it is, and their notice then comes first. */
#include "comm/multi.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/futex.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

enum {
    YIELDS = 100, /* looks before the first sleep: about as long as a message takes */
    YIELDS_IN_PIPELINE =
        10, /* with rounds under way there is always something to wait for, and the kernel needs the core */
    LOOKS_PER_POLL = 16, /* of a rank that has nothing under way on the network */
};
static const int64_t SLEEP_NS = 1000000;        /* with nothing under way there */
static const int64_t LOOK_AROUND_NS = 50000000; /* how often to ask whether someone is gone or late */
static const int64_t GRACE_NS = 500000000;      /* for those who know better */
static const int64_t PAUSE_NS = 1000000000;     /* a pause between two tests of a work counts as so long at most */

void ls__multi_ring(const ls__multi *m)
{
    ls__job *job = m->group->world->job;
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < m->locals; i++)
        if (i != m->local) ls__job_wake(job, m->locals_at[i].job);
}

/* ---- Failures. */

ls_status ls__multi_look(ls_group *g)
{
    ls__failure *own = &ls__multi_of(g)->control->failure, *job = &g->world->job->failure;
    ls__failure *f = atomic_load_explicit(&own->set, memory_order_acquire) == 2 ? own : job;
    if (atomic_load_explicit(&f->set, memory_order_acquire) != 2) return LS_OK;
    ls__cluster *c = ls__multi_of(g)->cluster;
    if (f == job || ls__multi_of(g)->id == LS__MULTI_WORLD)
        c->failed = true;
    else if (!g->broken && (f->status == LS_ETIMEOUT || f->status == LS_EIO))
        c->suspect = true;
    return ls__group_break(g, (ls_status)f->status, f->text);
}

void ls__multi_abort(ls_group *g, ls_status status, const char *text)
{
    ls__notice_abort(ls__multi_of(g), status, text, true);
}

ls_status ls__multi_break(ls_group *g, ls_status status, const char *format, ...)
{
    char text[LS__JOB_FAILURE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls__notice_abort(ls__multi_of(g), status, text, false);
    /* Another rank may have been first; then all of us tell its story. It is a few stores away at most. */
    ls_status seen;
    while ((seen = ls__multi_look(g)) == LS_OK) ls__cpu_relax();
    return seen;
}

ls_status ls__multi_give_up(ls_group *g, ls_status status)
{
    char why[LS__JOB_FAILURE_BYTES];
    if (g->broken) return status;
    snprintf(why, sizeof why, "%s", ls_error());
    return ls__multi_break(g, status, "%s", why);
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
    if (!status && (busy || m->looks++ % LOOKS_PER_POLL == 0)) status = ls__net_test(c->net, m->polled, count);
    for (int i = 0; i < busy && !status; i++)
        if (!m->polled[i]->active) m->activity++;
    if (!status) status = ls__notice_receive(c);
    if (!status) ls__multi_p2p_reap(m);
    return status ? ls__multi_give_up(g, status) : LS_OK;
}

/* ---- Who is missing. */

static bool has_ended(uint32_t state)
{
    return state == LS__RANK_GONE || state == LS__RANK_EXITED || state == LS__RANK_KILLED;
}

static void describe_last(const ls__multi *m, int local, char *out, size_t bytes)
{
    const ls__multi_local *l = &m->locals_at[local];
    uint64_t finished = atomic_load_explicit(&l->finished, memory_order_acquire);
    char call[160];
    if (!finished) {
        snprintf(out, bytes, "it has completed no call of this group");
        return;
    }
    ls__describe(atomic_load(&l->last_fingerprint), finished - 1, atomic_load(&l->last_count), call, sizeof call);
    snprintf(out, bytes, "it last completed %s", call);
}

/* A rank of this machine that is gone, or late. */
static ls_status report_local(ls_group *g, const ls_work *w, int local, bool is_gone)
{
    const ls__multi *m = ls__multi_of(g);
    char call[160], state[96], last[200];
    int world = m->world_of[ls__multi_member(m, m->node, local)];
    ls__describe_awaited(w, call, sizeof call);
    ls__job_describe_state(g->world->job, m->locals_at[local].job, state, sizeof state);
    describe_last(m, local, last, sizeof last);
    if (is_gone)
        return ls__multi_break(g, LS_EPEER, "rank %d %s and will not come to %s; %s", world, state, call, last);
    return ls__multi_break(g, LS_ETIMEOUT, "rank %d did not come to %s within %.1f s; it %s; %s", world, call,
                           g->world->timeout_ms / 1e3, state, last);
}

/* "host node1 (ranks 2, 3)" */
static void describe_node(const ls__multi *m, int node, char *out, size_t bytes)
{
    int first = m->world_of[ls__multi_member(m, node, 0)];
    int n = snprintf(out, bytes, "host %s (ranks %d", m->cluster->hosts[m->cluster->node_of[first]], first);
    for (int i = 1; i < m->node_size[node] && n > 0 && (size_t)n < bytes; i++)
        n += snprintf(out + n, bytes - (size_t)n, i == 8 ? ", ..." : ", %d", m->world_of[ls__multi_member(m, node, i)]);
    if (n > 0 && (size_t)n < bytes) snprintf(out + n, bytes - (size_t)n, ")");
}

/* The member that the first unanswered receive waits for; -1: none. */
static int awaited(const ls__multi *m)
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

static ls_status report_late(ls_group *g, const ls_work *w)
{
    const ls__multi *m = ls__multi_of(g);
    char call[160], where[200];
    ls__describe(ls__work_fingerprint(w), w->number, w->count, call, sizeof call);
    int rank = ls__is_p2p(w->kind) ? w->root : awaited(m);
    double seconds = g->world->timeout_ms / 1e3;
    if (rank < 0)
        return ls__multi_break(g, LS_ETIMEOUT, "rank %d: %s made no progress for %.1f s", g->world->identity.rank, call,
                               seconds);
    describe_node(m, m->node_of[rank], where, sizeof where);
    if (!w->seen && !ls__is_p2p(w->kind))
        return ls__multi_break(
            g, LS_ETIMEOUT,
            "rank %d: nothing was heard from %s for %s within %.1f s; a rank there is late or gone, or "
            "the network is cut",
            g->world->identity.rank, where, call, seconds);
    return ls__multi_break(
        g, LS_ETIMEOUT, "rank %d: %s: rank %d on %s sent nothing for %.1f s; it is late or gone, or the network is cut",
        g->world->identity.rank, call, m->world_of[rank], where, seconds);
}

/* Says once per call that a rank is stopped: the caller's user sees why nothing moves. */
static void note_stop(const ls_group *g, ls_work *w, int local)
{
    const ls__multi *m = ls__multi_of(g);
    char state[96];
    if (w->stop_noted) return;
    ls__job_describe_state(g->world->job, m->locals_at[local].job, state, sizeof state);
    ls__log(LS_LOG_WARNING, "rank %d %s; waiting for it", m->world_of[ls__multi_member(m, m->node, local)], state);
    w->stop_noted = true;
}

/* Whether a member has left and so will not do its part of this call. What it did before is on its way. */
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
    char call[160];
    for (int r = 0; r < g->size; r++) {
        if (!has_left(m, w, r)) continue;
        ls__describe_awaited(w, call, sizeof call);
        return ls__multi_break(g, LS_EPEER,
                               "rank %d on host %s left the group and will not come to %s; it completed %llu "
                               "collective%s of this group",
                               m->world_of[r], m->cluster->hosts[m->cluster->node_of[m->world_of[r]]], call,
                               (unsigned long long)m->left[r].finished, ls__s((int64_t)m->left[r].finished));
    }
    return LS_OK;
}

/* A partner on this machine whose process is no more. What it sent may still be on its way for a moment. */
static ls_status check_partner(ls_group *g, const ls_work *w)
{
    const ls__multi *m = ls__multi_of(g);
    int local = m->local_of[w->root];
    if (m->node_of[w->root] != m->node || w->waited < GRACE_NS) return LS_OK;
    return has_ended(atomic_load(&g->world->job->rank[m->locals_at[local].job].state)) ? report_local(g, w, local, true)
                                                                                       : LS_OK;
}

/* Now and then: is someone gone or stopped, or anyone late? A stopped rank has the whole timeout from its stop. */
static ls_status look_around(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    ls__job *job = g->world->job;
    ls__cluster_watch(m->cluster, job);
    bool pair = ls__is_p2p(w->kind);
    ls_status status = pair ? check_partner(g, w) : LS_OK;
    if (status) return status;
    int64_t limit = (int64_t)g->world->timeout_ms * 1000000, late = w->waited - limit;
    bool expired = g->world->timeout_ms > 0 && late > 0;
    for (int i = 0; i < m->locals && !pair; i++) {
        const ls__job_rank *they = &job->rank[m->locals_at[i].job];
        uint32_t state = atomic_load(&they->state); /* before what it did, which is complete if it has ended */
        if (i == m->local || atomic_load_explicit(&m->locals_at[i].finished, memory_order_acquire) > w->number)
            continue;
        bool published =
            atomic_load_explicit(&ls__multi_arrival_of(m, w->number, i)->number, memory_order_acquire) == w->number + 1;
        if (has_ended(state)) return report_local(g, w, i, true);
        if (state == LS__RANK_STOPPED) note_stop(g, w, i);
        if (state == LS__RANK_STOPPED && ls_now() - atomic_load(&they->since) < limit) return LS_OK;
        if (expired && !published) return report_local(g, w, i, false);
    }
    /* Who is on another machine is its neighbours' business first, and then the leader's. */
    bool leader = m->local == 0 || pair;
    return expired && late > (leader ? GRACE_NS : 2 * GRACE_NS) ? report_late(g, w) : LS_OK;
}

/* ---- Waiting. */

/* Whether messages of this rank are under way, of whatever group. */
static bool has_messages(const ls__cluster *c)
{
    for (const ls__multi *m = c->groups; m; m = m->next)
        if (m->busy && (m->group->collectives.first || m->group->p2p.first)) return true;
    return false;
}

/* Whether something has happened since the last look; then the time begins anew. */
static void note_activity(const ls__multi *m, ls_work *w)
{
    if (w->waiting_mark == m->activity + 1) return;
    w->waiting_mark = m->activity + 1;
    w->waiting_since = w->waited = 0;
    w->spins = 0;
}

ls_status ls__multi_watch(ls_group *g, ls_work *w)
{
    int64_t now = ls_now();
    note_activity(ls__multi_of(g), w);
    if (!w->waiting_since) w->waiting_since = now;
    int64_t passed = now - w->waiting_since;
    if (passed < LOOK_AROUND_NS) return LS_OK;
    w->waited += passed < PAUSE_NS ? passed : PAUSE_NS;
    w->waiting_since = now;
    ls_status status = check_left(g, w);
    return status ? status : look_around(g, w);
}

ls_status ls__multi_idle(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    note_activity(m, w);
    if (w->spins++ < (w->rounds > 1 ? YIELDS_IN_PIPELINE : YIELDS)) {
        sched_yield();
        return LS_OK;
    }
    /* What is wrong is looked for before sleeping and not after: a call that can be completed is. */
    ls_status status = ls__multi_look(g);
    if (!status) status = check_left(g, w);
    int64_t now = ls_now();
    if (!w->waiting_since) w->waiting_since = now;
    int64_t passed = now - w->waiting_since;
    if (!status && passed >= LOOK_AROUND_NS) {
        w->waited += passed < 4 * LOOK_AROUND_NS ? passed : LOOK_AROUND_NS; /* we were suspended */
        w->waiting_since = now;
        status = look_around(g, w);
    }
    if (status) return status;
    ls__job_rank *me = &g->world->job->rank[m->locals_at[m->local].job];
    uint32_t futex = atomic_load(&me->futex);
    atomic_fetch_add(&me->sleepers, 1);
    status = ls__world_progress(g);
    if (!status && !w->done) ls__futex_wait(&me->futex, futex, has_messages(m->cluster) ? LS__NET_NAP_NS : SLEEP_NS);
    atomic_fetch_sub(&me->sleepers, 1);
    return status;
}
