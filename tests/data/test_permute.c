/* The keyed permutation: a bijection, and a fair one. */
#include "check.h"
#include "data/permute.h"
#include "data/torch_order.h"

static void every_place_is_taken_once(void **state)
{
    (void)state;
    static uint8_t seen[100003];
    for (uint64_t n = 1; n <= 100003; n = n < 700 ? n + 1 : n < 50000 ? 3 * n + 1 : n < 100003 ? 100003 : n + 1) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            memset(seen, 0, n);
            ls__permutation p;
            ls__permutation_init(&p, n, seed, n);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t to = ls__permute(&p, i);
                if (to >= n || seen[to]) fail_msg("n %zu, seed %zu: %zu comes twice or is no sample", n, seed, to);
                seen[to] = 1;
            }
        }
    }
}

/* Over many seeds, chi-square of which of the 24 permutations of 4 came. 23 degrees of freedom: a fair one stays below
 * 49.7 in 999 of 1,000 tries; the seeds are fixed, so the test is too. */
static void all_permutations_of_a_few_are_equally_likely(void **state)
{
    (void)state;
    enum { SEEDS = 48000 };
    double expected = SEEDS / 24.0, chi = 0;
    int counts[256] = { 0 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ls__permutation p;
        ls__permutation_init(&p, 4, seed, 0);
        int code = 0;
        for (uint64_t i = 0; i < 4; i++) code = code * 4 + (int)ls__permute(&p, i);
        counts[code]++;
    }
    int kinds = 0;
    for (int i = 0; i < 256; i++) {
        kinds += counts[i] > 0;
        if (counts[i]) chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    if (kinds != 24 || chi > 49.7) fail_msg("%d kinds (24), chi-square %.1f (< 49.7)", kinds, chi);
}

/* Where two neighbours land relative to each other, in steps of 1/16 of the range: flat, for streams as for seeds. */
static void neighbours_part_ways(void **state)
{
    (void)state;
    const uint64_t sizes[] = { 1000, 4096, 1000003, UINT64_C(1) << 40 };
    for (size_t s = 0; s < 4; s++) {
        int counts[16] = { 0 };
        enum { TRIES = 16000 };
        for (uint64_t stream = 0; stream < 40; stream++) {
            ls__permutation p;
            ls__permutation_init(&p, sizes[s], 1, stream);
            for (uint64_t i = 0; i < TRIES / 40; i++) {
                uint64_t a = ls__permute(&p, i), b = ls__permute(&p, i + 1);
                uint64_t gap = a < b ? b - a : b + sizes[s] - a; /* around the circle: uniform over 1..n-1 */
                counts[(unsigned __int128)(gap - 1) * 16 / (sizes[s] - 1)]++;
            }
        }
        double chi = 0;
        for (int i = 0; i < 16; i++) chi += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
        if (chi > 37.7) fail_msg("n %zu: chi-square %.1f of 15 degrees of freedom (< 37.7)", sizes[s], chi);
    }
}

static void torch_randperm_is_torchs(void **state)
{
    (void)state;
    const struct {
        uint64_t seed;
        uint32_t order[10];
    } vectors[] = {
        { 0, { 4, 1, 7, 5, 3, 9, 0, 8, 6, 2 } },
        { 1, { 5, 6, 1, 2, 0, 8, 9, 3, 7, 4 } },
        { 42, { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 } },
        { 42 + (UINT64_C(5) << 32), { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 } }, /* the high bits do not count */
    };
    for (size_t v = 0; v < 4; v++) {
        uint32_t got[10];
        ls__torch_randperm(10, vectors[v].seed, got, NULL);
        for (int i = 0; i < 10; i++)
            if (got[i] != vectors[v].order[i])
                fail_msg("seed %zu, place %d: %u, torch %u", vectors[v].seed, i, got[i], vectors[v].order[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_is_taken_once),
        cmocka_unit_test(all_permutations_of_a_few_are_equally_likely),
        cmocka_unit_test(neighbours_part_ways),
        cmocka_unit_test(torch_randperm_is_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
