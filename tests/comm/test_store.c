/* Worlds and groups whose members find each other through a store of the caller's. Ranks are processes; the store is a folder of files. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"
#include "comm/group.h"
#include "folder.h"
#include "lockstep/comm.h"
#include "lockstep/data.h"
#include "comm/cluster.h"

enum { RANKS = 3 };

static int stores; /* that were used: each test has its own */

static void path_of(const char *key, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "%d-", stores);
    for (const char *k = key; *k && (size_t)n + 2 < bytes; k++) out[n++] = *k == '/' ? '-' : *k;
    out[n] = 0;
}

static ls_status set(void *user, const char *key, const void *value, size_t bytes)
{
    char path[512], temporary[600];
    (void)user;
    path_of(key, path, sizeof path);
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    FILE *f = fopen(temporary, "w");
    if (!f || fwrite(value, 1, bytes, f) != bytes || fclose(f) || rename(temporary, path)) return LS_EIO;
    return LS_OK;
}

static ls_status get(void *user, const char *key, void *value, size_t bytes, int timeout_ms)
{
    char path[512];
    int64_t deadline = ls_now() + (int64_t)timeout_ms * 1000000;
    (void)user;
    path_of(key, path, sizeof path);
    for (;;) {
        FILE *f = fopen(path, "r");
        if (f) {
            size_t n = fread(value, 1, bytes, f);
            fclose(f);
            return n == bytes ? LS_OK : LS_EFORMAT;
        }
        if (timeout_ms >= 0 && ls_now() > deadline) return LS_ETIMEOUT;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
}

static ls_status fail_to_get(void *user, const char *key, void *value, size_t bytes, int timeout_ms)
{
    (void)user, (void)key, (void)value, (void)bytes, (void)timeout_ms;
    return LS_EIO;
}

static ls_status fail_to_set(void *user, const char *key, const void *value, size_t bytes)
{
    (void)user, (void)key, (void)value, (void)bytes;
    return ls_error_set(LS_EIO, "my store is down");
}

static ls_status fail_with_text(void *user, const char *key, void *value, size_t bytes, int timeout_ms)
{
    (void)user, (void)key, (void)value, (void)bytes, (void)timeout_ms;
    return ls_error_set(LS_EIO, "my store is down");
}

static const ls_store store = { .set = set, .get = get };

#define NEED(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: not %s; error: %s\n", __LINE__, #condition, ls_error()); \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

/* Runs `run` in a process for each of `ranks` ranks. Returns the sum of their exit codes, but for one that was killed. */
static int on_processes(int ranks, int (*run)(int rank))
{
    pid_t pids[8];
    int sum = 0;
    stores++;
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (!pids[r]) {
            alarm(50);
            _exit(run(r));
        }
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        if (WIFEXITED(status)) sum += WEXITSTATUS(status);
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) sum += 100;
    }
    return sum;
}

/* ---- Worlds and groups. */

