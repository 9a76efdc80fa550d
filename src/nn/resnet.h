/* What files of ResNet share with its model. */
#ifndef LS_NN_RESNET_H
#define LS_NN_RESNET_H

#include "nn/model.h"

LS_MUST_CHECK ls_status ls__resnet_open(ls_model **out, const ls_resnet_options *options);
/* Fills in defaults and checks. */
LS_MUST_CHECK ls_status ls__resnet_check(ls_resnet_options *options);
/* Channels before the last layer. */
int ls__resnet_features(const ls_resnet_options *options);
/* Multiplications and additions of convolutions in a training step, per image. Options with defaults filled in. */
double ls__resnet_flops(const ls_resnet_options *options);

/* See ls_model_preset(): preset i, from 0. *name is NULL after the last; out may be NULL. */
ls_status ls__resnet_preset(int i, ls_model_options *out, const char **name);
/* The text of a config.json; the caller frees it. */
LS_MUST_CHECK ls_status ls__resnet_config_text(const ls_model *model, char **out);
/* Parses a config.json; `name` is the file's name in messages. On failure *out is unchanged. */
LS_MUST_CHECK ls_status ls__resnet_config_parse(const char *name, const char *text, size_t bytes,
                                                ls_resnet_options *out);

#endif
