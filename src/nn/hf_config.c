/* config.json of a Hugging Face GPT-2 folder. Keys that are not there have the defaults of transformers; keys that ask
 * for what we do not compute are refused rather than ignored, because the weights would then mean something else. A file that
 * was read is written with its own text, and only those values are exchanged that are no longer true. */
#include "nn/files.h"

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

/* An integer from 1; a key that is absent or null leaves *out as it is. */
static ls_status get_count(const char *name, const json_t *root, const char *key, int *out)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return LS_OK;
    double number = json_number_value(value);
    if (!(number >= 1 && number <= INT32_MAX && number == (int)number)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        ls__fail(LS_EFORMAT, "%s: '%s' is %.60s, which is no count", name, key, text ? text : "?");
        free(text);
        return LS_EFORMAT;
    }
    *out = (int)number;
    return LS_OK;
}

static ls_status get_share(const char *name, const json_t *root, const char *key, float *out)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return LS_OK;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number < 1))
        return ls__fail(LS_EFORMAT, "%s: '%s' must be a number from 0 and below 1", name, key);
    *out = (float)number;
    return LS_OK;
}

/* A key that must be true (or false) if it is there. */
static ls_status expect_bool(const char *name, const json_t *root, const char *key, int expected)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value) || (json_is_boolean(value) && json_boolean_value(value) == expected))
        return LS_OK;
    return ls__fail(LS_EUNSUPPORTED, "%s: '%s' must be %s (or absent); another kind of model cannot be read", name, key,
                    expected ? "true" : "false");
}

static ls_status expect_text(const char *name, const json_t *root, const char *key, const char *a, const char *b)
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(value);
    if (!value || json_is_null(value) || (text && (strcmp(text, a) == 0 || strcmp(text, b) == 0))) return LS_OK;
    return ls__fail(LS_EUNSUPPORTED, "%s: '%s' must be \"%s\"; '%.60s' cannot be read", name, key, a,
                    text ? text : "(no text)");
}

static ls_status read_keys(const char *name, const json_t *root, ls_gpt2_options *o)
{
    ls_status status;
    int inner = 0;
    *o = (ls_gpt2_options){ .layers = 12, .width = 768, .heads = 12, .vocab = 50257, .context = 1024 };
    if ((status = expect_text(name, root, "model_type", "gpt2", "gpt2"))) return status;
    if ((status = expect_text(name, root, "activation_function", "gelu_new", "gelu_pytorch_tanh"))) return status;
    if ((status = expect_bool(name, root, "scale_attn_weights", 1))) return status;
    if ((status = expect_bool(name, root, "scale_attn_by_inverse_layer_idx", 0))) return status;
    if ((status = expect_bool(name, root, "add_cross_attention", 0))) return status;
    if ((status = expect_bool(name, root, "tie_word_embeddings", 1))) return status;
    if ((status = get_count(name, root, "n_layer", &o->layers))) return status;
    if ((status = get_count(name, root, "n_embd", &o->width))) return status;
    if ((status = get_count(name, root, "n_head", &o->heads))) return status;
    if ((status = get_count(name, root, "vocab_size", &o->vocab))) return status;
    if ((status = get_count(name, root, "n_ctx", &o->context))) return status; /* the older name */
    if ((status = get_count(name, root, "n_positions", &o->context))) return status;
    if ((status = get_count(name, root, "n_inner", &inner))) return status;
    float embd = 0.1f, attn = 0.1f;
    o->dropout = 0.1f;
    if ((status = get_share(name, root, "resid_pdrop", &o->dropout))) return status;
    if ((status = get_share(name, root, "embd_pdrop", &embd))) return status;
    if ((status = get_share(name, root, "attn_pdrop", &attn))) return status;
    o->embd_dropout = embd == o->dropout ? 0 : embd > 0 ? embd : -1;
    o->attn_dropout = attn == o->dropout ? 0 : attn > 0 ? attn : -1;
    if ((status = get_share(name, root, "layer_norm_epsilon", &o->norm_eps))) return status;
    status = ls_gpt2_options_check(o);
    if (status) return ls__fail_within(LS_EFORMAT, "%s", name);
    if (inner && inner / 4 != o->width)
        return ls__fail(LS_EUNSUPPORTED, "%s: 'n_inner' is %d; only 4 times n_embd (%d) can be read", name, inner,
                        o->width);
    return LS_OK;
}

