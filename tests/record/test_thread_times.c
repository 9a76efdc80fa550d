/* CPU time by thread: each under its name, also once it has ended. */
#include "check.h"
#include <semaphore.h>
#include <time.h>
#include "record/thread_times.h"

#define MS 1000000u

static uint64_t own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void burn(uint64_t ns)
{
    uint64_t end = own_time() + ns;
    while (own_time() < end) {
    }
}

typedef struct worker {
    uint64_t ns;
    sem_t done, leave;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    burn(w->ns);
    sem_post(&w->done);
    sem_wait(&w->leave);
    return NULL;
}

static pthread_t start_worker(worker *w, const char *name, uint64_t ns)
{
    pthread_t thread;
    w->ns = ns;
    sem_init(&w->done, 0, 0);
    sem_init(&w->leave, 0, 0);
    if (name)
        check_ok(ls__thread_start(&thread, name, work, w));
    else
        assert_int_equal(pthread_create(&thread, NULL, work, w), 0);
    if (!name) pthread_setname_np(thread, "test-other");
    sem_wait(&w->done);
    return thread;
}

static void end_worker(worker *w, pthread_t thread)
{
    sem_post(&w->leave);
    pthread_join(thread, NULL);
}

/* CPU ns under `name`. */
static uint64_t used_by(const ls__thread_times *t, const char *name)
{
    uint64_t sum = 0;
    int found = 0;
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->row[i].name, name) == 0) {
            sum += ls__thread_times_of(t, i);
            found++;
        }
    if (!found) fail_msg("no thread is called %s", name);
    return sum;
}

static void check_about(uint64_t got, uint64_t ns)
{
    if (got < ns || got > ns + 30 * MS) fail_msg("%llu ns, not %llu", (unsigned long long)got, (unsigned long long)ns);
}

static void threads_have_names_and_times(void **state)
{
    (void)state;
    static ls__thread_times t;
    worker a, b;
    ls__thread_times_open(&t);
    ls__thread_times_read(&t);
    if (!t.count) skip(); /* not available */
    uint64_t before = used_by(&t, "main");
    burn(20 * MS);
    pthread_t one = start_worker(&a, "test-one", 30 * MS), two = start_worker(&b, "test-two", 10 * MS);
    ls__thread_times_read(&t);
    check_about(used_by(&t, "main") - before, 20 * MS);
    check_about(used_by(&t, "test-one"), 30 * MS);
    check_about(used_by(&t, "test-two"), 10 * MS);
    end_worker(&a, one);
    end_worker(&b, two);
}

/* As the writer of checkpoints: a new thread each time, and mostly none at the time of a sample. */
static void threads_that_have_ended_count(void **state)
{
    (void)state;
    static ls__thread_times t;
    worker w;
    ls__thread_times_open(&t);
    ls__thread_times_read(&t);
    if (!t.count) skip();
    for (int i = 0; i < 2; i++) end_worker(&w, start_worker(&w, "test-brief", 10 * MS));
    ls__thread_times_read(&t);
    check_about(used_by(&t, "test-brief"), 20 * MS);
    pthread_t third = start_worker(&w, "test-brief", 10 * MS);
    ls__thread_times_read(&t);
    check_about(used_by(&t, "test-brief"), 30 * MS);
    end_worker(&w, third);
    ls__thread_times_read(&t);
    check_about(used_by(&t, "test-brief"), 30 * MS);
    int rows = 0;
    for (int i = 0; i < t.count; i++) rows += strcmp(t.row[i].name, "test-brief") == 0;
    assert_int_equal(rows, 1);
}

/* Threads of other libraries end without notice; what was seen of one is kept. */
static void threads_of_others_count_as_seen(void **state)
{
    (void)state;
    static ls__thread_times t;
    worker a;
    ls__thread_times_open(&t);
    ls__thread_times_read(&t);
    if (!t.count) skip();
    pthread_t one = start_worker(&a, NULL, 20 * MS);
    ls__thread_times_read(&t);
    check_about(used_by(&t, "test-other"), 20 * MS);
    end_worker(&a, one);
    ls__thread_times_read(&t);
    check_about(used_by(&t, "test-other"), 20 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_have_names_and_times),
        cmocka_unit_test(threads_that_have_ended_count),
        cmocka_unit_test(threads_of_others_count_as_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
