/* ResNet (He et al. 2015), as torchvision computes and names it: torchvision's resnet18 to resnet152, and the paper's form for
 * CIFAR with the same blocks. A block is two 3x3 convolutions, or 1x1, 3x3 and 1x1 (bottleneck; the stride is in the 3x3 one), each with
 * a batch norm, on a residual stream. Where width or size change, the shortcut is a 1x1 convolution with a norm.
 *
 * Parameters are listed in the order in which forward uses them: the shortcut of a block comes first, since the last norm adds it. */
#include "nn/resnet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "tensor/hooks.h"

/* One convolution with its norm; `name` as in "layer1.0.conv1", `norm` as in "layer1.0.bn1". */
typedef struct layer {
    int in, out, k, stride;
    bool relu;
} layer;

/* Iterates over parameters and buffers in the order in which they were listed. */
typedef struct cursor {
    ls_model *model;
    ls_tape *tape;
    ls_param *param;
    size_t buffer;
} cursor;

/* A residual block. */
typedef struct block {
    int in, mid, out, stride; /* channels before, inside and after */
    bool bottleneck, shortcut;
} block;

static int expansion(const ls_resnet_options *o)
{
    return o->bottleneck ? 4 : 1;
}

static block block_at(const ls_resnet_options *o, int stage, int i)
{
    int mid = o->width << stage, before = stage ? o->width << (stage - 1) : o->width;
    block b = { .mid = mid,
                .out = mid * expansion(o),
                .stride = stage && !i ? 2 : 1,
                .in = i       ? mid * expansion(o)
                      : stage ? before * expansion(o)
                              : o->width,
                .bottleneck = o->bottleneck };
    b.shortcut = b.in != b.out || b.stride != 1;
    return b;
}

/* ---- Parameters. */

static void list_layer(ls_model *m, const char *conv, const char *norm, const layer *l)
{
    static const char *const parts[] = { "weight", "bias", "running_mean", "running_var" };
    float std = (float)sqrt(2.0 / (l->out * l->k * l->k)); /* He initialization for ReLU, by outputs */
    ls__places_add(&m->places, std, l->out, l->in, l->k, l->k, "%s.weight", conv);
    for (int i = 0; i < 4; i++)
        ls__places_add(i < 2 ? &m->places : &m->buffer_places, i == 0 || i == 3 ? LS__INIT_ONES : LS__INIT_ZEROS,
                       l->out, 0, 0, 0, "%s.%s", norm, parts[i]);
    ls__places_add(&m->buffer_places, LS__INIT_ZEROS, 0, 0, 0, 0, "%s.num_batches_tracked", norm);
}

static int block_layers(const block *b, layer out[3])
{
    if (b->bottleneck) {
        out[0] = (layer){ b->in, b->mid, 1, 1, true };
        out[1] = (layer){ b->mid, b->mid, 3, b->stride, true };
        out[2] = (layer){ b->mid, b->out, 1, 1, true };
        return 3;
    }
    out[0] = (layer){ b->in, b->mid, 3, b->stride, true };
    out[1] = (layer){ b->mid, b->out, 3, 1, true };
    return 2;
}

static layer shortcut_of(const block *b)
{
    return (layer){ b->in, b->out, 1, b->stride, false };
}

static layer stem_of(const ls_resnet_options *o)
{
    return (layer){ o->channels, o->width, o->stem ? 7 : 3, o->stem ? 2 : 1, true };
}

static void list_block(ls_model *m, int stage, int index, const block *b)
{
    char conv[64], norm[64];
    layer layers[3], across = shortcut_of(b);
    int n = block_layers(b, layers);
    snprintf(conv, sizeof conv, "layer%d.%d.downsample.0", stage + 1, index);
    snprintf(norm, sizeof norm, "layer%d.%d.downsample.1", stage + 1, index);
    if (b->shortcut) list_layer(m, conv, norm, &across);
    for (int i = 0; i < n; i++) {
        snprintf(conv, sizeof conv, "layer%d.%d.conv%d", stage + 1, index, i + 1);
        snprintf(norm, sizeof norm, "layer%d.%d.bn%d", stage + 1, index, i + 1);
        list_layer(m, conv, norm, &layers[i]);
    }
}

