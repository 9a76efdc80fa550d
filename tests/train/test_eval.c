/* ls_eval() on several ranks: the same result as on one, and what happens when a rank fails or leaves. */
#include <unistd.h>
#include "comm/nodes.h"
#include "folder.h"
#include "lockstep/train.h"

static const ls_world_options patient = { .timeout_ms = 30000 };

static int train_a_model(void **state)
{
    if (enter_folder(state)) return -1;
    ls_train *t;
    ls_train_metrics m;
    ls_train_options o = { .model = { .layers = 1, .width = 16, .heads = 2 },
                           .batch_size = 1,
                           .seq_len = 16,
                           .steps = 1,
                           .val_fraction = 0.01,
                           .threads = 1,
                           .workers = -1,
                           .no_record = true,
                           .run_dir = "run" };
    check_ok(ls_train_open(&t, &o));
    check_ok(ls_train_step(t, &m));
    check_ok(ls_train_save(t));
    ls_train_free(&t);
    return 0;
}

static int evaluate(ls_world *world, void *arg, char *why)
{
    const ls_eval_result *alone = arg;
    ls_eval_result r;
    need_ok(ls_eval(&(ls_eval_options){ .model = "run", .world = world, .threads = 1, .batch_size = 2 }, &r));
    need(r.loss == alone->loss && r.tokens == alone->tokens, "%a, alone %a", r.loss, alone->loss);
    return 0;
}

static void ranks_evaluate_together(void **state)
{
    (void)state;
    ls_eval_result alone;
    check_ok(ls_eval(&(ls_eval_options){ .model = "run", .threads = 1, .batch_size = 2 }, &alone));
    assert_true(alone.held_out && alone.tokens > 0);
    on_ranks(2, evaluate, &alone, &patient);
    on_ranks(3, evaluate, &alone, &patient);
}

static void linger(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    if (done == total || done == 1) usleep(100000);
}

/* The last rank leaves without a word. Rank 1 finds that first, long before rank 0 comes to the sum: both have lost a peer, and
 * neither was aborted by the other. */
static int lose_a_peer(ls_world *world, void *arg, char *why)
{
    ls_eval_result r;
    int rank = ls_world_rank(world);
    (void)arg;
    if (rank == 2) return 0;
    ls_eval_options o = { .model = "run", .world = world, .threads = 1, .progress = rank == 0 ? linger : NULL };
    ls_status status = ls_eval(&o, &r);
    need(status == LS_EPEER && !strstr(ls_error(), "abort"), "rank %d: %s: %s", rank, ls_status_name(status),
         ls_error());
    return 0;
}

static void a_lost_peer_is_not_reported_as_an_abort(void **state)
{
    (void)state;
    on_ranks(3, lose_a_peer, NULL, &patient);
    on_nodes("012", lose_a_peer, NULL, patient);
    on_nodes("001", lose_a_peer, NULL, patient);
}

/* What goes wrong on one rank ends the call on all of them, with the reason. */
static int fail_alone(ls_world *world, void *arg, char *why)
{
    ls_eval_result r;
    int rank = ls_world_rank(world);
    (void)arg;
    ls_eval_options o = { .model = rank == 1 ? "nowhere" : "run", .world = world, .threads = 1 };
    ls_status status = ls_eval(&o, &r);
    need(status == (rank == 1 ? LS_ENOENT : LS_EABORTED) && strstr(ls_error(), "nowhere"), "rank %d: %s: %s", rank,
         ls_status_name(status), ls_error());
    return 0;
}

static void a_rank_that_fails_aborts_the_others(void **state)
{
    (void)state;
    on_ranks(3, fail_alone, NULL, &patient);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_evaluate_together),
        cmocka_unit_test(a_lost_peer_is_not_reported_as_an_abort),
        cmocka_unit_test(a_rank_that_fails_aborts_the_others),
    };
    return cmocka_run_group_tests(tests, train_a_model, leave_folder);
}
