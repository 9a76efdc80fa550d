/* Sums between nodes: all-reduce, reduce, reduce-scatter.
 *
 * All-reduce and reduce. A round is split into slices, as many as the largest node has members. On each node one member carries a
 * slice; where there are fewer members than slices, some carry several. A slice is split again, into a part for each node. The carrier
 * adds each other node's part over the members of its own node and sends it there (first exchange). It receives the partial sums of
 * its own part, finishes the sum in canonical order, and sends the result to all (second exchange). Each node's link carries
 * 2 (N-1)/N times the data in each direction, which is the minimum, and all links are busy all the time. Results are received directly
 * into the receive window.
 *
 * Reduce is the same, but results are sent only to the root's node.
 *
 * Reduce-scatter has no second exchange: the partial sums of a rank's block are sent to that rank.
 *
 * A sum of parts (slot_parts.h) is an all-reduce whose leaves are slots: a node has a partial sum for each largest subtree of slots
 * that are all its own. */
#include "comm/multi.h"

#include <stdlib.h>
#include "base/tree.h"
#include "comm/traits.h"
#include "kern/copy.h"

/* How the nodes' partial sums make the sum. */
typedef struct sum_plan {
    const ls__subtree *subtrees; /* over the ranks, or over the leaves of parts */
    const ls__canonical_step *steps;
    int count;              /* subtrees */
    int leaves;             /* of the tree */
    const int *first_parts; /* by subtree; NULL: the sum is over ranks */
    void **partials;        /* by subtree */
} sum_plan;

/* Which partial sums of a sum over ranks are used: as many as possible added in advance, or none. */
static int kind_of(const ls_work *w)
{
    return ls__canonical_has_partials(w->type, w->op) ? 0 : 1;
}

/* ---- Sums of parts: the subtrees whose leaves are all on one node. */

/* In one block of memory, with the lists that it refers to. */
typedef struct node_sums {
    int count;
    ls__subtree *subtrees;
    ls__canonical_step *steps;
    int *first_parts;
    void **partials;
} node_sums;

/* Subtrees of leaves first..first+count-1; part *at is the first of them. */
static void find_subtrees(const ls__multi *m, const ls__slot_parts *p, int first, int count, int *at, node_sums *out)
{
    int node = m->node_of[p->part[*at].rank], end = *at;
    bool here = true;
    for (; end < p->n && p->part[end].first < first + count; end++)
        here = here && m->node_of[p->part[end].rank] == node;
    if (here) {
        out->subtrees[out->count] = (ls__subtree){ .first = first, .count = count, .node = node };
        out->first_parts[out->count++] = *at;
        *at = end;
        return;
    }
    int left = (int)ls__tree_split((size_t)count);
    find_subtrees(m, p, first, left, at, out);
    find_subtrees(m, p, first + left, count - left, at, out);
}

static const node_sums *node_sums_of(const ls__multi *m, ls__slot_parts *p)
{
    if (p->node_sums) return p->node_sums;
    size_t n = (size_t)p->n;
    node_sums *s = malloc(sizeof *s + n * (sizeof *s->partials + sizeof *s->subtrees + sizeof *s->steps + sizeof(int)));
    if (!s) return NULL;
    *s = (node_sums){ .partials = (void **)(s + 1) };
    s->subtrees = (ls__subtree *)(s->partials + n);
    s->steps = (ls__canonical_step *)(s->subtrees + n);
    s->first_parts = (int *)(s->steps + n);
    int at = 0;
    find_subtrees(m, p, 0, p->leaves, &at, s);
    ls__canonical_steps(s->subtrees, s->count, p->leaves, s->steps);
    return p->node_sums = s;
}

/* ---- Partial sums. */

static ls_status plan_sum(const ls__multi *m, const ls_work *w, sum_plan *out)
{
    if (!w->parts) {
        int kind = kind_of(w);
        *out = (sum_plan){ .subtrees = m->subtrees[kind],
                           .steps = m->steps[kind],
                           .count = m->subtree_count[kind],
                           .leaves = m->group->size,
                           .partials = m->partials };
        return LS_OK;
    }
    const node_sums *s = node_sums_of(m, w->parts);
    if (!s) return LS_ENOMEM;
    *out = (sum_plan){ .subtrees = s->subtrees,
                       .steps = s->steps,
                       .count = s->count,
                       .leaves = w->parts->leaves,
                       .first_parts = s->first_parts,
                       .partials = s->partials };
    return LS_OK;
}

/* Bytes of all partial sums that a node has for `elements`. */
static size_t partials_bytes(const sum_plan *plan, const ls_work *w, int node, size_t elements)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->count; i++)
        if (plan->subtrees[i].node == node) bytes += ls__canonical_partial_bytes(w->type, &plan->subtrees[i], elements);
    return bytes;
}

