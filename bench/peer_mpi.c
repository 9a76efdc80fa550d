/* The MPI peer of `lockstep bench allreduce`: MPI_Allreduce of float32, in place. Started by mpirun; what it reads and
 * writes is in cli/bench/peer.c. While it is not asked, rank 0 sleeps in read() and the others look for work a thousand
 * times per second, as waiting inside MPI would burn a core that is being measured. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct request {
    long total, chunk, rounds; /* bytes, bytes; rounds 0: the end */
} request;

static int rank, size;

static request next_request(void)
{
    request r = { 0, 0, 0 };
    if (rank == 0 && scanf("%ld %ld %ld", &r.total, &r.chunk, &r.rounds) != 3) r.rounds = 0;
    MPI_Request pending;
    int done = 0;
    MPI_Ibcast(&r, 3, MPI_LONG, 0, MPI_COMM_WORLD, &pending);
    for (MPI_Test(&pending, &done, MPI_STATUS_IGNORE); !done; MPI_Test(&pending, &done, MPI_STATUS_IGNORE))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return r;
}

static double one_round(float *x, long total, long chunk)
{
    for (long i = 0; i < total; i++) x[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (long at = 0; at < total; at += chunk)
        MPI_Allreduce(MPI_IN_PLACE, x + at, (int)(total - at < chunk ? total - at : chunk), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    double us = (MPI_Wtime() - begin) * 1e6;
    if (x[0] != (float)size || x[total - 1] != (float)size) {
        fprintf(stderr, "MPI_Allreduce gave %g and %g, expected %d\n", (double)x[0], (double)x[total - 1], size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return us;
}

static void say_name(void)
{
    char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(name, &length);
    /* "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\nMPICH Release..." */
    name[strcspn(name, ",\n")] = 0;
    for (char *c = name; *c; c++)
        if (*c == '\t') *c = ' ';
    printf("%s\n", name);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) say_name();
    float *x = NULL;
    long room = 0;
    for (request r; (r = next_request()).rounds > 0;) {
        if (r.total > room) {
            free(x);
            x = malloc((size_t)r.total);
            room = r.total;
        }
        double *us = malloc(sizeof *us * (size_t)r.rounds);
        if (!x || !us) MPI_Abort(MPI_COMM_WORLD, 1);
        for (long i = 0; i < r.rounds; i++) us[i] = one_round(x, r.total / 4, r.chunk / 4);
        MPI_Allreduce(MPI_IN_PLACE, us, (int)r.rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        for (long i = 0; i < r.rounds && rank == 0; i++) printf("%.3f%c", us[i], i + 1 < r.rounds ? ' ' : '\n');
        fflush(stdout);
        free(us);
    }
    free(x);
    MPI_Finalize();
    return 0;
}
