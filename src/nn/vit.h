/* What files of vision transformers share with the model. */
#ifndef LS_NN_VIT_H
#define LS_NN_VIT_H

#include "nn/model.h"

/* Fills in defaults and checks. */
LS_MUST_CHECK ls_status ls__vit_check(ls_vit_options *options);
/* Multiplications and additions of matrix products in a training step, per image. */
double ls__vit_flops(const ls_vit_options *options);
/* The text of a config.json; the caller frees it. */
LS_MUST_CHECK ls_status ls__vit_config_text(const ls_model *model, char **out);
/* Parses a config.json; `name` is the file's name in messages. On failure *out is unchanged. */
LS_MUST_CHECK ls_status ls__vit_config_parse(const char *name, const char *text, size_t bytes, ls_vit_options *out);

#endif
