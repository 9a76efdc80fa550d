/* Messages with tags, over the sends and receives of a group, which arrive in order.
 *
 * A message is a header (tag, bytes) and its data. Of each source one header is awaited at a time. When it has come, its data goes to the
 * first receive that was posted for it, or, if there is none, to memory that a later receive copies from. Receives of one source and tag
 * are served in the order in which they were posted.
 *
 * Progress is made in calls, on all receives that were posted: a rank that waits until its send has left also takes in what others send
 * to it. A header that nobody has asked for by name (LS_ANY_RANK) may never come, so its time does not count. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "comm/failure.h"
#include "comm/group.h"

typedef struct header {
    int64_t tag;
    uint64_t bytes;
} header;

struct ls_p2p {
    ls_group *group;
    ls_p2p *next; /* receives: in the list of those that were posted */
    bool sends, done;
    header head;
    ls_work *works[2]; /* of a send: header and data */
    uint8_t *data;     /* of a receive: the caller's */
    int from;          /* of a receive: LS_ANY_RANK at first */
    ls_status status;  /* of a receive that failed, with its text */
    char text[160];
};

/* Data that came before its receive. */
typedef struct early {
    struct early *next;
    int from;
    header head;
    uint8_t data[];
} early;

/* What comes from one rank: its next header, then the data of that. */
typedef struct source {
    header head;
    ls_work *work;  /* under way; NULL: nothing is */
    bool has_head;  /* it is the data */
    ls_p2p *target; /* whose data it is, or else: */
    early *aside;
} source;

struct ls__mailbox {
    source *sources; /* by rank */
    int ranks;
    ls_p2p *posted;
    early *early, **early_end;
};

static ls_status mailbox_of(ls_group *g, ls__mailbox **out)
{
    if (!g->mailbox) {
        ls__mailbox *m = calloc(1, sizeof *m);
        if (m) m->sources = calloc((size_t)g->size, sizeof *m->sources);
        if (!m || !m->sources) {
            free(m);
            return ls__fail(LS_ENOMEM, "rank %d: no memory for messages", g->world->rank);
        }
        m->ranks = g->size;
        m->early_end = &m->early;
        g->mailbox = m;
    }
    *out = g->mailbox;
    return LS_OK;
}

void ls__mailbox_free(ls__mailbox *m)
{
    if (!m) return;
    for (early *e; (e = m->early); free(e)) m->early = e->next;
    for (int r = 0; r < m->ranks; r++) free(m->sources[r].aside);
    free(m->sources);
    free(m);
}

/* ---- Receiving. */

static bool fits(const ls_p2p *m, int from, int64_t tag)
{
    return m->head.tag == tag && (m->from == from || m->from == LS_ANY_RANK);
}

static void withdraw(ls__mailbox *box, const ls_p2p *m)
{
    ls_p2p **link = &box->posted;
    while (*link && *link != m) link = &(*link)->next;
    if (*link) *link = m->next;
}

/* The receive gets this message: false if it has another size, which is the receive's error. */
static bool take(ls__mailbox *box, ls_p2p *m, int from, const header *head)
{
    withdraw(box, m);
    m->from = from;
    if (m->head.bytes == head->bytes) return true;
    m->done = true;
    m->status = LS_EMISMATCH;
    snprintf(
        m->text, sizeof m->text,
        "rank %d: receive from rank %d, tag %lld: the message has %llu bytes, and the buffer %llu; both must be equal",
        m->group->rank, from, (long long)head->tag, (unsigned long long)head->bytes, (unsigned long long)m->head.bytes);
    return false;
}

