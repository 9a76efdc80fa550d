/* 2-D convolution, forward and backward; conv.h says how.
 *
 * Forward and the gradient of the image: a task is some channels of the result of one image, with weights that stay in the L2
 * cache from image to image. The gradient of the weights: images are divided into groups, each of which is summed separately,
 * in order; then the sums of the groups are added in order. A task is a group and a part of the weights' rows. Groups and
 * parts depend on the shape alone. */
#include "tensor/tape.h"

#include <omp.h>
#include <string.h>
#include "kern/gemm.h"
#include "tensor/conv.h"
#include "tensor/rows.h"
#include "tensor/winograd.h"

enum {
    MOST_GROUPS = 16,
    GROUP_FLOATS = 1 << 20,  /* of the sums of all groups */
    PANELS_FLOATS = 1 << 17, /* of the weights that a task uses: half of an L2 cache */
    PART_ROWS = 256,         /* of the weights' gradient, at least, if a task has not all of them */
};

/* ---- One convolution of a phase, over all images. */

static int64_t channels_at_once(const ls__sweep *p)
{
    int64_t depth = p->h * p->w * p->planes, fit = depth ? PANELS_FLOATS / depth / 32 * 32 : p->to;
    return ls__min(p->to, fit < 32 ? 32 : fit);
}

static void pack_weights(const ls_tape *t, const ls__conv *s, const ls__sweep *p, bool back, const float *w, float *out)
{
    int64_t panels = (p->to + LS__PANEL - 1) / LS__PANEL;
    bool worth = ls__conv_panel_floats(p) > LS__WORTH_THREADS;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (worth)
    for (int64_t i = 0; i < panels; i++) ls__conv_pack(s, p, back, w, i, out);
}

/* Memory that a phase needs: packed weights, then a bordered image per thread. */
static size_t sweep_floats(const ls_tape *t, const ls__sweep *p)
{
    if (ls__winograd_serves(p)) return ls__winograd_floats(t, p);
    return (ls__conv_panel_floats(p) + 15) / 16 * 16 + ls__conv_border_floats(p) * (size_t)t->threads;
}

static void run_sweep(const ls_tape *t, const ls__conv *s, const ls__sweep *p, bool back, const float *w,
                      const float *source, float *result, bool add, float *memory)
{
    int64_t each = channels_at_once(p), parts = (p->to + each - 1) / each;
    int64_t source_size = p->source_h * p->source_w * p->planes;
    int64_t result_size = back ? s->H * s->W * s->in : s->oh * s->ow * s->out;
    size_t border = ls__conv_border_floats(p);
    float *borders = memory + (ls__conv_panel_floats(p) + 15) / 16 * 16;
    if (!p->rows || !p->cols) return;
    if (ls__winograd_serves(p)) {
        ls__winograd_run(t, s, p, back, w, source, result, add, memory);
        return;
    }
    pack_weights(t, s, p, back, w, memory);
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < parts * s->B; task++) {
        int64_t b = task % s->B, first = task / s->B * each, line;
        const float *image =
            ls__conv_border(p, source + b * source_size, borders + border * (size_t)omp_get_thread_num(), &line);
        ls__conv_image(p, image, line, memory, first, ls__min(each, p->to - first), result + b * result_size, add);
    }
}

/* A window of one pixel without stride or borders: rows of pixels times a matrix. */
static bool is_pointwise(const ls__conv *s)
{
    return s->kh == 1 && s->kw == 1 && s->stride == 1 && s->padding == 0;
}

static ls__gemm pointwise_forward(const ls__conv *s, const float *x, const float *w, float *y, bool add)
{
    return (ls__gemm){ .m = s->B * s->H * s->W,
                       .n = s->out,
                       .k = s->in,
                       .a = x,
                       .lda = s->in,
                       .b = w,
                       .ldb = s->in,
                       .b_trans = true,
                       .c = y,
                       .ldc = s->out,
                       .add = add };
}

static ls__gemm pointwise_input(const ls__conv *s, const float *dy, const float *w, float *dx, bool add)
{
    return (ls__gemm){ .m = s->B * s->H * s->W,
                       .n = s->in,
                       .k = s->out,
                       .a = dy,
                       .lda = s->out,
                       .b = w,
                       .ldb = s->in,
                       .c = dx,
                       .ldc = s->in,
                       .add = add };
}

static ls__gemm pointwise_weight(const ls__conv *s, const float *dy, const float *x, float *dw, bool add)
{
    return (ls__gemm){ .m = s->out,
                       .n = s->in,
                       .k = s->B * s->H * s->W,
                       .a = dy,
                       .lda = s->out,
                       .a_trans = true,
                       .b = x,
                       .ldb = s->in,
                       .c = dw,
                       .ldc = s->in,
                       .add = add };
}

/* ---- The gradient of the image. */

