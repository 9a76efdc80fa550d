/* The event ring: order, loss that is counted, and writers that race with a reader. */
#include "check.h"
#include "record/ring.h"
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
    ls_event got[20];
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
    ls_event got[40];
    uint64_t position = 0, missed = 0;
    for (uint64_t i = 0; i < 40; i++) ls__ring_add(ring, LS_EVENT_STEP, i, 0);
    assert_int_equal(ls__ring_read(ring, &position, got, 40, &missed), 16);
    assert_int_equal(missed, 24);
    assert_int_equal(got[0].a, 24);
    assert_int_equal(got[15].a, 39);
    free(ring);
}

static uint32_t number_in(ls__ring *ring)
{
    uint64_t position = ls__ring_head(ring), missed = 0;
    ls_event got;
    ls__ring_add(ring, LS_EVENT_STEP, 0, 0);
    assert_int_equal(ls__ring_read(ring, &position, &got, 1, &missed), 1);
    return got.thread;
}

typedef struct two_rings {
    ls__ring *ring[2];
    uint32_t number[2];
} two_rings;

static void *write_by_turns(void *arg)
{
    two_rings *t = arg;
    for (int i = 0; i < 2; i++) t->number[i] = number_in(t->ring[i]);
    for (int i = 0; i < 10; i++) assert_int_equal(number_in(t->ring[i % 2]), t->number[i % 2]);
    return NULL;
}

/* As with two records in one process. */
static void a_thread_has_one_number_in_each_ring(void **state)
{
    (void)state;
    two_rings here = { .ring = { new_ring(16), new_ring(16) } }, there = here;
    pthread_t thread;
    for (int i = 0; i < 10; i++) assert_int_equal(number_in(here.ring[i % 2]), 0);
    check_ok(ls__thread_start(&thread, "by-turns", write_by_turns, &there));
    pthread_join(thread, NULL);
    assert_int_equal(there.number[0], 1);
    assert_int_equal(there.number[1], 1);
    for (int i = 0; i < 10; i++) assert_int_equal(number_in(here.ring[i % 2]), 0);
    free(here.ring[0]);
    free(here.ring[1]);
}

static void *write_here(void *arg)
{
    two_rings *t = arg;
    t->number[0] = number_in(t->ring[0]);
    return NULL;
}

/* A ring at the address of an earlier one is a new one: no two threads have one number in it. */
static void a_ring_in_the_place_of_another_counts_anew(void **state)
{
    (void)state;
    pthread_t thread;
    two_rings t = { .ring = { new_ring(16) } };
    size_t bytes = ls__ring_bytes(16);
    check_ok(ls__thread_start(&thread, "first", write_here, &t));
    pthread_join(thread, NULL);
    assert_int_equal(number_in(t.ring[0]), 1);
    memset(t.ring[0], 0, bytes);
    t.ring[0] = ls__ring_init(t.ring[0], 16);
    assert_int_equal(number_in(t.ring[0]), 0);
    check_ok(ls__thread_start(&thread, "second", write_here, &t));
    pthread_join(thread, NULL);
    assert_int_equal(t.number[0], 1);
    free(t.ring[0]);
}

/* More threads than a ring remembers, one after another: each still has a number of its own. */
static void many_threads_have_different_numbers(void **state)
{
    (void)state;
    two_rings t = { .ring = { new_ring(16) } };
    for (uint32_t i = 0; i < 100; i++) {
        pthread_t thread;
        check_ok(ls__thread_start(&thread, "one-of-many", write_here, &t));
        pthread_join(thread, NULL);
        assert_int_equal(t.number[0], i);
    }
    free(t.ring[0]);
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
    ls_event got[256];
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
        cmocka_unit_test(a_thread_has_one_number_in_each_ring),
        cmocka_unit_test(a_ring_in_the_place_of_another_counts_anew),
        cmocka_unit_test(many_threads_have_different_numbers),
        cmocka_unit_test(racing_writers_lose_nothing_uncounted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
