/* Records without a world: what is recorded is what is read, of several records in one process, of several threads, over stops and
 * starts, and on a disk that becomes full. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include "folder.h"
#include "lockstep/measure.h"
#include "lockstep/record.h"

enum { STEPS = 6 };

static void check_ns(int64_t value, int64_t expected)
{
    if (value != expected) fail_msg("%lld, expected %lld", (long long)value, (long long)expected);
}

/* How many events of a kind a rank recorded; *last is the last one. */
static size_t count_events(const ls_run_rank *r, ls_event_kind kind, ls_event *last)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_events; i++) {
        if (r->events[i].kind != (uint32_t)kind) continue;
        n++;
        if (last) *last = r->events[i];
    }
    return n;
}

static void mark_steps(ls_record *r, int first, int count)
{
    for (int step = first; step < first + count; step++) {
        ls_record_step(r, step);
        ls_record_begin(r, LS_PHASE_DATA);
        ls_record_end(r, LS_PHASE_DATA);
        ls_record_begin(r, LS_PHASE_FORWARD);
        ls_record_end(r, LS_PHASE_FORWARD);
    }
}

/* Two ranks in one process. Rank 1 comes 5 ms late to a collective of each step. */
static void two_records_become_one_run(void **state)
{
    (void)state;
    ls_record *r[2];
    ls_run *run;
    for (int k = 0; k < 2; k++) {
        check_ok(ls_record_open(&r[k], "two/events",
                                &(ls_record_options){ .rank = k, .ranks = 2, .node = k, .transport = "ot\"her" }));
        ls_record_name(r[k], LS_NAME_SPAN, 3, "layer.weight");
        ls_record_metadata(r[k], LS_METADATA_SLOTS, 4);
        ls_record_clock(r[k], 0, 100);
    }
    int64_t now = ls_now() - STEPS * INT64_C(20000000); /* they end now */
    for (int step = 0; step < STEPS; step++, now += 20000000)
        for (int k = 0; k < 2; k++) {
            ls_record_event(r[k], now, LS_EVENT_STEP, (uint64_t)step, 0);
            ls_record_event(r[k], now + 1000, LS_EVENT_SPAN_READY, 3, 0);
            ls_record_collective(r[k], &(ls_collective){ .group = 0x123400000000,
                                                         .number = (uint64_t)step,
                                                         .kind = LS_COLLECTIVE_ALLREDUCE,
                                                         .bytes = 4096,
                                                         .arrived = now + 1000000 + k * 5000000,
                                                         .done = now + 8000000,
                                                         .blocked = 7000000 - k * 5000000 });
        }
    for (int k = 0; k < 2; k++) ls_record_event(r[k], now, LS_EVENT_STEP, STEPS, 0), ls_record_free(&r[k]);
    assert_null(r[0]);
    check_ok(ls_run_open(&run, "two", NULL));
    assert_int_equal(run->n_notes, 0);
    assert_int_equal(run->ranks, 2);
    assert_string_equal(run->rank[0].transport, "ot?her");
    assert_int_equal(run->rank[1].node, 1);
    assert_true(run->rank[0].closed && run->rank[1].closed);
    assert_true(run->rank[1].metadata[LS_METADATA_SLOTS] == 4);
    assert_string_equal(run->rank[1].span_names[3], "layer.weight");
    assert_int_equal(run->n_collectives, STEPS);
    assert_true(run->n_steps >= STEPS);
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        assert_int_equal(m->call, ls_collective_id(0x123400000000, i));
        assert_int_equal(m->kind, LS_COLLECTIVE_ALLREDUCE);
        assert_int_equal(m->bytes, 4096);
        assert_int_equal(m->last_rank, 1);
        check_ns(m->waited, 5000000);
        check_ns(run->steps[i].rank[0].ns[LS_PHASE_WAIT], 5000000);
        check_ns(run->steps[i].rank[0].ns[LS_PHASE_COMM], 2000000);
        check_ns(run->steps[i].rank[1].ns[LS_PHASE_COMM], 2000000);
    }
    ls_run_free(&run);
}

/* What is set and added before a file is started is in it; a second file has what came after the first. */
static void a_record_in_memory_is_written_once_started(void **state)
{
    (void)state;
    ls_record *r;
    ls_run *run;
    ls_event last;
    check_ok(ls_record_open(&r, NULL, NULL));
    ls_record_metadata(r, LS_METADATA_TOKENS, 12);
    ls_record_name(r, LS_NAME_OPERATION, 1, "first");
    ls_record_name(r, LS_NAME_OPERATION, 1, "second");
    mark_steps(r, 1, STEPS);
    check_ok(ls_record_start(r, "memory/one"));
    check_fails(ls_record_start(r, "memory/two"), LS_ESTATE, "already");
    ls_record_stop(r);
    mark_steps(r, 100, STEPS);
    check_ok(ls_record_start(r, "memory/two"));
    ls_record_flush(r);
    check_ok(ls_run_open(&run, "memory/two", NULL)); /* it is still open */
    assert_false(run->rank[0].closed);
    assert_int_equal(count_events(&run->rank[0], LS_EVENT_STEP, &last), STEPS);
    assert_int_equal(last.a, 100 + STEPS - 1);
    assert_true(run->rank[0].metadata[LS_METADATA_TOKENS] == 12);
    ls_run_free(&run);
    ls_record_free(&r);
    check_ok(ls_run_open(&run, "memory/one", NULL));
    assert_true(run->rank[0].closed);
    assert_int_equal(count_events(&run->rank[0], LS_EVENT_STEP, &last), STEPS);
    assert_int_equal(last.a, STEPS);
    assert_string_equal(run->rank[0].operation_names[1], "second");
    ls_run_free(&run);
}

