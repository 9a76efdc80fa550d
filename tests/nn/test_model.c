/* Models in general: places, memory, first values; and that the small ones learn. */
#include "check.h"
#include "nn/model.h"
#include <math.h>

static void gpt2_has_its_well_known_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        { "gpt2", 124439808 }, { "gpt2-medium", 354823168 }, { "gpt2-large", 774030080 }, { "gpt2-xl", 1557611200 }
    };
    for (int i = 0; i < 4; i++) {
        ls_model_options o;
        ls_model *m;
        check_ok(ls_model_preset(sizes[i].name, &o));
        check_ok(ls_model_open(&m, &o));
        assert_int_equal(ls_model_param_count(m), sizes[i].size);
        ls_model_free(&m);
    }
}

static void places_follow_each_other_on_cache_lines(void **state)
{
    (void)state;
    ls_model *m;
    ls_lm_options o = { .layers = 2, .width = 10, .heads = 5, .vocab_size = 7, .context = 3 };
    check_ok(ls_model_open(&m, &(ls_model_options){ .lm = o }));
    const ls_place *p;
    size_t n = ls_model_places(m, &p), end = 0, size = 0;
    assert_int_equal(n, 2 + 2 * 12 + 2);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(p[i].offset, end);
        assert_int_equal(p[i].offset % 16, 0);
        int64_t count = 1;
        for (int d = 0; d < LS_MAX_DIMS; d++) count *= p[i].shape[d];
        assert_int_equal(p[i].count, count);
        end = (p[i].offset + p[i].count + 15) / 16 * 16;
        size += p[i].count;
    }
    assert_int_equal(ls_model_elements(m), end);
    assert_int_equal(ls_model_param_count(m), size);
    assert_string_equal(p[0].name, "wte.weight");
    assert_string_equal(p[4].name, "h.0.attn.c_attn.weight");
    ls_model_free(&m);
}

static ls_model *open_small(void)
{
    ls_model *m;
    ls_lm_options o = { .layers = 2, .width = 96, .heads = 4, .vocab_size = 1000, .context = 50 };
    check_ok(ls_model_open(&m, &(ls_model_options){ .lm = o }));
    check_ok(ls_model_bind(m, NULL, NULL, true));
    return m;
}

static void first_values_do_not_depend_on_slices_or_threads(void **state)
{
    (void)state;
    ls_model *a = open_small(), *b = open_small(), *c = open_small();
    size_t n = ls_model_elements(a), cuts[] = { 0, 1, 97, 70000, n - 5, n };
    check_ok(ls_model_init(a, 42));
    for (int i = 4; i >= 0; i--) check_ok(ls__model_init_range(b, cuts[i], cuts[i + 1], 42, 2));
    assert_memory_equal(ls_model_values(a), ls_model_values(b), n * sizeof(float));
    check_ok(ls_model_init(c, 43));
    assert_memory_not_equal(ls_model_values(a), ls_model_values(c), n * sizeof(float));
    check_fails(ls__model_init_range(a, 5, n + 1, 42, 1), LS_EINVAL, "of a block of");
    ls_model_free(&a);
    ls_model_free(&b);
    ls_model_free(&c);
}

static void first_values_are_gpt2s(void **state)
{
    (void)state;
    ls_model *m = open_small();
    check_ok(ls_model_init(m, 1));
    const ls_place *p;
    size_t n = ls_model_places(m, &p);
    for (size_t i = 0; i < n; i++) {
        const float *x = ls_model_values(m) + p[i].offset;
        double sum = 0, squares = 0, count = (double)p[i].count;
        for (size_t k = 0; k < p[i].count; k++) {
            sum += (double)x[k];
            squares += (double)x[k] * (double)x[k];
        }
        double mean = sum / count, std = sqrt(squares / count - mean * mean);
        if (p[i].dims == 1) {
            double expected = strstr(p[i].name, "ln_") && strstr(p[i].name, "weight") ? 1 : 0;
            assert_true(mean == expected);
            assert_float_equal(std, 0, 1e-9);
        } else {                                                         /* five standard errors */
            double expected = strstr(p[i].name, "c_proj") ? 0.01 : 0.02; /* 0.02 / sqrt(2 * 2 layers) */
            if (fabs(mean) > 5 * expected / sqrt(count)) fail_msg("%s: mean %g", p[i].name, mean);
            if (fabs(std / expected - 1) > 5 / sqrt(2 * count)) fail_msg("%s: std %g", p[i].name, std);
        }
    }
    ls_model_free(&m);
}

