/* The Llama family: RMS norms, rotary positions, attention with grouped queries, and a gated MLP on a residual stream. Llama, Qwen2,
 * Qwen3 and Mistral differ in biases, in a norm of queries and keys, and in windows; each is a table at the end of this file. Names
 * and layouts are Hugging Face's, so files need no conversion. */
#include "nn/model.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "base/status.h"
#include "nn/lora.h"

/* What the members of the family differ in. */
static const struct {
    bool qkv_bias;                                       /* always has biases of queries, keys and values */
    bool head_norm;                                      /* norms of queries and keys */
    bool attention_bias, mlp_bias, window, window_first; /* the options of these names */
} traits[LS_LM_COUNT] = {
    [LS_LM_LLAMA] = { .attention_bias = true, .mlp_bias = true },
    [LS_LM_QWEN2] = { .qkv_bias = true, .window = true, .window_first = true },
    [LS_LM_QWEN3] = { .head_norm = true, .attention_bias = true, .window = true, .window_first = true },
    [LS_LM_MISTRAL] = { .window = true },
};

static bool has_qkv_bias(const ls_lm_options *o)
{
    return o->attention_bias || traits[o->kind].qkv_bias;
}

static bool has_head_norm(const ls_lm_options *o)
{
    return traits[o->kind].head_norm;
}

/* ---- Parameters: the embedding, those of each block, the last norm, and perhaps the head. */

/* Where a block has its parameters, relative to its first; -1: it has none. */
typedef struct layout {
    int norm_1, q, q_bias, q_norm, o, o_bias, norm_2, gate, gate_bias, down, down_bias, count;
} layout;

static layout layout_of(const ls_lm_options *o)
{
    layout l = { .q_bias = -1, .q_norm = -1, .o_bias = -1, .gate_bias = -1, .down_bias = -1 };
    int n = 0;
    l.norm_1 = n++;
    l.q = n, n += 3; /* then k and v */
    if (has_qkv_bias(o)) l.q_bias = n, n += 3;
    if (has_head_norm(o)) l.q_norm = n, n += 2; /* then k */
    l.o = n++;
    if (o->attention_bias) l.o_bias = n++;
    l.norm_2 = n++;
    l.gate = n, n += 2; /* then up */
    if (o->mlp_bias) l.gate_bias = n, n += 2;
    l.down = n++;
    if (o->mlp_bias) l.down_bias = n++;
    l.count = n;
    return l;
}

enum { EMBEDDING, FIRST_BLOCK };

static void list_attention(ls__places *p, const ls_lm_options *o, int layer, float std, float std_residual)
{
    static const char letters[] = "qkv";
    int64_t C = o->width, D = o->head_dim, rows[3] = { o->heads * D, o->kv_heads * D, o->kv_heads * D };
    for (int i = 0; i < 3; i++)
        ls__places_add(p, std, rows[i], C, 0, 0, "model.layers.%d.self_attn.%c_proj.weight", layer, letters[i]);
    for (int i = 0; i < 3 && has_qkv_bias(o); i++)
        ls__places_add(p, LS__INIT_ZEROS, rows[i], 0, 0, 0, "model.layers.%d.self_attn.%c_proj.bias", layer,
                       letters[i]);
    for (int i = 0; i < 2 && has_head_norm(o); i++)
        ls__places_add(p, LS__INIT_ONES, D, 0, 0, 0, "model.layers.%d.self_attn.%c_norm.weight", layer, letters[i]);
    ls__places_add(p, std_residual, C, rows[0], 0, 0, "model.layers.%d.self_attn.o_proj.weight", layer);
    if (o->attention_bias)
        ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "model.layers.%d.self_attn.o_proj.bias", layer);
}

static void list_mlp(ls__places *p, const ls_lm_options *o, int layer, float std, float std_residual)
{
    static const char *const names[] = { "gate", "up" };
    int64_t C = o->width, inner = o->inner;
    for (int i = 0; i < 2; i++)
        ls__places_add(p, std, inner, C, 0, 0, "model.layers.%d.mlp.%s_proj.weight", layer, names[i]);
    for (int i = 0; i < 2 && o->mlp_bias; i++)
        ls__places_add(p, LS__INIT_ZEROS, inner, 0, 0, 0, "model.layers.%d.mlp.%s_proj.bias", layer, names[i]);
    ls__places_add(p, std_residual, C, inner, 0, 0, "model.layers.%d.mlp.down_proj.weight", layer);
    if (o->mlp_bias) ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "model.layers.%d.mlp.down_proj.bias", layer);
}