/* Events overwritten before there was a file are not missing in it. */
static void a_late_start_misses_nothing(void **state)
{
    (void)state;
    ls_record *r;
    ls_run *run;
    check_ok(ls_record_open(&r, NULL, NULL));
    mark_steps(r, 1, 10000);
    check_ok(ls_record_start(r, "late"));
    mark_steps(r, 10001, STEPS);
    ls_record_free(&r);
    check_ok(ls_run_open(&run, "late", NULL));
    assert_int_equal(run->rank[0].lost, 0);
    assert_true(count_events(&run->rank[0], LS_EVENT_STEP, NULL) > 1000);
    ls_run_free(&run);
}

static void *add_many(void *arg)
{
    for (uint64_t i = 0; i < 1000; i++) {
        ls_record_event(arg, 0, LS_EVENT_SPAN_READY, i, 0);
        ls_record_collective(arg, &(ls_collective){ .group = 7, .number = i, .arrived = ls_now(), .done = ls_now() });
    }
    return NULL;
}

static void *make_steps(void *arg)
{
    mark_steps(arg, 50, STEPS);
    return NULL;
}

/* Any thread adds events while one makes the steps; the steps may move to another thread. */
static void threads_add_events(void **state)
{
    (void)state;
    ls_record *r;
    ls_run *run;
    pthread_t thread[2];
    check_ok(ls_record_open(&r, "threads", NULL));
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, add_many, r), 0);
    mark_steps(r, 1, STEPS);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_int_equal(pthread_create(&thread[0], NULL, make_steps, r), 0);
    pthread_join(thread[0], NULL);
    ls_record_free(&r);
    check_ok(ls_run_open(&run, "threads", NULL));
    assert_int_equal(run->rank[0].lost, 0);
    assert_int_equal(count_events(&run->rank[0], LS_EVENT_STEP, NULL), 2 * STEPS);
    assert_int_equal(count_events(&run->rank[0], LS_EVENT_SPAN_READY, NULL), 2000);
    assert_int_equal(count_events(&run->rank[0], LS_EVENT_COLL_DONE, NULL), 2000);
    ls_run_free(&run);
}

static int warnings;
static void count_warnings(void *user, ls_log_level level, const char *text)
{
    (void)user;
    warnings += level == LS_LOG_WARNING && strstr(text, "recording stopped") != NULL;
}

/* All of a ring's events come at once when nothing can be written any more: they are dropped, and the buffer of a block holds. */
static void a_full_disk_ends_the_record_and_no_more(void **state)
{
    (void)state;
    ls_record *r;
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    ls_log_set(count_warnings, NULL);
    check_ok(ls_record_open(&r, "full", NULL));
    mark_steps(r, 1, STEPS);
    ls_record_flush(r);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){ .rlim_cur = 4096, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 3; i++) {
        for (uint64_t k = 0; k < 16000; k++) ls_record_event(r, 0, LS_EVENT_OPERATION, UINT64_MAX, UINT64_MAX);
        ls_record_flush(r);
    }
    for (uint32_t i = 0; i < 5000; i++) ls_record_name(r, LS_NAME_SPAN, i, "a.name.that.is.long.enough.to.fill.blocks");
    mark_steps(r, 100, STEPS);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(warnings, 1);
    check_ok(ls_record_start(r, "full again")); /* as if it had been stopped */
    ls_record_free(&r);
    ls_log_set(NULL, NULL);
    ls_run *run;
    check_ok(ls_run_open(&run, "full", NULL));
    assert_true(count_events(&run->rank[0], LS_EVENT_STEP, NULL) >= STEPS);
    ls_run_free(&run);
    check_ok(ls_run_open(&run, "full again", NULL));
    assert_int_equal(run->rank[0].n_spans >= 5000, 1);
    ls_run_free(&run);
}