static void memory_may_be_the_callers(void **state)
{
    (void)state;
    static _Alignas(64) float values[2048], grads[2048];
    ls_model *m;
    ls_mlp_options o = { .inputs = 4, .hidden = 8, .classes = 3 };
    check_ok(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_MLP, .mlp = o }));
    assert_true(ls_model_elements(m) <= 2048);
    check_fails(ls_model_init(m, 0), LS_ESTATE, "no memory");
    check_fails(ls_model_bind(m, values + 1, grads, true), LS_EINVAL, "aligned to 64");
    check_ok(ls_model_bind(m, values, grads, true));
    check_fails(ls_model_bind(m, NULL, NULL, true), LS_ESTATE, "already");
    assert_ptr_equal(ls_model_values(m), values);
    ls_param *params;
    assert_int_equal(ls_model_params(m, &params), 4);
    assert_ptr_equal(params[1].grad, grads + 32);
    ls_model_free(&m);
}

static void a_model_that_cannot_be_is_refused(void **state)
{
    (void)state;
    ls_model *m;
    check_fails(ls_model_open(&m, &(ls_model_options){ .lm = { .width = 100, .heads = 3 } }), LS_EINVAL,
                "not divisible by 3 heads");
    assert_null(m);
    check_fails(ls_model_open(&m, &(ls_model_options){ .lm = { .layers = -1 } }), LS_EINVAL, "layers is -1");
    check_fails(ls_model_open(&m, &(ls_model_options){ .lm = { .dropout = 1 } }), LS_EINVAL, "dropout is 1");
    check_fails(ls_model_open(&m, &(ls_model_options){ .lm = { .layers = 10000, .width = 1 << 20, .heads = 1 } }),
                LS_ENOMEM, "does not fit");
    check_fails(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_MLP }), LS_EINVAL, "0 inputs");
}

/* The class is given by which inputs are large. */
static void make_examples(float *inputs, int32_t *targets, int rows, int inputs_each, int classes)
{
    for (int r = 0; r < rows; r++) {
        targets[r] = r % classes;
        for (int i = 0; i < inputs_each; i++) {
            unsigned noise = (unsigned)(r * 7919 + i * 104729) * 2654435761u >> 20;
            inputs[r * inputs_each + i] = (float)(noise % 100) / 100 + (i * classes / inputs_each == targets[r]);
        }
    }
}

/* Trains on one batch and returns the last loss; *first is the first. */
static double train(ls_model *m, const ls_model_batch *batch, int steps, float lr, double *first)
{
    ls_tape *tape;
    ls_optimizer *optimizer;
    const ls_place *places;
    ls_param *params;
    int n = ls_model_params(m, &params);
    size_t elements = ls_model_elements(m), n_places = ls_model_places(m, &places);
    double loss = 0;
    check_ok(ls_tape_open(&tape, &(ls_tape_options){ .threads = 1 }));
    check_ok(ls_optimizer_open(&optimizer, places, n_places, 0, elements,
                               &(ls_optimizer_options){ .kind = LS_SGD, .threads = 1 }));
    check_ok(ls_model_init(m, 3));
    for (int step = 0; step < steps; step++) {
        check_ok(ls_tape_begin(tape, params, n, NULL));
        ls_tensor *out = ls_model_loss(m, tape, batch);
        check_ok(ls_tape_backward(tape, out));
        loss = (double)out->data[0];
        if (!step) *first = loss;
        ls_optimizer_update(optimizer, ls_model_values(m), ls_model_grads(m), step, lr);
    }
    ls_optimizer_free(&optimizer);
    ls_tape_free(&tape);
    return loss;
}

static void mlp_learns(void **state)
{
    (void)state;
    static float inputs[32 * 20];
    int32_t targets[32];
    ls_model *m;
    double first;
    make_examples(inputs, targets, 32, 20, 5);
    check_ok(
        ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_MLP,
                                               .mlp = { .inputs = 20, .hidden = 32, .layers = 3, .classes = 5 } }));
    check_ok(ls_model_bind(m, NULL, NULL, true));
    double last =
        train(m, &(ls_model_batch){ .batch_size = 32, .inputs = inputs, .targets = targets }, 60, 0.05f, &first);
    if (!(first > 1 && last < 0.05)) fail_msg("loss fell from %g to %g only", first, last);
    ls_model_free(&m);
}

