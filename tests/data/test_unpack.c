/* Compressed text: the same tokens as without compression, in bounded memory, and every damage is found. */
#include "folder.h"
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>
#include "data/documents.h"
#include "data/unpack.h"
#include "lockstep/data.h"

static uint8_t packed[4 << 20];

static size_t pack(int zstd, const void *data, size_t bytes)
{
    if (zstd) {
        size_t n = ZSTD_compress(packed, sizeof packed, data, bytes, 3);
        assert_false(ZSTD_isError(n));
        return n;
    }
    z_stream z = { .next_in = (Bytef *)data, .avail_in = (uInt)bytes, .next_out = packed, .avail_out = sizeof packed };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return sizeof packed - z.avail_out;
}

/* Appends to a file what compressing gives. */
static void append_packed(const char *path, int zstd, const void *data, size_t bytes)
{
    size_t n = pack(zstd, data, bytes);
    FILE *f = fopen(path, "ab");
    assert_int_equal(fwrite(packed, 1, n, f), n);
    fclose(f);
}

static char *text; /* lines of JSON, 3 MB: several chunks */
static size_t text_bytes;

static void make_text(void)
{
    FILE *f = open_memstream(&text, &text_bytes);
    for (int i = 0; i < 60000; i++)
        fprintf(f, "{\"text\": \"Document %d, of %d words.\", \"n\": %d}\n", i, i * 7 % 13, i);
    fclose(f);
    FILE *out = fopen("plain.jsonl", "wb");
    fwrite(text, 1, text_bytes, out);
    fclose(out);
}

static ls_tokenizer *bytes;

static void tokenize(const char *path, const char *output, int threads)
{
    const char *paths[] = { path };
    ls_tokenize_result r;
    check_ok(ls_tokenize(
        &(ls_tokenize_options){
            .paths = paths, .n_paths = 1, .tokenizer = bytes, .output = output, .replace = true, .threads = threads },
        &r));
    assert_int_equal(r.bytes, text_bytes);
}

static void same_files(const char *a, const char *b)
{
    char command[200];
    snprintf(command, sizeof command, "cmp %s %s", a, b);
    assert_int_equal(system(command), 0);
}

/* As JSON lines and as plain text, in one part and in several, which may end inside a line. */
static void compressed_text_gives_the_same_shards(void **state)
{
    (void)state;
    static const char *const ends[] = { "gz", "zst" };
    rename("plain.jsonl", "plain.txt");
    for (int kind = 0; kind < 2; kind++) {
        if (kind) rename("plain.txt", "plain.jsonl");
        const char *name = kind ? "jsonl" : "txt";
        char path[60];
        snprintf(path, sizeof path, "plain.%s", name);
        tokenize(path, "plain", 2);
        for (int zstd = 0; zstd < 2; zstd++)
            for (int parts = 1; parts <= 5; parts += 4) {
                snprintf(path, sizeof path, "packed-%d.%s.%s", parts, name, ends[zstd]);
                for (int p = 0; p < parts; p++) {
                    size_t from = text_bytes * (size_t)p / (size_t)parts,
                           to = text_bytes * (size_t)(p + 1) / (size_t)parts;
                    append_packed(path, zstd, text + from, to - from);
                    append_packed(path, zstd, "", 0); /* an empty part */
                }
                tokenize(path, "packed", parts);
                same_files("plain-00000.bin", "packed-00000.bin");
            }
    }
}

static ls_status open_text(ls_dataset **d, const char *path, bool padded)
{
    const char *paths[] = { path };
    return ls_text_open(d, &(ls_text_options){
                               .paths = paths, .n_paths = 1, .tokenizer = bytes, .seq_len = 64, .padded = padded });
}

static void compressed_text_is_trained_on_at_any_place(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        ls_dataset *plain, *d;
        void *w[2];
        int32_t x[2][64], y[2][64];
        float weights[2][64];
        uint8_t mask[2][64];
        check_ok(open_text(&plain, "plain.jsonl", kind & 1));
        check_ok(open_text(&d, kind & 2 ? "packed-5.jsonl.zst" : "packed-5.jsonl.gz", kind & 1));
        assert_int_equal(d->count, plain->count);
        check_ok(plain->worker_open(plain->self, 0, &w[0]));
        check_ok(d->worker_open(d->self, 0, &w[1]));
        for (uint64_t i = 0; i < d->count; i += 97) {
            ls_row one = { .fields = { x[0], y[0], weights[0], mask[0] } };
            ls_row two = { .fields = { x[1], y[1], weights[1], mask[1] } };
            check_ok(plain->get(plain->self, w[0], i, &one));
            check_ok(d->get(d->self, w[1], i, &two));
            assert_memory_equal(x[0], x[1], sizeof x[0]);
            assert_memory_equal(y[0], y[1], sizeof y[0]);
        }
        check_ok(d->redirect(d->self, 0, "plain.jsonl")); /* it is on this machine's disk already; nothing happens */
        plain->worker_free(plain->self, w[0]);
        d->worker_free(d->self, w[1]);
        ls_dataset_free(&plain);
        ls_dataset_free(&d);
    }
    setenv("TMPDIR", "/nowhere", 1);
    ls_dataset *d;
    ls_status status = open_text(&d, "packed-1.jsonl.gz", false);
    unsetenv("TMPDIR");
    check_fails(status, LS_ENOENT, "/nowhere: cannot decompress files here; set TMPDIR to another folder");
}

