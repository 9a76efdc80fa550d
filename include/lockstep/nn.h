/* lockstep/nn.h: models, optimisers and their files.
 *
 * Memory   a model's parameters are one flat block of float32, and so are its gradients: whoever reduces, clips,
 *          updates or saves them walks one array. The block may be the caller's (shared between ranks, say).
 * Bits     everything here depends on shapes, seeds and step numbers alone, never on the number of threads. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/base.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models. A model is a list of parameters and a way to compute its loss on a tape. */
typedef struct ls_model ls_model;

/* Where one parameter lies in the flat block. */
typedef struct ls_place {
    const char *name;
    int dims;
    int64_t shape[LS_MAX_DIMS]; /* 1 beyond dims */
    size_t offset;              /* of its first element; a multiple of 16, so that each begins on a cache line */
    size_t count;               /* elements, without the padding behind */
} ls_place;

typedef struct ls_gpt2_options {
    int layers;    /* transformer blocks; 0: 12 */
    int width;     /* channels; 0: 768 */
    int heads;     /* attention heads, a divisor of width; 0: width / 64, at least 1 */
    int vocab;     /* tokens; 0: 50,257 */
    int context;   /* positions, the longest sequence; 0: 1,024 */
    float dropout; /* of residual branches, embeddings and attention weights, while training; 0: none */
    float embd_dropout, attn_dropout; /* of embeddings and of attention weights alone; 0: as `dropout`; < 0: none */
    float norm_eps;                   /* of the layer norms; 0: 1e-5 */
} ls_gpt2_options;

/* Fills in the defaults and checks. What cannot be is LS_EINVAL with the option's name; `options` is then unchanged. */
LS_API LS_MUST_CHECK ls_status ls_gpt2_options_check(ls_gpt2_options *options);
/* A size by name: "gpt2" (124M), "gpt2-medium" (355M), "gpt2-large" (774M), "gpt2-xl" (1.5B). */
LS_API LS_MUST_CHECK ls_status ls_gpt2_preset(const char *name, ls_gpt2_options *out);

typedef struct ls_mlp_options {
    int inputs;               /* required */
    int hidden;               /* width of the hidden layers; 0: 128 */
    int layers;               /* linear layers in all; 0: 2 */
    int classes;              /* 0: 10 */
    ls_activation activation; /* 0: ReLU */
} ls_mlp_options;

/* The CIFAR form of ResNet: a 3x3 convolution, three stages of `blocks` residual blocks with widths w, 2w and 4w, mean
 * over the picture, one linear layer. 3 blocks of width 16 are ResNet-20. */
typedef struct ls_resnet_options {
    int blocks;   /* per stage; 0: 3 */
    int width;    /* 0: 16 */
    int channels; /* of a picture; 0: 3 */
    int size;     /* of a picture's sides, a multiple of 4; 0: 32 */
    int classes;  /* 0: 10 */
} ls_resnet_options;

/* Makes a model: names, shapes and places, no memory for values yet. options may be NULL (not for MLP). On failure *out
 * is NULL. */
LS_API LS_MUST_CHECK ls_status ls_gpt2_open(ls_model **out, const ls_gpt2_options *options);
LS_API LS_MUST_CHECK ls_status ls_mlp_open(ls_model **out, const ls_mlp_options *options);
LS_API LS_MUST_CHECK ls_status ls_resnet_open(ls_model **out, const ls_resnet_options *options);
LS_API void ls_model_free(ls_model **model);

LS_API const char *ls_model_kind(const ls_model *model); /* "gpt2", "mlp", "resnet" */
/* The options in force, defaults filled in; NULL if the model is of another kind. */
LS_API const ls_gpt2_options *ls_model_gpt2(const ls_model *model);
/* How many parameters there are (weights and biases counted as tensors), and their places. */
LS_API size_t ls_model_places(const ls_model *model, const ls_place **places);
/* Elements of the flat block, padding included; a multiple of 16. Padding is zero and stays so. */
LS_API size_t ls_model_elements(const ls_model *model);
/* Elements without padding: the number that people mean by "124M parameters". */
LS_API size_t ls_model_size(const ls_model *model);

/* Gives the model memory: flat blocks of ls_model_elements() floats, aligned to 64, which stay the caller's and must
 * outlive it. values NULL: the model's own. grads NULL: the model's own if `train`, else none (a frozen model). */
