/* A multi-layer perceptron: linear layers with an activation between them. */
#include "nn/model.h"

#include <math.h>
#include "base/status.h"

static ls_tensor *mlp_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    const ls_mlp_options *o = &m->mlp;
    ls_linear_options inner = { .activation = o->activation };
    ls_tensor *x = ls_tape_input(t, b->inputs, 2, (int64_t[]){ b->batch_size, o->inputs });
    for (int i = 0; i < o->layers; i++)
        x = ls_linear(t, x, &m->params[2 * i], &m->params[2 * i + 1], i + 1 < o->layers ? &inner : NULL);
    return x;
}

static ls_tensor *mlp_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_cross_entropy_options targets = ls__batch_targets(b);
    return ls_cross_entropy(t, mlp_logits(m, t, b), &targets);
}

static const ls__model_type type = { .name = "mlp", .kind = LS_MODEL_MLP, .loss = mlp_loss, .logits = mlp_logits };

ls_status ls__mlp_open(ls_model **out, const ls_mlp_options *options)
{
    ls_mlp_options o = *options;
    if (!o.hidden) o.hidden = 128;
    if (!o.layers) o.layers = 2;
    if (!o.classes) o.classes = 10;
    if (!o.activation) o.activation = LS_RELU;
    if (o.inputs < 1 || o.hidden < 1 || o.layers < 1 || o.layers > 10000 || o.classes < 1)
        return ls__fail(LS_EINVAL, "mlp: %d inputs, %d hidden, %d layers, %d classes: all must be >= 1", o.inputs,
                        o.hidden, o.layers, o.classes);
    ls_model *m = ls__model_make(&type);
    if (!m) return LS_ENOMEM;
    m->mlp = o;
    for (int i = 0; i < o.layers; i++) {
        int in = i ? o.hidden : o.inputs, outputs = i + 1 < o.layers ? o.hidden : o.classes;
        ls__places_add(&m->places, (float)sqrt(2.0 / in), in, outputs, 0, 0, "layers.%d.weight", i);
        ls__places_add(&m->places, LS__INIT_ZEROS, outputs, 0, 0, 0, "layers.%d.bias", i);
    }
    ls_status status = ls__model_finish(&m);
    *out = m;
    return status;
}
