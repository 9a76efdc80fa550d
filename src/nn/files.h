/* Files of models: Hugging Face's config.json for GPT-2, and weights as safetensors. */
#ifndef LS_NN_FILES_H
#define LS_NN_FILES_H

#include <stdbool.h>
#include "lockstep/nn.h"

/* Settings that a config.json asks for. Broken ones are LS_EFORMAT, other kinds of model LS_EUNSUPPORTED; *out is then
 * unchanged. `name` is what messages call the text. */
LS_MUST_CHECK ls_status ls__hf_config_parse(const char *name, const char *text, size_t bytes, ls_gpt2_options *out);
LS_MUST_CHECK ls_status ls__hf_config_read(const char *path, ls_gpt2_options *out);
/* The text of a config.json; the caller frees it. `base` is that of the folder that the model came from, or NULL: all of it stays
 * but what is no longer true. `end` is the token that ends a text; < 0: none, LS__END_DEFAULT: not known. */
LS_MUST_CHECK ls_status ls__hf_config_text(const char *base, const ls_gpt2_options *options, int32_t end, char **out);
/* Whether a config.json names tokens that end a text, and not this one. */
bool ls__hf_config_has_other_end(const char *text, int32_t end);

/* A flat block and what lies where in it. */
typedef struct ls__weights {
    const ls_place *places;
    size_t count;
    float *data;
} ls__weights;

/* Copies the tensors of a safetensors file to their places in the sets' blocks. Names may have "transformer." in front;
 * masks and a copy of the tied output projection are skipped. A tensor that is missing, that nobody asked for, or that
 * has another shape is LS_EFORMAT with its name and both shapes. */
LS_MUST_CHECK ls_status ls__weights_read(const char *path, const ls__weights *sets, size_t n_sets);
LS_MUST_CHECK ls_status ls__weights_write(const char *path, const ls__weights *sets, size_t n_sets);

#endif
