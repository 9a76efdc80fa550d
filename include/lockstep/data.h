/* lockstep/data.h: which samples come when, where they come from, and how they reach the trainer in time.
 *
 * Words    an epoch is cut into steps; a step is `slots` micro-batches over all ranks; a slot has `rows` samples. What
 *          stands in (epoch, step, slot, row) depends on the seed and on the data alone, never on ranks or workers.
 * Failure  messages about files name the file and the byte at which it is wrong. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stdbool.h>
#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sampler: (epoch, step, slot) -> samples. */

typedef enum ls_order {
    LS_ORDER_SHUFFLED = 0,   /* a keyed permutation of each epoch; any position in constant time and memory */
    LS_ORDER_SEQUENTIAL = 1, /* 0, 1, 2... */
    LS_ORDER_TORCH = 2,      /* what torch's DistributedSampler deals to `ranks` ranks; takes 4 bytes a sample (8 from
                                2^32 samples on) for each of two epochs */
    LS_ORDER_BALANCED = 3,   /* shuffled, then dealt so that the slots of a step get the same work; see `length` */
} ls_order;
#define LS_ORDER_COUNT 4

/* "shuffled", "sequential"...; never NULL. */
LS_API const char *ls_order_name(ls_order order);
/* The order of that name; LS_EINVAL with the list of names if there is none. */
LS_API LS_MUST_CHECK ls_status ls_order_parse(const char *name, ls_order *out);

typedef struct ls_sampler_options {
    uint64_t samples; /* how many there are; at least 1 */
    ls_order order;   /* 0: shuffled */
    uint64_t seed;
    size_t rows;     /* samples of a slot; 0: 1 */
    int slots;       /* slots of a step, over all ranks; 0: `ranks` */
    int ranks;       /* torch deals to so many, and its order depends on it; others only check that it divides `slots`;
                        0: 1 */
    bool drop_last;  /* leave out the samples that do not fill a step; default: the epoch's last step is short, its
                        rows dealt evenly to the slots. torch: DistributedSampler's drop_last */
    bool no_shuffle; /* torch: DistributedSampler(shuffle=False) */
    /* balanced: the work of a sample, for example its tokens. Called from the threads that ask for samples, one at a
     * time. */
    uint64_t (*length)(void *user, uint64_t sample);
    void *user;
} ls_sampler_options;

typedef struct ls_sampler ls_sampler;

/* On failure *out is NULL. The sampler may be used by several threads at once. */
LS_API LS_MUST_CHECK ls_status ls_sampler_open(ls_sampler **out, const ls_sampler_options *options);
LS_API void ls_sampler_free(ls_sampler **sampler);

/* Steps of an epoch; 0 when all samples are dropped. */
LS_API uint64_t ls_sampler_steps(const ls_sampler *sampler);
/* The samples of one slot: `samples` has room for `rows`; *count is how many there are (fewer, even 0, in a short last
 * step). A step or slot that does not exist is LS_EINVAL. */
LS_API LS_MUST_CHECK ls_status ls_sampler_get(ls_sampler *sampler, uint64_t epoch, uint64_t step, int slot,
                                              uint64_t *samples, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
