/* The public collectives: each checks its arguments, fills a work and passes it to the group's transport. Blocking calls are start and
 * wait, with the work on the stack. */
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/traits.h"
#include "kern/reduce.h"
#include "record/record.h"

/* ---- Arguments. */

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + b_bytes && y < x + a_bytes;
}

/* The error of a collective that cannot be started. */
static ls_status invalid(const ls_work *w, const char *why)
{
    char what[160];
    ls__describe(ls__work_fingerprint(w), w->group->next_number, w->count, what, sizeof what);
    return ls__fail(LS_EINVAL, "rank %d: %s: %s", w->group->world->rank, what, why);
}

/* Input and output may share memory only as lockstep/comm.h allows: all of it, or this rank's block of the larger one. */
static bool is_in_place(const ls_work *w)
{
    const ls__traits *t = &ls__traits_of[w->kind];
    uintptr_t send = (uintptr_t)w->send, recv = (uintptr_t)w->recv, own = (uintptr_t)w->group->rank * w->block_bytes;
    if (t->send_blocks && t->recv_blocks) return false;
    return t->send_blocks ? recv == send + own : t->recv_blocks ? send == recv + own : send == recv;
}

static ls_status check_buffers(const ls_work *w, size_t size, size_t all)
{
    const ls__traits *t = &ls__traits_of[w->kind];
    int rank = w->group->rank;
    size_t block = w->block_bytes, sent = !ls__work_sends(w, rank) ? 0 : t->send_blocks ? all : block;
    size_t received = !ls__work_receives(w, rank) ? 0 : t->recv_blocks ? all : block;
    if (sent && !w->send) return invalid(w, "the input buffer is NULL");
    if (received && !w->recv) return invalid(w, "the output buffer is NULL");
    if ((sent && (uintptr_t)w->send % size) || (received && (uintptr_t)w->recv % size))
        return invalid(w, "a buffer is not aligned to its element type");
    if (sent && received && !is_in_place(w) && overlap(w->send, sent, w->recv, received))
        return invalid(w, "input and output overlap");
    return LS_OK;
}

/* Also sets w->block_bytes. */
static ls_status check(ls_work *w)
{
    const ls_group *g = w->group;
    size_t size = ls_dtype_size(w->type), all;
    if (!size) return invalid(w, "unknown element type");
    if ((unsigned)w->op >= LS_OP_COUNT) return invalid(w, "unknown reduction");
    if (w->op >= LS_AND && ls__is_floating(w->type))
        return invalid(w, "bitwise reductions are for integers and bool; use sum, mean, min, max or product");
    if (__builtin_mul_overflow(w->count, size, &w->block_bytes) ||
        __builtin_mul_overflow(w->block_bytes, (size_t)g->size, &all) || all > (size_t)PTRDIFF_MAX)
        return invalid(w, "the size overflows");
    if (ls__is_rooted(w->kind) && (w->root < 0 || w->root >= g->size)) {
        char why[96];
        snprintf(why, sizeof why, "unknown rank %d; the group has ranks 0 to %d", w->root, g->size - 1);
        return invalid(w, why);
    }
    if (ls__is_p2p(w->kind) && w->root == g->rank) return invalid(w, "a rank cannot send to itself");
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR) {
        if (w->root < 1) return invalid(w, "a chunk must have at least one element");
        if (!ls__group_on_one_node(g))
            return ls__fail(LS_EUNSUPPORTED, "parallel_for: the group's ranks are on several nodes; split it by node");
    }
    return check_buffers(w, size, all);
}

/* A group of one rank has nothing to reduce, and still gives what more ranks would: true is 1. */
static void settle_bool(ls_work *w)
{
    const uint8_t *in = w->send;
    uint8_t *out = w->recv;
    for (size_t i = 0; i < w->count; i++) out[i] = in[i] != 0;
    w->send = out;
}

static bool reduces(ls_collective_kind kind)
{
    return kind == LS_COLLECTIVE_ALLREDUCE || kind == LS_COLLECTIVE_REDUCE || kind == LS_COLLECTIVE_REDUCE_SCATTER;
}

/* ---- The life of a work. */

/* Numbers, publishes and queues a work that is filled in. */
static ls_status begin(ls_work *w)
{
    ls_group *g = w->group;
    if (g->broken) return ls__group_broken(g);
    ls_status status = check(w);
    if (status) return status;
    if (w->type == LS_BOOL && g->size == 1 && reduces(w->kind)) settle_bool(w);
    bool p2p = ls__is_p2p(w->kind);
    if (!p2p) w->number = g->next_number;
    status = g->transport->start(g, w);
    if (status) return status;
    if (!p2p) g->next_number++;
    ls__group_enqueue(w);
    return LS_OK;
}

