/* a * b + c rounded once, in plain C for CPUs without such an instruction. Bit for bit what fmaf() returns.
 *
 * The product of two float32 is exact in float64. Its sum with c is rounded to 53 bits and then to 24. Rounding twice
 * differs from rounding once only if the first result lies in the middle between two float32: then its last 29 bits
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

typedef double ls__two __attribute__((vector_size(16)));
typedef int64_t ls__two_flags __attribute__((vector_size(16)));
typedef float ls__two_floats __attribute__((vector_size(8)));

/* Where rounding the sum of an exact product and c to float32 could differ from rounding once. */
static inline __attribute__((always_inline)) ls__two_flags ls__fma_unsure(ls__two sum)
{
    typedef int32_t four __attribute__((vector_size(16)));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const four last = { 0x1fffffff, 0, 0x1fffffff, 0 }, middle = { 0x10000000, 1, 0x10000000, 1 };
#else
    const four last = { 0, 0x1fffffff, 0, 0x1fffffff }, middle = { 1, 0x10000000, 1, 0x10000000 };
#endif
    const ls__two least = { 0x1p-125, 0x1p-125 }, none = { 0, 0 };
    return (ls__two_flags)(((four)sum & last) == middle) | ((sum < least) & (sum > -least) & (sum != none));
}

#endif
