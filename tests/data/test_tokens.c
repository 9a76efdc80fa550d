/* Token shards: every format is read, many files are one, and what is wrong is named with file and byte. */
#include "folder.h"
#include <sys/resource.h>
#include "data/shard.h"
#include "data/datasets.h"
#include "lockstep/data.h"

static void write_header(ls_data_format format, size_t tokens, uint8_t *header)
{
    const ls__format *f = ls__format_of(format);
    f->write(f, tokens, header);
}

/* A shard whose token i is (first + i) mod 50000. */
static void write_shard(const char *path, ls_data_format format, uint32_t first, size_t count)
{
    uint8_t *data = malloc(LS__MAX_HEADER + 4 * count);
    size_t at = 0;
    if (format == LS_FORMAT_LLMC16 || format == LS_FORMAT_LLMC32) {
        write_header(format, count, data);
        at = LS__MAX_HEADER;
    }
    size_t width = format == LS_FORMAT_LLMC32 || format == LS_FORMAT_U32 ? 4 : 2;
    for (size_t i = 0; i < count; i++, at += width) {
        uint32_t token = (first + (uint32_t)i) % 50000;
        memcpy(data + at, &token, width);
    }
    write_file(path, data, at);
    free(data);
}

static ls_status open_tokens(ls_dataset **out, const char *path, size_t seq_len, ls_data_format format, uint32_t vocab)
{
    const char *paths[] = { path };
    return ls_tokens_open(
        out, &(ls_tokens_options){
                 .paths = paths, .n_paths = 1, .seq_len = seq_len, .format = format, .vocab_size = vocab });
}

static ls_status get(const ls_dataset *d, uint64_t sample, int32_t *inputs, int32_t *targets)
{
    ls_row row = { .fields = { inputs, targets } };
    return d->get(d->self, NULL, sample, &row);
}

static void check_samples(const ls_dataset *d, size_t seq_len)
{
    int32_t *x = malloc(seq_len * 4), *y = malloc(seq_len * 4);
    for (uint64_t s = 0; s < d->count; s++) {
        check_ok(get(d, s, x, y));
        for (size_t i = 0; i < seq_len; i++) {
            uint32_t expected = (uint32_t)((s * seq_len + i) % 50000), after = (expected + 1) % 50000;
            if ((uint32_t)x[i] != expected || (uint32_t)y[i] != after)
                fail_msg("sample %zu, token %zu: %d -> %d, expected %u -> %u", s, i, x[i], y[i], expected, after);
        }
    }
    free(x);
    free(y);
}

static void all_formats_hold_the_same_tokens(void **state)
{
    (void)state;
    for (ls_data_format f = LS_FORMAT_LLMC16; f <= LS_FORMAT_U32; f++) {
        ls_dataset *d;
        write_shard("a.bin", f, 0, 20000);
        check_ok(open_tokens(&d, "a.bin", 33, f == LS_FORMAT_U32 ? f : LS_FORMAT_AUTO, 50000));
        assert_int_equal(d->count, 19999 / 33);
        assert_int_equal(ls__tokens_count(d), 20000);
        check_samples(d, 33);
        ls_dataset_free(&d);
        assert_null(d);
    }
}

static void long_sequences_are_read_in_pieces(void **state)
{
    (void)state;
    ls_dataset *d;
    write_shard("long.bin", LS_FORMAT_U16, 0, 60001);
    for (size_t seq_len = 4095; seq_len <= 60000; seq_len = seq_len < 4098 ? seq_len + 1 : seq_len * 14) {
        check_ok(open_tokens(&d, "long.bin", seq_len, LS_FORMAT_AUTO, 0));
        check_samples(d, seq_len);
        ls_dataset_free(&d);
    }
}

