/* Vision transformer (Dosovitskiy et al. 2020), as transformers' ViTForImageClassification computes and names it: squares of the
 * image are tokens, a class token is in front of them, and blocks with norms before attention and MLP follow. The class token's
 * last state is classified. Parameters are listed in the order in which forward uses them. */
#include "nn/vit.h"

#include <math.h>
#include <string.h>
#include "base/status.h"
#include "tensor/hooks.h"

enum { PATCH_WEIGHT, PATCH_BIAS, TOKEN, POSITIONS, FIRST_BLOCK };
enum {
    NORM_1_WEIGHT,
    NORM_1_BIAS,
    Q_WEIGHT,   /* then k and v, which one product serves */
    Q_BIAS = 5, /* the same */
    OUT_WEIGHT = 8,
    OUT_BIAS,
    NORM_2_WEIGHT,
    NORM_2_BIAS,
    INNER_WEIGHT,
    INNER_BIAS,
    OUTER_WEIGHT,
    OUTER_BIAS,
    PER_BLOCK,
};
static const float STD = 0.02f;

/* ---- Parameters. */

static void list_linear(ls__places *p, int layer, const char *name, int64_t out, int64_t in)
{
    ls__places_add(p, STD, out, in, 0, 0, "vit.encoder.layer.%d.%s.weight", layer, name);
    ls__places_add(p, LS__INIT_ZEROS, out, 0, 0, 0, "vit.encoder.layer.%d.%s.bias", layer, name);
}

static void list_norm(ls__places *p, int layer, const char *name, int64_t C)
{
    ls__places_add(p, LS__INIT_ONES, C, 0, 0, 0, "vit.encoder.layer.%d.%s.weight", layer, name);
    ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "vit.encoder.layer.%d.%s.bias", layer, name);
}

static void list_block(ls__places *p, const ls_vit_options *o, int layer)
{
    static const char *const qkv[] = { "query", "key", "value" };
    int64_t C = o->width;
    list_norm(p, layer, "layernorm_before", C);
    for (int i = 0; i < 3; i++)
        ls__places_add(p, STD, C, C, 0, 0, "vit.encoder.layer.%d.attention.attention.%s.weight", layer, qkv[i]);
    for (int i = 0; i < 3; i++)
        ls__places_add(p, LS__INIT_ZEROS, C, 0, 0, 0, "vit.encoder.layer.%d.attention.attention.%s.bias", layer,
                       qkv[i]);
    list_linear(p, layer, "attention.output.dense", C, C);
    list_norm(p, layer, "layernorm_after", C);
    list_linear(p, layer, "intermediate.dense", o->inner, C);
    list_linear(p, layer, "output.dense", C, o->inner);
}

/* Squares of an image. */
static int64_t tokens_of(const ls_vit_options *o)
{
    return (int64_t)(o->size / o->patch) * (o->size / o->patch);
}

/* ---- Forward. */

static ls_tensor *run_block(const ls_vit_options *o, ls_tape *t, ls_tensor *x, ls_param *p)
{
    ls_param *w[3], *b[3];
    for (int i = 0; i < 3; i++) w[i] = &p[Q_WEIGHT + i], b[i] = &p[Q_BIAS + i];
    ls_attention_options attention = { .heads = o->heads, .full = true };
    ls_tensor *y = ls_layer_norm(t, x, &p[NORM_1_WEIGHT], &p[NORM_1_BIAS], o->norm_eps);
    y = ls_attention(t, ls_linear_joint(t, y, w, b, 3), &attention);
    x = ls_linear(t, y, &p[OUT_WEIGHT], &p[OUT_BIAS], &(ls_linear_options){ .transposed = true, .add = x });
    y = ls_layer_norm(t, x, &p[NORM_2_WEIGHT], &p[NORM_2_BIAS], o->norm_eps);
    y = ls_linear(t, y, &p[INNER_WEIGHT], &p[INNER_BIAS], &(ls_linear_options){ .transposed = true });
    ls_linear_options outer = { .transposed = true, .add = x, .input_activation = LS_GELU_ERF };
    return ls_linear(t, y, &p[OUTER_WEIGHT], &p[OUTER_BIAS], &outer);
}

static ls_tensor *vit_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    const ls_vit_options *o = &m->vit;
    ls_param *p = m->params;
    ls_tensor *x = ls_tape_input(t, b->inputs, 4, (int64_t[]){ b->batch_size, o->size, o->size, o->channels });
    x = ls_conv2d(t, x, &p[PATCH_WEIGHT], &p[PATCH_BIAS], &(ls_conv2d_options){ .stride = o->patch });
    x = x ? ls_class_token(t, x, &p[TOKEN], &p[POSITIONS]) : NULL;
    p += FIRST_BLOCK;
    for (int layer = 0; layer < o->layers && x; layer++, p += PER_BLOCK) x = run_block(o, t, x, p);
    if (!x) return NULL;
    int64_t *rows = ls__tape_array(t, (size_t)b->batch_size, sizeof *rows);
    for (int64_t i = 0; rows && i < b->batch_size; i++) rows[i] = i * x->shape[1];
    x = rows ? ls_select_rows(t, x, rows, b->batch_size) : NULL; /* a norm is of each row, so only these are needed */
    x = ls_layer_norm(t, x, &p[0], &p[1], o->norm_eps);
    return ls_linear(t, x, &p[2], &p[3], &(ls_linear_options){ .transposed = true });
}

