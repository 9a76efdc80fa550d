/* Text as data: packed and padded, tokenized by workers or beforehand, always the same tokens. */
#include "folder.h"
#include <math.h>
#include "base/random.h"
#include "data/datasets.h"
#include "lockstep/data.h"

enum { T = 50 };

/* Documents of random words; the same in a file of lines, a file of JSON lines, and (as one text) a plain file. */
static void write_corpus(void)
{
    static const char *const words[] = { "ein", "Wort",           "gibt", "das", "andere",
                                         "42",  "\\u00fc\\u00f1", "it's", "\\n", "--" };
    FILE *jsonl = fopen("corpus.jsonl", "w"), *plain = fopen("corpus.txt", "w");
    for (uint32_t doc = 0; doc < 700; doc++) {
        fprintf(jsonl, "{\"id\": %u, \"text\": \"", doc);
        uint32_t n = ls__random_u32(1, 1, doc) % 60;
        for (uint32_t i = 0; i < n; i++) {
            const char *word = words[ls__random_u32(1, doc, i) % 10];
            fprintf(jsonl, "%s%s", i ? " " : "", word);
            fprintf(plain, "%s%s", word, i % 7 ? " " : "\n  ");
        }
        fprintf(jsonl, "\"}\n%s", doc % 100 ? "" : "\n"); /* an empty line now and then */
    }
    fclose(jsonl);
    fclose(plain);
}

/* The tokens of a file, by way of shards. */
static int32_t *shard_tokens(const ls_tokenizer *t, const char *path, int threads, uint64_t per_shard, size_t *count)
{
    const char *paths[] = { path };
    ls_tokenize_result r;
    assert_int_equal(system("rm -f shard-*.bin"), 0);
    check_ok(ls_tokenize(&(ls_tokenize_options){ .paths = paths,
                                                 .n_paths = 1,
                                                 .tokenizer = t,
                                                 .output = "shard",
                                                 .threads = threads,
                                                 .shard_tokens = per_shard },
                         &r));
    const char *shards[] = { "shard-*.bin" };
    ls_dataset *d;
    check_ok(ls_tokens_open(&d, &(ls_tokens_options){ .paths = shards, .n_paths = 1, .seq_len = 1 }));
    *count = d->count + 1;
    assert_int_equal(*count, r.tokens);
    assert_int_equal(r.shards, per_shard ? (r.tokens + per_shard - 1) / per_shard : 1);
    int32_t *tokens = malloc(*count * sizeof *tokens);
    for (uint64_t i = 0; i < d->count; i++) {
        ls_row row = { .fields = { tokens + i, tokens + i + 1 } };
        check_ok(d->get(d->self, NULL, i, &row));
    }
    ls_dataset_free(&d);
    return tokens;
}

static void shards_do_not_depend_on_threads_or_size(void **state)
{
    (void)state;
    ls_tokenizer *t;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    const char *files[] = { "corpus.jsonl", "corpus.txt" };
    for (int f = 0; f < 2; f++) {
        size_t n, m;
        int32_t *expected = shard_tokens(t, files[f], 1, 0, &n), *got = shard_tokens(t, files[f], 4, 10007, &m);
        assert_int_equal(n, m);
        assert_memory_equal(expected, got, n * sizeof *got);
        free(expected);
        free(got);
    }
    ls_tokenizer_free(&t);
}

static ls_status open_text(ls_dataset **d, const ls_tokenizer *t, const char *path, size_t seq_len, bool padded)
{
    const char *paths[] = { path };
    return ls_text_open(d, &(ls_text_options){
                               .paths = paths, .n_paths = 1, .tokenizer = t, .seq_len = seq_len, .padded = padded });
}

/* A tokenizer of one's own, so that tokens are longer than bytes. */
static void learn(const char *output)
{
    const char *paths[] = { "corpus.txt" };
    uint32_t learned;
    check_ok(
        ls_bpe_train(&(ls_bpe_options){ .paths = paths, .n_paths = 1, .vocab_size = 300, .output = output }, &learned));
}

