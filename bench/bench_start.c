/* bench_start LOCKSTEP [RANKS]: how long from the command `lockstep run` to the end of the first collective, and to the
 * end of the command. The median of several starts; limit: 50 ms to the first collective of 2 ranks.
 *
 * The program starts itself under the launcher. A rank reads the clock, which all processes of a machine share, once
 * its first all-reduce is done, and rank 0 prints it. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lockstep/comm.h"

enum { STARTS = 21 };
static const double LIMIT_MS = 50;
static const char MARK[] = "first collective done at ";

static int be_a_rank(void)
{
    ls_world *world;
    int32_t one = 1;
    ls_status status = ls_world_open(&world, NULL);
    if (!status) status = ls_allreduce(ls_world_group(world), &one, 1, LS_I32, LS_SUM);
    if (status) {
        fprintf(stderr, "bench_start: %s\n", ls_error());
        return 1;
    }
    if (ls_world_rank(world) == 0) printf("%s%lld of %d\n", MARK, (long long)ls_now(), one);
    ls_world_free(&world);
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One start; false if it did not work. */
static int start(const char *lockstep, const char *ranks, const char *self, double *first_ms, double *end_ms)
{
    char command[8192], line[512];
    long long done = 0;
    int size = 0;
    snprintf(command, sizeof command, "exec '%s' run -n %s -- '%s' --rank", lockstep, ranks, self);
    fflush(stdout);
    int64_t begin = ls_now();
    FILE *out = popen(command, "r");
    if (!out) return 0;
    while (fgets(line, sizeof line, out)) {
        const char *at = strstr(line, MARK);
        if (at) sscanf(at + sizeof MARK - 1, "%lld of %d", &done, &size);
    }
    int how = pclose(out);
    *end_ms = (double)(ls_now() - begin) / 1e6;
    *first_ms = (double)(done - begin) / 1e6;
    return how == 0 && size == atoi(ranks);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--rank")) return be_a_rank();
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_start LOCKSTEP [RANKS]\n");
        return 2;
    }
    const char *ranks = argc == 3 ? argv[2] : "2";
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 1;
    self[n] = 0;
    double first[STARTS], end[STARTS];
    for (int i = 0; i < STARTS; i++)
        if (!start(argv[1], ranks, self, &first[i], &end[i])) {
            fprintf(stderr, "bench_start: '%s run -n %s' failed\n", argv[1], ranks);
            return 1;
        }
    qsort(first, STARTS, sizeof *first, ascending);
    qsort(end, STARTS, sizeof *end, ascending);
    printf("a world of %s, from the command to its first collective: %6.1f ms (limit %.0f: %s)\n", ranks,
           first[STARTS / 2], LIMIT_MS, first[STARTS / 2] <= LIMIT_MS ? "held" : "MISSED");
    printf("a world of %s, from the command to its end:              %6.1f ms\n", ranks, end[STARTS / 2]);
    return 0;
}
