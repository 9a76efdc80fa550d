/* Ranks that leave in order, and aborts, in shared memory and between nodes: what was done before still counts, and
 * those who wait for more know at once. */
#include "nodes.h"
#include "comm/multi.h"

/* Long enough for a loaded machine, and far more than "at once". */
static const ls_world_options patient = { .timeout_ms = 20000 };

typedef void (*runner)(const char *places, rank_fn run, void *arg);

static void in_shared_memory(const char *places, rank_fn run, void *arg)
{
    on_ranks((int)strlen(places), run, arg, &patient);
}

static void between_nodes(const char *places, rank_fn run, void *arg)
{
    on_nodes(places, run, arg, patient);
}

static const runner runners[] = { in_shared_memory, between_nodes };

/* ---- Leaving. */

static int send_and_leave(ls_world *world, void *arg, char *why)
{
    (void)arg;
    static const size_t sizes[] = { 0, 10, 15000, 60000, 3, 200000 };
    enum { SIZES = sizeof sizes / sizeof *sizes };
    ls_group *g = ls_world_group(world);
    int rank = ls_group_rank(g), last = ls_group_size(g) - 1;
    float *x = malloc(200000 * sizeof *x);
    need_ok(ls_allreduce(g, memset(x, 0, 8000), 2000, LS_F32, LS_SUM));
    for (int i = 0; i < SIZES; i++) {
        for (size_t k = 0; k < sizes[i]; k++) x[k] = rank == 0 ? (float)(k % 1000) : -1;
        if (rank == 0) need_ok(ls_send(g, x, sizes[i], LS_F32, last));
        if (rank == last) need_ok(ls_recv(g, x, sizes[i], LS_F32, 0));
        for (size_t k = 0; rank == last && k < sizes[i]; k++)
            need(x[k] == (float)(k % 1000), "message %d: element %zu is %g", i, k, (double)x[k]);
    }
    free(x);
    return 0;
}

static void what_was_sent_before_leaving_arrives(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        in_shared_memory("000", send_and_leave, NULL);
        between_nodes("01", send_and_leave, NULL);
        between_nodes("001", send_and_leave, NULL);
        between_nodes("010", send_and_leave, NULL);
    }
}

/* One rank frees a group, and lives on. */
static int free_a_group(ls_world *world, void *arg, char *why)
{
    const int *pair = arg;
    ls_group *all = ls_world_group(world), *sub;
    float x = 1;
    need_ok(ls_group_split(all, 0, 0, &sub));
    need_ok(ls_barrier(sub));
    int rank = ls_group_rank(sub);
    if (rank != 1) {
        int64_t begin = ls_now();
        ls_status status = *pair ? ls_recv(sub, &x, 1, LS_F32, 1) : ls_allreduce(sub, &x, 1, LS_F32, LS_SUM);
        double took = (double)(ls_now() - begin) / 1e9;
        need(status == LS_EPEER, "rank %d: %s: %s", rank, ls_status_name(status), ls_error());
        need(strstr(ls_error(), "rank 1 ") && strstr(ls_error(), "left the group and will not call"), "rank %d: %s",
             rank, ls_error());
        need(took < 10, "rank %d: after %.1f s", rank, took);
    }
    ls_group_free(&sub);
    need_ok(ls_barrier(all)); /* other groups are whole */
    return 0;
}

static void a_rank_that_freed_a_group_is_named_at_once(void **state)
{
    (void)state;
    static const char *const places[] = { "01", "0011", "0101", "012" };
    for (int pair = 0; pair < 2; pair++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 2; k++) runners[k](places[i], free_a_group, &pair);
}

/* A message that was counted is waited for, one after it is not. */
static int receive_too_much(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world), *sub;
    float x[2] = { 1, 2 };
    need_ok(ls_group_split(all, 0, 0, &sub));
    int rank = ls_group_rank(sub);
    if (rank == 1) need_ok(ls_send(sub, x, 2, LS_F32, 0));
    if (rank == 0) {
        usleep(10000);
        need_ok(ls_recv(sub, x, 2, LS_F32, 1));
        need(ls_recv(sub, x, 2, LS_F32, 1) == LS_EPEER, "the second receive: %s", ls_error());
    }
    ls_group_free(&sub);
    need_ok(ls_barrier(all));
    return 0;
}