/* The partial sum of the leaves of a subtree, which are parts of this node's ranks. */
static void write_sum_of_parts(ls_group *g, const ls_work *w, uint32_t round, const ls__subtree *c, int part,
                               size_t first, size_t n, void *to)
{
    const ls__multi *m = ls__multi_of(g);
    const ls__slot_parts *p = w->parts;
    for (int i = part; i < p->n && p->part[i].first < c->first + c->count; i++)
        p->in[i] = ls__multi_input(g, w, m->local_of[p->part[i].rank], 0, round) + first * sizeof(float) +
                   (size_t)p->part[i].place * p->stride;
    ls__slot_parts_sum(p, c->count, part, &to, 1, p->in + part, n);
}

/* Writes this node's partial sums of elements first..first+n-1 of a block in a round. */
static void write_partials(ls_group *g, const sum_plan *plan, const ls_work *w, uint32_t round, int block, size_t first,
                           size_t n, uint8_t *to)
{
    ls__multi *m = ls__multi_of(g);
    size_t size = ls_dtype_size(w->type);
    for (int i = 0; i < plan->count; i++) {
        const ls__subtree *c = &plan->subtrees[i];
        if (c->node != m->node) continue;
        if (plan->first_parts) {
            write_sum_of_parts(g, w, round, c, plan->first_parts[i], first, n, to);
        } else {
            for (int k = 0; k < c->count; k++)
                m->in[k] = ls__multi_input(g, w, m->local_of[c->first + k], block, round) + first * size;
            ls__canonical_partial(w->type, w->op, to, m->in, c->count, n, m->scratch);
        }
        to += ls__canonical_partial_bytes(w->type, c, n);
    }
}

/* Finishes a sum: at[node] is where each node's partial sums are. */
static ls_status finish_sum(ls_group *g, const sum_plan *plan, const ls_work *w, void **at, size_t n, void *out)
{
    ls__multi *m = ls__multi_of(g);
    if (ls__canonical_widens(w->type)) {
        m->wide = ls__multi_grow(m->wide, &m->wide_room, (size_t)plan->count * n * sizeof(float));
        if (!m->wide) return LS_ENOMEM;
    }
    for (int i = 0; i < plan->count; i++) {
        const ls__subtree *c = &plan->subtrees[i];
        plan->partials[i] = at[c->node];
        at[c->node] = (uint8_t *)at[c->node] + ls__canonical_partial_bytes(w->type, c, n);
    }
    ls__canonical_finish(w->type, w->op, out, plan->partials, plan->subtrees, plan->count, plan->steps, plan->leaves, n,
                         m->wide);
    return LS_OK;
}

/* ---- All-reduce and reduce. */

typedef struct range {
    size_t begin, count;
} range;

/* Part i of n elements split into `parts`, at multiples of 16 elements. */
static range part(size_t n, int i, int parts)
{
    size_t begin = n * (size_t)i / (size_t)parts / 16 * 16;
    size_t end = i + 1 == parts ? n : n * (size_t)(i + 1) / (size_t)parts / 16 * 16;
    return (range){ .begin = begin, .count = end - begin };
}

/* The part of slice s that `node` finishes, within a round of n elements. */
static range share(const ls__multi *m, size_t n, int s, int node)
{
    range slice = part(n, s, m->slices), r = part(slice.count, node, m->nodes);
    r.begin += slice.begin;
    return r;
}

/* Whether a node gets the results. */
static bool wants(const ls__multi *m, const ls_work *w, int node)
{
    return ls__traits_of[w->kind].receives == LS__ALL || m->node_of[w->root] == node;
}

static ls_status reduce_plan(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t n = ls__multi_round_count(w, round), size = ls_dtype_size(w->type);
    uint8_t *recv_window = ls__multi_recv_window_of(m, round);
    sum_plan plan;
    ls_status status = plan_sum(m, w, &plan);
    if (status) return status;
    for (int s = m->local; s < m->slices; s += m->locals) {
        range mine = share(m, n, s, m->node);
        for (int i = 1; i < m->nodes && !status; i++) {
            int node = (m->node + i) % m->nodes, peer = m->world_of[ls__multi_member(m, node, s)];
            range theirs = share(m, n, s, node);
            status =
                ls__batch_add(&slot->first_out, peer, partials_bytes(&plan, w, m->node, theirs.count), NULL, false);
            if (!status)
                status = ls__batch_add(&slot->first_in, peer, partials_bytes(&plan, w, node, mine.count), NULL, false);
            if (!status && wants(m, w, node))
                status =
                    ls__batch_add(&slot->second_out, peer, mine.count * size, recv_window + mine.begin * size, false);
            if (!status && wants(m, w, m->node))
                status = ls__batch_add(&slot->second_in, peer, theirs.count * size, recv_window + theirs.begin * size,
                                       false);
        }
    }
    return status;
}

