/* Collectives among ranks that are threads: every call, type, reduction, memory and many sizes, against one process. */
#include <unistd.h>
#include "comm/traits.h"
#include "ranks.h"
#include "suite.h"

static int run_suite(ls_world *world, void *arg, char *why)
{
    return suite_run(world, arg, why);
}

static const size_t odd_sizes[] = { 0, 1, 2, 3, 7, 63, 129, 1023, 4099, SIZE_MAX };
static const size_t few_sizes[] = { 1, 1001, SIZE_MAX };
static const size_t large_sizes[] = { 300007, SIZE_MAX };

static void all_calls_types_and_reductions(void **state)
{
    (void)state;
    on_ranks(3, run_suite, &(suite_options){ .counts = odd_sizes }, NULL);
    on_ranks(2, run_suite, &(suite_options){ .counts = odd_sizes, .quick = 1 }, NULL);
    on_ranks(4, run_suite, &(suite_options){ .counts = odd_sizes, .quick = 1 }, NULL);
}

static void one_rank_is_a_group_too(void **state)
{
    (void)state;
    ls_world *world;
    char why[SUITE_WHY] = "";
    check_ok(ls_world_open(&world, NULL));
    assert_string_equal(ls_world_get_info(world).transport, "self");
    if (suite_run(world, &(suite_options){ .counts = odd_sizes }, why)) fail_msg("%s", why);
    ls_world_free(&world);
    assert_null(world);
    on_ranks(1, run_suite, &(suite_options){ .counts = odd_sizes }, NULL);
}

/* True is 1 with one rank as with several: with a world of one, and with a group of one in shared memory. */
static int true_is_one(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *alone;
    need_ok(ls_group_split(ls_world_group(world), ls_world_rank(world), 0, &alone));
    for (int i = 0; i < 2; i++) {
        uint8_t x[3] = { 0, 7, 255 }, y[3] = { 9, 9, 9 };
        ls_group *g = i ? alone : ls_world_group(world);
        if (ls_group_size(g) > 1) continue;
        need_ok(ls_allreduce(g, x, 3, LS_BOOL, LS_SUM));
        need(x[0] == 0 && x[1] == 1 && x[2] == 1, "allreduce: %d %d %d", x[0], x[1], x[2]);
        x[2] = 40;
        need_ok(ls_reduce_scatter(g, x, y, 3, LS_BOOL, LS_MAX));
        need(y[0] == 0 && y[1] == 1 && y[2] == 1 && x[2] == 40, "reduce_scatter: %d %d %d", y[0], y[1], y[2]);
    }
    ls_group_free(&alone);
    return 0;
}

static void true_is_one_on_one_rank(void **state)
{
    (void)state;
    ls_world *world;
    char why[SUITE_WHY] = "";
    check_ok(ls_world_open(&world, NULL));
    if (true_is_one(world, NULL, why)) fail_msg("%s", why);
    ls_world_free(&world);
    on_ranks(2, true_is_one, NULL, NULL);
}

/* A call may have ended before its caller began to wait: it then stood there for no time at all. */
static void no_call_takes_less_than_no_time(void **state)
{
    (void)state;
    ls_world *world;
    check_ok(ls_world_open(&world, NULL));
    int64_t before = ls__world_blocked_ns(world);
    ls_work w = { .group = ls_world_group(world), .ended = 1000 };
    ls__event_blocked(&w, 4000);
    assert_int_equal(ls__world_blocked_ns(world), before);
    ls__event_blocked(&w, 400);
    if (LS__CHECKED) assert_int_equal(ls__world_blocked_ns(world), before + 600);
    ls_world_free(&world);
}

static void more_ranks_than_cores(void **state)
{
    (void)state;
    on_ranks(7, run_suite, &(suite_options){ .counts = few_sizes, .quick = 1 }, NULL);
    on_ranks(16, run_suite, &(suite_options){ .counts = few_sizes, .quick = 1 }, NULL);
}

static void buffers_far_larger_than_the_staging(void **state)
{
    (void)state;
    on_ranks(2, run_suite, &(suite_options){ .counts = large_sizes, .quick = 1 },
             &(ls_world_options){ .staging_bytes = 1 });
    on_ranks(3, run_suite, &(suite_options){ .counts = large_sizes, .quick = 1 }, NULL);
}

/* ---- Split. */

static int split_and_reduce(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world), *sub, *none;
    int rank = ls_group_rank(all), p = ls_group_size(all);
    for (int round = 0; round < 5; round++) { /* memory of freed groups is used again */
        need_ok(ls_group_split(all, rank % 2, -rank, &sub));
        int members = rank % 2 ? p / 2 : (p + 1) / 2;
        need(ls_group_size(sub) == members, "size %d, expected %d", ls_group_size(sub), members);
        /* The key is minus the rank: the order is turned around. */
        int expected_rank = members - 1 - rank / 2;
        need(ls_group_rank(sub) == expected_rank, "rank %d, expected %d", ls_group_rank(sub), expected_rank);
        int64_t x = rank, sum = 0;
        need_ok(ls_allreduce(sub, &x, 1, LS_I64, LS_SUM));
        for (int r = rank % 2; r < p; r += 2) sum += r;
        need(x == sum, "sum %lld, expected %lld", (long long)x, (long long)sum);
        need_ok(ls_group_split(all, rank == 0 ? -1 : 3, 0, &none));
        need((none == NULL) == (rank == 0), "color -1 gave a group, or 3 gave none");
        if (none) need_ok(ls_barrier(none));
        ls_group_free(&none);
        ls_group_free(&sub);
        need(!sub, "free leaves the pointer");
    }
    return 0;
}

