/* config.json of GPT-2 folders: read, written, and refused with the key's name. */
#include "check.h"
#include "nn/model.h"
#include "folder.h"

static ls_status parse(const char *text, ls_lm_options *out)
{
    return ls__hf_config_parse("config.json", text, strlen(text), out);
}

static void absent_keys_have_gpt2s_values(void **state)
{
    (void)state;
    ls_lm_options o;
    check_ok(parse("{}", &o));
    assert_int_equal(o.layers, 12);
    assert_int_equal(o.width, 768);
    assert_int_equal(o.heads, 12);
    assert_int_equal(o.vocab_size, 50257);
    assert_int_equal(o.context, 1024);
    assert_float_equal(o.norm_eps, 1e-5f, 0);
    assert_float_equal(o.dropout, 0.1f, 0);
}

static void written_settings_are_read_back(void **state)
{
    (void)state;
    ls_lm_options o = { .layers = 3, .width = 96, .heads = 4, .vocab_size = 256, .context = 64, .dropout = 0.25f }, got;
    const struct {
        float dropout, embd, attn;
    } rates[] = { { 0.25f, 0, 0 }, { 0, 0, 0 }, { 0.1f, -1, 0.2f }, { 0, 0.1f, 0 } };
    check_ok(ls__lm_options_check(&o));
    for (int i = 0; i < 4; i++) {
        char *text;
        o.dropout = rates[i].dropout;
        o.embd_dropout = rates[i].embd;
        o.attn_dropout = rates[i].attn;
        check_ok(ls__hf_config_text(NULL, &o, 255, &text));
        check_ok(parse(text, &got));
        assert_memory_equal(&got, &o, sizeof o);
        assert_non_null(strstr(text, "\"eos_token_id\": 255"));
        assert_non_null(strstr(text, "\"bos_token_id\": 255"));
        free(text);
    }
}

/* A config.json that was read is kept, byte for byte, except for values that changed. */
static void settings_that_were_read_are_kept(void **state)
{
    (void)state;
    static const char base[] =
        "{\n  \"_name_or_path\" : \"my/model\", \"n_layer\":2,\n\t\"n_embd\": 64, \"n_head\": 4,\"vocab_size\": 300,"
        "\n  \"attn_pdrop\": 0.10, \"embd_pdrop\": 0, \"resid_pdrop\": 1e-1,\n"
        "  \"task_specific_params\": { \"eos_token_id\": [1, {\"a\": \"}, \\\"\"}] },\n"
        "  \"eos_token_id\": [7, 12], \"bos_token_id\": 3, \"my_field\": 1.0000000000000000000001,\n"
        "  \"layer_norm_epsilon\": 1e-05, \"dtype\": \"float32\"\n}\n";
    ls_lm_options o;
    char *text;
    check_ok(parse(base, &o));
    check_ok(ls__hf_config_text(base, &o, 12, &text)); /* one of its tokens */
    assert_string_equal(text, base);
    free(text);
    /* Another dropout; the end of text stays, also where the tokenizer has another. */
    o.dropout = 0.2f;
    o.embd_dropout = 0;
    o.attn_dropout = 0.1f;
    check_ok(ls__hf_config_text(base, &o, 9, &text));
    char expected[sizeof base + 100];
    snprintf(expected, sizeof expected, "%s", base);
    const char *const changes[][2] = { { "\"embd_pdrop\": 0,", "\"embd_pdrop\": 0.2," },
                                       { "\"resid_pdrop\": 1e-1", "\"resid_pdrop\": 0.2" } };
    for (int i = 0; i < 2; i++) {
        char *at = strstr(expected, changes[i][0]), rest[sizeof expected];
        assert_non_null(at);
        snprintf(rest, sizeof rest, "%s", at + strlen(changes[i][0]));
        snprintf(at, sizeof expected - (size_t)(at - expected), "%s%s", changes[i][1], rest);
    }
    assert_string_equal(text, expected);
    free(text);
    /* Absent keys are appended; another type is corrected. */
    check_ok(parse("{}", &o));
    check_ok(ls__hf_config_text("{}", &o, 5, &text));
    assert_string_equal(text, "{\n  \"eos_token_id\": 5,\n  \"bos_token_id\": 5}");
    free(text);
    check_ok(ls__hf_config_text("{\"torch_dtype\": \"bfloat16\"}", &o, -1, &text));
    assert_string_equal(text, "{\"torch_dtype\": \"float32\"}");
    free(text);
}

