/* BERT, RoBERTa and DistilBERT: their names in files, keys of config.json and sizes. The layers are in encoder.c. */
#include <stddef.h>
#include <string.h>
#include "nn/encoder.h"

/* ---- Names of weights, and what else differs. */

static const ls__encoder_form bert_form = {
    .base = "bert.",
    .layers = "bert.encoder.layer",
    .qkv = { "attention.self.query", "attention.self.key", "attention.self.value" },
    .out = "attention.output.dense",
    .norm_1 = "attention.output.LayerNorm",
    .inner = "intermediate.dense",
    .outer = "output.dense",
    .norm_2 = "output.LayerNorm",
    .mlm_dense = "cls.predictions.transform.dense",
    .mlm_norm = "cls.predictions.transform.LayerNorm",
    .mlm_bias = "cls.predictions.bias",
    .dense = "bert.pooler.dense",
    .classifier = "classifier",
    .types = 2,
    .dense_activation = LS_TANH,
};
static const ls__encoder_form roberta_form = {
    .base = "roberta.",
    .layers = "roberta.encoder.layer",
    .qkv = { "attention.self.query", "attention.self.key", "attention.self.value" },
    .out = "attention.output.dense",
    .norm_1 = "attention.output.LayerNorm",
    .inner = "intermediate.dense",
    .outer = "output.dense",
    .norm_2 = "output.LayerNorm",
    .mlm_dense = "lm_head.dense",
    .mlm_norm = "lm_head.layer_norm",
    .mlm_bias = "lm_head.bias",
    .dense = "classifier.dense",
    .classifier = "classifier.out_proj",
    .first_position = 2, /* 1 is that of padding */
    .types = 1,
    .dense_activation = LS_TANH,
    .dense_dropout = true,
};
static const ls__encoder_form distilbert_form = {
    .base = "distilbert.",
    .layers = "distilbert.transformer.layer",
    .qkv = { "attention.q_lin", "attention.k_lin", "attention.v_lin" },
    .out = "attention.out_lin",
    .norm_1 = "sa_layer_norm",
    .inner = "ffn.lin1",
    .outer = "ffn.lin2",
    .norm_2 = "output_layer_norm",
    .mlm_dense = "vocab_transform",
    .mlm_norm = "vocab_layer_norm",
    .mlm_bias = "vocab_projector.bias",
    .dense = "pre_classifier",
    .classifier = "classifier",
    .dense_activation = LS_RELU,
    .norm_eps = 1e-12f,
};

const ls__encoder_form *ls__encoder_form_of(ls_lm_kind kind)
{
    static const ls__encoder_form *const forms[LS_LM_COUNT] = {
        [LS_LM_BERT] = &bert_form, [LS_LM_ROBERTA] = &roberta_form, [LS_LM_DISTILBERT] = &distilbert_form
    };
    return forms[kind];
}

