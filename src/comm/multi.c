/* The life of a collective between nodes: publishing, agreeing, finishing. See multi.h. */
#include "comm/multi.h"

#include <string.h>
#include "base/status.h"
#include "comm/heap.h"
#include "comm/eager.h"
#include "comm/traits.h"
#include "comm/wait.h"

/* What a local root sends to the others: this, then an entry for each member of its node, then their eager messages. */
typedef struct header {
    uint64_t number;
    uint32_t node, members;
} header;

typedef struct entry {
    uint64_t fingerprint, count;
    int64_t time;
} entry;

/* ---- Publishing. */

static bool is_eager(const ls_work *w)
{
    return ls__work_is_eager(w, ls__multi_of(w->group)->eager_bytes);
}

/* Bytes of a member's eager message. */
static size_t eager_length(const ls_work *w, int rank)
{
    return is_eager(w) ? ls__work_send_bytes(w, rank) : 0;
}

static int local_root_of(const ls__multi *m, int node)
{
    return m->world_of[ls__multi_member(m, node, 0)];
}

/* Bytes of the longest header message that a node may send. */
static size_t longest_header(const ls__multi *m, int node)
{
    return sizeof(header) + (size_t)m->node_size[node] * (sizeof(entry) + m->eager_bytes);
}

/* On the local root: starts to receive the headers of the other nodes. */
static ls_status await_headers(ls__multi *m)
{
    m->headers_in.count = 0;
    m->headers_in.used = 0;
    ls_status status = LS_OK;
    for (int node = 0; node < m->nodes && !status; node++)
        if (node != m->node)
            status = ls__batch_add(&m->headers_in, local_root_of(m, node), longest_header(m, node), NULL, false);
    if (!status) status = ls__batch_place(&m->headers_in);
    return status ? status : ls__batch_recv(m, &m->headers_in, LS__TAG_HEADER);
}

static ls_status publish(ls_group *g, ls_work *w)
{
    ls__multi_work *t = ls__multi_work_of(w);
    ls__multi *m = ls__multi_of(g);
    ls__multi_arrival *p = ls__multi_arrival_of(m, w->number, m->local);
    size_t bytes = ls__work_send_bytes(w, g->rank);
    p->at = 0;
    t->staged = false;
    if (is_eager(w)) {
        if (bytes) memcpy(ls__multi_eager_of(m, w->number, g->rank), w->send, bytes);
    } else if (bytes && m->locals > 1) {
        p->at = ls__work_offset(w, bytes);
        if (!p->at) p->at = LS__MULTI_STAGED;
        t->staged = p->at == LS__MULTI_STAGED;
    }
    atomic_store_explicit(&p->in, t->staged ? 0 : UINT32_MAX, memory_order_relaxed);
    atomic_store_explicit(&p->received, 0, memory_order_relaxed);
    atomic_store_explicit(&p->out, 0, memory_order_relaxed);
    p->fingerprint = ls__work_fingerprint(w);
    p->count = w->count;
    p->time = w->started;
    m->published++;
    m->activity++;
    ls_status status = m->local == 0 ? await_headers(m) : LS_OK;
    atomic_store_explicit(&p->number, w->number + 1, memory_order_release);
    ls__group_wake(g);
    return status;
}

static ls_status start(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    ls_status status = ls__notice_poll(m->cluster);
    if (status) return ls__group_fail_error(g, status);
    status = ls__multi_check_failed(g);
    if (status) return status;
    w->started = w->last_arrival = ls_now();
    w->last_rank = g->world->rank;
    if (ls__is_p2p(w->kind)) {
        ls__p2p_counts *begun = &m->p2p_begun[w->root];
        w->number = w->kind == LS_COLLECTIVE_SEND ? begun->sent++ : begun->received++;
        return LS_OK;
    }
    ls__event_start(w, ls__work_send_bytes(w, g->rank));
    status = g->collectives.first ? LS_OK : publish(g, w); /* otherwise when the one before is done */
    return status ? ls__group_fail_error(g, status) : LS_OK;
}

/* ---- Agreeing. */

static ls_status mismatch(ls_group *g, uint64_t number, int a, const entry *x, int b, const entry *y)
{
    const ls__multi *m = ls__multi_of(g);
    char first[160], second[160], group[LS__GROUP_TEXT];
    ls__describe_group(g, group);
    ls__describe(x->fingerprint, number, x->count, first, sizeof first);
    ls__describe(y->fingerprint, number, y->count, second, sizeof second);
    return ls__group_fail(g, LS_EMISMATCH,
                          "rank %d runs %s, but rank %d runs %s%s; both must make the same calls in the same order",
                          m->world_of[a], first, m->world_of[b], second, group);
}

