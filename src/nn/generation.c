/* generation_config.json: how text should be generated, and which tokens end it. Unknown keys are for other generators. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/lora.h"

enum { MAX_BYTES = 1 << 20 };

static ls_status get_number(const char *path, const json_t *root, const char *key, double low, double high, float *out)
{
    const json_t *value = json_object_get(root, key);
    double number = json_number_value(value);
    if (!value || json_is_null(value)) return LS_OK;
    if (!json_is_number(value) || !(number >= low && number <= high))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be a number from %g to %g", path, key, low, high);
    *out = (float)number;
    return LS_OK;
}

static ls_status add_end(const char *path, const json_t *value, ls_generation *g)
{
    double number = json_number_value(value);
    int room = (int)(sizeof g->ends / sizeof *g->ends);
    if (!json_is_number(value) || !(number >= 0 && number <= INT32_MAX && number == (int32_t)number))
        return ls__fail(LS_EFORMAT, "%s: 'eos_token_id' must be a token, or a list of tokens", path);
    for (int i = 0; i < g->n_ends; i++)
        if (g->ends[i] == (int32_t)number) return LS_OK;
    if (g->n_ends == room) return ls__fail(LS_EUNSUPPORTED, "%s: 'eos_token_id' has more than %d tokens", path, room);
    g->ends[g->n_ends++] = (int32_t)number;
    return LS_OK;
}

static ls_status read_ends(const char *path, const json_t *root, ls_generation *g)
{
    const json_t *value = json_object_get(root, "eos_token_id"), *item;
    ls_status status = LS_OK;
    size_t i;
    if (!value || json_is_null(value)) return LS_OK;
    if (!json_is_array(value)) return add_end(path, value, g);
    json_array_foreach(value, i, item) if (!status) status = add_end(path, item, g);
    return status;
}

static ls_status read_options(const char *path, const json_t *root, ls_generator_options *o)
{
    float top_k = 0;
    ls_status status = get_number(path, root, "top_k", 0, INT32_MAX, &top_k);
    if (!status) status = get_number(path, root, "temperature", 0, 1e6, &o->temperature);
    if (!status) status = get_number(path, root, "top_p", 0, 1, &o->top_p);
    if (!status) status = get_number(path, root, "min_p", 0, 1, &o->min_p);
    if (!status) status = get_number(path, root, "repetition_penalty", 1e-6, 1e6, &o->repetition_penalty);
    o->top_k = (int)top_k;
    return status;
}

ls_status ls__generation_parse(const char *path, const char *text, size_t bytes, bool options, ls_generation *g)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error);
    ls_status status = LS_OK;
    if (!root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", path, error.line, error.column, error.text);
    if (!json_is_object(root)) status = ls__fail(LS_EFORMAT, "%s: must be a JSON object", path);
    if (!status && options) status = read_options(path, root, &g->options);
    if (!status) status = read_ends(path, root, g);
    json_decref(root);
    return status;
}

ls_status ls_generation_read(const char *folder, ls_generation *out)
{
    LS__NEED(folder, "folder");
    LS__NEED(out, "out");
    static const char *const names[] = { "generation_config.json", "config.json" };
    ls_generation g = { 0 };
    char *base;
    ls_status status = ls__lora_find_base(folder, &base);
    if (!status && base) { /* an adapter has no such files */
        status = ls_generation_read(base, out);
        free(base);
        return status;
    }
    for (int i = 0; i < 2 && !status && !g.n_ends; i++) {
        char *path, *text = NULL;
        size_t bytes;
        if (asprintf(&path, "%s/%s", folder, names[i]) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
        if (!access(path, F_OK)) {
            status = ls__file_read(path, MAX_BYTES, &text, &bytes);
            if (!status) status = ls__generation_parse(path, text, bytes, i == 0, &g);
        }
        free(text);
        free(path);
    }
    if (!status) *out = g;
    return status;
}
