/* The order of adding is the canonical tree, and it shows: the numbers here give other bits in any other order. The
 * tree is evaluated by a recursion of its own, and written out by hand for small p. */
#include "kern/reduce.h"
#include "kern/table.h"
#include "kern/values.h"

enum { MAX_P = 70, COUNT = 200 };
static float x[MAX_P][COUNT];

static float tree(int first, int n, size_t i)
{
    if (n == 1) return x[first][i];
    int m = 1;
    while (m * 2 < n) m *= 2;
    return tree(first, m, i) + tree(first + m, n - m, i);
}

static float in_sequence(int n, size_t i)
{
    float sum = x[0][i];
    for (int r = 1; r < n; r++) sum += x[r][i];
    return sum;
}

static void reduce(const ls__kernels *k, int p, float *out)
{
    const void *in[MAX_P];
    for (int r = 0; r < p; r++) in[r] = x[r];
    if (k)
        k->reduce[LS_F32](LS_SUM, (void *[]){ out }, 1, in, p, COUNT, false);
    else
        ls__reduce_arrays(LS_F32, LS_SUM, (void *[]){ out }, 1, in, p, COUNT, false);
}

static void sums_are_in_tree_order(void **state)
{
    (void)state;
    float expected[COUNT], got[COUNT];
    for (int p = 1; p <= MAX_P; p++) {
        for (int r = 0; r < p; r++) fill_numbers(LS_F32, x[r], COUNT);
        int differ = 0;
        for (size_t i = 0; i < COUNT; i++) {
            expected[i] = tree(0, p, i);
            differ += expected[i] != in_sequence(p, i);
        }
        if (p > 3 && differ < COUNT / 20) fail_msg("p %d: the numbers do not distinguish orders", p);
        const ls__kernels *k;
        for (int v = 0; (k = ls__kernels_at(v)); v++) {
            reduce(k, p, got);
            check_same_bits(got, expected, COUNT, sizeof(float), k->name);
        }
        reduce(NULL, p, got);
        check_same_bits(got, expected, COUNT, sizeof(float), "ls__reduce_arrays");
    }
}

static void small_trees_by_hand(void **state)
{
    (void)state;
    float got[COUNT];
    for (int r = 0; r < 7; r++) fill_numbers(LS_F32, x[r], COUNT);
    for (int p = 3; p <= 7; p++) {
        reduce(NULL, p, got);
        for (size_t i = 0; i < COUNT; i++) {
            float a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i], e = x[4][i], f = x[5][i], g = x[6][i];
            float by_hand[] = { (a + b) + c, (a + b) + (c + d), ((a + b) + (c + d)) + e, ((a + b) + (c + d)) + (e + f),
                                ((a + b) + (c + d)) + ((e + f) + g) };
            assert_float_equal(got[i], by_hand[p - 3], 0);
        }
    }
}

/* What lets one rank stand for several: the tree over 8 is the tree over two trees of 4, over four trees of 2. */
static void a_tree_of_aligned_trees_is_the_tree(void **state)
{
    (void)state;
    static float part[4][COUNT];
    float whole[COUNT], joined[COUNT];
    for (int r = 0; r < 8; r++) fill_numbers(LS_F32, x[r], COUNT);
    reduce(NULL, 8, whole);
    for (int parts = 2; parts <= 4; parts *= 2) {
        const void *in[4];
        for (int r = 0; r < parts; r++) {
            const void *leaves[4];
            for (int j = 0; j < 8 / parts; j++) leaves[j] = x[r * 8 / parts + j];
            ls__reduce_arrays(LS_F32, LS_SUM, (void *[]){ part[r] }, 1, leaves, 8 / parts, COUNT, false);
            in[r] = part[r];
        }
        ls__reduce_arrays(LS_F32, LS_SUM, (void *[]){ joined }, 1, in, parts, COUNT, false);
        check_same_bits(joined, whole, COUNT, sizeof(float), parts == 2 ? "two parts" : "four parts");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_in_tree_order),
        cmocka_unit_test(small_trees_by_hand),
        cmocka_unit_test(a_tree_of_aligned_trees_is_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
