/* What every rank of `lockstep bench ddp` does: a training loop on the public interface, timed phase by phase.
 *
 * The run consists of a few passes. In each, every row (a way to make a step) of a model is measured: a reducer with the row's options, one
 * step that is not counted, then some that are. Noise affects all rows alike.
 *
 * Times are rank 0's. Backward is the time in the tape without its hooks; exposed communication is the time in the hooks (which
 * start buckets and make progress on them) and in the wait at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "cli/bench/ddp.h"
#include "lockstep/ddp.h"
#include "tensor/hooks.h"

enum { PASSES = 3, MAX_GROUPS = 5 };

/* The phases of a step in milliseconds; the four add up to the total. */
typedef struct ddp_times {
    double forward, backward, exposed, update, total;
} ddp_times;

/* One way to make a step. */
typedef struct ddp_row {
    ddp_part part;
    const char *way;     /* a name, of accumulate; NULL: none */
    size_t bucket_bytes; /* 1: each parameter by itself; 0: the default */
    int micro_batches;   /* of a step, on each rank */
    int groups;          /* that buckets use in turn; 0: the world's */
    bool no_overlap;
    bool sync_each; /* every micro-batch is synchronized; otherwise the last alone */
    bool slots;     /* the reducer knows how many micro-batches a step has, and adds them in canonical order */
    bool skipped;   /* not measured: there is no such way */
    ddp_times *samples;
    int count;
} ddp_row;

typedef struct bench {
    const ddp_bench *o;
    ls_world *world;
    ddp_model m;
    ls_ddp *ddp;
    ls_group *groups[MAX_GROUPS];
    int groups_in_turn;
    int64_t hook_ns;
    int64_t step;
    ddp_row table[DDP_MAX_ROWS];
    int n_rows;
} bench;

/* ---- Rows. */

static void add_row(bench *b, ddp_row row)
{
    if (b->o->parts[row.part] && b->n_rows < DDP_MAX_ROWS) b->table[b->n_rows++] = row;
}

/* All rows of a model that were asked for. */
static void make_rows(bench *b, ddp_kind kind)
{
    const ddp_bench *o = b->o;
    b->n_rows = 0;
    for (int overlap = 0; overlap < 2; overlap++)
        add_row(b, (ddp_row){ .part = DDP_BREAKDOWN, .no_overlap = !overlap, .micro_batches = 1 });
    for (int i = 0; i < o->n_buckets; i++) {
        size_t bytes = (size_t)(o->buckets[i] * (1 << 20));
        add_row(b, (ddp_row){ .part = DDP_BUCKETS, .bucket_bytes = bytes ? bytes : 1, .micro_batches = 1 });
    }
    add_row(b, (ddp_row){ .part = DDP_SCALING, .micro_batches = 1 });
    for (int n = 1; n <= 8; n *= 2) add_row(b, (ddp_row){ .part = DDP_SKIP, .micro_batches = n });
    for (int n = 1; n <= MAX_GROUPS; n += 2)
        add_row(b, (ddp_row){ .part = DDP_GROUPS, .groups = n, .bucket_bytes = 1 << 20, .micro_batches = 1 });
    if (kind != DDP_BERT) return; /* Accelerate's table is about its example */
    ddp_row row = { .part = DDP_ACCUMULATE, .micro_batches = DDP_MICRO_BATCHES, .way = "baseline", .sync_each = true };
    add_row(b, row);
    row.way = "no_sync improperly";
    row.skipped = true; /* ls_ddp_begin() decides for a whole micro-batch, before its forward pass */
    add_row(b, row);
    row = (ddp_row){ .part = DDP_ACCUMULATE, .micro_batches = DDP_MICRO_BATCHES, .way = "no_sync" };
    add_row(b, row);
    row.way = "accumulate";
    row.slots = true;
    add_row(b, row);
}

/* ---- A step. */

