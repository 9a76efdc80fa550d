/* config.json of Hugging Face folders, by the table of keys that each language model has. Absent keys have the defaults of
 * transformers. Keys that ask for what we do not compute are errors, because the weights would mean something else. A file that
 * was read is written with its own text; only values that changed are replaced. */
#include "nn/hf_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/json_text.h"
#include "nn/model.h"

enum { MAX_CONFIG = 1 << 20 };

static int *int_at(const ls_lm_options *o, size_t offset)
{
    return (int *)((char *)(uintptr_t)o + offset);
}

static float *float_at(const ls_lm_options *o, size_t offset)
{
    return (float *)((char *)(uintptr_t)o + offset);
}

/* ---- Reading. */

/* An integer >= 1. */
static ls_status get_count(const char *name, const char *key, const json_t *value, int *out)
{
    double number = json_number_value(value);
    if (!(number >= 1 && number <= INT32_MAX && number == (int)number)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        ls__fail(LS_EFORMAT, "%s: '%s' is %.60s; it must be an integer >= 1%s", name, key, text ? text : "?",
                 number > INT32_MAX ? ", and below 2^31" : "");
        free(text);
        return LS_EFORMAT;
    }
    *out = (int)number;
    return LS_OK;
}

/* The same, of an option that is `less` below it. */
static ls_status get_count_less(const char *name, const char *key, const json_t *value, int less, int *out)
{
    int number = 0;
    ls_status status = get_count(name, key, value, &number);
    if (!status && number <= less)
        status = ls__fail(LS_EFORMAT, "%s: '%s' is %d; it must be at least %d", name, key, number, less + 1);
    if (!status) *out = number - less;
    return status;
}

static ls_status expect_number(const char *name, const ls__config_key *k, const json_t *value)
{
    if (json_is_number(value) && json_number_value(value) == k->number) return LS_OK;
    return ls__fail(LS_EUNSUPPORTED, "%s: '%s' must be %d (or absent)", name, k->key, k->number);
}

static ls_status get_rate(const char *name, const char *key, const json_t *value, float *out)
{
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number < 1))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be a number >= 0 and < 1", name, key);
    *out = (float)number;
    return LS_OK;
}

static ls_status expect_bool(const char *name, const char *key, const json_t *value, bool expected)
{
    if (json_is_boolean(value) && json_boolean_value(value) == expected) return LS_OK;
    return ls__fail(LS_EUNSUPPORTED, "%s: '%s' must be %s (or absent); other models are not supported", name, key,
                    expected ? "true" : "false");
}

static ls_status expect_text(const char *name, const ls__config_key *k, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && (strcmp(text, k->text) == 0 || (k->other_text && strcmp(text, k->other_text) == 0))) return LS_OK;
    return ls__fail(LS_EUNSUPPORTED, "%s: '%s' must be \"%s\"; '%.60s' is not supported", name, k->key, k->text,
                    text ? text : "(not a string)");
}

static ls_status get_bool(const char *name, const char *key, const json_t *value, bool *out)
{
    if (!json_is_boolean(value)) return ls__fail(LS_EFORMAT, "%s: '%s' must be true or false", name, key);
    *out = json_boolean_value(value);
    return LS_OK;
}

static ls_status get_tied(const char *name, const char *key, const json_t *value, ls_lm_options *o)
{
    bool tied = false;
    ls_status status = get_bool(name, key, value, &tied);
    o->head = tied ? LS_HEAD_TIED : LS_HEAD_UNTIED;
    return status;
}

static ls_status read_key(const char *name, const ls__config_key *k, const json_t *value, ls_lm_options *o, int *inner)
{
    switch (k->kind) {
    case LS__CONFIG_COUNT: return get_count_less(name, k->key, value, k->number, int_at(o, k->offset));
    case LS__CONFIG_RATE:
    case LS__CONFIG_OWN_DROPOUT: return get_rate(name, k->key, value, float_at(o, k->offset));
    case LS__CONFIG_TIMES_WIDTH: return get_count(name, k->key, value, inner);
    case LS__CONFIG_TEXT: return expect_text(name, k, value);
    case LS__CONFIG_TRUE: return expect_bool(name, k->key, value, true);
    case LS__CONFIG_FALSE: return expect_bool(name, k->key, value, false);
    case LS__CONFIG_FLAG: return get_bool(name, k->key, value, (bool *)((char *)o + k->offset));
    case LS__CONFIG_TIED: return get_tied(name, k->key, value, o);
    case LS__CONFIG_NUMBER: return expect_number(name, k, value);
    case LS__CONFIG_ROPE:
    case LS__CONFIG_WINDOW:
    case LS__CONFIG_HEAD:
    case LS__CONFIG_LABELS: /* by read_groups() */
    case LS__CONFIG_NULL:
    case LS__CONFIG_LIST:
    case LS__CONFIG_END:
    case LS__CONFIG_DTYPE: break;
    }
    return LS_OK;
}

