/* Arenas: alignment, limits, marks, and that invalid sizes are errors. */
#include "check.h"
#include "base/arena.h"

static void allocations_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    ls__arena a;
    check_ok(ls__arena_open(&a, 1 << 20));
    uint8_t *before = NULL;
    for (size_t i = 1; i < 300; i++) {
        uint8_t *p = ls__arena_take(&a, i);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        if (before) assert_true(p >= before + i - 1);
        memset(p, (int)i, i);
        before = p;
    }
    ls__arena_close(&a);
    assert_null(a.base);
}

static void a_full_arena_says_so_and_goes_on(void **state)
{
    (void)state;
    ls__arena a;
    check_ok(ls__arena_open(&a, 4096));
    assert_null(ls__arena_take(&a, 4097));
    assert_non_null(strstr(ls_error(), "arena is full"));
    assert_null(ls__arena_take(&a, SIZE_MAX));
    assert_null(ls__arena_take_array(&a, SIZE_MAX / 2, 4));
    assert_non_null(strstr(ls_error(), "overflows"));
    assert_non_null(ls__arena_take(&a, 4096));
    assert_null(ls__arena_take(&a, 1));
    ls__arena_close(&a);
}

static void a_mark_gives_back_what_came_after(void **state)
{
    (void)state;
    ls__arena a;
    check_ok(ls__arena_open(&a, 1 << 16));
    void *kept = ls__arena_take(&a, 100);
    size_t mark = ls__arena_mark(&a);
    void *first = ls__arena_take(&a, 1000);
    ls__arena_reset(&a, mark);
    void *again = ls__arena_take(&a, 1000);
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(kept, again);
    assert_int_equal(a.peak, 128 + 1024);
    ls__arena_close(&a);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    ls__arena a;
    check_fails(ls__arena_open(&a, 0), LS_EINVAL, "invalid size");
    check_fails(ls__arena_open(&a, SIZE_MAX), LS_EINVAL, "invalid size");
    check_fails(ls__arena_open(&a, SIZE_MAX / 2), LS_ENOMEM, "reserving");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_do_not_overlap),
        cmocka_unit_test(a_full_arena_says_so_and_goes_on),
        cmocka_unit_test(a_mark_gives_back_what_came_after),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
