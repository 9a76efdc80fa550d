/* The counter-based generator: known vectors, the same bits one by one or in bulk, and numbers that are normal. */
#include <math.h>
#include "check.h"
#include "base/random.h"

/* Random123's kat_vectors for philox4x32, 10 rounds. */
static void philox_gives_the_known_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        ls__philox(known[i].counter, known[i].key, out);
        for (int w = 0; w < 4; w++) assert_int_equal(out[w], known[i].out[w]);
    }
}

static void bulk_and_single_numbers_agree(void **state)
{
    (void)state;
    static uint32_t words[1000];
    static float uniform[1000], normal[1000];
    const uint64_t seed = 0x123456789abcdef0, stream = 77, first = (1ull << 34) - 500; /* crosses 32 bits of block */
    ls__random_fill_u32(words, 1000, seed, stream, first);
    ls__random_fill_uniform(uniform, 1000, 0, 1, seed, stream, first);
    ls__random_fill_normal(normal, 1000, 0, 1, seed, stream, first);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t index = first + i, block = index / 4;
        uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), 77, 0 }, out[4];
        ls__philox(counter, (uint32_t[]){ 0x9abcdef0, 0x12345678 }, out);
        assert_int_equal(words[i], out[index % 4]);
        assert_int_equal(ls__random_u32(seed, stream, index), words[i]);
        assert_true(ls__random_uniform(seed, stream, index) == uniform[i]);
        assert_true(ls__random_normal(seed, stream, index) == normal[i]);
    }
    assert_int_equal((uint32_t)ls__random_u64(seed, stream, first / 2), words[0]);
    assert_int_equal(ls__random_u64(seed, stream, first / 2) >> 32, words[1]);
}

static void normal_numbers_match_the_textbook_formula(void **state)
{
    (void)state;
    for (uint64_t pair = 0; pair < 20000; pair++) {
        uint32_t a = ls__random_u32(5, 6, 2 * pair), b = ls__random_u32(5, 6, 2 * pair + 1);
        double radius = sqrt(-2 * log(((a >> 8) + 1.0) / 16777216)), angle = 6.283185307179586 * (b >> 8) / 16777216;
        double even = ls__random_normal(5, 6, 2 * pair), odd = ls__random_normal(5, 6, 2 * pair + 1);
        if (fabs(even - radius * cos(angle)) > 1e-6 || fabs(odd - radius * sin(angle)) > 1e-6)
            fail_msg("pair %llu: (%.9g, %.9g), expected (%.9g, %.9g)", (unsigned long long)pair, even, odd,
                     radius * cos(angle), radius * sin(angle));
    }
}

static void moments_are_those_of_the_distribution(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static float x[N];
    ls__random_fill_normal(x, N, 3, 2, 1, 1, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) sum += x[i];
    for (int i = 0; i < N; i++) squares += (x[i] - 3.0) * (x[i] - 3.0);
    if (fabs(sum / N - 3) > 0.01 || fabs(squares / N - 4) > 0.03)
        fail_msg("mean %g, variance %g", sum / N, squares / N);
    ls__random_fill_uniform(x, N, -1, 1, 1, 2, 0);
    sum = 0;
    for (int i = 0; i < N; i++) {
        assert_true(x[i] >= -1 && x[i] < 1);
        sum += x[i];
    }
    if (fabs(sum / N) > 0.005) fail_msg("uniform mean %g", sum / N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_vectors),
        cmocka_unit_test(bulk_and_single_numbers_agree),
        cmocka_unit_test(normal_numbers_match_the_textbook_formula),
        cmocka_unit_test(moments_are_those_of_the_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
