/* What models, the trainer and the benchmarks use of a tape beyond the public interface: hooks, memory to alias, memory use. */
#ifndef LS_TENSOR_HOOKS_H
#define LS_TENSOR_HOOKS_H

#include "lockstep/tensor.h"
#include "kern/tick.h"

/* Called about every millisecond in forward and backward, between chunks of the larger operations, in the thread that runs the
 * tape. For what cannot wait until an operation ends, such as a network. NULL: none. */
void ls__tape_on_tick(ls_tape *tape, ls__tick_fn fn, void *user);

/* Called in forward when an operation has used a weight of two or more dimensions. NULL: none. */
typedef void (*ls__used_fn)(void *user, const ls_param *param);
void ls__tape_on_used(ls_tape *tape, ls__used_fn fn, void *user);

/* What one operation cost. */
typedef struct ls__op_cost {
    const char *op;    /* "linear", "attention"... */
    const char *param; /* the name of its (first) parameter, or "" */
    const char *near;  /* the same; for an operation without a parameter, that of the operation recorded before it */
    bool backward;
    int dims;
    int64_t shape[LS_MAX_DIMS]; /* of the output */
    int64_t ns;
    double flops;  /* multiplications and additions of its matrix products; 0 for others */
    double bytes;  /* lower bound of memory traffic: each operand and each result once */
    size_t memory; /* bytes by which it increased the memory of the pass */
} ls__op_cost;
typedef void (*ls__op_cost_fn)(void *user, const ls__op_cost *cost);
/* Called after each operation. NULL: none; nothing is measured then. */
void ls__tape_on_profile(ls_tape *tape, ls__op_cost_fn fn, void *user);

/* The largest amount of memory that a pass on this tape used, in bytes. */
size_t ls__tape_peak(const ls_tape *tape);

/* Lets forward use memory that backward will overwrite: `count` floats of parameters' gradients. Scratch memory of forward is
 * placed there if it fits, and results in the gradients of parameters that only earlier operations use. The parameters must be
 * in the order of their gradients' memory and each be used by one operation (a second use fails the pass); the parameter of
 * ls_linear_cross_entropy() must not be among them. The memory stays the caller's, who can read it after backward. NULL, 0:
 * none from now on. */
void ls__tape_alias(ls_tape *tape, float *memory, size_t count);

/* Memory until the next pass begins; NULL (and the pass failed) if it runs out. */
void *ls__tape_array(ls_tape *t, size_t count, size_t size);

/* Whether this is an eval pass. */
bool ls__tape_is_eval(const ls_tape *t);

/* Running statistics of a batch norm after one more batch: (1 - momentum) running + momentum batch. momentum 0: 0.1. */
void ls__batch_norm_update(float *running, const float *batch, float momentum, size_t count);

/* Fails the pass: keeps the thread's message and `status` if it is the first failure. Returns NULL. */
ls_tensor *ls__tape_fail(ls_tape *t, ls_status status);

#endif
