/* The parts of `lockstep bench ddp` that are not the time of a step by phases: all-reduce by size, when in backward gradients
 * become ready, and what skipped synchronization does to learning. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "cli/bench/ddp.h"
#include "lockstep/data.h"
#include "lockstep/ddp.h"

enum { ROUNDS = 9, MAX_PARAMS = 4096 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Puts them in order; the value that `share` of them do not exceed. */
static double quantile(double *times, int n, double share)
{
    qsort(times, (size_t)n, sizeof *times, by_value);
    return times[(int)((double)(n - 1) * share + 0.5)];
}

static json_t *numbers(const double *values, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n && list; i++) json_array_append_new(list, json_real(values[i]));
    return list;
}

/* ---- All-reduce of many parameters, by parameters per call: all calls are started, then all are waited for. */

static ls_status reduce_all(ls_group *g, float *data, size_t total, size_t chunk, ls_work **works, double *ms)
{
    size_t n = 0;
    ls_status status = ls_barrier(g);
    int64_t begin = ls_now();
    for (size_t at = 0; at < total && !status; at += chunk)
        status = ls_allreduce_start(g, data + at, total - at < chunk ? total - at : chunk, LS_F32, LS_SUM, &works[n++]);
    for (size_t i = 0; i < n; i++) {
        ls_status waited = works[i] ? ls_work_wait(&works[i]) : LS_OK;
        if (!status) status = waited;
    }
    *ms = (double)(ls_now() - begin) / 1e6;
    return status;
}

ls_status ddp_measure_allreduce(const ddp_bench *b, ls_world *world, json_t *rows)
{
    static const int thousands[] = { 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000 };
    enum { SIZES = sizeof thousands / sizeof *thousands };
    size_t total = b->full ? 60000000 : 6000000;
    double times[SIZES][ROUNDS];
    void *memory = NULL;
    ls_work **works = calloc(total / 10000 + 1, sizeof *works);
    if (!works) return ls__fail(LS_ENOMEM, "no memory for works");
    ls_status status = ls_world_alloc(world, total * sizeof(float), &memory);
    for (int r = -1; r < ROUNDS && !status; r++)
        for (int i = 0; i < SIZES && (size_t)thousands[i] * 1000 <= total && !status; i++) {
            float *data = memory;
            for (size_t k = 0; k < total; k++) data[k] = 1; /* buffers that backward has just written */
            status = reduce_all(ls_world_group(world), data, total, (size_t)thousands[i] * 1000, works,
                                &times[i][r < 0 ? 0 : r]);
        }
    for (int i = 0; i < SIZES && (size_t)thousands[i] * 1000 <= total && !status; i++)
        json_array_append_new(
            rows, json_pack("{s:s, s:i, s:i, s:o, s:I, s:i, s:f, s:f, s:f}", "part", ddp_part_names[DDP_ALLREDUCE],
                            "hosts", ls_world_get_info(world).nodes, "ranks", ls_world_size(world), "link",
                            ls_world_get_info(world).nodes > 1 ? json_string(b->link) : json_null(), "elements",
                            (json_int_t)total, "elements_per_call", thousands[i] * 1000, "ms",
                            quantile(times[i], ROUNDS, 0.5), "p25_ms", quantile(times[i], ROUNDS, 0.25), "p75_ms",
                            quantile(times[i], ROUNDS, 0.75)));
    ls_world_dealloc(world, &memory);
    free(works);
    return status;
}

/* ---- When gradients become ready, without communication. */

typedef struct watch {
    int64_t begin;
    int count;
    double elements[MAX_PARAMS]; /* so many are ready... */
    double times[MAX_PARAMS][ROUNDS];
    int round;
} watch;

static ls_status note(void *user, ls_param *param)
{
    watch *w = user;
    double count = 1;
    for (int i = 0; i < param->dims; i++) count *= (double)param->shape[i];
    if (w->count == MAX_PARAMS) return LS_OK;
    w->elements[w->count] = count + (w->count ? w->elements[w->count - 1] : 0);
    w->times[w->count++][w->round < 0 ? 0 : w->round] = (double)(ls_now() - w->begin) / 1e6;
    return LS_OK;
}

