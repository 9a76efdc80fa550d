/* Adapters as PEFT's folders: adapter_config.json and adapter_model.safetensors. The base model is another folder, which the configuration
 * names. See lora.h. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "kern/float_mode.h"
#include "kern/gemm.h"
#include "nn/files.h"
#include "nn/lora.h"

enum { MAX_JSON = 1 << 20 };

static char *join(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    ls__fail(LS_ENOMEM, "%s/%s: out of memory", folder, name);
    return NULL;
}

/* ---- Reading the configuration. */

static ls_status unsupported(const char *path, const char *key, const char *what)
{
    return ls__fail(LS_EUNSUPPORTED, "%s: \"%s\": %s", path, key, what);
}

static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

/* What would change the result and is not known here. */
static ls_status check_kind(const char *path, const json_t *root)
{
    static const char *const absent[] = { "modules_to_save",
                                          "use_dora",
                                          "rank_pattern",
                                          "alpha_pattern",
                                          "layers_to_transform",
                                          "target_parameters",
                                          "trainable_token_indices",
                                          "exclude_modules",
                                          "layer_replication",
                                          "megatron_config" };
    const char *kind = json_string_value(json_object_get(root, "peft_type"));
    const char *bias = json_string_value(json_object_get(root, "bias"));
    if (!kind || strcmp(kind, "LORA") != 0) return unsupported(path, "peft_type", "only \"LORA\" is supported");
    if (bias && strcmp(bias, "none") != 0) return unsupported(path, "bias", "only \"none\" is supported");
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (!is_empty(json_object_get(root, absent[i])))
            return unsupported(path, absent[i], "is not supported; it must be absent, null or empty");
    return LS_OK;
}

/* The part of a name after the number of its layer: PEFT lists "all-linear" as one name per layer. If not all layers are meant, the
 * weights do not fit, which is found when they are read. */
static const char *without_layer(const char *name)
{
    const char *out = name;
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits && dot[1 + digits] == '.') out = dot + 2 + digits;
    }
    return out;
}

static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *t = list; *t;) {
        size_t length = strcspn(t, "+");
        if (length == n && !memcmp(t, name, n)) return true;
        t += length + (t[length] == '+');
    }
    return false;
}

static ls_status read_target(const char *path, const json_t *value, char out[LS_LORA_TARGET])
{
    size_t n = 0, i;
    json_t *item;
    out[0] = 0;
    if (json_is_string(value) && !strcmp(json_string_value(value), "all-linear")) return LS_OK;
    if (!json_is_array(value) || !json_array_size(value))
        return unsupported(path, "target_modules", "must be a list of names, or \"all-linear\"");
    json_array_foreach(value, i, item)
    {
        const char *full = json_string_value(item), *name = full ? without_layer(full) : "";
        if (!*name || strpbrk(name, "+,"))
            return ls__fail(LS_EFORMAT, "%s: \"target_modules\": entry %zu is not a name", path, i + 1);
        if (is_listed(out, name)) continue;
        if (n + strlen(name) + 2 > LS_LORA_TARGET)
            return ls__fail(LS_EFORMAT, "%s: \"target_modules\": the list is too long", path);
        n += (size_t)snprintf(out + n, LS_LORA_TARGET - n, "%s%s", n ? "+" : "", name);
    }
    return LS_OK;
}

static ls_status read_numbers(const char *path, const json_t *root, ls_lora_options *o)
{
    const json_t *r = json_object_get(root, "r"), *alpha = json_object_get(root, "lora_alpha"),
                 *dropout = json_object_get(root, "lora_dropout");
    double p = json_is_number(dropout) ? json_number_value(dropout) : 0, a = json_number_value(alpha);
    if (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > 1 << 16)
        return ls__fail(LS_EFORMAT, "%s: \"r\": must be an integer from 1 to 65536", path);
    if (!json_is_number(alpha) || !(a > 0 && a < 1e9))
        return ls__fail(LS_EFORMAT, "%s: \"lora_alpha\": must be a number above 0", path);
    if (!(p >= 0 && p < 1)) return ls__fail(LS_EFORMAT, "%s: \"lora_dropout\": must be >= 0 and < 1", path);
    o->r = (int)json_integer_value(r);
    o->alpha = (float)a;
    o->dropout = (float)p;
    o->rslora = json_is_true(json_object_get(root, "use_rslora"));
    return LS_OK;
}

