/* The loader: the same batches whatever the workers, errors in their turn, and no memory that grows. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "base/random.h"
#include "data/loader.h"
#include "lockstep/data.h"

enum { WIDTH = 5 };

/* A dataset of one's own: field 0 of sample s is s, s + 1...; field 1 its worker's mark. Loading takes `delay_us` at
 * most, at random; sample `bad` cannot be had; sample `stuck` takes until `release`. */
typedef struct numbers {
    ls_dataset dataset;
    uint64_t delay_us, bad, stuck;
    _Atomic int release, opened, freed, inits;
    _Atomic uint64_t gets;
} numbers;

static void sleep_us(uint64_t us)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000 }, NULL);
}

static ls_status numbers_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    numbers *n = self;
    atomic_fetch_add(&n->gets, 1);
    if (sample == n->bad) return ls_error_set(LS_EFORMAT, "numbers.bin: byte 77: sample %zu is bad", (size_t)sample);
    while (sample == n->stuck && !n->release) sleep_us(1000);
    if (n->delay_us) sleep_us(ls__random_u32(1, 1, sample) % n->delay_us);
    for (uint64_t i = 0; i < WIDTH; i++) ((int64_t *)row->fields[0])[i] = (int64_t)(sample + i);
    *(int32_t *)row->fields[1] = worker ? *(int32_t *)worker : -1;
    row->tokens = sample % 7;
    row->length = sample % 11;
    return LS_OK;
}

static uint64_t numbers_length(void *self, uint64_t sample)
{
    (void)self;
    return sample % 100 + 1;
}

static ls_status numbers_worker_open(void *self, int worker, void **state)
{
    numbers *n = self;
    atomic_fetch_add(&n->opened, 1);
    int32_t *mark = malloc(sizeof *mark);
    *mark = worker;
    *state = mark;
    return LS_OK;
}

static void numbers_worker_free(void *self, void *state)
{
    atomic_fetch_add(&((numbers *)self)->freed, 1);
    free(state);
}

static void numbers_init(numbers *n, uint64_t count)
{
    memset(n, 0, sizeof *n);
    n->bad = n->stuck = UINT64_MAX;
    n->dataset = (ls_dataset){ .count = count,
                               .n_fields = 2,
                               .fields = { { "numbers", LS_I64, WIDTH }, { "worker", LS_I32, 1 } },
                               .self = n,
                               .get = numbers_get,
                               .length = numbers_length,
                               .worker_open = numbers_worker_open,
                               .worker_free = numbers_worker_free };
}

static uint64_t hash_batch(uint64_t hash, const ls_batch *b)
{
    hash = (hash ^ b->epoch) * 0x9e3779b97f4a7c15 + b->step * 1000 + (uint64_t)b->slot;
    hash = hash * 31 + b->batch_size * 10000 + b->tokens * 100 + b->longest;
    for (size_t i = 0; i < b->batch_size * WIDTH; i++) hash = hash * 31 + (uint64_t)((int64_t *)b->fields[0])[i];
    for (size_t r = 0; r < b->batch_size; r++)
        if (((int64_t *)b->fields[0])[r * WIDTH] != (int64_t)b->samples[r]) return 0;
    return hash;
}

/* The hash of every (step, slot) from `from` on, as one rank sees them; hashes[step * slots + slot]. */
static void collect(const numbers *n, ls_loader_options o, const ls_loader_state *from, uint64_t *hashes)
{
    ls_loader *l;
    ls_batch *b;
    ls_status status;
    check_ok(ls_loader_open(&l, &n->dataset, &o));
    if (from) check_ok(ls_loader_seek(l, from));
    while ((status = ls_loader_next(l, &b)) == LS_OK)
        hashes[(b->epoch * ls_loader_steps(l) + b->step) * (uint64_t)o.slots + (uint64_t)b->slot] = hash_batch(1, b);
    assert_int_equal(status, LS_END);
    assert_int_equal(ls_loader_next(l, &b), LS_END);
    ls_loader_free(&l);
}

enum {
    SLOTS = 8,
    STEPS = 11,
    EPOCHS = 2,
    ALL = STEPS * SLOTS * EPOCHS
}; /* 250 samples, 3 a slot: 10 steps and a bit */

