/* Works that finish and are waited for in any order, mixed with blocking calls, on every transport: random mixes (see
 * mix.h), and the short programs that users write. */
#include <sched.h>
#include "mix.h"
#include "nodes.h"

_Static_assert((int)RANKS_WHY == (int)MIX_WHY, "a mix writes its reason into a rank's");

/* ---- Random mixes. */

static int run_mix(ls_world *world, void *arg, char *why)
{
    return mix_run(world, arg, why);
}

enum { SEEDS = 6, CALLS = 120 };

static void any_mix_of_calls_in_shared_memory(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        mix_options o = { .seed = seed, .calls = CALLS, .largest = 200000 };
        on_ranks(2 + (int)seed % 3, run_mix, &o, &(ls_world_options){ .staging_bytes = seed % 2 ? 32768 : 0 });
    }
}

static void any_mix_of_calls_between_machines(void **state)
{
    (void)state;
    static const char *const places[] = { "01", "0011", "0101", "001", "012", "00112" };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        mix_options o = { .seed = seed, .calls = CALLS, .largest = 200000 };
        on_nodes(places[seed % 6], run_mix, &o, (ls_world_options){ .staging_bytes = seed % 2 ? 32768 : 0 });
    }
}

static void any_mix_of_calls_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        ls_world *world;
        char why[MIX_WHY] = "";
        check_ok(ls_world_open(&world, NULL));
        if (mix_run(world, &(mix_options){ .seed = seed, .calls = CALLS, .largest = 20000 }, why)) fail_msg("%s", why);
        ls_world_free(&world);
    }
}

/* ---- A step of a training loop: gradients under way, the loss summed meanwhile, then the gradients waited for. */

static int loss_among_gradients(ls_world *world, void *arg, char *why)
{
    (void)arg;
    enum { BUCKETS = 3, COUNT = 30000, STEPS = 20 };
    ls_group *g = ls_world_group(world);
    float p = (float)ls_group_size(g), *grads = malloc(sizeof(float) * BUCKETS * COUNT);
    ls_work *works[BUCKETS];
    int bad = 0;
    for (int step = 0; step < STEPS && !bad; step++) {
        float loss = 2;
        for (int i = 0; i < BUCKETS * COUNT; i++) grads[i] = (float)(i % 7);
        for (int b = 0; b < BUCKETS && !bad; b++)
            bad = ls_allreduce_start(g, grads + b * COUNT, COUNT, LS_F32, LS_SUM, &works[b]) != LS_OK;
        if (!bad) bad = ls_allreduce(g, &loss, 1, LS_F32, LS_SUM) != LS_OK;
        for (int b = BUCKETS - 1; b >= 0 && !bad; b--) bad = ls_work_wait(&works[b]) != LS_OK;
        if (bad) snprintf(why, RANKS_WHY, "step %d: %s", step, ls_error());
        for (int i = 0; i < BUCKETS * COUNT && !bad; i++) {
            bad = grads[i] != (float)(i % 7) * p || loss != 2 * p;
            if (bad) snprintf(why, RANKS_WHY, "step %d: gradient %g, loss %g", step, (double)grads[i], (double)loss);
        }
    }
    free(grads);
    return bad;
}

static void a_blocking_call_among_works_under_way(void **state)
{
    (void)state;
    on_ranks(2, loss_among_gradients, NULL, NULL);
    on_ranks(3, loss_among_gradients, NULL, NULL);
    on_nodes("01", loss_among_gradients, NULL, (ls_world_options){ 0 });
    on_nodes("0011", loss_among_gradients, NULL, (ls_world_options){ 0 });
}

/* ---- Two groups, waited for in different orders. */

static int wait_crosswise(ls_world *world, void *arg, char *why)
{
    const int *by_node = arg;
    enum { COUNT = 400000 };
    ls_group *all = ls_world_group(world), *other;
    int rank = ls_world_rank(world);
    float *a = malloc(COUNT * sizeof *a), *b = malloc(COUNT * sizeof *b);
    ls_work *first, *second;
    /* Either another group of all ranks, or one of each node. */
    need_ok(ls_group_split(all, *by_node ? ls_world_get_info(world).node : 0, 0, &other));
    for (int i = 0; i < COUNT; i++) a[i] = 1, b[i] = 2;
    need_ok(ls_allreduce_start(all, a, COUNT, LS_F32, LS_SUM, &first));
    need_ok(ls_allreduce_start(other, b, COUNT, LS_F32, LS_SUM, &second));
    for (int turn = 0; turn < 2; turn++) need_ok(ls_work_wait((rank + turn) % 2 ? &second : &first));
    for (int i = 0; i < COUNT; i++)
        need(a[i] == (float)ls_group_size(all) && b[i] == 2 * (float)ls_group_size(other), "rank %d: sums %g and %g",
             rank, (double)a[i], (double)b[i]);
    ls_group_free(&other);
    free(a);
    free(b);
    return 0;
}

static void works_of_two_groups_in_different_orders(void **state)
{
    (void)state;
    ls_world_options o = { .timeout_ms = 5000, .staging_bytes = 65536 };
    for (int by_node = 0; by_node < 2; by_node++) {
        on_ranks(2, wait_crosswise, &by_node, &o);
        on_ranks(4, wait_crosswise, &by_node, &o);
        on_nodes("01", wait_crosswise, &by_node, o);
        on_nodes("0011", wait_crosswise, &by_node, o);
        on_nodes("01012", wait_crosswise, &by_node, o);
    }
}

/* ---- More works than a transport has room for: starting one waits for nobody. */

enum { MANY = 150 };

