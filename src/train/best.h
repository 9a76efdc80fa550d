/* The best evaluation of a run: whose checkpoint is kept, and when a run ends early.
 *
 * All ranks have the same results of evaluations, so they decide alike. The state is part of checkpoints: a resumed run ends where the run
 * would have ended. */
#ifndef LS_TRAIN_BEST_H
#define LS_TRAIN_BEST_H

#include <stdbool.h>
#include <stdint.h>
#include "lockstep/train.h"

typedef struct ls__best {
    int64_t step;  /* of the best evaluation; 0: none */
    double value;  /* of the metric, there */
    int64_t since; /* evaluations since then */
} ls__best;

/* Which metric; LS_EINVAL unless the task has it and there are evaluations. */
LS_MUST_CHECK ls_status ls__best_open(ls_train *t);
/* An evaluation after the current step. */
void ls__best_note(ls_train *t, double loss, const double metrics[LS_MAX_METRICS]);
/* Whether the checkpoint of the best evaluation is kept. */
bool ls__best_is_kept(const ls_train *t);
/* No steps are left, or the last `patience` evaluations were no better than one before. */
bool ls__train_is_over(const ls_train *t);
/* Saves the model of the best evaluation to the run folder. LS_ENOENT: it is that of the last step, or there is none. */
LS_MUST_CHECK ls_status ls__best_save(ls_train *t);

#endif
