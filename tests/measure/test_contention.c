/* Cores that other programs use, in made-up records: found whoever loses them, first where they cost most, and with all that they cost. */
#include "records.h"

#include <math.h>
#include "folder.h"

enum { STEPS = 40, MOST_RANKS = 4 };

/* A step is 10 ms forward, 20 ms backward, 2 ms in which the ranks reduce, and 2 ms update: 34 ms. */
typedef struct plan {
    int ranks, cores;         /* cores: that all ranks share; 0: each has one */
    int64_t lost[MOST_RANKS]; /* ns of backward in which the rank is runnable but not scheduled, in every step */
    bool turns;               /* in even steps the even ranks lose that, in odd ones the others */
    int threads;              /* that compute in a rank; 0: one. The main one sleeps as long as it loses in forward */
    bool data;                /* all ranks wait 8 ms for data as well */
    bool
        uneven; /* of two ranks, 0 has 10 ms more to do in forward, behind which they meet, and 1 as much more in backward */
    int64_t
        calls; /* ns in which they are not scheduled while they reduce, which takes so much longer; it is a bucket then */
} plan;

static int64_t lost(const plan *p, int rank, int step)
{
    return p->turns && (step + rank) % 2 ? 0 : p->lost[rank];
}

static int64_t off_cpu(const plan *p, int rank, int step)
{
    return p->threads > 1 ? lost(p, rank, step) / 2 : 0;
}

static int64_t arrival(const plan *p, int rank, int step)
{
    return (p->data ? 38 : p->uneven ? 50 : 30) * MS + lost(p, rank, step) + off_cpu(p, rank, step);
}

static int64_t phase(rank_record *r, ls_phase which, int64_t at, int64_t work, int64_t delay, int64_t sleep)
{
    sample(r, at, 0, 0, false);
    add(r, at, LS_EVENT_PHASE_BEGIN, which, 0);
    at += work + delay + sleep;
    sample(r, at, work, delay, sleep > 0);
    add(r, at, LS_EVENT_PHASE_END, which, 0);
    return at;
}

/* Both are there, and done, at `until`. */
static int64_t meet(rank_record *r, int64_t at, int64_t until, uint64_t call)
{
    add(r, at, LS_EVENT_COLL_START, call, 8);
    add(r, until, LS_EVENT_COLL_DONE, call, 0);
    add(r, until, LS_EVENT_BLOCKED, call, (uint64_t)(until - at));
    sample(r, until, 0, 0, true);
    return until;
}