/* Files of 1, 2, 3... tokens in three formats, so that a sample spans many; named and globbed, in byte order. */
static void many_files_are_one(void **state)
{
    (void)state;
    uint32_t first = 0;
    char name[40];
    for (uint32_t i = 1; i <= 60; i++) {
        snprintf(name, sizeof name, "part-%03u.bin", i);
        write_shard(name, i % 3 ? i % 3 == 1 ? LS_FORMAT_LLMC16 : LS_FORMAT_LLMC32 : LS_FORMAT_U16, first, i);
        first += i;
    }
    ls_dataset *d;
    const char *paths[] = { "part-00*.bin", "part-0[1-5]*.bin", "part-060.bin" };
    check_ok(ls_tokens_open(&d, &(ls_tokens_options){ .paths = paths, .n_paths = 3, .seq_len = 100 }));
    assert_int_equal(d->count, (first - 1) / 100);
    check_samples(d, 100);
    ls_dataset_free(&d);
}

/* With 32 descriptors allowed, 8 are kept and the others are opened for each read. */
static void more_files_than_descriptors(void **state)
{
    (void)state;
    struct rlimit before, few = { .rlim_cur = 32, .rlim_max = 0 };
    getrlimit(RLIMIT_NOFILE, &before);
    few.rlim_max = before.rlim_max;
    ls_dataset *d;
    const char *paths[] = { "part-*.bin" };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    check_ok(ls_tokens_open(&d, &(ls_tokens_options){ .paths = paths, .n_paths = 1, .seq_len = 100 }));
    check_samples(d, 100);

    /* No descriptor left at all: one message, with the file and the place. */
    int taken[32], n = 0, fd;
    while ((fd = dup(0)) >= 0) taken[n++] = fd;
    int32_t x[100], y[100];
    check_fails(get(d, d->count - 1, x, y), LS_ESYS, "Too many open files");
    if (!strstr(ls_error(), "part-05") || !strstr(ls_error(), "reading at byte")) fail_msg("%s", ls_error());
    while (n) close(taken[--n]);
    check_ok(get(d, d->count - 1, x, y)); /* nothing is lost */

    /* A file that was replaced meanwhile is not mixed in. */
    write_shard("other.bin", LS_FORMAT_U16, 0, 60);
    assert_int_equal(rename("other.bin", "part-060.bin"), 0);
    check_fails(get(d, d->count - 1, x, y), LS_EIO, "part-060.bin: the file was replaced");
    ls_dataset_free(&d);
    setrlimit(RLIMIT_NOFILE, &before);
}

static void broken_files_are_named_with_the_byte(void **state)
{
    (void)state;
    ls_dataset *d;
    uint8_t header[LS__MAX_HEADER + 10];
    write_text("empty.bin", "");
    check_fails(open_tokens(&d, "empty.bin", 4, 0, 0), LS_EFORMAT, "empty.bin: byte 0: the file is empty");
    assert_null(d);
    write_text("odd.bin", "12345");
    check_fails(open_tokens(&d, "odd.bin", 1, 0, 0), LS_EFORMAT, "odd.bin: byte 4: the file ends inside a token");
    check_fails(open_tokens(&d, "odd.bin", 1, LS_FORMAT_U32, 0), LS_EFORMAT, "odd.bin: byte 4: ");
    write_header(LS_FORMAT_LLMC16, 6, header);
    write_file("wrong.bin", header, LS__MAX_HEADER + 10);
    check_fails(open_tokens(&d, "wrong.bin", 1, 0, 0), LS_EFORMAT, "byte 8: the header has 6 tokens, the file 5");
    write_header(LS_FORMAT_LLMC16, 4, header);
    write_file("wrong.bin", header, LS__MAX_HEADER + 10);
    check_fails(open_tokens(&d, "wrong.bin", 1, 0, 0), LS_EFORMAT, "has 4 tokens, the file 5");
    write_file("short.bin", header, 100);
    check_fails(open_tokens(&d, "short.bin", 1, 0, 0), LS_EFORMAT, "byte 100: the file ends inside the header");
    write_file("none.bin", header, LS__MAX_HEADER);
    check_fails(open_tokens(&d, "none.bin", 1, 0, 0), LS_EFORMAT, "the header has 4 tokens, the file 0");
    header[4] = 9;
    write_file("version.bin", header, LS__MAX_HEADER + 8);
    check_fails(open_tokens(&d, "version.bin", 1, 0, 0), LS_EFORMAT, "byte 4: version 9 of an llm.c shard");
    check_fails(open_tokens(&d, "odd.bin", 1, LS_FORMAT_LLMC16, 0), LS_EFORMAT, "is not the magic number");
}

