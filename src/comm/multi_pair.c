/* Send and receive in a group over several machines: all through MPI, which knows the short way within a machine.
 *
 * A message is a head (type and count) and the data, cut into parcels; the head is in the first. A short message is one
 * parcel, and its send is done as soon as that is on its way: the parcel goes to the list of those that leave, and is
 * reaped when MPI is through with it. A long one has two parcels under way. A receive always posts a whole parcel, so
 * that a sender who has another count in mind is found by its head. */
#include "comm/multi.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum {
    PARCEL = 256 << 10,
    SHORT = 64 << 10, /* a send of this size does not wait for its receive */
};

typedef struct pair_head {
    uint64_t type, count;
} pair_head;

/* What a work has under way: two parcels, taken in turn. */
struct ls__pair_state {
    struct ls__pair_state *next; /* in the group's list */
    ls__parcel *parcels[2];
    size_t begun, ended; /* parcels */
    bool receives;
};
typedef struct ls__pair_state pair_state;

static ls_status take_parcel(ls__multi *m, ls__parcel **out)
{
    *out = m->parcels;
    if (*out)
        m->parcels = (*out)->next;
    else
        *out = malloc(sizeof **out + PARCEL);
    if (!*out) return ls__fail(LS_ENOMEM, "no memory for a message");
    (*out)->request.active = false;
    return LS_OK;
}

static void give_parcel(ls__multi *m, ls__parcel *p)
{
    p->next = m->parcels;
    m->parcels = p;
}

static size_t parcels_of(size_t total)
{
    return (total + PARCEL - 1) / PARCEL;
}

/* Copies parcel i of a message between its memory and the caller's; the head is made, or left to the caller of this. */
static void copy_parcel(const ls_work *w, size_t i, ls__parcel *p, bool out)
{
    size_t begin = i * PARCEL, head = i ? 0 : sizeof(pair_head), n = p->bytes - head;
    size_t at = i ? begin - sizeof(pair_head) : 0;
    if (out && !i) memcpy(p->data, &(pair_head){ .type = w->type, .count = w->count }, sizeof(pair_head));
    if (n && out) memcpy(p->data + head, (const char *)w->send + at, n);
    if (n && !out) memcpy((char *)w->recv + at, p->data + head, n);
}

static ls_status begin_parcel(ls_group *g, ls_work *w, pair_state *s, size_t total)
{
    ls__multi *m = ls__multi_of(g);
    ls__parcel *p;
    ls_status status = take_parcel(m, &p);
    if (status) return status;
    size_t left = total - s->begun * PARCEL;
    int tag = ls__multi_tag(m, LS__TAG_PAIR), peer = m->world_of[w->root];
    s->parcels[s->begun % 2] = p;
    p->bytes = left < PARCEL ? left : PARCEL;
    if (w->call == LS__SEND) {
        copy_parcel(w, s->begun, p, true);
        status = ls__net_send(m->cluster->net, p->data, p->bytes, peer, tag, false, &p->request);
    } else {
        status = ls__net_recv(m->cluster->net, p->data, PARCEL, peer, tag, &p->request);
    }
    s->begun++;
    m->life++;
    return status;
}

static ls_status check_head(ls_group *g, const ls_work *w, const ls__parcel *p)
{
    const ls__multi *m = ls__multi_of(g);
    pair_head h = { 0 };
    if (p->request.bytes >= sizeof h) memcpy(&h, p->data, sizeof h);
    if (h.type == (uint64_t)w->type && h.count == w->count) return LS_OK;
    return ls__multi_break(g, LS_EMISMATCH,
                           "rank %d receives %zu of %s from rank %d, which sends %llu of %s; both must agree",
                           g->world->identity.rank, w->count, ls_dtype_name(w->type), m->world_of[w->root],
                           (unsigned long long)h.count, ls_dtype_name((ls_dtype)h.type));
}

