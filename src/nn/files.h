/* Weights of models as safetensors files. */
#ifndef LS_NN_FILES_H
#define LS_NN_FILES_H

#include "nn/hf_config.h"

/* A flat block and its places. */
typedef struct ls__weights {
    const ls_place *places;
    size_t count;
    float *data;
} ls__weights;

/* Copies the tensors of a safetensors file to their places in the blocks. A tensor that is missing, not expected, or of another
 * shape is LS_EFORMAT with its name and both shapes. names NULL: those of the places. */
LS_MUST_CHECK ls_status ls__weights_read(const char *path, const ls__weights *sets, size_t n_sets,
                                         const ls__weight_names *names);
LS_MUST_CHECK ls_status ls__weights_write(const char *path, const ls__weights *sets, size_t n_sets);

#endif
