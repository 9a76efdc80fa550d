/* Samples of the kernel's counters: time and counters are of one moment, even where the core is taken away between reading them. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "record/counters.h"

#define MS 1000000

/* Another program on this thread's core, and on no other. */
static pid_t start_rival(cpu_set_t *before)
{
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof *before, before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        for (;;) {
        }
    }
    assert_true(pid > 0);
    return pid;
}

static void what_was_lost_belongs_to_the_time_before(void **state)
{
    (void)state;
    ls__counters s;
    cpu_set_t before;
    ls__counters_open(&s, NULL);
    if (s.schedstat < 0) skip(); /* not available */
    pid_t rival = start_rival(&before);
    int64_t end = ls_now() + 400 * MS, lost = 0;
    int taken = 0, wrong = 0;
    ls__thread_counts last = ls__counters_sample(&s, ls_now());
    while (ls_now() < end) {
        s.saved = 64 * s.cost; /* as if there had been time enough to pay for it */
        s.taken = 0;
        ls__thread_counts c = ls__counters_sample(&s, ls_now());
        assert_true(c.taken);
        int64_t wall = c.time - last.time, counted = (int64_t)(c.cpu - last.cpu) + (int64_t)(c.delay - last.delay);
        lost += (int64_t)(c.delay - last.delay);
        wrong += counted > wall + MS / 2; /* less is possible: steal */
        taken++;
        last = c;
    }
    kill(rival, SIGKILL);
    waitpid(rival, NULL, 0);
    sched_setaffinity(0, sizeof before, &before);
    ls__counters_close(&s);
    if (lost < 20 * MS) skip(); /* the rival never ran */
    print_message("%d samples, %lld ms lost, %d wrong\n", taken, (long long)lost / MS, wrong);
    assert_true(wrong <= 10);
}

static void samples_are_left_out_where_they_would_cost_too_much(void **state)
{
    (void)state;
    ls__counters s;
    ls__counters_open(&s, NULL);
    int taken = 0;
    for (int i = 0; i < 100000; i++) taken += ls__counters_sample(&s, ls_now()).taken;
    ls__counters_close(&s);
    /* what was saved up, and then one each 330 times its cost */
    assert_in_range(taken, 1, 2000);
}

static void a_late_mark_is_sampled(void **state)
{
    (void)state;
    ls__counters s;
    ls__counters_open(&s, NULL);
    int64_t now = s.last;
    s.saved = 8 * s.cost; /* not enough to sample for the sake of it */
    for (int step = 0; step < 20; step++)
        for (size_t place = 0; place < 3; place++) assert_false(ls__counters_is_due(&s, now += MS, place));
    assert_true(ls__counters_is_due(&s, now += 2 * MS, 0));
    assert_false(ls__counters_is_due(&s, now += MS, 1));
    s.saved = 0;
    assert_false(ls__counters_is_due(&s, now += 2 * MS, 2));
    ls__counters_close(&s);
}

static int64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void a_sleep_is_counted_after_work(void **state)
{
    (void)state;
    ls__counters s;
    ls__counters_open(&s, NULL);
    ls__thread_counts first = ls__counters_sample(&s, ls_now());
    int64_t until = thread_cpu_ns() + 5 * MS; /* of this thread's, however busy the machine is */
    while (thread_cpu_ns() < until) {
    }
    ls__thread_counts work = ls__counters_sample(&s, ls_now());
    usleep(5000);
    ls__thread_counts slept = ls__counters_sample(&s, ls_now());
    ls__counters_close(&s);
    assert_true(first.taken && work.taken && slept.taken);
    assert_true(work.cpu - first.cpu > 4 * MS);
    assert_true(slept.voluntary > work.voluntary);
    assert_true(slept.time - work.time - (int64_t)(slept.cpu - work.cpu) > 4 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_lost_belongs_to_the_time_before),
        cmocka_unit_test(a_late_mark_is_sampled),
        cmocka_unit_test(a_sleep_is_counted_after_work),
        cmocka_unit_test(samples_are_left_out_where_they_would_cost_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
