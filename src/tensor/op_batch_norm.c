/* Batch norm over (B, H, W, C): each channel is normalized over images and positions, which are rows here.
 *
 * Rows are divided into blocks that fit the L1 cache, by shape alone. A block's mean and squared deviations from it are
 * computed together, so the input is read once; blocks are joined in order, in double (Chan's formula). Residual and ReLU that
 * follow a norm in networks are part of its pass over the data, forward and backward.
 *
 * Synchronized, the sums of each batch are made as before, and those of all batches are joined in the order in which they are gathered. */
#include "tensor/tape.h"

#include <math.h>
#include <string.h>
#include "tensor/rows.h"

enum { BLOCK_FLOATS = 8192, MOST_CHANNELS = 1 << 20 };

typedef struct batch_norm {
    int64_t rows, C, block; /* rows of a block */
    bool relu;
    ls__buffer *statistics;         /* (2, C): mean, 1/deviation of this batch */
    const ls_batch_norm_sync *sync; /* NULL: none */
    double rows_of_all;             /* of all batches */
} batch_norm;

static int64_t blocks_of(const batch_norm *s)
{
    return (s->rows + s->block - 1) / s->block;
}

static size_t block_rows(const batch_norm *s, int64_t i)
{
    return (size_t)ls__min(s->block, s->rows - i * s->block);
}

/* Where the four coefficients of each channel are. */
typedef struct coefficients {
    float *factor, *shift, *mean, *slope;
} coefficients;

/* sums: (blocks, 2, C). Their totals, in double, in the order of blocks: of the channel's gradient, and of it times x - mean. */
static void back_totals(const batch_norm *s, const float *sums, int64_t c, double *sum, double *with_x)
{
    *sum = 0;
    *with_x = 0;
    for (int64_t i = 0; i < blocks_of(s); i++) {
        *sum += (double)sums[2 * i * s->C + c];
        *with_x += (double)sums[(2 * i + 1) * s->C + c];
    }
}

/* The totals of all batches. own: (2, C), this batch's, becomes those of all. */
static ls_status sync_totals(ls_tape *t, const batch_norm *s, double *own)
{
    const double *all = NULL;
    size_t n = 0, count = (size_t)(2 * s->C);
    ls_status status = s->sync->gather(s->sync->user, own, count, &all, &n);
    if (status) ls__tape_fail(t, status);
    if (status) return status;
    memset(own, 0, count * sizeof *own);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < count; c++) own[c] += all[i * count + c];
    return LS_OK;
}

static ls_status batch_norm_back(ls_tape *t, ls__node *n)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    const batch_norm *s = n->state;
    ls_tensor *in = n->in[0], *more = n->in[1];
    int64_t blocks = blocks_of(s), C = s->C;
    const float *x = in->data, *mean = s->statistics->data, *rstd = mean + C, *weight = n->param[1]->value;
    bool own = true, add = false, add_weight = false, add_bias = false;
    float *dy = ls__grad(t, n->out, &own); /* the ReLU's gradient is computed in place */
    float *dbias = ls__param_grad(t, n->param[0], &add_bias), *dweight = ls__param_grad(t, n->param[1], &add_weight);
    ls__buffer *partial = ls__buffer_take(t, (size_t)(2 * C * blocks)), *totals = ls__buffer_take(t, (size_t)(8 * C));
    if (t->status) return t->status;
    double *both = (double *)(void *)(totals->data + 4 * C); /* (2, C): sums */
    float *sums = partial->data;
    const float *y = s->relu ? n->out->data : NULL;
    coefficients q = { totals->data, totals->data + C, totals->data + 2 * C, totals->data + 3 * C };
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s->rows * C > LS__WORTH_THREADS)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t at = i * s->block * C;
        memset(sums + 2 * i * C, 0, (size_t)(2 * C) * sizeof *sums);
        k->channel_back_sums(sums + 2 * i * C, sums + (2 * i + 1) * C, dy + at, y ? y + at : NULL, x + at, mean,
                             block_rows(s, i), (size_t)C);
    }
    for (int64_t c = 0; c < C; c++) {
        back_totals(s, sums, c, &both[c], &both[C + c]);
        double sum = both[c], with_x = both[C + c] *= (double)rstd[c];
        if (dbias) dbias[c] = (add_bias ? dbias[c] : 0.0f) + (float)sum;
        if (dweight) dweight[c] = (add_weight ? dweight[c] : 0.0f) + (float)with_x;
    }
    if (s->sync && sync_totals(t, s, both)) return t->status;
    for (int64_t c = 0; c < C; c++) {
        double sum = both[c], with_x = both[C + c], count = s->sync ? s->rows_of_all : (double)s->rows;
        q.factor[c] = weight[c] * rstd[c];
        q.shift[c] = (float)(sum / count);
        q.slope[c] = (float)(with_x / count * (double)rstd[c]);
    }
    bool in_place = !more && !in->grad && in->needs_grad;
    ls_status status = more ? ls__grad_share(t, more, n->out->grad) : LS_OK;
    float *dx = status ? NULL : in_place ? dy : ls__grad(t, in, &add);
    if (dx) {
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s->rows * C > LS__WORTH_THREADS)
        for (int64_t i = blocks - 1; i >= 0; i--) { /* the last blocks may still be in the cache */
            int64_t at = i * s->block * C;
            k->channel_norm_back(dx + at, add, dy + at, x + at, q.factor, q.shift, mean, q.slope, block_rows(s, i),
                                 (size_t)C);
        }
        if (in_place) status = ls__grad_share(t, in, n->out->grad);
    }
    ls__buffer_drop(t, totals);
    ls__buffer_drop(t, partial);
    ls__buffer_drop(t, s->statistics);
    return status ? status : t->status;
}

