/* Rotary positions and sliding windows in config.json.
 *
 * transformers 4 has "rope_theta" and "rope_scaling", transformers 5 "rope_parameters" with both; each reads the other's keys. All are
 * read, the newer one first, and all are written. Windows are "sliding_window" (null: none) and, for Qwen, which layers have it:
 * "use_sliding_window" with "max_window_layers", or the list "layer_types". */
#include "nn/hf_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "nn/model.h"

static const char *const kinds[] = {
    [LS_ROPE_DEFAULT] = "default", [LS_ROPE_LINEAR] = "linear", [LS_ROPE_LLAMA3] = "llama3"
};

/* ---- Rotary positions */

static ls_status get_number(const char *name, const char *where, const json_t *object, const char *key, float *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LS_OK;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number > 0 && number <= 1e12))
        return ls__fail(LS_EFORMAT, "%s: '%s%s' must be a number above 0", name, where, key);
    *out = (float)number;
    return LS_OK;
}

/* What an object of the given name defines. */
static ls_status read_object(const char *name, const char *key, const json_t *object, ls_rope *r)
{
    char where[64];
    snprintf(where, sizeof where, "%s.", key);
    if (!json_is_object(object)) return ls__fail(LS_EFORMAT, "%s: '%s' must be an object or null", name, key);
    const json_t *value = json_object_get(object, "rope_type");
    if (!value) value = json_object_get(object, "type"); /* its older name */
    const char *type = json_string_value(value);
    int kind = -1;
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        if (type && strcmp(type, kinds[i]) == 0) kind = i;
    if (!value || json_is_null(value)) kind = LS_ROPE_DEFAULT;
    if (kind < 0)
        return ls__fail(LS_EUNSUPPORTED,
                        "%s: '%srope_type' must be default, linear or llama3; '%.60s' is not supported", name, where,
                        type ? type : "(not a string)");
    r->kind = (ls_rope_kind)kind;
    float original = 0, part = 1;
    ls_status status = get_number(name, where, object, "rope_theta", &r->theta);
    if (!status) status = get_number(name, where, object, "partial_rotary_factor", &part);
    if (!status && part != 1)
        status = ls__fail(LS_EUNSUPPORTED, "%s: '%spartial_rotary_factor' must be 1 (or absent)", name, where);
    if (!status && kind != LS_ROPE_DEFAULT) status = get_number(name, where, object, "factor", &r->factor);
    if (status || kind != LS_ROPE_LLAMA3) return status;
    status = get_number(name, where, object, "low_freq_factor", &r->low_freq_factor);
    if (!status) status = get_number(name, where, object, "high_freq_factor", &r->high_freq_factor);
    if (!status) status = get_number(name, where, object, "original_max_position_embeddings", &original);
    if (!status && (original != floorf(original) || original > 1e9f))
        status = ls__fail(LS_EFORMAT, "%s: '%soriginal_max_position_embeddings' must be an integer", name, where);
    if (!status) r->original_context = (int)original;
    return status;
}

ls_status ls__hf_rope_read(const char *name, const json_t *root, ls_lm_options *o)
{
    static const char *const keys[] = { "rope_parameters", "rope_scaling" };
    ls_rope r = { .theta = 10000 };
    ls_status status = get_number(name, "", root, "rope_theta", &r.theta);
    for (int i = 0; i < 2 && !status; i++) {
        const json_t *object = json_object_get(root, keys[i]);
        if (!object || json_is_null(object)) continue;
        status = read_object(name, keys[i], object, &r);
        break;
    }
    o->rope = r;
    return status;
}

json_t *ls__hf_rope_value(const char *key, const ls_lm_options *o)
{
    const ls_rope *r = &o->rope;
    bool all = strcmp(key, "rope_parameters") == 0;
    if (strcmp(key, "rope_theta") == 0) return json_real((double)r->theta);
    if (!all && r->kind == LS_ROPE_DEFAULT) return json_null();
    json_t *object = json_pack("{s:s}", "rope_type", kinds[r->kind]);
    if (all) json_object_set_new(object, "rope_theta", json_real((double)r->theta));
    if (r->kind != LS_ROPE_DEFAULT) json_object_set_new(object, "factor", json_real((double)r->factor));
    if (r->kind == LS_ROPE_LLAMA3) {
        json_object_set_new(object, "low_freq_factor", json_real((double)r->low_freq_factor));
        json_object_set_new(object, "high_freq_factor", json_real((double)r->high_freq_factor));
        json_object_set_new(object, "original_max_position_embeddings", json_integer(r->original_context));
    }
    return object;
}

