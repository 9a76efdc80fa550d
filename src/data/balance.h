/* Dealing samples of different lengths so that the slots of a step get the same work. Pure. */
#ifndef LS_DATA_BALANCE_H
#define LS_DATA_BALANCE_H

#include "lockstep/base.h"

/* One sample of a window. */
typedef struct ls__weighed {
    uint64_t sample;
    uint64_t length;
} ls__weighed;

/* Reorders `steps` * `slots` * `rows` samples so that position (step * slots + slot) * rows + row is what that place of
 * the step gets. `key` decides which of several similar samples goes to which step. `scratch` has room for as many
 * samples again and `slots` more. */
void ls__balance(ls__weighed *samples, ls__weighed *scratch, size_t steps, size_t slots, size_t rows, uint64_t key);

#endif
