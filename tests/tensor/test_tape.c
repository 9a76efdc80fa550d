/* The tape: hooks, accumulation, frozen and unused parameters, failures, profile. */
#include "harness.h"

#include <pthread.h>

/* ---- A small tied model: embedding, two layers, output projection with the embedding again. */
enum { WTE, W1, B1, W2, UNUSED, PARAMS };
static const int32_t tokens[6] = { 1, 2, 3, 3, 2, 0 }, targets[6] = { 2, 3, 3, 2, 0, 4 };

static void open_params(ls_param p[PARAMS])
{
    p[WTE] = test_param("wte", 1, 1, 0, 5, 8, 0, 0);
    p[W1] = test_param("w1", 2, 1, 0, 8, 8, 0, 0);
    p[B1] = test_param("b1", 3, 1, 0, 8, 0, 0, 0);
    p[W2] = test_param("w2", 4, 1, 0, 8, 8, 0, 0);
    p[UNUSED] = test_param("unused", 5, 1, 0, 3, 0, 0, 0);
}

static ls_tensor *tied_loss(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_embedding(t, tokens, 2, 3, &p[WTE], NULL, NULL);
    x = ls_linear(t, x, &p[W1], &p[B1], NULL);
    x = ls_linear(t, x, &p[W2], NULL, &(ls_linear_options){ .add = x });
    x = ls_linear(t, x, &p[W2], NULL, NULL); /* used twice */
    return ls_linear_cross_entropy(t, x, &p[WTE], &(ls_cross_entropy_options){ .targets = targets });
}

typedef struct seen {
    int count, order[16];
    float first[16]; /* the gradient's first element when the hook fired */
    int fail_at;     /* -1: never */
} seen;

static ls_status on_ready(void *user, ls_param *p)
{
    seen *s = user;
    s->first[s->count] = p->grad[0];
    s->order[s->count++] = p->index;
    /* The weight may be updated here: it must not be read after this. */
    for (int64_t i = 0; i < param_count(p); i++) p->value[i] = NAN;
    return s->count - 1 == s->fail_at ? LS_EPEER : LS_OK;
}

static void each_hook_fires_once_when_its_gradient_is_final(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    check_ok(ls_tape_open(&t, NULL));
    seen passes[2] = { 0 };
    float expected[PARAMS] = { 0 };
    for (int pass = 0; pass < 3; pass++) { /* the first without hooks, for the gradients */
        open_params(p);
        if (pass) {
            passes[pass - 1].fail_at = -1;
            ls_tape_on_ready(t, on_ready, &passes[pass - 1]);
        }
        check_ok(ls_tape_begin(t, p, PARAMS, NULL));
        check_ok(ls_tape_backward(t, tied_loss(t, p)));
        for (int i = 0; i < PARAMS; i++) {
            if (!pass) expected[i] = p[i].grad[0];
            assert_true(isfinite(p[i].grad[0]));
        }
        free_params(p, PARAMS);
    }
    const int order[PARAMS] = { W2, B1, W1, WTE, UNUSED };
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(passes[pass].count, PARAMS);
        for (int i = 0; i < PARAMS; i++) {
            assert_int_equal(passes[pass].order[i], order[i]);
            if (passes[pass].first[i] != expected[order[i]])
                fail_msg("hook of parameter %d saw gradient %.9g, final is %.9g", order[i], passes[pass].first[i],
                         expected[order[i]]);
        }
    }
    assert_true(expected[UNUSED] == 0);
    ls_tape_free(&t);
}

/* A norm and two layers on 64 rows, with or without recomputation. */
static size_t recomputing_pass(ls_tape *t, ls_param *p, bool recompute)
{
    static float input[64 * 8];
    for (int i = 0; i < 64 * 8; i++) input[i] = sinf((float)i);
    check_ok(ls_tape_begin(t, p, 5, NULL));
    ls_tensor *x = ls_tape_input(t, input, 2, (int64_t[]){ 64, 8 }), *sum = NULL;
    for (int layer = 0; layer < 4; layer++) {
        ls_tensor *norm = ls_layer_norm(t, x, &p[0], &p[1], 1e-5f);
        ls_tensor *wide = ls_linear(t, norm, &p[2], &p[3], &(ls_linear_options){ .activation = LS_GELU_TANH });
        if (recompute) ls_recompute(t, norm);
        ls_tensor *y = ls_linear(t, wide, &p[4], NULL, &(ls_linear_options){ .add = x });
        if (recompute) ls_recompute(t, wide);
        if (recompute) ls_recompute(t, x); /* an input, or a sum: cannot be recomputed, and is kept */
        sum = x = y;
    }
    check_ok(ls_tape_backward(t, ls_mean(t, ls_mul(t, sum, sum))));
    return ls__tape_peak(t);
}

