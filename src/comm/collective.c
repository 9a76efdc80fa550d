/* The public calls: each checks its arguments, fills a work and hands it to the group's transport. Blocking calls are
 * start and wait with the work on the stack. */
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "record/record.h"

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + b_bytes && y < x + a_bytes;
}

/* "allreduce #12 (...)": the call that is being refused. */
static ls_status refuse(const ls_work *w, const char *why)
{
    char what[160];
    ls__describe(ls__work_fingerprint(w), w->group->next_number, w->count, what, sizeof what);
    return ls__fail(LS_EINVAL, "rank %d: %s: %s", w->group->world->identity.rank, what, why);
}

/* Input and output may meet only where the header says so; that is what `in_place` tells. */
static ls_status check_buffers(const ls_work *w, size_t send_bytes, size_t recv_bytes, bool in_place)
{
    if (send_bytes && !w->send) return refuse(w, "the input buffer is NULL");
    if (recv_bytes && !w->recv) return refuse(w, "the output buffer is NULL");
    size_t size = ls_dtype_size(w->type);
    if ((send_bytes && (uintptr_t)w->send % size) || (recv_bytes && (uintptr_t)w->recv % size))
        return refuse(w, "a buffer is not aligned to its element type");
    if (send_bytes && recv_bytes && !in_place && overlap(w->send, send_bytes, w->recv, recv_bytes))
        return refuse(w, "input and output overlap");
    return LS_OK;
}

static ls_status check(const ls_work *w)
{
    const ls_group *g = w->group;
    size_t size = ls_dtype_size(w->type), block, all;
    if (!size) return refuse(w, "that is no element type");
    if ((unsigned)w->op >= LS_OP_COUNT) return refuse(w, "that is no reduction");
    if (__builtin_mul_overflow(w->count, size, &block) || __builtin_mul_overflow(block, (size_t)g->size, &all) ||
        all > (size_t)PTRDIFF_MAX)
        return refuse(w, "the size overflows");
    bool rooted = w->kind == LS_COLLECTIVE_REDUCE || w->kind == LS_COLLECTIVE_BROADCAST ||
                  w->kind == LS_COLLECTIVE_GATHER || w->kind == LS_COLLECTIVE_SCATTER;
    if ((rooted || ls__is_p2p(w->kind)) && (w->root < 0 || w->root >= g->size)) {
        char why[96];
        snprintf(why, sizeof why, "there is no rank %d; the group has %d", w->root, g->size);
        return refuse(w, why);
    }
    if (ls__is_p2p(w->kind) && w->root == g->rank) return refuse(w, "a rank cannot send to itself");
    uintptr_t send = (uintptr_t)w->send, recv = (uintptr_t)w->recv; /* as numbers: a null pointer has no neighbours */
    bool is_root = g->rank == w->root;
    size_t own = (size_t)g->rank * block;
    switch (w->kind) {
    case LS_COLLECTIVE_ALLREDUCE:
    case LS_COLLECTIVE_REDUCE:
    case LS_COLLECTIVE_BROADCAST: return check_buffers(w, block, block, true);
    case LS_COLLECTIVE_REDUCE_SCATTER: return check_buffers(w, all, block, recv == send + own);
    case LS_COLLECTIVE_ALLGATHER: return check_buffers(w, block, all, send == recv + own);
    case LS_COLLECTIVE_GATHER: return check_buffers(w, block, is_root ? all : 0, send == recv + own);
    case LS_COLLECTIVE_SCATTER: return check_buffers(w, is_root ? all : 0, block, recv == send + own);
    case LS_COLLECTIVE_ALLTOALL: return check_buffers(w, all, all, false);
    case LS_COLLECTIVE_SEND: return check_buffers(w, block, 0, true);
    case LS_COLLECTIVE_RECEIVE: return check_buffers(w, 0, block, true);
    case LS_COLLECTIVE_PARALLEL_FOR: return w->root > 0 ? LS_OK : refuse(w, "a chunk must have at least one element");
    case LS_COLLECTIVE_BARRIER: break;
    }
    return LS_OK;
}

