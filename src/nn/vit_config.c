/* config.json of a vision transformer, as transformers writes it, and the sizes that have names. How images are normalized is under
 * "image_mean" and "image_std", as in preprocessor_config.json, which is read, too. */
#include "nn/vit.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

enum { MAX_CONFIG = 1 << 20 };

/* ---- Names. */

static const struct {
    const char *name;
    ls_vit_options options;
} presets[] = {
    { "vit", { .layers = 4, .width = 128, .heads = 4, .patch = 4 } },
    { "vit-tiny", { .layers = 12, .width = 192, .heads = 3, .patch = 16 } },
    { "vit-small", { .layers = 12, .width = 384, .heads = 6, .patch = 16 } },
    { "vit-base", { .layers = 12, .width = 768, .heads = 12, .patch = 16 } },
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *ls_vit_names(void)
{
    return "vit, vit-tiny, vit-small, vit-base";
}

ls_status ls_vit_preset(const char *name, ls_vit_options *out)
{
    LS__NEED(name, "name");
    LS__NEED(out, "out");
    for (int i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, name)) {
            *out = presets[i].options;
            return LS_OK;
        }
    return ls__fail(LS_EINVAL, "'%.60s' is not a vision transformer; there are %s", name, ls_vit_names());
}

/* ---- Writing. */

static json_t *numbers(const float *x, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.7g", (double)x[i]);
        json_array_append_new(list, json_real(strtod(text, NULL)));
    }
    return list;
}

static double shortest(float x)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)x);
    return strtod(text, NULL);
}

ls_status ls__vit_config_text(const ls_model *m, char **out)
{
    const ls_vit_options *o = &m->vit;
    int channels = o->channels < 3 ? o->channels : 3;
    json_t *names = json_object(), *numbers_of = json_object();
    for (int i = 0; i < o->classes; i++) {
        char number[16], label[32];
        snprintf(number, sizeof number, "%d", i);
        snprintf(label, sizeof label, "LABEL_%d", i);
        json_object_set_new(names, number, json_string(label));
        json_object_set_new(numbers_of, label, json_integer(i));
    }
    json_t *root =
        json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:i, s:i, s:i, s:b, s:o, s:o, s:s, s:s}",
                  "architectures", "ViTForImageClassification", "model_type", "vit", "hidden_size", o->width,
                  "num_hidden_layers", o->layers, "num_attention_heads", o->heads, "intermediate_size", o->inner,
                  "hidden_act", "gelu", "layer_norm_eps", shortest(o->norm_eps), "hidden_dropout_prob", 0.0,
                  "attention_probs_dropout_prob", 0.0, "image_size", o->size, "patch_size", o->patch, "num_channels",
                  o->channels, "qkv_bias", 1, "id2label", names, "label2id", numbers_of, "dtype", "float32",
                  "torch_dtype", "float32");
    if (root && o->std[0] > 0) {
        json_object_set_new(root, "image_mean", numbers(o->mean, channels));
        json_object_set_new(root, "image_std", numbers(o->std, channels));
    }
    *out = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return *out ? LS_OK : ls__fail(LS_ENOMEM, "config.json: out of memory");
}

/* ---- Reading. */

static ls_status get_count(const char *name, const json_t *root, const char *key, int *out)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return LS_OK;
    double number = json_number_value(value);
    if (json_is_array(value))
        return ls__fail(LS_EUNSUPPORTED, "%s: '%s' is a list; only square images are supported", name, key);
    if (!(number >= 1 && number <= INT32_MAX && number == (int)number))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be an integer >= 1", name, key);
    *out = (int)number;
    return LS_OK;
}