static bool same(const entry *x, const entry *y)
{
    return x->fingerprint == y->fingerprint && x->count == y->count;
}

static entry entry_of(const ls__multi *m, uint64_t number, int local)
{
    const ls__multi_arrival *p = ls__multi_arrival_of(m, number, local);
    return (entry){ .fingerprint = p->fingerprint, .count = p->count, .time = p->time };
}

/* LS_OK when all members of this node have published. Those that have are compared at once. */
static ls_status gather_locals(ls_group *g, const ls_work *w)
{
    const ls__multi *m = ls__multi_of(g);
    entry mine = entry_of(m, w->number, m->local);
    bool all = true;
    for (int i = 0; i < m->locals; i++) {
        const ls__multi_arrival *p = ls__multi_arrival_of(m, w->number, i);
        if (atomic_load_explicit(&p->number, memory_order_acquire) != w->number + 1) {
            all = false;
            continue;
        }
        entry theirs = entry_of(m, w->number, i);
        if (!same(&mine, &theirs))
            return mismatch(g, w->number, g->rank, &mine, ls__multi_member(m, m->node, i), &theirs);
    }
    return all ? LS_OK : LS_PENDING;
}

static ls_status send_headers(ls__multi *m, const ls_work *w)
{
    ls__message_batch *b = &m->headers_out;
    ls_status status = LS_OK;
    size_t bytes = sizeof(header) + (size_t)m->locals * sizeof(entry);
    for (int i = 0; i < m->locals; i++) bytes += eager_length(w, ls__multi_member(m, m->node, i));
    b->count = 0;
    b->used = 0;
    for (int node = 0; node < m->nodes && !status; node++)
        if (node != m->node) status = ls__batch_add(b, local_root_of(m, node), bytes, NULL, b->count > 0);
    if (!status) status = ls__batch_place(b);
    if (status) return status;
    header h = { .number = w->number, .node = (uint32_t)m->node, .members = (uint32_t)m->locals };
    uint8_t *to = b->memory;
    memcpy(to, &h, sizeof h);
    to += sizeof h;
    for (int i = 0; i < m->locals; i++, to += sizeof(entry)) {
        entry e = entry_of(m, w->number, i);
        memcpy(to, &e, sizeof e);
    }
    for (int i = 0; i < m->locals; i++) {
        int rank = ls__multi_member(m, m->node, i);
        size_t n = eager_length(w, rank);
        if (n) memcpy(to, ls__multi_eager_of(m, w->number, rank), n);
        to += n;
    }
    return ls__batch_send(m, b, LS__TAG_HEADER);
}

/* What `node` reported of its member at place `local`. */
static entry entry_from(const ls__multi *m, uint64_t number, int node, int local)
{
    if (node == m->node) return entry_of(m, number, local);
    const ls__message *x = &m->headers_in.list[node < m->node ? node : node - 1];
    entry e;
    memcpy(&e, x->data + sizeof(header) + (size_t)local * sizeof e, sizeof e);
    return e;
}

static ls_status malformed(ls_group *g, const ls__message *x, const ls_work *w)
{
    return ls__group_fail(g, LS_EFORMAT, "rank %d sent a malformed message for collective #%llu", x->peer,
                          (unsigned long long)w->number);
}

static ls_status check_header(ls_group *g, const ls__message *x, const ls_work *w, int node)
{
    const ls__multi *m = ls__multi_of(g);
    header h;
    if (x->request.bytes >= sizeof h + (size_t)m->node_size[node] * sizeof(entry)) {
        memcpy(&h, x->data, sizeof h);
        if (h.number == w->number && h.node == (uint32_t)node && h.members == (uint32_t)m->node_size[node])
            return LS_OK;
    }
    return malformed(g, x, w);
}

/* Compares the fingerprints of all members with the first one's, so that every node finds the same pair. */
static ls_status compare_all(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    entry first = entry_from(m, w->number, m->node_of[0], m->local_of[0]);
    int64_t latest = INT64_MIN;
    int last = 0;
    for (int r = 0; r < g->size; r++) {
        entry e = entry_from(m, w->number, m->node_of[r], m->local_of[r]);
        if (!same(&first, &e)) return mismatch(g, w->number, 0, &first, r, &e);
        int64_t time = e.time - m->cluster->clock_ahead[m->cluster->node_of[m->world_of[r]]];
        if (time <= latest) continue;
        latest = time;
        last = m->world_of[r];
    }
    m->control->last_arrival[w->number % 2] = latest;
    m->control->last_rank[w->number % 2] = last;
    return LS_OK;
}