static ls_tensor *vit_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_cross_entropy_options targets = ls__batch_targets(b);
    return ls_cross_entropy(t, vit_logits(m, t, b), &targets);
}

static bool is_head(const char *name)
{
    return strncmp(name, "classifier.", 11) == 0;
}

/* ViTModel has a pooler, which the classifier does not use. */
static bool is_ignored(const char *name)
{
    return strncmp(name, "vit.pooler.", 11) == 0 || strncmp(name, "pooler.", 7) == 0;
}

static const ls__weight_names weights = { .is_head = is_head, .is_ignored = is_ignored, .base = "vit." };

static const ls__model_type type = { .weights = &weights,
                                     .name = "vit",
                                     .kind = LS_MODEL_VIT,
                                     .loss = vit_loss,
                                     .logits = vit_logits,
                                     .config_text = ls__vit_config_text };

/* ---- Opening. */

ls_status ls__vit_check(ls_vit_options *o)
{
    if (!o->layers) o->layers = 12;
    if (!o->width) o->width = 768;
    if (!o->heads) o->heads = 12;
    if (!o->inner) o->inner = 4 * o->width;
    if (!o->patch) o->patch = 16;
    if (!o->channels) o->channels = 3;
    if (!o->size) o->size = 224;
    if (!o->classes) o->classes = 1000;
    if (o->norm_eps == 0) o->norm_eps = 1e-12f;
    const struct {
        const char *name;
        int value, most;
    } counts[] = { { "layers", o->layers, 1000 },  { "width", o->width, 1 << 16 },
                   { "heads", o->heads, 1 << 10 }, { "inner", o->inner, 1 << 20 },
                   { "patch", o->patch, 1 << 10 }, { "channels", o->channels, 1 << 14 },
                   { "size", o->size, 1 << 14 },   { "classes", o->classes, 1 << 20 } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 1 || counts[i].value > counts[i].most)
            return ls__fail(LS_EINVAL, "vit: %s is %d; it must be from 1 to %d", counts[i].name, counts[i].value,
                            counts[i].most);
    if (o->width % o->heads)
        return ls__fail(LS_EINVAL, "vit: width %d is not divisible by %d heads", o->width, o->heads);
    if (o->size % o->patch)
        return ls__fail(LS_EINVAL, "vit: images of %d x %d cannot be divided into patches of %d x %d", o->size, o->size,
                        o->patch, o->patch);
    if (!(o->norm_eps > 0 && o->norm_eps < 1))
        return ls__fail(LS_EINVAL, "vit: norm_eps is %g; it must be above 0", (double)o->norm_eps);
    return LS_OK;
}

ls_status ls__vit_open(ls_model **out, const ls_vit_options *options)
{
    ls_vit_options o = *options;
    ls_status status = ls__vit_check(&o);
    if (status) return status;
    ls_model *m = ls__model_make(&type);
    if (!m) return LS_ENOMEM;
    m->vit = o;
    ls__places *p = &m->places;
    static const char embeddings[] = "vit.embeddings";
    ls__places_add(p, STD, o.width, o.channels, o.patch, o.patch, "%s.patch_embeddings.projection.weight", embeddings);
    ls__places_add(p, LS__INIT_ZEROS, o.width, 0, 0, 0, "%s.patch_embeddings.projection.bias", embeddings);
    ls__places_add(p, STD, 1, 1, o.width, 0, "%s.cls_token", embeddings);
    ls__places_add(p, STD, 1, tokens_of(&o) + 1, o.width, 0, "%s.position_embeddings", embeddings);
    for (int layer = 0; layer < o.layers; layer++) list_block(p, &o, layer);
    ls__places_add(p, LS__INIT_ONES, o.width, 0, 0, 0, "vit.layernorm.weight");
    ls__places_add(p, LS__INIT_ZEROS, o.width, 0, 0, 0, "vit.layernorm.bias");
    ls__places_add(p, STD, o.classes, o.width, 0, 0, "classifier.weight");
    ls__places_add(p, LS__INIT_ZEROS, o.classes, 0, 0, 0, "classifier.bias");
    status = ls__model_finish(&m);
    *out = m;
    return status;
}

double ls__vit_flops(const ls_vit_options *o)
{
    double C = o->width, T = (double)tokens_of(o) + 1, patch = (double)o->patch * o->patch * o->channels;
    double blocks = T * (4 * C * C + 2 * C * o->inner + 2 * T * C) * o->layers;
    return 6 * (blocks + C * o->classes) + 4 * (T - 1) * C * patch; /* the images have no gradient */
}
