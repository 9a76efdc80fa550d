/* The race of set-ups: who is chosen, and when it is decided. */
#include <math.h>
#include <stdio.h>
#include "check.h"
#include "cli/tune_race.h"

/* Rounds of the given set-up and of another one, in ms. */
static tune_race race_of(int rounds, const double *given, const double *other)
{
    tune_race r = { 0 };
    assert_non_null(tune_race_add(&r, "", NAN));
    assert_non_null(tune_race_add(&r, " -n 2", NAN));
    assert_null(tune_race_add(&r, " -n 2", NAN));
    for (int i = 0; i < rounds; i++) {
        r.runners[0].step[i] = given[i] * 1e6;
        r.runners[1].step[i] = other[i] * 1e6;
    }
    r.runners[0].rounds = r.runners[1].rounds = rounds;
    return r;
}

static void a_faster_one_wins(void **state)
{
    (void)state;
    tune_race r = race_of(3, (double[]){ 10, 10.2, 9.9 }, (double[]){ 8, 8.1, 8 });
    assert_true(tune_race_judge(&r));
    assert_int_equal(tune_race_winner(&r), 1);
    assert_true(r.runners[0].out);
}

static void chance_and_less_than_one_percent_do_not(void **state)
{
    (void)state;
    tune_race noisy = race_of(3, (double[]){ 10, 14, 9 }, (double[]){ 9, 10, 13 });
    assert_false(tune_race_judge(&noisy));
    assert_int_equal(tune_race_winner(&noisy), 0);
    tune_race same = race_of(4, (double[]){ 10, 10, 10, 10 }, (double[]){ 9.95, 9.96, 9.94, 9.95 });
    tune_race_judge(&same);
    assert_false(same.runners[0].out && tune_race_winner(&same) == 0);
    assert_int_equal(tune_race_winner(&(tune_race){ .runners = { same.runners[0] }, .count = 1 }), 0);
}

static void one_round_decides_only_by_much(void **state)
{
    (void)state;
    tune_race close = race_of(1, (double[]){ 10 }, (double[]){ 9.5 }),
              far = race_of(1, (double[]){ 10 }, (double[]){ 3 });
    assert_false(tune_race_judge(&close));
    assert_int_equal(tune_race_winner(&close), 0);
    assert_false(tune_race_judge(&far)); /* the given set-up has a second run where there is one */
    assert_int_equal(tune_race_winner(&far), 1);
}

static void a_hopeless_one_leaves_after_one_round(void **state)
{
    (void)state;
    tune_race r = race_of(1, (double[]){ 10 }, (double[]){ 30 });
    assert_true(tune_race_judge(&r));
    assert_true(r.runners[1].out);
    assert_int_equal(tune_race_winner(&r), 0);
}

static void one_disturbed_run_does_not_prolong_the_race(void **state)
{
    (void)state;
    tune_race r = race_of(5, (double[]){ 25, 10, 10.4, 10.2, 10.3 }, (double[]){ 9.5, 9.6, 9.7, 9.5, 9.8 });
    tune_difference d = tune_compare(&r.runners[1], &r.runners[0]);
    assert_true(d.mean - d.half < 0); /* by the mean alone it would not be sure */
    assert_true(tune_race_judge(&r));
    assert_true(r.runners[0].out);
    assert_int_equal(tune_race_winner(&r), 1);
}

static void a_small_difference_is_settled_after_some_rounds(void **state)
{
    (void)state;
    const double given[] = { 10, 11, 10.5, 10, 10.2 }, other[] = { 10.4, 10.5, 10.1, 10.6, 10 };
    tune_race early = race_of(3, given, other), late = race_of(4, given, other);
    assert_false(tune_race_judge(&early));
    assert_true(tune_race_judge(&late));
    assert_int_equal(tune_race_winner(&late), 0);
}

static tune_runner predicted(const char *options, double ms)
{
    tune_runner r = { .predicted = ms * 1e6 };
    snprintf(r.options, sizeof r.options, "%s", options);
    return r;
}

static void of_equal_predictions_the_first_one_races(void **state)
{
    (void)state;
    tune_runner found[] = { predicted(" unknown", NAN), predicted(" a", 5),      predicted(" b", 3.001),
                            predicted(" c", 3),         predicted(" d", 2.9995), predicted(" e", 4) };
    tune_race r = { 0 };
    tune_race_add_best(&r, found, 6, 2, 4.5e6, 0.001);
    assert_int_equal(r.count, 2);
    assert_string_equal(r.runners[0].options, " b"); /* c and d are predicted to take as long */
    assert_string_equal(r.runners[1].options, " e");
    tune_race all = { 0 };
    for (int i = 0; i < 6; i++) found[i].out = false;
    tune_race_add_best(&all, found, 6, 9, 4.5e6, 0);
    const char *order[] = { " d", " c", " b", " e", " unknown" };
    assert_int_equal(all.count, 5); /* a takes too long */
    for (size_t i = 0; i < 5; i++) assert_string_equal(all.runners[i].options, order[i]);
}

static void gains_of_two_races_are_multiplied(void **state)
{
    (void)state;
    tune_race races[2] = { race_of(3, (double[]){ 10, 10.1, 10 }, (double[]){ 8, 8, 8.1 }),
                           race_of(2, (double[]){ 8, 8.1 }, (double[]){ 4, 4 }) };
    tune_difference d = tune_races_gain(races, 2), first = tune_races_gain(races, 1);
    assert_int_equal(d.rounds, 2);
    assert_int_equal(first.rounds, 3);
    assert_true(fabs(exp(first.mean) - 1.249) < 0.002);
    assert_true(fabs(exp(d.mean) - 1.249 * 2.0125) < 0.005);
    assert_true(d.half > first.half && isfinite(d.half));
    assert_true(tune_races_gain(races, 0).mean == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_faster_one_wins),
        cmocka_unit_test(chance_and_less_than_one_percent_do_not),
        cmocka_unit_test(one_round_decides_only_by_much),
        cmocka_unit_test(a_hopeless_one_leaves_after_one_round),
        cmocka_unit_test(one_disturbed_run_does_not_prolong_the_race),
        cmocka_unit_test(a_small_difference_is_settled_after_some_rounds),
        cmocka_unit_test(of_equal_predictions_the_first_one_races),
        cmocka_unit_test(gains_of_two_races_are_multiplied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
