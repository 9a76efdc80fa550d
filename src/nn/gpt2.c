/* GPT-2: embeddings, blocks of attention and MLP on a residual stream, a last norm, and an output projection that is
 * the token embedding again. Names and layouts are Hugging Face's, so that files need no translation. */
#include "nn/model.h"

#include <math.h>

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

/* One block: x + attention(norm(x)), then x + mlp(norm(x)). What is cheap to recompute is not kept: backward recomputes
 * the two norms, and GELU is applied where the projection reads its input. */
static ls_tensor *block(ls_model *m, ls_tape *t, ls_tensor *x, int layer, ls_kv_cache *cache)
{
    const ls_gpt2_options *o = &m->gpt2;
    ls_param *p = m->params + FIRST_BLOCK + (size_t)layer * PER_BLOCK;
    bool drop = o->dropout > 0;
    /* Without dropout the residual is added inside the projection, which saves a pass over memory. */
    ls_attention_options attention = { .heads = o->heads,
                                       .dropout = ls__gpt2_dropout(o, o->attn_dropout),
                                       .cache = cache };
    ls_tensor *norm = ls_layer_norm(t, x, &p[LN_1_WEIGHT], &p[LN_1_BIAS], o->norm_eps);
    ls_tensor *y = ls_linear(t, norm, &p[ATTN_WEIGHT], &p[ATTN_BIAS], NULL);
    ls_recompute(t, norm);
    y = ls_attention(t, y, &attention);
    ls_linear_options project = { .add = drop ? NULL : x };
    y = ls_linear(t, y, &p[ATTN_PROJ_WEIGHT], &p[ATTN_PROJ_BIAS], &project);
    x = drop ? ls_add(t, x, ls_dropout(t, y, o->dropout)) : y;

    norm = ls_layer_norm(t, x, &p[LN_2_WEIGHT], &p[LN_2_BIAS], o->norm_eps);
    ls_tensor *wide = ls_linear(t, norm, &p[FC_WEIGHT], &p[FC_BIAS], NULL);
    ls_recompute(t, norm);
    project = (ls_linear_options){ .add = drop ? NULL : x, .input_activation = LS_GELU_TANH };
    y = ls_linear(t, wide, &p[FC_PROJ_WEIGHT], &p[FC_PROJ_BIAS], &project);
    return drop ? ls_add(t, x, ls_dropout(t, y, o->dropout)) : y;
}

ls_tensor *ls__gpt2_hidden(ls_model *m, ls_tape *t, const int32_t *tokens, int64_t B, int64_t T, int64_t first,
                           ls_kv_cache *caches)
{
    const ls_gpt2_options *o = &m->gpt2;
    ls_param *norm = m->params + FIRST_BLOCK + (size_t)o->layers * PER_BLOCK;
    ls_tensor *x = ls_embedding(t, tokens, B, T, &m->params[WTE], &m->params[WPE], first);
    float dropout = ls__gpt2_dropout(o, o->embd_dropout);
    if (dropout > 0) x = ls_dropout(t, x, dropout);
    for (int layer = 0; layer < o->layers; layer++) x = block(m, t, x, layer, caches ? &caches[layer] : NULL);
    return ls_layer_norm(t, x, &norm[0], &norm[1], o->norm_eps);
}

ls_tensor *ls__gpt2_head(ls_model *m, ls_tape *t, ls_tensor *x)
{
    ls_linear_options transposed = { .transposed = true };
    return ls_linear(t, x, &m->params[WTE], NULL, &transposed);
}

static ls_tensor *gpt2_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_tensor *x = ls__gpt2_hidden(m, t, b->tokens, b->rows, b->length, 0, NULL);
    ls_cross_entropy_options entropy = {
        .targets = b->targets, .weights = b->weights, .divisor = b->divisor, .row_losses = b->row_losses
    };
    return ls_linear_cross_entropy(t, x, &m->params[WTE], &entropy);
}

static ls_tensor *gpt2_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    return ls__gpt2_head(m, t, ls__gpt2_hidden(m, t, b->tokens, b->rows, b->length, 0, NULL));
}

ls_status ls_gpt2_open(ls_model **out, const ls_gpt2_options *options)
{
    ls_gpt2_options o = options ? *options : (ls_gpt2_options){ 0 };
    *out = NULL;
    ls_status status = ls_gpt2_options_check(&o);
    if (status) return status;
    ls_model *m = ls__model_make("gpt2");
    if (!m) return LS_ENOMEM;
    m->gpt2 = o;
    m->loss = gpt2_loss;
    m->logits = gpt2_logits;
    float std = 0.02f, std_residual = (float)(0.02 / sqrt(2.0 * o.layers));
    ls__places_add(&m->places, std, o.vocab, o.width, 0, 0, "wte.weight");
    ls__places_add(&m->places, std, o.context, o.width, 0, 0, "wpe.weight");
    for (int layer = 0; layer < o.layers; layer++) list_block(&m->places, o.width, layer, std, std_residual);
    ls__places_add(&m->places, LS__INIT_ONES, o.width, 0, 0, 0, "ln_f.weight");
    ls__places_add(&m->places, LS__INIT_ZEROS, o.width, 0, 0, 0, "ln_f.bias");
    status = ls__model_finish(&m);
    *out = m;
    return status;
}
