/* Adapters against PEFT: logits, gradients and the losses of 10 AdamW steps of golden/lora_*.safetensors, made by check_peft.py.
 * And merging, folders, recomputation, threads, and what is refused. */
#include "golden.h"
#include "base/file.h"
#include "nn/lora.h"
#include <sys/stat.h>

typedef struct fixture {
    golden g;
    ls__st_reader *base;
    ls_lora_options lora;
    int32_t tokens[STEPS][ROWS * LENGTH], targets[STEPS][ROWS * LENGTH];
} fixture;

static const char *const names[] = { "gpt2", "llama3" };
enum { N_NAMES = 2 };

static void open_model(fixture *f, const char *name, int threads)
{
    char text[16384], *base;
    *f = (fixture){ .g = { .name = name, .file = golden_file("lora_", name) }, .base = golden_file("", name) };
    size_t bytes = golden_read(f->g.file, "config", text, sizeof text);
    check_ok(ls__lora_parse_config(name, text, bytes, &f->lora, &base));
    free(base);
    golden_model(&f->g, f->base, &f->lora, threads);
    golden_values(f->base, f->g.model->frozen_places.list, f->g.model->frozen_places.count, f->g.model->frozen);
    golden_read(f->base, "tokens", f->tokens, sizeof f->tokens);
    golden_read(f->base, "targets", f->targets, sizeof f->targets);
}

static void close_model(fixture *f)
{
    golden_free(&f->g);
    ls__st_free(&f->base);
}

static ls_model_batch batch_of(const void *user, int step)
{
    const fixture *f = user;
    return (ls_model_batch){
        .batch_size = ROWS, .seq_len = LENGTH, .tokens = f->tokens[step], .targets = f->targets[step]
    };
}

static void check_logits(const fixture *f, ls_model *model)
{
    ls_model_batch batch = batch_of(f, 0);
    check_near(&f->g, "logits", golden_logits(model, f->g.tape, &batch)->data, golden_find(f->g.file, "logits", NULL),
               0, ROWS * LENGTH * VOCAB, 1e-5);
}

static void logits_gradients_and_losses_are_those_of_peft(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 2);
        check_logits(&f, f.g.model);
        ls_model_batch batch = batch_of(&f, 0);
        golden_pass(&f.g, &batch);
        check_gradients(&f.g, NULL, 1e-5);
        check_losses(&f.g, batch_of, &f, 1e-5);
        close_model(&f);
    }
}

/* Recomputed blocks, other threads, dropout: the same bits. */
static void gradients_have_the_same_bits_however_they_are_computed(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f[3];
        for (int k = 0; k < 3; k++) {
            open_model(&f[k], names[i], k + 1);
            f[k].g.model->lora.options.dropout = 0.3f;
            ls_model_set_recompute(f[k].g.model, k == 1);
            ls_model_batch batch = batch_of(&f[k], 0);
            golden_pass(&f[k].g, &batch);
        }
        size_t bytes = ls_model_elements(f[0].g.model) * sizeof(float);
        assert_memory_equal(ls_model_grads(f[0].g.model), ls_model_grads(f[1].g.model), bytes);
        assert_memory_equal(ls_model_grads(f[0].g.model), ls_model_grads(f[2].g.model), bytes);
        for (int k = 0; k < 3; k++) close_model(&f[k]);
    }
}

