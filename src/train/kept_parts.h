/* The state of an elastic run, shared by train/kept*.c only.
 *
 * The program's part of kept memory: ls__kept_state, then the blocks' versions, the undo slots, the weights, the optimizer's state, the
 * model's buffers, the sums, and a row of statistics for each slot, each on a page of its own. */
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
    int64_t skipped[2]; /* after step i: number i mod 2; that of marks.done counts */
    int32_t skipped_in_a_row[2];
    int64_t first_step; /* the run's step when the state was made, and its position in the data */
    ls_loader_state first_data;
    double peak_gflops;
    uint64_t elements, state_floats, buffers; /* sizes */
    int32_t undo_slots;                       /* how many */
    ls__best best[2];                         /* after step i: number i mod 2; that of step `finished` counts */
} ls__kept_state;

/* ---- Sums of slots, from which the next generation completes a step. They are in job memory, which is held (comm/kept.h). */

typedef struct ls__kept_part {
    int32_t first, count;        /* slots: a subtree of the canonical tree */
    double loss, tokens, weight; /* their sums, in the same order */
    uint64_t at;                 /* offset in job memory */
} ls__kept_part;

/* A place for a sum, and what is there. Whoever writes to the place first sets `step` to 0. */
typedef struct ls__kept_sum {
    _Atomic int64_t step; /* that it belongs to, counted from 1 */
    ls__kept_part part;   /* `at` is fixed */
} ls__kept_sum;

/* The places of a rank: an allocation of its own. */
typedef struct ls__kept_list {
    uint64_t elements; /* of a sum */
    int64_t n;
    ls__kept_sum sum[];
} ls__kept_list;

enum { LS__KEPT_HELD_SUMS = 1, LS__KEPT_HELD_LIST }; /* kinds of held allocations */

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
    float *buffers[2];             /* of the model, after steps with an even number and an odd one; NULL: it has none */
    float *rows;                   /* (slots, buffers): statistics of the step that is being computed */
    const double *losses, *tokens; /* of this rank's slots of that step */
    ls__kept_list *own, *rest;     /* places of this rank; NULL: it has none */
    ls__kept_part *parts;          /* sums that the interrupted step has already; NULL: none */
    int n_parts, kept_slots;       /* kept_slots: in these sums */
    int n_levels;                  /* blocks that the reducer still needs for partial sums */
    int64_t summed;                /* the step, counted from 1, that was completed from them; 0: none */
    float *rest_memory;
};

static inline bool ls__kept_is_local_root(const ls_train *t)
{
    return ls_group_rank(t->parallel.node_group) == 0;
}

static inline size_t ls__kept_blocks(size_t elements)
{
    return (elements + LS__KEPT_BLOCK - 1) / LS__KEPT_BLOCK;
}

/* ---- kept_sums.c: what ranks have summed of a step. */

/* When a generation begins, first rank: held memory of which nothing is needed is freed before more is allocated. */
void ls__kept_sums_review(ls_train *t);
/* Makes a list of `n` sums one after another at `memory`, and holds both. *out is NULL if they cannot be held. */
LS_MUST_CHECK ls_status ls__kept_sums_list(ls_train *t, float *memory, int n, size_t elements, ls__kept_list **out);
/* The place at `memory`; NULL: it is not held. */
ls__kept_sum *ls__kept_sums_find(const ls_train *t, const float *memory);
/* Before it is overwritten. */
void ls__kept_sums_clear(ls__kept_sum *s);
/* Notes what is there now. With the statistics of `slot`, which was just computed and is part of it; -1: none was. */
void ls__kept_sums_note(const ls_train *t, ls__kept_sum *s, const ls__kept_part *part, int slot);
/* Sums of the step after `step` in held memory, the largest, in the order of slots. The caller frees *out. -1: out of memory. */
int ls__kept_sums_collect(const ls_train *t, int64_t step, ls__kept_part **out);

/* ---- kept_rest.c: completes an interrupted step. */

/* All ranks: finds out what the step after t->step has already. */
LS_MUST_CHECK ls_status ls__kept_rest_find(ls_train *t);
/* The step is finished, or the run ends: frees what it took. */
void ls__kept_rest_close(ls_train *t);

/* ---- kept_nodes.c: several nodes, each of which has its kept memory. */

/* All ranks: what the first generation has decided, on nodes that do not know. k->ready becomes that of any node. */
LS_MUST_CHECK ls_status ls__kept_nodes_join(ls_train *t);
/* All ranks, after each node has completed what was interrupted there: nodes that are behind, or new, get the state of the one that is
 * furthest. */
LS_MUST_CHECK ls_status ls__kept_nodes_agree(ls_train *t);

#endif
