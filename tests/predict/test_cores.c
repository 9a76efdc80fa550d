/* Tasks that share cores, in cases that can be worked out by hand. A task has its core for 4 ms at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "predict/cores.h"

#define MS 1e6

static double share(int n, int cores, double ms, uint64_t seed)
{
    double *work = malloc((size_t)n * sizeof *work), end;
    for (int i = 0; i < n; i++) work[i] = ms * MS;
    end = ls__share_cores(work, n, cores, seed) / MS;
    free(work);
    return end;
}

static void test_a_core_for_each(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_float_equal(share(1, 1, 10, seed), 10, 1e-6);
        assert_float_equal(share(2, 2, 10, seed), 10, 1e-6);
        assert_float_equal(share(2, 7, 10, seed), 10, 1e-6);
    }
}

/* As many turns on each core: no time is lost but that of the turns. */
static void test_equally_many_on_each_core(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        double end = share(8, 2, 40, seed);
        assert_true(end >= 160 && end < 160 * 1.03);
    }
}

/* Two share a core, 30 ms each of 60, while the third has the other; then one of them moves there, after up to a tick. */
static void test_one_more_than_cores(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        double end = share(3, 2, 60, seed);
        assert_true(end > 90 && end < 90 + 2 * 4 + 4 + 3);
    }
    for (uint64_t seed = 0; seed < 50; seed++) { /* short ones are over before one can move */
        double end = share(3, 2, 2, seed);
        assert_true(end >= 3 && end <= 4.2);
    }
}

static void test_a_long_task_among_short_ones(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        double work[] = { 100 * MS, 10 * MS, 10 * MS, 10 * MS };
        double end = ls__share_cores(work, 4, 2, seed) / MS;
        assert_true(end >= 100 && end < 100 + 30 + 4);
    }
}

static void test_many_tasks_take_bounded_time(void **state)
{
    (void)state;
    double end = share(10000, 64, 1000, 1);
    assert_true(end >= 10000.0 / 64 * 1000 && end < 10000.0 / 64 * 1000 * 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_core_for_each),
        cmocka_unit_test(test_equally_many_on_each_core),
        cmocka_unit_test(test_one_more_than_cores),
        cmocka_unit_test(test_a_long_task_among_short_ones),
        cmocka_unit_test(test_many_tasks_take_bounded_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
