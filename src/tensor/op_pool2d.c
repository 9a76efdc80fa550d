/* Pooling over (B, H, W, C): the maximum or the mean of each window, or the mean of each channel. A task is one image; loops run
 * over channels, which are contiguous. */
#include "tensor/tape.h"

#include <string.h>
#include "tensor/rows.h"

enum { MOST_WINDOW = 15 }; /* so that a place in a window is a byte */

typedef struct pool {
    int64_t B, H, W, C, oh, ow, size, stride, padding;
    ls__buffer *picked; /* (B, oh, ow, C) bytes: the place of the maximum in its window; NULL for means */
} pool;

/* The image's row of channels at place `w` of the window at (oy, ox); < 0: in the padding. */
static int64_t pixel_of(const pool *s, int64_t oy, int64_t ox, int64_t w)
{
    int64_t y = oy * s->stride - s->padding + w / s->size, x = ox * s->stride - s->padding + w % s->size;
    return y < 0 || y >= s->H || x < 0 || x >= s->W ? -1 : (y * s->W + x) * s->C;
}

static void max_window(const pool *s, const float *x, int64_t oy, int64_t ox, float *y, uint8_t *picked)
{
    const float *rows[MOST_WINDOW * MOST_WINDOW];
    for (int64_t w = 0; w < s->size * s->size; w++) {
        int64_t at = pixel_of(s, oy, ox, w);
        rows[w] = at < 0 ? NULL : x + at;
    }
    ls__nn_kernels_best()->channel_max(y, picked, rows, (int)(s->size * s->size), (size_t)s->C);
}

static void mean_window(const pool *s, const float *x, int64_t oy, int64_t ox, float *y)
{
    float share = 1.0f / (float)(s->size * s->size);
    memset(y, 0, (size_t)s->C * sizeof *y);
    for (int64_t w = 0; w < s->size * s->size; w++) {
        int64_t at = pixel_of(s, oy, ox, w);
        if (at >= 0) ls__nn_kernels_best()->add(y, y, x + at, (size_t)s->C);
    }
    ls__nn_kernels_best()->scale(y, share, y, (size_t)s->C);
}

static void window_back(const pool *s, float *dx, int64_t oy, int64_t ox, const float *dy, const uint8_t *picked)
{
    float share = 1.0f / (float)(s->size * s->size);
    for (int64_t w = 0; w < s->size * s->size; w++) {
        int64_t at = pixel_of(s, oy, ox, w);
        if (at < 0) continue;
        float *to = dx + at;
        if (picked)
            ls__nn_kernels_best()->channel_max_back(to, dy, picked, (int)w, (size_t)s->C);
        else
            ls__nn_kernels_best()->axpy(to, share, dy, (size_t)s->C);
    }
}

static ls_status pool_back(ls_tape *t, ls__node *n)
{
    const pool *s = n->state;
    const float *dy = n->out->grad->data;
    int64_t size = s->H * s->W * s->C, places = s->oh * s->ow;
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    if (!dx) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s->B * size > LS__WORTH_THREADS)
    for (int64_t b = 0; b < s->B; b++) {
        float *image = dx + b * size;
        if (!add) memset(image, 0, (size_t)size * sizeof *image);
        for (int64_t o = 0; o < places; o++) {
            int64_t at = (b * places + o) * s->C;
            window_back(s, image, o / s->ow, o % s->ow, dy + at, s->picked ? (uint8_t *)s->picked->data + at : NULL);
        }
    }
    ls__buffer_drop(t, s->picked);
    return LS_OK;
}

static const ls__operation op_max_pool = { "max_pool2d", pool_back }, op_avg_pool = { "avg_pool2d", pool_back };

