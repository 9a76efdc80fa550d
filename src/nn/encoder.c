/* Encoders: blocks of attention over the whole sequence and MLP, each followed by a norm, on embeddings of tokens, positions and
 * token types. BERT, RoBERTa and DistilBERT (bert.c) have the same layers under other names. On top is one of two heads: the
 * masked-LM head, which predicts tokens, or a classifier of the first token. Names and layouts are Hugging Face's, so files need no
 * conversion.
 *
 * The heads compute only what has a loss: the tokens with a weight above 0, or the first token of each sequence. */
#include "nn/model.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "base/status.h"
#include "nn/encoder.h"
#include "tensor/hooks.h"

static int first_position(const ls_lm_options *o)
{
    return ls__encoder_form_of(o->kind)->first_position;
}

/* ---- Parameters: embeddings, the 16 of each block, the head. */
enum { WORDS, POSITIONS, TYPES };
enum {
    Q_WEIGHT, /* then k and v, which one product serves */
    Q_BIAS = 3,
    OUT_WEIGHT = 6,
    OUT_BIAS,
    NORM_1_WEIGHT,
    NORM_1_BIAS,
    INNER_WEIGHT,
    INNER_BIAS,
    OUTER_WEIGHT,
    OUTER_BIAS,
    NORM_2_WEIGHT,
    NORM_2_BIAS,
    PER_BLOCK,
};
static const float STD = 0.02f;

static void list_linear(ls__places *p, const char *name, int64_t out, int64_t in)
{
    ls__places_add(p, STD, out, in, 0, 0, "%s.weight", name);
    ls__places_add(p, LS__INIT_ZEROS, out, 0, 0, 0, "%s.bias", name);
}

static void list_norm(ls__places *p, const char *name, int64_t C)
{
    ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "%s.weight", name);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "%s.bias", name);
}

static void list_block(ls__places *p, const ls_lm_options *o, const ls__encoder_form *n, int layer)
{
    int64_t C = o->width;
    for (int i = 0; i < 3; i++) ls__places_add(p, STD, C, C, 0, 0, "%s.%d.%s.weight", n->layers, layer, n->qkv[i]);
    for (int i = 0; i < 3; i++)
        ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "%s.%d.%s.bias", n->layers, layer, n->qkv[i]);
    const struct {
        const char *name;
        int64_t out, in; /* in 0: a norm */
    } rest[] = {
        { n->out, C, C }, { n->norm_1, C, 0 }, { n->inner, o->inner, C }, { n->outer, C, o->inner }, { n->norm_2, C, 0 }
    };
    for (int i = 0; i < 5; i++) {
        ls__places_add(p, rest[i].in ? STD : LS__INIT_ONES, rest[i].out, rest[i].in, 0, 0, "%s.%d.%s.weight", n->layers,
                       layer, rest[i].name);
        ls__places_add(p, LS__INIT_ZEROS, rest[i].out, 0, 0, 0, "%s.%d.%s.bias", n->layers, layer, rest[i].name);
    }
}

void ls__encoder_list(ls_model *m)
{
    const ls_lm_options *o = &m->lm;
    const ls__encoder_form *n = ls__encoder_form_of(o->kind);
    ls__places *p = &m->places;
    int64_t C = o->width;
    ls__places_add(p, STD, o->vocab_size, C, 0, 0, "%sembeddings.word_embeddings.weight", n->base);
    ls__places_mark_table(p);
    ls__places_add(p, STD, o->context + first_position(o), C, 0, 0, "%sembeddings.position_embeddings.weight", n->base);
    ls__places_mark_table(p);
    if (o->types) {
        ls__places_add(p, STD, o->types, C, 0, 0, "%sembeddings.token_type_embeddings.weight", n->base);
        ls__places_mark_table(p);
    }
    ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "%sembeddings.LayerNorm.weight", n->base);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "%sembeddings.LayerNorm.bias", n->base);
    for (int layer = 0; layer < o->layers; layer++) list_block(p, o, n, layer);
    if (o->classes) {
        list_linear(p, n->dense, C, C);
        list_linear(p, n->classifier, o->classes, C);
    } else {
        list_linear(p, n->mlm_dense, C, C);
        list_norm(p, n->mlm_norm, C);
        ls__places_add(p, LS__INIT_ZEROS, o->vocab_size, 0, 0, 0, "%s", n->mlm_bias);
    }
}

/* ---- The forward pass */

static ls_tensor *dropped(ls_tape *t, ls_tensor *x, float p)
{
    return p > 0 ? ls_dropout(t, x, p) : x;
}

/* x + dropout(y w + b). Without dropout the sum is made inside the product, which saves a pass over memory. */
static ls_tensor *residual(ls_tape *t, ls_tensor *y, ls_param *w, ls_activation before, ls_tensor *x, float p)
{
    ls_linear_options o = { .transposed = true, .add = p > 0 ? NULL : x, .input_activation = before };
    y = ls_linear(t, y, &w[0], &w[1], &o);
    return p > 0 ? ls_add(t, x, ls_dropout(t, y, p)) : y;
}

