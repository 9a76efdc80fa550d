/* Status codes: every code has its own name, text and value, and messages survive being long or nested. */
#include "check.h"
#include "base/log.h"
#include "base/status.h"
#include <errno.h>

static const struct {
    ls_status code;
    const char *name, *text;
} list[] = {
#define X(name, value, text) { name, #name, text },
    LS_STATUS_LIST(X)
#undef X
};
enum { CODES = sizeof list / sizeof *list };

static void every_code_has_its_name_and_text(void **state)
{
    (void)state;
    for (int i = 0; i < CODES; i++) {
        assert_string_equal(ls_status_name(list[i].code), list[i].name);
        assert_string_equal(ls_status_text(list[i].code), list[i].text);
        for (int k = 0; k < i; k++) assert_int_not_equal(list[i].code, list[k].code);
    }
    assert_string_equal(ls_status_name((ls_status)12345), "LS_UNKNOWN");
    assert_string_equal(ls_status_text((ls_status)12345), "unknown status");
}

static void messages_nest_and_are_cut_with_dots(void **state)
{
    (void)state;
    assert_int_equal(ls__fail(LS_EINVAL, "count is %d", 7), LS_EINVAL);
    assert_string_equal(ls_error(), "count is 7");
    assert_int_equal(ls__fail_within(LS_EIO, "rank %d", 3), LS_EIO);
    assert_string_equal(ls_error(), "rank 3: count is 7");

    char *longer = malloc(5001);
    memset(longer, 'x', 5000);
    longer[5000] = 0;
    ls__fail(LS_EINVAL, "%s", longer);
    free(longer);
    assert_true(strlen(ls_error()) > 500);
    assert_string_equal(ls_error() + strlen(ls_error()) - 3, "...");
}

static void errno_picks_the_status(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(ls__fail_errno("file %s", "a"), LS_ENOENT);
    assert_string_equal(ls_error(), "file a: No such file or directory");
    errno = ENOSPC;
    assert_int_equal(ls__fail_errno("b"), LS_EIO);
    errno = EPERM;
    assert_int_equal(ls__fail_errno("c"), LS_ESYS);
}

static void keep(void *user, ls_log_level level, const char *text)
{
    snprintf(user, 100, "%d %s", (int)level, text);
}

static void the_log_callback_gets_messages(void **state)
{
    (void)state;
    char got[100] = "";
    ls__log(LS_LOG_WARNING, "into the void");
    ls_log_set(keep, got);
    ls__log(LS_LOG_WARNING, "disk %d%% full", 91);
    assert_string_equal(got, "2 disk 91% full");
    ls_log_set(NULL, NULL);
    ls__log(LS_LOG_INFO, "again the void");
    assert_string_equal(got, "2 disk 91% full");
}

static void types_have_sizes(void **state)
{
    (void)state;
    static const size_t sizes[LS_DTYPE_COUNT] = { 4, 8, 2, 4, 8, 1, 2, 1, 2, 1 };
    for (int i = 0; i < LS_DTYPE_COUNT; i++) assert_int_equal(ls_dtype_size((ls_dtype)i), sizes[i]);
    assert_int_equal(ls_dtype_size((ls_dtype)99), 0);
    assert_string_equal(ls_dtype_name((ls_dtype)99), "unknown type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_name_and_text),
        cmocka_unit_test(messages_nest_and_are_cut_with_dots),
        cmocka_unit_test(errno_picks_the_status),
        cmocka_unit_test(the_log_callback_gets_messages),
        cmocka_unit_test(types_have_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
