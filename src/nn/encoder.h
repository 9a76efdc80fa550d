/* The layers of BERT and its relatives, for their tables in bert.c. */
#ifndef LS_NN_ENCODER_H
#define LS_NN_ENCODER_H

#include "nn/model.h"

/* What BERT and its relatives differ in: names of their weights, and details. */
typedef struct ls__encoder_form {
    const char *base;   /* of all that is not the head */
    const char *layers; /* of a block; its number and one of the next follow */
    const char *qkv[3], *out, *norm_1, *inner, *outer, *norm_2;
    const char *mlm_dense, *mlm_norm, *mlm_bias; /* the masked-LM head */
    const char *dense, *classifier;              /* the classifier */
    int first_position;                          /* of the first token; those before it are for padding */
    int types;                                   /* token types by default; 0: it has none */
    ls_activation dense_activation;              /* of the classifier's first layer */
    bool dense_dropout;                          /* dropout before that layer, too */
    float norm_eps;                              /* the only value that its config.json allows; 0: any */
} ls__encoder_form;
const ls__encoder_form *ls__encoder_form_of(ls_lm_kind kind);

/* For ls__lm_type: see there. */
void ls__encoder_list(ls_model *m);
ls_tensor *ls__encoder_loss(ls_model *m, ls_tape *t, const ls_model_batch *b);
ls_tensor *ls__encoder_logits(ls_model *m, ls_tape *t, const ls_model_batch *b);
size_t ls__encoder_head(const ls_model *m);
size_t ls__encoder_cache_width(const ls_lm_options *o);
double ls__encoder_flops_per_token(const ls_lm_options *o, int64_t seq_len);
LS_MUST_CHECK ls_status ls__encoder_check(ls_lm_options *o);

#endif
