/* Checkpoints: everything that a training is, in one file, for any number of ranks.
 *
 *   "lockstep checkpoint 1\n"   22 bytes
 *   u64                         length of the head, little-endian
 *   head                        JSON: step, place in the data, number of elements and of blocks, the settings that count
 *   blocks                      float32: weights, then the optimiser's state, each of `elements`
 *   u64, u64                    XXH3 (128 bits, low half first) of all before
 *
 * A file is written beside its place, synced and renamed; the newest few are kept, and the newest that is whole is used.
 * Random numbers are functions of seed and step, so there is no generator to save. */
#ifndef LS_TRAIN_CHECKPOINT_H
#define LS_TRAIN_CHECKPOINT_H

#include "lockstep/train.h"

/* Starts writing a checkpoint of the state after the last step. Copies what it needs and returns; a thread writes. Where
 * there is no memory for a copy, it writes at once. A failure of the one before is returned here. First rank only. */
LS_MUST_CHECK ls_status ls__checkpoint_save(ls_train *t);
/* Waits for the one being written. */
LS_MUST_CHECK ls_status ls__checkpoint_wait(ls_train *t);
void ls__checkpoint_close(ls_train *t);

/* Goes on from the newest whole checkpoint of the run's folder: weights, state, step and place in the data. One that is
 * broken is passed over, which is logged. LS_ENOENT if there is none. All ranks call it. */
LS_MUST_CHECK ls_status ls__checkpoint_resume(ls_train *t);

#endif
