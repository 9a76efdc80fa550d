/* The line that shows a training's progress: what matters stays in it, however narrow the terminal. */
#include "check.h"
#include "cli/progress.h"

static const ls_train_metrics early = { .step = 146,
                                        .steps = 100000,
                                        .loss = 13.8520f,
                                        .tokens_per_s = 11012,
                                        .gflops = 12,
                                        .peak_gflops = 100,
                                        .memory_bytes = (size_t)8 << 30 };

static void line_at(const ls_train_metrics *m, int columns, char *line)
{
    progress p = { .smoothed = 1100 };
    progress_line(&p, m, columns, line, 512);
    assert_true((int)strlen(line) <= columns);
}

static void eighty_columns_show_the_time_left(void **state)
{
    (void)state;
    char line[512];
    line_at(&early, 79, line);
    assert_non_null(strstr(line, "146/100000 ["));
    assert_non_null(strstr(line, "loss 13.8520"));
    assert_non_null(strstr(line, "11.0k tokens/s"));
    assert_string_equal(line + strlen(line) - 15, "  30:30:39 left");
}

static void a_wide_terminal_shows_all(void **state)
{
    (void)state;
    char line[512];
    line_at(&early, 200, line);
    assert_string_equal(
        line,
        "146/100000 [#-----------------------] loss 13.8520  11.0k tokens/s  12% of SGEMM  8590 MB  30:30:39 left");
}

static void a_narrow_one_keeps_step_loss_and_time(void **state)
{
    (void)state;
    char line[512];
    line_at(&early, 40, line);
    assert_string_equal(line, "146/100000 loss 13.8520  30:30:39 left");
    for (int columns = 1; columns < 120; columns++) line_at(&early, columns, line);
}

static void the_bar_is_full_at_the_end(void **state)
{
    (void)state;
    char line[512];
    ls_train_metrics last = early;
    last.step = last.steps;
    line_at(&last, 100, line);
    assert_null(strchr(line, '-'));
    assert_non_null(strstr(line, "#]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eighty_columns_show_the_time_left),
        cmocka_unit_test(a_wide_terminal_shows_all),
        cmocka_unit_test(a_narrow_one_keeps_step_loss_and_time),
        cmocka_unit_test(the_bar_is_full_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