/* A header has come: where does its data go? */
static ls_status begin_data(ls_group *g, ls__mailbox *box, int from)
{
    source *s = &box->sources[from];
    ls_p2p *m = box->posted;
    while (m && !fits(m, from, s->head.tag)) m = m->next;
    s->target = m && take(box, m, from, &s->head) ? m : NULL;
    uint8_t *to;
    if (s->target) {
        to = m->data;
    } else {
        s->aside = malloc(sizeof *s->aside + s->head.bytes);
        if (!s->aside)
            return ls__group_fail(g, LS_ENOMEM, "rank %d: no memory for a message of %llu bytes from rank %d", g->rank,
                                  (unsigned long long)s->head.bytes, from);
        *s->aside = (early){ .from = from, .head = s->head };
        to = s->aside->data;
        if (m) s->aside->from = -1; /* of another size than its receive: dropped when it is here */
    }
    s->has_head = true;
    return s->head.bytes ? ls_recv_start(g, to, s->head.bytes, LS_U8, from, &s->work) : LS_OK;
}

static void end_data(ls__mailbox *box, int from)
{
    source *s = &box->sources[from];
    if (s->target) {
        s->target->done = true;
    } else if (s->aside->from < 0) {
        free(s->aside);
    } else {
        *box->early_end = s->aside;
        box->early_end = &s->aside->next;
    }
    *s = (source){ 0 };
}

/* Moves on what comes from one rank. *came: something did. */
static ls_status pump(ls_group *g, ls__mailbox *box, int from, bool by_name, bool *came)
{
    source *s = &box->sources[from];
    ls_status status = LS_OK;
    if (!s->work && !s->has_head) status = ls_recv_start(g, &s->head, sizeof s->head, LS_U8, from, &s->work);
    if (!status && s->work) {
        if (!by_name && !s->has_head) s->work->wait.idle = 0;
        status = ls_work_test(&s->work);
    }
    if (status) return status == LS_PENDING ? LS_OK : status;
    *came = true;
    if (!s->has_head) {
        status = begin_data(g, box, from);
        if (status || s->work) return status;
    }
    end_data(box, from);
    return LS_OK;
}

/* Moves on all receives that were posted. */
static ls_status pump_all(ls_group *g, ls__mailbox *box, bool *came)
{
    for (int r = 0; r < g->size; r++) {
        bool asked = box->sources[r].has_head, by_name = false;
        for (const ls_p2p *m = box->posted; m && r != g->rank; m = m->next) {
            asked |= m->from == r || m->from == LS_ANY_RANK;
            by_name |= m->from == r;
        }
        ls_status status = asked ? pump(g, box, r, by_name, came) : LS_OK;
        if (status) return status;
    }
    return LS_OK;
}

/* A message that came before. */
static bool take_early(ls__mailbox *box, ls_p2p *m)
{
    for (early **link = &box->early; *link; link = &(*link)->next) {
        early *e = *link;
        if (!fits(m, e->from, e->head.tag)) continue;
        *link = e->next;
        if (!*link) box->early_end = link;
        if (take(box, m, e->from, &e->head)) {
            if (m->head.bytes) memcpy(m->data, e->data, m->head.bytes);
            m->done = true;
        }
        free(e);
        return true;
    }
    return false;
}

/* ---- The calls. */

static ls_status check(const ls_group *g, const char *call, const void *data, size_t bytes, int other, bool any)
{
    if (other == g->rank || other >= g->size || other < (any ? LS_ANY_RANK : 0))
        return ls__fail(LS_EINVAL, "rank %d: %s: invalid rank %d; must be another rank of the group, 0 to %d",
                        g->world->rank, call, other, g->size - 1);
    if (bytes && !data) return ls__fail(LS_EINVAL, "rank %d: %s: the buffer is NULL", g->world->rank, call);
    return LS_OK;
}

static ls_status new_message(ls_group *g, ls_p2p filled, ls__mailbox **box, ls_p2p **out)
{
    ls_status status = mailbox_of(g, box);
    if (status) return status;
    *out = malloc(sizeof **out);
    if (!*out) return ls__fail(LS_ENOMEM, "rank %d: no memory for a message", g->world->rank);
    **out = filled;
    return LS_OK;
}

