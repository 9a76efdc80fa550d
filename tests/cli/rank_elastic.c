/* A training loop of one's own that survives the loss of ranks: lockstep run --elastic. Argument: where rank 0 writes the weights.
 * Each step takes a few milliseconds, so that there is time to kill ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lockstep/ddp.h"

enum { N = 5000, SLOTS = 6, STEPS = 60 };
static float weights[N], momentum[N], grads[N];

static float noise(int64_t step, int slot, int k)
{
    uint32_t x = (uint32_t)step * 7919 + (uint32_t)slot * 104729 + (uint32_t)k * 1299721;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    return ((float)(x & 0xffff) - 32768.0f) / 1024;
}

static void check(ls_status status, const char *what)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", what, ls_error());
    exit(1);
}

int main(int argc, char **argv)
{
    ls_world *world;
    ls_ddp *ddp;
    ls_elastic *state;
    int64_t step;
    int first, count;
    ls_span span = { .name = "w", .grad = grads, .count = N };
    ls_named kept[] = { { "w", weights, N }, { "momentum", momentum, N } };
    check(ls_world_open(&world, NULL), "world");
    check(ls_elastic_open(&state, world, kept, 2, &step), "elastic");
    check(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .slots = SLOTS }), "ddp");
    check(ls_slots_of_rank(SLOTS, ls_world_size(world), ls_world_rank(world), &first, &count), "slots");
    for (; step < STEPS; check(ls_elastic_commit(state, ++step), "commit")) {
        for (int m = 0; m < count; m++) {
            check(ls_ddp_begin(ddp, m + 1 < count ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, 1), "begin");
            for (int k = 0; k < N; k++) grads[k] = weights[k] * 0.125f + noise(step, first + m, k);
            check(ls_ddp_ready(ddp, 0), "ready");
            check(ls_ddp_finish(ddp, NULL), "finish");
        }
        for (int k = 0; k < N; k++) {
            momentum[k] = 0.9f * momentum[k] + grads[k];
            weights[k] -= 0.01f * momentum[k];
        }
        usleep(5000);
    }
    FILE *f = ls_world_rank(world) == 0 && argc > 1 ? fopen(argv[1], "wb") : NULL;
    if (f) fwrite(weights, sizeof(float), N, f);
    if (f) fclose(f);
    ls_ddp_free(&ddp);
    ls_elastic_free(&state);
    ls_world_free(&world);
    return 0;
}
