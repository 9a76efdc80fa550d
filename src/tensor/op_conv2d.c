/* 2-D convolution as a product: each image is unfolded to a matrix of patches, (in kh kw, oh ow), which is multiplied by the weights. An image is one task. The gradient of the weights is a sum over images: GROUPS groups of consecutive images are summed separately, each in order, and then the sums of the groups in order. */
#include "tensor/tape.h"

#include <omp.h>
#include <string.h>
#include "kern/gemm.h"
#include "tensor/rows.h"

enum { GROUPS = 8 };

typedef struct conv {
    int64_t B, in, H, W; /* x */
    int64_t out, kh, kw; /* w */
    int64_t oh, ow;      /* y */
    int64_t stride, padding;
    int64_t patch, places; /* in * kh * kw, oh * ow */
    bool pointwise;        /* 1 x 1, stride 1: the image is its own matrix of patches */
} conv;

/* Row (c, i, j) of the patches is the image's channel c shifted by (i, j), every stride-th element. */
static void unfold(const conv *s, float *patches, const float *x)
{
    for (int64_t row = 0; row < s->patch; row++) {
        int64_t c = row / (s->kh * s->kw), i = row / s->kw % s->kh, j = row % s->kw;
        float *to = patches + row * s->places;
        for (int64_t oy = 0; oy < s->oh; oy++) {
            int64_t y = oy * s->stride + i - s->padding;
            for (int64_t ox = 0; ox < s->ow; ox++) {
                int64_t xx = ox * s->stride + j - s->padding;
                bool inside = y >= 0 && y < s->H && xx >= 0 && xx < s->W;
                *to++ = inside ? x[(c * s->H + y) * s->W + xx] : 0.0f;
            }
        }
    }
}

/* The reverse: adds each element of the patches to its element of the image. */
static void fold_back(const conv *s, float *dx, const float *patches)
{
    for (int64_t row = 0; row < s->patch; row++) {
        int64_t c = row / (s->kh * s->kw), i = row / s->kw % s->kh, j = row % s->kw;
        const float *from = patches + row * s->places;
        for (int64_t oy = 0; oy < s->oh; oy++) {
            int64_t y = oy * s->stride + i - s->padding;
            for (int64_t ox = 0; ox < s->ow; ox++, from++) {
                int64_t xx = ox * s->stride + j - s->padding;
                if (y >= 0 && y < s->H && xx >= 0 && xx < s->W) dx[(c * s->H + y) * s->W + xx] += *from;
            }
        }
    }
}

/* The three products of an image: its result, and the gradients of its weights and of its patches. */

static ls__gemm forward_product(const conv *s, const float *w, const float *patches, float *y, bool add)
{
    return (ls__gemm){ .m = s->out,
                       .n = s->places,
                       .k = s->patch,
                       .a = w,
                       .lda = s->patch,
                       .b = patches,
                       .ldb = s->places,
                       .c = y,
                       .ldc = s->places,
                       .add = add };
}

static ls__gemm weight_product(const conv *s, const float *dy, const float *patches, float *dw, bool add)
{
    return (ls__gemm){ .m = s->out,
                       .n = s->patch,
                       .k = s->places,
                       .a = dy,
                       .lda = s->places,
                       .b = patches,
                       .ldb = s->places,
                       .b_trans = true,
                       .c = dw,
                       .ldc = s->patch,
                       .add = add };
}

static ls__gemm patch_product(const conv *s, const float *w, const float *dy, float *dpatches, bool add)
{
    return (ls__gemm){ .m = s->patch,
                       .n = s->places,
                       .k = s->out,
                       .a = w,
                       .lda = s->patch,
                       .a_trans = true,
                       .b = dy,
                       .ldb = s->places,
                       .c = dpatches,
                       .ldc = s->places,
                       .add = add };
}

/* Floats that a thread needs: patches, followed by the products' workspace. */
static size_t patch_floats(const conv *s)
{
    return s->pointwise ? 0 : (size_t)((s->patch * s->places + 15) / 16 * 16);
}

static size_t scratch_floats(const conv *s, bool backward)
{
    const ls__gemm p[] = { backward ? weight_product(s, NULL, NULL, NULL, false)
                                    : forward_product(s, NULL, NULL, NULL, false),
                           patch_product(s, NULL, NULL, NULL, false) };
    size_t first = ls__gemm_workspace_one(&p[0]), second = backward ? ls__gemm_workspace_one(&p[1]) : 0;
    return patch_floats(s) + (first > second ? first : second);
}

