/* Sums over rows that do not depend on the number of threads. */
#ifndef LS_TENSOR_ROWS_H
#define LS_TENSOR_ROWS_H

#include "tensor/tape.h"
#include "base/arith.h"
#include "kern/nn.h"

/* Rows of a block, which are summed in order. The sums of blocks are then added in order. */
enum { LS__ROW_BLOCK = 64 };
/* Fewer elements than this are processed by one thread. */
enum { LS__WORTH_THREADS = 1 << 14 };

static inline int64_t ls__row_blocks(int64_t rows)
{
    return (rows + LS__ROW_BLOCK - 1) / LS__ROW_BLOCK;
}

/* out[c] = (add: out[c] +) the sum of partial[b * stride + c] over the blocks b. */
void ls__fold_blocks(const ls_tape *t, float *out, bool add, const float *partial, int64_t blocks, int64_t stride,
                     int64_t cols);
/* out[c] = (add: out[c] +) the sum over rows of x[r * cols + c]. */
ls_status ls__column_sums(ls_tape *t, float *out, bool add, const float *x, int64_t rows, int64_t cols);

#endif
