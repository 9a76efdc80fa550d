/* What every rank of `lockstep bench ddp` does: a training loop on the public interface, timed phase by phase.
 *
 * The run consists of a few passes. In each, every row (a way to make a step) is measured: a reducer with the row's options, one
 * step that is not counted, then some that are. Noise affects all rows alike.
 *
 * Times are rank 0's. Backward is the time in the tape without its hooks; exposed communication is the time in the hooks (which
 * start buckets and make progress on them) and in the wait at the end. */
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/bench/ddp.h"
#include "lockstep/ddp.h"
#include "lockstep/nn.h"
#include "tensor/hooks.h"

enum { PASSES = 3 };

typedef struct bench {
    ddp_bench *o;
    ls_world *world;
    ls_model *model;
    ls_tape *tape;
    ls_optimizer *optimizer;
    ls_ddp *ddp;
    int32_t *tokens; /* (batch_size, seq_len + 1) */
    int64_t hook_ns;
    int64_t step;
} bench;

static ls_status on_ready(void *user, ls_param *param)
{
    bench *b = user;
    const ls_place *places;
    size_t n = ls_model_places(b->model, &places);
    int64_t begin = ls_now();
    ls_status status = ls_ddp_ready(b->ddp, n - 1 - (size_t)param->index);
    b->hook_ns += ls_now() - begin;
    return status;
}

static void on_tick(void *user)
{
    bench *b = user;
    int64_t begin = ls_now();
    ls_status status = ls_ddp_poll(b->ddp);
    (void)status; /* comes again */
    b->hook_ns += ls_now() - begin;
}

static ls_status open_reducer(bench *b, const ddp_row *row)
{
    const ls_place *places;
    size_t n = ls_model_places(b->model, &places);
    ls_span *spans = malloc(n * sizeof *spans);
    if (!spans) return ls__fail(LS_ENOMEM, "no memory for %zu spans", n);
    for (size_t i = 0; i < n; i++)
        spans[i] = (ls_span){ .name = places[n - 1 - i].name, .count = places[n - 1 - i].count };
    ls_ddp_options options = { .bucket_bytes = row->bucket_bytes,
                               .first_bucket_bytes =
                                   row->bucket_bytes && row->bucket_bytes < 1 << 20 ? row->bucket_bytes : 0,
                               .no_overlap = row->no_overlap,
                               .fixed_order = true };
    ls_status status = ls_ddp_open(&b->ddp, b->world, spans, n, &options);
    free(spans);
    return status;
}

static double since(int64_t *clock)
{
    int64_t now = ls_now(), before = *clock;
    *clock = now;
    return (double)(now - before) / 1e6;
}

static ls_status micro_batch(bench *b, const ddp_row *row, ls_ddp_mode mode, ddp_times *t, int64_t *clock)
{
    ls_param *params;
    int n = ls_model_params(b->model, &params);
    ls_model_batch batch = {
        .batch_size = row->batch_size, .seq_len = b->o->seq_len, .tokens = b->tokens, .targets = b->tokens + 1
    };
    ls_pass pass = { .stream = (uint64_t)b->step };
    ls_tensor *loss = NULL;
    ls_status status = ls_ddp_begin(b->ddp, mode, 1);
    if (!status) status = ls_tape_begin(b->tape, params, n, &pass);
    if (!status) loss = ls_model_loss(b->model, b->tape, &batch);
    if (!status) status = ls_tape_status(b->tape);
    t->forward += since(clock);
    if (status) return status;
    b->hook_ns = 0;
    status = ls_tape_backward(b->tape, loss);
    double hooks = (double)b->hook_ns / 1e6;
    t->backward += since(clock) - hooks;
    if (!status) status = ls_ddp_finish(b->ddp, NULL);
    t->exposed += since(clock) + hooks;
    return status;
}

static ls_status step(bench *b, const ddp_row *row, ddp_times *t)
{
    int64_t begin = ls_now(), clock = begin;
    const ls_place *places;
    ls_status status = LS_OK;
    *t = (ddp_times){ 0 };
    for (int i = 0; i < row->micro_batches && !status; i++) {
        bool sync = row->sync_each || i + 1 == row->micro_batches;
        status = micro_batch(b, row, sync ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, t, &clock);
    }
    if (!status)
        ls_optimizer_update(b->optimizer, ls_model_values(b->model),
                            ls_ddp_reduced(b->ddp, ls_model_places(b->model, &places) - 1), b->step++, 1e-5f);
    t->update = since(&clock);
    t->total = (double)(clock - begin) / 1e6;
    return status;
}