static void list(ls_model *m)
{
    const ls_lm_options *o = &m->lm;
    ls__places *p = &m->places;
    float std = 0.02f, std_residual = (float)(0.02 / sqrt(2.0 * o->layers));
    int64_t C = o->width;
    ls__places_add(p, std, o->vocab_size, C, 0, 0, "model.embed_tokens.weight");
    ls__places_mark_table(p);
    for (int layer = 0; layer < o->layers; layer++) {
        ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "model.layers.%d.input_layernorm.weight", layer);
        list_attention(p, o, layer, std, std_residual);
        ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "model.layers.%d.post_attention_layernorm.weight", layer);
        list_mlp(p, o, layer, std, std_residual);
    }
    ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "model.norm.weight");
    if (o->head == LS_HEAD_UNTIED) {
        ls__places_add(p, std, o->vocab_size, C, 0, 0, "lm_head.weight");
        ls__places_mark_table(p);
    }
}

/* ---- The forward pass */

/* `count` layers of one input, whose weights and biases (-1: none) follow each other. */
static ls_tensor *joint(const ls_model *m, ls_tape *t, ls_tensor *x, ls_param *p, int weight, int bias, int count)
{
    ls_param *w[3], *b[3];
    for (int i = 0; i < count; i++) {
        w[i] = &p[weight + i];
        b[i] = bias < 0 ? NULL : &p[bias + i];
    }
    return ls__lm_joint(m, t, x, w, bias < 0 ? NULL : b, count);
}

static ls_tensor *project(const ls_model *m, ls_tape *t, ls_tensor *x, ls_param *p, int weight, int bias,
                          ls_tensor *add)
{
    return ls__lm_linear(m, t, x, &p[weight], bias < 0 ? NULL : &p[bias],
                         &(ls_linear_options){ .transposed = true, .add = add });
}

/* One block: x + attention(norm(x)), then x + mlp(norm(x)). Backward recomputes the norms and the gated product. */
typedef struct block_args {
    const ls_model *model;
    const ls_lm_options *options;
    ls_param *params; /* the block's */
    int layer;
    const ls_tensor *angles;
    ls_kv_cache *cache;
} block_args;

static ls_tensor *block(void *user, ls_tape *t, ls_tensor *x)
{
    const block_args *a = user;
    const ls_lm_options *o = a->options;
    layout l = layout_of(o);
    ls_param *p = a->params;
    ls_attention_options attention = { .heads = o->heads,
                                       .kv_heads = o->kv_heads,
                                       .window = a->layer >= o->window_first ? o->window : 0,
                                       .dropout = ls__lm_dropout(o, o->attn_dropout),
                                       .cache = a->cache };
    ls_tensor *norm = ls_rms_norm(t, x, &p[l.norm_1], o->norm_eps);
    ls_tensor *y = joint(a->model, t, norm, p, l.q, l.q_bias, 3);
    ls_recompute(t, norm);
    if (l.q_norm >= 0) y = ls_head_norm(t, y, &p[l.q_norm], &p[l.q_norm + 1], o->heads, o->kv_heads, o->norm_eps);
    y = ls_attention(t, ls_rotary(t, y, a->angles, o->heads + o->kv_heads), &attention);
    x = project(a->model, t, y, p, l.o, l.o_bias, x);

    norm = ls_rms_norm(t, x, &p[l.norm_2], o->norm_eps);
    y = joint(a->model, t, norm, p, l.gate, l.gate_bias, 2);
    ls_recompute(t, norm);
    ls_tensor *gated = ls_swiglu(t, y);
    x = project(a->model, t, gated, p, l.down, l.down_bias, x);
    ls_recompute(t, gated);
    return x;
}

