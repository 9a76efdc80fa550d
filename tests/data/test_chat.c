/* Chats: templates give the text that transformers gives, answers are found with and without generation blocks, and a dataset of
 * chats has a loss on them alone. chat_goldens.jsonl comes from make_chat_goldens.py. */
#include <jansson.h>
#include "check.h"
#include "data/chat.h"
#include "data/folder.h"
#include "lockstep/data.h"

static json_t **goldens;
static size_t n_goldens;

static int read_goldens(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/tests/data/chat_goldens.jsonl", getenv("LOCKSTEP_SOURCE"));
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    if (!f) return -1;
    for (ssize_t n; (n = getline(&line, &room, f)) > 0;) {
        goldens = realloc(goldens, (n_goldens + 1) * sizeof *goldens);
        goldens[n_goldens++] = json_loadb(line, (size_t)n, 0, NULL);
        if (!goldens[n_goldens - 1]) return -1;
    }
    free(line);
    fclose(f);
    return make_folder(state);
}

static int free_goldens(void **state)
{
    for (size_t i = 0; i < n_goldens; i++) json_decref(goldens[i]);
    free(goldens);
    return remove_folder(state);
}

static const char *text_of(const json_t *g, const char *key)
{
    return json_string_value(json_object_get(g, key));
}

static void templates_give_the_text_of_transformers(void **state)
{
    (void)state;
    size_t tried = 0, failing = 0;
    for (size_t i = 0; i < n_goldens; i++) {
        json_t *g = goldens[i], *template = json_object_get(g, "template"), *item;
        if (!template) continue;
        json_t *variables = json_pack("{s:s, s:s, s:O, s:O, s:n, s:n}", "bos_token", "<s>", "eos_token", "</s>",
                                      "messages", json_object_get(g, "messages"), "add_generation_prompt",
                                      json_object_get(g, "prompt"), "tools", "documents");
        ls__jinja *j;
        ls__jinja_text out = { 0 };
        const char *expected = text_of(g, "text");
        ls_status status = ls__jinja_parse(&j, "template", json_string_value(template), json_string_length(template));
        if (!status) status = ls__jinja_render(j, variables, &out);
        if (!expected && !status) fail_msg("%s\ngives '%s', and not an error", json_string_value(template), out.bytes);
        if (!expected && !strstr(ls_error(), "line ")) fail_msg("message without a line: %s", ls_error());
        if (expected && status) fail_msg("%s\n: %s", json_string_value(template), ls_error());
        if (expected && strcmp(expected, out.bytes))
            fail_msg("%s\ngives '%s'\nexpected '%s'", json_string_value(template), out.bytes, expected);
        json_t *spans = json_object_get(g, "spans");
        size_t k;
        if (!status) assert_int_equal(out.n_spans, json_array_size(spans));
        json_array_foreach(spans, k, item)
        {
            assert_int_equal(out.spans[k].begin, json_integer_value(json_array_get(item, 0)));
            assert_int_equal(out.spans[k].end, json_integer_value(json_array_get(item, 1)));
        }
        tried++;
        failing += !expected;
        ls__jinja_text_free(&out);
        ls__jinja_free(&j);
        json_decref(variables);
    }
    assert_in_range(tried, 150, 1000);
    assert_in_range(failing, 10, tried / 2);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *template, *message;
    } cases[] = {
        { "{% raw %}x{% endraw %}", "template: line 1: unsupported: the block 'raw'" },
        { "\n{% include 'x' %}", "template: line 2: unsupported: the block 'include'" },
        { "{{ 2 ** 3 }}", "unsupported: operator '**'" },
        { "{{ 1 < 2 < 3 }}", "unsupported: chained comparisons" },
        { "{{ f(*x) }}", "unsupported: arguments with '*'" },
        { "{% set a, b = 1, 2 %}", "unsupported: set of several names" },
        { "{% for a in b recursive %}{% endfor %}", "unsupported: 'recursive'" },
        { "{{ 'a' | wordwrap }}", "unsupported: filter 'wordwrap' of a string" },
        { "{{ 'a' | tojson(ensure_ascii=true) }}", "unsupported: arguments of filter 'tojson'" },
        { "{{ 1 is callable }}", "unsupported: test 'callable' of an integer" },
        { "{{ 'a'.zfill(3) }}", "unsupported: method 'zfill' of a string" },
        { "{{ strftime_now('%Y') }}", "unsupported: the function 'strftime_now'" },
        { "{{ [1] }}", "unsupported: a list as text" },
        { "{% set m.x = 1 %}", "'m' is not a namespace" },
        { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply" },
        { "{% set n = namespace(s='ab') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
          "more than 64 MiB" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls__jinja *j;
        ls__jinja_text out = { 0 };
        json_t *variables = json_object();
        ls_status status = ls__jinja_parse(&j, "template", cases[i].template, strlen(cases[i].template));
        if (!status) status = ls__jinja_render(j, variables, &out);
        if (!status) fail_msg("%s: no error", cases[i].template);
        if (!strstr(ls_error(), cases[i].message))
            fail_msg("%s: '%s', expected '%s'", cases[i].template, ls_error(), cases[i].message);
        ls__jinja_text_free(&out);
        ls__jinja_free(&j);
        json_decref(variables);
    }
}

/* A tokenizer of kinds/ in this folder, with a template. */
static void make_tokenizer(const char *kind, const char *template, const char *bos, const char *eos)
{
    char path[600], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/tests/data/kinds/%s.json", getenv("LOCKSTEP_SOURCE"), kind);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_true(getdelim(&text, &bytes, EOF, f) > 0);
    fclose(f);
    write_text("tokenizer.json", text);
    free(text);
    json_t *config = json_pack("{s:s, s:{s:s}}", "eos_token", eos, "bos_token", "content", bos);
    if (template) json_object_set_new(config, "chat_template", json_string(template));
    assert_int_equal(json_dump_file(config, "tokenizer_config.json", 0), 0);
    json_decref(config);
}

static void check_row(const ls_dataset *set, const json_t *g, size_t length)
{
    int32_t inputs[512], targets[512];
    float weights[512];
    uint8_t mask[512];
    const json_t *tokens = json_object_get(g, "tokens"), *answers = json_object_get(g, "mask");
    size_t count = json_array_size(tokens);
    void *worker;
    ls_row row = { .fields = { inputs, targets, weights, mask } };
    check_ok(set->worker_open(set->self, 0, &worker));
    check_ok(set->get(set->self, worker, 0, &row));
    set->worker_free(set->self, worker);
    assert_int_equal(row.length, count > length ? length : count - 1);
    size_t losses = 0;
    for (size_t i = 0; i < row.length; i++) {
        assert_int_equal(inputs[i], json_integer_value(json_array_get(tokens, i)));
        assert_int_equal(targets[i], json_integer_value(json_array_get(tokens, i + 1)));
        json_int_t wanted = json_integer_value(json_array_get(answers, i + 1));
        if ((weights[i] > 0) != wanted)
            fail_msg("%s: token %zu (%d): weight %g, expected %d", text_of(g, "tokenizer"), i + 1, targets[i],
                     (double)weights[i], (int)wanted);
        losses += wanted;
    }
    assert_int_equal(row.tokens, losses);
}

static void only_answers_have_a_loss(void **state)
{
    (void)state;
    size_t tried = 0;
    for (size_t i = 0; i < n_goldens; i++) {
        const json_t *g = goldens[i];
        if (!json_object_get(g, "tokenizer")) continue;
        for (int k = 0; k < 4; k++) {
            const char *paths[] = { "chats.jsonl" };
            ls_tokenizer *tokenizer;
            ls_dataset *set;
            size_t length = k < 2 ? 500 : 9;
            make_tokenizer(text_of(g, "tokenizer"), text_of(g, k % 2 ? "plain" : "marked"), text_of(g, "bos_token"),
                           text_of(g, "eos_token"));
            json_t *line = json_pack("{s:O}", "messages", json_object_get(g, "messages"));
            assert_int_equal(json_dump_file(line, "chats.jsonl", 0), 0);
            json_decref(line);
            check_ok(ls_tokenizer_open(&tokenizer, ".", NULL));
            check_ok(ls_text_open(&set, &(ls_text_options){ .paths = paths,
                                                            .n_paths = 1,
                                                            .tokenizer = tokenizer,
                                                            .seq_len = length,
                                                            .padded = true,
                                                            .chat = true }));
            assert_int_equal(set->count, 1);
            check_row(set, g, length);
            ls_dataset_free(&set);
            ls_tokenizer_free(&tokenizer);
            tried++;
        }
    }
    assert_in_range(tried, 60, 500);
}

/* What the answers are, by a template without generation blocks. */
static void expect_answers(const char *template, const char *messages, const char *expected)
{
    ls_tokenizer *tokenizer;
    ls_chat_template *chat;
    ls__jinja_text out = { 0 };
    json_t *list;
    char got[500] = "";
    make_tokenizer("qwen2", template, "<s>", "</s>");
    check_ok(ls_tokenizer_open(&tokenizer, ".", NULL));
    check_ok(ls_chat_template_open(&chat, tokenizer));
    check_ok(ls__chat_parse(messages, strlen(messages), &list));
    check_ok(ls__chat_answers(chat, list, &out));
    for (size_t i = 0; i < out.n_spans; i++) {
        strncat(got, out.bytes + out.spans[i].begin, out.spans[i].end - out.spans[i].begin);
        strcat(got, ";");
    }
    if (strcmp(got, expected)) fail_msg("'%s': answers '%s', expected '%s'", out.bytes, got, expected);
    json_decref(list);
    ls__jinja_text_free(&out);
    ls_chat_template_free(&chat);
    ls_tokenizer_free(&tokenizer);
}

static void answers_go_from_what_asks_for_them_to_the_end_of_their_turn(void **state)
{
    (void)state;
#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define SAYS(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
    /* A thought that only the last answer shows belongs to it; the same text twice is two answers. */
    const char *thinks =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>\n{{ "
        "m.thought }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
        "%}<|im_start|>assistant\n{% endif %}";
    expect_answers(thinks,
                   "[" USER("a") ", " SAYS("a") ", " USER("a") ", {\"role\": \"assistant\", \"content\": \"a\", "
                                                               "\"thought\": \"why\"}]",
                   "a<|im_end|>;<think>\nwhy</think>a<|im_end|>;");
    /* Without a token at its end. */
    const char *plain = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{% if "
                        "add_generation_prompt %}assistant:{% endif %}";
    expect_answers(plain, "[" USER("x") ", " SAYS("  y ") ", " USER("y") ", " SAYS("") "]", " y; ;");
    /* Calls of tools. */
    const char *calls = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}\n<call>{{ "
                        "m.tool_calls | tojson }}{% endif "
                        "%}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    expect_answers(calls,
                   "[" USER("x") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [1]}, {\"role\": "
                                 "\"tool\", \"content\": \"y\"}]",
                   "None<call>[1]<|im_end|>;");
}

static void built_in_templates_work_with_any_tokenizer(void **state)
{
    (void)state;
    static const char messages[] =
        "[{\"role\": \"system\", \"content\": \"s\"}, " USER("u") ", " SAYS("a") ", " USER("v") "]";
    static const struct {
        const char *name, *text, *end;
    } cases[] = {
        { "chatml",
          "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_"
          "start|>user\nv<|im_end|>\n"
          "<|im_start|>assistant\n",
          "<|im_end|>" },
        { "llama2",
          "<|endoftext|>[INST] <<SYS>>\ns\n<</SYS>>\n\nu [/INST] a <|endoftext|><|endoftext|>[INST] v [/INST]",
          "<|endoftext|>" },
        { "llama3",
          "<|endoftext|><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|><|start_header_id|>user<|end_header_"
          "id|>\n\nu<|eot_"
          "id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nv<|"
          "eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n",
          "<|eot_id|>" },
        { "zephyr",
          "<|system|>\ns<|endoftext|>\n<|user|>\nu<|endoftext|>\n<|assistant|>\na<|endoftext|>\n<|user|>\nv<|endoftext|"
          ">\n<|assistant|>\n",
          "<|endoftext|>" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_tokenizer *tokenizer, *saved;
        ls_chat_template *chat;
        char *text;
        size_t bytes;
        check_ok(ls_tokenizer_open(&tokenizer, "bytes", NULL));
        check_fails(ls_chat_template_open(&chat, tokenizer), LS_EINVAL, "no chat template");
        ls_tokenizer_free(&tokenizer);
        check_ok(ls_tokenizer_open(&tokenizer, "bytes", &(ls_tokenizer_options){ .chat_template = cases[i].name }));
        check_ok(ls_tokenizer_save(tokenizer, "saved"));
        check_ok(ls_tokenizer_open(&saved, "saved", NULL));
        check_ok(ls_chat_template_open(&chat, saved));
        check_ok(ls_chat_render(chat, messages, sizeof messages - 1, true, &text, &bytes));
        assert_string_equal(text, cases[i].text);
        assert_int_equal(bytes, strlen(text));
        assert_string_equal(ls_chat_template_end(chat), cases[i].end);
        free(text);
        ls_chat_template_free(&chat);
        ls_tokenizer_free(&saved);
        ls_tokenizer_free(&tokenizer);
    }
}

static void bad_chats_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        { "{\"text\": \"a\"}", "chats.jsonl: byte 0 (line 1): no field messages" },
        { "{\"messages\": \"a\"}", "chats.jsonl: byte 0 (line 1): messages" },
        { "{\"messages\": []}", "must be a list of" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"content\": \"x\"}]}", "message 2 has no role" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": NaN}]}", "(line 1): messages: column" },
        { "{\"messages\": [" SAYS("x") "]}", "refuses the messages: messages must be of user and assistant by turns" },
        { "{\"messages\": [{\"role\": \"user\"}]}", "the sum of a string and undefined" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [\"x\"]}]}", "the sum of a string and a list" },
    };
    const char *paths[] = { "chats.jsonl" };
    ls_tokenizer *tokenizer;
    ls_dataset *set;
    check_ok(ls_tokenizer_open(&tokenizer, "bytes", &(ls_tokenizer_options){ .chat_template = "llama2" }));
    ls_text_options o = { .paths = paths, .n_paths = 1, .tokenizer = tokenizer, .seq_len = 64, .chat = true };
    write_text("chats.jsonl", "{}\n");
    check_fails(ls_text_open(&set, &o), LS_EINVAL, "chats are padded");
    o.padded = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[400];
        o.skip_bad = false;
        snprintf(lines, sizeof lines, "%s\n{\"messages\": [" USER("u") ", " SAYS("a") "]}\n", cases[i].line);
        write_text("chats.jsonl", lines);
        check_fails(ls_text_open(&set, &o), LS_EFORMAT, cases[i].message);
        o.skip_bad = true;
        check_ok(ls_text_open(&set, &o));
        assert_int_equal(set->count, 1);
        ls_dataset_free(&set);
    }
    ls_tokenizer_free(&tokenizer);
    check_fails(ls_tokenizer_open(&tokenizer, "bytes", &(ls_tokenizer_options){ .chat_template = "chatgpt" }),
                LS_EINVAL, "must be one of chatml, llama2");
    check_fails(ls_tokenizer_open(&tokenizer, "bytes", &(ls_tokenizer_options){ .chat_template = "none.jinja" }),
                LS_ENOENT, "none.jinja");
    check_fails(ls_tokenizer_open(&tokenizer, "bytes", &(ls_tokenizer_options){ .end_token = "</s>" }), LS_EINVAL,
                "bytes: end token '</s>' is not in the tokenizer");
    assert_null(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_give_the_text_of_transformers),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(only_answers_have_a_loss),
        cmocka_unit_test(answers_go_from_what_asks_for_them_to_the_end_of_their_turn),
        cmocka_unit_test(built_in_templates_work_with_any_tokenizer),
        cmocka_unit_test(bad_chats_are_refused_with_their_place),
    };
    return cmocka_run_group_tests(tests, read_goldens, free_goldens);
}