static void messages_are_counted(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) runners[k]("01", receive_too_much, NULL);
    between_nodes("0011", receive_too_much, NULL);
}

/* ---- Aborts. */

typedef struct gate {
    _Atomic int open;
} gate;

/* The last rank has begun a call when it aborts. A rank that starts that collective afterwards sees the abort. */
static int abort_then_call(ls_world *world, void *arg, char *why)
{
    gate *aborted = arg;
    ls_group *all = ls_world_group(world), *sub;
    ls_work *work = NULL;
    need_ok(ls_group_split(all, 0, 0, &sub));
    int rank = ls_group_rank(sub), last = ls_group_size(sub) - 1;
    if (rank == last) need_ok(ls_barrier_start(sub, &work));
    if (rank && rank != last) (void)!ls_barrier_start(sub, &work); /* that the abort came before is fine, too */
    for (int i = 0; i < 100 && work && rank != last; i++) {        /* so that what it sends has gone */
        ls_status status = ls_work_test(&work);
        need(status == LS_PENDING || status == LS_EABORTED, "test: %s", ls_error());
    }
    if (rank == last) {
        need(ls_work_test(&work) == LS_PENDING, "the barrier is done without rank 0");
        ls_group_abort(sub, "enough");
        atomic_fetch_add(&aborted->open, 1);
    }
    while (!atomic_load(&aborted->open)) usleep(1000);
    ls_status status = ls_barrier(sub);
    need(status == LS_EABORTED && strstr(ls_error(), "enough"), "rank %d: %s: %s", rank, ls_status_name(status),
         ls_error());
    if (work) need(ls_work_wait(&work) == LS_EABORTED, "rank %d: %s", rank, ls_error());
    ls_group_free(&sub);
    need_ok(ls_barrier(all)); /* of that group alone */
    return 0;
}

static void an_abort_is_seen_by_the_next_call(void **state)
{
    (void)state;
    static const char *const places[] = { "01", "0011", "011", "012" };
    for (int i = 0; i < 40; i++) { /* whether it shows is a matter of who is first */
        gate aborted = { 0 };
        runners[i / 4 % 2](places[i % 4], abort_then_call, &aborted);
    }
}

/* A rank that comes out of a split first may abort the new group while others are still in the split. */
static int abort_early(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *all = ls_world_group(world), *sub;
    int rank = ls_group_rank(all), p = ls_group_size(all);
    ls__cluster *c = world->cluster;
    ls__notice notice = {
        .world = c->nonce, .kind = LS__NOTICE_ABORT, .group = world->next_group, .status = LS_EABORTED
    };
    ls__net_request request, *requests[] = { &request };
    need_ok(ls_barrier(all));
    snprintf(notice.text, sizeof notice.text, "too early");
    for (int r = 1; rank == 0 && r < p; r++) {
        need_ok(ls__net_send(c->net, &notice, sizeof notice, r, LS__TAG_NOTICE, true, &request));
        while (request.active) need_ok(ls__net_test(c->net, requests, 1));
    }
    need_ok(ls_barrier(all));
    need_ok(ls_group_split(all, 0, 0, &sub));
    ls_status status = rank ? ls_barrier(sub) : LS_EABORTED;
    need(status == LS_EABORTED && (!rank || strstr(ls_error(), "too early")), "rank %d: %s: %s", rank,
         ls_status_name(status), ls_error());
    ls_group_free(&sub);
    return 0;
}

static void an_abort_may_come_before_its_group(void **state)
{
    (void)state;
    between_nodes("01", abort_early, NULL);
    between_nodes("012", abort_early, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sent_before_leaving_arrives),
        cmocka_unit_test(a_rank_that_freed_a_group_is_named_at_once),
        cmocka_unit_test(messages_are_counted),
        cmocka_unit_test(an_abort_is_seen_by_the_next_call),
        cmocka_unit_test(an_abort_may_come_before_its_group),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
