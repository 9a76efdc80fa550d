/* Failure is part of the interface: wrong calls, missing, dead and stopped ranks, aborts. Each is an error on every
 * rank, with the names in it, and none hangs. Ranks are threads; deaths and stops of real processes are in tests/cli.
 */
#include <unistd.h>
#include "comm/parallel_for.h"
#include "ranks.h"

/* ---- Calls that do not fit together. */

typedef struct one_call {
    ls_collective_kind kind;
    ls_dtype type;
    ls_op op;
    size_t count;
    int root;
} one_call;

static ls_status make_call(ls_group *g, const one_call *c)
{
    static _Thread_local double a[4096], b[4096];
    switch (c->kind) {
    case LS_COLLECTIVE_ALLREDUCE: return ls_allreduce(g, a, c->count, c->type, c->op);
    case LS_COLLECTIVE_REDUCE: return ls_reduce(g, a, c->count, c->type, c->op, c->root);
    case LS_COLLECTIVE_REDUCE_SCATTER: return ls_reduce_scatter(g, a, b, c->count, c->type, c->op);
    case LS_COLLECTIVE_ALLGATHER: return ls_allgather(g, a, b, c->count, c->type);
    case LS_COLLECTIVE_BROADCAST: return ls_broadcast(g, a, c->count, c->type, c->root);
    case LS_COLLECTIVE_GATHER: return ls_gather(g, a, b, c->count, c->type, c->root);
    case LS_COLLECTIVE_SCATTER: return ls_scatter(g, a, b, c->count, c->type, c->root);
    case LS_COLLECTIVE_ALLTOALL: return ls_alltoall(g, a, b, c->count, c->type);
    case LS_COLLECTIVE_BARRIER: return ls_barrier(g);
    case LS_COLLECTIVE_SEND: return ls_send(g, a, c->count, c->type, c->root);
    case LS_COLLECTIVE_RECEIVE: return ls_recv(g, a, c->count, c->type, c->root);
    case LS_COLLECTIVE_PARALLEL_FOR: break;
    }
    return LS_EINVAL;
}

typedef struct mismatch {
    one_call usual, odd; /* the odd one is made by rank `who` */
    int who, before;     /* calls made before, so that numbers are not all 0 */
} mismatch;

static int clash(ls_world *world, void *arg, char *why)
{
    const mismatch *m = arg;
    ls_group *g = ls_world_group(world);
    int rank = ls_group_rank(g);
    for (int i = 0; i < m->before; i++) need_ok(ls_barrier(g));
    const one_call *mine = rank == m->who ? &m->odd : &m->usual;
    ls_status status = make_call(g, mine);
    char usual[160], odd[160];
    ls__describe(ls__work_fingerprint(&(ls_work){ .kind = m->usual.kind }), 0, 0, usual, sizeof usual);
    ls__describe(ls__work_fingerprint(&(ls_work){ .kind = m->odd.kind }), 0, 0, odd, sizeof odd);
    usual[strcspn(usual, " ")] = odd[strcspn(odd, " ")] = 0; /* the names alone */
    char culprit[32];
    snprintf(culprit, sizeof culprit, "rank %d", m->who);
    need(status == LS_EMISMATCH, "rank %d: %s against %s gave %s: %s", rank, usual, odd, ls_status_name(status),
         ls_error());
    need(strstr(ls_error(), usual) && strstr(ls_error(), odd) && strstr(ls_error(), culprit),
         "rank %d: message '%s' lacks '%s', '%s' or '%s'", rank, ls_error(), usual, odd, culprit);
    /* The group is broken for good, with the same words. */
    char text[LS__FAILURE_BYTES];
    snprintf(text, sizeof text, "%s", ls_error());
    status = ls_barrier(g);
    need(status == LS_EMISMATCH && !strcmp(text, ls_error()), "rank %d: later call: %s: %s", rank,
         ls_status_name(status), ls_error());
    return 0;
}