static void image_back(const conv *s, const float *x, const float *w, const float *dy, float *dx, bool add, float *dw,
                       bool add_dw, float *scratch)
{
    int64_t size = s->in * s->H * s->W;
    float *patches = scratch, *workspace = scratch + patch_floats(s);
    if (dw) {
        if (!s->pointwise) unfold(s, patches, x);
        ls__gemm g = weight_product(s, dy, s->pointwise ? x : patches, dw, add_dw);
        ls__gemm_one(&g, workspace);
    }
    if (!dx) return;
    ls__gemm g = patch_product(s, w, dy, s->pointwise ? dx : patches, s->pointwise && add);
    ls__gemm_one(&g, workspace);
    if (s->pointwise) return;
    if (!add) memset(dx, 0, (size_t)size * sizeof *dx);
    fold_back(s, dx, patches);
}

/* db[c] is the sum over images and places. */
static void bias_back(const ls_tape *t, const conv *s, float *db, bool add, const float *dy)
{
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t c = 0; c < s->out; c++) {
        double sum = 0;
        for (int64_t b = 0; b < s->B; b++)
            sum += ls__nn_kernels_best()->sum(dy + (b * s->out + c) * s->places, (size_t)s->places);
        db[c] = (add ? db[c] : 0.0f) + (float)sum;
    }
}

static ls_status conv_back(ls_tape *t, ls__node *n)
{
    const conv *s = n->state;
    const float *x = n->in[0]->data, *w = n->param[1]->value, *dy = n->out->grad->data;
    bool add = false, add_db = false, add_dw = false;
    float *dx = ls__grad(t, n->in[0], &add);
    float *db = ls__param_grad(t, n->param[0], &add_db), *dw = ls__param_grad(t, n->param[1], &add_dw);
    int64_t groups = ls__min(GROUPS, s->B), size = s->in * s->H * s->W, weights = s->out * s->patch;
    size_t each = scratch_floats(s, true);
    ls__buffer *scratch = ls__buffer_take(t, each * (size_t)t->threads);
    ls__buffer *sums = ls__buffer_take(t, (size_t)(groups * weights));
    if (t->status) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t g = 0; g < groups; g++) {
        int64_t first = s->B * g / groups, end = s->B * (g + 1) / groups;
        float *own = scratch->data + each * (size_t)omp_get_thread_num();
        for (int64_t b = first; b < end; b++)
            image_back(s, x + b * size, w, dy + b * s->out * s->places, dx ? dx + b * size : NULL, add,
                       dw ? sums->data + g * weights : NULL, b > first, own);
    }
    if (dw) ls__fold_blocks(t, dw, add_dw, sums->data, groups, weights, weights);
    if (db) bias_back(t, s, db, add_db, dy);
    ls__buffer_drop(t, sums);
    ls__buffer_drop(t, scratch);
    return LS_OK;
}

static const ls__operation op_conv2d = { "conv2d", conv_back };

static void conv_forward(ls_tape *t, const conv *s, const float *x, const ls_param *w, const ls_param *bias, float *y,
                         float *scratch, size_t each)
{
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t b = 0; b < s->B; b++) {
        const float *image = x + b * s->in * s->H * s->W;
        float *own = scratch + each * (size_t)omp_get_thread_num(), *to = y + b * s->out * s->places;
        if (!s->pointwise) unfold(s, own, image);
        for (int64_t c = 0; bias && c < s->out; c++)
            for (int64_t i = 0; i < s->places; i++) to[c * s->places + i] = bias->value[c];
        ls__gemm g = forward_product(s, w->value, s->pointwise ? image : own, to, bias != NULL);
        ls__gemm_one(&g, own + patch_floats(s));
    }
}

ls_tensor *ls_conv2d(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_conv2d_options *options)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x) || !ls__param_given(t, "conv2d", w)) return NULL;
    ls_conv2d_options o = options ? *options : (ls_conv2d_options){ 0 };
    if (x->dims != 4 || w->dims != 4 || w->shape[1] != x->shape[1])
        return ls__shape_error(t, "conv2d", "input", x->dims, x->shape, w->name, w->dims, w->shape,
                               "they must be (B, in, H, W) and (out, in, kh, kw)");
    conv s = { .B = x->shape[0],
               .in = x->shape[1],
               .H = x->shape[2],
               .W = x->shape[3],
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
    s.patch = s.in * s.kh * s.kw;
    s.places = s.oh * s.ow;
    s.pointwise = s.kh == 1 && s.kw == 1 && s.stride == 1 && s.padding == 0;
    size_t each = scratch_floats(&s, false);
    ls_tensor *y = ls__result(t, 4, (int64_t[]){ s.B, s.out, s.oh, s.ow });
    ls__buffer *scratch = ls__buffer_take(t, each * (size_t)t->threads);
    if (t->status) return NULL;
    conv_forward(t, &s, x->data, w, b, y->data, scratch->data, each);
    ls__buffer_drop(t, scratch);
    double flops = 2.0 * (double)(s.B * s.out) * (double)(s.patch * s.places);
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
