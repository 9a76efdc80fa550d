/* A low-rank update of a linear layer's result, for models with adapters. */
#ifndef LS_TENSOR_LORA_H
#define LS_TENSOR_LORA_H

#include "lockstep/tensor.h"

/* Columns [first, first + out) of the result get scale * b a x. */
typedef struct ls__lora_part {
    ls_param *a;   /* (r, in) */
    ls_param *b;   /* (out, r) */
    int64_t first; /* column */
} ls__lora_part;

typedef struct ls__lora_args {
    ls__lora_part parts[3];
    int count;
    float scale;
    float dropout;                  /* of x, in training */
    ls_activation input_activation; /* of x, as in ls_linear_options */
} ls__lora_args;

/* y plus the updates. y is the result of the layer that has just read x; nothing else may have read it: its memory is reused where that is
 * possible. */
ls_tensor *ls__lora(ls_tape *tape, ls_tensor *x, ls_tensor *y, const ls__lora_args *args);

#endif