LS_API LS_MUST_CHECK ls_status ls_model_bind(ls_model *model, float *values, float *grads, bool train);
/* From the next pass on gradients go to another block; not for a frozen model. */
LS_API void ls_model_set_grads(ls_model *model, float *grads);
LS_API float *ls_model_values(const ls_model *model);
LS_API float *ls_model_grads(const ls_model *model);
/* What a model keeps besides parameters (running statistics of batch norms), a flat block too. *data is NULL before
 * ls_model_bind(). Returns how many there are; 0 for GPT-2 and MLP. */
LS_API size_t ls_model_buffers(const ls_model *model, const ls_place **places, float **data);
/* The parameters for ls_tape_begin(), in the order of the flat block. */
LS_API int ls_model_params(const ls_model *model, ls_param **params);

/* Fills elements [begin, end) of the bound values: as GPT-2's authors do (normal 0.02, projections into the residual
 * stream divided by sqrt(2 layers)), He's way for the others. A function of seed and place alone. threads 0: OpenMP's
 * default. */
LS_API LS_MUST_CHECK ls_status ls_model_init(ls_model *model, size_t begin, size_t end, uint64_t seed, int threads);

/* What a model learns from. Everything stays the caller's until backward is done. */
typedef struct ls_model_batch {
    int64_t rows;           /* B */
    int64_t length;         /* T; GPT-2 only */
    const int32_t *tokens;  /* (B, T); GPT-2 only */
    const float *inputs;    /* (B, inputs) or (B, channels, size, size); the others */
    const int32_t *targets; /* (B, T) or (B) */
    const float *weights;   /* one per target; NULL: all 1 */
    double divisor;         /* the loss is the weighted sum divided by this; 0: the sum of the weights */
    float *row_losses;      /* one per target, filled when not NULL */
} ls_model_batch;

/* Records the forward pass on a tape that ls_tape_begin() started with the model's parameters: the loss, (1). NULL on
 * failure, which ls_tape_status() or ls_tape_backward() then tells. */
LS_API ls_tensor *ls_model_loss(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
/* The logits, (B, T, V) or (B, classes); targets are not looked at. */
LS_API ls_tensor *ls_model_logits(ls_model *model, ls_tape *tape, const ls_model_batch *batch);

/* A model's weights as safetensors, and back. For GPT-2 the folder (config.json, model.safetensors) is one that Hugging
 * Face's transformers loads, and folders from there are read. A model that was loaded keeps the folder's config.json and
 * generation_config.json and saves them again, with only those values changed that are no longer true. On failure the old file
 * is there unchanged, or the model's values are undefined. */
LS_API LS_MUST_CHECK ls_status ls_model_save(const ls_model *model, const char *folder);
LS_API LS_MUST_CHECK ls_status ls_model_load(ls_model *model, const char *folder);
/* The token that ends a text, which a saved config.json names as bos and eos token; < 0: none. By default it is GPT-2's own where
 * the vocabulary has it. A config.json that was loaded and names such tokens stays as it is. */
LS_API void ls_model_set_end(ls_model *model, int32_t token);
/* What a folder's config.json says about a GPT-2; its weights are not looked at. */
LS_API LS_MUST_CHECK ls_status ls_gpt2_options_read(const char *folder, ls_gpt2_options *out);

/* ---- Learning rate as a function of the step */
typedef enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT = 0,
    LS_SCHEDULE_LINEAR = 1, /* falls in a straight line to `lr_end` */
    LS_SCHEDULE_COSINE = 2, /* falls along half a cosine to `lr_end` */
} ls_schedule_kind;

typedef struct ls_schedule {
    ls_schedule_kind kind;
    float lr;       /* the peak */
    float lr_end;   /* at the last step; not used by CONSTANT */
    int64_t warmup; /* steps during which the rate rises in a straight line; 0: none */
    int64_t steps;  /* of the whole run, warm-up included */
} ls_schedule;

/* The rate of `step`, counted from 0. Steps beyond the end have the end's rate. */
LS_API float ls_schedule_at(const ls_schedule *schedule, int64_t step);

/* ---- Optimisers */
typedef enum ls_optimizer_kind {
    LS_ADAMW = 0, /* Adam with decoupled weight decay */
    LS_SGD = 1,   /* gradient descent with momentum; decay is added to the gradient, as torch does */
} ls_optimizer_kind;

