/* Optimizers against torch's, and updates by slices against updates of the whole. */
#include "check.h"
#include "nn/norm.h"
#include "nn/optimizer.h"
#include "nn/golden_optimizer.h"
#include <math.h>

/* The golden parameters, [3,4] and [5], with padding between. */
static const ls_place places[] = {
    { .name = "w", .dims = 2, .shape = { 3, 4, 1, 1 }, .offset = 0, .count = 12 },
    { .name = "b", .dims = 1, .shape = { 5, 1, 1, 1 }, .offset = 16, .count = 5 },
};
enum { BLOCK = 32 };

static void spread(float *block, const float *flat)
{
    memset(block, 0, BLOCK * sizeof *block);
    memcpy(block, flat, 12 * sizeof *block);
    memcpy(block + 16, flat + 12, 5 * sizeof *block);
}

static void check_run(const ls_optimizer_options *options, double clip, const float *expected)
{
    ls_optimizer *o;
    float values[BLOCK], grads[BLOCK], golden[BLOCK];
    spread(values, golden_start);
    spread(golden, expected);
    check_ok(ls_optimizer_open(&o, places, 2, 0, BLOCK, options));
    for (int k = 0; k < STEPS; k++) {
        spread(grads, golden_grads[k]);
        ls_clip_grad_norm(grads, BLOCK, clip, 1);
        ls_optimizer_update(o, values, grads, k, 0.1f / (float)(k + 1));
    }
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(values[i] - golden[i]) > 1e-6f * fmaxf(1, fabsf(golden[i])))
            fail_msg("element %d is %.9g, torch has %.9g", i, (double)values[i], (double)golden[i]);
    ls_optimizer_free(&o);
}

static void adamw_is_torchs(void **state)
{
    (void)state;
    ls_optimizer_options o = { .beta1 = 0.8f, .beta2 = 0.95f, .eps = 1e-6f, .weight_decay = 0.3f };
    check_run(&o, 0, golden_adamw);
    check_run(&o, 0.5, golden_adamw_clipped);
}

static void sgd_is_torchs(void **state)
{
    (void)state;
    ls_optimizer_options o = { .kind = LS_SGD, .momentum = 0.7f, .weight_decay = 0.3f };
    check_run(&o, 0, golden_sgd);
    o.momentum = -1;
    check_run(&o, 0, golden_sgd_plain);
}

/* A wide and a tall matrix, a table and a vector, without padding. */
static const ls_place muon_places[] = {
    { .name = "wide", .dims = 2, .shape = { 6, 10, 1, 1 }, .offset = 0, .count = 60 },
    { .name = "tall", .dims = 2, .shape = { 9, 4, 1, 1 }, .offset = 60, .count = 36 },
    { .name = "table", .dims = 2, .shape = { 7, 3, 1, 1 }, .offset = 96, .count = 21, .is_table = true },
    { .name = "b", .dims = 1, .shape = { 5, 1, 1, 1 }, .offset = 117, .count = 5 },
};

static void muon_is_torchs_in_float32(void **state)
{
    (void)state;
    float values[MUON_COUNT];
    ls_optimizer *o;
    ls_optimizer_options options = {
        .kind = LS_MUON, .momentum = 0.8f, .beta1 = 0.8f, .beta2 = 0.95f, .eps = 1e-6f, .weight_decay = 0.3f
    };
    memcpy(values, golden_muon_start, sizeof values);
    check_ok(ls_optimizer_open(&o, muon_places, 4, 0, MUON_COUNT, &options));
    for (int k = 0; k < STEPS; k++) ls_optimizer_update(o, values, golden_muon_grads[k], k, 0.1f / (float)(k + 1));
    for (int i = 0; i < MUON_COUNT; i++)
        if (fabsf(values[i] - golden_muon[i]) > 2e-6f * fmaxf(1, fabsf(golden_muon[i])))
            fail_msg("element %d is %.9g, torch has %.9g", i, (double)values[i], (double)golden_muon[i]);
    ls_optimizer_free(&o);
    check_fails(ls_optimizer_open(&o, muon_places, 4, 0, 90, &options), LS_EINVAL,
                "from 0 to 90 has a part of the matrix 'tall' (60 to 96); muon needs whole matrices");
}

static void muon_of_no_gradient_only_decays(void **state)
{
    (void)state;
    float values[MUON_COUNT], none[MUON_COUNT] = { 0 };
    ls_optimizer *o;
    memcpy(values, golden_muon_start, sizeof values);
    check_ok(ls_optimizer_open(&o, muon_places, 4, 0, MUON_COUNT, &(ls_optimizer_options){ .kind = LS_MUON }));
    ls_optimizer_update(o, values, none, 0, 0.1f);
    for (int i = 0; i < 96; i++) assert_float_equal(values[i], 0.99f * golden_muon_start[i], 1e-6);
    ls_optimizer_free(&o);
}

