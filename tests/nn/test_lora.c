/* Adapters against PEFT: logits, gradients and the losses of 10 AdamW steps of golden/lora_*.safetensors, made by check_peft.py.
 * And merging, folders, recomputation, threads, and what is refused. */
#include "check.h"
#include "base/file.h"
#include "nn/lora.h"
#include "nn/safetensors.h"
#include <math.h>
#include <sys/stat.h>

enum { ROWS = 3, LENGTH = 11, STEPS = 10, VOCAB = 37 };

typedef struct fixture {
    const char *name;
    ls__st_reader *golden, *base;
    ls_model *model;
    ls_tape *tape;
    ls_lora_options lora;
    int32_t tokens[STEPS][ROWS * LENGTH], targets[STEPS][ROWS * LENGTH];
} fixture;

static const char *const names[] = { "gpt2", "llama3" };
enum { N_NAMES = 2 };

static ls__st_reader *open_golden(const char *prefix, const char *name)
{
    char path[4096];
    ls__st_reader *out;
    snprintf(path, sizeof path, "%s/tests/nn/golden/%s%s.safetensors", getenv("LOCKSTEP_SOURCE"), prefix, name);
    check_ok(ls__st_open(&out, path));
    return out;
}

static const ls__st_tensor *find(ls__st_reader *from, const char *kind, const char *name)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s%s", kind, name ? "." : "", name ? name : "");
    const ls__st_tensor *t = ls__st_find(from, full);
    if (!t) fail_msg("the golden file has no %s", full);
    return t;
}

static size_t read_text(ls__st_reader *from, const char *kind, char *out, size_t room)
{
    const ls__st_tensor *t = find(from, kind, NULL);
    assert_true(t->bytes < room);
    check_ok(ls__st_read(t, 0, t->bytes, out));
    out[t->bytes] = 0;
    return t->bytes;
}

static void read_values(ls__st_reader *from, const ls_place *places, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++) {
        const ls__st_tensor *t = find(from, "weight", places[i].name);
        assert_int_equal(t->bytes / 4, places[i].count);
        check_ok(ls__st_to_f32(t, 0, places[i].count, values + places[i].offset));
    }
}

static void open_model(fixture *f, const char *name, int threads)
{
    char text[16384], *base;
    ls_lm_options o;
    const ls_place *places;
    *f = (fixture){ .name = name, .golden = open_golden("lora_", name), .base = open_golden("", name) };
    size_t bytes = read_text(f->base, "config", text, sizeof text);
    check_ok(ls__hf_config_parse(name, text, bytes, &o));
    bytes = read_text(f->golden, "config", text, sizeof text);
    check_ok(ls__lora_parse_config(name, text, bytes, &f->lora, &base));
    free(base);
    check_ok(ls_model_open(&f->model, &(ls_model_options){ .lm = o, .lora = f->lora }));
    check_ok(ls_model_bind(f->model, NULL, NULL, true));
    check_ok(ls_tape_open(&f->tape, &(ls_tape_options){ .threads = threads }));
    read_values(f->base, f->model->frozen_places.list, f->model->frozen_places.count, f->model->frozen);
    size_t n = ls_model_places(f->model, &places);
    read_values(f->golden, places, n, ls_model_values(f->model));
    check_ok(ls__st_read(find(f->base, "tokens", NULL), 0, sizeof f->tokens, f->tokens));
    check_ok(ls__st_read(find(f->base, "targets", NULL), 0, sizeof f->targets, f->targets));
}

static void close_model(fixture *f)
{
    ls_tape_free(&f->tape);
    ls_model_free(&f->model);
    ls__st_free(&f->golden);
    ls__st_free(&f->base);
}

static void check_close(const fixture *f, const char *what, const float *got, const ls__st_tensor *expected,
                        double limit)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < expected->bytes / 4; i++) {
        float e;
        check_ok(ls__st_to_f32(expected, i, 1, &e));
        worst = fmax(worst, fabs((double)got[i] - (double)e));
        largest = fmax(largest, fabs((double)e));
    }
    if (!(worst <= limit * largest))
        fail_msg("%s: %s: off by %g of %g (limit %g)", f->name, what, worst, largest, limit);
}

