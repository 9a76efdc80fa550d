/* Philox4x32-10 and the distributions derived from it. See random.h.
 *
 * The bulk calls work on groups of LANES blocks laid out word by word, plain loops that the compiler vectorizes.
 * Logarithm and sine are polynomials of our own (cephes' single precision), not libm's: the initial weights of a model
 * must not depend on the libm. Single numbers use the same code, so both have the same bits. */
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 }; /* blocks at a time; 64 numbers */

static const uint32_t MUL0 = 0xD2511F53, MUL1 = 0xCD9E8D57, WEYL0 = 0x9E3779B9, WEYL1 = 0xBB67AE85;

void ls__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)MUL0 * c0, p1 = (uint64_t)MUL1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL0;
        k1 += WEYL1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Blocks block .. block + LANES - 1 of a stream; word w of block i is out[w][i]. */
static void many_blocks(uint32_t out[4][LANES], uint64_t seed, uint64_t stream, uint64_t block)
{
    uint32_t *c0 = out[0], *c1 = out[1], *c2 = out[2], *c3 = out[3], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (unsigned i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)(block + i);
        c1[i] = (uint32_t)((block + i) >> 32);
        c2[i] = (uint32_t)stream;
        c3[i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
#pragma omp simd /* or gcc unrolls the loop before it looks for vectors, and finds few: 10 ns a number, not 1.5 */
        for (unsigned i = 0; i < LANES; i++) {
            uint64_t p0 = (uint64_t)MUL0 * c0[i], p1 = (uint64_t)MUL1 * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += WEYL0;
        k1 += WEYL1;
    }
}

static inline float to_uniform(uint32_t word)
{
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/* -2 ln u for u = (n + 1) / 2^24, n < 2^24: finite and never negative. */
static inline float minus_2_log(uint32_t n)
{
    float u = (float)(int32_t)(n + 1) * 0x1p-24f;
    uint32_t bits;
    memcpy(&bits, &u, 4);
    /* u = m 2^e with m in [sqrt(1/2), sqrt(2)) */
    int32_t e = (int8_t)((bits - 0x3f3504f3u) >> 23);
    bits -= (uint32_t)e << 23;
    float m;
    memcpy(&m, &bits, 4);
    float x = m - 1.0f, z = x * x;
    float p = 7.0376836292e-2f;
    p = p * x - 1.1514610310e-1f;
    p = p * x + 1.1676998740e-1f;
    p = p * x - 1.2420140846e-1f;
    p = p * x + 1.4249322787e-1f;
    p = p * x - 1.6668057665e-1f;
    p = p * x + 2.0000714765e-1f;
    p = p * x - 2.4999993993e-1f;
    p = p * x + 3.3333331174e-1f;
    float fe = (float)e;
    float r = p * x * z - 0.5f * z + x;
    r = fe * 0.693359375f + (r - fe * 2.12194440e-4f);
    return -2.0f * r;
}

/* Two normals from two words: the first gives the radius, the second the angle. */
static inline void box_muller(uint32_t a, uint32_t b, float *even, float *odd)
{
    float radius = sqrtf(minus_2_log(a >> 8));
    uint32_t angle = b >> 8; /* in turns / 2^24 */
    uint32_t quadrant = (angle + 0x200000u) >> 22;
    float x = (float)(int32_t)(angle - (quadrant << 22)) * (6.283185307179586f * 0x1p-24f); /* |x| <= pi / 4 */
    float z = x * x;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
    float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1;
    float swapped_c = quadrant & 1 ? s : c, swapped_s = quadrant & 1 ? c : s;
    *even = radius * ((quadrant + 1) & 2 ? -swapped_c : swapped_c);
    *odd = radius * (quadrant & 2 ? -swapped_s : swapped_s);
}

uint32_t ls__random_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t out;
    ls__random_fill_u32(&out, 1, seed, stream, index);
    return out;
}

uint64_t ls__random_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t out[2];
    ls__random_fill_u32(out, 2, seed, stream, 2 * index);
    return (uint64_t)out[1] << 32 | out[0];
}

float ls__random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return to_uniform(ls__random_u32(seed, stream, index));
}

float ls__random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    float out;
    ls__random_fill_normal(&out, 1, 0, 1, seed, stream, index);
    return out;
}

/* Numbers of one group of LANES blocks, in the order of the stream. */
static void group_u32(uint32_t out[4 * LANES], uint64_t seed, uint64_t stream, uint64_t group)
{
    uint32_t words[4][LANES];
    many_blocks(words, seed, stream, group * LANES);
    for (unsigned i = 0; i < LANES; i++)
        for (unsigned w = 0; w < 4; w++) out[4 * i + w] = words[w][i];
}

static void group_normal(float out[4 * LANES], float mean, float std, uint64_t seed, uint64_t stream, uint64_t group)
{
    uint32_t words[4][LANES];
    float n[4][LANES];
    many_blocks(words, seed, stream, group * LANES);
    for (unsigned i = 0; i < LANES; i++) box_muller(words[0][i], words[1][i], &n[0][i], &n[1][i]);
    for (unsigned i = 0; i < LANES; i++) box_muller(words[2][i], words[3][i], &n[2][i], &n[3][i]);
    for (unsigned i = 0; i < LANES; i++)
        for (unsigned w = 0; w < 4; w++) out[4 * i + w] = mean + std * n[w][i];
}

/* The part of [first, first + count) that is in the group of `first`: its offset there, and its length. */
static size_t part_of_group(uint64_t first, size_t count, size_t *offset)
{
    *offset = (size_t)(first % (4 * LANES));
    size_t room = 4 * LANES - *offset;
    return count < room ? count : room;
}

void ls__random_fill_u32(uint32_t *out, size_t count, uint64_t seed, uint64_t stream, uint64_t first)
{
    uint32_t group[4 * LANES];
    while (count) {
        size_t offset, n = part_of_group(first, count, &offset);
        group_u32(group, seed, stream, first / (4 * LANES));
        memcpy(out, group + offset, n * sizeof *out);
        out += n, first += n, count -= n;
    }
}

void ls__random_fill_uniform(float *out, size_t count, float low, float high, uint64_t seed, uint64_t stream,
                             uint64_t first)
{
    uint32_t group[4 * LANES];
    while (count) {
        size_t offset, n = part_of_group(first, count, &offset);
        group_u32(group, seed, stream, first / (4 * LANES));
        for (size_t i = 0; i < n; i++) out[i] = low + (high - low) * to_uniform(group[offset + i]);
        out += n, first += n, count -= n;
    }
}

void ls__random_fill_normal(float *out, size_t count, float mean, float std, uint64_t seed, uint64_t stream,
                            uint64_t first)
{
    float group[4 * LANES];
    while (count) {
        size_t offset, n = part_of_group(first, count, &offset);
        group_normal(group, mean, std, seed, stream, first / (4 * LANES));
        memcpy(out, group + offset, n * sizeof *out);
        out += n, first += n, count -= n;
    }
}