/* The file is the newer record's; the older one learns of it and must not write, or start new files, there. */
static void a_second_record_of_the_same_rank_ends_the_first(void **state)
{
    (void)state;
    ls_record *first, *second;
    ls_run *run;
    warnings = 0;
    ls_log_set(count_warnings, NULL);
    const ls_record_options small = { .segment_bytes = 1 << 18 };
    check_ok(ls_record_open(&first, "twice", &small));
    mark_steps(first, 1, STEPS);
    ls_record_flush(first);
    check_ok(ls_record_open(&second, "twice", NULL));
    mark_steps(second, 1001, STEPS);
    for (int i = 0; i < 3; i++) { /* more than a segment */
        for (uint64_t k = 0; k < 16000; k++) ls_record_event(first, 0, LS_EVENT_OPERATION, UINT64_MAX, UINT64_MAX);
        ls_record_flush(first);
    }
    assert_int_equal(warnings, 1);
    ls_record_free(&first);
    mark_steps(second, 2001, STEPS);
    ls_record_free(&second);
    assert_int_equal(warnings, 1);
    ls_log_set(NULL, NULL);
    check_ok(ls_run_open(&run, "twice", NULL));
    assert_int_equal(run->n_steps, 2 * STEPS);
    assert_int_equal(run->steps[0].number, 1001);
    ls_run_free(&run);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    ls_record *r = (ls_record *)1;
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .rank = 2, .ranks = 2 }), LS_EINVAL, "between 0 and 1");
    assert_null(r);
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .ranks = -1 }), LS_EINVAL, "ranks is -1");
    /* What no reader accepts. */
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .ranks = 65537 }), LS_EINVAL, "from 1 to 65536");
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .node = 65537 }), LS_EINVAL, "node is 65537");
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .segment_bytes = (size_t)1 << 63 }), LS_EINVAL,
                "segment_bytes is 9223372036854775808; must be at most 1099511627776");
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .ranks = 2, .local_rank = 2 }), LS_EINVAL,
                "local rank 2");
    check_fails(ls_record_open(&r, NULL, &(ls_record_options){ .transport = "infinite" }), LS_EINVAL,
                "at most 7 characters");
    check_fails(ls_record_open(NULL, NULL, NULL), LS_EINVAL, "out must not be NULL");
    check_fails(ls_record_open(&r, "/proc/none/events", NULL), LS_ENOENT, "/proc/none");
    assert_null(r);
    /* No record: nothing happens. */
    ls_record_step(NULL, 1);
    ls_record_begin(NULL, LS_PHASE_DATA);
    ls_record_end(NULL, LS_PHASE_DATA);
    ls_record_collective(NULL, &(ls_collective){ 0 });
    ls_record_event(NULL, 0, LS_EVENT_OPERATION, 0, 0);
    ls_record_metadata(NULL, LS_METADATA_TOKENS, 1);
    ls_record_name(NULL, LS_NAME_SPAN, 0, "x");
    ls_record_clock(NULL, 0, 0);
    ls_record_flush(NULL);
    ls_record_stop(NULL);
    ls_record_free(&r);
    ls_record_free(NULL);
    check_ok(ls_record_open(&r, NULL, &(ls_record_options){ .transport = "sockets" }));
    ls_record_collective(r, NULL);
    ls_record_free(&r);
    ls_run *run;
    check_ok(ls_record_open(&r, "largest", &(ls_record_options){ .segment_bytes = (size_t)1 << 40 }));
    ls_record_free(&r);
    check_ok(ls_run_open(&run, "largest", NULL));
    assert_int_equal(run->rank[0].segment_bytes, (int64_t)1 << 40);
    ls_run_free(&run);
    run = (ls_run *)1;
    check_fails(ls_run_open(&run, NULL, NULL), LS_EINVAL, "path must not be NULL");
    assert_null(run);
    check_fails(ls_run_open(NULL, "x", NULL), LS_EINVAL, "out must not be NULL");
    ls_run_free(NULL);
    check_fails(ls_record_start(NULL, "x"), LS_EINVAL, "record");
}

/* The group of all ranks has a word of its own; a hash counts with all its bits. */
static void words_of_collectives_differ(void **state)
{
    (void)state;
    assert_int_equal(ls_collective_id(0, 5), 5);
    assert_int_equal(ls_collective_id(9, 5), (uint64_t)9 << 48 | 5);
    assert_int_not_equal(ls_collective_id(0x0001000100000000, 5), 5); /* its parts cancel out */
    assert_int_not_equal(ls_collective_id(0x0001000000000000, 5), ls_collective_id(0x0002000000000000, 5));
    assert_string_equal(ls_collective_name(LS_COLLECTIVE_REDUCE_SCATTER), "reduce_scatter");
    assert_string_equal(ls_collective_name(200), "unknown");
    assert_string_equal(ls_phase_name((ls_phase)77), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_records_become_one_run),
        cmocka_unit_test(a_record_in_memory_is_written_once_started),
        cmocka_unit_test(a_late_start_misses_nothing),
        cmocka_unit_test(threads_add_events),
        cmocka_unit_test(a_full_disk_ends_the_record_and_no_more),
        cmocka_unit_test(a_second_record_of_the_same_rank_ends_the_first),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(words_of_collectives_differ),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