/* ---- Windows */

/* An integer from `low` on; absent or null: *out stays. */
static ls_status get_integer(const char *name, const json_t *root, const char *key, int low, int *out)
{
    const json_t *value = json_object_get(root, key);
    double number = json_number_value(value);
    if (!value || json_is_null(value)) return LS_OK;
    if (!json_is_number(value) || !(number >= low && number <= INT32_MAX && number == (int)number))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be an integer >= %d", name, key, low);
    *out = (int)number;
    return LS_OK;
}

/* The list of kinds of attention: some layers without a window, then all with one. */
static ls_status read_types(const char *name, const json_t *list, ls_lm_options *o, int *window_first)
{
    const json_t *item;
    size_t i, full = 0, sliding = 0;
    bool mixed = false;
    if (!json_is_array(list) || json_array_size(list) != (size_t)o->layers)
        return ls__fail(LS_EFORMAT, "%s: 'layer_types' must be a list of %d, one per layer", name, o->layers);
    json_array_foreach(list, i, item)
    {
        const char *type = json_string_value(item);
        bool is_full = type && strcmp(type, "full_attention") == 0;
        if (!is_full && (!type || strcmp(type, "sliding_attention") != 0))
            return ls__fail(LS_EUNSUPPORTED, "%s: layer_types[%zu] must be full_attention or sliding_attention", name,
                            i);
        mixed = mixed || (is_full && sliding);
        full += is_full;
        sliding += !is_full;
    }
    if (mixed)
        return ls__fail(LS_EUNSUPPORTED,
                        "%s: 'layer_types' has full_attention after sliding_attention, which is not supported", name);
    *window_first = (int)full;
    return LS_OK;
}

ls_status ls__hf_window_read(const char *name, const json_t *root, bool every_layer, ls_lm_options *o)
{
    const json_t *window = json_object_get(root, "sliding_window"), *use = json_object_get(root, "use_sliding_window"),
                 *types = json_object_get(root, "layer_types");
    bool null = json_is_null(window);
    ls_status status = get_integer(name, root, "sliding_window", 1, &o->window);
    if (null) o->window = 0;
    if (status || every_layer) return status;
    int first = 28; /* transformers' default */
    if (use && !json_is_null(use) && !json_is_boolean(use))
        return ls__fail(LS_EFORMAT, "%s: 'use_sliding_window' must be true or false", name);
    status = get_integer(name, root, "max_window_layers", 0, &first);
    if (!json_is_true(use)) o->window = 0;
    if (!status && json_is_true(use) && !window) o->window = 4096;
    if (!status && types && !json_is_null(types)) status = read_types(name, types, o, &first);
    if (first > o->layers) first = o->layers;
    if (!status && types && !json_is_null(types) && !o->window && first < o->layers)
        status = ls__fail(LS_EFORMAT,
                          "%s: layer_types[%d] is sliding_attention, but there is no window: "
                          "'use_sliding_window' must be true and 'sliding_window' a number",
                          name, first);
    if (first == o->layers) o->window = 0;
    o->window_first = o->window ? first : 0;
    return status;
}

json_t *ls__hf_window_value(const char *key, const ls_lm_options *o)
{
    if (strcmp(key, "use_sliding_window") == 0) return json_boolean(o->window);
    if (strcmp(key, "sliding_window") == 0) return o->window ? json_integer(o->window) : json_null();
    if (strcmp(key, "max_window_layers") == 0) return json_integer(o->window ? o->window_first : o->layers);
    json_t *list = json_array();
    for (int i = 0; i < o->layers; i++)
        json_array_append_new(list,
                              json_string(o->window && i >= o->window_first ? "sliding_attention" : "full_attention"));
    return list;
}