static void recomputed_activations_have_the_same_bits(void **state)
{
    (void)state;
    size_t peak[2];
    ls_param p[2][5];
    for (int recompute = 0; recompute < 2; recompute++) {
        ls_tape *t;
        p[recompute][0] = test_param("norm", 1, 1, 0, 8, 0, 0, 0);
        p[recompute][1] = test_param("shift", 2, 1, 0, 8, 0, 0, 0);
        p[recompute][2] = test_param("widen", 3, 1, 0, 8, 32, 0, 0);
        p[recompute][3] = test_param("bias", 4, 1, 0, 32, 0, 0, 0);
        p[recompute][4] = test_param("project", 5, 1, 0, 32, 8, 0, 0);
        check_ok(ls_tape_open(&t, NULL));
        peak[recompute] = recomputing_pass(t, p[recompute], recompute);
        ls_tape_free(&t);
    }
    for (int i = 0; i < 5; i++)
        assert_memory_equal(p[0][i].grad, p[1][i].grad, (size_t)param_count(&p[0][i]) * sizeof(float));
    /* 4 of 10 rows of each layer can be recomputed; those of one layer are in memory at a time. */
    if (!(peak[1] < peak[0] * 8 / 10)) fail_msg("peak %zu with recomputation, %zu without", peak[1], peak[0]);
    for (int k = 0; k < 2; k++) free_params(p[k], 5);
}

static void a_parameter_used_twice_is_refused_if_its_gradient_is_aliased(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    static _Alignas(64) float memory[8 * 8 + 8 + 8 * 8];
    float *held[PARAMS], *at = memory;
    check_ok(ls_tape_open(&t, NULL));
    open_params(p);
    for (int i = W1; i <= W2; at += param_count(&p[i++])) {
        held[i] = p[i].grad;
        p[i].grad = at;
    }
    ls__tape_alias(t, memory, sizeof memory / sizeof *memory);
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    assert_null(tied_loss(t, p));
    assert_int_equal(ls_tape_status(t), LS_ESTATE);
    assert_non_null(strstr(ls_error(), "linear: 'w2' is used again"));
    ls__tape_alias(t, NULL, 0);
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    check_ok(ls_tape_backward(t, tied_loss(t, p)));
    for (int i = W1; i <= W2; i++) p[i].grad = held[i];
    free_params(p, PARAMS);
    ls_tape_free(&t);
}

static void a_failing_hook_ends_backward_with_its_status(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    check_ok(ls_tape_open(&t, NULL));
    seen s = { .fail_at = 1 };
    ls_tape_on_ready(t, on_ready, &s);
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    assert_int_equal(ls_tape_backward(t, tied_loss(t, p)), LS_EPEER);
    assert_int_equal(s.count, 2);
    ls_tape_free(&t);
    free_params(p, PARAMS);
}

static void accumulation_adds_and_the_default_overwrites(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    check_ok(ls_tape_open(&t, NULL));
    float once[64];
    for (int pass = 0; pass < 3; pass++) { /* twice overwriting, then adding */
        check_ok(ls_tape_begin(t, p, PARAMS, &(ls_pass){ .mode = pass == 2 ? LS_PASS_ACCUMULATE : LS_PASS_TRAIN }));
        check_ok(ls_tape_backward(t, tied_loss(t, p)));
        if (!pass) memcpy(once, p[WTE].grad, 40 * sizeof *once);
        for (int i = 0; i < 40; i++)
            if (fabsf(p[WTE].grad[i] - once[i] * (pass == 2 ? 2 : 1)) > 1e-5f)
                fail_msg("pass %d: gradient %d is %.9g, that of one pass %.9g", pass, i, p[WTE].grad[i], once[i]);
    }
    ls_tape_free(&t);
    free_params(p, PARAMS);
}

