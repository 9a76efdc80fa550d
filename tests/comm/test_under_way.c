/* Works under way: other calls in between, members that leave, and programs that test instead of waiting. Ranks are
 * threads, on one node or on several emulated ones. */
#include <unistd.h>
#include "nodes.h"

/* ---- A started send or receive with a blocking call in between is no deadlock. */

enum { MESSAGE = 3000000, TIMES = 20 };

/* What the two ranks do between the message's start and its end; which of them waits for it first. */
typedef struct between {
    bool sender_first; /* waits for the message, and only then makes the other call */
    int call;          /* 0: barrier; 1: allreduce; 2: a message the other way; 3: one the same way */
} between;

static ls_status other_call(ls_group *g, int call)
{
    int rank = ls_group_rank(g), other = 1 - rank;
    float x[64] = { 0 };
    switch (call) {
    case 0: return ls_barrier(g);
    case 1: return ls_allreduce(g, x, 64, LS_F32, LS_SUM);
    case 2: return rank ? ls_send(g, x, 64, LS_F32, other) : ls_recv(g, x, 64, LS_F32, other);
    default: return rank ? ls_recv(g, x, 64, LS_F32, other) : ls_send(g, x, 64, LS_F32, other);
    }
}

static int message_and_call(ls_world *world, void *arg, char *why)
{
    const between *b = arg;
    ls_group *g = ls_world_group(world);
    int rank = ls_group_rank(g);
    uint8_t *data = malloc(MESSAGE);
    need(data, "no memory");
    for (int i = 0; i < TIMES; i++) {
        ls_work *w;
        bool first = b->sender_first == (rank == 0);
        memset(data, rank ? 0 : i + 1, MESSAGE);
        if (rank == 0)
            need_ok(ls_send_start(g, data, MESSAGE, LS_U8, 1, &w));
        else
            need_ok(ls_recv_start(g, data, MESSAGE, LS_U8, 0, &w));
        if (first) need_ok(ls_work_wait(&w));
        need_ok(other_call(g, b->call));
        if (!first) need_ok(ls_work_wait(&w));
        need(data[0] == i + 1 && data[MESSAGE - 1] == i + 1, "message %d is wrong", i);
    }
    free(data);
    return 0;
}

static void a_call_while_a_message_is_under_way_is_no_deadlock(void **state)
{
    (void)state;
    for (int call = 0; call < 4; call++)
        for (int sender_first = 0; sender_first < 2; sender_first++)
            on_ranks(2, message_and_call, &(between){ .sender_first = sender_first, .call = call }, NULL);
}

/* The partner began its part of a message, not the call that is waited for: that is one. */
static int one_message_too_few(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    float x[8] = { 0 };
    ls_work *w = NULL;
    need_ok(ls_barrier(g));
    if (ls_group_rank(g) == 0)
        need_ok(ls_send_start(g, x, 8, LS_F32, 1, &w));
    else
        need_ok(ls_recv(g, x, 8, LS_F32, 0));
    int64_t begin = ls_now();
    ls_status status = ls_group_rank(g) == 0 ? ls_barrier(g) : ls_recv(g, x, 8, LS_F32, 0);
    need(status == LS_EMISMATCH && strstr(ls_error(), "each for the other") && strstr(ls_error(), "barrier #1"),
         "%s: %s", ls_status_name(status), ls_error());
    need(ls_now() - begin < 10000000000, "took %.3f s", (double)(ls_now() - begin) / 1e9);
    return 0;
}

static void a_deadlock_behind_a_message_is_named(void **state)
{
    (void)state;
    on_ranks(2, one_message_too_few, NULL, NULL);
}

/* Three ranks receive in a ring: no two of them are deadlocked, and the timeout names what was not called. */
static int receive_in_a_ring(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    int rank = ls_group_rank(g);
    float x;
    ls_status status = ls_recv(g, &x, 1, LS_F32, (rank + 1) % 3);
    need(status == LS_ETIMEOUT, "%s: %s", ls_status_name(status), ls_error());
    char expected[3][64];
    bool named = false;
    for (int r = 0; r < 3; r++) {
        snprintf(expected[r], sizeof expected[r], "rank %d did not call send to rank %d", (r + 1) % 3, r);
        named = named || strstr(ls_error(), expected[r]);
    }
    need(named, "message: %s", ls_error());
    return 0;
}

static void a_missing_send_is_named_as_such(void **state)
{
    (void)state;
    on_ranks(3, receive_in_a_ring, NULL, &(ls_world_options){ .timeout_ms = 1000 });
}

/* ---- Members that leave with a work under way. */

enum { COUNT = 400000, KINDS = 7 }; /* more than staging holds */

