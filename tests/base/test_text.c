/* Text of unknown origin: what a reader sees stays, what steers a terminal or hides is shown as \xNN. */
#include "check.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include <errno.h>

static void text_that_is_seen_stays_and_the_rest_is_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } cases[] = {
        { "", "" },
        { "h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight" },
        { "Zürich, 東京, 🙂, שלום", "Zürich, 東京, 🙂, שלום" },
        { "a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd" },
        { "\033[2J\033]0;title\007", "\\x1b[2J\\x1b]0;title\\x07" },
        { "\177\302\233\302\237", "\\x7f\\xc2\\x9b\\xc2\\x9f" },
        { "\302\240", "\302\240" },                                                        /* a space that keeps */
        { "a\u202eb\u2066c\u200fd", "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\x8fd" }, /* turns what follows */
        { "\u2028\u200b\ufeff", "\\xe2\\x80\\xa8\\xe2\\x80\\x8b\\xef\\xbb\\xbf" },         /* lines, hidden ones */
        { "\U000e0041", "\\xf3\\xa0\\x81\\x81" },                                          /* a tag */
        { "\x80\xff\xc0\xaf\xed\xa0\x80\xe2\x82", "\\x80\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xe2\\x82" }, /* no UTF-8 */
        { "C:\\x1b", "C:\\x1b" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[200], again[200];
        assert_int_equal(ls__printable(out, sizeof out, cases[i].from), strlen(cases[i].to));
        assert_string_equal(out, cases[i].to);
        ls__printable(again, sizeof again, out);
        assert_string_equal(again, out);
    }
}

static void what_does_not_fit_ends_in_dots_behind_a_whole_character(void **state)
{
    (void)state;
    static const char text[] = "ab\u20ac\033\U0001f642xyz";
    char whole[64];
    size_t n = ls__printable(whole, sizeof whole, text);
    for (size_t bytes = 4; bytes < n + 4; bytes++) {
        char *out = malloc(bytes); /* of this size, so that a sanitizer sees a write beyond it */
        size_t length = ls__printable(out, bytes, text);
        assert_int_equal(length, strlen(out));
        assert_true(length < bytes);
        if (bytes > n) {
            assert_string_equal(out, whole);
        } else {
            assert_string_equal(out + length - 3, "...");
            assert_memory_equal(out, whole, length - 3);
            char c = whole[length - 3]; /* where it was cut, a character or an escape begins */
            assert_true((c & 0xc0) != 0x80 && (length < 6 || strncmp(whole + length - 4, "\\x1b", 2) != 0));
        }
        free(out);
    }
}

static void copies_are_whole(void **state)
{
    (void)state;
    char *copy = ls__printable_copy("a\033\nb and more", 4);
    assert_string_equal(copy, "a\\x1b\\x0ab");
    free(copy);
    copy = ls__printable_copy("", 0);
    assert_string_equal(copy, "");
    free(copy);
}

static void failures_and_log_messages_are_one_line(void **state)
{
    (void)state;
    ls__fail(LS_EINVAL, "tensor '%s': no such parameter", "h.0\n\033[31mok\033[0m");
    assert_string_equal(ls_error(), "tensor 'h.0\\x0a\\x1b[31mok\\x1b[0m': no such parameter");
    ls__fail_within(LS_EINVAL, "file %s", "a\rb");
    assert_string_equal(ls_error(), "file a\\x0db: tensor 'h.0\\x0a\\x1b[31mok\\x1b[0m': no such parameter");
    /* A message made of the last one. */
    ls__fail(LS_EINVAL, "a");
    ls__fail(LS_EINVAL, "%s, %s", ls_error(), ls_error());
    assert_string_equal(ls_error(), "a, a");
}

static void the_reason_of_a_system_call_stays_behind_a_long_name(void **state)
{
    (void)state;
    char name[5001];
    memset(name, '\033', 5000);
    name[5000] = 0;
    errno = ENOENT;
    ls__fail_errno("%s", name);
    const char *end = "...: No such file or directory";
    assert_string_equal(ls_error() + strlen(ls_error()) - strlen(end), end);
}

static void keep(void *user, ls_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 100, "%s", text);
}

static void the_log_gets_printable_text(void **state)
{
    (void)state;
    char got[100] = "";
    ls_log_set(keep, got);
    ls__log(LS_LOG_WARNING, "%s", "a\033[2Jb\n");
    ls_log_set(NULL, NULL);
    assert_string_equal(got, "a\\x1b[2Jb\\x0a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_seen_stays_and_the_rest_is_escaped),
        cmocka_unit_test(what_does_not_fit_ends_in_dots_behind_a_whole_character),
        cmocka_unit_test(copies_are_whole),
        cmocka_unit_test(failures_and_log_messages_are_one_line),
        cmocka_unit_test(the_reason_of_a_system_call_stays_behind_a_long_name),
        cmocka_unit_test(the_log_gets_printable_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
