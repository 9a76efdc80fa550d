/* Pictures as inputs of a model: a square of them, perhaps mirrored, with normalized values. What is random comes from one number
 * that is a function of (seed, epoch, sample), so any rank and worker gets the same. */
#include "lockstep/data.h"

#include "base/random.h"

/* Streams of epochs; others use those from 0 and from the end. */
static const uint64_t STREAM = (uint64_t)0x6175676d << 32;

void ls_augment_apply(const ls_augment *a, const ls_images_info *info, const uint8_t *pixels, uint64_t epoch,
                      uint64_t sample, float *out)
{
    int height = info->height, width = info->width, channels = info->channels;
    int size_y = a->size ? a->size : height, size_x = a->size ? a->size : width;
    int top = (height - size_y) / 2, left = (width - size_x) / 2;
    uint64_t random = a->crop || a->flip ? ls__random_u64(a->seed, STREAM + epoch, sample) : 0;
    if (a->crop) {
        int room_y = height + 2 * a->padding - size_y + 1, room_x = width + 2 * a->padding - size_x + 1;
        top = (int)(random % 65536 * (uint64_t)(room_y > 1 ? room_y : 1) >> 16) - a->padding;
        left = (int)((random >> 16) % 65536 * (uint64_t)(room_x > 1 ? room_x : 1) >> 16) - a->padding;
    }
    bool flip = a->flip && random >> 63;
    float factor[3], shift[3]; /* grey pictures and others have up to three channels */
    for (int c = 0; c < 3; c++) {
        float std = a->std[c] != 0 ? a->std[c] : 1;
        factor[c] = 1.0f / (255.0f * std);
        shift[c] = -a->mean[c] / std;
    }
    for (int y = 0; y < size_y; y++)
        for (int x = 0; x < size_x; x++) {
            int from_y = top + y, from_x = left + (flip ? size_x - 1 - x : x);
            bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
            for (int c = 0; c < channels; c++) {
                int value = inside ? pixels[((int64_t)from_y * width + from_x) * channels + c] : 0;
                *out++ = (float)value * factor[c % 3] + shift[c % 3];
            }
        }
}
