/* lockstep/tensor.h: float32 tensors and a tape that records the operations of a forward pass and runs them backward.
 *
 *     ls_tape_begin(tape, params, n_params, &pass);
 *     ls_tensor *x = ls_embedding(tape, tokens, batch_size, seq_len, wte, wpe, NULL);
 *     x = ls_linear(tape, ls_layer_norm(tape, x, g, b, 1e-5f), w, bias, NULL);
 *     ls_tensor *loss = ls_linear_cross_entropy(tape, x, wte, &targets);
 *     if (ls_tape_backward(tape, loss)) ...                        // gradients are in params[i].grad
 *
 * Memory   tensors live in the tape's arena until the next ls_tape_begin(). A pass of the same shape as the one before
 *          allocates nothing. Backward reuses the memory of activations: after it, only tensors of one element (losses)
 *          can be read.
 * Failure  an operation returns NULL if its shapes do not fit (the message names the operation and both shapes) or memory
 *          runs out. The tape keeps the first failure, and operations on NULL do nothing and return NULL. A model therefore
 *          needs no check per line: ls_tape_status() or ls_tape_backward() returns the failure.
 * Bits     do not depend on the number of threads or the kind of CPU: work is divided by shape alone. Exception: a NaN's sign and
 *          payload. Denormal numbers count as 0, operands and results: a ReLU of 1e-39 has the gradient 0.
 * Threads  a tape belongs to one thread at a time; operations use OpenMP inside. Two tapes may run at the same time. A child of
 *          fork() has none of OpenMP's threads and waits for them for ever if its parent used several: exec() a program there. */
#ifndef LOCKSTEP_TENSOR_H
#define LOCKSTEP_TENSOR_H

#include <stdbool.h>
#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_DIMS 4

typedef struct ls_tape ls_tape;

/* A parameter. Its memory is user-owned, usually part of a flat block. */
typedef struct ls_param {
    const char *name;
    float *value;
    float *grad; /* NULL: frozen, that is, no gradient is computed and no hook is called. May change between passes */
    int dims;
    int64_t shape[LS_MAX_DIMS];
    /* set by ls_tape_begin() and the tape: */
    int index;     /* in the array given to ls_tape_begin() */
    int pending;   /* uses in this pass whose backward has not run yet */
    bool written;  /* grad holds a contribution, so the next one is added */
    bool ready;    /* the hook was called */
    ls_tape *tape; /* the tape of the current pass */
    /* the values in bfloat16, instead of `value`, which is then NULL. Of frozen matrices that ls_linear(), ls_linear_joint(),
     * ls_embedding() and ls_linear_cross_entropy() read. The bits are those of the same values in float32. NULL: none */
    const uint16_t *half;
} ls_param;

/* The result of an operation. data is contiguous, row-major. */
typedef struct ls_tensor {
    float *data;
    int dims;
    int64_t shape[LS_MAX_DIMS];
    /* the tape's: */
    struct ls__buffer *memory; /* holds `data`; NULL: not the tape's to reuse */
    struct ls__buffer *grad;   /* NULL: no contribution yet */
    struct ls__node *maker;    /* the recorded operation that computed it; NULL: none */
    bool needs_grad;
} ls_tensor;

/* ---- The tape */

/* A hook that is called once per backward for each parameter with a gradient, as soon as the gradient is final and the weight
 * will not be read again in this pass: it may be reduced, even updated, at once. The order is the same in every pass of the
 * same model. Runs in the thread that calls ls_tape_backward(). A status other than LS_OK ends backward with that status. */
typedef ls_status (*ls_ready_fn)(void *user, ls_param *param);

typedef struct ls_tape_options {
    int threads;         /* OpenMP threads inside an operation; 0: OpenMP's default */
    size_t memory_limit; /* bytes of address space for activations; 0: the machine's memory */
    void *reserved[2];
} ls_tape_options;

LS_API LS_MUST_CHECK ls_status ls_tape_open(ls_tape **out, const ls_tape_options *options);
LS_API void ls_tape_free(ls_tape **tape);
LS_API void ls_tape_on_ready(ls_tape *tape, ls_ready_fn fn, void *user); /* NULL: no hook */

