/* lockstep/tensor.h: float32 tensors, a tape that records the operations of a forward pass and walks them back.
 *
 *     ls_tape_begin(tape, params, n_params, &pass);
 *     ls_tensor *x = ls_embedding(tape, tokens, B, T, wte, wpe, 0);
 *     x = ls_linear(tape, ls_layer_norm(tape, x, g, b, 1e-5f), w, bias, NULL);
 *     ls_tensor *loss = ls_linear_cross_entropy(tape, x, wte, &ce);
 *     if (ls_tape_backward(tape, loss)) ...                        // gradients are in params[i].grad
 *
 * Memory   tensors live in the tape's arena and are gone at the next ls_tape_begin(). A pass of the same shape as the
 *          one before takes nothing from the heap. Backward reuses the memory of activations as it goes: afterwards only
 *          tensors of one element (losses) can be read.
 * Failure  an operation returns NULL when its shapes do not fit (the message names the operation and both shapes) or
 *          memory ends. The tape keeps the first failure; operations on NULL do nothing and return NULL; so a model may
 *          be written without a check per line, and ls_tape_status() or ls_tape_backward() tells at the end.
 * Bits     do not depend on the number of threads: work is cut by shape alone.
 * Threads  a tape belongs to one thread at a time; inside an operation it uses OpenMP. Two tapes may run at once. */
#ifndef LOCKSTEP_TENSOR_H
#define LOCKSTEP_TENSOR_H

#include <stdbool.h>
#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_DIMS 4

typedef struct ls_tape ls_tape;

/* A parameter: the caller's memory, usually views into flat blocks. The tape's fields are set by ls_tape_begin(). */
typedef struct ls_param {
    const char *name;
    float *value;
    float *grad; /* NULL: frozen; no gradient is computed and no hook fires. May change between passes */
    int dims;
    int64_t shape[LS_MAX_DIMS];
    /* the tape's: */
    int index;     /* place in the array given to ls_tape_begin() */
    int pending;   /* uses of this pass that have not been walked back */
    bool written;  /* grad holds a contribution (so the next one adds) */
    bool ready;    /* the hook has fired */
    ls_tape *tape; /* the tape whose pass it takes part in */
} ls_param;

/* A result of an operation. data is contiguous, row by row. */
typedef struct ls_tensor {
    float *data;
    int dims;
    int64_t shape[LS_MAX_DIMS];
    /* the tape's: */
    struct ls__buffer *memory; /* what `data` lies in; NULL: not the tape's to reuse */
    struct ls__buffer *grad;   /* NULL: no contribution yet */
    struct ls__node *maker;    /* the recorded operation that it came from; NULL: none */
    bool needs_grad;
} ls_tensor;

/* Called once a backward for each parameter that has a gradient, as soon as that is final and the weight itself will
 * not be read any more in this pass: it may be reduced, even updated, at once. The order is the same in every pass of
 * the same model. Called in the thread that runs ls_tape_backward(). A status other than LS_OK ends backward with that
 * status. */
typedef ls_status (*ls_ready_fn)(void *user, ls_param *param);
/* Called in forward when an operation has used a weight of two dimensions or more: a place in the model, once a layer's product. */
typedef void (*ls_used_fn)(void *user, const ls_param *param);

/* Called in that thread, too, every millisecond or so, between pieces of the larger operations, in forward and in backward: to
 * drive what must not wait for their end, such as a network. */
typedef void (*ls_tick_fn)(void *user);

/* What one operation cost, for whoever listens; see ls_tape_on_profile(). */
typedef struct ls_profile {
    const char *op;    /* "linear", "attention"... */
    const char *param; /* the name of its (first) parameter, or "" */
    const char *near;  /* the same, or, for an operation without one, that of the operation recorded before it */
    bool backward;
    int dims;
    int64_t shape[LS_MAX_DIMS]; /* of the output */
    int64_t ns;
    double flops;  /* multiplications and additions of its matrix products; 0 for others */
    double bytes;  /* what it must at least read and write: each operand and each result once */
    size_t memory; /* bytes by which it made the pass's memory grow */
} ls_profile;
typedef void (*ls_profile_fn)(void *user, const ls_profile *profile);

typedef struct ls_tape_options {
    int threads;         /* OpenMP threads inside an operation; 0: OpenMP's default */
    size_t memory_limit; /* bytes of address space for activations; 0: the machine's memory */
} ls_tape_options;

