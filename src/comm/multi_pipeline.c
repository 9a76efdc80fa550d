/* The pipeline of a large collective between machines.
 *
 * The data is cut into rounds, a few of which are under way at a time, so that the network is busy in both directions
 * while ranks add and copy. Each rank takes each round through the same stages, in order:
 *
 *   open     a slot of the window is free on all ranks of the machine: receives are published
 *   fill     all input of this machine is there: the first messages are computed and sent
 *   combine  the first messages of the others have come: the second ones, and this rank's part of the recv_window, are made
 *   recv_window    the second messages have come: this rank's part of the recv_window is complete
 *   take     all parts are: this rank takes its results
 *   close    its messages are gone: it needs nothing of the round any more
 *
 * What the stages do for a collective is a table (ls__pipeline_ops) in multi_reduce.c or multi_move.c; which ones may be empty.
 * Ranks of a machine see each other's progress as three counters in their arrivals: in (input that can be read), recv_window,
 * and out (rounds closed). A slot is used again when the last of them has closed it.
 *
 * Both sides of a message compute its size and order from the same plan, so messages need no heads. */
#include "comm/multi.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/heap.h"
#include "comm/shm.h"

enum {
    ROUNDS_AT_LEAST = 8,         /* for data that is not much larger than a message, so that stages overlap */
    MESSAGE_AT_LEAST = 16 << 10, /* but below this a message costs more than its bytes */
};

/* ---- Batches. */

void *ls__multi_grow(void *memory, size_t *room, size_t bytes)
{
    if (memory && bytes <= *room) return memory;
    free(memory);
    *room = (bytes / 4096 + 1) * 4096;
    memory = aligned_alloc(64, *room);
    if (!memory) ls__fail(LS_ENOMEM, "no memory for messages of %zu bytes", bytes);
    return memory;
}

ls_status ls__batch_add(ls__message_batch *b, int peer, size_t bytes, uint8_t *data, bool again)
{
    if (!bytes) return LS_OK;
    if (b->count == b->room) {
        int room = b->room ? 2 * b->room : 8;
        ls__message *list = realloc(b->list, (size_t)room * sizeof *list);
        if (!list) return ls__fail(LS_ENOMEM, "no memory for %d messages", room);
        b->list = list;
        b->room = room;
    }
    ls__message *m = &b->list[b->count++];
    *m = (ls__message){ .peer = peer, .bytes = bytes, .data = data };
    if (data) return LS_OK;
    if (again && b->count > 1) {
        m->offset = m[-1].offset;
        return LS_OK;
    }
    m->offset = b->used;
    b->used += (bytes + 63) / 64 * 64;
    return LS_OK;
}

ls_status ls__batch_place(ls__message_batch *b)
{
    if (!b->used) return LS_OK;
    b->memory = ls__multi_grow(b->memory, &b->memory_room, b->used);
    if (!b->memory) return LS_ENOMEM;
    for (int i = 0; i < b->count; i++)
        if (!b->list[i].data) b->list[i].data = b->memory + b->list[i].offset;
    return LS_OK;
}

ls_status ls__batch_send(const ls__multi *m, ls__message_batch *b, ls__multi_kind kind)
{
    ls_status status = LS_OK;
    for (int i = 0; i < b->count && !status; i++) {
        ls__message *x = &b->list[i];
        status = ls__net_send(m->cluster->net, x->data, x->bytes, x->peer, ls__multi_tag(m, kind), false, &x->request);
    }
    return status;
}

ls_status ls__batch_recv(const ls__multi *m, ls__message_batch *b, ls__multi_kind kind)
{
    ls_status status = LS_OK;
    for (int i = 0; i < b->count && !status; i++) {
        ls__message *x = &b->list[i];
        status = ls__net_recv(m->cluster->net, x->data, x->bytes, x->peer, ls__multi_tag(m, kind), &x->request);
    }
    return status;
}

bool ls__batch_done(const ls__message_batch *b)
{
    for (int i = 0; i < b->count; i++)
        if (b->list[i].request.active) return false;
    return true;
}

void ls__batch_free(ls__message_batch *b)
{
    free(b->list);
    free(b->memory);
    *b = (ls__message_batch){ 0 };
}

static void batch_reset(ls__message_batch *b)
{
    b->count = 0;
    b->used = 0;
}

/* ---- Input. */

const uint8_t *ls__multi_input(const ls_group *g, const ls_work *w, int local, int block, uint32_t round)
{
    const ls__multi *m = ls__multi_of(g);
    size_t size = ls_dtype_size(w->type);
    size_t at = ((size_t)block * w->count + ls__multi_round_begin(w, round)) * size;
    if (local == m->local) return (const uint8_t *)w->send + at;
    const ls__multi_arrival *arrival = ls__multi_arrival_of(m, w->number, local);
    if (arrival->at != LS__MULTI_STAGED) return (const uint8_t *)ls__heap_at(g->world->job, arrival->at) + at;
    return ls__multi_staging_of(m, local, round) + (size_t)block * w->round_bytes;
}

/* The number of rounds that all ranks of this machine have behind them, by a counter of their arrivals. */
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

