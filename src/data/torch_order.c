/* torch.randperm: the Mersenne Twister MT19937 (Matsumoto and Nishimura) seeded with the low 32 bits of the seed, and
 * torch's two ways to shuffle: forward with 32-bit numbers for n < 2^32 / 20, inside-out with 64-bit numbers above. The
 * numbers are taken modulo the remaining count, with its bias, as torch does. */
#include "data/torch_order.h"

enum { WORDS = 624, MIDDLE = 397 };
static const uint64_t small_limit = UINT32_MAX / 20;

typedef struct twister {
    uint32_t state[WORDS];
    uint32_t out[WORDS]; /* the numbers made of it */
    int next;            /* WORDS: all used up */
} twister;

static void twister_seed(twister *t, uint32_t seed)
{
    t->state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        t->state[i] = UINT32_C(1812433253) * (t->state[i - 1] ^ t->state[i - 1] >> 30) + i;
    t->next = WORDS;
}

static uint32_t twist(uint32_t here, uint32_t next, uint32_t middle)
{
    uint32_t y = (here & UINT32_C(0x80000000)) | (next & UINT32_C(0x7fffffff));
    return middle ^ y >> 1 ^ (-(y & 1) & UINT32_C(0x9908b0df));
}

/* In loops without a modulus, which compilers make vectors of: shuffling takes its numbers here. */
static void twister_refill(twister *t)
{
    uint32_t *s = t->state;
    for (int i = 0; i < WORDS - MIDDLE; i++) s[i] = twist(s[i], s[i + 1], s[i + MIDDLE]);
    for (int i = WORDS - MIDDLE; i < WORDS - 1; i++) s[i] = twist(s[i], s[i + 1], s[i + MIDDLE - WORDS]);
    s[WORDS - 1] = twist(s[WORDS - 1], s[0], s[MIDDLE - 1]);
    for (int i = 0; i < WORDS; i++) {
        uint32_t y = s[i];
        y ^= y >> 11;
        y ^= y << 7 & UINT32_C(0x9d2c5680);
        y ^= y << 15 & UINT32_C(0xefc60000);
        t->out[i] = y ^ y >> 18;
    }
    t->next = 0;
}

static inline uint32_t twister_u32(twister *t)
{
    if (t->next == WORDS) twister_refill(t);
    return t->out[t->next++];
}

static uint64_t twister_u64(twister *t)
{
    uint64_t high = twister_u32(t);
    return high << 32 | twister_u32(t);
}

static void shuffle_forward(uint32_t *r, uint32_t n, twister *t)
{
    for (uint32_t i = 0; i < n; i++) r[i] = i;
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t z = i + twister_u32(t) % (n - i);
        uint32_t kept = r[i];
        r[i] = r[z];
        r[z] = kept;
    }
}

void ls__torch_randperm(uint64_t n, uint64_t seed, uint32_t *small, uint64_t *large)
{
    twister t;
    twister_seed(&t, (uint32_t)seed);
    if (n < small_limit) {
        shuffle_forward(small, (uint32_t)n, &t);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t z = twister_u64(&t) % (i + 1);
        if (small) {
            small[i] = (uint32_t)i;
            small[i] = small[z];
            small[z] = (uint32_t)i;
        } else {
            large[i] = i;
            large[i] = large[z];
            large[z] = i;
        }
    }
}
