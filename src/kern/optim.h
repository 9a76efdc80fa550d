/* Updates of weights: one pass over memory, each element by itself, so any split into parts gives the same bits. And
 * sums of squares, in an order that no vector width changes. Arrays do not overlap. */
#ifndef LS_KERN_OPTIM_H
#define LS_KERN_OPTIM_H

#include <stddef.h>

typedef struct ls__adamw_args {
    float grad_scale; /* each gradient is multiplied by this first */
    float keep;       /* 1 - lr * decay */
    float beta1;
    float beta2;
    float step_size;   /* lr / (1 - beta1^t) */
    float denom_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps;
} ls__adamw_args;

/* w = keep w - step_size m / (denom_scale sqrt(v) + eps), with m and v moved towards g and g^2 first. */
void ls__adamw(float *w, const float *g, float *m, float *v, size_t count, const ls__adamw_args *args);
void ls__adamw_reference(float *w, const float *g, float *m, float *v, size_t count, const ls__adamw_args *args);

typedef struct ls__sgd_args {
    float grad_scale;
    float decay;    /* times w, added to the gradient */
    float momentum; /* 0: m is not looked at and may be NULL */
    float lr;
} ls__sgd_args;

/* w = w - lr m, with m = momentum m + g + decay w first. */
void ls__sgd(float *w, const float *g, float *m, size_t count, const ls__sgd_args *args);
void ls__sgd_reference(float *w, const float *g, float *m, size_t count, const ls__sgd_args *args);

/* The sum of squares in double precision: element i goes to lane i mod 16, in order; the lanes are added as a tree. */
double ls__sum_squares(const float *x, size_t count);
double ls__sum_squares_reference(const float *x, size_t count);

#endif
