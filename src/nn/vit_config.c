/* config.json of a vision transformer, as transformers writes it, and the sizes that have names. How images are normalized is under
 * "image_mean" and "image_std", as in preprocessor_config.json, which is read, too. */
#include "nn/vit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/image_config.h"

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

ls_status ls__vit_preset(int i, ls_model_options *out, const char **name)
{
    *name = i < PRESETS ? presets[i].name : NULL;
    if (*name && out) out->vit = presets[i].options;
    return LS_OK;
}

/* ---- Writing. */

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
        json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:s, s:o, s:f, s:f, s:i, s:i, s:i, s:b, s:o, s:o, s:s, s:s}",
                  "architectures", "ViTForImageClassification", "model_type", "vit", "hidden_size", o->width,
                  "num_hidden_layers", o->layers, "num_attention_heads", o->heads, "intermediate_size", o->inner,
                  "hidden_act", "gelu", "layer_norm_eps", ls__image_config_number(o->norm_eps), "hidden_dropout_prob",
                  0.0, "attention_probs_dropout_prob", 0.0, "image_size", o->size, "patch_size", o->patch,
                  "num_channels", o->channels, "qkv_bias", 1, "id2label", names, "label2id", numbers_of, "dtype",
                  "float32", "torch_dtype", "float32");
    if (root && o->std[0] > 0) {
        json_object_set_new(root, "image_mean", ls__image_config_list(o->mean, channels));
        json_object_set_new(root, "image_std", ls__image_config_list(o->std, channels));
    }
    *out = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return *out ? LS_OK : ls__fail(LS_ENOMEM, "config.json: out of memory");
}

/* ---- Reading. */

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
        status = ls__image_config_count(name, root, counts[i].key, counts[i].to);
    if (!status && json_is_object(labels)) o->classes = (int)json_object_size(labels);
    if (!status && !o->classes) o->classes = 2; /* as in transformers */
    if (!status && !o->inner) o->inner = 3072;
    if (!status && json_is_number(eps)) o->norm_eps = (float)json_number_value(eps);
    if (!status) status = ls__image_config_channels(name, root, "image_mean", o->mean);
    if (!status) status = ls__image_config_channels(name, root, "image_std", o->std);
    if (!status && ls__vit_check(o)) status = ls__fail_within(LS_EFORMAT, "%s", name);
    return status;
}

ls_status ls__vit_config_parse(const char *name, const char *text, size_t bytes, ls_vit_options *out)
{
    json_t *root;
    ls_vit_options o = { 0 };
    ls_status status = ls__image_config_load(name, text, bytes, &root);
    if (!status) status = read_root(name, root, &o);
    json_decref(root);
    if (!status) *out = o;
    return status;
}

ls_status ls__vit_preprocessor_read(const char *folder, ls_vit_options *o)
{
    char *path, *text = NULL;
    json_t *root = NULL;
    size_t bytes;
    if (asprintf(&path, "%s/preprocessor_config.json", folder) < 0)
        return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    if (access(path, F_OK)) {
        free(path);
        return LS_OK;
    }
    ls_status status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    if (!status) status = ls__image_config_load(path, text, bytes, &root);
    if (!status) status = ls__image_config_channels(path, root, "image_mean", o->mean);
    if (!status) status = ls__image_config_channels(path, root, "image_std", o->std);
    json_decref(root);
    free(text);
    free(path);
    return status;
}