static ls_status start_kind(ls_group *g, int kind, float *send, float *recv, ls_work **w)
{
    int last = ls_group_size(g) - 1;
    switch (kind) {
    case 0: return ls_allreduce_start(g, send, COUNT, LS_F32, LS_SUM, w);
    case 1: return ls_reduce_start(g, send, COUNT, LS_F32, LS_SUM, 0, w);
    case 2: return ls_reduce_scatter_start(g, send, recv, COUNT, LS_F32, LS_SUM, w);
    case 3: return ls_allgather_start(g, send, recv, COUNT, LS_F32, w);
    case 4: return ls_broadcast_start(g, send, COUNT, LS_F32, last, w);
    case 5: return ls_gather_start(g, send, recv, COUNT, LS_F32, 0, w);
    default: return ls_alltoall_start(g, send, recv, COUNT, LS_F32, w);
    }
}

typedef struct leaving {
    int kind;
    bool tests;       /* the others test instead of waiting */
    _Atomic int over; /* others that are through */
} leaving;

static ls_status wait_or_test(ls_work **w, bool tests)
{
    if (!tests) return ls_work_wait(w);
    ls_status status;
    for (int64_t begin = ls_now(); (status = ls_work_test(w)) == LS_PENDING && ls_now() - begin < 20000000000;)
        usleep(200);
    return status;
}

static int leave_under_way(ls_world *world, void *arg, char *why)
{
    leaving *l = arg;
    ls_group *all = ls_world_group(world), *g;
    int rank = ls_group_rank(all), p = ls_group_size(all);
    float *send = calloc((size_t)p * COUNT, sizeof *send), *recv = calloc((size_t)p * COUNT, sizeof *recv);
    ls_work *w;
    need(send && recv, "no memory");
    need_ok(ls_group_split(all, 0, 0, &g));
    need_ok(ls_barrier(g));
    need_ok(start_kind(g, l->kind, send, recv, &w));
    if (rank < p - 1) {
        ls_status status = wait_or_test(&w, l->tests);
        atomic_fetch_add(&l->over, 1);
        need(status == LS_EPEER && strstr(ls_error(), "rank 2 left the group and will not complete its part of"),
             "kind %d, rank %d: %s: %s", l->kind, rank, ls_status_name(status), ls_error());
    }
    ls_group_free(&g);
    while (rank == p - 1 && atomic_load(&l->over) < p - 1)
        usleep(1000); /* it is the group that was left, not the world */
    free(send);
    free(recv);
    return 0;
}

static void who_leaves_a_work_under_way_is_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int tests = 0; tests < 2; tests++) {
            leaving l = { .kind = kind, .tests = tests };
            on_ranks(3, leave_under_way, &l, NULL);
        }
}

/* Who completed its part may leave: the others complete theirs. */
static int leave_when_done(ls_world *world, void *arg, char *why)
{
    leaving *l = arg;
    ls_group *all = ls_world_group(world), *g;
    int p = ls_group_size(all), rank = ls_group_rank(all);
    float *send = calloc((size_t)p * COUNT, sizeof *send), *recv = calloc((size_t)p * COUNT, sizeof *recv);
    need(send && recv, "no memory");
    for (int i = 0; i < 10; i++) {
        ls_work *w;
        need_ok(ls_group_split(all, 0, i, &g));
        need_ok(start_kind(g, l->kind, send, recv, &w));
        if (rank == i % p) usleep(3000); /* the others leave before it comes back */
        need_ok(wait_or_test(&w, l->tests));
        ls_group_free(&g);
    }
    free(send);
    free(recv);
    return 0;
}

static void who_leaves_after_its_part_is_not_missed(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int tests = 0; tests < 2; tests++) {
            leaving l = { .kind = kind, .tests = tests };
            on_ranks(3, leave_when_done, &l, NULL);
        }
}

/* ---- Testing. */

typedef struct absence {
    bool leaves; /* the last rank leaves; otherwise it is late */
    bool message;
    _Atomic int over;
} absence;

static int test_in_vain(ls_world *world, void *arg, char *why)
{
    absence *a = arg;
    ls_group *g = ls_world_group(world);
    int rank = ls_group_rank(g), last = ls_group_size(g) - 1;
    float x[8] = { 0 };
    need_ok(ls_barrier(g));
    if (rank == last) {
        while (!a->leaves && atomic_load(&a->over) < last) usleep(1000);
        return 0;
    }
    ls_work *w;
    int64_t begin = ls_now();
    if (a->message)
        need_ok(ls_recv_start(g, x, 8, LS_F32, last, &w));
    else
        need_ok(ls_allreduce_start(g, x, 8, LS_F32, LS_SUM, &w));
    ls_status status = wait_or_test(&w, true);
    int64_t took = ls_now() - begin;
    atomic_fetch_add(&a->over, 1);
    need(status == (a->leaves ? LS_EPEER : LS_ETIMEOUT) && !w, "rank %d: %s: %s", rank, ls_status_name(status),
         ls_error());
    need(a->leaves || took >= 800000000, "gave up after %.3f s", (double)took / 1e9);
    return 0;
}

