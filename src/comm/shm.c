/* The shared-memory transport: arriving, comparing fingerprints, finishing, and making groups. See shm.h. */
#include "comm/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/futex.h"
#include "base/status.h"
#include "comm/heap.h"
#include "comm/eager.h"
#include "kern/copy.h"
#include "kern/reduce.h"

int ls__shm_send_blocks(const ls_work *w)
{
    bool cut = w->kind == LS_COLLECTIVE_REDUCE_SCATTER || w->kind == LS_COLLECTIVE_SCATTER ||
               w->kind == LS_COLLECTIVE_ALLTOALL;
    return cut ? w->group->size : 1;
}

size_t ls__shm_send_bytes(const ls_work *w, int rank)
{
    bool only_root = w->kind == LS_COLLECTIVE_BROADCAST || w->kind == LS_COLLECTIVE_SCATTER;
    if (w->kind == LS_COLLECTIVE_BARRIER || (only_root && rank != w->root) ||
        (w->kind == LS_COLLECTIVE_PARALLEL_FOR && !w->send))
        return 0;
    return w->count * ls_dtype_size(w->type) * (size_t)ls__shm_send_blocks(w);
}

/* Whether the call goes by mail. Depends only on what the fingerprint holds, so all ranks decide alike. */
static bool is_eager(const ls_work *w)
{
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR) return false;
    return w->count * ls_dtype_size(w->type) * (size_t)ls__shm_send_blocks(w) <= LS__SHM_EAGER_BYTES;
}

/* ---- Arriving. */

/* Waits until every member is through with the collective that used this one's slot before. */
static ls_status need_slot(ls_group *g, ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    if (w->number < LS__SHM_SLOTS || s->all_finished > w->number - LS__SHM_SLOTS) return LS_OK;
    ls_work waiting = *w;
    waiting.starting = true;
    bool slot_waiters = false;
    ls_status status = LS_OK;
    for (;;) {
        uint64_t least = UINT64_MAX;
        for (int r = 0; r < g->size; r++) {
            uint64_t finished = atomic_load_explicit(&s->members[r].finished, memory_order_acquire);
            if (finished < least) least = finished;
        }
        s->all_finished = least;
        if (least > w->number - LS__SHM_SLOTS) break;
        if (!slot_waiters) atomic_fetch_add(&s->control->slot_waiters, 1);
        slot_waiters = true;
        status = ls__world_progress(g); /* others may need this rank's part of what is under way */
        if (!status) status = ls__shm_idle(g, &waiting);
        if (status) break;
    }
    if (slot_waiters) atomic_fetch_sub(&s->control->slot_waiters, 1);
    return status;
}

static bool all_arrived(const ls_group *g, uint64_t number)
{
    for (int r = 0; r < g->size; r++)
        if (atomic_load_explicit(&ls__shm_arrival_of(g, number, r)->number, memory_order_relaxed) != number + 1)
            return false;
    return true;
}

static ls_status start(ls_group *g, ls_work *w)
{
    ls_status status = ls__shm_look(g);
    if (status) return status;
    if (ls__is_p2p(w->kind)) return ls__shm_p2p_start(g, w);
    size_t bytes = ls__shm_send_bytes(w, g->rank);
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR && bytes && !ls__heap_offset(g->world->job, w->send, bytes))
        return ls__fail(LS_EINVAL, "apply: the buffer must be memory from ls_world_alloc()");
    status = need_slot(g, w);
    if (status) return status;

    ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, g->rank);
    if (g->rank == 0) { /* nobody looks at the slot before all arrivals are there, so the first member resets it */
        ls__shm_slot *slot = ls__shm_slot_of(g, w->number);
        atomic_store_explicit(&slot->claimed, 0, memory_order_relaxed);
        for (int i = 0; i < LS__SHM_ROUNDS; i++) atomic_store_explicit(&slot->done[i], 0, memory_order_relaxed);
    }
    arrival->at = 0;
    if (is_eager(w)) {
        if (bytes) memcpy(ls__shm_eager_of(g, w->number, g->rank, bytes), w->send, bytes);
    } else if (bytes) {
        arrival->at = ls__heap_offset(g->world->job, w->send, bytes);
        if (!arrival->at) arrival->at = LS__SHM_STAGED;
        w->staged = arrival->at == LS__SHM_STAGED;
    }
    atomic_store_explicit(&arrival->in, 0, memory_order_relaxed);
    atomic_store_explicit(&arrival->out, 0, memory_order_relaxed);
    arrival->fingerprint = ls__work_fingerprint(w);
    arrival->count = w->count;
    if (LS__CHECKED) arrival->stamp = w->started = ls_now();
    atomic_store_explicit(&arrival->number, w->number + 1, memory_order_release);
    if (all_arrived(g, w->number)) ls__shm_ring(g);
    ls__event_start(w, bytes);
    return LS_OK;
}

