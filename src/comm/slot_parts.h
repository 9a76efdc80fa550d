/* The canonical sum when ranks own different numbers of its leaves.
 *
 * The tree is that of base/tree.h over `leaves` values (the slots of a step). A rank owns a contiguous run of them (base/slots.h)
 * and may add what the tree adds within that run and nothing else: it has one partial sum, a part, for each largest subtree whose
 * leaves are all its own. The parts of all ranks contain each leaf once; from them the tree is finished by whoever reduces a chunk.
 * 8 leaves over 3 ranks:
 *
 *     rank 0: 0 1 2     rank 1: 3 4 5     rank 2: 6 7
 *     parts {0 1} {2}   parts {3} {4 5}   part {6 7}           ((01 + (2 + 3)) + (45 + 67))
 *
 * Where each rank has one part, and the tree over the parts is the tree over the ranks, no parts are needed: the sum over the ranks is
 * the same.
 *
 * A rank's parts are in one buffer, `stride` bytes apart. The last one is at the beginning, because that is where the last gradients are
 * written and the sum is read. */
#ifndef LS_COMM_SLOT_PARTS_H
#define LS_COMM_SLOT_PARTS_H

#include "lockstep/comm.h"

typedef struct ls__slot_part {
    int first, count; /* leaves */
    int rank;
    int place; /* in its rank's buffer, in strides */
} ls__slot_part;

typedef struct ls__slot_parts {
    int leaves, ranks, n;
    ls__slot_part *part; /* [n], in the order of the leaves */
    int *of_rank;        /* [ranks + 1]: each rank's first part */
    size_t stride;       /* bytes */
    const void **in;     /* [n]: for whoever sums */
    void *node_sums;     /* the mpi transport's plan, one block of memory; made when it is first used */
} ls__slot_parts;

/* *out is NULL, too, where a sum over the ranks is the same. `leaves` >= `ranks`. */
LS_MUST_CHECK ls_status ls__slot_parts_open(ls__slot_parts **out, int leaves, int ranks, size_t stride);
void ls__slot_parts_free(ls__slot_parts **parts);

/* The sum of the subtree of `count` leaves that begins with part `at`. in[i]: values of part `at` + i. Each of the outputs gets it, also
 * if it is one of the inputs. */
void ls__slot_parts_sum(const ls__slot_parts *parts, int count, int at, void *const *out, int outs,
                        const void *const *in, size_t elements);
/* The whole tree, for one number of each part. */
double ls__slot_parts_sum_f64(const ls__slot_parts *parts, const double *x);

/* Collective: the canonical sum of float32 over all leaves, in place of each rank's last part; `root` -1: on all ranks. `buf`: this rank's
 * buffer, from ls_world_alloc(). */
LS_MUST_CHECK ls_status ls__slot_parts_reduce_start(ls_group *g, float *buf, size_t count, ls__slot_parts *parts,
                                                    int root, ls_work **out);

#endif
