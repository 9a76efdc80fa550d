/* The canonical sum when the ranks are spread over machines.
 *
 * tree(n) = tree(m) + tree(n - m), m the largest power of two below n, over the ranks in order. A machine may add what
 * the tree adds among its own ranks and nothing else: it has one partial sum for each largest subtree that lies within
 * it. All these subtrees, of all machines, subtree the ranks; whoever has their partial sums finishes the tree.
 *
 * Two machines of 2 ranks each have one partial sum each. With ranks dealt out in turn (0 and 2 here, 1 and 3 there)
 * nothing can be added in advance, and every rank's values travel. Bits are the same either way. Pure functions. */
#ifndef LS_COMM_CANONICAL_H
#define LS_COMM_CANONICAL_H

#include <stdbool.h>
#include "lockstep/comm.h"

/* A subtree: the ranks first..first+count-1, all on machine `node`. */
typedef struct ls__subtree {
    int first, count, node;
} ls__subtree;

/* Adds the value of subtree `right` to that of `left`. */
typedef struct ls__canonical_step {
    int left, right;
} ls__canonical_step;

/* Writes the subtrees of p ranks in order of rank and returns how many there are (at most p). node_of[r] is rank r's
 * machine. `leaves`: one for each rank, where values must not be added in advance. */
int ls__canonical_subtrees(const int *node_of, int p, bool leaves, ls__subtree *out);
/* Writes the subtrees - 1 steps that finish the tree over p ranks; the result is then in subtree 0. */
void ls__canonical_steps(const ls__subtree *subtrees, int n, int p, ls__canonical_step *out);

/* Whether sums of this kind can be cut in two. Means of integers cannot: their sum is wider than the type. */
bool ls__canonical_can_cut(ls_dtype type, ls_op op);
/* The type that partial sums have: float32 for bfloat16, which is rounded only once. */
ls_dtype ls__canonical_partial_type(ls_dtype type);

/* The partial sum of in[0..count): `count` is a subtree's. For one input it is the input, in its own type. `scratch` has
 * room for ls__canonical_scratch(count) bytes. */
void ls__canonical_partial(ls_dtype type, ls_op op, void *out, const void *const *in, int count, size_t elements,
                           void *scratch);
size_t ls__canonical_scratch(int count);
/* Bytes that a subtree's partial sum takes, rounded up so that the next one is aligned behind it. */
size_t ls__canonical_partial_bytes(ls_dtype type, const ls__subtree *subtree, size_t elements);

/* Finishes the sum over p ranks from the partial sums of all n subtrees, which are overwritten (so is the list), and
 * writes it to `out`. `widened` has room for n times `elements` float32 and is used for bfloat16 only. */
void ls__canonical_finish(ls_dtype type, ls_op op, void *out, void **partials, const ls__subtree *subtrees, int n,
                          const ls__canonical_step *steps, int p, size_t elements, float *widened);

#endif