/* Parts of a head, of any of the three. A classifier of BERT includes the pooler. */
static bool is_head(const char *name)
{
    static const char *const heads[] = {
        "cls.",        "lm_head.",        "vocab_transform.", "vocab_layer_norm.", "vocab_projector.",
        "classifier.", "pre_classifier.", "qa_outputs.",
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (!strncmp(name, heads[i], strlen(heads[i]))) return true;
    return strstr(name, "pooler.dense.") != NULL;
}

/* Heads that this model does not have, and the numbers of positions, which old versions saved. */
static bool is_ignored(const char *name)
{
    size_t n = strlen(name), end = strlen("position_ids");
    return is_head(name) || (n >= end && !strcmp(name + n - end, "position_ids"));
}

/* ---- config.json */

#define AT(member) offsetof(ls_lm_options, member)
#define COMMON(class, type, extra_positions)                                                                           \
    { .key = "architectures", .kind = LS__CONFIG_HEAD, .text = class }, { .key = "dtype", .kind = LS__CONFIG_DTYPE },  \
        { .key = "id2label", .kind = LS__CONFIG_LABELS }, { .key = "label2id", .kind = LS__CONFIG_LABELS },            \
        { .key = "max_position_embeddings",                                                                            \
          .kind = LS__CONFIG_COUNT,                                                                                    \
          .offset = AT(context),                                                                                       \
          .number = (extra_positions) },                                                                               \
        { .key = "model_type", .kind = LS__CONFIG_TEXT, .text = type },                                                \
        { .key = "tie_word_embeddings", .kind = LS__CONFIG_TRUE }, { .key = "torch_dtype", .kind = LS__CONFIG_DTYPE }, \
    {                                                                                                                  \
        .key = "vocab_size", .kind = LS__CONFIG_COUNT, .offset = AT(vocab_size)                                        \
    }
#define BERT                                                                                                         \
    { .key = "attention_probs_dropout_prob",                                                                         \
      .kind = LS__CONFIG_OWN_DROPOUT,                                                                                \
      .offset = AT(attn_dropout),                                                                                    \
      .fallback = 0.1f },                                                                                            \
        { .key = "classifier_dropout", .kind = LS__CONFIG_OWN_DROPOUT, .offset = AT(head_dropout), .fallback = -1 }, \
        { .key = "hidden_act", .kind = LS__CONFIG_TEXT, .text = "gelu" },                                            \
        { .key = "hidden_dropout_prob", .kind = LS__CONFIG_RATE, .offset = AT(dropout), .fallback = 0.1f },          \
        { .key = "hidden_size", .kind = LS__CONFIG_COUNT, .offset = AT(width) },                                     \
        { .key = "intermediate_size", .kind = LS__CONFIG_COUNT, .offset = AT(inner) },                               \
        { .key = "layer_norm_eps", .kind = LS__CONFIG_RATE, .offset = AT(norm_eps), .fallback = 1e-12f },            \
        { .key = "num_attention_heads", .kind = LS__CONFIG_COUNT, .offset = AT(heads) },                             \
        { .key = "num_hidden_layers", .kind = LS__CONFIG_COUNT, .offset = AT(layers) },                              \
        { .key = "type_vocab_size", .kind = LS__CONFIG_COUNT, .offset = AT(types) },                                 \
        { .key = "position_embedding_type", .kind = LS__CONFIG_TEXT, .text = "absolute", .read_only = true },        \
        { .key = "is_decoder", .kind = LS__CONFIG_FALSE, .read_only = true },                                        \
    {                                                                                                                \
        .key = "add_cross_attention", .kind = LS__CONFIG_FALSE, .read_only = true                                    \
    }

static const ls__config_key bert_config[] = { COMMON("Bert", "bert", 0), BERT, { .key = NULL } };
static const ls__config_key roberta_config[] = {
    COMMON("Roberta", "roberta", 2),
    BERT,
    { .key = "pad_token_id",
      .kind = LS__CONFIG_NUMBER,
      .number = 1 }, /* positions are counted from the next number on */
    { .key = NULL },
};
static const ls__config_key distilbert_config[] = {
    COMMON("DistilBert", "distilbert", 0),
    { .key = "activation", .kind = LS__CONFIG_TEXT, .text = "gelu" },
    { .key = "attention_dropout", .kind = LS__CONFIG_OWN_DROPOUT, .offset = AT(attn_dropout), .fallback = 0.1f },
    { .key = "dim", .kind = LS__CONFIG_COUNT, .offset = AT(width) },
    { .key = "dropout", .kind = LS__CONFIG_RATE, .offset = AT(dropout), .fallback = 0.1f },
    { .key = "hidden_dim", .kind = LS__CONFIG_COUNT, .offset = AT(inner) },
    { .key = "n_heads", .kind = LS__CONFIG_COUNT, .offset = AT(heads) },
    { .key = "n_layers", .kind = LS__CONFIG_COUNT, .offset = AT(layers) },
    { .key = "seq_classif_dropout", .kind = LS__CONFIG_OWN_DROPOUT, .offset = AT(head_dropout), .fallback = 0.2f },
    { .key = "sinusoidal_pos_embds", .kind = LS__CONFIG_FALSE },
    { .key = NULL },
};

/* ---- Sizes by name. The first of each kind is small, for any machine; the defaults of options that are 0. */

#define SMALL .layers = 2, .width = 128, .heads = 2, .inner = 512, .context = 512, .norm_eps = 1e-12f
#define BASE  .width = 768, .heads = 12, .inner = 3072, .context = 512, .norm_eps = 1e-12f
#define LARGE .layers = 24, .width = 1024, .heads = 16, .inner = 4096, .context = 512, .norm_eps = 1e-12f
static const struct ls__lm_size berts[] = {
    { "bert", { .kind = LS_LM_BERT, SMALL, .vocab_size = 30522 } },
    { "bert-base", { .kind = LS_LM_BERT, .layers = 12, BASE, .vocab_size = 30522 } },
    { "bert-large", { .kind = LS_LM_BERT, LARGE, .vocab_size = 30522 } },
};
static const struct ls__lm_size robertas[] = {
    { "roberta", { .kind = LS_LM_ROBERTA, SMALL, .vocab_size = 50265 } },
    { "roberta-base", { .kind = LS_LM_ROBERTA, .layers = 12, BASE, .vocab_size = 50265 } },
    { "roberta-large", { .kind = LS_LM_ROBERTA, LARGE, .vocab_size = 50265 } },
};
static const struct ls__lm_size distilberts[] = {
    { "distilbert", { .kind = LS_LM_DISTILBERT, SMALL, .vocab_size = 30522 } },
    { "distilbert-base", { .kind = LS_LM_DISTILBERT, .layers = 6, BASE, .vocab_size = 30522 } },
};

static const ls_lm_options bert_absent = { .layers = 12, BASE, .vocab_size = 30522, .types = 2 };
static const ls_lm_options roberta_absent = {
    .layers = 12, .width = 768, .heads = 12, .inner = 3072, .context = 510, .vocab_size = 50265, .types = 2
};
static const ls_lm_options distilbert_absent = { .layers = 6, BASE, .vocab_size = 30522 };

#define MEMBER(type_name, tied_name)                                               \
    extern const ls__lm_type ls__lm_##type_name;                                   \
    const ls__lm_type ls__lm_##type_name = {                                       \
        .model = { .name = #type_name,                                             \
                   .loss = ls__encoder_loss,                                       \
                   .logits = ls__encoder_logits,                                   \
                   .lm = &ls__lm_##type_name },                                    \
        .encoder = true,                                                           \
        .presets = type_name##s,                                                   \
        .n_presets = sizeof type_name##s / sizeof *type_name##s,                   \
        .absent = &type_name##_absent,                                             \
        .check = ls__encoder_check,                                                \
        .list = ls__encoder_list,                                                  \
        .head = ls__encoder_head,                                                  \
        .cache_width = ls__encoder_cache_width,                                    \
        .flops_per_token = ls__encoder_flops_per_token,                            \
        .config = type_name##_config,                                              \
        .end_token = -1,                                                           \
        .weights = { .base = #type_name ".",                                       \
                     .gamma = true,                                                \
                     .is_ignored = is_ignored,                                     \
                     .is_head = is_head,                                           \
                     .tied = tied_name,                                            \
                     .tied_to = #type_name ".embeddings.word_embeddings.weight" }, \
    }
MEMBER(bert, "cls.predictions.decoder.weight");
MEMBER(roberta, "lm_head.decoder.weight");
MEMBER(distilbert, "vocab_projector.weight");