static int work_together(int rank)
{
    ls_world *world;
    NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = RANKS }));
    NEED(ls_world_rank(world) == rank && ls_world_size(world) == RANKS && ls_world_get_info(world).nodes == 1);
    NEED(!strcmp(ls_world_get_info(world).transport, "shm"));
    enum { N = 100000 };
    float *own = malloc(N * sizeof *own), *shared;
    void *memory;
    NEED(own && !ls_world_alloc(world, N * sizeof *own, &memory));
    shared = memory;
    for (int i = 0; i < N; i++) own[i] = shared[i] = (float)(rank + i % 7);
    NEED(!ls_allreduce(ls_world_group(world), own, N, LS_F32, LS_SUM));
    NEED(!ls_allreduce(ls_world_group(world), shared, N, LS_F32, LS_SUM));
    for (int i = 0; i < N; i++) NEED(own[i] == (float)(3 + 3 * (i % 7)) && shared[i] == own[i]);

    /* The group of ranks 2 and 0, in that order; rank 1 does something else. */
    if (rank != 1) {
        ls_group *pair;
        int64_t number = rank;
        NEED(!ls_group_open(world, (int[]){ 2, 0 }, 2, &store, "pair", &pair));
        NEED(ls_group_size(pair) == 2 && ls_group_rank(pair) == (rank == 2 ? 0 : 1));
        NEED(!ls_broadcast(pair, &number, 1, LS_I64, 0) && number == 2);
        ls_group_free(&pair);
    }
    /* A group of one. */
    ls_group *alone;
    char key[16];
    snprintf(key, sizeof key, "alone%d", rank);
    NEED(!ls_group_open(world, &rank, 1, &store, key, &alone));
    NEED(!ls_barrier(alone));
    ls_group_free(&alone);
    /* Works of two groups, waited for in another order on each rank, with more data than staging holds. */
    ls_group *all;
    ls_work *works[2];
    size_t big = 1 << 20;
    float *a = calloc(big, sizeof *a), *b = calloc(big, sizeof *b);
    NEED(a && b && !ls_group_open(world, (int[]){ 0, 1, 2 }, 3, &store, "all", &all));
    a[big - 1] = b[big - 1] = 1;
    NEED(!ls_allreduce_start(ls_world_group(world), a, big, LS_F32, LS_SUM, &works[0]));
    NEED(!ls_allreduce_start(all, b, big, LS_F32, LS_SUM, &works[1]));
    NEED(!ls_work_wait(&works[rank % 2]) && !ls_work_wait(&works[1 - rank % 2]));
    NEED(a[big - 1] == 3 && b[big - 1] == 3);
    ls_group_free(&all);
    ls_world_free(&world);
    free(own);
    free(a);
    free(b);
    return 0;
}

static void ranks_find_each_other_through_a_store(void **state)
{
    (void)state;
    assert_int_equal(on_processes(RANKS, work_together), 0);
}

static int refuse(int rank)
{
    ls_world *world;
    ls_group *group;
    NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = 2 }));
    NEED(ls_group_open(world, (int[]){ 0, 1, 1 }, 3, &store, "k", &group) == LS_EINVAL && !group);
    NEED(strstr(ls_error(), "number of members 3"));
    NEED(ls_group_open(world, (int[]){ rank, rank }, 2, &store, "k", &group) == LS_EINVAL);
    NEED(strstr(ls_error(), "is listed twice"));
    NEED(ls_group_open(world, (int[]){ 1 - rank }, 1, &store, "k", &group) == LS_EINVAL);
    NEED(strstr(ls_error(), "is not one of the members"));
    NEED(ls_group_open(world, (int[]){ 5 }, 1, &store, "k", &group) == LS_EINVAL);
    NEED(strstr(ls_error(), "unknown rank 5"));
    NEED(ls_group_open(world, (int[]){ rank }, 1, &store, NULL, &group) == LS_EINVAL && !group);
    NEED(strstr(ls_error(), "key must not be NULL"));
    NEED(ls_group_open(world, NULL, 2, &store, "k", &group) == LS_EINVAL);
    NEED(ls_group_open(world, (int[]){ 0, 1 }, 2, NULL, "k", &group) == LS_EINVAL);
    NEED(ls_group_open(world, (int[]){ 0, 1 }, 2, &store, "k", NULL) == LS_EINVAL);
    NEED(ls_group_split(ls_world_group(world), 0, 0, NULL) == LS_EINVAL);
    NEED(!ls_barrier(ls_world_group(world)));
    if (rank == 1) {
        ls_store broken = { .set = set, .get = fail_to_get };
        NEED(ls_group_open(world, (int[]){ 0, 1 }, 2, &broken, "broken", &group) == LS_EIO && !group);
        NEED(strstr(ls_error(), "the store failed at key broken"));
    }
    ls_world_free(&world);
    return 0;
}

static void the_message_of_a_store_is_kept(void **state)
{
    ls_world *world;
    ls_store deaf = { .set = fail_to_set, .get = get }, dumb = { .set = set, .get = fail_with_text };
    (void)state;
    stores++;
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &deaf, .rank = 0, .size = 2 }), LS_EIO,
                "key lockstep/0/0: my store is down");
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &dumb, .rank = 0, .size = 2 }), LS_EIO,
                "key lockstep/0/1: my store is down");
}

/* Rank 1 passes another size: larger, so that it would wait for a rank that does not exist, or smaller. */
static int sizes[RANKS];