static void strange_files_are_refused(void **state)
{
    (void)state;
    ls_dataset *d;
    write_shard("good.bin", LS_FORMAT_U16, 0, 100);
    mkdir("folder.bin", 0777);
    mkfifo("fifo.bin", 0666);
    check_fails(open_tokens(&d, "folder.bin", 4, 0, 0), LS_ENOENT, "folder.bin: no data files in this folder");
    check_fails(open_tokens(&d, "folder.bi*", 4, 0, 0), LS_EINVAL, "folder.bin: is a folder");
    check_fails(open_tokens(&d, "fifo.bin", 4, 0, 0), LS_EINVAL, "fifo.bin: is not a regular file");
    check_fails(open_tokens(&d, "missing.bin", 4, 0, 0), LS_ENOENT, "missing.bin: cannot be opened");
    check_fails(open_tokens(&d, "nothing*.bin", 4, 0, 0), LS_ENOENT, "nothing*.bin: no file matches");
    check_fails(open_tokens(&d, "good.bin", 100, 0, 0), LS_EINVAL,
                "good.bin: byte 200: the data have only 100 tokens; a sequence length of 100 needs 101");
    check_fails(open_tokens(&d, "good.bin", 0, 0, 0), LS_EINVAL, "sequence length 0: must be >= 1");
    const char *paths[] = { "good.bin", "secret.bin", "good.bin" };
    symlink("secret.bin", "secret.bin"); /* cannot be opened, by root neither */
    check_fails(ls_tokens_open(&d, &(ls_tokens_options){ .paths = paths, .n_paths = 3, .seq_len = 4 }), LS_ESYS,
                "secret.bin: cannot be opened");
    unlink("secret.bin");
}

static void a_token_outside_the_vocabulary_is_found_when_read(void **state)
{
    (void)state;
    ls_dataset *d;
    int32_t x[10], y[10];
    write_shard("v.bin", LS_FORMAT_LLMC16, 0, 100);
    check_ok(open_tokens(&d, "v.bin", 10, 0, 57));
    check_ok(get(d, 4, x, y));
    check_fails(get(d, 5, x, y), LS_EFORMAT, "v.bin: byte 1138: token 57 (number 57) is outside the vocabulary of 57");
    ls_dataset_free(&d);
    uint32_t wide[3] = { 1, 0x80000000, 2 };
    write_file("wide.bin", wide, sizeof wide);
    check_ok(open_tokens(&d, "wide.bin", 2, LS_FORMAT_U32, 0));
    check_fails(get(d, 0, x, y), LS_EFORMAT, "wide.bin: byte 4: token 2147483648");
    ls_dataset_free(&d);
}

static void a_file_cut_while_it_is_read_is_an_error(void **state)
{
    (void)state;
    ls_dataset *d;
    int32_t x[10], y[10];
    write_shard("cut.bin", LS_FORMAT_U16, 0, 100);
    check_ok(open_tokens(&d, "cut.bin", 10, 0, 0));
    assert_int_equal(truncate("cut.bin", 50), 0);
    check_ok(get(d, 1, x, y));
    check_fails(get(d, 3, x, y), LS_EIO, "cut.bin: ends at byte 60; it had 200 bytes when reading began");
    ls_dataset_free(&d);
}

