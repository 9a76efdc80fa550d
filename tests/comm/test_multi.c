/* Groups on several nodes, with ranks as threads and a network among them: every collective, type and reduction on
 * many placements of ranks; and failures, which are reported on all nodes by name. */
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "nodes.h"
#include "suite.h"

_Static_assert((int)RANKS_WHY == (int)SUITE_WHY, "a suite writes its reason into a rank's");

/* ---- Collectives. */

static int run_suite(ls_world *world, void *arg, char *why)
{
    need(!strcmp(ls_world_get_info(world).transport, "mpi"), "transport %s", ls_world_get_info(world).transport);
    return suite_run(world, arg, why);
}

static const size_t sizes[] = { 0, 1, 7, 1023, 4099, SIZE_MAX };
static const size_t few[] = { 1, 5001, SIZE_MAX };
static const size_t large[] = { 20011, SIZE_MAX };

static void all_calls_types_and_reductions(void **state)
{
    (void)state;
    static const char *const places[] = { "01", "0011", "001" };
    for (int i = 0; i < 3; i++)
        on_nodes(places[i], run_suite, &(suite_options){ .counts = sizes }, (ls_world_options){ 0 });
}

static void any_placement_of_ranks(void **state)
{
    (void)state;
    static const char *const places[] = { "0101", "01201", "0000001", "012345", "00112233" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        on_nodes(places[i], run_suite, &(suite_options){ .counts = few, .quick = 1 }, (ls_world_options){ 0 });
}

static void many_rounds(void **state)
{
    (void)state;
    /* Rounds of 4 KiB: the window comes round several times. */
    on_nodes("0011", run_suite, &(suite_options){ .counts = large, .quick = 1 },
             (ls_world_options){ .staging_bytes = 1 });
    on_nodes("01012", run_suite, &(suite_options){ .counts = large, .quick = 1 },
             (ls_world_options){ .staging_bytes = 1 });
}

/* ---- Places. */

static int check_places(ls_world *world, void *arg, char *why)
{
    (void)arg;
    static const int nodes[] = { 0, 1, 0, 2, 1 }, locals[] = { 0, 0, 1, 0, 1 }, node_sizes[] = { 2, 2, 1 };
    int r = ls_world_rank(world);
    need(ls_world_get_info(world).node == nodes[r], "rank %d: node %d", r, ls_world_get_info(world).node);
    need(ls_world_get_info(world).nodes == 3, "%d nodes", ls_world_get_info(world).nodes);
    need(ls_world_get_info(world).local_rank == locals[r], "rank %d: local rank %d", r,
         ls_world_get_info(world).local_rank);
    need(ls_world_get_info(world).local_size == node_sizes[nodes[r]], "rank %d: local size %d", r,
         ls_world_get_info(world).local_size);
    return 0;
}

static void worlds_know_their_machines(void **state)
{
    (void)state;
    on_nodes("01021", check_places, NULL, (ls_world_options){ 0 });
}

static void machines_differ_by_kernel_processes_and_name(void **state)
{
    (void)state;
    ls__peer_info peers[5];
    int node_of[5], local_of[5];
    for (int i = 0; i < 5; i++) ls__peer_info_fill(&peers[i], "a", 1);
    strcpy(peers[1].host, "b");
    peers[2].pid_namespace++;
    strcpy(peers[3].boot_id, "another kernel");
    assert_int_equal(ls__cluster_place(peers, 5, node_of, local_of), 4);
    const int nodes[] = { 0, 1, 2, 3, 0 }, locals[] = { 0, 0, 0, 0, 1 };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(node_of[i], nodes[i]);
        assert_int_equal(local_of[i], locals[i]);
    }
}

/* ---- Split. */

static int split_and_reduce(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world), *sub, *home, *none;
    int rank = ls_group_rank(all), p = ls_group_size(all);
    for (int round = 0; round < 3; round++) {
        /* Across nodes, in reverse order. */
        need_ok(ls_group_split(all, rank % 2, -rank, &sub));
        int members = rank % 2 ? p / 2 : (p + 1) / 2;
        need(ls_group_size(sub) == members, "size %d, expected %d", ls_group_size(sub), members);
        need(ls_group_rank(sub) == members - 1 - rank / 2, "rank %d of the group", ls_group_rank(sub));
        /* Within nodes: shared memory. */
        need_ok(ls_group_split(all, ls_world_get_info(world).node, 0, &home));
        need(ls_group_size(home) == ls_world_get_info(world).local_size, "%d at home", ls_group_size(home));
        int64_t x = rank, sum = 0, here = 1;
        need_ok(ls_allreduce(home, &here, 1, LS_I64, LS_SUM));
        need_ok(ls_allreduce(sub, &x, 1, LS_I64, LS_SUM));
        for (int r = rank % 2; r < p; r += 2) sum += r;
        need(x == sum, "sum %lld, expected %lld", (long long)x, (long long)sum);
        need(here == ls_world_get_info(world).local_size, "sum at home %lld", (long long)here);
        need_ok(ls_group_split(all, rank == 0 ? -1 : 3, 0, &none));
        need((none == NULL) == (rank == 0), "color -1 gave a group, or 3 gave none");
        if (none) need_ok(ls_barrier(none));
        ls_group_free(&none);
        ls_group_free(&home);
        ls_group_free(&sub);
    }
    return 0;
}

