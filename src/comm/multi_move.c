/* Data that moves between nodes without being added: broadcast, all-gather, gather, scatter, all-to-all.
 *
 * What every rank of a node needs crosses the node's link once and arrives in the receive window: in a broadcast a chain of nodes,
 * beginning with the root's, forwards each slice as it comes, and in an all-gather each rank sends its block to one rank of each other
 * node. In the remaining collectives each block has one receiver and is sent directly to it. Ranks of one node read each other's
 * memory. */
#include "comm/multi.h"

#include <string.h>
#include "comm/traits.h"
#include "kern/copy.h"

static uint8_t *result_at(const ls_work *w, int block, uint32_t round)
{
    size_t at = (size_t)block * w->count + ls__multi_round_begin(w, round);
    return (uint8_t *)w->recv + at * ls_dtype_size(w->type);
}

static size_t bytes_of(const ls_work *w, uint32_t round)
{
    return ls__multi_round_count(w, round) * ls_dtype_size(w->type);
}

/* ---- Broadcast. Slices as in multi_reduce.c. */

/* Where slice s of a round of `bytes` begins: at a whole cache line. */
static size_t slice_begin(const ls__multi *m, size_t bytes, int s)
{
    return s == m->slices ? bytes : bytes * (size_t)s / (size_t)m->slices / 64 * 64;
}

static ls_status broadcast_plan(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t bytes = bytes_of(w, round);
    uint8_t *recv_window = ls__multi_recv_window_of(m, round);
    int root = m->node_of[w->root], next = (m->node + 1) % m->nodes, previous = (m->node + m->nodes - 1) % m->nodes;
    ls_status status = LS_OK;
    for (int s = m->local; s < m->slices && !status; s += m->locals) {
        size_t begin = slice_begin(m, bytes, s), n = slice_begin(m, bytes, s + 1) - begin;
        if (m->node != root)
            status = ls__batch_add(&slot->first_in, m->world_of[ls__multi_member(m, previous, s)], n,
                                   recv_window + begin, false);
        if (!status && next != root)
            status = ls__batch_add(&slot->second_out, m->world_of[ls__multi_member(m, next, s)], n, recv_window + begin,
                                   false);
    }
    return status;
}

static ls_status broadcast_combine(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    (void)slot;
    ls__multi *m = ls__multi_of(g);
    if (m->node != m->node_of[w->root]) return LS_OK;
    size_t bytes = bytes_of(w, round);
    const uint8_t *from = ls__multi_input(g, w, m->local_of[w->root], 0, round);
    for (int s = m->local; s < m->slices; s += m->locals) {
        size_t begin = slice_begin(m, bytes, s), n = slice_begin(m, bytes, s + 1) - begin;
        ls__copy_bytes(ls__multi_recv_window_of(m, round) + begin, from + begin, n, false);
    }
    return LS_OK;
}

static ls_status broadcast_deliver(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    (void)slot;
    if (g->rank != w->root)
        ls__copy_bytes(result_at(w, 0, round), ls__multi_recv_window_of(ls__multi_of(g), round), bytes_of(w, round),
                       false);
    return LS_OK;
}

const ls__pipeline_ops ls__pipeline_broadcast = {
    .plan = broadcast_plan,
    .combine = broadcast_combine,
    .deliver = broadcast_deliver,
    .chain = true,
    .sliced = true,
};

/* ---- All-gather. */

static ls_status gather_plan(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    const ls__multi_work *t = ls__multi_work_of(w);
    ls__multi *m = ls__multi_of(g);
    size_t bytes = bytes_of(w, round);
    ls_status status = LS_OK;
    for (int i = 1; i < m->nodes && !status; i++) {
        int node = (m->node + i) % m->nodes;
        status = ls__batch_add(&slot->first_out, m->world_of[ls__multi_member(m, node, m->local)], bytes, NULL, i > 1);
    }
    for (int r = 0; r < g->size && !status; r++)
        if (m->node_of[r] != m->node && m->local_of[r] % m->locals == m->local)
            status = ls__batch_add(&slot->first_in, m->world_of[r], bytes,
                                   ls__multi_recv_window_of(m, round) + (size_t)r * t->round_bytes, false);
    return status;
}

static ls_status gather_fill(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__copy_bytes(slot->first_out.memory, ls__multi_input(g, w, ls__multi_of(g)->local, 0, round), bytes_of(w, round),
                   false);
    return LS_OK;
}

static ls_status gather_deliver(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    const ls__multi_work *t = ls__multi_work_of(w);
    (void)slot;
    ls__multi *m = ls__multi_of(g);
    for (int r = 0; r < g->size; r++) {
        const uint8_t *from = m->node_of[r] == m->node
                                  ? ls__multi_input(g, w, m->local_of[r], 0, round)
                                  : ls__multi_recv_window_of(m, round) + (size_t)r * t->round_bytes;
        uint8_t *to = result_at(w, r, round);
        if (to != from) ls__copy_bytes(to, from, bytes_of(w, round), false);
    }
    return LS_OK;
}

const ls__pipeline_ops ls__pipeline_allgather = {
    .plan = gather_plan,
    .fill = gather_fill,
    .deliver = gather_deliver,
    .input_is_read = true,
};

/* ---- Gather, scatter, all-to-all: blocks with one receiver each. */

static bool moves(const ls_work *w, int from, int to)
{
    return ls__work_sends(w, from) && ls__work_receives(w, to);
}

/* The sender's block that is for rank `to`. */
static int block_for(const ls_work *w, int to)
{
    return ls__traits_of[w->kind].send_blocks ? to : 0;
}

static ls_status exchange_plan(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    size_t bytes = bytes_of(w, round);
    ls_status status = LS_OK;
    for (int r = 0; r < g->size && !status; r++) {
        if (m->node_of[r] == m->node) continue;
        if (moves(w, g->rank, r)) status = ls__batch_add(&slot->first_out, m->world_of[r], bytes, NULL, false);
        if (!status && moves(w, r, g->rank))
            status = ls__batch_add(&slot->first_in, m->world_of[r], bytes, NULL, false);
    }
    return status;
}

static ls_status exchange_fill(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    const ls__message *message = slot->first_out.list;
    for (int r = 0; r < g->size; r++)
        if (m->node_of[r] != m->node && moves(w, g->rank, r))
            ls__copy_bytes(message++->data, ls__multi_input(g, w, m->local, block_for(w, r), round), bytes_of(w, round),
                           false);
    return LS_OK;
}

static ls_status exchange_deliver(ls_group *g, ls_work *w, uint32_t round, ls__multi_slot *slot)
{
    ls__multi *m = ls__multi_of(g);
    const ls__message *message = slot->first_in.list;
    for (int r = 0; r < g->size; r++) {
        if (!moves(w, r, g->rank)) continue;
        const uint8_t *from = m->node_of[r] == m->node
                                  ? ls__multi_input(g, w, m->local_of[r], block_for(w, g->rank), round)
                                  : message++->data;
        uint8_t *to = result_at(w, ls__traits_of[w->kind].recv_blocks ? r : 0, round);
        if (to != from) ls__copy_bytes(to, from, bytes_of(w, round), false);
    }
    return LS_OK;
}

const ls__pipeline_ops ls__pipeline_exchange = {
    .plan = exchange_plan,
    .fill = exchange_fill,
    .deliver = exchange_deliver,
    .input_is_read = true,
};
