/* Whether data loading stalls ranks, of known sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <cmocka.h>
#include "record/data_stall.h"

static void check(const ls__data_load *all, int ranks, ls__data_stall expected, int expected_slowest)
{
    int slowest, fastest;
    assert_int_equal(ls__data_stall_find(all, ranks, &slowest, &fastest), expected);
    if (expected) assert_int_equal(slowest, expected_slowest);
}

/* 20 batches in 1000 ms. */
static void one_rank_or_all(void **state)
{
    (void)state;
    ls__data_load all[3] = { { .wall = 1000, .waited = 10, .batches = 20, .missed = 0, .build = 60 },
                             { .wall = 1000, .waited = 420, .batches = 20, .missed = 18, .build = 300 },
                             { .wall = 1000, .waited = 30, .batches = 20, .missed = 0, .build = 60 } };
    check(all, 3, LS__DATA_STALLS_RANK, 1);
    check(all + 1, 1, LS__DATA_STALLS_ALL, 0);
    all[1].missed = 0; /* the batches were ready: it lost the time otherwise */
    check(all, 3, LS__DATA_KEEPS_UP, 0);
    for (int r = 0; r < 3; r++)
        all[r] = (ls__data_load){ .wall = 1000, .waited = 400 - r, .batches = 20, .missed = 20, .build = 400 };
    check(all, 3, LS__DATA_STALLS_ALL, 0);
    for (int r = 0; r < 3; r++) all[r].waited = 40; /* too little to report */
    check(all, 3, LS__DATA_KEEPS_UP, 0);
    check(all, 0, LS__DATA_KEEPS_UP, 0);
    check((ls__data_load[2]){ { 0 } }, 2, LS__DATA_KEEPS_UP, 0);
}

static void waiting_longer_than_building_is_not_for_data(void **state)
{
    (void)state;
    ls__data_load r = { .wall = 1000, .waited = 420, .batches = 20, .missed = -1, .build = 300 };
    assert_true(ls__data_is_late(&r) && ls__data_stalls(&r));
    r.build = 2; /* 0.1 ms each */
    assert_false(ls__data_is_late(&r));
    ls__data_load others = { .batches = 20, .build = 1 };
    assert_true(ls__data_is_slow(&r, &others));
    others.build = 1.9;
    assert_false(ls__data_is_slow(&r, &others));
    others.batches = 0;
    assert_false(ls__data_is_slow(&r, &others));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_rank_or_all),
                                        cmocka_unit_test(waiting_longer_than_building_is_not_for_data) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