static ls_tensor *hidden(ls_model *m, ls_tape *t, const int32_t *tokens, int64_t B, int64_t T, ls_kv_cache *caches)
{
    const ls_lm_options *o = &m->lm;
    const int64_t *first = ls__lm_first(t, caches, B);
    ls_tensor *x = ls_embedding(t, tokens, B, T, &m->params[EMBEDDING], NULL, NULL);
    ls_tensor *angles = ls_rotary_table(t, &o->rope, o->head_dim, first, first ? B : 1, T);
    int each = layout_of(o).count;
    block_args a = { .model = m, .options = o, .params = m->params + FIRST_BLOCK, .angles = angles };
    for (; a.layer < o->layers; a.layer++, a.params += each) {
        a.cache = caches ? &caches[a.layer * B] : NULL;
        x = ls__lm_block(m, t, x, block, &a, sizeof a, a.params, each);
    }
    return ls_rms_norm(t, x, a.params, o->norm_eps);
}

static size_t head(const ls_model *m)
{
    const ls__places *own = m->frozen_places.count ? &m->frozen_places : &m->places;
    return m->lm.head == LS_HEAD_UNTIED ? own->count - 1 : EMBEDDING;
}

static size_t cache_width(const ls_lm_options *o)
{
    return (size_t)o->kv_heads * (size_t)o->head_dim;
}

/* See gpt2.c. */
static double flops_per_token(const ls_lm_options *o, int64_t seq_len)
{
    double C = o->width, Q = (double)o->heads * o->head_dim, KV = (double)o->kv_heads * o->head_dim;
    double weights = (2 * C * Q + 2 * C * KV + 3 * C * o->inner) * o->layers + C * o->vocab_size, pairs = 0;
    for (int layer = 0; layer < o->layers; layer++) {
        double seen = (double)seq_len / 2;
        pairs += layer >= o->window_first && o->window && o->window < seen ? o->window : seen;
    }
    return 6 * weights + 12 * Q * pairs;
}

/* ---- Options */

static ls_status check_rope(const char *name, ls_rope *r)
{
    if (r->theta == 0) r->theta = 10000;
    if (!(r->theta >= 1 && r->theta <= 1e12f))
        return ls__fail(LS_EINVAL, "%s: rope theta is %g; it must be from 1 to 1e12", name, (double)r->theta);
    if ((unsigned)r->kind > LS_ROPE_LLAMA3) return ls__fail(LS_EINVAL, "%s: unknown rope %d", name, (int)r->kind);
    if (r->kind != LS_ROPE_DEFAULT && !(r->factor >= 1 && r->factor <= 1e6f))
        return ls__fail(LS_EINVAL, "%s: rope factor is %g; it must be from 1 to 1e6", name, (double)r->factor);
    if (r->kind == LS_ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor &&
                                       r->high_freq_factor <= 1e6f && r->original_context >= 1))
        return ls__fail(LS_EINVAL,
                        "%s: rope llama3 has factors %g and %g for %d positions; low_freq_factor must be above 0, "
                        "high_freq_factor above it, and the original context at least 1",
                        name, (double)r->low_freq_factor, (double)r->high_freq_factor, r->original_context);
    if (r->kind == LS_ROPE_DEFAULT) *r = (ls_rope){ .theta = r->theta };
    if (r->kind == LS_ROPE_LINEAR) *r = (ls_rope){ .kind = r->kind, .theta = r->theta, .factor = r->factor };
    return LS_OK;
}

static ls_status check_kind(const char *name, const ls_lm_options *o)
{
    const char *wrong = NULL;
    if (o->attention_bias && !traits[o->kind].attention_bias) wrong = "attention_bias is an option of llama and qwen3";
    if (o->mlp_bias && !traits[o->kind].mlp_bias) wrong = "mlp_bias is an option of llama";
    if (o->window && !traits[o->kind].window) wrong = "a window is an option of mistral, qwen2 and qwen3";
    if (o->window_first && (!o->window || !traits[o->kind].window_first))
        wrong = "window_first is an option of qwen2 and qwen3, with a window";
    if (o->embd_dropout > 0) wrong = "dropout of embeddings is an option of gpt2";
    return wrong ? ls__fail(LS_EINVAL, "%s: %s; choose another model or leave it out", name, wrong) : LS_OK;
}

