/* Tokenizers: learned from text, written, read back, and their tokens the text again. The comparison with the reference
 * tokenizers is in check_bpe.py and check_tokenizers.py, which need them. */
#include "folder.h"
#include "base/random.h"
#include "data/split.h"
#include "data/tokenizer.h"

static void encode(const ls_tokenizer *t, const void *text, size_t bytes, int32_t *out, size_t *count)
{
    ls_encoder *e;
    const int32_t *tokens;
    check_ok(ls_encoder_open(&e, t));
    check_ok(ls_encode(e, text, bytes, &tokens, count));
    if (*count) memcpy(out, tokens, *count * sizeof *out);
    ls_encoder_free(&e);
}

static void check_comes_back(const ls_tokenizer *t, ls_encoder *e, const void *text, size_t bytes)
{
    const int32_t *tokens;
    size_t count, n;
    char *back;
    check_ok(ls_encode(e, text, bytes, &tokens, &count));
    check_ok(ls_tokenizer_decode(t, tokens, count, &back, &n));
    assert_int_equal(n, bytes);
    assert_memory_equal(back, text, bytes);
    free(back);
}

static void bytes_are_tokens(void **state)
{
    (void)state;
    ls_tokenizer *t;
    int32_t tokens[16];
    size_t count;
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    assert_int_equal(ls_tokenizer_vocab_size(t), 257);
    assert_int_equal(ls_tokenizer_end_token(t), 256);
    encode(t, "\xff\0a", 3, tokens, &count);
    assert_int_equal(count, 3);
    assert_int_equal(tokens[0], 255);
    assert_int_equal(tokens[1], 0);
    char *text;
    size_t n;
    tokens[0] = 'x', tokens[1] = 257;
    check_fails(ls_tokenizer_decode(t, tokens, 2, &text, &n), LS_EINVAL, "token 257 (number 1)");
    ls_tokenizer_free(&t);
}

/* "hug" 10 times, "pug" 5, "pun" 12, "bun" 4, "hugs" 5: the textbook's example. u-g 20, u-n 16, h-ug 15. */
static void the_textbook_example_is_learned(void **state)
{
    (void)state;
    FILE *f = fopen("hugs.txt", "w");
    const char *words[] = { "hug", "pug", "pun", "bun", "hugs" };
    const int times[] = { 10, 5, 12, 4, 5 };
    for (int w = 0; w < 5; w++)
        for (int i = 0; i < times[w]; i++) fprintf(f, "%s\n", words[w]);
    fclose(f);
    const char *paths[] = { "hugs.txt" };
    uint32_t learned;
    check_ok(
        ls_bpe_train(&(ls_bpe_options){ .paths = paths, .n_paths = 1, .vocab_size = 260, .output = "hugs" }, &learned));
    assert_int_equal(learned, 260);
    FILE *merges = fopen("hugs/merges.txt", "r");
    char lines[4][30];
    for (int i = 0; i < 4; i++) assert_non_null(fgets(lines[i], sizeof lines[i], merges));
    fclose(merges);
    assert_string_equal(lines[1], "u g\n");
    assert_string_equal(lines[2], "u n\n");
    assert_string_equal(lines[3], "h ug\n");
    ls_tokenizer *t;
    int32_t tokens[10];
    size_t count;
    check_ok(ls_tokenizer_open(&t, "hugs", NULL));
    encode(t, "hugs bun", 8, tokens, &count); /* hug s, blank b un */
    assert_int_equal(count, 5);
    assert_int_equal(tokens[0], 258);
    assert_int_equal(tokens[4], 257);
    assert_int_equal(ls_tokenizer_end_token(t), 259);
    ls_tokenizer_free(&t);
}

/* The sources of this test, as text to learn from. */
static void learn_from_sources(const char *output, int threads)
{
    char pattern[500];
    snprintf(pattern, sizeof pattern, "%s/src/data/*.c", getenv("LOCKSTEP_SOURCE"));
    const char *paths[] = { pattern };
    uint32_t learned;
    ls_bpe_options o = { .paths = paths, .n_paths = 1, .vocab_size = 1000, .output = output, .threads = threads };
    check_ok(ls_bpe_train(&o, &learned));
    assert_int_equal(learned, 1000);
}

static void learning_does_not_depend_on_threads(void **state)
{
    (void)state;
    learn_from_sources("one", 1);
    learn_from_sources("four", 4);
    assert_int_equal(system("cmp one/merges.txt four/merges.txt && cmp one/vocab.json four/vocab.json"), 0);
}