static void a_frozen_parameter_gets_no_gradient_and_no_hook(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    float *kept = p[W2].grad;
    p[W2].grad = NULL;
    check_ok(ls_tape_open(&t, NULL));
    seen s = { .fail_at = -1 };
    ls_tape_on_ready(t, on_ready, &s);
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    check_ok(ls_tape_backward(t, tied_loss(t, p)));
    assert_int_equal(s.count, PARAMS - 1);
    for (int i = 0; i < s.count; i++) assert_int_not_equal(s.order[i], W2);
    assert_true(isnan(kept[0]));
    p[W2].grad = kept;
    ls_tape_free(&t);
    free_params(p, PARAMS);
}

/* ---- Failures name the operation and both shapes. */

#define check_refused(t, p, call, text)                                                      \
    do {                                                                                     \
        check_ok(ls_tape_begin(t, p, PARAMS, NULL));                                         \
        ls_tensor *x = ls_tape_param(t, &p[W1]); /* (8, 8) */                                \
        ls_tensor *y = (call);                                                               \
        if (y) fail_msg("%s was accepted", #call);                                           \
        assert_null(ls_add(t, y, x)); /* continues with NULL, and keeps the first failure */ \
        check_fails(ls_tape_status(t), LS_EINVAL, text);                                     \
        check_fails(ls_tape_backward(t, y), LS_EINVAL, text);                                \
    } while (0)

static void shapes_that_do_not_fit_name_operation_and_shapes(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS], stranger = test_param("stranger", 1, 1, 0, 8, 8, 0, 0);
    open_params(p);
    check_ok(ls_tape_open(&t, NULL));
    check_refused(t, p, ls_linear(t, x, &p[B1], NULL, NULL), "linear: input (8, 8) does not fit b1 (8)");
    check_refused(t, p, ls_linear(t, ls_reshape(t, x, 2, (int64_t[]){ 4, 16 }), &p[W1], NULL, NULL),
                  "linear: input (4, 16) does not fit w1 (8, 8): expected (16, 8)");
    check_refused(t, p, ls_linear(t, x, &p[W1], &p[UNUSED], NULL), "linear: input (8, 8) does not fit unused (3)");
    check_refused(t, p, ls_linear(t, x, &stranger, NULL, NULL), "'stranger' is not among those given");
    check_refused(t, p, ls_add(t, x, ls_tape_param(t, &p[WTE])), "add: first (8, 8) does not fit second (5, 8)");
    check_refused(t, p, ls_mul(t, x, ls_tape_param(t, &p[WTE])), "mul: first (8, 8) does not fit second (5, 8)");
    check_refused(t, p, ls_layer_norm(t, x, &p[UNUSED], &p[B1], 1e-5f),
                  "layer_norm: input (8, 8) does not fit unused (3)");
    check_refused(t, p, ls_attention(t, x, &(ls_attention_options){ .heads = 3 }), "attention: input (8, 8)");
    check_refused(t, p, ls_reshape(t, x, 1, (int64_t[]){ 63 }), "reshape: input (8, 8) does not fit shape (63)");
    check_refused(t, p, ls_conv2d(t, x, &p[W1], NULL, NULL), "conv2d: input (8, 8) does not fit w1 (8, 8)");
    check_refused(t, p, ls_max_pool2d(t, x, NULL), "max_pool2d: input (8, 8)");
    check_refused(t, p, ls_global_avg_pool2d(t, x), "global_avg_pool2d: input (8, 8)");
    check_refused(t, p, ls_dropout(t, x, 1.0f), "dropout: p is 1");
    check_refused(t, p, ls_tape_input(t, p[W1].value, 2, (int64_t[]){ 3, -1 }),
                  "invalid shape (3, -1): each dimension");
    check_refused(t, p, ls_tape_input(t, p[W1].value, 5, (int64_t[]){ 1, 1, 1, 1, 1 }),
                  "5 dimensions; there must be from 1 to 4");
    check_refused(t, p, ls_tape_input(t, p[W1].value, -3, (int64_t[]){ 1 }),
                  "-3 dimensions; there must be from 1 to 4");
    check_refused(t, p, ls_embedding(t, (int32_t[]){ 1, 5 }, 1, 2, &p[WTE], NULL, NULL),
                  "embedding: token 5 at (0, 1) is outside of the vocabulary of 5");
    check_refused(t, p, ls_embedding(t, tokens, 1, 6, &p[WTE], &p[W1], (int64_t[]){ 3 }), "longer than the context");
    check_refused(t, p,
                  ls_linear_cross_entropy(t, ls_tape_param(t, &p[W1]), &p[WTE],
                                          &(ls_cross_entropy_options){ .targets = (int32_t[8]){ 0, 1, 2, 3, 4, -1 } }),
                  "target -1 of row 5 is outside of the 5 classes");
    ls_tape_free(&t);
    free_params(p, PARAMS);
    free_params(&stranger, 1);
}

