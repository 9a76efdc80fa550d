/* probe_encoder FOLDER BATCHES SAVED OUT: what lockstep computes of an encoder, for check_transformers.py. BATCHES is a safetensors
 * file with tokens (steps, rows, length), types, lengths (steps, rows), targets, one per token or per row, and their weights. OUT
 * gets the logits of the first batch, the gradients of its loss, and the losses of a step of AdamW on each (rate from the
 * environment: LR). The model is saved to SAVED before the first step. */
#include "probe.h"

typedef struct batches {
    size_t steps, rows, length, targets; /* targets: of a step */
    int32_t *tokens, *types, *lengths, *target;
    float *weights;
} batches;

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

static ls_status read_batches(batches *p, const char *path)
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

static ls_model_batch batch_of(const void *user, size_t step)
{
    const batches *p = user;
    size_t at = step * p->rows * p->length;
    return (ls_model_batch){ .batch_size = (int64_t)p->rows,
                             .seq_len = (int64_t)p->length,
                             .tokens = p->tokens + at,
                             .types = p->types ? p->types + at : NULL,
                             .lengths = p->lengths + step * p->rows,
                             .targets = p->target + step * p->targets,
                             .weights = p->weights + step * p->targets };
}

int main(int argc, char **argv)
{
    probe p = { 0 };
    batches in;
    ls_model_options options;
    const char *lr = getenv("LR");
    if (argc != 5) return 2;
    ls_status status = read_batches(&in, argv[2]);
    if (!status) status = ls_model_options_read(argv[1], &options);
    if (!status) options.lm.dropout = options.lm.embd_dropout = options.lm.attn_dropout = options.lm.head_dropout = 0;
    if (!status) status = probe_open(&p, &options, argv[1], argv[3]);
    if (!status && ls_model_get_options(p.model).lm.types < 2) in.types = NULL;
    ls_model_batch first = status ? (ls_model_batch){ 0 } : batch_of(&in, 0);
    if (!status) status = probe_logits(&p, &first);
    if (!status) status = probe_train(&p, in.steps, batch_of, &in, NULL, 1, lr ? strtof(lr, NULL) : 3e-3f);
    return probe_end(&p, status, "probe_encoder", argv[4]);
}