typedef struct block_args {
    const ls_lm_options *options;
    ls_param *params; /* the block's */
    const int32_t *lengths;
} block_args;

/* One block: norm(x + attention(x)), then norm(x + mlp(x)). */
static ls_tensor *block(void *user, ls_tape *t, ls_tensor *x)
{
    const block_args *a = user;
    const ls_lm_options *o = a->options;
    ls_param *p = a->params, *w[3], *b[3];
    for (int i = 0; i < 3; i++) w[i] = &p[Q_WEIGHT + i], b[i] = &p[Q_BIAS + i];
    ls_attention_options attention = {
        .heads = o->heads, .full = true, .lengths = a->lengths, .dropout = ls__lm_dropout(o, o->attn_dropout)
    };
    ls_tensor *y = ls_attention(t, ls_linear_joint(t, x, w, b, 3), &attention);
    x = residual(t, y, &p[OUT_WEIGHT], LS_IDENTITY, x, o->dropout);
    x = ls_layer_norm(t, x, &p[NORM_1_WEIGHT], &p[NORM_1_BIAS], o->norm_eps);
    y = ls_linear(t, x, &p[INNER_WEIGHT], &p[INNER_BIAS], &(ls_linear_options){ .transposed = true });
    y = residual(t, y, &p[OUTER_WEIGHT], LS_GELU_ERF, x, o->dropout);
    ls_recompute(t, x);
    return ls_layer_norm(t, y, &p[NORM_2_WEIGHT], &p[NORM_2_BIAS], o->norm_eps);
}

static ls_tensor *embed(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    const ls_lm_options *o = &m->lm;
    int64_t B = b->batch_size, T = b->seq_len, *first = NULL;
    if (first_position(o) && B > 0) {
        if (!(first = ls__tape_array(t, (size_t)B, sizeof *first))) return NULL;
        for (int64_t i = 0; i < B; i++) first[i] = first_position(o);
    }
    ls_tensor *x = ls_embedding(t, b->tokens, B, T, &m->params[WORDS], &m->params[POSITIONS], first);
    if (!x || !o->types) return x;
    const int32_t *types = b->types;
    if (!types) {
        int32_t *zeros = ls__tape_array(t, (size_t)(B * T), sizeof *zeros);
        if (!zeros) return NULL;
        memset(zeros, 0, (size_t)(B * T) * sizeof *zeros);
        types = zeros;
    }
    return ls_add(t, x, ls_embedding(t, types, B, T, &m->params[TYPES], NULL, NULL));
}

/* The last block's result, (B, T, C). *head: the first parameter of the head. */
static ls_tensor *encode(ls_model *m, ls_tape *t, const ls_model_batch *b, ls_param **head)
{
    const ls_lm_options *o = &m->lm;
    ls_param *norm = m->params + (o->types ? 3 : 2);
    ls_tensor *x = ls_layer_norm(t, embed(m, t, b), &norm[0], &norm[1], o->norm_eps);
    x = dropped(t, x, ls__lm_dropout(o, o->embd_dropout));
    block_args a = { .options = o, .params = norm + 2, .lengths = b->lengths };
    for (int layer = 0; layer < o->layers; layer++, a.params += PER_BLOCK)
        x = ls__lm_block(m, t, x, block, &a, sizeof a, a.params, PER_BLOCK);
    *head = a.params;
    return x;
}

/* Logits of the first token of each sequence, (B, classes). */
static ls_tensor *classify(const ls_model *m, ls_tape *t, ls_tensor *x, ls_param *head)
{
    const ls_lm_options *o = &m->lm;
    float p = ls__lm_dropout(o, o->head_dropout);
    if (!x) return NULL;
    int64_t B = x->shape[0], *rows = ls__tape_array(t, (size_t)B, sizeof *rows);
    for (int64_t b = 0; rows && b < B; b++) rows[b] = b * x->shape[1];
    x = ls_select_rows(t, x, rows, B);
    const ls__encoder_form *form = ls__encoder_form_of(o->kind);
    ls_linear_options dense = { .transposed = true, .activation = form->dense_activation };
    if (form->dense_dropout) x = dropped(t, x, p);
    x = ls_linear(t, x, &head[0], &head[1], &dense);
    return ls_linear(t, dropped(t, x, p), &head[2], &head[3], &(ls_linear_options){ .transposed = true });
}

/* Logits of tokens for rows of hidden states (..., C). */
static ls_tensor *predict(ls_model *m, ls_tape *t, ls_tensor *x, ls_param *head)
{
    ls_linear_options dense = { .transposed = true, .activation = LS_GELU_ERF };
    x = ls_linear(t, x, &head[0], &head[1], &dense);
    x = ls_layer_norm(t, x, &head[2], &head[3], m->lm.norm_eps);
    return ls_linear(t, x, &m->params[WORDS], &head[4], &(ls_linear_options){ .transposed = true });
}