static void all_kinds_of_files_are_the_same_tokenizer(void **state)
{
    (void)state;
    assert_int_equal(system(
                         "mkdir hf gpt && cp one/vocab.json one/merges.txt hf && cp one/vocab.json gpt/encoder.json && "
                         "sed 1d one/merges.txt >gpt/vocab.bpe"),
                     0);
    const char *names[] = { "one", "one/tokenizer.json", "hf", "gpt" },
               text[] = "static void *p = NULL; /* it's 42 */\n";
    int32_t expected[100], got[100];
    size_t n, count;
    for (int i = 0; i < 4; i++) {
        ls_tokenizer *t;
        check_ok(ls_tokenizer_open(&t, names[i], NULL));
        assert_int_equal(ls_tokenizer_vocab_size(t), 1000);
        assert_int_equal(ls_tokenizer_end_token(t), 999);
        encode(t, text, sizeof text - 1, i ? got : expected, i ? &count : &n);
        if (i) assert_int_equal(count, n);
        if (i) assert_memory_equal(got, expected, n * sizeof *got);
        ls_tokenizer_free(&t);
    }
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    ls_tokenizer *t;
    ls_encoder *e;
    check_ok(ls_tokenizer_open(&t, "one", NULL));
    check_ok(ls_encoder_open(&e, t));
    static uint8_t text[300000];
    for (uint64_t round = 0; round < 50; round++) {
        size_t n = ls__random_u32(1, round, 0) % 3000;
        ls__random_fill_u32((uint32_t *)(void *)text, 1000, 1, round, 1);
        if (round % 2) /* few different bytes: long words and many merges */
            for (size_t i = 0; i < n; i++) text[i] = (uint8_t) "static int "[text[i] % 11];
        check_comes_back(t, e, text, n);
    }
    memset(text, 'e', sizeof text); /* one word, and not n squared */
    check_comes_back(t, e, text, sizeof text);
    ls_encoder_free(&e);
    ls_tokenizer_free(&t);
}

/* The plain way: merge the lowest rank, all of it again, until nothing merges. The oracle of both fast ways. */
static size_t merge_plainly(const ls__bpe *b, const uint8_t *text, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++) out[i] = ls__bpe_find(b, text + i, 1);
    for (;;) {
        size_t best = n;
        uint32_t lowest = UINT32_MAX, left, right;
        for (size_t i = 0; i + 1 < n; i++) {
            for (uint32_t rank = 0; rank < ls__bpe_merges(b) && rank < lowest; rank++) {
                ls__bpe_merge_at(b, rank, &left, &right);
                if (left == out[i] && right == out[i + 1]) lowest = rank, best = i;
            }
        }
        if (best == n) return n;
        uint8_t joined[500];
        size_t a, c;
        const uint8_t *bytes = ls__bpe_bytes(b, out[best], &a);
        memcpy(joined, bytes, a);
        bytes = ls__bpe_bytes(b, out[best + 1], &c);
        memcpy(joined + a, bytes, c);
        out[best] = ls__bpe_find(b, joined, a + c);
        memmove(out + best + 1, out + best + 2, (--n - best - 1) * sizeof *out);
    }
}

static void short_and_long_pieces_merge_like_the_plain_way(void **state)
{
    (void)state;
    char *json;
    size_t bytes;
    FILE *f = fopen("one/tokenizer.json", "rb");
    json = malloc(1 << 20);
    bytes = fread(json, 1, 1 << 20, f);
    fclose(f);
    ls__bpe *b;
    ls__added added;
    ls__rules rules;
    ls__bpe_scratch *s;
    check_ok(ls__tokenizer_parse(&b, &added, &rules, "one/tokenizer.json", json, bytes));
    check_ok(ls__bpe_scratch_open(&s, b));
    for (uint64_t round = 0; round < 60; round++) {
        uint8_t text[200];
        uint32_t expected[200];
        int32_t got[208];
        size_t n = round < 40 ? 2 + round : 90 + round;
        for (size_t i = 0; i < n; i++) text[i] = (uint8_t) "statictokensizereturn"[ls__random_u32(2, round, i) % 21];
        size_t count = merge_plainly(b, text, n, expected);
        for (int again = 0; again < 2; again++) { /* the second time from memory */
            assert_int_equal(ls__bpe_word(s, text, n, 0, got), count);
            assert_memory_equal(got, expected, count * sizeof *expected);
        }
    }
    ls__bpe_scratch_free(&s);
    ls__bpe_free(&b);
    ls__added_free(&added);
    ls__rules_free(&rules);
    free(json);
}

