/* Operands of convolutions. See conv.h. */
#include "tensor/conv.h"

#include <string.h>
#include "base/arith.h"
#include "kern/nn.h"

ls__sweep ls__conv_forward_phase(const ls__conv *s)
{
    return (ls__sweep){ .h = s->kh,
                        .w = s->kw,
                        .top = -s->padding,
                        .left = -s->padding,
                        .step = s->stride,
                        .rows = s->oh,
                        .cols = s->ow,
                        .planes = s->in,
                        .source_h = s->H,
                        .source_w = s->W,
                        .apart = 1,
                        .to = s->out,
                        .result_w = s->ow };
}

/* Pixels y = p + q stride of a dimension: tap i contributes where y + padding - i is a multiple of the stride, that is, every
 * stride-th tap from `first` on; output o = (y + padding - i) / stride falls as i grows, hence mirrored. */
static void lattice(int64_t size, int64_t k, int64_t stride, int64_t padding, int64_t p, int64_t *pixels, int64_t *taps,
                    int64_t *first, int64_t *origin)
{
    *pixels = size > p ? (size - p + stride - 1) / stride : 0;
    *first = (p + padding) % stride;
    *taps = k > *first ? (k - *first + stride - 1) / stride : 0;
    *origin = (p + padding - *first) / stride - (*taps - 1);
}

ls__sweep ls__conv_back_phase(const ls__conv *s, int64_t py, int64_t px)
{
    ls__sweep p = { .step = 1,
                    .planes = s->out,
                    .source_h = s->oh,
                    .source_w = s->ow,
                    .from_y = py,
                    .from_x = px,
                    .apart = s->stride,
                    .to = s->in,
                    .result_w = s->W };
    lattice(s->H, s->kh, s->stride, s->padding, py, &p.rows, &p.h, &p.first_i, &p.top);
    lattice(s->W, s->kw, s->stride, s->padding, px, &p.cols, &p.w, &p.first_j, &p.left);
    return p;
}

static int64_t panel_count(const ls__sweep *p)
{
    return (p->to + LS__PANEL - 1) / LS__PANEL;
}

size_t ls__conv_panel_floats(const ls__sweep *p)
{
    return (size_t)(panel_count(p) * LS__PANEL * p->h * p->w * p->planes);
}

static int64_t bordered_h(const ls__sweep *p)
{
    return (p->rows - 1) * p->step + p->h;
}

static int64_t bordered_w(const ls__sweep *p)
{
    return (p->cols - 1) * p->step + p->w;
}

static bool has_border(const ls__sweep *p)
{
    return p->top < 0 || p->left < 0 || p->top + bordered_h(p) > p->source_h || p->left + bordered_w(p) > p->source_w;
}

size_t ls__conv_border_floats(const ls__sweep *p)
{
    if (!p->rows || !p->cols || !has_border(p)) return 0;
    return (size_t)((bordered_h(p) * bordered_w(p) * p->planes + 15) / 16 * 16);
}

void ls__conv_pack(const ls__conv *s, const ls__sweep *p, bool back, const float *w, int64_t panel, float *out)
{
    int64_t taps = s->kh * s->kw, first = panel * LS__PANEL, lanes = ls__min(LS__PANEL, p->to - first);
    /* of w: from one source plane to the next, and from one of the result's channels to the next */
    int64_t plane_step = back ? s->in * taps : taps, lane_step = back ? taps : s->in * taps;
    out += first * p->h * p->w * p->planes;
    for (int64_t plane = 0; plane < p->planes; plane++)
        for (int64_t i = 0; i < p->h; i++)
            for (int64_t j = 0; j < p->w; j++) {
                int64_t tap =
                    back ? (p->first_i + p->apart * (p->h - 1 - i)) * s->kw + p->first_j + p->apart * (p->w - 1 - j)
                         : i * s->kw + j;
                const float *from = w + plane * plane_step + first * lane_step + tap;
                float *to = out + ((i * p->w + j) * p->planes + plane) * LS__PANEL;
                for (int64_t l = 0; l < lanes; l++) to[l] = from[l * lane_step];
                for (int64_t l = lanes; l < LS__PANEL; l++) to[l] = 0.0f;
            }
}

const float *ls__conv_border(const ls__sweep *p, const float *image, float *copy, int64_t *line)
{
    if (!has_border(p)) {
        *line = p->source_w * p->planes;
        return image + p->top * *line + p->left * p->planes;
    }
    int64_t h = bordered_h(p), w = bordered_w(p), C = p->planes;
    int64_t left = ls__min(w, p->left < 0 ? -p->left : 0);                                   /* columns of zeros */
    int64_t from = p->left > 0 ? p->left : 0, inner = ls__min(w - left, p->source_w - from); /* of the image */
    if (inner < 0) inner = 0;
    *line = w * C;
    for (int64_t y = 0; y < h; y++) {
        float *to = copy + y * *line;
        int64_t source = p->top + y;
        if (source < 0 || source >= p->source_h) {
            memset(to, 0, (size_t)*line * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)(left * C) * sizeof *to);
        memcpy(to + left * C, image + (source * p->source_w + from) * C, (size_t)(inner * C) * sizeof *to);
        memset(to + (left + inner) * C, 0, (size_t)((w - left - inner) * C) * sizeof *to);
    }
    return copy;
}

void ls__conv_image(const ls__sweep *p, const float *source, int64_t line, const float *panels, int64_t first,
                    int64_t count, float *result, bool add)
{
    const ls__nn_kernels *kernels = ls__nn_kernels_best();
    int64_t depth = p->h * p->w * p->planes;
    ls__window a = {
        .row = p->step * p->planes, .col = 1, .runs = p->h, .k = p->w * p->planes, .gap = line - p->w * p->planes
    };
    /* Windows that follow each other over the ends of lines are one long line. */
    bool flat = p->apart == 1 && p->cols == p->result_w && p->step * line == p->cols * a.row;
    int64_t rows = flat ? 1 : p->rows, cols = flat ? p->rows * p->cols : p->cols;
    for (int64_t y = 0; y < rows; y++) {
        float *to = result + ((p->from_y + y * p->apart) * p->result_w + p->from_x) * p->to + first;
        if (depth) {
            a.at = source + y * p->step * line;
            kernels->window_product(to, p->apart * p->to, &a, panels + first * depth, cols, count, add);
        } else if (!add) {
            for (int64_t x = 0; x < cols; x++) memset(to + x * p->apart * p->to, 0, (size_t)count * sizeof *to);
        }
    }
}