static const one_call calls[] = {
    { LS_COLLECTIVE_ALLREDUCE, LS_F32, LS_SUM, 10, 0 },      { LS_COLLECTIVE_ALLREDUCE, LS_F32, LS_SUM, 2000, 0 },
    { LS_COLLECTIVE_ALLREDUCE, LS_F32, LS_MAX, 10, 0 },      { LS_COLLECTIVE_ALLREDUCE, LS_F64, LS_SUM, 10, 0 },
    { LS_COLLECTIVE_REDUCE, LS_F32, LS_SUM, 10, 0 },         { LS_COLLECTIVE_REDUCE, LS_F32, LS_SUM, 10, 1 },
    { LS_COLLECTIVE_REDUCE_SCATTER, LS_F32, LS_SUM, 10, 0 }, { LS_COLLECTIVE_REDUCE_SCATTER, LS_I32, LS_SUM, 600, 0 },
    { LS_COLLECTIVE_ALLGATHER, LS_F32, LS_SUM, 10, 0 },      { LS_COLLECTIVE_ALLGATHER, LS_F32, LS_SUM, 900, 0 },
    { LS_COLLECTIVE_BROADCAST, LS_F32, LS_SUM, 10, 0 },      { LS_COLLECTIVE_BROADCAST, LS_F32, LS_SUM, 10, 1 },
    { LS_COLLECTIVE_GATHER, LS_U8, LS_SUM, 10, 0 },          { LS_COLLECTIVE_SCATTER, LS_U8, LS_SUM, 10, 0 },
    { LS_COLLECTIVE_ALLTOALL, LS_BF16, LS_SUM, 10, 0 },      { LS_COLLECTIVE_BARRIER, LS_U8, LS_SUM, 0, 0 },
};
enum { KINDS = sizeof calls / sizeof *calls };

/* What a function of the library calls for itself is named after that function. */
static int split_beside_a_barrier(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world), *sub = NULL;
    ls_status status = ls_world_rank(world) ? ls_group_split(g, 0, 0, &sub) : ls_barrier(g);
    need(status == LS_EMISMATCH && strstr(ls_error(), "runs allgather #0 (4 of int32) of ls_group_split()") &&
             strstr(ls_error(), "runs barrier #0"),
         "%s: %s", ls_status_name(status), ls_error());
    return 0;
}

static void a_split_is_named_and_not_only_its_collective(void **state)
{
    (void)state;
    on_ranks(2, split_beside_a_barrier, NULL, NULL);
}

static void a_hundred_mismatches_are_all_named(void **state)
{
    (void)state;
    int tried = 0;
    for (int i = 0; i < KINDS; i++)
        for (int k = 0; k < KINDS; k++) {
            if (i == k || (tried > 100 && (i + k) % 3)) continue;
            mismatch m = { calls[i], calls[k], .who = (i + k) % 3, .before = i % 3 };
            on_ranks(3, clash, &m, NULL);
            tried++;
        }
    assert_true(tried >= 100);
}

/* Sends and receives carry no number; that two ranks wait for each other is noticed after a moment. */
static void deadlocked_sends_and_receives_are_named(void **state)
{
    (void)state;
    static const one_call barrier = { LS_COLLECTIVE_BARRIER, LS_U8, LS_SUM, 0, 0 };
    static const one_call reduce = { LS_COLLECTIVE_ALLREDUCE, LS_F32, LS_SUM, 3000, 0 };
    static const one_call receive0 = { LS_COLLECTIVE_RECEIVE, LS_F32, LS_SUM, 10, 0 };
    static const one_call receive1 = { LS_COLLECTIVE_RECEIVE, LS_F32, LS_SUM, 10, 1 };
    on_ranks(2, clash, &(mismatch){ barrier, receive0, .who = 1 }, NULL);
    on_ranks(2, clash, &(mismatch){ reduce, receive1, .who = 0, .before = 2 }, NULL);
    on_ranks(2, clash, &(mismatch){ receive1, receive0, .who = 1 }, NULL);
}

static int send_wrong_length(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    float x[32] = { 0 };
    if (ls_group_rank(g) == 0) {
        need_ok(ls_send(g, x, 10, LS_F32, 1)); /* under way at once; the error comes with the next call */
        ls_status status = ls_barrier(g);
        need(status == LS_EMISMATCH, "sender: %s: %s", ls_status_name(status), ls_error());
    } else {
        ls_status status = ls_recv(g, x, 11, LS_F32, 0);
        need(status == LS_EMISMATCH, "receiver: %s: %s", ls_status_name(status), ls_error());
    }
    need(strstr(ls_error(), "rank 1 receives 11 of float32 from rank 0, which sends 10 of float32"), "message: %s",
         ls_error());
    return 0;
}

