/* The models of `lockstep bench ddp`: those of the paper on DistributedDataParallel, in sizes for a small machine.
 *
 * resnet  ResNet-18 as torchvision has it, with an eighth of BERT's width as channels of its first stage, on images of 64 x 64.
 * bert    BERT with a classifier of two classes on pairs of sequences, as in Accelerate's example. */
#include <stdlib.h>
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/bench/ddp.h"

enum { IMAGE = 64, CLASSES = 10 };

const char *const ddp_model_names[DDP_MODELS + 1] = { "resnet", "bert", NULL };

static int resnet_width(const ddp_bench *b)
{
    return b->width < 16 ? 2 : b->width / 8;
}

void ddp_model_describe(const ddp_bench *b, ddp_kind kind, char *out, size_t room)
{
    if (kind == DDP_RESNET)
        snprintf(out, room, "ResNet-18 of %d to %d channels, %d images of %d x %d per rank", resnet_width(b),
                 8 * resnet_width(b), 2 * b->batch_size, IMAGE, IMAGE);
    else
        snprintf(out, room, "BERT of %d layer%s, width %d, vocabulary %d, %d pairs of sequences of %d tokens per rank",
                 b->layers, ls__s(b->layers), b->width, b->vocab_size, b->batch_size, b->seq_len);
}

static ls_status make_images(ddp_model *m, const ddp_bench *b, uint64_t stream)
{
    size_t n = 2 * (size_t)b->batch_size, values = n * IMAGE * IMAGE * 3;
    float *images = malloc((values + n) * sizeof *images);
    if (!images) return ls__fail(LS_ENOMEM, "no memory for a batch");
    m->memory = images;
    int32_t *targets = (int32_t *)(void *)(images + values);
    ls__random_fill_normal(images, values, 0, 1, 1, stream, 0);
    for (size_t i = 0; i < n; i++) targets[i] = (int32_t)(i % CLASSES);
    m->batch = (ls_model_batch){ .batch_size = (int64_t)n, .inputs = images, .targets = targets };
    return LS_OK;
}

/* Two texts per row, the second of type 1. */
static ls_status make_pairs(ddp_model *m, const ddp_bench *b, uint64_t stream)
{
    size_t rows = (size_t)b->batch_size, length = (size_t)b->seq_len, n = rows * length;
    int32_t *tokens = malloc((2 * n + rows) * sizeof *tokens), *types = tokens + n, *targets = tokens + 2 * n;
    if (!tokens) return ls__fail(LS_ENOMEM, "no memory for a batch");
    m->memory = tokens;
    ls__random_fill_u32((uint32_t *)tokens, n, 2, stream, 0);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)((uint32_t)tokens[i] % (uint32_t)b->vocab_size);
        types[i] = i % length >= length / 2;
    }
    for (size_t i = 0; i < rows; i++) targets[i] = (int32_t)(i % 2);
    m->batch = (ls_model_batch){
        .batch_size = (int64_t)rows, .seq_len = (int64_t)length, .tokens = tokens, .types = types, .targets = targets
    };
    return LS_OK;
}

ls_status ddp_model_open(ddp_model *m, const ddp_bench *b, ddp_kind kind, int rank)
{
    ls_model_options resnet = { .kind = LS_MODEL_RESNET,
                                .resnet = { .blocks = { 2, 2, 2, 2 },
                                            .stem = true,
                                            .width = resnet_width(b),
                                            .size = IMAGE,
                                            .classes = CLASSES } };
    ls_model_options bert = { .lm = { .kind = LS_LM_BERT,
                                      .layers = b->layers,
                                      .width = b->width,
                                      .vocab_size = b->vocab_size,
                                      .context = b->seq_len,
                                      .classes = 2 } };
    const ls_place *places;
    *m = (ddp_model){ 0 };
    ls_status status = ls_model_open(&m->model, kind == DDP_RESNET ? &resnet : &bert);
    if (!status) status = ls_model_bind(m->model, NULL, NULL, true);
    if (!status) status = ls_model_init(m->model, 1);
    if (!status) status = kind == DDP_RESNET ? make_images(m, b, (uint64_t)rank) : make_pairs(m, b, (uint64_t)rank);
    if (!status) status = ls_tape_open(&m->tape, &(ls_tape_options){ .threads = b->threads });
    if (!status) {
        size_t n = ls_model_places(m->model, &places);
        ls_optimizer_options adamw = { .threads = b->threads };
        status = ls_optimizer_open(&m->optimizer, places, n, 0, ls_model_elements(m->model), &adamw);
    }
    if (status) ddp_model_free(m);
    return status;
}

void ddp_model_free(ddp_model *m)
{
    ls_optimizer_free(&m->optimizer);
    ls_tape_free(&m->tape);
    ls_model_free(&m->model);
    free(m->memory);
    *m = (ddp_model){ 0 };
}