/* Ranks start on two groups, one after the other, in different orders. */
static int start_many_crosswise(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *groups[2] = { ls_world_group(world) };
    int rank = ls_world_rank(world), p = ls_world_size(world);
    static _Thread_local float x[2][MANY];
    ls_work *works[2][MANY];
    need_ok(ls_group_split(groups[0], 0, 0, &groups[1]));
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0, k = (rank + turn) % 2; i < MANY; i++) {
            x[k][i] = (float)i;
            need_ok(ls_allreduce_start(groups[k], &x[k][i], 1, LS_F32, LS_SUM, &works[k][i]));
        }
    for (int i = MANY - 1; i >= 0; i--)
        for (int k = 0; k < 2; k++) {
            need_ok(ls_work_wait(&works[k][i]));
            need(x[k][i] == (float)(i * p), "rank %d: sum %d of group %d is %g, expected %d", rank, i, k,
                 (double)x[k][i], i * p);
        }
    ls_group_free(&groups[1]);
    return 0;
}

/* Rank 0 sends after it has started them, and rank 1 starts them after it has received. */
static int send_after_many(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world);
    ls_work *works[MANY];
    int rank = ls_world_rank(world);
    float x = (float)(rank + 7);
    if (rank == 1) need_ok(ls_recv(all, &x, 1, LS_F32, 0));
    for (int i = 0; i < MANY; i++) need_ok(ls_barrier_start(all, &works[i]));
    if (rank == 0) need_ok(ls_send(all, &x, 1, LS_F32, 1));
    for (int i = 0; i < MANY; i++) need_ok(ls_work_wait(&works[i]));
    need(rank > 1 || x == 7, "rank %d: %g, expected 7", rank, (double)x);
    return 0;
}

static void starting_waits_for_nobody(void **state)
{
    (void)state;
    ls_world_options o = { .timeout_ms = 10000 };
    for (int p = 2; p < 5; p++) {
        on_ranks(p, start_many_crosswise, NULL, &o);
        on_ranks(p, send_after_many, NULL, &o);
    }
    on_nodes("0101", start_many_crosswise, NULL, o);
    on_nodes("0011", send_after_many, NULL, o);
}

/* The last rank does not come. The others wait for a work that has no slot yet; neither is late. */
static int wait_for_the_last(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world);
    ls_work *works[MANY];
    int late = ls_world_size(world) - 1;
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d did not call barrier #0", late);
    if (ls_world_rank(world) == late) {
        while (!ls__failure_is_set(all->failure)) sched_yield();
        return 0;
    }
    for (int i = 0; i < MANY; i++) need_ok(ls_barrier_start(all, &works[i]));
    ls_status status = ls_work_wait(&works[MANY - 1]);
    need(status == LS_ETIMEOUT && strstr(ls_error(), expected), "%s: %s, expected '%s'", ls_status_name(status),
         ls_error(), expected);
    return 0;
}

static void who_is_late_for_the_first_of_many_is_named(void **state)
{
    (void)state;
    on_ranks(3, wait_for_the_last, NULL, &(ls_world_options){ .timeout_ms = 300 });
}

/* Ranks 0 and 1 call their two groups in different orders. */
static int cross_two_groups(ls_world *world, void *arg, char *why)
{
    (void)arg;
    int rank = ls_world_rank(world);
    ls_group *all = ls_world_group(world), *sub;
    need_ok(ls_group_split(all, rank / 2, 0, &sub));
    ls_status status = ls_barrier(rank == 1 ? sub : all);
    const char *expected = rank == 1 ? "barrier #0 (group of ranks 0, 1)" : "barrier #2 (group of all ranks)";
    need(status == LS_ETIMEOUT || status == LS_EPEER, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
    need(strstr(ls_error(), expected), "rank %d: %s, expected '%s'", rank, ls_error(), expected);
    need(rank == 1 || strstr(ls_error(), "it last completed allgather #1 (1 of int64) of ls_group_split() there"),
         "rank %d: %s", rank, ls_error());
    ls_group_free(&sub);
    return 0;
}

static void a_rank_in_several_groups_learns_which_one_failed(void **state)
{
    (void)state;
    on_ranks(3, cross_two_groups, NULL, &(ls_world_options){ .timeout_ms = 300 });
}

/* ---- Works that nobody waits for go with their group. */

static int abandon(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *sub;
    float x[4] = { 1, 2, 3, 4 };
    ls_work *work, *done;
    need_ok(ls_group_split(ls_world_group(world), 0, 0, &sub));
    need_ok(ls_allreduce_start(sub, x, 4, LS_F32, LS_SUM, &done));
    need_ok(ls_barrier(sub));
    if (ls_world_rank(world) == 0) need_ok(ls_barrier_start(sub, &work)); /* the others never come */
    ls_group_free(&sub);
    need_ok(ls_barrier(ls_world_group(world)));
    return 0;
}

static void works_that_nobody_waits_for_go_with_their_group(void **state)
{
    (void)state;
    on_ranks(3, abandon, NULL, NULL); /* the leak checker of a sanitizer looks on */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blocking_call_among_works_under_way),
        cmocka_unit_test(works_of_two_groups_in_different_orders),
        cmocka_unit_test(starting_waits_for_nobody),
        cmocka_unit_test(who_is_late_for_the_first_of_many_is_named),
        cmocka_unit_test(a_rank_in_several_groups_learns_which_one_failed),
        cmocka_unit_test(works_that_nobody_waits_for_go_with_their_group),
        cmocka_unit_test(any_mix_of_calls_alone),
        cmocka_unit_test(any_mix_of_calls_in_shared_memory),
        cmocka_unit_test(any_mix_of_calls_between_machines),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
