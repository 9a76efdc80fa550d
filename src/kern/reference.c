/* The plain versions: what the fast ones are measured against, written to be obviously right. */
#include <math.h>
#include <string.h>
#include "base/tree.h"
#include "kern/copy.h"
#include "kern/reduce.h"
#include "kern/vector.h"

/* One value on its way up the tree. Which member counts follows from the type: f for float32, bfloat16 and float16, d for
 * float64, i for the integers, wide enough that only LS_PROD and the sum of int64 need to wrap. */
typedef union value {
    float f;
    double d;
    __int128 i;
} value;

static float bf16_to_f32(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40); /* quiet; a payload in the lower half alone would read infinity */
    uint32_t lower = bits & 0xffff, upper = bits >> 16;
    if (lower > 0x8000 || (lower == 0x8000 && (upper & 1))) upper++;
    return (uint16_t)upper;
}

static float f16_to_f32(uint16_t x)
{
    int exponent = x >> 10 & 31, fraction = x & 0x3ff;
    float size;
    if (exponent == 31) {
        uint32_t bits = 0x7f800000 | (uint32_t)fraction << 13;
        memcpy(&size, &bits, sizeof size);
    } else {
        size = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    }
    return x >> 15 ? -size : size;
}

static uint16_t f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000;
    if (f != f) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x1ff)); /* quiet */
    float size = fabsf(f);
    if (size >= 65520) return (uint16_t)(sign | 0x7c00); /* the middle between the largest number and the next one */
    if (size == 0) return (uint16_t)sign;
    int exponent;
    frexpf(size, &exponent);
    int unit = exponent - 11 < -24 ? -24 : exponent - 11; /* numbers around here are multiples of 2^unit */
    return (uint16_t)(sign | (uint32_t)(((unit + 24) << 10) + (int)nearbyint(ldexp(size, -unit))));
}

static value load(ls_dtype type, const void *from, size_t i)
{
    value v = { .i = 0 };
    switch (type) {
    case LS_F32: v.f = ((const float *)from)[i]; break;
    case LS_F64: v.d = ((const double *)from)[i]; break;
    case LS_BF16: v.f = bf16_to_f32(((const uint16_t *)from)[i]); break;
    case LS_I32: v.i = ((const int32_t *)from)[i]; break;
    case LS_I64: v.i = ((const int64_t *)from)[i]; break;
    case LS_U8: v.i = ((const uint8_t *)from)[i]; break;
    case LS_F16: v.f = f16_to_f32(((const uint16_t *)from)[i]); break;
    case LS_I8: v.i = ((const int8_t *)from)[i]; break;
    case LS_I16: v.i = ((const int16_t *)from)[i]; break;
    case LS_BOOL: v.i = ((const uint8_t *)from)[i] != 0; break;
    }
    return v;
}

static void store(ls_dtype type, void *to, size_t i, value v)
{
    switch (type) {
    case LS_F32: ((float *)to)[i] = v.f; break;
    case LS_F64: ((double *)to)[i] = v.d; break;
    case LS_BF16: ((uint16_t *)to)[i] = f32_to_bf16(v.f); break;
    case LS_I32: ((int32_t *)to)[i] = (int32_t)(uint32_t)v.i; break;
    case LS_I64: ((int64_t *)to)[i] = (int64_t)(uint64_t)v.i; break;
    case LS_U8: ((uint8_t *)to)[i] = (uint8_t)v.i; break;
    case LS_F16: ((uint16_t *)to)[i] = f32_to_f16(v.f); break;
    case LS_I8: ((int8_t *)to)[i] = (int8_t)(uint8_t)v.i; break;
    case LS_I16: ((int16_t *)to)[i] = (int16_t)(uint16_t)v.i; break;
    case LS_BOOL: ((uint8_t *)to)[i] = (uint8_t)v.i; break;
    }
}

/* Bitwise, for integers alone. */
static value combine_bits(ls_op op, value a, value b)
{
    a.i = op == LS_AND ? (a.i & b.i) : op == LS_OR ? (a.i | b.i) : (a.i ^ b.i);
    return a;
}

static value combine(ls_dtype type, ls_op op, value a, value b)
{
    if (op == LS_AND || op == LS_OR || op == LS_XOR) return ls__is_floating(type) ? a : combine_bits(op, a, b);
    if (op == LS_MIN || op == LS_MAX) {
        bool keep_a;
        if (type == LS_F64)
            keep_a = a.d != a.d || (op == LS_MIN ? a.d <= b.d : a.d >= b.d);
        else if (ls__is_floating(type))
            keep_a = a.f != a.f || (op == LS_MIN ? a.f <= b.f : a.f >= b.f);
        else
            keep_a = op == LS_MIN ? a.i <= b.i : a.i >= b.i;
        return keep_a ? a : b;
    }
    switch (type) {
    case LS_F64: a.d = op == LS_PROD ? a.d * b.d : a.d + b.d; break;
    case LS_F32:
    case LS_F16:
    case LS_BF16: a.f = op == LS_PROD ? a.f * b.f : a.f + b.f; break;
    /* 512 ranks of any integer type sum without overflow; a product is brought back to 64 bits at each step. */
    case LS_I32:
    case LS_I64:
    case LS_I8:
    case LS_I16:
    case LS_BOOL:
    case LS_U8: a.i = op == LS_PROD ? (__int128)(int64_t)((uint64_t)a.i * (uint64_t)b.i) : a.i + b.i; break;
    }
    return a;
}

static value tree(ls_dtype type, ls_op op, const void *const *in, int p, size_t i)
{
    if (p == 1) return load(type, in[0], i);
    int m = (int)ls__tree_split((size_t)p);
    return combine(type, op, tree(type, op, in, m, i), tree(type, op, in + m, p - m, i));
}

static value mean(ls_dtype type, value sum, int p)
{
    switch (type) {
    case LS_F64: sum.d *= 1.0 / p; break;
    case LS_F32:
    case LS_F16:
    case LS_BF16: sum.f *= 1.0f / (float)p; break;
    case LS_I32:
    case LS_I64:
    case LS_I8:
    case LS_I16:
    case LS_BOOL:
    case LS_U8: sum.i /= p; break;
    }
    return sum;
}

void ls__reduce_reference(ls_dtype type, ls_op op, void *const *out, int outs, const void *const *in, int p,
                          size_t count, bool stream)
{
    (void)stream;
    if (p == 1) {
        for (int k = 0; k < outs; k++) memmove(out[k], in[0], count * ls_dtype_size(type));
        return;
    }
    if (type == LS_BOOL) op = ls__bool_op(op);
    for (size_t i = 0; i < count; i++) {
        value v = tree(type, op, in, p, i);
        if (op == LS_MEAN) v = mean(type, v, p);
        for (int k = 0; k < outs; k++) store(type, out[k], i, v);
    }
}

void ls__copy_reference(void *dst, const void *src, size_t bytes, bool stream)
{
    (void)stream;
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)dst)[i] = ((const uint8_t *)src)[i];
}

void ls__add_f32_reference(float *out, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

void ls__scale_f32_reference(float *out, const float *a, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = factor * a[i];
}

void ls__f32_to_bf16_reference(uint16_t *out, const float *a, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = f32_to_bf16(a[i]);
}

void ls__bf16_to_f32_reference(float *out, const uint16_t *a, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = bf16_to_f32(a[i]);
}

void ls__f32_to_f16_reference(uint16_t *out, const float *a, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = f32_to_f16(a[i]);
}

void ls__f16_to_f32_reference(float *out, const uint16_t *a, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = f16_to_f32(a[i]);
}
