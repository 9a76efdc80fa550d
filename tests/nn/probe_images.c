/* probe_images FOLDER IN SAVED OUT: what lockstep computes of a ResNet or a vision transformer, for check_torchvision.py and
 * check_vit.py. IN has images (steps, rows, size, size, 3) and targets (steps, rows). OUT gets the logits of the first batch in
 * evaluation, the gradients of its loss in training, the losses of a step of SGD with momentum on each batch, and the buffers after
 * the last. The model is saved to SAVED before the first step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/nn.h"
#include "nn/safetensors.h"

enum { MOST = 1000, MOST_TENSORS = 2000 };

static ls__st_tensor out[MOST_TENSORS];
static size_t n_out;

static void add(const char *prefix, const char *name, int dims, const int64_t *shape, const float *data, size_t count)
{
    char full[200];
    size_t *sizes = malloc(LS_MAX_DIMS * sizeof *sizes);
    float *copy = malloc(count * sizeof *copy);
    for (int i = 0; i < dims; i++) sizes[i] = (size_t)shape[i];
    memcpy(copy, data, count * sizeof *copy);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    out[n_out++] =
        (ls__st_tensor){ .name = strdup(full), .type = LS__ST_F32, .rank = (size_t)dims, .shape = sizes, .data = copy };
}

static ls_status pass(ls_model *m, ls_tape *t, const ls_model_batch *batch, bool train, float *loss)
{
    ls_param *params;
    int n = ls_model_params(m, &params);
    ls_status status = ls_tape_begin(t, params, n, &(ls_pass){ .mode = train ? LS_PASS_TRAIN : LS_PASS_EVAL });
    if (status) return status;
    ls_tensor *x = train ? ls_model_loss(m, t, batch) : ls_model_logits(m, t, batch);
    if (train) status = ls_tape_backward(t, x);
    if (!status) status = ls_tape_status(t);
    if (status) return status;
    if (train)
        *loss = x->data[0];
    else
        add("", "logits", 2, x->shape, x->data, (size_t)ls_tensor_count(x));
    return LS_OK;
}

static ls_status run(const char *folder, const char *in, const char *saved, const char *to)
{
    ls__st_reader *r;
    ls_model_options o;
    ls_model *m;
    ls_tape *t;
    ls_optimizer *optimizer;
    const ls_place *places, *buffers;
    float *data, loss = 0, losses[MOST], *images;
    ls_status status = ls__st_open(&r, in);
    if (!status) status = ls_model_options_read(folder, &o);
    if (status) return status;
    const ls__st_tensor *x = ls__st_find(r, "images"), *y = ls__st_find(r, "targets");
    int64_t steps = (int64_t)x->shape[0], rows = (int64_t)x->shape[1];
    size_t each = x->shape[1] * x->shape[2] * x->shape[3] * x->shape[4];
    int32_t *targets = malloc(y->bytes);
    images = malloc(x->bytes);
    o.resnet.size = (int)x->shape[2];
    status = ls__st_to_f32(x, 0, each * (size_t)steps, images);
    if (!status) status = ls__st_read(y, 0, y->bytes, targets);
    if (!status) status = ls_model_open(&m, &o);
    if (!status) status = ls_model_bind(m, NULL, NULL, true);
    if (!status) status = ls_model_load(m, folder);
    if (!status) status = ls_model_save(m, saved);
    if (!status) status = ls_tape_open(&t, NULL);
    if (status) return status;
    size_t n = ls_model_places(m, &places);
    status = ls_optimizer_open(&optimizer, places, n, 0, ls_model_elements(m),
                               &(ls_optimizer_options){ .kind = LS_SGD, .momentum = 0.9f });
    for (int64_t step = 0; step < steps && !status; step++) {
        ls_model_batch batch = { .batch_size = rows,
                                 .inputs = images + (size_t)step * each,
                                 .targets = targets + step * rows };
        if (!step) status = pass(m, t, &batch, false, NULL);
        if (!status) status = pass(m, t, &batch, true, &loss);
        losses[step] = loss;
        for (size_t i = 0; i < n && !step && !status; i++)
            add("grad.", places[i].name, places[i].dims, places[i].shape, ls_model_grads(m) + places[i].offset,
                places[i].count);
        if (!status) ls_optimizer_update(optimizer, ls_model_values(m), ls_model_grads(m), step, 1e-3f);
    }
    size_t n_buffers = ls_model_buffers(m, &buffers, &data);
    for (size_t i = 0; i < n_buffers && !status; i++)
        add("buffer.", buffers[i].name, buffers[i].dims, buffers[i].shape, data + buffers[i].offset, buffers[i].count);
    add("", "losses", 1, &steps, losses, (size_t)steps);
    return status ? status : ls__st_write(to, out, n_out, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 5 || run(argv[1], argv[2], argv[3], argv[4])) {
        fprintf(stderr, "probe_images: %s\n", argc == 5 ? ls_error() : "FOLDER IN SAVED OUT");
        return 1;
    }
    return 0;
}
