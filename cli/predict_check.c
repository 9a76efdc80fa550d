/* `lockstep predict --check`: the prediction for the set-up of another run, beside what that run recorded. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/status.h"
#include "cli/amount.h"
#include "cli/commands.h"
#include "cli/predict_table.h"
#include "cli/prediction_log.h"

/* GFLOP/s of matrix products that the run measured at its start; 0: not known. */
static double peak_of(const ls_run *run)
{
    double peak = run->rank[0].metadata[LS_METADATA_PEAK];
    return run->rank[0].present && isfinite(peak) && peak > 0 ? peak : 0;
}

static double parameters_of(const ls_run *run)
{
    double n = run->rank[0].metadata[LS_METADATA_PARAMETERS];
    return run->rank[0].present && n > 0 ? n : 0;
}

static double tokens_of(const ls_run *run)
{
    const double *m = run->rank[0].metadata;
    return run->rank[0].present && m[LS_METADATA_SLOTS] > 0 && m[LS_METADATA_TOKENS] > 0
               ? m[LS_METADATA_TOKENS] / m[LS_METADATA_SLOTS]
               : 0;
}

predict_source predict_source_of(const ls_run *run, const char *path)
{
    predict_source s = {
        .run = path, .peak = peak_of(run), .parameters = parameters_of(run), .tokens = tokens_of(run)
    };
    /* A copy has all of these. An import may lack the time and the process. */
    const ls_run_rank *first = &run->rank[0];
    snprintf(s.id, sizeof s.id, "%s %d %.6f %zu %.3f", first->host, first->pid, first->start_time, run->n_steps,
             run->step_mean);
    return s;
}

/* What no prediction is about may not count as an error of one. */
static ls_status check_same_work(const predict_source *a, const predict_source *b)
{
    struct stat one, two;
    if (!stat(a->run, &one) && !stat(b->run, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino)
        return ls__fail(LS_EINVAL,
                        "%s: is the run that is predicted from, which is exact by construction; compare another one",
                        b->run);
    if (!strcmp(a->id, b->id))
        return ls__fail(LS_EINVAL,
                        "%s: is a copy of %s, the run that is predicted from, which is exact by construction; compare "
                        "another one",
                        b->run, a->run);
    if (a->parameters > 0 && b->parameters > 0 && a->parameters != b->parameters)
        return ls__fail(LS_EINVAL, "%s: its model has %.0f parameters, that of %s %.0f; compare runs of one model",
                        b->run, b->parameters, a->run, a->parameters);
    if (a->tokens > 0 && b->tokens > 0 && a->tokens != b->tokens)
        return ls__fail(LS_EINVAL,
                        "%s: its micro-batches have %g tokens, those of %s %g; compare runs with the same --batch-size "
                        "and --seq-len",
                        b->run, b->tokens, a->run, a->tokens);
    return LS_OK;
}

static void print_check(const ls_prediction *said, const ls_prediction *truth, double measured, double speed)
{
    printf("predicted %s (%s to %s), recorded %s: %+.1f%%, %s the band\n", amount_ns(said->step).text,
           amount_ns(said->low).text, amount_ns(said->high).text, amount_ns(measured).text,
           100 * (said->step / measured - 1), measured >= said->low && measured <= said->high ? "within" : "outside");
    printf("  %-14s  predicted    recorded  difference\n", "term");
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        double difference = said->term[i] - truth->term[i];
        printf("  %-14s %s %s  %c%s\n", ls_term_name((ls_term)i), amount_field(amount_ns(said->term[i]), 10).text,
               amount_field(amount_ns(truth->term[i]), 11).text, difference < 0 ? '-' : '+',
               amount_ns(fabs(difference)).text);
    }
    if (speed > 0)
        printf("matrix products at its start: %.2f times the speed that they had at the start of the run predicted "
               "from%s\n",
               speed, fabs(speed - 1) > 0.02 ? "; the machine is part of the difference" : "");
}

static int print_check_json(const ls_prediction *said, const ls_prediction *truth, double measured, double speed)
{
    json_t *terms = json_object();
    for (int i = 0; i < LS_TERM_COUNT; i++)
        json_object_set_new(terms, ls_term_name((ls_term)i), json_real(truth->term[i]));
    json_t *out =
        json_pack("{s:o, s:{s:f, s:o}, s:f, s:b, s:o}", "predicted", prediction_json(said), "recorded", "step",
                  measured, "terms", terms, "error", said->step / measured - 1, "within",
                  measured >= said->low && measured <= said->high, "speed", speed > 0 ? json_real(speed) : json_null());
    bool failed = !out || json_dumpf(out, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(out);
    return failed ? EXIT_FAILED : EXIT_DONE;
}

int predict_check(const ls_predictor *p, const predict_source *source, const char *path, double factor, bool json)
{
    ls_run *run;
    ls_predictor *other;
    ls_prediction truth, said;
    ls_status status = ls_run_open(&run, path, NULL);
    if (status) return exit_failure("predict", status);
    predict_source compared = predict_source_of(run, path);
    status = check_same_work(source, &compared);
    if (!status) status = ls_predictor_open(&other, run);
    ls_run_free(&run);
    if (status) return exit_failure("predict", status);
    double measured = ls_predictor_recorded_step(other);
    status = ls_predict(other, NULL, &truth);
    if (!status) status = ls_predict(p, &truth.setup, &said);
    if (!status) status = prediction_log_add(source->run, path, compared.id, &said, measured, factor);
    ls_predictor_free(&other);
    if (status) return exit_failure("predict", status);
    double speed = source->peak > 0 && compared.peak > 0 ? compared.peak / source->peak : 0;
    if (json) return print_check_json(&said, &truth, measured, speed);
    print_check(&said, &truth, measured, speed);
    return EXIT_DONE;
}
