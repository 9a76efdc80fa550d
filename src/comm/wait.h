/* Waiting for other ranks of this node: sleeping, waking, and what to do about ranks that ended, are stopped or late. Shared by the
 * transports, which decide whom a work waits for.
 *
 * Each rank has one futex word in the job. A rank that publishes something that another may wait for wakes those who sleep. No
 * wake-up is lost: the sleeper counts itself in `sleepers`, makes a full fence and progress once more, and sleeps only if its word has
 * not changed since before that; the publisher stores, makes a full fence, and then reads `sleepers`. Of two fences one comes first, so
 * either the sleeper sees what was published or the publisher sees the sleeper (tests/comm/wake_model tries all executions, and
 * that without either fence one is lost). The word belongs to the rank and not to a group, so that the launcher can wake a rank
 * whatever it waits in. */
#ifndef LS_COMM_WAIT_H
#define LS_COMM_WAIT_H

#include "comm/group.h"

#define LS__WAIT_CHECK_NS 50000000 /* a waiting or testing rank checks its peers this often, even if it is not woken */

/* Wakes the members on this node that sleep. Call after a release store that one of them may wait for. */
void ls__group_wake(const ls_group *g);
/* The same for a caller that has made the full fence after its store. */
void ls__group_wake_sleepers(const ls_group *g);
/* Makes progress on all groups. If `w` is not done then, sleeps until woken, or for `ns`. */
LS_MUST_CHECK ls_status ls__wait_sleep(ls_group *g, const ls_work *w, int64_t ns);

/* Whether LS__WAIT_CHECK_NS have passed since the last check of the work's peers. */
bool ls__wait_is_due(ls_work *w);
/* Adds the time since the last check to w->wait.idle, or starts at 0 if `mark`, a measure of progress, has changed. Time in which
 * this process was suspended does not count; `tests`: a pause between two tests counts for a second at most. */
void ls__wait_count(ls_work *w, uint64_t mark, bool tests);
/* Whether the work made no progress for longer than the world's timeout. */
bool ls__wait_expired(const ls_work *w);

/* State of the process of the member at place `local` on this node. */
uint32_t ls__member_state(const ls_group *g, int local);
bool ls__member_has_ended(const ls_group *g, int local);
/* Logs once per work that the member is stopped, so that the user sees why nothing happens. */
void ls__wait_log_stop(const ls_group *g, ls_work *w, int local);
/* Whether the member is stopped and still has time: the timeout, and `extra` ns, from its stop. */
bool ls__member_may_resume(const ls_group *g, int local, int64_t extra);

/* Fail the group: the member ended, or left; or it is late. `arrived`: it has arrived and not completed its part. */
ls_status ls__fail_gone(ls_group *g, const ls_work *w, int local, bool arrived);
ls_status ls__fail_late(ls_group *g, const ls_work *w, int local);

#endif
