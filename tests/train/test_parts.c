/* The parts of a training: the built-in corpus, which file is what. */
#include "check.h"
#include "base/file.h"
#include "folder.h"
#include <math.h>
#include "train/corpus.h"
#include "train/hold_out.h"
#include "train/loading.h"
#include "train/source.h"

static ls_status source_open(ls_dataset **out, const char *const *paths, size_t n, const ls_tokenizer *tokenizer,
                             int length, int vocab)
{
    ls_train_options o = { .seq_len = length, .model = { .vocab_size = vocab } };
    return ls__source_open(out, paths, n, tokenizer, &o, NULL);
}

static void the_corpus_is_the_same_text_at_any_length(void **state)
{
    (void)state;
    static char a[20001], b[5000];
    ls__corpus_fill(a, 20000, 0);
    ls__corpus_fill(b, 5000, 0);
    assert_memory_equal(a, b, 5000);
    assert_null(memchr(a, 0, 20000));
    assert_null(strchr(a, '{'));
    ls__corpus_fill(b, 5000, 1);
    assert_memory_not_equal(a, b, 5000);
}

static void the_corpus_counts_right(void **state)
{
    (void)state;
    static char text[100001];
    int sums = 0;
    ls__corpus_fill(text, 100000, 0);
    for (const char *p = text; (p = strstr(p, " and ")); p++) {
        int a, b, c;
        const char *start = p;
        while (start > text && start[-1] != '"') start--;
        if (sscanf(start, "%d and %d is %d", &a, &b, &c) != 3) continue;
        assert_int_equal(a + b, c);
        sums++;
    }
    assert_true(sums > 20);
}

/* ---- Sources */

static void get(const ls_dataset *d, uint64_t sample, int32_t *inputs, int32_t *targets)
{
    ls_row row = { .fields = { inputs, targets } };
    void *worker = NULL;
    if (d->worker_open) check_ok(d->worker_open(d->self, 0, &worker));
    check_ok(d->get(d->self, worker, sample, &row));
    if (d->worker_free) d->worker_free(d->self, worker);
    assert_int_equal(row.tokens, d->fields[0].count);
}

static void the_built_in_corpus_is_windows_of_bytes(void **state)
{
    (void)state;
    static char text[1000];
    int32_t inputs[10], targets[10];
    ls_dataset *d;
    ls__corpus_fill(text, sizeof text, 0);
    check_ok(source_open(&d, NULL, 0, NULL, 10, 257));
    assert_int_equal(d->count, ((512 << 10) - 1) / 10);
    get(d, 7, inputs, targets);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(inputs[i], text[70 + i]);
        assert_int_equal(targets[i], text[71 + i]);
    }
    get(d, d->count - 1, inputs, targets);
    ls_dataset_free(&d);
    check_fails(source_open(&d, NULL, 0, NULL, 512 << 10, 257), LS_EINVAL, "built-in corpus has 524288 bytes");
}

static void held_out_samples_are_a_random_part(void **state)
{
    (void)state;
    static uint8_t seen[5000];
    const double fractions[] = { 0.001, 0.05, 0.1, 0.5, 0.9 };
    for (uint64_t n = 2; n < 5000; n = n < 40 ? n + 1 : n * 3 / 2)
        for (int f = 0; f < 5; f++) {
            ls__sample_split h = ls__hold_out_plan(n, fractions[f], 7);
            uint64_t held = ls__hold_out_count(&h, true), before[2] = { 0 };
            double wanted = fmax(1, fmin((double)n - 1, fractions[f] * (double)n));
            if (held < 1 || fabs((double)held - wanted) > 0.5 + 0.07 * wanted)
                fail_msg("%zu of %zu samples held out, not %g", (size_t)held, (size_t)n, wanted);
            assert_int_equal(held + ls__hold_out_count(&h, false), n);
            memset(seen, 0, sizeof seen);
            for (int part = 0; part < 2; part++)
                for (uint64_t i = 0; i < ls__hold_out_count(&h, part); i++) {
                    uint64_t sample = ls__hold_out_at(&h, part, i);
                    if (sample >= n || seen[sample]++)
                        fail_msg("%zu samples: %zu is there twice", (size_t)n, (size_t)sample);
                    if (i && sample <= before[part]) fail_msg("part %d is not in order at %zu", part, (size_t)i);
                    before[part] = sample;
                }
        }
    /* Another seed, another part; and it is not the data's end. */
    ls__sample_split one = ls__hold_out_plan(1000, 0.05, 1), two = ls__hold_out_plan(1000, 0.05, 2);
    uint64_t same = 0, late = 0, count = ls__hold_out_count(&one, true);
    for (uint64_t i = 0; i < count; i++) {
        late += ls__hold_out_at(&one, true, i) >= 500;
        for (uint64_t k = 0; k < count; k++) same += ls__hold_out_at(&one, true, i) == ls__hold_out_at(&two, true, k);
    }
    if (same > count / 3 || late < count / 3 || late > count * 2 / 3)
        fail_msg("of %zu held out, %zu are with another seed, too, and %zu of the second half", (size_t)count,
                 (size_t)same, (size_t)late);
}

