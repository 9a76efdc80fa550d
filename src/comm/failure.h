/* Failures: why a job or a group cannot continue.
 *
 * A failure is stored where all ranks concerned see it: in job memory for jobs and groups, in private memory for a group of one
 * rank. Any rank, thread or the launcher may set it. The first one stays, so that all ranks report the same cause. */
#ifndef LS_COMM_FAILURE_H
#define LS_COMM_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include "lockstep/comm.h"

enum { LS__FAILURE_BYTES = 768 }; /* of the text */

typedef struct ls__failure {
    _Atomic uint32_t set; /* 0: none; 1: being written; 2: complete */
    int32_t status;       /* ls_status */
    int32_t rank;         /* the rank that it is about; -1: none */
    char text[LS__FAILURE_BYTES];
} ls__failure;

static inline bool ls__failure_is_set(const ls__failure *f)
{
    return atomic_load_explicit(&f->set, memory_order_acquire) == 2;
}
/* False: there was a failure before, and it stays. */
bool ls__failure_set(ls__failure *f, ls_status status, int rank, const char *text);
/* Makes the failure this thread's error and returns its status. */
ls_status ls__failure_report(const ls__failure *f);

/* ---- Of groups. */

/* Sets the group's failure for the ranks on this node and wakes them. False: there was one before. From any thread. */
bool ls__group_set_failure(const ls_group *g, ls_status status, const char *text);
/* ls__transport.check_failed for transports without a network: breaks the group if it, or its job, has failed. */
ls_status ls__group_check_failed(ls_group *g);
/* The same for a rank that waits for `w`. What members did before the failure is visible here, so `w` is completed if nothing of it is
 * missing: the failure may belong to a later collective. */
ls_status ls__group_check_failed_in(ls_group *g, const ls_work *w);
/* Aborts the group for all members, with this text. Returns the status of the failure that came first. */
ls_status ls__group_fail(ls_group *g, ls_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with the text of ls_error(), for what is not the caller's mistake. */
ls_status ls__group_fail_error(ls_group *g, ls_status status);

#endif
