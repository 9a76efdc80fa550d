/* The sampler: every order is what it says, wherever and by whomever it is asked. */
#include "check.h"
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include "base/random.h"
#include "lockstep/data.h"

/* All samples of an epoch, slot by slot; returns how many. */
static size_t epoch_of(ls_sampler *s, const ls_sampler_options *o, uint64_t epoch, uint64_t *out)
{
    size_t n = 0, count;
    for (uint64_t step = 0; step < ls_sampler_steps(s); step++) {
        for (int slot = 0; slot < o->slots; slot++) {
            check_ok(ls_sampler_get(s, epoch, step, slot, out + n, &count));
            n += count;
        }
    }
    return n;
}

static void every_sample_comes_once_an_epoch(void **state)
{
    (void)state;
    const ls_order orders[] = { LS_ORDER_SHUFFLED, LS_ORDER_SEQUENTIAL };
    for (int o = 0; o < 2; o++) {
        for (uint64_t samples = 1; samples < 200; samples += 7) {
            ls_sampler_options options = { .samples = samples, .order = orders[o], .seed = 3, .rows = 3, .slots = 4 };
            ls_sampler *s;
            check_ok(ls_sampler_open(&s, &options));
            uint64_t got[256];
            uint8_t seen[256] = { 0 };
            assert_int_equal(epoch_of(s, &options, 1, got), samples);
            for (uint64_t i = 0; i < samples; i++) seen[got[i]]++;
            for (uint64_t i = 0; i < samples; i++) assert_int_equal(seen[i], 1);
            ls_sampler_free(&s);
        }
    }
}

static void a_short_last_step_gives_every_slot_its_part(void **state)
{
    (void)state;
    ls_sampler_options options = { .samples = 22, .order = LS_ORDER_SEQUENTIAL, .rows = 3, .slots = 4 };
    const size_t parts[4] = { 2, 3, 2, 3 };
    ls_sampler *s;
    uint64_t got[3];
    size_t count;
    check_ok(ls_sampler_open(&s, &options));
    assert_int_equal(ls_sampler_steps(s), 2);
    for (int slot = 0; slot < 4; slot++) {
        check_ok(ls_sampler_get(s, 0, 1, slot, got, &count));
        assert_int_equal(count, parts[slot]);
    }
    check_fails(ls_sampler_get(s, 0, 2, 0, got, &count), LS_EINVAL, "step 2, slot 0 does not exist");
    check_fails(ls_sampler_get(s, 0, 0, 4, got, &count), LS_EINVAL, "slot 4");
    ls_sampler_free(&s);
    options.drop_last = true;
    check_ok(ls_sampler_open(&s, &options));
    assert_int_equal(ls_sampler_steps(s), 1);
    ls_sampler_free(&s);
}

/* The same global order, whatever the ranks: `ranks` is only checked. */
static void order_does_not_depend_on_ranks(void **state)
{
    (void)state;
    uint64_t first[1000], got[1000];
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        ls_sampler_options options = { .samples = 1000, .seed = 9, .rows = 5, .slots = 8, .ranks = ranks };
        ls_sampler *s;
        check_ok(ls_sampler_open(&s, &options));
        size_t n = epoch_of(s, &options, 4, ranks == 1 ? first : got);
        assert_int_equal(n, 1000);
        if (ranks > 1) assert_memory_equal(first, got, sizeof got);
        ls_sampler_free(&s);
    }
}

static void a_billion_samples_cost_what_a_thousand_do(void **state)
{
    (void)state;
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        ls_sampler_options options = { .samples = i ? 1000000000 : 1000, .rows = 4, .slots = 2 };
        ls_sampler *s;
        size_t before = mallinfo2().uordblks, count;
        uint64_t got[4];
        check_ok(ls_sampler_open(&s, &options));
        check_ok(ls_sampler_get(s, 1000, ls_sampler_steps(s) - 1, 1, got, &count));
        assert_int_equal(count, 4);
        bytes[i] = mallinfo2().uordblks - before;
        ls_sampler_free(&s);
    }
    if (bytes[0] != bytes[1]) fail_msg("1,000 samples take %zu bytes, 10^9 take %zu", bytes[0], bytes[1]);
}

