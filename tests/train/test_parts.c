/* The parts of a training: the built-in corpus, text as a dataset. */
#include "check.h"
#include "base/file.h"
#include "folder.h"
#include "train/corpus.h"
#include "train/source.h"

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

/* ---- Text */

static void get(const ls_dataset *d, uint64_t sample, int32_t *inputs, int32_t *targets)
{
    ls_row row = { .fields = { inputs, targets } };
    check_ok(d->get(d->self, NULL, sample, &row));
    assert_int_equal(row.tokens, d->fields[0].count);
}

static void text_files_are_one_row_of_bytes(void **state)
{
    (void)state;
    ls_dataset *d;
    int32_t inputs[4], targets[4];
    const char *paths[] = { "a.txt", "empty.txt", "b.txt" };
    check_ok(ls__file_write("a.txt", "0123456", 7));
    check_ok(ls__file_write("empty.txt", "", 0));
    check_ok(ls__file_write("b.txt", "789abc\377", 7));
    check_ok(ls__source_open(&d, paths, 3, 4, 256));
    assert_int_equal(d->count, 3); /* 14 bytes: three windows of four, each with a target behind it */
    get(d, 1, inputs, targets);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(inputs[i], "4567"[i]);
        assert_int_equal(targets[i], "5678"[i]);
    }
    get(d, 2, inputs, targets);
    assert_int_equal(inputs[0], '8');
    assert_int_equal(targets[3], 'c');
    ls_dataset *part;
    check_ok(ls__slice_open(&part, d, 1, 2));
    assert_int_equal(part->count, 2);
    get(part, 1, inputs, targets);
    assert_int_equal(inputs[0], '8');
    ls_dataset_free(&part);
    ls_dataset_free(&d);
}

static void tokens_beyond_the_vocabulary_are_named(void **state)
{
    (void)state;
    ls_dataset *d;
    int32_t inputs[4], targets[4];
    ls_row row = { .fields = { inputs, targets } };
    const char *paths[] = { "v.txt" };
    check_ok(ls__file_write("v.txt", "\1\2\3\4\5\200\1\2\3", 9));
    check_ok(ls__source_open(&d, paths, 1, 4, 100));
    get(d, 0, inputs, targets);
    check_fails(d->get(d->self, NULL, 1, &row), LS_EINVAL,
                "v.txt: byte 5 is 128, beyond the model's vocabulary of 100");
    ls_dataset_free(&d);
}

static void kinds_of_files_are_told_apart(void **state)
{
    (void)state;
    ls_dataset *d;
    bool text;
    const char *mixed[] = { "a.txt", "t.bin" }, *shard[] = { "t.bin" }, *absent[] = { "absent.txt" };
    uint16_t tokens[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    int32_t inputs[4], targets[4];
    check_ok(ls__file_write("t.bin", tokens, sizeof tokens));
    check_ok(ls__source_is_text(shard, 1, &text));
    assert_false(text);
    check_ok(ls__source_open(&d, shard, 1, 4, 50257));
    assert_int_equal(d->count, 2);
    get(d, 1, inputs, targets);
    assert_int_equal(inputs[0], 5);
    assert_int_equal(targets[3], 9);
    ls_dataset_free(&d);
    check_fails(ls__source_open(&d, mixed, 2, 4, 256), LS_EINVAL, "t.bin is a token shard, but a.txt is text");
    check_fails(ls__source_open(&d, absent, 1, 4, 256), LS_ENOENT, "absent.txt");
    check_fails(ls__source_open(&d, mixed, 1, 7, 256), LS_EINVAL, "7 bytes are too few for one sequence of 7");
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_corpus_is_the_same_text_at_any_length),
        cmocka_unit_test(the_corpus_counts_right),
        cmocka_unit_test(text_files_are_one_row_of_bytes),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_named),
        cmocka_unit_test(kinds_of_files_are_told_apart),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