/* Copies the eager messages of other nodes to where their members would have put them. */
static ls_status unpack_eager(ls_group *g, const ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    for (int i = 0; i < m->headers_in.count; i++) {
        int node = i < m->node ? i : i + 1;
        const ls__message *x = &m->headers_in.list[i];
        size_t at = sizeof(header) + (size_t)m->node_size[node] * sizeof(entry);
        for (int k = 0; k < m->node_size[node]; k++) {
            int rank = ls__multi_member(m, node, k);
            size_t n = eager_length(w, rank);
            if (n > x->request.bytes - at) return malformed(g, x, w);
            if (n) memcpy(ls__multi_eager_of(m, w->number, rank), x->data + at, n);
            at += n;
        }
    }
    return LS_OK;
}

/* The local root's part. */
static ls_status agree_as_root(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    ls_status status = LS_OK;
    if (!m->headers_sent) {
        status = gather_locals(g, w);
        if (status) return status;
        if (!ls__batch_done(&m->headers_out)) return LS_PENDING;
        status = send_headers(m, w);
        if (status) return status;
        m->headers_sent = true;
        m->activity++;
    }
    if (!ls__batch_done(&m->headers_in)) return LS_PENDING;
    for (int i = 0; i < m->headers_in.count && !status; i++)
        status = check_header(g, &m->headers_in.list[i], w, i < m->node ? i : i + 1);
    if (!status) status = compare_all(g, w);
    if (!status) status = unpack_eager(g, w);
    if (status) return status;
    m->headers_sent = false;
    atomic_store_explicit(&m->control->agreed, w->number + 1, memory_order_release);
    ls__group_wake(g);
    return LS_OK;
}

static ls_status agree(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    ls_status status = m->published == w->number ? publish(g, w) : LS_OK;
    if (!status && m->local == 0) status = agree_as_root(g, w);
    if (status) return status;
    if (atomic_load_explicit(&m->control->agreed, memory_order_acquire) <= w->number) return LS_PENDING;
    w->arrived = true;
    w->last_arrival = m->control->last_arrival[w->number % 2];
    w->last_rank = m->control->last_rank[w->number % 2];
    m->activity++;
    return LS_OK;
}

/* ---- Progress. */

static void finish_eager(ls_group *g, const ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    for (int r = 0; r < g->size; r++) m->in[r] = ls__multi_eager_of(m, w->number, r);
    ls__eager_finish(g, w, m->in);
}

static ls_status advance(ls_group *g, ls_work *w)
{
    ls_status status = w->arrived ? LS_OK : agree(g, w);
    if (status) return status;
    if (is_eager(w))
        finish_eager(g, w);
    else
        status = ls__multi_pipeline(g, w);
    if (status) return status;
    ls__member *me = &g->members[g->local];
    atomic_store_explicit(&me->last_fingerprint, ls__work_fingerprint(w), memory_order_relaxed);
    atomic_store_explicit(&me->last_count, w->count, memory_order_relaxed);
    atomic_store_explicit(&me->last_number, w->number + 1, memory_order_relaxed);
    atomic_store_explicit(&me->finished, w->number + 1, memory_order_release);
    if (ls__multi_of(g)->id == LS__WORLD_GROUP) ls__multi_of(g)->cluster->suspect = false;
    ls__event_done(w);
    return LS_OK;
}

static ls_status progress(ls_group *g, ls_work *w)
{
    bool p2p = ls__is_p2p(w->kind);
    if (!p2p && g->collectives.first != w) return LS_PENDING; /* an earlier one is under way */
    ls_status status = ls__multi_poll(g);
    if (status < 0) return status;
    if (p2p) return ls__multi_p2p_progress(g, w);
    status = advance(g, w);
    return status < 0 ? ls__group_fail_error(g, status) : status;
}

static void abort_group(ls_group *g, ls_status status, const char *text, bool wait)
{
    ls__notice_abort(ls__multi_of(g), status, text, wait);
}

const ls__transport ls__multi_transport = {
    .name = "mpi",
    .serves = ls__multi_serves,
    .join = ls__multi_join,
    .make = ls__multi_make,
    .enter = ls__multi_enter,
    .discard = ls__multi_discard,
    .start = start,
    .progress = progress,
    .idle = ls__multi_idle,
    .check_failed = ls__multi_check_failed,
    .check_peers = ls__multi_check_peers,
    .abort = abort_group,
    .release = ls__multi_release,
};
