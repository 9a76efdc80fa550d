/* What models share: a list of named places, their initialization, the memory they are bound to, and a table of functions per
 * kind of model. Training, generation, files and flop counts use a model only through this table.
 * CONTRIBUTING.md has what a new model needs. */
#ifndef LS_NN_MODEL_H
#define LS_NN_MODEL_H

#include "base/arena.h"
#include "lockstep/nn.h"
#include "nn/hf_config.h"

/* A growing list of places in one flat block. */
typedef struct ls__places {
    ls_place *list;
    float *init; /* [count]: see ls__places_add() */
    size_t count, room;
    size_t elements; /* of the flat block so far, including padding */
    bool failed;     /* memory ran out, or a size overflowed */
} ls__places;

/* Initial values of a place: a constant, or normal random numbers if the value is a positive standard deviation. */
#define LS__INIT_ZEROS 0.0f
#define LS__INIT_ONES  (-1.0f)

/* Adds a place of this shape (unused dimensions 0), with a name as in printf(); returns its number. A failure is kept in
 * `failed`, so that a model can be listed without a check per line. */
size_t ls__places_add(ls__places *p, float init, int64_t d0, int64_t d1, int64_t d2, int64_t d3, const char *format,
                      ...) __attribute__((format(printf, 7, 8)));
/* The place that was added last is a matrix whose rows belong to tokens or positions. */
void ls__places_mark_table(ls__places *p);
void ls__places_free(ls__places *p);

