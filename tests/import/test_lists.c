/* The lists of a trace: packed while it is read, and sorted. */
#include "check.h"

#include <stdlib.h>
#include "import/deltas.h"
#include "import/trace.h"

static void fill(uint64_t i, int64_t f[LS__DELTAS_FIELDS])
{
    f[0] = (int64_t)(i * 1000003 % 4096 + i * 300);
    f[1] = i % 977 ? (int64_t)(i % 5000) : INT64_C(1) << 61;
    f[2] = (int64_t)(i % 3 ? UINT32_MAX : i);
    f[3] = i % 1013 ? 0 : i % 2 ? INT64_MIN : INT64_MAX;
}

static void test_what_was_packed_comes_out(void **state)
{
    (void)state;
    enum { COUNT = 400000 }; /* several megabytes, so that some is given back on the way */
    ls__deltas d = { 0 };
    int64_t f[LS__DELTAS_FIELDS], want[LS__DELTAS_FIELDS];
    for (int round = 0; round < 2; round++) { /* an emptied list can be used again */
        for (uint64_t i = 0; i < COUNT; i++) {
            fill(i, f);
            assert_true(ls__deltas_add(&d, f));
        }
        assert_int_equal(d.count, COUNT);
        assert_true(d.used < COUNT * 16);
        for (uint64_t i = 0; i < COUNT; i++) {
            fill(i, want);
            assert_true(ls__deltas_take(&d, f));
            assert_memory_equal(f, want, sizeof f);
        }
        assert_false(ls__deltas_take(&d, f));
        assert_null(d.bytes);
        assert_int_equal(d.count, 0);
    }
    assert_true(ls__deltas_add(&d, want));
    ls__deltas_free(&d);
    assert_null(d.bytes);
    assert_false(ls__deltas_take(&d, f));
}

typedef struct item {
    int key, number;
} item;

static int by_key(const void *a, const void *b)
{
    return ((const item *)a)->key - ((const item *)b)->key;
}

static void test_sorts_what_is_nearly_in_order_and_what_is_not(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static item list[COUNT];
    for (int far = 1; far <= COUNT; far *= 15) {
        for (int i = 0; i < COUNT; i++) list[i] = (item){ (i * 7919 % far + i) / 2, i };
        ls__sort_nearly(list, COUNT, sizeof *list, by_key);
        bool seen[COUNT] = { false };
        for (int i = 0; i < COUNT; i++) {
            assert_false(seen[list[i].number]);
            seen[list[i].number] = true;
            if (i) assert_true(list[i - 1].key <= list[i].key);
            if (i && far <= 15 && list[i - 1].key == list[i].key) assert_true(list[i - 1].number < list[i].number);
        }
    }
    ls__sort_nearly(NULL, 0, sizeof *list, by_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_packed_comes_out),
        cmocka_unit_test(test_sorts_what_is_nearly_in_order_and_what_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