static ls_tensor *pool_forward(ls_tape *t, const ls__operation *op, ls_tensor *x, const ls_pool2d_options *options)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    ls_pool2d_options o = options ? *options : (ls_pool2d_options){ 0 };
    bool takes_max = op == &op_max_pool;
    if (!o.size) o.size = 2;
    if (!o.stride) o.stride = o.size;
    if (x->dims != 4 || o.size < 1 || o.size > MOST_WINDOW || o.stride < 1 || o.padding < 0 || 2 * o.padding > o.size ||
        x->shape[1] + 2 * o.padding < o.size || x->shape[2] + 2 * o.padding < o.size)
        return ls__shape_error(t, op->name, "input", x->dims, x->shape, "window, stride and padding", 3,
                               (int64_t[]){ o.size, o.stride, o.padding },
                               "the input must be (B, H, W, C) and hold a window of at most 15 x 15, and the padding "
                               "be at most half of it");
    pool s = { .B = x->shape[0],
               .H = x->shape[1],
               .W = x->shape[2],
               .C = x->shape[3],
               .size = o.size,
               .stride = o.stride,
               .padding = o.padding };
    s.oh = (s.H + 2 * s.padding - s.size) / s.stride + 1;
    s.ow = (s.W + 2 * s.padding - s.size) / s.stride + 1;
    int64_t places = s.oh * s.ow, size = s.H * s.W * s.C;
    ls_tensor *y = ls__result(t, 4, (int64_t[]){ s.B, s.oh, s.ow, s.C });
    if (takes_max) s.picked = ls__buffer_take(t, (size_t)(s.B * places * s.C + 3) / 4);
    if (t->status) return NULL;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (s.B * size > LS__WORTH_THREADS)
    for (int64_t p = 0; p < s.B * places; p++) {
        const float *image = x->data + p / places * size;
        int64_t oy = p % places / s.ow, ox = p % places % s.ow;
        if (takes_max)
            max_window(&s, image, oy, ox, y->data + p * s.C, (uint8_t *)s.picked->data + p * s.C);
        else
            mean_window(&s, image, oy, ox, y->data + p * s.C);
    }
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = op, .in = { x }, .state = &s, .state_bytes = sizeof s });
}

ls_tensor *ls_max_pool2d(ls_tape *t, ls_tensor *x, const ls_pool2d_options *options)
{
    return pool_forward(t, &op_max_pool, x, options);
}

ls_tensor *ls_avg_pool2d(ls_tape *t, ls_tensor *x, const ls_pool2d_options *options)
{
    return pool_forward(t, &op_avg_pool, x, options);
}

static ls_status global_back(ls_tape *t, ls__node *n)
{
    ls_tensor *x = n->in[0];
    int64_t places = x->shape[1] * x->shape[2], C = x->shape[3], B = x->shape[0];
    const float *dy = n->out->grad->data;
    float share = 1.0f / (float)places;
    bool add;
    float *dx = ls__grad(t, x, &add);
    if (!dx) return t->status;
    const ls__nn_kernels *k = ls__nn_kernels_best();
#pragma omp parallel for num_threads(t->threads) schedule(static) if (B * places * C > LS__WORTH_THREADS)
    for (int64_t r = 0; r < B * places; r++) {
        if (add)
            k->axpy(dx + r * C, share, dy + r / places * C, (size_t)C);
        else
            k->scale(dx + r * C, share, dy + r / places * C, (size_t)C);
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
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "global_avg_pool2d: input %s is not (B, H, W, C)",
                                         ls__shape_text(text, x->dims, x->shape)));
    int64_t places = x->shape[1] * x->shape[2], C = x->shape[3], B = x->shape[0];
    ls_tensor *y = ls__result(t, 2, (int64_t[]){ B, C });
    if (!y) return NULL;
    const ls__nn_kernels *k = ls__nn_kernels_best();
#pragma omp parallel for num_threads(t->threads) schedule(static) if (B * places * C > LS__WORTH_THREADS)
    for (int64_t b = 0; b < B; b++) {
        memset(y->data + b * C, 0, (size_t)C * sizeof *y->data);
        k->channel_sums(y->data + b * C, x->data + b * places * C, (size_t)places, (size_t)C);
        k->scale(y->data + b * C, 1.0f / (float)places, y->data + b * C, (size_t)C);
    }
    return ls__tape_record(t, y, &(ls__tape_record_args){ .op = &op_global_pool, .in = { x } });
}
