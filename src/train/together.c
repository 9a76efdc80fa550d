/* Micro-batches of a step that are computed together: synchronized batch norms.
 *
 * A norm needs the statistics of all slots before any of them can go on, so a rank computes its slots side by side, each in a
 * context of its own (ucontext: a stack, not a thread, so that OpenMP has one team). A slot runs until its next norm and then hands
 * over to the next one; when all slots of the rank are there, the ranks exchange what the norm has gathered, a row per slot, and
 * all go on. Rows are joined in the order of slots, so the bits are the same on any number of ranks.
 *
 * Each slot has a tape and gradients of its own. After backward they are given to the reducer one after another, as if the slots
 * had been computed so. A slot without samples (in a short last step) has no context, and a rank that has only such slots takes
 * part in the exchanges. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "base/status.h"
#include "nn/model.h"
#include "train/record.h"
#include "train/training.h"

enum { STACK = 8 << 20 }; /* bytes; only pages that are used take memory */

/* One slot of this rank. */
typedef struct lane {
    ucontext_t context;
    void *stack;
    struct ls__together *all;
    ls__micro_batch batch;
    float *inputs; /* copies: the loader has one batch at a time */
    int32_t *targets;
    ls_tape *tape;
    ls_param *params;
    float *grads; /* (elements) */
    ls_tensor *loss;
    const double *own; /* what a norm has gathered; NULL: the phase is done */
    size_t count;
    ls_status status;
    char message[512];
    int slot;
} lane;

struct ls__together {
    ls_train *t;
    ucontext_t main;
    lane *lanes;
    int n, running;
    double *rows; /* (slots, count) */
    ls_batch_norm_sync sync;
    ls_param *params; /* the model's own */
    size_t elements, inputs;
};

/* ---- Contexts. */

static void back_to_main(lane *l)
{
    swapcontext(&l->context, &l->all->main);
}

static ls_status gather(void *user, const double *own, size_t count, const double **all, size_t *n)
{
    struct ls__together *g = user;
    lane *l = &g->lanes[g->running];
    l->own = own;
    l->count = count;
    back_to_main(l);
    *all = g->rows;
    *n = (size_t)g->t->options.slots;
    return LS_OK;
}

static void keep_message(lane *l)
{
    if (l->status) snprintf(l->message, sizeof l->message, "%s", ls_error());
}

/* Forward, a pause, backward. */
static void compute(unsigned high, unsigned low)
{
    lane *l = (lane *)((uintptr_t)high << 32 | low);
    ls_train *t = l->all->t;
    l->status = ls__train_forward(t, l->slot, &l->batch.model, false, &l->loss);
    keep_message(l);
    l->own = NULL;
    back_to_main(l);
    l->status = ls_tape_backward(l->tape, l->loss);
    keep_message(l);
    l->own = NULL;
    back_to_main(l);
}

static void start(lane *l)
{
    getcontext(&l->context);
    l->context.uc_stack.ss_sp = l->stack;
    l->context.uc_stack.ss_size = STACK;
    l->context.uc_link = NULL;
    uintptr_t at = (uintptr_t)l;
    void (*body)(void) = (void (*)(void))compute;
    makecontext(&l->context, body, 2, (unsigned)(at >> 32), (unsigned)at);
}

/* Runs a slot until its next norm or the end of its phase. */
static void run(struct ls__together *g, int i)
{
    ls_train *t = g->t;
    lane *l = &g->lanes[i];
    ls_tape *tape = t->tape;
    g->running = i;
    t->tape = l->tape;
    t->model->params = l->params;
    ls__model_set_statistics(t->model, t->statistics + (size_t)l->slot * ls__model_buffer_elements(t->model));
    swapcontext(&g->main, &l->context);
    t->tape = tape;
    t->model->params = g->params;
}

/* ---- Exchanges. */

