/* The profile of a training: what each operation of the model costs, summed over the steps.
 *
 * The tape tells of every operation; rows are found again by asking for the one that came next the last time, so that an
 * operation costs two readings of the clock and one comparison. Without a profile the tape asks nobody. */
#ifndef LS_TRAIN_PROFILE_H
#define LS_TRAIN_PROFILE_H

#include "lockstep/train.h"

typedef struct ls__profile ls__profile;

/* Listens to the training's tape from now on. */
LS_MUST_CHECK ls_status ls__profile_open(ls_train *t);
void ls__profile_close(ls_train *t);
/* While paused (evaluation), operations do not count. */
void ls__profile_pause(ls__profile *p, bool paused);
/* A step is over. The first one, in which memory is touched for the first time, does not count if others follow. */
void ls__profile_step(ls__profile *p, const ls_train_metrics *metrics);

#endif
