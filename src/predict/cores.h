/* Ranks that share the cores of a node, when there are more of them than cores. */
#ifndef LS_PREDICT_CORES_H
#define LS_PREDICT_CORES_H

#include <stddef.h>
#include <stdint.h>

/* How long `n` tasks that start together take on `cores` cores until the last one is done; task i needs work[i] ns of a core. `seed`: which
 * tasks begin on which core. work[] is used up. */
double ls__share_cores(double *work, int n, int cores, uint64_t seed);

#endif
