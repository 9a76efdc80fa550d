/* Every architecture against transformers: logits, loss, all gradients, the losses of 10 AdamW steps and greedy text. The numbers are in
 * golden/, made by make_golden_models.py. */
#include "check.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "tensor/hooks.h"
#include <math.h>

enum { ROWS = 3, LENGTH = 11, STEPS = 10, VOCAB = 37, GREEDY = 16, PROMPT = 4 };

typedef struct fixture {
    const char *name;
    ls__st_reader *golden;
    ls_model *model;
    ls_tape *tape;
    int32_t tokens[STEPS][ROWS * LENGTH], targets[STEPS][ROWS * LENGTH];
} fixture;

static const char *const names[] = { "gpt2",  "llama2",       "llama3", "llama_biases", "smollm2",
                                     "qwen2", "qwen2_window", "qwen3",  "mistral" };
enum { N_NAMES = sizeof names / sizeof *names };

static const ls__st_tensor *golden(const fixture *f, const char *kind, const char *name)
{
    char full[200];
    snprintf(full, sizeof full, "%s%s%s", kind, name ? "." : "", name ? name : "");
    const ls__st_tensor *t = ls__st_find(f->golden, full);
    if (!t) fail_msg("%s: the golden file has no %s", f->name, full);
    return t;
}

static void read_all(const fixture *f, const char *kind, void *out, size_t bytes)
{
    const ls__st_tensor *t = golden(f, kind, NULL);
    assert_int_equal(t->bytes, bytes);
    check_ok(ls__st_read(t, 0, bytes, out));
}

static void open_model(fixture *f, const char *name, int threads)
{
    char path[4096];
    ls_lm_options o;
    *f = (fixture){ .name = name };
    snprintf(path, sizeof path, "%s/tests/nn/golden/%s.safetensors", getenv("LOCKSTEP_SOURCE"), name);
    check_ok(ls__st_open(&f->golden, path));
    const ls__st_tensor *config = golden(f, "config", NULL);
    char text[8192];
    assert_true(config->bytes < sizeof text);
    read_all(f, "config", text, config->bytes);
    check_ok(ls__hf_config_parse(name, text, config->bytes, &o));
    check_ok(ls_model_open(&f->model, &(ls_model_options){ .lm = o }));
    check_ok(ls_model_bind(f->model, NULL, NULL, true));
    check_ok(ls_tape_open(&f->tape, &(ls_tape_options){ .threads = threads }));
    const ls_place *places;
    size_t n = ls_model_places(f->model, &places);
    for (size_t i = 0; i < n; i++) {
        const ls__st_tensor *t = golden(f, "weight", places[i].name);
        assert_int_equal(t->bytes / 4, places[i].count);
        check_ok(ls__st_to_f32(t, 0, places[i].count, ls_model_values(f->model) + places[i].offset));
    }
    read_all(f, "tokens", f->tokens, sizeof f->tokens);
    read_all(f, "targets", f->targets, sizeof f->targets);
}

static void close_model(fixture *f)
{
    ls_tape_free(&f->tape);
    ls_model_free(&f->model);
    ls__st_free(&f->golden);
}

/* The largest difference, relative to the largest value. */
static void check_close(const fixture *f, const char *what, const float *got, const ls__st_tensor *expected,
                        double limit)
{
    size_t count = expected->bytes / 4;
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
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

static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        ls_param *params;
        open_model(&f, names[i], 1);
        int n = ls_model_params(f.model, &params);
        ls_model_batch batch = batch_of(&f, 0);
        check_ok(ls_tape_begin(f.tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
        ls_tensor *logits = ls_model_logits(f.model, f.tape, &batch);
        check_ok(ls_tape_status(f.tape));
        assert_int_equal(ls_tensor_count(logits), ROWS * LENGTH * VOCAB);
        check_close(&f, "logits", logits->data, golden(&f, "logits", NULL), 1e-5);
        close_model(&f);
    }
}

static void every_gradient_is_that_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        const ls_place *places;
        open_model(&f, names[i], 1);
        size_t n = ls_model_places(f.model, &places);
        run_step(&f, 0);
        for (size_t k = 0; k < n; k++)
            check_close(&f, places[k].name, ls_model_grads(f.model) + places[k].offset,
                        golden(&f, "grad", places[k].name), 1e-4);
        close_model(&f);
    }
}