ls_tensor *ls__encoder_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_param *head;
    ls_tensor *x = encode(m, t, b, &head);
    return m->lm.classes ? classify(m, t, x, head) : predict(m, t, x, head);
}

/* The loss of the tokens that have one. Their numbers in `row_losses` and `predictions` are put where the tokens are. */
static ls_tensor *mlm_loss(ls_model *m, ls_tape *t, const ls_model_batch *b, ls_tensor *x, ls_param *head)
{
    int64_t all = b->batch_size * b->seq_len, n = 0, count = 0;
    for (int64_t i = 0; i < all; i++) count += !b->weights || b->weights[i] != 0;
    size_t room = (size_t)(count ? count : 1);
    int64_t *rows = ls__tape_array(t, room, sizeof *rows);
    int32_t *targets = ls__tape_array(t, room, sizeof *targets), *best = ls__tape_array(t, room, sizeof *best);
    float *weights = ls__tape_array(t, room, sizeof *weights), *losses = ls__tape_array(t, room, sizeof *losses);
    if (!rows || !targets || !best || !weights || !losses) return NULL;
    if (!b->targets) return ls__tape_fail(t, ls__fail(LS_EINVAL, "%s: the targets are NULL", m->type->name));
    for (int64_t i = 0; i < all; i++) {
        float w = b->weights ? b->weights[i] : 1;
        if (w == 0) continue;
        rows[n] = i;
        targets[n] = b->targets[i];
        weights[n++] = w;
    }
    x = predict(m, t, count == all ? x : ls_select_rows(t, x, rows, count), head);
    ls_cross_entropy_options o = { .targets = targets, .weights = weights, .divisor = b->divisor };
    if (b->row_losses) o.row_losses = losses;
    if (b->predictions) o.predictions = best;
    ls_tensor *loss = ls_cross_entropy(t, x, &o);
    if (!loss) return NULL;
    for (int64_t i = 0; i < all && b->row_losses; i++) b->row_losses[i] = 0;
    for (int64_t i = 0; i < all && b->predictions; i++) b->predictions[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        if (b->row_losses) b->row_losses[rows[i]] = losses[i];
        if (b->predictions) b->predictions[rows[i]] = best[i];
    }
    return loss;
}

ls_tensor *ls__encoder_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_param *head;
    ls_tensor *x = encode(m, t, b, &head);
    if (!m->lm.classes) return mlm_loss(m, t, b, x, head);
    ls_cross_entropy_options targets = ls__batch_targets(b);
    return ls_cross_entropy(t, classify(m, t, x, head), &targets);
}

size_t ls__encoder_head(const ls_model *m)
{
    return m->lm.classes ? LS__NO_HEAD : WORDS;
}

size_t ls__encoder_cache_width(const ls_lm_options *o)
{
    (void)o;
    return 0;
}

/* See gpt2.c; attention is to all positions, and the masked-LM head computes 15 % of them. */
double ls__encoder_flops_per_token(const ls_lm_options *o, int64_t seq_len)
{
    double C = o->width, weights = (4 * C * C + 2 * C * o->inner) * o->layers;
    if (!o->classes) weights += 0.15 * (C * C + C * o->vocab_size);
    return 6 * weights + 12 * C * (double)seq_len * o->layers;
}

/* ---- Options */

ls_status ls__encoder_check(ls_lm_options *o)
{
    const char *name = ls__lm_type_of(o->kind)->model.name;
    ls_status status = ls__lm_check_no_llama(o);
    if (status) return status;
    if (o->width % o->heads)
        return ls__fail(LS_EINVAL, "%s: width %d is not divisible by %d heads", name, o->width, o->heads);
    const ls__encoder_form *form = ls__encoder_form_of(o->kind);
    if (!form->types && o->types)
        return ls__fail(LS_EINVAL, "%s: types is an option of bert and roberta; choose another model or leave it out",
                        name);
    if (!o->types) o->types = form->types;
    if (!o->inner) o->inner = 4 * o->width;
    if (o->inner < 1 || o->inner > 1 << 22)
        return ls__fail(LS_EINVAL, "%s: inner is %d; it must be from 1 to %d", name, o->inner, 1 << 22);
    if (o->types < 0 || o->types > 1 << 16)
        return ls__fail(LS_EINVAL, "%s: types is %d; it must be from 1 to %d", name, o->types, 1 << 16);
    if (o->classes < 0 || o->classes > 1 << 20)
        return ls__fail(LS_EINVAL, "%s: classes is %d; it must be from 0 to %d", name, o->classes, 1 << 20);
    if (!(o->head_dropout < 1))
        return ls__fail(LS_EINVAL, "%s: head_dropout is %g; it must be < 1", name, (double)o->head_dropout);
    if (form->norm_eps > 0 && o->norm_eps != form->norm_eps)
        return ls__fail(LS_EINVAL, "%s: norm_eps is %g; it must be %g", name, (double)o->norm_eps,
                        (double)form->norm_eps);
    o->head = LS_HEAD_DEFAULT;
    return LS_OK;
}