ls_status ls__lora_parse_config(const char *path, const char *text, size_t bytes, ls_lora_options *out, char **base)
{
    json_error_t error;
    ls_lora_options o = { 0 };
    json_t *root = json_loadb(text, bytes, 0, &error);
    *base = NULL;
    ls_status status = LS_OK;
    if (!json_is_object(root))
        status = ls__fail(LS_EFORMAT, "%s: line %d: %s", path, root ? 1 : error.line,
                          root ? "must be a JSON object" : error.text);
    if (!status) status = check_kind(path, root);
    if (!status) status = read_numbers(path, root, &o);
    if (!status) status = read_target(path, json_object_get(root, "target_modules"), o.target);
    const char *name = json_string_value(json_object_get(root, "base_model_name_or_path"));
    if (!status && (!name || !*name))
        status = ls__fail(LS_EFORMAT, "%s: \"base_model_name_or_path\": is missing", path);
    if (!status && !(*base = strdup(name))) status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status) *out = o;
    json_decref(root);
    return status;
}

/* LS_ENOENT without a message if there is no such file. */
static ls_status read_config(const char *folder, ls_lora_options *out, char **base)
{
    char *path = join(folder, "adapter_config.json"), *text = NULL;
    size_t bytes;
    ls_status status = !path ? LS_ENOMEM : access(path, F_OK) ? LS_ENOENT : LS_OK;
    *base = NULL;
    if (!status) status = ls__file_read(path, MAX_JSON, &text, &bytes);
    if (!status) status = ls__lora_parse_config(path, text, bytes, out, base);
    free(text);
    free(path);
    return status;
}

/* The base is a folder as it is written, seen from here or from the adapter's folder. */
static ls_status find_base(const char *folder, char **base)
{
    struct stat st;
    char *near = NULL;
    if (!stat(*base, &st) && S_ISDIR(st.st_mode)) return LS_OK;
    if (**base != '/' && (near = join(folder, *base)) && !stat(near, &st) && S_ISDIR(st.st_mode)) {
        free(*base);
        *base = near;
        return LS_OK;
    }
    free(near);
    return ls__fail(LS_ENOENT,
                    "%s/adapter_config.json: the base model '%.200s' is not a folder here; change "
                    "\"base_model_name_or_path\" to the folder that has it",
                    folder, *base);
}

ls_status ls__lora_read(const char *folder, ls_lora_options *out)
{
    char *base;
    ls_status status = read_config(folder, out, &base);
    if (status == LS_ENOENT) status = ls__fail(LS_ENOENT, "%s: has no adapter_config.json", folder);
    free(base);
    return status;
}