typedef enum ls_pass_mode {
    LS_PASS_TRAIN = 0,      /* backward overwrites param.grad */
    LS_PASS_ACCUMULATE = 1, /* backward adds to param.grad */
    LS_PASS_EVAL = 2,       /* no backward; dropout does nothing, batch norm uses its running statistics */
} ls_pass_mode;

typedef struct ls_pass {
    ls_pass_mode mode;
    uint64_t seed;   /* for dropout, with `stream`: the same pair gives the same masks on any rank and thread count */
    uint64_t stream; /* number of this pass, below 2^48; e.g. step * slots + slot */
    void *reserved[2];
} ls_pass;

/* Starts a pass and discards all tensors of the one before. `params` are the parameters of the model; no others may be used.
 * The hook is called for each that has a gradient (for an unused one with a gradient of zero, at the end of backward). pass
 * may be NULL. The array is user-owned and must not move until backward is done. */
LS_API LS_MUST_CHECK ls_status ls_tape_begin(ls_tape *tape, ls_param *params, int n_params, const ls_pass *pass);
/* The first failure of this pass, with its message in ls_error(); LS_OK if there was none. */
LS_API LS_MUST_CHECK ls_status ls_tape_status(ls_tape *tape);
/* Computes all gradients, from `loss` (one element, gradient 1) back to the parameters. Once per pass. */
LS_API LS_MUST_CHECK ls_status ls_tape_backward(ls_tape *tape, ls_tensor *loss);

/* User-owned memory as a read-only tensor without gradient. It must stay until backward is done. */
LS_API ls_tensor *ls_tape_input(ls_tape *tape, const float *data, int dims, const int64_t *shape);
/* A parameter's value as a tensor with gradient. */
LS_API ls_tensor *ls_tape_param(ls_tape *tape, ls_param *param);
LS_API int64_t ls_tensor_count(const ls_tensor *x); /* elements */

/* Marks a result that no later operation of this forward pass reads. Its memory is reused, and backward recomputes it with the
 * same bits. Works for results that are cheap to recompute: those of norms and of linear layers with an activation. No effect
 * on others. */
LS_API void ls_recompute(ls_tape *t, ls_tensor *x);

/* A part of a model: computes its result from x, with operations on the tape. */
typedef ls_tensor *(*ls_block_fn)(void *user, ls_tape *t, ls_tensor *x);
/* fn(user, t, x), of which only x and the result are kept; backward computes the rest again, with the same bits, and in an eval pass
 * it is dropped. The block must compute the same again, from x, from `user` (which is copied) and from `params`, which no other
 * operation may use. A block inside of a block is computed as if it stood alone. */
LS_API ls_tensor *ls_recompute_block(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *user, size_t user_bytes,
                                     ls_param *params, int n_params);

/* ---- Operations. x is (..., C) unless stated; leading dimensions are rows. */

typedef struct ls_linear_options {
    bool transposed;                /* w is (out, in); default (in, out), as Hugging Face's GPT-2 stores it */
    ls_activation activation;       /* applied to x w + b */
    ls_tensor *add;                 /* added at the end (a residual), same shape as the result; NULL: nothing */
    ls_activation input_activation; /* applied to x first; its result is computed on the fly and never stored */
    void *reserved[2];
} ls_linear_options;

/* activation(input_activation(x) w + b) + add. b and options may be NULL. */
LS_API ls_tensor *ls_linear(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_linear_options *options);

/* Up to three linear layers of one input, whose results are side by side: (..., out 1 + out 2 + ...). Weights are (out, in). b
 * is NULL or has as many biases. One product where the weights are next to each other in memory. */
LS_API ls_tensor *ls_linear_joint(ls_tape *t, ls_tensor *x, ls_param *const *w, ls_param *const *b, int count);
/* silu(gate) times up, which are the halves of x (..., 2C): (..., C). */
LS_API ls_tensor *ls_swiglu(ls_tape *t, ls_tensor *x);