static void a_test_finds_who_left_and_who_is_late(void **state)
{
    (void)state;
    for (int leaves = 0; leaves < 2; leaves++)
        for (int message = 0; message < 2; message++) {
            ls_world_options options = { .timeout_ms = leaves ? 60000 : 1000 };
            absence a = { .leaves = leaves, .message = message };
            on_ranks(2, test_in_vain, &a, &options);
            if (!message) on_ranks(3, test_in_vain, &(absence){ .leaves = leaves }, &options);
            on_nodes("01", test_in_vain, &(absence){ .leaves = leaves, .message = message }, options);
            if (!message) on_nodes("001", test_in_vain, &(absence){ .leaves = leaves }, options);
            if (!message) on_nodes("011", test_in_vain, &(absence){ .leaves = leaves }, options);
        }
}

/* Who tests for a message may still send the one that the other waits for. */
static int test_then_send(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    float x = 0, y = 1;
    if (ls_group_rank(g) == 1) {
        need_ok(ls_recv(g, &x, 1, LS_F32, 0));
        need_ok(ls_send(g, &x, 1, LS_F32, 0));
        return 0;
    }
    ls_work *w;
    need_ok(ls_recv_start(g, &x, 1, LS_F32, 1, &w));
    for (int64_t begin = ls_now(); ls_now() - begin < 400000000; usleep(200)) {
        ls_status status = ls_work_test(&w);
        need(status == LS_PENDING, "%s: %s", ls_status_name(status), ls_error());
    }
    need_ok(ls_send(g, &y, 1, LS_F32, 1));
    need_ok(ls_work_wait(&w));
    need(x == 1, "received %g", (double)x);
    return 0;
}

static void who_tests_is_crossed_with_nobody(void **state)
{
    (void)state;
    on_ranks(2, test_then_send, NULL, NULL);
    on_nodes("01", test_then_send, NULL, (ls_world_options){ 0 });
}

/* ---- A group on several nodes that breaks: the world is intact, and its processes end in order. */

static int break_a_group(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world), *g;
    int rank = ls_group_rank(all);
    float *x = calloc(COUNT, sizeof *x);
    need(x, "no memory");
    for (int i = 0; i < 3; i++) {
        ls_work *w;
        need_ok(ls_group_split(all, 0, 0, &g));
        if (i == 0 && rank == 0) ls_group_abort(g, "not this one");
        if (i == 0) need(ls_barrier(g) == LS_EABORTED, "abort: %s", ls_error());
        if (i == 1)
            need(ls_allreduce(g, x, (size_t)rank + 1, LS_F32, LS_SUM) == LS_EMISMATCH, "mismatch: %s", ls_error());
        if (i == 2) need_ok(ls_allreduce_start(g, x, COUNT, LS_F32, LS_SUM, &w)); /* and abandoned */
        ls_group_free(&g);
        need(!world->cluster->failed && !world->cluster->suspect, "case %d: the world counts as failed", i);
    }
    need_ok(ls_barrier(all));
    need(!world->cluster->failed, "the world counts as failed");
    free(x);
    return 0;
}

/* Who was not heard of may be no more, until it is heard again. */
static int lose_sight(ls_world *world, void *arg, char *why)
{
    _Atomic int *given_up = arg;
    ls_group *all = ls_world_group(world), *g;
    need_ok(ls_group_split(all, 0, 0, &g));
    if (ls_group_rank(all) == 0) {
        ls_status status = ls_barrier(g);
        atomic_store(given_up, 1);
        need(status == LS_ETIMEOUT && world->cluster->suspect, "%s: %s", ls_status_name(status), ls_error());
    }
    while (!atomic_load(given_up)) usleep(1000);
    ls_group_free(&g);
    need_ok(ls_barrier(all));
    need(!world->cluster->failed && !world->cluster->suspect, "the world counts as failed");
    return 0;
}

static void a_broken_group_leaves_the_world_whole(void **state)
{
    (void)state;
    on_nodes("01", break_a_group, NULL, (ls_world_options){ 0 });
    on_nodes("0011", break_a_group, NULL, (ls_world_options){ 0 });
    _Atomic int given_up = 0;
    on_nodes("01", lose_sight, &given_up, (ls_world_options){ .timeout_ms = 2000 });
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_while_a_message_is_under_way_is_no_deadlock),
        cmocka_unit_test(a_deadlock_behind_a_message_is_named),
        cmocka_unit_test(a_missing_send_is_named_as_such),
        cmocka_unit_test(who_leaves_a_work_under_way_is_named),
        cmocka_unit_test(who_leaves_after_its_part_is_not_missed),
        cmocka_unit_test(a_test_finds_who_left_and_who_is_late),
        cmocka_unit_test(who_tests_is_crossed_with_nobody),
        cmocka_unit_test(a_broken_group_leaves_the_world_whole),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
