/* Every operation against PyTorch: results within 1e-5, gradients within 1e-4 of the largest value. */
#include "goldens.h"
#include "harness.h"

static void check_case(const goldens *g, const op_case *c, ls_tape *t)
{
    ls_param p[CASE_PARAMS];
    int n = case_params(c, p);
    ls_tensor *y;
    check_ok(ls_tape_begin(t, p, n, NULL));
    ls_tensor *loss = case_loss(c, t, p, &y);
    check_ok(ls_tape_status(t));
    goldens_check(g, c->name, y->data, (size_t)ls_tensor_count(y), 1e-5);
    check_ok(ls_tape_backward(t, loss));
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", c->name, p[i].name);
        goldens_check(g, name, p[i].grad, (size_t)param_count(&p[i]), 1e-4);
    }
    free_params(p, n);
}

static void operations_agree_with_pytorch(void **state)
{
    (void)state;
    goldens g;
    ls_tape *t;
    goldens_open(&g);
    check_ok(ls_tape_open(&t, NULL));
    for (int i = 0; i < n_op_cases; i++) check_case(&g, &op_cases[i], t);
    ls_tape_free(&t);
    free(g.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_agree_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
