/* Models of all kinds: opening, sizes by name, and the options of a folder. */
#include "lockstep/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/lora.h"
#include "nn/resnet.h"
#include "nn/vit.h"

enum {
    MAX_CONFIG = 1 << 20,
    MAX_DEPTH = 8, /* adapters of adapters */
};

/* ---- Sizes by name. */

static ls_status no_preset(int i, ls_model_options *out, const char **name)
{
    (void)i, (void)out;
    *name = NULL;
    return LS_OK;
}

/* Preset i of each kind: its name, or NULL after the last; if `out` is not NULL also its options. */
static ls_status (*const presets[LS_MODEL_KINDS])(int i, ls_model_options *out, const char **name) = {
    [LS_MODEL_LM] = ls__lm_preset,
    [LS_MODEL_RESNET] = ls__resnet_preset,
    [LS_MODEL_VIT] = ls__vit_preset,
    [LS_MODEL_MLP] = no_preset,
};

const char *ls_model_preset_name(ls_model_kind kind, int i)
{
    const char *name = NULL;
    if ((unsigned)kind < LS_MODEL_KINDS && i >= 0 && presets[kind](i, NULL, &name)) return NULL;
    return name;
}

ls_status ls_model_preset(const char *name, ls_model_options *out)
{
    LS__NEED(name, "name");
    LS__NEED(out, "out");
    char known[1024] = "";
    for (int kind = 0; kind < LS_MODEL_KINDS; kind++) {
        const char *other;
        for (int i = 0; (other = ls_model_preset_name((ls_model_kind)kind, i)); i++) {
            if (strcmp(name, other) == 0) {
                *out = (ls_model_options){ .kind = (ls_model_kind)kind };
                return presets[kind](i, out, &other);
            }
            size_t at = strlen(known);
            snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", other);
        }
    }
    return ls__fail(LS_EINVAL, "unknown model '%.60s'; known models: %s", name, known);
}

/* ---- Opening. */

ls_status ls_model_open(ls_model **out, const ls_model_options *options)
{
    LS__NEED(out, "out");
    static const ls_model_options defaults;
    const ls_model_options *o = options ? options : &defaults;
    ls_status status;
    *out = NULL;
    switch (o->kind) {
    case LS_MODEL_LM: status = ls__lm_open(out, &o->lm); break;
    case LS_MODEL_RESNET: status = ls__resnet_open(out, &o->resnet); break;
    case LS_MODEL_VIT: status = ls__vit_open(out, &o->vit); break;
    case LS_MODEL_MLP: status = ls__mlp_open(out, &o->mlp); break;
    default: return ls__fail(LS_EINVAL, "model: invalid kind %d", (int)o->kind);
    }
    if (!status && o->lora.r) status = ls__model_add_lora(*out, &o->lora);
    if (status) ls_model_free(out);
    return status;
}

ls_model_options ls_model_get_options(const ls_model *m)
{
    ls_model_options o = { .kind = m->type->kind, .lora = m->lora.options };
    switch (o.kind) {
    case LS_MODEL_LM: o.lm = m->lm; break;
    case LS_MODEL_RESNET: o.resnet = m->resnet; break;
    case LS_MODEL_VIT: o.vit = m->vit; break;
    case LS_MODEL_MLP: o.mlp = m->mlp; break;
    }
    return o;
}

/* ---- Options of a folder. */

ls_status ls__model_find_whole(const char *folder, char **out)
{
    char *at = strdup(folder), *base = NULL;
    ls_status status = at ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    for (int depth = 0; !status && depth <= MAX_DEPTH; depth++) {
        status = ls__lora_find_base(at, &base);
        if (status || !base) break;
        free(at);
        at = base;
    }
    *out = at;
    return status;
}

/* transformers names the kind of a model "model_type"; timm has an "architecture" instead. */
static ls_model_kind kind_of(const char *text, size_t bytes)
{
    json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, NULL);
    const json_t *type = json_object_get(root, "model_type");
    ls_model_kind kind = LS_MODEL_LM;
    if (!type && json_object_get(root, "architecture")) kind = LS_MODEL_RESNET;
    if (json_is_string(type) && !strcmp(json_string_value(type), "vit")) kind = LS_MODEL_VIT;
    json_decref(root);
    return kind;
}

ls_status ls_model_options_read(const char *folder, ls_model_options *out)
{
    LS__NEED(folder, "folder");
    LS__NEED(out, "out");
    ls_model_options o = { 0 };
    char *whole = NULL, *path = NULL, *text = NULL;
    size_t bytes;
    ls_status status = ls__model_find_whole(folder, &whole);
    if (!status && strcmp(whole, folder) != 0) status = ls__lora_read(folder, &o.lora);
    if (!status && asprintf(&path, "%s/config.json", whole) < 0)
        status = ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    if (!status) status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    if (!status) {
        o.kind = kind_of(text, bytes);
        if (o.kind == LS_MODEL_RESNET)
            status = ls__resnet_config_parse(path, text, bytes, &o.resnet);
        else if (o.kind == LS_MODEL_VIT)
            status = ls__vit_config_parse(path, text, bytes, &o.vit);
        else
            status = ls__hf_config_parse(path, text, bytes, &o.lm);
    }
    if (!status && o.kind == LS_MODEL_VIT) status = ls__vit_preprocessor_read(folder, &o.vit);
    if (!status) *out = o;
    free(text);
    free(path);
    free(whole);
    return status;
}

ls_status ls__lm_options_read(const char *folder, ls_lm_options *out)
{
    ls_model_options o;
    ls_status status = ls_model_options_read(folder, &o);
    if (status) return status;
    if (o.kind != LS_MODEL_LM)
        return ls__fail(LS_EUNSUPPORTED, "%s/config.json: is a model of images; this needs a language model", folder);
    *out = o.lm;
    return LS_OK;
}
