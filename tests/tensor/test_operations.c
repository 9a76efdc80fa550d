/* What the cases do not cover: the fused head, dropout, the key/value cache, batch norm's running statistics, and that
 * products are cut the same way for any number of threads. */
#include "harness.h"

/* ---- The output projection fused with cross-entropy, against the two operations one after the other. */

static void compare(const char *what, const float *a, const float *b, int64_t count, double limit)
{
    double largest = 1e-9;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)b[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= limit * largest))
            fail_msg("%s[%lld] is %.9g, expected %.9g", what, (long long)i, (double)a[i], (double)b[i]);
}

static void check_head(ls_tape *t, int64_t rows, int64_t C, int64_t V, bool weighted)
{
    ls_param p[2] = { test_param("x", 1, 1, 0, rows, C, 0, 0), test_param("w", 2, 1, 0, V, C, 0, 0) };
    int32_t *targets = calloc((size_t)rows, sizeof *targets);
    float *weights = calloc((size_t)rows, sizeof *weights), *losses = calloc((size_t)rows * 2, sizeof *losses);
    for (int64_t i = 0; i < rows; i++) {
        weights[i] = i % 3 ? 0.5f * (float)(i % 3) : 0;
        targets[i] = weighted && weights[i] == 0 ? -100 : (int32_t)(i * 7919 % V);
    }
    float *grads[2][2], loss[2];
    for (int fused = 0; fused < 2; fused++) {
        ls_cross_entropy_options o = { .targets = targets, .row_losses = losses + fused * rows };
        if (weighted) o.weights = weights, o.divisor = 17;
        check_ok(ls_tape_begin(t, p, 2, NULL));
        ls_tensor *x = ls_tape_param(t, &p[0]), *l;
        if (fused)
            l = ls_linear_cross_entropy(t, x, &p[1], &o);
        else
            l = ls_cross_entropy(t, ls_linear(t, x, &p[1], NULL, &(ls_linear_options){ .transposed = true }), &o);
        check_ok(ls_tape_backward(t, l));
        loss[fused] = l->data[0];
        for (int i = 0; i < 2; i++) {
            grads[fused][i] = malloc((size_t)param_count(&p[i]) * sizeof(float));
            memcpy(grads[fused][i], p[i].grad, (size_t)param_count(&p[i]) * sizeof(float));
        }
    }
    compare("loss", &loss[1], &loss[0], 1, 1e-6);
    compare("row losses", losses + rows, losses, rows, 1e-5);
    for (int i = 0; i < 2; i++) compare(p[i].name, grads[1][i], grads[0][i], param_count(&p[i]), 2e-5);
    if (weighted) assert_true(losses[0] == 0 && grads[1][0][0] == 0);
    for (int i = 0; i < 4; i++) free(grads[i / 2][i % 2]);
    free(targets);
    free(weights);
    free(losses);
    free_params(p, 2);
}

/* Weights as at the start of a training run, a vocabulary as GPT-2's: against float64. The sum over the vocabulary must not be rounded at
 * the size of the target's logit, which made the error 30 times as large as the limit here. */
static void the_gradient_of_a_large_vocabulary_is_exact(void **state)
{
    (void)state;
    enum { ROWS = 3, C = 24, V = 50257 };
    ls_param p[2] = { test_param("x", 1, 1, 0, ROWS, C, 0, 0), test_param("w", 2, 0.03f, 0, V, C, 0, 0) };
    const int32_t targets[ROWS] = { 0, 101, 1009 };
    ls_tape *t;
    check_ok(ls_tape_open(&t, NULL));
    check_ok(ls_tape_begin(t, p, 2, NULL));
    check_ok(ls_tape_backward(t, ls_linear_cross_entropy(t, ls_tape_param(t, &p[0]), &p[1],
                                                         &(ls_cross_entropy_options){ .targets = targets })));
    double largest = 0, error = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *x = p[0].value + r * C, *at_target = p[1].value + targets[r] * C;
        double sum = 0, dx[C] = { 0 };
        for (int i = 0; i < V; i++) {
            const float *w = p[1].value + i * C;
            double logit = 0;
            for (int c = 0; c < C; c++) logit += (double)x[c] * (double)w[c];
            sum += exp(logit);
            for (int c = 0; c < C; c++) dx[c] += exp(logit) * (double)w[c];
        }
        for (int c = 0; c < C; c++) {
            double expected = (dx[c] / sum - (double)at_target[c]) / ROWS;
            largest = fmax(largest, fabs(expected));
            error = fmax(error, fabs((double)p[0].grad[r * C + c] - expected));
        }
    }
    if (!(error < 5e-7 * largest)) fail_msg("an error of %.3g, and the largest gradient is %.3g", error, largest);
    ls_tape_free(&t);
    free_params(p, 2);
}

