/* The rule of `--workers auto`, fed with the times of imagined runs: a trainer that computes for `compute` and
 * workers that load for `load`, `cores` of which at once. */
#include "check.h"
#include "base/random.h"
#include "data/tuner.h"

typedef struct run {
    double compute, load, jitter; /* load varies by up to +- jitter of itself */
    int cores;                    /* workers that can really run at once; 0: any number */
    int max_workers;
} run;

enum { MS = 1000000 };

/* Batch by batch: each is loaded by the worker that is free first, and begun when a place is free. Returns the part of
 * the time that the trainer waited in the last half. */
static double play(const run *r, ls__tuner *t, int batches, int *settled)
{
    enum { MAX = 64, AHEAD = 2048 };
    static double taken[AHEAD]; /* when the trainer took batch n */
    double busy[MAX] = { 0 }, now = 0, last = 0, waited = 0, from = 0;
    char reason[300];
    ls__tuner_init(t, r->max_workers);
    for (int n = 0; n < batches; n++) {
        double slow = r->cores && t->workers > r->cores ? (double)t->workers / r->cores : 1;
        double load = r->load * slow * (1 + r->jitter * (2 * ls__random_uniform(1, 2, (uint64_t)n) - 1));
        int ahead = t->workers * t->prefetch, w = 0;
        for (int i = 1; i < t->workers; i++)
            if (busy[i] < busy[w]) w = i;
        double begin = n >= ahead ? taken[(n - ahead) % AHEAD] : 0;
        if (begin < busy[w]) begin = busy[w];
        busy[w] = begin + load;
        double wait = busy[w] > now ? busy[w] - now : 0;
        double compute = n ? now - last : 0;
        now += wait;
        taken[n % AHEAD] = last = now;
        if (n >= batches / 2) waited += wait;
        if (n == batches / 2) from = now;
        int before = t->workers;
        if (n && ls__tuner_feed(t, (int64_t)(wait * MS), (int64_t)(compute * MS), (int64_t)(load * MS), reason,
                                sizeof reason)) {
            print_message("  batch %d: workers %d, prefetch %d: %s\n", n, t->workers, t->prefetch, reason);
            if (t->workers != before) *settled = n;
        }
        now += r->compute;
    }
    return waited / (now - from);
}

static void settles_on_what_is_needed(void **state)
{
    (void)state;
    const struct {
        double load;
        int workers;
    } cases[] = { { 0.1, 1 }, { 0.9, 1 }, { 1.5, 2 }, { 3.5, 4 }, { 7.5, 8 }, { 20.2, 22 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r = { .compute = 10, .load = 10 * cases[i].load, .max_workers = 32 };
        ls__tuner t;
        int settled = 0;
        double waited = play(&r, &t, 400, &settled);
        print_message("load %.1f steps: %d workers, prefetch %d, settled at %d, waits %.2f %%\n", cases[i].load,
                      t.workers, t.prefetch, settled, 100 * waited);
        assert_int_equal(t.workers, cases[i].workers);
        if (settled > 50 || waited > 0.02) fail_msg("settled at batch %d, waits %.1f %%", settled, 100 * waited);
    }
}

static void load_times_that_vary_are_met_with_prefetch(void **state)
{
    (void)state;
    run r = { .compute = 10, .load = 8, .jitter = 0.9, .max_workers = 32 };
    ls__tuner t;
    int settled = 0;
    double waited = play(&r, &t, 2000, &settled);
    print_message("workers %d, prefetch %d, waits %.2f %%\n", t.workers, t.prefetch, 100 * waited);
    if (t.workers > 2 || t.prefetch < 2 || waited > 0.05) fail_msg("waits %.1f %%", 100 * waited);
}

/* A trainer that waits for something else than data, busy cores for one. */
static void prefetch_that_does_not_help_is_taken_back(void **state)
{
    (void)state;
    ls__tuner t;
    char reason[300];
    int changes = 0;
    ls__tuner_init(&t, 32);
    for (int n = 0; n < 4000; n++) {
        if (!ls__tuner_feed(&t, MS / 10, MS, MS / 100, reason, sizeof reason)) continue;
        print_message("  batch %d: workers %d, prefetch %d: %s\n", n, t.workers, t.prefetch, reason);
        changes++;
    }
    assert_int_equal(t.workers, 1);
    assert_int_equal(t.prefetch, 1);
    if (changes > 5) fail_msg("%d changes for nothing", changes);
}

static void workers_that_only_share_a_core_are_given_up(void **state)
{
    (void)state;
    run r = { .compute = 10, .load = 35, .cores = 1, .max_workers = 32 };
    ls__tuner t;
    int settled = 0;
    play(&r, &t, 400, &settled);
    assert_int_equal(t.workers, 1);
}

static void the_limit_holds(void **state)
{
    (void)state;
    run r = { .compute = 1, .load = 1000, .max_workers = 6 };
    ls__tuner t;
    int settled = 0;
    play(&r, &t, 400, &settled);
    assert_int_equal(t.workers, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settles_on_what_is_needed),
        cmocka_unit_test(load_times_that_vary_are_met_with_prefetch),
        cmocka_unit_test(prefetch_that_does_not_help_is_taken_back),
        cmocka_unit_test(workers_that_only_share_a_core_are_given_up),
        cmocka_unit_test(the_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