static void same_batches_for_all_workers_prefetch_and_ranks(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 250);
    n.delay_us = 30;
    for (int o = 0; o < LS_ORDER_COUNT; o++) {
        ls_loader_options options = {
            .batch_size = 3, .slots = SLOTS, .order = (ls_order)o, .seed = 4, .epochs = EPOCHS
        };
        options.torch_world_size = o == LS_ORDER_TORCH ? 2 : 0;
        uint64_t expected[ALL] = { 0 }, got[ALL];
        collect(&n, options, NULL, expected);
        for (int i = 0; i < ALL; i++) assert_int_not_equal(expected[i], 0);
        for (options.workers = LS_WORKERS_AUTO; options.workers <= 8; options.workers++) {
            options.prefetch = 1 + (options.workers * 3 + 8) % 8;
            for (options.world_size = 1; options.world_size <= 8; options.world_size += o % 2 ? 4 : 2) {
                memset(got, 0, sizeof got);
                for (options.rank = 0; options.rank < options.world_size; options.rank++)
                    collect(&n, options, NULL, got);
                if (memcmp(expected, got, sizeof got))
                    fail_msg("order %d, %d workers, prefetch %d, %d ranks: other batches", o, options.workers,
                             options.prefetch, options.world_size);
            }
            options.rank = 0;
        }
    }
}

static void any_slot_can_be_had_between_the_next_ones(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 250);
    ls_loader_options o = { .batch_size = 3, .slots = SLOTS, .seed = 4, .epochs = EPOCHS };
    uint64_t expected[ALL] = { 0 };
    collect(&n, o, NULL, expected);
    o.world_size = 3;
    o.rank = 1; /* slots 3 to 5 */
    for (o.workers = 0; o.workers <= 2; o.workers++) {
        ls_loader *l;
        ls_batch *b;
        check_ok(ls_loader_open(&l, &n.dataset, &o));
        for (int i = 0; i < 30; i++) {
            ls_loader_state at = ls_loader_get_state(l);
            at.epoch = 1;
            at.step = (uint64_t)i % STEPS;
            check_ok(ls__loader_get(l, &at, i % SLOTS, &b));
            assert_int_equal(b->slot, i % SLOTS);
            assert_int_equal(hash_batch(1, b), expected[(STEPS + i % STEPS) * SLOTS + i % SLOTS]);
            check_ok(ls_loader_next(l, &b));
            assert_int_equal(hash_batch(1, b), expected[i / 3 * SLOTS + 3 + i % 3]);
        }
        n.bad = b->samples[0]; /* a failure is returned, and is not the next batch's */
        ls_loader_state at = { .epoch = b->epoch, .step = b->step };
        check_fails(ls__loader_get(l, &at, b->slot, &b), LS_EFORMAT, "is bad");
        n.bad = UINT64_MAX;
        check_ok(ls_loader_next(l, &b));
        ls_loader_free(&l);
    }
    assert_int_equal(n.opened, n.freed);
}

/* All of workers 0 to 8, prefetch 1 to 8 and ranks 1 to 8 together take a minute or two: LOCKSTEP_FULL=1 runs them. */
static void same_batches_for_all_of_them_together(void **state)
{
    (void)state;
    enum { MANY = 840, BATCHES = 2 * MANY };
    static uint64_t expected[BATCHES], got[BATCHES];
    if (!getenv("LOCKSTEP_FULL")) skip();
    numbers n;
    numbers_init(&n, 1500);
    for (int o = 0; o < LS_ORDER_COUNT; o++) {
        ls_loader_options options = { .batch_size = 1, .slots = MANY, .order = (ls_order)o, .seed = 4, .epochs = 1 };
        options.torch_world_size = o == LS_ORDER_TORCH ? 3 : 0;
        collect(&n, options, NULL, expected);
        int runs = 0;
        for (options.workers = 0; options.workers <= 8; options.workers++)
            for (options.prefetch = 1; options.prefetch <= 8; options.prefetch++)
                for (options.world_size = 1; options.world_size <= 8; options.world_size++, runs++) {
                    memset(got, 0, sizeof got);
                    for (options.rank = 0; options.rank < options.world_size; options.rank++)
                        collect(&n, options, NULL, got);
                    options.rank = 0;
                    if (memcmp(expected, got, sizeof got))
                        fail_msg("order %d, %d workers, prefetch %d, %d ranks: other batches", o, options.workers,
                                 options.prefetch, options.world_size);
                }
        print_message("order %d: %d runs of %d batches, all the same\n", o, runs, BATCHES);
    }
}

