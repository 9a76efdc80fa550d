/* Bucket planning and slots: pure functions, checked on their properties and on cases worked out by hand. */
#include "check.h"
#include "ddp/plan.h"
#include "ddp/slots.h"
#include "lockstep/ddp.h"

static void a_bucket_closes_when_it_has_reached_its_cap(void **state)
{
    (void)state;
    /* elements; 16 are 64 bytes */
    size_t counts[] = { 16, 16, 16, 100, 1, 1, 1000 };
    uint32_t order[] = { 0, 1, 2, 3, 4, 5, 6 };
    size_t offsets[7], total;
    ls__bucket_plan b[7];
    size_t n = ls__plan_buckets(counts, order, 7, 64, 128, offsets, b, &total);
    assert_int_equal(n, 5);
    assert_int_equal(b[0].spans, 1); /* 64 bytes, the first cap */
    assert_int_equal(b[1].spans, 2); /* 128 */
    assert_int_equal(b[2].spans, 1); /* 400 at once: never split */
    assert_int_equal(b[3].spans, 2); /* two of 4 bytes take a line each */
    assert_int_equal(b[4].spans, 1);
    assert_int_equal(total, 48 + 112 + 32 + 1008);
    assert_int_equal(offsets[0], total - 16); /* the first is at the end */
    assert_int_equal(offsets[3], total - 48 - 112);
    assert_int_equal(offsets[6], 0);
}

/* For random sizes, orders and caps: every span is in one bucket, ranges are contiguous, and caps are kept. */
static void every_span_has_its_place(void **state)
{
    (void)state;
    enum { N = 200 };
    size_t counts[N], offsets[N], total;
    uint32_t order[N];
    ls__bucket_plan b[N];
    srand(7);
    for (int trial = 0; trial < 300; trial++) {
        size_t n = (size_t)(rand() % N) + 1, cap = (size_t)(rand() % 100000), first = (size_t)(rand() % 10000);
        for (size_t i = 0; i < n; i++) counts[i] = (size_t)(rand() % 5000), order[i] = (uint32_t)i;
        for (size_t i = n - 1; i > 0; i--) {
            size_t k = (size_t)rand() % (i + 1);
            uint32_t t = order[i];
            order[i] = order[k], order[k] = t;
        }
        size_t buckets = ls__plan_buckets(counts, order, n, first, cap, offsets, b, &total), at, seen = 0;
        at = total;
        for (size_t i = 0; i < buckets; i++) {
            size_t limit = i ? cap : first;
            assert_int_equal(b[i].first, seen);
            assert_int_equal(b[i].begin + b[i].count, at);
            for (size_t k = 0; k < b[i].spans; k++) {
                /* before its last span a bucket was below its cap */
                if (k + 1 == b[i].spans && k) assert_true((at - offsets[order[seen - 1]]) * 4 < limit);
                assert_int_equal(offsets[order[seen]] % LS__SPAN_ALIGN, 0);
                assert_true(offsets[order[seen]] >= b[i].begin);
                assert_true(offsets[order[seen]] + counts[order[seen]] <= at);
                seen++;
            }
            if (i + 1 < buckets) assert_true(b[i].count * 4 >= limit);
            at -= b[i].count;
        }
        assert_int_equal(seen, n);
        assert_int_equal(at, 0);
    }
    assert_int_equal(ls__plan_buckets(counts, order, 0, 1, 1, offsets, b, &total), 0);
    assert_int_equal(total, 0);
}

static void every_rank_needs_a_slot(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 12; ranks++) check_ok(ls__slots_check(12, ranks));
    check_ok(ls__slots_check(5, 1));
    check_fails(ls__slots_check(12, 13), LS_EINVAL, "12 slots cannot be spread over 13 ranks: use at most 12 ranks");
    check_fails(ls__slots_check(1, 2), LS_EINVAL, "use at most 1 rank, or at least 2 slots");
    check_fails(ls__slots_check(0, 1), LS_EINVAL, "integer >= 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_closes_when_it_has_reached_its_cap),
        cmocka_unit_test(every_span_has_its_place),
        cmocka_unit_test(every_rank_needs_a_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