/* ---- An activation inside the layer that reads it, against one of its own. */

static void an_activation_of_the_input_has_the_bits_of_one_that_is_stored(void **state)
{
    (void)state;
    ls_tape *t;
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    for (int form = 0; form < 4; form++) {
        int64_t rows = form & 1 ? 7 : 200, in = 410, out = 33;
        bool transposed = form & 2;
        ls_param p[3] = { test_param("x", 1, 4, 0, rows, in, 0, 0),
                          test_param("w", 2, 1, 0, transposed ? out : in, transposed ? in : out, 0, 0),
                          test_param("b", 3, 1, 0, out, 0, 0, 0) };
        float *kept[3] = { NULL };
        for (int inside = 0; inside < 2; inside++) {
            check_ok(ls_tape_begin(t, p, 3, NULL));
            ls_tensor *x = ls_tape_param(t, &p[0]);
            ls_linear_options o = { .transposed = transposed, .input_activation = inside ? LS_GELU_TANH : LS_IDENTITY };
            ls_tensor *y = ls_linear(t, inside ? x : ls_activate(t, x, LS_GELU_TANH), &p[1], &p[2], &o);
            check_ok(ls_tape_backward(t, ls_mean(t, ls_mul(t, y, y))));
            for (int i = 0; i < 3; i++) {
                size_t bytes = (size_t)param_count(&p[i]) * sizeof(float);
                if (inside) assert_memory_equal(kept[i], p[i].grad, bytes);
                if (!inside) kept[i] = memcpy(malloc(bytes), p[i].grad, bytes);
            }
        }
        for (int i = 0; i < 3; i++) free(kept[i]);
        free_params(p, 3);
    }
    ls_tape_free(&t);
}

static void the_fused_head_is_projection_and_cross_entropy(void **state)
{
    (void)state;
    ls_tape *t;
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    check_head(t, 6, 5, 7, false);
    check_head(t, 6, 5, 7, true);
    check_head(t, 130, 8, 9001, true);  /* dx in parts along the vocabulary */
    check_head(t, 700, 4, 50257, true); /* more than one chunk */
    ls_tape_free(&t);
}

/* A pass that only wants the loss computes the same one and touches no gradient. */
static void an_eval_pass_computes_the_same_loss(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[2] = { test_param("x", 1, 1, 0, 40, 8, 0, 0), test_param("w", 2, 1, 0, 50, 8, 0, 0) };
    int32_t targets[40] = { 1, 2, 3 };
    float loss[2];
    check_ok(ls_tape_open(&t, NULL));
    for (int eval = 1; eval >= 0; eval--) {
        check_ok(ls_tape_begin(t, p, 2, &(ls_pass){ .mode = eval ? LS_PASS_EVAL : LS_PASS_TRAIN }));
        ls_tensor *l = ls_linear_cross_entropy(t, ls_tape_param(t, &p[0]), &p[1],
                                               &(ls_cross_entropy_options){ .targets = targets });
        check_ok(ls_tape_status(t));
        loss[eval] = l->data[0];
        assert_int_equal(isnan(p[1].grad[0]) != 0, eval);
        if (!eval) check_ok(ls_tape_backward(t, l));
    }
    assert_true(loss[0] == loss[1]);
    ls_tape_free(&t);
    free_params(p, 2);
}

/* ---- Dropout */

