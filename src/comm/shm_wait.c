/* Waiting in shared memory.
 *
 * A rank that has nothing to do spins for a while, then sleeps on its futex word (wait.h). How long to spin: with a core per rank,
 * about as long as a wake-up takes (50 us); with more ranks than cores, the rank that is waited for may need this very core, so only a
 * few microseconds. */
#include "comm/shm.h"

#include "base/futex.h"
#include "comm/cluster.h"
#include "comm/wait.h"

enum {
    SPINS = 1500, /* of about 30 ns each */
    SPINS_UNPAUSED =
        100, /* the first of them, without a pause: that takes 25 ns on some CPUs, a tenth of a small collective */
    SPINS_OVERSUBSCRIBED = 60,
    SPINS_PER_CHECK = 32, /* between looks at the failure flags */
    DEADLOCK_LOOKS = 3,   /* in a row that show a deadlock, until it is reported */
    SLOT_NAP_NS =
        1000000, /* for a slot: freeing one has no fence, which would be expensive, so a waiting rank may be missed */
};

/* ---- Peers. */

/* What a wait for `w` really waits for: a work without a slot gets one when the oldest work under way is done. If that has none
 * either, this rank has finished what used the slot and another has not. */
static ls_work *awaited_work(const ls_group *g, ls_work *w)
{
    if (ls__is_p2p(w->kind) || ls__shm_work_of(w)->published) return w;
    ls_work *oldest = g->collectives.first;
    return oldest && ls__shm_work_of(oldest)->published ? oldest : w;
}

/* Whether `w` waits for this member: it has not arrived, or it is the other rank of a send or receive, or `w` has no slot and the
 * member has not finished with it. */
static bool waits_for(const ls_group *g, const ls_work *w, int rank)
{
    if (rank == g->rank) return false;
    if (ls__is_p2p(w->kind)) return rank == w->root;
    if (!ls__shm_work_of(w)->published)
        return atomic_load_explicit(&g->members[rank].finished, memory_order_acquire) <= w->number - LS__SHM_SLOTS;
    return atomic_load_explicit(&ls__shm_arrival_of(g, w->number, rank)->number, memory_order_acquire) != w->number + 1;
}

/* The same, or it has arrived and not done its part. */
static bool needs(const ls_group *g, const ls_work *w, int rank)
{
    return waits_for(g, w, rank) || ls__shm_needs(g, w, rank);
}

/* Whether a member will do nothing more in this group. What it did before that is visible to the caller. */
static bool is_gone(const ls_group *g, int rank)
{
    return ls__member_has_ended(g, rank) || atomic_load_explicit(&g->members[rank].left, memory_order_acquire);
}

/* A member is gone. Fails the group if the work still needs it: it may have done its part just before. */
static ls_status handle_gone(ls_group *g, const ls_work *w, int rank)
{
    ls_status status = ls__group_progress(g);
    if (status || w->done || !needs(g, w, rank)) return status;
    return ls__fail_gone(g, w, rank, !waits_for(g, w, rank));
}

/* ---- Deadlocks: this rank and another wait for each other in different calls. */

/* Whether each needs the other to begin something that it will not begin while it waits. What was begun before will complete. (Two
 * collectives cannot deadlock: their arrivals are compared as they come.) */
static bool is_deadlocked(const ls_group *g, const ls_work *w, int rank, ls__fingerprint fingerprint, uint64_t number)
{
    ls_collective_kind kind = ls__fingerprint_kind(fingerprint);
    if (!fingerprint || !(ls__is_p2p(w->kind) || ls__shm_work_of(w)->published)) return false;
    if (ls__is_p2p(w->kind) && !ls__shm_p2p_stuck(g, g->rank, rank, w->kind, w->number)) return false;
    if (!ls__is_p2p(kind))
        return ls__is_p2p(w->kind) &&
               atomic_load_explicit(&ls__shm_arrival_of(g, number, g->rank)->number, memory_order_relaxed) <= number;
    return ls__fingerprint_root(fingerprint) == g->rank && ls__shm_p2p_stuck(g, rank, g->rank, kind, number);
}

/* Reported only after a few looks in a row: what a rank sleeps in is several words, which may change while they are read. *found:
 * another member was found in this look, and one is enough. */
static ls_status check_deadlock(ls_group *g, ls_work *w, int rank, bool *found)
{
    ls__shm_work *t = ls__shm_work_of(w);
    const ls__member *they = &g->members[rank];
    ls__fingerprint fingerprint = atomic_load_explicit(&they->waiting_fingerprint, memory_order_acquire);
    uint64_t number = atomic_load(&they->waiting_number), count = atomic_load(&they->waiting_count);
    if (*found || !is_deadlocked(g, w, rank, fingerprint, number) ||
        atomic_load(&they->waiting_fingerprint) != fingerprint)
        return LS_OK;
    *found = true;
    bool again = fingerprint == t->deadlock_fingerprint && number == t->deadlock_number;
    t->deadlock_looks = again ? t->deadlock_looks + 1 : 0;
    t->deadlock_fingerprint = fingerprint;
    t->deadlock_number = number;
    if (t->deadlock_looks < DEADLOCK_LOOKS) return LS_OK;
    char mine[160], theirs[160];
    ls__describe_work(w, mine, sizeof mine);
    ls__describe(fingerprint, number, count, theirs, sizeof theirs);
    return ls__group_fail(g, LS_EMISMATCH,
                          "deadlock: rank %d waits in %s and rank %d waits in %s, each for the other; both must make "
                          "matching calls",
                          g->world->rank, mine, they->world_rank, theirs);
}

