/* JSON lines: what is asked for is read exactly, what is not asked for is only passed over. */
#include "check.h"
#include "data/json_line.h"

static ls_status read_line(const char *line, ls__json_field *fields, int n, size_t *at, const char **problem)
{
    static ls__json_line reader;            /* one for all, as for the lines of a file */
    char *exact = malloc(strlen(line) + 1); /* so that a sanitizer sees a read after the end */
    size_t count = strlen(line);
    memcpy(exact, line, count);
    exact = realloc(exact, count ? count : 1);
    ls_status status = ls__json_line_read(&reader, exact, count, fields, n, at, problem);
    for (int i = 0; i < n; i++)
        if (fields[i].text) fields[i].text = memcpy(malloc(fields[i].bytes + 1), fields[i].text, fields[i].bytes);
    free(exact);
    if (!line[0]) ls__json_line_free(&reader); /* the last one */
    return status;
}

static void expect_text(const char *line, const char *expected, size_t bytes)
{
    size_t at;
    const char *problem = "";
    ls__json_field f = { .name = "text" };
    if (read_line(line, &f, 1, &at, &problem)) fail_msg("%s: byte %zu: %s", line, at, problem);
    if (!expected && f.found) fail_msg("%s: found %zu bytes", line, f.bytes);
    if (expected && (!f.text || f.bytes != bytes || memcmp(f.text, expected, bytes)))
        fail_msg("%s: '%.*s' of %zu bytes, expected '%s' of %zu", line, (int)f.bytes, f.text ? f.text : "", f.bytes,
                 expected, bytes);
    free((char *)f.text);
}

#define TEXT(line, expected) expect_text(line, expected, sizeof(expected) - 1)

