/* GPT-2: embeddings, blocks of attention and MLP on a residual stream, a last norm, and an output projection that is the token
 * embedding again. Names and layouts are Hugging Face's, so files need no conversion. */
#include "nn/model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "nn/lora.h"

/* The parameters by number: WTE, WPE, then the 12 of each block, then the last norm. */
enum { WTE, WPE, FIRST_BLOCK };
enum {
    LN_1_WEIGHT,
    LN_1_BIAS,
    ATTN_WEIGHT,
    ATTN_BIAS,
    ATTN_PROJ_WEIGHT,
    ATTN_PROJ_BIAS,
    LN_2_WEIGHT,
    LN_2_BIAS,
    FC_WEIGHT,
    FC_BIAS,
    FC_PROJ_WEIGHT,
    FC_PROJ_BIAS,
    PER_BLOCK,
};

static void list_block(ls__places *p, int64_t C, int layer, float std, float std_residual)
{
    ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "h.%d.ln_1.weight", layer);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "h.%d.ln_1.bias", layer);
    ls__places_add(p, std, C, 3 * C, 0, 0, "h.%d.attn.c_attn.weight", layer);
    ls__places_add(p, LS__INIT_ZEROS, 3 * C, 0, 0, 0, "h.%d.attn.c_attn.bias", layer);
    ls__places_add(p, std_residual, C, C, 0, 0, "h.%d.attn.c_proj.weight", layer);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "h.%d.attn.c_proj.bias", layer);
    ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "h.%d.ln_2.weight", layer);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "h.%d.ln_2.bias", layer);
    ls__places_add(p, std, C, 4 * C, 0, 0, "h.%d.mlp.c_fc.weight", layer);
    ls__places_add(p, LS__INIT_ZEROS, 4 * C, 0, 0, 0, "h.%d.mlp.c_fc.bias", layer);
    ls__places_add(p, std_residual, 4 * C, C, 0, 0, "h.%d.mlp.c_proj.weight", layer);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "h.%d.mlp.c_proj.bias", layer);
}

static void list(ls_model *m)
{
    const ls_lm_options *o = &m->lm;
    float std = 0.02f, std_residual = (float)(0.02 / sqrt(2.0 * o->layers));
    ls__places_add(&m->places, std, o->vocab_size, o->width, 0, 0, "wte.weight");
    ls__places_mark_table(&m->places);
    ls__places_add(&m->places, std, o->context, o->width, 0, 0, "wpe.weight");
    ls__places_mark_table(&m->places);
    for (int layer = 0; layer < o->layers; layer++) list_block(&m->places, o->width, layer, std, std_residual);
    ls__places_add(&m->places, LS__INIT_ONES, o->width, 0, 0, 0, "ln_f.weight");
    ls__places_add(&m->places, LS__INIT_ZEROS, o->width, 0, 0, 0, "ln_f.bias");
}

/* ---- The forward pass */

/* One block: x + attention(norm(x)), then x + mlp(norm(x)). What is cheap to recompute is not kept: backward recomputes the two
 * norms, and GELU is applied where the projection reads its input. */
typedef struct block_args {
    const ls_model *model;
    const ls_lm_options *options;
    ls_param *params; /* the block's */
    ls_kv_cache *cache;
} block_args;

static ls_tensor *block(void *user, ls_tape *t, ls_tensor *x)
{
    const block_args *a = user;
    const ls_lm_options *o = a->options;
    ls_param *p = a->params;
    bool drop = o->dropout > 0;
    /* Without dropout the residual is added inside the projection, which saves a pass over memory. */
    ls_attention_options attention = { .heads = o->heads,
                                       .dropout = ls__lm_dropout(o, o->attn_dropout),
                                       .cache = a->cache };
    ls_tensor *norm = ls_layer_norm(t, x, &p[LN_1_WEIGHT], &p[LN_1_BIAS], o->norm_eps);
    ls_tensor *y = ls__lm_linear(a->model, t, norm, &p[ATTN_WEIGHT], &p[ATTN_BIAS], NULL);
    ls_recompute(t, norm);
    y = ls_attention(t, y, &attention);
    ls_linear_options project = { .add = drop ? NULL : x };
    y = ls__lm_linear(a->model, t, y, &p[ATTN_PROJ_WEIGHT], &p[ATTN_PROJ_BIAS], &project);
    x = drop ? ls_add(t, x, ls_dropout(t, y, o->dropout)) : y;

    norm = ls_layer_norm(t, x, &p[LN_2_WEIGHT], &p[LN_2_BIAS], o->norm_eps);
    ls_tensor *wide = ls__lm_linear(a->model, t, norm, &p[FC_WEIGHT], &p[FC_BIAS], NULL);
    ls_recompute(t, norm);
    project = (ls_linear_options){ .add = drop ? NULL : x, .input_activation = LS_GELU_TANH };
    y = ls__lm_linear(a->model, t, wide, &p[FC_PROJ_WEIGHT], &p[FC_PROJ_BIAS], &project);
    return drop ? ls_add(t, x, ls_dropout(t, y, o->dropout)) : y;
}

static ls_tensor *hidden(ls_model *m, ls_tape *t, const int32_t *tokens, int64_t B, int64_t T, ls_kv_cache *caches)
{
    const ls_lm_options *o = &m->lm;
    ls_param *norm = m->params + FIRST_BLOCK + (size_t)o->layers * PER_BLOCK;
    ls_tensor *x = ls_embedding(t, tokens, B, T, &m->params[WTE], &m->params[WPE], ls__lm_first(t, caches, B));
    float dropout = ls__lm_dropout(o, o->embd_dropout);
    if (dropout > 0) x = ls_dropout(t, x, dropout);
    block_args a = { .model = m, .options = o, .params = m->params + FIRST_BLOCK };
    for (int layer = 0; layer < o->layers; layer++, a.params += PER_BLOCK) {
        a.cache = caches ? &caches[layer * B] : NULL;
        x = ls__lm_block(m, t, x, block, &a, sizeof a, a.params, PER_BLOCK);
    }
    return ls_layer_norm(t, x, &norm[0], &norm[1], o->norm_eps);
}

