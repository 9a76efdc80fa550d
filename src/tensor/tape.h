/* The tape as operations see it: how to allocate a result, record an operation, and contribute to a gradient.
 *
 * An operation's forward checks shapes, allocates its result with ls__result(), computes, and calls ls__tape_record(), which
 * records it if a gradient is needed. Its backward reads the gradient of `out` and contributes to those of its inputs and
 * parameters. The first contribution overwrites and later ones add (`*add`), so gradients need not be cleared. */
#ifndef LS_TENSOR_TAPE_H
#define LS_TENSOR_TAPE_H

#include <pthread.h>
#include "lockstep/tensor.h"
#include "base/arena.h"
#include "base/status.h"
#include "kern/float_mode.h"
#include "tensor/hooks.h"

/* Memory of the arena that can be reused within a pass: an activation, a gradient, or scratch. Tensors with equal gradients
 * share them (a sum passes its gradient on to both inputs), hence the reference count. */
typedef struct ls__buffer {
    float *data;
    size_t bytes; /* capacity */
    int refs;
    bool aliased;                    /* in user-owned memory; see alias.c */
    struct ls__buffer *next;         /* when free */
    struct ls__buffer *taken_before; /* in the list of ls_tape.taken, if `listed` */
    bool listed;
} ls__buffer;

typedef struct ls__node ls__node;

typedef struct ls__operation {
    const char *name;
    ls_status (*backward)(ls_tape *t, ls__node *n);
} ls__operation;

/* Computes out->data again, after ls_recompute(). */
typedef void (*ls__recompute_fn)(ls_tape *t, const ls__node *n);

enum { LS__NODE_INPUTS = 3, LS__NODE_PARAMS = 6 };

struct ls__node {
    ls__node *before; /* the operation recorded before this one */
    const ls__operation *op;
    ls_tensor *out;
    ls_tensor *in[LS__NODE_INPUTS];
    ls_param *param[LS__NODE_PARAMS]; /* in the order in which their hooks are called */
    void *state;                      /* the operation's own, in the arena */
    ls__recompute_fn recompute;       /* NULL: the result is kept */
    bool block;                       /* see ls__tape_record_args */
    bool unread;                      /* backward does not read the result: the next operation may overwrite it */
    const ls_param *near;             /* while profiling: its own parameter, or that of an earlier operation */
    double back_flops;
};

struct ls_tape {
    ls__arena arena;
    int threads;
    pthread_t flushing; /* whose OpenMP threads flush denormal numbers */
    ls__arena work;     /* holds workspace, for ls__gemm_run() */
    float *workspace;
    ls_pass pass;
    ls_param *params;
    int n_params;
    ls__node *last;
    float *alias;          /* user-owned memory for results of forward (alias.c); NULL: none */
    size_t alias_count;    /* floats; so are the next two */
    size_t alias_used;     /* in use in this pass */
    size_t alias_free;     /* may be used */
    int alias_next;        /* the first parameter whose gradient's memory may not be used */
    ls__buffer *free_list; /* last in, first out: its memory may still be in the cache */
    ls__buffer *taken;     /* while discarding activations: the buffer that was taken last */
    bool discarding;       /* a block's first forward: nothing is recorded; op_block.c */
    bool replaying;        /* its second one, within backward */
    uint64_t streams;      /* random streams used in this pass */
    ls_tensor *root;       /* where backward started */
    bool open;             /* between begin and backward */
    ls_status status;      /* the first failure of this pass */
    char message[512];
    ls_ready_fn ready;
    void *ready_user;
    ls__tick tick;
    ls__used_fn used;
    void *used_user;
    ls__op_cost_fn profile;
    void *profile_user;
    int64_t profile_begin; /* when the running operation's forward began */
    size_t profile_used;   /* and how much of the arena was in use then */
    const ls_param *profile_near;
};

/* Begins an operation: false if the pass has failed, is over, or an input is NULL. */
bool ls__operation_begin(ls_tape *t, const ls_tensor *a, const ls_tensor *b);
/* "(4, 256, 384)" into `text`, which is also returned. */
enum { LS__SHAPE_TEXT = 96 };
const char *ls__shape_text(char text[LS__SHAPE_TEXT], int dims, const int64_t *shape);
/* Fails with "<op>: <what> <shape> does not fit <what> <shape>" plus `why`. Returns NULL. */
ls_tensor *ls__shape_error(ls_tape *t, const char *op, const char *a_name, int a_dims, const int64_t *a_shape,
                           const char *b_name, int b_dims, const int64_t *b_shape, const char *why);