static void dropout_keeps_its_share_and_backward_uses_the_same_mask(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static float first[N], gradient[N];
    ls_param p = test_param("x", 1, 0, 3, N, 0, 0, 0); /* all 3 */
    for (int threads = 1; threads <= 2; threads++) {
        ls_tape *t;
        check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
        check_ok(ls_tape_begin(t, &p, 1, &(ls_pass){ .seed = 5, .stream = 9 }));
        ls_tensor *y = ls_dropout(t, ls_tape_param(t, &p), 0.25f), *z = ls_dropout(t, ls_tape_param(t, &p), 0.25f);
        assert_non_null(z);
        int kept = 0, same = 0;
        for (int i = 0; i < N; i++) {
            assert_true(y->data[i] == 0 || y->data[i] == 4); /* 3 / (1 - 1/4) */
            kept += y->data[i] != 0;
            same += (y->data[i] != 0) == (z->data[i] != 0);
        }
        if (abs(kept - N * 3 / 4) > 600) fail_msg("%d of %d kept", kept, N);
        if (abs(same - N * 10 / 16) > 600) fail_msg("two dropouts agree in %d of %d places", same, N);
        if (threads == 1) memcpy(first, y->data, sizeof first);
        assert_memory_equal(first, y->data, sizeof first);
        check_ok(ls_tape_backward(t, ls_sum(t, y)));
        for (int i = 0; i < N; i++) gradient[i] = first[i] / 3;
        compare("gradient", p.grad, gradient, N, 1e-6);
        check_ok(ls_tape_begin(t, &p, 1, &(ls_pass){ .mode = LS_PASS_EVAL }));
        assert_true(ls_dropout(t, ls_tape_param(t, &p), 0.25f)->data[1] == 3);
        ls_tape_free(&t);
    }
    free_params(&p, 1);
}

/* With dropout, attention is still linear in the values; its slope there is the mask, and backward must match. */
static void attention_dropout_agrees_with_central_differences(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p = test_param("qkv", 1, 1, 0, 1, 70, 12, 0);
    ls_pass pass = { .seed = 3, .stream = 4 };
    ls_attention_options o = { .heads = 2, .dropout = 0.3f };
    check_ok(ls_tape_open(&t, NULL));
    check_ok(ls_tape_begin(t, &p, 1, &pass));
    check_ok(ls_tape_backward(t, ls_sum(t, ls_attention(t, ls_tape_param(t, &p), &o))));
    static float gradient[840], kept;
    memcpy(gradient, p.grad, sizeof gradient);
    for (int i = 0; i < 840; i += 13) {
        double side[2];
        kept = p.value[i];
        for (int s = 0; s < 2; s++) {
            p.value[i] = kept + (s ? 0x1p-6f : -0x1p-6f);
            check_ok(ls_tape_begin(t, &p, 1, &pass));
            ls_tensor *y = ls_attention(t, ls_tape_param(t, &p), &o);
            side[s] = 0;
            for (int j = 0; j < 280; j++) side[s] += y->data[j];
        }
        p.value[i] = kept;
        double slope = (side[1] - side[0]) / 0x1p-5;
        if (fabs(slope - gradient[i]) > 2e-3)
            fail_msg("qkv[%d]: gradient %.7g, difference %.7g", i, gradient[i], slope);
    }
    ls_tape_free(&t);
    free_params(&p, 1);
}

/* ---- The key/value cache */