static ls_status input_back(ls_tape *t, const ls__conv *s, const float *w, const float *dy, float *dx, bool add)
{
    size_t most = 0;
    for (int64_t i = 0; i < s->stride * s->stride; i++) {
        ls__sweep p = ls__conv_back_phase(s, i / s->stride, i % s->stride);
        size_t floats = p.rows && p.cols ? sweep_floats(t, &p) : 0;
        if (floats > most) most = floats;
    }
    ls__buffer *memory = ls__buffer_take(t, most);
    if (!memory) return t->status;
    for (int64_t i = 0; i < s->stride * s->stride; i++) {
        ls__sweep p = ls__conv_back_phase(s, i / s->stride, i % s->stride);
        run_sweep(t, s, &p, true, w, dy, dx, add, memory->data);
    }
    ls__buffer_drop(t, memory);
    return LS_OK;
}

/* ---- The gradient of the weights: rows (i, j, c) of kh kw in, columns of `out`. */

typedef struct division {
    int64_t groups, parts, part_rows; /* parts of a window's line, kw in rows */
} division;

static division divide(const ls__conv *s)
{
    int64_t weights = s->kh * s->kw * s->in * s->out, line = s->kw * s->in;
    int64_t groups = ls__min(ls__min(MOST_GROUPS, s->B), GROUP_FLOATS / weights);
    division d = { .groups = groups < 1 ? 1 : groups, .parts = 1, .part_rows = line };
    if (d.groups < MOST_GROUPS && line > PART_ROWS) d.parts = (line + PART_ROWS - 1) / PART_ROWS;
    d.part_rows = (line + d.parts - 1) / d.parts;
    d.parts = (line + d.part_rows - 1) / d.part_rows;
    return d;
}

/* Image b's contribution to rows [first, first + rows) of line i of the windows, or of all lines (i < 0). */
static void weight_image(const ls__conv *s, const float *image, int64_t line, const float *panels, int64_t i,
                         int64_t first, int64_t rows, float *sums, bool add)
{
    ls__window a = { .row = 1,
                     .col = s->stride * s->in,
                     .runs = s->oh,
                     .k = s->ow,
                     .gap = s->stride * line - s->ow * s->stride * s->in };
    for (int64_t l = i < 0 ? 0 : i; l < (i < 0 ? s->kh : i + 1); l++) {
        a.at = image + l * line + first;
        ls__nn_kernels_best()->window_product(sums + (l * s->kw * s->in + first) * s->out, s->out, &a, panels, rows,
                                              s->out, add);
    }
}

/* dw (out, in, kh, kw) = (add: dw +) the sums, (kh, kw, in, out) */
static void transpose_weights(const ls_tape *t, const ls__conv *s, float *dw, bool add, const float *sums)
{
    int64_t taps = s->kh * s->kw;
    bool worth = s->out * s->in * taps > LS__WORTH_THREADS;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (worth)
    for (int64_t o = 0; o < s->out; o += 16)
        for (int64_t c = 0; c < s->in; c++)
            for (int64_t q = o; q < ls__min(o + 16, s->out); q++)
                for (int64_t tap = 0; tap < taps; tap++) {
                    float *to = dw + (q * s->in + c) * taps + tap, d = sums[(tap * s->in + c) * s->out + q];
                    *to = add ? *to + d : d;
                }
}

static ls_status weight_back(ls_tape *t, const ls__conv *s, const float *x, const float *dy, float *dw, bool add)
{
    ls__sweep p = ls__conv_forward_phase(s);
    division d = divide(s);
    int64_t weights = s->kh * s->kw * s->in * s->out, places = s->oh * s->ow;
    int64_t parts = d.parts > 1 ? d.parts * s->kh : 1, panel_count = (s->out + LS__PANEL - 1) / LS__PANEL;
    size_t border = ls__conv_border_floats(&p), packed = (size_t)(panel_count * LS__PANEL * places),
           each = border + packed;
    ls__buffer *scratch = ls__buffer_take(t, each * (size_t)t->threads);
    ls__buffer *sums = ls__buffer_take(t, (size_t)(d.groups * weights));
    if (t->status) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < d.groups * parts; task++) {
        int64_t g = task / parts, part = task % parts, line;
        int64_t i = parts > 1 ? part / d.parts : -1, row = parts > 1 ? part % d.parts * d.part_rows : 0;
        int64_t begin = s->B * g / d.groups, end = s->B * (g + 1) / d.groups;
        float *own = scratch->data + each * (size_t)omp_get_thread_num();
        for (int64_t b = begin; b < end; b++) {
            const float *image = ls__conv_border(&p, x + b * s->H * s->W * s->in, own, &line);
            const float *gradient = dy + b * places * s->out;
            if (s->out != LS__PANEL) {
                ls__nn_kernels_best()->pack(own + border, gradient, s->out, places, s->out);
                gradient = own + border;
            }
            weight_image(s, image, line, gradient, i, row, ls__min(d.part_rows, s->kw * s->in - row),
                         sums->data + g * weights, b > begin);
        }
    }
    if (d.groups > 1) ls__fold_blocks(t, sums->data, true, sums->data + weights, d.groups - 1, weights, weights);
    transpose_weights(t, s, dw, add, sums->data);
    ls__buffer_drop(t, sums);
    ls__buffer_drop(t, scratch);
    return LS_OK;
}

