/* What the config.json of all models of images has in common. `name` is the file's name in messages. */
#ifndef LS_NN_IMAGE_CONFIG_H
#define LS_NN_IMAGE_CONFIG_H

#include <jansson.h>
#include "lockstep/nn.h"

/* Parses an object. LS_EFORMAT: it is not one. */
LS_MUST_CHECK ls_status ls__image_config_load(const char *name, const char *text, size_t bytes, json_t **root);
/* An integer >= 1; *out is unchanged if the key is absent or null. */
LS_MUST_CHECK ls_status ls__image_config_count(const char *name, const json_t *object, const char *key, int *out);
/* A number per channel, of which the last stands for those that are missing; likewise. */
LS_MUST_CHECK ls_status ls__image_config_channels(const char *name, const json_t *object, const char *key,
                                                  float out[3]);

/* A float with the fewest digits that mean it. */
json_t *ls__image_config_number(float x);
json_t *ls__image_config_list(const float *x, int n);

#endif