/* 50 random positions; from each, the rest of the run on another number of ranks and workers. */
static void resuming_is_a_seek(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 250);
    ls_loader_options options = { .batch_size = 3, .slots = SLOTS, .seed = 4, .epochs = EPOCHS };
    uint64_t expected[ALL], got[ALL];
    collect(&n, options, NULL, expected);
    for (uint64_t i = 0; i < 50; i++) {
        uint32_t r = ls__random_u32(3, 3, i);
        /* run up to a step, and ask where that is */
        ls_loader_options first = options;
        first.workers = (int)(r >> 8) % 4;
        ls_loader *l;
        ls_batch *b;
        check_ok(ls_loader_open(&l, &n.dataset, &first));
        uint64_t step = r % (STEPS * EPOCHS);
        for (uint64_t k = 0; k < step * SLOTS; k++) check_ok(ls_loader_next(l, &b));
        ls_loader_state at = ls_loader_get_state(l);
        ls_loader_free(&l);
        assert_int_equal(at.epoch * STEPS + at.step, step);

        memcpy(got, expected, step * SLOTS * sizeof *got);
        memset(got + step * SLOTS, 0, sizeof got - step * SLOTS * sizeof *got);
        ls_loader_options second = options;
        second.workers = (int)(r >> 16) % 5;
        second.world_size = 1 << (r >> 24) % 4;
        for (second.rank = 0; second.rank < second.world_size; second.rank++) collect(&n, second, &at, got);
        assert_memory_equal(expected, got, sizeof got);
    }
}

static void a_seek_while_workers_run_ahead_loses_nothing(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 1000);
    n.delay_us = 100;
    ls_loader_options options = { .batch_size = 1, .workers = 4, .prefetch = 3, .order = LS_ORDER_SEQUENTIAL };
    ls_loader *l;
    ls_batch *b;
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    ls_loader_state at = ls_loader_get_state(l);
    for (uint64_t i = 0; i < 100; i++) {
        at.epoch = ls__random_u32(1, 2, i) % 3;
        at.step = ls__random_u32(1, 3, i) % 1000;
        check_ok(ls_loader_seek(l, &at));
        for (uint64_t k = 0; k < i % 7; k++) {
            check_ok(ls_loader_next(l, &b));
            uint64_t expected = (at.step + k) % 1000;
            if (b->samples[0] != expected || ((int64_t *)b->fields[0])[0] != (int64_t)expected)
                fail_msg("sought %zu, got sample %zu", expected, b->samples[0]);
        }
    }
    at.fingerprint++;
    check_fails(ls_loader_seek(l, &at), LS_EINVAL, "other data, another order");
    at.fingerprint--;
    at.step = 1000;
    check_fails(ls_loader_seek(l, &at), LS_EINVAL, "an epoch has 1000 steps");
    ls_loader_free(&l);
}

static void an_error_comes_in_its_turn(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 100);
    n.bad = 41;
    for (int workers = 0; workers <= 4; workers += 2) {
        ls_loader_options options = {
            .batch_size = 4, .workers = workers, .prefetch = 4, .order = LS_ORDER_SEQUENTIAL
        };
        ls_loader *l;
        ls_batch *b;
        check_ok(ls_loader_open(&l, &n.dataset, &options));
        for (int i = 0; i < 10; i++) check_ok(ls_loader_next(l, &b)); /* samples 0 to 39 */
        for (int again = 0; again < 2; again++)
            check_fails(ls_loader_next(l, &b), LS_EFORMAT,
                        "epoch 0, step 10, slot 0, row 1 (sample 41): numbers.bin: byte 77: sample 41 is bad");
        ls_loader_state at = ls_loader_get_state(l);
        assert_int_equal(at.step, 10);
        at.step++; /* the caller may skip it */
        check_ok(ls_loader_seek(l, &at));
        check_ok(ls_loader_next(l, &b));
        assert_int_equal(b->samples[0], 44);
        ls_loader_free(&l);
    }
}

static ls_status get_silently(void *self, void *worker, uint64_t sample, ls_row *row)
{
    (void)self, (void)worker, (void)row;
    return sample == 3 ? LS_EIO : LS_OK;
}
static ls_status open_silently(void *self, int worker, void **state)
{
    (void)self, (void)worker, (void)state;
    return LS_END;
}