/* Keys that are not used may have any value. */
static void a_number_too_large_for_an_integer_is_kept(void **state)
{
    (void)state;
    static const char base[] = "{\"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, \"my_limit\": 9223372036854775808, "
                               "\"eos_token_id\": 7}";
    ls_lm_options o;
    char *text;
    check_ok(parse(base, &o));
    assert_int_equal(o.layers, 2);
    check_ok(ls__hf_config_text(base, &o, 9, &text));
    assert_string_equal(text, base);
    free(text);
    check_fails(parse("{\"n_layer\": 9223372036854775808}", &o), LS_EFORMAT, "'n_layer'");
    check_fails(parse("{\"n_layer\": 2.5}", &o), LS_EFORMAT, "'n_layer'");
}

static void other_kinds_of_model_are_refused(void **state)
{
    (void)state;
    ls_lm_options o;
    check_fails(parse("{\"model_type\":\"bloom\"}", &o), LS_EUNSUPPORTED,
                "'model_type' must be \"gpt2\" or \"llama\" or \"qwen2\" or \"qwen3\" or \"mistral\"; 'bloom'");
    check_fails(parse("{\"activation_function\":\"relu\"}", &o), LS_EUNSUPPORTED, "'activation_function' must be");
    check_fails(parse("{\"tie_word_embeddings\":false}", &o), LS_EUNSUPPORTED, "'tie_word_embeddings' must be true");
    check_fails(parse("{\"scale_attn_weights\":false}", &o), LS_EUNSUPPORTED, "'scale_attn_weights'");
    check_fails(parse("{\"scale_attn_by_inverse_layer_idx\":true}", &o), LS_EUNSUPPORTED, "must be false");
    check_fails(parse("{\"n_inner\":100}", &o), LS_EUNSUPPORTED, "'n_inner' is 100; only 4 times the width (768)");
    check_ok(parse("{\"n_inner\":3072,\"activation_function\":\"gelu_pytorch_tanh\"}", &o));
}

static void broken_settings_are_refused_and_named(void **state)
{
    (void)state;
    ls_lm_options o = { .layers = 77 };
    check_fails(parse("", &o), LS_EFORMAT, "config.json: line 1");
    check_fails(parse("[]", &o), LS_EFORMAT, "must be a JSON object");
    check_fails(parse("{\"n_layer\":1,\"n_layer\":2}", &o), LS_EFORMAT, "duplicate");
    check_fails(parse("{\"n_layer\":0}", &o), LS_EFORMAT, "'n_layer' is 0; it must be an integer >= 1");
    check_fails(parse("{\"n_layer\":\"12\"}", &o), LS_EFORMAT, "'n_layer' is \"12\"; it must be an integer >= 1");
    check_fails(parse("{\"n_embd\":1e10}", &o), LS_EFORMAT, "'n_embd'");
    check_fails(parse("{\"n_head\":7}", &o), LS_EFORMAT, "width 768 is not divisible by 7 heads");
    check_fails(parse("{\"vocab_size\":2147483647}", &o), LS_EFORMAT, "vocab_size is 2147483647; it must be from 1 to");
    check_fails(parse("{\"resid_pdrop\":1}", &o), LS_EFORMAT, "'resid_pdrop' must be a number >= 0 and < 1");
    check_fails(parse("{\"layer_norm_epsilon\":-1}", &o), LS_EFORMAT, "'layer_norm_epsilon'");
    check_fails(ls__hf_config_read("absent", &o), LS_ENOENT, "absent");
    assert_int_equal(o.layers, 77);
}

static void sizes_have_names(void **state)
{
    (void)state;
    ls_lm_options o;
    check_ok(ls_lm_preset("gpt2-xl", &o));
    assert_int_equal(o.layers, 48);
    assert_int_equal(o.width, 1600);
    assert_int_equal(o.heads, 25);
    check_fails(ls_lm_preset("gpt3", &o), LS_EINVAL, "unknown model 'gpt3'; known models: gpt2,");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_have_gpt2s_values),
        cmocka_unit_test(written_settings_are_read_back),
        cmocka_unit_test(settings_that_were_read_are_kept),
        cmocka_unit_test(a_number_too_large_for_an_integer_is_kept),
        cmocka_unit_test(other_kinds_of_model_are_refused),
        cmocka_unit_test(broken_settings_are_refused_and_named),
        cmocka_unit_test(sizes_have_names),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
