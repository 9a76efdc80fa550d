/* What a prediction needs of a recorded run, as numbers: what a slot computes, when its gradients become ready, what communication,
 * the update and data cost, and how much steps vary. Times are ns. */
#ifndef LS_PREDICT_PROFILE_H
#define LS_PREDICT_PROFILE_H

#include <stdbool.h>
#include "lockstep/measure.h"
#include "predict/load.h"
#include "predict/noise.h"

typedef struct ls__span_cost {
    size_t count; /* elements */
    double ready; /* share of backward after which its gradient is ready */
} ls__span_cost;

typedef struct ls__step_profile {
    /* The recorded set-up. */
    int ranks, nodes, local; /* local: ranks of the node with the most */
    int slots, threads;
    int wire_bytes, workers, prefetch;
    bool overlap, sharded;
    size_t bucket_bytes;
    ls__node_speed speed; /* of a node; see LS_METADATA_GEMM_ONE... */
    double tokens;        /* of a step; 0: not known */
    /* torch_run.c: communication takes no processor time, and nothing is known of how ranks share a node */
    bool beside;
    double own_rate;      /* bytes per ns of its buckets; 0: not known, or it is not such a run */
    const char *no_slots; /* why its micro-batches are not known; NULL: they are */

    /* Medians of the counted steps. */
    double step;
    /* Forward and backward of one slot; with what other programs took of the cores, if each rank had one. */
    double slot;
    double unshared; /* share of `slot` that is left where cores are free for other programs */
    double others;   /* cores that other programs used on the first rank's node */
    double backward; /* share of `slot` */
    double bytes;    /* that the operations of a slot read and write at least; 0: not known */
    double update;
    double add_rate; /* bytes per ns at which gradients of slots are added (ls__accumulate_bytes()); 0: not known */
    double data;     /* time in the data phase, per slot */
    double build;    /* to build a batch; 0: not known */
    double comm;     /* communication of the rank with the median, exposed or not */
    double small;    /* collectives of a step that carry no bucket */
    double repeat;   /* relative standard error of the median step, from parts of the run */

    ls__span_cost *spans; /* [n_spans], in the order of backward */
    size_t n_spans;
    size_t elements; /* of all gradients */

    /* Between nodes; 0: there was one. */
    double link_rate; /* bytes per ns that a node sent */

    ls__noise noise; /* of the compute times */
} ls__step_profile;

/* LS_EINVAL if the run has too little; the message says what is missing. Nothing to free then. */
LS_MUST_CHECK ls_status ls__step_profile_read(ls__step_profile *out, const ls_run *run);
void ls__step_profile_free(ls__step_profile *p);

/* The part of it that differs for a run of PyTorch. p->spans is the caller's to free, on failure, too. */
LS_MUST_CHECK ls_status ls__torch_run_read(ls__step_profile *p, const ls_run *run);

/* Bytes per element that are read and written to add the gradient of a rank's next slot, of `slots`, to those of the `before` ones
 * before it, in canonical order (ddp/counter.c). What was just written is in a cache. */
double ls__accumulate_bytes(int before, int slots);

/* How many slots rank r of `ranks` has: as even as possible. */
static inline int ls__slots_of(int slots, int ranks, int r)
{
    return slots / ranks + (r < slots % ranks);
}

#endif
