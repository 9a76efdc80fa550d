/* The event ring: order, loss that is counted, and writers that race with a reader. */
#include "check.h"
#include "base/ring.h"
#include "base/thread.h"

static ls__ring *new_ring(size_t capacity)
{
    void *memory = aligned_alloc(64, (ls__ring_bytes(capacity) + 63) / 64 * 64);
    memset(memory, 0, ls__ring_bytes(capacity));
    return ls__ring_init(memory, capacity);
}

static void events_come_back_in_order(void **state)
{
    (void)state;
    ls__ring *ring = new_ring(16);
    ls__event got[20];
    uint64_t position = 0, missed = 0;
    assert_int_equal(ls__ring_read(ring, &position, got, 20, &missed), 0);
    for (uint64_t i = 0; i < 10; i++) ls__ring_add(ring, LS_EVENT_STEP, i, 100 + i);
    assert_int_equal(ls__ring_read(ring, &position, got, 4, &missed), 4);
    assert_int_equal(ls__ring_read(ring, &position, got + 4, 16, &missed), 6);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(got[i].kind, LS_EVENT_STEP);
        assert_int_equal(got[i].a, i);
        assert_int_equal(got[i].b, 100 + i);
        assert_int_equal(got[i].thread, 0);
        if (i) assert_true(got[i].time >= got[i - 1].time);
    }
    assert_int_equal(missed, 0);
    ls__ring_add(NULL, LS_EVENT_STEP, 0, 0); /* no ring, no harm */
    free(ring);
}

static void what_was_overwritten_is_counted(void **state)
{
    (void)state;
    ls__ring *ring = new_ring(16);
    ls__event got[40];
    uint64_t position = 0, missed = 0;
    for (uint64_t i = 0; i < 40; i++) ls__ring_add(ring, LS_EVENT_STEP, i, 0);
    assert_int_equal(ls__ring_read(ring, &position, got, 40, &missed), 16);
    assert_int_equal(missed, 24);
    assert_int_equal(got[0].a, 24);
    assert_int_equal(got[15].a, 39);
    free(ring);
}

enum { WRITERS = 4, EACH = 20000 };
static _Atomic int writing;

static void *write_many(void *arg)
{
    for (uint64_t i = 0; i < EACH; i++) ls__ring_add(arg, LS_EVENT_PHASE_BEGIN, i, ~i);
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

/* Every event that is read is whole (b is the complement of a), each thread's are in order, and those read and those
 * missed add up to those written. */
static void racing_writers_lose_nothing_uncounted(void **state)
{
    (void)state;
    ls__ring *ring = new_ring(1024);
    pthread_t threads[WRITERS];
    atomic_store(&writing, WRITERS);
    for (int i = 0; i < WRITERS; i++) check_ok(ls__thread_start(&threads[i], "writer", write_many, ring));
    ls__event got[256];
    uint64_t position = 0, missed = 0, seen = 0, last[WRITERS] = { 0 };
    for (int more = 1; more;) {
        more = atomic_load(&writing) > 0;
        size_t n;
        while ((n = ls__ring_read(ring, &position, got, 256, &missed))) {
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(got[i].b, ~got[i].a);
                assert_in_range(got[i].thread, 0, WRITERS - 1);
                assert_true(got[i].a + 1 > last[got[i].thread]);
                last[got[i].thread] = got[i].a + 1;
            }
            seen += n;
        }
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(seen + missed, WRITERS * EACH);
    free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_back_in_order),
        cmocka_unit_test(what_was_overwritten_is_counted),
        cmocka_unit_test(racing_writers_lose_nothing_uncounted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
