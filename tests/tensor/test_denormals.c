/* Denormal numbers: flushed by everything that computes a model, in all its threads; kept by collectives; and the caller's own mode
 * is as before. */
#include <fenv.h>
#include <pthread.h>
#include "harness.h"
#include "kern/float_mode.h"
#include "kern/optim.h"
#include "kern/reduce.h"

static const float tiny = 0x1p-140f;

/* A pass over an array that is large enough for all threads. */
static void check_pass(ls_tape *t, ls_param *p)
{
    check_ok(ls_tape_begin(t, p, 1, NULL));
    ls_tensor *y = ls_scale(t, ls_tape_param(t, p), 1.0f), *loss = ls_sum(t, ls_mul(t, y, y));
    check_ok(ls_tape_status(t));
    for (int64_t i = 0; i < ls_tensor_count(y); i++)
        if (y->data[i] != 0) fail_msg("element %lld is %a", (long long)i, (double)y->data[i]);
    check_ok(ls_tape_backward(t, loss));
}

static void passes_flush_them_in_every_thread(void **state)
{
    (void)state;
    enum { ROWS = 512, COLS = 512 };
    ls_param p = test_param("x", 1, 1, 0, ROWS, COLS, 0, 0);
    for (int64_t i = 0; i < ROWS * COLS; i++) p.value[i] = i % 2 ? tiny : -tiny;
    for (int threads = 1; threads <= 3; threads++) {
        ls_tape *t;
        check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
        for (int flush = 0; flush < 2; flush++) {
            ls__float_mode_set(flush ? LS__MODE_FLUSH : LS__MODE_KEEP);
            ls__float_mode before = ls__float_mode_get();
            if (!flush) {
#pragma omp parallel num_threads(threads) /* threads that are there before the pass */
                ls__float_mode_set(LS__MODE_KEEP);
            }
            check_pass(t, &p);
            assert_int_equal((before ^ ls__float_mode_get()) & ~0x3fu, 0);
        }
        ls_tape_free(&t);
    }
    ls__float_mode_set(LS__MODE_KEEP);
    free_params(&p, 1);
}

/* A thread takes over a pass from another; its OpenMP threads exist and keep denormal numbers. Gradients get denormal in a loop
 * (mul) and in a product (linear). */
typedef struct handed_over {
    ls_tape *t;
    ls_param p[3];
    bool backward;
    ls_tensor *loss;
} handed_over;

static void *go_on(void *arg)
{
    handed_over *h = arg;
#pragma omp parallel num_threads(3)
    ls__float_mode_set(LS__MODE_KEEP);
    if (!h->backward) {
        ls_tensor *x = ls_mul(h->t, ls_tape_param(h->t, &h->p[0]), ls_tape_param(h->t, &h->p[1]));
        h->loss = ls_scale(h->t, ls_sum(h->t, ls_linear(h->t, x, &h->p[2], NULL, NULL)), 0x1p-120f);
    }
    check_ok(ls_tape_backward(h->t, h->loss));
    return NULL;
}

static void a_thread_that_takes_over_flushes_them_too(void **state)
{
    (void)state;
    enum { ROWS = 512, COLS = 256 };
    handed_over h = { .p = { test_param("x", 1, 1, 0, ROWS, COLS, 0, 0), test_param("y", 2, 1, 0, ROWS, COLS, 0, 0),
                             test_param("w", 3, 1, 0, COLS, COLS, 0, 0) } };
    for (int i = 0; i < ROWS * COLS; i++) h.p[0].value[i] *= 0x1p-12f, h.p[1].value[i] *= 0x1p-4f;
    check_ok(ls_tape_open(&h.t, &(ls_tape_options){ .threads = 3 }));
    for (int from = 0; from < 2; from++) { /* from forward on, or from backward on */
        pthread_t other;
        h.backward = from;
        check_ok(ls_tape_begin(h.t, h.p, 3, NULL));
        if (from) {
            ls_tensor *x = ls_mul(h.t, ls_tape_param(h.t, &h.p[0]), ls_tape_param(h.t, &h.p[1]));
            h.loss = ls_scale(h.t, ls_sum(h.t, ls_linear(h.t, x, &h.p[2], NULL, NULL)), 0x1p-120f);
        }
        assert_int_equal(pthread_create(&other, NULL, go_on, &h), 0);
        pthread_join(other, NULL);
        for (int p = 0; p < 3; p++) {
            int tiny_ones = 0, normal = 0;
            for (int64_t i = 0; i < h.p[p].shape[0] * h.p[p].shape[1]; i++) {
                uint32_t bits; /* the compiler may assume that comparisons flush nothing */
                memcpy(&bits, &h.p[p].grad[i], 4);
                tiny_ones += (bits & 0x7fffffff) > 0 && (bits & 0x7f800000) == 0;
                normal += (bits & 0x7f800000) != 0;
            }
            if (tiny_ones) fail_msg("%s: %d denormal gradients, %d normal ones", h.p[p].name, tiny_ones, normal);
        }
    }
    ls_tape_free(&h.t);
    free_params(h.p, 3);
}

/* A caller that rounds upwards gets the same result, and rounds upwards afterwards. */
static void the_rounding_mode_of_the_caller_changes_nothing(void **state)
{
    (void)state;
    ls_param p[2] = { test_param("x", 1, 1, 0, 5, 70, 0, 0), test_param("w", 2, 1, 0, 70, 33, 0, 0) };
    float first[5 * 33];
    ls_tape *t;
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 1 }));
    for (int up = 0; up < 2; up++) {
        fesetround(up ? FE_UPWARD : FE_TONEAREST);
        check_ok(ls_tape_begin(t, p, 2, NULL));
        ls_tensor *y = ls_linear(t, ls_tape_param(t, &p[0]), &p[1], NULL, NULL);
        assert_int_equal(fegetround(), up ? FE_UPWARD : FE_TONEAREST);
        fesetround(FE_TONEAREST);
        assert_non_null(y);
        if (up)
            assert_memory_equal(y->data, first, sizeof first);
        else
            memcpy(first, y->data, sizeof first);
    }
    ls_tape_free(&t);
    free_params(p, 2);
}

static void updates_flush_and_collectives_keep_them(void **state)
{
    (void)state;
    for (int flush = 0; flush < 2; flush++) {
        ls__float_mode_set(flush ? LS__MODE_FLUSH : LS__MODE_KEEP);
        float a[40], b[40], w[40], m[40], v[40], *states[2] = { m, v };
        for (int i = 0; i < 40; i++) a[i] = b[i] = tiny, w[i] = 1, m[i] = v[i] = 0;
        void *out[1] = { a };
        const void *in[2] = { a, b };
        ls__reduce_arrays(LS_F32, LS_SUM, out, 1, in, 2, 40, false);
        ls__optim_args args = {
            .grad_scale = 1,
            .adamw = { .keep = 1, .beta1 = 0.5f, .beta2 = 0.5f, .step_size = 1, .denom_scale = 1, .eps = 0x1p-120f }
        };
        ls__optim_update(LS__OPTIM_ADAMW, w, b, states, 40, &args, NULL);
        ls__float_mode_set(LS__MODE_KEEP);
        for (int i = 0; i < 40; i++) assert_true(a[i] == 2 * tiny && m[i] == 0 && w[i] == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_flush_them_in_every_thread),
        cmocka_unit_test(a_thread_that_takes_over_flushes_them_too),
        cmocka_unit_test(the_rounding_mode_of_the_caller_changes_nothing),
        cmocka_unit_test(updates_flush_and_collectives_keep_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
