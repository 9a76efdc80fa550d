/* The cost of recording per training step: one process in which every other step is recorded, so that machine, memory and caches
 * are the same, and a slow moment of the machine falls on both. Usage: lockstep run -n N -- bench_record FOLDER [PAIRS [small]];
 * bench/record does it.
 *
 * Prints one line: ranks, ms of a step without, cost in percent of a step and its standard error, bytes that a recorded step took.
 * A step's cost is its time compared with the mean of the two around it; of these costs a tenth at either end is left out. The
 * error is that of the means of 20 segments of the run. What is done once per second, or a few times, falls into the half of the
 * time that is recorded, and counts double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "record/record.h"
#include "train/training.h"

enum { WARM = 12, GROUPS = 20, MAX_PAIRS = 20000 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bytes_of(const char *folder)
{
    char path[4200];
    struct stat s;
    snprintf(path, sizeof path, "%s/events/rank-0.bin", folder);
    return stat(path, &s) ? 0 : (double)s.st_size;
}

static ls_status run_steps(ls_train *train, int steps)
{
    ls_train_metrics m;
    ls_status status = LS_OK;
    for (int i = 0; i < steps && !status; i++) status = ls_train_step(train, &m);
    return status;
}

/* One step, ns. What it takes to put its events away belongs to a recorded one. */
static ls_status run_step(ls_train *train, bool recorded, double *ns)
{
    if (recorded) ls__record_pause(ls_world_record(train->parallel.world), false);
    int64_t begin = ls_now();
    ls_status status = run_steps(train, 1);
    if (recorded) ls__record_pause(ls_world_record(train->parallel.world), true);
    *ns = (double)(ls_now() - begin);
    return status;
}

/* Mean without the tenth at either end; sorts. */
static double trimmed_mean(double *values, int count)
{
    double sum = 0;
    int cut = count / 10;
    qsort(values, (size_t)count, sizeof *values, by_value);
    for (int i = cut; i < count - cut; i++) sum += values[i];
    return sum / (count - 2 * cut);
}

static void print_line(double *cost, double *off, int pairs, int ranks, double bytes)
{
    double means[GROUPS], mean = 0, spread = 0;
    int each = pairs / GROUPS;
    for (int g = 0; g < GROUPS; g++) mean += (means[g] = trimmed_mean(cost + g * each, each)) / GROUPS;
    for (int g = 0; g < GROUPS; g++) spread += (means[g] - mean) * (means[g] - mean) / (GROUPS - 1);
    qsort(off, (size_t)pairs, sizeof *off, by_value);
    printf("%d %.3f %.3f %.3f %.0f\n", ranks, off[pairs / 2] / 1e6, 100 * mean, 100 * sqrt(spread / GROUPS), bytes);
}

int main(int argc, char **argv)
{
    static double cost[MAX_PAIRS], off[MAX_PAIRS];
    int pairs = argc > 2 ? atoi(argv[2]) : 2000;
    if (argc < 2 || pairs < 10 * GROUPS || pairs > MAX_PAIRS) return 2;
    ls_train_options o = { .run_dir = argv[1], .batch_size = 4, .seq_len = 64, .workers = 1, .threads = 1 };
    o.model = (ls_lm_options){ .layers = 4, .width = 128, .heads = 4 };
    if (argc > 3) o.model = (ls_lm_options){ .layers = 2, .width = 64, .heads = 2 }, o.batch_size = 2, o.seq_len = 32;
    o.steps = WARM + 1 + 2 * (int64_t)pairs;
    ls_train *train = NULL;
    double before, with, after;
    ls_status status = ls_world_open(&o.world, NULL);
    if (!status) status = ls_train_open(&train, &o);
    if (!status) status = run_steps(train, WARM);
    double bytes = bytes_of(argv[1]);
    if (!status) ls__record_pause(ls_world_record(train->parallel.world), true);
    if (!status) status = run_step(train, false, &before);
    for (int i = 0; i < pairs && !status; i++) {
        if ((status = run_step(train, true, &with)) || (status = run_step(train, false, &after))) break;
        off[i] = (before + after) / 2;
        cost[i] = with / off[i] - 1;
        before = after;
    }
    if (status) {
        fprintf(stderr, "bench_record: %s\n", ls_error());
        return 1;
    }
    int rank = train->parallel.rank, ranks = train->parallel.size;
    bytes = (bytes_of(argv[1]) - bytes) / pairs;
    ls_train_free(&train);
    ls_world_free(&o.world);
    if (!rank) print_line(cost, off, pairs, ranks, bytes);
    return 0;
}
