/* A Feistel network over Z_a x Z_b, a = ceil(sqrt n), b = ceil(n / a), with cycle walking: a position is the pair (l, r), and each
 * round adds a keyed hash of one half to the other, modulo that half's size. That is a bijection of a * b positions for any hash.
 * The positions from n on (fewer than a) do not exist: a value that lands there is permuted again until it is below n, which keeps it a
 * bijection of the n. Since a * b < n + a, that is rare; a network over powers of two would need up to three rounds on average.
 *
 * Eight half-rounds: with four, neighbouring positions of small n fail a chi-square test over seeds. */
#include "data/permute.h"

#include "base/random.h"

static uint64_t square_root_up(uint64_t n)
{
    uint64_t low = 1, high = UINT64_C(1) << 31;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (middle * middle >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void ls__permutation_init(ls__permutation *p, uint64_t n, uint64_t seed, uint64_t stream)
{
    p->n = n;
    p->a = square_root_up(n);
    p->b = (n + p->a - 1) / p->a;
    /* One random number, drawn out with splitmix64: this is called for every batch. */
    uint64_t state = ls__random_u64(seed, stream, 0);
    for (int i = 0; i < 2 * LS__PERMUTE_ROUNDS; i++) {
        uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        p->keys[i] = z ^ z >> 31;
    }
}

/* A keyed hash of x, spread evenly over 0..size-1. */
static uint64_t hash(uint64_t x, uint64_t key, uint64_t size)
{
    x = (x ^ key) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return (uint64_t)((unsigned __int128)x * size >> 64);
}

static uint64_t add_modulo(uint64_t x, uint64_t y, uint64_t size)
{
    uint64_t sum = x + y;
    return sum < size ? sum : sum - size;
}

uint64_t ls__permute(const ls__permutation *p, uint64_t i)
{
    do {
        uint64_t l = i / p->b, r = i % p->b;
        for (int k = 0; k < 2 * LS__PERMUTE_ROUNDS; k += 2) {
            l = add_modulo(l, hash(r, p->keys[k], p->a), p->a);
            r = add_modulo(r, hash(l, p->keys[k + 1], p->b), p->b);
        }
        i = l * p->b + r;
    } while (i >= p->n);
    return i;
}
