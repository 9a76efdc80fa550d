/* Several arrays become one: the heart of every reducing collective.
 *
 * Order  Values are combined in the canonical tree, tree(n) = tree(m) + tree(n - m) with m the largest power of two
 *        below n, whatever the length, the alignment and the CPU: every version gives the same bits. (When several
 *        inputs are NaN, which one's payload a sum keeps is left open; that it is a NaN is not.)
 * Types  bfloat16 and float16 are combined in float32 and rounded once, to nearest even. Integer sums and products wrap around.
 *        LS_MEAN multiplies the finished sum by 1/p (in float32; in float64 for float64); for integers the sum does
 *        not overflow and is divided by p, towards zero.
 *        LS_MIN and LS_MAX: a NaN in any input gives a NaN; of equal values (-0 and +0) the first is kept.
 *        Bitwise operations are for integers and bool; of floating-point types they keep the first value.
 *        One input alone is copied as it is. */
#ifndef LS_KERN_REDUCE_H
#define LS_KERN_REDUCE_H

#include <stdbool.h>
#include "lockstep/base.h"

static inline bool ls__is_floating(ls_dtype type)
{
    return type == LS_F32 || type == LS_F64 || type == LS_BF16 || type == LS_F16;
}
/* What a reduction means for values that are 0 or 1, so that the result is, too. */
static inline ls_op ls__bool_op(ls_op op)
{
    return op == LS_SUM ? LS_OR : op == LS_PROD ? LS_AND : op;
}

/* out[k][i] = in[0][i] op ... op in[p-1][i] for all i < count and k < outs; p >= 1, outs >= 0. Pointers are aligned to
 * the element. An output may be the same memory as an input; other overlaps are not allowed. `stream`: the outputs will
 * not be read soon and may go past the cache; it is a hint that is followed where it pays (see fast.inc). */
void ls__reduce_arrays(ls_dtype type, ls_op op, void *const *out, int outs, const void *const *in, int p, size_t count,
                       bool stream);

/* The same in plain C, one element at a time; `stream` is ignored. */
void ls__reduce_reference(ls_dtype type, ls_op op, void *const *out, int outs, const void *const *in, int p,
                          size_t count, bool stream);

#endif
