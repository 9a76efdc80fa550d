/* lockstep/nn.h: models, optimizers and their files.
 *
 *     ls_model_open(&model, &(ls_model_options){ .lm = { .layers = 6, .width = 384 } });
 *     ls_model_bind(model, NULL, NULL, true);
 *     ls_model_init(model, seed);
 *     n_places = ls_model_places(model, &places);
 *     n_params = ls_model_params(model, &params);
 *     ls_optimizer_open(&optimizer, places, n_places, 0, ls_model_elements(model), NULL);
 *     for (step = 0; step < steps; step++) {
 *         ls_tape_begin(tape, params, n_params, NULL);
 *         ls_tape_backward(tape, ls_model_loss(model, tape, &batch));
 *         ls_clip_grad_norm(ls_model_grads(model), ls_model_elements(model), 1.0, 0);
 *         ls_optimizer_update(optimizer, ls_model_values(model), ls_model_grads(model), step, lr);
 *     }
 *
 * Memory   a model's parameters are one flat block of float32, and so are its gradients: code that reduces, clips, updates or
 *          saves them needs one loop. The blocks may be user-owned (e.g. shared between ranks).
 * Bits     depend on shapes, seeds and step numbers alone, never on the number of threads or the kind of CPU. Denormal numbers count
 *          as 0. The caller's rounding mode must be the default, to nearest. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/base.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models. A model is a list of parameters and a way to compute its loss on a tape. */
typedef struct ls_model ls_model;

/* Where one parameter is in the flat block. */
typedef struct ls_place {
    const char *name;
    int dims;
    int64_t shape[LS_MAX_DIMS]; /* 1 beyond dims */
    size_t offset;              /* of its first element; a multiple of 16, so that it begins on a cache line */
    size_t count;               /* elements, without padding */
    bool is_table;              /* rows belong to tokens or positions: an embedding, or the output projection */
} ls_place;

/* The one list of language models: name, value, name in config.json ("model_type"). Llama to Mistral are
 * one family and differ in biases, norms and windows. The last three are encoders. */
#define LS_LM_LIST(X)                  \
    X(LS_LM_GPT2, 0, gpt2)             \
    X(LS_LM_LLAMA, 1, llama)           \
    X(LS_LM_QWEN2, 2, qwen2)           \
    X(LS_LM_QWEN3, 3, qwen3)           \
    X(LS_LM_MISTRAL, 4, mistral)       \
    X(LS_LM_BERT, 5, bert)             \
    X(LS_LM_DISTILBERT, 6, distilbert) \
    X(LS_LM_ROBERTA, 7, roberta)

typedef enum ls_lm_kind {
#define X(name, value, type) name = (value),
    LS_LM_LIST(X)
#undef X
} ls_lm_kind;
enum { LS_LM_COUNT = 0 LS_LM_LIST(LS_COUNT_ENTRY) };

/* The output projection. */
typedef enum ls_lm_head {
    LS_HEAD_DEFAULT = 0, /* tied */
    LS_HEAD_TIED = 1,    /* the token embedding again */
    LS_HEAD_UNTIED = 2,  /* a matrix of its own; not for GPT-2 */
} ls_lm_head;

typedef struct ls_lm_options {
    ls_lm_kind kind; /* 0: GPT-2 */
    int layers;      /* transformer blocks; 0: 12 */
    int width;       /* embedding dimension; 0: 768 */
    int heads;       /* attention heads, a divisor of width; 0: width / 64, or 1 if 64 does not divide it */
    int vocab_size;  /* tokens; 0: 50,257 */
    int context;     /* the longest sequence; 0: 1,024 */
    float dropout;   /* of residual branches, embeddings and attention weights, in training; 0: none */
    float embd_dropout, attn_dropout; /* of embeddings and of attention weights alone; 0: as `dropout`; < 0: none */
    float norm_eps;                   /* of the norms; 0: 1e-5, Qwen: 1e-6, encoders: 1e-12 */
    /* The Llama family alone; dropout there is of attention weights alone: */
    int kv_heads;        /* heads of keys and values, a divisor of heads; 0: heads */
    int head_dim;        /* elements of a head, even; 0: width / heads */
    int inner;           /* width of the MLP; 0: 8/3 width, rounded up to a multiple of 64 */
    ls_lm_head head;     /* 0: tied */
    bool attention_bias; /* biases of the attention's projections; not for Mistral; Qwen2 always has its own three */
    bool mlp_bias;       /* biases of the MLP; Llama only */
    int window;          /* sliding window: tokens that a token attends to, itself included; 0: all; not for Llama */
    int window_first;    /* Qwen: the first layer that has the window; 0: all have it */
    ls_rope rope;        /* rotary positions; theta 0: 10,000 */
    /* Encoders alone, which also have `inner` (0: 4 width): */
    int types;          /* token types; 0: BERT 2, RoBERTa 1; DistilBERT has none */
    int classes;        /* a classifier with so many classes is the head; 0: the masked-LM head */
    float head_dropout; /* of the classifier's input; 0: as `dropout`; < 0: none */
    void *reserved[2];
} ls_lm_options;