/* ---- Forward. */

/* Of statistics that are counted later: one batch. */
static void count_batch(ls_model *m, size_t offset)
{
    if (m->statistics)
        m->statistics[offset] = 1;
    else
        m->buffers[offset] += 1;
}

/* Convolution and batch norm, the next in the list; add: see ls_batch_norm_options. */
static ls_tensor *conv_norm(cursor *c, ls_tensor *x, const layer *l, ls_tensor *add)
{
    ls_model *m = c->model;
    ls_conv2d_options conv = { .stride = l->stride, .padding = l->k / 2 };
    ls_batch_norm_options norm = { .add = add, .relu = l->relu, .sync = m->sync };
    const ls_place *own = &m->buffer_places.list[c->buffer];
    ls_batch_norm_state state = { .mean = m->buffers + own[0].offset, .var = m->buffers + own[1].offset };
    if (m->statistics) {
        state.batch_mean = m->statistics + own[0].offset;
        state.batch_var = m->statistics + own[1].offset;
    }
    x = ls_conv2d(c->tape, x, &c->param[0], NULL, &conv);
    x = ls_batch_norm(c->tape, x, &c->param[1], &c->param[2], &state, &norm);
    if (x && !ls__tape_is_eval(c->tape)) count_batch(m, own[2].offset);
    c->param += 3;
    c->buffer += 3;
    return x;
}

static ls_tensor *run_block(cursor *c, ls_tensor *x, const block *b)
{
    layer layers[3], across = shortcut_of(b);
    int n = block_layers(b, layers);
    ls_tensor *shortcut = b->shortcut ? conv_norm(c, x, &across, NULL) : x;
    for (int i = 0; i < n; i++) x = conv_norm(c, x, &layers[i], i + 1 < n ? NULL : shortcut);
    return x;
}

static ls_tensor *resnet_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    const ls_resnet_options *o = &m->resnet;
    cursor c = { .model = m, .tape = t, .param = m->params };
    ls_linear_options output = { .transposed = true };
    layer stem = stem_of(o);
    ls_tensor *x = ls_tape_input(t, b->inputs, 4, (int64_t[]){ b->batch_size, o->size, o->size, o->channels });
    x = conv_norm(&c, x, &stem, NULL);
    if (o->stem) x = ls_max_pool2d(t, x, &(ls_pool2d_options){ .size = 3, .stride = 2, .padding = 1 });
    for (int stage = 0; stage < LS_RESNET_STAGES && o->blocks[stage]; stage++)
        for (int i = 0; i < o->blocks[stage]; i++) {
            block here = block_at(o, stage, i);
            x = run_block(&c, x, &here);
        }
    return ls_linear(t, ls_global_avg_pool2d(t, x), &c.param[0], &c.param[1], &output);
}

static ls_tensor *resnet_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_cross_entropy_options targets = ls__batch_targets(b);
    return ls_cross_entropy(t, resnet_logits(m, t, b), &targets);
}

static bool is_head(const char *name)
{
    return strncmp(name, "fc.", 3) == 0;
}

static const ls__weight_names weights = { .is_head = is_head };

static const ls__model_type type = { .weights = &weights,
                                     .name = "resnet",
                                     .kind = LS_MODEL_RESNET,
                                     .loss = resnet_loss,
                                     .logits = resnet_logits,
                                     .config_text = ls__resnet_config_text };

/* ---- Opening. */

static int last_width(const ls_resnet_options *o)
{
    int stage = 0;
    while (stage + 1 < LS_RESNET_STAGES && o->blocks[stage + 1]) stage++;
    return (o->width << stage) * expansion(o);
}