static void a_part_reads_its_samples_of_the_whole(void **state)
{
    (void)state;
    ls_dataset *d, *part;
    int32_t inputs[4], targets[4], again[4];
    check_ok(source_open(&d, NULL, 0, NULL, 4, 257));
    ls__sample_split h = ls__hold_out_plan(d->count, 0.05, 3);
    check_ok(ls__part_open(&part, d, &h, true));
    assert_int_equal(part->count, ls__hold_out_count(&h, true));
    get(d, ls__hold_out_at(&h, true, 11), inputs, targets);
    get(part, 11, again, targets);
    assert_memory_equal(inputs, again, sizeof inputs);
    ls_dataset_free(&part);
    ls_dataset_free(&d);
}

static void kinds_of_files_are_told_apart(void **state)
{
    (void)state;
    ls_dataset *d;
    ls_tokenizer *bytes;
    bool text;
    check_ok(ls_tokenizer_open(&bytes, "bytes", NULL));
    check_ok(ls__file_write("a.txt", "0123456", 7));
    const char *mixed[] = { "a.txt", "t.bin" }, *shard[] = { "t.bin" }, *absent[] = { "absent.txt" };
    uint16_t tokens[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    int32_t inputs[4], targets[4];
    check_ok(ls__file_write("t.bin", tokens, sizeof tokens));
    check_ok(ls__source_is_text(shard, 1, &(ls_train_options){ 0 }, &text));
    assert_false(text);
    check_ok(source_open(&d, shard, 1, NULL, 4, 50257));
    assert_int_equal(d->count, 2);
    get(d, 1, inputs, targets);
    assert_int_equal(inputs[0], 5);
    assert_int_equal(targets[3], 9);
    ls_dataset_free(&d);
    check_ok(source_open(&d, mixed, 1, bytes, 4, 257));
    get(d, 0, inputs, targets);
    assert_int_equal(inputs[0], '0');
    assert_int_equal(targets[3], '4');
    ls_dataset_free(&d);
    check_fails(source_open(&d, mixed, 2, bytes, 4, 257), LS_EINVAL, "t.bin is a token shard, but a.txt is text");
    check_fails(source_open(&d, absent, 1, bytes, 4, 257), LS_ENOENT, "absent.txt");
    assert_null(d);
    ls_tokenizer_free(&bytes);
}

static void the_rank_whose_data_come_late_is_named(void **state)
{
    (void)state;
    char text[400];
    static const int workers[3] = { 2, 1, 2 };
    ls__data_load all[3] = {
        { .wall = 1000, .waited = 10, .batches = 30, .missed = -1, .build = 90 },
        { .wall = 1000, .waited = 420, .batches = 30, .missed = -1, .build = 450 },
        { .wall = 1000, .waited = 30, .batches = 30, .missed = -1, .build = 90 },
    };
    assert_int_equal(ls__loading_describe(all, workers, 3, text, sizeof text), LS__DATA_STALLS_RANK);
    if (!strstr(text, "rank 1's data arrive late") || !strstr(text, "waited 42 %") || !strstr(text, "rank 0 1 %") ||
        !strstr(text, "15.0 ms to load (rank 0: 3.0 ms) with 1 worker"))
        fail_msg("%s", text);
    /* A rank that waits much longer than its batches take to build has lost the time otherwise. */
    all[1].build = 3;
    assert_int_equal(ls__loading_describe(all, workers, 3, text, sizeof text), LS__DATA_KEEPS_UP);
    for (int r = 0; r < 3; r++) all[r].waited = 400, all[r].build = 600;
    assert_int_equal(ls__loading_describe(all, workers, 3, text, sizeof text), LS__DATA_STALLS_ALL);
    if (!strstr(text, "40 % of the time was spent waiting for batches; one takes 20.0 ms")) fail_msg("%s", text);
    assert_int_equal(ls__loading_describe(all + 1, workers, 1, text, sizeof text), LS__DATA_STALLS_ALL);
    assert_int_equal(ls__loading_describe((ls__data_load[2]){ { 0 } }, workers, 2, text, sizeof text),
                     LS__DATA_KEEPS_UP);
}

static ls_status note_redirect(void *self, size_t file, const char *path)
{
    snprintf(self, 100, "%zu %s", file, path);
    return LS_OK;
}

static void a_part_passes_on_where_files_went(void **state)
{
    (void)state;
    char note[100] = "";
    ls_dataset whole = { .count = 10, .n_fields = 1, .self = note, .redirect = note_redirect }, *part;
    ls__sample_split h = ls__hold_out_plan(10, 0.5, 0);
    check_ok(ls__part_open(&part, &whole, &h, false));
    check_ok(part->redirect(part->self, 3, "copy"));
    assert_string_equal(note, "3 copy");
    assert_null(part->length);
    ls_dataset_free(&part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_corpus_is_the_same_text_at_any_length),
        cmocka_unit_test(the_corpus_counts_right),
        cmocka_unit_test(the_built_in_corpus_is_windows_of_bytes),
        cmocka_unit_test(held_out_samples_are_a_random_part),
        cmocka_unit_test(a_part_reads_its_samples_of_the_whole),
        cmocka_unit_test(kinds_of_files_are_told_apart),
        cmocka_unit_test(the_rank_whose_data_come_late_is_named),
        cmocka_unit_test(a_part_passes_on_where_files_went),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