LS_API LS_MUST_CHECK ls_status ls_tape_open(ls_tape **out, const ls_tape_options *options);
LS_API void ls_tape_free(ls_tape **tape);
LS_API void ls_tape_on_ready(ls_tape *tape, ls_ready_fn fn, void *user);     /* NULL: no hook */
LS_API void ls_tape_on_tick(ls_tape *tape, ls_tick_fn fn, void *user);       /* NULL: nobody is called */
LS_API void ls_tape_on_used(ls_tape *tape, ls_used_fn fn, void *user);       /* the same */
LS_API void ls_tape_on_profile(ls_tape *tape, ls_profile_fn fn, void *user); /* NULL: no profile, no cost */
LS_API int ls_tape_threads(const ls_tape *tape);
/* Lends memory that nobody needs while a forward goes on: gradients which backward will write. Scratch of forward goes there
 * if it fits, and results go where the gradients of parameters are that only operations before theirs use. The parameters
 * must come in the order of their gradients' memory, and each be used by one operation (another use fails the pass); that of a
 * fused loss must not be among them. It stays the caller's, who has it back when backward is done. NULL, 0: no more. */
LS_API void ls_tape_lend(ls_tape *tape, float *memory, size_t count);
/* The most memory that passes on this tape took, in bytes. */
LS_API size_t ls_tape_peak(const ls_tape *tape);

typedef struct ls_pass {
    bool eval;       /* nothing is recorded, dropout passes through, batch norm uses its running statistics */
    bool accumulate; /* gradients are added to what param.grad holds; default: the first contribution overwrites */
    uint64_t seed;   /* for dropout, with `stream`: the same pair gives the same masks on any rank and thread count */
    uint64_t stream; /* which pass this is, below 2^48; e.g. step * slots + slot */
} ls_pass;

/* Starts a pass: forgets all tensors of the one before. `params` are those of the model; only they may be used, and
 * each one that has a gradient gets its hook (an unused one too, with a gradient of zero, at the end of backward). pass
 * may be NULL. The array stays the caller's and must not move until backward is done. */
LS_API LS_MUST_CHECK ls_status ls_tape_begin(ls_tape *tape, ls_param *params, int n_params, const ls_pass *pass);
/* The first failure of this pass, its message back in ls_error(); LS_OK if none. */
LS_API LS_MUST_CHECK ls_status ls_tape_status(ls_tape *tape);
/* Walks the tape back from `loss` (one element, gradient 1). Once per pass. */
LS_API LS_MUST_CHECK ls_status ls_tape_backward(ls_tape *tape, ls_tensor *loss);

/* ---- Tensors that are no result */

/* The caller's memory, read only, as a tensor without gradient. Must stay until backward is done. */
LS_API ls_tensor *ls_input(ls_tape *t, const float *data, int dims, const int64_t *shape);
/* A parameter's value as a tensor with gradient. */
LS_API ls_tensor *ls_use(ls_tape *t, ls_param *p);
/* Memory of the tape, not initialised and without gradient; e.g. for a batch of images. */
LS_API ls_tensor *ls_scratch(ls_tape *t, int dims, const int64_t *shape);
LS_API int64_t ls_tensor_count(const ls_tensor *x);

/* ---- Operations. x is (..., C) unless stated; leading dimensions are rows. */

typedef enum ls_activation {
    LS_IDENTITY = 0,
    LS_GELU_TANH = 1, /* GPT-2's "gelu_new" */
    LS_GELU_ERF = 2,
    LS_SILU = 3,
    LS_RELU = 4,
} ls_activation;

typedef struct ls_linear_options {
    bool out_in;              /* w is (out, in); default (in, out), as Hugging Face GPT-2 stores it */
    ls_activation activation; /* applied to x w + b */
    ls_tensor *add;           /* added at the end (a residual), same shape as the result; NULL: nothing */
    ls_activation of_input;   /* applied to x first; its result is made as it is needed and never stored */
} ls_linear_options;

/* Gives up the values of a result that no later operation of this forward reads; where backward reads them, it computes them
 * again, with the same bits. Acts on results that are cheap to make again, of norms and of linear layers with an activation,
 * and has no effect on others. */
LS_API void ls_forget(ls_tape *t, ls_tensor *x);

/* activation(of_input(x) w + b) + add. b may be NULL, options too. */
LS_API ls_tensor *ls_linear(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_linear_options *options);

