/* A training on several ranks: where weights, gradients and state lie, how they are summed, and who updates them. Alone is
 * the case of one rank. */
#ifndef LS_TRAIN_PARALLEL_H
#define LS_TRAIN_PARALLEL_H

#include "lockstep/comm.h"
#include "lockstep/ddp.h"
#include "lockstep/train.h"

/* The steps whose update was begun last, by any rank of the machine, and done last. They differ while weights and state are of
 * no step: then, or ever after if a rank died meanwhile. */
typedef struct ls__update_marks {
    _Atomic int64_t begun, done;
} ls__update_marks;

typedef struct ls__parallel {
    ls_world *world;
    bool owns_world; /* made here, for a training that was given none */
    int rank, size;
    ls_group *machine; /* the ranks of this machine */
    ls_ddp *ddp;
    int each;                /* micro-batches of this rank in a step */
    bool shared;             /* one copy of weights and state for all ranks of the machine */
    ls__update_marks *marks; /* shared if the update is */
    ls__update_marks own_marks;
    double *norm_sums; /* [ls__norm_blocks(elements)]; shared if the update is */
    double *own_sums;  /* the same of this rank; NULL: norm_sums are not filled while gradients are summed */
} ls__parallel;

/* Before anything else: the world, and whether the slots can be spread over it. */
LS_MUST_CHECK ls_status ls__parallel_join(ls_train *t);
/* All ranks learn whether all succeeded: the status of the first rank that did not, with its message. */
LS_MUST_CHECK ls_status ls__parallel_agree(ls_train *t, ls_status own);
/* LS_EMISMATCH if ranks were given different options or data; names the difference. */
LS_MUST_CHECK ls_status ls__parallel_compare(ls_train *t);
/* Gives the model its memory and first values, and makes the reducer and the optimiser. */
LS_MUST_CHECK ls_status ls__parallel_open(ls_train *t);
void ls__parallel_close(ls_train *t);

/* Around each micro-batch's forward and backward. The tape's hook tells the reducer in between. */
LS_MUST_CHECK ls_status ls__parallel_begin(ls_train *t, int micro, double weight);
/* *weight: of all micro-batches of all ranks, after the last one of the step. */
LS_MUST_CHECK ls_status ls__parallel_finish(ls_train *t, double *weight);
/* Sums over the ranks in canonical order, in place; also finds out whether a rank has requested a stop. */
enum { LS__LOSS, LS__TOKENS, LS__SHARES };
LS_MUST_CHECK ls_status ls__parallel_sum(ls_train *t, double shares[LS__SHARES]);
/* The global norm of the summed gradients: the same bits on all ranks. */
LS_MUST_CHECK ls_status ls__parallel_norm(ls_train *t, double *norm);
/* One update of all weights. */
LS_MUST_CHECK ls_status ls__parallel_update(ls_train *t, float lr, float grad_scale);
/* Whether weights and state are those of a step. */
bool ls__parallel_is_whole(const ls_train *t);
/* Where the summed gradients are. */
const float *ls__parallel_grads(const ls_train *t);

#endif
