/* The global norm of a flat block, in an order that is fixed by the block's size: one sum of squares for every LS__NORM_BLOCK
 * elements, then a tree over those sums. Ranks that own ranges on block borders can compute their sums in parallel; any rank
 * that has all sums can compute the total. */
#ifndef LS_NN_NORM_H
#define LS_NN_NORM_H

#include <stddef.h>

#define LS__NORM_BLOCK 4096

/* Number of sums for `count` elements. */
size_t ls__norm_blocks(size_t count);
/* sums[b] for each block b of x[begin..end); `begin` is a multiple of LS__NORM_BLOCK, `end` one too or the end of x. threads 0:
 * OpenMP's default. */
void ls__norm_sums(const float *x, size_t begin, size_t end, double *sums, int threads);
/* The norm from all sums. */
double ls__norm_total(const double *sums, size_t blocks);
/* The factor that makes the norm of gradients at most `max_norm`; 1 if `max_norm` <= 0. */
float ls__clip_scale(double norm, double max_norm);

#endif