ls_status ls__hf_config_parse(const char *name, const char *text, size_t bytes, ls_gpt2_options *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    /* Fields that we do not know may have numbers that no 64-bit integer holds. */
    if (!root && json_error_code(&error) == json_error_numeric_overflow)
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", name, error.line, error.column, error.text);
    ls_gpt2_options options;
    ls_status status = json_is_object(root) ? read_keys(name, root, &options)
                                            : ls__fail(LS_EFORMAT, "%s: is JSON, but not a map of settings", name);
    json_decref(root);
    if (!status) *out = options;
    return status;
}

ls_status ls__hf_config_read(const char *path, ls_gpt2_options *out)
{
    char *text;
    size_t bytes;
    ls_status status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    if (status) return status;
    status = ls__hf_config_parse(path, text, bytes, out);
    free(text);
    return status;
}

/* ---- Writing. */

/* Whether `value`, a number or a list of them, is or has that number. */
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

/* Only what is not said: who wrote another token there may generate with it. */
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

/* A rate as a JSON number that every reader takes for a real one. */
static const char *rate_text(float rate, char text[32])
{
    snprintf(text, 32, "%.7g", (double)rate);
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return text;
}

static ls_status set_rates(char **text, const ls_gpt2_options *o, const ls_gpt2_options *was)
{
    const struct {
        const char *key;
        float now, before;
    } rates[] = {
        { "attn_pdrop", ls__gpt2_dropout(o, o->attn_dropout), was ? ls__gpt2_dropout(was, was->attn_dropout) : -1 },
        { "embd_pdrop", ls__gpt2_dropout(o, o->embd_dropout), was ? ls__gpt2_dropout(was, was->embd_dropout) : -1 },
        { "resid_pdrop", o->dropout, was ? was->dropout : -1 },
    };
    ls_status status = LS_OK;
    for (int i = 0; i < 3 && !status; i++) {
        char number[32];
        if (rates[i].now != rates[i].before)
            status = ls__json_text_set(text, rates[i].key, rate_text(rates[i].now, number));
    }
    return status;
}

/* The weights are float32 now, whatever they were. */
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

static ls_status update_config(const char *base, const ls_gpt2_options *o, int32_t end, char **out)
{
    ls_gpt2_options was;
    char *text = strdup(base);
    ls_status status = text ? ls__hf_config_parse("config.json", base, strlen(base), &was)
                            : ls__fail(LS_ENOMEM, "config.json: out of memory");
    if (!status) status = set_rates(&text, o, &was);
    if (!status) status = set_type(&text);
    if (!status && end >= 0) status = set_end(&text, end);
    if (status) free(text);
    *out = status ? NULL : text;
    return status;
}

ls_status ls__hf_config_text(const char *base, const ls_gpt2_options *o, int32_t end, char **out)
{
    *out = NULL;
    if (base) return update_config(base, o, end, out);
    /* GPT-2's own end-of-text token; a smaller vocabulary has none. */
    if (end == LS__END_DEFAULT) end = o->vocab > 50256 ? 50256 : -1;
    json_t *id = end >= 0 && end < o->vocab ? json_integer(end) : json_null();
    json_t *root =
        json_pack("{s:s, s:[s], s:f, s:O, s:f, s:O, s:f, s:s, s:i, s:i, s:i, s:n, s:i, s:i, s:f, s:b, s:s, s:i}",
                  "activation_function", "gelu_new", "architectures", "GPT2LMHeadModel", "attn_pdrop", 0.0,
                  "bos_token_id", id, "embd_pdrop", 0.0, "eos_token_id", id, "layer_norm_epsilon", (double)o->norm_eps,
                  "model_type", "gpt2", "n_embd", o->width, "n_head", o->heads, "n_ctx", o->context, "n_inner",
                  "n_layer", o->layers, "n_positions", o->context, "resid_pdrop", 0.0, "tie_word_embeddings", 1,
                  "torch_dtype", "float32", "vocab_size", o->vocab);
    json_decref(id);
    /* Seven digits: enough for settings that people write, and 1e-5 stays 1e-05. */
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) : NULL;
    json_decref(root);
    ls_status status = text ? set_rates(&text, o, NULL) : ls__fail(LS_ENOMEM, "config.json: out of memory");
    if (status) free(text);
    *out = status ? NULL : text;
    return status;
}
