/* Numbers and strings of a trace, as in the file. */
#include "check.h"

#include <string.h>
#include "import/document.h"
#include "import/scan.h"
#include "lockstep/import.h"

static ls__text text(const char *s)
{
    return (ls__text){ s, strlen(s) };
}

static void test_times_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t ns;
    } cases[] = {
        { "3994260468510.344", true, 3994260468510344 }, /* a double would lose the last digit */
        { "3994260468510.3449", true, 3994260468510344 },
        { "1661203462602585", true, 1661203462602585000 },
        { "0.5", true, 500 },
        { "-12.25", true, -12250 },
        { "7.", true, 7000 },
        { "1e3", true, 1000000 },
        { "\"15.5\"", true, 15500 },
        { "99999999999999999999", false, 0 },
        { "1e300", false, 0 },
        { "NaN", false, 0 },
        { "12x", false, 0 },
        { "", false, 0 },
        { "-", false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ns = -1;
        bool ok = ls__text_thousandths(text(cases[i].text), &ns);
        assert_int_equal(ok, cases[i].ok);
        if (ok) assert_true(ns == cases[i].ns);
    }
}

static void test_values_end_where_they_end(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int length; /* < 0: it is not whole */
    } cases[] = {
        { "\"a\\\"b\",", 6 },
        { "{\"a\": [1, {\"}\": \"]\"}]} x", 22 },
        { "12,", 2 },
        { "\"open", -1 },
        { "{\"a\": [", -1 },
        { "12", -1 }, /* it may continue */
        { "\"0123456789abcdef\\\\\",", 20 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *s = cases[i].text, *p = ls__scan_value(s, s + strlen(s));
        assert_int_equal(p ? (int)(p - s) : -1, cases[i].length);
    }
    ls__text value;
    const char *o = "{\"a\": {\"b\": 1}, \"b\": \"two\", \"c\":3}";
    assert_true(ls__scan_find(o, o + strlen(o), "b", &value));
    assert_true(ls__text_is(value, "two"));
    assert_false(ls__scan_find(o, o + strlen(o), "d", &value));
}

/* ---- Documents. */

typedef struct seen {
    int begins, events;
    int64_t time;
} seen;

static ls_status begin(void *user)
{
    ((seen *)user)->begins++;
    return LS_OK;
}

static ls_status event(void *user, const ls__trace_event *e)
{
    ((seen *)user)->events++;
    ((seen *)user)->time += e->time;
    return LS_OK;
}

static ls__document_reader read_text(const char *s, seen *out, ls_status expected)
{
    ls__document_reader r = { .user = out, .begin = begin, .event = event };
    ls__input *in;
    *out = (seen){ 0 };
    assert_int_equal(ls__input_open_memory(&in, s, strlen(s)), LS_OK);
    assert_int_equal(ls__document_read(&r, in), expected);
    ls__input_free(&in);
    return r;
}

static void test_what_is_broken_is_skipped(void **state)
{
    (void)state;
    seen s;
    ls__document_reader r =
        read_text("{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1}, {\"ph\": \"X\", \"name\": \"a\"b\", \"ts\": 2},\n"
                  "{\"ph\": \"X\", \"ts\": 4} {\"ph\": \"X\", \"ts\": 8}, , {\"ph\"}, {\"ts\": 16, \"ph\": \"X\"}]}",
                  &s, LS_OK);
    assert_int_equal(r.broken, 2);
    assert_int_equal(s.events, 4);
    assert_true(s.time == 29000);
    assert_false(r.cut);
}

static void test_documents_in_a_row(void **state)
{
    (void)state;
    seen s;
    const char *one = "{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\", \"ts\": 1}";
    char all[400];
    snprintf(all, sizeof all, "%s]}\n%s, {\"ph\": \"X\", \"t%s]} junk", one, one, one);
    ls__document_reader r = read_text(all, &s, LS_OK);
    assert_int_equal(s.begins, 3);
    assert_int_equal(s.events, 3);
    assert_true(r.cut);
    read_text("hello", &s, LS_EFORMAT);
    read_text("", &s, LS_EFORMAT);
    r = read_text("[{\"ph\": \"X\", \"ts\": 3}]", &s, LS_OK); /* a list alone is a trace, too */
    assert_int_equal(s.events, 1);
}

static void test_null_arguments_are_refused(void **state)
{
    (void)state;
    ls_import_result result;
    check_fails(ls_import(NULL, &result), LS_EINVAL, "options must not be NULL");
    check_fails(ls_import(&(ls_import_options){ .out = "x" }, NULL), LS_EINVAL, "result must not be NULL");
    check_fails(ls_import(&(ls_import_options){ .kind = 2 }, &result), LS_EINVAL, "unknown kind of files 2");
    ls_import_result_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_are_exact),
        cmocka_unit_test(test_values_end_where_they_end),
        cmocka_unit_test(test_what_is_broken_is_skipped),
        cmocka_unit_test(test_documents_in_a_row),
        cmocka_unit_test(test_null_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
