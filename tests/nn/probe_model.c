/* probe_model FOLDER TOKENS SAVED OUT: what lockstep computes of a language model, for check_transformers.py and check_peft.py (a
 * folder with an adapter: that is trained). TOKENS has three numbers, steps, rows and length, and then (steps, rows, length + 1)
 * tokens. OUT gets the logits of the first batch, 16 tokens of greedy text after its first four tokens, the gradients of its loss,
 * and the losses of a step of AdamW on each. The model is saved to SAVED before the first step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/nn.h"
#include "nn/safetensors.h"

enum { PROMPT = 4, GREEDY = 16, MOST = 64 };

typedef struct probe {
    int steps, rows, length;
    int32_t *inputs, *targets; /* (steps, rows, length) */
    ls_model *model;
    ls_tape *tape;
    ls__st_tensor *out;
    size_t n_out;
} probe;

static int read_tokens(probe *p, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%d %d %d", &p->steps, &p->rows, &p->length) != 3 || p->steps < 1 || p->steps > MOST) return -1;
    size_t count = (size_t)p->steps * (size_t)p->rows * (size_t)p->length, at = 0;
    p->inputs = calloc(count, sizeof *p->inputs);
    p->targets = calloc(count, sizeof *p->targets);
    for (int row = 0; row < p->steps * p->rows; row++)
        for (int i = 0; i <= p->length; i++) {
            int token;
            if (fscanf(f, "%d", &token) != 1) return -1;
            if (i < p->length) p->inputs[at + (size_t)i] = token;
            if (i) p->targets[at + (size_t)i - 1] = token;
            if (i == p->length) at += (size_t)p->length;
        }
    fclose(f);
    return 0;
}

static void add(probe *p, const char *name, ls__st_type type, size_t rank, const size_t *shape, const void *data,
                size_t count)
{
    size_t *sizes = malloc(LS_MAX_DIMS * sizeof *sizes);
    void *copy = malloc(count * 4);
    memcpy(sizes, shape, rank * sizeof *sizes);
    memcpy(copy, data, count * 4);
    p->out[p->n_out++] =
        (ls__st_tensor){ .name = strdup(name), .type = type, .rank = rank, .shape = sizes, .data = copy };
}

static ls_model_batch batch_of(const probe *p, int step)
{
    size_t at = (size_t)step * (size_t)p->rows * (size_t)p->length;
    return (ls_model_batch){
        .batch_size = p->rows, .seq_len = p->length, .tokens = p->inputs + at, .targets = p->targets + at
    };
}

static ls_status logits_and_text(probe *p)
{
    ls_param *params;
    int n = ls_model_params(p->model, &params);
    size_t vocab = (size_t)ls_model_get_options(p->model).lm.vocab_size;
    ls_model_batch batch = batch_of(p, 0);
    ls_status status = ls_tape_begin(p->tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL });
    ls_tensor *x = status ? NULL : ls_model_logits(p->model, p->tape, &batch);
    if (!status) status = ls_tape_status(p->tape);
    if (status) return status;
    add(p, "logits", LS__ST_F32, 3, (size_t[]){ (size_t)p->rows, (size_t)p->length, vocab }, x->data,
        (size_t)ls_tensor_count(x));
    ls_generator *g;
    int32_t text[GREEDY];
    status = ls_generator_open(&g, p->model, &(ls_generator_options){ .temperature = -1 });
    if (!status) status = ls_generator_feed(g, 0, p->inputs, PROMPT);
    for (int i = 0; i < GREEDY && !status; i++) status = ls_generator_next(g, &text[i], NULL);
    ls_generator_free(&g);
    if (!status) add(p, "greedy", LS__ST_I32, 1, (size_t[]){ GREEDY }, text, GREEDY);
    return status;
}

static ls_status train(probe *p)
{
    const ls_place *places;
    size_t n_places = ls_model_places(p->model, &places), elements = ls_model_elements(p->model);
    float losses[MOST];
    ls_optimizer *optimizer;
    ls_param *params;
    int n = ls_model_params(p->model, &params);
    ls_status status = ls_optimizer_open(&optimizer, places, n_places, 0, elements, NULL);
    for (int step = 0; step < p->steps && !status; step++) {
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
            add(p, name, LS__ST_F32, (size_t)places[i].dims, shape, ls_model_grads(p->model) + places[i].offset,
                places[i].count);
        }
        ls_clip_grad_norm(ls_model_grads(p->model), elements, 1, 0);
        ls_optimizer_update(optimizer, ls_model_values(p->model), ls_model_grads(p->model), step, 3e-3f);
    }
    if (!status) add(p, "losses", LS__ST_F32, 1, (size_t[]){ (size_t)p->steps }, losses, (size_t)p->steps);
    ls_optimizer_free(&optimizer);
    return status;
}

int main(int argc, char **argv)
{
    probe p = { 0 };
    ls_model_options options;
    if (argc != 5 || read_tokens(&p, argv[2])) return 2;
    ls_status status = ls_model_options_read(argv[1], &options);
    options.lm.dropout = options.lm.embd_dropout = options.lm.attn_dropout = options.lora.dropout = 0;
    if (!status) status = ls_model_open(&p.model, &options);
    if (!status) status = ls_model_bind(p.model, NULL, NULL, true);
    if (!status) status = ls_model_load(p.model, argv[1]);
    if (!status) status = ls_model_save(p.model, argv[3]);
    if (!status) status = ls_tape_open(&p.tape, NULL);
    if (!status) p.out = calloc((size_t)ls_model_params(p.model, &(ls_param *){ NULL }) + 3, sizeof *p.out);
    if (!status) status = logits_and_text(&p);
    if (!status) status = train(&p);
    if (!status) status = ls__st_write(argv[4], p.out, p.n_out, NULL, 0);
    if (status) fprintf(stderr, "probe_model: %s\n", ls_error());
    return status ? 1 : 0; /* the system frees its memory */
}
