/* Which files are meant, what they are, and what happens with those that are something else. */
#include "folder.h"
#include "base/log.h"
#include "data/names.h"
#include "data/recognize.h"
#include "data/datasets.h"
#include "lockstep/data.h"

static char logged[4000];

static void keep_log(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level < LS_LOG_WARNING) return;
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

static void check_names(const char *path, const char *expected)
{
    ls__names names;
    char got[1000] = "";
    check_ok(ls__names_find(&names, &path, 1));
    for (size_t i = 0; i < names.count; i++) {
        strcat(got, i ? " " : "");
        strcat(got, names.items[i]);
    }
    if (strcmp(got, expected)) fail_msg("%s: '%s', expected '%s'", path, got, expected);
    ls__names_free(&names);
}

static void a_folder_stands_for_its_data(void **state)
{
    (void)state;
    static const char *const files[] = { "b.txt",     "a.jsonl",   "c.ndjson.gz", "d.json.zst", "e.text.zst",
                                         "README.md", "info.json", "f.parquet",   ".g.txt",     "Z.TXT" };
    mkdir("dir", 0777);
    mkdir("dir/deep.txt", 0777);
    write_text("dir/deep.txt/x.txt", "x");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[100];
        snprintf(path, sizeof path, "dir/%s", files[i]);
        write_text(path, "x");
    }
    check_names("dir", "dir/Z.TXT dir/a.jsonl dir/b.txt dir/c.ndjson.gz dir/d.json.zst dir/e.text.zst");
    check_names("dir/", "dir/Z.TXT dir/a.jsonl dir/b.txt dir/c.ndjson.gz dir/d.json.zst dir/e.text.zst");
    check_names("dir/*.md", "dir/README.md");

    ls__names names;
    mkdir("none", 0777);
    write_text("none/x.parquet", "PAR1");
    const char *none[] = { "none" };
    check_fails(ls__names_find(&names, none, 1), LS_ENOENT,
                "none: no data files in this folder: 1 file, like x.parquet, has no known suffix (");
    write_text("none/y.parquet", "PAR1");
    check_fails(ls__names_find(&names, none, 1), LS_ENOENT, ".parquet, have no known suffix (");
    mkdir("empty", 0777);
    none[0] = "empty";
    check_fails(ls__names_find(&names, none, 1), LS_ENOENT, "empty: no data files in this folder: it has no files;");
    none[0] = "";
    check_fails(ls__names_find(&names, none, 1), LS_EINVAL, "the name of a data file is empty");

    /* Files for training and for validation are not mixed by accident. */
    mkdir("parts", 0777);
    write_text("parts/fineweb_train_000001.bin", "x");
    write_text("parts/fineweb_values_000000.bin", "x"); /* no such word */
    const char *parts[] = { "parts" };
    check_ok(ls__names_find(&names, parts, 1));
    ls__names_free(&names);
    write_text("parts/fineweb_val_000000.bin", "x");
    check_fails(
        ls__names_find(&names, parts, 1), LS_EINVAL,
        "parts: has both training files (fineweb_train_000001.bin) and validation files (fineweb_val_000000.bin)");
    check_names("parts/*train*.bin", "parts/fineweb_train_000001.bin");
}

static ls_status open_text(ls_dataset **d, const char *path, ls_data_format format)
{
    static ls_tokenizer *bytes; /* one for all */
    const char *paths[] = { path };
    if (!bytes) check_ok(ls_tokenizer_open(&bytes, "bytes", NULL));
    if (!path) {
        ls_tokenizer_free(&bytes);
        return LS_OK;
    }
    return ls_text_open(d, &(ls_text_options){
                               .paths = paths, .n_paths = 1, .tokenizer = bytes, .seq_len = 2, .format = format });
}