typedef struct ls_mlp_options {
    int inputs;               /* required */
    int hidden;               /* width of the hidden layers; 0: 128 */
    int layers;               /* linear layers in all; 0: 2 */
    int classes;              /* 0: 10 */
    ls_activation activation; /* of the hidden layers; 0 (LS_IDENTITY): LS_RELU */
    void *reserved[2];
} ls_mlp_options;

/* ResNet with torchvision's blocks and tensor names. The form for CIFAR: a 3x3 convolution, three stages of residual blocks with
 * widths w, 2w and 4w, the mean over the image, one linear layer. torchvision's: a 7x7 convolution of stride 2, a max pool, and
 * four stages. */
#define LS_RESNET_STAGES 4
typedef struct ls_resnet_options {
    int blocks[LS_RESNET_STAGES]; /* of each stage; 0 ends the stages; all 0: 3, 3, 3 (ResNet-20) */
    bool bottleneck;              /* blocks of 1x1, 3x3 and 1x1 convolutions, as in resnet50; default: two 3x3 ones */
    bool stem;                    /* torchvision's beginning: 7x7, stride 2, max pool; default: a 3x3 convolution */
    int width;                    /* of the first stage; 0: 16, or 64 with stem */
    int channels;                 /* of an image; 0: 3 */
    int size;                     /* width and height of an image; 0: 32, or 224 with stem */
    int classes;                  /* 0: 10, or 1,000 with stem */
    /* how images are normalized, of each channel: kept in config.json, not used by the model; std 0: not known */
    float mean[3], std[3];
    void *reserved[2];
} ls_resnet_options;

/* Vision transformer, as ViTForImageClassification of Hugging Face's transformers: patches of an image are tokens, after a class token. */
typedef struct ls_vit_options {
    int layers;            /* 0: 12 */
    int width;             /* 0: 768 */
    int heads;             /* a divisor of width; 0: 12 */
    int inner;             /* width of the MLP; 0: 4 width */
    int patch;             /* width and height of a patch; 0: 16 */
    int channels;          /* of an image; 0: 3 */
    int size;              /* width and height of an image, a multiple of patch; 0: 224 */
    int classes;           /* 0: 1,000 */
    float norm_eps;        /* 0: 1e-12 */
    float mean[3], std[3]; /* as in ls_resnet_options */
    void *reserved[2];
} ls_vit_options;

/* Adapters (LoRA): fine-tuning with few parameters. The model's own weights are frozen, and to those of chosen linear layers the product
 * of two matrices of rank r is added. Places, values and gradients of the model are those of the adapters: they are what an optimizer
 * updates. ls_model_load() fills the frozen weights, and the adapters if the folder holds some of the same form; ls_model_save() writes
 * the adapters in PEFT's form. */
enum { LS_LORA_TARGET = 256 };
typedef struct ls_lora_options {
    int r;         /* rank; 0: no adapters */
    float alpha;   /* the product is multiplied by alpha / r; 0: 2 r */
    float dropout; /* of the layers' inputs in training; 0: none */
    bool rslora;   /* multiplied by alpha / sqrt(r) instead */
    /* the frozen matrices are in bfloat16, rounded to nearest even: half the memory; norms and biases stay float32 */
    bool bf16;
    /* names of layers, or their ends, with '+' between them: "q_proj+v_proj"; "": all in the blocks */
    char target[LS_LORA_TARGET];
    void *reserved[2];
} ls_lora_options;