/* An earlier failure of the thread is not taken for the reason. */
static void a_failure_without_a_message_has_the_status_as_its_reason(void **state)
{
    (void)state;
    ls_dataset d = { .count = 8, .n_fields = 1, .fields = { { "a", LS_I32, 1 } }, .get = get_silently };
    ls_loader_options options = { .order = LS_ORDER_SEQUENTIAL, .batch_size = 4 };
    for (options.workers = 0; options.workers < 2; options.workers++) {
        ls_loader *l;
        ls_batch *b;
        char expected[200];
        d.worker_open = NULL;
        check_ok(ls_loader_open(&l, &d, &options));
        ls_error_set(LS_EINVAL, "of another call");
        snprintf(expected, sizeof expected, "row 3 (sample 3): %s", ls_status_text(LS_EIO));
        check_fails(ls_loader_next(l, &b), LS_EIO, expected);
        ls_loader_free(&l);
        d.worker_open = open_silently;
        check_ok(ls_loader_open(&l, &d, &options));
        snprintf(expected, sizeof expected, "starting loader worker 0: %s", ls_status_text(LS_ESTATE));
        check_fails(ls_loader_next(l, &b), LS_ESTATE, expected);
        ls_loader_free(&l);
    }
}

static ls_status count_init(void *user, int worker)
{
    numbers *n = user;
    atomic_fetch_add(&n->inits, 1);
    return worker == 2 ? ls_error_set(LS_ESYS, "no GPU for worker 2") : LS_OK;
}

static void workers_persist_over_epochs_and_have_their_own_state(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 12);
    n.delay_us = 300;
    ls_loader_options options = { .batch_size = 2, .workers = 2, .epochs = 40, .worker_init = count_init, .user = &n };
    ls_loader *l;
    ls_batch *b;
    int seen[2] = { 0 };
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    while (ls_loader_next(l, &b) == LS_OK) seen[((int32_t *)b->fields[1])[0]]++;
    ls_loader_free(&l);
    assert_int_equal(seen[0] + seen[1], 6 * 40);
    if (!seen[0] || !seen[1]) fail_msg("worker 0 built %d batches, worker 1 %d", seen[0], seen[1]);
    assert_int_equal(n.inits, 2);
    assert_int_equal(n.opened, 2);
    assert_int_equal(n.freed, 2);

    options.workers = 3;
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    ls_status status;
    while ((status = ls_loader_next(l, &b)) == LS_OK) continue;
    check_fails(status, LS_ESYS, "starting loader worker 2: no GPU for worker 2");
    ls_loader_free(&l);
}

static void back_pressure_holds_the_workers(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 1000000);
    ls_loader_options options = { .batch_size = 1, .workers = 3, .prefetch = 2 };
    ls_loader *l;
    ls_batch *b;
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    for (uint64_t i = 1; i <= 20; i++) {
        check_ok(ls_loader_next(l, &b));
        sleep_us(2000);
        if (n.gets > i + 6) fail_msg("%zu batches were taken, %zu samples read; 6 may be ahead", i, (size_t)n.gets);
    }
    ls_loader_free(&l);
}

static void a_batch_that_does_not_come_is_a_timeout(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 100);
    n.stuck = 3;
    /* Long enough that on a busy machine the first three come in time. */
    ls_loader_options options = { .batch_size = 1, .workers = 2, .order = LS_ORDER_SEQUENTIAL, .timeout_ms = 1500 };
    ls_loader *l;
    ls_batch *b;
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    for (int i = 0; i < 3; i++) check_ok(ls_loader_next(l, &b));
    check_fails(ls_loader_next(l, &b), LS_ETIMEOUT, "no batch of epoch 0, step 3, slot 0 after 1.5 s; worker");
    if (!strstr(ls_error(), "has been reading sample 3 for ")) fail_msg("%s", ls_error());
    n.release = 1;
    check_ok(ls_loader_next(l, &b));
    assert_int_equal(b->samples[0], 3);
    ls_loader_free(&l);
}

static void memory_does_not_grow(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 1000);
    ls_loader_options options = { .batch_size = 4, .workers = 2 };
    ls_loader *l;
    ls_batch *b;
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    for (int i = 0; i < 1000; i++) check_ok(ls_loader_next(l, &b));
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 20000; i++) check_ok(ls_loader_next(l, &b));
    size_t after = mallinfo2().uordblks;
    /* A buffer may have been made late, when a worker was slow; 20,000 batches would show. */
    if (after > before + 10000) fail_msg("%zu bytes in use, then %zu", before, after);
    ls_loader_free(&l);
}

static void keep_log(void *user, ls_log_level level, const char *text)
{
    (void)level;
    print_message("  log: %s\n", text);
    if (!*(char *)user && strstr(text, "loader: batch")) snprintf(user, 500, "%s", text); /* the first */
}

/* A trainer that computes nothing waits all the time, on any machine: the first decision is for more workers. What is
 * decided by which times is tested in test_tuner.c. */