static ls_status check(ls_lm_options *o)
{
    const char *name = ls__lm_type_of(o->kind)->model.name;
    ls_status status = check_kind(name, o);
    if (!status) status = ls__lm_check_no_encoder(o);
    if (status) return status;
    if (!o->kv_heads) o->kv_heads = o->heads;
    if (!o->head_dim && o->width % o->heads)
        return ls__fail(LS_EINVAL, "%s: width %d is not divisible by %d heads, and head_dim is not given", name,
                        o->width, o->heads);
    if (!o->head_dim) o->head_dim = o->width / o->heads;
    if (!o->inner) o->inner = (8 * o->width / 3 + 63) / 64 * 64;
    if (o->head == LS_HEAD_DEFAULT) o->head = LS_HEAD_TIED;
    if (o->kv_heads < 1 || o->heads % o->kv_heads)
        return ls__fail(LS_EINVAL, "%s: %d heads cannot share %d heads of keys and values; kv_heads must be a divisor",
                        name, o->heads, o->kv_heads);
    if (o->head_dim < 2 || o->head_dim % 2 || o->head_dim > 1 << 16)
        return ls__fail(LS_EINVAL, "%s: head_dim is %d; it must be even, from 2 to %d", name, o->head_dim, 1 << 16);
    if (o->inner < 1 || o->inner > 1 << 22)
        return ls__fail(LS_EINVAL, "%s: inner is %d; it must be from 1 to %d", name, o->inner, 1 << 22);
    if (o->window < 0 || o->window_first < 0 || o->window_first > o->layers)
        return ls__fail(LS_EINVAL, "%s: a window of %d tokens from layer %d on; both must be >= 0, with %d layers",
                        name, o->window, o->window_first, o->layers);
    return check_rope(name, &o->rope);
}

/* ---- Files */

/* Angles, which old versions saved. */
static bool is_ignored(const char *name)
{
    size_t n = strlen(name), end = strlen(".rotary_emb.inv_freq");
    return n > end && strcmp(name + n - end, ".rotary_emb.inv_freq") == 0;
}

#define AT(member) offsetof(ls_lm_options, member)
#define COMMON(class, type)                                                                                          \
    { .key = "architectures", .kind = LS__CONFIG_LIST, .text = class },                                              \
        { .key = "attention_dropout", .kind = LS__CONFIG_OWN_DROPOUT, .offset = AT(attn_dropout) },                  \
        { .key = "bos_token_id", .kind = LS__CONFIG_NULL }, { .key = "dtype", .kind = LS__CONFIG_DTYPE },            \
        { .key = "eos_token_id", .kind = LS__CONFIG_END },                                                           \
        { .key = "head_dim", .kind = LS__CONFIG_COUNT, .offset = AT(head_dim) },                                     \
        { .key = "hidden_act", .kind = LS__CONFIG_TEXT, .text = "silu", .other_text = "swish" },                     \
        { .key = "hidden_size", .kind = LS__CONFIG_COUNT, .offset = AT(width) },                                     \
        { .key = "intermediate_size", .kind = LS__CONFIG_COUNT, .offset = AT(inner) },                               \
        { .key = "max_position_embeddings", .kind = LS__CONFIG_COUNT, .offset = AT(context) },                       \
        { .key = "model_type", .kind = LS__CONFIG_TEXT, .text = type },                                              \
        { .key = "num_attention_heads", .kind = LS__CONFIG_COUNT, .offset = AT(heads) },                             \
        { .key = "num_hidden_layers", .kind = LS__CONFIG_COUNT, .offset = AT(layers) },                              \
        { .key = "num_key_value_heads", .kind = LS__CONFIG_COUNT, .offset = AT(kv_heads) },                          \
        { .key = "rms_norm_eps", .kind = LS__CONFIG_RATE, .offset = AT(norm_eps), .fallback = 1e-6f },               \
        { .key = "rope_parameters", .kind = LS__CONFIG_ROPE }, { .key = "rope_scaling", .kind = LS__CONFIG_ROPE },   \
        { .key = "rope_theta", .kind = LS__CONFIG_ROPE }, { .key = "tie_word_embeddings", .kind = LS__CONFIG_TIED }, \
        { .key = "torch_dtype", .kind = LS__CONFIG_DTYPE },                                                          \
    {                                                                                                                \
        .key = "vocab_size", .kind = LS__CONFIG_COUNT, .offset = AT(vocab_size)                                      \
    }
