/* Peers that misbehave: invalid messages, and connections that break. A rank that gets them continues,
 * or fails with a message; nothing is read beyond what came. */
#include <signal.h>
#include <sys/wait.h>
#include "nodes.h"
#include "comm/multi.h"

/* ---- Texts without an end. */

/* Two ranks of one node: the first reports an error without an end. */
static void *join_badly(void *arg)
{
    int rank = *(int *)arg;
    ls__net *net;
    ls__peer_info info, all[2];
    ls__cluster *c;
    ls__job *job;
    int fd;
    fake_rank = rank;
    check_ok(ls__net_open_on(&net, &fake_plugin, rank, 2));
    ls__peer_info_fill(&info, NULL, 0);
    check_ok(ls__cluster_open(&c, net, &info, 10000));
    assert_int_equal(c->nodes, 1);
    if (rank == 0) {
        memset(&info, 'w', sizeof info);
        check_ok(ls__net_allgather(c->net, &info, all, sizeof info, 10000));
    } else {
        char expected[256] = "rank 0 could not join: ";
        size_t n = strlen(expected);
        memset(expected + n, 'w', sizeof info.error - 1);
        check_fails(ls__cluster_share(c, 10000, &job, &fd), LS_EPEER, expected);
        assert_int_equal(strlen(ls_error()), strlen(expected));
    }
    c->failed = false;
    ls__cluster_free(&c);
    return NULL;
}

static void a_reason_without_an_end_is_cut(void **state)
{
    (void)state;
    pthread_t threads[2];
    int ranks[] = { 0, 1 };
    fake_reset(2);
    for (int r = 0; r < 2; r++) check_ok(ls__thread_start(&threads[r], "rank", join_badly, &ranks[r]));
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    fake_reset(0);
}

/* The first of two nodes has a name that does not end, and sends nothing more. */
static void *name_badly(void *arg)
{
    int rank = *(int *)arg;
    ls__net *net;
    ls__peer_info info, all[2];
    ls__cluster *c;
    fake_rank = rank;
    check_ok(ls__net_open_on(&net, &fake_plugin, rank, 2));
    ls__peer_info_fill(&info, NULL, 0);
    if (rank == 0) {
        memset(&info, 'n', sizeof info);
        check_ok(ls__net_allgather(net, &info, all, sizeof info, 10000));
        ls__net_close(&net, true, NULL);
        return NULL;
    }
    char expected[LS__HOST_BYTES + 16] = "on host ";
    memset(expected + 8, 'n', LS__HOST_BYTES - 1);
    strcat(expected, " within");
    check_fails(ls__cluster_open(&c, net, &info, 200), LS_ETIMEOUT, expected);
    return NULL;
}

static void a_host_name_without_an_end_is_cut(void **state)
{
    (void)state;
    pthread_t threads[2];
    int ranks[] = { 0, 1 };
    fake_reset(2);
    for (int r = 0; r < 2; r++) check_ok(ls__thread_start(&threads[r], "rank", name_badly, &ranks[r]));
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    fake_reset(0);
}

/* ---- Notices. */

static ls_status send_raw(ls_world *world, const void *data, size_t bytes, int tag)
{
    ls__net_request request, *requests[] = { &request };
    ls_status status = ls__net_send(world->cluster->net, data, bytes, 1, tag, false, &request);
    while (!status && request.active) status = ls__net_test(world->cluster->net, requests, 1);
    return status;
}

static int useless_notices(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    uint64_t nonce = world->cluster->nonce;
    ls__notice good = { .world = nonce, .kind = LS__NOTICE_ABORT, .group = 1, .status = LS_EABORTED }, bad[5];
    for (int i = 0; i < 5; i++) bad[i] = good;
    bad[0].world++;        /* of another world */
    bad[1].kind = 77;      /* unknown */
    bad[2].group = -5;     /* no such group */
    bad[3].group = 999999; /* nor will there be */
    for (int i = 0; i < 5 && ls_world_rank(world) == 0; i++)
        need_ok(send_raw(world, &bad[i], i == 4 ? 5 : sizeof bad[i], LS__TAG_NOTICE)); /* the last is too short */
    for (int i = 0; i < 3000 && ls_world_rank(world) == 0; i++)
        need_ok(send_raw(world, &bad[3], sizeof bad[3], LS__TAG_NOTICE));
    for (int i = 0; i < 100; i++) need_ok(ls_barrier(g));
    need(world->cluster->early_count <= 1024, "%d notices are kept", world->cluster->early_count);
    return 0;
}