static void empty_files_are_skipped_with_a_warning(void **state)
{
    (void)state;
    ls_dataset *d;
    mkdir("some", 0777);
    write_text("some/a.txt", "");
    write_text("some/b.txt", "0123456789");
    write_text("some/c.txt", "");
    logged[0] = 0;
    check_ok(open_text(&d, "some", 0));
    assert_int_equal(d->count, 5);
    assert_string_equal(logged, "2 empty files skipped; the first is some/a.txt\n");
    ls_dataset_free(&d);
    check_fails(open_text(&d, "some/[ac].txt", 0), LS_EFORMAT, "some/a.txt: byte 0: the file is empty");

    uint16_t tokens[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    const char *paths[] = { "none.bin", "nine.bin" };
    write_file("nine.bin", tokens, sizeof tokens);
    write_text("none.bin", "");
    logged[0] = 0;
    check_ok(ls_tokens_open(&d, &(ls_tokens_options){ .paths = paths, .n_paths = 2, .seq_len = 2 }));
    assert_int_equal(ls__tokens_count(d), 9);
    assert_string_equal(logged, "none.bin: empty file, skipped\n");
    ls_dataset_free(&d);
}

/* First bytes of files that are no text. */
static const struct {
    const char *bytes;
    size_t count;
    const char *name;
} others[] = {
#define OTHER(bytes, name)             \
    {                                  \
        bytes, sizeof(bytes) - 1, name \
    }
    OTHER("PAR1\x15\4\x15\x10", "a Parquet file"),
    OTHER("ARROW1\0\0\xff\xff\xff\xff", "an Arrow file"),
    OTHER("\xff\xff\xff\xff\x18\1\0\0\x10\0\0\0", "an Arrow stream"),
    OTHER("\xfd"
          "7zXZ\0\0\4",
          "xz-compressed"),
    OTHER("BZh91AY&SY....", "bzip2-compressed"),
    OTHER("\x04\x22\x4d\x18\x64\x40", "lz4-compressed"),
    OTHER("PK\3\4\x14\0", "a ZIP archive"),
    OTHER("7z\xbc\xaf\x27\x1c\0\4", "a 7-Zip archive"),
    OTHER("\x93NUMPY\1\0v\0{'descr'", "a NumPy array"),
    OTHER("\x89HDF\r\n\x1a\n", "an HDF5 file"),
    OTHER("SQLite format 3\0", "an SQLite database"),
    OTHER("\x80\4\x95\x10\0\0\0\0\0\0\0}", "a Python pickle"),
    OTHER("(dp0\nVtext\np1\n", "a Python pickle"),
    OTHER("\x80\2}q\0(X\4\0\0\0metaq\1", "a Python pickle"),
    OTHER("\x10\0\0\0\0\0\0\0{\"a\":{\"dtype\":1}}and data", "a safetensors file"),
    OTHER("\x7f"
          "ELF\2\1\1",
          "an ELF program"),
    OTHER("\x89PNG\r\n\x1a\n\0\0", "a PNG picture"),
    OTHER("\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG picture"),
    OTHER("GIF89a\1\0", "a GIF picture"),
    OTHER("%PDF-1.7\n", "a PDF file"),
    OTHER("GGUF\3\0\0\0", "a GGUF model"),
    OTHER("RIFF\x24\0\0\0WAVEfmt ", "a RIFF file"),
    OTHER("Obj\1\4\x14", "an Avro file"),
    OTHER("ORC\b\3\x10", "an ORC file"),
    OTHER("\xff\xfeT\0e\0x\0t\0", "UTF-16-encoded"),
    OTHER("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office file"),
};

static void other_formats_are_refused_by_name(void **state)
{
    (void)state;
    ls_dataset *d;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char says[100];
        write_file("other.dat", others[i].bytes, others[i].count);
        snprintf(says, sizeof says, "other.dat: byte 0: is %s", others[i].name);
        check_fails(open_text(&d, "other.dat", LS_FORMAT_AUTO), LS_EFORMAT, says);
        check_fails(open_text(&d, "other.dat", LS_FORMAT_JSONL), LS_EFORMAT, says);
        check_ok(open_text(&d, "other.dat", LS_FORMAT_PLAIN)); /* who asks for bytes gets them */
        ls_dataset_free(&d);
    }
    check_fails((write_text("x.txt", "PAR1"), open_text(&d, "x.txt", 0)), LS_EFORMAT,
                "write it as JSON lines: python3 -c ");
    char tar[512] = "name";
    memcpy(tar + 257, "ustar", 5);
    write_file("other.dat", tar, sizeof tar);
    check_fails(open_text(&d, "other.dat", 0), LS_EFORMAT, "other.dat: byte 0: is a tar archive, not text; extract");
    write_file("other.dat", "words and \0 more", 16);
    check_fails(open_text(&d, "other.dat", 0), LS_EFORMAT, "other.dat: byte 10: is 0, which is not text");
}

static void text_is_taken_for_text(void **state)
{
    (void)state;
    static const char *const texts[] = { "PARTLY cloudy", "RIFFs and AVIators", "BZh is no text",  "7zip", "ORC army",
                                         "GIFs",          "{\"a\": 1}",         "\xef\xbb\xbfmark" };
    ls_dataset *d;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text("text.dat", texts[i]);
        check_ok(open_text(&d, "text.dat", 0));
        ls_dataset_free(&d);
    }
}

/* A .json of lines, as the large web corpora have it, is read; one value over many lines is not. */
static void json_files_are_lines_or_refused(void **state)
{
    (void)state;
    ls_dataset *d;
    write_text("lines.json", "{\"text\": \"abcd\"}\n{\"text\": \"ef\"}\n");
    check_ok(open_text(&d, "lines.json", 0));
    assert_int_equal(d->count, 3); /* abcd, end, ef, end */
    ls_dataset_free(&d);
    write_text("value.json", "[\n  {\"text\": \"abcd\"}\n]\n");
    check_fails(open_text(&d, "value.json", 0), LS_EFORMAT,
                "value.json: byte 0: is a single JSON value, not one object per line");
    write_text("value.json", "{\n  \"text\": \"abcd\"\n}\n");
    check_fails(open_text(&d, "value.json", 0), LS_EFORMAT, "is a single JSON value");
    check_ok(open_text(&d, "value.json", LS_FORMAT_PLAIN));
    ls_dataset_free(&d);
}