static ls_status wait_until_done(ls_work *w)
{
    ls_group *g = w->group;
    for (;;) {
        ls__world_yield(g->world);
        if (w->done) return LS_OK; /* another thread made progress */
        ls_status status = ls__group_progress(g);
        if (w->done) return LS_OK;
        if (!status && ls__others_busy(g)) ls__others_progress(g);
        if (!status) status = g->transport->idle(g, w);
        if (w->done) return LS_OK;
        if (status) return status;
    }
}

static ls_status finish(ls_work *w)
{
    if (w->done) return LS_OK;
    /* A blocking call has just read the clock, which takes a good part of the time of a small collective. */
    int64_t begin = w->on_stack && w->started ? w->started : ls_now();
    const ls_world *world = w->group->world;
    if (pthread_equal(world->opener, pthread_self())) begin = ls__record_sample(world->record, begin);
    ls_status status = wait_until_done(w);
    if (!ls__is_p2p(w->kind)) ls__event_blocked(w, begin);
    return status;
}

static ls_status without_group(const ls_work *w)
{
    return ls__fail(LS_EINVAL, "%s: the group is NULL", ls_collective_name(w->kind));
}

static ls_status run(ls_work *w)
{
    if (!w->group) return without_group(w);
    ls_world *world = w->group->world;
    w->on_stack = true;
    ls__world_enter(world);
    ls_status status = begin(w);
    if (!status) status = finish(w);
    ls__world_leave(world);
    return status;
}

/* Gives a work back to its group. */
static void recycle(ls_work *w)
{
    w->next = w->group->free_works;
    w->group->free_works = w;
}

static ls_status start_locked(const ls_work *filled, ls_work **out)
{
    ls_group *g = filled->group;
    ls_work *w = g->free_works, *made_before;
    if (w) {
        g->free_works = w->next;
        made_before = w->made_before;
    } else {
        w = malloc(sizeof *w);
        if (!w) return ls__fail(LS_ENOMEM, "rank %d: no memory for a work", g->rank);
        made_before = g->made;
        g->made = w;
    }
    *w = *filled;
    w->made_before = made_before;
    ls_status status = begin(w);
    if (status)
        recycle(w);
    else
        *out = w;
    return status;
}

static ls_status start(const ls_work *filled, ls_work **out)
{
    if (!out)
        return ls__fail(LS_EINVAL, "%s: there is no place for the work that it starts; out is NULL",
                        ls_collective_name(filled->kind));
    *out = NULL;
    if (!filled->group) return without_group(filled);
    ls_world *world = filled->group->world;
    ls__world_enter(world);
    ls_status status = start_locked(filled, out);
    ls__world_leave(world);
    return status;
}

ls_status ls_work_wait(ls_work **work)
{
    ls_work *w = work ? *work : NULL;
    if (!w) return ls__fail(LS_EINVAL, "wait: the work is NULL");
    ls_world *world = w->group->world;
    ls__world_enter(world);
    ls_status status = finish(w);
    recycle(w);
    ls__world_leave(world);
    *work = NULL;
    return status;
}

ls_status ls_work_test(ls_work **work)
{
    ls_work *w = work ? *work : NULL;
    if (!w) return ls__fail(LS_EINVAL, "test: the work is NULL");
    ls_world *world = w->group->world;
    ls__world_enter(world);
    ls_status status = w->done ? LS_OK : ls__world_progress(w->group);
    if (status == LS_OK && !w->done) {
        status = ls__group_check_failed_in(w->group, w);
        if (status == LS_OK && !w->done) status = w->group->transport->check_peers(w->group, w);
        if (status == LS_OK && !w->done) status = LS_PENDING;
    }
    if (w->done) status = LS_OK;
    if (status != LS_PENDING) {
        recycle(w);
        *work = NULL;
    }
    ls__world_leave(world);
    return status;
}

/* ---- The collectives, as works. */

/* Returns w. Field by field: a compound literal would be cleared with a string instruction and copied, which takes a good part of the time
 * of a small collective. */
static ls_work *fill(ls_work *w, ls_group *g, ls_collective_kind kind, const void *send, void *recv, size_t count,
                     ls_dtype type, ls_op op, int root)
{
    w->group = g;
    w->next = w->prev = w->made_before = NULL;
    w->kind = kind;
    w->type = type;
    w->op = op;
    w->caller = g ? (ls__caller)atomic_load_explicit(&g->caller, memory_order_relaxed) : LS__CALLER_USER;
    w->root = root;
    w->count = count;
    w->block_bytes = 0;
    w->send = send;
    w->recv = recv;
    w->chunk_fn = NULL;
    w->user = NULL;
    w->parts = NULL;
    w->number = 0;
    w->on_stack = w->done = w->arrived = false;
    w->last_rank = 0;
    w->last_arrival = w->started = w->ended = 0;
    w->wait = (ls__wait){ 0 };
    memset(&w->state, 0, sizeof w->state);
    return w;
}

