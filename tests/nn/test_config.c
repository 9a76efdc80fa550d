/* config.json of folders: read, written, and refused with the key's name. */
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
                "'model_type' must be \"gpt2\" or \"llama\" or \"qwen2\" or \"qwen3\" or \"mistral\" or \"bert\" or "
                "\"distilbert\" or \"roberta\"; 'bloom'");
    check_fails(parse("{\"activation_function\":\"relu\"}", &o), LS_EUNSUPPORTED, "'activation_function' must be");
    check_fails(parse("{\"tie_word_embeddings\":false}", &o), LS_EUNSUPPORTED, "'tie_word_embeddings' must be true");
    check_fails(parse("{\"scale_attn_weights\":false}", &o), LS_EUNSUPPORTED, "'scale_attn_weights'");
    check_fails(parse("{\"scale_attn_by_inverse_layer_idx\":true}", &o), LS_EUNSUPPORTED, "must be false");
    check_fails(parse("{\"n_inner\":100}", &o), LS_EUNSUPPORTED, "'n_inner' is 100; only 4 times the width (768)");
    check_ok(parse("{\"n_inner\":3072,\"activation_function\":\"gelu_pytorch_tanh\"}", &o));
}

/* transformers 4 and 5 have other keys for the same. */
static void rotary_positions_of_both_versions_are_read(void **state)
{
    (void)state;
    ls_lm_options a, b;
    check_ok(parse(
        "{\"model_type\":\"llama\",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
        "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
        &a));
    check_ok(parse("{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\","
                   "\"factor\":8.0,"
                   "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
                   &b));
    assert_memory_equal(&a.rope, &b.rope, sizeof a.rope);
    assert_int_equal(a.rope.kind, LS_ROPE_LLAMA3);
    assert_int_equal(a.rope.original_context, 8192);
    check_ok(parse("{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", &a));
    assert_int_equal(a.rope.kind, LS_ROPE_LINEAR);
    assert_float_equal(a.rope.theta, 10000, 0);
    check_ok(parse("{\"model_type\":\"llama\",\"rope_scaling\":null,\"rope_theta\":7}", &a));
    assert_int_equal(a.rope.kind, LS_ROPE_DEFAULT);
    assert_float_equal(a.rope.theta, 7, 0);
}

static void absent_keys_have_the_values_of_transformers(void **state)
{
    (void)state;
    ls_lm_options o;
    check_ok(parse("{\"model_type\":\"llama\"}", &o));
    assert_int_equal(o.width, 4096);
    assert_int_equal(o.kv_heads, 32);
    assert_int_equal(o.head_dim, 128);
    assert_int_equal(o.inner, 11008);
    assert_int_equal(o.head, LS_HEAD_UNTIED);
    assert_float_equal(o.norm_eps, 1e-6f, 0);
    check_ok(parse("{\"model_type\":\"mistral\"}", &o));
    assert_int_equal(o.kv_heads, 8);
    assert_int_equal(o.window, 4096);
    check_ok(parse("{\"model_type\":\"mistral\",\"sliding_window\":null}", &o));
    assert_int_equal(o.window, 0);
    check_ok(parse("{\"model_type\":\"qwen2\",\"sliding_window\":4096}", &o));
    assert_int_equal(o.window, 0);
    check_ok(parse("{\"model_type\":\"qwen2\",\"sliding_window\":100,\"use_sliding_window\":true}", &o));
    assert_int_equal(o.window, 100);
    assert_int_equal(o.window_first, 28);
    check_ok(parse(
        "{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"num_attention_heads\":16,\"num_key_value_heads\":8}", &o));
    assert_int_equal(o.head_dim, 128);
}

static void new_settings_of_a_family_are_read_back(void **state)
{
    (void)state;
    static const char *const names[] = { "llama",       "llama-2-7b",   "llama-3.1-8b", "llama-3.2-1b", "llama-3.2-3b",
                                         "smollm-135m", "smollm2-135m", "smollm2-360m", "smollm2-1.7b", "tinyllama",
                                         "qwen2",       "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3",        "qwen3-0.6b",
                                         "qwen3-1.7b",  "mistral",      "mistral-7b" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ls_model_options o;
        ls_lm_options got;
        char *text;
        check_ok(ls_model_preset(names[i], &o));
        check_ok(ls__hf_config_text(NULL, &o.lm, 2, &text));
        check_ok(parse(text, &got));
        assert_memory_equal(&got, &o.lm, sizeof got);
        free(text);
    }
}

