/* Findings: what the files that make them share. */
#ifndef LS_MEASURE_FIND_H
#define LS_MEASURE_FIND_H

#include "measure/model.h"

/* Adds a finding, empty but for its kind; NULL: no memory, or too many. */
ls_finding *ls__finding_add(ls_run *run, ls_finding_kind kind);

/* comm.c: collectives by kind, with what they take at least. */
LS_MUST_CHECK ls_status ls__sum_comm(ls_run *run);
/* straggle.c: ranks that make others wait, by phase, and ranks whose core is shared. */
LS_MUST_CHECK ls_status ls__find_stragglers(ls_run *run);
/* advise.c: what all ranks lose alike: data, checkpoints, evaluation, and what advise_comm.c finds. */
LS_MUST_CHECK ls_status ls__find_losses(ls_run *run);

/* advise_comm.c: the same of communication. */
LS_MUST_CHECK ls_status ls__advise_comm(ls_run *run);

/* advise.c: the mean time of a phase on the rank that has least of it: what nobody is without. */
double ls__common(const ls_run *run, ls_phase phase);
int ls__first_present(const ls_run *run);
/* advise.c: whether 'lockstep train' made the run. A training loop of one's own knows no options, and calls the library. */
bool ls__is_train(const ls_run *run);

/* "41.0 ms", "8.42 us": the unit by the size, and three digits. For texts; the program's too. */
const char *ls__duration(double ns, char out[24]);

/* Steps that count. */
static inline size_t ls__counted(const ls_run *run)
{
    return run->n_steps - run->n_warmup;
}

#endif