/* An adapter folder is a model: its base with the adapter merged; trained further it is the adapter again. */
static void folders_are_read_merged_or_trained_further(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        char at[] = "/tmp/lockstep-test-XXXXXX", base[64], adapter[64];
        assert_non_null(mkdtemp(at));
        snprintf(base, sizeof base, "%s/base", at);
        snprintf(adapter, sizeof adapter, "%s/adapter", at);
        open_model(&f, names[i], 1);
        ls_model *whole, *again;
        ls_model_options o = ls_model_get_options(f.g.model), merged;
        assert_memory_equal(&o.lora, &f.lora, sizeof o.lora);
        merged = o;
        merged.lora.r = 0;
        check_ok(ls_model_open(&whole, &merged));
        check_ok(ls_model_bind(whole, f.g.model->frozen, NULL, false));
        check_ok(ls_model_save(whole, base));
        ls_model_free(&whole);
        f.g.model->lora.base = strdup(base);
        check_ok(ls_model_save(f.g.model, adapter));

        check_ok(ls_model_options_read(adapter, &o));
        assert_true(ls__lora_is_same(&o.lora, &f.lora));
        merged = o;
        merged.lora.r = 0;
        check_ok(ls_model_open(&whole, &merged));
        check_ok(ls_model_bind(whole, NULL, NULL, false));
        check_ok(ls_model_load(whole, adapter));
        check_logits(&f, whole);
        ls_model_free(&whole);

        check_ok(ls_model_open(&again, &o));
        check_ok(ls_model_bind(again, NULL, NULL, true));
        check_ok(ls_model_load(again, adapter));
        assert_memory_equal(ls_model_values(again), ls_model_values(f.g.model),
                            ls_model_elements(f.g.model) * sizeof(float));
        assert_string_equal(again->lora.base, base);
        ls_model_free(&again);
        close_model(&f);
        char command[100];
        snprintf(command, sizeof command, "rm -r %s", at);
        assert_int_equal(system(command), 0);
    }
}

static void options_are_read_and_mistakes_named(void **state)
{
    (void)state;
    ls_lora_options o;
    check_ok(ls__lora_parse("", &o));
    assert_true(o.r == 16 && o.alpha == 32 && o.dropout == 0 && !*o.target && !o.rslora);
    check_ok(ls__lora_parse("r=8,alpha=4.5,dropout=0.1,target=q_proj+v_proj,rslora", &o));
    assert_true(o.r == 8 && o.alpha == 4.5f && o.dropout == 0.1f && o.rslora);
    assert_string_equal(o.target, "q_proj+v_proj");
    check_fails(ls__lora_parse("rank=8", &o), LS_EINVAL, "'rank=8' is not known; there are r=N, alpha=X");
    check_fails(ls__lora_parse("r=0", &o), LS_EINVAL, "r is 0; it must be from 1");
    check_fails(ls__lora_parse("dropout=1", &o), LS_EINVAL, "dropout is 1");
    ls_model *m;
    ls_model_options small = { .lm = { .kind = LS_LM_LLAMA, .layers = 1, .width = 32 }, .lora = { .r = 4 } };
    check_ok(ls_model_open(&m, &small));
    assert_true(ls_model_get_options(m).lora.alpha == 8);
    ls_model_free(&m);
    check_ok(ls__lora_parse("target=q_proj+query", &small.lora));
    check_fails(ls_model_open(&m, &small), LS_EINVAL, "llama has no layer 'query'; it has q_proj, k_proj, v_proj");
    assert_null(m);
    small.lora.r = -1;
    check_fails(ls_model_open(&m, &small), LS_EINVAL, "r is -1; it must be from 1");
    check_fails(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_VIT, .lora = { .r = 4 } }), LS_EUNSUPPORTED,
                "not for vit");

    static const char *const bad[][2] = {
        { "{\"peft_type\": \"IA3\"}", "\"peft_type\": only \"LORA\"" },
        { "{\"peft_type\": \"LORA\", \"use_dora\": true}", "\"use_dora\": is not supported" },
        { "{\"peft_type\": \"LORA\", \"bias\": \"all\"}", "\"bias\": only \"none\"" },
        { "{\"peft_type\": \"LORA\", \"r\": 0}", "\"r\": must be an integer from 1" },
        { "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1, \"target_modules\": \".*proj\"}",
          "\"target_modules\": must be a list" },
        { "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1, \"target_modules\": [\"a\"]}",
          "\"base_model_name_or_path\": is missing" },
        { "[]", "must be a JSON object" },
        { "{", "line 1" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *base;
        ls_status status = ls__lora_parse_config("x.json", bad[i][0], strlen(bad[i][0]), &o, &base);
        assert_true(status < 0 && !base);
        if (!strstr(ls_error(), bad[i][1])) fail_msg("'%s' is not in '%s'", bad[i][1], ls_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_gradients_and_losses_are_those_of_peft),
        cmocka_unit_test(gradients_have_the_same_bits_however_they_are_computed),
        cmocka_unit_test(folders_are_read_merged_or_trained_further),
        cmocka_unit_test(options_are_read_and_mistakes_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
