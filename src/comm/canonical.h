/* The canonical sum when the ranks are on several nodes.
 *
 * The tree is that of base/tree.h, over the ranks in order. A node may add what the tree adds among its own ranks and nothing else: it
 * has one partial sum for each largest subtree whose ranks are all on the node. Together the subtrees of all nodes contain each rank
 * once; from their partial sums any rank can finish the tree.
 *
 * Two nodes of 2 ranks each have one partial sum each. With ranks placed in turn (0 and 2 on one node, 1 and 3 on the other) nothing can
 * be added in advance, and every rank's values are sent. The bits are the same in both cases. Pure functions. */
#ifndef LS_COMM_CANONICAL_H
#define LS_COMM_CANONICAL_H

#include <stdbool.h>
#include "lockstep/comm.h"

/* A subtree: the ranks first..first+count-1, all on `node`. */
typedef struct ls__subtree {
    int first, count, node;
} ls__subtree;

/* Adds the value of subtree `right` to that of `left`. */
typedef struct ls__canonical_step {
    int left, right;
} ls__canonical_step;

/* Writes the subtrees of p ranks in order of rank and returns how many there are (at most p). node_of[r] is rank r's
 * node. `leaves`: one for each rank, for values that must not be added in advance. */
int ls__canonical_subtrees(const int *node_of, int p, bool leaves, ls__subtree *out);
/* Writes the subtrees - 1 steps that finish the tree over p ranks; the result is then in subtree 0. */
void ls__canonical_steps(const ls__subtree *subtrees, int n, int p, ls__canonical_step *out);

/* Whether partial sums can be used. For means of integers they cannot: the sum is wider than the type. */
bool ls__canonical_has_partials(ls_dtype type, ls_op op);
/* Whether values are added in float32 and rounded only once: bfloat16, float16. */
bool ls__canonical_widens(ls_dtype type);
/* The type that partial sums have: float32 for those. */
ls_dtype ls__canonical_partial_type(ls_dtype type);

/* The partial sum of in[0..count): `count` is that of a subtree. For one input it is the input, in its own type. `scratch` has
 * room for ls__canonical_scratch(count) bytes. */
void ls__canonical_partial(ls_dtype type, ls_op op, void *out, const void *const *in, int count, size_t elements,
                           void *scratch);
size_t ls__canonical_scratch(int count);
/* Bytes that a subtree's partial sum takes, rounded up so that the next one is aligned. */
size_t ls__canonical_partial_bytes(ls_dtype type, const ls__subtree *subtree, size_t elements);

/* Finishes the sum over p ranks from the partial sums of all n subtrees, which are overwritten (so is the list), and
 * writes it to `out`. `widened` has room for n times `elements` float32 and is used for types that are widened only. */
void ls__canonical_finish(ls_dtype type, ls_op op, void *out, void **partials, const ls__subtree *subtrees, int n,
                          const ls__canonical_step *steps, int p, size_t elements, float *widened);

#endif
