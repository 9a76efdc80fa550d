/* What tests/comm/mpi starts under mpirun: the suite of collectives, or a failure that its arguments choose. Prints
 * one line from rank 0 and ends with 0; 1: a result is wrong; 2: the world does not open; 3: a call failed, with its
 * message. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lockstep/comm.h"
#include "mix.h"
#include "suite.h"

static ls_world *world;

/* Ends with 3 if the call failed. */
static void need(ls_status status)
{
    if (!status) return;
    fprintf(stderr, "rank %d: %s: %s\n", ls_world_rank(world), ls_status_name(status), ls_error());
    ls_world_free(&world);
    exit(3);
}

static int suite(int quick)
{
    static const size_t all[] = { 0, 1, 7, 1023, 4099, SIZE_MAX }, few[] = { 1, 9001, SIZE_MAX };
    char why[SUITE_WHY] = "";
    int bad = suite_run(world, &(suite_options){ .counts = quick ? few : all, .quick = quick }, why);
    if (bad) fprintf(stderr, "%s\n", why);
    return bad;
}

static int random_mix(uint64_t seed)
{
    char why[MIX_WHY] = "";
    int bad = mix_run(world, &(mix_options){ .seed = seed, .calls = 150, .largest = 200000 }, why);
    if (bad) fprintf(stderr, "%s\n", why);
    return bad;
}

/* Groups of the ranks with even and odd numbers, and of each node. */
static int split(void)
{
    ls_group *g = ls_world_group(world), *sub, *home;
    int rank = ls_world_rank(world), p = ls_world_size(world);
    int64_t x = rank, sum = 0, here = 1;
    need(ls_group_split(g, rank % 2, 0, &sub));
    need(ls_group_split(g, ls_world_get_info(world).node, 0, &home));
    need(ls_allreduce(sub, &x, 1, LS_I64, LS_SUM));
    need(ls_allreduce(home, &here, 1, LS_I64, LS_SUM));
    for (int r = rank % 2; r < p; r += 2) sum += r;
    if (x != sum || here != ls_world_get_info(world).local_size) {
        fprintf(stderr, "rank %d: split: sums %lld and %lld, expected %lld and %d\n", rank, (long long)x,
                (long long)here, (long long)sum, ls_world_get_info(world).local_size);
        return 1;
    }
    ls_group_free(&home);
    ls_group_free(&sub);
    return 0;
}

/* Groups that break in several ways, with messages of all sizes under way; the world continues. */
static int recover(void)
{
    enum { COUNT = 1000000 };
    ls_group *g = ls_world_group(world), *sub;
    int rank = ls_world_rank(world), last = ls_world_size(world) - 1, bad = 0;
    float *x = calloc(COUNT, sizeof *x);
    if (!x) return 1;
    for (int i = 0; i < 5; i++) {
        ls_work *w = NULL;
        need(ls_group_split(g, 0, 0, &sub));
        if (i == 0 && rank == 0) ls_group_abort(sub, "not this one");
        if (i == 0 && ls_barrier(sub) != LS_EABORTED) bad = 1;
        if (i == 1 && ls_allreduce(sub, x, (size_t)rank + 1, LS_F32, LS_SUM) != LS_EMISMATCH) bad = 1;
        if (i == 2) need(ls_allreduce_start(sub, x, COUNT, LS_F32, LS_SUM, &w));
        if (i == 3 && rank == 0) need(ls_send_start(sub, x, COUNT, LS_F32, last, &w));
        if (i == 4 && rank == last) need(ls_recv_start(sub, x, COUNT, LS_F32, 0, &w));
        if (w) (void)!ls_work_test(&w); /* under way, unless the others have left already */
        ls_group_free(&sub);
    }
    need(ls_barrier(g));
    free(x);
    return bad;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "suite";
    ls_world_options options = { .timeout_ms = argc > 2 ? atoi(argv[2]) : 0 };
    if (ls_world_open(&world, &options)) {
        fprintf(stderr, "%s\n", ls_error());
        return 2;
    }
    int rank = ls_world_rank(world), last = ls_world_size(world) - 1, bad = 0;
    ls_group *g = ls_world_group(world);
    float x[4] = { 0 };
    need(ls_barrier(g));
    if (!strcmp(what, "mismatch"))
        need(rank == last ? ls_broadcast(g, x, 4, LS_F32, 0) : ls_allreduce(g, x, 4, LS_F32, LS_SUM));
    else if (!strcmp(what, "kill") && rank == last)
        raise(SIGKILL);
    else if (!strcmp(what, "exit") && rank == last)
        return 0; /* without a word */
    else if (!strcmp(what, "leave") && rank == last) {
        ls_world_free(&world);
        return 0;
    } else if (!strcmp(what, "late") && rank == last)
        sleep(30);
    else if (!strcmp(what, "abort") && rank == last)
        ls_group_abort(g, "enough");
    else if (!strcmp(what, "on"))
        for (;;) need(ls_barrier(g));
    else if (!strcmp(what, "quick"))
        bad = suite(1);
    else if (!strcmp(what, "mix"))
        for (uint64_t seed = 1; seed <= 3 && !bad; seed++) bad = random_mix(seed);
    else if (!strcmp(what, "suite"))
        bad = suite(0);
    else if (!strcmp(what, "recover"))
        bad = recover();
    if (!bad) bad = split();
    need(ls_barrier(g));
    if (!rank && !bad)
        printf("ok: %d ranks on %d hosts, %s\n", last + 1, ls_world_get_info(world).nodes,
               ls_world_get_info(world).transport);
    ls_world_free(&world);
    if (!bad && !ls_world_open(&world, NULL)) ls_world_free(&world); /* MPI starts once, a world any number of times */
    return bad;
}