static void ten_steps_have_the_losses_of_torch(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        const ls_place *places;
        ls_optimizer *optimizer;
        open_model(&f, names[i], 1);
        size_t n = ls_model_places(f.model, &places), elements = ls_model_elements(f.model);
        check_ok(ls_optimizer_open(&optimizer, places, n, 0, elements, &(ls_optimizer_options){ .threads = 1 }));
        for (int step = 0; step < STEPS; step++) {
            float expected;
            double loss = run_step(&f, step);
            check_ok(ls__st_to_f32(golden(&f, "losses", NULL), (size_t)step, 1, &expected));
            if (!(fabs(loss - (double)expected) <= 1e-4 * (double)expected))
                fail_msg("%s: step %d: loss %.7g, torch has %.7g", f.name, step, loss, (double)expected);
            ls_clip_grad_norm(ls_model_grads(f.model), elements, 1, 1);
            ls_optimizer_update(optimizer, ls_model_values(f.model), ls_model_grads(f.model), step, 3e-3f);
        }
        ls_optimizer_free(&optimizer);
        close_model(&f);
    }
}

static void greedy_text_is_that_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * N_NAMES; i++) {
        fixture f;
        ls_generator *g;
        int32_t expected[GREEDY], token;
        open_model(&f, names[i / 2], 1);
        read_all(&f, "greedy", expected, sizeof expected);
        check_ok(ls_generator_open(&g, f.model,
                                   &(ls_generator_options){ .temperature = -1, .threads = 1, .no_cache = i % 2 }));
        check_ok(ls_generator_feed(g, 0, f.tokens[0], PROMPT));
        for (int k = 0; k < GREEDY; k++) {
            check_ok(ls_generator_next(g, &token, NULL));
            if (token != expected[k])
                fail_msg("%s: token %d is %d, transformers has %d", f.name, k, token, expected[k]);
        }
        ls_generator_free(&g);
        close_model(&f);
    }
}

/* A bucket of gradients is sent when it is complete, so the order of the hooks must be that of the flat block, from its end. */
static ls_status ready(void *user, ls_param *param)
{
    int *last = user;
    if (param->index >= *last) return LS_ESTATE;
    *last = param->index;
    return LS_OK;
}

static void gradients_are_ready_from_the_end_of_the_block_to_its_beginning(void **state)
{
    (void)state;
    for (int i = 1; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        ls_param *params;
        int last = ls_model_params(f.model, &params);
        ls_tape_on_ready(f.tape, ready, &last);
        run_step(&f, 0);
        assert_int_equal(last, 0);
        close_model(&f);
    }
}

static void gradients_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f, g;
        open_model(&f, names[i], 1);
        open_model(&g, names[i], 3);
        double a = run_step(&f, 0), b = run_step(&g, 0);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(ls_model_grads(f.model), ls_model_grads(g.model), ls_model_elements(f.model) * 4);
        close_model(&f);
        close_model(&g);
    }
}

/* Forward keeps one block less in memory, and not a bit changes. */
static void recomputed_activations_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f, g;
        open_model(&f, names[i], 2);
        open_model(&g, names[i], 2);
        ls_model_set_recompute(g.model, true);
        int last = i ? ls_model_params(g.model, &(ls_param *){ NULL }) : 1 << 20;
        if (i) ls_tape_on_ready(g.tape, ready, &last);
        double a = run_step(&f, 0), b = run_step(&g, 0);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(ls_model_grads(f.model), ls_model_grads(g.model), ls_model_elements(f.model) * 4);
        if (ls__tape_peak(g.tape) >= ls__tape_peak(f.tape))
            fail_msg("%s: %zu bytes with recomputation, %zu without", f.name, ls__tape_peak(g.tape),
                     ls__tape_peak(f.tape));
        close_model(&f);
        close_model(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(every_gradient_is_that_of_transformers),
        cmocka_unit_test(ten_steps_have_the_losses_of_torch),
        cmocka_unit_test(greedy_text_is_that_of_transformers),
        cmocka_unit_test(gradients_are_ready_from_the_end_of_the_block_to_its_beginning),
        cmocka_unit_test(gradients_do_not_depend_on_threads),
        cmocka_unit_test(recomputed_activations_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
