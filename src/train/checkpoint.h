/* Checkpoints: everything that a training is, in one file, for any number of ranks; checkpoint_file.h has the format. The
 * newest few are kept, and the newest that is intact is resumed from. Random numbers are functions of seed and step, so there
 * is no generator to save. */
#ifndef LS_TRAIN_CHECKPOINT_H
#define LS_TRAIN_CHECKPOINT_H

#include "lockstep/train.h"

/* Starts writing a checkpoint of the state after the last step. Copies what it needs and returns; a thread writes. Where
 * there is no memory for a copy, it writes at once. `last`: no step will follow, so nothing needs to be copied. A failure of
 * the one before is returned here, and a state that is not whole is LS_ESTATE. First rank only. */
LS_MUST_CHECK ls_status ls__checkpoint_save(ls_train *t, bool last);
/* Waits for the one being written. */
LS_MUST_CHECK ls_status ls__checkpoint_wait(ls_train *t);
void ls__checkpoint_close(ls_train *t);

/* Whether the run's folder has checkpoints, intact or not. */
bool ls__checkpoint_any(const ls_train *t);
/* Goes on from the newest intact checkpoint of the run's folder: weights, state, step and place in the data. One that is
 * corrupt is passed over, which is logged. A run that was killed before its first checkpoint begins anew, which is logged, too.
 * All ranks call it. */
LS_MUST_CHECK ls_status ls__checkpoint_resume(ls_train *t);

#endif