/* wte[tokens[b,i]] + wpe[first[b] + i]: (batch_size, seq_len, C). wpe may be NULL; first NULL: 0. tokens (batch_size, seq_len) are
 * user-owned and must stay until backward is done; one outside of the vocabulary is LS_EINVAL. */
LS_API ls_tensor *ls_embedding(ls_tape *t, const int32_t *tokens, int64_t batch_size, int64_t seq_len, ls_param *wte,
                               ls_param *wpe, const int64_t *first);

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
/* Rows of x (..., C) by number, in any order: (count, C). `rows` is copied; one outside of x is LS_EINVAL. */
LS_API ls_tensor *ls_select_rows(ls_tape *t, ls_tensor *x, const int64_t *rows, int64_t count);
/* A row in front of each sequence, and positions added to all: x (B, ..., C) with T rows a sequence, token (1, 1, C), positions (1,
 * T + 1, C): (B, T + 1, C). */
LS_API ls_tensor *ls_class_token(ls_tape *t, ls_tensor *x, ls_param *token, ls_param *positions);
/* Keeps an element with probability 1 - p and scales it by 1 / (1 - p). */
LS_API ls_tensor *ls_dropout(ls_tape *t, ls_tensor *x, float p);

/* How the angles of rotary positions grow. */
typedef enum ls_rope_kind {
    LS_ROPE_DEFAULT = 0, /* pair i of D / 2 turns by theta^(-2i / D) per position */
    LS_ROPE_LINEAR = 1,  /* divided by `factor` */
    LS_ROPE_LLAMA3 = 2,  /* low frequencies are divided by `factor`, as in Llama 3.1 */
} ls_rope_kind;
typedef struct ls_rope {
    ls_rope_kind kind;
    float theta;                             /* at least 1 */
    float factor;                            /* of LINEAR and LLAMA3 */
    float low_freq_factor, high_freq_factor; /* LLAMA3: divided below so many turns in `original_context`, kept above */
    int original_context;                    /* LLAMA3 */
} ls_rope;
/* Cosines and sines of the positions first[i], first[i] + 1, ... of n_first sequences (or of all, if n_first is 1; NULL: from 0):
 * (n_first length, D), without gradient. D is even. */
LS_API ls_tensor *ls_rotary_table(ls_tape *t, const ls_rope *rope, int64_t D, const int64_t *first, int64_t n_first,
                                  int64_t length);
/* Rotates the first `heads` heads of D elements of each row of x (B, T, C). x may be overwritten and must not be used by other
 * operations. The table must be of this pass. */
LS_API ls_tensor *ls_rotary(ls_tape *t, ls_tensor *x, const ls_tensor *table, int heads);
/* RMS norm of each head of queries and keys in qkv (see ls_attention), with weights (D). */
LS_API ls_tensor *ls_head_norm(ls_tape *t, ls_tensor *qkv, ls_param *q_weight, ls_param *k_weight, int heads,
                               int kv_heads, float eps);

/* Keys and values of earlier tokens, for generation. User-owned memory: k and v are (capacity, kv_heads D). */
typedef struct ls_kv_cache {
    float *k, *v;
    int64_t capacity;
    int64_t length; /* rows in use; attention adds the new ones */
    void *reserved[2];
} ls_kv_cache;

typedef struct ls_attention_options {
    int heads;    /* required */
    int kv_heads; /* heads of keys and values, a divisor of heads, each shared by a group of them; 0: as many */
    bool full;    /* every position attends to all positions; default: causal */
    /* full: to the first lengths[b] positions of sequence b alone, at least 1; the rest is padding, and its keys and values have no
     * gradient. (B), copied; NULL: to all */
    const int32_t *lengths;
    int64_t window;     /* causal: a position attends to at most this many, the last being its own; 0: all before it */
    float dropout;      /* of the attention weights */
    ls_kv_cache *cache; /* causal eval passes: one per sequence; queries also attend to the cached rows; NULL: none */
    void *reserved[2];
} ls_attention_options;

/* Multi-head attention. qkv is (B, T, (heads + 2 kv_heads) D), queries, keys and values side by side; the result is
 * (B, T, heads D). Memory is linear in T. */
