/* All-reduce of float32 between machines: ours and MPI_Allreduce alternating, in the same processes. Run by bench/wide under
 * mpirun: bench_wide RATE SECONDS SIZE..., with RATE of one machine's link in bit/s (0: unknown) and SIZE in bytes. The
 * bound is what must cross a link, 2 (N-1)/N times the data in each direction, at that rate. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/comm.h"

enum { MAX_ROUNDS = 200 };

static void check(ls_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", ls_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One round, in seconds: the slowest rank's. */
static double one_round(ls_group *g, float *x, size_t count, int ours)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < count; i++) x[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    check(ls_barrier(g));
    double begin = MPI_Wtime();
    if (ours)
        check(ls_allreduce(g, x, count, LS_F32, LS_SUM));
    else
        MPI_Allreduce(MPI_IN_PLACE, x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (x[0] != (float)size || x[count - 1] != (float)size) {
        fprintf(stderr, "%s: %g and %g, expected %d\n", ours ? "lockstep" : "MPI", (double)x[0], (double)x[count - 1],
                size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return seconds;
}

int main(int argc, char **argv)
{
    int level, rank;
    if (argc < 4) {
        fprintf(stderr, "usage: bench_wide RATE SECONDS SIZE...\n");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ls_world *world;
    check(ls_world_open(&world, NULL));
    double rate = atof(argv[1]), limit = atof(argv[2]), nodes = ls_world_get_info(world).nodes;
    if (!rank)
        printf("%d ranks on %.0f hosts\n%12s %12s %12s %8s %10s %7s\n", ls_world_size(world), nodes, "bytes",
               "lockstep ms", "MPI ms", "ratio", "bound ms", "share");
    for (int a = 3; a < argc; a++) {
        size_t count = (size_t)atoll(argv[a]) / 4, rounds = 0;
        static double ours[MAX_ROUNDS], theirs[MAX_ROUNDS];
        void *x;
        check(ls_world_alloc(world, count * 4, &x));
        double begin = MPI_Wtime(), go_on = 1;
        for (int warm = 0; warm < 2; warm++) one_round(ls_world_group(world), x, count, warm);
        for (; go_on > 0 && rounds < MAX_ROUNDS; rounds++) {
            ours[rounds] = one_round(ls_world_group(world), x, count, 1);
            theirs[rounds] = one_round(ls_world_group(world), x, count, 0);
            go_on = MPI_Wtime() - begin < limit || rounds < 2;
            MPI_Bcast(&go_on, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        }
        qsort(ours, rounds, sizeof *ours, ascending);
        qsort(theirs, rounds, sizeof *theirs, ascending);
        double us = ours[rounds / 2], them = theirs[rounds / 2];
        double bound = rate > 0 ? 2 * (nodes - 1) / nodes * (double)count * 32 / rate : 0;
        if (!rank)
            printf("%12zu %12.3f %12.3f %8.2f %10.3f %7.2f\n", count * 4, us * 1e3, them * 1e3, them / us, bound * 1e3,
                   bound / us);
        fflush(stdout);
        ls_world_dealloc(world, &x);
    }
    ls_world_free(&world);
    MPI_Finalize();
    return 0;
}