static float number(size_t i)
{
    return (float)((i * 2654435761u >> 8) % 2001) / 1000 - 1;
}

enum { MANY = 200000 };

static void slices_and_threads_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const ls_place large[] = {
        { .name = "a", .dims = 2, .shape = { 600, 300, 1, 1 }, .offset = 0, .count = 180000 },
        { .name = "b", .dims = 1, .shape = { 19990, 1, 1, 1 }, .offset = 180000, .count = 19990 },
    };
    static float grads[MANY], whole[MANY], sliced[MANY];
    size_t cuts[] = { 0, 4096, 131072, 180001, MANY };
    ls_optimizer *one, *parts[4];
    ls_optimizer_options options = { .threads = 1 };
    for (size_t i = 0; i < MANY; i++) whole[i] = sliced[i] = number(i);
    check_ok(ls_optimizer_open(&one, large, 2, 0, MANY, &options));
    options.threads = 2;
    for (int p = 0; p < 4; p++) check_ok(ls_optimizer_open(&parts[p], large, 2, cuts[p], cuts[p + 1], &options));
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < MANY; i++) grads[i] = number(i + 7 * (size_t)step);
        check_ok(ls__optimizer_update_range(one, whole, grads, 0, MANY, step, 0.01f, 0.5f, NULL));
        for (int p = 3; p >= 0; p--) {
            size_t middle = (cuts[p] + cuts[p + 1]) / 2;
            check_ok(ls__optimizer_update_range(parts[p], sliced, grads, middle, cuts[p + 1], step, 0.01f, 0.5f, NULL));
            check_ok(ls__optimizer_update_range(parts[p], sliced, grads, cuts[p], middle, step, 0.01f, 0.5f, NULL));
        }
    }
    assert_memory_equal(whole, sliced, sizeof whole);
    check_fails(ls__optimizer_update_range(parts[1], sliced, grads, 0, 4097, 3, 0.01f, 1, NULL), LS_EINVAL,
                "elements 0 to 4097 are not in its range 4096 to 131072");
    for (int p = 0; p < 4; p++) ls_optimizer_free(&parts[p]);
    ls_optimizer_free(&one);
}

/* Places with padding between them, updated block by block with copies: taking a block back and updating it again changes
 * nothing. */
static void an_interrupted_update_can_be_taken_back(void **state)
{
    (void)state;
    enum { ALL = 3000, ONE = 1000 };
    static const ls_place three[] = {
        { .name = "a", .dims = 1, .shape = { 70, 1, 1, 1 }, .offset = 0, .count = 70 },
        { .name = "b", .dims = 2, .shape = { 50, 40, 1, 1 }, .offset = 80, .count = 2000 },
        { .name = "c", .dims = 1, .shape = { 900, 1, 1, 1 }, .offset = 2096, .count = 900 },
    };
    static float grads[ALL], whole[ALL], again[ALL], copy[3 * 1024];
    ls_optimizer *o[2];
    _Atomic int64_t copied;
    ls__optim_undo undo = { .copy = copy, .copied = &copied };
    for (size_t i = 0; i < ALL; i++) grads[i] = number(i + 5);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < three[k].count; i++) whole[three[k].offset + i] = again[three[k].offset + i] = number(i);
    for (int i = 0; i < 2; i++)
        check_ok(ls_optimizer_open(&o[i], three, 3, 0, ALL, &(ls_optimizer_options){ .threads = 1 }));
    for (int step = 0; step < 3; step++) {
        check_ok(ls__optimizer_update_range(o[0], whole, grads, 0, ALL, step, 0.01f, 0.5f, NULL));
        for (size_t at = 0; at < ALL; at += ONE) {
            const char *name;
            float *states[2];
            for (int i = 0; i < 2; i++) ls_optimizer_state(o[1], i, &name, &states[i]);
            memset(copy, 0x7f, sizeof copy); /* what was not copied must not be restored */
            check_ok(ls__optimizer_update_range(o[1], again, grads, at, at + ONE, step, 0.01f, 0.5f, &undo));
            ls__undo_restore(copy, (size_t)copied, 0, again + at);
            for (int i = 0; i < 2; i++) ls__undo_restore(copy, (size_t)copied, 1 + i, states[i] + at);
            check_ok(ls__optimizer_update_range(o[1], again, grads, at, at + ONE, step, 0.01f, 0.5f, &undo));
        }
        assert_memory_equal(whole, again, sizeof whole);
    }
    for (int i = 0; i < 2; i++) ls_optimizer_free(&o[i]);
}

