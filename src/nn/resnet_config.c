/* Sizes of ResNets by name, and config.json.
 *
 * The file has the form of timm's, whose ResNets have torchvision's tensor names: "architecture", "num_classes", and in
 * "pretrained_cfg" how images are prepared ("input_size", "mean", "std"). Sizes that no name has are in an object "resnet" of our
 * own, which overrides what the name says. */
#include "nn/resnet.h"

#include <string.h>
#include "base/status.h"
#include "nn/image_config.h"

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

ls_status ls__resnet_preset(int i, ls_model_options *out, const char **name)
{
    *name = i < PRESETS ? presets[i].name : NULL;
    if (*name && out) out->resnet = presets[i].options;
    return LS_OK;
}

static bool find_preset(const char *name, ls_resnet_options *out)
{
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *out = presets[i].options;
            return true;
        }
    return false;
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

ls_status ls__resnet_config_text(const ls_model *m, char **out)
{
    const ls_resnet_options *o = &m->resnet;
    const char *name = name_of(o);
    int channels = o->channels < 3 ? o->channels : 3;
    json_t *root = json_pack("{s:s, s:i, s:i}", "architecture", name ? name : "resnet", "num_classes", o->classes,
                             "num_features", ls__resnet_features(o));
    json_t *prepare = json_pack("{s:[i,i,i]}", "input_size", o->channels, o->size, o->size);
    if (o->std[0] > 0) {
        json_object_set_new(prepare, "mean", ls__image_config_list(o->mean, channels));
        json_object_set_new(prepare, "std", ls__image_config_list(o->std, channels));
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

static ls_status get_flag(const char *name, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LS_OK;
    if (!json_is_boolean(value)) return ls__fail(LS_EFORMAT, "%s: '%s' must be true or false", name, key);
    *out = json_boolean_value(value);
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
    if (!own && !find_preset(architecture, o))
        return ls__fail(LS_EUNSUPPORTED, "%s: 'architecture' is '%.60s', which is not one of resnet18 to resnet152",
                        name, architecture);
    if (!status) status = ls__image_config_count(name, root, "num_classes", &o->classes);
    if (!status) status = get_size(name, prepare, o);
    if (!status) status = ls__image_config_channels(name, prepare, "mean", o->mean);
    if (!status) status = ls__image_config_channels(name, prepare, "std", o->std);
    if (!status) status = get_blocks(name, own, o);
    if (!status) status = ls__image_config_count(name, own, "width", &o->width);
    if (!status) status = get_flag(name, own, "bottleneck", &o->bottleneck);
    if (!status) status = get_flag(name, own, "stem", &o->stem);
    if (!status && ls__resnet_check(o)) status = ls__fail_within(LS_EFORMAT, "%s", name);
    return status;
}

ls_status ls__resnet_config_parse(const char *name, const char *text, size_t bytes, ls_resnet_options *out)
{
    json_t *root;
    ls_resnet_options o = { 0 };
    ls_status status = ls__image_config_load(name, text, bytes, &root);
    if (!status) status = read_root(name, root, &o);
    json_decref(root);
    if (!status) *out = o;
    return status;
}
