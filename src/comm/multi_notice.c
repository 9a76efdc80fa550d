/* Notices: what members of a group on several nodes send each other outside of collectives. There are two kinds: the abort message,
 * which carries the reason, and the leave message of a member that frees the group.
 *
 * Every rank keeps a receive posted for notices from any rank. A notice is handled at the start of each collective, and while waiting
 * in any collective of a group on several nodes. A notice for a group that this rank has not made yet (the sender was faster in a
 * split) is kept until it is made. One for a group that no longer exists is dropped, and so is one of another world: MPI outlives
 * worlds, and a notice may come after its world was freed.
 *
 * A leave message contains how many collectives the sender has completed, and how many messages it has sent to and received from the
 * rank that gets the notice. So no rank has to guess whether something is still on its way: what was counted comes, and nothing else. */
#include "comm/multi.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { MAX_EARLY = 1024 };                                    /* more groups than any program makes at one time */
static const int64_t SEND_NS = 200000000;                     /* to wait until notices are sent */
static const size_t LEAVE_BYTES = offsetof(ls__notice, text); /* has no text */

/* ---- Receiving. */

/* A notice for one of our groups, from a member of it. */
static void handle(ls__multi *m, int member, const ls__notice *n)
{
    if (n->kind == LS__NOTICE_ABORT) {
        ls__group_set_failure(m->group, n->status < 0 ? (ls_status)n->status : LS_EPEER, n->text);
    } else if (n->kind == LS__NOTICE_LEAVE) {
        m->left[member] = (ls__leave){
            .left = true, .when = ls_now(), .finished = n->finished, .sent = n->sent, .received = n->received
        };
        m->activity++;
        if (m->id != LS__WORLD_GROUP) return;
        if (n->status)
            m->cluster->failed = true;
        else
            m->cluster->left[m->world_of[member]] = true;
    }
}

static int member_of(const ls__multi *m, int world_rank)
{
    for (int r = 0; r < m->group->size; r++)
        if (m->world_of[r] == world_rank) return r;
    return -1;
}

/* Keeps a notice of a group that this rank may be about to make. */
static void keep(ls__cluster *c, const ls__notice *n, int from)
{
    if (n->group <= c->newest_group || c->early_count == MAX_EARLY) return;
    ls__early *e = malloc(sizeof *e);
    if (!e) return; /* then the group ends by timeout */
    *e = (ls__early){ .next = c->early, .from = from, .notice = *n };
    c->early = e;
    c->early_count++;
}

static void dispatch(ls__cluster *c, const ls__notice *n, int from)
{
    for (ls__multi *m = c->groups; m; m = m->next) {
        if (m->id != n->group) continue;
        int member = member_of(m, from);
        if (member >= 0) handle(m, member, n);
        return;
    }
    keep(c, n, from);
}

static ls_status await_notice(ls__cluster *c)
{
    return ls__net_recv(c->net, &c->inbox, sizeof c->inbox, LS__NET_ANY, LS__TAG_NOTICE, &c->inbox_request);
}

ls_status ls__notice_receive(ls__cluster *c)
{
    ls_status status = LS_OK;
    if (c->inbox_request.active) return LS_OK;
    if (c->inbox_awaited && c->inbox_request.bytes >= LEAVE_BYTES && c->inbox.world == c->nonce) {
        /* A peer may send anything: the text ends where the message does, and at the end of its field at the latest. */
        size_t length = c->inbox_request.bytes - LEAVE_BYTES, most = sizeof c->inbox.text - 1;
        c->inbox.text[length < most ? length : most] = 0;
        dispatch(c, &c->inbox, c->inbox_request.from);
    }
    status = await_notice(c);
    c->inbox_awaited = !status;
    return status;
}

ls_status ls__notice_poll(ls__cluster *c)
{
    ls__net_request *requests[] = { &c->inbox_request };
    ls_status status = ls__net_test(c->net, requests, 1);
    return status ? status : ls__notice_receive(c);
}

void ls__notice_group_made(ls__multi *m)
{
    ls__cluster *c = m->cluster;
    c->newest_group = m->id;
    for (ls__early **link = &c->early; *link;) {
        ls__early *e = *link;
        if (e->notice.group > m->id) {
            link = &e->next;
            continue;
        }
        int member = e->notice.group == m->id ? member_of(m, e->from) : -1;
        if (member >= 0) handle(m, member, &e->notice);
        *link = e->next;
        c->early_count--;
        free(e);
    }
}

/* ---- Sending. */

/* A notice being sent. */
typedef struct outgoing {
    ls__net_request request;
    ls__notice notice;
} outgoing;

/* Waits a while until all notices are sent. If MPI still holds some then, their memory is left to it. */
static void send_out(ls__net *net, outgoing *all, int count)
{
    int left = count, polls = 0;
    for (int64_t begin = ls_now(); left && ls_now() - begin < SEND_NS; ls__net_pause(&polls)) {
        left = 0;
        for (int i = 0; i < count; i++) {
            ls__net_request *one = &all[i].request;
            if (one->active && ls__net_test(net, &one, 1)) one->active = false;
            left += one->active;
        }
    }
    if (!left) free(all);
}

void ls__notice_abort(const ls__multi *m, ls_status status, const char *text, bool wait)
{
    if (!ls__group_set_failure(m->group, status, text)) return;
    outgoing *all = malloc((size_t)m->group->size * sizeof *all);
    int count = 0;
    for (int r = 0; r < m->group->size && all; r++) {
        if (m->node_of[r] == m->node) continue; /* they see the control block */
        outgoing *o = &all[count];
        o->notice = (ls__notice){ .world = m->cluster->nonce, .kind = LS__NOTICE_ABORT, .group = m->id };
        o->notice.status = (int32_t)status;
        snprintf(o->notice.text, sizeof o->notice.text, "%s", text);
        size_t bytes = LEAVE_BYTES + strlen(o->notice.text) + 1;
        if (!ls__net_send(m->cluster->net, &o->notice, bytes, m->world_of[r], LS__TAG_NOTICE, wait, &o->request))
            count++;
    }
    if (all) send_out(m->cluster->net, all, count);
}

void ls__notice_leave(const ls__multi *m, bool in_order)
{
    const ls_group *g = m->group;
    outgoing *all = malloc((size_t)g->size * sizeof *all);
    int count = 0;
    uint64_t finished = g->collectives.first ? g->collectives.first->number : g->next_number;
    for (int r = 0; r < g->size && all; r++) {
        if (r == g->rank || (m->left[r].left && ls_now() - m->left[r].when > LS__MULTI_AWAIT_NS)) continue;
        outgoing *o = &all[count];
        o->notice = (ls__notice){ .world = m->cluster->nonce, .kind = LS__NOTICE_LEAVE, .group = m->id };
        o->notice.status = in_order ? LS_OK : LS_EPEER;
        o->notice.finished = finished;
        o->notice.sent = m->p2p_done[r].sent;
        o->notice.received = m->p2p_done[r].received;
        if (!ls__net_send(m->cluster->net, &o->notice, LEAVE_BYTES, m->world_of[r], LS__TAG_NOTICE, false, &o->request))
            count++;
    }
    if (all) send_out(m->cluster->net, all, count);
}

void ls__notice_leave_all(const ls__cluster *c)
{
    for (const ls__multi *m = c->groups; m; m = m->next)
        if (!m->group->broken) ls__notice_leave(m, false);
}
