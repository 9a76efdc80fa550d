/* Failures of jobs and groups. See failure.h. */
#include "comm/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include "base/futex.h"
#include "base/status.h"
#include "comm/group.h"

static const int64_t PATIENCE_NS = 200000000; /* longer than a process is kept from running */

bool ls__failure_set(ls__failure *f, ls_status status, int rank, const char *text)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&f->set, &none, 1)) return false;
    f->status = (int32_t)status;
    f->rank = rank;
    snprintf(f->text, sizeof f->text, "%s", text);
    atomic_store_explicit(&f->set, 2, memory_order_release);
    return true;
}

ls_status ls__failure_report(const ls__failure *f)
{
    return ls__fail((ls_status)f->status, "%s", f->text);
}

bool ls__group_set_failure(const ls_group *g, ls_status status, const char *text)
{
    /* Touches nothing but shared memory, unlike ls__group_break(): any thread may call it. */
    bool first = ls__failure_set(g->failure, status, -1, text);
    if (g->world->job) ls__job_wake_all(g->world->job);
    return first;
}

ls_status ls__group_check_failed(ls_group *g)
{
    const ls__failure *f = ls__group_failure(g);
    return f ? ls__group_break(g, (ls_status)f->status, f->text) : LS_OK;
}

ls_status ls__group_check_failed_in(ls_group *g, const ls_work *w)
{
    if (!ls__group_failure(g)) return LS_OK;
    ls_status status = ls__group_progress(g);
    return status || w->done ? status : g->transport->check_failed(g);
}

ls_status ls__group_fail(ls_group *g, ls_status status, const char *format, ...)
{
    char text[LS__FAILURE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    g->transport->abort(g, status, text, false);
    /* Another rank may have been first, and is a few stores away from completing its text, unless it died there. */
    ls_status seen;
    int64_t begin = ls_now();
    while ((seen = g->transport->check_failed(g)) == LS_OK)
        if (ls_now() - begin > PATIENCE_NS) return ls__group_break(g, status, text);
    return seen;
}

ls_status ls__group_fail_error(ls_group *g, ls_status status)
{
    char text[LS__FAILURE_BYTES];
    if (g->broken) return status;
    snprintf(text, sizeof text, "%s", ls_error());
    return ls__group_fail(g, status, "%s", text);
}
