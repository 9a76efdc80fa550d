/* Point-to-point in a group on several nodes: all through MPI, which uses shared memory within a node itself.
 *
 * A message is a header (type and count) and the data, split into fragments; the header is in the first. A short message is one
 * fragment, and its send is done as soon as that is on its way: the fragment moves to the list of those that leave, and is reaped
 * when MPI has sent it. A long one has two fragments under way. A receive always posts space for a whole fragment, so that a sender
 * with another count is found by its header. */
#include "comm/multi.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum {
    FRAGMENT = 256 << 10,
    SHORT = 64 << 10, /* a send of this size does not wait for its receive */
};

typedef struct p2p_header {
    uint64_t type, count;
} p2p_header;

/* What a work has under way: two fragments, used in turn. */
struct ls__p2p_state {
    struct ls__p2p_state *next; /* in the group's list */
    ls__fragment *fragments[2];
    size_t begun, ended; /* fragments */
    bool receives;
};
typedef struct ls__p2p_state p2p_state;

static ls_status take_fragment(ls__multi *m, ls__fragment **out)
{
    *out = m->fragments;
    if (*out)
        m->fragments = (*out)->next;
    else
        *out = malloc(sizeof **out + FRAGMENT);
    if (!*out) return ls__fail(LS_ENOMEM, "no memory for a message");
    (*out)->request.active = false;
    return LS_OK;
}

static void give_fragment(ls__multi *m, ls__fragment *p)
{
    p->next = m->fragments;
    m->fragments = p;
}

static size_t fragments_of(size_t total)
{
    return (total + FRAGMENT - 1) / FRAGMENT;
}

/* Copies fragment i of a message between its memory and the user's. A header that is sent is written here. */
static void copy_fragment(const ls_work *w, size_t i, ls__fragment *p, bool out)
{
    size_t begin = i * FRAGMENT, head = i ? 0 : sizeof(p2p_header), n = p->bytes - head;
    size_t at = i ? begin - sizeof(p2p_header) : 0;
    if (out && !i) memcpy(p->data, &(p2p_header){ .type = w->type, .count = w->count }, sizeof(p2p_header));
    if (n && out) memcpy(p->data + head, (const char *)w->send + at, n);
    if (n && !out) memcpy((char *)w->recv + at, p->data + head, n);
}

static ls_status begin_fragment(ls_group *g, ls_work *w, p2p_state *s, size_t total)
{
    ls__multi *m = ls__multi_of(g);
    ls__fragment *p;
    ls_status status = take_fragment(m, &p);
    if (status) return status;
    size_t left = total - s->begun * FRAGMENT;
    int tag = ls__multi_tag(m, LS__TAG_P2P), peer = m->world_of[w->root];
    s->fragments[s->begun % 2] = p;
    p->bytes = left < FRAGMENT ? left : FRAGMENT;
    if (w->kind == LS_COLLECTIVE_SEND) {
        copy_fragment(w, s->begun, p, true);
        status = ls__net_send(m->cluster->net, p->data, p->bytes, peer, tag, false, &p->request);
    } else {
        status = ls__net_recv(m->cluster->net, p->data, FRAGMENT, peer, tag, &p->request);
    }
    s->begun++;
    m->activity++;
    return status;
}

static ls_status check_header(ls_group *g, const ls_work *w, const ls__fragment *p)
{
    const ls__multi *m = ls__multi_of(g);
    p2p_header h = { 0 };
    if (p->request.bytes >= sizeof h) memcpy(&h, p->data, sizeof h);
    if (h.type == (uint64_t)w->type && h.count == w->count) return LS_OK;
    return ls__group_fail(g, LS_EMISMATCH,
                          "rank %d receives %zu of %s from rank %d, which sends %llu of %s; both must agree",
                          g->world->rank, w->count, ls_dtype_name(w->type), m->world_of[w->root],
                          (unsigned long long)h.count, ls_dtype_name((ls_dtype)h.type));
}