ls_status ls_allreduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_ALLREDUCE, buf, buf, count, type, op, -1));
}
ls_status ls_allreduce_start(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_ALLREDUCE, buf, buf, count, type, op, -1), out);
}

ls_status ls_reduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_REDUCE, buf, buf, count, type, op, root));
}
ls_status ls_reduce_start(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_REDUCE, buf, buf, count, type, op, root), out);
}

ls_status ls_reduce_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_op op)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_REDUCE_SCATTER, send, recv, count, type, op, -1));
}
ls_status ls_reduce_scatter_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_op op,
                                  ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_REDUCE_SCATTER, send, recv, count, type, op, -1), out);
}

ls_status ls_allgather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_ALLGATHER, send, recv, count, type, LS_SUM, -1));
}
ls_status ls_allgather_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_ALLGATHER, send, recv, count, type, LS_SUM, -1), out);
}

ls_status ls_broadcast(ls_group *g, void *buf, size_t count, ls_dtype type, int root)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_BROADCAST, buf, buf, count, type, LS_SUM, root));
}
ls_status ls_broadcast_start(ls_group *g, void *buf, size_t count, ls_dtype type, int root, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_BROADCAST, buf, buf, count, type, LS_SUM, root), out);
}

ls_status ls_gather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_GATHER, send, recv, count, type, LS_SUM, root));
}
ls_status ls_gather_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root,
                          ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_GATHER, send, recv, count, type, LS_SUM, root), out);
}

ls_status ls_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_SCATTER, send, recv, count, type, LS_SUM, root));
}
ls_status ls_scatter_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root,
                           ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_SCATTER, send, recv, count, type, LS_SUM, root), out);
}

ls_status ls_alltoall(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_ALLTOALL, send, recv, count, type, LS_SUM, -1));
}
ls_status ls_alltoall_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_ALLTOALL, send, recv, count, type, LS_SUM, -1), out);
}

ls_status ls_barrier(ls_group *g)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_BARRIER, NULL, NULL, 0, LS_U8, LS_SUM, -1));
}
ls_status ls_barrier_start(ls_group *g, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_BARRIER, NULL, NULL, 0, LS_U8, LS_SUM, -1), out);
}

static ls_work *fill_parallel_for(ls_work *w, ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk,
                                  ls__chunk_fn fn, void *user)
{
    fill(w, g, LS_COLLECTIVE_PARALLEL_FOR, data, NULL, count, type, LS_SUM, -1);
    w->chunk_fn = fn;
    w->user = user;
    w->root = chunk > INT32_MAX ? INT32_MAX : (int)chunk;
    return w;
}
ls_status ls__parallel_for(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk, ls__chunk_fn fn,
                           void *user)
{
    ls_work w;
    return run(fill_parallel_for(&w, g, data, count, type, chunk, fn, user));
}
ls_status ls__parallel_for_start(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk,
                                 ls__chunk_fn fn, void *user, ls_work **out)
{
    ls_work w;
    return start(fill_parallel_for(&w, g, data, count, type, chunk, fn, user), out);
}

ls_status ls__slot_parts_reduce_start(ls_group *g, float *buf, size_t count, ls__slot_parts *parts, int root,
                                      ls_work **out)
{
    ls_work w;
    fill(&w, g, root < 0 ? LS_COLLECTIVE_ALLREDUCE : LS_COLLECTIVE_REDUCE, buf, buf, count, LS_F32, LS_SUM, root);
    w.parts = parts;
    return start(&w, out);
}

ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype type, int to)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_SEND, buf, NULL, count, type, LS_SUM, to));
}
ls_status ls_send_start(ls_group *g, const void *buf, size_t count, ls_dtype type, int to, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_SEND, buf, NULL, count, type, LS_SUM, to), out);
}

ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype type, int from)
{
    ls_work w;
    return run(fill(&w, g, LS_COLLECTIVE_RECEIVE, NULL, buf, count, type, LS_SUM, from));
}
ls_status ls_recv_start(ls_group *g, void *buf, size_t count, ls_dtype type, int from, ls_work **out)
{
    ls_work w;
    return start(fill(&w, g, LS_COLLECTIVE_RECEIVE, NULL, buf, count, type, LS_SUM, from), out);
}
