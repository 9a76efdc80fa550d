/* Adapters of a language model (LoRA): its own parameters are frozen, and products of two small matrices are added to chosen weights.
 *
 * The model's flat block then holds the adapters: what trains, sums, saves and resumes parameters sees no others. The model's own
 * are in a second block, without gradients. */
#ifndef LS_NN_LORA_H
#define LS_NN_LORA_H

#include "nn/model.h"

/* Reads "r=16,alpha=32,dropout=0.05,target=q_proj+v_proj,rslora,base=bf16"; what is left out is r 16, alpha 2 r, all layers. */
LS_MUST_CHECK ls_status ls__lora_parse(const char *text, ls_lora_options *out);
/* Adds adapters to a language model before it is bound. */
LS_MUST_CHECK ls_status ls__model_add_lora(ls_model *model, const ls_lora_options *options);

/* How many parameters of the model are frozen; they come first in ls_model_params(). 0 without adapters. */
size_t ls__model_frozen(const ls_model *model);
/* Elements of the frozen values; the bytes of their block, and the memory for it, before ls_model_bind(): user-owned, aligned to 64
 * bytes. */
size_t ls__model_frozen_elements(const ls_model *model);
size_t ls__model_frozen_bytes(const ls_model *model);
/* Where frozen parameter i is: in float32 or in bfloat16; the other is NULL. */
void ls__frozen_at(const ls_model *model, size_t i, float **full, const uint16_t **half);
void ls__model_bind_frozen(ls_model *model, float *values);

/* Layers of a block with their adapters, if there are some: as ls_linear() and ls_linear_joint() (always transposed). */
ls_tensor *ls__lm_linear(const ls_model *model, ls_tape *tape, ls_tensor *x, ls_param *w, ls_param *b,
                         const ls_linear_options *options);
ls_tensor *ls__lm_joint(const ls_model *model, ls_tape *tape, ls_tensor *x, ls_param *const *w, ls_param *const *b,
                        int count);
/* The adapters of neighbouring parameters: the first, or NULL; *count is their number of parameters. */
ls_param *ls__lora_params(const ls_model *model, const ls_param *params, int n_params, int *count);
void ls__lora_free(ls_model *model);

/* Whether adapters have the same form, apart from dropout. */
bool ls__lora_is_same(const ls_lora_options *a, const ls_lora_options *b);

/* ---- lora_files.c: PEFT's folders. */

/* The text of an adapter_config.json; `path` is for messages. *base is the folder or name of the model that it belongs to, for the
 * caller to free. Other kinds of adapters are LS_EUNSUPPORTED with what is supported. */
LS_MUST_CHECK ls_status ls__lora_parse_config(const char *path, const char *text, size_t bytes, ls_lora_options *out,
                                              char **base);
/* The options in a folder's adapter_config.json. LS_ENOENT: it has none. */
LS_MUST_CHECK ls_status ls__lora_read(const char *folder, ls_lora_options *out);
/* The folder of the model that an adapter belongs to, for the caller to free; NULL if `folder` holds no adapter. */
LS_MUST_CHECK ls_status ls__lora_find_base(const char *folder, char **base);
/* Reads the adapter in a folder into a model that has adapters of the same form. */
LS_MUST_CHECK ls_status ls__lora_load(ls_model *model, const char *folder);
/* Adds the adapter in a folder to the weights of a model that has none. */
LS_MUST_CHECK ls_status ls__lora_merge(ls_model *model, const char *folder);
LS_MUST_CHECK ls_status ls__lora_save(const ls_model *model, const char *folder);

#endif
