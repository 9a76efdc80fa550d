/* What files of vision transformers share with the model. */
#ifndef LS_NN_VIT_H
#define LS_NN_VIT_H

#include "nn/model.h"

LS_MUST_CHECK ls_status ls__vit_open(ls_model **out, const ls_vit_options *options);
/* Fills in defaults and checks. */
LS_MUST_CHECK ls_status ls__vit_check(ls_vit_options *options);
/* Multiplications and additions of matrix products in a training step, per image. */
double ls__vit_flops(const ls_vit_options *options);
/* See ls__resnet_preset(). */
ls_status ls__vit_preset(int i, ls_model_options *out, const char **name);
/* The text of a config.json; the caller frees it. */
LS_MUST_CHECK ls_status ls__vit_config_text(const ls_model *model, char **out);
/* Parses a config.json; `name` is the file's name in messages. On failure *out is unchanged. */
LS_MUST_CHECK ls_status ls__vit_config_parse(const char *name, const char *text, size_t bytes, ls_vit_options *out);
/* How images are normalized, if the folder has a preprocessor_config.json. */
LS_MUST_CHECK ls_status ls__vit_preprocessor_read(const char *folder, ls_vit_options *options);

#endif
