/* How ranks use their devices, of made-up records: threads, power, and which ranks are busier or less busy than the median. */
#include "records.h"

#include <math.h>
#include "folder.h"

enum { STEPS = 40, MOST = 8 };

typedef struct plan {
    int ranks;
    int64_t busy[MOST];    /* ms of a step before the collective */
    int64_t off_cpu[MOST]; /* of that */
    int64_t once[MOST];    /* more, in one step of twenty */
    double peak[MOST];     /* GFLOP/s that SGEMM reached */
    bool one_core;         /* for all ranks */
    int64_t loader_from;   /* ms of the run at which a loader's thread begins; 0: at its start */
    uint64_t watts;        /* of rank 0's machine; 0: not known */
    uint64_t row, row_cpu; /* something wild: another thread sample at the end */
} plan;

static int64_t arrival(const plan *p, int k, int step)
{
    return (p->busy[k] + (step % 20 == 10 ? p->once[k] : 0)) * MS;
}

/* What the kernel counts, `ms` into the run. The main thread is on a core for 60 % and the loader for 10 % of the time. */
static void add_samples(rank_record *r, const plan *p, int64_t start, int64_t now)
{
    uint64_t ns = (uint64_t)(now - start),
             loader = ns > (uint64_t)p->loader_from * MS ? ns - (uint64_t)p->loader_from * MS : 0;
    uint64_t main_cpu = 1000 * MS + ns * 6 / 10, loader_cpu = loader / 10, rest = ns / 50;
    add(r, now, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, main_cpu + loader_cpu + rest);
    add(r, now, LS_EVENT_SAMPLE, LS_SAMPLE_RESIDENT, (uint64_t)(now - start < 1000 * MS ? 300 : 200) << 20);
    add(r, now, LS_EVENT_SAMPLE, 0 << 8 | LS_SAMPLE_THREAD, main_cpu);
    if (loader || !p->loader_from) add(r, now, LS_EVENT_SAMPLE, 1 << 8 | LS_SAMPLE_THREAD, loader_cpu);
    if (p->watts) add(r, now, LS_EVENT_SAMPLE, LS_SAMPLE_ENERGY, ns * p->watts / 1000);
}

static void make_rank(const plan *p, const char *at, int k)
{
    rank_record r;
    begin_record_on(&r, "live", k, p->ranks, 0, 0, p->one_core ? 0 : k);
    ls__event_file_name(r.file, LS_NAME_THREAD, 0, "main");
    ls__event_file_name(r.file, LS_NAME_THREAD, 1, "ls-load-0");
    ls__event_file_metadata(r.file, LS_METADATA_FLOPS, 1e9);
    if (p->peak[k] > 0) ls__event_file_metadata(r.file, LS_METADATA_PEAK, p->peak[k]);
    int64_t begin = INT64_C(3600) * 1000 * MS, start = begin, sampled = 0;
    for (int step = 1; step <= STEPS; step++) {
        int64_t mine = begin + arrival(p, k, step), last = mine;
        for (int i = 0; i < p->ranks; i++)
            if (begin + arrival(p, i, step) > last) last = begin + arrival(p, i, step);
        if (begin - sampled >= 1000 * MS) add_samples(&r, p, start, begin), sampled = begin;
        sample(&r, begin, step > 1 ? 5 * MS : 0, 0, true);
        add(&r, begin, LS_EVENT_STEP, (uint64_t)step, 0);
        add(&r, begin, LS_EVENT_PHASE_BEGIN, LS_PHASE_FORWARD, 0);
        sample(&r, mine, mine - begin - p->off_cpu[k] * MS, 0, p->off_cpu[k] > 0);
        add(&r, mine, LS_EVENT_PHASE_END, LS_PHASE_FORWARD, 0);
        add(&r, mine, LS_EVENT_COLL_START, (uint64_t)step, 1 << 20);
        add(&r, last + 2 * MS, LS_EVENT_COLL_DONE, (uint64_t)step, 0);
        add(&r, last + 2 * MS, LS_EVENT_BLOCKED, (uint64_t)step, (uint64_t)(last + 2 * MS - mine));
        begin = last + 5 * MS;
        ls__event_file_drain(r.file, false);
    }
    add_samples(&r, p, start, begin);
    if (p->row_cpu) add(&r, begin, LS_EVENT_SAMPLE, p->row << 8 | LS_SAMPLE_THREAD, p->row_cpu);
    add(&r, begin, LS_EVENT_STEP, STEPS + 1, 0);
    end_killed(&r, "live", at, k);
}

static ls_run *make_run(const plan *p, const char *at)
{
    ls_run *run;
    char events[100];
    snprintf(events, sizeof events, "%s/events", at);
    for (int k = 0; k < p->ranks; k++) make_rank(p, events, k);
    assert_int_equal(ls_run_open(&run, at, NULL), LS_OK);
    assert_int_equal(run->n_steps, STEPS);
    return run;
}

static void check_near(double got, double expected, double by)
{
    if (!(fabs(got - expected) <= by)) fail_msg("%g, not %g", got, expected);
}

static void threads_are_listed_by_name(void **state)
{
    (void)state;
    ls_run *run = make_run(&(plan){ .ranks = 1, .busy = { 95 } }, "threads");
    const ls_run_rank *r = &run->rank[0];
    assert_int_equal(r->n_thread, 3);
    assert_string_equal(r->thread[0].name, "main");
    check_near(r->thread[0].share, 0.6, 0.001);
    assert_string_equal(r->thread[1].name, "ls-load-0");
    check_near(r->thread[1].share, 0.1, 0.001);
    /* The rest of the process's time is in no row. */
    assert_string_equal(r->thread[2].name, "");
    check_near(r->thread[2].share, 0.02, 0.001);
    check_near(r->use.resident, 300 << 20, 0);
    check_near(r->use.wall, 100 * MS, 1);
    check_near(r->use.busy, 98 * MS, 1); /* all but 2 ms of communication */
    assert_true(isnan(r->use.watts) && isnan(r->use.mfu));
    ls_run_free(&run);
}

