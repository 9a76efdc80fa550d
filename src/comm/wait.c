/* Waiting for other ranks of this node. See wait.h. */
#include "comm/wait.h"

#include <stdio.h>
#include "base/futex.h"
#include "base/log.h"

static const int64_t PAUSE_NS = 1000000000; /* what a pause between two tests counts for, at most */

/* ---- Sleeping and waking. */

void ls__group_wake_sleepers(const ls_group *g)
{
    ls__job *job = g->world->job;
    for (int i = 0; i < g->locals; i++)
        if (i != g->local) ls__job_wake(job, g->members[i].job_rank);
}

void ls__group_wake(const ls_group *g)
{
    atomic_thread_fence(memory_order_seq_cst);
    ls__group_wake_sleepers(g);
}

ls_status ls__wait_sleep(ls_group *g, const ls_work *w, int64_t ns)
{
    ls__job_rank *me = &g->world->job->rank[g->members[g->local].job_rank];
    uint32_t word = atomic_load(&me->futex);
    atomic_fetch_add(&me->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst); /* see wait.h; the addition alone is none on Arm */
    ls_status status = ls__world_progress(g);
    if (!status && !w->done) ls__futex_wait(&me->futex, word, ns);
    atomic_fetch_sub(&me->sleepers, 1);
    return status;
}

/* ---- Time. */

bool ls__wait_is_due(ls_work *w)
{
    int64_t now = ls_now();
    if (!w->wait.checked_at) w->wait.checked_at = now;
    return now - w->wait.checked_at >= LS__WAIT_CHECK_NS;
}

void ls__wait_count(ls_work *w, uint64_t mark, bool tests)
{
    ls__wait *t = &w->wait;
    int64_t now = ls_now(), passed = now - t->checked_at, most = tests ? PAUSE_NS : 4 * LS__WAIT_CHECK_NS;
    if (mark != t->mark || !t->checked_at)
        t->idle = 0;
    else
        t->idle += passed < most ? passed : tests ? PAUSE_NS : LS__WAIT_CHECK_NS;
    t->mark = mark;
    t->checked_at = now;
}

bool ls__wait_expired(const ls_work *w)
{
    int timeout_ms = w->group->world->timeout_ms;
    return timeout_ms > 0 && w->wait.idle > (int64_t)timeout_ms * 1000000;
}

/* ---- Members. */

static const ls__job_rank *process_of(const ls_group *g, int local)
{
    return &g->world->job->rank[g->members[local].job_rank];
}

uint32_t ls__member_state(const ls_group *g, int local)
{
    return atomic_load_explicit(&process_of(g, local)->state, memory_order_acquire);
}

bool ls__member_has_ended(const ls_group *g, int local)
{
    uint32_t state = ls__member_state(g, local);
    return state == LS__RANK_EXITED || state == LS__RANK_KILLED || state == LS__RANK_GONE;
}

void ls__wait_log_stop(const ls_group *g, ls_work *w, int local)
{
    if (w->wait.stop_logged || ls__member_state(g, local) != LS__RANK_STOPPED) return;
    char state[96];
    ls__job_describe_state(g->world->job, g->members[local].job_rank, state, sizeof state);
    ls__log(LS_LOG_WARNING, "rank %d %s; waiting for it", g->members[local].world_rank, state);
    w->wait.stop_logged = true;
}

bool ls__member_may_resume(const ls_group *g, int local, int64_t extra)
{
    int64_t limit = (int64_t)g->world->timeout_ms * 1000000 + extra;
    return ls__member_state(g, local) == LS__RANK_STOPPED &&
           ls_now() - atomic_load(&process_of(g, local)->since) < limit;
}

/* ---- Reports. */

/* "it last completed barrier #11"; with several groups "there", in the group that was named before. */
static void describe_last(const ls__member *m, bool several, char *out, size_t bytes)
{
    uint64_t last = atomic_load_explicit(&m->last_number, memory_order_acquire);
    char what[160];
    if (!last) {
        snprintf(out, bytes, "it has completed no collective of this group");
        return;
    }
    ls__describe(atomic_load(&m->last_fingerprint), last - 1, atomic_load(&m->last_count), what, sizeof what);
    snprintf(out, bytes, "it last completed %s%s", what, several ? " there" : "");
}

ls_status ls__fail_gone(ls_group *g, const ls_work *w, int local, bool arrived)
{
    const ls__member *m = &g->members[local];
    char what[160], group[LS__GROUP_TEXT], state[96] = "left the group", last[200];
    ls__describe_awaited(w, what, sizeof what);
    ls__describe_group(g, group);
    if (ls__member_has_ended(g, local)) ls__job_describe_state(g->world->job, m->job_rank, state, sizeof state);
    describe_last(m, *group, last, sizeof last);
    return ls__group_fail(g, LS_EPEER, "rank %d %s and will not %s %s%s; %s", m->world_rank, state,
                          arrived ? "complete its part of" : "call", what, group, last);
}

ls_status ls__fail_late(ls_group *g, const ls_work *w, int local)
{
    const ls__member *m = &g->members[local];
    char what[160], group[LS__GROUP_TEXT], state[96], last[200];
    ls__describe_awaited(w, what, sizeof what);
    ls__describe_group(g, group);
    ls__job_describe_state(g->world->job, m->job_rank, state, sizeof state);
    describe_last(m, *group, last, sizeof last);
    return ls__group_fail(g, LS_ETIMEOUT, "rank %d did not call %s%s within %.1f s; it %s; %s", m->world_rank, what,
                          group, g->world->timeout_ms / 1e3, state, last);
}
