/* Sizes of ResNets by name, and config.json.
 *
 * The file has the form of timm's, whose ResNets have torchvision's tensor names: "architecture", "num_classes", and in
 * "pretrained_cfg" how images are prepared ("input_size", "mean", "std"). Sizes that no name has are in an object "resnet" of our
 * own, which overrides what the name says. */
#include "nn/resnet.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"

enum { MAX_CONFIG = 1 << 20 };

static const struct {
    const char *name;
    ls_resnet_options options;
} presets[] = {
    { "resnet20", { .blocks = { 3, 3, 3 } } },
    { "resnet32", { .blocks = { 5, 5, 5 } } },
    { "resnet44", { .blocks = { 7, 7, 7 } } },
    { "resnet56", { .blocks = { 9, 9, 9 } } },
    { "resnet110", { .blocks = { 18, 18, 18 } } },
    { "resnet18", { .blocks = { 2, 2, 2, 2 }, .stem = true } },
    { "resnet34", { .blocks = { 3, 4, 6, 3 }, .stem = true } },
    { "resnet50", { .blocks = { 3, 4, 6, 3 }, .stem = true, .bottleneck = true } },
    { "resnet101", { .blocks = { 3, 4, 23, 3 }, .stem = true, .bottleneck = true } },
    { "resnet152", { .blocks = { 3, 8, 36, 3 }, .stem = true, .bottleneck = true } },
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *ls_resnet_names(void)
{
    return "resnet20, resnet32, resnet44, resnet56, resnet110, resnet18, resnet34, resnet50, resnet101, resnet152";
}

ls_status ls_resnet_preset(const char *name, ls_resnet_options *out)
{
    LS__NEED(name, "name");
    LS__NEED(out, "out");
    for (size_t i = 0; i < PRESETS; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *out = presets[i].options;
            return LS_OK;
        }
    return ls__fail(LS_EINVAL, "unknown model '%.60s'; known are %s", name, ls_resnet_names());
}

/* The name of these sizes; NULL: they have none. */
static const char *name_of(const ls_resnet_options *o)
{
    for (size_t i = 0; i < PRESETS; i++) {
        const ls_resnet_options *p = &presets[i].options;
        int width = p->stem ? 64 : 16;
        if (memcmp(o->blocks, p->blocks, sizeof o->blocks) == 0 && o->stem == p->stem &&
            o->bottleneck == p->bottleneck && o->width == width)
            return presets[i].name;
    }
    return NULL;
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

ls_status ls__resnet_config_text(const ls_model *m, char **out)
{
    const ls_resnet_options *o = &m->resnet;
    const char *name = name_of(o);
    int channels = o->channels < 3 ? o->channels : 3;
    json_t *root = json_pack("{s:s, s:i, s:i}", "architecture", name ? name : "resnet", "num_classes", o->classes,
                             "num_features", ls__resnet_features(o));
    json_t *prepare = json_pack("{s:[i,i,i]}", "input_size", o->channels, o->size, o->size);
    if (o->std[0] > 0) {
        json_object_set_new(prepare, "mean", numbers(o->mean, channels));
        json_object_set_new(prepare, "std", numbers(o->std, channels));
    }
    json_object_set_new(root, "pretrained_cfg", prepare);
    json_t *own =
        json_pack("{s:[], s:i, s:b, s:b}", "blocks", "width", o->width, "bottleneck", o->bottleneck, "stem", o->stem);
    for (int i = 0; i < LS_RESNET_STAGES && o->blocks[i]; i++)
        json_array_append_new(json_object_get(own, "blocks"), json_integer(o->blocks[i]));
    json_object_set_new(root, "resnet", own);
    *out = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return *out ? LS_OK : ls__fail(LS_ENOMEM, "config.json: out of memory");
}

/* ---- Reading. */

static ls_status get_count(const char *name, const json_t *object, const char *key, int *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LS_OK;
    double number = json_number_value(value);
    if (!(number >= 1 && number <= INT32_MAX && number == (int)number))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be an integer >= 1", name, key);
    *out = (int)number;
    return LS_OK;
}

static ls_status get_flag(const char *name, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LS_OK;
    if (!json_is_boolean(value)) return ls__fail(LS_EFORMAT, "%s: '%s' must be true or false", name, key);
    *out = json_boolean_value(value);
    return LS_OK;
}

static ls_status get_numbers(const char *name, const json_t *object, const char *key, float out[3])
{
    const json_t *list = json_object_get(object, key);
    size_t n = json_array_size(list);
    if (!list || json_is_null(list)) return LS_OK;
    if (!json_is_array(list) || n < 1 || n > 3)
        return ls__fail(LS_EFORMAT, "%s: '%s' must be a list of 1 to 3 numbers", name, key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *item = json_array_get(list, i < n ? i : n - 1);
        if (!json_is_number(item)) return ls__fail(LS_EFORMAT, "%s: '%s' must be a list of numbers", name, key);
        out[i] = (float)json_number_value(item);
    }
    return LS_OK;
}

/* [channels, height, width] */
static ls_status get_size(const char *name, const json_t *object, ls_resnet_options *o)
{
    const json_t *list = json_object_get(object, "input_size");
    int value[3];
    if (!list || json_is_null(list)) return LS_OK;
    for (size_t i = 0; i < 3; i++) {
        double number = json_number_value(json_array_get(list, i));
        if (json_array_size(list) != 3 || !(number >= 1 && number <= 1 << 14 && number == (int)number))
            return ls__fail(LS_EFORMAT, "%s: 'input_size' must be channels, height and width", name);
        value[i] = (int)number;
    }
    if (value[1] != value[2])
        return ls__fail(LS_EUNSUPPORTED, "%s: 'input_size' is %d x %d; only square images are supported", name,
                        value[1], value[2]);
    o->channels = value[0];
    o->size = value[1];
    return LS_OK;
}

static ls_status get_blocks(const char *name, const json_t *own, ls_resnet_options *o)
{
    const json_t *list = json_object_get(own, "blocks");
    size_t n = json_array_size(list);
    if (!list || json_is_null(list)) return LS_OK;
    if (!json_is_array(list) || n < 1 || n > LS_RESNET_STAGES)
        return ls__fail(LS_EFORMAT, "%s: 'blocks' must be a list of 1 to %d numbers", name, LS_RESNET_STAGES);
    for (size_t i = 0; i < LS_RESNET_STAGES; i++) {
        double number = i < n ? json_number_value(json_array_get(list, i)) : 0;
        if (i < n && !(number >= 1 && number <= 1000 && number == (int)number))
            return ls__fail(LS_EFORMAT, "%s: 'blocks' must be integers from 1 to 1000", name);
        o->blocks[i] = (int)number;
    }
    return LS_OK;
}

static ls_status read_root(const char *name, const json_t *root, ls_resnet_options *o)
{
    const char *architecture = json_string_value(json_object_get(root, "architecture"));
    const json_t *own = json_object_get(root, "resnet"), *prepare = json_object_get(root, "pretrained_cfg");
    ls_status status = LS_OK;
    if (!architecture)
        return ls__fail(LS_EUNSUPPORTED, "%s: there is no 'architecture', so this is not a model of images", name);
    if (!own && (status = ls_resnet_preset(architecture, o))) return ls__fail_within(LS_EUNSUPPORTED, "%s", name);
    if (!status) status = get_count(name, root, "num_classes", &o->classes);
    if (!status) status = get_size(name, prepare, o);
    if (!status) status = get_numbers(name, prepare, "mean", o->mean);
    if (!status) status = get_numbers(name, prepare, "std", o->std);
    if (!status) status = get_blocks(name, own, o);
    if (!status) status = get_count(name, own, "width", &o->width);
    if (!status) status = get_flag(name, own, "bottleneck", &o->bottleneck);
    if (!status) status = get_flag(name, own, "stem", &o->stem);
    if (!status && ls__resnet_check(o)) status = ls__fail_within(LS_EFORMAT, "%s", name);
    return status;
}

ls_status ls__resnet_config_parse(const char *name, const char *text, size_t bytes, ls_resnet_options *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", name, error.line, error.column, error.text);
    ls_resnet_options o = { 0 };
    ls_status status =
        json_is_object(root) ? read_root(name, root, &o) : ls__fail(LS_EFORMAT, "%s: must be a JSON object", name);
    json_decref(root);
    if (!status) *out = o;
    return status;
}

ls_status ls_resnet_options_read(const char *folder, ls_resnet_options *out)
{
    LS__NEED(folder, "folder");
    LS__NEED(out, "out");
    char *path, *text = NULL;
    size_t bytes;
    if (asprintf(&path, "%s/config.json", folder) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    ls_status status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    if (!status) status = ls__resnet_config_parse(path, text, bytes, out);
    free(text);
    free(path);
    return status;
}
