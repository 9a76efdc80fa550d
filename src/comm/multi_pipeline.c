/* The pipeline of a large collective between nodes.
 *
 * The data is split into rounds, several of which are under way at a time, so that the network is busy in both directions while ranks
 * add and copy. Each rank takes each round through the same stages, in order:
 *
 *   open      a slot is free on all ranks of the node: receives are posted
 *   fill      all input of this node can be read: the first messages are computed and sent
 *   combine   the first messages have come: the second ones, and this rank's part of the receive window, are computed
 *   receive   the second messages have come: this rank's part of the receive window is complete
 *   deliver   all parts are: this rank copies its results
 *   close     its messages are sent: it needs nothing of the round any more
 *
 * What the stages do for a collective is a table (ls__pipeline_ops) in multi_reduce.c or multi_move.c. Ranks of a node see each other's
 * progress as three counters in their arrivals: in (input that can be read), received, and out (rounds closed). A slot is reused when
 * the last rank has closed it.
 *
 * Both sides of a message compute its size and order from the same plan, so these messages need no headers. */
#include "comm/multi.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/heap.h"
#include "comm/traits.h"
#include "comm/wait.h"

enum {
    ROUNDS_MIN = 8,         /* for data that is not much larger than a message, so that stages overlap */
    MESSAGE_MIN = 16 << 10, /* below this the fixed cost of a message dominates */
};

/* ---- Input. */

const uint8_t *ls__multi_input(const ls_group *g, const ls_work *w, int local, int block, uint32_t round)
{
    const ls__multi_work *t = ls__multi_work_of(w);
    const ls__multi *m = ls__multi_of(g);
    size_t size = ls_dtype_size(w->type);
    size_t at = ((size_t)block * w->count + ls__multi_round_begin(w, round)) * size;
    if (local == m->local) return (const uint8_t *)w->send + at;
    const ls__multi_arrival *arrival = ls__multi_arrival_of(m, w->number, local);
    if (arrival->at != LS__MULTI_STAGED) return (const uint8_t *)ls__heap_at(g->world->job, arrival->at) + at;
    return ls__multi_staging_of(m, local, round) + (size_t)block * t->round_bytes;
}

/* The number of rounds that all ranks of this node have passed, by a counter of their arrivals. */
static uint32_t least(const ls__multi *m, const ls_work *w, size_t counter)
{
    uint32_t n = UINT32_MAX;
    for (int i = 0; i < m->locals; i++) {
        ls__multi_arrival *arrival = ls__multi_arrival_of(m, w->number, i);
        uint32_t v = atomic_load_explicit((_Atomic uint32_t *)((char *)arrival + counter), memory_order_acquire);
        if (v < n) n = v;
    }
    return n;
}
#define LEAST(m, w, field) least(m, w, offsetof(ls__multi_arrival, field))

/* Copies input that is not job memory into staging, one round if there is space. */
static bool stage(ls_group *g, ls_work *w)
{
    ls__multi_work *t = ls__multi_work_of(w);
    ls__multi *m = ls__multi_of(g);
    if (!t->staged || t->in == t->rounds || t->in >= LEAST(m, w, out) + m->depth) return false;
    uint8_t *to = ls__multi_staging_of(m, m->local, t->in);
    size_t bytes = ls__multi_round_count(w, t->in) * ls_dtype_size(w->type);
    int blocks = ls__work_blocks(w);
    for (int b = 0; b < blocks; b++)
        memcpy(to + (size_t)b * t->round_bytes, ls__multi_input(g, w, m->local, b, t->in), bytes);
    atomic_store_explicit(&ls__multi_arrival_of(m, w->number, m->local)->in, ++t->in, memory_order_release);
    return true;
}

/* ---- The stages. Each does one round if it can, and sets *did. */

static ls_status open_round(ls_group *g, ls_work *w, const ls__pipeline_ops *f, bool *did)
{
    const ls__multi_work *t = ls__multi_work_of(w);
    ls__multi *m = ls__multi_of(g);
    if (m->opened == t->rounds || m->opened >= LEAST(m, w, out) + m->depth) return LS_OK;
    ls__multi_slot *s = &m->slots[m->opened % m->depth];
    ls__message_batch *batches[] = { &s->first_in, &s->first_out, &s->second_in, &s->second_out };
    for (int i = 0; i < 4; i++) ls__batch_reset(batches[i]);
    ls_status status = f->plan(g, w, m->opened, s);
    for (int i = 0; i < 4 && !status; i++) status = ls__batch_place(batches[i]);
    if (!status) status = ls__batch_recv(m, &s->first_in, LS__TAG_FIRST);
    if (!status) status = ls__batch_recv(m, &s->second_in, LS__TAG_SECOND);
    m->opened++;
    *did = true;
    return status;
}

