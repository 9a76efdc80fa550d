/* AdamW, SGD and sums of squares: every version that this CPU runs against its reference, in bits. */
#include "kern/optim.h"
#include "kern/table.h"
#include "kern/values.h"

enum { ROOM = 4200 };
static const size_t counts[] = { 0, 1, 3, 7, 8, 15, 16, 17, 33, 64, 65, 1027, 4096 };
enum { COUNTS = sizeof counts / sizeof *counts };

static float w[ROOM], g[ROOM], m[ROOM], v[ROOM], w2[ROOM], m2[ROOM], v2[ROOM];

static void fill_all(void)
{
    fill_numbers(LS_F32, w, ROOM);
    fill_numbers(LS_F32, g, ROOM);
    fill_numbers(LS_F32, m, ROOM);
    fill_numbers(LS_F32, v, ROOM);
    for (int i = 0; i < ROOM; i++) v[i] *= v[i];
    memcpy(w2, w, sizeof w);
    memcpy(m2, m, sizeof m);
    memcpy(v2, v, sizeof v);
}

static void adamw(void **state)
{
    (void)state;
    const ls__kernels *k;
    ls__adamw_args args = { 0.7f, 0.999f, 0.9f, 0.95f, 0.01f, 1.3f, 1e-8f };
    for (int i = 0; (k = ls__kernels_at(i)); i++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t shift = 0; shift < 9; shift++) {
                fill_all();
                k->adamw(w + shift, g + 1, m + 2, v + shift, counts[c], &args);
                ls__adamw_reference(w2 + shift, g + 1, m2 + 2, v2 + shift, counts[c], &args);
                check_same_bits(w, w2, ROOM, sizeof(float), k->name);
                check_same_bits(m, m2, ROOM, sizeof(float), k->name);
                check_same_bits(v, v2, ROOM, sizeof(float), k->name);
            }
    fill_all();
    ls__adamw(w, g, m, v, ROOM, &args);
    ls__adamw_reference(w2, g, m2, v2, ROOM, &args);
    check_same_bits(w, w2, ROOM, sizeof(float), "ls__adamw");
}

static void sgd(void **state)
{
    (void)state;
    const ls__kernels *k;
    for (int i = 0; (k = ls__kernels_at(i)); i++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t shift = 0; shift < 18; shift++) {
                ls__sgd_args args = { 0.7f, 0.1f, shift < 9 ? 0.9f : 0, 0.01f };
                fill_all();
                k->sgd(w + shift, g + 1, m + 2, counts[c], &args);
                ls__sgd_reference(w2 + shift, g + 1, m2 + 2, counts[c], &args);
                check_same_bits(w, w2, ROOM, sizeof(float), k->name);
                check_same_bits(m, m2, ROOM, sizeof(float), k->name);
            }
}

static void sums_of_squares(void **state)
{
    (void)state;
    const ls__kernels *k;
    fill_all();
    for (int i = 0; (k = ls__kernels_at(i)); i++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t shift = 0; shift < 9; shift++) {
                double got = k->sum_squares(w + shift, counts[c]);
                double expected = ls__sum_squares_reference(w + shift, counts[c]);
                check_same_bits(&got, &expected, 1, sizeof(double), k->name);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw),
        cmocka_unit_test(sgd),
        cmocka_unit_test(sums_of_squares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
