/* a * b + c rounded once, in plain C for CPUs without such an instruction. Bit for bit what fmaf() returns.
 *
 * The product of two float32 is exact in float64. Its sum with c is rounded to 53 bits and then to 24. Rounding twice
 * differs from rounding once only if the first result is in the middle between two float32: then its last 29 bits
 * are 1 followed by zeros. Below the normal numbers fewer bits are kept, and the middle is elsewhere. Both are rare; there the
 * first rounding is repeated "to odd" (an inexact result gets an odd last bit), which never produces a middle. */
#ifndef LS_KERN_FMA_H
#define LS_KERN_FMA_H

#include <stdint.h>
#include <string.h>

/* One element. */
static inline float ls__fma(float a, float b, float c)
{
    double p = (double)a * (double)b, x = c, sum = p + x;
    /* what the addition lost (Knuth's TwoSum), exact; NaN if the sum is infinite or NaN */
    double other = sum - p, lost = (p - (sum - other)) + (x - other);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((lost > 0 || lost < 0) && !(bits & 1)) {
        bits += (lost > 0) == (sum > 0) ? 1 : (uint64_t)-1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}

/* Four elements at a time. */
typedef float ls__four __attribute__((vector_size(16)));
typedef int32_t ls__four_flags __attribute__((vector_size(16)));

/* a b + c, rounded twice; where that could differ from rounding once, *unsure gets bits. */
static inline __attribute__((always_inline)) ls__four ls__fma_twice(double a, ls__four b, ls__four c,
                                                                    ls__four_flags *unsure)
{
    typedef double two __attribute__((vector_size(16)));
    typedef float two_floats __attribute__((vector_size(8)));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const ls__four_flags last = { 0x1fffffff, 0, 0x1fffffff, 0 }, middle = { 0x10000000, 1, 0x10000000, 1 };
#else
    const ls__four_flags last = { 0, 0x1fffffff, 0, 0x1fffffff }, middle = { 1, 0x10000000, 1, 0x10000000 };
#endif
    const two factor = { a, a };
    two low = factor * __builtin_convertvector(__builtin_shufflevector(b, b, 0, 1), two) +
              __builtin_convertvector(__builtin_shufflevector(c, c, 0, 1), two);
    two high = factor * __builtin_convertvector(__builtin_shufflevector(b, b, 2, 3), two) +
               __builtin_convertvector(__builtin_shufflevector(c, c, 2, 3), two);
    ls__four sum = __builtin_shufflevector(__builtin_convertvector(low, two_floats),
                                           __builtin_convertvector(high, two_floats), 0, 1, 2, 3);
    /* below 2^-125, but not 0: as unsigned numbers |sum| - 1 < 2^-125 - 1 */
    typedef uint32_t four_bits __attribute__((vector_size(16)));
    ls__four_flags size = (ls__four_flags)(((four_bits)sum & 0x7fffffff) + 0x7fffffff);
    *unsure |= (((ls__four_flags)low & last) == middle) | (((ls__four_flags)high & last) == middle) |
               (size < (int32_t)-0x7f000001);
    return sum;
}

#endif