typedef struct ls_optimizer_options {
    ls_optimizer_kind kind; /* 0: AdamW */
    float beta1;            /* AdamW: of the mean; 0: 0.9 */
    float beta2;            /* AdamW: of the mean square; 0: 0.95 */
    float eps;              /* AdamW: 0: 1e-8 */
    float momentum;         /* SGD: 0: 0.9; < 0: none */
    float weight_decay;     /* 0: 0.1 for AdamW, none for SGD; < 0: none */
    bool decay_all;         /* default: parameters of one dimension (biases, norms) do not decay */
    int threads;            /* 0: OpenMP's default */
    float *memory; /* the caller's, for the state: ls_optimizer_floats() of them, aligned to 64, zero; it may be
                               shared between ranks that update different elements. NULL: the optimiser's own */
} ls_optimizer_options;

typedef struct ls_optimizer ls_optimizer;

/* Fills in the defaults and checks. */
LS_API LS_MUST_CHECK ls_status ls_optimizer_options_check(ls_optimizer_options *options);

/* An optimiser for elements [begin, end) of the flat block, with its state for those elements alone: with one slice a
 * rank, the state is sharded. `places` are lent for the optimiser's life. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_optimizer_open(ls_optimizer **out, const ls_place *places, size_t n_places,
                                                 size_t begin, size_t end, const ls_optimizer_options *options);
LS_API void ls_optimizer_free(ls_optimizer **optimizer);

/* One update of elements [begin, end), a part of the optimiser's own range: `values` and `grads` are the whole flat
 * blocks, `step` counts from 0, and each gradient is multiplied by `grad_scale` first (clipping, or 1). Parts may be
 * updated in any order, each once a step; the result is the same. */
LS_API LS_MUST_CHECK ls_status ls_optimizer_update(ls_optimizer *optimizer, float *values, const float *grads,
                                                   size_t begin, size_t end, int64_t step, float lr, float grad_scale);

/* The same with the gradients of elements [begin, end) alone: grads[0] is that of element `begin`. */
LS_API LS_MUST_CHECK ls_status ls_optimizer_update_part(ls_optimizer *optimizer, float *values, const float *grads,
                                                        size_t begin, size_t end, int64_t step, float lr,
                                                        float grad_scale);
/* Floats of state for `elements` of them. */
LS_API size_t ls_optimizer_floats(const ls_optimizer_options *options, size_t elements);

/* State, for checkpoints: arrays of end - begin elements. Returns how many; *name and *data are those of array i. */
LS_API int ls_optimizer_state(ls_optimizer *optimizer, int i, const char **name, float **data);

/* ---- The global norm, in an order that is fixed by the block's size: first one sum of squares for every
 * LS_NORM_BLOCK elements, then a tree over those sums. Whoever owns a slice that begins and ends on block borders makes
 * its part of the first, and anybody who has them all makes the second. */
#define LS_NORM_BLOCK 4096
/* Number of sums for `count` elements. */
LS_API size_t ls_norm_blocks(size_t count);
/* sums[b] for each block b of the slice x[begin..end) of a flat block of `count` elements; `begin` is a multiple of
 * LS_NORM_BLOCK, `end` one too or `count`. */
LS_API void ls_norm_sums(const float *x, size_t begin, size_t end, double *sums, int threads);
/* The norm from all sums. */
LS_API double ls_norm_total(const double *sums, size_t blocks);
/* What gradients are to be multiplied with so that their norm is at most `limit`; 1 when `limit` is 0. */
LS_API float ls_clip_scale(double norm, double limit);

/* ---- Text from a GPT-2 */
typedef struct ls_generator ls_generator;

typedef struct ls_generator_options {
    float temperature; /* 0: 1; < 0: always the likeliest token */
    int top_k;         /* choose among the k likeliest; 0: all */
    uint64_t seed;
    int threads;   /* 0: OpenMP's default */
    bool no_cache; /* compute every position again for each token; slow, there to check the cache */
} ls_generator_options;

/* The model is lent; it must be bound. options may be NULL. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_generator_open(ls_generator **out, ls_model *model,
                                                 const ls_generator_options *options);
LS_API void ls_generator_free(ls_generator **generator);
/* Reads tokens (at least one). When the context is full, the older half of it is forgotten. */
LS_API LS_MUST_CHECK ls_status ls_generator_feed(ls_generator *generator, const int32_t *tokens, size_t count);
/* The logits (V) after the last token that was read; NULL before the first. Valid until the next call. */
LS_API const float *ls_generator_logits(const ls_generator *generator);
/* Chooses the next token and reads it. */
LS_API LS_MUST_CHECK ls_status ls_generator_next(ls_generator *generator, int32_t *token);

#ifdef __cplusplus
}
#endif
#endif
