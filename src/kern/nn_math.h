/* exp and erf in float32, written so that a loop around them becomes vector code. Within 2 units in the last place. */
#ifndef LS_KERN_NN_MATH_H
#define LS_KERN_NN_MATH_H

#include <stdint.h>
#include <string.h>

/* Saturates instead of leaving the normal numbers: e^-87.3 (1e-38) below, e^88.3 (2e38) above. */
static inline __attribute__((always_inline)) float ls__expf(float x)
{
    float c = x < -87.3f ? -87.3f : x;
    c = c > 88.3f ? 88.3f : c;
    /* x = n ln 2 + r, |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits */
    float shifted = c * 1.44269504089f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = c - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits << 23) + 0x3f800000u; /* 2^n: the magic number's own bits are shifted out */
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}

static inline __attribute__((always_inline)) float ls__erff(float x)
{
    float t = x < 0 ? -x : x, s = x * x;
    /* |x| > 0.9277: 1 - exp of a polynomial (which beyond 4 would turn around; erf is 1 there) */
    float u = t > 4.0f ? 4.0f : t, us = u * u;
    float a = -1.72853470e-5f * u + 3.83197126e-4f;
    float b = -3.88396438e-3f * u + 2.42546219e-2f;
    a = a * us + b;
    a = a * u - 1.06777877e-1f;
    a = a * u - 6.34846687e-1f;
    a = a * u - 1.28717512e-1f;
    a = a * u - u;
    a = 1.0f - ls__expf(a);
    a = x < 0 ? -a : a;
    float c = -5.96761703e-4f;
    c = c * s + 4.99119423e-3f;
    c = c * s - 2.67681349e-2f;
    c = c * s + 1.12819925e-1f;
    c = c * s - 3.76125336e-1f;
    c = c * s + 1.28379166e-1f;
    c = c * x + x;
    return t > 0.927734375f ? a : c;
}

#endif