static void a_message_of_the_wrong_length_is_named(void **state)
{
    (void)state;
    on_ranks(2, send_wrong_length, NULL, NULL);
}

/* ---- Ranks that do not come. */

static int miss_one(ls_world *world, void *arg, char *why)
{
    _Atomic int *others = arg;
    ls_group *g = ls_world_group(world);
    float x = 1;
    need_ok(ls_barrier(g));
    need_ok(ls_allreduce(g, &x, 1, LS_F32, LS_SUM));
    if (ls_group_rank(g) == 2) { /* alive, but elsewhere, until the others have given up */
        while (atomic_load(others) < 2) usleep(1000);
        return 0;
    }
    int64_t begin = ls_now();
    ls_status status = ls_broadcast(g, &x, 1, LS_F32, 0);
    int64_t took = ls_now() - begin;
    atomic_fetch_add(others, 1);
    need(status == LS_ETIMEOUT, "%s: %s", ls_status_name(status), ls_error());
    need(took >= 800000000, "gave up after %.3f s", (double)took / 1e9);
    need(strstr(ls_error(), "rank 2 did not call broadcast #2") && strstr(ls_error(), "last completed allreduce #1"),
         "message: %s", ls_error());
    return 0;
}

static void a_missing_rank_is_named_with_what_it_did_last(void **state)
{
    (void)state;
    _Atomic int others = 0;
    on_ranks(3, miss_one, &others, &(ls_world_options){ .timeout_ms = 1000 });
}

static int leave_early(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    need_ok(ls_barrier(g));
    if (ls_group_rank(g) == 1) return 0;
    ls_status status = ls_barrier(g);
    need(status == LS_EPEER, "%s: %s", ls_status_name(status), ls_error());
    need(strstr(ls_error(), "rank 1 exited with code 0 and will not call barrier #1"), "message: %s", ls_error());
    return 0;
}

static void a_rank_that_left_is_named(void **state)
{
    (void)state;
    on_ranks(3, leave_early, NULL, NULL);
}

static int die(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    need_ok(ls_barrier(g));
    if (ls_group_rank(g) == 1) { /* what the launcher does when it sees a process die */
        usleep(20000);
        ls__job_set_state(world->job, 1, LS__RANK_KILLED, 9);
        ls__job_fail(world->job, LS_EPEER, 1, "rank 1 (pid 77) was killed by signal 9 (Killed)");
        return 0;
    }
    int64_t begin = ls_now();
    ls_status status = ls_barrier(g);
    need(status == LS_EPEER && strstr(ls_error(), "rank 1 ") && strstr(ls_error(), "killed by signal 9"), "%s: %s",
         ls_status_name(status), ls_error());
    need(ls_now() - begin < 20000000000, "took %.3f s", (double)(ls_now() - begin) / 1e9);
    ls_group *sub;
    need(ls_group_split(g, 0, 0, &sub) == LS_EPEER && !sub, "split of a broken group");
    return 0;
}

static void a_death_wakes_everyone(void **state)
{
    (void)state;
    on_ranks(4, die, NULL, NULL);
}

static char stop_warning[256];

/* Only one of the two ranks waits, so only one thread calls this. */
static void keep_warning(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level == LS_LOG_WARNING) snprintf(stop_warning, sizeof stop_warning, "%s", text);
}

static int stop_and_go_on(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    need_ok(ls_barrier(g));
    if (ls_group_rank(g) == 1) {
        ls__job_set_state(world->job, 1, LS__RANK_STOPPED, 19);
        usleep(150000);
        ls__job_set_state(world->job, 1, LS__RANK_RUNNING, 0);
    }
    float x = 1;
    need_ok(ls_allreduce(g, &x, 1, LS_F32, LS_SUM));
    need(x == 2, "sum %g", (double)x);
    return 0;
}

static void a_stop_is_logged_and_forgiven(void **state)
{
    (void)state;
    stop_warning[0] = 0;
    ls_log_set(keep_warning, NULL);
    on_ranks(2, stop_and_go_on, NULL, NULL);
    ls_log_set(NULL, NULL);
    if (!strstr(stop_warning, "rank 1 is stopped by SIGSTOP")) fail_msg("warning: '%s'", stop_warning);
}