static void packed_text_is_what_the_shards_hold(void **state)
{
    (void)state;
    learn("tok");
    const char *files[] = { "corpus.jsonl", "corpus.txt" }, *names[] = { "tok", "bytes" };
    for (int k = 0; k < 4; k++) {
        ls_tokenizer *t;
        ls_dataset *d;
        ls_loader *l;
        ls_batch *b;
        size_t n;
        check_ok(ls_tokenizer_open(&t, names[k / 2], NULL));
        int32_t *expected = shard_tokens(t, files[k % 2], 2, 0, &n);
        check_ok(open_text(&d, t, files[k % 2], T, false));
        assert_int_equal(d->count, (n - 1) / T);
        check_ok(ls_loader_open(&l, d, &(ls_loader_options){ .batch_size = 4, .workers = 3, .epochs = 1 }));
        while (ls_loader_next(l, &b) == LS_OK) {
            for (size_t r = 0; r < b->batch_size; r++) {
                assert_memory_equal((int32_t *)b->fields[0] + r * T, expected + b->samples[r] * T, T * 4);
                assert_memory_equal((int32_t *)b->fields[1] + r * T, expected + b->samples[r] * T + 1, T * 4);
            }
        }
        ls_loader_free(&l);
        ls_dataset_free(&d);
        ls_tokenizer_free(&t);
        free(expected);
    }
}

static void get_padded(ls_dataset *d, uint64_t sample, int32_t *x, int32_t *y, float *w, uint8_t *mask, ls_row *row)
{
    void *state;
    *row = (ls_row){ .fields = { x, y, w, mask } };
    check_ok(d->worker_open(d->self, 0, &state));
    check_ok(d->get(d->self, state, sample, row));
    d->worker_free(d->self, state);
}

static void padded_documents_have_mask_and_weights(void **state)
{
    (void)state;
    write_text("few.jsonl",
               "{\"q\": \"ab\", \"text\": \"cde\", \"w\": 0.5}\n\n"
               "{\"q\": \"\", \"text\": \"0123456789\", \"w\": 2}\r\n{\"text\": \"\", \"q\": \"\", \"w\": 1}");
    ls_tokenizer *t;
    ls_dataset *d;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    const char *paths[] = { "few.jsonl" };
    check_ok(ls_text_open(&d, &(ls_text_options){ .paths = paths,
                                                  .n_paths = 1,
                                                  .tokenizer = t,
                                                  .seq_len = 8,
                                                  .padded = true,
                                                  .prompt_field = "q",
                                                  .weight_field = "w" }));
    assert_int_equal(d->count, 3);
    assert_int_equal(d->n_fields, 4);
    int32_t x[8], y[8];
    float w[8];
    uint8_t mask[8];
    ls_row row;
    get_padded(d, 0, x, y, w, mask, &row);
    const int32_t inputs[8] = { 'a', 'b', 'c', 'd', 'e', 256, 256, 256 };
    const int32_t targets[8] = { 'b', 'c', 'd', 'e', 256, 256, 256, 256 };
    const float weights[8] = { 0, 0.5f, 0.5f, 0.5f, 0.5f, 0, 0, 0 }; /* a -> b is the prompt's */
    const uint8_t used[8] = { 1, 1, 1, 1, 1, 0, 0, 0 };
    assert_memory_equal(x, inputs, sizeof x);
    assert_memory_equal(y, targets, sizeof y);
    assert_memory_equal(w, weights, sizeof w);
    assert_memory_equal(mask, used, sizeof mask);
    assert_int_equal(row.tokens, 4);
    assert_int_equal(row.length, 5);
    get_padded(d, 1, x, y, w, mask, &row); /* longer than the row: cut */
    assert_int_equal(row.tokens, 8);
    assert_int_equal(y[7], '8');
    get_padded(d, 2, x, y, w, mask, &row); /* nothing but its end */
    assert_int_equal(row.tokens, 0);
    assert_int_equal(row.length, 0);
    ls_dataset_free(&d);
    ls_tokenizer_free(&t);
}