/* LS_EINVAL for a pass, or parameter number i of one, that is not valid. */
LS_MUST_CHECK ls_status ls__pass_check(const ls_pass *pass);
LS_MUST_CHECK ls_status ls__param_check(const ls_param *p, int i);
/* True if p is among the parameters of the pass; otherwise fails the pass. To be called before p is read. */
bool ls__param_given(ls_tape *t, const char *op, const ls_param *p);
/* True if there is such an activation; otherwise fails the pass. */
bool ls__activation_exists(ls_tape *t, const char *op, ls_activation activation);
/* True if p is given and has this shape (one to four sizes; 0 ends the list); otherwise fails the pass, naming both. */
bool ls__param_fits(ls_tape *t, const char *op, const ls_param *p, int64_t s0, int64_t s1, int64_t s2, int64_t s3,
                    const ls_tensor *x);

/* A new result; NULL (and the pass failed) if memory runs out. */
ls_tensor *ls__result(ls_tape *t, int dims, const int64_t *shape);
/* A tensor in memory that is not the tape's. */
ls_tensor *ls__view(ls_tape *t, const float *data, int dims, const int64_t *shape);

/* Ends an operation: records it if a gradient is needed, calls the hooks, and returns out. `in` and `param` may contain
 * NULL. */
typedef struct ls__tape_record_args {
    const ls__operation *op;
    ls_tensor *in[LS__NODE_INPUTS];
    ls_param *param[LS__NODE_PARAMS];
    const void *state; /* copied into the arena */
    size_t state_bytes;
    ls__recompute_fn recompute;
    bool unread;
    bool block; /* op_block.c: recorded whatever its inputs are, and not profiled, since its operations are */
    double flops, back_flops; /* of the matrix products */
} ls__tape_record_args;
ls_tensor *ls__tape_record(ls_tape *t, ls_tensor *out, const ls__tape_record_args *args);
/* Runs the backward of everything that is recorded. */
LS_MUST_CHECK ls_status ls__tape_run_back(ls_tape *t);
/* Whether ls__tape_record() will record this. */
bool ls__tape_will_record(const ls_tape *t, const ls__tape_record_args *args);

/* Memory for `count` floats, one reference; NULL if memory runs out (message set, pass failed). */
ls__buffer *ls__buffer_take(ls_tape *t, size_t count);
/* The same, never aliased: for what must outlive the backward of the operation that allocates it. */
ls__buffer *ls__buffer_take_own(ls_tape *t, size_t count);
void ls__buffer_drop(ls_tape *t, ls__buffer *b);

/* ---- Aliased memory (alias.c) */

/* At the start of each pass. */
void ls__alias_begin(ls_tape *t);
/* Whether an operation may use p: false (and the pass failed) if the memory of its gradient may be in use. */
bool ls__alias_check(ls_tape *t, const char *op, const ls_param *p);
/* After an operation was recorded. */
void ls__alias_advance(ls_tape *t);
/* Memory for `count` floats until the backward of the operation that is being recorded; NULL: does not fit. */
float *ls__alias_take(ls_tape *t, size_t count);
/* Memory for `count` floats until that operation is recorded; NULL: does not fit. */
float *ls__alias_rest(const ls_tape *t, size_t count);

/* ---- Gradients */

/* Where to contribute the gradient of x; NULL if none is needed, or memory ran out (then t->status is set). *add: add to its
 * contents; otherwise overwrite them. */
float *ls__grad(ls_tape *t, ls_tensor *x, bool *add);
/* Contributes all of b as the gradient of x; shares the memory where possible. */
ls_status ls__grad_share(ls_tape *t, ls_tensor *x, ls__buffer *b);
/* Where to contribute the gradient of a parameter; NULL if frozen. */
float *ls__param_grad(ls_tape *t, ls_param *p, bool *add);
static inline bool ls__wants_grad(const ls_param *p)
{
    return p && p->grad;
}

/* Rows and the last dimension. */
static inline int64_t ls__cols(const ls_tensor *x)
{
    return x->shape[x->dims - 1];
}
static inline int64_t ls__rows(const ls_tensor *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->dims - 1; i++) rows *= x->shape[i];
    return rows;
}
static inline bool ls__same_shape(const ls_tensor *a, const ls_tensor *b)
{
    if (a->dims != b->dims) return false;
    for (int i = 0; i < a->dims; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

#endif