/* ---- Checking. */

/* What changes with any progress of the work. */
static uint64_t progress_mark(const ls_group *g, const ls_work *w)
{
    const ls__shm_work *t = ls__shm_work_of(w);
    uint64_t mark = (uint64_t)t->seen ^ (uint64_t)t->in << 16 ^ (uint64_t)t->out << 32 ^ (uint64_t)t->moved << 8;
    if (!ls__is_p2p(w->kind)) mark ^= atomic_load(&ls__shm_slot_of(g, w->number)->claimed) << 24 ^ w->number << 40;
    return mark;
}

/* Is a rank gone, stopped, deadlocked with this one, or late? `tests`: this rank tests its work. It may still make the call that
 * another waits for, so it is never deadlocked. */
static ls_status check_peers(ls_group *g, ls_work *waited, bool tests)
{
    ls_status status = ls__group_check_failed_in(g, waited);
    if (status || waited->done) return status;
    ls_work *w = awaited_work(g, waited);
    ls__wait_count(waited, progress_mark(g, w), tests);
    if (g->world->cluster) ls__cluster_watch(g->world->cluster, g->world->job);
    int first_missing = -1;
    bool deadlocked = false;
    for (int r = 0; r < g->size && !status && !w->done; r++) {
        if (!needs(g, w, r)) continue;
        bool missing = waits_for(g, w, r);
        if (missing && first_missing < 0) first_missing = r;
        if (is_gone(g, r))
            status = handle_gone(g, w, r);
        else if (ls__member_state(g, r) == LS__RANK_STOPPED)
            ls__wait_log_stop(g, w, r);
        else if (missing && !tests)
            status = check_deadlock(g, w, r, &deadlocked);
    }
    if (!deadlocked) ls__shm_work_of(w)->deadlock_looks = 0;
    if (status || w->done || !ls__wait_expired(waited)) return status;
    if (first_missing >= 0) {
        /* The launcher counts, too, and should be first to report a stopped rank. */
        if (ls__member_may_resume(g, first_missing, 4 * LS__WAIT_CHECK_NS)) return LS_OK;
        return ls__fail_late(g, w, first_missing);
    }
    char what[160];
    ls__describe_work(w, what, sizeof what);
    return ls__group_fail(g, LS_ETIMEOUT, "rank %d: %s made no progress for %.1f s, though all ranks arrived",
                          g->world->rank, what, g->world->timeout_ms / 1e3);
}

ls_status ls__shm_check_peers(ls_group *g, ls_work *w)
{
    return ls__wait_is_due(w) ? check_peers(g, w, true) : LS_OK;
}

/* ---- Waiting. */

/* Peers are checked before sleeping and not after it: a work that can be completed is. */
static ls_status sleep_until_woken(ls_group *g, ls_work *w)
{
    ls__member *me = &g->members[g->rank];
    ls_status status = check_peers(g, w, false);
    if (status || w->done) return status;
    /* In a work without a slot this rank waits for no call: others may have made theirs, which have no slot either. */
    const ls_work *awaited = awaited_work(g, w);
    bool for_call = ls__is_p2p(w->kind) || ls__shm_work_of(awaited)->published;
    atomic_store_explicit(&me->waiting_count, awaited->count, memory_order_relaxed);
    atomic_store_explicit(&me->waiting_number, awaited->number, memory_order_relaxed);
    atomic_store_explicit(&me->waiting_fingerprint, for_call ? ls__work_fingerprint(awaited) : 0, memory_order_release);
    /* Works of groups on several nodes need the network to be polled. */
    bool polls = g->world->nodes > 1 && ls__others_busy(g);
    int64_t ns = ls__shm_of(g)->awaits_slot ? SLOT_NAP_NS : LS__WAIT_CHECK_NS;
    status = ls__wait_sleep(g, w, polls ? LS__NET_NAP_NS : ns);
    atomic_store_explicit(&me->waiting_fingerprint, 0, memory_order_relaxed);
    return status;
}

ls_status ls__shm_idle(ls_group *g, ls_work *w)
{
    uint32_t limit = ls__shm_of(g)->oversubscribed ? SPINS_OVERSUBSCRIBED : SPINS;
    if (w->wait.spins++ < limit) {
        if (limit == SPINS_OVERSUBSCRIBED || w->wait.spins > SPINS_UNPAUSED) ls__cpu_relax();
        return w->wait.spins % SPINS_PER_CHECK ? LS_OK : ls__group_check_failed_in(g, w);
    }
    return sleep_until_woken(g, w);
}
