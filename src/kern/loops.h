/* The fast loops: plain C that the compiler turns into vector code, compiled once per instruction set by the small
 * files loops_*.c. Those define LS__TABLE, the name of the table that is filled here, and LS__TABLE_NAME.
 *
 * `omp simd` says that iterations do not depend on each other. That is true also where an output is the same memory as
 * an input, which `restrict` would forbid and which a compiler left alone would answer with its scalar loop.
 *
 * The one thing said in intrinsics is the store that goes past the cache. When does it pay? A plain store to a line
 * that is not in the cache first reads it; a streaming store does not. So streaming saves a third of a copy's traffic.
 * Where an output is also an input, the line was just read, there is nothing to save, and a streaming store only throws
 * it out of the cache. Measured: two processes, each half of two float32 arrays, AMD Zen 3 with 2 cores, 32 MiB L3,
 * GB/s read and written, median of 9, arrays dirtied in between:
 *
 *                                 4 MiB   25 MiB   100 MiB
 *     copy, streaming                63       47        50
 *     copy, plain stores             49       34        31
 *     sum in place, plain stores     64       57        54
 *     sum in place, streaming        34       42        42
 *     ... with prefetch, plain       61       53        53
 *
 * Hence copies and sums into other memory stream when asked to, sums in place never do, and nothing is prefetched by
 * hand (asking for ownership of the lines ahead of time, prefetchw, gained nothing either). */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#include "base/tree.h"
#include "kern/optim.h"
#include "kern/reduce.h"
#include "kern/table.h"

#define INLINE static inline __attribute__((always_inline))

/* Elements that pass through the tree at a time where there are too many inputs for one loop: a few blocks of float32
 * fit the L1 cache, and a block is long enough for the memory to see a stream. */
enum { BLOCK = 1024 };

/* Bytes between the two places at which a sum in place works at a time. The CPU fetches ahead within a page, stream by
 * stream, and lines that another core has just written come slowly: with two streams an array, twice as many are on
 * their way. Two cores with separate L3 caches gained 20 % at 256 KiB to 4 MiB and nothing lost elsewhere; four places
 * gained no more. Off a power of two, as lines that far apart would share a set of the cache. */
enum { APART = 16 * 1024 - 5 * 64 };

/* ---- Copying past the cache. */

/* One cache line, to an address aligned to 64. */
INLINE void stream_line(uint8_t *dst, const uint8_t *src)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((void *)dst, _mm512_loadu_si512(src));
#elif defined(__AVX__)
    __m256i a = _mm256_loadu_si256((const void *)src), b = _mm256_loadu_si256((const void *)(src + 32));
    _mm256_stream_si256((void *)dst, a);
    _mm256_stream_si256((void *)(dst + 32), b);
#elif defined(__SSE2__)
    __m128i x[4];
    for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128((const void *)(src + 16 * i));
    for (int i = 0; i < 4; i++) _mm_stream_si128((void *)(dst + 16 * i), x[i]);
#else
    memcpy(dst, src, 64);
#endif
}

/* Streaming stores are not ordered with others: call stream_fence() after them. */
static void stream(void *to, const void *from, size_t bytes)
{
    uint8_t *dst = to;
    const uint8_t *src = from;
    size_t head = -(uintptr_t)dst & 63;
    if (head > bytes) head = bytes;
    memcpy(dst, src, head);
    size_t at = head;
    for (; bytes - at >= 64; at += 64) stream_line(dst + at, src + at);
    memcpy(dst + at, src + at, bytes - at);
}

INLINE void stream_fence(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

static void copy_stream(void *dst, const void *src, size_t bytes)
{
    stream(dst, src, bytes);
    stream_fence();
}

/* ---- One or two arrays. */

INLINE float bf16_widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINE uint16_t bf16_round(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : even);
}

INLINE float f16_widen(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = (uint32_t)(x & 0x7fff) << 13;
    float tiny = (float)(int32_t)(x & 0x3ff) * 0x1p-24f; /* what a number with exponent 0 is */
    uint32_t bits, normal = rest + (112u << 23);
    memcpy(&bits, &tiny, sizeof bits);
    if ((x & 0x7c00) == 0x7c00) normal += 112u << 23;
    if (x & 0x7c00) bits = normal;
    bits |= sign;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINE uint16_t f16_round(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    float absolute, shifted;
    memcpy(&absolute, &size, sizeof absolute);
    shifted = absolute + 0.5f; /* numbers from 0.5 to 1 are multiples of 2^-24, as float16 below 2^-14 are */
    uint32_t tiny;
    memcpy(&tiny, &shifted, sizeof tiny);
    tiny -= 0x3f000000;
    uint32_t normal = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
    uint32_t nan = 0x7e00 | (size >> 13 & 0x1ff);
    uint32_t half = size < 0x38800000 ? tiny : size < 0x477ff000 ? normal : size > 0x7f800000 ? nan : 0x7c00;
    return (uint16_t)(sign | half);
}

static void add_f32(float *out, const float *a, const float *b, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

static void scale_f32(float *out, const float *a, float factor, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) out[i] = factor * a[i];
}

static void f32_to_bf16(uint16_t *out, const float *a, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) out[i] = bf16_round(a[i]);
}