ls_status ls__lora_find_base(const char *folder, char **base)
{
    ls_lora_options o;
    ls_status status = read_config(folder, &o, base);
    if (status == LS_ENOENT) return LS_OK;
    if (!status) status = find_base(folder, base);
    struct stat a, b;
    if (!status && !stat(*base, &a) && !stat(folder, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        status = ls__fail(LS_EFORMAT, "%s/adapter_config.json: the adapter is its own base model", folder);
    if (status) {
        free(*base);
        *base = NULL;
    }
    return status;
}

/* ---- Weights. */

ls_status ls__lora_load(ls_model *m, const char *folder)
{
    ls__weights set = { .places = m->places.list, .count = m->places.count, .data = m->values };
    char *path = join(folder, "adapter_model.safetensors");
    ls_status status = path ? ls__weights_read(path, (const char *const *)&path, 1, &set, 1, NULL) : LS_ENOMEM;
    free(path);
    return status;
}

/* w += b a, for a weight stored (out, in), or (in, out). */
static void add_product(float *w, const ls_place *shape, const float *a, const float *b, int64_t r, bool in_first,
                        float *workspace)
{
    int64_t rows = shape->shape[0], cols = shape->shape[1];
    ls__gemm g = { .m = rows, .n = cols, .k = r, .c = w, .ldc = cols, .add = true };
    if (in_first) {
        g.a = a, g.lda = rows, g.a_trans = true;
        g.b = b, g.ldb = r, g.b_trans = true;
    } else {
        g.a = b, g.lda = r;
        g.b = a, g.ldb = cols;
    }
    ls__gemm_run(&g, 1, 1, workspace, NULL);
}

static ls_status merge_all(ls_model *m, const ls_model *with)
{
    const ls_lora_options *o = &with->lora.options;
    float scale = (float)((double)o->alpha / (o->rslora ? sqrt((double)o->r) : (double)o->r)), *workspace;
    if (posix_memalign((void **)&workspace, 64, ls__gemm_workspace(1) * sizeof *workspace))
        return ls__fail(LS_ENOMEM, "lora: out of memory");
    for (size_t i = 0; i < m->places.count; i++) {
        const ls_place *p = &m->places.list[i], *a = &with->places.list[2 * (size_t)(with->lora.of[i] + 1)] - 2;
        if (with->lora.of[i] < 0) continue;
        float *b = with->values + a[1].offset;
        for (size_t k = 0; k < a[1].count; k++) b[k] *= scale;
        add_product(m->values + p->offset, p, with->values + a[0].offset, b, o->r, m->type->lm->stores_in_first,
                    workspace);
    }
    free(workspace);
    return LS_OK;
}

ls_status ls__lora_merge(ls_model *m, const char *folder)
{
    LS__FLUSH_DENORMALS();
    ls_lora_options o = { 0 };
    ls_model *with = NULL; /* the same model with adapters: for their names and shapes */
    char *base;
    ls_status status = read_config(folder, &o, &base);
    free(base);
    if (!status) status = ls__lm_open(&with, &m->lm);
    if (!status) status = ls__model_add_lora(with, &o);
    if (!status) ls__model_bind_frozen(with, m->values);
    if (!status) status = ls_model_bind(with, NULL, NULL, false);
    if (!status) status = ls__lora_load(with, folder);
    if (!status) status = merge_all(m, with);
    ls_model_free(&with);
    return status;
}

/* ---- Writing. */

static json_t *target_json(const ls_model *m)
{
    json_t *list = json_array();
    const char *given = m->lora.options.target;
    if (*given) {
        for (const char *t = given; *t;) {
            size_t n = strcspn(t, "+");
            if (n) json_array_append_new(list, json_stringn(t, n));
            t += n + (t[n] == '+');
        }
        return list;
    }
    /* All linear layers, by their last names, each once. */
    for (size_t i = 0; i < m->frozen_places.count; i++) {
        if (m->lora.of[i] < 0) continue;
        const char *name = m->frozen_places.list[i].name;
        size_t n = strlen(name) - strlen(".weight"), k, known = json_array_size(list);
        const char *last = memrchr(name, '.', n);
        last = last ? last + 1 : name;
        json_t *word = json_stringn(last, n - (size_t)(last - name));
        for (k = 0; k < known && !json_equal(json_array_get(list, k), word); k++) {
        }
        if (k == known)
            json_array_append_new(list, word);
        else
            json_decref(word);
    }
    return list;
}

static char *config_text(const ls_model *m)
{
    const ls_lora_options *o = &m->lora.options;
    char number[32];
    snprintf(number, sizeof number, "%.7g", (double)o->dropout); /* 0.1, not 0.100000001 */
    double dropout = strtod(number, NULL), alpha = (double)o->alpha;
    json_t *alpha_json = alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha);
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:o, s:i, s:o, s:f, s:s, s:b, s:b, s:b, s:b, s:n, s:n, s:n, s:{}, s:{}}",
                  "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path",
                  m->lora.base ? m->lora.base : "", "target_modules", target_json(m), "r", o->r, "lora_alpha",
                  alpha_json, "lora_dropout", dropout, "bias", "none", "fan_in_fan_out", m->type->lm->stores_in_first,
                  "inference_mode", 1, "use_rslora", o->rslora, "use_dora", 0, "modules_to_save", "layers_to_transform",
                  "layers_pattern", "rank_pattern", "alpha_pattern");
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    return text;
}

ls_status ls__lora_save(const ls_model *m, const char *folder)
{
    ls__weights set = { .places = m->places.list, .count = m->places.count, .data = m->values };
    char *config = join(folder, "adapter_config.json"), *weights = join(folder, "adapter_model.safetensors");
    char *text = config_text(m);
    ls_status status = config && weights && text ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    if (!status) status = ls__file_write(config, text, strlen(text));
    if (!status) status = ls__weights_write(weights, &set, 1);
    free(text);
    free(weights);
    free(config);
    return status;
}