/* What the balanced order deals with is what a row will hold. */
static void lengths_are_counted_if_asked_for(void **state)
{
    (void)state;
    FILE *f = fopen("lengths.jsonl", "w");
    for (int i = 0; i < 3000; i++)
        fprintf(f, "{\"text\": \"%.*s\\u00e4\", \"ask\": \"%.*s\"}\n%s", i % 23, "abcdefghijklmnopqrstuvw", i % 5,
                "why?", i % 7 ? "" : "  \n");
    fclose(f);
    ls_tokenizer *t;
    ls_dataset *d;
    const char *paths[] = { "lengths.jsonl" };
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    for (int threads = 1; threads <= 3; threads += 2) {
        ls_text_options o = { .paths = paths, .n_paths = 1, .tokenizer = t, .seq_len = 16, .threads = threads };
        o.padded = o.count_tokens = true;
        o.prompt_field = "ask";
        check_ok(ls_text_open(&d, &o));
        assert_int_equal(d->count, 3000);
        void *worker;
        check_ok(d->worker_open(d->self, 0, &worker));
        for (uint64_t i = 0; i < d->count; i++) {
            int32_t x[16], y[16];
            float w[16];
            uint8_t mask[16];
            ls_row row = { .fields = { x, y, w, mask } };
            check_ok(d->get(d->self, worker, i, &row));
            if (d->length(d->self, i) != row.length)
                fail_msg("document %zu: %zu counted, %zu in the row", i, d->length(d->self, i), row.length);
        }
        d->worker_free(d->self, worker);
        ls_dataset_free(&d);
    }
    write_text("broken.jsonl", "{\"text\": \"a\"}\nnothing\n");
    paths[0] = "broken.jsonl";
    ls_text_options o = {
        .paths = paths, .n_paths = 1, .tokenizer = t, .seq_len = 16, .padded = true, .count_tokens = true
    };
    check_fails(ls_text_open(&d, &o), LS_EFORMAT, "broken.jsonl: byte 14 (line 2): not a JSON object");
    ls_tokenizer_free(&t);
}

static void shards_are_not_taken_for_text(void **state)
{
    (void)state;
    uint32_t header[256] = { 20240520, 1 };
    FILE *f = fopen("shard.dat", "w");
    fwrite(header, sizeof header, 1, f);
    fclose(f);
    ls_tokenizer *t;
    ls_dataset *d;
    ls_tokenize_result r;
    uint32_t learned;
    const char *paths[] = { "shard.dat" }, *says = "shard.dat: byte 0: is a token shard, not text";
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    check_fails(open_text(&d, t, "shard.dat", 4, false), LS_EFORMAT, says);
    check_fails(ls_tokenize(&(ls_tokenize_options){ .paths = paths, .n_paths = 1, .tokenizer = t, .output = "no" }, &r),
                LS_EFORMAT, says);
    check_fails(ls_bpe_train(&(ls_bpe_options){ .paths = paths, .n_paths = 1, .vocab_size = 300, .output = "no" },
                             &learned),
                LS_EFORMAT, says);
    ls_tokenizer_free(&t);
}