static int open_with_sizes(int rank)
{
    ls_world *world;
    char text[100];
    int other = rank == 1 ? 0 : 1;
    NEED(ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = sizes[rank] }) ==
             LS_EMISMATCH &&
         !world);
    snprintf(text, sizeof text, "rank %d opens a world of %d ranks, but rank %d one of %d", rank, sizes[rank], other,
             sizes[other]);
    NEED(strstr(ls_error(), text));
    return 0;
}

static void different_sizes_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) sizes[i] = RANKS;
    sizes[1] = RANKS + 1;
    assert_int_equal(on_processes(RANKS, open_with_sizes), 0);
    sizes[1] = RANKS - 1;
    assert_int_equal(on_processes(RANKS, open_with_sizes), 0);
}

static void bad_groups_are_refused(void **state)
{
    (void)state;
    assert_int_equal(on_processes(2, refuse), 0);
}

static void bad_worlds_are_refused(void **state)
{
    ls_world *world;
    ls_store none = { 0 };
    (void)state;
    stores++;
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = 2, .size = 2 }), LS_EINVAL,
                "invalid rank 2 of 2");
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = 0, .size = 0 }), LS_EINVAL,
                "invalid rank 0 of 0");
    check_fails(ls_world_open(&world, &(ls_world_options){ .rank = 0, .size = 2 }), LS_EINVAL, "set store, too");
    check_fails(ls_world_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    /* Sizes whose sum for all ranks would overflow. */
    check_fails(ls_world_open(&world, &(ls_world_options){ .staging_bytes = SIZE_MAX }), LS_EINVAL,
                "at most 1073741824");
    check_fails(ls_world_open(&world, &(ls_world_options){ .staging_bytes = ((size_t)1 << 30) + 1 }), LS_EINVAL,
                "staging_bytes is 1073741825");
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &none, .rank = 0, .size = 2 }), LS_EINVAL,
                "set and get");
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &store, .size = 2, .timeout_ms = 50 }), LS_ETIMEOUT,
                "rank 1 did not open its world");
    check_ok(ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = 0, .size = 1 }));
    assert_int_equal(ls_world_size(world), 1);
    check_fails(ls_world_alloc(world, 1, NULL), LS_EINVAL, "memory must not be NULL");
    ls_world_dealloc(world, NULL);
    ls_group_free(NULL);
    ls_world_free(&world);
    ls_world_free(NULL);
}

/* ---- Ends. */

static int outlive(int rank)
{
    ls_world *world;
    NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = RANKS }));
    NEED(!ls_barrier(ls_world_group(world)));
    if (rank == 1) kill(getpid(), SIGKILL);
    int64_t begin = ls_now();
    NEED(ls_barrier(ls_world_group(world)) == LS_EPEER);
    NEED(strstr(ls_error(), "rank 1"));
    NEED(ls_now() - begin < 10000000000); /* far from the timeout of 30 s */
    ls_world_free(&world);
    return 0;
}

static void a_rank_that_was_killed_is_named(void **state)
{
    (void)state;
    assert_int_equal(on_processes(RANKS, outlive), 0);
}

/* Rank 1 is killed while it works on a chunk. The others wait in theirs until it has one. */
static void die_in_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    _Atomic uint32_t *dying = (_Atomic uint32_t *)data[0];
    (void)begin, (void)end;
    if (*(int *)user == 1) {
        atomic_store(dying, 1);
        kill(getpid(), SIGKILL);
    }
    while (!atomic_load(dying)) usleep(1000);
}

static int outlive_a_chunk(int rank)
{
    ls_world *world;
    void *flag;
    NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = RANKS }));
    ls_group *all = ls_world_group(world);
    NEED(!ls__group_share(all, RANKS * sizeof(float), &flag));
    NEED(ls__parallel_for(all, flag, RANKS, LS_F32, 1, die_in_chunk, &rank) == LS_EPEER);
    NEED(strstr(ls_error(), "rank 1") && strstr(ls_error(), "will not complete its part"));
    ls_world_free(&world);
    return 0;
}

static void a_rank_that_was_killed_with_a_chunk_is_named(void **state)
{
    (void)state;
    assert_int_equal(on_processes(RANKS, outlive_a_chunk), 0);
}