/* Nothing of it is known before; so it had used nothing. */
static void a_thread_that_begins_later_counts_from_there(void **state)
{
    (void)state;
    ls_run *run = make_run(&(plan){ .ranks = 1, .busy = { 95 }, .loader_from = 2200 }, "later");
    const ls_run_rank *r = &run->rank[0];
    assert_int_equal(r->n_thread, 3);
    check_near(r->thread[1].cpu, 180 * MS, 1 * MS);
    ls_run_free(&run);
}

static void power_is_energy_by_time(void **state)
{
    (void)state;
    ls_run *run = make_run(&(plan){ .ranks = 1, .busy = { 95 }, .watts = 80 }, "power");
    check_near(run->rank[0].use.watts, 80, 0.01);
    ls_run_free(&run);
}

static void who_waits_is_under_used_and_who_is_waited_for_over_used(void **state)
{
    (void)state;
    ls_run *run = make_run(&(plan){ .ranks = 2, .busy = { 60, 90 } }, "two");
    assert_int_equal(run->rank[0].use.level, LS_USE_UNDER);
    assert_int_equal(run->rank[1].use.level, LS_USE_OVER);
    check_near(run->rank[0].use.wait, 30 * MS, 1);
    ls_run_free(&run);
    /* Of eight, the one that all wait for; the others are as all are. */
    run = make_run(&(plan){ .ranks = 8, .busy = { 60, 60, 60, 60, 60, 90, 60, 60 } }, "eight");
    for (int k = 0; k < 8; k++) assert_int_equal(run->rank[k].use.level, k == 5 ? LS_USE_OVER : LS_USE_EVEN);
    ls_run_free(&run);
    /* And the one that has too little to do. */
    run = make_run(&(plan){ .ranks = 8, .busy = { 90, 90, 40, 90, 90, 90, 90, 90 } }, "idle");
    for (int k = 0; k < 8; k++) assert_int_equal(run->rank[k].use.level, k == 2 ? LS_USE_UNDER : LS_USE_EVEN);
    ls_run_free(&run);
}

static void small_and_rare_differences_are_no_verdict(void **state)
{
    (void)state;
    ls_run *run = make_run(&(plan){ .ranks = 2, .busy = { 87, 90 } }, "close");
    for (int k = 0; k < 2; k++) assert_int_equal(run->rank[k].use.level, LS_USE_EVEN);
    ls_run_free(&run);
    run = make_run(&(plan){ .ranks = 2, .busy = { 90, 90 }, .once = { 0, 300 } }, "once");
    for (int k = 0; k < 2; k++) assert_int_equal(run->rank[k].use.level, LS_USE_EVEN);
    ls_run_free(&run);
}

/* A rank that sleeps while others wait for it has no more to do than they. */
static void sleep_is_not_use(void **state)
{
    (void)state;
    ls_run *run = make_run(&(plan){ .ranks = 2, .busy = { 40, 90 }, .off_cpu = { 0, 50 } }, "off_cpu");
    check_near(run->rank[1].use.off_cpu, 50 * MS, 1);
    check_near(run->rank[0].use.busy, run->rank[1].use.busy, 1);
    for (int k = 0; k < 2; k++) assert_int_equal(run->rank[k].use.level, LS_USE_EVEN);
    ls_run_free(&run);
}

static void the_peak_of_shared_cores_is_the_best_that_was_seen(void **state)
{
    (void)state;
    /* With a core of its own, each has its own yardstick. */
    ls_run *run = make_run(&(plan){ .ranks = 2, .busy = { 95, 95 }, .peak = { 50, 100 } }, "peaks");
    check_near(run->rank[0].use.mfu, 1e9 / 100e6 / 50, 1e-6);
    check_near(run->rank[1].use.mfu, 1e9 / 100e6 / 100, 1e-6);
    ls_run_free(&run);
    run = make_run(&(plan){ .ranks = 2, .busy = { 95, 95 }, .peak = { 50, 100 }, .one_core = true }, "shared");
    for (int k = 0; k < 2; k++) check_near(run->rank[k].use.mfu, 1e9 / 100e6 / 100, 1e-6);
    ls_run_free(&run);
}

static void wild_rows_do_no_harm(void **state)
{
    (void)state;
    static const uint64_t rows[] = { 2, 5, 1023, 1024, UINT64_MAX >> 8 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char at[32];
        snprintf(at, sizeof at, "wild%zu", i);
        ls_run *run = make_run(&(plan){ .ranks = 1, .busy = { 95 }, .row = rows[i], .row_cpu = UINT64_MAX }, at);
        const ls_run_rank *r = &run->rank[0];
        assert_in_range(r->n_thread, 2, 1025);
        for (size_t k = 0; k < r->n_thread; k++) assert_true(r->thread[k].share >= 0);
        ls_run_free(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_listed_by_name),
        cmocka_unit_test(a_thread_that_begins_later_counts_from_there),
        cmocka_unit_test(power_is_energy_by_time),
        cmocka_unit_test(who_waits_is_under_used_and_who_is_waited_for_over_used),
        cmocka_unit_test(small_and_rare_differences_are_no_verdict),
        cmocka_unit_test(sleep_is_not_use),
        cmocka_unit_test(the_peak_of_shared_cores_is_the_best_that_was_seen),
        cmocka_unit_test(wild_rows_do_no_harm),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