/* 400 texts that Hugging Face's tokenizers encoded; see make_added_goldens.py. */
static void added_tokens_are_found_as_the_reference_finds_them(void **state)
{
    (void)state;
    char path[500], *line = NULL;
    size_t room = 0, cases = 0;
    ls_tokenizer *t;
    snprintf(path, sizeof path, "%s/tests/data/added_tokenizer.json", getenv("LOCKSTEP_SOURCE"));
    check_ok(ls_tokenizer_open(&t, path, NULL));
    snprintf(path, sizeof path, "%s/tests/data/added_goldens.txt", getenv("LOCKSTEP_SOURCE"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; getline(&line, &room, f) > 0; cases++) {
        uint8_t text[1000];
        int32_t got[1000];
        size_t n = 0, count, i = 0;
        char *p = line;
        for (unsigned byte; sscanf(p, "%2x", &byte) == 1 && *p != ' '; p += 2) text[n++] = (uint8_t)byte;
        if (*p == '-') p++;
        encode(t, text, n, got, &count);
        for (char *end; (void)strtol(p, &end, 10), end != p; p = end, i++)
            if (i >= count || got[i] != strtol(p, &end, 10))
                fail_msg("case %zu, '%.*s': token %zu is %d, not %ld", cases, (int)n, (char *)text, i,
                         i < count ? got[i] : -1, strtol(p, &end, 10));
        if (i != count) fail_msg("case %zu, '%.*s': %zu tokens, not %zu", cases, (int)n, (char *)text, count, i);
    }
    assert_int_equal(cases, 400);
    free(line);
    fclose(f);
    ls_tokenizer_free(&t);
}

/* Text is tokenized in chunks, which must not end inside an added token or before white space that one takes. */
static void chunks_do_not_cut_added_tokens(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    char path[500], *text = malloc(BYTES);
    size_t n = 0, count;
    ls_tokenizer *t;
    ls_encoder *e;
    const int32_t *whole;
    snprintf(path, sizeof path, "%s/tests/data/added_tokenizer.json", getenv("LOCKSTEP_SOURCE"));
    check_ok(ls_tokenizer_open(&t, path, NULL));
    /* Nearly every blank is inside a token, or after one that takes it. */
    for (uint64_t i = 0; n < BYTES - 20; i++)
        n += (size_t)snprintf(text + n, BYTES - n, "%s",
                              (const char *[]){ "foo bar", "<r> ", "bar  ", "ab\n",
                                                "<b>\n " }[ls__random_u32(3, 1, i) % 5]);
    FILE *f = fopen("cut.txt", "w");
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    check_ok(ls_encoder_open(&e, t));
    check_ok(ls_encode(e, text, n, &whole, &count));
    const char *paths[] = { "cut.txt" };
    ls_tokenize_result result;
    check_ok(ls_tokenize(
        &(ls_tokenize_options){
            .paths = paths, .n_paths = 1, .tokenizer = t, .output = "cut", .shard_format = LS_FORMAT_U32 },
        &result));
    assert_int_equal(result.tokens, count + 1);
    int32_t *got = malloc((count + 1) * sizeof *got);
    f = fopen("cut-00000.bin", "r");
    assert_int_equal(fread(got, sizeof *got, count + 1, f), count + 1);
    fclose(f);
    assert_memory_equal(got, whole, count * sizeof *got);
    assert_int_equal(got[count], ls_tokenizer_end_token(t));
    free(got);
    free(text);
    ls_encoder_free(&e);
    ls_tokenizer_free(&t);
}

static void broken_files_are_named(void **state)
{
    (void)state;
    ls_tokenizer *t;
    mkdir("bad", 0777);
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_ENOENT, "bad: no tokenizer");
    check_fails(ls_tokenizer_open(&t, "none.json", NULL), LS_ENOENT, "none.json: cannot be opened");
    write_text("bad/vocab.json", "{\"a\": 0,");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_ENOENT, "bad/merges.txt");
    write_text("bad/merges.txt", "#version: 0.2\nb c\n");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "bad/vocab.json: byte 8 (line 1)");
    write_text("bad/vocab.json", "{\"a\": 0, \"b\": -1}");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "the id of token 'b' must be an integer");
    write_text("bad/vocab.json", "{\"a\": 0, \"b\": 0}");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "token id 0 occurs twice");
    write_text("bad/vocab.json", "{\"a b\": 0}");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "'a b' is not in GPT-2's byte alphabet");
    write_text("bad/vocab.json", "{\"a\": 0, \"b\": 1}");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT,
                "bad/merges.txt: byte 14 (line 2): 'c' is not in the vocabulary");
    write_text("bad/merges.txt", "a b\n");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "tokens 0 and 1 together are not in the vocabulary");
    write_text("bad/merges.txt", "a b c\n");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "byte 0 (line 1): a merge must be two tokens");
    write_text("bad/merges.txt", "");
    check_fails(ls_tokenizer_open(&t, "bad", NULL), LS_EFORMAT, "no token for byte 0");
    write_text("x.json", "[]");
    check_fails(ls_tokenizer_open(&t, "x.json", NULL), LS_EFORMAT, "x.json: has no model");
    assert_null(t);
}

