/* Updates of weights: one pass over memory, each element by itself, so any division into parts gives the same bits. And sums of
 * squares, in an order that does not depend on the vector width. Arrays do not overlap.
 *
 * An update kernel is one function of one element, which loops_optim.h compiles into a loop for each instruction set. Square root
 * and division are IEEE's, so the bits are the same for any vector width. */
#ifndef LS_KERN_OPTIM_H
#define LS_KERN_OPTIM_H

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The one list of update kernels: name, function, states per element. */
#define LS__OPTIM_LIST(X)                      \
    X(LS__OPTIM_ADAMW, adamw, 2)               \
    X(LS__OPTIM_SGD, sgd, 0)                   \
    X(LS__OPTIM_SGD_MOMENTUM, sgd_momentum, 1) \
    X(LS__OPTIM_MUON, muon, 2)

typedef enum ls__optim_kernel {
#define X(name, function, states) name,
    LS__OPTIM_LIST(X)
#undef X
        LS__OPTIM_COUNT
} ls__optim_kernel;
enum { LS__OPTIM_MAX_STATES = 2 };

extern const int ls__optim_states[LS__OPTIM_COUNT];

/* The numbers of one step. */
typedef struct ls__optim_args {
    float grad_scale; /* each gradient is multiplied by this first */
    union {
        struct {
            float keep; /* 1 - lr * decay */
            float beta1, beta2;
            float step_size;   /* lr / (1 - beta1^t) */
            float denom_scale; /* 1 / sqrt(1 - beta2^t) */
            float eps;
        } adamw;
        struct {
            float decay; /* times w, added to the gradient */
            float momentum;
            float lr;
        } sgd;
        struct {
            float keep; /* 1 - lr * decay */
            float momentum;
            float lr; /* of the matrix */
        } muon;
    };
} ls__optim_args;

/* The new weight, from the weight w and its scaled gradient g. m and v are the element's states. */

/* keep w - step_size m / (denom_scale sqrt(v) + eps), with m and v moved towards g and g^2 first. */
static inline float ls__adamw_element(float w, float g, float *m, float *v, const ls__optim_args *args)
{
    const float beta1 = args->adamw.beta1, beta2 = args->adamw.beta2;
    float mean = beta1 * *m + (1 - beta1) * g;
    float square = beta2 * *v + (1 - beta2) * (g * g);
    *m = mean;
    *v = square;
    return args->adamw.keep * w -
           args->adamw.step_size * (mean / (sqrtf(square) * args->adamw.denom_scale + args->adamw.eps));
}

/* w - lr (g + decay w) */
static inline float ls__sgd_element(float w, float g, float *m, float *v, const ls__optim_args *args)
{
    (void)m, (void)v;
    return w - args->sgd.lr * (g + args->sgd.decay * w);
}

/* w - lr m, with m = momentum m + g + decay w first. */
static inline float ls__sgd_momentum_element(float w, float g, float *m, float *v, const ls__optim_args *args)
{
    (void)v;
    *m = args->sgd.momentum * *m + (g + args->sgd.decay * w);
    return w - args->sgd.lr * *m;
}

/* The momentum m moved towards g. */
static inline float ls__muon_momentum(float m, float g, float momentum)
{
    return momentum * m + (1 - momentum) * g;
}

/* keep w - lr v; v is the direction, which nn/muon.c has computed from m and g, and m moves towards g. */
static inline float ls__muon_element(float w, float g, float *m, float *v, const ls__optim_args *args)
{
    *m = ls__muon_momentum(*m, g, args->muon.momentum);
    return args->muon.keep * w - args->muon.lr * *v;
}

/* With this, an update that is interrupted, because its process is killed, can be taken back: what is overwritten is copied
 * first, a group of elements ahead of the update, and it is noted how many are. In the same pass, so that computing still
 * overlaps with memory. The copies of a group's weights and states are side by side: one stream of writes. */
enum { LS__UNDO_GROUP = 64 };
typedef struct ls__optim_undo {
    float *copy;             /* room for 1 + LS__OPTIM_MAX_STATES floats for each element, rounded up to groups */
    size_t before;           /* elements that were copied by earlier calls */
    _Atomic int64_t *copied; /* becomes `before` + those of this call */
} ls__optim_undo;

/* Where element `i` of those that are copied is; array 0: the weights, 1 + k: state k. What follows it in its group follows it
 * there. */
static inline float *ls__undo_at(float *copy, size_t i, int array)
{
    return copy + (i / LS__UNDO_GROUP * (1 + LS__OPTIM_MAX_STATES) + (size_t)array) * LS__UNDO_GROUP +
           i % LS__UNDO_GROUP;
}

/* Writes the copies of the first `n` elements back. */
void ls__undo_restore(float *copy, size_t n, int array, float *to);

/* Updates `count` weights. states[i] is the i-th array of states; those beyond what the kernel has are not read. `undo` may be
 * NULL. */
typedef void ls__optim_fn(float *w, const float *g, float *const *states, size_t count, const ls__optim_args *args,
                          const ls__optim_undo *undo);
void ls__optim_update(ls__optim_kernel kernel, float *w, const float *g, float *const *states, size_t count,
                      const ls__optim_args *args, const ls__optim_undo *undo);

/* The sum of squares in double precision: element i goes to lane i mod 16, in order; the lanes are added as a tree. */
double ls__sum_squares(const float *x, size_t count);
double ls__sum_squares_reference(const float *x, size_t count);

#endif