static void split_makes_groups_that_work(void **state)
{
    (void)state;
    for (int p = 2; p <= 6; p += 2) on_ranks(p, split_and_reduce, NULL, NULL);
}

/* ---- Arguments that cannot be right harm nothing. */

static int refuse_bad_arguments(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    float x[8] = { 0 };
    ls_work *work;
    need(ls_allreduce(g, NULL, 4, LS_F32, LS_SUM) == LS_EINVAL, "NULL buffer");
    need(strstr(ls_error(), "NULL"), "message: %s", ls_error());
    need(ls_allreduce(g, x, 4, (ls_dtype)77, LS_SUM) == LS_EINVAL, "type 77");
    need(ls_allreduce(g, x, 4, LS_F32, (ls_op)77) == LS_EINVAL, "reduction 77");
    need(ls_allreduce(g, x, SIZE_MAX / 2, LS_F32, LS_SUM) == LS_EINVAL, "size overflow");
    need(ls_allreduce(g, (char *)x + 1, 1, LS_F32, LS_SUM) == LS_EINVAL, "misaligned");
    need(ls_broadcast(g, x, 4, LS_F32, ls_group_size(g)) == LS_EINVAL, "root beyond the group");
    need(strstr(ls_error(), "unknown rank"), "message: %s", ls_error());
    need(ls_broadcast(g, x, 4, LS_F32, -1) == LS_EINVAL, "root -1");
    need(ls_send(g, x, 1, LS_F32, ls_group_rank(g)) == LS_EINVAL, "send to itself");
    need(ls_alltoall(g, x, x + 1, 1, LS_F32) == LS_EINVAL, "overlap");
    need(ls_allgather(g, x + (ls_group_rank(g) ^ 1), x, 1, LS_F32) == LS_EINVAL, "overlap of all-gather");
    need(ls_allreduce_start(g, NULL, 4, LS_F32, LS_SUM, &work) == LS_EINVAL && !work, "start leaves no work");
    need(ls_work_wait(&work) == LS_EINVAL, "wait for nothing");
    need(ls_work_wait(NULL) == LS_EINVAL && ls_work_test(NULL) == LS_EINVAL, "a work that is not there");
    need(ls_allreduce(NULL, x, 4, LS_F32, LS_SUM) == LS_EINVAL, "no group");
    need(strstr(ls_error(), "allreduce: the group is NULL"), "message: %s", ls_error());
    need(ls_barrier(NULL) == LS_EINVAL && ls_send(NULL, x, 1, LS_F32, 0) == LS_EINVAL,
         "no group, as split gives some ranks");
    need(ls_allreduce_start(g, x, 4, LS_F32, LS_SUM, NULL) == LS_EINVAL && strstr(ls_error(), "out is NULL"),
         "no place: %s", ls_error());
    need(ls_barrier_start(NULL, &work) == LS_EINVAL && !work, "start without a group");
    ls_group_abort(NULL, "nothing");
    x[0] = 1;
    need_ok(ls_allreduce(g, x, 1, LS_F32, LS_SUM)); /* and the group is whole */
    need(x[0] == (float)ls_group_size(g), "sum %g", (double)x[0]);
    return 0;
}

static void bad_arguments_are_refused_and_harm_nothing(void **state)
{
    (void)state;
    on_ranks(2, refuse_bad_arguments, NULL, NULL);
}

static int alloc_and_free(ls_world *world, void *arg, char *why)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        void *p[10];
        for (int k = 0; k < 10; k++) {
            size_t bytes = (size_t)(k * 5000 + i);
            need_ok(ls_world_alloc(world, bytes, &p[k]));
            need((uintptr_t)p[k] % 4096 == 0, "alignment of %p", p[k]);
            for (size_t b = 0; b < bytes; b += 997) need(((char *)p[k])[b] == 0, "memory is not zero");
            memset(p[k], 0xff, bytes);
        }
        for (int k = 9; k >= 0; k -= 2) ls_world_dealloc(world, &p[k]);
        for (int k = 0; k < 10; k++) ls_world_dealloc(world, &p[k]); /* half of them are NULL by now */
    }
    void *p;
    need(ls_world_alloc(world, (size_t)1 << 60, &p) == LS_ENOMEM && !p, "2^60 bytes");
    need(ls_world_alloc(world, SIZE_MAX, &p) == LS_EINVAL && !p, "SIZE_MAX bytes");
    return 0;
}

static void memory_comes_zeroed_and_goes(void **state)
{
    (void)state;
    ls_world *world;
    char why[RANKS_WHY] = "";
    on_ranks(4, alloc_and_free, NULL, NULL);
    check_ok(ls_world_open(&world, NULL));
    if (alloc_and_free(world, NULL, why)) fail_msg("%s", why);
    ls_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_calls_types_and_reductions),
        cmocka_unit_test(one_rank_is_a_group_too),
        cmocka_unit_test(true_is_one_on_one_rank),
        cmocka_unit_test(more_ranks_than_cores),
        cmocka_unit_test(buffers_far_larger_than_the_staging),
        cmocka_unit_test(split_makes_groups_that_work),
        cmocka_unit_test(bad_arguments_are_refused_and_harm_nothing),
        cmocka_unit_test(memory_comes_zeroed_and_goes),
        cmocka_unit_test(no_call_takes_less_than_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
