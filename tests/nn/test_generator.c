/* Generation: the cache changes nothing, choices are as asked for, and generation continues when the context is full. */
#include "check.h"
#include "lockstep/nn.h"
#include <math.h>

enum { VOCAB = 50, CONTEXT = 24 };

static ls_model *model;

static int make_model(void **state)
{
    (void)state;
    ls_lm_options o = { .layers = 3, .width = 48, .heads = 3, .vocab_size = VOCAB, .context = CONTEXT };
    check_ok(ls_lm_open(&model, &o));
    check_ok(ls_model_bind(model, NULL, NULL, false));
    check_ok(ls_model_init(model, 5));
    /* Larger weights than at the start of a training, so that tokens differ in how likely they are. */
    for (size_t i = 0; i < ls_model_elements(model); i++) ls_model_values(model)[i] *= 6;
    return 0;
}

static int drop_model(void **state)
{
    (void)state;
    ls_model_free(&model);
    return 0;
}

static ls_generator *open_generator(const ls_generator_options *options)
{
    ls_generator *g;
    check_ok(ls_generator_open(&g, model, options));
    return g;
}

static void cached_and_uncached_logits_agree(void **state)
{
    (void)state;
    ls_generator *cached = open_generator(&(ls_generator_options){ .threads = 1 });
    ls_generator *plain = open_generator(&(ls_generator_options){ .threads = 1, .no_cache = true });
    int32_t prompt[] = { 3, 1, 4, 1, 5 };
    assert_null(ls_generator_logits(cached));
    check_ok(ls_generator_feed(cached, prompt, 5));
    check_ok(ls_generator_feed(plain, prompt, 5));
    /* More tokens than the context has, so that it is halved on the way. */
    for (int step = 0; step < 3 * CONTEXT; step++) {
        const float *a = ls_generator_logits(cached), *b = ls_generator_logits(plain);
        float largest = 0;
        for (int i = 0; i < VOCAB; i++) largest = fmaxf(largest, fabsf(b[i]));
        for (int i = 0; i < VOCAB; i++)
            if (fabsf(a[i] - b[i]) > 1e-4f * largest)
                fail_msg("step %d, token %d: %g with the cache, %g without", step, i, (double)a[i], (double)b[i]);
        int32_t token = (int32_t)(step * 7 % VOCAB);
        check_ok(ls_generator_feed(cached, &token, 1));
        check_ok(ls_generator_feed(plain, &token, 1));
    }
    ls_generator_free(&cached);
    ls_generator_free(&plain);
}

static void logits_are_those_of_the_model(void **state)
{
    (void)state;
    ls_generator *g = open_generator(&(ls_generator_options){ .threads = 1 });
    int32_t prompt[CONTEXT];
    for (int i = 0; i < CONTEXT; i++) prompt[i] = i * 5 % VOCAB;
    check_ok(ls_generator_feed(g, prompt, 10));
    check_ok(ls_generator_feed(g, prompt + 10, CONTEXT - 10));
    ls_tape *tape;
    ls_param *params;
    int n = ls_model_params(model, &params);
    check_ok(ls_tape_open(&tape, &(ls_tape_options){ .threads = 1 }));
    check_ok(ls_tape_begin(tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *all =
        ls_model_logits(model, tape, &(ls_model_batch){ .batch_size = 1, .seq_len = CONTEXT, .tokens = prompt });
    check_ok(ls_tape_status(tape));
    const float *expected = all->data + (CONTEXT - 1) * VOCAB, *got = ls_generator_logits(g);
    for (int i = 0; i < VOCAB; i++) assert_float_equal(got[i], expected[i], 1e-4);
    ls_tape_free(&tape);
    ls_generator_free(&g);
}

static void generate(const ls_generator_options *options, int32_t out[40])
{
    ls_generator *g = open_generator(options);
    int32_t first = 1;
    check_ok(ls_generator_feed(g, &first, 1));
    for (int i = 0; i < 40; i++) check_ok(ls_generator_next(g, &out[i]));
    ls_generator_free(&g);
}

static void the_seed_decides(void **state)
{
    (void)state;
    int32_t a[40], b[40], c[40];
    generate(&(ls_generator_options){ .seed = 1 }, a);
    generate(&(ls_generator_options){ .seed = 1, .threads = 1 }, b);
    generate(&(ls_generator_options){ .seed = 2, .threads = 1 }, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
}

static void cold_or_narrow_choices_are_the_likeliest_token(void **state)
{
    (void)state;
    int32_t greedy[40], narrow[40], cold[40];
    generate(&(ls_generator_options){ .temperature = -1, .threads = 1 }, greedy);
    generate(&(ls_generator_options){ .top_k = 1, .seed = 9, .threads = 1 }, narrow);
    generate(&(ls_generator_options){ .temperature = 1e-4f, .seed = 9, .threads = 1 }, cold);
    assert_memory_equal(greedy, narrow, sizeof greedy);
    assert_memory_equal(greedy, cold, sizeof greedy);
}

static void top_k_leaves_only_k_tokens(void **state)
{
    (void)state;
    ls_generator *g = open_generator(&(ls_generator_options){ .temperature = 100, .top_k = 3, .threads = 1 });
    int32_t token = 1;
    check_ok(ls_generator_feed(g, &token, 1));
    for (int i = 0; i < 100; i++) {
        float logits[VOCAB];
        memcpy(logits, ls_generator_logits(g), sizeof logits);
        check_ok(ls_generator_next(g, &token));
        int above = 0;
        for (int k = 0; k < VOCAB; k++) above += logits[k] > logits[token];
        if (above >= 3) fail_msg("choice %d has %d likelier tokens, but top_k is 3", i, above);
    }
    ls_generator_free(&g);
}

static void wrong_use_is_refused(void **state)
{
    (void)state;
    ls_generator *g = open_generator(&(ls_generator_options){ .threads = 1 });
    int32_t token = VOCAB;
    check_fails(ls_generator_next(g, &token), LS_ESTATE, "call ls_generator_feed() first");
    check_fails(ls_generator_feed(g, &token, 1), LS_EINVAL, "token 50 at index 0 is outside of the vocabulary of 50");
    check_fails(ls_generator_feed(g, &token, 0), LS_EINVAL, "count must be >= 1");
    check_fails(ls_generator_feed(g, NULL, 1), LS_EINVAL, "tokens must not be NULL");
    check_fails(ls_generator_next(g, NULL), LS_EINVAL, "token must not be NULL");
    ls_generator_free(&g);
    check_fails(ls_generator_open(&g, model, &(ls_generator_options){ .temperature = NAN }), LS_EINVAL, "finite");
    assert_null(g);
    check_fails(ls_generator_open(&g, NULL, NULL), LS_EINVAL, "model must not be NULL");
    check_fails(ls_generator_open(NULL, model, NULL), LS_EINVAL, "out must not be NULL");
    ls_generator_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_and_uncached_logits_agree),
        cmocka_unit_test(logits_are_those_of_the_model),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(cold_or_narrow_choices_are_the_likeliest_token),
        cmocka_unit_test(top_k_leaves_only_k_tokens),
        cmocka_unit_test(wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
