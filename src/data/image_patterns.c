/* Built-in pictures, to try things without a download: stripes whose direction and width are the class, with random colours,
 * phase and noise. Computed in integers, so they are the same everywhere. */
#include "data/images.h"

#include "base/random.h"

enum { SIZE = 32, MOST_SIZE = 4096, CLASSES = 10, COUNT = 4096, CHANNELS = 3, NOISE = 96, CHOICES = 8 };

static const uint64_t SEED = 0x70696374757265; /* of the pictures; not that of a run */

/* By how much the phase grows from a pixel to the next, to the right and down, in 64ths of a period. */
static const int steps[CLASSES][2] = { { 4, 0 }, { 0, 4 }, { 3, 3 },  { 3, -3 }, { 8, 0 },
                                       { 0, 8 }, { 6, 6 }, { 6, -6 }, { 8, 3 },  { 3, 8 } };

/* Larger than 32 x 32 if that is asked for. */
static ls_status open_patterns(ls__images *m, const ls_images_options *o)
{
    m->info.height = m->info.width = o->size > SIZE ? o->size : SIZE;
    m->info.channels = CHANNELS;
    m->info.classes = CLASSES;
    m->dataset.count = COUNT;
    return LS_OK;
}

static ls_status get_pattern(const ls__images *m, uint64_t sample, uint8_t *pixels, int32_t *label)
{
    uint32_t choice[CHOICES], noise[MOST_SIZE * CHANNELS / 4]; /* of a line: a byte per value */
    int size = m->info.width, line = size * CHANNELS;
    size_t words = (size_t)(line + 3) / 4;
    ls__random_fill_u32(choice, CHOICES, SEED, sample, 0);
    int class = (int)(choice[0] % CLASSES), phase = (int)(choice[1] % 64);
    for (int y = 0; y < size; y++) {
        ls__random_fill_u32(noise, words, SEED, sample, CHOICES + (uint64_t)y * words);
        for (int i = 0; i < line; i++) {
            int c = i % CHANNELS, at = (steps[class][0] * (i / CHANNELS) + steps[class][1] * y + phase) & 63;
            int wave = at < 32 ? at : 63 - at; /* 0 to 31 */
            int low = (int)(choice[2 + c] % 160), high = low + 48 + (int)(choice[5 + c] % 48);
            int random = (int)(noise[i / 4] >> 8 * (i % 4) & 255);
            int value = low + (high - low) * wave / 31 + (random - 128) * NOISE / 256;
            *pixels++ = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    *label = class;
    return LS_OK;
}

const ls__image_table ls__images_built_in = { .name = "built_in", .open = open_patterns, .get = get_pattern };
