/* A run on several ranks: where weights, gradients and state are, how they are summed, and which ranks update them. A run
 * alone is the case of one rank. */
#ifndef LS_TRAIN_PARALLEL_H
#define LS_TRAIN_PARALLEL_H

#include "lockstep/comm.h"
#include "lockstep/ddp.h"
#include "lockstep/train.h"

/* The steps whose update was begun last, by any rank of the node, and finished last. They differ during an update, and stay
 * different if a rank dies in it: weights and state then belong to no step. */
typedef struct ls__update_marks {
    _Atomic int64_t begun, done;
} ls__update_marks;

typedef struct ls__parallel {
    ls_world *world;
    bool owns_world; /* opened here, if the options have none */
    int rank, size;
    ls_group *node_group; /* the ranks of this node */
    ls_ddp *ddp;
    int first, each;         /* slots of this rank: its micro-batches in a step */
    bool shared;             /* one copy of weights and state for all ranks of the node */
    ls__update_marks *marks; /* shared if the update is */
    ls__update_marks own_marks;
    double *norm_sums; /* [ls__norm_blocks(elements)]; shared if the update is */
    double *own_sums;  /* the same of this rank; NULL: norm_sums are not filled while gradients are summed */
} ls__parallel;

/* First of all: the world. */
LS_MUST_CHECK ls_status ls__parallel_join(ls_train *t);
/* Returns the same on all ranks: LS_OK if all succeeded, otherwise the status of the first rank that failed, with its message. */
LS_MUST_CHECK ls_status ls__parallel_agree(ls_train *t, ls_status own);
/* LS_EMISMATCH if ranks have different options or data; the message names the difference. */
LS_MUST_CHECK ls_status ls__parallel_compare(ls_train *t);
/* Allocates and initializes the model, and opens the reducer and the optimizer. */
LS_MUST_CHECK ls_status ls__parallel_open(ls_train *t);
void ls__parallel_close(ls_train *t);

/* Around each micro-batch's forward and backward. In between, the tape's hook reports to the reducer. */
LS_MUST_CHECK ls_status ls__parallel_begin(ls_train *t, int micro, double weight);
/* *weight: of all micro-batches of all ranks, after the last one of the step. */
LS_MUST_CHECK ls_status ls__parallel_finish(ls_train *t, double *weight);
/* Sums over all slots in canonical order. `parts`: this rank's, LS__LOSS of each of its slots, then LS__TOKENS. Also finds out whether a
 * rank has requested a stop. */
enum { LS__LOSS, LS__TOKENS, LS__SHARES };
LS_MUST_CHECK ls_status ls__parallel_sum(ls_train *t, const double *parts, double shares[LS__SHARES]);
/* In canonical order, as the gradients are added. */
double ls__parallel_tree_sum(const double *x, int n);
/* The tape reports gradients to the reducer. */
void ls__parallel_listen(ls_train *t);
/* The global norm of the summed gradients: the same bits on all ranks. */
LS_MUST_CHECK ls_status ls__parallel_norm(ls_train *t, double *norm);
/* One update of all weights. */
LS_MUST_CHECK ls_status ls__parallel_update(ls_train *t, float lr, float grad_scale);
/* Whether weights and state belong to one step. */
bool ls__parallel_is_consistent(const ls_train *t);
/* The summed gradients. */
const float *ls__parallel_grads(const ls_train *t);

#endif