static int stay_stopped(ls_world *world, void *arg, char *why)
{
    _Atomic int *given_up = arg;
    ls_group *g = ls_world_group(world);
    need_ok(ls_barrier(g));
    if (ls_group_rank(g) == 1) {
        ls__job_set_state(world->job, 1, LS__RANK_STOPPED, 19);
        while (!atomic_load(given_up)) usleep(1000);
        return 0;
    }
    ls_status status = ls_barrier(g);
    atomic_store(given_up, 1);
    need(status == LS_ETIMEOUT && strstr(ls_error(), "rank 1 did not call") && strstr(ls_error(), "stopped by SIGSTOP"),
         "%s: %s", ls_status_name(status), ls_error());
    return 0;
}

static void a_stop_that_lasts_ends_in_the_timeout(void **state)
{
    (void)state;
    _Atomic int given_up = 0;
    on_ranks(2, stay_stopped, &given_up, &(ls_world_options){ .timeout_ms = 1000 });
}

/* ---- Abort. */

static void *abort_later(void *arg)
{
    usleep(30000);
    ls_group_abort(arg, "the disk is on fire");
    return NULL;
}

static int abort_from_a_thread(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    pthread_t helper;
    int rank = ls_group_rank(g);
    float x = 1;
    ls_work *work = NULL;
    need_ok(ls_barrier(g));
    if (rank == 0) need_ok(ls__thread_start(&helper, "abort", abort_later, g));
    if (rank == 2) { /* has a work under way and never waits with the others */
        need_ok(ls_allreduce_start(g, &x, 1, LS_F32, LS_SUM, &work));
        ls_status status;
        while ((status = ls_work_test(&work)) == LS_PENDING) usleep(1000);
        need(status == LS_EABORTED && !work, "test: %s: %s", ls_status_name(status), ls_error());
    } else {
        ls_status status = rank == 0 ? ls_recv(g, &x, 1, LS_F32, 1) : ls_recv(g, &x, 1, LS_F32, 2);
        need(status == LS_EABORTED, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    }
    need(strstr(ls_error(), "rank 0 aborted the group: the disk is on fire"), "message: %s", ls_error());
    if (rank == 0) pthread_join(helper, NULL);
    return 0;
}

static void abort_wakes_everyone_with_the_reason(void **state)
{
    (void)state;
    on_ranks(3, abort_from_a_thread, NULL, NULL);
}

/* A rank died while it wrote the group's failure, which is then never complete. */
static int fail_behind_a_dead_writer(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world);
    float x = 1;
    need_ok(ls_barrier(all));
    atomic_store(&all->failure->set, 1);
    need_ok(ls_barrier(all));
    ls_status status = ls_broadcast(all, &x, 1, LS_F32, ls_world_rank(world));
    need(status == LS_EMISMATCH && strstr(ls_error(), "both must make the same calls"), "%s: %s",
         ls_status_name(status), ls_error());
    status = ls_barrier(all);
    need(status == LS_EMISMATCH, "the next call: %s: %s", ls_status_name(status), ls_error());
    return 0;
}

static void a_rank_that_died_while_it_failed_blocks_nobody(void **state)
{
    (void)state;
    on_ranks(2, fail_behind_a_dead_writer, NULL, NULL);
}

static void abort_of_a_world_of_one(void **state)
{
    (void)state;
    ls_world *world;
    float x = 1;
    check_ok(ls_world_open(&world, NULL));
    ls_group_abort(ls_world_group(world), NULL);
    check_fails(ls_allreduce(ls_world_group(world), &x, 1, LS_F32, LS_SUM), LS_EABORTED, "no reason given");
    ls_world_free(&world);
}

/* ---- An abort that comes after a collective was complete, but before a rank noticed that: the collective still succeeds there. Rank 1
 * makes its call and aborts while rank 0 is between a look at the collective and a look for failures: that is where works of other
 * groups make progress, here a parallel_for whose chunk waits for rank 1. */

typedef struct late_abort {
    uint32_t spins; /* of rank 0 before its wait: when it looks for failures depends on them */
    bool tests;     /* rank 0 tests instead of waiting */
    size_t count;   /* elements of the all-reduce; large ones are not eager messages */
    _Atomic int turn;
} late_abort;
enum { STARTED = 1, LOOKED = 2, ABORTED = 3 };

