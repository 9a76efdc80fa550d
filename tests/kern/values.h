/* What the tests of the loops share: repeatable values of every type, and comparing bits. */
#ifndef LS_TESTS_KERN_VALUES_H
#define LS_TESTS_KERN_VALUES_H

#include "check.h"
#include "kern/vector.h"

static uint64_t random_state = 1;

static inline uint32_t random_bits(void) /* splitmix64 */
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(z >> 32);
}

static inline uint16_t upper_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Numbers of very different size, so that another order of adding gives other bits. */
static inline double random_number(void)
{
    double mantissa = (double)random_bits() / 4294967296.0 + 0.5;
    double x = mantissa * (double)(1u << random_bits() % 12);
    return random_bits() & 1 ? -x : x;
}

static inline void put_number(ls_dtype type, void *to, size_t i, double x)
{
    float f = (float)x;
    switch (type) {
    case LS_F32: ((float *)to)[i] = f; break;
    case LS_F64: ((double *)to)[i] = x; break;
    case LS_BF16: ((uint16_t *)to)[i] = upper_half(f); break;
    case LS_I32: ((int32_t *)to)[i] = (int32_t)random_bits(); break;
    case LS_I64: ((int64_t *)to)[i] = (int64_t)((uint64_t)random_bits() << 32 | random_bits()); break;
    case LS_U8: ((uint8_t *)to)[i] = (uint8_t)random_bits(); break;
    case LS_F16: ls__f32_to_f16_reference((uint16_t *)to + i, &f, 1); break;
    case LS_I8: ((int8_t *)to)[i] = (int8_t)random_bits(); break;
    case LS_I16: ((int16_t *)to)[i] = (int16_t)random_bits(); break;
    case LS_BOOL: ((uint8_t *)to)[i] = (uint8_t)(random_bits() % 3); break; /* 2 is true, too */
    }
}

static inline void fill_numbers(ls_dtype type, void *to, size_t count)
{
    for (size_t i = 0; i < count; i++) put_number(type, to, i, random_number());
}

/* Same bits, or the first difference is shown. */
static inline void check_same_bits(const void *got, const void *expected, size_t count, size_t size, const char *where)
{
    if (!memcmp(got, expected, count * size)) return;
    for (size_t i = 0; i < count; i++) {
        uint64_t a = 0, b = 0;
        memcpy(&a, (const char *)got + i * size, size);
        memcpy(&b, (const char *)expected + i * size, size);
        if (a != b)
            fail_msg("%s: element %zu of %zu is %#llx, expected %#llx", where, i, count, (unsigned long long)a,
                     (unsigned long long)b);
    }
}

#endif
