/* Dropout masks, for ls_dropout() and ls_attention(). */
#ifndef LS_TENSOR_DROPOUT_H
#define LS_TENSOR_DROPOUT_H

#include "tensor/tape.h"

typedef struct ls__dropout_mask {
    uint64_t seed, stream;
    uint32_t threshold; /* an element is kept if its random number is >= this */
    float scale;
} ls__dropout_mask;

/* The next dropout of the pass, with its own random stream. */
ls__dropout_mask ls__dropout_next(ls_tape *t, float p);
/* out[i] = x[i] * scale if element first + i is kept, else 0. out may be x. */
void ls__dropout_apply(const ls__dropout_mask *d, float *out, const float *x, size_t n, uint64_t first);

#endif
