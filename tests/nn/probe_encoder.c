/* probe_encoder FOLDER BATCHES SAVED OUT: what lockstep computes of an encoder, for check_transformers.py. BATCHES is a safetensors
 * file with tokens (steps, rows, length), types, lengths (steps, rows), targets, one per token or per row, and their weights. OUT
 * gets the logits of the first batch, the gradients of its loss, and the losses of a step of AdamW on each (rate from the
 * environment: LR). The model is saved to SAVED before the first step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/nn.h"
#include "nn/safetensors.h"

typedef struct probe {
    size_t steps, rows, length, targets; /* targets: of a step */
    int32_t *tokens, *types, *lengths, *target;
    float *weights;
    ls_model *model;
    ls_tape *tape;
    ls__st_tensor *out;
    size_t n_out;
} probe;

static void *read_tensor(ls__st_reader *r, const char *name, size_t *count)
{
    const ls__st_tensor *t = ls__st_find(r, name);
    void *data = t ? malloc(t->bytes + 4) : NULL;
    if (!t || ls__st_read(t, 0, t->bytes, data)) {
        fprintf(stderr, "probe_encoder: no tensor %s\n", name);
        exit(1);
    }
    *count = t->bytes / 4;
    return data;
}

static ls_status read_batches(probe *p, const char *path)
{
    ls__st_reader *r;
    size_t n;
    ls_status status = ls__st_open(&r, path);
    if (status) return status;
    const size_t *shape = ls__st_find(r, "tokens")->shape;
    p->steps = shape[0], p->rows = shape[1], p->length = shape[2];
    p->tokens = read_tensor(r, "tokens", &n);
    p->types = read_tensor(r, "types", &n);
    p->lengths = read_tensor(r, "lengths", &n);
    p->target = read_tensor(r, "targets", &n);
    p->weights = read_tensor(r, "weights", &n);
    p->targets = n / p->steps;
    ls__st_free(&r);
    return LS_OK;
}

static void add(probe *p, const char *name, size_t rank, const size_t *shape, const void *data, size_t count)
{
    size_t *sizes = malloc(LS_MAX_DIMS * sizeof *sizes);
    void *copy = malloc(count * 4);
    memcpy(sizes, shape, rank * sizeof *sizes);
    memcpy(copy, data, count * 4);
    p->out[p->n_out++] =
        (ls__st_tensor){ .name = strdup(name), .type = LS__ST_F32, .rank = rank, .shape = sizes, .data = copy };
}

static ls_model_batch batch_of(const probe *p, size_t step)
{
    size_t at = step * p->rows * p->length;
    return (ls_model_batch){ .batch_size = (int64_t)p->rows,
                             .seq_len = (int64_t)p->length,
                             .tokens = p->tokens + at,
                             .types = ls_model_get_options(p->model).lm.types > 1 ? p->types + at : NULL,
                             .lengths = p->lengths + step * p->rows,
                             .targets = p->target + step * p->targets,
                             .weights = p->weights + step * p->targets };
}

static ls_status logits(probe *p)
{
    ls_param *params;
    int n = ls_model_params(p->model, &params);
    ls_model_batch batch = batch_of(p, 0);
    ls_status status = ls_tape_begin(p->tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL });
    ls_tensor *x = status ? NULL : ls_model_logits(p->model, p->tape, &batch);
    if (!status) status = ls_tape_status(p->tape);
    if (status) return status;
    size_t shape[LS_MAX_DIMS];
    for (int i = 0; i < x->dims; i++) shape[i] = (size_t)x->shape[i];
    add(p, "logits", (size_t)x->dims, shape, x->data, (size_t)ls_tensor_count(x));
    return LS_OK;
}

static ls_status train(probe *p, float lr)
{
    const ls_place *places;
    size_t n_places = ls_model_places(p->model, &places), elements = ls_model_elements(p->model);
    float *losses = calloc(p->steps, sizeof *losses);
    ls_optimizer *optimizer;
    ls_param *params;
    int n = ls_model_params(p->model, &params);
    ls_status status = ls_optimizer_open(&optimizer, places, n_places, 0, elements, NULL);
    for (size_t step = 0; step < p->steps && !status; step++) {
        ls_model_batch batch = batch_of(p, step);
        status = ls_tape_begin(p->tape, params, n, NULL);
        ls_tensor *loss = status ? NULL : ls_model_loss(p->model, p->tape, &batch);
        if (!status) status = ls_tape_backward(p->tape, loss);
        if (status) break;
        losses[step] = loss->data[0];
        for (size_t i = 0; i < n_places && step == 0; i++) {
            size_t shape[LS_MAX_DIMS];
            char name[300];
            for (int k = 0; k < places[i].dims; k++) shape[k] = (size_t)places[i].shape[k];
            snprintf(name, sizeof name, "grad.%s", places[i].name);
            add(p, name, (size_t)places[i].dims, shape, ls_model_grads(p->model) + places[i].offset, places[i].count);
        }
        ls_clip_grad_norm(ls_model_grads(p->model), elements, 1, 0);
        ls_optimizer_update(optimizer, ls_model_values(p->model), ls_model_grads(p->model), (int64_t)step, lr);
    }
    if (!status) add(p, "losses", 1, &p->steps, losses, p->steps);
    ls_optimizer_free(&optimizer);
    return status;
}

int main(int argc, char **argv)
{
    probe p = { 0 };
    ls_model_options options;
    const char *lr = getenv("LR");
    if (argc != 5) return 2;
    ls_status status = read_batches(&p, argv[2]);
    if (!status) status = ls_model_options_read(argv[1], &options);
    if (!status) options.lm.dropout = options.lm.embd_dropout = options.lm.attn_dropout = options.lm.head_dropout = 0;
    if (!status) status = ls_model_open(&p.model, &options);
    if (!status) status = ls_model_bind(p.model, NULL, NULL, true);
    if (!status) status = ls_model_load(p.model, argv[1]);
    if (!status) status = ls_model_save(p.model, argv[3]);
    if (!status) status = ls_tape_open(&p.tape, NULL);
    if (!status) p.out = calloc((size_t)ls_model_params(p.model, &(ls_param *){ NULL }) + 3, sizeof *p.out);
    if (!status) status = logits(&p);
    if (!status) status = train(&p, lr ? strtof(lr, NULL) : 3e-3f);
    if (!status) status = ls__st_write(argv[4], p.out, p.n_out, NULL, 0);
    if (status) fprintf(stderr, "probe_encoder: %s\n", ls_error());
    return status ? 1 : 0; /* the system frees its memory */
}