static void attention_with_a_cache_equals_attention_over_all(void **state)
{
    (void)state;
    enum { T = 90, C = 8 };
    ls_tape *t;
    ls_param p = test_param("qkv", 1, 2, 0, 1, T, 3 * C, 0);
    static float all[T * C], k[T * C], v[T * C];
    ls_kv_cache cache = { .k = k, .v = v, .capacity = T };
    check_ok(ls_tape_open(&t, NULL));
    check_ok(ls_tape_begin(t, &p, 1, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *y = ls_attention(t, ls_tape_param(t, &p), &(ls_attention_options){ .heads = 2 });
    assert_non_null(y);
    memcpy(all, y->data, sizeof all);
    for (int64_t at = 0, n; at < T; at += n) {
        n = at == 0 ? 70 : at == 70 ? 15 : 1; /* a prompt, a second one, then token by token */
        check_ok(ls_tape_begin(t, &p, 1, &(ls_pass){ .mode = LS_PASS_EVAL }));
        ls_tensor *x = ls_tape_input(t, p.value + at * 3 * C, 3, (int64_t[]){ 1, n, 3 * C });
        y = ls_attention(t, x, &(ls_attention_options){ .heads = 2, .cache = &cache });
        check_ok(ls_tape_status(t));
        assert_memory_equal(y->data, all + at * C, (size_t)(n * C) * sizeof *all);
    }
    assert_int_equal(cache.length, T);
    ls_tensor *x = ls_tape_input(t, p.value, 3, (int64_t[]){ 1, 1, 3 * C });
    assert_null(ls_attention(t, x, &(ls_attention_options){ .heads = 2, .cache = &cache }));
    check_fails(ls_tape_status(t), LS_EINVAL, "cache of 90 of 90 rows");
    ls_tape_free(&t);
    free_params(&p, 1);
}

/* ---- Batch norm's running statistics, as PyTorch moves them */

static void batch_norm_moves_its_statistics_and_eval_uses_them(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[3] = { test_param("x", 1, 2, 1, 4, 2, 2, 1), test_param("w", 2, 0, 2, 1, 0, 0, 0),
                      test_param("b", 3, 0, 0.5f, 1, 0, 0, 0) };
    float mean[1] = { 10 }, var[1] = { 4 };
    ls_batch_norm_state s = { .mean = mean, .var = var, .momentum = 0.25f };
    double sum = 0, squares = 0;
    for (int i = 0; i < 16; i++) sum += p[0].value[i];
    for (int i = 0; i < 16; i++) squares += pow(p[0].value[i] - sum / 16, 2);
    check_ok(ls_tape_open(&t, NULL));
    check_ok(ls_tape_begin(t, p, 3, NULL));
    assert_non_null(ls_batch_norm(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &s, NULL));
    float expected[2] = { (float)(0.75 * 10 + 0.25 * sum / 16), (float)(0.75 * 4 + 0.25 * squares / 15) };
    compare("running mean", mean, &expected[0], 1, 1e-6);
    compare("running variance", var, &expected[1], 1, 1e-6);
    check_ok(ls_tape_begin(t, p, 3, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *y = ls_batch_norm(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &s, NULL);
    float first = (p[0].value[0] - mean[0]) / sqrtf(var[0] + 1e-5f) * 2 + 0.5f;
    compare("eval", y->data, &first, 1, 1e-5);
    assert_true(mean[0] == expected[0]);
    float batch[2]; /* those of the batch alone, for an update that is made later */
    s.batch_mean = &batch[0], s.batch_var = &batch[1];
    check_ok(ls_tape_begin(t, p, 3, NULL));
    assert_non_null(ls_batch_norm(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &s, NULL));
    assert_true(mean[0] == expected[0]);
    mean[0] = 10, var[0] = 4;
    ls__batch_norm_update(mean, &batch[0], 0.25f, 1);
    ls__batch_norm_update(var, &batch[1], 0.25f, 1);
    compare("mean, updated later", mean, &expected[0], 1, 1e-6);
    compare("variance, updated later", var, &expected[1], 1, 1e-6);
    ls_tape_free(&t);
    free_params(p, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_activation_of_the_input_has_the_bits_of_one_that_is_stored),
        cmocka_unit_test(the_fused_head_is_projection_and_cross_entropy),
        cmocka_unit_test(the_gradient_of_a_large_vocabulary_is_exact),
        cmocka_unit_test(an_eval_pass_computes_the_same_loss),
        cmocka_unit_test(dropout_keeps_its_share_and_backward_uses_the_same_mask),
        cmocka_unit_test(attention_dropout_agrees_with_central_differences),
        cmocka_unit_test(attention_with_a_cache_equals_attention_over_all),
        cmocka_unit_test(batch_norm_moves_its_statistics_and_eval_uses_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
