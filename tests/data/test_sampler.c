/* The sampler: every order is as documented, at any position and from any thread. */
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
            check_ok(ls_sampler_get_samples(s, epoch, step, slot, out + n, &count));
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
            ls_sampler_options options = {
                .samples = samples, .order = orders[o], .seed = 3, .batch_size = 3, .slots = 4
            };
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
    ls_sampler_options options = { .samples = 22, .order = LS_ORDER_SEQUENTIAL, .batch_size = 3, .slots = 4 };
    const size_t parts[4] = { 2, 3, 2, 3 };
    ls_sampler *s;
    uint64_t got[3];
    size_t count;
    check_ok(ls_sampler_open(&s, &options));
    assert_int_equal(ls_sampler_steps(s), 2);
    for (int slot = 0; slot < 4; slot++) {
        check_ok(ls_sampler_get_samples(s, 0, 1, slot, got, &count));
        assert_int_equal(count, parts[slot]);
    }
    check_fails(ls_sampler_get_samples(s, 0, 2, 0, got, &count), LS_EINVAL, "step 2, slot 0 does not exist");
    check_fails(ls_sampler_get_samples(s, 0, 0, 4, got, &count), LS_EINVAL, "slot 4");
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
        ls_sampler_options options = { .samples = 1000, .seed = 9, .batch_size = 5, .slots = 8, .world_size = ranks };
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
        ls_sampler_options options = { .samples = i ? 1000000000 : 1000, .batch_size = 4, .slots = 2 };
        ls_sampler *s;
        size_t before = mallinfo2().uordblks, count;
        uint64_t got[4];
        check_ok(ls_sampler_open(&s, &options));
        check_ok(ls_sampler_get_samples(s, 1000, ls_sampler_steps(s) - 1, 1, got, &count));
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
                                       .batch_size = rows,
                                       .world_size = (int)ranks,
                                       .slots = (int)(ranks * slots_a_rank),
                                       .drop_last = drop,
                                       .no_shuffle = !shuffle };
        ls_sampler *s;
        uint64_t got[50];
        check_ok(ls_sampler_open(&s, &options));
        for (uint64_t step = 0; step < ls_sampler_steps(s); step++) {
            for (size_t slot = rank * slots_a_rank; slot < (rank + 1) * slots_a_rank; slot++) {
                check_ok(ls_sampler_get_samples(s, epoch, step, (int)slot, got, &count));
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

/* Lengths of documents: log-normal, sigma 1, as of web pages; or short questions and long texts. Cut at 2,048. */
enum { SAMPLES = 40001, LOGNORMAL = 0, BIMODAL = 1 };
static uint64_t lengths[2][SAMPLES];

static int make_lengths(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        double u = ls__random_uniform(11, 1, i), v = ls__random_uniform(11, 2, i);
        double normal = sqrt(-2 * log(1 - u)) * cos(2 * 3.14159265358979 * v);
        double both[2] = { exp(5.5 + normal),
                           ls__random_uniform(11, 3, i) < 0.7f ? 60 + 15 * normal : 900 + 150 * normal };
        for (int kind = 0; kind < 2; kind++) lengths[kind][i] = (uint64_t)fmin(2047, fmax(0, both[kind])) + 1;
    }
    return 0;
}

static uint64_t length_of(void *user, uint64_t sample)
{
    return ((const uint64_t *)(user ? user : lengths[LOGNORMAL]))[sample];
}

/* What micro-batches cost that are padded to their longest sample, and the steps that wait for the slowest rank. */
typedef struct work {
    double padded, critical;
} work;

/* `sets[rank]` has the samples of a rank in its order, counts[rank] of them; a step is `own` micro-batches of `rows`. */
static work work_of(uint64_t *const *sets, const size_t *counts, int ranks, size_t rows, size_t own,
                    const uint64_t *length)
{
    work w = { 0 };
    for (size_t first = 0, more = 1; more; first += rows * own) {
        double slowest = 0;
        more = 0;
        for (int r = 0; r < ranks; r++) {
            double rank = 0;
            for (size_t m = first; m < first + rows * own && m < counts[r]; m += rows) {
                size_t n = counts[r] - m < rows ? counts[r] - m : rows;
                uint64_t longest = 0;
                for (size_t i = m; i < m + n; i++)
                    if (length[sets[r][i]] > longest) longest = length[sets[r][i]];
                rank += (double)n * (double)longest;
                more++;
            }
            w.padded += rank;
            slowest = fmax(slowest, rank);
        }
        w.critical += slowest;
    }
    return w;
}

static const uint64_t *sort_by;
static int longest_first(const void *a, const void *b)
{
    uint64_t x = sort_by[*(const uint64_t *)a], y = sort_by[*(const uint64_t *)b];
    return x < y ? 1 : x > y ? -1 : 0;
}

/* transformers' get_length_grouped_indices(): mega-batches of 50 batches, sorted; the longest sample of all comes first. */
static void length_grouped(uint64_t *out, size_t n, size_t batch, const uint64_t *length)
{
    size_t mult = n / (batch * 4) < 50 ? n / (batch * 4) : 50, mega = (mult ? mult : 1) * batch, longest = 0;
    for (size_t i = 0; i < n; i++) out[i] = i;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t k = i + ls__random_u32(13, n, i) % (n - i);
        uint64_t kept = out[i];
        out[i] = out[k];
        out[k] = kept;
    }
    sort_by = length;
    for (size_t i = 0; i < n; i += mega) {
        qsort(out + i, n - i < mega ? n - i : mega, sizeof *out, longest_first);
        if (length[out[i]] > length[out[longest]]) longest = i;
    }
    uint64_t kept = out[0];
    out[0] = out[longest];
    out[longest] = kept;
}

