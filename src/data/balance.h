/* Batches of samples of similar length, with equal work for all ranks. Pure. */
#ifndef LS_DATA_BALANCE_H
#define LS_DATA_BALANCE_H

#include "lockstep/base.h"

/* One sample of a window. */
typedef struct ls__weighed {
    uint64_t sample;
    uint64_t length;
    uint64_t place; /* before sorting: equal lengths stay in the window's random order */
} ls__weighed;

/* Reorders the `count` samples of a window so that (step * slots + slot) * rows + row is the sample of that row. If they do
 * not fill the last step, its slots get parts of equal size. `key` decides the order of the steps. `scratch` has room for
 * `count` samples. */
void ls__balance(ls__weighed *samples, ls__weighed *scratch, size_t count, size_t slots, size_t rows, uint64_t key);

#endif