static ls_status exchange(struct ls__together *g, size_t count)
{
    size_t slots = (size_t)g->t->options.slots;
    memset(g->rows, 0, slots * count * sizeof *g->rows);
    for (int i = 0; i < g->n; i++) {
        const lane *l = &g->lanes[i];
        if (l->batch.model.batch_size) memcpy(g->rows + (size_t)l->slot * count, l->own, count * sizeof *g->rows);
    }
    if (g->t->parallel.size == 1) return LS_OK;
    return ls_allreduce(ls_world_group(g->t->parallel.world), g->rows, slots * count, LS_F64, LS_SUM);
}

/* Buffers are mean, variance and a counter for each norm. A norm gathers two numbers of each channel, and in forward the number of rows. */
static ls_status exchange_only(struct ls__together *g, bool forward)
{
    const ls_place *places;
    float *data;
    size_t norms = ls_model_buffers(g->t->model, &places, &data) / 3;
    ls_status status = LS_OK;
    for (size_t i = 0; i < norms && !status; i++)
        status = exchange(g, 2 * places[3 * (forward ? i : norms - 1 - i)].count + (forward ? 1 : 0));
    return status;
}

/* Forward or backward of all slots. */
static ls_status run_phase(struct ls__together *g, bool forward)
{
    for (;;) {
        const lane *first = NULL;
        for (int i = 0; i < g->n; i++) {
            lane *l = &g->lanes[i];
            if (!l->batch.model.batch_size) continue;
            run(g, i);
            if (l->status) return ls__fail(l->status, "%s", l->message);
            if (!first) first = l;
            if (!first->own != !l->own || (l->own && l->count != first->count))
                return ls__fail(LS_ESTATE, "synchronized batch norm: micro-batches have different norms");
        }
        if (!first) return exchange_only(g, forward);
        if (!first->own) return LS_OK;
        ls_status status = exchange(g, first->count);
        if (status) return status;
    }
}

/* ---- A step. */

static ls_status load(struct ls__together *g, lane *l)
{
    ls_status status = ls__train_load(g->t, &l->batch);
    ls_model_batch *b = &l->batch.model;
    if (status || !b->batch_size) return status;
    memcpy(l->inputs, b->inputs, (size_t)b->batch_size * g->inputs * sizeof *l->inputs);
    memcpy(l->targets, b->targets, (size_t)b->batch_size * sizeof *l->targets);
    b->inputs = l->inputs;
    b->targets = l->targets;
    return LS_OK;
}

/* The gradients of a slot, for the reducer. */
static ls_status hand_over(struct ls__together *g, int micro, double *weight)
{
    ls_train *t = g->t;
    const lane *l = &g->lanes[micro];
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places);
    ls_status status = ls__parallel_begin(t, micro, l->batch.weight);
    if (!status && l->batch.model.batch_size) {
        memcpy(ls_model_grads(t->model), l->grads, g->elements * sizeof *l->grads);
        for (size_t i = 0; i < n && !status; i++) status = ls_ddp_ready(t->parallel.ddp, i);
    }
    return status ? status : ls__parallel_finish(t, weight);
}

ls_status ls__together_run(ls_train *t, ls_train_metrics *m, double *losses, double *tokens, double *weight)
{
    struct ls__together *g = t->together;
    ls_status status = ls__train_enter(t, LS_PHASE_DATA);
    for (int i = 0; i < g->n && !status; i++) {
        lane *l = &g->lanes[i];
        status = load(g, l);
        if (!status) ls__train_note_batch(t);
        if (!status) ls__statistics_slot(t, l->slot);
        if (!status && l->batch.model.batch_size) start(l);
    }
    m->data_ms += ls__train_leave(t, LS_PHASE_DATA);
    if (!status) status = ls__train_enter(t, LS_PHASE_FORWARD);
    t->model->sync = &g->sync;
    if (!status) status = run_phase(g, true);
    m->forward_ms += ls__train_leave(t, LS_PHASE_FORWARD);
    for (int i = 0; i < g->n && !status; i++) {
        losses[i] = g->lanes[i].batch.model.batch_size ? (double)g->lanes[i].loss->data[0] : 0;
        tokens[i] = g->lanes[i].batch.tokens;
    }
    if (!status) status = ls__train_enter(t, LS_PHASE_BACKWARD);
    if (!status) status = run_phase(g, false);
    t->model->sync = NULL;
    for (int i = 0; i < g->n && !status; i++) status = hand_over(g, i, weight);
    m->backward_ms += ls__train_leave(t, LS_PHASE_BACKWARD);
    return status;
}