/* What would change tokens or text, and is not supported, is named with its place. */
static void unsupported_rules_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
        ls_status code;
    } cases[] = {
        { "'model': {'type': 'Unigram'}",
          "x.json: model: type 'Unigram' is not supported; supported are BPE and WordPiece", LS_EUNSUPPORTED },
        { "'model': {'type': 'WordPiece'}", "x.json: model: WordPiece needs unk_token", LS_EFORMAT },
        { "'model': {'dropout': 0.1}", "x.json: model: 'dropout' of BPE", LS_EUNSUPPORTED },
        { "'model': {'end_of_word_suffix': '</w>'}", "x.json: model: 'end_of_word_suffix'", LS_EUNSUPPORTED },
        { "'model': {}, 'normalizer': {'type': 'NFKC'}", "x.json: normalizer: type 'NFKC' is not supported",
          LS_EUNSUPPORTED },
        { "'model': {}, 'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'Strip'}]}",
          "x.json: normalizer.normalizers[1]: type 'Strip'", LS_EUNSUPPORTED },
        { "'model': {}, 'normalizer': {'type': 'Replace', 'pattern': {'Regex': 'a+'}, 'content': 'b'}",
          "x.json: normalizer: Replace with this 'pattern'", LS_EUNSUPPORTED },
        { "'model': {}, 'pre_tokenizer': {'type': 'Whitespace'}", "x.json: pre_tokenizer: type 'Whitespace'",
          LS_EUNSUPPORTED },
        { "'model': {}, 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': 'a|b'}, 'behavior': 'Isolated'}",
          "x.json: pre_tokenizer: Split with the pattern 'a|b' is not supported", LS_EUNSUPPORTED },
        { "'model': {}, 'pre_tokenizer': {'type': 'Metaspace', 'replacement': '_', 'prepend_scheme': 'last'}",
          "x.json: pre_tokenizer: Metaspace with this 'prepend_scheme'", LS_EUNSUPPORTED },
        { "'model': {}, 'decoder': {'type': 'CTC'}", "x.json: decoder: type 'CTC'", LS_EUNSUPPORTED },
        { "'model': {}, 'post_processor': {'type': 'Other'}", "x.json: post_processor: type 'Other'", LS_EUNSUPPORTED },
        { "'model': {'vocab': {'a': 0}, 'merges': []}", "neither unk_token nor the token <0x00>", LS_EFORMAT },
        { "'model': {'vocab': {'a': 0}, 'merges': [], 'unk_token': 'b'}", "unk_token 'b' is not in the vocabulary",
          LS_EFORMAT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[500];
        ls_tokenizer *t;
        snprintf(text, sizeof text, "{%s}", cases[i].json);
        for (char *p = text; *p; p++)
            if (*p == '\'') *p = '"';
        write_text("x.json", text);
        check_fails(ls_tokenizer_open(&t, "x.json", NULL), cases[i].code, cases[i].message);
        assert_null(t);
    }
}

static size_t read_hex(char **p, uint8_t *out)
{
    size_t n = 0;
    while (**p == ' ') (*p)++;
    for (unsigned byte; **p != ' ' && sscanf(*p, "%2x", &byte) == 1; *p += 2) out[n++] = (uint8_t)byte;
    if (**p == '-') (*p)++;
    return n;
}