static int endless_abort(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls__notice notice;
    memset(&notice, 'x', sizeof notice);
    notice.world = world->cluster->nonce;
    notice.kind = LS__NOTICE_ABORT;
    notice.group = 1;
    notice.status = LS_OK; /* which is no reason to abort */
    if (ls_world_rank(world) == 0) {
        need_ok(send_raw(world, &notice, sizeof notice, LS__TAG_NOTICE));
        return 0;
    }
    ls_status status = ls_barrier(ls_world_group(world));
    need(status == LS_EPEER, "%s: %s", ls_status_name(status), ls_error());
    need(strspn(ls_error(), "x") == strlen(ls_error()) && strlen(ls_error()) < sizeof notice.text, "message: %s",
         ls_error());
    return 0;
}

static void notices_that_make_no_sense_do_no_harm(void **state)
{
    (void)state;
    on_nodes("01", useless_notices, NULL, (ls_world_options){ 0 });
    on_nodes("01", endless_abort, NULL, (ls_world_options){ 0 });
}

/* ---- A collective's message that lacks its data. */

static int short_message(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    float x[4] = { 0 };
    struct {
        uint64_t number;
        uint32_t node, members;
        uint64_t fingerprint, count;
        int64_t time;
    } header = { .members = 1, .count = 4 };
    ls_work same = { .kind = LS_COLLECTIVE_ALLREDUCE, .type = LS_F32, .op = LS_SUM, .root = -1 };
    header.fingerprint = ls__work_fingerprint(&same);
    if (ls_world_rank(world) == 0) {
        need_ok(send_raw(world, &header, sizeof header, ls__multi_tag(ls__multi_of(g), LS__TAG_HEADER)));
        return 0;
    }
    ls_status status = ls_allreduce(g, x, 4, LS_F32, LS_SUM);
    need(status == LS_EFORMAT && strstr(ls_error(), "rank 0 sent a malformed message"), "%s: %s",
         ls_status_name(status), ls_error());
    return 0;
}

static void a_message_without_its_data_is_refused(void **state)
{
    (void)state;
    on_nodes("01", short_message, NULL, (ls_world_options){ 0 });
}

/* ---- Connections that break. */

static int broken_pipe[2];

static int write_to_a_broken_pipe(const void *data, size_t bytes, int to, int tag, int matched, ls__net_request *out)
{
    (void)data, (void)bytes, (void)to, (void)tag, (void)matched, (void)out;
    return write(broken_pipe[1], "x", 1) == 1 ? 0 : 1;
}

/* A child: what MPI writes does not end it; what it writes itself does. */
static void a_broken_connection_does_not_end_the_process(void **state)
{
    (void)state;
    ls__net_plugin plugin = fake_plugin;
    ls__net *net;
    ls__net_request request;
    int code;
    plugin.send = write_to_a_broken_pipe;
    assert_int_equal(pipe(broken_pipe), 0);
    close(broken_pipe[0]);
    signal(SIGPIPE, SIG_DFL);
    for (int own = 0; own < 2; own++) {
        pid_t child = fork();
        if (child == 0) {
            if (ls__net_open_on(&net, &plugin, 0, 1)) _exit(2);
            if (ls__net_send(net, "", 0, 0, 1, false, &request) != LS_EIO) _exit(3);
            if (own && write(broken_pipe[1], "x", 1) == 1) _exit(4);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &code, 0), child);
        if (own)
            assert_true(WIFSIGNALED(code) && WTERMSIG(code) == SIGPIPE);
        else
            assert_int_equal(code, 0);
    }
    close(broken_pipe[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reason_without_an_end_is_cut),
        cmocka_unit_test(a_host_name_without_an_end_is_cut),
        cmocka_unit_test(notices_that_make_no_sense_do_no_harm),
        cmocka_unit_test(a_message_without_its_data_is_refused),
        cmocka_unit_test(a_broken_connection_does_not_end_the_process),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