typedef enum ls_model_kind {
    LS_MODEL_LM = 0, /* a language model or an encoder */
    LS_MODEL_RESNET = 1,
    LS_MODEL_VIT = 2,
    LS_MODEL_MLP = 3,
} ls_model_kind;
#define LS_MODEL_KINDS 4

/* A model of any kind. Options of other kinds are not used. */
typedef struct ls_model_options {
    ls_model_kind kind; /* 0: a language model */
    ls_lm_options lm;
    ls_resnet_options resnet;
    ls_vit_options vit;
    ls_mlp_options mlp;
    ls_lora_options lora; /* of GPT-2 and the Llama family */
    void *reserved[2];
} ls_model_options;

/* Options by name: "gpt2" (124M parameters), "gpt2-medium" (355M), "gpt2-large" (774M), "gpt2-xl" (1.5B), "smollm2-135m", "tinyllama",
 * "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "mistral-7b", "bert-base"; "llama", "qwen2", "qwen3", "mistral", "bert", "roberta" and
 * "distilbert" are small. "resnet20" to "resnet110" (CIFAR), "resnet18" to "resnet152" (torchvision), "vit-tiny", "vit-small", "vit-base".
 * An unknown name is LS_EINVAL, and the message lists all. */
LS_API LS_MUST_CHECK ls_status ls_model_preset(const char *name, ls_model_options *out);
/* Preset i of a kind, from 0; NULL after the last. */
LS_API const char *ls_model_preset_name(ls_model_kind kind, int i);
/* The options in the config.json of a folder that ls_model_save(), Hugging Face's transformers or, for ResNets, timm wrote. Of a
 * folder with an adapter (PEFT's adapter_config.json) they are those of the model that it belongs to, and `lora`. With lora.r set
 * to 0, ls_model_load() adds the adapter to the weights instead. */
LS_API LS_MUST_CHECK ls_status ls_model_options_read(const char *folder, ls_model_options *out);

/* Opens a model: names, shapes and places, without memory for values. options may be NULL. Invalid options are LS_EINVAL with the
 * option's name. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_model_open(ls_model **out, const ls_model_options *options);
LS_API void ls_model_free(ls_model **model);

/* The options with defaults filled in; those of other kinds are 0. */
LS_API ls_model_options ls_model_get_options(const ls_model *model);
/* The number of parameter tensors, and their places. */
LS_API size_t ls_model_places(const ls_model *model, const ls_place **places);
/* Elements of the flat block, including padding; a multiple of 16. Padding is zero and stays zero. */
LS_API size_t ls_model_elements(const ls_model *model);
/* Elements without padding, as in "124M parameters". */
LS_API size_t ls_model_param_count(const ls_model *model);

/* Gives the model its memory: flat blocks of ls_model_elements() floats, aligned to 64 bytes, user-owned; they must outlive the
 * model. values NULL: the model allocates them. grads NULL: allocated if `train`, else none (a frozen model). */
LS_API LS_MUST_CHECK ls_status ls_model_bind(ls_model *model, float *values, float *grads, bool train);
/* From the next pass on gradients are written to another block; not for a frozen model. */
LS_API void ls_model_set_grads(ls_model *model, float *grads);
LS_API float *ls_model_values(const ls_model *model);
LS_API float *ls_model_grads(const ls_model *model);
/* Buffers: what a model keeps besides parameters (running statistics of batch norms), also a flat block. *data is NULL before
 * ls_model_bind(). Returns their number; 0 for language models and MLPs. */
LS_API size_t ls_model_buffers(const ls_model *model, const ls_place **places, float **data);
/* The parameters for ls_tape_begin(), in the order of the flat block; returns their number. */
LS_API int ls_model_params(const ls_model *model, ls_param **params);

/* Fills the values with random initial weights: as GPT-2's authors do (normal 0.02, projections into the residual stream
 * divided by sqrt(2 layers)), also for the Llama family; He's initialization for the other models. The same seed gives the same values. */
LS_API LS_MUST_CHECK ls_status ls_model_init(ls_model *model, uint64_t seed);

/* Whether backward of a language model recomputes the activations of its blocks, of which forward then keeps only the inputs: less memory,
 * about a third more time, the same bits. Default: not. From the next pass on. */
LS_API void ls_model_set_recompute(ls_model *model, bool recompute);

