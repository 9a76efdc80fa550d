/* See image_config.h. */
#include "nn/image_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/status.h"

ls_status ls__image_config_load(const char *name, const char *text, size_t bytes, json_t **root)
{
    json_error_t error;
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!*root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", name, error.line, error.column, error.text);
    if (json_is_object(*root)) return LS_OK;
    json_decref(*root);
    *root = NULL;
    return ls__fail(LS_EFORMAT, "%s: must be a JSON object", name);
}

ls_status ls__image_config_count(const char *name, const json_t *object, const char *key, int *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LS_OK;
    double number = json_number_value(value);
    if (json_is_array(value))
        return ls__fail(LS_EUNSUPPORTED, "%s: '%s' is a list; only square images are supported", name, key);
    if (!(number >= 1 && number <= INT32_MAX && number == (int)number))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be an integer >= 1", name, key);
    *out = (int)number;
    return LS_OK;
}

ls_status ls__image_config_channels(const char *name, const json_t *object, const char *key, float out[3])
{
    const json_t *list = json_object_get(object, key);
    size_t n = json_array_size(list);
    if (!list || json_is_null(list)) return LS_OK;
    if (!json_is_array(list) || n < 1 || n > 3)
        return ls__fail(LS_EFORMAT, "%s: '%s' must be a list of 1 to 3 numbers", name, key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *item = json_array_get(list, i < n ? i : n - 1);
        float x = (float)json_number_value(item);
        if (!json_is_number(item) || !isfinite(x))
            return ls__fail(LS_EFORMAT, "%s: '%s' must be a list of numbers", name, key);
        out[i] = x;
    }
    return LS_OK;
}

json_t *ls__image_config_number(float x)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)x);
    return json_real(strtod(text, NULL));
}

json_t *ls__image_config_list(const float *x, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, ls__image_config_number(x[i]));
    return list;
}
