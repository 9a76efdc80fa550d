/* A race of set-ups: short runs in turns, until one is surely the fastest or what is left to gain is not worth more runs. Nothing here
 * runs anything. */
#ifndef LS_CLI_TUNE_RACE_H
#define LS_CLI_TUNE_RACE_H

#include <stdbool.h>
#include <stddef.h>

enum { TUNE_MAX_ROUNDS = 8, TUNE_MAX_RUNNERS = 12 };

typedef struct tune_runner {
    char options[160];            /* of `lockstep train`; "" is the set-up as given */
    double predicted;             /* ns; NaN: not predicted */
    double step[TUNE_MAX_ROUNDS]; /* ns, the median step of each round's run */
    int rounds;
    bool out; /* surely slower than another one, or it failed */
} tune_runner;

typedef struct tune_race {
    tune_runner runners[TUNE_MAX_RUNNERS]; /* the first is the set-up that the others must beat */
    size_t count;
} tune_race;

/* A difference of the runs of two set-ups, and how well it is known: the mean logarithm of the ratios of the rounds that both ran, with
 * the half width of its 90% confidence interval. */
typedef struct tune_difference {
    double mean, half;
    int rounds;
} tune_difference;

/* NULL if there is no room, or the runner is in the race already. */
tune_runner *tune_race_add(tune_race *r, const char *options, double predicted);
/* Adds the best few that are not predicted to take longer than `most`, those without a prediction last. Of those whose predictions differ by
 * less than the share `apart`, only the first. Sets `out` of those that were considered. */
void tune_race_add_best(tune_race *r, tune_runner *found, size_t n, size_t limit, double most, double apart);
/* By how much b is slower than a. Infinite half with fewer than two rounds. */
tune_difference tune_compare(const tune_runner *a, const tune_runner *b);
/* The runner with the least times of those that are not out. */
size_t tune_race_leader(const tune_race *r);
/* After a round: takes out who is surely slower than the leader. True if the race is decided. */
bool tune_race_judge(tune_race *r);
/* The result: the first runner, unless another one is faster by more than chance and 1%. */
size_t tune_race_winner(const tune_race *r);
/* Of races one after another, in which the winner of one is the first runner of the next: by how much the last winner is faster than the
 * first runner of all. */
tune_difference tune_races_gain(const tune_race *races, size_t n);

#endif