/* 134,515,008 parameters and so on, as their cards say. */
static void published_sizes_have_their_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t count;
    } sizes[] = { { "smollm2-135m", 134515008 }, { "smollm2-360m", 361821120 },  { "tinyllama", 1100048384 },
                  { "llama-2-7b", 6738415616 },  { "llama-3.2-1b", 1235814400 }, { "llama-3.1-8b", 8030261248 },
                  { "qwen2.5-0.5b", 494032768 }, { "qwen3-0.6b", 596049920 },    { "mistral-7b", 7241732096 },
                  { "gpt2", 124439808 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ls_model_options o;
        ls_model *model;
        check_ok(ls_model_preset(sizes[i].name, &o));
        check_ok(ls_model_open(&model, &o));
        if (ls_model_param_count(model) != sizes[i].count)
            fail_msg("%s: %zu parameters, expected %zu", sizes[i].name, ls_model_param_count(model), sizes[i].count);
        ls_model_free(&model);
    }
}

#define LLAMA(more) "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4," more "}"
#define QWEN(more)  "{\"model_type\":\"qwen2\",\"num_hidden_layers\":2," more "}"
static void contradictions_in_a_family_are_named(void **state)
{
    (void)state;
    ls_lm_options o;
    check_fails(parse(LLAMA("\"num_key_value_heads\":3"), &o), LS_EFORMAT,
                "4 heads cannot share 3 heads of keys and values");
    check_fails(parse(LLAMA("\"head_dim\":7"), &o), LS_EFORMAT, "head_dim is 7");
    check_fails(parse(LLAMA("\"hidden_act\":\"gelu\""), &o), LS_EUNSUPPORTED, "'hidden_act' must be \"silu\"; 'gelu'");
    check_fails(parse(LLAMA("\"tie_word_embeddings\":1"), &o), LS_EFORMAT,
                "'tie_word_embeddings' must be true or false");
    check_fails(parse(LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}"), &o), LS_EUNSUPPORTED,
                "'rope_scaling.rope_type' must be default, linear or llama3; 'yarn'");
    check_fails(parse(LLAMA("\"rope_parameters\":{\"rope_type\":\"linear\"}"), &o), LS_EFORMAT, "rope factor is 0");
    check_fails(parse(LLAMA("\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8}"), &o), LS_EFORMAT,
                "rope llama3 has factors 0 and 0");
    check_fails(parse(LLAMA("\"rope_parameters\":{\"partial_rotary_factor\":0.5}"), &o), LS_EUNSUPPORTED,
                "partial_rotary_factor");
    check_fails(parse(LLAMA("\"rope_parameters\":[1]"), &o), LS_EFORMAT, "'rope_parameters' must be an object");
    check_fails(parse(LLAMA("\"rope_theta\":-1"), &o), LS_EFORMAT, "'rope_theta' must be a number above 0");
    check_fails(parse("{\"model_type\":\"llama\",\"hidden_size\":65}", &o), LS_EFORMAT,
                "width 65 is not divisible by 32 heads");
    check_fails(parse("{\"model_type\":\"mistral\",\"sliding_window\":0}", &o), LS_EFORMAT,
                "'sliding_window' must be an integer >= 1");
    check_fails(parse(QWEN("\"layer_types\":[\"full_attention\"]"), &o), LS_EFORMAT,
                "'layer_types' must be a list of 2");
    check_fails(parse(QWEN("\"layer_types\":[\"full_attention\",\"sliding_attention\"]"), &o), LS_EFORMAT,
                "layer_types[1] is sliding_attention");
    check_fails(parse(QWEN("\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\",\"full_attention\"]"),
                      &o),
                LS_EUNSUPPORTED, "full_attention after");
    check_fails(parse(QWEN("\"layer_types\":[\"full_attention\",\"linear_attention\"]"), &o), LS_EUNSUPPORTED,
                "layer_types[1] must be");
}