static void make_rank(const plan *p, int k, const char *to)
{
    rank_record r;
    int64_t start = INT64_C(3600) * 1000 * MS, begin = start;
    uint64_t cpu = 0;
    char head[200];
    size_t bytes = (ls__ring_bytes(1 << 14) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    r = (rank_record){ .ring = ls__ring_init(memory, 1 << 14) };
    snprintf(head, sizeof head,
             "{\"rank\":%d,\"ranks\":%d,\"node\":0,\"host\":\"h\",\"cores\":\"%d%s\",\"threads\":%d,\"start\":1}", k,
             p->ranks, p->cores ? 0 : k, p->cores > 1 ? "-" : "", p->cores ? p->cores : 1);
    r.file = ls__event_file_new(r.ring);
    assert_int_equal(ls__event_file_start(r.file, "live", k, head, 0), LS_OK);
    ls__event_file_metadata(r.file, LS_METADATA_TRAIN, 1);
    ls__event_file_metadata(r.file, LS_METADATA_THREADS, p->threads ? p->threads : 1);
    for (int step = 1; step <= STEPS + 1; step++) {
        int64_t last = 0, at = begin;
        for (int q = 0; q < p->ranks; q++) last = arrival(p, q, step) > last ? arrival(p, q, step) : last;
        add(&r, at, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, cpu);
        add(&r, at, LS_EVENT_STEP, (uint64_t)step, 0);
        if (step > STEPS) break;
        cpu += (uint64_t)((p->threads ? p->threads : 1) * 34 * MS);
        if (p->data) at = phase(&r, LS_PHASE_DATA, at, 0, 0, 8 * MS);
        at = phase(&r, LS_PHASE_FORWARD, at, (p->uneven && !k ? 20 : 10) * MS, 0, off_cpu(p, k, step));
        if (p->uneven) at = meet(&r, at, begin + 20 * MS, (uint64_t)(STEPS + step));
        at = phase(&r, LS_PHASE_BACKWARD, at, (p->uneven && k ? 30 : 20) * MS, lost(p, k, step), 0);
        assert_int_equal(at, begin + arrival(p, k, step) - (p->uneven && !k ? 10 * MS : 0));
        int64_t done = begin + last + 2 * MS + p->calls;
        if (p->calls) add(&r, at, LS_EVENT_BUCKET_READY, 0, 1 << 20);
        if (p->calls) add(&r, at, LS_EVENT_BUCKET_START, 0, (uint64_t)step);
        if (p->ranks > 1) {
            add(&r, at, LS_EVENT_COLL_START, (uint64_t)step, 1 << 20);
            add(&r, done, LS_EVENT_COLL_DONE, (uint64_t)step, 0);
            add(&r, done, LS_EVENT_BLOCKED, (uint64_t)step, (uint64_t)(done - at));
        }
        sample(&r, done, 2 * MS, p->calls, true);
        begin = phase(&r, LS_PHASE_UPDATE, done, 2 * MS, 0, 0);
        ls__event_file_drain(r.file, false);
    }
    end_killed(&r, "live", to, k);
}

static ls_run *run_of(const plan *p, const char *name)
{
    char events[100];
    ls_run *run;
    snprintf(events, sizeof events, "%s/events", name);
    for (int k = 0; k < p->ranks; k++) make_rank(p, k, events);
    assert_int_equal(ls_run_open(&run, name, NULL), LS_OK);
    return run;
}

static size_t count(const ls_run *run, ls_finding_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_findings; i++) n += run->findings[i].kind == kind;
    return n;
}

/* The first finding, and the only one of its kind: the core, of `rank`, with a step of 34 ms without it. */
static const ls_finding *check_first(const ls_run *run, int rank, const char *words)
{
    const ls_finding *f = run->findings;
    if (!run->n_findings) fail_msg("nothing was found");
    if (f->kind != LS_FINDING_CORE || count(run, LS_FINDING_CORE) != 1)
        fail_msg("first of %zu: %s", run->n_findings, f->what);
    assert_int_equal(f->rank, rank);
    if (!strstr(f->what, words)) fail_msg("'%s' is not in: %s", words, f->what);
    if (llabs(f->expected - 34 * MS) > MS) fail_msg("expected %g ms: %s", (double)f->expected / MS, f->what);
    if (llabs(f->cost + f->expected - (int64_t)ls_run_step_mean(run)) > 2) fail_msg("cost %g", (double)f->cost);
    assert_int_equal(count(run, LS_FINDING_IMBALANCE), 0);
    assert_int_equal(count(run, LS_FINDING_STEAL), 0); /* waiting has one reason, and it is not that */
    assert_int_equal(count(run, LS_FINDING_STRAGGLER), 0);
    return f;
}

static void a_rank_alone_is_told(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 1, .lost = { 30 * MS } }, "alone");
    check_first(run, -1, "rank 0 was runnable but not scheduled for 30.0 ms of a step: other programs use its cores");
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 1, .lost = { MS } }, "alone-little");
    assert_int_equal(run->n_findings, 0);
    ls_run_free(&run);
}

/* The main thread sleeps while the others have no core: both are lost. */
static void threads_that_wait_for_each_other_are_told(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 1, .cores = 2, .lost = { 20 * MS }, .threads = 2 }, "team");
    check_first(run, -1, "rank 0 was runnable but not scheduled for 20.0 ms");
    ls_run_free(&run);
}

static void what_all_lose_alike_is_told_with_all_its_cost(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .lost = { 35 * MS, 35 * MS } }, "alike");
    const ls_finding *f = check_first(run, -1, "ranks 0, 1 were runnable but not scheduled for 35.0 ms of a step");
    if (!strstr(f->evidence, "the run got 0.99 of 2 cores")) fail_msg("%s", f->evidence);
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 4, .lost = { 35 * MS, 33 * MS, 34 * MS, 35 * MS } }, "four");
    check_first(run, -1, "all 4 ranks were runnable but not scheduled for 33.0 ms to 35.0 ms of a step");
    ls_run_free(&run);
}