int ls__resnet_features(const ls_resnet_options *o)
{
    return last_width(o);
}

ls_status ls__resnet_check(ls_resnet_options *o)
{
    bool given = false;
    for (int i = 0; i < LS_RESNET_STAGES; i++) {
        if (o->blocks[i] < 0 || o->blocks[i] > 1000 || (i && o->blocks[i] && !o->blocks[i - 1]))
            return ls__fail(LS_EINVAL,
                            "resnet: stage %d has %d blocks; stages have from 1 to 1000 blocks, and 0 ends them", i + 1,
                            o->blocks[i]);
        given = given || o->blocks[i];
    }
    for (int i = 0; !given && i < 3; i++) o->blocks[i] = 3;
    if (!o->width) o->width = o->stem ? 64 : 16;
    if (!o->channels) o->channels = 3;
    if (!o->size) o->size = o->stem ? 224 : 32;
    if (!o->classes) o->classes = o->stem ? 1000 : 10;
    if (o->width < 1 || o->width > 1 << 14 || o->channels < 1 || o->channels > 1 << 14 || o->classes < 1)
        return ls__fail(LS_EINVAL, "resnet: width %d, %d channels, %d classes: all must be >= 1, and at most 16384",
                        o->width, o->channels, o->classes);
    if (o->size < 1 || o->size > 1 << 14)
        return ls__fail(LS_EINVAL, "resnet: images of size %d; it must be from 1 to 16384", o->size);
    for (int c = 0; c < 3; c++)
        if (o->std[c] < 0 || !isfinite(o->std[c]) || !isfinite(o->mean[c]))
            return ls__fail(LS_EINVAL, "resnet: mean %g and std %g of channel %d: must be finite, std not negative",
                            (double)o->mean[c], (double)o->std[c], c);
    return LS_OK;
}

ls_status ls__resnet_open(ls_model **out, const ls_resnet_options *options)
{
    ls_resnet_options o = *options;
    ls_status status = ls__resnet_check(&o);
    if (status) return status;
    ls_model *m = ls__model_make(&type);
    if (!m) return LS_ENOMEM;
    m->resnet = o;
    layer stem = stem_of(&o);
    list_layer(m, "conv1", "bn1", &stem);
    for (int stage = 0; stage < LS_RESNET_STAGES && o.blocks[stage]; stage++)
        for (int i = 0; i < o.blocks[stage]; i++) {
            block b = block_at(&o, stage, i);
            list_block(m, stage, i, &b);
        }
    int last = last_width(&o);
    ls__places_add(&m->places, (float)sqrt(1.0 / last), o.classes, last, 0, 0, "fc.weight");
    ls__places_add(&m->places, LS__INIT_ZEROS, o.classes, 0, 0, 0, "fc.bias");
    status = ls__model_finish(&m);
    *out = m;
    return status;
}

/* ---- Flops. */

/* Of one convolution on an image of `size`, which becomes that of its result. */
static double layer_flops(const layer *l, int *size)
{
    *size = (*size + 2 * (l->k / 2) - l->k) / l->stride + 1;
    return 2.0 * *size * *size * l->in * l->out * l->k * l->k;
}

double ls__resnet_flops(const ls_resnet_options *o)
{
    layer stem = stem_of(o), layers[3];
    int size = o->size;
    double first = layer_flops(&stem, &size), sum = first + 2.0 * last_width(o) * o->classes;
    if (o->stem) size = (size + 2 - 3) / 2 + 1;
    for (int stage = 0; stage < LS_RESNET_STAGES && o->blocks[stage]; stage++)
        for (int i = 0; i < o->blocks[stage]; i++) {
            block b = block_at(o, stage, i);
            layer across = shortcut_of(&b);
            int other = size, n = block_layers(&b, layers);
            if (b.shortcut) sum += layer_flops(&across, &other);
            for (int k = 0; k < n; k++) sum += layer_flops(&layers[k], &size);
        }
    return 3 * sum - first; /* the images have no gradient */
}