/* The input of a model. All memory is user-owned and must stay until backward is done. */
typedef struct ls_model_batch {
    int64_t batch_size;    /* B */
    int64_t seq_len;       /* T; language models only */
    const int32_t *tokens; /* (B, T); language models only */
    const int32_t *types;  /* (B, T), the tokens' types; encoders only; NULL: all 0 */
    /* (B), tokens of each sequence, at least 1; the rest is padding; encoders only; NULL: all T */
    const int32_t *lengths;
    const float *inputs;    /* (B, inputs) or (B, size, size, channels); other models */
    const int32_t *targets; /* (B, T), or (B) of models with classes */
    const float *weights;   /* one per target; NULL: all 1 */
    double divisor;         /* the loss is the weighted sum divided by this; 0: the sum of the weights */
    float *row_losses;      /* receives one loss per target; NULL: not wanted */
    /* receives the class of largest logit per target, -1 where its weight is 0; NULL: not wanted */
    int32_t *predictions;
    void *reserved[2];
} ls_model_batch;

/* Records the forward pass on a tape that ls_tape_begin() started with the model's parameters; returns the loss, (1). NULL on
 * failure, which ls_tape_status() or ls_tape_backward() then returns. */
LS_API ls_tensor *ls_model_loss(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
/* The logits, (B, T, V) or (B, classes); targets are not used. */
LS_API ls_tensor *ls_model_logits(ls_model *model, ls_tape *tape, const ls_model_batch *batch);

/* Writes the weights and buffers to model.safetensors in a folder, and reads them. For a language model the folder also has a
 * config.json and can be loaded by Hugging Face's transformers, and folders from there can be loaded here. A ResNet's tensors are those
 * of torchvision's state_dict, and its config.json is as timm's. A model that was loaded keeps the folder's config.json and
 * generation_config.json and saves them again; only values that changed are replaced. A folder with an adapter (PEFT's
 * adapter_config.json) is the model that it names with the adapter added to its weights. If saving fails, old files are unchanged; if
 * loading fails, the model's values are undefined. */
LS_API LS_MUST_CHECK ls_status ls_model_save(const ls_model *model, const char *folder);
LS_API LS_MUST_CHECK ls_status ls_model_load(ls_model *model, const char *folder);

/* ---- Learning rate as a function of the step */
typedef enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT = 0,
    LS_SCHEDULE_LINEAR = 1, /* linear decay to `lr_end` */
    LS_SCHEDULE_COSINE = 2, /* cosine decay to `lr_end` */
} ls_schedule_kind;

typedef struct ls_schedule {
    ls_schedule_kind kind;
    float lr;       /* the peak */
    float lr_end;   /* at the last step; not used by CONSTANT */
    int64_t warmup; /* steps of linear warm-up; 0: none */
    int64_t steps;  /* of the whole run, warm-up included */
} ls_schedule;

/* The learning rate of `step`, counted from 0. Steps after the end have the rate of the last step. */
LS_API float ls_schedule_at(const ls_schedule *schedule, int64_t step);

/* ---- Optimizers */

/* The one list of optimizers: name, value, name for options and files, members of ls_optimizer_options that not all of them use.
 * Muon updates matrices by their orthogonalized momentum, scaled so that one learning rate serves AdamW, too (torch's
 * match_rms_adamw), and tables and other parameters by AdamW. */
#define LS_OPTIMIZER_LIST(X)                                                                     \
    X(LS_ADAMW, 0, "adamw", "beta1 beta2 eps") /* Adam with decoupled weight decay */            \
    X(LS_SGD, 1, "sgd", "momentum")            /* decay is added to the gradient, as in torch */ \
    X(LS_MUON, 2, "muon", "beta1 beta2 eps momentum")

typedef enum ls_optimizer_kind {
#define X(name, value, ...) name = (value),
    LS_OPTIMIZER_LIST(X)
#undef X
} ls_optimizer_kind;
enum { LS_OPTIMIZER_COUNT = 0 LS_OPTIMIZER_LIST(LS_COUNT_ENTRY) };

typedef struct ls_optimizer_options {
    ls_optimizer_kind kind; /* 0: AdamW */
    float beta1;            /* AdamW, Muon's other parameters: of the first moment; 0: 0.9 */
    float beta2;            /* likewise: of the second moment; 0: 0.95 */
    float eps;              /* likewise: 0: 1e-8 */
    float momentum;         /* SGD: 0: 0.9; Muon: 0: 0.95; < 0: none */
    float weight_decay;     /* 0: 0.1 for AdamW and Muon, none for SGD; < 0: none */
    bool decay_all;         /* default: parameters of one dimension (biases, norms) do not decay */
    int threads;            /* 0: OpenMP's default */
    void *reserved[2];
} ls_optimizer_options;