/* Matrices prepared by two optimizers that share state, as ranks do, in another order and with other threads. */
static void muon_is_the_same_by_parts_and_threads(void **state)
{
    (void)state;
    enum { COUNT_ALL = 130 * 70 + 64 * 96 };
    static const ls_place two[] = {
        { .name = "a", .dims = 2, .shape = { 130, 70, 1, 1 }, .offset = 0, .count = 130 * 70 },
        { .name = "b", .dims = 2, .shape = { 64, 96, 1, 1 }, .offset = 130 * 70, .count = 64 * 96 },
    };
    static float grads[COUNT_ALL], whole[COUNT_ALL], shared[COUNT_ALL];
    static _Alignas(64) float memory[2 * COUNT_ALL + 64];
    ls_optimizer *one, *ranks[2];
    ls_optimizer_options options = { .kind = LS_MUON, .threads = 1 };
    for (size_t i = 0; i < COUNT_ALL; i++) whole[i] = shared[i] = number(i);
    check_ok(ls_optimizer_open(&one, two, 2, 0, COUNT_ALL, &options));
    for (int r = 0; r < 2; r++) {
        options.threads = 3 - r;
        check_ok(ls__optimizer_open_in(&ranks[r], two, 2, 0, COUNT_ALL, &options, memory));
    }
    assert_int_equal(ls__optimizer_matrices(one), 2);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < COUNT_ALL; i++) grads[i] = number(i + 7 * (size_t)step);
        ls_optimizer_update(one, whole, grads, step, 0.01f);
        ls__optimizer_prepare(ranks[0], grads, 1, 2, 1);
        ls__optimizer_prepare(ranks[1], grads, 0, 1, 1);
        ls__optimizer_prepare(ranks[0], grads, 0, 1, 1); /* again, as after a loss of a rank */
        check_ok(ls__optimizer_update_range(ranks[0], shared, grads, 5000, COUNT_ALL, step, 0.01f, 1, NULL));
        check_ok(ls__optimizer_update_range(ranks[1], shared, grads, 0, 5000, step, 0.01f, 1, NULL));
    }
    assert_memory_equal(whole, shared, sizeof whole);
    ls_optimizer_free(&one);
    for (int r = 0; r < 2; r++) ls_optimizer_free(&ranks[r]);
}

static void the_norm_is_the_same_by_slices_and_threads(void **state)
{
    (void)state;
    static float x[MANY];
    static double sums[MANY / LS__NORM_BLOCK + 1], again[MANY / LS__NORM_BLOCK + 1];
    double exact = 0;
    for (size_t i = 0; i < MANY; i++) {
        x[i] = number(i) * 1e-3f;
        exact += (double)x[i] * (double)x[i];
    }
    size_t blocks = ls__norm_blocks(MANY), cut = 30 * LS__NORM_BLOCK;
    assert_int_equal(blocks, 49);
    ls__norm_sums(x, 0, MANY, sums, 1);
    ls__norm_sums(x, cut, MANY, again, 2);
    ls__norm_sums(x, 0, cut, again, 2);
    assert_memory_equal(sums, again, blocks * sizeof *sums);
    double norm = ls__norm_total(sums, blocks);
    assert_true(fabs(norm - sqrt(exact)) < 1e-12 * norm);
    assert_true(ls__norm_total(sums, 0) == 0);
}

/* Clipping in place is the same as a factor in the update, in bits, for any number of threads. */
static void gradients_are_clipped_to_a_norm(void **state)
{
    (void)state;
    enum { LARGE = 3 * 1024 * 1024 + 17 }; /* several tasks of blocks, and an incomplete one */
    float *x = malloc(LARGE * sizeof *x), *y = malloc(LARGE * sizeof *y);
    double *sums = malloc(ls__norm_blocks(LARGE) * sizeof *sums);
    for (size_t i = 0; i < LARGE; i++) y[i] = number(i);
    ls__norm_sums(y, 0, LARGE, sums, 1);
    double norm = ls__norm_total(sums, ls__norm_blocks(LARGE));
    float scale = ls__clip_scale(norm, 1);
    for (int threads = 1; threads <= 3; threads++) {
        memcpy(x, y, LARGE * sizeof *x);
        assert_true(ls_clip_grad_norm(x, LARGE, 0, threads) == norm);
        assert_true(ls_clip_grad_norm(x, LARGE, 2 * norm, threads) == norm);
        assert_memory_equal(x, y, LARGE * sizeof *x);
        assert_true(ls_clip_grad_norm(x, LARGE, 1, threads) == norm);
        for (size_t i = 0; i < LARGE; i++)
            if (x[i] != y[i] * scale) fail_msg("element %zu is %g, not %g", i, (double)x[i], (double)(y[i] * scale));
        assert_true(fabs(ls_clip_grad_norm(x, LARGE, 0, threads) - 1) < 1e-6);
    }
    x[5] = INFINITY;
    y[0] = x[0];
    assert_false(isfinite(ls_clip_grad_norm(x, LARGE, 1, 1)));
    assert_true(x[0] == y[0]);
    assert_true(ls_clip_grad_norm(x, 0, 1, 1) == 0);
    free(sums);
    free(y);
    free(x);
}

