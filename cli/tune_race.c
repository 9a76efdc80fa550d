/* See tune_race.h. */
#include "cli/tune_race.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double WORTH = 0.01; /* gains below this are not worth a run */
static const double HOPELESS =
    0.7; /* after one round: e^0.7 is twice as slow. The set-up that others must beat gets a second one */
static const double ONE_RUN = 0.15;   /* single runs of two set-ups that differ by less say nothing */
enum { SIGNS = 5, SETTLED = 4 };      /* rounds: see is_always_slower() and tune_race_judge() */
static const double LEAST_SD = 0.003; /* runs of the same set-up differ by this much even if two of them did not */

tune_runner *tune_race_add(tune_race *r, const char *options, double predicted)
{
    if (r->count == TUNE_MAX_RUNNERS) return NULL;
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->runners[i].options, options)) return NULL;
    tune_runner *n = &r->runners[r->count++];
    *n = (tune_runner){ .predicted = predicted };
    snprintf(n->options, sizeof n->options, "%s", options);
    return n;
}

/* Any prediction is shorter than none. */
static bool is_shorter(double a, double b, double share)
{
    return !isnan(a) && (isnan(b) || a < b * (1 - share));
}

void tune_race_add_best(tune_race *r, tune_runner *found, size_t n, size_t limit, double most, double apart)
{
    for (; limit; limit--) {
        const tune_runner *best = NULL;
        for (const tune_runner *f = found; f < found + n; f++)
            if (!f->out && !(f->predicted > most) && (!best || is_shorter(f->predicted, best->predicted, apart)))
                best = f;
        if (!best) return;
        tune_race_add(r, best->options, best->predicted);
        for (tune_runner *f = found; f < found + n; f++)
            f->out = f->out || f == best || fabs(f->predicted / best->predicted - 1) < apart;
    }
}

/* Student's t, 95% one-sided, by degrees of freedom. */
static double student(int freedom)
{
    static const double t[] = { 0, 6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895 };
    return freedom < 1 ? INFINITY : t[freedom < 7 ? freedom : 7];
}

tune_difference tune_compare(const tune_runner *a, const tune_runner *b)
{
    tune_difference d = { .rounds = a->rounds < b->rounds ? a->rounds : b->rounds };
    double squares = 0;
    for (int i = 0; i < d.rounds; i++) d.mean += log(b->step[i] / a->step[i]) / d.rounds;
    for (int i = 0; i < d.rounds; i++) squares += pow(log(b->step[i] / a->step[i]) - d.mean, 2);
    if (d.rounds < 2) {
        d.half = INFINITY;
        return d;
    }
    double sd = fmax(LEAST_SD, sqrt(squares / (d.rounds - 1)));
    d.half = student(d.rounds - 1) * sd / sqrt(d.rounds);
    return d;
}

size_t tune_race_leader(const tune_race *r)
{
    size_t best = 0;
    for (size_t i = 1; i < r->count; i++)
        if (!r->runners[i].out && (r->runners[best].out || tune_compare(&r->runners[best], &r->runners[i]).mean < 0))
            best = i;
    return best;
}

/* Whether b was slower than a in every round, and there were enough of them that chance would not do it (1 in 32). One run that was disturbed
 * makes the mean uncertain for many rounds; this it does not. */
static bool is_always_slower(const tune_runner *a, const tune_runner *b)
{
    int rounds = a->rounds < b->rounds ? a->rounds : b->rounds;
    for (int i = 0; i < rounds; i++)
        if (b->step[i] <= a->step[i]) return false;
    return rounds >= SIGNS;
}

bool tune_race_judge(tune_race *r)
{
    size_t leader = tune_race_leader(r);
    const tune_runner *best = &r->runners[leader];
    bool decided = true;
    for (size_t i = 0; i < r->count; i++) {
        tune_runner *c = &r->runners[i];
        if (i == leader || c->out) continue;
        tune_difference d = tune_compare(best, c);
        c->out = d.mean - d.half > 0 || is_always_slower(best, c) || (i && d.rounds == 1 && d.mean > HOPELESS);
        /* Open as long as it may be better than the leader by more than is worth it, or the leader better than the given set-up. After some
         * rounds a difference that is estimated to be small is not worth more of them. */
        bool small = d.rounds >= SETTLED && d.mean < WORTH;
        if (!c->out && !small && (d.half - d.mean > WORTH || (i == 0 && d.mean + d.half > WORTH))) decided = false;
    }
    return decided;
}

size_t tune_race_winner(const tune_race *r)
{
    size_t leader = tune_race_leader(r);
    if (!leader || r->runners[0].out) return leader;
    tune_difference d = tune_compare(&r->runners[leader], &r->runners[0]);
    if (d.rounds == 1) return d.mean > ONE_RUN ? leader : 0;
    return d.mean > WORTH && d.mean > d.half / 2 ? leader : 0;
}

tune_difference tune_races_gain(const tune_race *races, size_t n)
{
    tune_difference all = { .rounds = TUNE_MAX_ROUNDS };
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        size_t winner = tune_race_winner(&races[i]);
        if (!winner) continue;
        tune_difference d = tune_compare(&races[i].runners[winner], &races[i].runners[0]);
        all.mean += d.mean;
        squares += d.half * d.half;
        if (d.rounds < all.rounds) all.rounds = d.rounds;
    }
    all.half = sqrt(squares);
    return all;
}
