/* Pooling over (B, C, H, W): the maximum or the mean of each window, or the mean of each channel. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

typedef struct pool {
    int64_t planes, H, W, oh, ow, size, stride; /* planes = B * C */
    ls__buffer *picked; /* (planes, oh, ow): int32 index of the maximum in its plane; NULL for means */
} pool;

static void max_plane(const pool *s, const float *x, float *y, int32_t *picked)
{
    for (int64_t o = 0; o < s->oh * s->ow; o++) {
        int64_t top = o / s->ow * s->stride, left = o % s->ow * s->stride, best = top * s->W + left;
        for (int64_t i = 0; i < s->size; i++)
            for (int64_t j = 0; j < s->size; j++) {
                int64_t at = (top + i) * s->W + left + j;
                if (x[at] > x[best] || x[at] != x[at]) best = at;
            }
        y[o] = x[best];
        picked[o] = (int32_t)best;
    }
}

static void mean_plane(const pool *s, const float *x, float *y)
{
    float share = 1.0f / (float)(s->size * s->size);
    for (int64_t o = 0; o < s->oh * s->ow; o++) {
        const float *window = x + o / s->ow * s->stride * s->W + o % s->ow * s->stride;
        float sum = 0;
        for (int64_t i = 0; i < s->size; i++)
            for (int64_t j = 0; j < s->size; j++) sum += window[i * s->W + j];
        y[o] = sum * share;
    }
}

static void mean_plane_back(const pool *s, float *dx, const float *dy)
{
    float share = 1.0f / (float)(s->size * s->size);
    for (int64_t o = 0; o < s->oh * s->ow; o++) {
        float *window = dx + o / s->ow * s->stride * s->W + o % s->ow * s->stride;
        for (int64_t i = 0; i < s->size; i++)
            for (int64_t j = 0; j < s->size; j++) window[i * s->W + j] += dy[o] * share;
    }
}

static ls_status pool_back(ls_tape *t, ls__node *n)
{
    const pool *s = n->state;
    const float *dy = n->out->grad->data;
    int64_t places = s->oh * s->ow, size = s->H * s->W;
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s->planes * size > LS__WORTH_THREADS)
    for (int64_t p = 0; p < s->planes; p++) {
        float *plane = dx + p * size;
        if (!add) memset(plane, 0, (size_t)size * sizeof *plane);
        if (s->picked) {
            const int32_t *picked = (const int32_t *)s->picked->data + p * places;
            for (int64_t o = 0; o < places; o++) plane[picked[o]] += dy[p * places + o];
        } else {
            mean_plane_back(s, plane, dy + p * places);
        }
    }
    ls__buffer_drop(t, s->picked);
    return LS_OK;
}

static const ls__operation op_max_pool = { "max_pool2d", pool_back }, op_avg_pool = { "avg_pool2d", pool_back };

static ls_tensor *pool_forward(ls_tape *t, const ls__operation *op, ls_tensor *x, int size, int stride)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    bool takes_max = op == &op_max_pool;
    if (x->dims != 4 || size < 1 || stride < 1 || x->shape[2] < size || x->shape[3] < size)
        return ls__shape_error(t, op->name, "input", x->dims, x->shape, "window and stride", 2,
                               (int64_t[]){ size, stride }, "the input must be (B, C, H, W) and hold a window");
    pool s = {
        .planes = x->shape[0] * x->shape[1], .H = x->shape[2], .W = x->shape[3], .size = size, .stride = stride
    };
    s.oh = (s.H - size) / stride + 1;
    s.ow = (s.W - size) / stride + 1;
    ls_tensor *y = ls__result(t, 4, (int64_t[]){ x->shape[0], x->shape[1], s.oh, s.ow });
    if (takes_max) s.picked = ls__buffer_take(t, (size_t)(s.planes * s.oh * s.ow));
    if (t->status) return NULL;
    int64_t places = s.oh * s.ow;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s.planes * s.H * s.W > LS__WORTH_THREADS)
    for (int64_t p = 0; p < s.planes; p++) {
        const float *plane = x->data + p * s.H * s.W;
        if (takes_max)
            max_plane(&s, plane, y->data + p * places, (int32_t *)s.picked->data + p * places);
        else
            mean_plane(&s, plane, y->data + p * places);
    }
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = op, .in = { x }, .state = &s, .state_bytes = sizeof s });
}

ls_tensor *ls_max_pool2d(ls_tape *t, ls_tensor *x, int size, int stride)
{
    return pool_forward(t, &op_max_pool, x, size, stride);
}

ls_tensor *ls_avg_pool2d(ls_tape *t, ls_tensor *x, int size, int stride)
{
    return pool_forward(t, &op_avg_pool, x, size, stride);
}

static ls_status global_back(ls_tape *t, ls__node *n)
{
    ls_tensor *x = n->in[0];
    int64_t places = x->shape[2] * x->shape[3], planes = x->shape[0] * x->shape[1];
    const float *dy = n->out->grad->data;
    bool add;
    float *dx = ls__grad(t, x, &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (planes * places > LS__WORTH_THREADS)
    for (int64_t p = 0; p < planes; p++) {
        float d = dy[p] / (float)places;
        for (int64_t i = p * places; i < (p + 1) * places; i++) dx[i] = add ? dx[i] + d : d;
    }
    return LS_OK;
}

static const ls__operation op_global_pool = { "global_avg_pool2d", global_back };

ls_tensor *ls_global_avg_pool2d(ls_tape *t, ls_tensor *x)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    char text[LS__SHAPE_TEXT];
    if (x->dims != 4)
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "global_avg_pool2d: input %s is not (B, C, H, W)",
                                         ls__shape_text(text, x->dims, x->shape)));
    ls_tensor *y = ls__result(t, 2, x->shape);
    if (!y) return NULL;
    int64_t places = x->shape[2] * x->shape[3], planes = x->shape[0] * x->shape[1];
#pragma omp parallel for num_threads(t->threads) schedule(static) if (planes * places > LS__WORTH_THREADS)
    for (int64_t p = 0; p < planes; p++)
        y->data[p] = ls__nn_kernels_best()->sum(x->data + p * places, (size_t)places) / (float)places;
    return ls__tape_record(t, y, &(ls__tape_record_args){ .op = &op_global_pool, .in = { x } });
}