static void auto_starts_workers_and_says_why(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 1000);
    n.delay_us = 2000;
    ls_loader_options options = { .batch_size = 1, .workers = LS_WORKERS_AUTO, .max_workers = 4 };
    char text[500] = "";
    ls_loader *l;
    ls_batch *b;
    ls_log_set(keep_log, text);
    check_ok(ls_loader_open(&l, &n.dataset, &options));
    assert_int_equal(ls_loader_get_stats(l).workers, 1);
    int most = 1;
    for (int i = 0; i < 2000 && !*text; i++) {
        check_ok(ls_loader_next(l, &b));
        int workers = ls_loader_get_stats(l).workers;
        if (workers > most) most = workers;
    }
    ls_loader_free(&l);
    ls_log_set(NULL, NULL);
    assert_true(most > 1);
    if (!strstr(text, "workers 1 -> ") || !strstr(text, "the trainer waited")) fail_msg("the log says '%s'", text);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 10);
    ls_loader *l;
    check_fails(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .rank = 2, .world_size = 2 }), LS_EINVAL,
                "rank 2 is out of range");
    assert_null(l);
    check_fails(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .workers = 1000 }), LS_EINVAL, "1000 workers");
    check_fails(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .batch_size = 11, .drop_last = true }), LS_EINVAL,
                "cannot fill one step");
    check_fails(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .batch_size = SIZE_MAX / 8 }), LS_EINVAL,
                "too large");
    check_fails(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .slots = 2, .world_size = 3 }), LS_EINVAL,
                "2 slots cannot be spread over 3 ranks");
    ls_dataset wrong = n.dataset;
    wrong.count = 0;
    check_fails(ls_loader_open(&l, &wrong, NULL), LS_EINVAL, "has no samples; its count must be at least 1");
    wrong = n.dataset;
    wrong.get = NULL;
    check_fails(ls_loader_open(&l, &wrong, NULL), LS_EINVAL, "has no function get()");
    wrong = n.dataset;
    wrong.n_fields = 5;
    check_fails(ls_loader_open(&l, &wrong, NULL), LS_EINVAL, "has 5 fields; n_fields must be from 1 to 4");
}

/* What lay ready when a batch was asked for, and who built it when. */
static void the_queue_is_counted(void **state)
{
    (void)state;
    numbers n;
    ls_loader *l;
    ls_batch *b;
    numbers_init(&n, 250);
    int64_t start = ls_now();
    check_ok(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .batch_size = 2, .workers = 2, .prefetch = 3 }));
    ls_loader_stats s = { 0 };
    for (int i = 0; i < 200 && s.ready < 6; i++) { /* the workers have some time, and more on a busy machine */
        sleep_us(2000);
        check_ok(ls_loader_next(l, &b));
        s = ls_loader_get_stats(l);
        assert_in_range(s.ready, 0, 6);
        assert_int_equal(s.worker, ((int32_t *)b->fields[1])[0]);
        assert_true(s.built >= start && s.built <= ls_now());
    }
    assert_int_equal(s.ready, 6);
    ls_loader_free(&l);
    check_ok(ls_loader_open(&l, &n.dataset, &(ls_loader_options){ .batch_size = 2 }));
    check_ok(ls_loader_next(l, &b));
    s = ls_loader_get_stats(l);
    assert_int_equal(s.ready, 0);
    assert_int_equal(s.worker, -1);
    ls_loader_free(&l);
}

static void options_may_be_null_if_all_have_defaults(void **state)
{
    (void)state;
    numbers n;
    numbers_init(&n, 10);
    ls_loader *l;
    ls_batch *batch;
    check_ok(ls_loader_open(&l, &n.dataset, NULL));
    assert_int_equal(ls_loader_steps(l), 10);
    check_ok(ls_loader_next(l, &batch));
    assert_int_equal(batch->batch_size, 1);
    check_fails(ls_loader_next(l, NULL), LS_EINVAL, "out must not be NULL");
    check_fails(ls_loader_seek(l, NULL), LS_EINVAL, "state must not be NULL");
    ls_loader_free(&l);
    check_fails(ls_loader_open(&l, NULL, NULL), LS_EINVAL, "dataset must not be NULL");
    check_fails(ls_loader_open(NULL, &n.dataset, NULL), LS_EINVAL, "out must not be NULL");
}