/* The oldest parcel under way is through. */
static ls_status end_parcel(ls_group *g, ls_work *w, pair_state *s)
{
    ls__multi *m = ls__multi_of(g);
    ls__parcel *p = s->parcels[s->ended % 2];
    if (w->call == LS__RECV) {
        ls_status status = s->ended ? LS_OK : check_head(g, w, p);
        if (!status && p->request.bytes != p->bytes)
            status = ls__multi_break(g, LS_EFORMAT, "rank %d sent a message of %zu bytes, expected %zu",
                                     m->world_of[w->root], p->request.bytes, p->bytes);
        if (status) return status;
        copy_parcel(w, s->ended, p, false);
    }
    give_parcel(m, p);
    s->parcels[s->ended++ % 2] = NULL;
    m->life++;
    return LS_OK;
}

/* A short message: the caller need not wait for it. */
static ls_status send_short(ls_group *g, ls_work *w, size_t total)
{
    ls__multi *m = ls__multi_of(g);
    pair_state s = { 0 };
    ls_status status = begin_parcel(g, w, &s, total);
    if (s.parcels[0]) {
        s.parcels[0]->next = m->leaving;
        m->leaving = s.parcels[0];
    }
    return status;
}

static ls_status advance(ls_group *g, ls_work *w)
{
    size_t total = sizeof(pair_head) + w->count * ls_dtype_size(w->type), parcels = parcels_of(total);
    if (w->call == LS__SEND && total <= SHORT) return send_short(g, w, total);
    pair_state *s = w->extra;
    ls_status status = LS_OK;
    if (!s) {
        s = w->extra = calloc(1, sizeof *s);
        if (!s) return ls__fail(LS_ENOMEM, "no memory for a message");
        s->receives = w->call == LS__RECV;
        s->next = ls__multi_of(g)->pairs;
        ls__multi_of(g)->pairs = s;
    }
    while (!status && s->ended < parcels) {
        /* The second parcel of a receive is awaited only when the first has shown what it is. */
        bool may_begin =
            s->begun < parcels && s->begun - s->ended < 2 && (w->call == LS__SEND || s->ended || !s->begun);
        if (may_begin)
            status = begin_parcel(g, w, s, total);
        else if (!s->parcels[s->ended % 2]->request.active)
            status = end_parcel(g, w, s);
        else
            return LS_PENDING;
    }
    if (status) return status;
    pair_state **link = &ls__multi_of(g)->pairs;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    free(s);
    w->extra = NULL;
    return LS_OK;
}

ls_status ls__multi_pair_progress(ls_group *g, ls_work *w)
{
    ls_status status = advance(g, w);
    ls__pairs_done *done = &ls__multi_of(g)->pairs_done[w->root];
    if (status == LS_OK) ++*(w->call == LS__SEND ? &done->sent : &done->received);
    return status < 0 ? ls__multi_give_up(g, status) : status;
}

ls_status ls__multi_pair_poll(ls_group *g, int *count)
{
    ls__multi *m = ls__multi_of(g);
    ls_status status = LS_OK;
    for (const pair_state *s = m->pairs; s && !status; s = s->next)
        for (int i = 0; i < 2 && !status; i++)
            if (s->parcels[i]) status = ls__multi_add_polled(m, count, &s->parcels[i]->request);
    for (ls__parcel *p = m->leaving; p && !status; p = p->next) status = ls__multi_add_polled(m, count, &p->request);
    return status;
}

void ls__multi_pair_reap(ls__multi *m)
{
    for (ls__parcel **link = &m->leaving; *link;) {
        ls__parcel *p = *link;
        if (p->request.active) {
            link = &p->next;
        } else {
            *link = p->next;
            give_parcel(m, p);
        }
    }
}

void ls__multi_pair_cancel(ls__multi *m)
{
    for (pair_state *s = m->pairs; s; s = s->next)
        for (int i = 0; i < 2 && s->receives; i++)
            if (s->parcels[i] && s->parcels[i]->request.active)
                ls__net_cancel(m->cluster->net, &s->parcels[i]->request);
}

void ls__multi_pair_free(ls__multi *m)
{
    for (ls__parcel *p; (p = m->parcels);) {
        m->parcels = p->next;
        free(p);
    }
}