/* ---- On the tape. */

static ls_status conv_back(ls_tape *t, ls__node *n)
{
    const ls__conv *s = n->state;
    const float *x = n->in[0]->data, *w = n->param[1]->value, *dy = n->out->grad->data;
    bool add = false, add_db = false, add_dw = false;
    float *dx = ls__grad(t, n->in[0], &add);
    float *db = ls__param_grad(t, n->param[0], &add_db), *dw = ls__param_grad(t, n->param[1], &add_dw);
    if (t->status) return t->status;
    if (is_pointwise(s)) {
        ls__gemm g[2];
        int count = 0;
        if (dw) g[count++] = pointwise_weight(s, dy, x, dw, add_dw);
        if (dx) g[count++] = pointwise_input(s, dy, w, dx, add);
        ls__gemm_run(g, count, t->threads, t->workspace, &t->tick);
    } else {
        if (dw && weight_back(t, s, x, dy, dw, add_dw)) return t->status;
        if (dx && input_back(t, s, w, dy, dx, add)) return t->status;
    }
    return db ? ls__column_sums(t, db, add_db, dy, s->B * s->oh * s->ow, s->out) : LS_OK;
}

static const ls__operation op_conv2d = { "conv2d", conv_back };

static ls_status conv_forward(ls_tape *t, const ls__conv *s, const float *x, const float *w, const ls_param *bias,
                              float *y)
{
    int64_t rows = s->B * s->oh * s->ow;
    if (bias) {
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * s->out > LS__WORTH_THREADS)
        for (int64_t r = 0; r < rows; r++) memcpy(y + r * s->out, bias->value, (size_t)s->out * sizeof *y);
    }
    if (is_pointwise(s)) {
        ls__gemm g = pointwise_forward(s, x, w, y, bias != NULL);
        ls__gemm_run(&g, 1, t->threads, t->workspace, NULL);
        return LS_OK;
    }
    ls__sweep p = ls__conv_forward_phase(s);
    ls__buffer *memory = ls__buffer_take(t, sweep_floats(t, &p));
    if (!memory) return t->status;
    run_sweep(t, s, &p, false, w, x, y, bias != NULL, memory->data);
    ls__buffer_drop(t, memory);
    return LS_OK;
}

ls_tensor *ls_conv2d(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_conv2d_options *options)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x) || !ls__param_given(t, "conv2d", w)) return NULL;
    ls_conv2d_options o = options ? *options : (ls_conv2d_options){ 0 };
    if (x->dims != 4 || w->dims != 4 || w->shape[1] != x->shape[3])
        return ls__shape_error(t, "conv2d", "input", x->dims, x->shape, w->name, w->dims, w->shape,
                               "they must be (B, H, W, in) and (out, in, kh, kw)");
    ls__conv s = { .B = x->shape[0],
                   .H = x->shape[1],
                   .W = x->shape[2],
                   .in = x->shape[3],
                   .out = w->shape[0],
                   .kh = w->shape[2],
                   .kw = w->shape[3],
                   .stride = o.stride ? o.stride : 1,
                   .padding = o.padding };
    if (!ls__param_fits(t, "conv2d", w, s.out, s.in, s.kh, s.kw, x)) return NULL;
    if (b && !ls__param_fits(t, "conv2d", b, s.out, 0, 0, 0, x)) return NULL;
    if (s.stride < 1 || s.padding < 0 || s.H + 2 * s.padding < s.kh || s.W + 2 * s.padding < s.kw)
        return ls__shape_error(t, "conv2d", "input", x->dims, x->shape, w->name, w->dims, w->shape,
                               "the window is larger than the padded image, or stride or padding is negative");
    s.oh = (s.H + 2 * s.padding - s.kh) / s.stride + 1;
    s.ow = (s.W + 2 * s.padding - s.kw) / s.stride + 1;
    ls_tensor *y = ls__result(t, 4, (int64_t[]){ s.B, s.oh, s.ow, s.out });
    if (!y || conv_forward(t, &s, x->data, w->value, b, y->data)) return NULL;
    double flops = 2.0 * (double)(s.B * s.oh * s.ow) * (double)(s.out * s.in * s.kh * s.kw);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){ .op = &op_conv2d,
                                                    .in = { x },
                                                    .param = { b, w },
                                                    .state = &s,
                                                    .state_bytes = sizeof s,
                                                    .flops = flops,
                                                    .back_flops =
                                                        flops * ((x->needs_grad ? 1 : 0) + (w->grad ? 1 : 0)) });
}