/* The oldest fragment under way has completed. */
static ls_status end_fragment(ls_group *g, ls_work *w, p2p_state *s)
{
    ls__multi *m = ls__multi_of(g);
    ls__fragment *p = s->fragments[s->ended % 2];
    if (w->kind == LS_COLLECTIVE_RECEIVE) {
        ls_status status = s->ended ? LS_OK : check_header(g, w, p);
        if (!status && p->request.bytes != p->bytes)
            status = ls__group_fail(g, LS_EFORMAT, "rank %d sent a message of %zu bytes, expected %zu",
                                    m->world_of[w->root], p->request.bytes, p->bytes);
        if (status) return status;
        copy_fragment(w, s->ended, p, false);
    }
    give_fragment(m, p);
    s->fragments[s->ended++ % 2] = NULL;
    m->activity++;
    return LS_OK;
}

/* A short message: the caller need not wait for it. */
static ls_status send_short(ls_group *g, ls_work *w, size_t total)
{
    ls__multi *m = ls__multi_of(g);
    p2p_state s = { 0 };
    ls_status status = begin_fragment(g, w, &s, total);
    if (s.fragments[0]) {
        s.fragments[0]->next = m->leaving;
        m->leaving = s.fragments[0];
    }
    return status;
}

static ls_status advance(ls_group *g, ls_work *w)
{
    ls__multi_work *t = ls__multi_work_of(w);
    size_t total = sizeof(p2p_header) + w->block_bytes, fragments = fragments_of(total);
    if (w->kind == LS_COLLECTIVE_SEND && total <= SHORT) return send_short(g, w, total);
    p2p_state *s = t->p2p;
    ls_status status = LS_OK;
    if (!s) {
        s = t->p2p = calloc(1, sizeof *s);
        if (!s) return ls__fail(LS_ENOMEM, "no memory for a message");
        s->receives = w->kind == LS_COLLECTIVE_RECEIVE;
        s->next = ls__multi_of(g)->p2p;
        ls__multi_of(g)->p2p = s;
    }
    while (!status && s->ended < fragments) {
        /* The second fragment of a receive is awaited only when the first has shown what it is. */
        bool may_begin =
            s->begun < fragments && s->begun - s->ended < 2 && (w->kind == LS_COLLECTIVE_SEND || s->ended || !s->begun);
        if (may_begin)
            status = begin_fragment(g, w, s, total);
        else if (!s->fragments[s->ended % 2]->request.active)
            status = end_fragment(g, w, s);
        else
            return LS_PENDING;
    }
    if (status) return status;
    p2p_state **link = &ls__multi_of(g)->p2p;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    free(s);
    t->p2p = NULL;
    return LS_OK;
}

ls_status ls__multi_p2p_progress(ls_group *g, ls_work *w)
{
    ls_status status = advance(g, w);
    ls__p2p_counts *done = &ls__multi_of(g)->p2p_done[w->root];
    if (status == LS_OK) ++*(w->kind == LS_COLLECTIVE_SEND ? &done->sent : &done->received);
    return status < 0 ? ls__group_fail_error(g, status) : status;
}

ls_status ls__multi_p2p_poll(ls_group *g, int *count)
{
    ls__multi *m = ls__multi_of(g);
    ls_status status = LS_OK;
    for (const p2p_state *s = m->p2p; s && !status; s = s->next)
        for (int i = 0; i < 2 && !status; i++)
            if (s->fragments[i]) status = ls__multi_add_polled(m, count, &s->fragments[i]->request);
    for (ls__fragment *p = m->leaving; p && !status; p = p->next) status = ls__multi_add_polled(m, count, &p->request);
    return status;
}

void ls__multi_p2p_reap(ls__multi *m)
{
    for (ls__fragment **link = &m->leaving; *link;) {
        ls__fragment *p = *link;
        if (p->request.active) {
            link = &p->next;
        } else {
            *link = p->next;
            give_fragment(m, p);
        }
    }
}

void ls__multi_p2p_cancel(ls__multi *m)
{
    for (p2p_state *s = m->p2p; s; s = s->next)
        for (int i = 0; i < 2 && s->receives; i++)
            if (s->fragments[i] && s->fragments[i]->request.active)
                ls__net_cancel(m->cluster->net, &s->fragments[i]->request);
}

void ls__multi_p2p_free(ls__multi *m)
{
    for (ls__fragment *p; (p = m->fragments);) {
        m->fragments = p->next;
        free(p);
    }
}
