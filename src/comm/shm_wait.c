/* Waiting in shared memory, and how it ends badly.
 *
 * A rank that has nothing to do spins for a while, then sleeps on its futex in the job. Whoever publishes something that
 * another rank may wait for rings the bells of those who sleep. No wake-up is lost: the sleeper counts itself in
 * `sleepers`, looks once more, and sleeps only if the futex has not rung since before that; the publisher stores, makes
 * a full fence, and then looks at `sleepers`.
 *
 * The futex is the rank's, not the group's, so the launcher can wake everyone when a process dies, whatever they wait
 * in.
 *
 * How long to spin: with a core per rank, about as long as a wake-up takes (50 us); with more ranks than cores, the one
 * that is waited for may need this very core, so only a few microseconds. */
#include "comm/shm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/futex.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/cluster.h"

enum {
    SPINS = 1500, /* of some 30 ns each */
    SPINS_OVERSUBSCRIBED = 60,
    SPINS_PER_LOOK = 32, /* between looks at the failure flags */
    DEADLOCK_LOOKS = 3,  /* after which two ranks that wait for each other are believed to */
};
static const int64_t SLICE_NS =
    50000000; /* a sleeper looks around this often even if nobody rings, and so does who tests */
static const int64_t PAUSE_NS = 1000000000; /* a pause between two tests counts as so long at most */

void ls__shm_ring(ls_group *g)
{
    ls__job *job = g->world->job;
    const ls__shm_member *m = ls__shm_of(g)->members;
    atomic_thread_fence(memory_order_seq_cst);
    for (int r = 0; r < g->size; r++)
        if (r != g->rank) ls__job_wake(job, m[r].local);
}

/* ---- Failures. */

ls_status ls__shm_look(ls_group *g)
{
    ls__failure *own = &ls__shm_of(g)->control->failure, *job = &g->world->job->failure;
    if (atomic_load_explicit(&own->set, memory_order_acquire) == 2)
        return ls__group_break(g, (ls_status)own->status, own->text);
    if (atomic_load_explicit(&job->set, memory_order_acquire) == 2)
        return ls__group_break(g, (ls_status)job->status, job->text);
    return LS_OK;
}

/* Unlike ls__group_break(), touches nothing but shared memory: any thread may call it. */
void ls__shm_abort(ls_group *g, ls_status status, const char *text)
{
    ls__failure *f = &ls__shm_of(g)->control->failure;
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&f->set, &none, 1)) {
        f->status = (int32_t)status;
        snprintf(f->text, sizeof f->text, "%s", text);
        atomic_store_explicit(&f->set, 2, memory_order_release);
    }
    ls__job_wake_all(g->world->job);
}