LS_API ls_tensor *ls_attention(ls_tape *t, ls_tensor *qkv, const ls_attention_options *options);

typedef struct ls_cross_entropy_options {
    const int32_t *targets; /* one per row of x; user-owned, must stay until backward is done */
    const float *weights;   /* one per row; 0: the row is ignored (its target may be anything); NULL: all 1 */
    double divisor;         /* the loss is the weighted sum divided by this; 0: the sum of the weights */
    float *row_losses;      /* receives each row's unweighted loss (0 for ignored rows); NULL: not wanted */
    int32_t *predictions;   /* receives each row's class of largest logit (-1 for ignored rows); NULL: not wanted */
    void *reserved[2];
} ls_cross_entropy_options;

/* Softmax cross-entropy of the rows of logits (..., V): (1). */
LS_API ls_tensor *ls_cross_entropy(ls_tape *t, ls_tensor *logits, const ls_cross_entropy_options *options);
/* The same with logits = x w^T, w (V, C), computed in chunks of rows, so that the logits of the whole batch are never in
 * memory; both gradients are computed in forward. Its result must be the loss given to ls_tape_backward(). */
LS_API ls_tensor *ls_linear_cross_entropy(ls_tape *t, ls_tensor *x, ls_param *w,
                                          const ls_cross_entropy_options *options);

/* ---- Images: x is (B, H, W, C), channels last */

typedef struct ls_conv2d_options {
    int stride;  /* 0: 1 */
    int padding; /* zeros on each side */
    void *reserved[2];
} ls_conv2d_options;
/* w is (out, in, kh, kw), as in torch; b (out) or NULL. */
LS_API ls_tensor *ls_conv2d(ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b, const ls_conv2d_options *options);

typedef struct ls_batch_norm_state {
    float *mean, *var; /* running statistics, (C), user-owned; training updates them, var with the unbiased estimate */
    float momentum;    /* 0: 0.1 */
    float eps;         /* 0: 1e-5 */
    /* (C), user-owned: training writes mean and unbiased variance of the batch there and leaves the running statistics as they
     * are; NULL: it updates them, to (1 - momentum) running + momentum batch */
    float *batch_mean, *batch_var;
    void *reserved[2];
} ls_batch_norm_state;
/* Statistics over several batches that are normalized at the same time, each on a tape of its own (synchronized batch norm). */
typedef struct ls_batch_norm_sync {
    /* Receives `count` numbers of this batch and returns those of all batches, (n, count), in an order that is the same everywhere;
     * valid until the next call. Called once in forward and once in backward, of the last norm first. */
    ls_status (*gather)(void *user, const double *own, size_t count, const double **all, size_t *n);
    void *user;
} ls_batch_norm_sync;
typedef struct ls_batch_norm_options {
    ls_tensor *add; /* added to the result (a residual), same shape as x; NULL: nothing */
    bool relu;      /* then 0 where that is negative */
    /* in training: statistics of all batches instead of this one's. Gradients of weight and bias are those of this batch. Must stay until
     * backward is done; NULL: none */
    const ls_batch_norm_sync *sync;
    void *reserved[2];
} ls_batch_norm_options;
/* options may be NULL. */
LS_API ls_tensor *ls_batch_norm(ls_tape *t, ls_tensor *x, ls_param *weight, ls_param *bias, ls_batch_norm_state *state,
                                const ls_batch_norm_options *options);

typedef struct ls_pool2d_options {
    int size;    /* of the square window, at most 15; 0: 2 */
    int stride;  /* 0: size */
    int padding; /* on each side, at most half of size; a maximum ignores the padding, a mean counts it as zeros */
    void *reserved[2];
} ls_pool2d_options;
/* options may be NULL. */
LS_API ls_tensor *ls_max_pool2d(ls_tape *t, ls_tensor *x, const ls_pool2d_options *options);
LS_API ls_tensor *ls_avg_pool2d(ls_tape *t, ls_tensor *x, const ls_pool2d_options *options);
LS_API ls_tensor *ls_global_avg_pool2d(ls_tape *t, ls_tensor *x); /* (B, C) */

#ifdef __cplusplus
}
#endif
#endif
