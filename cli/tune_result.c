/* See tune_result.h. */
#include "cli/tune_result.h"

#include <math.h>
#include "cli/amount.h"

static const char *in_words(const char *options)
{
    return *options ? options + 1 : "as given";
}

void tune_print_race(FILE *to, const char *before, const tune_race *race)
{
    size_t winner = tune_race_winner(race);
    fprintf(to, "%s     step  predicted  runs  set-up\n", before);
    for (size_t i = 0; i < race->count; i++) {
        const tune_runner *r = &race->runners[i];
        double sum = 0;
        for (int k = 0; k < r->rounds; k++) sum += log(r->step[k]) / r->rounds;
        fprintf(to, "%s%s  %s  %4d  %s%s\n", before,
                r->rounds ? amount_field(amount_ns(exp(sum)), 9).text
                : r->out  ? "   failed"
                          : "        -",
                isfinite(r->predicted) ? amount_field(amount_ns(r->predicted), 9).text : "        ?", r->rounds,
                in_words(r->options), i == winner ? "   <- chosen" : "");
    }
}

void tune_print_gain(FILE *to, const char *before, const tune_race *races, const char *choice)
{
    if (races[0].count == 1 && races[1].count == 1) {
        fprintf(to, "%sthe given set-up: no other is allowed or predicted to come near it\n", before);
        return;
    }
    if (!*choice) {
        fprintf(to, "%sthe given set-up: no other is surely faster by more than 1%%\n", before);
        return;
    }
    tune_difference d = tune_races_gain(races, 2);
    fprintf(to, "%s%s: %.2f times as fast as the given set-up", before, in_words(choice), exp(d.mean));
    if (isfinite(d.half))
        fprintf(to, " (%.2f to %.2f, 90%% confidence, %d runs in turns)", exp(d.mean - d.half), exp(d.mean + d.half),
                d.rounds);
    fputc('\n', to);
}
