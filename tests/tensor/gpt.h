/* A GPT-2 put together by hand on a tape, with AdamW: what the tests and the benchmark of this layer train, without the
 * layers above. Parameters and gradients are flat blocks. */
#ifndef LS_TESTS_TENSOR_GPT_H
#define LS_TESTS_TENSOR_GPT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kern/optim.h"
#include "lockstep/tensor.h"

typedef struct gpt_config {
    int layers, width, heads, vocab, batch, seq;
    float dropout;
    double divisor; /* of the loss, and so of all gradients; 0: the number of tokens */
} gpt_config;

enum { GPT_PER_BLOCK = 12, GPT_MAX_LAYERS = 48, GPT_MAX_PARAMS = 4 + GPT_PER_BLOCK * GPT_MAX_LAYERS };

typedef struct gpt {
    gpt_config c;
    int n_params;
    ls_param params[GPT_MAX_PARAMS];
    char names[GPT_MAX_PARAMS][32];
    size_t count; /* elements of each block */
    float *values, *grads, *m, *v;
} gpt;

static inline void gpt_add(gpt *g, const char *name, int64_t s0, int64_t s1)
{
    ls_param *p = &g->params[g->n_params];
    snprintf(g->names[g->n_params], sizeof g->names[0], "%s", name);
    *p = (ls_param){ .name = g->names[g->n_params], .dims = s1 ? 2 : 1, .shape = { s0, s1 ? s1 : 1 } };
    g->n_params++;
    g->count += (size_t)(s0 * (s1 ? s1 : 1));
}

/* Lists the parameters in Hugging Face's order and gives them memory, all zero. */
static inline void gpt_open(gpt *g, const gpt_config *c, void *(*allocate)(size_t count, size_t size))
{
    static const char *const names[GPT_PER_BLOCK] = { "ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
                                                      "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                                                      "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
                                                      "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias" };
    int64_t C = c->width;
    const int64_t shapes[GPT_PER_BLOCK][2] = { { C, 0 }, { C, 0 }, { C, 3 * C }, { 3 * C, 0 }, { C, C },     { C, 0 },
                                               { C, 0 }, { C, 0 }, { C, 4 * C }, { 4 * C, 0 }, { 4 * C, C }, { C, 0 } };
    memset(g, 0, sizeof *g);
    g->c = *c;
    gpt_add(g, "wte.weight", c->vocab, C);
    gpt_add(g, "wpe.weight", c->seq, C);
    for (int layer = 0; layer < c->layers; layer++)
        for (int i = 0; i < GPT_PER_BLOCK; i++) {
            char name[32];
            snprintf(name, sizeof name, "h.%d.%s", layer, names[i]);
            gpt_add(g, name, shapes[i][0], shapes[i][1]);
        }
    gpt_add(g, "ln_f.weight", C, 0);
    gpt_add(g, "ln_f.bias", C, 0);
    float **blocks[4] = { &g->values, &g->grads, &g->m, &g->v };
    for (int i = 0; i < 4; i++) *blocks[i] = allocate(g->count, sizeof(float));
    size_t at = 0;
    for (int i = 0; i < g->n_params; i++) {
        g->params[i].value = g->values + at;
        g->params[i].grad = g->grads + at;
        at += (size_t)(g->params[i].shape[0] * g->params[i].shape[1]);
    }
}

static inline ls_tensor *gpt_block(gpt *g, ls_tape *t, ls_tensor *x, ls_param *p)
{
    float drop = g->c.dropout;
    ls_tensor *y = ls_layer_norm(t, x, &p[0], &p[1], 1e-5f);
    y = ls_linear(t, y, &p[2], &p[3], NULL);
    y = ls_attention(t, y, &(ls_attention_options){ .heads = g->c.heads, .dropout = drop });
    if (drop > 0)
        x = ls_add(t, x, ls_dropout(t, ls_linear(t, y, &p[4], &p[5], NULL), drop));
    else
        x = ls_linear(t, y, &p[4], &p[5], &(ls_linear_options){ .add = x });
    y = ls_layer_norm(t, x, &p[6], &p[7], 1e-5f);
    y = ls_linear(t, y, &p[8], &p[9], NULL);
    return ls_linear(t, y, &p[10], &p[11], &(ls_linear_options){ .add = x, .input_activation = LS_GELU_TANH });
}

/* Forward to the loss; tokens and targets are (batch, seq). NULL on failure. */
static inline ls_tensor *gpt_loss(gpt *g, ls_tape *t, const int32_t *tokens, const int32_t *targets)
{
    ls_param *p = g->params, *last = p + g->n_params - 2;
    ls_tensor *x = ls_embedding(t, tokens, g->c.batch, g->c.seq, &p[0], &p[1], NULL);
    for (int layer = 0; layer < g->c.layers; layer++) x = gpt_block(g, t, x, p + 2 + layer * GPT_PER_BLOCK);
    x = ls_layer_norm(t, x, &last[0], &last[1], 1e-5f);
    return ls_linear_cross_entropy(t, x, &p[0],
                                   &(ls_cross_entropy_options){ .targets = targets, .divisor = g->c.divisor });
}

/* AdamW as torch does it by default: betas 0.9, 0.999, eps 1e-8; `step` counts from 1. */
static inline void gpt_update(gpt *g, int step, float lr, float decay, int threads)
{
    ls__optim_args a = { .grad_scale = 1,
                         .adamw = { .keep = 1 - lr * decay,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .step_size = (float)(lr / (1 - pow(0.9, step))),
                                    .denom_scale = (float)(1 / sqrt(1 - pow(0.999, step))),
                                    .eps = 1e-8f } };
    enum { CHUNK = 1 << 14 };
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t at = 0; at < g->count; at += CHUNK)
        ls__optim_update(LS__OPTIM_ADAMW, g->values + at, g->grads + at, (float *[]){ g->m + at, g->v + at },
                         g->count - at < CHUNK ? g->count - at : CHUNK, &a, NULL);
}

#endif
