/* The life of a collective in shared memory: arriving, comparing fingerprints, finishing. See shm.h. */
#include "comm/shm.h"

#include <string.h>
#include "base/status.h"
#include "comm/eager.h"
#include "comm/heap.h"
#include "comm/traits.h"
#include "comm/wait.h"

/* For inputs that are too large for eager messages. */
static const ls__shm_algorithm *algorithm_of(const ls_work *w)
{
    const ls__traits *t = &ls__traits_of[w->kind];
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR) return &ls__shm_parallel_for;
    if (t->reduces && !t->send_blocks) return &ls__shm_reduce;
    return &ls__shm_move;
}

static bool is_eager(const ls_work *w)
{
    return ls__work_is_eager(w, w->kind == LS_COLLECTIVE_ALLREDUCE ? LS__SHM_EAGER_SUM_BYTES : LS__SHM_EAGER_BYTES);
}

/* ---- Arriving. */

/* Whether every member has finished the collective that used this one's slot before. */
static bool slot_is_free(const ls_group *g, const ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    if (w->number < LS__SHM_SLOTS || s->all_finished > w->number - LS__SHM_SLOTS) return true;
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < g->size; r++) {
        uint64_t finished = atomic_load_explicit(&g->members[r].finished, memory_order_acquire);
        if (finished < least) least = finished;
    }
    s->all_finished = least;
    return least > w->number - LS__SHM_SLOTS;
}

/* Has others wake this rank when they finish a collective, or no longer. */
static void await_slots(ls__shm *s, bool waits)
{
    if (waits == s->awaits_slot) return;
    s->awaits_slot = waits;
    if (waits)
        atomic_fetch_add(&s->control->slot_waiters, 1);
    else
        atomic_fetch_sub(&s->control->slot_waiters, 1);
}

static bool all_arrived(const ls_group *g, uint64_t number)
{
    for (int r = 0; r < g->size; r++)
        if (atomic_load_explicit(&ls__shm_arrival_of(g, number, r)->number, memory_order_relaxed) != number + 1)
            return false;
    return true;
}

/* Publishes a work whose slot is free. */
static void publish(ls_group *g, ls_work *w)
{
    size_t bytes = ls__work_send_bytes(w, g->rank);
    ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, g->rank);
    if (g->rank == 0) { /* no rank reads the slot before all have arrived, so the first member resets it */
        ls__shm_slot *slot = ls__shm_slot_of(g, w->number);
        atomic_store_explicit(&slot->claimed, 0, memory_order_relaxed);
        for (int i = 0; i < LS__SHM_ROUNDS; i++) atomic_store_explicit(&slot->done[i], 0, memory_order_relaxed);
    }
    arrival->at = 0;
    if (is_eager(w)) {
        if (bytes) memcpy(ls__shm_eager_of(g, w->number, g->rank, bytes), w->send, bytes);
    } else if (bytes) {
        arrival->at = ls__work_offset(w, bytes);
        if (!arrival->at) arrival->at = LS__SHM_STAGED;
        ls__shm_work_of(w)->staged = arrival->at == LS__SHM_STAGED;
    }
    atomic_store_explicit(&arrival->in, 0, memory_order_relaxed);
    atomic_store_explicit(&arrival->out, 0, memory_order_relaxed);
    if (LS__CHECKED && !w->started) w->started = ls_now();
    /* Not if an older work is under way: that may still need the staging. */
    bool oldest = !g->collectives.first || g->collectives.first == w;
    if (ls__shm_work_of(w)->staged && oldest && algorithm_of(w) == &ls__shm_reduce) ls__shm_reduce_prepare(g, w);
    arrival->fingerprint = ls__work_fingerprint(w);
    arrival->count = w->count;
    arrival->time = w->started;
    ls__shm_work_of(w)->published = true;
    atomic_store_explicit(&arrival->number, w->number + 1, memory_order_release);
    /* Of ranks that arrive at once, one must see all: the others may sleep. */
    atomic_thread_fence(memory_order_seq_cst);
    if (all_arrived(g, w->number)) ls__group_wake_sleepers(g);
}

/* A work without a free slot waits for one in the queue, not here: other ranks may need what this one calls next. */
static ls_status start(ls_group *g, ls_work *w)
{
    ls_status status = ls__group_check_failed(g);
    if (status) return status;
    if (ls__is_p2p(w->kind)) return ls__shm_p2p_start(g, w);
    size_t bytes = ls__work_send_bytes(w, g->rank);
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR && bytes && !ls__heap_offset(g->world->job, w->send, bytes))
        return ls__fail(LS_EINVAL, "parallel_for: the buffer must be memory from ls_world_alloc()");
    if (w->parts && bytes && !ls__heap_offset(g->world->job, w->send, bytes))
        return ls__fail(LS_EINVAL, "a sum of parts: the buffer must be memory from ls_world_alloc()");
    if (!ls__shm_of(g)->awaits_slot && slot_is_free(g, w)) {
        publish(g, w);
    } else {
        await_slots(ls__shm_of(g), true);
        if (LS__CHECKED) w->started = ls_now();
    }
    ls__event_start(w, bytes);
    return LS_OK;
}

/* LS_OK once the work is published. */
static ls_status publish_queued(ls_group *g, ls_work *w)
{
    if (!slot_is_free(g, w)) return LS_PENDING;
    if (!w->next) await_slots(ls__shm_of(g), false);
    publish(g, w);
    return LS_OK;
}