#define QWEN_WINDOW                                                                                                 \
    { .key = "layer_types", .kind = LS__CONFIG_WINDOW }, { .key = "max_window_layers", .kind = LS__CONFIG_WINDOW }, \
        { .key = "sliding_window", .kind = LS__CONFIG_WINDOW },                                                     \
    {                                                                                                               \
        .key = "use_sliding_window", .kind = LS__CONFIG_WINDOW                                                      \
    }

static const ls__config_key llama_config[] = {
    COMMON("LlamaForCausalLM", "llama"),
    { .key = "attention_bias", .kind = LS__CONFIG_FLAG, .offset = AT(attention_bias) },
    { .key = "mlp_bias", .kind = LS__CONFIG_FLAG, .offset = AT(mlp_bias) },
    { .key = NULL },
};
static const ls__config_key qwen2_config[] = { COMMON("Qwen2ForCausalLM", "qwen2"), QWEN_WINDOW, { .key = NULL } };
static const ls__config_key qwen3_config[] = {
    COMMON("Qwen3ForCausalLM", "qwen3"),
    QWEN_WINDOW,
    { .key = "attention_bias", .kind = LS__CONFIG_FLAG, .offset = AT(attention_bias) },
    { .key = NULL },
};
static const ls__config_key mistral_config[] = {
    COMMON("MistralForCausalLM", "mistral"),
    { .key = "sliding_window", .kind = LS__CONFIG_WINDOW },
    { .key = NULL },
};

/* ---- Sizes by name. The first of each kind is small, for any machine; the defaults of options that are 0. */

#define SMALL .layers = 2, .width = 128, .heads = 4, .kv_heads = 2, .context = 1024
#define LLAMA3(by)                        \
    .rope = { .kind = LS_ROPE_LLAMA3,     \
              .theta = 500000,            \
              .factor = by,               \
              .low_freq_factor = 1,       \
              .high_freq_factor = 4,      \
              .original_context = 8192 }, \
    .vocab_size = 128256, .context = 131072, .norm_eps = 1e-5f
#define SMOLLM .kind = LS_LM_LLAMA, .vocab_size = 49152, .norm_eps = 1e-5f
#define QWEN   .vocab_size = 151936, .norm_eps = 1e-6f, .rope = { .theta = 1000000 }

