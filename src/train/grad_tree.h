/* Gradients summed over micro-batches in the canonical tree, tree(n) = tree(m) + tree(n - m) with m the largest power
 * of two below n: a binary counter of partial sums. Each level beyond the first costs one more block of gradients; one
 * micro-batch costs nothing. */
#ifndef LS_TRAIN_GRAD_TREE_H
#define LS_TRAIN_GRAD_TREE_H

#include "base/arena.h"
#include "lockstep/base.h"

enum { LS__GRAD_LEVELS = 20 }; /* for up to a million slots */

typedef struct ls__grad_tree {
    size_t elements; /* of a block */
    int slots;
    int threads;
    float *current;                /* where the next micro-batch's gradients go */
    float *held[LS__GRAD_LEVELS];  /* held[l]: the sum of 2^l micro-batches; NULL: none */
    float *spare[LS__GRAD_LEVELS]; /* blocks that hold nothing */
    int n_spare;
    ls__arena memory;
} ls__grad_tree;

/* `first` is the caller's block of gradients, where `current` starts. */
LS_MUST_CHECK ls_status ls__grad_tree_open(ls__grad_tree *t, float *first, size_t elements, int slots, int threads);
void ls__grad_tree_close(ls__grad_tree *t);

/* `current` holds the gradients of micro-batch `slot`; they come in order, 0 to slots - 1. Afterwards `current` is
 * where the next one's go, or, after the last, the block with the sum. */
void ls__grad_tree_add(ls__grad_tree *t, int slot);

#endif
