/* What a shared update is worth: gradients of 124 M parameters, summed over the ranks and used for one step of AdamW,
 *
 *   replicated   all-reduce, norm, then every rank updates its own copy of weights and state (the classic way)
 *   shared       sums written once; norm and update are shared work on one copy of weights and state
 *   norm in sum  the same, and the squares for the norm are summed while the sums are in the cache (what training does)
 *
 * alternating, in one run. The norm is there in all of them: without it, it is unknown whether the update may be made. Usage:
 * lockstep run -n 2 -- bench_update [MILLIONS] [ROUNDS]; bench/update does it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/parallel_for.h"
#include "comm/private.h"
#include "ddp/reducer.h"
#include "ddp/on_sum.h"
#include "kern/optim.h"
#include "lockstep/ddp.h"
#include "lockstep/nn.h"
#include "nn/norm.h"

enum { CHUNK = 1 << 18, SPANS = 64, MAX_ROUNDS = 99 };

typedef struct state {
    float *w, *m, *v;
} state;

typedef struct shared_job {
    const state *s;
    const float *sums;
    double *squares; /* of each block */
} shared_job;

static const ls__optim_args args = {
    .grad_scale = 1,
    .adamw = { .keep = 0.9999f, .beta1 = 0.9f, .beta2 = 0.95f, .step_size = 1e-4f, .denom_scale = 1, .eps = 1e-8f }
};

static void update(const state *s, const float *g, size_t begin, size_t end)
{
    ls__optim_update(LS__OPTIM_ADAMW, s->w + begin, g, (float *[]){ s->m + begin, s->v + begin }, end - begin, &args,
                     NULL);
}
static void update_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const shared_job *j = user;
    (void)data;
    update(j->s, j->sums + begin, begin, end);
}
static void norm_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const shared_job *j = user;
    (void)data;
    ls__norm_sums(j->sums, begin, end, j->squares, 1);
}
static void norm_of_sums(void *user, const float *sums, size_t begin, size_t end)
{
    ls__norm_sums(sums, begin, end, user, 1); /* the ends of buckets are off, which takes no longer */
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ls_status allocate(ls_world *world, bool shared, size_t elements, state *s)
{
    float **parts[] = { &s->w, &s->m, &s->v };
    for (int i = 0; i < 3; i++) {
        void *p = NULL;
        ls_status status = shared ? ls__group_share(ls_world_group(world), elements * sizeof(float), &p)
                                  : ls_world_alloc(world, elements * sizeof(float), &p);
        if (status) return status;
        *parts[i] = p;
        if (!shared) memset(p, 0, elements * sizeof(float));
    }
    return LS_OK;
}

/* One step, from "all gradients are there" to "all weights are new". `norm_in_sum`: the squares are there, too. */
static ls_status step(ls_world *world, ls_ddp *ddp, shared_job *j, bool shared, bool norm_in_sum)
{
    ls_group *group = ls_world_group(world);
    size_t elements = ddp->total;
    ls_status status = ls_ddp_begin(ddp, LS_DDP_SYNC, 1);
    for (size_t i = 0; i < SPANS && !status; i++) status = ls_ddp_ready(ddp, i);
    if (!status) status = ls_ddp_finish(ddp, NULL);
    if (status) return status;
    j->sums = ls_ddp_reduced(ddp, SPANS - 1);
    if (!shared) {
        norm_chunk(j, NULL, 0, elements);
        update(j->s, j->sums, 0, elements);
        return LS_OK;
    }
    if (!norm_in_sum) status = ls__parallel_for(group, NULL, elements, LS_F32, CHUNK, norm_chunk, j);
    return status ? status : ls__parallel_for(group, NULL, elements, LS_F32, CHUNK, update_chunk, j);
}

static ls_status measure(ls_world *world, size_t elements, int rounds)
{
    static const char *const names[3] = { "replicated", "shared", "norm in sum" };
    ls_ddp *ddp[3] = { NULL };
    state own = { 0 }, common = { 0 };
    void *squares[2] = { NULL }; /* own; shared */
    double times[3][MAX_ROUNDS];
    ls_span spans[SPANS];
    for (int i = 0; i < SPANS; i++) spans[i] = (ls_span){ .name = "span", .count = elements / SPANS };
    ls_status status = LS_OK;
    for (int k = 0; k < 3 && !status; k++)
        status =
            ls_ddp_open(&ddp[k], world, spans, SPANS,
                        &(ls_ddp_options){ .keep_sums = true, .fixed_order = true, .reduce_to_local_root = k > 0 });
    size_t total = status ? 0 : ddp[0]->total;
    if (!status) status = allocate(world, false, total, &own);
    if (!status) status = allocate(world, true, total, &common);
    size_t squares_bytes = ls__norm_blocks(total) * sizeof(double);
    if (!status) status = ls_world_alloc(world, squares_bytes, &squares[0]);
    if (!status) status = ls__group_share(ls_world_group(world), squares_bytes, &squares[1]);
    if (!status) status = ls__ddp_on_sum(ddp[2], norm_of_sums, squares[1]);
    for (int round = -1; round < rounds && !status; round++)
        for (int k = 0; k < 3 && !status; k++) {
            float *grads = ls_ddp_grad(ddp[k], SPANS - 1);                        /* the whole block */
            for (size_t i = 0; i < total; i++) grads[i] = (float)(i % 7) * 1e-3f; /* dirtied */
            status = ls_barrier(ls_world_group(world));
            int64_t begin = ls_now();
            shared_job j = { .s = k ? &common : &own, .squares = squares[k > 0] };
            if (!status) status = step(world, ddp[k], &j, k > 0, k == 2);
            if (!status) status = ls_barrier(ls_world_group(world));
            if (round >= 0) times[k][round] = (double)(ls_now() - begin) / 1e6;
        }
    if (!status && ls_world_rank(world) == 0) {
        for (int k = 0; k < 3; k++) qsort(times[k], (size_t)rounds, sizeof **times, ascending);
        for (int k = 0; k < 3; k++)
            printf("%-11s  %8.1f ms   %.2fx\n", names[k], times[k][rounds / 2],
                   times[0][rounds / 2] / times[k][rounds / 2]);
    }
    for (int k = 0; k < 3; k++) ls_ddp_free(&ddp[k]);
    return status;
}

int main(int argc, char **argv)
{
    size_t elements = (size_t)(1e6 * (argc > 1 ? atof(argv[1]) : 124));
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    ls_world *world;
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 7;
    ls_status status = ls_world_open(&world, NULL);
    if (!status) status = measure(world, elements, rounds);
    if (status) fprintf(stderr, "bench_update: %s\n", ls_error());
    ls_world_free(&world);
    return status ? 1 : 0;
}