static ls_status fill_round(ls_group *g, ls_work *w, const ls__pipeline_ops *f, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    if (m->filled == m->opened || LEAST(m, w, in) <= m->filled) return LS_OK;
    ls__multi_slot *s = &m->slots[m->filled % m->depth];
    ls_status status = f->fill ? f->fill(g, w, m->filled, s) : LS_OK;
    if (!status) status = ls__batch_send(m, &s->first_out, LS__TAG_FIRST);
    m->filled++;
    *did = true;
    return status;
}

static ls_status combine_round(ls_group *g, ls_work *w, const ls__pipeline_ops *f, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    ls__multi_slot *s = &m->slots[m->combined % m->depth];
    if (m->combined == m->filled || !ls__batch_done(&s->first_in)) return LS_OK;
    ls_status status = f->combine ? f->combine(g, w, m->combined, s) : LS_OK;
    if (!status) status = ls__batch_send(m, &s->second_out, f->chain ? LS__TAG_FIRST : LS__TAG_SECOND);
    m->combined++;
    *did = true;
    return status;
}

static void receive_round(ls_group *g, ls_work *w, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    if (m->received == m->combined || !ls__batch_done(&m->slots[m->received % m->depth].second_in)) return;
    atomic_store_explicit(&ls__multi_arrival_of(m, w->number, m->local)->received, ++m->received, memory_order_release);
    *did = true;
}

static ls_status deliver_round(ls_group *g, ls_work *w, const ls__pipeline_ops *f, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    if (m->delivered == m->received || LEAST(m, w, received) <= m->delivered) return LS_OK;
    ls_status status = f->deliver(g, w, m->delivered, &m->slots[m->delivered % m->depth]);
    m->delivered++;
    *did = true;
    return status;
}

static void close_round(ls_group *g, ls_work *w, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    const ls__multi_slot *s = &m->slots[m->closed % m->depth];
    if (m->closed == m->delivered || !ls__batch_done(&s->first_out) || !ls__batch_done(&s->second_out)) return;
    atomic_store_explicit(&ls__multi_arrival_of(m, w->number, m->local)->out, ++m->closed, memory_order_release);
    *did = true;
}

/* ---- All stages. */

static const ls__pipeline_ops *pipeline_of(const ls_work *w)
{
    const ls__traits *t = &ls__traits_of[w->kind];
    if (t->reduces) return t->send_blocks ? &ls__pipeline_reduce_scatter : &ls__pipeline_reduce;
    if (t->sends == LS__ALL && t->receives == LS__ALL && !t->send_blocks) return &ls__pipeline_allgather;
    return t->send_blocks || t->recv_blocks ? &ls__pipeline_exchange : &ls__pipeline_broadcast;
}

/* How much of a block a round has. All ranks compute the same. */
static void plan_rounds(const ls_group *g, ls_work *w, bool sliced)
{
    ls__multi_work *t = ls__multi_work_of(w);
    ls__multi *m = ls__multi_of(g);
    size_t block = w->block_bytes;
    size_t most = sliced ? m->round_bytes : m->round_bytes / (size_t)g->size;
    size_t bytes = block / ROUNDS_MIN;
    size_t least_bytes = (size_t)MESSAGE_MIN * (size_t)(sliced ? m->slices * m->nodes : 1);
    if (bytes < least_bytes) bytes = least_bytes;
    if (bytes > most) bytes = most;
    t->round_bytes = bytes / 64 * 64;
    t->rounds = (uint32_t)((block + t->round_bytes - 1) / t->round_bytes);
    m->opened = m->filled = m->combined = m->received = m->delivered = m->closed = 0;
}

ls_status ls__multi_pipeline(ls_group *g, ls_work *w)
{
    const ls__multi_work *t = ls__multi_work_of(w);
    ls__multi *m = ls__multi_of(g);
    const ls__pipeline_ops *f = pipeline_of(w);
    if (!t->rounds) plan_rounds(g, w, f->sliced);
    bool did, any = false;
    do {
        did = stage(g, w);
        ls_status status = open_round(g, w, f, &did);
        if (!status) status = fill_round(g, w, f, &did);
        if (!status) status = combine_round(g, w, f, &did);
        if (status) return status;
        receive_round(g, w, &did);
        status = deliver_round(g, w, f, &did);
        if (status) return status;
        close_round(g, w, &did);
        any |= did;
        if (did) m->activity++;
    } while (did);
    if (any) ls__group_wake(g);
    bool done = m->closed == t->rounds && (!f->input_is_read || LEAST(m, w, out) == t->rounds);
    return done ? LS_OK : LS_PENDING;
}