static void calls_out_of_order_are_refused(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    check_ok(ls_tape_open(&t, NULL));
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    ls_tensor *loss = tied_loss(t, p);
    check_ok(ls_tape_backward(t, loss));
    check_fails(ls_tape_backward(t, loss), LS_ESTATE, "call it once per pass");
    assert_null(ls_tape_param(t, &p[W1]));
    check_fails(ls_tape_status(t), LS_ESTATE, "ls_tape_begin");
    check_ok(ls_tape_begin(t, p, PARAMS, &(ls_pass){ .mode = LS_PASS_EVAL }));
    check_fails(ls_tape_backward(t, tied_loss(t, p)), LS_ESTATE, "eval pass");
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    check_fails(ls_tape_backward(t, ls_tape_param(t, &p[W1])), LS_EINVAL, "one element, but its shape is (8, 8)");
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    check_fails(ls_tape_backward(t, ls_scale(t, tied_loss(t, p), 2)), LS_ESTATE, "must be the loss");
    ls_tape_free(&t);
    check_fails(ls_tape_open(&t, &(ls_tape_options){ .threads = -1 }), LS_EINVAL, "threads is -1");
    free_params(p, PARAMS);
}

static void memory_that_ends_is_an_error_and_the_tape_lives_on(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 1, .memory_limit = 64 << 10 }));
    for (int i = 0; i < 3; i++) {
        check_ok(ls_tape_begin(t, p, PARAMS, NULL));
        ls_tensor *x = ls_tape_param(t, &p[W1]);
        for (int j = 0; x && j < 10000; j++) x = ls_scale(t, x, 1);
        assert_null(x);
        check_fails(ls_tape_status(t), LS_ENOMEM, "arena is full");
        check_ok(ls_tape_begin(t, p, PARAMS, NULL));
        check_ok(ls_tape_backward(t, tied_loss(t, p)));
    }
    ls_tape_free(&t);
    free_params(p, PARAMS);
}

typedef struct profiled {
    int forward, backward;
    double flops, bytes; /* bytes: of forward */
} profiled;

typedef struct ticks {
    int count, elsewhere;
    pthread_t home;
} ticks;

static void on_tick(void *user)
{
    ticks *s = user;
    s->count++;
    s->elsewhere += !pthread_equal(s->home, pthread_self());
}

static void long_products_tick_in_the_thread_that_runs_the_tape(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        ls_tape *t;
        ls_param w = test_param("w", 1, 1, 0, 64, 512, 0, 0);
        static float rows[2048 * 64];
        ticks s = { .home = pthread_self() };
        check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
        ls__tape_on_tick(t, on_tick, &s);
        check_ok(ls_tape_begin(t, &w, 1, NULL));
        ls_tensor *x = ls_tape_input(t, rows, 2, (int64_t[]){ 2048, 64 });
        ls_tensor *y = ls_mean(t, ls_linear(t, x, &w, NULL, NULL));
        int forward = s.count;
        if (threads == 1) assert_true(forward > 1); /* with two, the other one may have been quicker */
        check_ok(ls_tape_backward(t, y));
        if (threads == 1) assert_true(s.count > forward);
        assert_int_equal(s.elsewhere, 0);
        free_params(&w, 1);
        ls_tape_free(&t);
    }
}

