/* Muon: the update of a matrix is its momentum made orthogonal, by a few steps of Newton and Schulz's iteration. See muon.c. */
#ifndef LS_NN_MUON_H
#define LS_NN_MUON_H

#include <stdint.h>
#include "base/arena.h"
#include "lockstep/nn.h"

/* Memory of one rank for one matrix at a time. */
typedef struct ls__muon {
    ls__arena memory;
    float *copy;      /* a matrix */
    float *gram;      /* (n, n), n the smaller side of a matrix */
    float *square;    /* the same */
    float *workspace; /* of products */
    int threads;
} ls__muon;

/* Whether Muon updates this parameter; AdamW has the others. */
bool ls__muon_has(const ls_place *place);

/* For the matrices among the places. `muon` is zero, or closed; on failure it is closed. */
LS_MUST_CHECK ls_status ls__muon_open(ls__muon *muon, const ls_place *places, size_t n_places, int threads);
void ls__muon_close(ls__muon *muon);

/* out = the momentum of a (rows, cols) matrix after this step's gradient, made orthogonal. The momentum itself is not changed. Uses the
 * gradient times `grad_scale`. */
void ls__muon_direction(const ls__muon *muon, float *out, const float *momentum, const float *grad, int64_t rows,
                        int64_t cols, float decay, float grad_scale);

/* The learning rate of a matrix is multiplied by this: its update then has the size of AdamW's, so one rate serves both. */
double ls__muon_rate(int64_t rows, int64_t cols);

#endif
