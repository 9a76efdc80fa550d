/* Allocations of job memory that outlive their ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>
#include "comm/group.h"
#include "comm/heap.h"
#include "comm/kept.h"

enum { BYTES = 3 * 4096 };

typedef struct job {
    ls_world world; /* as much of one as these functions use */
    ls__kept *kept;
    int kept_fd;
} job;

static int make(void **state)
{
    static job j;
    memset(&j, 0, sizeof j);
    assert_int_equal(ls__job_create(2, 0, &j.world.job, &j.world.job_fd), LS_OK);
    assert_int_equal(ls__kept_create(&j.kept, &j.kept_fd), LS_OK);
    *state = &j;
    return 0;
}

static int end(void **state)
{
    job *j = *state;
    ls__job_detach(&j->world.job);
    ls__kept_detach(&j->kept);
    close(j->world.job_fd);
    close(j->kept_fd);
    return 0;
}

static char *take(job *j, int fill)
{
    void *p;
    assert_int_equal(ls_world_alloc(&j->world, BYTES - 100, &p), LS_OK);
    for (int i = 0; i < BYTES - 100; i++) assert_int_equal(((char *)p)[i], 0);
    memset(p, fill, BYTES - 100);
    return p;
}

static void renew(job *j)
{
    assert_int_equal(ls__job_renew(j->world.job, 2, 0), LS_OK);
    atomic_fetch_add(&j->kept->generation, 1);
    ls__kept_renew_held(j->kept, j->world.job);
}

static int held(const job *j)
{
    int n = 0;
    for (int i = 0; i < LS__KEPT_HELD; i++) n += atomic_load(&j->kept->held[i].offset) != 0;
    return n;
}

static void test_what_is_held_survives_a_renewed_job(void **state)
{
    job *j = *state;
    char *a = take(j, 1), *b = take(j, 2), *c = take(j, 3);
    assert_true(ls__kept_hold(j->kept, &j->world, c, 7));
    assert_true(ls__kept_hold(j->kept, &j->world, b, 7));
    renew(j);
    assert_int_equal(held(j), 2);
    assert_ptr_equal(take(j, 4), a); /* not held: allocated again, and empty */
    char *d = take(j, 5);
    assert_true(d >= c + BYTES);
    for (int i = 0; i < BYTES - 100; i++) {
        assert_int_equal(b[i], 2);
        assert_int_equal(c[i], 3);
    }
    assert_true(ls__kept_hold(j->kept, &j->world, d, 7));
    ls__kept_drop_held(j->kept, &j->world, false); /* those of the generation before */
    assert_int_equal(held(j), 1);
    assert_ptr_equal(take(j, 6), b);
    assert_int_equal(d[0], 5);
    renew(j);
    assert_int_equal(d[0], 5);
    ls__kept_drop_held(j->kept, &j->world, true); /* its pages stay; what is allocated there is empty all the same */
    for (int i = 0; i < 4; i++) take(j, i + 1);
}

static void test_what_was_let_go_is_not_held(void **state)
{
    job *j = *state;
    char *a = take(j, 1);
    assert_true(ls__kept_hold(j->kept, &j->world, a, 7));
    ls__kept_let_go(j->kept, &j->world, a + 5000);
    assert_int_equal(held(j), 0);
    renew(j);
    assert_ptr_equal(take(j, 2), a);
}

static void test_a_rank_that_was_killed_while_it_entered_something_holds_nothing(void **state)
{
    job *j = *state;
    atomic_store(&j->kept->held[3].offset, 1);
    renew(j);
    assert_int_equal(held(j), 0);
}

/* A rank that writes where it must not could leave anything. */
static void test_what_cannot_be_in_the_heap_is_not_held(void **state)
{
    job *j = *state;
    char *a = take(j, 1), *b = take(j, 2);
    const uint64_t wrong[][2] = { { 4096, 4096 },                                /* the header */
                                  { ls__world_offset(&j->world, b), 2 * BYTES }, /* overlaps */
                                  { ls__world_offset(&j->world, b) + 1, 4096 },  /* no page */
                                  { ls__world_offset(&j->world, b), 0 },         /* empty */
                                  { j->world.job->bytes, 4096 },                 /* after the end */
                                  { ls__world_offset(&j->world, b), UINT64_MAX - 4095 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(ls__kept_hold(j->kept, &j->world, a, 7));
        j->kept->held[1].bytes = wrong[i][1];
        atomic_store(&j->kept->held[1].offset, wrong[i][0]);
        if (i == 1) { /* with another one */
            j->kept->held[2].bytes = BYTES;
            atomic_store(&j->kept->held[2].offset, wrong[i][0] + BYTES);
        }
        renew(j);
        assert_int_equal(held(j), 0);
        a = take(j, 1);
        b = take(j, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_held_survives_a_renewed_job, make, end),
        cmocka_unit_test_setup_teardown(test_what_was_let_go_is_not_held, make, end),
        cmocka_unit_test_setup_teardown(test_a_rank_that_was_killed_while_it_entered_something_holds_nothing, make,
                                        end),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_in_the_heap_is_not_held, make, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