/* Reads all of a file; the status, and how much came before. */
static ls_status read_all(const uint8_t *data, size_t count, bool zstd, size_t *total)
{
    static uint8_t out[8192];
    write_file("part", data, count);
    FILE *f = fopen("part", "rb");
    ls__source file = {
        .path = "part", .fd = fileno(f), .bytes = count, .packing = zstd ? LS__PACKED_ZSTD : LS__PACKED_GZIP
    };
    ls__unpack *u;
    size_t got = sizeof out;
    ls_status status = ls__unpack_open(&u, &file);
    *total = 0;
    while (!status && got == sizeof out) {
        status = ls__unpack_read(u, out, sizeof out, &got);
        *total += got;
    }
    ls__unpack_free(&u);
    fclose(f);
    return status;
}

/* Every possible cut, and damage of every byte. */
static void damaged_files_are_errors_with_the_place(void **state)
{
    (void)state;
    for (int zstd = 0; zstd < 2; zstd++) {
        size_t n = pack(zstd, text, 3000), total;
        uint8_t *whole = malloc(n + 20);
        memcpy(whole, packed, n);
        check_ok(read_all(whole, n, zstd, &total));
        assert_int_equal(total, 3000);
        for (size_t cut = 1; cut < n; cut++) {
            char says[100];
            snprintf(says, sizeof says, "part: byte %zu: unexpected end of the compressed data; the file is truncated",
                     cut);
            check_fails(read_all(whole, cut, zstd, &total), LS_EFORMAT, says);
        }
        int unnoticed = 0;
        for (size_t i = 0; i < n; i++) {
            whole[i] ^= 0x55;
            ls_status status = read_all(whole, n, zstd, &total);
            if (!status && total == 3000) unnoticed++;
            if (status && (status != LS_EFORMAT || !strstr(ls_error(), "part: byte ")))
                fail_msg("%zu: %s", i, ls_error());
            whole[i] ^= 0x55;
        }
        /* zstd has no checksum unless asked for; gzip ignores the time and the system in its header. */
        if (!zstd && unnoticed > 6) fail_msg("%d changes of a byte went unnoticed", unnoticed);
        memcpy(whole + n, "garbage", 7);
        check_fails(read_all(whole, n + 7, zstd, &total), LS_EFORMAT, zstd ? "corrupt zstd data" : "corrupt gzip data");
        memcpy(whole + n, "\x27\xb5\x2f\xfd 0.7",
               8); /* a frame of an old format, which the library would try to read */
        if (zstd)
            check_fails(read_all(whole, n + 8, zstd, &total), LS_EFORMAT,
                        "corrupt zstd data: not followed by a zstd frame");
        memset(whole + n, 0, 20);
        if (!zstd) check_ok(read_all(whole, n + 20, zstd, &total)); /* gzip's padding */
        free(whole);
    }
}

/* A few KB that would fill the memory or the disk. */
static void bombs_are_stopped_early(void **state)
{
    (void)state;
    static uint8_t block[1 << 20];
    memset(block, 'a', sizeof block);
    for (int zstd = 0; zstd < 2; zstd++) {
        const char *path = zstd ? "bomb.txt.zst" : "bomb.txt.gz";
        size_t n = pack(zstd, block, sizeof block);
        FILE *f = fopen(path, "wb");
        for (int i = 0; i < 3000; i++) fwrite(packed, 1, n, f); /* 3 GB of text */
        fclose(f);
        const char *paths[] = { path };
        ls_tokenize_result r;
        ls_dataset *d;
        ls_tokenize_options o = { .paths = paths, .n_paths = 1, .tokenizer = bytes, .output = "bomb", .threads = 1 };
        check_fails(ls_tokenize(&o, &r), LS_EFORMAT, "decompresses to more than 256 times its size");
        check_fails(open_text(&d, path, false), LS_EFORMAT, "decompresses to more than 256 times its size");
        unlink(path);
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    if (used.ru_maxrss > 600 << 10) fail_msg("%ld KiB of memory", used.ru_maxrss);
}

static void what_is_inside_is_recognized_too(void **state)
{
    (void)state;
    static uint8_t tar[2048] = "name";
    memcpy(tar + 257, "ustar", 5);
    ls_dataset *d;
    append_packed("a.tar.gz", 0, tar, sizeof tar);
    check_fails(open_text(&d, "a.tar.gz", false), LS_EFORMAT,
                "inside the compressed file: a.tar.gz: byte 0: is a tar archive, not text");
    uint32_t shard[300] = { 20240520, 1 };
    append_packed("a.txt.zst", 1, shard, sizeof shard);
    check_fails(open_text(&d, "a.txt.zst", false), LS_EFORMAT, "is a token shard, not text");
    append_packed("a.bin.gz", 0, shard, sizeof shard);
    const char *paths[] = { "a.bin.gz" };
    check_fails(ls_tokens_open(&d, &(ls_tokens_options){ .paths = paths, .n_paths = 1, .seq_len = 4 }), LS_EFORMAT,
                "a.bin.gz: byte 0: is gzip-compressed, not a token shard; decompress it: gunzip FILE");
    append_packed("b.gz", 0, "\x1f\x8b\x08 twice", 9);
    check_fails(open_text(&d, "b.gz", false), LS_EFORMAT, "is gzip-compressed, not text");
}

static int prepare(void **state)
{
    if (make_folder(state)) return -1;
    make_text();
    return ls_tokenizer_open(&bytes, "bytes", NULL);
}

static int clean_up(void **state)
{
    ls_tokenizer_free(&bytes);
    free(text);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_text_gives_the_same_shards),
        cmocka_unit_test(compressed_text_is_trained_on_at_any_place),
        cmocka_unit_test(damaged_files_are_errors_with_the_place),
        cmocka_unit_test(bombs_are_stopped_early),
        cmocka_unit_test(what_is_inside_is_recognized_too),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