/* Texts that Hugging Face's tokenizers encoded and decoded with the rules of a model; see make_tokenizer_goldens.py. */
static void check_kind(const ls_tokenizer *t, const char *kind, const char *path)
{
    char *line = NULL;
    size_t room = 0, cases = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; getline(&line, &room, f) > 0; cases++) {
        static uint8_t text[10000], expected[20000];
        static int32_t got[10000];
        size_t n, bytes, count, i = 0;
        char *p = line, *back, *end;
        n = read_hex(&p, text);
        encode(t, text, n, got, &count);
        for (; (void)strtol(p, &end, 10), end != p; p = end, i++)
            if (i >= count || got[i] != strtol(p, &end, 10))
                fail_msg("%s, case %zu, '%.*s': token %zu is %d, not %ld", kind, cases, (int)n, (char *)text, i,
                         i < count ? got[i] : -1, strtol(p, &end, 10));
        if (i != count)
            fail_msg("%s, case %zu, '%.*s': %zu tokens, not %zu", kind, cases, (int)n, (char *)text, count, i);
        p = strchr(p, '=') + 1;
        n = read_hex(&p, expected);
        check_ok(ls_tokenizer_decode(t, got, count, &back, &bytes));
        if (n != bytes || memcmp(back, expected, n) != 0)
            fail_msg("%s, case %zu: decoded to '%s', not '%.*s'", kind, cases, back, (int)n, (char *)expected);
        free(back);
    }
    assert_int_equal(cases, 60);
    free(line);
    fclose(f);
}

static void tokenizers_of_known_models_are_those_of_the_reference(void **state)
{
    (void)state;
    static const char *const kinds[] = { "gpt2",   "roberta",      "llama3",     "qwen2",        "smollm2",
                                         "digits", "llama2",       "tinyllama",  "mistral",      "unfused",
                                         "fused",  "bert-uncased", "bert-cased", "bert-accents", "bert-raw" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[500], goldens[500];
        ls_tokenizer *t;
        snprintf(path, sizeof path, "%s/tests/data/kinds/%s.json", getenv("LOCKSTEP_SOURCE"), kinds[i]);
        snprintf(goldens, sizeof goldens, "%s/tests/data/kinds/%s.txt", getenv("LOCKSTEP_SOURCE"), kinds[i]);
        check_ok(ls_tokenizer_open(&t, path, NULL));
        check_kind(t, kinds[i], goldens);
        check_ok(ls_tokenizer_save(t, "kind")); /* and what is saved is the same */
        ls_tokenizer_free(&t);
        check_ok(ls_tokenizer_open(&t, "kind", NULL));
        check_kind(t, kinds[i], goldens);
        ls_tokenizer_free(&t);
    }
}

/* Where the ends of words depend on the rules, chunks end elsewhere; the tokens are those of the whole. */
static void chunks_end_where_the_rules_allow_it(void **state)
{
    (void)state;
    static const char *const kinds[] = { "roberta", "llama3",    "qwen2",   "smollm2",
                                         "llama2",  "tinyllama", "mistral", "bert-uncased" };
    static const char text[] = "Foo bar.\n\nThey'LL  12345 \n x,\r\n y\tz e\xcc\x81 a\n\n\n  b ... \n.";
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[500];
        ls_tokenizer *t;
        ls_encoder *e;
        const int32_t *rest;
        int32_t whole[200], parts[200];
        size_t n, first, second, cuts = 0;
        snprintf(path, sizeof path, "%s/tests/data/kinds/%s.json", getenv("LOCKSTEP_SOURCE"), kinds[k]);
        check_ok(ls_tokenizer_open(&t, path, NULL));
        encode(t, text, sizeof text - 1, whole, &n);
        for (size_t at = 1; (at = ls__split_cut((const uint8_t *)text, at, sizeof text - 1)) < sizeof text - 1; at++) {
            if (!ls__tokenizer_may_cut(t, text, sizeof text - 1, at)) continue;
            cuts++;
            encode(t, text, at, parts, &first);
            check_ok(ls_encoder_open(&e, t));
            check_ok(ls__encode_part(e, true, text + at, sizeof text - 1 - at, &rest, &second));
            memcpy(parts + first, rest, second * sizeof *rest);
            ls_encoder_free(&e);
            if (first + second != n || memcmp(parts, whole, n * sizeof *whole) != 0)
                fail_msg("%s: a cut at %zu changes the tokens", kinds[k], at);
        }
        assert_true(cuts > 0);
        ls_tokenizer_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(the_textbook_example_is_learned),
        cmocka_unit_test(learning_does_not_depend_on_threads),
        cmocka_unit_test(all_kinds_of_files_are_the_same_tokenizer),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(short_and_long_pieces_merge_like_the_plain_way),
        cmocka_unit_test(added_tokens_are_found_as_the_reference_finds_them),
        cmocka_unit_test(chunks_do_not_cut_added_tokens),
        cmocka_unit_test(broken_files_are_named),
        cmocka_unit_test(unsupported_rules_are_named),
        cmocka_unit_test(tokenizers_of_known_models_are_those_of_the_reference),
        cmocka_unit_test(chunks_end_where_the_rules_allow_it),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
