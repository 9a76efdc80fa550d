/* The list of findings. */
#include "measure/findings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "record/ring.h"
#include "base/status.h"

enum { MAX_FINDINGS = 512 };

const char *ls__duration(double ns, char out[24])
{
    static const struct {
        double size;
        const char *unit;
    } units[] = { { 1, "ns" }, { 1e3, "us" }, { 1e6, "ms" }, { 1e9, "s" } };
    int i = 0;
    while (i < 3 && fabs(ns) >= 999.5 * units[i].size) i++;
    if (ns == 0) i = 1;
    double x = ns / units[i].size, size = fabs(x);
    int digits = i == 0 || ns == 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    if (size < 1e15)
        snprintf(out, 24, "%.*f %s", digits, x, units[i].unit);
    else
        snprintf(out, 24, "%.3g %s", x, units[i].unit);
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
    ls_status status = ls__sum_comm(run);
    if (!status) status = ls__find_stragglers(run);
    if (!status) status = ls__find_losses(run);
    if (!status && run->n_findings) qsort(run->findings, run->n_findings, sizeof *run->findings, by_weight);
    return status;
}
