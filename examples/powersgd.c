/* Gradient compression: a communication hook in place of the all-reduce.
 *
 *     cc powersgd.c -o powersgd $(pkg-config --cflags --libs lockstep) -lm
 *     lockstep run -n 4 -- ./powersgd     also alone, or under mpirun
 *
 * The hook is PowerSGD (Vogels et al., 2019) of rank 1: of each gradient matrix M, the ranks exchange only two vectors,
 *
 *     p = sum of M q;   p /= |p|;   q = sum of M^T p;   M becomes p q^T,
 *
 * and what that leaves out of a rank's M is added to its next gradient (error feedback). The sum of p is under way while
 * backward computes. The program learns a matrix W from samples y = W x, and prints how much less was sent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <lockstep/comm.h>
#include <lockstep/ddp.h>

enum { LAYERS = 2, ROWS = 48, COLS = 32, SIZE = ROWS * COLS, SAMPLES = 64, STEPS = 1000 };
static const float rate = 0.1f;

/* ---- The hook. */

/* One matrix. All spans of this program have the same shape; a larger program keeps a shape for each span. */
typedef struct matrix {
    float error[SIZE]; /* what was left out so far */
    float p[ROWS], q[COLS];
} matrix;

typedef struct powersgd {
    matrix spans[LAYERS];
    float packed[LAYERS * (ROWS > COLS ? ROWS : COLS)]; /* the vectors of a bucket, sent as one message */
    double sent, uncompressed;                          /* bytes */
} powersgd;

static ls_status start(void *user, const ls_bucket *bucket, ls_work **work)
{
    powersgd *s = user;
    float *packed = s->packed + (size_t)ROWS * bucket->spans[0].span; /* buckets are under way at the same time */
    for (size_t i = 0; i < bucket->n_spans; i++) {
        const ls_bucket_span *span = &bucket->spans[i];
        matrix *m = &s->spans[span->span];
        float *grad = bucket->grads + span->offset, *p = packed + i * ROWS;
        for (int k = 0; k < SIZE; k++) grad[k] += m->error[k];
        for (int r = 0; r < ROWS; r++) {
            p[r] = 0;
            for (int c = 0; c < COLS; c++) p[r] += grad[r * COLS + c] * m->q[c];
        }
    }
    s->uncompressed += (double)bucket->count * sizeof(float);
    s->sent += (double)bucket->n_spans * (ROWS + COLS) * sizeof(float);
    return ls_allreduce_start(bucket->group, packed, bucket->n_spans * ROWS, LS_F32, LS_SUM, work);
}

static ls_status finish(void *user, const ls_bucket *bucket)
{
    powersgd *s = user;
    float *packed = s->packed + (size_t)ROWS * bucket->spans[0].span;
    float ranks = (float)ls_group_size(bucket->group);
    for (size_t i = 0; i < bucket->n_spans; i++) {
        matrix *m = &s->spans[bucket->spans[i].span];
        float norm = 1e-20f;
        for (int r = 0; r < ROWS; r++) norm += packed[i * ROWS + (size_t)r] * packed[i * ROWS + (size_t)r];
        for (int r = 0; r < ROWS; r++) m->p[r] = packed[i * ROWS + (size_t)r] / sqrtf(norm);
    }
    for (size_t i = 0; i < bucket->n_spans; i++) {
        const matrix *m = &s->spans[bucket->spans[i].span];
        const float *grad = bucket->grads + bucket->spans[i].offset;
        float *q = packed + i * COLS;
        memset(q, 0, COLS * sizeof *q);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLS; c++) q[c] += grad[r * COLS + c] * m->p[r];
    }
    ls_status status = ls_allreduce(bucket->group, packed, bucket->n_spans * COLS, LS_F32, LS_SUM);
    for (size_t i = 0; i < bucket->n_spans && !status; i++) {
        matrix *m = &s->spans[bucket->spans[i].span];
        float *grad = bucket->grads + bucket->spans[i].offset;
        memcpy(m->q, packed + i * COLS, sizeof m->q);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLS; c++) {
                float sum = m->p[r] * m->q[c]; /* over all ranks: this rank's share is what it has sent */
                m->error[r * COLS + c] = grad[r * COLS + c] - sum / ranks;
                grad[r * COLS + c] = sum;
            }
    }
    return status;
}