static ls_status on_ready(void *user, ls_param *param)
{
    bench *b = user;
    const ls_place *places;
    size_t n = ls_model_places(b->m.model, &places);
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

/* A hook that gives each bucket the next group. */
static ls_status next_group(void *user, const ls_bucket *bucket, ls_work **work)
{
    const bench *b = user;
    return ls_allreduce_start(b->groups[bucket->index % b->groups_in_turn], bucket->grads, bucket->count, LS_F32,
                              LS_SUM, work);
}

static ls_status open_reducer(bench *b, const ddp_row *row)
{
    const ls_place *places;
    size_t n = ls_model_places(b->m.model, &places);
    ls_span *spans = malloc(n * sizeof *spans);
    if (!spans) return ls__fail(LS_ENOMEM, "no memory for %zu spans", n);
    for (size_t i = 0; i < n; i++)
        spans[i] = (ls_span){ .name = places[n - 1 - i].name, .count = places[n - 1 - i].count };
    ls_ddp_options options = { .bucket_bytes = row->bucket_bytes,
                               .first_bucket_bytes =
                                   row->bucket_bytes && row->bucket_bytes < 1 << 20 ? row->bucket_bytes : 0,
                               .slots = row->slots ? row->micro_batches * ls_world_size(b->world) : 0,
                               .no_overlap = row->no_overlap,
                               .fixed_order = true };
    b->groups_in_turn = row->groups;
    if (row->groups) options.hook = (ls_comm_hook){ .start = next_group, .user = b };
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

static ls_status micro_batch(bench *b, ls_ddp_mode mode, ddp_times *t, int64_t *clock)
{
    ls_param *params;
    int n = ls_model_params(b->m.model, &params);
    ls_pass pass = { .stream = (uint64_t)b->step };
    ls_tensor *loss = NULL;
    ls_status status = ls_ddp_begin(b->ddp, mode, 1);
    if (!status) status = ls_tape_begin(b->m.tape, params, n, &pass);
    if (!status) loss = ls_model_loss(b->m.model, b->m.tape, &b->m.batch);
    if (!status) status = ls_tape_status(b->m.tape);
    t->forward += since(clock);
    if (status) return status;
    b->hook_ns = 0;
    status = ls_tape_backward(b->m.tape, loss);
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
        status = micro_batch(b, sync ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, t, &clock);
    }
    if (!status)
        ls_optimizer_update(b->m.optimizer, ls_model_values(b->m.model),
                            ls_ddp_reduced(b->ddp, ls_model_places(b->m.model, &places) - 1), b->step++, 1e-5f);
    t->update = since(&clock);
    t->total = (double)(clock - begin) / 1e6;
    return status;
}

/* A row's turn. */
static ls_status turn(bench *b, ddp_row *row, int steps)
{
    const ls_place *places;
    size_t last = ls_model_places(b->m.model, &places) - 1;
    ls_status status = open_reducer(b, row);
    if (!status) ls_model_set_grads(b->m.model, ls_ddp_grad(b->ddp, last));
    for (int i = -1; i < steps && !status; i++) {
        ddp_times t;
        status = step(b, row, &t);
        if (i >= 0) row->samples[row->count++] = t;
    }
    ls_ddp_free(&b->ddp);
    return status;
}

static ls_status passes(bench *b)
{
    int steps = b->o->steps ? b->o->steps : b->o->full ? 12 : 6, each = (steps + PASSES - 1) / PASSES;
    for (int r = 0; r < b->n_rows; r++)
        if (!(b->table[r].samples = calloc((size_t)(each * PASSES), sizeof *b->table[r].samples)))
            return ls__fail(LS_ENOMEM, "no memory for times");
    for (int pass = 0; pass < PASSES; pass++)
        for (int r = 0; r < b->n_rows; r++) {
            ls_status status = b->table[r].skipped ? LS_OK : turn(b, &b->table[r], each);
            if (status) return status;
        }
    return LS_OK;
}

/* ---- Results. */

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

/* The standard deviation of all steps. */
static double spread(const ddp_times *t, int n)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++) mean += t[i].total / n;
    for (int i = 0; i < n; i++) sum += (t[i].total - mean) * (t[i].total - mean);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

