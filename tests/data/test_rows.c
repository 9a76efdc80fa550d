/* Labelled rows: JSON lines, CSV and TSV give the same samples; templates, truncation, labels, and what is wrong with its place. */
#include "check.h"
#include "data/rows.h"
#include "data/table.h"
#include "data/template.h"
#include "folder.h"

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n,\n\"\n##a\n";

static ls_tokenizer *tokenizer(void)
{
    ls_tokenizer *t;
    write_text("vocab.txt", vocabulary);
    check_ok(ls_tokenizer_open(&t, ".", NULL));
    return t;
}

typedef struct sample {
    int32_t tokens[12], types[12], label, length;
} sample;

static sample get(const ls_dataset *d, uint64_t i)
{
    void *worker;
    sample s;
    ls_row row = { .fields = { s.tokens, s.types, &s.label, &s.length } };
    check_ok(d->worker_open(d->self, 0, &worker));
    check_ok(d->get(d->self, worker, i, &row));
    d->worker_free(d->self, worker);
    assert_int_equal(row.tokens, 1);
    assert_int_equal(row.length, s.length);
    return s;
}

static ls__rows_options options_of(const char *const *paths, const ls_tokenizer *t)
{
    return (ls__rows_options){ .paths = paths, .n_paths = 1, .tokenizer = t, .seq_len = 12 };
}

/* [CLS] A [SEP] B [SEP], with the second text's type; a text alone; cells with quotes, separators, line feeds and escapes. */
static void three_formats_have_the_same_samples(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        { "x.jsonl", "{\"sentence1\": \"a b\", \"sentence2\": \"c, \\\"\", \"label\": 1}\n\n"
                     "{\"label\": 0, \"other\": [1, {}], \"sentence2\": \"\\u0064\", \"sentence1\": \"b\\nb\"}\n" },
        { "x.csv", "id,label,sentence2,sentence1\r\n7,1,\"c, \"\"\",a b\r\n8,0,d,\"b\nb\"\r\n" },
        { "x.tsv", "sentence1\tsentence2\tlabel\na b\tc, \"\t1\nb b\td\t0" },
        { "plain", "sentence1\tsentence2\tlabel\na b\tc, \"\t1\nb b\td\t0" }, /* by its first line */
    };
    static const int32_t first[] = { 2, 5, 6, 3, 7, 9, 10, 3 }, types[] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    static const int32_t second[] = { 2, 6, 6, 3, 8, 3 };
    ls_tokenizer *t = tokenizer();
    for (int i = 0; i < 4; i++) {
        ls_dataset *d;
        ls__rows_options o = options_of(&files[i][0], t);
        write_text(files[i][0], files[i][1]);
        check_ok(ls__rows_open(&d, &o));
        assert_int_equal(d->count, 2);
        sample s = get(d, 0);
        assert_int_equal(s.length, 8);
        assert_int_equal(s.label, 1);
        assert_memory_equal(s.tokens, first, sizeof first);
        assert_memory_equal(s.types, types, sizeof types);
        assert_int_equal(s.tokens[8], 0);
        s = get(d, 1);
        assert_int_equal(s.label, 0);
        assert_int_equal(s.length, 6);
        assert_memory_equal(s.tokens, second, sizeof second);
        ls_dataset_free(&d);
    }
    ls_tokenizer_free(&t);
}