/* Both ways in which ranks get them: sample by sample (DistributedLengthGroupedSampler), or batch by batch (Accelerate). */
static work work_of_hugging_face(size_t n, size_t rows, int ranks, size_t own, const uint64_t *length)
{
    work best = { INFINITY, INFINITY };
    uint64_t *all = malloc(n * sizeof *all), *sets[16];
    for (int r = 0; r < ranks; r++) sets[r] = malloc(n * sizeof **sets);
    for (int way = 0; way < 2; way++) {
        size_t counts[16] = { 0 };
        length_grouped(all, n, way ? rows * own : rows, length);
        for (size_t i = 0; i < n; i++) {
            size_t r = (way ? i / rows : i) % (size_t)ranks;
            sets[r][counts[r]++] = all[i];
        }
        work w = work_of(sets, counts, ranks, rows, own, length);
        best.padded = fmin(best.padded, w.padded);
        best.critical = fmin(best.critical, w.critical);
    }
    for (int r = 0; r < ranks; r++) free(sets[r]);
    free(all);
    return best;
}

/* An epoch of the sampler, for as many ranks as `own` slots each make. */
static work work_of_sampler(const ls_sampler_options *o, uint64_t epoch, int ranks)
{
    work w = { 0 };
    ls_sampler *s;
    uint64_t samples[64];
    const uint64_t *length = o->user;
    check_ok(ls_sampler_open(&s, o));
    for (uint64_t step = 0; step < ls_sampler_steps(s); step++) {
        double slowest = 0, rank = 0;
        for (int slot = 0; slot < o->slots; slot++) {
            size_t count;
            uint64_t longest = 0;
            check_ok(ls_sampler_get_samples(s, epoch, step, slot, samples, &count));
            for (size_t i = 0; i < count; i++)
                if (length[samples[i]] > longest) longest = length[samples[i]];
            if (slot % (o->slots / ranks) == 0) rank = 0;
            rank += (double)count * (double)longest;
            w.padded += (double)count * (double)longest;
            slowest = fmax(slowest, rank);
        }
        w.critical += slowest;
    }
    ls_sampler_free(&s);
    return w;
}

