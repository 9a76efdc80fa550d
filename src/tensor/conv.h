/* Convolutions over (B, H, W, C): shapes, and the operands of their products.
 *
 * A convolution is a product whose left operand is the image itself, as kern/conv_loops.h reads it: for an output line, row x
 * is the window at x, whose lines are runs of kw C contiguous elements. Images are copied only to get their borders of zeros, which
 * are multiplied like pixels: by a weight that is NaN or infinite they become NaN, also in the gradient of the image, where torch has no
 * such products. The gradient of the image is a convolution of the result's gradient with the mirrored weights; with a stride of s it
 * is s * s of them, one for each place of a pixel in the stride's lattice (a phase). The gradient of the weights is a product of the
 * transposed windows and the result's gradient, over all places of an image. */
#ifndef LS_TENSOR_CONV_H
#define LS_TENSOR_CONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls__conv {
    int64_t B, H, W, in; /* x */
    int64_t out, kh, kw; /* w: (out, in, kh, kw) */
    int64_t oh, ow;      /* y: (B, oh, ow, out) */
    int64_t stride, padding;
} ls__conv;

/* One convolution without stride in backward, or the one of forward: window (y, x) begins at (top + y step, left + x step)
 * of the source, which has `planes` channels. */
typedef struct ls__sweep {
    int64_t h, w;               /* of the window; 0: empty, the result is zero */
    int64_t top, left, step;    /* of windows in the source; top and left may be negative */
    int64_t rows, cols;         /* of windows */
    int64_t planes;             /* channels of the source */
    int64_t source_h, source_w; /* its size */
    int64_t from_y, from_x, apart,
        to; /* window (y, x) is pixel (from_y + y apart, from_x + x apart) of the result, with `to` channels */
    int64_t result_w;         /* pixels of a line of the result */
    int64_t first_i, first_j; /* backward: the last tap of w that belongs to it; taps are `apart` apart */
} ls__sweep;

ls__sweep ls__conv_forward_phase(const ls__conv *s);
/* (py, px): the phase, each below the stride. */
ls__sweep ls__conv_back_phase(const ls__conv *s, int64_t py, int64_t px);

/* Floats of all panels of a phase's weights, and of one source image with its borders (0: it is read in place). */
size_t ls__conv_panel_floats(const ls__sweep *p);
size_t ls__conv_border_floats(const ls__sweep *p);

/* Panel number `panel` (of 16 of the result's channels) of the weights, (h w planes, 16): forward, or mirrored for backward. */
void ls__conv_pack(const ls__conv *s, const ls__sweep *p, bool back, const float *w, int64_t panel, float *out);
/* The source image with its borders: returns `copy`, or the image itself if it needs none; *line: floats between lines. */
const float *ls__conv_border(const ls__sweep *p, const float *image, float *copy, int64_t *line);
/* Channels [first, first + count) of one result image; `first` is a multiple of 16. `panels` are all of the weights. */
void ls__conv_image(const ls__sweep *p, const float *source, int64_t line, const float *panels, int64_t first,
                    int64_t count, float *result, bool add);

#endif