static void the_longer_text_is_cut_first(void **state)
{
    (void)state;
    static const size_t cases[][5] = { /* room, a, b, and what is left */
                                       { 10, 3, 4, 3, 4 }, { 10, 20, 3, 7, 3 }, { 10, 3, 20, 3, 7 }, { 10, 9, 9, 5, 5 },
                                       { 9, 8, 20, 4, 5 }, { 9, 20, 8, 5, 4 },  { 0, 1, 1, 0, 0 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t a = cases[i][1], b = cases[i][2];
        ls__truncate_pair(cases[i][0], &a, &b);
        assert_int_equal(a, cases[i][3]);
        assert_int_equal(b, cases[i][4]);
    }
    const char *path = "long.csv";
    ls_tokenizer *t = tokenizer();
    ls_dataset *d;
    ls__rows_options o = options_of(&path, t);
    write_text(path, "sentence1,sentence2,label\na a a a a a a a a a a a,b b,0\n");
    check_ok(ls__rows_open(&d, &o));
    sample s = get(d, 0);
    assert_int_equal(s.length, 12);
    assert_int_equal(s.tokens[8], 3);
    assert_int_equal(s.tokens[11], 3);
    ls_dataset_free(&d);
    ls_tokenizer_free(&t);
}

static void labels_are_numbers_or_names(void **state)
{
    (void)state;
    const char *path = "l.jsonl";
    ls_tokenizer *t = tokenizer();
    ls_dataset *d;
    ls__rows_options o = options_of(&path, t);
    char *names;
    int classes;
    write_text(path, "{\"text\":\"a\",\"label\":4}\n{\"text\":\"a\",\"label\":0}\n");
    check_ok(ls__rows_labels(&o, &names, &classes));
    assert_null(names);
    assert_int_equal(classes, 5);
    write_text(
        path,
        "{\"text\":\"a\",\"label\":\"yes\"}\n{\"text\":\"b\",\"label\":\"no\"}\n{\"text\":\"b\",\"label\":\"yes\"}\n");
    check_ok(ls__rows_labels(&o, &names, &classes));
    assert_string_equal(names, "no,yes");
    assert_int_equal(classes, 2);
    check_fails(ls__rows_open(&d, &o), LS_EFORMAT,
                "l.jsonl: byte 0 (line 1): label 'yes' in field label is not a number");
    o.labels = names;
    check_ok(ls__rows_open(&d, &o));
    assert_int_equal(get(d, 0).label, 1);
    assert_int_equal(get(d, 1).label, 0);
    ls_dataset_free(&d);
    o.labels = "no,maybe";
    check_fails(ls__rows_open(&d, &o), LS_EFORMAT, "label 'yes' in field label is none of no,maybe");
    free(names);
    ls_tokenizer_free(&t);
}

static void what_is_wrong_has_file_and_place(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *message;
    } cases[] = {
        { "b.csv", "text,label\na,0\nb,7\n",
          "b.csv: byte 15 (line 3): label 7 in field label: must be an integer from 0 to 2" },
        { "b.csv", "text,label\na,0.5\n", "label 0.5 in field label: must be an integer" },
        { "b.csv", "text,label\na,-1\n", "label -1 in field label: must be an integer" },
        { "b.csv", "text,label\na,nan\n", "label nan in field label: must be an integer" },
        { "b.csv", "text,label\na\n", "b.csv: byte 12 (line 2): fewer fields than the first record" },
        { "b.csv", "text,label\na,0,c\n", "more fields than the first record" },
        { "b.csv", "text,label\n\"a\"b,0\n", "b.csv: byte 14 (line 2): text after a closing quote" },
        { "b.csv", "text,label\n\"a\nb,0\n", "(line 2): a quote is not closed" },
        { "b.csv", "txt,label\na,0\n", "no field with a text is known by its name" },
        { "b.csv", "text,lab\na,0\n", "b.csv: byte 0 (line 1): the first record has no field label" },
        { "b.csv", "text,label\n", "no rows in the data" },
        { "b.jsonl", "{\"text\":\"a\",\"label\":0}\n{\"text\":\"a\"\n",
          "b.jsonl: byte 34 (line 2): not a JSON object" },
        { "b.jsonl", "{\"text\":\"a\",\"label\":0}\n{\"text\":1,\"label\":0}\n",
          "byte 23 (line 2): no string in field text" },
        { "b.jsonl", "{\"text\":\"a\",\"label\":null}\n", "no text or number in field label" },
        { "b.csv", "text,label\na,0\nb,\n", "b.csv: byte 15 (line 3): no text or number in field label" },
        { "b.csv", "text,lab\na,0\n", "has no field label (it is: text,lab); name another with label_field" },
        { "b.csv", "text,label,text\na,0,b\n",
          "b.csv: byte 0 (line 1): the first record has 2 fields with the name text" },
    };
    ls_tokenizer *t = tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_dataset *d;
        ls__rows_options o = options_of(&cases[i].path, t);
        o.classes = 3;
        write_text(cases[i].path, cases[i].text);
        check_fails(ls__rows_open(&d, &o), i == 10 ? LS_EINVAL : LS_EFORMAT, cases[i].message);
        assert_null(d);
        /* a row can be skipped, the names of the fields cannot */
        bool names = i == 10 || (strstr(ls_error(), "(line 1)") && !strstr(cases[i].path, "json"));
        assert_int_equal(!strstr(ls_error(), "skip_bad"), names);
    }
    const char *path = "s.csv";
    ls_dataset *d;
    ls__rows_options o = options_of(&path, t);
    o.classes = 2;
    o.skip_bad = true;
    write_text(path, "text,label\na,0\nb,7\nc\nd,1\n");
    check_ok(ls__rows_open(&d, &o));
    assert_int_equal(d->count, 2);
    assert_int_equal(get(d, 1).label, 1);
    ls_dataset_free(&d);
    o.seq_len = 2;
    check_fails(ls__rows_open(&d, &o), LS_EINVAL, "the tokenizer adds 2 special tokens");
    o.pair_field = o.field = "text";
    check_fails(ls__rows_open(&d, &o), LS_EINVAL, "field 'text' is used twice");
    ls_tokenizer_free(&t);
}