/* A kind of model. */
typedef struct ls__model_type {
    const char *name; /* for messages */
    ls_model_kind kind;
    ls_tensor *(*loss)(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
    ls_tensor *(*logits)(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
    const struct ls__lm_type *lm; /* NULL: not a language model */
    /* Other models: the text of config.json, which the caller frees; NULL: there is none. */
    ls_status (*config_text)(const ls_model *model, char **out);
    const ls__weight_names *weights; /* NULL: files have the names of the places */
} ls__model_type;

/* What a language model has besides. */
typedef struct ls__lm_type {
    ls__model_type model;
    /* Sizes by name; the first has the defaults of options that are 0. */
    const struct ls__lm_size {
        const char *name;
        ls_lm_options options;
    } * presets;
    size_t n_presets;
    const ls_lm_options *absent; /* what keys mean that config.json does not have, as in transformers */
    /* Fills in and checks the options that not all language models have. A second call changes nothing. */
    ls_status (*check)(ls_lm_options *options);
    /* Lists the parameters. `model->lm` has the options. */
    void (*list)(ls_model *model);
    /* The forward pass up to the last norm, (B, T, C). caches: NULL, or (layers, B); the first position of a sequence is then the
     * length of its cache. */
    ls_tensor *(*hidden)(ls_model *model, ls_tape *tape, const int32_t *tokens, int64_t B, int64_t T,
                         ls_kv_cache *caches);
    bool encoder; /* attends to the whole sequence, so it generates no text; `hidden` is NULL */
    /* The number of the parameter (V, C) that projects hidden states to logits: the first or the last. LS__NO_HEAD: there is none. */
    size_t (*head)(const ls_model *model);
    size_t (*cache_width)(
        const ls_lm_options *options); /* floats of a key (and of a value) of one token in one layer */
    /* Multiplications and additions of matrix products of a training step, per token. */
    double (*flops_per_token)(const ls_lm_options *options, int64_t seq_len);
    const ls__config_key *config; /* keys of config.json; the last has key NULL */
    int32_t end_token;            /* that ends a text, if the vocabulary has it and none was set */
    ls__weight_names weights;
    bool stores_in_first; /* weights of linear layers are (in, out) */
    bool adapts;          /* its blocks use ls__lm_linear() and ls__lm_joint() */
} ls__lm_type;

/* Adapters; see lora.h. */
typedef struct ls__lora_state {
    ls_lora_options options; /* r 0: none */
    int *of;                 /* for each own parameter: the number of its adapter, or -1 */
    int count;               /* adapters */
    char *base;              /* the folder that the frozen weights are from; NULL: none */
} ls__lora_state;

const ls__lm_type *ls__lm_type_of(ls_lm_kind kind); /* NULL: not a kind */

#define LS__END_DEFAULT INT32_MIN
#define LS__NO_HEAD     SIZE_MAX

struct ls_model {
    const ls__model_type *type;
    union {
        ls_lm_options lm;
        ls_mlp_options mlp;
        ls_resnet_options resnet;
        ls_vit_options vit;
    };
    ls__places places, buffer_places;
    ls__places frozen_places; /* with adapters: the model's own, and `places` are those of the adapters */
    ls_param *params;         /* [frozen_places.count + places.count] */
    float *frozen;            /* (frozen_places.elements), or with frozen_at */
    size_t *frozen_at;        /* with matrices in bfloat16: where each is, in bytes; NULL: all are float32 */
    ls__lora_state lora;
    float *values;                  /* (places.elements); NULL until bound */
    float *grads;                   /* the same; NULL: frozen */
    float *buffers;                 /* (buffer_places.elements); NULL if there are none */
    float *statistics;              /* see ls__model_set_statistics(); NULL: none */
    const ls_batch_norm_sync *sync; /* of batch norms; NULL: none */
    ls__arena memory;               /* those of the first three that the model allocated */
    char *config;                   /* config.json of the folder that was loaded; NULL: none */
    char *generation;               /* its generation_config.json */
    char *labels;                   /* names of classes, separated by commas, for config.json; NULL: none */
    bool recompute;                 /* see ls_model_set_recompute() */
    int32_t end;                    /* see ls__model_set_end(); LS__END_DEFAULT: not set */
};

/* ---- Opening by kind; see models.c. */

LS_MUST_CHECK ls_status ls__lm_open(ls_model **out, const ls_lm_options *options);
LS_MUST_CHECK ls_status ls__mlp_open(ls_model **out, const ls_mlp_options *options);
/* See ls__resnet_preset(). */
LS_MUST_CHECK ls_status ls__lm_preset(int i, ls_model_options *out, const char **name);
/* ls_model_options_read() of a language model, without its adapter. LS_EUNSUPPORTED: it is a model of images. */
LS_MUST_CHECK ls_status ls__lm_options_read(const char *folder, ls_lm_options *out);

/* A model without places. NULL on failure, with the message set. */
ls_model *ls__model_make(const ls__model_type *type);
/* To be called when all places are listed: makes the parameters. Frees *model and sets it to NULL on failure. */
LS_MUST_CHECK ls_status ls__model_finish(ls_model **model);
/* The options of ls_cross_entropy() for a batch. */
ls_cross_entropy_options ls__batch_targets(const ls_model_batch *batch);

/* Elements [begin, end) of the initial values; the same values whatever the range. threads 0: OpenMP's default. */
LS_MUST_CHECK ls_status ls__model_init_range(ls_model *model, size_t begin, size_t end, uint64_t seed, int threads);
/* Elements of the buffers' block. */
size_t ls__model_buffer_elements(const ls_model *model);
/* A block of statistics, as large as the buffers and user-owned: from the next pass on, training writes the statistics of its
 * batch there instead of updating the buffers; ls__model_add_statistics() does that later. So micro-batches can be computed on any
 * rank and counted in one order. A block of zeros, which no pass wrote, counts nothing. NULL: training updates the buffers. */
void ls__model_set_statistics(ls_model *model, float *statistics);
void ls__model_add_statistics(ls_model *model, const float *statistics);
/* ls_model_load(). new_head: a head that the folder does not have, or has with another shape, keeps its values; without it that is
 * an error. */
LS_MUST_CHECK ls_status ls__model_load_weights(ls_model *model, const char *folder, bool new_head);
/* The folder of the model that adapters, perhaps on top of each other, belong to; the caller frees it. */
LS_MUST_CHECK ls_status ls__model_find_whole(const char *folder, char **out);
/* What a model has from a folder besides the values, which are there already: frozen weights, and texts that are saved with it. */
LS_MUST_CHECK ls_status ls__model_load_rest(ls_model *model, const char *folder);
/* Names of the classes, separated by commas, for a saved config.json. */
LS_MUST_CHECK ls_status ls__model_set_labels(ls_model *model, const char *labels);
/* The token that ends a text, for bos_token_id and eos_token_id of a saved config.json; < 0: none. Default: GPT-2's where the
 * vocabulary has it. A config.json that was loaded and has such tokens stays as it is. */
void ls__model_set_end(ls_model *model, int32_t token);

/* Fills in defaults and checks. Invalid options are LS_EINVAL with the option's name; `options` is then unchanged. */
LS_MUST_CHECK ls_status ls__lm_options_check(ls_lm_options *options);
/* Loss and logits of any language model, for its table. */
ls_tensor *ls__lm_loss(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
ls_tensor *ls__lm_logits(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
/* Logits of hidden states (..., C). */
ls_tensor *ls__lm_project(ls_model *model, ls_tape *tape, ls_tensor *hidden);
/* One block of a model, fn(user, tape, x): its activations are kept, recomputed, or (in an eval pass) dropped. `params` are its
 * parameters. */
ls_tensor *ls__lm_block(ls_model *model, ls_tape *tape, ls_tensor *x, ls_block_fn fn, void *user, size_t user_bytes,
                        ls_param *params, int n_params);
/* The positions of the first tokens of B sequences, in memory of the tape; NULL without caches, or on failure. */
const int64_t *ls__lm_first(ls_tape *tape, const ls_kv_cache *caches, int64_t B);
/* See ls__lm_type. */
double ls__lm_flops_per_token(const ls_lm_options *options, int64_t seq_len);

/* The text of a generation_config.json (or, without `options`, the tokens that end a text in a config.json); `path` is for messages. */
LS_MUST_CHECK ls_status ls__generation_parse(const char *path, const char *text, size_t bytes, bool options,
                                             ls_generation *g);

/* LS_EINVAL if options of encoders are given, or of the Llama family alone (which shares `inner` with encoders). */
LS_MUST_CHECK ls_status ls__lm_check_no_encoder(const ls_lm_options *o);
LS_MUST_CHECK ls_status ls__lm_check_no_llama(const ls_lm_options *o);

/* A dropout rate: that of the option itself, or the common one. */
static inline float ls__lm_dropout(const ls_lm_options *o, float own)
{
    return own < 0 ? 0 : own > 0 ? own : o->dropout;
}

#endif