/* Copies input from outside the window into staging, as far as there is room. */
static bool stage(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    if (!w->staged || w->in == w->rounds || w->in >= LEAST(m, w, out) + m->depth) return false;
    uint8_t *to = ls__multi_staging_of(m, m->local, w->in);
    size_t bytes = ls__multi_round_count(w, w->in) * ls_dtype_size(w->type);
    int blocks = ls__shm_send_blocks(w);
    for (int b = 0; b < blocks; b++)
        memcpy(to + (size_t)b * w->round_bytes, ls__multi_input(g, w, m->local, b, w->in), bytes);
    atomic_store_explicit(&ls__multi_arrival_of(m, w->number, m->local)->in, ++w->in, memory_order_release);
    return true;
}

/* ---- The stages. Each does one round if it can, and says whether it did. */

static ls_status open_round(ls_group *g, ls_work *w, const ls__pipeline_ops *f, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    if (m->opened == w->rounds || m->opened >= LEAST(m, w, out) + m->depth) return LS_OK;
    ls__multi_slot *s = &m->slots[m->opened % m->depth];
    ls__message_batch *batches[] = { &s->first_in, &s->first_out, &s->second_in, &s->second_out };
    for (int i = 0; i < 4; i++) batch_reset(batches[i]);
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
    atomic_store_explicit(&ls__multi_arrival_of(m, w->number, m->local)->recv_window, ++m->received,
                          memory_order_release);
    *did = true;
}

static ls_status take_round(ls_group *g, ls_work *w, const ls__pipeline_ops *f, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    if (m->taken == m->received || LEAST(m, w, recv_window) <= m->taken) return LS_OK;
    ls_status status = f->take(g, w, m->taken, &m->slots[m->taken % m->depth]);
    m->taken++;
    *did = true;
    return status;
}

static void close_round(ls_group *g, ls_work *w, bool *did)
{
    ls__multi *m = ls__multi_of(g);
    const ls__multi_slot *s = &m->slots[m->closed % m->depth];
    if (m->closed == m->taken || !ls__batch_done(&s->first_out) || !ls__batch_done(&s->second_out)) return;
    atomic_store_explicit(&ls__multi_arrival_of(m, w->number, m->local)->out, ++m->closed, memory_order_release);
    *did = true;
}

/* ---- The whole. */

static const ls__pipeline_ops *ops_of(ls_collective_kind kind)
{
    switch (kind) {
    case LS_COLLECTIVE_ALLREDUCE:
    case LS_COLLECTIVE_REDUCE: return &ls__pipeline_reduce;
    case LS_COLLECTIVE_REDUCE_SCATTER: return &ls__pipeline_reduce_scatter;
    case LS_COLLECTIVE_ALLGATHER: return &ls__pipeline_allgather;
    case LS_COLLECTIVE_BROADCAST: return &ls__pipeline_broadcast;
    case LS_COLLECTIVE_GATHER:
    case LS_COLLECTIVE_SCATTER:
    case LS_COLLECTIVE_ALLTOALL: return &ls__pipeline_exchange;
    case LS_COLLECTIVE_BARRIER:
    case LS_COLLECTIVE_PARALLEL_FOR:
    case LS_COLLECTIVE_SEND:
    case LS_COLLECTIVE_RECEIVE: break;
    }
    return NULL;
}

/* How much of a block goes into a round. All ranks compute the same. */
static void plan_rounds(const ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    bool sliced =
        w->kind == LS_COLLECTIVE_ALLREDUCE || w->kind == LS_COLLECTIVE_REDUCE || w->kind == LS_COLLECTIVE_BROADCAST;
    size_t block = w->count * ls_dtype_size(w->type);
    size_t most = sliced ? m->round_bytes : m->round_bytes / (size_t)g->size;
    size_t bytes = block / ROUNDS_AT_LEAST;
    size_t least_bytes = (size_t)MESSAGE_AT_LEAST * (size_t)(sliced ? m->slices * m->nodes : 1);
    if (bytes < least_bytes) bytes = least_bytes;
    if (bytes > most) bytes = most;
    w->round_bytes = bytes / 64 * 64;
    w->rounds = (uint32_t)((block + w->round_bytes - 1) / w->round_bytes);
    m->opened = m->filled = m->combined = m->received = m->taken = m->closed = 0;
}

ls_status ls__multi_pipeline(ls_group *g, ls_work *w)
{
    ls__multi *m = ls__multi_of(g);
    const ls__pipeline_ops *f = ops_of(w->kind);
    if (!w->rounds) plan_rounds(g, w);
    bool did, news = false;
    do {
        did = stage(g, w);
        ls_status status = open_round(g, w, f, &did);
        if (!status) status = fill_round(g, w, f, &did);
        if (!status) status = combine_round(g, w, f, &did);
        if (status) return status;
        receive_round(g, w, &did);
        status = take_round(g, w, f, &did);
        if (status) return status;
        close_round(g, w, &did);
        news |= did;
        if (did) m->activity++;
    } while (did);
    if (news) ls__multi_ring(m);
    bool done = m->closed == w->rounds && (!f->lends || LEAST(m, w, out) == w->rounds);
    return done ? LS_OK : LS_PENDING;
}
