/* One step of a set-up, replayed on shared cores, memory and links. */
#ifndef LS_PREDICT_REPLAY_H
#define LS_PREDICT_REPLAY_H

#include "lockstep/predict.h"
#include "predict/profile.h"

/* A bucket of the set-up. */
typedef struct ls__bucket_cost {
    size_t bytes; /* of float32 gradients */
    double ready; /* share of backward after which it is full */
} ls__bucket_cost;

typedef struct ls__replay {
    const ls__step_profile *profile;
    ls_setup setup; /* nothing left at 0 */
    int local;      /* ranks of a node */
    int each;       /* slots of the rank with the most */
    ls__bucket_cost *buckets;
    size_t n_buckets;
    double comm_factor; /* what communication took in the recorded run, relative to this model; 1: not known */
    double data_base;   /* per slot: time in the data phase that is no waiting */
} ls__replay;

/* Packs the buckets. LS_EUNSUPPORTED if the record lacks what that needs. Frees nothing on failure. */
LS_MUST_CHECK ls_status ls__replay_open(ls__replay *out, const ls__step_profile *profile, const ls_setup *setup);
void ls__replay_close(ls__replay *r);

/* The terms of a step whose ranks take what was drawn; LS_TERM_OTHER stays 0. `number`: of the draw, from 1; 0: more threads than
 * cores share them evenly. Returns their sum. */
double ls__replay_step(const ls__replay *r, const ls__noise_draw *draw, uint64_t number, double term[LS_TERM_COUNT]);
/* The same without exposed communication and data, for calibration. */
double ls__replay_stall(const ls__replay *r, double per_slot);

#endif
