/* Adding up micro-batches in canonical order, tree(n) = tree(m) + tree(n - m) with m the largest power of two below n.
 *
 * A binary counter of partial sums: level k holds the sum of 2^k micro-batches, if bit k of the number of micro-batches
 * so far is set. A new gradient carries through the occupied levels like an addition of 1; at the end the rest is
 * added from the low levels up. Each span is added by itself, when it is ready and in the cache. */
#ifndef LS_DDP_COUNTER_H
#define LS_DDP_COUNTER_H

#include "lockstep/base.h"

enum { LS__COUNTER_LEVELS = 24 };

typedef struct ls__counter {
    float *level[LS__COUNTER_LEVELS];  /* flat blocks of `total` elements, allocated when first needed */
    double weight[LS__COUNTER_LEVELS]; /* the weights of the same micro-batches */
    size_t total;
    int given; /* levels below this are not the counter's own memory */
} ls__counter;

/* Allocates for one more micro-batch after `before` of them. */
LS_MUST_CHECK ls_status ls__counter_reserve(ls__counter *c, uint32_t before);
/* Adds [begin, begin + count) of micro-batch number `before` (counted from 0); `grad` is that part. */
void ls__counter_add(ls__counter *c, uint32_t before, size_t begin, const float *grad, size_t count);
/* out = everything added so far plus the last micro-batch's `grad`. out may be grad. */
void ls__counter_finish(const ls__counter *c, uint32_t before, size_t begin, const float *grad, float *out,
                        size_t count);
/* The same for the micro-batch's weight. Both return the weight of the sum that they have written. */
double ls__counter_add_weight(ls__counter *c, uint32_t before, double weight);
double ls__counter_finish_weight(const ls__counter *c, uint32_t before, double weight);
void ls__counter_free(ls__counter *c);

#endif