static void resnet_learns(void **state)
{
    (void)state;
    enum { ROWS = 8, SIZE = 8 };
    static float pictures[ROWS * 3 * SIZE * SIZE];
    int32_t targets[ROWS];
    ls_model *m;
    double first;
    make_examples(pictures, targets, ROWS, 3 * SIZE * SIZE, 4);
    check_ok(ls_model_open(&m, &(ls_model_options){
                                   .kind = LS_MODEL_RESNET,
                                   .resnet = { .blocks = { 1, 1, 1 }, .width = 8, .size = SIZE, .classes = 4 } }));
    check_ok(ls_model_bind(m, NULL, NULL, true));
    double last =
        train(m, &(ls_model_batch){ .batch_size = ROWS, .inputs = pictures, .targets = targets }, 30, 0.02f, &first);
    if (!(first > 1 && last < 0.1)) fail_msg("loss fell from %g to %g only", first, last);
    const ls_place *places;
    float *buffers;
    assert_int_equal(ls_model_buffers(m, &places, &buffers), 3 * 9);
    assert_string_equal(places[1].name, "bn1.running_var");
    assert_string_equal(places[2].name, "bn1.num_batches_tracked");
    assert_true(buffers[places[2].offset] == 30);
    double moved = 0;
    for (size_t i = 0; i < places[0].count; i++) moved += fabs((double)buffers[places[0].offset + i]);
    assert_true(moved > 0);
    ls_model_free(&m);
}

static void resnet_20_has_its_size(void **state)
{
    (void)state;
    ls_model *m;
    check_ok(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_RESNET }));
    /* 0.27M weights as in the paper; the two 1x1 shortcuts with their norms are torchvision's. */
    assert_int_equal(ls_model_param_count(m), 272474);
    ls_model_free(&m);
    check_fails(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_RESNET, .resnet = { .size = -1 } }), LS_EINVAL,
                "images of size -1");
}

static void a_model_or_batch_without_memory_fails_the_pass(void **state)
{
    (void)state;
    ls_model *m, *lm;
    ls_tape *t;
    ls_param *p;
    float inputs[4] = { 0 };
    int32_t target = 0;
    check_ok(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_MLP, .mlp = { .inputs = 4 } }));
    check_ok(ls_tape_open(&t, NULL));
    int n = ls_model_params(m, &p);
    check_fails(ls_tape_begin(t, p, n, NULL), LS_EINVAL, "has no memory");
    check_ok(ls_tape_begin(t, NULL, 0, NULL));
    assert_null(ls_model_loss(m, t, &(ls_model_batch){ .batch_size = 1, .inputs = inputs, .targets = &target }));
    check_fails(ls_tape_status(t), LS_ESTATE, "ls_model_bind");
    check_fails(ls_model_init(m, 1), LS_ESTATE, "ls_model_bind");
    check_ok(ls_model_bind(m, NULL, NULL, true));
    const ls_model_batch bad[] = { { .batch_size = 1, .targets = &target }, { .batch_size = 1, .inputs = inputs } };
    const char *const why[] = { "data is NULL", "targets are NULL" };
    for (int i = 0; i < 2; i++) {
        check_ok(ls_tape_begin(t, p, n, NULL));
        assert_null(ls_model_loss(m, t, &bad[i]));
        check_fails(ls_tape_status(t), LS_EINVAL, why[i]);
    }
    check_ok(ls_tape_begin(t, p, n, NULL));
    assert_null(ls_model_logits(m, t, NULL));
    check_fails(ls_tape_status(t), LS_EINVAL, "the batch is NULL");
    check_ok(
        ls_model_open(&lm, &(ls_model_options){ .lm = { .layers = 1, .width = 8, .vocab_size = 10, .context = 4 } }));
    check_ok(ls_model_bind(lm, NULL, NULL, false));
    n = ls_model_params(lm, &p);
    check_ok(ls_tape_begin(t, p, n, NULL));
    assert_null(ls_model_logits(lm, t, &(ls_model_batch){ .batch_size = 1, .seq_len = 4 }));
    check_fails(ls_tape_status(t), LS_EINVAL, "tokens are NULL");
    check_fails(ls_model_save(m, NULL), LS_EINVAL, "folder must not be NULL");
    check_fails(ls_model_load(m, NULL), LS_EINVAL, "folder must not be NULL");
    check_fails(ls_model_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    ls_model *none;
    check_fails(ls_model_open(&none, &(ls_model_options){ .kind = 9 }), LS_EINVAL, "invalid kind 9");
    assert_null(none);
    ls_model_free(&m);
    ls_model_free(&lm);
    ls_model_free(NULL);
    ls_tape_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_has_its_well_known_sizes),
        cmocka_unit_test(places_follow_each_other_on_cache_lines),
        cmocka_unit_test(first_values_do_not_depend_on_slices_or_threads),
        cmocka_unit_test(first_values_are_gpt2s),
        cmocka_unit_test(memory_may_be_the_callers),
        cmocka_unit_test(a_model_that_cannot_be_is_refused),
        cmocka_unit_test(mlp_learns),
        cmocka_unit_test(resnet_learns),
        cmocka_unit_test(resnet_20_has_its_size),
        cmocka_unit_test(a_model_or_batch_without_memory_fails_the_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