ls_status ls_send_tagged(ls_group *g, const void *buf, size_t bytes, int to, int64_t tag, ls_p2p **out)
{
    LS__NEED(g, "group");
    LS__NEED(out, "out");
    *out = NULL;
    ls__mailbox *box = NULL;
    ls_p2p *m;
    ls_status status = check(g, "send", buf, bytes, to, false);
    if (!status)
        status = new_message(g, (ls_p2p){ .group = g, .sends = true, .from = to, .head = { tag, bytes } }, &box, &m);
    if (status) return status;
    status = ls_send_start(g, &m->head, sizeof m->head, LS_U8, to, &m->works[0]);
    if (!status && bytes) status = ls_send_start(g, buf, bytes, LS_U8, to, &m->works[1]);
    if (status)
        free(m); /* the group is broken, and its works are freed with it */
    else
        *out = m;
    return status;
}

ls_status ls_recv_tagged(ls_group *g, void *buf, size_t bytes, int from, int64_t tag, ls_p2p **out)
{
    LS__NEED(g, "group");
    LS__NEED(out, "out");
    *out = NULL;
    ls__mailbox *box = NULL;
    ls_p2p *m;
    ls_status status = check(g, "receive", buf, bytes, from, true);
    if (!status)
        status = new_message(g, (ls_p2p){ .group = g, .data = buf, .from = from, .head = { tag, bytes } }, &box, &m);
    if (status) return status;
    ls_p2p **link = &box->posted;
    while (*link) link = &(*link)->next;
    *link = m;
    take_early(box, m);
    *out = m;
    return LS_OK;
}

/* LS_OK: done; LS_PENDING: not yet. *came: something moved. */
static ls_status advance(ls_p2p *m, bool *came)
{
    ls_group *g = m->group;
    for (int i = 0; i < 2 && m->sends; i++) {
        if (!m->works[i]) continue;
        ls_status status = ls_work_test(&m->works[i]);
        if (status < 0) return status;
    }
    if (m->sends && !m->works[0] && !m->works[1]) m->done = true;
    ls_status status = m->done ? LS_OK : pump_all(g, g->mailbox, came);
    if (status) return status;
    if (m->status) return ls__fail(m->status, "%s", m->text);
    return m->done ? LS_OK : LS_PENDING;
}

/* Frees a message that is done, or whose group is broken. */
static ls_status end(ls_p2p **message, ls_status status, int *from)
{
    ls_p2p *m = *message;
    if (from) *from = m->from;
    withdraw(m->group->mailbox, m);
    free(m);
    *message = NULL;
    return status;
}

ls_status ls_p2p_test(ls_p2p **message, int *from)
{
    ls_p2p *m = message ? *message : NULL;
    bool came = false;
    if (!m) return ls__fail(LS_EINVAL, "test: the message is NULL");
    ls_status status = advance(m, &came);
    return status == LS_PENDING ? status : end(message, status, from);
}

ls_status ls_p2p_wait(ls_p2p **message, int *from)
{
    ls_p2p *m = message ? *message : NULL;
    if (!m) return ls__fail(LS_EINVAL, "wait: the message is NULL");
    for (int idle = 0;;) {
        bool came = false;
        ls_status status = advance(m, &came);
        if (status != LS_PENDING) return end(message, status, from);
        idle = came ? 0 : idle + 1;
        /* Yields at first, since the other rank may need this core, and sleeps when nothing comes for long. */
        if (idle > 200)
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        else if (idle > 20)
            sched_yield();
    }
}

void ls_p2p_cancel(ls_p2p **message)
{
    ls_p2p *m = message ? *message : NULL;
    if (!m) return;
    ls__mailbox *box = m->group->mailbox;
    bool used = m->sends && !m->done;
    for (int r = 0; r < m->group->size; r++) used |= box->sources[r].target == m;
    if (used && !m->group->broken) return (void)!ls_p2p_wait(message, NULL); /* its memory is in use */
    end(message, LS_OK, NULL);
}