ls_status ddp_measure_ready(const ddp_bench *b, ls_world *world, ddp_kind kind, json_t *rows)
{
    ddp_model m;
    ls_param *params;
    watch *w = calloc(1, sizeof *w);
    ls_status status = w ? ddp_model_open(&m, b, kind, ls_world_rank(world)) : ls__fail(LS_ENOMEM, "out of memory");
    if (status) {
        free(w);
        return status;
    }
    int n = ls_model_params(m.model, &params);
    ls_tape_on_ready(m.tape, note, w);
    for (w->round = -1; w->round < ROUNDS && !status; w->round++) {
        ls_tensor *loss = NULL;
        w->count = 0;
        status = ls_tape_begin(m.tape, params, n, NULL);
        if (!status) loss = ls_model_loss(m.model, m.tape, &m.batch);
        w->begin = ls_now();
        if (!status) status = ls_tape_backward(m.tape, loss);
    }
    double middle[MAX_PARAMS], low[MAX_PARAMS], high[MAX_PARAMS];
    for (int i = 0; i < w->count && !status; i++) {
        low[i] = quantile(w->times[i], ROUNDS, 0);
        middle[i] = quantile(w->times[i], ROUNDS, 0.5);
        high[i] = quantile(w->times[i], ROUNDS, 1);
    }
    if (!status)
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:i, s:i, s:n, s:I, s:I, s:o, s:o, s:o, s:o}", "part",
                                        ddp_part_names[DDP_READY], "model", ddp_model_names[kind], "hosts", 1, "ranks",
                                        ls_world_size(world), "link", "batch_size", (json_int_t)m.batch.batch_size,
                                        "seq_len", (json_int_t)m.batch.seq_len, "elements",
                                        numbers(w->elements, w->count), "ms", numbers(middle, w->count), "low_ms",
                                        numbers(low, w->count), "high_ms", numbers(high, w->count)));
    ddp_model_free(&m);
    free(w);
    return status;
}

/* ---- Learning with skipped synchronization: a small ResNet on the built-in pictures. As in torch, gradients of micro-batches that are not
 * synchronized add up, so that skipping makes fewer and longer steps. */

enum { HELD_OUT = 256, WINDOWS = 16, SIDE = 16 /* of what is seen of a picture */ };

typedef struct learner {
    ls_world *world;
    ls_model *model;
    ls_tape *tape;
    ls_ddp *ddp;
    ls_optimizer *optimizer;
    ls_dataset *images;
    ls_images_info info;
    float *inputs;    /* (HELD_OUT, SIDE, SIDE, 3) */
    int32_t *targets; /* (HELD_OUT) */
    int32_t *guesses; /* (HELD_OUT) */
} learner;

static ls_status on_learned(void *user, ls_param *param)
{
    learner *l = user;
    const ls_place *places;
    return ls_ddp_ready(l->ddp, ls_model_places(l->model, &places) - 1 - (size_t)param->index);
}

/* Pictures `first` and following, after those held out. */
static ls_status load(learner *l, uint64_t first, int count, bool held_out)
{
    uint64_t train = l->images->count - HELD_OUT;
    uint8_t picture[3 * 32 * 32];
    ls_augment augment = { .size = SIDE, .mean = { 0.5f, 0.5f, 0.5f }, .std = { 0.25f, 0.25f, 0.25f } };
    ls_status status = LS_OK;
    for (int i = 0; i < count && !status; i++) {
        uint64_t sample = held_out ? (uint64_t)i : HELD_OUT + (first + (uint64_t)i) % train;
        ls_row row = { .fields = { picture, &l->targets[i] } };
        status = l->images->get(l->images->self, NULL, sample, &row);
        if (!status) ls_augment_apply(&augment, &l->info, picture, 0, sample, l->inputs + (size_t)i * SIDE * SIDE * 3);
    }
    return status;
}

static ls_status open_learner(learner *l, const ddp_bench *b)
{
    ls_model_options resnet = { .kind = LS_MODEL_RESNET,
                                .resnet = { .blocks = { 1, 1, 1 }, .width = 8, .size = SIDE } };
    const ls_place *places;
    ls_span spans[128];
    ls_status status = ls_images_open(&l->images, &(ls_images_options){ .format = LS_IMAGES_BUILT_IN });
    if (!status) status = ls_model_open(&l->model, &resnet);
    if (!status) status = ls_model_bind(l->model, NULL, NULL, true);
    if (!status) status = ls_model_init(l->model, 1);
    if (!status) status = ls_tape_open(&l->tape, &(ls_tape_options){ .threads = b->threads });
    if (status) return status;
    l->info = ls_images_get_info(l->images);
    ls_tape_on_ready(l->tape, on_learned, l);
    size_t n = ls_model_places(l->model, &places);
    for (size_t i = 0; i < n; i++)
        spans[i] = (ls_span){ .name = places[n - 1 - i].name, .count = places[n - 1 - i].count };
    ls_optimizer_options sgd = { .kind = LS_SGD, .threads = b->threads };
    status = ls_optimizer_open(&l->optimizer, places, n, 0, ls_model_elements(l->model), &sgd);
    if (!status) status = ls_ddp_open(&l->ddp, l->world, spans, n, &(ls_ddp_options){ .fixed_order = true });
    if (!status) ls_model_set_grads(l->model, ls_ddp_grad(l->ddp, n - 1));
    return status;
}