static ls_status mismatch(ls_group *g, const ls_work *w, int other)
{
    const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, other);
    char mine[160], theirs[160];
    ls__describe(ls__work_fingerprint(w), w->number, w->count, mine, sizeof mine);
    ls__describe(arrival->fingerprint, w->number, arrival->count, theirs, sizeof theirs);
    return ls__shm_break(g, LS_EMISMATCH,
                         "rank %d runs %s, but rank %d runs %s; both must make the same calls in the same order",
                         g->world->identity.rank, mine, ls__shm_of(g)->members[other].world, theirs);
}

/* Looks for arrivals not seen yet; LS_OK when all are there and agree. */
static ls_status gather_arrivals(ls_group *g, ls_work *w)
{
    for (; w->seen < g->size; w->seen++) {
        const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, w->seen);
        if (atomic_load_explicit(&arrival->number, memory_order_acquire) != w->number + 1) return LS_PENDING;
        if (arrival->at == LS__SHM_STAGED) w->any_staged = true;
        if (!LS__CHECKED) continue;
        if (arrival->fingerprint != ls__work_fingerprint(w) || arrival->count != w->count)
            return mismatch(g, w, w->seen);
        if (arrival->stamp >= w->last_arrival) {
            w->last_arrival = arrival->stamp;
            w->last_rank = ls__shm_of(g)->members[w->seen].world;
        }
    }
    return LS_OK;
}

/* Ranks in front of the first one missing have been checked; one behind it may already tell of a mismatch. */
static ls_status check_ahead(ls_group *g, ls_work *w)
{
    for (int r = w->seen + 1; LS__CHECKED && r < g->size; r++) {
        const ls__shm_arrival *arrival = ls__shm_arrival_of(g, w->number, r);
        if (atomic_load_explicit(&arrival->number, memory_order_acquire) == w->number + 1 &&
            (arrival->fingerprint != ls__work_fingerprint(w) || arrival->count != w->count))
            return mismatch(g, w, r);
    }
    return LS_PENDING;
}

/* ---- Small messages: everyone has everyone's data and computes alone. */

static void small(ls_group *g, const ls_work *w)
{
    const void **in = ls__shm_of(g)->in;
    for (int r = 0; r < g->size; r++) in[r] = ls__shm_eager_of(g, w->number, r, ls__shm_send_bytes(w, r));
    ls__eager_finish(g, w, in);
    __builtin_prefetch(ls__shm_eager_of(g, w->number + 1, g->rank, ls__shm_send_bytes(w, g->rank)), 1);
}

/* ---- Finishing. */

bool ls__shm_claim_staging(ls_group *g, const ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    if (!s->staging_user) s->staging_user = w;
    return s->staging_user == w;
}

/* Tells the others how far this rank is: through with everything before its oldest unfinished work. */
static void finish(ls_group *g, ls_work *w)
{
    ls__shm *s = ls__shm_of(g);
    ls__shm_member *me = &s->members[g->rank];
    if (s->staging_user == w) s->staging_user = NULL;
    /* The next call writes here, where the others have looked since: ask for the line before it is needed. */
    __builtin_prefetch(ls__shm_arrival_of(g, w->number + 1, g->rank), 1);
    const ls_work *oldest = g->collectives.first == w ? w->next : g->collectives.first;
    uint64_t finished = oldest ? oldest->number : w->number + 1;
    atomic_store_explicit(&me->last_number, w->number + 1, memory_order_relaxed);
    atomic_store_explicit(&me->last_fingerprint, ls__work_fingerprint(w), memory_order_relaxed);
    atomic_store_explicit(&me->last_count, w->count, memory_order_relaxed);
    atomic_store_explicit(&me->finished, finished, memory_order_release);
    if (atomic_load_explicit(&s->control->slot_waiters, memory_order_relaxed)) ls__shm_ring(g);
    ls__event_done(w);
}

static ls_status progress(ls_group *g, ls_work *w)
{
    if (ls__is_p2p(w->kind)) return ls__shm_p2p_progress(g, w);
    ls_status status = w->seen < g->size ? gather_arrivals(g, w) : LS_OK;
    if (status == LS_PENDING) return check_ahead(g, w);
    if (status) return status;
    if (is_eager(w))
        small(g, w);
    else if (w->kind == LS_COLLECTIVE_ALLREDUCE || w->kind == LS_COLLECTIVE_REDUCE)
        status = ls__shm_reduce_progress(g, w);
    else if (w->kind == LS_COLLECTIVE_PARALLEL_FOR)
        status = ls__shm_parallel_for_progress(g, w);
    else
        status = ls__shm_move_progress(g, w);
    if (status == LS_OK) finish(g, w);
    return status;
}

