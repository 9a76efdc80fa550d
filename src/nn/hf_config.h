/* config.json of a Hugging Face folder, and the names of weights there: tables that each language model fills in. */
#ifndef LS_NN_HF_CONFIG_H
#define LS_NN_HF_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include "lockstep/nn.h"

/* What a key of config.json means. */
typedef enum ls__config_kind {
    LS__CONFIG_COUNT,       /* an integer >= 1 + `number`: the int at `offset` of ls_lm_options, plus `number` */
    LS__CONFIG_RATE,        /* a number >= 0 and < 1: the float at `offset` */
    LS__CONFIG_OWN_DROPOUT, /* the same, of an option where 0 means ls_lm_options.dropout */
    LS__CONFIG_TIMES_WIDTH, /* an integer that must be `number` times the width; written as null */
    LS__CONFIG_TEXT,        /* must be `text` or `other_text` */
    LS__CONFIG_TRUE,        /* must be true */
    LS__CONFIG_FALSE,       /* must be false */
    LS__CONFIG_FLAG,        /* true or false: the bool at `offset` */
    LS__CONFIG_TIED,        /* whether the head is tied; absent: as ls__lm_type.absent */
    LS__CONFIG_ROPE,        /* see hf_rope.c */
    LS__CONFIG_WINDOW,      /* see hf_rope.c */
    LS__CONFIG_HEAD,        /* a list of one class, `text` and what it is for: which head; see hf_head.c */
    LS__CONFIG_LABELS,      /* names of classes; see hf_head.c */
    LS__CONFIG_NUMBER,      /* must be `number` */
    LS__CONFIG_NULL,        /* not read; null */
    LS__CONFIG_LIST,        /* not read; a list that contains `text` */
    LS__CONFIG_END,         /* not read; the token that ends a text */
    LS__CONFIG_DTYPE,       /* not read; "float32", the type of saved weights */
} ls__config_kind;

/* A key that is absent or null when read has the value of `fallback` (RATE; OWN_DROPOUT, where it may be < 0: that of
 * ls_lm_options.dropout) or of ls__lm_type.absent. Keys are written in the order of the table, unless `read_only`. */
typedef struct ls__config_key {
    const char *key;
    ls__config_kind kind;
    size_t offset;
    const char *text, *other_text;
    int number;
    float fallback;
    bool read_only;
} ls__config_key;

/* How weights are named in files. */
typedef struct ls__weight_names {
    const char *prefix;                   /* names may begin with it */
    const char *base;                     /* names may lack it */
    bool gamma;                           /* weights and biases of norms may be called gamma and beta */
    bool (*is_head)(const char *name);    /* parameters of a head; NULL: there are none */
    bool new_head;                        /* those may be missing, or of another shape */
    bool (*is_ignored)(const char *name); /* tensors that are not parameters, such as masks */
    const char *tied, *tied_to;           /* the first may be there as a copy of the second; without the prefix */
} ls__weight_names;

/* Parses a config.json. Invalid values are LS_EFORMAT, models that are not supported LS_EUNSUPPORTED; *out is then unchanged.
 * `name` is the file's name in messages. */
LS_MUST_CHECK ls_status ls__hf_config_parse(const char *name, const char *text, size_t bytes, ls_lm_options *out);
/* The text of a config.json; the caller frees it. `base` is that of the folder that the model was loaded from, or NULL: only
 * values that changed are replaced. `end` is the token that ends a text; < 0: none, LS__END_DEFAULT: not known. */
LS_MUST_CHECK ls_status ls__hf_config_text(const char *base, const ls_lm_options *options, int32_t end, char **out);
/* The keys about rotary positions and windows (hf_rope.c): read from the object of all keys, and the value of one of them. every_layer: all
 * layers have the window. */
LS_MUST_CHECK ls_status ls__hf_rope_read(const char *name, const json_t *root, ls_lm_options *o);
LS_MUST_CHECK ls_status ls__hf_window_read(const char *name, const json_t *root, bool every_layer, ls_lm_options *o);
json_t *ls__hf_rope_value(const char *key, const ls_lm_options *o);
json_t *ls__hf_window_value(const char *key, const ls_lm_options *o);
/* The keys about the head and its classes (hf_head.c): reads o->classes; the value of a key, NULL: none; what changes in a text if the head
 * has changed; and the names of the classes in a folder's config.json, separated by commas, which the caller frees; *out NULL: none. */
LS_MUST_CHECK ls_status ls__hf_head_read(const char *name, const json_t *root, const ls__config_key *key,
                                         ls_lm_options *o);
json_t *ls__hf_head_value(const ls__config_key *key, const ls_lm_options *o);
LS_MUST_CHECK ls_status ls__hf_head_update(char **text, const ls__config_key *keys, const ls_lm_options *o);
LS_MUST_CHECK ls_status ls__hf_labels_set(char **text, const char *labels);
LS_MUST_CHECK ls_status ls__hf_labels_read(const char *folder, char **out);
/* Whether a config.json has tokens that end a text, and not this one. */
bool ls__hf_config_has_other_end(const char *text, int32_t end);

#endif
