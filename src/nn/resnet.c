/* The CIFAR form of ResNet (He et al. 2015, section 4.2): two 3x3 convolutions with batch norm on a residual stream.
 * Where the width doubles, the image is halved and the shortcut is a 1x1 convolution of stride 2. Names are those of
 * torchvision's residual blocks. */
#include "nn/model.h"

#include <math.h>
#include "base/status.h"

enum { STAGES = 3 };

/* Iterates over parameters and buffers in the order in which they were listed. */
typedef struct cursor {
    ls_model *model;
    ls_param *param;
    size_t buffer;
} cursor;

static void list_conv(ls__places *p, const char *name, int layer, int index, int in, int out, int k)
{
    float std = (float)sqrt(2.0 / (out * k * k)); /* He initialization for ReLU, by outputs */
    if (layer)
        ls__places_add(p, std, out, in, k, k, "layer%d.%d.%s.weight", layer, index, name);
    else
        ls__places_add(p, std, out, in, k, k, "%s.weight", name);
}

static void list_norm(ls_model *m, const char *name, int layer, int index, int width)
{
    static const char *const parts[] = { "weight", "bias", "running_mean", "running_var" };
    for (int i = 0; i < 4; i++) {
        ls__places *p = i < 2 ? &m->places : &m->buffer_places;
        float init = i == 0 || i == 3 ? LS__INIT_ONES : LS__INIT_ZEROS;
        if (layer)
            ls__places_add(p, init, width, 0, 0, 0, "layer%d.%d.%s.%s", layer, index, name, parts[i]);
        else
            ls__places_add(p, init, width, 0, 0, 0, "%s.%s", name, parts[i]);
    }
}

static void list_block(ls_model *m, int stage, int index, int in, int out)
{
    list_conv(&m->places, "conv1", stage, index, in, out, 3);
    list_norm(m, "bn1", stage, index, out);
    list_conv(&m->places, "conv2", stage, index, out, out, 3);
    list_norm(m, "bn2", stage, index, out);
    if (in == out) return;
    list_conv(&m->places, "downsample.0", stage, index, in, out, 1);
    list_norm(m, "downsample.1", stage, index, out);
}

/* Convolution and batch norm, the next in the list. */
static ls_tensor *conv_norm(cursor *c, ls_tape *t, ls_tensor *x, int k, int stride)
{
    ls_model *m = c->model;
    ls_conv2d_options conv = { .stride = stride, .padding = k / 2 };
    const ls_place *running = &m->buffer_places.list[c->buffer];
    ls_batch_norm_state state = { .mean = m->buffers + running[0].offset, .var = m->buffers + running[1].offset };
    x = ls_conv2d(t, x, &c->param[0], NULL, &conv);
    x = ls_batch_norm(t, x, &c->param[1], &c->param[2], &state);
    c->param += 3;
    c->buffer += 2;
    return x;
}

static ls_tensor *block(cursor *c, ls_tape *t, ls_tensor *x, bool down)
{
    ls_tensor *y = ls_activate(t, conv_norm(c, t, x, 3, down ? 2 : 1), LS_RELU);
    y = conv_norm(c, t, y, 3, 1);
    ls_tensor *shortcut = down ? conv_norm(c, t, x, 1, 2) : x;
    return ls_activate(t, ls_add(t, y, shortcut), LS_RELU);
}

static ls_tensor *resnet_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    const ls_resnet_options *o = &m->resnet;
    cursor c = { .model = m, .param = m->params };
    ls_linear_options output = { .transposed = true };
    ls_tensor *x = ls_tape_input(t, b->inputs, 4, (int64_t[]){ b->batch_size, o->channels, o->size, o->size });
    x = ls_activate(t, conv_norm(&c, t, x, 3, 1), LS_RELU);
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < o->blocks; i++) x = block(&c, t, x, stage > 0 && i == 0);
    return ls_linear(t, ls_global_avg_pool2d(t, x), &c.param[0], &c.param[1], &output);
}

static ls_tensor *resnet_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_cross_entropy_options targets = ls__batch_targets(b);
    return ls_cross_entropy(t, resnet_logits(m, t, b), &targets);
}

static const ls__model_type type = { .name = "resnet", .loss = resnet_loss, .logits = resnet_logits };

ls_status ls_resnet_open(ls_model **out, const ls_resnet_options *options)
{
    LS__NEED(out, "out");
    ls_resnet_options o = options ? *options : (ls_resnet_options){ 0 };
    *out = NULL;
    if (!o.blocks) o.blocks = 3;
    if (!o.width) o.width = 16;
    if (!o.channels) o.channels = 3;
    if (!o.size) o.size = 32;
    if (!o.classes) o.classes = 10;
    if (o.blocks < 1 || o.blocks > 1000 || o.width < 1 || o.width > 1 << 16 || o.channels < 1 || o.classes < 1)
        return ls__fail(LS_EINVAL, "resnet: %d blocks, width %d, %d channels, %d classes: all must be >= 1", o.blocks,
                        o.width, o.channels, o.classes);
    if (o.size < 4 || o.size % 4)
        return ls__fail(LS_EINVAL, "resnet: images of size %d; it must be a multiple of 4", o.size);
    ls_model *m = ls__model_make(&type);
    if (!m) return LS_ENOMEM;
    m->resnet = o;
    list_conv(&m->places, "conv1", 0, 0, o.channels, o.width, 3);
    list_norm(m, "bn1", 0, 0, o.width);
    for (int stage = 0, in = o.width; stage < STAGES; stage++, in = o.width << (stage - 1))
        for (int i = 0; i < o.blocks; i++) list_block(m, stage + 1, i, i ? o.width << stage : in, o.width << stage);
    int last = o.width << (STAGES - 1);
    ls__places_add(&m->places, (float)sqrt(1.0 / last), o.classes, last, 0, 0, "fc.weight");
    ls__places_add(&m->places, LS__INIT_ZEROS, o.classes, 0, 0, 0, "fc.bias");
    ls_status status = ls__model_finish(&m);
    *out = m;
    return status;
}
