/* A rank of a real world. Usage:
 *   rank_world first       one all-reduce; prints when it was done
 *   rank_world loop        all-reduces of changing sizes until one fails; prints when and why
 *   rank_world count N     N of them, every result checked
 *   rank_world until       the same until SIGUSR1, when the ranks agree to end
 *   rank_world leave R     rank R leaves without a word, the others wait for it in a barrier
 * Times are nanoseconds of the monotonic clock, which all processes of a machine share. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/comm.h"

static volatile sig_atomic_t signalled;
static void on_signal(int number)
{
    signalled = number;
}

enum { LARGEST = 300000 };
static const int sizes[] = { 1, 1000, LARGEST, 7, 65536, 0, 20000 };

static int failed(void)
{
    printf("error at %" PRId64 ": %s\n", ls_now(), ls_error());
    fflush(stdout);
    return 1;
}

/* One round: buffers dirtied, reduced, checked. */
static int reduce(ls_world *world, float *buf, int round)
{
    int n = sizes[round % 7], p = ls_world_size(world);
    for (int i = 0; i < n; i++) buf[i] = (float)(ls_world_rank(world) + i % 10);
    if (ls_allreduce(ls_world_group(world), buf, (size_t)n, LS_F32, LS_SUM)) return failed();
    for (int i = 0; i < n; i++) {
        float want = (float)(p * (p - 1) / 2 + p * (i % 10));
        if (buf[i] == want) continue;
        printf("round %d: element %d is %g, expected %g\n", round, i, (double)buf[i], (double)want);
        return 3;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "first";
    int number = argc > 2 ? atoi(argv[2]) : 0, code = 0;
    ls_world *world;
    void *buf;
    signal(SIGUSR1, on_signal);
    if (ls_world_open(&world, NULL)) return failed();
    if (ls_world_alloc(world, LARGEST * sizeof(float), &buf)) return failed();
    if (!strcmp(what, "first")) {
        code = reduce(world, buf, 0);
        printf("done at %" PRId64 "\n", ls_now());
    } else if (!strcmp(what, "loop")) {
        for (int i = 0; !code; i++) code = reduce(world, buf, i);
    } else if (!strcmp(what, "count")) {
        for (int i = 0; !code && i < number; i++) code = reduce(world, buf, i);
        if (!code) printf("%d rounds\n", number);
    } else if (!strcmp(what, "until")) {
        int32_t end = 0, rounds = 0;
        for (; !code && !end; rounds++) {
            code = reduce(world, buf, rounds);
            end = signalled != 0;
            if (!code && ls_allreduce(ls_world_group(world), &end, 1, LS_I32, LS_MAX)) code = failed();
        }
        if (!code) printf("%d rounds\n", rounds);
    } else if (!strcmp(what, "leave")) {
        if (ls_world_rank(world) != number && ls_barrier(ls_world_group(world))) code = failed();
    }
    ls_world_free(&world);
    return code;
}
