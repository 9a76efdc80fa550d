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
    check_ok(ls_model_open(&model, &(ls_model_options){ .lm = o }));
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
    assert_null(ls_generator_logits(cached, 0));
    check_ok(ls_generator_feed(cached, 0, prompt, 5));
    check_ok(ls_generator_feed(plain, 0, prompt, 5));
    /* More tokens than the context has, so that it is halved on the way. */
    for (int step = 0; step < 3 * CONTEXT; step++) {
        const float *a = ls_generator_logits(cached, 0), *b = ls_generator_logits(plain, 0);
        float largest = 0;
        for (int i = 0; i < VOCAB; i++) largest = fmaxf(largest, fabsf(b[i]));
        for (int i = 0; i < VOCAB; i++)
            if (fabsf(a[i] - b[i]) > 1e-4f * largest)
                fail_msg("step %d, token %d: %g with the cache, %g without", step, i, (double)a[i], (double)b[i]);
        int32_t token = (int32_t)(step * 7 % VOCAB);
        check_ok(ls_generator_feed(cached, 0, &token, 1));
        check_ok(ls_generator_feed(plain, 0, &token, 1));
    }
    ls_generator_free(&cached);
    ls_generator_free(&plain);
}

static void a_sequence_that_goes_back_has_the_logits_of_one_that_never_went_on(void **state)
{
    (void)state;
    int32_t prompt[] = { 3, 1, 4, 1, 5, 9, 2 }, other[] = { 6, 6 };
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        ls_generator_options o = { .threads = 1, .no_cache = no_cache };
        ls_generator *back = open_generator(&o), *straight = open_generator(&o);
        check_ok(ls_generator_feed(back, 0, prompt, 7));
        check_fails(ls_generator_rewind(back, 0, 8), LS_EINVAL, "has 7 tokens; it cannot go back to 8");
        check_ok(ls_generator_rewind(back, 0, 4));
        assert_null(ls_generator_logits(back, 0));
        check_ok(ls_generator_feed(back, 0, other, 2));
        check_ok(ls_generator_feed(straight, 0, prompt, 4));
        check_ok(ls_generator_feed(straight, 0, other, 2));
        assert_memory_equal(ls_generator_logits(back, 0), ls_generator_logits(straight, 0), VOCAB * sizeof(float));
        check_fails(ls_generator_rewind(back, 1, 0), LS_EINVAL, "sequence 1 of 1");
        ls_generator_free(&back);
        ls_generator_free(&straight);
    }
}