/* What several keys define together. */
static ls_status read_groups(const char *name, const json_t *root, const ls__lm_type *type, ls_lm_options *o)
{
    bool rope = false, window = false, layers = false;
    const ls__config_key *head = NULL;
    for (const ls__config_key *k = type->config; k->key; k++) {
        if (k->kind == LS__CONFIG_HEAD) head = k;
        rope = rope || k->kind == LS__CONFIG_ROPE;
        window = window || k->kind == LS__CONFIG_WINDOW;
        layers = layers || (k->kind == LS__CONFIG_WINDOW && strcmp(k->key, "layer_types") == 0);
    }
    ls_status status = head ? ls__hf_head_read(name, root, head, o) : LS_OK;
    if (!status && rope) status = ls__hf_rope_read(name, root, o);
    return status || !window ? status : ls__hf_window_read(name, root, !layers, o);
}

static ls_status read_keys(const char *name, const json_t *root, ls_lm_kind kind, ls_lm_options *o)
{
    const ls__lm_type *type = ls__lm_type_of(kind);
    const ls__config_key *times_width = NULL;
    ls_status status = LS_OK;
    int inner = 0;
    *o = *type->absent;
    o->kind = kind;
    for (const ls__config_key *k = type->config; k->key && !status; k++) {
        const json_t *value = json_object_get(root, k->key);
        if (k->kind == LS__CONFIG_RATE || k->kind == LS__CONFIG_OWN_DROPOUT) *float_at(o, k->offset) = k->fallback;
        if (k->kind == LS__CONFIG_TIMES_WIDTH) times_width = k;
        if (value && !json_is_null(value)) status = read_key(name, k, value, o, &inner);
    }
    if (!status) status = read_groups(name, root, type, o);
    if (status) return status;
    for (const ls__config_key *k = type->config; k->key; k++) {
        if (k->kind != LS__CONFIG_OWN_DROPOUT) continue;
        float *own = float_at(o, k->offset);
        *own = *own < 0 || *own == o->dropout ? 0 : *own > 0 ? *own : -1;
    }
    if (ls__lm_options_check(o)) return ls__fail_within(LS_EFORMAT, "%s", name);
    if (inner && inner / times_width->number != o->width)
        return ls__fail(LS_EUNSUPPORTED, "%s: '%s' is %d; only %d times the width (%d) is supported", name,
                        times_width->key, inner, times_width->number, o->width);
    return LS_OK;
}

/* The kind that "model_type" names. GPT-2's first files have none, and not the names of others either. */
static ls_status find_kind(const char *name, const json_t *root, ls_lm_kind *kind)
{
    const json_t *value = json_object_get(root, "model_type");
    const char *text = json_string_value(value);
    char known[256] = "";
    *kind = (ls_lm_kind)0;
    if ((!value || json_is_null(value)) && !json_object_get(root, "hidden_size")) return LS_OK;
    for (int i = 0; i < LS_LM_COUNT; i++) {
        const char *type = ls__lm_type_of((ls_lm_kind)i)->model.name;
        size_t at = strlen(known);
        *kind = (ls_lm_kind)i;
        if (text && strcmp(text, type) == 0) return LS_OK;
        snprintf(known + at, sizeof known - at, "%s\"%s\"", at ? " or " : "", type);
    }
    if (!value || json_is_null(value))
        return ls__fail(LS_EFORMAT, "%s: 'model_type' is missing; it must be %s", name, known);
    return ls__fail(LS_EUNSUPPORTED, "%s: 'model_type' must be %s; '%.60s' is not supported", name, known,
                    text ? text : "(not a string)");
}

ls_status ls__hf_config_parse(const char *name, const char *text, size_t bytes, ls_lm_options *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    /* Keys that we do not use may have numbers that do not fit in 64 bits. */
    if (!root && json_error_code(&error) == json_error_numeric_overflow)
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", name, error.line, error.column, error.text);
    ls_lm_kind kind = (ls_lm_kind)0;
    ls_lm_options options;
    ls_status status =
        json_is_object(root) ? find_kind(name, root, &kind) : ls__fail(LS_EFORMAT, "%s: must be a JSON object", name);
    if (!status) status = read_keys(name, root, kind, &options);
    json_decref(root);
    if (!status) *out = options;
    return status;
}

/* ---- Writing. */

/* Whether `value` is that number, or a list that contains it. */
static bool names(const json_t *value, double number)
{
    if (json_is_number(value)) return json_number_value(value) == number;
    const json_t *item;
    size_t i;
    bool found = false;
    json_array_foreach(value, i, item) found = found || (json_is_number(item) && json_number_value(item) == number);
    return found;
}

bool ls__hf_config_has_other_end(const char *text, int32_t end)
{
    json_t *root = json_loads(text, JSON_DECODE_INT_AS_REAL, NULL);
    const json_t *value = json_object_get(root, "eos_token_id");
    bool other = value && !json_is_null(value) && !names(value, end);
    json_decref(root);
    return other;
}

static bool is_set(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return value && !json_is_null(value);
}