/* Numbers, announces and queues a work that is filled in. */
static ls_status begin(ls_work *w)
{
    ls_group *g = w->group;
    if (g->broken) return ls__fail(g->broken, "%s", g->broken_text);
    ls_status status = check(w);
    if (status) return status;
    bool pair = ls__is_p2p(w->kind);
    if (!pair) w->number = g->next_number;
    status = g->transport->start(g, w);
    if (status) return status;
    if (!pair) g->next_number++;
    ls__group_enqueue(w);
    return LS_OK;
}

static ls_status finish_now(ls_work *w)
{
    ls_group *g = w->group;
    for (;;) {
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
    /* A blocking call has just come here. The clock is a good part of a small collective's time. */
    int64_t begin = ls__record_sample(w->group->world->record, w->on_stack && w->started ? w->started : ls_now());
    ls_status status = finish_now(w);
    if (!ls__is_p2p(w->kind)) ls__event_blocked(w, begin);
    return status;
}

static ls_status call_now(ls_work w)
{
    w.on_stack = true;
    ls_status status = begin(&w);
    return status ? status : finish(&w);
}

/* Gives a work back to its group. */
static void recycle(ls_work *w)
{
    w->next = w->group->free_works;
    w->group->free_works = w;
}

static ls_status call_start(ls_work filled, ls_work **out)
{
    ls_group *g = filled.group;
    *out = NULL;
    ls_work *w = g->free_works;
    if (w) {
        g->free_works = w->next;
        filled.made_before = w->made_before;
    } else {
        w = malloc(sizeof *w);
        if (!w) return ls__fail(LS_ENOMEM, "rank %d: no memory for a work", g->rank);
        filled.made_before = g->made;
        g->made = w;
    }
    *w = filled;
    ls_status status = begin(w);
    if (status)
        recycle(w);
    else
        *out = w;
    return status;
}

ls_status ls_work_wait(ls_work **work)
{
    ls_work *w = *work;
    if (!w) return ls__fail(LS_EINVAL, "wait: there is no work");
    ls_status status = finish(w);
    recycle(w);
    *work = NULL;
    return status;
}

ls_status ls_work_test(ls_work **work)
{
    ls_work *w = *work;
    if (!w) return ls__fail(LS_EINVAL, "test: there is no work");
    ls_status status = w->done ? LS_OK : ls__world_progress(w->group);
    if (status == LS_OK && !w->done) {
        status = w->group->transport->look(w->group);
        if (status == LS_OK) status = w->group->transport->watch(w->group, w);
        if (status == LS_OK && !w->done) return LS_PENDING;
    }
    if (w->done) status = LS_OK;
    recycle(w);
    *work = NULL;
    return status;
}

/* ---- One line per call: what it is, as a work. */

#define WORK(g_, kind_, ...) ((ls_work){ .group = (g_), .kind = (kind_), .root = -1, __VA_ARGS__ })

static ls_work allreduce_work(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op)
{
    return WORK(g, LS_COLLECTIVE_ALLREDUCE, .send = buf, .recv = buf, .count = count, .type = type, .op = op);
}
static ls_work reduce_work(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int to)
{
    ls_work w = WORK(g, LS_COLLECTIVE_REDUCE, .send = buf, .recv = buf, .count = count, .type = type, .op = op);
    w.root = to;
    return w;
}
static ls_work reduce_scatter_work(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_op op)
{
    return WORK(g, LS_COLLECTIVE_REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .op = op);
}
static ls_work move_work(ls_group *g, ls_collective_kind kind, const void *send, void *recv, size_t count,
                         ls_dtype type, int root)
{
    ls_work w = WORK(g, kind, .send = send, .recv = recv, .count = count, .type = type);
    w.root = root;
    return w;
}

ls_status ls_allreduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op)
{
    return call_now(allreduce_work(g, buf, count, type, op));
}
ls_status ls_allreduce_start(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, ls_work **out)
{
    return call_start(allreduce_work(g, buf, count, type, op), out);
}

