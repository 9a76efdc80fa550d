/* Every operation: its backward against central differences of its forward, element by element. */
#include "harness.h"

/* The loss in double, from a pass that records nothing. */
static double forward(const op_case *c, ls_tape *t, ls_param *p, int n)
{
    check_ok(ls_tape_begin(t, p, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *y;
    if (!case_loss(c, t, p, &y)) fail_msg("%s: %s", c->name, ls_error());
    double sum = 0;
    for (int64_t i = 0; i < ls_tensor_count(y); i++) sum += (double)y->data[i] * test_value(99, (uint32_t)i);
    return sum;
}

static double difference(const op_case *c, ls_tape *t, ls_param *p, int n, float *x, float h)
{
    float kept = *x;
    *x = kept + h;
    double right = forward(c, t, p, n);
    *x = kept - h;
    double left = forward(c, t, p, n);
    *x = kept;
    return (right - left) / (2 * (double)h);
}

static void check_case(const op_case *c, ls_tape *t)
{
    ls_param p[CASE_PARAMS];
    int n = case_params(c, p);
    ls_tensor *y;
    check_ok(ls_tape_begin(t, p, n, NULL));
    check_ok(ls_tape_backward(t, case_loss(c, t, p, &y)));
    const float h = 0x1p-6f;
    for (int j = 0; j < n; j++) {
        double largest = 1e-3;
        for (int64_t i = 0; i < param_count(&p[j]); i++) largest = fmax(largest, fabs((double)p[j].grad[i]));
        int64_t step = param_count(&p[j]) / 200 + 1; /* of the large ones, 200 elements or so */
        for (int64_t i = 0; i < param_count(&p[j]); i += step) {
            if (c->kinks && fabsf(p[j].value[i]) < 2 * h) continue;
            double d = difference(c, t, p, n, &p[j].value[i], h);
            /* a second, at h/2, takes the h^2 term off */
            double half = difference(c, t, p, n, &p[j].value[i], h / 2), expected = (4 * half - d) / 3;
            if (c->kinks && fabs(half - d) > 1e-3 * largest) continue; /* a kink in between */
            if (!(fabs(p[j].grad[i] - expected) <= 5e-4 * largest))
                fail_msg("%s: gradient of %s[%lld] is %.7g, central difference %.7g (largest %.3g)", c->name, p[j].name,
                         (long long)i, p[j].grad[i], expected, largest);
        }
    }
    free_params(p, n);
}

static void backward_is_the_slope_of_forward(void **state)
{
    (void)state;
    ls_tape *t;
    /* one thread: thousands of tiny passes, and waking another for each would be most of the time */
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 1 }));
    for (int i = 0; i < n_op_cases; i++) check_case(&op_cases[i], t);
    ls_tape_free(&t);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backward_is_the_slope_of_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