/* ---- Opening. */

static ls_status open_lane(struct ls__together *g, lane *l)
{
    const ls_train *t = g->t;
    const ls_place *places;
    ls_param *params;
    size_t n = ls_model_places(t->model, &places), rows = (size_t)t->options.batch_size;
    ls_model_params(t->model, &params);
    l->stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (l->stack == MAP_FAILED) l->stack = NULL;
    if (l->stack)
        mprotect(l->stack, 4096, PROT_NONE); /* an overflow ends the process instead of changing other memory */
    l->inputs = malloc(rows * g->inputs * sizeof *l->inputs);
    l->targets = malloc(rows * sizeof *l->targets);
    l->params = malloc(n * sizeof *l->params);
    l->grads = aligned_alloc(64, (g->elements * sizeof *l->grads + 63) / 64 * 64);
    if (!l->stack || !l->inputs || !l->targets || !l->params || !l->grads)
        return ls__fail(LS_ENOMEM, "sync_norm: no memory for the gradients of slot %d", l->slot);
    memset(l->grads, 0, g->elements * sizeof *l->grads);
    memcpy(l->params, params, n * sizeof *l->params);
    for (size_t i = 0; i < n; i++) l->params[i].grad = l->grads + places[i].offset;
    return ls_tape_open(&l->tape, &(ls_tape_options){ .threads = t->options.threads });
}

ls_status ls__together_open(ls_train *t)
{
    const ls_train_options *o = &t->options;
    if (!o->sync_norm) return LS_OK;
    if (!t->statistics) return ls__fail(LS_EINVAL, "sync_norm: the model has no batch norms");
    if (o->profile) return ls__fail(LS_EUNSUPPORTED, "sync_norm: cannot be combined with profile");
    struct ls__together *g = t->together = calloc(1, sizeof *g);
    if (!g) return ls__fail(LS_ENOMEM, "train: out of memory");
    const ls_place *places;
    float *data;
    size_t buffers = ls_model_buffers(t->model, &places, &data), most = 0;
    for (size_t i = 0; i < buffers; i++) most = places[i].count > most ? places[i].count : most;
    *g = (struct ls__together){ .t = t,
                                .n = t->parallel.each,
                                .elements = ls_model_elements(t->model),
                                .inputs = (size_t)o->resnet.size * (size_t)o->resnet.size * (size_t)o->resnet.channels,
                                .sync = { .gather = gather, .user = g } };
    ls_model_params(t->model, &g->params);
    g->rows = calloc((size_t)o->slots * (2 * most + 1), sizeof *g->rows);
    g->lanes = calloc((size_t)g->n, sizeof *g->lanes);
    ls_status status = g->rows && g->lanes ? LS_OK : ls__fail(LS_ENOMEM, "train: out of memory");
    for (int i = 0; i < g->n && !status; i++) {
        g->lanes[i].all = g;
        g->lanes[i].slot = t->parallel.first + i;
        status = open_lane(g, &g->lanes[i]);
    }
    return status;
}

void ls__together_close(ls_train *t)
{
    struct ls__together *g = t->together;
    if (!g) return;
    for (int i = 0; g->lanes && i < g->n; i++) {
        lane *l = &g->lanes[i];
        ls_tape_free(&l->tape);
        if (l->stack) munmap(l->stack, STACK);
        free(l->inputs);
        free(l->targets);
        free(l->params);
        free(l->grads);
    }
    free(g->lanes);
    free(g->rows);
    free(g);
    t->together = NULL;
}
