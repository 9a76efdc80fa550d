/* The list of findings. */
#include "measure/findings.h"

#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "measure/limits.h"

const char *ls_finding_name(ls_finding_kind kind)
{
    static const char *const names[LS_FINDING_KINDS] = {
#define X(name, value, text) [value] = text,
        LS_FINDING_LIST(X)
#undef X
    };
    return (unsigned)kind < LS_FINDING_KINDS ? names[kind] : "unknown";
}

const char *ls_note_name(ls_note_kind kind)
{
    switch (kind) {
#define X(name, value, text) \
    case LS_NOTE_##name: return text;
        LS_NOTE_LIST(X)
#undef X
    }
    return "unknown";
}

ls_finding *ls__finding_add(ls_run *run, ls_finding_kind kind, ls_phase phase, ls_remedy remedy, double cost)
{
    if (run->n_findings == LS__MOST_FINDINGS) return NULL;
    if (!run->findings && !(run->findings = calloc(LS__MOST_FINDINGS, sizeof *run->findings))) return NULL;
    ls_finding *f = &run->findings[run->n_findings++];
    *f = (ls_finding){ .kind = kind,
                       .remedy = remedy,
                       .rank = -1,
                       .phase = phase,
                       .cost = (int64_t)cost,
                       .weight = 1,
                       .steps = (int64_t)ls__counted(run),
                       .first = run->steps[run->first_counted].number,
                       .last = run->steps[run->n_steps - 1].number,
                       .target = NAN };
    f->expected = (int64_t)run->step_mean - f->cost;
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
        ls__run_note(run, LS_NOTE_NO_STEPS, -1, 0, NULL);
        return LS_OK;
    }
    double waited = ls_run_mean(run, -1, LS_PHASE_WAIT);
    if (!run->n_collectives && waited > LS__WORTH_STRAGGLER * run->step_mean)
        ls__run_note(run, LS_NOTE_WAIT_MARKS, -1, (int64_t)waited, NULL);
    ls_status status = ls__sum_comm(run);
    if (!status) status = ls__find_stragglers(run);
    if (!status) status = ls__find_for_job(run);
    if (!status && run->n_findings) qsort(run->findings, run->n_findings, sizeof *run->findings, by_weight);
    return status;
}