static void null_arguments_are_named(void **state)
{
    (void)state;
    const char *paths[] = { "nothing" };
    ls_sampler *sampler = (ls_sampler *)1;
    ls_dataset *dataset = (ls_dataset *)1;
    ls_stage *stage = (ls_stage *)1;
    ls_tokenizer *tokenizer = (ls_tokenizer *)1;
    ls_encoder *encoder = (ls_encoder *)1;
    ls_tokenize_result result;
    uint32_t vocab_size;
    check_fails(ls_sampler_open(&sampler, NULL), LS_EINVAL, "options must not be NULL");
    uint64_t samples;
    size_t count;
    check_ok(ls_sampler_open(&sampler, &(ls_sampler_options){ .samples = 1 }));
    check_fails(ls_sampler_get_samples(sampler, 0, 0, 0, NULL, &count), LS_EINVAL, "samples must not be NULL");
    check_fails(ls_sampler_get_samples(sampler, 0, 0, 0, &samples, NULL), LS_EINVAL, "count must not be NULL");
    ls_sampler_free(&sampler);
    check_fails(ls_sampler_open(NULL, &(ls_sampler_options){ .samples = 1 }), LS_EINVAL, "out must not be NULL");
    check_fails(ls_tokens_open(&dataset, NULL), LS_EINVAL, "options must not be NULL");
    check_fails(ls_tokens_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    assert_null(dataset);
    check_fails(ls_text_open(&dataset, NULL), LS_EINVAL, "options must not be NULL");
    check_fails(ls_text_open(&dataset, &(ls_text_options){ .paths = paths, .n_paths = 1, .seq_len = 8 }), LS_EINVAL,
                "tokenizer must not be NULL");
    check_fails(ls_text_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    check_fails(ls_stage_open(&stage, paths, 1, NULL), LS_EINVAL, "options must not be NULL");
    check_fails(ls_stage_open(NULL, paths, 1, NULL), LS_EINVAL, "out must not be NULL");
    check_fails(ls_tokenizer_open(&tokenizer, NULL, NULL), LS_EINVAL, "name must not be NULL");
    check_fails(ls_tokenizer_open(NULL, "bytes", NULL), LS_EINVAL, "out must not be NULL");
    check_fails(ls_encoder_open(&encoder, NULL), LS_EINVAL, "tokenizer must not be NULL");
    check_fails(ls_encoder_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    if (sampler || dataset || stage || tokenizer || encoder) fail_msg("what could not be opened is not NULL");
    check_fails(ls_tokenize(NULL, &result), LS_EINVAL, "options must not be NULL");
    check_fails(ls_tokenize(&(ls_tokenize_options){ 0 }, NULL), LS_EINVAL, "result must not be NULL");
    check_fails(ls_tokenize(&(ls_tokenize_options){ .output = "x" }, &result), LS_EINVAL, "tokenizer must not be NULL");
    check_ok(ls_tokenizer_open(&tokenizer, "bytes", NULL));
    check_fails(ls_tokenize(&(ls_tokenize_options){ .tokenizer = tokenizer }, &result), LS_EINVAL,
                "output must not be NULL");
    check_fails(ls_bpe_train(NULL, &vocab_size), LS_EINVAL, "options must not be NULL");
    check_fails(ls_bpe_train(&(ls_bpe_options){ 0 }, NULL), LS_EINVAL, "vocab_size must not be NULL");
    ls_tokenizer_free(&tokenizer);
    ls_sampler_free(NULL);
    ls_loader_free(NULL);
    ls_tokenizer_free(NULL);
    ls_encoder_free(NULL);
    ls_dataset_free(NULL);
    ls_stage_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_counted),
        cmocka_unit_test(same_batches_for_all_workers_prefetch_and_ranks),
        cmocka_unit_test(any_slot_can_be_had_between_the_next_ones),
        cmocka_unit_test(same_batches_for_all_of_them_together),
        cmocka_unit_test(resuming_is_a_seek),
        cmocka_unit_test(a_seek_while_workers_run_ahead_loses_nothing),
        cmocka_unit_test(an_error_comes_in_its_turn),
        cmocka_unit_test(a_failure_without_a_message_has_the_status_as_its_reason),
        cmocka_unit_test(workers_persist_over_epochs_and_have_their_own_state),
        cmocka_unit_test(back_pressure_holds_the_workers),
        cmocka_unit_test(a_batch_that_does_not_come_is_a_timeout),
        cmocka_unit_test(memory_does_not_grow),
        cmocka_unit_test(auto_starts_workers_and_says_why),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(options_may_be_null_if_all_have_defaults),
        cmocka_unit_test(null_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
