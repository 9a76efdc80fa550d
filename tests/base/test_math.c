/* Functions with the same bits everywhere: close to libm's, and pinned. */
#include <math.h>
#include "base/math.h"
#include "check.h"

static void check_close(const char *what, double x, double got, double expected)
{
    if (fabs(got - expected) > 1e-15 * fmax(fabs(expected), 1))
        fail_msg("%s(%.17g) is %.17g, expected %.17g", what, x, got, expected);
}

static void functions_are_close_to_those_of_libm(void **state)
{
    (void)state;
    for (double x = 1e-30; x < 1e30; x *= 1.0137) check_close("log", x, ls__math_log(x), log(x));
    for (double x = -700; x < 700; x += 0.0931)
        if (fabs(ls__math_exp(x) / exp(x) - 1) > 1e-15) check_close("exp", x, ls__math_exp(x), exp(x));
    for (double x = 0; x <= M_PI / 2; x += 0.000731) check_close("cos", x, ls__math_cos(x), cos(x));
    for (int n = 0; n < 5000; n += 7) {
        check_close("0.9^", n, ls__math_power(0.9, n), pow(0.9, n));
        if (fabs(ls__math_power(0.999, n) / pow(0.999, n) - 1) > 1e-12)
            fail_msg("0.999^%d is %.17g, expected %.17g", n, ls__math_power(0.999, n), pow(0.999, n));
    }
    assert_true(ls__math_exp(-1000) == 0 && ls__math_exp(0) == 1 && ls__math_log(1) == 0 && isnan(ls__math_log(NAN)) &&
                ls__math_cos(0) == 1 && ls__math_power(3, 4) == 81);
}

static void bits_are_pinned(void **state)
{
    (void)state;
    double sum = 0;
    for (int i = 1; i < 1000; i++) {
        double x = i * 0.0015;
        sum += ls__math_log(x) + ls__math_exp(-x) + ls__math_cos(x) + ls__math_power(1 - x * 0.1, i % 40);
    }
    if (sum != 0x1.ec9d46e78bf07p+9) fail_msg("the sum is %a", sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_close_to_those_of_libm),
        cmocka_unit_test(bits_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