/* 2,000 cases that torch dealt; see make_sampler_goldens.py. */
static void torch_order_is_torchs(void **state)
{
    (void)state;
    char path[500], line[200];
    snprintf(path, sizeof path, "%s/tests/data/sampler_goldens.txt", getenv("LOCKSTEP_SOURCE"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t cases = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long samples, ranks, rank, seed, epoch, drop, shuffle, expected, hash = 0;
        if (sscanf(line, "%lu %lu %lu %lu %lu %lu %lu %lx", &samples, &ranks, &rank, &seed, &epoch, &drop, &shuffle,
                   &expected) != 8)
            continue;
        /* A rank's order is the same however its batch is cut; every third case has several slots a rank. */
        size_t rows = cases % 3 ? 21 + cases % 30 : 7, slots_a_rank = cases % 3 ? 1 : 2, count;
        ls_sampler_options options = { .samples = samples,
                                       .order = LS_ORDER_TORCH,
                                       .seed = seed,
                                       .rows = rows,
                                       .ranks = (int)ranks,
                                       .slots = (int)(ranks * slots_a_rank),
                                       .drop_last = drop,
                                       .no_shuffle = !shuffle };
        ls_sampler *s;
        uint64_t got[50];
        check_ok(ls_sampler_open(&s, &options));
        for (uint64_t step = 0; step < ls_sampler_steps(s); step++) {
            for (size_t slot = rank * slots_a_rank; slot < (rank + 1) * slots_a_rank; slot++) {
                check_ok(ls_sampler_get(s, epoch, step, (int)slot, got, &count));
                for (size_t i = 0; i < count; i++) hash = hash * 0x9e3779b97f4a7c15 + got[i] + 1;
            }
        }
        ls_sampler_free(&s);
        cases++;
        if (hash != expected) fail_msg("case %zu: %s hash %lx, torch %lx", cases, line, hash, expected);
    }
    fclose(f);
    assert_int_equal(cases, 2000);
}

/* Log-normal lengths, sigma 1, as of web documents; cut at *user tokens if given. */
enum { SAMPLES = 40001 };
static uint64_t length_of(void *user, uint64_t sample)
{
    static uint64_t lengths[SAMPLES];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!lengths[sample]) {
        double u = ls__random_uniform(11, 1, sample), v = ls__random_uniform(11, 2, sample);
        lengths[sample] = (uint64_t)exp(5.5 + sqrt(-2 * log(1 - u)) * cos(2 * 3.14159265358979 * v)) + 1;
    }
    uint64_t x = lengths[sample];
    pthread_mutex_unlock(&lock);
    return user && x > *(uint64_t *)user ? *(uint64_t *)user : x;
}

/* Mean over the steps of (most - least) / mean work of a rank, for every number of ranks: spreads[ranks]. */
enum { MAX_SLOTS = 16 };
static void spreads_of(ls_sampler *s, const ls_sampler_options *o, double spreads[MAX_SLOTS + 1])
{
    uint64_t steps = ls_sampler_steps(s) - 1; /* without the short one */
    for (uint64_t step = 0; step < steps; step++) {
        double work[MAX_SLOTS] = { 0 };
        for (int slot = 0; slot < o->slots; slot++) {
            uint64_t samples[64];
            size_t count;
            check_ok(ls_sampler_get(s, 2, step, slot, samples, &count));
            for (size_t i = 0; i < count; i++) work[slot] += (double)length_of(o->user, samples[i]);
        }
        for (int ranks = o->slots; ranks > 1; ranks /= 2) {
            double most = 0, least = INFINITY, total = 0;
            for (int rank = 0; rank < ranks; rank++) {
                double own = 0;
                for (int slot = rank * o->slots / ranks; slot < (rank + 1) * o->slots / ranks; slot++)
                    own += work[slot];
                most = fmax(most, own);
                least = fmin(least, own);
                total += own;
            }
            spreads[ranks] += (most - least) / (total / ranks) / (double)steps;
        }
    }
}

