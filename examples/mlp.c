/* Data parallelism for your own training loop: a small network written by hand, with lockstep for the gradients.
 *
 *     cc mlp.c -o mlp $(pkg-config --cflags --libs lockstep) -lm
 *     ./mlp                               alone
 *     lockstep run -n 4 -- ./mlp          on four ranks: the same digits
 *     mpirun -n 4 ./mlp                   on a cluster
 *     ./mlp runs/mlp                      also records where the time goes: lockstep report runs/mlp
 *
 * It learns whether a point is inside a ring. A step has 8 micro-batches of 16 points, spread over the ranks; each rank
 * computes its own, reports which gradients are ready while it still computes the rest, and gets the mean over
 * all points of all ranks. Whatever the number of ranks (1, 2, 4 or 8), the weights come out the same, bit for bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <lockstep/comm.h>
#include <lockstep/ddp.h>

enum { IN = 2, HIDDEN = 64, POINTS = 16, SLOTS = 8, STEPS = 2000 };

/* Parameters and their gradients, in the order in which backward finishes them. */
enum { W2, B2, W1, B1, PARAMS };
static const char *const names[PARAMS] = { "w2", "b2", "w1", "b1" };
static const size_t counts[PARAMS] = { HIDDEN, 1, IN *HIDDEN, HIDDEN };
static float values[PARAMS][IN * HIDDEN];
static float *grads[PARAMS];

static float random_unit(uint64_t *state) /* in [0, 1) */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (float)(1 << 24);
}

typedef struct batch {
    float x[POINTS][IN], y[POINTS];
} batch;

/* Micro-batch `slot` of step `step`: a function of the two, so it does not matter which rank asks. */
static void load(batch *b, int step, int slot)
{
    uint64_t state = (uint64_t)(step * SLOTS + slot) * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < POINTS; i++) {
        float *x = b->x[i];
        for (int k = 0; k < IN; k++) x[k] = 2 * random_unit(&state) - 1;
        float r = x[0] * x[0] + x[1] * x[1];
        b->y[i] = r > 0.25f && r < 0.64f ? 1.0f : 0.0f;
    }
}

typedef struct activations {
    float h[POINTS][HIDDEN], p[POINTS];
} activations;

/* Returns the sum of the losses, not their mean: lockstep divides by the number of points of all ranks. */
static float forward(const batch *b, activations *a)
{
    float loss = 0;
    for (int i = 0; i < POINTS; i++) {
        float z = values[B2][0];
        for (int j = 0; j < HIDDEN; j++) {
            float s = values[B1][j];
            for (int k = 0; k < IN; k++) s += b->x[i][k] * values[W1][k * HIDDEN + j];
            a->h[i][j] = tanhf(s);
            z += a->h[i][j] * values[W2][j];
        }
        a->p[i] = 1 / (1 + expf(-z));
        loss -= b->y[i] > 0 ? logf(a->p[i] + 1e-7f) : logf(1 - a->p[i] + 1e-7f);
    }
    return loss;
}

/* Writes each gradient over whatever was there, and says so as soon as it is complete. */
static ls_status backward(const batch *b, const activations *a, ls_ddp *ddp)
{
    ls_status status;
    for (int j = 0; j < HIDDEN; j++) grads[W2][j] = 0;
    grads[B2][0] = 0;
    for (int i = 0; i < POINTS; i++) {
        float dz = a->p[i] - b->y[i];
        grads[B2][0] += dz;
        for (int j = 0; j < HIDDEN; j++) grads[W2][j] += dz * a->h[i][j];
    }
    if ((status = ls_ddp_ready(ddp, B2))) return status;

    for (int j = 0; j < IN * HIDDEN; j++) grads[W1][j] = 0;
    for (int j = 0; j < HIDDEN; j++) grads[B1][j] = 0;
    for (int i = 0; i < POINTS; i++) {
        float dz = a->p[i] - b->y[i];
        for (int j = 0; j < HIDDEN; j++) {
            float ds = dz * values[W2][j] * (1 - a->h[i][j] * a->h[i][j]);
            grads[B1][j] += ds;
            for (int k = 0; k < IN; k++) grads[W1][k * HIDDEN + j] += ds * b->x[i][k];
        }
    }
    /* w2's gradient was complete long ago, but its weights were in use until here. */
    if ((status = ls_ddp_ready(ddp, W2))) return status;
    if ((status = ls_ddp_ready(ddp, W1))) return status;
    return ls_ddp_ready(ddp, B1);
}

