/* config.json of a Hugging Face GPT-2 folder. Keys that are not there have the library's own defaults; keys that ask
 * for what we do not compute are refused rather than ignored, because the weights would then mean something else. */
#include "nn/files.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"

enum { MAX_CONFIG = 1 << 20 };

/* An integer from 1; a key that is absent or null leaves *out as it is. */
static ls_status get_count(const char *name, const json_t *root, const char *key, int *out)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return LS_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        ls__fail(LS_EFORMAT, "%s: '%s' is %.60s, which is no count", name, key, text ? text : "?");
        free(text);
        return LS_EFORMAT;
    }
    *out = (int)json_integer_value(value);
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
    if ((status = get_share(name, root, "resid_pdrop", &o->dropout))) return status;
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

ls_status ls__hf_config_write(const char *path, const ls_gpt2_options *o)
{
    /* GPT-2's own end-of-text token; a smaller vocabulary has none. */
    json_t *end = o->vocab > 50256 ? json_integer(50256) : json_null();
    json_t *root =
        json_pack("{s:s, s:[s], s:f, s:O, s:f, s:O, s:f, s:s, s:i, s:i, s:i, s:n, s:i, s:i, s:f, s:b, s:s, s:i}",
                  "activation_function", "gelu_new", "architectures", "GPT2LMHeadModel", "attn_pdrop",
                  (double)o->dropout, "bos_token_id", end, "embd_pdrop", (double)o->dropout, "eos_token_id", end,
                  "layer_norm_epsilon", (double)o->norm_eps, "model_type", "gpt2", "n_embd", o->width, "n_head",
                  o->heads, "n_ctx", o->context, "n_inner", "n_layer", o->layers, "n_positions", o->context,
                  "resid_pdrop", (double)o->dropout, "tie_word_embeddings", 1, "torch_dtype", "float32", "vocab_size",
                  o->vocab);
    json_decref(end);
    /* Seven digits: enough for settings that people write, and 1e-5 stays 1e-05. */
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) : NULL;
    ls_status status = text ? ls__file_write(path, text, strlen(text)) : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    free(text);
    json_decref(root);
    return status;
}