/* ---- What is trained. */

static float random_unit(uint64_t *state) /* in [-1, 1) */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (float)(1 << 23) - 1;
}

/* Adds the gradient of the sum of squared errors of one sample, and returns that sum. */
static double backward(const float *w, const float *truth, uint64_t *state, float *grad)
{
    float x[COLS];
    double loss = 0;
    for (int c = 0; c < COLS; c++) x[c] = random_unit(state);
    for (int r = 0; r < ROWS; r++) {
        float error = 0;
        for (int c = 0; c < COLS; c++) error += (w[r * COLS + c] - truth[r * COLS + c]) * x[c];
        for (int c = 0; c < COLS; c++) grad[r * COLS + c] += error * x[c];
        loss += (double)error * (double)error;
    }
    return loss;
}

static float weights[LAYERS][SIZE], truth[LAYERS][SIZE];

static ls_status train(ls_world *world, ls_ddp *ddp)
{
    ls_group *group = ls_world_group(world);
    double first = 0, loss = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t state = (uint64_t)step * 1000003u + (uint64_t)ls_world_rank(world) * 7919u + 1;
        double sum = 0;
        ls_status status = ls_ddp_begin(ddp, LS_DDP_SYNC, SAMPLES);
        for (size_t i = 0; i < LAYERS && !status; i++) {
            float *grad = ls_ddp_grad(ddp, i);
            memset(grad, 0, SIZE * sizeof *grad);
            for (int k = 0; k < SAMPLES; k++) sum += backward(weights[i], truth[i], &state, grad);
            status = ls_ddp_ready(ddp, i);
        }
        if (!status) status = ls_ddp_finish(ddp, NULL);
        if (!status) status = ls_allreduce(group, &sum, 1, LS_F64, LS_SUM);
        if (status) return status;
        for (size_t i = 0; i < LAYERS; i++)
            for (int k = 0; k < SIZE; k++) weights[i][k] -= rate * ls_ddp_grad(ddp, i)[k];
        loss = sum / SAMPLES / LAYERS / ls_world_size(world);
        if (step == 0) first = loss;
    }
    if (ls_world_rank(world) == 0) printf("loss %.3f -> %.2g\n", first, loss);
    return LS_OK;
}

int main(void)
{
    static powersgd state;
    ls_world *world = NULL;
    ls_ddp *ddp = NULL;
    ls_span spans[LAYERS] = { { .name = "w0", .count = SIZE }, { .name = "w1", .count = SIZE } };
    ls_named params[LAYERS] = { { "w0", weights[0], SIZE }, { "w1", weights[1], SIZE } };
    uint64_t seed = 1;
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < SIZE; k++) truth[i][k] = random_unit(&seed);
        for (int c = 0; c < COLS; c++) state.spans[i].q[c] = random_unit(&seed); /* the same on all ranks */
    }
    ls_ddp_options options = { .bucket_bytes = 1, .first_bucket_bytes = 1, .hook = { start, finish, &state } };
    ls_status status = ls_world_open(&world, NULL);
    if (!status) status = ls_ddp_open(&ddp, world, spans, LAYERS, &options);
    if (!status) status = train(world, ddp);
    if (!status) status = ls_params_verify(world, params, LAYERS);
    if (!status && ls_world_rank(world) == 0)
        printf("all ranks have the same weights; sent 1/%.0f of the gradients\n", state.uncompressed / state.sent);
    if (status) fprintf(stderr, "powersgd: %s\n", ls_error());
    ls_ddp_free(&ddp);
    ls_world_free(&world);
    return status ? 1 : 0;
}