static void clipping_scales_only_what_is_too_long(void **state)
{
    (void)state;
    assert_float_equal(ls__clip_scale(10, 0), 1, 0);
    assert_float_equal(ls__clip_scale(0.5, 1), 1, 0);
    assert_float_equal(ls__clip_scale(4, 1), 0.25, 1e-6);
    assert_float_equal(ls__clip_scale(NAN, 1), 1, 0); /* nothing is hidden: the gradients stay as they are */
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    ls_optimizer *o;
    ls_optimizer_options options = { .beta2 = 1 };
    check_fails(ls_optimizer_open(&o, places, 2, 0, BLOCK, &options), LS_EINVAL, "beta2 1");
    assert_null(o);
    options = (ls_optimizer_options){ .eps = -1 };
    check_fails(ls_optimizer_open(&o, places, 2, 0, BLOCK, &options), LS_EINVAL, "eps is -1");
    options = (ls_optimizer_options){ .kind = 9 };
    check_fails(ls_optimizer_open(&o, places, 2, 0, BLOCK, &options), LS_EINVAL, "invalid kind 9");
    options = (ls_optimizer_options){ .threads = -3 };
    check_fails(ls_optimizer_open(&o, places, 2, 0, BLOCK, &options), LS_EINVAL, "threads is -3");
    check_fails(ls_optimizer_open(&o, NULL, 2, 0, BLOCK, NULL), LS_EINVAL, "places must not be NULL for a count of 2");
    size_t ends[] = { BLOCK + 1, 99999, (size_t)1 << 62, SIZE_MAX };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "the range ends at %zu, after the last place, which ends at %d", ends[i],
                 BLOCK);
        check_fails(ls_optimizer_open(&o, places, 2, 0, ends[i], NULL), LS_EINVAL, expected);
    }
    ls_place huge = { .name = "huge", .dims = 1, .shape = { 1 }, .offset = 16, .count = SIZE_MAX - 8 };
    check_fails(ls_optimizer_open(&o, &huge, 1, 0, 32, NULL), LS_EINVAL, "after the last place");
    check_fails(ls_optimizer_open(NULL, places, 2, 0, BLOCK, NULL), LS_EINVAL, "out must not be NULL");
    ls_optimizer_free(NULL);
}

static void schedules_rise_and_fall_as_they_say(void **state)
{
    (void)state;
    ls_schedule s = { .kind = LS_SCHEDULE_COSINE, .lr = 1, .lr_end = 0.1f, .warmup = 10, .steps = 111 };
    assert_float_equal(ls_schedule_at(&s, 0), 0.1, 1e-7);
    assert_float_equal(ls_schedule_at(&s, -1), 0.1, 1e-7);
    assert_float_equal(ls_schedule_at(&s, INT64_MIN), 0.1, 1e-7);
    assert_float_equal(ls_schedule_at(&s, 9), 1, 1e-7);
    assert_float_equal(ls_schedule_at(&s, 10), 1, 1e-7);
    assert_float_equal(ls_schedule_at(&s, 60), 0.55, 1e-6);
    assert_float_equal(ls_schedule_at(&s, 110), 0.1, 1e-7);
    assert_float_equal(ls_schedule_at(&s, 5000), 0.1, 1e-7);
    s.kind = LS_SCHEDULE_LINEAR;
    assert_float_equal(ls_schedule_at(&s, 35), 0.775, 1e-6);
    assert_float_equal(ls_schedule_at(&s, 110), 0.1, 1e-7);
    s.kind = LS_SCHEDULE_CONSTANT;
    assert_float_equal(ls_schedule_at(&s, 4), 0.5, 1e-7);
    assert_float_equal(ls_schedule_at(&s, 110), 1, 0);
    s = (ls_schedule){ .kind = LS_SCHEDULE_LINEAR, .lr = 1, .steps = 1 };
    assert_true(isfinite(ls_schedule_at(&s, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_torchs),
        cmocka_unit_test(sgd_is_torchs),
        cmocka_unit_test(muon_is_torchs_in_float32),
        cmocka_unit_test(muon_of_no_gradient_only_decays),
        cmocka_unit_test(muon_is_the_same_by_parts_and_threads),
        cmocka_unit_test(slices_and_threads_give_the_bits_of_the_whole),
        cmocka_unit_test(an_interrupted_update_can_be_taken_back),
        cmocka_unit_test(the_norm_is_the_same_by_slices_and_threads),
        cmocka_unit_test(gradients_are_clipped_to_a_norm),
        cmocka_unit_test(clipping_scales_only_what_is_too_long),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(schedules_rise_and_fall_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
