/* Ranks and collectives, without any training.
 *
 *     cc collectives.c -o collectives $(pkg-config --cflags --libs lockstep)
 *     lockstep run -n 4 -- ./collectives
 *     mpirun -n 4 ./collectives
 *
 * Every rank contributes an array; the program computes their mean, collects one value of each rank, and sums within
 * two halves of the ranks. Started alone, it is a world of one rank and works as well. */
#include <stdio.h>
#include <stdlib.h>
#include <lockstep/comm.h>

enum { COUNT = 1000 };

/* The mean of all ranks' arrays, in memory that the ranks of a node share: it is reduced without copies. */
static ls_status mean_of_arrays(ls_world *world)
{
    float *values = NULL;
    ls_status status = ls_world_alloc(world, COUNT * sizeof *values, (void **)&values);
    if (status) return status;
    for (int i = 0; i < COUNT; i++) values[i] = (float)(ls_world_rank(world) + i);

    /* Started now, waited for later: this rank is free to compute in between. */
    ls_work *work = NULL;
    status = ls_allreduce_start(ls_world_group(world), values, COUNT, LS_F32, LS_MEAN, &work);
    if (!status) status = ls_work_wait(&work);
    if (!status && ls_world_rank(world) == 0)
        printf("mean of the first elements: %g, of the last: %g\n", (double)values[0], (double)values[COUNT - 1]);
    if (!status)
        ls_world_dealloc(world, (void **)&values); /* on failure another rank may still use it; the world frees it */
    return status;
}

/* One number of each rank, at all ranks. Any memory will do. */
static ls_status collect(ls_world *world)
{
    int size = ls_world_size(world);
    int32_t square = ls_world_rank(world) * ls_world_rank(world);
    int32_t *all = malloc((size_t)size * sizeof *all);
    if (!all) {
        ls_group_abort(ls_world_group(world),
                       "collectives: out of memory"); /* the other ranks would wait for this one */
        return LS_ENOMEM;
    }
    ls_status status = ls_allgather(ls_world_group(world), &square, all, 1, LS_I32);
    if (!status && ls_world_rank(world) == 0) {
        printf("squares:");
        for (int r = 0; r < size; r++) printf(" %d", all[r]);
        printf("\n");
    }
    free(all);
    return status;
}

/* Even and odd ranks form a group each. */
static ls_status sum_in_halves(ls_world *world)
{
    ls_group *half = NULL;
    int rank = ls_world_rank(world);
    ls_status status = ls_group_split(ls_world_group(world), rank % 2, rank, &half);
    int64_t sum = rank;
    if (!status) status = ls_allreduce(half, &sum, 1, LS_I64, LS_SUM);
    if (!status && ls_group_rank(half) == 0)
        printf("sum of the %s ranks: %lld\n", rank % 2 ? "odd" : "even", (long long)sum);
    ls_group_free(&half);
    return status;
}

int main(void)
{
    ls_world *world = NULL;
    ls_status status = ls_world_open(&world, NULL);
    if (!status) status = mean_of_arrays(world);
    if (!status) status = collect(world);
    if (!status) status = sum_in_halves(world);
    if (status) fprintf(stderr, "collectives: %s: %s\n", ls_status_text(status), ls_error());
    ls_world_free(&world);
    return status ? 1 : 0;
}
