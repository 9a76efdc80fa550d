/* The state of an elastic run, shared by train/kept.c and train/kept_nodes.c only.
 *
 * The program's part of kept memory: ls__kept_state, then the blocks' versions, the undo slots, the weights, the optimizer's state, the
 * model's buffers and the sums, each on a page of its own. */
#ifndef LS_TRAIN_KEPT_PARTS_H
#define LS_TRAIN_KEPT_PARTS_H

#include "kern/optim.h"
#include "train/kept.h"
#include "train/training.h"

enum {
    /* Elements with one version: the copy of a block, of up to three arrays, stays in the L1 cache. */
    LS__KEPT_BLOCK = 1024,
    LS__KEPT_UNDO =
        128, /* undo slots, at least: one for each thread of the node's ranks; with fewer, fewer threads update */
};

/* What is restored if a rank died while one of its threads changed a block. */
typedef struct ls__kept_undo {
    _Atomic int64_t block;  /* 1 + its number; 0: none is being changed */
    _Atomic int64_t copied; /* elements of it that are copied; none but these may have changed */
    _Alignas(64) float copy[(1 + LS__OPTIM_MAX_STATES) * LS__KEPT_BLOCK];
} ls__kept_undo;

typedef struct ls__kept_state {
    ls__update_marks marks;
    _Atomic int64_t finished; /* the last step whose metrics are written */
    /* What the update of the step after marks.done needs, written before it begins; then what is known of that step. */
    float lr, grad_scale;
    ls_train_metrics metrics;
    int64_t skipped;
    int32_t skipped_in_a_row;
    int64_t first_step; /* the run's step when the state was made, and its position in the data */
    ls_loader_state first_data;
    double peak_gflops;
    uint64_t elements, state_floats, buffers; /* sizes */
    int32_t undo_slots;                       /* how many */
    ls__best best[2];                         /* after step i: number i mod 2; that of step `finished` counts */
} ls__kept_state;

struct ls__train_kept {
    ls__kept *job;
    int fd;
    bool ready;         /* an earlier generation has left a state, here or on another node */
    bool own_ready;     /* here */
    bool recovered;     /* this generation has finished a step */
    _Atomic bool leave; /* this rank got SIGTERM */
    bool changing;
    size_t bytes;
    ls__kept_state *state;     /* the mapping begins with it */
    _Atomic int64_t *versions; /* by block: the step that it was updated in */
    ls__kept_undo *undo;
    float *values, *optimizer, *sums;
    float *buffers[2]; /* of the model, after steps with an even number and an odd one; NULL: it has none */
};

static inline bool ls__kept_is_local_root(const ls_train *t)
{
    return ls_group_rank(t->parallel.node_group) == 0;
}

static inline size_t ls__kept_blocks(size_t elements)
{
    return (elements + LS__KEPT_BLOCK - 1) / LS__KEPT_BLOCK;
}

/* ---- kept_nodes.c: several nodes, each of which has its kept memory. */

/* All ranks: what the first generation has decided, on nodes that do not know. k->ready becomes that of any node. */
LS_MUST_CHECK ls_status ls__kept_nodes_join(ls_train *t);
/* All ranks, after each node has completed what was interrupted there: nodes that are behind, or new, get the state of the one that is
 * furthest. */
LS_MUST_CHECK ls_status ls__kept_nodes_agree(ls_train *t);

#endif