static void balanced_order_has_less_padding_and_waiting_than_length_grouping(void **state)
{
    (void)state;
    static const size_t counts[] = { 300, 1000, 10000, SAMPLES };
    static const struct {
        size_t rows;
        int slots;
    } shapes[] = { { 8, 2 }, { 8, 8 }, { 1, 8 }, { 4, 16 } };
    for (int kind = 0; kind < 2; kind++)
        for (size_t c = 0; c < 4; c++)
            for (size_t i = 0; i < 4; i++) {
                const uint64_t *length = lengths[kind];
                double tokens = 0;
                for (size_t k = 0; k < counts[c]; k++) tokens += (double)length[k];
                ls_sampler_options o = { .samples = counts[c],
                                         .seed = 5,
                                         .batch_size = shapes[i].rows,
                                         .slots = shapes[i].slots,
                                         .length = length_of,
                                         .user = lengths[kind] };
                for (int ranks = o.slots; ranks > 1; ranks /= 2) {
                    o.order = LS_ORDER_BALANCED;
                    work ours = work_of_sampler(&o, 2, ranks);
                    o.order = LS_ORDER_SHUFFLED;
                    work plain = work_of_sampler(&o, 2, ranks);
                    work theirs =
                        work_of_hugging_face(counts[c], o.batch_size, ranks, (size_t)(o.slots / ranks), length);
                    print_message("%s, %zu samples, %zu x %d on %d ranks: padded %.3f (length-grouped %.3f, shuffled "
                                  "%.3f), critical path %.3f (%.3f, %.3f)\n",
                                  kind ? "bimodal" : "log-normal", counts[c], o.batch_size, o.slots, ranks,
                                  ours.padded / tokens, theirs.padded / tokens, plain.padded / tokens,
                                  ours.critical / tokens * ranks, theirs.critical / tokens * ranks,
                                  plain.critical / tokens * ranks);
                    if (o.batch_size > 1 ? ours.padded >= theirs.padded : ours.padded != tokens)
                        fail_msg("padded work %.0f, length-grouped %.0f", ours.padded, theirs.padded);
                    if (ours.critical >= theirs.critical)
                        fail_msg("critical path %.0f, length-grouped %.0f", ours.critical, theirs.critical);
                    if (counts[c] >= 10000 && ours.critical > 1.04 * tokens / ranks)
                        fail_msg("the critical path is %.3f of equal work without padding",
                                 ours.critical / tokens * ranks);
                }
            }
}

/* Long batches come at any time, and next epoch a sample has other neighbours. */
static void balanced_order_is_random(void **state)
{
    (void)state;
    enum { N = 8000, ROWS = 8 };
    ls_sampler_options o = {
        .samples = N, .seed = 3, .batch_size = ROWS, .slots = 1, .order = LS_ORDER_BALANCED, .length = length_of
    };
    ls_sampler *s;
    static uint64_t batch_of[2][N];
    double mean = 0, covariance = 0, variance = 0, steps = N / ROWS, first[N / ROWS];
    check_ok(ls_sampler_open(&s, &o));
    for (uint64_t step = 0; step < N / ROWS; step++)
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            uint64_t samples[ROWS];
            size_t count;
            check_ok(ls_sampler_get_samples(s, epoch, step, 0, samples, &count));
            for (size_t i = 0; i < count; i++) batch_of[epoch][samples[i]] = step;
            if (!epoch) mean += first[step] = log((double)length_of(NULL, samples[0])) / steps;
        }
    for (uint64_t step = 0; step < N / ROWS; step++) {
        double x = (double)step - (steps - 1) / 2, y = first[step] * steps - mean * steps;
        covariance += x * y;
        variance += y * y;
    }
    double correlation = covariance / sqrt(variance * steps * (steps * steps - 1) / 12);
    if (fabs(correlation) > 0.12) fail_msg("length and step: correlation %.3f", correlation);
    size_t together[2] = { 0 };
    for (size_t i = 0; i < N; i++)
        for (size_t k = i + 1; k < N; k++) {
            if (batch_of[0][i] != batch_of[0][k]) continue;
            together[0]++;
            together[1] += batch_of[1][i] == batch_of[1][k];
        }
    print_message("%zu of %zu pairs are together in the next epoch again\n", together[1], together[0]);
    assert_true(together[1] < together[0] / 3);
    ls_sampler_free(&s);
}

