/* Every architecture against transformers: logits, loss, all gradients, the losses of 10 AdamW steps and greedy text. The numbers are in
 * golden/, made by make_golden_models.py. */
#include "golden.h"
#include "tensor/hooks.h"

enum { GREEDY = 16, PROMPT = 4 };

typedef struct fixture {
    golden g;
    int32_t tokens[STEPS][ROWS * LENGTH], targets[STEPS][ROWS * LENGTH];
} fixture;

static const char *const names[] = { "gpt2",  "llama2",       "llama3", "llama_biases", "smollm2",
                                     "qwen2", "qwen2_window", "qwen3",  "mistral" };
enum { N_NAMES = sizeof names / sizeof *names };

static void open_model(fixture *f, const char *name, int threads)
{
    *f = (fixture){ .g = { .name = name, .file = golden_file("", name) } };
    golden_model(&f->g, f->g.file, NULL, threads);
    golden_read(f->g.file, "tokens", f->tokens, sizeof f->tokens);
    golden_read(f->g.file, "targets", f->targets, sizeof f->targets);
}

static ls_model_batch batch_of(const void *user, int step)
{
    const fixture *f = user;
    return (ls_model_batch){
        .batch_size = ROWS, .seq_len = LENGTH, .tokens = f->tokens[step], .targets = f->targets[step]
    };
}

static double first_pass(const fixture *f)
{
    ls_model_batch batch = batch_of(f, 0);
    return golden_pass(&f->g, &batch);
}

static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        ls_model_batch batch = batch_of(&f, 0);
        ls_tensor *logits = golden_logits(f.g.model, f.g.tape, &batch);
        assert_int_equal(ls_tensor_count(logits), ROWS * LENGTH * VOCAB);
        check_near(&f.g, "logits", logits->data, golden_find(f.g.file, "logits", NULL), 0, ROWS * LENGTH * VOCAB, 1e-5);
        golden_free(&f.g);
    }
}

static void every_gradient_is_that_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        first_pass(&f);
        check_gradients(&f.g, NULL, 1e-4);
        golden_free(&f.g);
    }
}

static void ten_steps_have_the_losses_of_torch(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        check_losses(&f.g, batch_of, &f, 1e-4);
        golden_free(&f.g);
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
        golden_read(f.g.file, "greedy", expected, sizeof expected);
        check_ok(ls_generator_open(&g, f.g.model,
                                   &(ls_generator_options){ .temperature = -1, .threads = 1, .no_cache = i % 2 }));
        check_ok(ls_generator_feed(g, 0, f.tokens[0], PROMPT));
        for (int k = 0; k < GREEDY; k++) {
            check_ok(ls_generator_next(g, &token, NULL));
            if (token != expected[k])
                fail_msg("%s: token %d is %d, transformers has %d", f.g.name, k, token, expected[k]);
        }
        ls_generator_free(&g);
        golden_free(&f.g);
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
        int last = ls_model_params(f.g.model, &params);
        ls_tape_on_ready(f.g.tape, ready, &last);
        first_pass(&f);
        assert_int_equal(last, 0);
        golden_free(&f.g);
    }
}

static void gradients_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f, g;
        open_model(&f, names[i], 1);
        open_model(&g, names[i], 3);
        double a = first_pass(&f), b = first_pass(&g);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(ls_model_grads(f.g.model), ls_model_grads(g.g.model), ls_model_elements(f.g.model) * 4);
        golden_free(&f.g);
        golden_free(&g.g);
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
        ls_model_set_recompute(g.g.model, true);
        int last = i ? ls_model_params(g.g.model, &(ls_param *){ NULL }) : 1 << 20;
        if (i) ls_tape_on_ready(g.g.tape, ready, &last);
        double a = first_pass(&f), b = first_pass(&g);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(ls_model_grads(f.g.model), ls_model_grads(g.g.model), ls_model_elements(f.g.model) * 4);
        if (ls__tape_peak(g.g.tape) >= ls__tape_peak(f.g.tape))
            fail_msg("%s: %zu bytes with recomputation, %zu without", f.g.name, ls__tape_peak(g.g.tape),
                     ls__tape_peak(f.g.tape));
        golden_free(&f.g);
        golden_free(&g.g);
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
