/* Statistics of known values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "measure/stats.h"

static void medians(void **state)
{
    (void)state;
    double odd[] = { 5, 1, 3 }, even[] = { 4, 1, 3, 2 };
    assert_true(ls__median(odd, 3) == 3 && ls__median(even, 4) == 2.5 && ls__median(odd, 0) == 0);
    double sorted[] = { 1, 2, 3, 10 };
    assert_true(ls__median_without(sorted, 4, 10) == 2 && ls__median_without(sorted, 4, 1) == 3);
    assert_true(ls__median_without(sorted, 3, 2) == 2 && ls__median_without(sorted, 2, 1) == 2);
    assert_true(ls__median_without(sorted, 1, 1) == 0);
}

static void deviations_ignore_outliers(void **state)
{
    (void)state;
    double values[] = { 9, 10, 11, 10, 1000 }, scratch[5];
    assert_true(fabs(ls__mad(values, 5, 10, scratch) - 1.4826) < 1e-9);
    assert_true(values[4] == 1000); /* not sorted */
}

static void tails(void **state)
{
    (void)state;
    double values[100];
    for (int i = 0; i < 100; i++) values[i] = 99 - i;
    assert_true(ls__percentile(values, 100, 10) == 10 && ls__percentile(values, 100, 75) == 75);
    assert_true(ls__trimmed_max(values, 100, 50) == 97 && ls__trimmed_max(values, 40, 50) == 39);
    assert_true(ls__percentile(values, 0, 50) == 0 && ls__trimmed_max(values, 0, 50) == 0);
    assert_true(ls__percentile(values, 1, 100) == 0);
    const double sorted[] = { 1, 2, 3, 3, 10 };
    assert_true(ls__percentile_without(sorted, 5, 10, 75) == 3 && ls__percentile_without(sorted, 5, 3, 75) == 10);
    assert_true(ls__percentile_without(sorted, 5, 1, 0) == 2 && ls__percentile_without(sorted, 5, 2, 0) == 1);
    assert_true(ls__percentile_without(sorted, 5, 1, 100) == 10 && ls__percentile_without(sorted, 1, 1, 75) == 0);
    for (int n = 2; n < 40; n++) { /* leaving one out, the plain way */
        double all[40], others[40];
        for (int i = 0; i < n; i++) all[i] = (i * 7) % 13;
        ls__sort(all, (size_t)n);
        for (int k = 0; k < n; k++) {
            int m = 0;
            for (int i = 0; i < n; i++)
                if (i != k) others[m++] = all[i];
            assert_true(ls__percentile_without(all, (size_t)n, all[k], 75) == ls__percentile(others, (size_t)m, 75));
            assert_true(ls__median_without(all, (size_t)n, all[k]) == ls__median(others, (size_t)m));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(medians), cmocka_unit_test(deviations_ignore_outliers),
                                        cmocka_unit_test(tails) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