typedef struct ls_optimizer ls_optimizer;

/* An optimizer for elements [begin, end) of the flat block, with state for those elements alone: with one range per rank, the
 * state is sharded. `end` is at most where the last place ends, rounded up to a multiple of 16, as ls_model_elements() is. `places` are
 * not copied and must outlive the optimizer. Muon needs whole matrices in its range. options may be NULL. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_optimizer_open(ls_optimizer **out, const ls_place *places, size_t n_places,
                                                 size_t begin, size_t end, const ls_optimizer_options *options);
LS_API void ls_optimizer_free(ls_optimizer **optimizer);
/* Updates the optimizer's elements of `values`. `values` and `grads` are the whole flat blocks; `step` counts from 0. */
LS_API void ls_optimizer_update(ls_optimizer *optimizer, float *values, const float *grads, int64_t step, float lr);
/* The state, for checkpoints: arrays of end - begin elements. Returns their number; *name and *data receive those of array i. */
LS_API int ls_optimizer_state(ls_optimizer *optimizer, int i, const char **name, float **data);

/* Scales `grads` so that their norm is at most `max_norm` and returns their norm before that. max_norm <= 0: only returns the
 * norm. A norm that is not finite leaves them unchanged: skip the update then. threads 0: OpenMP's default. */
LS_API double ls_clip_grad_norm(float *grads, size_t count, double max_norm, int threads);

/* ---- Text from a language model */
typedef struct ls_generator ls_generator;

typedef struct ls_generator_options {
    float temperature; /* 0: 1; < 0: always the most likely token */
    int top_k;         /* sample from the k most likely tokens; 0: all */
    float top_p;       /* of these, from the most likely ones that together have this probability; 0: all */
    float min_p;       /* of these, from those with at least this share of the most likely one's probability; 0: all */
    /* Logits of tokens that are in the context are divided by this (multiplied if negative); 0: 1. Comes before all else. */
    float repetition_penalty;
    uint64_t seed;
    int sequences; /* that are generated side by side; 0: 1 */
    int threads;   /* 0: OpenMP's default */
    bool no_cache; /* recompute every position for each token: slow, for testing the cache */
    void *reserved[2];
} ls_generator_options;

/* How the author of a model wants text to be generated. */
typedef struct ls_generation {
    ls_generator_options options; /* 0: not stated */
    int32_t ends[16];             /* tokens that end a text */
    int n_ends;
} ls_generation;
/* Reads a folder's generation_config.json and, for tokens that end a text, config.json; files that do not exist state nothing. */
LS_API LS_MUST_CHECK ls_status ls_generation_read(const char *folder, ls_generation *out);

/* The model must be bound and must outlive the generator. options may be NULL. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_generator_open(ls_generator **out, ls_model *model,
                                                 const ls_generator_options *options);
LS_API void ls_generator_free(ls_generator **generator);
/* Reads tokens (at least one) of a sequence, 0 if there is one. When the context is full, its older half is dropped. Sequences with the
 * same prompt differ: the number of the sequence is part of the seed. */
LS_API LS_MUST_CHECK ls_status ls_generator_feed(ls_generator *generator, int sequence, const int32_t *tokens,
                                                 size_t count);
/* Drops all tokens of a sequence but the first `length`, which stay in the cache; more tokens must be fed next. Once the context
 * was full, these are not the first ones that were fed. */
LS_API LS_MUST_CHECK ls_status ls_generator_rewind(ls_generator *generator, int sequence, size_t length);
/* The logits (V) after the last token of a sequence; NULL before the first. Valid until the next call. */
LS_API const float *ls_generator_logits(const ls_generator *generator, int sequence);
/* Samples the next token of each sequence and reads it, all of them in one pass. The tokens are those that each sequence would have alone.
 * tokens: [sequences]. skip: [sequences], sequences that stay as they are; NULL: none. */
LS_API LS_MUST_CHECK ls_status ls_generator_next(ls_generator *generator, int32_t *tokens, const bool *skip);

#ifdef __cplusplus
}
#endif
#endif