static void close_learner(learner *l)
{
    ls_ddp_free(&l->ddp);
    ls_optimizer_free(&l->optimizer);
    ls_tape_free(&l->tape);
    ls_model_free(&l->model);
    ls_dataset_free(&l->images);
}

static ls_status iteration(learner *l, int64_t i, int batch_size, int every, float lr, double *loss)
{
    const ls_place *places;
    ls_param *params;
    int n = ls_model_params(l->model, &params), rank = ls_world_rank(l->world), size = ls_world_size(l->world);
    ls_model_batch batch = { .batch_size = batch_size, .inputs = l->inputs, .targets = l->targets };
    ls_tensor *out = NULL;
    bool sync = (i + 1) % every == 0;
    ls_status status = load(l, (uint64_t)((i * size + rank) * batch_size), batch_size, false);
    if (!status) status = ls_ddp_begin(l->ddp, sync ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, 1);
    if (!status) status = ls_tape_begin(l->tape, params, n, NULL);
    if (!status) out = ls_model_loss(l->model, l->tape, &batch);
    if (!status) status = ls_tape_status(l->tape);
    if (status) return status;
    *loss = (double)out->data[0];
    status = ls_tape_backward(l->tape, out);
    if (!status) status = ls_ddp_finish(l->ddp, NULL);
    if (!status && sync)
        ls_optimizer_update(l->optimizer, ls_model_values(l->model),
                            ls_ddp_reduced(l->ddp, ls_model_places(l->model, &places) - 1), i / every,
                            lr * (float)every);
    return status;
}

/* The share of held-out pictures that rank 0's model, with its own statistics, takes for what they are. */
static ls_status accuracy(learner *l, double *share)
{
    ls_param *params;
    int n = ls_model_params(l->model, &params), right = 0;
    ls_model_batch batch = {
        .batch_size = HELD_OUT, .inputs = l->inputs, .targets = l->targets, .predictions = l->guesses
    };
    ls_status status = load(l, 0, HELD_OUT, true);
    if (!status) status = ls_tape_begin(l->tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL });
    if (!status) ls_model_loss(l->model, l->tape, &batch);
    if (!status) status = ls_tape_status(l->tape);
    for (int i = 0; i < HELD_OUT && !status; i++) right += l->guesses[i] == l->targets[i];
    *share = (double)right / HELD_OUT;
    return status;
}

static ls_status learn(learner *l, const ddp_bench *b, int batch_size, int every, json_t *rows)
{
    int iterations = b->full ? 512 : 128;
    float lr = batch_size > 8 ? 0.06f : 0.02f;
    double windows[WINDOWS] = { 0 }, loss, share = 0;
    ls_status status = open_learner(l, b);
    for (int64_t i = 0; i < iterations && !status; i++) {
        status = iteration(l, i, batch_size, every, lr, &loss);
        if (!status) windows[i * WINDOWS / iterations] += loss * WINDOWS / iterations;
    }
    if (!status) status = accuracy(l, &share);
    if (!status)
        json_array_append_new(rows, json_pack("{s:s, s:i, s:i, s:n, s:i, s:i, s:i, s:o, s:f}", "part",
                                              ddp_part_names[DDP_ACCURACY], "hosts", ls_world_get_info(l->world).nodes,
                                              "ranks", ls_world_size(l->world), "link", "batch_size", batch_size,
                                              "micro_batches", every, "iterations", iterations, "loss",
                                              numbers(windows, WINDOWS), "accuracy", share));
    close_learner(l);
    return status;
}

ls_status ddp_measure_accuracy(const ddp_bench *b, ls_world *world, json_t *rows)
{
    learner l = { .world = world,
                  .inputs = malloc(HELD_OUT * SIDE * SIDE * 3 * sizeof(float)),
                  .targets = malloc(HELD_OUT * sizeof(int32_t)),
                  .guesses = malloc(HELD_OUT * sizeof(int32_t)) };
    ls_status status = l.inputs && l.targets && l.guesses ? LS_OK : ls__fail(LS_ENOMEM, "no memory for pictures");
    for (int batch_size = 8; batch_size <= 32; batch_size *= 4)
        for (int every = 1; every <= 8 && !status; every *= 2) status = learn(&l, b, batch_size, every, rows);
    free(l.inputs);
    free(l.targets);
    free(l.guesses);
    return status;
}