static void on_profile(void *user, const ls__op_cost *e)
{
    profiled *s = user;
    assert_true(e->ns >= 0);
    if (strcmp(e->op, "linear")) return;
    *(e->backward ? &s->backward : &s->forward) += 1;
    assert_int_equal(e->shape[e->dims - 1], 8);
    assert_string_equal(e->near, e->param);
    s->flops += e->flops;
    if (!e->backward) s->bytes += e->bytes;
}

static void the_profile_hook_gets_the_cost_of_each_operation(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    check_ok(ls_tape_open(&t, NULL));
    profiled s = { 0 };
    ls__tape_on_profile(t, on_profile, &s);
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    check_ok(ls_tape_backward(t, tied_loss(t, p)));
    assert_int_equal(s.forward, 3);
    assert_int_equal(s.backward, 3);
    assert_true(s.flops == 3 * 3 * 2.0 * 6 * 8 * 8);
    /* inputs and outputs of 6 x 8, one residual, three weights of 8 x 8, one bias of 8 */
    assert_true(s.bytes == 4.0 * (7 * 6 * 8 + 3 * 8 * 8 + 8));
    ls_tape_free(&t);
    free_params(p, PARAMS);
}

/* Begins a pass, makes the call, and checks how it fails. */
#define check_operation_fails(call, status, text)           \
    do {                                                    \
        check_ok(ls_tape_begin(t, p, PARAMS, NULL));        \
        x = ls_tape_input(t, data, 2, (int64_t[]){ 2, 8 }); \
        assert_non_null(x);                                 \
        assert_null(call);                                  \
        check_fails(ls_tape_status(t), status, text);       \
    } while (0)

static void null_and_unknown_arguments_fail_the_pass(void **state)
{
    (void)state;
    ls_tape *t;
    ls_tensor *x;
    ls_param p[PARAMS];
    float data[16] = { 0 };
    const int64_t image[4] = { 1, 2, 2, 2 };
    ls_batch_norm_state nothing = { 0 };
    open_params(p);
    check_ok(ls_tape_open(&t, NULL));
    assert_null(ls_tape_input(t, data, 2, image));
    check_fails(ls_tape_status(t), LS_ESTATE, "ls_tape_begin");
    check_fails(ls_tape_begin(t, NULL, 3, NULL), LS_EINVAL, "params must not be NULL for a count of 3");
    check_fails(ls_tape_begin(t, p, -1, NULL), LS_EINVAL, "n_params=-1: must not be negative");
    check_operation_fails(ls_linear(t, x, NULL, NULL, NULL), LS_EINVAL, "linear: a parameter is NULL");
    check_operation_fails(ls_linear(t, x, &p[W1], NULL, &(ls_linear_options){ .activation = (ls_activation)77 }),
                          LS_EINVAL, "linear: unknown activation 77");
    check_operation_fails(ls_layer_norm(t, x, NULL, &p[B1], 1e-5f), LS_EINVAL, "layer_norm: a parameter is NULL");
    check_operation_fails(ls_layer_norm(t, x, &p[B1], NULL, 1e-5f), LS_EINVAL, "layer_norm: a parameter is NULL");
    check_operation_fails(ls_rms_norm(t, x, NULL, 1e-5f), LS_EINVAL, "rms_norm: a parameter is NULL");
    check_operation_fails(ls_conv2d(t, ls_tape_input(t, data, 4, image), NULL, NULL, NULL), LS_EINVAL,
                          "conv2d: a parameter is NULL");
    check_operation_fails(ls_batch_norm(t, ls_tape_input(t, data, 4, image), &p[B1], &p[B1], NULL, NULL), LS_EINVAL,
                          "running statistics");
    check_operation_fails(ls_batch_norm(t, ls_tape_input(t, data, 4, image), &p[B1], &p[B1], &nothing, NULL), LS_EINVAL,
                          "running statistics");
    check_operation_fails(ls_batch_norm(t, x, NULL, &p[B1], &nothing, NULL), LS_EINVAL,
                          "batch_norm: a parameter is NULL");
    check_operation_fails(ls_embedding(t, tokens, 2, 3, NULL, NULL, NULL), LS_EINVAL, "embedding: a parameter is NULL");
    check_operation_fails(ls_embedding(t, NULL, 2, 3, &p[WTE], NULL, NULL), LS_EINVAL, "the tokens are NULL");
    check_operation_fails(ls_tape_param(t, NULL), LS_EINVAL, "param: a parameter is NULL");
    check_operation_fails(ls_tape_input(t, NULL, 4, image), LS_EINVAL, "data is NULL");
    check_operation_fails(ls_tape_input(t, data, 4, NULL), LS_EINVAL, "shape is NULL");
    check_operation_fails(ls_reshape(t, x, 1, NULL), LS_EINVAL, "shape is NULL");
    check_operation_fails(ls_activate(t, x, (ls_activation)77), LS_EINVAL, "activate: unknown activation 77");
    check_operation_fails(ls_attention(t, x, NULL), LS_EINVAL, "heads is required");
    check_operation_fails(ls_cross_entropy(t, x, NULL), LS_EINVAL, "the targets are NULL");
    check_operation_fails(ls_cross_entropy(t, x, &(ls_cross_entropy_options){ 0 }), LS_EINVAL, "the targets are NULL");
    check_operation_fails(ls_linear_cross_entropy(t, x, NULL, &(ls_cross_entropy_options){ .targets = targets }),
                          LS_EINVAL, "a parameter is NULL");
    check_operation_fails(ls_linear_cross_entropy(t, x, &p[WTE], NULL), LS_EINVAL, "the targets are NULL");
    assert_int_equal(ls_tensor_count(NULL), 0);
    ls_tape_free(&t);
    ls_tape_free(NULL);
    free_params(p, PARAMS);
}