static ls_status get_three(const char *name, const json_t *root, const char *key, float out[3])
{
    const json_t *list = json_object_get(root, key);
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

/* What would change the result and is not computed. */
static ls_status refuse_others(const char *name, const json_t *root)
{
    const char *kind = json_string_value(json_object_get(root, "model_type"));
    const char *act = json_string_value(json_object_get(root, "hidden_act"));
    if (!kind || strcmp(kind, "vit") != 0)
        return ls__fail(LS_EUNSUPPORTED, "%s: 'model_type' is '%.60s', not 'vit'", name, kind ? kind : "");
    if (act && strcmp(act, "gelu") != 0)
        return ls__fail(LS_EUNSUPPORTED, "%s: 'hidden_act' is '%.60s'; only 'gelu' is supported", name, act);
    if (json_is_false(json_object_get(root, "qkv_bias")))
        return ls__fail(LS_EUNSUPPORTED, "%s: 'qkv_bias' is false, which is not supported", name);
    static const char *const dropouts[] = { "hidden_dropout_prob", "attention_probs_dropout_prob" };
    for (int i = 0; i < 2; i++)
        if (json_number_value(json_object_get(root, dropouts[i])) != 0)
            return ls__fail(LS_EUNSUPPORTED, "%s: '%s' is not 0; dropout in a vision transformer is not supported",
                            name, dropouts[i]);
    return LS_OK;
}

static ls_status read_root(const char *name, const json_t *root, ls_vit_options *o)
{
    const json_t *labels = json_object_get(root, "id2label"), *eps = json_object_get(root, "layer_norm_eps");
    ls_status status = refuse_others(name, root);
    const struct {
        const char *key;
        int *to;
    } counts[] = { { "hidden_size", &o->width },         { "num_hidden_layers", &o->layers },
                   { "num_attention_heads", &o->heads }, { "intermediate_size", &o->inner },
                   { "image_size", &o->size },           { "patch_size", &o->patch },
                   { "num_channels", &o->channels },     { "num_labels", &o->classes } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !status; i++)
        status = get_count(name, root, counts[i].key, counts[i].to);
    if (!status && json_is_object(labels)) o->classes = (int)json_object_size(labels);
    if (!status && !o->classes) o->classes = 2; /* as in transformers */
    if (!status && !o->inner) o->inner = 3072;
    if (!status && json_is_number(eps)) o->norm_eps = (float)json_number_value(eps);
    if (!status) status = get_three(name, root, "image_mean", o->mean);
    if (!status) status = get_three(name, root, "image_std", o->std);
    if (!status && ls__vit_check(o)) status = ls__fail_within(LS_EFORMAT, "%s", name);
    return status;
}

ls_status ls__vit_config_parse(const char *name, const char *text, size_t bytes, ls_vit_options *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", name, error.line, error.column, error.text);
    ls_vit_options o = { 0 };
    ls_status status =
        json_is_object(root) ? read_root(name, root, &o) : ls__fail(LS_EFORMAT, "%s: must be a JSON object", name);
    json_decref(root);
    if (!status) *out = o;
    return status;
}

/* Only how images are normalized. */
static ls_status read_preprocessor(const char *folder, ls_vit_options *o)
{
    char *path, *text = NULL;
    size_t bytes;
    json_error_t error;
    if (asprintf(&path, "%s/preprocessor_config.json", folder) < 0)
        return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    if (access(path, F_OK)) {
        free(path);
        return LS_OK;
    }
    ls_status status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    json_t *root = status ? NULL : json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error);
    if (!status && !json_is_object(root))
        status = ls__fail(LS_EFORMAT, "%s: line %d: %s", path, root ? 1 : error.line,
                          root ? "must be a JSON object" : error.text);
    if (!status) status = get_three(path, root, "image_mean", o->mean);
    if (!status) status = get_three(path, root, "image_std", o->std);
    json_decref(root);
    free(text);
    free(path);
    return status;
}

ls_status ls_vit_options_read(const char *folder, ls_vit_options *out)
{
    LS__NEED(folder, "folder");
    LS__NEED(out, "out");
    char *path, *text = NULL;
    size_t bytes;
    if (asprintf(&path, "%s/config.json", folder) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    ls_status status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    if (!status) status = ls__vit_config_parse(path, text, bytes, out);
    if (!status) status = read_preprocessor(folder, out);
    free(text);
    free(path);
    return status;
}