static ls_status reduce_fill(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t n = ls__multi_round_count(w, round);
    const ls__message *message = slot->first_out.list;
    sum_plan plan;
    ls_status status = plan_sum(m, w, &plan);
    if (status) return status;
    for (int s = m->local; s < m->slices; s += m->locals)
        for (int i = 1; i < m->nodes; i++) {
            range theirs = share(m, n, s, (m->node + i) % m->nodes);
            if (!theirs.count) continue;
            write_partials(g, &plan, w, round, 0, theirs.begin, theirs.count, message->data);
            message++;
        }
    return LS_OK;
}

static ls_status reduce_combine(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t n = ls__multi_round_count(w, round), size = ls_dtype_size(w->type);
    uint8_t *recv_window = ls__multi_recv_window_of(m, round);
    void **at = m->partials + g->size;
    const ls__message *message = slot->first_in.list;
    sum_plan plan;
    ls_status status = plan_sum(m, w, &plan);
    if (status) return status;
    for (int s = m->local; s < m->slices; s += m->locals) {
        range mine = share(m, n, s, m->node);
        if (!mine.count) continue;
        m->own = ls__multi_grow(m->own, &m->own_room, partials_bytes(&plan, w, m->node, mine.count));
        if (!m->own) return LS_ENOMEM;
        write_partials(g, &plan, w, round, 0, mine.begin, mine.count, m->own);
        at[m->node] = m->own;
        for (int i = 1; i < m->nodes; i++) at[(m->node + i) % m->nodes] = message++->data;
        status = finish_sum(g, &plan, w, at, mine.count, recv_window + mine.begin * size);
        if (status) return status;
    }
    return LS_OK;
}

static ls_status reduce_deliver(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    (void)slot;
    if (!ls__work_receives(w, g->rank)) return LS_OK;
    size_t size = ls_dtype_size(w->type);
    ls__copy_bytes((uint8_t *)w->recv + ls__multi_round_begin(w, round) * size,
                   ls__multi_recv_window_of(ls__multi_of(g), round), ls__multi_round_count(w, round) * size, false);
    return LS_OK;
}

const ls__pipeline_ops ls__pipeline_reduce = {
    .plan = reduce_plan,
    .fill = reduce_fill,
    .combine = reduce_combine,
    .sliced = true,
    .deliver = reduce_deliver,
};

/* ---- Reduce-scatter. */

/* Whether this rank sends the partial sums of a block to its owner on another node. */
static bool carries(const ls__multi *m, int owner)
{
    return m->node_of[owner] != m->node && m->local_of[owner] % m->locals == m->local;
}

static ls_status scatter_plan(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t n = ls__multi_round_count(w, round);
    sum_plan plan;
    ls_status status = plan_sum(m, w, &plan);
    for (int r = 0; r < g->size && !status; r++)
        if (carries(m, r))
            status = ls__batch_add(&slot->first_out, m->world_of[r], partials_bytes(&plan, w, m->node, n), NULL, false);
    for (int node = 0; node < m->nodes && !status; node++) {
        if (node == m->node) continue;
        int peer = m->world_of[ls__multi_member(m, node, m->local)];
        status = ls__batch_add(&slot->first_in, peer, partials_bytes(&plan, w, node, n), NULL, false);
    }
    return status;
}

static ls_status scatter_fill(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    const ls__message *message = slot->first_out.list;
    sum_plan plan;
    ls_status status = plan_sum(m, w, &plan);
    for (int r = 0; r < g->size && !status; r++)
        if (carries(m, r)) write_partials(g, &plan, w, round, r, 0, ls__multi_round_count(w, round), message++->data);
    return status;
}

static ls_status scatter_deliver(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t n = ls__multi_round_count(w, round);
    void **at = m->partials + g->size;
    const ls__message *message = slot->first_in.list;
    sum_plan plan;
    ls_status status = plan_sum(m, w, &plan);
    if (status) return status;
    m->own = ls__multi_grow(m->own, &m->own_room, partials_bytes(&plan, w, m->node, n));
    if (!m->own) return LS_ENOMEM;
    write_partials(g, &plan, w, round, g->rank, 0, n, m->own);
    for (int node = 0; node < m->nodes; node++) at[node] = node == m->node ? m->own : message++->data;
    return finish_sum(g, &plan, w, at, n,
                      (uint8_t *)w->recv + ls__multi_round_begin(w, round) * ls_dtype_size(w->type));
}

const ls__pipeline_ops ls__pipeline_reduce_scatter = {
    .plan = scatter_plan,
    .fill = scatter_fill,
    .deliver = scatter_deliver,
    .input_is_read = true,
};