static void bf16_to_f32(float *out, const uint16_t *a, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) out[i] = bf16_widen(a[i]);
}

static void f32_to_f16(uint16_t *out, const float *a, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) out[i] = f16_round(a[i]);
}

static void f16_to_f32(float *out, const uint16_t *a, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) out[i] = f16_widen(a[i]);
}

#include "kern/loops_optim.h"

/* ---- Reducing, once per element type. T is the type in memory, ACC what is added; WRAP the unsigned type in which
 * integers are added, so that overflow is defined. */

/* Whether an output is also an input; mostly output k is input k. */
static bool any_in_place(void *const *out, int outs, const void *const *in, int p)
{
    for (int k = 0; k < outs; k++) {
        if (k < p && out[k] == in[k]) return true;
        for (int j = 0; j < p; j++)
            if (out[k] == in[j]) return true;
    }
    return false;
}

#define FN(name)  name##_f32
#define TYPE      LS_F32
#define T         float
#define ACC       float
#define WRAP      float
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) ((x) != (x))
#define FLOATING  1
#include "kern/loops_reduce.h"

#define FN(name)  name##_f64
#define TYPE      LS_F64
#define T         double
#define ACC       double
#define WRAP      double
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) ((x) != (x))
#define FLOATING  1
#include "kern/loops_reduce.h"

#define FN(name)  name##_bf16
#define TYPE      LS_BF16
#define T         uint16_t
#define ACC       float
#define WRAP      float
#define LOAD(x)   bf16_widen(x)
#define STORE(x)  bf16_round(x)
#define IS_NAN(x) ((x) != (x))
#define FLOATING  1
#include "kern/loops_reduce.h"

/* Means of integers need wider sums and a division, and they are rare: the reference version does them. */
#define FN(name)  name##_i32
#define TYPE      LS_I32
#define T         int32_t
#define ACC       int32_t
#define WRAP      uint32_t
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) 0
#define FLOATING  0
#include "kern/loops_reduce.h"

#define FN(name)  name##_i64
#define TYPE      LS_I64
#define T         int64_t
#define ACC       int64_t
#define WRAP      uint64_t
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) 0
#define FLOATING  0
#include "kern/loops_reduce.h"

#define FN(name)  name##_u8
#define TYPE      LS_U8
#define T         uint8_t
#define ACC       uint8_t
#define WRAP      uint32_t
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) 0
#define FLOATING  0
#include "kern/loops_reduce.h"

#define FN(name)  name##_f16
#define TYPE      LS_F16
#define T         uint16_t
#define ACC       float
#define WRAP      float
#define LOAD(x)   f16_widen(x)
#define STORE(x)  f16_round(x)
#define IS_NAN(x) ((x) != (x))
#define FLOATING  1
#include "kern/loops_reduce.h"

#define FN(name)  name##_i8
#define TYPE      LS_I8
#define T         int8_t
#define ACC       int8_t
#define WRAP      uint32_t
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) 0
#define FLOATING  0
#include "kern/loops_reduce.h"

#define FN(name)  name##_i16
#define TYPE      LS_I16
#define T         int16_t
#define ACC       int16_t
#define WRAP      uint32_t
#define LOAD(x)   (x)
#define STORE(x)  (x)
#define IS_NAN(x) 0
#define FLOATING  0
#include "kern/loops_reduce.h"

#define FN(name)  name##_bool
#define TYPE      LS_BOOL
#define T         uint8_t
#define ACC       uint8_t
#define WRAP      uint32_t
#define LOAD(x)   ((uint8_t)((x) != 0))
#define STORE(x)  (x)
#define IS_NAN(x) 0
#define FLOATING  0
#include "kern/loops_reduce.h"

#define UPDATE_ROW(name, function, n_states) [name] = update_##function,

extern const ls__kernels LS__TABLE;
const ls__kernels LS__TABLE = {
    .name = LS__TABLE_NAME,
    .reduce = { [LS_F32] = reduce_f32,
                [LS_F64] = reduce_f64,
                [LS_BF16] = reduce_bf16,
                [LS_I32] = reduce_i32,
                [LS_I64] = reduce_i64,
                [LS_U8] = reduce_u8,
                [LS_F16] = reduce_f16,
                [LS_I8] = reduce_i8,
                [LS_I16] = reduce_i16,
                [LS_BOOL] = reduce_bool },
    .copy_stream = copy_stream,
    .add_f32 = add_f32,
    .scale_f32 = scale_f32,
    .f32_to_bf16 = f32_to_bf16,
    .bf16_to_f32 = bf16_to_f32,
    .f32_to_f16 = f32_to_f16,
    .f16_to_f32 = f16_to_f32,
    .update = { LS__OPTIM_LIST(UPDATE_ROW) },
    .sum_squares = sum_squares,
};