/* wte[tokens[b,i]] + wpe[first + i]: (B, T, C). wpe may be NULL. Tokens stay the caller's until backward is done; one
 * beyond the vocabulary is LS_EINVAL. */
LS_API ls_tensor *ls_embedding(ls_tape *t, const int32_t *tokens, int64_t B, int64_t T, ls_param *wte, ls_param *wpe,
                               int64_t first);

LS_API ls_tensor *ls_layer_norm(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, float eps);
LS_API ls_tensor *ls_rms_norm(ls_tape *t, ls_tensor *x, ls_param *weight, float eps);
LS_API ls_tensor *ls_activate(ls_tape *t, ls_tensor *x, ls_activation activation);
LS_API ls_tensor *ls_add(ls_tape *t, ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_mul(ls_tape *t, ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_scale(ls_tape *t, ls_tensor *x, float factor);
LS_API ls_tensor *ls_sum(ls_tape *t, ls_tensor *x);  /* over all elements: (1) */
LS_API ls_tensor *ls_mean(ls_tape *t, ls_tensor *x); /* over all elements: (1) */
/* The same elements in another shape; no copy. */
LS_API ls_tensor *ls_reshape(ls_tape *t, ls_tensor *x, int dims, const int64_t *shape);
/* Keeps an element with probability 1 - p and scales it by 1 / (1 - p). */
LS_API ls_tensor *ls_dropout(ls_tape *t, ls_tensor *x, float p);

/* Keys and values of tokens already seen, for generation. The caller's memory: k and v are (capacity, C). */
typedef struct ls_kv_cache {
    float *k, *v;
    int64_t capacity;
    int64_t length; /* rows in use; attention adds the new ones */
} ls_kv_cache;

typedef struct ls_attention_options {
    int heads;          /* required; divides C */
    bool full;          /* every position sees all; default causal */
    float dropout;      /* of the attention weights */
    ls_kv_cache *cache; /* eval passes with B = 1, causal: queries also see the cached rows; NULL: none */
} ls_attention_options;

/* Multi-head attention of qkv (B, T, 3C), queries, keys and values side by side: (B, T, C). Memory grows linearly in
 * T. */
LS_API ls_tensor *ls_attention(ls_tape *t, ls_tensor *qkv, const ls_attention_options *options);

typedef struct ls_cross_entropy_options {
    const int32_t *targets; /* one per row of x; stays the caller's until backward is done */
    const float *weights;   /* one per row; 0: ignored (its target may be anything); NULL: all 1 */
    double divisor;         /* the loss is the weighted sum divided by this; 0: the sum of the weights */
    float *row_losses;      /* filled with each row's unweighted loss when not NULL (0 for ignored rows) */
} ls_cross_entropy_options;

/* Softmax cross-entropy of the rows of logits (..., V): (1). */
LS_API ls_tensor *ls_cross_entropy(ls_tape *t, ls_tensor *logits, const ls_cross_entropy_options *options);
/* The same with logits = x w^T, w (V, C), in chunks of rows, so that the logits of the whole batch are never held; both
 * gradients are computed on the way. Its result must be what ls_tape_backward() starts from. */
LS_API ls_tensor *ls_linear_cross_entropy(ls_tape *t, ls_tensor *x, ls_param *w,
                                          const ls_cross_entropy_options *options);

/* ---- Images: x is (B, C, H, W) */

typedef struct ls_conv2d_options {
    int stride;  /* 0: 1 */
    int padding; /* zeros on each side */
} ls_conv2d_options;
/* w is (out, in, kh, kw); b (out) or NULL. */
LS_API ls_tensor *ls_conv2d(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_conv2d_options *options);

typedef struct ls_batch_norm_state {
    float *mean,
        *var;       /* running statistics, (C), the caller's; training updates them, var with the unbiased estimate */
    float momentum; /* 0: 0.1 */
    float eps;      /* 0: 1e-5 */
} ls_batch_norm_state;
LS_API ls_tensor *ls_batch_norm(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, ls_batch_norm_state *state);

LS_API ls_tensor *ls_max_pool2d(ls_tape *t, ls_tensor *x, int size, int stride);
LS_API ls_tensor *ls_avg_pool2d(ls_tape *t, ls_tensor *x, int size, int stride);
LS_API ls_tensor *ls_global_avg_pool2d(ls_tape *t, ls_tensor *x); /* (B, C) */

#ifdef __cplusplus
}
#endif
#endif
