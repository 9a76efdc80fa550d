/* Loops over one or two arrays. Any length, pointers aligned to the element; an output may be the same memory as an
 * input of the same type, and must not overlap otherwise. Every version gives the same bits. */
#ifndef LS_KERN_VECTOR_H
#define LS_KERN_VECTOR_H

#include "lockstep/base.h"

/* out[i] = a[i] + b[i] */
void ls__add_f32(float *out, const float *a, const float *b, size_t count);
void ls__add_f32_reference(float *out, const float *a, const float *b, size_t count);

/* out[i] = factor * a[i] */
void ls__scale_f32(float *out, const float *a, float factor, size_t count);
void ls__scale_f32_reference(float *out, const float *a, float factor, size_t count);

/* bfloat16 is the upper half of a float32. Rounding is to nearest even; too large becomes infinity; a NaN stays a NaN
 * (quiet, sign and upper payload kept). */
void ls__f32_to_bf16(uint16_t *out, const float *a, size_t count);
void ls__f32_to_bf16_reference(uint16_t *out, const float *a, size_t count);
void ls__bf16_to_f32(float *out, const uint16_t *a, size_t count);
void ls__bf16_to_f32_reference(float *out, const uint16_t *a, size_t count);

/* float16 (binary16), with the same rules; below 2^-14 it is a multiple of 2^-24. */
void ls__f32_to_f16(uint16_t *out, const float *a, size_t count);
void ls__f32_to_f16_reference(uint16_t *out, const float *a, size_t count);
void ls__f16_to_f32(float *out, const uint16_t *a, size_t count);
void ls__f16_to_f32_reference(float *out, const uint16_t *a, size_t count);

#endif
