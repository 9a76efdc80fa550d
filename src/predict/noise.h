/* How compute times vary from step to step and from rank to rank: what all ranks of a node have in common in a step, what stays with
 * a rank in all steps (a slow core), and the rest, which is independent. */
#ifndef LS_PREDICT_NOISE_H
#define LS_PREDICT_NOISE_H

#include "lockstep/base.h"

typedef struct ls__noise_step {
    double common;  /* the middle of the ranks, relative to the median over the steps */
    double largest; /* the slowest rank, relative to `common` */
} ls__noise_step;

typedef struct ls__noise {
    int ranks, slots;      /* recorded; slots: of the first rank */
    ls__noise_step *steps; /* [n_steps], by `common` */
    double *mean;          /* [ranks]: what stays with a rank, relative to the middle of the ranks */
    double *rest;          /* [n_rest], sorted: what is left of a rank's time in a step */
    size_t n_steps, n_rest;
    double centre; /* a rank by itself has the recorded median with this factor */
} ls__noise;

/* times[step * ranks + rank]: compute time per slot, relative to the median of all; `slots`: of the first rank. Nothing to free on
 * failure. */
LS_MUST_CHECK ls_status ls__noise_open(ls__noise *out, const double *times, size_t steps, int ranks, int slots);
void ls__noise_close(ls__noise *n);

/* A step of a set-up: what the middle of its ranks takes and what the slowest of `ranks`, each with `slots` slots, relative to the median.
 * Draw number `draw`; `nodes`: the slowest node is drawn. */
typedef struct ls__noise_draw {
    double typical, slowest;
} ls__noise_draw;
ls__noise_draw ls__noise_draw_step(const ls__noise *n, int ranks, int nodes, int slots, uint64_t draw);
/* Of one rank by itself, relative to `typical`. */
double ls__noise_draw_rank(const ls__noise *n, int rank, int slots, uint64_t draw);

#endif