static int outlive_an_allocation(int rank)
{
    ls_world *world;
    void *memory, *more;
    NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = RANKS }));
    NEED(!ls_world_alloc(world, 1, &memory));
    NEED(!ls_barrier(ls_world_group(world)));
    if (rank == 1) {
        pthread_mutex_lock(&world->job->heap.lock);
        kill(getpid(), SIGKILL);
    }
    ls_status status = LS_OK;
    while (!status) status = ls_world_alloc(world, 1, &more); /* until rank 1 has got there */
    NEED(status == LS_EPEER && strstr(ls_error(), "a rank died while it allocated"));
    NEED(ls_barrier(ls_world_group(world)) == LS_EPEER);
    ls_world_dealloc(world, &memory);
    ls_world_free(&world);
    return 0;
}

static void a_rank_that_was_killed_while_it_allocated_blocks_nobody(void **state)
{
    void *locks;
    size_t bytes;
    (void)state;
    if (syscall(SYS_get_robust_list, 0, &locks, &bytes)) skip(); /* qemu-user does not release the locks of who dies */
    assert_int_equal(on_processes(RANKS, outlive_an_allocation), 0);
}

static int open_again(int rank)
{
    for (int i = 0; i < 3; i++) {
        ls_world *world;
        stores++;
        NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = RANKS }));
        int64_t sum = 1;
        NEED(!ls_allreduce(ls_world_group(world), &sum, 1, LS_I64, LS_SUM) && sum == RANKS);
        ls_world_free(&world);
    }
    return 0;
}

static void worlds_can_be_opened_again(void **state)
{
    (void)state;
    assert_int_equal(on_processes(RANKS, open_again), 0);
}

static int have_a_child(int rank)
{
    ls_world *world;
    NEED(!ls_world_open(&world, &(ls_world_options){ .store = &store, .rank = rank, .size = RANKS }));
    pid_t child = fork();
    if (!child) exit(0); /* with all that runs at the end of a process */
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    int64_t sum = 1;
    NEED(!ls_allreduce(ls_world_group(world), &sum, 1, LS_I64, LS_SUM) && sum == RANKS);
    ls_world_free(&world);
    return 0;
}

static void the_end_of_a_child_is_not_that_of_the_rank(void **state)
{
    (void)state;
    assert_int_equal(on_processes(RANKS, have_a_child), 0);
}

/* ---- Values that are left from another job, as in a store that outlives one. */

static ls_status get_stale(void *user, const char *key, void *value, size_t bytes, int timeout_ms)
{
    ls_status status = get(user, key, value, bytes, timeout_ms);
    int32_t gone = 1 << 30; /* no process has this number */
    if (!strcmp(key, "lockstep/1/0")) memcpy((char *)value + 8 + offsetof(ls__peer_info, pid), &gone, sizeof gone);
    return status;
}

static int read_stale(int rank)
{
    ls_world *world;
    ls_store stale = { .set = set, .get = rank ? get_stale : get };
    ls_status status = ls_world_open(&world, &(ls_world_options){ .store = &stale, .rank = rank, .size = 2 });
    NEED(status == (rank ? LS_ENOENT : LS_EPEER) && !world);
    NEED(strstr(ls_error(), "cannot open the job memory of process 1073741824"));
    return 0;
}

static void a_rank_that_cannot_join_says_why(void **state)
{
    (void)state;
    assert_int_equal(on_processes(2, read_stale), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_find_each_other_through_a_store),
        cmocka_unit_test(the_message_of_a_store_is_kept),
        cmocka_unit_test(different_sizes_are_named),
        cmocka_unit_test(bad_groups_are_refused),
        cmocka_unit_test(bad_worlds_are_refused),
        cmocka_unit_test(a_rank_that_was_killed_is_named),
        cmocka_unit_test(a_rank_that_cannot_join_says_why),
        cmocka_unit_test(a_rank_that_was_killed_with_a_chunk_is_named),
        cmocka_unit_test(a_rank_that_was_killed_while_it_allocated_blocks_nobody),
        cmocka_unit_test(the_end_of_a_child_is_not_that_of_the_rank),
        cmocka_unit_test(worlds_can_be_opened_again), /* at last: it uses the numbers of the stores that follow */
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
