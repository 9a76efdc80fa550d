/* A random permutation of 0..n-1 as a function: any position in constant time and memory. */
#ifndef LS_DATA_PERMUTE_H
#define LS_DATA_PERMUTE_H

#include "lockstep/base.h"

enum { LS__PERMUTE_ROUNDS = 4 }; /* each mixes both halves */

typedef struct ls__permutation {
    uint64_t n;
    uint64_t a, b; /* n <= a * b < n + a */
    uint64_t keys[2 * LS__PERMUTE_ROUNDS];
} ls__permutation;

/* The permutation of 0..n-1 that (seed, stream) names; 1 <= n <= 2^62. */
void ls__permutation_init(ls__permutation *p, uint64_t n, uint64_t seed, uint64_t stream);
/* The position of i < n. */
uint64_t ls__permute(const ls__permutation *p, uint64_t i);

#endif