static const struct ls__lm_size llamas[] = {
    { "llama", { .kind = LS_LM_LLAMA, SMALL, .vocab_size = 32000, .norm_eps = 1e-5f } },
    { "llama-2-7b",
      { .kind = LS_LM_LLAMA,
        .layers = 32,
        .width = 4096,
        .heads = 32,
        .inner = 11008,
        .vocab_size = 32000,
        .context = 4096,
        .head = LS_HEAD_UNTIED,
        .norm_eps = 1e-5f } },
    { "llama-3.1-8b",
      { .kind = LS_LM_LLAMA,
        .layers = 32,
        .width = 4096,
        .heads = 32,
        .kv_heads = 8,
        .inner = 14336,
        .head = LS_HEAD_UNTIED,
        LLAMA3(8) } },
    { "llama-3.2-1b",
      { .kind = LS_LM_LLAMA, .layers = 16, .width = 2048, .heads = 32, .kv_heads = 8, .inner = 8192, LLAMA3(32) } },
    { "llama-3.2-3b",
      { .kind = LS_LM_LLAMA, .layers = 28, .width = 3072, .heads = 24, .kv_heads = 8, .inner = 8192, LLAMA3(32) } },
    { "smollm-135m",
      { SMOLLM, .layers = 30, .width = 576, .heads = 9, .kv_heads = 3, .inner = 1536, .context = 2048 } },
    { "smollm2-135m",
      { SMOLLM, .layers = 30, .width = 576, .heads = 9, .kv_heads = 3, .inner = 1536, .context = 8192,
        .rope = { .theta = 100000 } } },
    { "smollm2-360m",
      { SMOLLM, .layers = 32, .width = 960, .heads = 15, .kv_heads = 5, .inner = 2560, .context = 8192,
        .rope = { .theta = 100000 } } },
    { "smollm2-1.7b",
      { SMOLLM, .layers = 24, .width = 2048, .heads = 32, .inner = 8192, .context = 8192,
        .rope = { .theta = 130000 } } },
    { "tinyllama",
      { .kind = LS_LM_LLAMA,
        .layers = 22,
        .width = 2048,
        .heads = 32,
        .kv_heads = 4,
        .inner = 5632,
        .vocab_size = 32000,
        .context = 2048,
        .head = LS_HEAD_UNTIED,
        .norm_eps = 1e-5f } },
};
static const struct ls__lm_size qwen2s[] = {
    { "qwen2", { .kind = LS_LM_QWEN2, SMALL, QWEN } },
    { "qwen2.5-0.5b",
      { .kind = LS_LM_QWEN2,
        .layers = 24,
        .width = 896,
        .heads = 14,
        .kv_heads = 2,
        .inner = 4864,
        .context = 32768,
        QWEN } },
    { "qwen2.5-1.5b",
      { .kind = LS_LM_QWEN2,
        .layers = 28,
        .width = 1536,
        .heads = 12,
        .kv_heads = 2,
        .inner = 8960,
        .context = 131072,
        QWEN } },
};
static const struct ls__lm_size qwen3s[] = {
    { "qwen3", { .kind = LS_LM_QWEN3, SMALL, QWEN } },
    { "qwen3-0.6b",
      { .kind = LS_LM_QWEN3,
        .layers = 28,
        .width = 1024,
        .heads = 16,
        .kv_heads = 8,
        .head_dim = 128,
        .inner = 3072,
        .context = 40960,
        QWEN } },
    { "qwen3-1.7b",
      { .kind = LS_LM_QWEN3,
        .layers = 28,
        .width = 2048,
        .heads = 16,
        .kv_heads = 8,
        .head_dim = 128,
        .inner = 6144,
        .context = 40960,
        QWEN } },
};
static const struct ls__lm_size mistrals[] = {
    { "mistral", { .kind = LS_LM_MISTRAL, SMALL, .vocab_size = 32000, .norm_eps = 1e-5f } },
    { "mistral-7b",
      { .kind = LS_LM_MISTRAL,
        .layers = 32,
        .width = 4096,
        .heads = 32,
        .kv_heads = 8,
        .inner = 14336,
        .vocab_size = 32000,
        .context = 32768,
        .window = 4096,
        .head = LS_HEAD_UNTIED,
        .norm_eps = 1e-5f } },
};

#define LARGE .layers = 32, .width = 4096, .heads = 32, .head = LS_HEAD_UNTIED
static const ls_lm_options llama_absent = { LARGE, .inner = 11008, .vocab_size = 32000, .context = 2048 };
static const ls_lm_options qwen2_absent = { LARGE, .kv_heads = 32, .inner = 22016, .vocab_size = 151936,
                                            .context = 32768 };
static const ls_lm_options qwen3_absent = { LARGE,          .kv_heads = 32,       .head_dim = 128,
                                            .inner = 22016, .vocab_size = 151936, .context = 32768 };
static const ls_lm_options mistral_absent = {
    LARGE, .kv_heads = 8, .inner = 14336, .vocab_size = 32000, .context = 131072, .window = 4096
};

#define MEMBER(type_name)                                                                                          \
    extern const ls__lm_type ls__lm_##type_name;                                                                   \
    const ls__lm_type ls__lm_##type_name = {                                                                       \
        .model = { .name = #type_name, .loss = ls__lm_loss, .logits = ls__lm_logits, .lm = &ls__lm_##type_name },  \
        .presets = type_name##s,                                                                                   \
        .n_presets = sizeof type_name##s / sizeof *type_name##s,                                                   \
        .absent = &type_name##_absent,                                                                             \
        .check = check,                                                                                            \
        .list = list,                                                                                              \
        .hidden = hidden,                                                                                          \
        .head = head,                                                                                              \
        .cache_width = cache_width,                                                                                \
        .flops_per_token = flops_per_token,                                                                        \
        .config = type_name##_config,                                                                              \
        .end_token = -1,                                                                                           \
        .adapts = true,                                                                                            \
        .weights = { .is_ignored = is_ignored, .tied = "lm_head.weight", .tied_to = "model.embed_tokens.weight" }, \
    }
MEMBER(llama);
MEMBER(qwen2);
MEMBER(qwen3);
MEMBER(mistral);