/* The difference between them is not what it costs. */
static void the_rank_that_loses_most_is_named_with_all_that_both_lose(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .lost = { 23 * MS, 35 * MS } }, "more");
    const ls_finding *f = check_first(run, 1, "ranks 0, 1 were runnable but not scheduled for 23.0 ms to 35.0 ms");
    if (!strstr(f->evidence, "rank 1 lost most")) fail_msg("%s", f->evidence);
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 2, .lost = { 0, 35 * MS } }, "one"); /* the other loses nothing */
    check_first(run, 1, "rank 1 was runnable but not scheduled for 35.0 ms of a step");
    ls_run_free(&run);
}

/* Then each waits for the other, half of the steps, and that is no finding of its own. */
static void what_they_lose_by_turns_is_the_cores_and_no_imbalance(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .lost = { 40 * MS, 40 * MS }, .turns = true };
    ls_run *run = run_of(&p, "turns");
    check_first(run, -1, "ranks 0, 1 were runnable but not scheduled for 20.0 ms of a step");
    ls_run_free(&run);
    p.data = true;
    run = run_of(&p, "turns-data");
    assert_int_equal(run->findings[0].kind, LS_FINDING_CORE);
    ls_run_free(&run);
}

/* Each waits for the other in every step, because of work alone. */
static void waiting_with_other_reasons_is_not_charged_to_cores(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .uneven = true }, "uneven");
    for (int r = 0; r < 2; r++) assert_true(ls_run_mean(run, r, LS_PHASE_WAIT) > 9 * MS);
    assert_int_equal(count(run, LS_FINDING_CORE), 0);
    assert_int_equal(count(run, LS_FINDING_STEAL), 0);
    assert_int_equal(count(run, LS_FINDING_STRAGGLER), 2);
    ls_run_free(&run);
}

/* What a reduction takes longer because its ranks have no core is no matter of communication. */
static void cores_lost_in_calls_are_no_exposed_communication(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .lost = { 35 * MS, 35 * MS }, .calls = 10 * MS }, "calls");
    assert_true(ls_run_mean(run, -1, LS_PHASE_COMM) > 11 * MS);
    assert_int_equal(run->findings[0].kind, LS_FINDING_CORE);
    assert_int_equal(count(run, LS_FINDING_COMM), 0);
    ls_run_free(&run);
}

/* Four ranks on two cores: that is their own doing, and no other program's. */
static void more_ranks_than_cores_are_not_others_doing(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 4, .cores = 2, .lost = { 34 * MS, 34 * MS, 34 * MS, 34 * MS } }, "crowd");
    assert_int_equal(run->n_findings, 1);
    if (!strstr(run->findings[0].what, "more ranks than cores")) fail_msg("%s", run->findings[0].what);
    assert_int_equal(run->findings[0].expected, (int64_t)ls_run_step_mean(run)); /* no gain is promised */
    ls_run_free(&run);
    /* But if they do not even get those two cores, others have them. */
    run = run_of(&(plan){ .ranks = 4, .cores = 2, .lost = { 200 * MS, 200 * MS, 200 * MS, 200 * MS } }, "crowd-others");
    assert_true(run->n_findings > 0);
    if (!strstr(run->findings[0].what, "other programs use their cores")) fail_msg("%s", run->findings[0].what);
    ls_run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_alone_is_told),
        cmocka_unit_test(threads_that_wait_for_each_other_are_told),
        cmocka_unit_test(what_all_lose_alike_is_told_with_all_its_cost),
        cmocka_unit_test(the_rank_that_loses_most_is_named_with_all_that_both_lose),
        cmocka_unit_test(what_they_lose_by_turns_is_the_cores_and_no_imbalance),
        cmocka_unit_test(waiting_with_other_reasons_is_not_charged_to_cores),
        cmocka_unit_test(cores_lost_in_calls_are_no_exposed_communication),
        cmocka_unit_test(more_ranks_than_cores_are_not_others_doing),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
