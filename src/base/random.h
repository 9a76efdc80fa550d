/* Random numbers without state: each is a function of (seed, stream, index), so every rank and thread gets the same
 * bits for it, in any order. The generator is Philox4x32-10 (Salmon et al., SC'11).
 *
 * A stream is a purpose (a parameter's initial values, one dropout of one pass); it has 2^64 numbers. */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include "lockstep/base.h"

/* Philox4x32-10 itself: one block of four words. */
void ls__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Number `index` of the stream: 32 or 64 random bits. */
uint32_t ls__random_u32(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t ls__random_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* In [0, 1), a multiple of 2^-24. */
float ls__random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal (Box-Muller). */
float ls__random_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = number first + i of the stream, for i < count: the same bits as the functions above, but faster. */
void ls__random_fill_u32(uint32_t *out, size_t count, uint64_t seed, uint64_t stream, uint64_t first);
void ls__random_fill_uniform(float *out, size_t count, float low, float high, uint64_t seed, uint64_t stream,
                             uint64_t first);
void ls__random_fill_normal(float *out, size_t count, float mean, float std, uint64_t seed, uint64_t stream,
                            uint64_t first);

#endif