static void balanced_order_deals_every_sample_once(void **state)
{
    (void)state;
    static uint64_t got[SAMPLES];
    static uint8_t seen[SAMPLES];
    for (uint64_t samples = 1; samples <= SAMPLES; samples = samples < 60 ? samples + 1 : samples * 7) {
        ls_sampler_options options = {
            .samples = samples, .seed = 5, .batch_size = 3, .slots = 4, .order = LS_ORDER_BALANCED, .length = length_of
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
            if (ls_sampler_get_samples(s, 1, step, slot, samples, &count)) return NULL;
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
                                       .batch_size = SHARED_ROWS,
                                       .slots = 2,
                                       .world_size = 2,
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

/* DataLoader(drop_last=True) on top of DistributedSampler(drop_last=True): 23 samples on 2 ranks are 11 each, of which 2 batches of
 * 4 are whole. */
static void torch_order_can_leave_out_the_short_batch(void **state)
{
    (void)state;
    uint64_t got[2][16];
    for (int step_too = 0; step_too < 2; step_too++) {
        ls_sampler_options o = {
            .samples = 23, .order = LS_ORDER_TORCH, .batch_size = 4, .world_size = 2, .seed = 7, .drop_last = true
        };
        ls_sampler *s;
        size_t n = 0, count;
        o.drop_step = step_too;
        check_ok(ls_sampler_open(&s, &o));
        for (uint64_t step = 0; step < ls_sampler_steps(s); step++, n += count)
            check_ok(ls_sampler_get_samples(s, 1, step, 1, got[step_too] + n, &count));
        assert_int_equal(n, step_too ? 8 : 11);
        ls_sampler_free(&s);
    }
    assert_memory_equal(got[0], got[1], 8 * sizeof **got);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    ls_sampler *s;
    check_fails(ls_sampler_open(&s, &(ls_sampler_options){ .samples = 9, .order = (ls_order)4 }), LS_EINVAL,
                "unknown order 4");
    check_fails(ls_sampler_open(&s, &(ls_sampler_options){ 0 }), LS_EINVAL, "number of samples");
    assert_null(s);
    check_fails(ls_sampler_open(
                    &s, &(ls_sampler_options){ .samples = 9, .order = LS_ORDER_TORCH, .slots = 6, .world_size = 4 }),
                LS_EINVAL, "cannot divide 6 slots among 4 ranks");
    check_fails(ls_sampler_open(&s, &(ls_sampler_options){ .samples = 9, .order = LS_ORDER_BALANCED }), LS_EINVAL,
                "needs the lengths");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_comes_once_an_epoch),
        cmocka_unit_test(a_short_last_step_gives_every_slot_its_part),
        cmocka_unit_test(order_does_not_depend_on_ranks),
        cmocka_unit_test(a_billion_samples_cost_what_a_thousand_do),
        cmocka_unit_test(torch_order_is_torchs),
        cmocka_unit_test(torch_order_can_leave_out_the_short_batch),
        cmocka_unit_test(balanced_order_has_less_padding_and_waiting_than_length_grouping),
        cmocka_unit_test(balanced_order_is_random),
        cmocka_unit_test(balanced_order_deals_every_sample_once),
        cmocka_unit_test(threads_share_a_sampler),
        cmocka_unit_test(wrong_options_are_named),
    };
    return cmocka_run_group_tests(tests, make_lengths, NULL);
}
