/* Scaling pictures: each pixel of the result is a weighted mean of those under a triangle that is as wide as a pixel of the coarser of both
 * grids. First along lines, then along columns. Weights are integers that add up to ONE, so results do not depend on how a
 * compiler adds. */
#include "data/images.h"

#include <math.h>
#include <stdlib.h>
#include "base/status.h"

enum { ONE = 1 << 22 }; /* 255 times it fits in 31 bits */

/* Weights of output pixels: number i takes `count[i]` inputs from first[i] on; weights are `room` apart. */
typedef struct filter {
    int *first, *count, *weights, room;
} filter;

static void filter_free(filter *f)
{
    free(f->first);
    free(f->count);
    free(f->weights);
}

/* Outputs [from, from + length) of `to` that are made of `size` inputs. */
static bool filter_open(filter *f, int size, int to, int from, int length)
{
    double scale = (double)size / to, reach = scale > 1 ? scale : 1;
    f->room = (int)ceil(2 * reach) + 2;
    f->first = calloc((size_t)length, sizeof *f->first);
    f->count = calloc((size_t)length, sizeof *f->count);
    f->weights = calloc((size_t)length * (size_t)f->room, sizeof *f->weights);
    if (!f->first || !f->count || !f->weights) return false;
    for (int i = 0; i < length; i++) {
        double center = (from + i + 0.5) * scale, sum = 0;
        int low = (int)floor(center - reach), high = (int)ceil(center + reach), left = ONE, most = 0;
        if (low < 0) low = 0;
        if (high > size) high = size;
        if (high - low > f->room) high = low + f->room;
        int *weights = f->weights + (size_t)i * (size_t)f->room;
        for (int x = low; x < high; x++) sum += fmax(0, 1 - fabs(x + 0.5 - center) / reach);
        for (int x = low; x < high; x++) {
            double share = fmax(0, 1 - fabs(x + 0.5 - center) / reach) / sum;
            weights[x - low] = (int)(share * ONE + 0.5);
            left -= weights[x - low];
            if (weights[x - low] > weights[most]) most = x - low;
        }
        weights[most] += left; /* what rounding left over */
        f->first[i] = low;
        f->count[i] = high - low;
    }
    return true;
}

static uint8_t rounded(int64_t sum)
{
    int64_t value = (sum + ONE / 2) / ONE;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

ls_status ls__picture_fit(const ls__picture *p, int size, uint8_t *out)
{
    bool wide = p->width >= p->height;
    int64_t shorter = wide ? p->height : p->width, longer = wide ? p->width : p->height;
    int scaled = (int)((longer * size + shorter / 2) / shorter), side = (scaled - size) / 2;
    filter across = { 0 }, down = { 0 };
    uint8_t *lines = malloc((size_t)p->height * (size_t)size * 3); /* (height, size, 3) */
    ls_status status = LS_OK;
    if (!lines || !filter_open(&across, p->width, wide ? scaled : size, wide ? side : 0, size) ||
        !filter_open(&down, p->height, wide ? size : scaled, wide ? 0 : side, size)) {
        status = ls__fail(LS_ENOMEM, "no memory to scale a picture of %d x %d pixels", p->width, p->height);
        goto done;
    }
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < size; x++) {
            const uint8_t *from = p->pixels + ((size_t)y * (size_t)p->width + (size_t)across.first[x]) * 3;
            const int *w = across.weights + (size_t)x * (size_t)across.room;
            int64_t sum[3] = { 0 };
            for (int i = 0; i < across.count[x]; i++)
                for (int c = 0; c < 3; c++) sum[c] += (int64_t)w[i] * from[3 * i + c];
            for (int c = 0; c < 3; c++) lines[((size_t)y * (size_t)size + (size_t)x) * 3 + (size_t)c] = rounded(sum[c]);
        }
    for (int y = 0; y < size; y++)
        for (int x = 0; x < 3 * size; x++) {
            const uint8_t *from = lines + (size_t)down.first[y] * (size_t)size * 3 + x;
            const int *w = down.weights + (size_t)y * (size_t)down.room;
            int64_t sum = 0;
            for (int i = 0; i < down.count[y]; i++) sum += (int64_t)w[i] * from[(size_t)i * (size_t)size * 3];
            out[(size_t)y * (size_t)size * 3 + (size_t)x] = rounded(sum);
        }
done:
    filter_free(&down);
    filter_free(&across);
    free(lines);
    return status;
}