static void balanced_order_gives_ranks_equal_work(void **state)
{
    (void)state;
    const struct {
        size_t rows;
        int slots;
    } shapes[] = { { 8, 8 }, { 1, 8 }, { 4, 16 }, { 8, 2 } };
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        uint64_t cut = 2048;
        ls_sampler_options options = { .samples = SAMPLES,
                                       .seed = 5,
                                       .rows = shapes[i / 2].rows,
                                       .slots = shapes[i / 2].slots,
                                       .order = LS_ORDER_BALANCED,
                                       .length = length_of,
                                       .user = i % 2 ? &cut : NULL };
        ls_sampler *balanced, *plain;
        check_ok(ls_sampler_open(&balanced, &options));
        options.order = LS_ORDER_SHUFFLED;
        check_ok(ls_sampler_open(&plain, &options));
        double spreads[2][MAX_SLOTS + 1] = { { 0 } };
        spreads_of(balanced, &options, spreads[0]);
        spreads_of(plain, &options, spreads[1]);
        for (int ranks = shapes[i / 2].slots; ranks > 1; ranks /= 2) {
            double b = spreads[0][ranks], p = spreads[1][ranks];
            print_message("rows %zu, slots %d, ranks %d, %s: spread plain %.1f %%, balanced %.3f %%\n",
                          shapes[i / 2].rows, shapes[i / 2].slots, ranks, i % 2 ? "cut at 2,048" : "uncut", 100 * p,
                          100 * b);
            if (b > 0.02) fail_msg("balanced spread %.2f %% (at most 2 %%)", 100 * b);
            if (ranks == 8 && p < 0.30) fail_msg("the plain order's %.2f %% is no test", 100 * p);
        }
        ls_sampler_free(&balanced);
        ls_sampler_free(&plain);
    }
}

static void balanced_order_deals_every_sample_once(void **state)
{
    (void)state;
    static uint64_t got[SAMPLES];
    static uint8_t seen[SAMPLES];
    for (uint64_t samples = 1; samples <= SAMPLES; samples = samples < 60 ? samples + 1 : samples * 7) {
        ls_sampler_options options = {
            .samples = samples, .seed = 5, .rows = 3, .slots = 4, .order = LS_ORDER_BALANCED, .length = length_of
        };
        ls_sampler *s;
        check_ok(ls_sampler_open(&s, &options));
        memset(seen, 0, sizeof seen);
        assert_int_equal(epoch_of(s, &options, 0, got), samples);
        for (uint64_t i = 0; i < samples; i++)
            if (seen[got[i]]++) fail_msg("%zu samples: %zu comes twice", samples, got[i]);
        ls_sampler_free(&s);
    }
}

enum { SHARED_SAMPLES = 40000, SHARED_ROWS = 16 };
static void *read_backwards(void *arg)
{
    ls_sampler *s = arg;
    uint64_t samples[SHARED_ROWS];
    size_t count, hash = 0;
    for (uint64_t step = ls_sampler_steps(s); step--;)
        for (int slot = 2; slot--;) {
            if (ls_sampler_get(s, 1, step, slot, samples, &count)) return NULL;
            for (size_t i = count; i--;) hash = hash * 31 + samples[i];
        }
    return (void *)hash;
}

static void threads_share_a_sampler(void **state)
{
    (void)state;
    const ls_order orders[] = { LS_ORDER_TORCH, LS_ORDER_BALANCED };
    for (int o = 0; o < 2; o++) {
        ls_sampler_options options = { .samples = SHARED_SAMPLES,
                                       .order = orders[o],
                                       .rows = SHARED_ROWS,
                                       .slots = 2,
                                       .ranks = 2,
                                       .length = length_of };
        ls_sampler *s;
        check_ok(ls_sampler_open(&s, &options));
        pthread_t threads[4];
        void *hash, *expected = read_backwards(s);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, read_backwards, s);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], &hash);
            assert_ptr_equal(hash, expected);
        }
        ls_sampler_free(&s);
    }
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    ls_sampler *s;
    ls_order order;
    check_fails(ls_sampler_open(&s, &(ls_sampler_options){ 0 }), LS_EINVAL, "no samples");
    assert_null(s);
    check_fails(ls_sampler_open(&s, &(ls_sampler_options){ .samples = 9, .slots = 6, .ranks = 4 }), LS_EINVAL,
                "6 slots cannot be dealt to 4 ranks");
    check_fails(ls_sampler_open(&s, &(ls_sampler_options){ .samples = 9, .order = LS_ORDER_BALANCED }), LS_EINVAL,
                "needs the lengths");
    check_fails(ls_order_parse("random", &order), LS_EINVAL, "no order 'random'");
    check_ok(ls_order_parse("torch", &order));
    assert_int_equal(order, LS_ORDER_TORCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_comes_once_an_epoch),
        cmocka_unit_test(a_short_last_step_gives_every_slot_its_part),
        cmocka_unit_test(order_does_not_depend_on_ranks),
        cmocka_unit_test(a_billion_samples_cost_what_a_thousand_do),
        cmocka_unit_test(torch_order_is_torchs),
        cmocka_unit_test(balanced_order_gives_ranks_equal_work),
        cmocka_unit_test(balanced_order_deals_every_sample_once),
        cmocka_unit_test(threads_share_a_sampler),
        cmocka_unit_test(wrong_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