/* What is not sure is not guessed: 32-bit tokens read as 16-bit ones would have a 0 in every other place. */
static void raw_tokens_are_believed_only_if_they_look_like_it(void **state)
{
    (void)state;
    static const char text[] = "Text that somebody called .bin, with an odd \xc3\xa4, and more of it than a few bytes.";
    ls_dataset *d;
    for (uint32_t vocabulary = 50000; vocabulary <= 256000; vocabulary += 206000) {
        uint32_t tokens[500];
        for (uint32_t i = 0; i < 500; i++) tokens[i] = i * 7919 % vocabulary;
        write_file("wide.bin", tokens, sizeof tokens);
        check_fails(open_tokens(&d, "wide.bin", 4, 0, 0), LS_EFORMAT,
                    "wide.bin: byte 0: looks like 32-bit tokens, not 16-bit; set the format: u16 or u32");
        check_ok(open_tokens(&d, "wide.bin", 4, LS_FORMAT_U32, 0));
        assert_int_equal(ls__tokens_count(d), 500);
        ls_dataset_free(&d);
        check_ok(open_tokens(&d, "wide.bin", 4, LS_FORMAT_U16, 0)); /* asked for */
        ls_dataset_free(&d);
    }
    int64_t longs[500];
    for (int64_t i = 0; i < 500; i++) longs[i] = i * 977;
    write_file("long.bin", longs, sizeof longs);
    check_fails(open_tokens(&d, "long.bin", 4, 0, 0), LS_EFORMAT, "long.bin: byte 0: looks like 64-bit numbers");
    write_text("text.bin", text);
    check_fails(open_tokens(&d, "text.bin", 4, 0, 0), LS_EFORMAT, "text.bin: byte 0: looks like text, not tokens");
    write_shard("tokens.dat", LS_FORMAT_U16, 0, 100);
    check_fails(open_tokens(&d, "tokens.dat", 4, 0, 0), LS_EFORMAT, "the name does not end in .bin");
    check_ok(open_tokens(&d, "tokens.dat", 4, LS_FORMAT_U16, 0));
    ls_dataset_free(&d);
    write_shard("llmc.dat", LS_FORMAT_LLMC16, 0, 100);
    check_ok(open_tokens(&d, "llmc.dat", 4, 0, 0));
    ls_dataset_free(&d);
    check_fails(open_tokens(&d, "llmc.dat", 4, LS_FORMAT_U16, 0), LS_EFORMAT,
                "begins with the header of format llmc16");

    /* Other files of llm.c, and what else may be called .bin. */
    uint32_t evaluation[300] = { 20240522, 1, 4, 10 };
    write_file("hellaswag_val.bin", evaluation, sizeof evaluation);
    check_fails(open_tokens(&d, "hellaswag_val.bin", 4, 0, 0), LS_EFORMAT, "is an evaluation file of llm.c");
    write_file("pytorch_model.bin", "PK\3\4 and so on, and on", 22);
    check_fails(open_tokens(&d, "pytorch_model.bin", 4, 0, 0), LS_EFORMAT, "is a ZIP archive, not a token shard");
    /* A mark of two bytes may be a token. */
    uint16_t tokens[40] = { 0xfeff, 0x1234 };
    for (int i = 2; i < 40; i++) tokens[i] = (uint16_t)(i * 977);
    write_file("mark.bin", tokens, sizeof tokens);
    check_ok(open_tokens(&d, "mark.bin", 4, 0, 0));
    ls_dataset_free(&d);
}

static void a_sample_that_does_not_exist_is_an_error(void **state)
{
    (void)state;
    ls_dataset *d;
    int32_t x[10], y[10];
    write_shard("few.bin", LS_FORMAT_U16, 0, 101);
    check_ok(open_tokens(&d, "few.bin", 10, LS_FORMAT_U16, 0));
    assert_int_equal(d->count, 10);
    check_ok(get(d, 9, x, y));
    check_fails(get(d, 10, x, y), LS_EINVAL, "sample 10 does not exist; the dataset has 10 samples, from 0");
    check_fails(get(d, UINT64_MAX, x, y), LS_EINVAL, "does not exist");
    check_fails(get(d, UINT64_MAX / 10 + 1, x, y), LS_EINVAL, "does not exist"); /* times 10 it wraps around */
    ls_dataset_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_that_does_not_exist_is_an_error),
        cmocka_unit_test(all_formats_hold_the_same_tokens),
        cmocka_unit_test(long_sequences_are_read_in_pieces),
        cmocka_unit_test(many_files_are_one),
        cmocka_unit_test(more_files_than_descriptors),
        cmocka_unit_test(broken_files_are_named_with_the_byte),
        cmocka_unit_test(strange_files_are_refused),
        cmocka_unit_test(raw_tokens_are_believed_only_if_they_look_like_it),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_found_when_read),
        cmocka_unit_test(a_file_cut_while_it_is_read_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