static void broken_lines_are_named_with_byte_and_line(void **state)
{
    (void)state;
    ls_tokenizer *t;
    ls_dataset *d;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    const struct {
        const char *text, *says;
    } cases[] = {
        { "{\"text\": \"a\"}\n{\"text\": \"b\"\n", "bad.jsonl: byte 26 (line 2): not a JSON object: unexpected end" },
        { "{\"text\": \"a\"}\n\n[1]\n", "bad.jsonl: byte 15 (line 3): not a JSON object" },
        { "{\"txt\": \"a\"}\n", "bad.jsonl: byte 0 (line 1): no string in field text" },
        { "{\"text\": 7}\n", "no string in field text; correct the line, or skip such lines" },
        { "{\"text\": \"a\", \"text\": \"b\"}\n", "byte 21 (line 1): not a JSON object: duplicate field" },
        { "{\"text\": \"\xff\"}\n", "byte 10 (line 1): not a JSON object: string is not valid UTF-8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("bad.jsonl", cases[i].text);
        check_fails(open_text(&d, t, "bad.jsonl", 1, false), LS_EFORMAT, cases[i].says);
        assert_null(d);
    }
    write_text("bad.jsonl", "\n\n \n");
    check_fails(open_text(&d, t, "bad.jsonl", 1, true), LS_EINVAL, "bad.jsonl: byte 4: no documents in the data");
    write_text("bad.txt", "");
    check_fails(open_text(&d, t, "bad.txt", 1, false), LS_EFORMAT, "bad.txt: byte 0: the file is empty");
    write_text("short.txt", "abc");
    check_fails(open_text(&d, t, "short.txt", 4, false), LS_EINVAL, "short.txt: byte 3: the data have only 4 tokens");

    /* Padded, too, a broken line is found at the start; one that is broken later is reported when it is read. */
    ls_loader *l;
    ls_batch *b;
    write_text("late.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\nnothing\n");
    check_fails(open_text(&d, t, "late.jsonl", 4, true), LS_EFORMAT,
                "late.jsonl: byte 28 (line 3): not a JSON object: ");
    write_text("late.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
    check_ok(open_text(&d, t, "late.jsonl", 4, true));
    FILE *f = fopen("late.jsonl", "r+");
    assert_int_equal(fseek(f, 28, SEEK_SET), 0);
    assert_int_equal(fputs("nothing", f) >= 0, 1);
    fclose(f);
    check_ok(ls_loader_open(&l, d, &(ls_loader_options){ .workers = 2, .order = LS_ORDER_SEQUENTIAL }));
    check_ok(ls_loader_next(l, &b));
    check_ok(ls_loader_next(l, &b));
    check_fails(ls_loader_next(l, &b), LS_EFORMAT,
                "step 2, slot 0, row 0 (sample 2): late.jsonl: byte 28 (line 3): not a JSON object");
    ls_loader_free(&l);
    ls_dataset_free(&d);
    ls_tokenizer_free(&t);
}

static void the_earliest_broken_line_is_told_whatever_the_threads(void **state)
{
    (void)state;
    FILE *f = fopen("many.jsonl", "w");
    for (int i = 0; i < 120000; i++)
        fprintf(f, i % 40000 == 39999 ? "broken\n" : "{\"text\": \"line %d of many\"}\n", i);
    fclose(f);
    ls_tokenizer *t;
    ls_tokenize_result r;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    const char *paths[] = { "many.jsonl" };
    for (int threads = 1; threads <= 4; threads++)
        check_fails(ls_tokenize(
                        &(ls_tokenize_options){
                            .paths = paths, .n_paths = 1, .tokenizer = t, .output = "many", .threads = threads },
                        &r),
                    LS_EFORMAT, "(line 40000): not a JSON object");
    assert_int_equal(access("many-00000.bin", F_OK), -1); /* no half shard is left */
    ls_tokenizer_free(&t);
}

/* Marks the documents "d0001 " to "d2000 " that a dataset has, from all its tokens in a row. */
enum { DOCUMENTS = 2000 };
static void mark_documents(const ls_hold_out *h, bool padded, int threads, const ls_tokenizer *t,
                           uint8_t seen[DOCUMENTS + 1])
{
    const char *paths[] = { "ids.txt" };
    ls_dataset *d;
    void *state;
    int32_t x[200], y[200];
    float weights[200];
    uint8_t mask[200];
    check_ok(ls_text_open(&d, &(ls_text_options){ .paths = paths,
                                                  .n_paths = 1,
                                                  .format = LS_FORMAT_LINES,
                                                  .tokenizer = t,
                                                  .seq_len = padded ? 200 : 100,
                                                  .padded = padded,
                                                  .threads = threads,
                                                  .hold_out = *h }));
    check_ok(d->worker_open(d->self, 0, &state));
    char *text = calloc(d->count + 1, 200), *end = text;
    for (uint64_t i = 0; i < d->count; i++) {
        ls_row row = { .fields = { x, y, weights, mask } };
        check_ok(d->get(d->self, state, i, &row));
        for (size_t k = 0; k < row.length; k++)
            if (x[k] < 256) *end++ = (char)x[k];
    }
    memset(seen, 0, DOCUMENTS + 1);
    uint64_t count = 0;
    for (const char *p = text; (p = strstr(p, "d")); p++) {
        if (end - p < 6) break; /* packed, the data may end inside a number */
        int id = atoi(p + 1);
        if (id < 1 || id > DOCUMENTS || seen[id]++) fail_msg("document %d is there twice", id);
        count++;
    }
    /* Packed, what does not fill a sequence at the end is not used. */
    if (padded) assert_int_equal(count, ls__text_documents(d));
    if (!padded) assert_in_range(count, ls__text_documents(d) - 4, ls__text_documents(d));
    free(text);
    d->worker_free(d->self, state);
    ls_dataset_free(&d);
}

static void held_out_documents_are_in_one_part_only(void **state)
{
    (void)state;
    FILE *f = fopen("ids.txt", "w");
    fputs("\xef\xbb\xbf", f); /* a byte order mark does not move the first document */
    for (uint64_t i = 1; i <= DOCUMENTS; i++)
        fprintf(f, "d%04d %.*s\n", (int)i, (int)(ls__random_u32(5, 5, i) % 90),
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    fclose(f);
    static uint8_t train[DOCUMENTS + 1], held[DOCUMENTS + 1], packed[DOCUMENTS + 1], other[DOCUMENTS + 1];
    ls_tokenizer *t;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    mark_documents(&(ls_hold_out){ .fraction = 0.2, .seed = 1 }, true, 1, t, train);
    mark_documents(&(ls_hold_out){ .fraction = 0.2, .seed = 1, .held_out = true }, true, 2, t, held);
    mark_documents(&(ls_hold_out){ .fraction = 0.2, .seed = 2, .held_out = true }, true, 1, t, other);
    size_t n = 0, late = 0, same = 0;
    for (int i = 1; i <= DOCUMENTS; i++) {
        if (train[i] == held[i]) fail_msg("document %d is in %s", i, held[i] ? "both parts" : "no part");
        n += held[i];
        late += held[i] && i > DOCUMENTS / 2;
        same += held[i] && other[i];
    }
    /* 400 are expected, with a standard deviation of 18; half of them in the second half; a fifth with another seed, too. */
    assert_in_range(n, 320, 480);
    assert_in_range(late, n * 2 / 5, n * 3 / 5);
    assert_true(same < n / 3);
    mark_documents(&(ls_hold_out){ .fraction = 0.2, .seed = 1 }, false, 3, t, packed);
    for (int i = 1; i <= DOCUMENTS - 20; i++) assert_int_equal(packed[i], train[i]);
    mark_documents(&(ls_hold_out){ .fraction = 0.2, .seed = 1, .held_out = true }, false, 1, t, packed);
    for (int i = 1; i <= DOCUMENTS - 20; i++) assert_int_equal(packed[i], held[i]);
    const char *paths[] = { "ids.txt" };
    double wrong[] = { NAN, -1, 1.5 };
    for (int i = 0; i < 3; i++) {
        ls_dataset *d;
        ls_text_options o = {
            .paths = paths, .n_paths = 1, .seq_len = 8, .tokenizer = t, .hold_out = { wrong[i], 1, false }
        };
        check_fails(ls_text_open(&d, &o), LS_EINVAL, "must be from 0 to 1");
    }
    ls_tokenizer_free(&t);
}

static void a_missing_sample_or_worker_is_an_error(void **state)
{
    (void)state;
    const char *paths[] = { "corpus.jsonl" };
    ls_tokenizer *t;
    ls_dataset *d;
    int32_t x[T], y[T];
    float weights[T];
    uint8_t mask[T];
    ls_row row = { .fields = { x, y, weights, mask } };
    void *worker;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    for (int padded = 0; padded < 2; padded++) {
        check_ok(ls_text_open(&d, &(ls_text_options){
                                      .paths = paths, .n_paths = 1, .tokenizer = t, .seq_len = T, .padded = padded }));
        check_fails(d->get(d->self, NULL, 0, &row), LS_EINVAL, "needs a worker's state; call its worker_open() first");
        check_ok(d->worker_open(d->self, 0, &worker));
        check_ok(d->get(d->self, worker, d->count - 1, &row));
        check_fails(d->get(d->self, worker, d->count, &row), LS_EINVAL, "does not exist; the dataset has");
        check_fails(d->get(d->self, worker, UINT64_MAX, &row), LS_EINVAL, "does not exist");
        d->worker_free(d->self, worker);
        ls_dataset_free(&d);
    }
    ls_tokenizer_free(&t);
}

static int prepare(void **state)
{
    if (make_folder(state)) return -1;
    write_corpus();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_sample_or_worker_is_an_error),
        cmocka_unit_test(shards_do_not_depend_on_threads_or_size),
        cmocka_unit_test(packed_text_is_what_the_shards_hold),
        cmocka_unit_test(padded_documents_have_mask_and_weights),
        cmocka_unit_test(lengths_are_counted_if_asked_for),
        cmocka_unit_test(held_out_documents_are_in_one_part_only),
        cmocka_unit_test(shards_are_not_taken_for_text),
        cmocka_unit_test(broken_lines_are_named_with_byte_and_line),
        cmocka_unit_test(the_earliest_broken_line_is_told_whatever_the_threads),
    };
    return cmocka_run_group_tests(tests, prepare, remove_folder);
}