ls_status ls__shm_break(ls_group *g, ls_status status, const char *format, ...)
{
    char text[LS__JOB_FAILURE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls__shm_abort(g, status, text);
    /* Another rank may have been first; then all of us tell its story. It is a few stores away at most. */
    ls_status seen;
    while ((seen = ls__shm_look(g)) == LS_OK) ls__cpu_relax();
    return seen;
}

/* "; it last completed barrier #11": what is known of a rank that is missing. */
static void describe_last(const ls_group *g, int rank, char *out, size_t bytes)
{
    const ls__shm_member *m = &ls__shm_of(g)->members[rank];
    uint64_t last = atomic_load_explicit(&m->last_number, memory_order_acquire);
    char call[160];
    if (!last) {
        snprintf(out, bytes, "it has completed no call of this group");
        return;
    }
    ls__describe(atomic_load(&m->last_fingerprint), last - 1, atomic_load(&m->last_count), call, sizeof call);
    snprintf(out, bytes, "it last completed %s", call);
}

/* Whether `w` waits for this member: it has not arrived, or it is the partner of a send or receive. */
static bool waits_for(const ls_group *g, const ls_work *w, int rank)
{
    if (rank == g->rank) return false;
    if (ls__is_p2p(w->kind)) return rank == w->root;
    return atomic_load_explicit(&ls__shm_arrival_of(g, w->number, rank)->number, memory_order_acquire) != w->number + 1;
}

/* Likewise, or it has arrived and not done its part. */
static bool needs(const ls_group *g, const ls_work *w, int rank)
{
    return waits_for(g, w, rank) || ls__shm_lacks(g, w, rank);
}

static bool has_ended(uint32_t state)
{
    return state == LS__RANK_EXITED || state == LS__RANK_KILLED || state == LS__RANK_GONE;
}

/* Whether a member will do nothing more in this group. What it did before is to be seen by the caller. */
static bool is_gone(const ls_group *g, int rank)
{
    const ls__shm_member *m = &ls__shm_of(g)->members[rank];
    return has_ended(atomic_load_explicit(&g->world->job->rank[m->local].state, memory_order_acquire)) ||
           atomic_load_explicit(&m->left, memory_order_acquire);
}

/* A member that is gone, and for which the call waits unless it did its part just before. */
static ls_status gone(ls_group *g, const ls_work *w, int rank)
{
    const ls__shm_member *m = &ls__shm_of(g)->members[rank];
    ls_status status = ls__group_progress(g);
    if (status || w->done || !needs(g, w, rank)) return status;
    bool came = !waits_for(g, w, rank);
    char call[160], state[96] = "left the group", last[200];
    ls__describe_awaited(w, call, sizeof call);
    if (has_ended(atomic_load(&g->world->job->rank[m->local].state)))
        ls__job_describe_state(g->world->job, m->local, state, sizeof state);
    describe_last(g, rank, last, sizeof last);
    return ls__shm_break(g, LS_EPEER, "rank %d %s and will not %s %s; %s", m->world, state,
                         came ? "complete its part of" : "come to", call, last);
}

static ls_status late(ls_group *g, const ls_work *w, int rank)
{
    char call[160], state[96], last[200];
    int world = ls__shm_of(g)->members[rank].world;
    ls__describe_awaited(w, call, sizeof call);
    ls__job_describe_state(g->world->job, ls__shm_of(g)->members[rank].local, state, sizeof state);
    describe_last(g, rank, last, sizeof last);
    return ls__shm_break(g, LS_ETIMEOUT, "rank %d did not come to %s within %.1f s; it %s; %s", world, call,
                         g->world->timeout_ms / 1e3, state, last);
}

/* Whether this rank and another, which sleeps, wait for each other in different calls: each needs the other to begin
 * something that it will not begin while it waits. What was begun before comes, whatever its rank waits in. (Two collectives
 * never cross: their arrivals are compared as they come.) */
static bool is_deadlocked(const ls_group *g, const ls_work *w, int rank, ls__fingerprint fingerprint, uint64_t number)
{
    if (!fingerprint || w->starting) return false;
    if (ls__is_p2p(w->kind) && !ls__shm_p2p_stuck(g, g->rank, rank, w->kind, w->number)) return false;
    if (!ls__is_p2p(fingerprint & 0xff))
        return ls__is_p2p(w->kind) &&
               atomic_load_explicit(&ls__shm_arrival_of(g, number, g->rank)->number, memory_order_relaxed) <= number;
    return (int32_t)(fingerprint >> 32) == g->rank && ls__shm_p2p_stuck(g, rank, g->rank, fingerprint & 0xff, number);
}

/* Believed only when it stays so for a few looks: what a rank sleeps in is several words, which may change as they are
 * read. *found: another member was deadlocked with us in this look, and that is enough for one. */
static ls_status check_deadlock(ls_group *g, ls_work *w, int rank, bool *found)
{
    const ls__shm_member *they = &ls__shm_of(g)->members[rank];
    ls__fingerprint fingerprint = atomic_load_explicit(&they->waiting_fingerprint, memory_order_acquire);
    uint64_t number = atomic_load(&they->waiting_number), count = atomic_load(&they->waiting_count);
    if (*found || !is_deadlocked(g, w, rank, fingerprint, number) ||
        atomic_load(&they->waiting_fingerprint) != fingerprint)
        return LS_OK;
    *found = true;
    bool again = fingerprint == w->deadlock_fingerprint && number == w->deadlock_number;
    w->deadlock_looks = again ? w->deadlock_looks + 1 : 0;
    w->deadlock_fingerprint = fingerprint;
    w->deadlock_number = number;
    if (w->deadlock_looks < DEADLOCK_LOOKS) return LS_OK;
    char mine[160], theirs[160];
    ls__describe(ls__work_fingerprint(w), w->number, w->count, mine, sizeof mine);
    ls__describe(fingerprint, number, count, theirs, sizeof theirs);
    return ls__shm_break(
        g, LS_EMISMATCH,
        "rank %d waits in %s and rank %d waits in %s, each for the other; both must make matching calls",
        g->world->identity.rank, mine, they->world, theirs);
}

/* Says once per stop that a rank is stopped: the caller's user sees why nothing moves. */
static void note_stop(const ls_group *g, ls_work *w, int rank)
{
    const ls__job_rank *r = &g->world->job->rank[ls__shm_of(g)->members[rank].local];
    if (atomic_load(&r->state) != LS__RANK_STOPPED || w->stop_noted) return;
    char state[96];
    ls__job_describe_state(g->world->job, ls__shm_of(g)->members[rank].local, state, sizeof state);
    ls__log(LS_LOG_WARNING, "rank %d %s; waiting for it", ls__shm_of(g)->members[rank].world, state);
    w->stop_noted = true;
}

/* A stopped rank has the whole timeout from its stop, and a little more: the launcher, which counts too, shall be first. */
static bool has_time(const ls_group *g, int rank)
{
    const ls__job_rank *r = &g->world->job->rank[ls__shm_of(g)->members[rank].local];
    int64_t limit = (int64_t)g->world->timeout_ms * 1000000 + 4 * SLICE_NS;
    return atomic_load(&r->state) == LS__RANK_STOPPED && ls_now() - atomic_load(&r->since) < limit;
}

/* Counts the time in which nothing has moved. A pause that is longer than `most` counts less: we were suspended. */
static void count_time(const ls_group *g, ls_work *w, int64_t most)
{
    int64_t now = ls_now(), passed = now - w->waiting_since;
    uint64_t mark = (uint64_t)w->seen ^ (uint64_t)w->in << 16 ^ (uint64_t)w->out << 32 ^ (uint64_t)w->moved << 8;
    if (!ls__is_p2p(w->kind)) mark ^= atomic_load(&ls__shm_slot_of(g, w->number)->claimed) << 24;
    if (mark != w->waiting_mark || !w->waiting_since)
        w->waited = 0;
    else
        w->waited += passed < most ? passed : most == PAUSE_NS ? most : SLICE_NS;
    w->waiting_mark = mark;
    w->waiting_since = now;
}

/* Is someone gone, stopped, deadlocked with us, or too late? A rank that tests its work may still make the call that another
 * waits for: it is deadlocked with nobody. */
static ls_status look_around(ls_group *g, ls_work *w, bool tests)
{
    ls_status status = ls__shm_look(g);
    if (status) return status;
    count_time(g, w, tests ? PAUSE_NS : 4 * SLICE_NS);
    bool expired = g->world->timeout_ms > 0 && w->waited > (int64_t)g->world->timeout_ms * 1000000;
    if (g->world->cluster) ls__cluster_watch(g->world->cluster, g->world->job);
    int first_missing = -1;
    bool deadlocked = false;
    for (int r = 0; r < g->size && !status && !w->done; r++) {
        if (!needs(g, w, r)) continue;
        bool missing = waits_for(g, w, r);
        if (missing && first_missing < 0) first_missing = r;
        if (is_gone(g, r))
            status = gone(g, w, r);
        else if (atomic_load(&g->world->job->rank[ls__shm_of(g)->members[r].local].state) == LS__RANK_STOPPED)
            note_stop(g, w, r);
        else if (missing && !tests)
            status = check_deadlock(g, w, r, &deadlocked);
    }
    if (!deadlocked) w->deadlock_looks = 0;
    if (status || w->done || !expired || (first_missing >= 0 && has_time(g, first_missing))) return status;
    if (first_missing >= 0) return late(g, w, first_missing);
    char call[160];
    ls__describe(ls__work_fingerprint(w), w->number, w->count, call, sizeof call);
    return ls__shm_break(g, LS_ETIMEOUT, "rank %d: %s made no progress for %.1f s, though all ranks arrived",
                         g->world->identity.rank, call, g->world->timeout_ms / 1e3);
}

ls_status ls__shm_watch(ls_group *g, ls_work *w)
{
    int64_t now = ls_now();
    if (!w->waiting_since) w->waiting_since = now;
    return now - w->waiting_since < SLICE_NS ? LS_OK : look_around(g, w, true);
}

/* ---- Waiting. */

static void announce_sleep(ls__shm_member *me, const ls_work *w)
{
    atomic_store_explicit(&me->waiting_count, w->count, memory_order_relaxed);
    atomic_store_explicit(&me->waiting_number, w->number, memory_order_relaxed);
    atomic_store_explicit(&me->waiting_fingerprint, ls__work_fingerprint(w), memory_order_release);
}

/* What is wrong is looked for before sleeping and not after: a call that can be completed is. */
static ls_status sleep_until_rung(ls_group *g, ls_work *w)
{
    ls__shm_member *member = &ls__shm_of(g)->members[g->rank];
    ls__job_rank *me = &g->world->job->rank[member->local];
    uint32_t futex = atomic_load(&me->futex);
    ls_status status = look_around(g, w, false);
    if (status) return status;
    announce_sleep(member, w);
    atomic_fetch_add(&me->sleepers, 1); /* a full fence: see the top */
    status = ls__world_progress(g);
    /* Works of groups over several machines need the network looked after. */
    int64_t slice = g->world->nodes > 1 && ls__others_busy(g) ? LS__NET_NAP_NS : SLICE_NS;
    if (!status && !w->done) ls__futex_wait(&me->futex, futex, slice);
    atomic_fetch_sub(&me->sleepers, 1);
    atomic_store_explicit(&member->waiting_fingerprint, 0, memory_order_relaxed);
    return status;
}

ls_status ls__shm_idle(ls_group *g, ls_work *w)
{
    uint32_t limit = ls__shm_of(g)->oversubscribed ? SPINS_OVERSUBSCRIBED : SPINS;
    if (w->spins++ < limit) {
        ls__cpu_relax();
        return w->spins % SPINS_PER_LOOK ? LS_OK : ls__shm_look(g);
    }
    return sleep_until_rung(g, w);
}