static void a_pass_that_cannot_be_is_refused(void **state)
{
    (void)state;
    ls_tape *t;
    ls_param p[PARAMS];
    open_params(p);
    check_fails(ls_tape_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    check_ok(ls_tape_open(&t, NULL));
    check_fails(ls_tape_begin(t, p, PARAMS, &(ls_pass){ .mode = (ls_pass_mode)9 }), LS_EINVAL, "pass mode 9");
    check_fails(ls_tape_begin(t, p, PARAMS, &(ls_pass){ .stream = 1ull << 48 }), LS_EINVAL, "below 2^48");
    check_ok(ls_tape_begin(t, p, PARAMS, &(ls_pass){ .stream = (1ull << 48) - 1 }));
    ls_param changed = p[W2];
    changed.value = NULL;
    check_fails(ls_tape_begin(t, &changed, 1, NULL), LS_EINVAL, "'w2') has no memory");
    changed = p[W2];
    changed.dims = 5;
    check_fails(ls_tape_begin(t, &changed, 1, NULL), LS_EINVAL, "'w2') has 5 dimensions; there must be from 1 to 4");
    changed = p[W2];
    changed.shape[0] = -2;
    check_fails(ls_tape_begin(t, &changed, 1, NULL), LS_EINVAL, "invalid shape (-2");
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    check_ok(ls_tape_backward(t, tied_loss(t, p)));
    ls_tape_free(&t);
    /* The limit counts in bytes, not in pages. */
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .memory_limit = 100 }));
    check_ok(ls_tape_begin(t, p, PARAMS, NULL));
    assert_null(ls_tape_param(t, &p[W1]));
    check_fails(ls_tape_status(t), LS_ENOMEM, "arena is full");
    ls_tape_free(&t);
    free_params(p, PARAMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_hook_fires_once_when_its_gradient_is_final),
        cmocka_unit_test(recomputed_activations_have_the_same_bits),
        cmocka_unit_test(a_parameter_used_twice_is_refused_if_its_gradient_is_aliased),
        cmocka_unit_test(a_failing_hook_ends_backward_with_its_status),
        cmocka_unit_test(accumulation_adds_and_the_default_overwrites),
        cmocka_unit_test(a_frozen_parameter_gets_no_gradient_and_no_hook),
        cmocka_unit_test(shapes_that_do_not_fit_name_operation_and_shapes),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(memory_that_ends_is_an_error_and_the_tape_lives_on),
        cmocka_unit_test(the_profile_hook_gets_the_cost_of_each_operation),
        cmocka_unit_test(long_products_tick_in_the_thread_that_runs_the_tape),
        cmocka_unit_test(null_and_unknown_arguments_fail_the_pass),
        cmocka_unit_test(a_pass_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