static void wait_for_turn(late_abort *a, int turn)
{
    while (atomic_load(&a->turn) != turn) usleep(20);
}

static void let_the_other_abort(void *user, const void *const *data, size_t begin, size_t end)
{
    (void)data, (void)begin, (void)end;
    atomic_store(&((late_abort *)user)->turn, LOOKED);
    wait_for_turn(user, ABORTED);
}

static int abort_after_the_last_part(ls_world *world, void *arg, char *why)
{
    late_abort *a = arg;
    ls_group *all = ls_world_group(world), *g;
    ls_work *w, *loop;
    void *memory;
    int rank = ls_group_rank(all);
    need_ok(ls_world_alloc(world, a->count * sizeof(float), &memory));
    float *x = memory;
    for (size_t i = 0; i < a->count; i++) x[i] = (float)(rank + 1);
    need_ok(ls_group_split(all, 0, 0, &g));
    need_ok(ls__parallel_for_start(all, NULL, 1, LS_U8, 1, let_the_other_abort, a, &loop));
    if (rank == 1) {
        atomic_store(&a->turn, STARTED);
        wait_for_turn(a, LOOKED);
        need_ok(ls_allreduce(g, x, a->count, LS_F32, LS_SUM));
        ls_group_abort(g, "too late");
        atomic_store(&a->turn, ABORTED);
    } else {
        wait_for_turn(a, STARTED);
        need_ok(ls_allreduce_start(g, x, a->count, LS_F32, LS_SUM, &w));
        w->wait.spins = a->spins;
        ls_status status = a->tests ? ls_work_test(&w) : ls_work_wait(&w);
        need(status == LS_OK, "%s of %zu elements after %u spins: %s: %s", a->tests ? "a test" : "a wait", a->count,
             a->spins, ls_status_name(status), ls_error());
    }
    need(x[0] == 3 && x[a->count - 1] == 3, "rank %d: %g", rank, (double)x[0]);
    need(ls_barrier(g) == LS_EABORTED, "the abort is lost: %s", ls_error());
    need_ok(ls_work_wait(&loop));
    ls_group_free(&g);
    return 0;
}

static void an_abort_does_not_undo_what_was_complete(void **state)
{
    (void)state;
    for (uint32_t spins = 0; spins <= 64; spins++)
        for (int kind = 0; kind < 3; kind++) {
            late_abort a = { .spins = spins == 64 ? 1000000 : spins,
                             .tests = kind == 1,
                             .count = kind == 2 ? 9000 : 5 };
            if (kind == 1 && spins) continue;
            on_ranks(2, abort_after_the_last_part, &a, NULL);
        }
}

/* ---- Job memory of another version. */

static void job_memory_of_another_layout_is_refused(void **state)
{
    (void)state;
    ls__job *job, *again;
    int fd;
    check_ok(ls__job_create(2, 0, &job, &fd));
    check_ok(ls__job_attach(fd, &again));
    ls__job_detach(&again);
    job->header_bytes += 64;
    check_fails(ls__job_attach(fd, &again), LS_EINVAL, "made by another version of lockstep");
    job->header_bytes -= 64;
    job->magic[14]--;
    check_fails(ls__job_attach(fd, &again), LS_EINVAL, "made by another version of lockstep");
    ls__job_detach(&job);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_mismatches_are_all_named),
        cmocka_unit_test(a_split_is_named_and_not_only_its_collective),
        cmocka_unit_test(deadlocked_sends_and_receives_are_named),
        cmocka_unit_test(a_message_of_the_wrong_length_is_named),
        cmocka_unit_test(a_missing_rank_is_named_with_what_it_did_last),
        cmocka_unit_test(a_rank_that_left_is_named),
        cmocka_unit_test(a_death_wakes_everyone),
        cmocka_unit_test(a_stop_is_logged_and_forgiven),
        cmocka_unit_test(a_stop_that_lasts_ends_in_the_timeout),
        cmocka_unit_test(abort_wakes_everyone_with_the_reason),
        cmocka_unit_test(a_rank_that_died_while_it_failed_blocks_nobody),
        cmocka_unit_test(abort_of_a_world_of_one),
        cmocka_unit_test(an_abort_does_not_undo_what_was_complete),
        cmocka_unit_test(job_memory_of_another_layout_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
