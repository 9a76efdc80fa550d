/* Weights of models as safetensors files. */
#ifndef LS_NN_FILES_H
#define LS_NN_FILES_H

#include "nn/hf_config.h"

/* A flat block and its places. */
typedef struct ls__weights {
    const ls_place *places;
    size_t count;
    float *data;
    /* the places are this model's frozen ones, some in bfloat16 (ls__frozen_at()); NULL: they are in `data` */
    const ls_model *frozen;
} ls__weights;

/* The files that an index of weights names, each once. */
typedef struct ls__shards {
    char **paths;
    size_t count;
} ls__shards;

/* Reads an index (model.safetensors.index.json); its files must exist in `folder`. On failure *out is empty. */
LS_MUST_CHECK ls_status ls__shards_read(const char *index, const char *folder, ls__shards *out);
/* The same from its text; `index` is its name in messages. */
LS_MUST_CHECK ls_status ls__shards_parse(const char *index, const char *folder, const char *text, size_t bytes,
                                         ls__shards *out);
void ls__shards_free(ls__shards *shards);

/* Copies the tensors of safetensors files to their places in the blocks. A tensor that is missing, not expected, there twice, of
 * another shape, or not finite is LS_EFORMAT with its name and both shapes, or the element. `name` is that of the whole in
 * messages. names NULL: those of the places. */
LS_MUST_CHECK ls_status ls__weights_read(const char *name, const char *const *paths, size_t n_paths,
                                         const ls__weights *sets, size_t n_sets, const ls__weight_names *names);
LS_MUST_CHECK ls_status ls__weights_write(const char *path, const ls__weights *sets, size_t n_sets);

#endif