static const ls__operation op_batch_norm = { "batch_norm", batch_norm_back };

/* ---- Statistics of a batch. */

/* Mean and squared deviations of each channel in one block. */
static void measure_block(const batch_norm *s, const float *x, int64_t i, float *mean, float *squares)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    size_t rows = block_rows(s, i), C = (size_t)s->C;
    memset(mean, 0, C * sizeof *mean);
    memset(squares, 0, C * sizeof *squares);
    k->channel_sums(mean, x + i * s->block * s->C, rows, C);
    k->scale(mean, 1.0f / (float)rows, mean, C);
    k->channel_squares(squares, x + i * s->block * s->C, mean, rows, C);
}

/* Joins the blocks: mean and squared deviations of a channel. */
static void join_blocks(const batch_norm *s, const float *parts, int64_t c, double *mean, double *squares)
{
    double rows = 0;
    *mean = 0;
    *squares = 0;
    for (int64_t i = 0; i < blocks_of(s); i++) {
        double more = (double)block_rows(s, i), apart = (double)parts[2 * i * s->C + c] - *mean;
        *squares += (double)parts[(2 * i + 1) * s->C + c] + apart * apart * (rows * more / (rows + more));
        rows += more;
        *mean += apart * (more / rows);
    }
}

/* Joins the batches: mean and squared deviations (2, C) of this one become those of all. A batch may have no rows. */
static ls_status sync_statistics(ls_tape *t, batch_norm *s, double *own)
{
    const double *all = NULL;
    size_t n = 0, C = (size_t)s->C, count = 2 * C + 1;
    own[2 * C] = (double)s->rows;
    ls_status status = s->sync->gather(s->sync->user, own, count, &all, &n);
    if (status) ls__tape_fail(t, status);
    if (status) return status;
    memset(own, 0, count * sizeof *own);
    for (size_t i = 0; i < n; i++) {
        const double *b = all + i * count;
        double more = b[2 * C], rows = own[2 * C];
        if (!(more > 0)) continue;
        for (size_t c = 0; c < C; c++) {
            double apart = b[c] - own[c];
            own[C + c] += b[C + c] + apart * apart * (rows * more / (rows + more));
            own[c] += apart * (more / (rows + more));
        }
        own[2 * C] = rows + more;
    }
    s->rows_of_all = own[2 * C];
    return LS_OK;
}

/* Mean and variance of the batch; updates the running statistics, or stores those of the batch. */
static ls_status measure(ls_tape *t, batch_norm *s, const float *x, ls_batch_norm_state *run, float *mean, float *var)
{
    int64_t blocks = blocks_of(s), C = s->C;
    ls__buffer *partial = ls__buffer_take(t, (size_t)(2 * C * blocks)),
               *totals = ls__buffer_take(t, (size_t)(4 * C + 2));
    if (t->status) return t->status;
    double *both = (double *)(void *)totals->data; /* (2, C): means and squared deviations; one more */
    float *parts = partial->data, m = run->momentum != 0 ? run->momentum : 0.1f;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s->rows * C > LS__WORTH_THREADS)
    for (int64_t i = 0; i < blocks; i++) measure_block(s, x, i, parts + 2 * i * C, parts + (2 * i + 1) * C);
    for (int64_t c = 0; c < C; c++) join_blocks(s, parts, c, &both[c], &both[C + c]);
    s->rows_of_all = (double)s->rows;
    if (s->sync && sync_statistics(t, s, both)) return t->status;
    for (int64_t c = 0; c < C; c++) {
        double center = both[c], squares = both[C + c], rows = s->rows_of_all;
        mean[c] = (float)center;
        var[c] = (float)(squares / rows);
        float unbiased = (float)(squares / (rows > 1 ? rows - 1 : 1));
        if (run->batch_mean) {
            run->batch_mean[c] = mean[c];
            run->batch_var[c] = unbiased;
        } else {
            ls__batch_norm_update(&run->mean[c], &mean[c], m, 1);
            ls__batch_norm_update(&run->var[c], &unbiased, m, 1);
        }
    }
    ls__buffer_drop(t, totals);
    ls__buffer_drop(t, partial);
    return LS_OK;
}

