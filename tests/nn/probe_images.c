/* probe_images FOLDER IN SAVED OUT: what lockstep computes of a ResNet or a vision transformer, for check_torchvision.py and
 * check_vit.py. IN has images (steps, rows, size, size, 3) and targets (steps, rows). OUT gets the logits of the first batch in
 * evaluation, the gradients of its loss in training, the losses of a step of SGD with momentum on each batch, and the buffers after
 * the last. The model is saved to SAVED before the first step. */
#include "probe.h"

typedef struct batches {
    size_t steps, rows, each; /* each: elements of a batch */
    float *images;
    int32_t *targets;
} batches;

static ls_status read_batches(batches *b, const char *path, int *size)
{
    ls__st_reader *r;
    ls_status status = ls__st_open(&r, path);
    if (status) return status;
    const ls__st_tensor *x = ls__st_find(r, "images"), *y = ls__st_find(r, "targets");
    *b = (batches){ .steps = x->shape[0], .rows = x->shape[1] };
    b->each = x->shape[1] * x->shape[2] * x->shape[3] * x->shape[4];
    b->images = malloc(x->bytes);
    b->targets = malloc(y->bytes);
    *size = (int)x->shape[2];
    status = ls__st_to_f32(x, 0, b->each * b->steps, b->images);
    if (!status) status = ls__st_read(y, 0, y->bytes, b->targets);
    ls__st_free(&r);
    return status;
}

static ls_model_batch batch_of(const void *user, size_t step)
{
    const batches *b = user;
    return (ls_model_batch){ .batch_size = (int64_t)b->rows,
                             .inputs = b->images + step * b->each,
                             .targets = b->targets + step * b->rows };
}

int main(int argc, char **argv)
{
    probe p = { 0 };
    batches in;
    ls_model_options options;
    int size;
    if (argc != 5) return 2;
    ls_status status = read_batches(&in, argv[2], &size);
    if (!status) status = ls_model_options_read(argv[1], &options);
    if (!status) options.resnet.size = size;
    if (!status) status = probe_open(&p, &options, argv[1], argv[3]);
    ls_model_batch first = status ? (ls_model_batch){ 0 } : batch_of(&in, 0);
    if (!status) status = probe_logits(&p, &first);
    ls_optimizer_options sgd = { .kind = LS_SGD, .momentum = 0.9f };
    if (!status) status = probe_train(&p, in.steps, batch_of, &in, &sgd, 0, 1e-3f);
    if (!status) {
        const ls_place *buffers;
        float *data;
        size_t n = ls_model_buffers(p.model, &buffers, &data);
        probe_add_places(&p, "buffer.", buffers, n, data);
    }
    return probe_end(&p, status, "probe_images", argv[4]);
}