static void fields_are_found_and_decoded(void **state)
{
    (void)state;
    TEXT("{\"text\":\"abc\"}", "abc");
    TEXT(" { \"a\" : [1, {\"text\": \"no\"}, []], \"text\" : \"yes\" , \"b\" : {} } \r", "yes");
    TEXT("{\"text\":\"\"}", "");
    TEXT("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
    TEXT("{\"text\":\"\\u00e4\\u20ac\\ud83d\\ude00\"}", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    TEXT("{\"text\":\"\xc3\xa4\xf0\x9f\x98\x80\"}", "\xc3\xa4\xf0\x9f\x98\x80");
    TEXT("{\"text\":\"a\\u0000b\"}", "a\0b");
    TEXT("{\"te\\u0078t\":\"escaped name\"}", "escaped name");
    TEXT("\xef\xbb\xbf{\"text\":\"mark\"}", "mark");
    expect_text("{}", NULL, 0);
    expect_text("{\"text\":null}", NULL, 0);
    expect_text("{\"text\":[\"abc\"]}", NULL, 0);
    expect_text("{\"txt\":\"abc\"}", NULL, 0);
}

static void halves_of_surrogates_become_a_replacement(void **state)
{
    (void)state;
#define FFFD "\xef\xbf\xbd"
    TEXT("{\"text\":\"a\\ud800b\"}", "a" FFFD "b");
    TEXT("{\"text\":\"\\udc00\"}", FFFD);
    TEXT("{\"text\":\"\\ud800\\ud83d\\ude00\"}", FFFD "\xf0\x9f\x98\x80");
    TEXT("{\"text\":\"\\ud800\\n\"}", FFFD "\n");
    TEXT("{\"text\":\"\\ud800\\u0041\"}", FFFD "A");
}

static void what_is_not_needed_is_not_judged(void **state)
{
    (void)state;
    TEXT("{\"id\":123456789012345678901234567890,\"text\":\"x\"}", "x");
    TEXT("{\"id\":1e999,\"a\":-0.5E+3,\"b\":007,\"text\":\"x\"}", "x");
    TEXT("{\"a\":NaN,\"b\":Infinity,\"c\":-Infinity,\"d\":[NaN],\"text\":\"x\"}", "x");
    TEXT("{\"a\":\"\\ud800\",\"b\":\"\xff\xfe\",\"text\":\"x\"}", "x");
    TEXT("{\"a\":1,\"a\":2,\"text\":\"x\"}", "x");
    char deep[2100] = "{\"a\":";
    size_t n = strlen(deep);
    memset(deep + n, '[', 1000);
    memset(deep + n + 1000, ']', 1000);
    strcpy(deep + n + 2000, ",\"text\":\"x\"}");
    TEXT(deep, "x");
}

static void what_is_no_object_is_named_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        size_t at;
        const char *problem;
    } cases[] = {
        { "nothing", 0, "missing '{'" },
        { "[1]", 0, "missing '{'" },
        { "{", 1, "unexpected end" },
        { "{\"text\":\"a\"", 11, "unexpected end" },
        { "{\"text\":\"a", 10, "unterminated string" },
        { "{\"text\" \"a\"}", 8, "missing ':' after a name" },
        { "{\"text\":\"a\" \"b\":1}", 12, "missing ',' between two fields" },
        { "{\"text\":\"a\",}", 12, "missing string" },
        { "{\"text\":\"a\"} x", 13, "trailing characters after the object" },
        { "{\"text\":\"\\x\"}", 10, "unknown escape in a string" },
        { "{\"text\":\"\\u12\"}", 10, "unknown escape in a string" },
        { "{\"text\":\"\t\"}", 9, "control character in a string" },
        { "{\"text\":\"ab\xff\"}", 11, "string is not valid UTF-8" },
        { "{\"text\":\"a\",\"text\":\"b\"}", 19, "duplicate field" },
        { "{\"text\":1,\"text\":\"b\"}", 17, "duplicate field" },
        { "{\"a\":tru}", 5, "invalid value" },
        { "{\"a\":1.}", 7, "invalid value" },
        { "{\"a\":[1,]}", 8, "invalid value" },
        { "{\"a\":[1 2]}", 8, "missing ',' between two values" },
        { "{\"a\":{\"b\"}}", 9, "missing ':' after a name" },
        { "{\"a\":[}", 6, "invalid value" },
        { "", 0, "unexpected end" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t at;
        const char *problem = "";
        ls__json_field f = { .name = "text" };
        ls_status status = read_line(cases[i].line, &f, 1, &at, &problem);
        if (status != LS_EFORMAT || at != cases[i].at || strcmp(problem, cases[i].problem))
            fail_msg("%s: %s, byte %zu: %s; expected byte %zu: %s", cases[i].line, ls_status_name(status), at, problem,
                     cases[i].at, cases[i].problem);
        free((char *)f.text);
    }
    char deep[1100] = "{\"a\":";
    memset(deep + 5, '[', 1090);
    ls__json_field f = { .name = "text" };
    size_t at;
    const char *problem;
    assert_int_equal(read_line(deep, &f, 1, &at, &problem), LS_EFORMAT);
    assert_string_equal(problem, "nested too deeply");
}

static void numbers_are_read_where_they_are_needed(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool found;
        double value;
    } cases[] = { { "{\"w\":0.25,\"text\":\"\"}", true, 0.25 },
                  { "{\"w\":-3e2,\"text\":\"\"}", true, -300 },
                  { "{\"w\":\"1\",\"text\":\"\"}", false, 0 },
                  { "{\"w\":true,\"text\":\"\"}", false, 0 },
                  { "{\"text\":\"\"}", false, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls__json_field f[2] = { { .name = "text" }, { .name = "w", .is_number = true } };
        size_t at;
        const char *problem;
        assert_int_equal(read_line(cases[i].line, f, 2, &at, &problem), LS_OK);
        assert_int_equal(f[1].found, cases[i].found);
        assert_true(f[1].number == cases[i].value);
        free((char *)f[0].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_found_and_decoded),
        cmocka_unit_test(halves_of_surrogates_become_a_replacement),
        cmocka_unit_test(what_is_not_needed_is_not_judged),
        cmocka_unit_test(numbers_are_read_where_they_are_needed),
        cmocka_unit_test(what_is_no_object_is_named_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
