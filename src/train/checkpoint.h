/* Checkpoints: the complete state of a run in one file, for any number of ranks; checkpoint_file.h has the format. The newest few
 * are kept, and a run is resumed from the newest intact one. Random numbers are functions of seed and step, so there is no
 * generator to save. */
#ifndef LS_TRAIN_CHECKPOINT_H
#define LS_TRAIN_CHECKPOINT_H

#include "lockstep/train.h"

/* Starts writing a checkpoint of the state after the last step. Copies what it needs and returns; a thread writes. If
 * there is no memory for a copy, it writes synchronously. `last`: no step will follow, so nothing needs to be copied. A failure of
 * the previous one is returned here, and an inconsistent state is LS_ESTATE. First rank only. */
LS_MUST_CHECK ls_status ls__checkpoint_save(ls_train *t, bool last);
/* Waits for the one being written. */
LS_MUST_CHECK ls_status ls__checkpoint_wait(ls_train *t);
void ls__checkpoint_close(ls_train *t);

/* The weights and buffers of a step, from its checkpoint. */
LS_MUST_CHECK ls_status ls__checkpoint_read_weights(const ls_train *t, int64_t step, float *values, float *buffers);

/* Whether the run folder has checkpoints, intact or not. */
bool ls__checkpoint_any(const ls_train *t);
/* Restores the newest intact checkpoint of the run folder: weights, state, step and position in the data. Corrupt ones are
 * skipped, with a warning. A run that was killed before its first checkpoint starts from the beginning, with a warning.
 * All ranks call it. */
LS_MUST_CHECK ls_status ls__checkpoint_resume(ls_train *t);

#endif
