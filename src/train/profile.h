/* The profile of a run: the cost of each operation of the model, summed over the steps.
 *
 * The tape reports every operation. Its row is usually the one after the previous operation's, as in the step before, so that an
 * operation costs two readings of the clock and one comparison. */
#ifndef LS_TRAIN_PROFILE_H
#define LS_TRAIN_PROFILE_H

#include "lockstep/train.h"

typedef struct ls__profile ls__profile;

/* Measures the operations of the run's tape from now on. */
LS_MUST_CHECK ls_status ls__profile_open(ls_train *t);
void ls__profile_close(ls_train *t);
/* While paused (evaluation), operations do not count. */
void ls__profile_pause(ls__profile *p, bool paused);
/* After each step. The first one, in which memory is touched for the first time, does not count if others follow. */
void ls__profile_step(ls__profile *p, const ls_train_metrics *metrics);

#endif