static json_t *row_json(const bench *b, ddp_kind kind, ddp_row *r)
{
    int hosts = ls_world_get_info(b->world).nodes, last = r->count - 1;
    json_t *row = json_pack("{s:s, s:s, s:i, s:i, s:o, s:I, s:b, s:I, s:i, s:b, s:i, s:I, s:I, s:i}", "part",
                            ddp_part_names[r->part], "model", ddp_model_names[kind], "hosts", hosts, "ranks",
                            ls_world_size(b->world), "link", hosts > 1 ? json_string(b->o->link) : json_null(),
                            "parameters", (json_int_t)ls_model_param_count(b->m.model), "overlap", !r->no_overlap,
                            "bucket_bytes", (json_int_t)r->bucket_bytes, "micro_batches", r->micro_batches, "sync_each",
                            r->sync_each, "groups", r->groups, "batch_size", (json_int_t)b->m.batch.batch_size,
                            "seq_len", (json_int_t)b->m.batch.seq_len, "steps", r->count);
    if (row && r->way) json_object_set_new(row, "way", json_string(r->way));
    if (!row || !r->count) return row;
    ddp_times t = middle(r->samples, r->count);
    const struct {
        const char *key;
        double value;
    } figures[] = { { "step_ms", t.total },
                    { "step_sd_ms", spread(r->samples, r->count) },
                    { "step_p25_ms", r->samples[last / 4].total },
                    { "step_p75_ms", r->samples[last - last / 4].total },
                    { "forward_ms", t.forward },
                    { "backward_ms", t.backward },
                    { "communication_ms", t.exposed },
                    { "update_ms", t.update } };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(row, figures[i].key, json_real(figures[i].value));
    return row;
}

/* All rows of a model. */
static ls_status measure_model(bench *b, ddp_kind kind, json_t *rows)
{
    make_rows(b, kind);
    if (!b->n_rows) return LS_OK;
    ls_status status = ddp_model_open(&b->m, b->o, kind, ls_world_rank(b->world));
    if (!status) ls_tape_on_ready(b->m.tape, on_ready, b);
    if (!status) ls__tape_on_tick(b->m.tape, on_tick, b);
    if (!status) status = passes(b);
    for (int i = 0; i < b->n_rows; i++) {
        if (!status) json_array_append_new(rows, row_json(b, kind, &b->table[i]));
        free(b->table[i].samples);
    }
    ls_ddp_free(&b->ddp);
    ddp_model_free(&b->m);
    return status;
}

static ls_status measure_all(bench *b, json_t *rows)
{
    const ddp_bench *o = b->o;
    ls_status status = LS_OK;
    if (o->parts[DDP_ALLREDUCE]) status = ddp_measure_allreduce(o, b->world, rows);
    for (int i = 0; o->parts[DDP_GROUPS] && i < MAX_GROUPS && !status; i++)
        status = ls_group_split(ls_world_group(b->world), 0, 0, &b->groups[i]);
    for (int kind = 0; kind < DDP_MODELS && !status; kind++) {
        if (!o->models[kind]) continue;
        if (o->parts[DDP_READY]) status = ddp_measure_ready(o, b->world, (ddp_kind)kind, rows);
        if (!status) status = measure_model(b, (ddp_kind)kind, rows);
    }
    if (!status && o->parts[DDP_ACCURACY]) status = ddp_measure_accuracy(o, b->world, rows);
    return status;
}

ls_status ddp_measure(const ddp_bench *o, int *rank, json_t *rows)
{
    bench *b = calloc(1, sizeof *b);
    if (!b) return ls__fail(LS_ENOMEM, "no memory for the benchmark");
    b->o = o;
    ls_status status = ls_world_open(&b->world, NULL);
    if (status) goto done;
    *rank = ls_world_rank(b->world);
    int size = ls_world_size(b->world);
    if (o->ranks && o->ranks != size)
        status =
            ls__fail(LS_EINVAL, "-n %d, but the launcher started %d rank%s; leave out -n", o->ranks, size, ls__s(size));
    if (!status) status = measure_all(b, rows);
    if (status) ls_group_abort(ls_world_group(b->world), ls_error()); /* the others would wait for us */
    for (int i = 0; i < MAX_GROUPS; i++) ls_group_free(&b->groups[i]);
    ls_world_free(&b->world);
done:
    free(b);
    return status;
}