static void split_makes_groups_that_work(void **state)
{
    (void)state;
    on_nodes("0011", split_and_reduce, NULL, (ls_world_options){ 0 });
    on_nodes("0120011", split_and_reduce, NULL, (ls_world_options){ 0 });
}

/* ---- Failures. */

static int mismatch(ls_world *world, void *arg, char *why)
{
    int odd = *(int *)arg, rank = ls_world_rank(world);
    ls_group *g = ls_world_group(world);
    float x[16] = { 0 };
    ls_status status = ls_barrier(g); /* others may be ahead, and the news of their failure overtakes this call */
    if (!status) status = rank == odd ? ls_broadcast(g, x, 16, LS_F32, 1) : ls_allreduce(g, x, 16, LS_F32, LS_SUM);
    need(status == LS_EMISMATCH, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    char named[32];
    snprintf(named, sizeof named, "rank %d runs", odd);
    need(strstr(ls_error(), named) && strstr(ls_error(), "allreduce #1") && strstr(ls_error(), "broadcast #1"),
         "rank %d: %s", rank, ls_error());
    need(ls_barrier(g) == LS_EMISMATCH, "rank %d: the group is not broken", rank);
    return 0;
}

static void a_mismatch_is_named_on_all_machines(void **state)
{
    (void)state;
    for (int odd = 0; odd < 5; odd++) on_nodes("00112", mismatch, &odd, (ls_world_options){ 0 });
}

static int other_counts(ls_world *world, void *arg, char *why)
{
    (void)arg;
    int rank = ls_world_rank(world);
    size_t count = rank == 3 ? 70001 : 70000; /* large enough to be sent in rounds */
    float *x = calloc(count, sizeof *x);
    ls_status status = ls_allreduce(ls_world_group(world), x, count, LS_F32, LS_SUM);
    free(x);
    need(status == LS_EMISMATCH, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    need(strstr(ls_error(), "70001") && strstr(ls_error(), "rank 3"), "rank %d: %s", rank, ls_error());
    return 0;
}

static void other_counts_are_found_before_data_moves(void **state)
{
    (void)state;
    on_nodes("0011", other_counts, NULL, (ls_world_options){ 0 });
}

static int pair_mismatch(ls_world *world, void *arg, char *why)
{
    (void)arg;
    int rank = ls_world_rank(world);
    float x[8] = { 0 };
    ls_status status = LS_EMISMATCH;
    if (rank == 0) need_ok(ls_send(ls_world_group(world), x, 8, LS_F32, 2));
    if (rank == 2) status = ls_recv(ls_world_group(world), x, 7, LS_F32, 0);
    need(status == LS_EMISMATCH, "rank %d: %s", rank, ls_status_name(status));
    status = ls_barrier(ls_world_group(world));
    need(status == LS_EMISMATCH && strstr(ls_error(), "rank 2 receives 7 of float32 from rank 0, which sends 8"),
         "rank %d: %s", rank, ls_error());
    return 0;
}

static void a_receive_that_does_not_fit_its_send_is_named(void **state)
{
    (void)state;
    on_nodes("0011", pair_mismatch, NULL, (ls_world_options){ 0 });
}

static void *abort_soon(void *arg)
{
    ls_world *world = arg;
    fake_rank = ls_world_rank(world);
    usleep(20000);
    ls_group_abort(ls_world_group(world), "enough");
    return NULL;
}

static int abort_wakes(ls_world *world, void *arg, char *why)
{
    (void)arg;
    int rank = ls_world_rank(world), p = ls_world_size(world);
    pthread_t thread;
    if (rank == p - 1) { /* this one never calls it: another of its threads aborts */
        need_ok(ls__thread_start(&thread, "abort", abort_soon, world));
        pthread_join(thread, NULL);
    }
    ls_status status = ls_barrier(ls_world_group(world));
    need(status == LS_EABORTED, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    need(strstr(ls_error(), "enough"), "rank %d: %s", rank, ls_error());
    return 0;
}

static void abort_wakes_all_machines(void **state)
{
    (void)state;
    on_nodes("0011", abort_wakes, NULL, (ls_world_options){ 0 });
    on_nodes("012", abort_wakes, NULL, (ls_world_options){ 0 });
}

static int late(ls_world *world, void *arg, char *why)
{
    _Atomic int *given_up = arg;
    int rank = ls_world_rank(world);
    ls_group *g = ls_world_group(world);
    need_ok(ls_barrier(g));
    while (rank == 3 && atomic_load(given_up) < 3) usleep(1000);
    ls_status status = ls_barrier(g);
    atomic_fetch_add(given_up, 1);
    need(status == LS_ETIMEOUT, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    need(strstr(ls_error(), "rank 3 did not call barrier #1") && strstr(ls_error(), "last completed barrier #0"),
         "rank %d: %s", rank, ls_error());
    return 0;
}

static void a_late_rank_is_named_on_all_machines(void **state)
{
    (void)state;
    _Atomic int given_up = 0;
    on_nodes("0011", late, &given_up, (ls_world_options){ .timeout_ms = 1000 });
}

static int cut_off(ls_world *world, void *arg, char *why)
{
    (void)arg;
    int rank = ls_world_rank(world);
    ls_group *g = ls_world_group(world);
    need_ok(ls_barrier(g));
    if (rank == 2) { /* it may still hear the others, but they hear nothing */
        fake_cut(2);
        (void)!ls_barrier(g);
        return 0;
    }
    ls_status status = ls_barrier(g);
    need(status == LS_ETIMEOUT, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    need(strstr(ls_error(), "host node1 (ranks 2)"), "rank %d: %s", rank, ls_error());
    return 0;
}

static void a_silent_machine_is_named(void **state)
{
    (void)state;
    on_nodes("001", cut_off, NULL, (ls_world_options){ .timeout_ms = 4000 });
}

static int gone(ls_world *world, void *arg, char *why)
{
    (void)arg;
    int rank = ls_world_rank(world);
    if (rank == 1) return 0; /* ends, and its state shows it */
    ls_status status = ls_barrier(ls_world_group(world));
    need(status == LS_EPEER, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    need(strstr(ls_error(), "rank 1 exited") || strstr(ls_error(), "rank 1 on host node0 left the group"),
         "rank %d: %s", rank, ls_error());
    return 0;
}

static void a_rank_that_ended_is_named_on_all_machines(void **state)
{
    (void)state;
    on_nodes("0011", gone, NULL, (ls_world_options){ .timeout_ms = 5000 });
}

/* Looks until the state of rank 1 is no longer `old`, at most 2 s. */
static uint32_t watch_while(ls__cluster *c, ls__job *job, uint32_t old)
{
    for (int i = 0; i < 2000 && atomic_load(&job->rank[1].state) == old; i++) {
        usleep(1000);
        ls__cluster_watch(c, job);
    }
    return atomic_load(&job->rank[1].state);
}

/* Under mpirun no launcher reports that a process of this node is stopped or dead: other ranks check. */
static void stop_and_death_of_a_neighbour_are_seen(void **state)
{
    (void)state;
    ls__job *job;
    int fd, watched[] = { -1, -1 }, hold[2];
    check_ok(ls__job_create(2, 0, &job, &fd));
    ls__job_set_state(job, 1, LS__RANK_RUNNING, 0);
    assert_int_equal(pipe(hold), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) != 0);
    }
    ls__cluster c = { .local_size = 2, .watched = watched };
    watched[1] = (int)syscall(SYS_pidfd_open, child, 0);
    assert_true(watched[1] >= 0);
    ls__cluster_watch(&c, job);
    assert_int_equal(atomic_load(&job->rank[1].state), LS__RANK_RUNNING);
    atomic_store(&job->rank[1].pid, child);
    kill(child, SIGSTOP);
    assert_int_equal(watch_while(&c, job, LS__RANK_RUNNING), LS__RANK_STOPPED);
    kill(child, SIGCONT);
    assert_int_equal(watch_while(&c, job, LS__RANK_STOPPED), LS__RANK_RUNNING);
    close(hold[1]);
    assert_int_equal(watch_while(&c, job, LS__RANK_RUNNING), LS__RANK_GONE);
    char text[96];
    ls__job_describe_state(job, 1, text, sizeof text);
    assert_string_equal(text, "has ended");
    assert_int_equal(watched[1], -1);
    waitpid(child, NULL, 0);
    close(hold[0]);
    ls__job_detach(&job);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worlds_know_their_machines),
        cmocka_unit_test(machines_differ_by_kernel_processes_and_name),
        cmocka_unit_test(stop_and_death_of_a_neighbour_are_seen),
        cmocka_unit_test(all_calls_types_and_reductions),
        cmocka_unit_test(any_placement_of_ranks),
        cmocka_unit_test(many_rounds),
        cmocka_unit_test(split_makes_groups_that_work),
        cmocka_unit_test(a_mismatch_is_named_on_all_machines),
        cmocka_unit_test(other_counts_are_found_before_data_moves),
        cmocka_unit_test(a_receive_that_does_not_fit_its_send_is_named),
        cmocka_unit_test(abort_wakes_all_machines),
        cmocka_unit_test(a_late_rank_is_named_on_all_machines),
        cmocka_unit_test(a_silent_machine_is_named),
        cmocka_unit_test(a_rank_that_ended_is_named_on_all_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