static ls_status train(ls_world *world, ls_ddp *ddp)
{
    int rank = ls_world_rank(world), first, each;
    ls_status spread = ls_slots_of_rank(SLOTS, ls_world_size(world), rank, &first, &each);
    if (spread) return spread;
    ls_record *record = ls_world_record(world);
    for (int step = 0; step < STEPS; step++) {
        double loss = 0;
        ls_record_step(record, step + 1);
        ls_ddp_result result;
        for (int micro = 0; micro < each; micro++) {
            batch b;
            activations a;
            ls_record_begin(record, LS_PHASE_DATA);
            load(&b, step, first + micro);
            ls_record_end(record, LS_PHASE_DATA);
            ls_status status = ls_ddp_begin(ddp, micro + 1 < each ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, POINTS);
            if (status) return status;
            ls_record_begin(record, LS_PHASE_FORWARD);
            loss += (double)forward(&b, &a);
            ls_record_end(record, LS_PHASE_FORWARD);
            ls_record_begin(record, LS_PHASE_BACKWARD); /* waiting inside it is noted by lockstep itself */
            if ((status = backward(&b, &a, ddp))) return status;
            if ((status = ls_ddp_finish(ddp, &result))) return status;
            ls_record_end(record, LS_PHASE_BACKWARD);
        }
        ls_record_begin(record, LS_PHASE_UPDATE);
        for (int i = 0; i < PARAMS; i++)
            for (size_t k = 0; k < counts[i]; k++) values[i][k] -= 0.5f * grads[i][k];
        ls_record_end(record, LS_PHASE_UPDATE);
        if ((step + 1) % 500) continue;
        ls_status status = ls_allreduce(ls_world_group(world), &loss, 1, LS_F64, LS_SUM);
        if (status) return status;
        if (rank == 0) printf("step %d: loss %.9f\n", step + 1, loss / result.weight);
    }
    return LS_OK;
}

int main(int argc, char **argv)
{
    ls_world *world = NULL;
    ls_ddp *ddp = NULL;
    ls_span spans[PARAMS];
    ls_named params[PARAMS];
    uint64_t state = 42;
    for (int i = 0; i < PARAMS; i++) {
        grads[i] = calloc(counts[i], sizeof *grads[i]);
        if (!grads[i]) return 1;
        spans[i] = (ls_span){ .name = names[i], .grad = grads[i], .count = counts[i] };
        params[i] = (ls_named){ .name = names[i], .data = values[i], .count = counts[i] };
        for (size_t k = 0; k < counts[i]; k++)
            values[i][k] = (random_unit(&state) - 0.5f) * (i == W1 || i == B1 ? 8.0f : 0.5f);
    }
    ls_status status = ls_world_open(&world, NULL);
    if (!status) status = ls_params_verify(world, params, PARAMS);
    if (!status) status = ls_ddp_open(&ddp, world, spans, PARAMS, &(ls_ddp_options){ .slots = SLOTS });
    if (!status && argc > 1) status = ls_record_start(ls_world_record(world), argv[1]);
    if (!status) status = train(world, ddp);
    if (status) fprintf(stderr, "mlp: %s\n", ls_error());
    ls_ddp_free(&ddp);
    ls_world_free(&world);
    for (int i = 0; i < PARAMS; i++) free(grads[i]);
    return status ? 1 : 0;
}
