/* The list of findings, and the table of communication that some of them rest on. */
#include "measure/find.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { MAX_FINDINGS = 512 };

const char *ls__duration(double ns, char out[24])
{
    if (fabs(ns) >= 1e10)
        snprintf(out, 24, "%.0f s", ns / 1e9);
    else if (fabs(ns) >= 1e9)
        snprintf(out, 24, "%.2f s", ns / 1e9);
    else if (fabs(ns) >= 1e8)
        snprintf(out, 24, "%.0f ms", ns / 1e6);
    else if (fabs(ns) >= 1e7)
        snprintf(out, 24, "%.1f ms", ns / 1e6);
    else if (fabs(ns) >= 1e6)
        snprintf(out, 24, "%.2f ms", ns / 1e6);
    else
        snprintf(out, 24, "%.0f us", ns / 1e3);
    return out;
}

ls_finding *ls__finding_add(ls_run *run, ls_finding_kind kind)
{
    if (run->n_findings == MAX_FINDINGS) return NULL;
    if (!run->findings && !(run->findings = calloc(MAX_FINDINGS, sizeof *run->findings))) return NULL;
    ls_finding *f = &run->findings[run->n_findings++];
    *f = (ls_finding){ .kind = kind, .rank = -1, .weight = 1 };
    return f;
}

/* ---- Communication by kind of call. */

static ls_comm_row *row_of(ls_run *run, const ls_meeting *m)
{
    for (size_t i = 0; i < run->n_comm; i++)
        if (run->comm[i].kind == m->kind && run->comm[i].bucket == (m->bucket >= 0)) return &run->comm[i];
    ls_comm_row *more = realloc(run->comm, (run->n_comm + 1) * sizeof *more);
    if (!more) return NULL;
    run->comm = more;
    run->comm[run->n_comm] = (ls_comm_row){ .kind = m->kind, .bucket = m->bucket >= 0 };
    return &run->comm[run->n_comm++];
}

/* What a call took once all were there and the calls before it were done, on average over ranks. */
static double own_time(const ls_run *run, const ls_meeting *m, int64_t *before, double *exposed)
{
    double busy = 0, n = 0;
    *exposed = 0;
    for (int r = 0; r < run->ranks; r++) {
        if (!m->arrival[r] || !m->done[r]) continue;
        n++;
        busy += (double)ls__max(0, m->done[r] - ls__max(m->last_arrival, before[r]));
        before[r] = ls__max(before[r], m->done[r]);
        if (m->left[r])
            *exposed += (double)ls__max(0, m->left[r] - ls__max(m->last_arrival, m->left[r] - m->blocked[r]));
    }
    if (n > 0) *exposed /= n;
    return n > 0 ? busy / n : 0;
}

/* Adds a bucket to the line time = start + bytes * per_byte that is fitted to all of them. */
static void add_to_fit(ls_comm_fit *fit, double bytes, double ns)
{
    fit->n++;
    fit->x += bytes;
    fit->y += ns;
    fit->xx += bytes * bytes;
    fit->xy += bytes * ns;
}

static ls_status sum_comm(ls_run *run)
{
    int64_t *before = calloc((size_t)run->ranks, sizeof *before);
    if (!before) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < run->n_meetings && run->n_steps; i++) {
        const ls_meeting *m = &run->meetings[i];
        if (m->step < run->steps[run->n_warm].number || m->step > run->steps[run->n_steps - 1].number) continue;
        ls_comm_row *row = row_of(run, m);
        if (!row) {
            free(before);
            return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
        }
        double exposed, busy = own_time(run, m, before, &exposed);
        row->count++;
        row->bytes += m->bytes;
        row->waited += m->waited;
        row->busy += (int64_t)busy;
        row->exposed += (int64_t)exposed;
        if (m->bucket >= 0) add_to_fit(&run->bucket_fit, (double)m->bytes, busy);
    }
    free(before);
    return LS_OK;
}

static int by_weight(const void *a, const void *b)
{
    const ls_finding *x = a, *y = b;
    double u = (double)x->cost * x->weight, v = (double)y->cost * y->weight;
    return (u < v) - (u > v);
}

ls_status ls__run_find(ls_run *run)
{
    if (!run->n_steps) {
        ls__run_note(run, "no step was recorded from begin to end, so there is nothing to account for");
        return LS_OK;
    }
    ls_status status = sum_comm(run);
    if (!status) status = ls__find_stragglers(run);
    if (!status) status = ls__find_losses(run);
    if (!status && run->n_findings) qsort(run->findings, run->n_findings, sizeof *run->findings, by_weight);
    return status;
}
