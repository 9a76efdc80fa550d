/* GPT-2 against torch: logits, loss, every gradient, and the losses of 10 AdamW steps. The numbers are in
 * golden_gpt2.safetensors, made by make_golden_gpt2.py. */
#include "check.h"
#include "lockstep/nn.h"
#include "nn/safetensors.h"
#include <math.h>

enum { ROWS = 3, LENGTH = 7, STEPS = 10, VOCAB = 37 };

typedef struct fixture {
    ls__st_reader *golden;
    ls_model *model;
    ls_tape *tape;
} fixture;

static const ls__st_tensor *golden(const fixture *f, const char *kind, const char *name)
{
    char full[100];
    snprintf(full, sizeof full, "%s%s%s", kind, name ? "." : "", name ? name : "");
    const ls__st_tensor *t = ls__st_find(f->golden, full);
    if (!t) fail_msg("the golden file has no %s", full);
    return t;
}

static const int32_t *golden_tokens(const fixture *f, const char *kind, int step)
{
    static _Alignas(64) int32_t copies[2][STEPS][ROWS * LENGTH]; /* the file aligns nothing */
    int which = kind[1] == 'a';
    check_ok(ls__st_read(golden(f, kind, NULL), 0, sizeof copies[0], copies[which]));
    return copies[which][step];
}

static int set_up(void **state)
{
    static fixture f;
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/nn/golden_gpt2.safetensors", getenv("LOCKSTEP_SOURCE"));
    ls_lm_options o = { .layers = 4, .width = 16, .heads = 2, .vocab_size = VOCAB, .context = 8 };
    check_ok(ls__st_open(&f.golden, path));
    check_ok(ls_model_open(&f.model, &(ls_model_options){ .lm = o }));
    check_ok(ls_model_bind(f.model, NULL, NULL, true));
    check_ok(ls_tape_open(&f.tape, &(ls_tape_options){ .threads = 1 }));
    const ls_place *places;
    size_t n = ls_model_places(f.model, &places);
    for (size_t i = 0; i < n; i++)
        check_ok(ls__st_to_f32(golden(&f, "weight", places[i].name), 0, places[i].count,
                               ls_model_values(f.model) + places[i].offset));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ls_tape_free(&f->tape);
    ls_model_free(&f->model);
    ls__st_free(&f->golden);
    return 0;
}

/* The largest difference, relative to the largest value. */
static void check_close(const char *what, const float *got, const ls__st_tensor *expected, double limit)
{
    size_t count = expected->bytes / 4;
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        float e;
        check_ok(ls__st_to_f32(expected, i, 1, &e));
        worst = fmax(worst, fabs((double)got[i] - (double)e));
        largest = fmax(largest, fabs((double)e));
    }
    if (!(worst <= limit * largest)) fail_msg("%s: off by %g of %g (limit %g)", what, worst, largest, limit);
}

static ls_model_batch batch_of(const fixture *f, int step)
{
    return (ls_model_batch){ .batch_size = ROWS,
                             .seq_len = LENGTH,
                             .tokens = golden_tokens(f, "tokens", step),
                             .targets = golden_tokens(f, "targets", step) };
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

static void logits_are_torchs(void **state)
{
    fixture *f = *state;
    ls_param *params;
    int n = ls_model_params(f->model, &params);
    ls_model_batch batch = batch_of(f, 0);
    check_ok(ls_tape_begin(f->tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *logits = ls_model_logits(f->model, f->tape, &batch);
    check_ok(ls_tape_status(f->tape));
    assert_int_equal(ls_tensor_count(logits), ROWS * LENGTH * VOCAB);
    check_close("logits", logits->data, golden(f, "logits", NULL), 1e-5);
}

static void loss_and_every_gradient_are_torchs(void **state)
{
    fixture *f = *state;
    float loss = (float)run_step(f, 0), expected;
    check_ok(ls__st_to_f32(golden(f, "losses", NULL), 0, 1, &expected));
    assert_float_equal(loss, expected, 1e-5f * expected);
    const ls_place *places;
    size_t n = ls_model_places(f->model, &places);
    for (size_t i = 0; i < n; i++)
        check_close(places[i].name, ls_model_grads(f->model) + places[i].offset, golden(f, "grad", places[i].name),
                    1e-4);
}

static void ten_adamw_steps_have_torchs_losses(void **state)
{
    fixture *f = *state;
    const ls_place *places;
    size_t n = ls_model_places(f->model, &places), elements = ls_model_elements(f->model);
    ls_optimizer *optimizer;
    check_ok(ls_optimizer_open(&optimizer, places, n, 0, elements, &(ls_optimizer_options){ .threads = 1 }));
    for (int step = 0; step < STEPS; step++) {
        float expected;
        double loss = run_step(f, step);
        check_ok(ls__st_to_f32(golden(f, "losses", NULL), (size_t)step, 1, &expected));
        if (!(fabs(loss - (double)expected) <= 1e-4 * (double)expected))
            fail_msg("step %d: loss %.7g, torch has %.7g", step, loss, (double)expected);
        ls_clip_grad_norm(ls_model_grads(f->model), elements, 1, 1);
        ls_optimizer_update(optimizer, ls_model_values(f->model), ls_model_grads(f->model), step, 3e-3f);
    }
    ls_optimizer_free(&optimizer);
}

typedef struct hook_log {
    const ls_param *params;
    int fired[64], order[64], count;
} hook_log;

static ls_status ready(void *user, ls_param *param)
{
    hook_log *log = user;
    int i = (int)(param - log->params);
    log->fired[i]++;
    log->order[log->count++] = i;
    return LS_OK;
}

static void hooks_fire_once_in_an_order_that_repeats(void **state)
{
    fixture *f = *state;
    hook_log first = { 0 }, second = { 0 };
    ls_param *params;
    int n = ls_model_params(f->model, &params);
    first.params = second.params = params;
    ls_tape_on_ready(f->tape, ready, &first);
    run_step(f, 0);
    ls_tape_on_ready(f->tape, ready, &second);
    run_step(f, 1);
    ls_tape_on_ready(f->tape, NULL, NULL);
    assert_int_equal(first.count, n);
    for (int i = 0; i < n; i++) assert_int_equal(first.fired[i], 1);
    assert_memory_equal(first.order, second.order, sizeof first.order);
    /* The block is in the order of the forward pass, so its end is ready first and the embeddings last. */
    assert_int_equal(first.order[n - 1] + first.order[n - 2], 1);
    assert_true(first.order[0] >= n - 2);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    fixture *f = *state;
    ls_param *params;
    int n = ls_model_params(f->model, &params);
    int32_t tokens[18] = { 0 };
    ls_model_batch batch = { .batch_size = 2, .seq_len = 9, .tokens = tokens, .targets = tokens };
    check_ok(ls_tape_begin(f->tape, params, n, NULL));
    assert_null(ls_model_loss(f->model, f->tape, &batch));
    check_fails(ls_tape_status(f->tape), LS_EINVAL, "embedding");
    tokens[3] = VOCAB;
    batch.seq_len = 7;
    check_ok(ls_tape_begin(f->tape, params, n, NULL));
    assert_null(ls_model_loss(f->model, f->tape, &batch));
    check_fails(ls_tape_status(f->tape), LS_EINVAL, "37");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(logits_are_torchs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loss_and_every_gradient_are_torchs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ten_adamw_steps_have_torchs_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hooks_fire_once_in_an_order_that_repeats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shapes_that_do_not_fit_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