/* A row's turn. */
static ls_status turn(bench *b, ddp_row *row, int steps)
{
    const ls_place *places;
    size_t last = ls_model_places(b->model, &places) - 1;
    ls_status status = open_reducer(b, row);
    if (!status) ls_model_set_grads(b->model, ls_ddp_grad(b->ddp, last));
    for (int i = -1; i < steps && !status; i++) {
        ddp_times t;
        status = step(b, row, &t);
        if (i >= 0) row->samples[row->count++] = t;
    }
    ls_ddp_free(&b->ddp);
    return status;
}

static int by_total(const void *a, const void *b)
{
    double x = ((const ddp_times *)a)->total, y = ((const ddp_times *)b)->total;
    return (x > y) - (x < y);
}

/* The mean over the middle third of the steps: not moved by a few that were disturbed, and its parts add up. */
static ddp_times middle(ddp_times *t, int n)
{
    int first = n / 3, last = n - n / 3, used = last - first;
    ddp_times m = { 0 };
    qsort(t, (size_t)n, sizeof *t, by_total);
    for (int i = first; i < last; i++) {
        m.forward += t[i].forward / used;
        m.backward += t[i].backward / used;
        m.exposed += t[i].exposed / used;
        m.update += t[i].update / used;
        m.total += t[i].total / used;
    }
    return m;
}

static ls_status passes(bench *b)
{
    ddp_bench *o = b->o;
    int each = (o->steps + PASSES - 1) / PASSES;
    for (int r = 0; r < o->n_rows; r++)
        if (!(o->table[r].samples = calloc((size_t)(each * PASSES), sizeof *o->table[r].samples)))
            return ls__fail(LS_ENOMEM, "no memory for times");
    for (int pass = 0; pass < PASSES; pass++)
        for (int r = 0; r < o->n_rows; r++) {
            ls_status status = turn(b, &o->table[r], each);
            if (status) return status;
        }
    for (int r = 0; r < o->n_rows; r++) o->table[r].result = middle(o->table[r].samples, o->table[r].count);
    return LS_OK;
}

static ls_status prepare(bench *b)
{
    ddp_bench *o = b->o;
    const ls_place *places;
    ls_lm_options model = {
        .layers = o->layers, .width = o->width, .vocab_size = o->vocab_size, .context = o->seq_len
    };
    ls_status status = ls_model_open(&b->model, &(ls_model_options){ .lm = model });
    if (status) return status;
    size_t n = ls_model_places(b->model, &places), elements = ls_model_elements(b->model);
    size_t most =
        (size_t)(o->batch_size > o->micro_batch_size ? o->batch_size : o->micro_batch_size) * (size_t)o->seq_len + 1;
    o->parameters = (double)ls_model_param_count(b->model);
    if (!(b->tokens = calloc(most, sizeof *b->tokens))) return ls__fail(LS_ENOMEM, "no memory for a batch");
    ls__random_fill_u32((uint32_t *)b->tokens, most, 1, (uint64_t)ls_world_rank(b->world), 0);
    for (size_t i = 0; i < most; i++) b->tokens[i] = (int32_t)((uint32_t)b->tokens[i] % (uint32_t)o->vocab_size);
    status = ls_model_bind(b->model, NULL, NULL, true);
    if (!status) status = ls_model_init(b->model, 1);
    ls_optimizer_options adamw = { .threads = o->threads };
    if (!status) status = ls_optimizer_open(&b->optimizer, places, n, 0, elements, &adamw);
    if (!status) status = ls_tape_open(&b->tape, &(ls_tape_options){ .threads = o->threads });
    if (!status) ls_tape_on_ready(b->tape, on_ready, b);
    if (!status) ls__tape_on_tick(b->tape, on_tick, b);
    return status;
}

ls_status ddp_measure(ddp_bench *o, int *rank)
{
    bench b = { .o = o };
    ls_status status = ls_world_open(&b.world, NULL);
    if (status) return status;
    *rank = ls_world_rank(b.world);
    o->world_size = ls_world_size(b.world);
    o->hosts = ls_world_get_info(b.world).nodes;
    snprintf(o->transport, sizeof o->transport, "%s", ls_world_get_info(b.world).transport);
    if (o->ranks && o->ranks != o->world_size)
        status = ls__fail(LS_EINVAL, "-n %d, but the launcher started %d rank%s; leave out -n", o->ranks, o->world_size,
                          ls__s(o->world_size));
    if (!status) status = prepare(&b);
    if (!status) status = passes(&b);
    if (status && b.world) ls_group_abort(ls_world_group(b.world), ls_error()); /* the others would wait for us */
    ls_ddp_free(&b.ddp);
    ls_tape_free(&b.tape);
    ls_optimizer_free(&b.optimizer);
    ls_model_free(&b.model);
    free(b.tokens);
    ls_world_free(&b.world);
    return status;
}
