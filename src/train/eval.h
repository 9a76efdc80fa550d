/* What the two kinds of evaluation of a saved model share: eval.c of language models, eval_task.c of all others. */
#ifndef LS_TRAIN_EVAL_H
#define LS_TRAIN_EVAL_H

#include "lockstep/train.h"

/* LS_EINVAL if the data of a run have changed: other samples would be held out, on which the run may have been trained. `d` has the
 * data that are to be evaluated. */
LS_MUST_CHECK ls_status ls__eval_check_unchanged(const ls_train_saved *run, const ls_train_options *d,
                                                 const char *model);

/* Evaluates the model of a task other than lm. run: NULL, if the folder is not a run. A collective call. */
LS_MUST_CHECK ls_status ls__eval_task(const ls_eval_options *o, ls_task task, const ls_train_saved *run,
                                      ls_eval_result *result);

#endif