void ls__batch_norm_update(float *running, const float *batch, float momentum, size_t count)
{
    float m = momentum != 0 ? momentum : 0.1f;
    for (size_t i = 0; i < count; i++) running[i] = (1 - m) * running[i] + m * batch[i];
}

static bool fits(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, const ls_batch_norm_state *run,
                 ls_tensor *add)
{
    if (!ls__operation_begin(t, x, add ? add : x) || !ls__param_given(t, "batch_norm", weight)) return false;
    if (!run || !run->mean || !run->var || !run->batch_mean != !run->batch_var) {
        ls__tape_fail(t, ls__fail(LS_EINVAL, "batch_norm: the running statistics are NULL"));
        return false;
    }
    if (x->dims != 4 || x->shape[3] > MOST_CHANNELS) {
        ls__shape_error(t, "batch_norm", "input", x->dims, x->shape, weight->name, weight->dims, weight->shape,
                        "the input must be (B, H, W, C)");
        return false;
    }
    if (add && !ls__same_shape(x, add)) {
        ls__shape_error(t, "batch_norm", "input", x->dims, x->shape, "residual", add->dims, add->shape,
                        "both must be the same");
        return false;
    }
    return ls__param_fits(t, "batch_norm", weight, x->shape[3], 0, 0, 0, x) &&
           ls__param_fits(t, "batch_norm", bias, x->shape[3], 0, 0, 0, x);
}

ls_tensor *ls_batch_norm(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, ls_batch_norm_state *run,
                         const ls_batch_norm_options *options)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    LS__FLUSH_DENORMALS();
    ls_batch_norm_options o = options ? *options : (ls_batch_norm_options){ 0 };
    if (!fits(t, x, weight, bias, run, o.add)) return NULL;
    int64_t C = x->shape[3], block = BLOCK_FLOATS / C / 4 * 4;
    batch_norm s = {
        .rows = x->shape[0] * x->shape[1] * x->shape[2], .C = C, .block = block < 16 ? 16 : block, .relu = o.relu
    };
    if (t->pass.mode != LS_PASS_EVAL) s.sync = o.sync;
    ls_tensor *y = ls__result(t, 4, x->shape);
    s.statistics = ls__buffer_take(t, (size_t)(2 * C));
    ls__buffer *scratch = ls__buffer_take(t, (size_t)(2 * C));
    if (t->status) return NULL;
    float *mean = s.statistics->data, *rstd = mean + C, *factor = scratch->data, *shift = factor + C;
    float eps = run->eps != 0 ? run->eps : 1e-5f;
    memcpy(mean, run->mean, (size_t)C * sizeof *mean);
    memcpy(rstd, run->var, (size_t)C * sizeof *rstd);
    if (t->pass.mode != LS_PASS_EVAL && measure(t, &s, x->data, run, mean, rstd)) return NULL;
    for (int64_t c = 0; c < C; c++) {
        rstd[c] = 1.0f / sqrtf(rstd[c] + eps);
        factor[c] = weight->value[c] * rstd[c];
        shift[c] = bias->value[c] - mean[c] * factor[c];
    }
    int64_t blocks = blocks_of(&s);
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s.rows * C > LS__WORTH_THREADS)
    for (int64_t i = blocks - 1; i >= 0; i--) { /* the last blocks may still be in the cache */
        int64_t at = i * s.block * C;
        k->channel_affine(y->data + at, x->data + at, o.add ? o.add->data + at : NULL, factor, shift, o.relu,
                          block_rows(&s, i), (size_t)C);
    }
    ls__buffer_drop(t, scratch);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = &op_batch_norm,
                                                    .in = { x, o.add },
                                                    .param = { bias, weight },
                                                    .state = &s,
                                                    .state_bytes = sizeof s });
}