/* tokenizer.json's three forms of a template. */
static void templates_of_post_processors(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int single, pair, last_type, tokens;
    } cases[] = {
        { "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}", 3, 5, 1, 3 },
        { "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",3],\"cls\":[\"<s>\",2]}", 3, 6, 0, 4 },
        { "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\","
          "\"single\":[{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
          "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":2}}],"
          "\"special_tokens\":{\"x\":{\"id\":\"x\",\"ids\":[7,8],\"tokens\":[\"p\",\"q\"]}}}]}",
          3, 2, 2, 0 },
        { "{\"type\":\"ByteLevel\"}", 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls__templates t = { 0 };
        json_t *root = json_loads(cases[i].json, 0, NULL);
        assert_non_null(root);
        check_ok(ls__templates_parse(&t, "t.json", root));
        assert_int_equal(t.single.count, cases[i].single);
        assert_int_equal(t.pair.count, cases[i].pair);
        if (t.pair.count) assert_int_equal(t.pair.item[t.pair.count - 1].type, cases[i].last_type);
        assert_int_equal(ls__template_tokens(&t.pair), cases[i].tokens);
        json_decref(root);
    }
    static const char *const wrong[] = {
        "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",-3],\"cls\":[\"[CLS]\",2]}",
        "{\"type\":\"TemplateProcessing\",\"single\":3}",
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"
    };
    for (size_t i = 0; i < 3; i++) {
        ls__templates t = { 0 };
        json_t *root = json_loads(wrong[i], 0, NULL);
        check_fails(ls__templates_parse(&t, "t.json", root), LS_EFORMAT, "t.json: post_processor: ");
        json_decref(root);
    }
}

/* vocab.txt alone is BERT's tokenizer; saved, it is a tokenizer.json. */
static void vocab_txt_is_a_tokenizer(void **state)
{
    (void)state;
    ls_tokenizer *t = tokenizer(), *again;
    ls_encoder *e;
    const int32_t *tokens;
    size_t n;
    static const int32_t expected[] = { 5, 11, 9, 1, 3 };
    check_ok(ls_tokenizer_save(t, "saved"));
    check_ok(ls_tokenizer_open(&again, "saved", NULL));
    ls_tokenizer *both[] = { t, again };
    for (int i = 0; i < 2; i++) {
        check_ok(ls_encoder_open(&e, both[i]));
        check_ok(ls_encode(e, "Aa, xyz [SEP]", 13, &tokens, &n));
        assert_int_equal(n, 5);
        assert_memory_equal(tokens, expected, sizeof expected);
        ls_encoder_free(&e);
    }
    ls_tokenizer_free(&again);
    ls_tokenizer_free(&t);
    write_text("vocab.txt", "a\nb\n");
    check_fails(ls_tokenizer_open(&t, ".", NULL), LS_EFORMAT, "vocab.txt: token [UNK] is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_formats_have_the_same_samples), cmocka_unit_test(the_longer_text_is_cut_first),
        cmocka_unit_test(labels_are_numbers_or_names),         cmocka_unit_test(what_is_wrong_has_file_and_place),
        cmocka_unit_test(templates_of_post_processors),        cmocka_unit_test(vocab_txt_is_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