static ls_status mismatch(ls_group *g, const ls_work *w, int other)
{
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, other);
    char mine[160], theirs[160], group[LS__GROUP_TEXT];
    ls__describe_group(g, group);
    ls__describe_work(w, mine, sizeof mine);
    ls__describe(arrival->fingerprint, w->number, arrival->count, theirs, sizeof theirs);
    return ls__group_fail(g, LS_EMISMATCH,
                          "rank %d runs %s, but rank %d runs %s%s; both must make the same calls in the same order",
                          g->world->rank, mine, g->members[other].world_rank, theirs, group);
}

static bool is_mismatch(const ls_work *w, const ls__shm_arrival *arrival)
{
    return arrival->fingerprint != ls__work_fingerprint(w) || arrival->count != w->count;
}

/* Checks arrivals that were not seen yet; LS_OK when all ranks have arrived and agree. */
static ls_status gather_arrivals(ls_group *g, ls_work *w)
{
    ls__shm_work *t = ls__shm_work_of(w);
    for (; t->seen < g->size; t->seen++) {
        const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, t->seen);
        if (atomic_load_explicit(&arrival->number, memory_order_acquire) != w->number + 1) return LS_PENDING;
        if (arrival->at == LS__SHM_STAGED) t->any_staged = true;
        if (!LS__CHECKED) continue;
        if (is_mismatch(w, arrival)) return mismatch(g, w, t->seen);
        if (arrival->time >= w->last_arrival) {
            w->last_arrival = arrival->time;
            w->last_rank = g->members[t->seen].world_rank;
        }
    }
    w->arrived = true;
    return LS_OK;
}

/* Ranks before the first one that is missing were checked. One after it may already show a mismatch. */
static ls_status check_ahead(ls_group *g, ls_work *w)
{
    for (int r = ls__shm_work_of(w)->seen + 1; LS__CHECKED && r < g->size; r++) {
        const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, r);
        if (atomic_load_explicit(&arrival->number, memory_order_acquire) == w->number + 1 && is_mismatch(w, arrival))
            return mismatch(g, w, r);
    }
    return LS_PENDING;
}

/* ---- Finishing. */

static void finish_eager(ls_group *g, const ls_work *w)
{
    const void **in = ls__shm_of(g)->in;
    size_t bytes = w->block_bytes * (size_t)ls__work_blocks(w); /* of each rank that sends */
    for (int r = 0; r < g->size; r++) in[r] = ls__shm_eager_of(g, w->number, r, bytes);
    ls__eager_finish(g, w, in);
}

bool ls__shm_claim_staging(ls_group *g, const ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    if (!s->staging_user) s->staging_user = w;
    return s->staging_user == w;
}

/* The next collective writes to these lines, which other ranks have read since: requests them early. */
static void request_lines(const ls_group *g, uint64_t number)
{
    char *arrival = (char *)ls__shm_arrival_of(g, number, g->rank);
    __builtin_prefetch(arrival, 1);
    __builtin_prefetch(arrival + 64, 1);
    __builtin_prefetch(ls__shm_eager_of(g, number, g->rank, LS__SHM_EAGER_BYTES), 1);
}

/* Publishes that this rank has finished everything before its oldest work under way. */
static void finish(ls_group *g, ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    ls__member *me = &g->members[g->rank];
    if (s->staging_user == w) s->staging_user = NULL;
    request_lines(g, w->number + 2);
    const ls_work *oldest = g->collectives.first == w ? w->next : g->collectives.first;
    uint64_t finished = oldest ? oldest->number : w->number + 1;
    atomic_store_explicit(&me->last_number, w->number + 1, memory_order_relaxed);
    atomic_store_explicit(&me->last_fingerprint, ls__work_fingerprint(w), memory_order_relaxed);
    atomic_store_explicit(&me->last_count, w->count, memory_order_relaxed);
    atomic_store_explicit(&me->finished, finished, memory_order_release);
    if (atomic_load_explicit(&s->control->slot_waiters, memory_order_relaxed)) ls__group_wake(g);
    ls__event_done(w);
}

static ls_status progress(ls_group *g, ls_work *w)
{
    if (ls__is_p2p(w->kind)) return ls__shm_p2p_progress(g, w);
    ls_status status = ls__shm_work_of(w)->published ? LS_OK : publish_queued(g, w);
    if (status) return status;
    if (!w->arrived) status = gather_arrivals(g, w);
    if (status == LS_PENDING) return check_ahead(g, w);
    if (status) return status;
    if (is_eager(w))
        finish_eager(g, w);
    else
        status = algorithm_of(w)->progress(g, w);
    if (status == LS_OK) finish(g, w);
    return status;
}

bool ls__shm_needs(const ls_group *g, const ls_work *w, int rank)
{
    /* Until all have arrived, only arrivals are missing; eager collectives are complete then. */
    if (rank == g->rank || ls__is_p2p(w->kind) || !w->arrived || !ls__shm_work_of(w)->rounds) return false;
    const ls__shm_algorithm *a = algorithm_of(w);
    return a->needs && a->needs(g, w, rank);
}

static void abort_group(ls_group *g, ls_status status, const char *text, bool wait)
{
    (void)wait;
    ls__group_set_failure(g, status, text);
}

const ls__transport ls__shm_transport = {
    .name = "shm",
    .serves = ls__shm_serves,
    .join = ls__shm_join,
    .make = ls__shm_make,
    .enter = ls__shm_enter,
    .start = start,
    .progress = progress,
    .idle = ls__shm_idle,
    .check_failed = ls__group_check_failed,
    .check_peers = ls__shm_check_peers,
    .abort = abort_group,
    .release = ls__shm_release,
};
