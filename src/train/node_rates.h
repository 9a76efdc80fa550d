/* What cores get of a node when one of them computes, and when all do. Predictions need it: ranks that share a node share its
 * memory, caches and power. */
#ifndef LS_TRAIN_NODE_RATES_H
#define LS_TRAIN_NODE_RATES_H

#include "lockstep/comm.h"

typedef struct ls__node_rates {
    double cores;                  /* that the ranks of the node may use together */
    double gemm_one, gemm_all;     /* GFLOP/s of one thread */
    double stream_one, stream_all; /* GB/s that one thread reads and writes when it adds arrays in the caches */
    double memory_one, memory_all; /* and in memory */
    double cache_bytes;            /* of the largest cache that a core has */
} ls__node_rates;

/* Collective over the ranks of the node. The local root measures for a tenth or two of a second while the others wait, or reads what
 * an earlier run of this user measured on the same cores ($XDG_CACHE_HOME/lockstep/node-rates.json). All 0 on the other ranks, or if
 * it cannot be measured. */
LS_MUST_CHECK ls_status ls__node_rates_find(ls_group *node_group, ls__node_rates *out);

#endif