static void options_of_other_models_are_refused(void **state)
{
    (void)state;
    ls_model *m;
    const struct {
        ls_lm_options o;
        const char *why;
    } cases[] = { { { .kv_heads = 2 }, "gpt2: kv_heads is an option of the Llama family" },
                  { { .head = LS_HEAD_UNTIED }, "gpt2: an untied head" },
                  { { .kind = LS_LM_LLAMA, .window = 8 }, "llama: a window is an option of mistral" },
                  { { .kind = LS_LM_QWEN2, .attention_bias = true },
                    "qwen2: attention_bias is an option of llama and qwen3" },
                  { { .kind = LS_LM_MISTRAL, .mlp_bias = true }, "mistral: mlp_bias is an option of llama" },
                  { { .kind = LS_LM_QWEN3, .window_first = 1 }, "qwen3: window_first is an option" },
                  { { .kind = LS_LM_LLAMA, .rope = { .theta = 0.5f } }, "rope theta is 0.5" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_fails(ls_model_open(&m, &(ls_model_options){ .lm = cases[i].o }), LS_EINVAL, cases[i].why);
}

static void broken_settings_are_refused_and_named(void **state)
{
    (void)state;
    ls_lm_options o = { .layers = 77 };
    check_fails(parse("", &o), LS_EFORMAT, "config.json: line 1");
    check_fails(parse("[]", &o), LS_EFORMAT, "must be a JSON object");
    check_fails(parse("{\"n_layer\":1,\"n_layer\":2}", &o), LS_EFORMAT, "duplicate");
    check_fails(parse("{\"hidden_size\":16}", &o), LS_EFORMAT, "'model_type' is missing; it must be \"gpt2\" or");
    check_fails(parse("{\"n_layer\":2147483648}", &o), LS_EFORMAT, "must be an integer >= 1, and below 2^31");
    check_fails(parse("{\"n_layer\":0}", &o), LS_EFORMAT, "'n_layer' is 0; it must be an integer >= 1");
    check_fails(parse("{\"n_layer\":\"12\"}", &o), LS_EFORMAT, "'n_layer' is \"12\"; it must be an integer >= 1");
    check_fails(parse("{\"n_embd\":1e10}", &o), LS_EFORMAT, "'n_embd'");
    check_fails(parse("{\"n_head\":7}", &o), LS_EFORMAT, "width 768 is not divisible by 7 heads");
    check_fails(parse("{\"vocab_size\":2147483647}", &o), LS_EFORMAT, "vocab_size is 2147483647; it must be from 1 to");
    check_fails(parse("{\"resid_pdrop\":1}", &o), LS_EFORMAT, "'resid_pdrop' must be a number >= 0 and < 1");
    check_fails(parse("{\"layer_norm_epsilon\":-1}", &o), LS_EFORMAT, "'layer_norm_epsilon'");
    assert_int_equal(o.layers, 77);
}

static void sizes_have_names(void **state)
{
    (void)state;
    ls_model_options o;
    check_ok(ls_model_preset("gpt2-xl", &o));
    assert_int_equal(o.kind, LS_MODEL_LM);
    assert_int_equal(o.lm.layers, 48);
    assert_int_equal(o.lm.width, 1600);
    assert_int_equal(o.lm.heads, 25);
    check_ok(ls_model_preset("vit-tiny", &o));
    assert_int_equal(o.kind, LS_MODEL_VIT);
    assert_int_equal(o.vit.heads, 3);
    check_fails(ls_model_preset("gpt3", &o), LS_EINVAL, "unknown model 'gpt3'; known models: gpt2,");
    int count[LS_MODEL_KINDS] = { 0 };
    for (int kind = 0; kind < LS_MODEL_KINDS; kind++) {
        const char *name;
        while ((name = ls_model_preset_name((ls_model_kind)kind, count[kind]))) {
            check_ok(ls_model_preset(name, &o));
            assert_int_equal(o.kind, kind);
            count[kind]++;
        }
    }
    assert_true(count[LS_MODEL_LM] > 20);
    assert_int_equal(count[LS_MODEL_RESNET], 10);
    assert_int_equal(count[LS_MODEL_VIT], 4);
    assert_int_equal(count[LS_MODEL_MLP], 0);
    assert_null(ls_model_preset_name((ls_model_kind)9, 0));
    assert_null(ls_model_preset_name(LS_MODEL_LM, -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_have_gpt2s_values),
        cmocka_unit_test(written_settings_are_read_back),
        cmocka_unit_test(settings_that_were_read_are_kept),
        cmocka_unit_test(a_number_too_large_for_an_integer_is_kept),
        cmocka_unit_test(other_kinds_of_model_are_refused),
        cmocka_unit_test(rotary_positions_of_both_versions_are_read),
        cmocka_unit_test(absent_keys_have_the_values_of_transformers),
        cmocka_unit_test(new_settings_of_a_family_are_read_back),
        cmocka_unit_test(published_sizes_have_their_number_of_parameters),
        cmocka_unit_test(contradictions_in_a_family_are_named),
        cmocka_unit_test(options_of_other_models_are_refused),
        cmocka_unit_test(broken_settings_are_refused_and_named),
        cmocka_unit_test(sizes_have_names),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