static void logits_are_those_of_the_model(void **state)
{
    (void)state;
    ls_generator *g = open_generator(&(ls_generator_options){ .threads = 1 });
    int32_t prompt[CONTEXT];
    for (int i = 0; i < CONTEXT; i++) prompt[i] = i * 5 % VOCAB;
    check_ok(ls_generator_feed(g, 0, prompt, 10));
    check_ok(ls_generator_feed(g, 0, prompt + 10, CONTEXT - 10));
    ls_tape *tape;
    ls_param *params;
    int n = ls_model_params(model, &params);
    check_ok(ls_tape_open(&tape, &(ls_tape_options){ .threads = 1 }));
    check_ok(ls_tape_begin(tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *all =
        ls_model_logits(model, tape, &(ls_model_batch){ .batch_size = 1, .seq_len = CONTEXT, .tokens = prompt });
    check_ok(ls_tape_status(tape));
    const float *expected = all->data + (CONTEXT - 1) * VOCAB, *got = ls_generator_logits(g, 0);
    for (int i = 0; i < VOCAB; i++) assert_float_equal(got[i], expected[i], 1e-4);
    ls_tape_free(&tape);
    ls_generator_free(&g);
}

static void generate(const ls_generator_options *options, int32_t out[40])
{
    ls_generator *g = open_generator(options);
    int32_t first = 1;
    check_ok(ls_generator_feed(g, 0, &first, 1));
    for (int i = 0; i < 40; i++) check_ok(ls_generator_next(g, &out[i], NULL));
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
    check_ok(ls_generator_feed(g, 0, &token, 1));
    for (int i = 0; i < 100; i++) {
        float logits[VOCAB];
        memcpy(logits, ls_generator_logits(g, 0), sizeof logits);
        check_ok(ls_generator_next(g, &token, NULL));
        int above = 0;
        for (int k = 0; k < VOCAB; k++) above += logits[k] > logits[token];
        if (above >= 3) fail_msg("choice %d has %d likelier tokens, but top_k is 3", i, above);
    }
    ls_generator_free(&g);
}

enum { HOT = 30 }; /* a temperature at which many tokens are likely */

/* The tokens that options allow, by many choices after the same prompt. */
static void choices(const ls_generator_options *options, int count[VOCAB], float logits[VOCAB])
{
    memset(count, 0, VOCAB * sizeof *count);
    for (int seed = 0; seed < 300; seed++) {
        ls_generator_options o = *options;
        int32_t prompt[] = { 3, 7, 7 }, token;
        o.seed = (uint64_t)seed;
        o.threads = 1;
        o.temperature = HOT;
        ls_generator *g = open_generator(&o);
        check_ok(ls_generator_feed(g, 0, prompt, 3));
        memcpy(logits, ls_generator_logits(g, 0), VOCAB * sizeof *logits);
        check_ok(ls_generator_next(g, &token, NULL));
        count[token]++;
        ls_generator_free(&g);
    }
}

static int likelier(const float *logits, int token, double *together, double *sum)
{
    int above = 0;
    *together = *sum = 0;
    for (int k = 0; k < VOCAB; k++) {
        double p = exp((double)logits[k] / HOT);
        *sum += p;
        if (logits[k] <= logits[token]) continue;
        above++;
        *together += p;
    }
    return above;
}

static void top_p_leaves_the_likeliest_tokens_of_that_probability(void **state)
{
    (void)state;
    int count[VOCAB], kinds = 0;
    float logits[VOCAB];
    double together, sum;
    choices(&(ls_generator_options){ .top_p = 0.6f }, count, logits);
    for (int k = 0; k < VOCAB; k++) {
        if (!count[k]) continue;
        kinds++;
        likelier(logits, k, &together, &sum);
        if (together >= 0.6 * sum) fail_msg("token %d was chosen, but likelier ones have %g of %g", k, together, sum);
    }
    if (kinds < 2) fail_msg("%d different tokens", kinds);
    choices(&(ls_generator_options){ .top_p = 1e-6f }, count, logits);
    for (int k = 0; k < VOCAB; k++)
        if (count[k] && likelier(logits, k, &together, &sum)) fail_msg("token %d is not the likeliest", k);
}

static void min_p_leaves_tokens_that_are_not_much_less_likely(void **state)
{
    (void)state;
    int count[VOCAB], kinds = 0;
    float logits[VOCAB], best = -INFINITY;
    choices(&(ls_generator_options){ .min_p = 0.2f }, count, logits);
    for (int k = 0; k < VOCAB; k++) best = fmaxf(best, logits[k]);
    for (int k = 0; k < VOCAB; k++) {
        kinds += count[k] > 0;
        if (count[k] && exp((double)(logits[k] - best) / HOT) < 0.199) fail_msg("token %d was chosen", k);
    }
    if (kinds < 2) fail_msg("%d different tokens", kinds);
}

static void the_penalty_is_for_tokens_in_the_context(void **state)
{
    (void)state;
    /* The largest logit is made one of a token in the prompt, and the penalty larger than all differences. */
    ls_generator *g = open_generator(&(ls_generator_options){ .temperature = -1, .threads = 1 });
    int32_t prompt[2] = { 3, 0 }, token, again;
    check_ok(ls_generator_feed(g, 0, prompt, 1));
    check_ok(ls_generator_next(g, &token, NULL));
    ls_generator_free(&g);
    prompt[1] = token;
    g = open_generator(&(ls_generator_options){ .temperature = -1, .threads = 1 });
    check_ok(ls_generator_feed(g, 0, prompt, 2));
    float logits[VOCAB];
    memcpy(logits, ls_generator_logits(g, 0), sizeof logits);
    ls_generator_free(&g);
    g = open_generator(&(ls_generator_options){ .temperature = -1, .repetition_penalty = 1e6f, .threads = 1 });
    check_ok(ls_generator_feed(g, 0, prompt, 2));
    check_ok(ls_generator_next(g, &again, NULL));
    ls_generator_free(&g);
    int expected = -1;
    for (int k = 0; k < VOCAB; k++)
        if (k != 3 && k != token && (expected < 0 || logits[k] > logits[expected])) expected = k;
    assert_int_equal(again, expected);
}

/* Sequences of different lengths, one of which ends early, through a full context: each has the tokens that it has alone. */
static void sequences_side_by_side_have_the_tokens_of_each_alone(void **state)
{
    (void)state;
    enum { N = 3, STEPS = 2 * CONTEXT };
    static const int32_t prompts[N][9] = { { 3, 1, 4, 1, 5, 9, 2, 6, 5 }, { 7 }, { 2, 7, 1, 8 } };
    static const size_t lengths[N] = { 9, 1, 4 };
    int32_t alone[N][STEPS], tokens[N];
    bool skip[N];
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        ls_generator_options o = { .sequences = N, .top_k = 20, .seed = 3, .threads = 2, .no_cache = no_cache };
        for (int s = 0; s < N; s++) {
            ls_generator *g = open_generator(&o);
            check_ok(ls_generator_feed(g, s, prompts[s], lengths[s]));
            for (int i = 0; i < STEPS; i++) {
                for (int k = 0; k < N; k++) skip[k] = k != s;
                check_ok(ls_generator_next(g, tokens, skip));
                alone[s][i] = tokens[s];
            }
            ls_generator_free(&g);
        }
        ls_generator *g = open_generator(&o);
        for (int s = 0; s < N; s++) check_ok(ls_generator_feed(g, s, prompts[s], lengths[s]));
        for (int i = 0; i < STEPS; i++) {
            skip[0] = skip[2] = false;
            skip[1] = i > 5;
            check_ok(ls_generator_next(g, tokens, skip));
            for (int s = 0; s < N; s++)
                if (s != 1 || i <= 5) assert_int_equal(tokens[s], alone[s][i]);
        }
        ls_generator_free(&g);
    }
}

static void wrong_use_is_refused(void **state)
{
    (void)state;
    ls_generator *g = open_generator(&(ls_generator_options){ .threads = 1 });
    int32_t token = VOCAB;
    check_fails(ls_generator_next(g, &token, NULL), LS_ESTATE, "call ls_generator_feed() first");
    check_fails(ls_generator_feed(g, 0, &token, 1), LS_EINVAL,
                "token 50 at index 0 is outside of the vocabulary of 50");
    check_fails(ls_generator_feed(g, 0, &token, 0), LS_EINVAL, "count must be >= 1");
    check_fails(ls_generator_feed(g, 0, NULL, 1), LS_EINVAL, "tokens must not be NULL");
    check_fails(ls_generator_next(g, NULL, NULL), LS_EINVAL, "tokens must not be NULL");
    ls_generator_free(&g);
    check_fails(ls_generator_open(&g, model, &(ls_generator_options){ .temperature = NAN }), LS_EINVAL, "finite");
    assert_null(g);
    check_fails(ls_generator_open(&g, NULL, NULL), LS_EINVAL, "model must not be NULL");
    check_fails(ls_generator_open(NULL, model, NULL), LS_EINVAL, "out must not be NULL");
    ls_generator_free(NULL);
    check_fails(ls_generator_open(&g, model, &(ls_generator_options){ .top_p = 1.5f }), LS_EINVAL, "top_p is 1.5");
    check_fails(ls_generator_open(&g, model, &(ls_generator_options){ .repetition_penalty = -1 }), LS_EINVAL,
                "penalty is -1");
    check_fails(ls_generator_open(&g, model, &(ls_generator_options){ .sequences = -2 }), LS_EINVAL, "-2 sequences");
    g = open_generator(&(ls_generator_options){ .threads = 1 });
    check_fails(ls_generator_feed(g, 1, &(int32_t){ 0 }, 1), LS_EINVAL, "sequence 1 of 1");
    ls_generator_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_and_uncached_logits_agree),
        cmocka_unit_test(a_sequence_that_goes_back_has_the_logits_of_one_that_never_went_on),
        cmocka_unit_test(logits_are_those_of_the_model),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(cold_or_narrow_choices_are_the_likeliest_token),
        cmocka_unit_test(top_k_leaves_only_k_tokens),
        cmocka_unit_test(top_p_leaves_the_likeliest_tokens_of_that_probability),
        cmocka_unit_test(min_p_leaves_tokens_that_are_not_much_less_likely),
        cmocka_unit_test(the_penalty_is_for_tokens_in_the_context),
        cmocka_unit_test(sequences_side_by_side_have_the_tokens_of_each_alone),
        cmocka_unit_test(wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
