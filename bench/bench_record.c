/* What recording costs a step of training: one process in which the record is written and not written by turns, a few steps each, so that
 * machine, memory and caches are the same. Usage: lockstep run -n N -- bench_record FOLDER [BLOCKS]; bench/record does it.
 *
 * Prints one line: ranks, ms of a step without, cost in percent of a step and its standard error, bytes that a recorded step took. The cost is
 * the mean over pairs of neighbouring blocks, a tenth at either end left out; of each block the first step, which changes over, is not
 * counted. What is done once a second, or a few times, falls into the half of the time that is recorded, and counts double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "comm/events.h"
#include "train/training.h"

enum { BLOCK = 6, WARM = 12, MAX_BLOCKS = 4000 };

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

/* Mean step of a block, ns; the first step is not counted. */
static ls_status run_block(ls_train *train, int steps, double *mean)
{
    ls_train_metrics m;
    ls_status status = LS_OK;
    int64_t begin = 0;
    for (int i = 0; i <= steps && !status; i++) {
        if (i == 1) begin = ls_now();
        status = ls_train_step(train, &m);
    }
    *mean = (double)(ls_now() - begin) / steps;
    return status;
}

int main(int argc, char **argv)
{
    static double cost[MAX_BLOCKS], off[MAX_BLOCKS];
    int blocks = argc > 2 ? atoi(argv[2]) : 300;
    if (argc < 2 || blocks < 4 || blocks > MAX_BLOCKS) return 2;
    ls_train_options o = { .run_dir = argv[1], .rows = 4, .length = 64, .workers = 1, .threads = 1 };
    o.model = (ls_gpt2_options){ .layers = 4, .width = 128, .heads = 4 };
    o.steps = WARM + 1 + (int64_t)(2 * blocks + 1) * (BLOCK + 1);
    ls_train *train = NULL;
    double before, with, after;
    ls_status status = ls_world_open(&o.world, NULL);
    if (!status) status = ls_train_open(&train, &o);
    if (!status) status = run_block(train, WARM, &before);
    double bytes = bytes_of(argv[1]);
    if (!status) ls__record_pause(train->record, true);
    if (!status) status = run_block(train, BLOCK, &before);
    for (int i = 0; i < blocks && !status; i++) {
        ls__record_pause(train->record, false);
        if ((status = run_block(train, BLOCK, &with))) break;
        ls__record_pause(train->record, true);
        if ((status = run_block(train, BLOCK, &after))) break;
        off[i] = (before + after) / 2;
        cost[i] = with / off[i] - 1;
        before = after;
    }
    if (status) {
        fprintf(stderr, "bench_record: %s\n", ls_error());
        return 1;
    }
    int rank = train->parallel.rank, ranks = train->parallel.size, cut = blocks / 10, n = blocks - 2 * cut;
    bytes = (bytes_of(argv[1]) - bytes) / blocks / (BLOCK + 1);
    ls_train_free(&train);
    ls_world_free(&o.world);
    if (rank) return 0;
    qsort(cost, (size_t)blocks, sizeof *cost, by_value);
    qsort(off, (size_t)blocks, sizeof *off, by_value);
    double mean = 0, spread = 0;
    for (int i = cut; i < blocks - cut; i++) mean += cost[i] / n;
    for (int i = cut; i < blocks - cut; i++) spread += (cost[i] - mean) * (cost[i] - mean) / n;
    /* a tenth cut off at either end of a normal distribution leaves 0.66 of its width, and the mean varies by 1.06 of the full one's */
    printf("%d %.3f %.3f %.3f %.0f\n", ranks, off[blocks / 2] / 1e6, 100 * mean,
           100 * sqrt(spread) / 0.66 * 1.06 / sqrt(blocks), bytes);
    return 0;
}