static ls_model_batch batch_of(const fixture *f, int step)
{
    return (ls_model_batch){
        .batch_size = ROWS, .seq_len = LENGTH, .tokens = f->tokens[step], .targets = f->targets[step]
    };
}

static const float *logits_of(ls_model *model, ls_tape *tape, const fixture *f)
{
    ls_param *params;
    int n = ls_model_params(model, &params);
    ls_model_batch batch = batch_of(f, 0);
    check_ok(ls_tape_begin(tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *x = ls_model_logits(model, tape, &batch);
    check_ok(ls_tape_status(tape));
    return x->data;
}

static double run_step(fixture *f, int step)
{
    ls_param *params;
    int n = ls_model_params(f->model, &params);
    ls_model_batch batch = batch_of(f, step);
    check_ok(ls_tape_begin(f->tape, params, n, NULL));
    ls_tensor *loss = ls_model_loss(f->model, f->tape, &batch);
    check_ok(ls_tape_backward(f->tape, loss));
    return (double)loss->data[0];
}

static void logits_gradients_and_losses_are_those_of_peft(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        const ls_place *places;
        ls_optimizer *optimizer;
        open_model(&f, names[i], 2);
        check_close(&f, "logits", logits_of(f.model, f.tape, &f), find(f.golden, "logits", NULL), 1e-5);
        size_t n = ls_model_places(f.model, &places), elements = ls_model_elements(f.model);
        float losses[STEPS];
        check_ok(ls_optimizer_open(&optimizer, places, n, 0, elements, NULL));
        for (int step = 0; step < STEPS; step++) {
            losses[step] = (float)run_step(&f, step);
            for (size_t k = 0; k < n && step == 0; k++)
                check_close(&f, places[k].name, ls_model_grads(f.model) + places[k].offset,
                            find(f.golden, "grad", places[k].name), 1e-5);
            ls_clip_grad_norm(ls_model_grads(f.model), elements, 1, 0);
            ls_optimizer_update(optimizer, ls_model_values(f.model), ls_model_grads(f.model), step, 3e-3f);
        }
        check_close(&f, "losses", losses, find(f.golden, "losses", NULL), 1e-5);
        ls_optimizer_free(&optimizer);
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
            f[k].model->lora.options.dropout = 0.3f;
            ls_model_set_recompute(f[k].model, k == 1);
            run_step(&f[k], 0);
        }
        size_t bytes = ls_model_elements(f[0].model) * sizeof(float);
        assert_memory_equal(ls_model_grads(f[0].model), ls_model_grads(f[1].model), bytes);
        assert_memory_equal(ls_model_grads(f[0].model), ls_model_grads(f[2].model), bytes);
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
        ls_model_options o = ls_model_get_options(f.model), merged;
        assert_memory_equal(&o.lora, &f.lora, sizeof o.lora);
        merged = o;
        merged.lora.r = 0;
        check_ok(ls_model_open(&whole, &merged));
        check_ok(ls_model_bind(whole, f.model->frozen, NULL, false));
        check_ok(ls_model_save(whole, base));
        ls_model_free(&whole);
        f.model->lora.base = strdup(base);
        check_ok(ls_model_save(f.model, adapter));

        check_ok(ls_model_options_read(adapter, &o));
        assert_true(ls__lora_is_same(&o.lora, &f.lora));
        merged = o;
        merged.lora.r = 0;
        check_ok(ls_model_open(&whole, &merged));
        check_ok(ls_model_bind(whole, NULL, NULL, false));
        check_ok(ls_model_load(whole, adapter));
        check_close(&f, "merged", logits_of(whole, f.tape, &f), find(f.golden, "logits", NULL), 1e-5);
        ls_model_free(&whole);

        check_ok(ls_model_open(&again, &o));
        check_ok(ls_model_bind(again, NULL, NULL, true));
        check_ok(ls_model_load(again, adapter));
        assert_memory_equal(ls_model_values(again), ls_model_values(f.model),
                            ls_model_elements(f.model) * sizeof(float));
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