bool ls__shm_lacks(const ls_group *g, const ls_work *w, int rank)
{
    /* Before all are there, what is missing is arrivals. Small messages are complete with them, and chunks of an apply are
     * done by whoever is there. */
    if (rank == g->rank || ls__is_p2p(w->kind) || w->seen < g->size || !w->rounds) return false;
    if (w->kind == LS_COLLECTIVE_ALLREDUCE || w->kind == LS_COLLECTIVE_REDUCE) return ls__shm_reduce_lacks(g, w, rank);
    return ls__shm_move_lacks(g, w, rank);
}

/* ---- Making and leaving groups. */

static uint64_t align(uint64_t x, uint64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Sizes and places for p members. */
static ls__shm_control plan(int p, size_t staging_bytes)
{
    uint64_t n = (uint64_t)p;
    ls__shm_control c = { .size = (uint32_t)p };
    c.round_bytes = align(staging_bytes / LS__SHM_ROUNDS, 4096);
    if (c.round_bytes < align(64 * n, 4096)) c.round_bytes = align(64 * n, 4096); /* a line per rank and round */
    c.channel_bytes = p <= 4 ? 1 << 16 : p <= 32 ? 1 << 14 : 1 << 12;
    c.members_at = align(sizeof c, 4096);
    c.slots_at = c.members_at + n * sizeof(ls__shm_member);
    c.arrivals_at = c.slots_at + LS__SHM_SLOTS * sizeof(ls__shm_slot);
    c.eager_at = align(c.arrivals_at + LS__SHM_SLOTS * n * sizeof(ls__shm_arrival), 4096);
    c.staging_at = align(c.eager_at + LS__SHM_SLOTS * n * LS__SHM_EAGER_STRIDE, 4096);
    c.channels_at = c.staging_at + n * LS__SHM_ROUNDS * c.round_bytes;
    c.bytes = c.channels_at + n * n * (sizeof(ls__shm_channel) + c.channel_bytes);
    return c;
}

/* Makes the control block; done by one member. members[i] gives local and world rank of member i. */
ls_status ls__shm_make(ls_world *world, int p, const int32_t (*members)[2], uint64_t *at)
{
    ls__shm_control c = plan(p, world->staging_bytes);
    ls_status status = ls__heap_take(world->job, world->job_fd, c.bytes, false, at);
    if (status) return status;
    ls__shm_control *control = ls__heap_at(world->job, *at);
    *control = c;
    control->failure.rank = -1;
    atomic_store(&control->references, (uint32_t)p);
    ls__shm_member *m = (ls__shm_member *)((char *)control + c.members_at);
    for (int i = 0; i < p; i++) {
        m[i].local = members[i][0];
        m[i].world = members[i][1];
    }
    return LS_OK;
}

/* This rank's view of a control block. */
ls_status ls__shm_enter(ls_world *world, uint64_t at, int rank, ls_group **out)
{
    ls__shm_control *c = ls__heap_at(world->job, at);
    int p = (int)c->size;
    ls_group *g;
    ls_status status = ls__group_new(world, &ls__shm_transport, rank, p, &g);
    if (status) return status;
    ls__shm *s = calloc(1, sizeof *s + 2 * (size_t)p * sizeof(void *));
    if (!s) {
        ls__group_discard(g);
        return ls__fail(LS_ENOMEM, "group of %d: out of memory", p);
    }
    char *base = (char *)c;
    s->control = c;
    s->control_at = at;
    s->members = (ls__shm_member *)(base + c->members_at);
    s->slots = (ls__shm_slot *)(base + c->slots_at);
    s->arrivals = (ls__shm_arrival *)(base + c->arrivals_at);
    s->eager = (uint8_t *)(base + c->eager_at);
    s->staging = (uint8_t *)(base + c->staging_at);
    s->channels = (uint8_t *)(base + c->channels_at);
    s->in = (const void **)(s + 1);
    s->out = (void **)(s->in + p);
    s->oversubscribed = world->job->ranks > world->job->cores;
    g->impl = s;
    *out = g;
    return LS_OK;
}

/* Waits until the first local rank has made the all-ranks group. */
static ls_status await_world_group(ls_world *world, uint64_t *at)
{
    ls__job *job = world->job;
    ls__job_rank *me = &job->rank[world->identity.local_rank];
    int64_t deadline = ls_now() + (int64_t)world->timeout_ms * 1000000;
    int first_rank = world->identity.rank - world->identity.local_rank;
    for (;;) {
        uint32_t futex = atomic_load(&me->futex);
        atomic_fetch_add(&me->sleepers, 1);
        *at = atomic_load(&job->world_group);
        bool failed = atomic_load_explicit(&job->failure.set, memory_order_acquire) == 2;
        if (!*at && !failed) ls__futex_wait(&me->futex, futex, 50000000);
        atomic_fetch_sub(&me->sleepers, 1);
        if (*at) return LS_OK;
        if (failed) return ls__fail((ls_status)job->failure.status, "%s", job->failure.text);
        uint32_t first = atomic_load(&job->rank[0].state);
        /* It may have opened and left since we looked. */
        if ((first == LS__RANK_EXITED || first == LS__RANK_KILLED) && !atomic_load(&job->world_group)) {
            char state[96];
            ls__job_describe_state(job, 0, state, sizeof state);
            return ls__fail(LS_EPEER, "rank %d: rank %d (the first of this machine) %s without opening its world",
                            world->identity.rank, first_rank, state);
        }
        if (world->timeout_ms > 0 && ls_now() > deadline) {
            char state[96];
            ls__job_describe_state(job, 0, state, sizeof state);
            return ls__fail(LS_ETIMEOUT,
                            "rank %d: rank %d (the first of this machine) did not open its world within %.1f s; it %s",
                            world->identity.rank, first_rank, world->timeout_ms / 1e3, state);
        }
    }
}

ls_status ls__shm_join(ls_world *world, ls_group **out)
{
    ls__job *job = world->job;
    uint64_t at = 0;
    ls_status status = LS_OK;
    *out = NULL;
    if (world->identity.local_rank == 0) {
        int32_t(*members)[2] = malloc((size_t)job->ranks * sizeof *members);
        if (!members) return ls__fail(LS_ENOMEM, "world: out of memory");
        int first = world->identity.rank - world->identity.local_rank;
        for (int i = 0; i < job->ranks; i++) members[i][0] = i, members[i][1] = first + i;
        status = ls__shm_make(world, job->ranks, (const int32_t(*)[2])members, &at);
        free(members);
        if (status) return status;
        atomic_store(&job->world_group, at);
        ls__job_wake_all(job);
    } else {
        status = await_world_group(world, &at);
        if (status) return status;
    }
    return ls__shm_enter(world, at, world->identity.local_rank, out);
}

static ls_status split(ls_group *g, int color, int key, ls_group **out)
{
    const ls__shm *s = ls__shm_of(g);
    size_t p = (size_t)g->size;
    ls__split_entry mine = { .color = color < 0 ? -1 : color, .key = key };
    ls__split_entry *all = malloc(p * sizeof *all);
    uint64_t *places = malloc(p * sizeof *places), place = 0;
    int *ranks = malloc(p * sizeof *ranks);
    int32_t(*members)[2] = malloc(p * sizeof *members);
    ls_status status = LS_OK;
    if (!all || !places || !ranks || !members) {
        status = ls__shm_break(g, LS_ENOMEM, "rank %d: split: out of memory", g->world->identity.rank);
        goto done;
    }
    status = ls_allgather(g, &mine, all, 3, LS_I32);
    if (status) goto done;
    int n = ls__split_pick(all, g->size, mine.color, ranks), rank = -1;
    for (int i = 0; i < n; i++) {
        members[i][0] = s->members[ranks[i]].local;
        members[i][1] = s->members[ranks[i]].world;
        if (ranks[i] == g->rank) rank = i;
    }
    if (mine.color >= 0 && rank == 0 && ls__shm_make(g->world, n, (const int32_t(*)[2])members, &place)) {
        status = ls__shm_break(g, LS_ENOMEM, "rank %d: split: %s", g->world->identity.rank, ls_error());
        goto done;
    }
    status = ls_allgather(g, &place, places, 1, LS_I64);
    if (!status && mine.color >= 0) status = ls__shm_enter(g->world, places[ranks[0]], rank, out);
done:
    free(all);
    free(places);
    free(ranks);
    free(members);
    return status;
}

void ls__shm_note_left(const ls_group *g, bool *left)
{
    for (int r = 0; r < g->size; r++) {
        const ls__shm_member *m = &ls__shm_of(g)->members[r];
        if (atomic_load_explicit(&m->left, memory_order_acquire)) left[m->world] = true;
    }
}

static void release(ls_group *g)
{
    ls__shm *s = ls__shm_of(g);
    atomic_store_explicit(&s->members[g->rank].left, true, memory_order_release);
    ls__shm_ring(g); /* those who wait for this rank shall know */
    if (atomic_fetch_sub(&s->control->references, 1) == 1)
        ls__heap_give(g->world->job, g->world->job_fd, s->control_at);
    free(s);
}

const ls__transport ls__shm_transport = {
    .name = "shm",
    .start = start,
    .progress = progress,
    .idle = ls__shm_idle,
    .look = ls__shm_look,
    .watch = ls__shm_watch,
    .split = split,
    .abort = ls__shm_abort,
    .release = release,
};
