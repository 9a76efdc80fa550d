/* What the operations see of the tape: how a result is made, an operation recorded, and a gradient contributed.
 *
 * An operation's forward checks shapes, makes its result with ls__result(), computes, and records itself with
 * ls__tape_record() if a gradient will be wanted. Its backward reads the gradient of `out` and contributes to those of its
 * inputs and parameters. Contributions come one after the other: the first one overwrites, the others add, and the
 * operation is told which it is. Nobody fills a gradient with zeros first. */
#ifndef LS_TENSOR_TAPE_H
#define LS_TENSOR_TAPE_H

#include "lockstep/tensor.h"
#include "base/arena.h"
#include "base/status.h"
#include "tensor/tick.h"

/* A piece of the arena that can be reused within a pass: an activation, a gradient, or scratch. Gradients are shared
 * between tensors where they are equal (a sum passes its gradient on to both sides), hence the count. */
typedef struct ls__buffer {
    float *data;
    size_t bytes; /* capacity */
    int refs;
    bool lent;               /* in the caller's memory; see lend.c */
    struct ls__buffer *next; /* when free */
} ls__buffer;

typedef struct ls__node ls__node;

typedef struct ls__op {
    const char *name;
    ls_status (*backward)(ls_tape *t, ls__node *n);
} ls__op;

/* Fills out->data again, after ls_forget(). */
typedef void (*ls__remake_fn)(ls_tape *t, const ls__node *n);

enum { LS__NODE_INPUTS = 3, LS__NODE_PARAMS = 3 };

struct ls__node {
    ls__node *before; /* the operation recorded before this one */
    const ls__op *op;
    ls_tensor *out;
    ls_tensor *in[LS__NODE_INPUTS];
    ls_param *param[LS__NODE_PARAMS]; /* in the order in which their hooks fire */
    void *state;                      /* the operation's own, in the arena */
    ls__remake_fn remake;             /* NULL: what it made is kept */
    const ls_param *near;             /* while someone listens: its own parameter, or that of an operation before it */
    double back_flops;
};

struct ls_tape {
    ls__arena arena;
    int threads;
    ls__arena work; /* holds workspace, for ls__gemm_run() */
    float *workspace;
    ls_pass pass;
    ls_param *params;
    int n_params;
    ls__node *last;
    float *lent;           /* the caller's, for what forward makes (lend.c); NULL: none */
    size_t lent_count;     /* floats; below, too */
    size_t lent_used;      /* taken in this pass */
    size_t lent_free;      /* may be taken */
    int lent_next;         /* the first parameter whose gradient's memory may not */
    ls__buffer *free_list; /* the one given back last comes first: it may still be in the cache */
    uint64_t streams;      /* random streams used in this pass */
    ls_tensor *root;       /* where backward started */
    bool open;             /* between begin and backward */
    ls_status status;      /* the first failure of this pass */
    char message[512];
    ls_ready_fn ready;
    void *ready_user;
    ls__tick tick;
    ls_used_fn used;
    void *used_user;
    ls_profile_fn profile;
    void *profile_user;
    int64_t profile_begin; /* when the running operation's forward began */
    size_t profile_used;   /* and what the arena held then */
    const ls_param *profile_near;
};

/* Fails the pass: keeps the thread's message and `status` if they are the first. Returns NULL. */
ls_tensor *ls__tape_fail(ls_tape *t, ls_status status);
/* Begins an operation: false if the pass has failed, is over, or an input is NULL. Stamps the time if someone listens.
 */
bool ls__begin(ls_tape *t, const ls_tensor *a, const ls_tensor *b);
/* "(4, 256, 384)" into `text`, which is also returned. */
enum { LS__SHAPE_TEXT = 96 };
const char *ls__shape_text(char text[LS__SHAPE_TEXT], int dims, const int64_t *shape);
/* Fails with "<op>: <what> <shape> does not fit <what> <shape>" plus `why`. Returns NULL. */
ls_tensor *ls__misfit(ls_tape *t, const char *op, const char *a_name, int a_dims, const int64_t *a_shape,
                      const char *b_name, int b_dims, const int64_t *b_shape, const char *why);
/* True if p has this shape (one to four sizes; 0 ends the list); otherwise fails the pass, naming both. */
bool ls__param_fits(ls_tape *t, const char *op, const ls_param *p, int64_t s0, int64_t s1, int64_t s2, int64_t s3,
                    const ls_tensor *x);

/* A new result; NULL (and the pass failed) when memory ends. */
ls_tensor *ls__result(ls_tape *t, int dims, const int64_t *shape);
/* A tensor over memory that is not the tape's. */
ls_tensor *ls__view(ls_tape *t, const float *data, int dims, const int64_t *shape);

/* Ends an operation: records it when a gradient will be wanted, tells who listens, and returns out. inputs and
 * params may hold NULLs. */
typedef struct ls__tape_record_args {
    const ls__op *op;
    ls_tensor *in[LS__NODE_INPUTS];
    ls_param *param[LS__NODE_PARAMS];
    const void *state; /* copied into the arena */
    size_t state_bytes;
    ls__remake_fn remake;
    double flops, back_flops; /* of the matrix products */
} ls__tape_record_args;
ls_tensor *ls__tape_record(ls_tape *t, ls_tensor *out, const ls__tape_record_args *args);
/* Whether ls__tape_record() will record this. */
bool ls__tape_will_record(const ls_tape *t, const ls__tape_record_args *args);

/* Memory for `count` floats, one reference; NULL when memory ends (message set, pass failed). */
ls__buffer *ls__buffer_take(ls_tape *t, size_t count);
/* The same, never in memory that is lent: for what must outlive the backward of the operation that takes it. */
ls__buffer *ls__buffer_take_own(ls_tape *t, size_t count);
void ls__buffer_drop(ls_tape *t, ls__buffer *b);

/* ---- Memory that is lent (lend.c) */

/* With each pass. */
void ls__lent_begin(ls_tape *t);
/* Whether an operation may use p: false (and the pass failed) if memory of its gradient may have been given out. */
bool ls__lent_use(ls_tape *t, const char *op, const ls_param *p);
/* After an operation was recorded. */
void ls__lent_advance(ls_tape *t);
/* For `count` floats that live until the backward of the operation that is being recorded; NULL: no room. */
float *ls__lent_take(ls_tape *t, size_t count);
/* For `count` floats that live until that operation is recorded; NULL: no room. */
float *ls__lent_rest(const ls_tape *t, size_t count);

/* ---- Gradients */

/* Where to contribute the gradient of x: NULL if none is wanted or memory ended (then t->status is set). *add: add to
 * what is there; otherwise overwrite. */
float *ls__grad(ls_tape *t, ls_tensor *x, bool *add);
/* Contributes all of b as the gradient of x; shares the memory where it can. */
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
