/* What the models share inside: a list of named places, how each is initialised, and the memory they are bound to. */
#ifndef LS_NN_MODEL_H
#define LS_NN_MODEL_H

#include "base/arena.h"
#include "lockstep/nn.h"

/* A growing list of places in one flat block. */
typedef struct ls__places {
    ls_place *list;
    float *init; /* [count]: see ls__places_add() */
    size_t count, room;
    size_t elements; /* of the flat block so far, padding included */
    bool failed;     /* memory ran out, or a size overflowed */
} ls__places;

/* How a place begins: constants, or normal numbers when the value is a positive standard deviation. */
#define LS__INIT_ZEROS 0.0f
#define LS__INIT_ONES  (-1.0f)

/* Adds a place of this shape (unused dimensions 0) with a name by printf's rules; returns its number. A failure is kept
 * in `failed`, so that a model may be listed without a check per line. */
size_t ls__places_add(ls__places *p, float init, int64_t d0, int64_t d1, int64_t d2, int64_t d3, const char *format,
                      ...) __attribute__((format(printf, 7, 8)));
void ls__places_free(ls__places *p);

#define LS__END_DEFAULT INT32_MIN

struct ls_model {
    const char *kind;
    ls_tensor *(*loss)(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
    ls_tensor *(*logits)(ls_model *model, ls_tape *tape, const ls_model_batch *batch);
    union {
        ls_gpt2_options gpt2;
        ls_mlp_options mlp;
        ls_resnet_options resnet;
    };
    ls__places places, buffer_places;
    ls_param *params; /* [places.count] */
    float *values;    /* (places.elements); NULL until bound */
    float *grads;     /* the same; NULL: frozen */
    float *buffers;   /* (buffer_places.elements); NULL if there are none */
    ls__arena memory; /* what the model itself owns of these */
    char *config;     /* config.json of the folder that was loaded; NULL: none */
    char *generation; /* its generation_config.json */
    int32_t end;      /* see ls_model_set_end(); LS__END_DEFAULT: not said */
};

/* A model with no places yet. On failure NULL, and the message is set. */
ls_model *ls__model_make(const char *kind);
/* Called when all places are listed: makes the parameters. Frees *model and sets it to NULL on failure. */
LS_MUST_CHECK ls_status ls__model_finish(ls_model **model);

/* The rate in force where an option of its own may stand above the common one. */
static inline float ls__gpt2_dropout(const ls_gpt2_options *o, float own)
{
    return own < 0 ? 0 : own > 0 ? own : o->dropout;
}

/* GPT-2's forward pass up to the last norm, (B, T, C). caches: NULL, or one per layer (then B is 1). `first` is the
 * position of the first token. */
ls_tensor *ls__gpt2_hidden(ls_model *model, ls_tape *tape, const int32_t *tokens, int64_t B, int64_t T, int64_t first,
                           ls_kv_cache *caches);
/* Logits of hidden states: x times the transposed token embedding. */
ls_tensor *ls__gpt2_head(ls_model *model, ls_tape *tape, ls_tensor *x);

#endif
