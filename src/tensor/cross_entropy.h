/* What the two cross-entropy operations share. */
#ifndef LS_TENSOR_CROSS_ENTROPY_H
#define LS_TENSOR_CROSS_ENTROPY_H

#include "tensor/tape.h"

/* Checks the targets of `rows` rows against V classes and computes the divisor; fails the pass if a target is outside.
 */
bool ls__targets_fit(ls_tape *t, const char *op, const ls_cross_entropy_options *o, int64_t rows, int64_t V,
                     double *divisor);

/* Replaces a row of logits by softmax * sum, where sum is that of exp(logit - maximum), and returns the sum. *loss is the row's loss. */
float ls__softmax_row(float *row, int64_t V, int32_t target, float *loss);

/* Notes the class of largest logit of row number r, if it is wanted; of several, the first. To be called before ls__softmax_row(). */
void ls__predict_row(const ls_cross_entropy_options *o, const float *row, int64_t V, int64_t r);

/* The weighted sum of the rows' losses in order, divided by the divisor; copies them to o->row_losses unless it is NULL. */
float ls__sum_losses(const ls_cross_entropy_options *o, const float *losses, int64_t rows, double divisor);

static inline float ls__row_weight(const ls_cross_entropy_options *o, int64_t row)
{
    return o->weights ? o->weights[row] : 1.0f;
}

#endif