ls_status ls_reduce(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root)
{
    return call_now(reduce_work(g, buf, count, type, op, root));
}
ls_status ls_reduce_start(ls_group *g, void *buf, size_t count, ls_dtype type, ls_op op, int root, ls_work **out)
{
    return call_start(reduce_work(g, buf, count, type, op, root), out);
}

ls_status ls_reduce_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_op op)
{
    return call_now(reduce_scatter_work(g, send, recv, count, type, op));
}
ls_status ls_reduce_scatter_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_op op,
                                  ls_work **out)
{
    return call_start(reduce_scatter_work(g, send, recv, count, type, op), out);
}

ls_status ls_allgather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type)
{
    return call_now(move_work(g, LS_COLLECTIVE_ALLGATHER, send, recv, count, type, -1));
}
ls_status ls_allgather_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_ALLGATHER, send, recv, count, type, -1), out);
}

ls_status ls_broadcast(ls_group *g, void *buf, size_t count, ls_dtype type, int root)
{
    return call_now(move_work(g, LS_COLLECTIVE_BROADCAST, buf, buf, count, type, root));
}
ls_status ls_broadcast_start(ls_group *g, void *buf, size_t count, ls_dtype type, int root, ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_BROADCAST, buf, buf, count, type, root), out);
}

ls_status ls_gather(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root)
{
    return call_now(move_work(g, LS_COLLECTIVE_GATHER, send, recv, count, type, root));
}
ls_status ls_gather_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root,
                          ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_GATHER, send, recv, count, type, root), out);
}

ls_status ls_scatter(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root)
{
    return call_now(move_work(g, LS_COLLECTIVE_SCATTER, send, recv, count, type, root));
}
ls_status ls_scatter_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, int root,
                           ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_SCATTER, send, recv, count, type, root), out);
}

ls_status ls_alltoall(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type)
{
    return call_now(move_work(g, LS_COLLECTIVE_ALLTOALL, send, recv, count, type, -1));
}
ls_status ls_alltoall_start(ls_group *g, const void *send, void *recv, size_t count, ls_dtype type, ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_ALLTOALL, send, recv, count, type, -1), out);
}

ls_status ls_barrier(ls_group *g)
{
    return call_now(move_work(g, LS_COLLECTIVE_BARRIER, NULL, NULL, 0, LS_U8, -1));
}
ls_status ls_barrier_start(ls_group *g, ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_BARRIER, NULL, NULL, 0, LS_U8, -1), out);
}

static ls_work apply_work(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk, ls__chunk_fn fn,
                          void *user)
{
    ls_work w =
        WORK(g, LS_COLLECTIVE_PARALLEL_FOR, .send = data, .count = count, .type = type, .chunk_fn = fn, .user = user);
    w.root = chunk > INT32_MAX ? INT32_MAX : (int)chunk;
    return w;
}
ls_status ls__parallel_for(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk, ls__chunk_fn fn,
                           void *user)
{
    return call_now(apply_work(g, data, count, type, chunk, fn, user));
}
ls_status ls__parallel_for_start(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk,
                                 ls__chunk_fn fn, void *user, ls_work **out)
{
    return call_start(apply_work(g, data, count, type, chunk, fn, user), out);
}

ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype type, int to)
{
    return call_now(move_work(g, LS_COLLECTIVE_SEND, buf, NULL, count, type, to));
}
ls_status ls_send_start(ls_group *g, const void *buf, size_t count, ls_dtype type, int to, ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_SEND, buf, NULL, count, type, to), out);
}

ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype type, int from)
{
    return call_now(move_work(g, LS_COLLECTIVE_RECEIVE, NULL, buf, count, type, from));
}
ls_status ls_recv_start(ls_group *g, void *buf, size_t count, ls_dtype type, int from, ls_work **out)
{
    return call_start(move_work(g, LS_COLLECTIVE_RECEIVE, NULL, buf, count, type, from), out);
}