static void a_byte_order_mark_is_not_text(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text;
        ls_data_format format;
    } cases[] = { { "mark.txt",
                    "\xef\xbb\xbf"
                    "abcd",
                    LS_FORMAT_PLAIN },
                  { "mark.txt",
                    "\xef\xbb\xbf"
                    "abcd\n",
                    LS_FORMAT_LINES },
                  { "mark.jsonl", "\xef\xbb\xbf{\"text\": \"abcd\"}\n", LS_FORMAT_JSONL } };
    for (size_t i = 0; i < 3; i++) {
        ls_dataset *d;
        void *state_of;
        int32_t x[2], y[2];
        ls_row row = { .fields = { x, y } };
        write_text(cases[i].path, cases[i].text);
        check_ok(open_text(&d, cases[i].path, cases[i].format));
        assert_int_equal(d->count, 2);
        check_ok(d->worker_open(d->self, 0, &state_of));
        check_ok(d->get(d->self, state_of, 0, &row));
        assert_int_equal(x[0], 'a');
        d->worker_free(d->self, state_of);
        ls_dataset_free(&d);
    }
}

/* Bad lines in every way of reading: packed, padded, padded with lengths, shards. All agree on which they are. */
static void bad_lines_can_be_skipped(void **state)
{
    (void)state;
    FILE *f = fopen("bad.jsonl", "w");
    for (int i = 0; i < 5000; i++) {
        if (i % 1000 == 500) fprintf(f, i < 1000 ? "{\"text\": 7}\n" : "{\"text\": \"cut\n");
        fprintf(f, "{\"text\": \"%c\", \"id\": 123456789012345678901234567890}\n", 'a' + i % 26);
    }
    fclose(f);
    ls_tokenizer *t;
    ls_dataset *d;
    const char
        *paths[] = { "bad.jsonl" },
        *says = "5 invalid lines were skipped; the first: bad.jsonl: byte 26000 (line 501): no string in field text\n";
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    ls_text_options o = { .paths = paths, .n_paths = 1, .tokenizer = t, .seq_len = 2, .threads = 3 };
    check_fails(ls_text_open(&d, &o), LS_EFORMAT, "bad.jsonl: byte 26000 (line 501): no string in field text; correct");
    o.skip_bad = true;
    for (int kind = 0; kind < 3; kind++) {
        o.padded = kind > 0;
        o.count_tokens = kind > 1;
        logged[0] = 0;
        check_ok(ls_text_open(&d, &o));
        assert_int_equal(d->count, kind ? 5000 : (10000 - 1) / 2);
        assert_string_equal(logged, says);
        void *worker;
        int32_t x[2], y[2];
        float w[2];
        uint8_t mask[2];
        check_ok(d->worker_open(d->self, 0, &worker));
        for (uint64_t i = 0; i < d->count; i++) {
            ls_row row = { .fields = { x, y, w, mask } };
            check_ok(d->get(d->self, worker, i, &row));
            if (x[0] != (int)('a' + i % 26)) fail_msg("kind %d, sample %zu: %d", kind, (size_t)i, x[0]);
        }
        d->worker_free(d->self, worker);
        ls_dataset_free(&d);
    }
    ls_tokenize_result r;
    ls_tokenize_options to = { .paths = paths, .n_paths = 1, .tokenizer = t, .output = "skipped", .skip_bad = true };
    logged[0] = 0;
    check_ok(ls_tokenize(&to, &r));
    assert_int_equal(r.documents, 5000);
    assert_int_equal(r.bad_lines, 5);
    assert_string_equal(logged, says);
    uint32_t learned;
    logged[0] = 0;
    check_ok(ls_bpe_train(
        &(ls_bpe_options){ .paths = paths, .n_paths = 1, .vocab_size = 300, .skip_bad = true, .output = "bpe" },
        &learned));
    assert_non_null(strstr(logged, says));
    ls_tokenizer_free(&t);
}

static int prepare(void **state)
{
    ls_log_set(keep_log, NULL);
    return make_folder(state);
}

static int clean_up(void **state)
{
    check_ok(open_text(NULL, NULL, 0));
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_stands_for_its_data),      cmocka_unit_test(empty_files_are_skipped_with_a_warning),
        cmocka_unit_test(other_formats_are_refused_by_name), cmocka_unit_test(text_is_taken_for_text),
        cmocka_unit_test(json_files_are_lines_or_refused),   cmocka_unit_test(a_byte_order_mark_is_not_text),
        cmocka_unit_test(bad_lines_can_be_skipped),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