static size_t head(const ls_model *m)
{
    (void)m;
    return WTE;
}

static ls_status check(ls_lm_options *o)
{
    ls_status status = ls__lm_check_no_llama(o);
    if (!status) status = ls__lm_check_no_encoder(o);
    if (status) return status;
    if (o->inner)
        return ls__fail(LS_EINVAL,
                        "gpt2: inner is an option of the Llama family and of encoders; choose another model or "
                        "leave it out");
    if (o->width % o->heads)
        return ls__fail(LS_EINVAL, "gpt2: width %d is not divisible by %d heads", o->width, o->heads);
    o->head = LS_HEAD_DEFAULT;
    return LS_OK;
}

static size_t cache_width(const ls_lm_options *o)
{
    return (size_t)o->width;
}

/* Each weight is used in three products, one in forward and two in backward. Causal attention has two products over half of the
 * positions, and twice as many in backward. */
static double flops_per_token(const ls_lm_options *o, int64_t seq_len)
{
    double C = o->width, weights = 12 * C * C * o->layers + C * o->vocab_size;
    return 6 * weights + 6 * C * (double)seq_len * o->layers;
}

/* ---- Files */

#define AT(member) offsetof(ls_lm_options, member)
static const ls__config_key config[] = {
    { .key = "activation_function", .kind = LS__CONFIG_TEXT, .text = "gelu_new", .other_text = "gelu_pytorch_tanh" },
    { .key = "architectures", .kind = LS__CONFIG_LIST, .text = "GPT2LMHeadModel" },
    { .key = "attn_pdrop", .kind = LS__CONFIG_OWN_DROPOUT, .offset = AT(attn_dropout), .fallback = 0.1f },
    { .key = "bos_token_id", .kind = LS__CONFIG_END },
    { .key = "embd_pdrop", .kind = LS__CONFIG_OWN_DROPOUT, .offset = AT(embd_dropout), .fallback = 0.1f },
    { .key = "eos_token_id", .kind = LS__CONFIG_END },
    { .key = "layer_norm_epsilon", .kind = LS__CONFIG_RATE, .offset = AT(norm_eps), .fallback = 1e-5f },
    { .key = "model_type", .kind = LS__CONFIG_TEXT, .text = "gpt2" },
    { .key = "n_embd", .kind = LS__CONFIG_COUNT, .offset = AT(width) },
    { .key = "n_head", .kind = LS__CONFIG_COUNT, .offset = AT(heads) },
    { .key = "n_ctx", .kind = LS__CONFIG_COUNT, .offset = AT(context) }, /* the older name of n_positions */
    { .key = "n_inner", .kind = LS__CONFIG_TIMES_WIDTH, .number = 4 },
    { .key = "n_layer", .kind = LS__CONFIG_COUNT, .offset = AT(layers) },
    { .key = "n_positions", .kind = LS__CONFIG_COUNT, .offset = AT(context) },
    { .key = "resid_pdrop", .kind = LS__CONFIG_RATE, .offset = AT(dropout), .fallback = 0.1f },
    { .key = "tie_word_embeddings", .kind = LS__CONFIG_TRUE },
    { .key = "torch_dtype", .kind = LS__CONFIG_DTYPE },
    { .key = "vocab_size", .kind = LS__CONFIG_COUNT, .offset = AT(vocab_size) },
    { .key = "scale_attn_weights", .kind = LS__CONFIG_TRUE, .read_only = true },
    { .key = "scale_attn_by_inverse_layer_idx", .kind = LS__CONFIG_FALSE, .read_only = true },
    { .key = "add_cross_attention", .kind = LS__CONFIG_FALSE, .read_only = true },
    { .key = NULL },
};

/* Causal masks, which old versions saved as "h.N.attn.bias" and "h.N.attn.masked_bias". */
static bool is_mask(const char *name)
{
    int length = 0;
    (void)sscanf(name, "h.%*d.attn.%n", &length);
    return length && (strcmp(name + length, "bias") == 0 || strcmp(name + length, "masked_bias") == 0);
}

#define SIZES .vocab_size = 50257, .context = 1024, .norm_eps = 1e-5f
static const struct ls__lm_size presets[] = {
    { "gpt2", { .layers = 12, .width = 768, .heads = 12, SIZES } },
    { "gpt2-medium", { .layers = 24, .width = 1024, .heads = 16, SIZES } },
    { "gpt2-large", { .layers = 36, .width = 1280, .heads = 20, SIZES } },
    { "gpt2-xl", { .layers = 48, .width = 1600, .heads = 25, SIZES } },
};

extern const ls__lm_type ls__lm_gpt2;
const ls__lm_type ls__lm_gpt2 = {
    .model = { .name = "gpt2", .loss = ls__lm_loss, .logits = ls__lm_logits, .lm = &ls__lm_gpt2 },
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .absent = &presets[0].options,
    .check = check,
    .list = list,
    .hidden = hidden,
    .head = head,
    .cache_width = cache_width,
    .flops_per_token = flops_per_token,
    .config = config,
    .end_token = 50256,
    .stores_in_first = true,
    .adapts = true,
    .weights = { .prefix = "transformer.", .is_ignored = is_mask, .tied = "lm_head.weight", .tied_to = "wte.weight" },
};