/* Only if no token is set: another token may be the right one for generation. */
static ls_status set_end(char **text, int32_t end)
{
    static const char *const keys[] = { "eos_token_id", "bos_token_id" };
    char number[16];
    json_t *root = json_loads(*text, JSON_DECODE_INT_AS_REAL, NULL);
    ls_status status = LS_OK;
    snprintf(number, sizeof number, "%d", end);
    bool given = is_set(root, keys[0]);
    for (int i = 0; i < 2 && !given && !status; i++)
        if (!is_set(root, keys[i])) status = ls__json_text_set(text, keys[i], number);
    json_decref(root);
    return status;
}

/* A rate as a JSON number that every reader parses as a real number. */
static const char *rate_text(float rate, char text[32])
{
    snprintf(text, 32, "%.7g", (double)rate);
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return text;
}

/* The dropout rate of a key, or NAN if it has none. */
static float key_rate(const ls__config_key *k, const ls_lm_options *o)
{
    float value = k->kind == LS__CONFIG_RATE || k->kind == LS__CONFIG_OWN_DROPOUT ? *float_at(o, k->offset) : NAN;
    return k->kind == LS__CONFIG_OWN_DROPOUT ? ls__lm_dropout(o, value) : value;
}

static ls_status set_rates(char **text, const ls_lm_options *o, const ls_lm_options *before)
{
    ls_status status = LS_OK;
    for (const ls__config_key *k = ls__lm_type_of(o->kind)->config; k->key && !status; k++) {
        char number[32];
        float now = key_rate(k, o);
        if (!isnan(now) && now != key_rate(k, before)) status = ls__json_text_set(text, k->key, rate_text(now, number));
    }
    return status;
}

/* Saved weights are float32. */
static ls_status set_type(char **text)
{
    static const char *const keys[] = { "torch_dtype", "dtype" };
    json_t *root = json_loads(*text, JSON_DECODE_INT_AS_REAL, NULL);
    ls_status status = LS_OK;
    for (int i = 0; i < 2 && !status; i++) {
        const char *type = json_string_value(json_object_get(root, keys[i]));
        if (type && strcmp(type, "float32") != 0) status = ls__json_text_set(text, keys[i], "\"float32\"");
    }
    json_decref(root);
    return status;
}

static ls_status update_config(const char *base, const ls_lm_options *o, int32_t end, char **out)
{
    ls_lm_options before;
    char *text = strdup(base);
    ls_status status = text ? ls__hf_config_parse("config.json", base, strlen(base), &before)
                            : ls__fail(LS_ENOMEM, "config.json: out of memory");
    if (!status) status = set_rates(&text, o, &before);
    if (!status) status = set_type(&text);
    if (!status && before.classes != o->classes) status = ls__hf_head_update(&text, ls__lm_type_of(o->kind)->config, o);
    if (!status && end >= 0 && !ls__lm_type_of(o->kind)->encoder) status = set_end(&text, end);
    if (status) free(text);
    *out = status ? NULL : text;
    return status;
}

/* A new reference. */
static json_t *key_value(const ls__config_key *k, const ls_lm_options *o, int32_t end)
{
    switch (k->kind) {
    case LS__CONFIG_COUNT: return json_integer(*int_at(o, k->offset) + k->number);
    case LS__CONFIG_RATE:
    case LS__CONFIG_OWN_DROPOUT: return json_real((double)key_rate(k, o));
    case LS__CONFIG_TIMES_WIDTH: return json_null();
    case LS__CONFIG_TEXT: return json_string(k->text);
    case LS__CONFIG_TRUE: return json_true();
    case LS__CONFIG_FALSE: return json_false();
    case LS__CONFIG_FLAG: return json_boolean(*(const bool *)((const char *)o + k->offset));
    case LS__CONFIG_TIED: return json_boolean(o->head != LS_HEAD_UNTIED);
    case LS__CONFIG_ROPE: return ls__hf_rope_value(k->key, o);
    case LS__CONFIG_WINDOW: return ls__hf_window_value(k->key, o);
    case LS__CONFIG_HEAD:
    case LS__CONFIG_LABELS: return ls__hf_head_value(k, o);
    case LS__CONFIG_NUMBER: return json_integer(k->number);
    case LS__CONFIG_NULL: return json_null();
    case LS__CONFIG_LIST: return json_pack("[s]", k->text);
    case LS__CONFIG_END: return end >= 0 && end < o->vocab_size ? json_integer(end) : json_null();
    case LS__CONFIG_DTYPE: return json_string("float32");
    }
    return NULL;
}

ls_status ls__hf_config_text(const char *base, const ls_lm_options *o, int32_t end, char **out)
{
    *out = NULL;
    if (base) return update_config(base, o, end, out);
    const ls__lm_type *type = ls__lm_type_of(o->kind);
    if (end == LS__END_DEFAULT) end = type->end_token;
    json_t *root = json_object();
    bool failed = !root;
    for (const ls__config_key *k = type->config; k->key; k++)
        if (!k->read_only && !(k->kind == LS__CONFIG_LABELS && !o->classes))
            failed = json_object_set_new(root, k->key, key_value(k, o, end)) || failed;
    /* Seven digits: enough for values that people write, and a float 1e-5 is written as such. */
    char *text = failed ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
    json_decref(root);
    *out = text;
    return text ? LS_OK : ls__fail(LS_ENOMEM, "config.json: out of memory");
}
