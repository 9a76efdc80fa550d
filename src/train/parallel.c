/* See parallel.h.
 *
 * Sharded (the default): one copy of weights and optimizer state per node, in memory that its ranks share. Gradients are
 * summed into the local root's block, and the ranks compute the norm and the update together, chunk by chunk
 * (comm/parallel_for.h): each computes about its share, and no rank owns a part. On one node the squares for the norm are summed in
 * the pass that sums the gradients (ddp/on_sum.h). The update waits for the norm also without clipping: a step whose gradients
 * are not finite must not be made, and an update cannot be taken back.
 *
 * Replicated: each rank has its own weights and state, gets all sums and updates all, the classic way. The bits are the
 * same: every element goes through the same operations in the same order. */
#include "train/parallel.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/slots.h"
#include "base/status.h"
#include "base/tree.h"
#include "comm/parallel_for.h"
#include "comm/slot_parts.h"
#include "comm/private.h"
#include "ddp/on_sum.h"
#include "nn/lora.h"
#include "nn/model.h"
#include "nn/norm.h"
#include "nn/optimizer.h"
#include "tensor/hooks.h"
#include "train/checkpoint.h"
#include "train/inject.h"
#include "train/kept.h"
#include "train/record.h"
#include "train/training.h"

enum {
    CHUNK = 64 * LS__NORM_BLOCK, /* elements of shared work taken at a time: 1 MiB of each array */
    FEW_SHARES = 64,             /* sums of a step that are on the stack: a steady step takes nothing from the heap */
};

ls_status ls__parallel_join(ls_train *t)
{
    ls__parallel *p = &t->parallel;
    ls_status status = LS_OK;
    p->world = t->options.world;
    if (!p->world) {
        status = ls__world_open_alone(&p->world, NULL);
        p->owns_world = !status;
    }
    if (status) return status;
    p->rank = ls_world_rank(p->world);
    p->size = ls_world_size(p->world);
    p->node_group = ls_world_group(p->world);
    if (ls_world_get_info(p->world).nodes > 1)
        status = ls_group_split(p->node_group, ls_world_get_info(p->world).node, p->rank, &p->node_group);
    return status;
}

typedef struct outcome {
    int32_t status;
    char text[508];
} outcome;

ls_status ls__parallel_agree(ls_train *t, ls_status own)
{
    ls__parallel *p = &t->parallel;
    if (!p->world || p->size == 1) return own;
    outcome mine = { .status = own }, *all = malloc((size_t)p->size * sizeof *all);
    if (own) snprintf(mine.text, sizeof mine.text, "%s", ls_error());
    ls_status status = all ? ls_allgather(ls_world_group(p->world), &mine, all, sizeof mine, LS_U8)
                           : ls__fail(LS_ENOMEM, "train: out of memory");
    for (int r = 0; r < p->size && !status; r++)
        if (all[r].status) {
            status = (ls_status)all[r].status;
            /* A message that is the same on all ranks needs no rank number. */
            bool everywhere = all[0].status && !strcmp(all[0].text, all[r].text);
            if (everywhere && r == 0)
                ls__fail(status, "%s", all[r].text);
            else
                ls__fail(status, "rank %d: %s", r, all[r].text);
        }
    free(all);
    return status;
}

ls_status ls__parallel_compare(ls_train *t)
{
    const ls__setting_value *own = t->settings;
    double both[2 * LS__MAX_SETTING_VALUES];
    int n = t->n_settings;
    for (int i = 0; i < n; i++) both[i] = own[i].value, both[n + i] = -own[i].value;
    ls_status status = ls_allreduce(ls_world_group(t->parallel.world), both, 2 * (size_t)n, LS_F64, LS_MAX);
    for (int i = 0; i < n && !status; i++) {
        if (both[i] == -both[n + i]) continue;
        static const char advice[] = "start all ranks with the same options and data";
        if (own[i].hashed)
            status = ls__fail(LS_EMISMATCH, "ranks have different settings: %s differs; %s", own[i].name, advice);
        else
            status = ls__fail(LS_EMISMATCH, "ranks have different settings: %s is between %.9g and %.9g; %s",
                              own[i].name, -both[n + i], both[i], advice);
    }
    return status;
}

/* ---- Memory. */

/* The tape reports that a parameter's gradient is complete. Spans are in the order of backward, parameters in that of forward. */
static ls_status on_ready(void *user, ls_param *param)
{
    ls_train *t = user;
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places), at = (size_t)param->index - ls__model_frozen(t->model);
    if (at == n / 2) ls__inject_delay(t, LS_PHASE_BACKWARD);
    ls__train_costs_mark(t, n - 1 - at, LS_PHASE_BACKWARD);
    return ls_ddp_ready(t->parallel.ddp, n - 1 - at);
}

static void on_tick(void *user)
{
    ls_train *t = user;
    ls_status status = ls_ddp_poll(t->parallel.ddp);
    (void)status; /* the next call returns it again */
}

void ls__parallel_listen(ls_train *t)
{
    ls_tape_on_ready(t->tape, on_ready, t);
}

/* So that a report can find where in forward time was lost. */
static void on_used(void *user, const ls_param *param)
{
    ls_train *t = user;
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places), frozen = ls__model_frozen(t->model);
    if ((size_t)param->index < frozen) return;
    size_t span = n - 1 + frozen - (size_t)param->index;
    ls_record_event(ls_world_record(t->parallel.world), 0, LS_EVENT_SPAN_USED, span, 0);
    ls__train_costs_mark(t, span, LS_PHASE_FORWARD);
}

static void begin_update(const ls_train *t)
{
    atomic_store(&t->parallel.marks->begun, t->step + 1);
}

/* The squares of the sums that were just computed. Blocks that are in two buckets are left to ls__parallel_norm(). */
static void norm_of_sums(void *user, const float *sums, size_t begin, size_t end)
{
    _Static_assert(LS__SUM_BLOCK == LS__NORM_BLOCK, "on_sum passes blocks of the norm");
    const ls_train *t = user;
    if (begin % LS__NORM_BLOCK || (end % LS__NORM_BLOCK && end != ls_model_elements(t->model))) return;
    ls__norm_sums(sums, begin, end, t->parallel.norm_sums, 1);
}

static ls_status open_reducer(ls_train *t)
{
    ls__parallel *p = &t->parallel;
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places);
    ls_span *spans = malloc(n * sizeof *spans);
    if (!spans) return ls__fail(LS_ENOMEM, "train: out of memory");
    for (size_t i = 0; i < n; i++)
        spans[i] = (ls_span){ .name = places[n - 1 - i].name, .count = places[n - 1 - i].count };
    ls_ddp_options o = { .bucket_bytes = (size_t)(t->options.bucket_mb * (1 << 20)),
                         .slots = t->options.slots,
                         .sum_order = t->options.sum_order,
                         .wire = t->options.wire,
                         .no_overlap = t->options.no_overlap,
                         .keep_sums = true,
                         .fixed_order = true,
                         .reduce_to_local_root = p->shared };
    ls_status status = ls_ddp_open(&p->ddp, p->world, spans, n, &o);
    free(spans);
    for (size_t i = 0; i < n && !status; i++)
        if (ls_ddp_grad(p->ddp, n - 1 - i) != ls_ddp_grad(p->ddp, n - 1) + places[i].offset)
            status =
                ls__fail(LS_ESTATE, "'%s' has another place among the gradients than in the model", places[i].name);
    return status;
}

/* From `init`. A head that is new has random values. */
static ls_status load_values(ls_train *t)
{
    ls_status status = LS_OK;
    if (t->new_head)
        status = ls__model_init_range(t->model, 0, ls_model_elements(t->model), t->options.seed, t->options.threads);
    return status ? status : ls__model_load_weights(t->model, t->options.init, t->new_head);
}

/* Initial values: each rank fills a part, or all; the bits are the same. Those of an elastic run are in kept memory, and stay as
 * they are. */
static ls_status fill_values(ls_train *t)
{
    ls__parallel *p = &t->parallel;
    size_t elements = ls_model_elements(t->model), begin = 0, end = elements;
    int rank = ls_group_rank(p->node_group), size = ls_group_size(p->node_group);
    ls_status status = LS_OK;
    if (p->shared) {
        begin = elements / (size_t)size * (size_t)rank;
        end = rank + 1 == size ? elements : elements / (size_t)size * (size_t)(rank + 1);
    }
    /* A checkpoint has all values. The folder that the run was started from has other files that are kept; it may be gone. */
    bool kept = ls__train_kept_is_ready(t), restored = kept || (ls__train_is_resumed(t) && ls__checkpoint_any(t));
    bool loads = t->options.init && (!p->shared || rank == 0);
    if (t->model->lora.options.r) { /* the frozen weights are in no checkpoint */
        if (!restored) status = ls__model_init_range(t->model, begin, end, t->options.seed, t->options.threads);
        status = ls__parallel_agree(t, status);
        if (!status && loads)
            status = kept ? ls__model_load_rest(t->model, t->options.init) : ls_model_load(t->model, t->options.init);
        return ls__parallel_agree(t, status);
    }
    if (!t->options.init && !restored)
        status = ls__model_init_range(t->model, begin, end, t->options.seed, t->options.threads);
    else if (loads)
        status = kept ? ls__model_load_rest(t->model, t->options.init) : load_values(t);
    if (restored) status = LS_OK;
    return ls__parallel_agree(t, status);
}

/* During forward, gradients hold nothing that is needed, except for those of the output projection (the first parameter or the last), which
 * the loss writes ahead of backward. The other parameters are used in the order of their layout, each by one operation. Padding must stay
 * zero, so there must be none. */
static void alias_gradients(ls_train *t, float *grads)
{
    const ls_place *places;
    const ls__lm_type *lm = t->model->type->lm;
    size_t n = ls_model_places(t->model, &places), head = lm ? lm->head(t->model) : 0;
    bool padded = n < 2 || !lm;
    for (size_t i = 1; i < n; i++) padded = padded || places[i].offset != places[i - 1].offset + places[i - 1].count;
    if (padded || (head && head != n - 1 && head != LS__NO_HEAD) || t->model->lora.options.r) return;
    size_t begin = head ? 0 : places[1].offset, end = places[n - 1].offset + (head == n - 1 ? 0 : places[n - 1].count);
    ls__tape_alias(t->tape, grads + begin, end - begin);
}

ls_status ls__parallel_open(ls_train *t)
{
    ls__parallel *p = &t->parallel;
    ls_train_options *o = &t->options;
    size_t elements = ls_model_elements(t->model), blocks = ls__norm_blocks(elements), n_places;
    const ls_place *places;
    void *values = NULL, *sums = NULL, *state = NULL, *marks = NULL, *frozen = NULL;
    p->shared = o->update == LS_UPDATE_SHARDED;
    p->first = ls__slots_first(o->slots, p->size, p->rank);
    p->each = ls__slots_count(o->slots, p->size, p->rank);
    ls_status status = open_reducer(t);
    if (!status) status = ls__train_kept_open(t);
    if (!status && t->kept) {
        values = ls__train_kept_values(t);
        state = ls__train_kept_state(t);
        marks = ls__train_kept_marks(t);
        status = ls__group_share(p->node_group, blocks * sizeof(double), &sums);
    } else if (!status && p->shared) {
        status = ls__group_share(p->node_group, elements * sizeof(float), &values);
        if (!status)
            status = ls__group_share(p->node_group,
                                     ls__optimizer_state_floats(&o->optimizer, elements) * sizeof(float) + 64, &state);
        if (!status) status = ls__group_share(p->node_group, blocks * sizeof(double), &sums);
        if (!status) status = ls__group_share(p->node_group, sizeof *p->marks, &marks);
    } else if (!status) {
        status = ls_world_alloc(p->world, blocks * sizeof(double), &sums);
    }
    size_t frozen_bytes = ls__model_frozen_bytes(t->model);
    if (!status && p->shared && frozen_bytes) {
        status = ls__group_share(p->node_group, frozen_bytes, &frozen);
        if (!status) ls__model_bind_frozen(t->model, frozen);
    }
    if (status) return status;
    p->norm_sums = sums;
    p->marks = marks ? marks : &p->own_marks;
    size_t last = ls_model_places(t->model, &places) - 1;
    float *grads = ls_ddp_grad(p->ddp, last); /* the last span comes first */
    if ((status = ls_model_bind(t->model, values, grads, true))) return status;
    n_places = ls_model_places(t->model, &places);
    if ((status = ls__optimizer_open_in(&t->optimizer, places, n_places, 0, elements, &o->optimizer, state)))
        return status;
    if (p->shared && o->wire == LS_WIRE_F32 && p->size > 1 && ls_world_get_info(p->world).nodes == 1) {
        if (!(p->own_sums = malloc(blocks * sizeof *p->own_sums))) return ls__fail(LS_ENOMEM, "train: out of memory");
        if ((status = ls__ddp_on_sum(p->ddp, norm_of_sums, t))) return status;
        if (t->kept) ls__ddp_sum_into(p->ddp, ls__train_kept_sums(t));
    }
    if (t->kept && (status = ls__parallel_agree(t, ls__train_kept_open_sums(t)))) return status;
    ls__parallel_listen(t);
    ls__tape_on_tick(t->tape, on_tick, t);
    ls__tape_on_used(t->tape, on_used, t);
    alias_gradients(t, grads);
    return fill_values(t);
}

void ls__parallel_close(ls_train *t)
{
    ls__parallel *p = &t->parallel;
    ls_ddp_free(&p->ddp);
    free(p->own_sums);
    if (p->world && p->node_group != ls_world_group(p->world)) ls_group_free(&p->node_group);
    if (p->owns_world) ls_world_free(&p->world);
    *p = (ls__parallel){ 0 };
}

/* ---- A step. */

ls_status ls__parallel_begin(ls_train *t, int micro, double weight)
{
    const ls__parallel *p = &t->parallel;
    return ls_ddp_begin(p->ddp, micro + 1 < p->each ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, weight);
}

ls_status ls__parallel_finish(ls_train *t, double *weight)
{
    ls_ddp_result result = { 0 };
    ls_status status = ls_ddp_finish(t->parallel.ddp, &result);
    *weight = result.weight;
    return status;
}

double ls__parallel_tree_sum(const double *x, int n)
{
    if (n == 1) return x[0];
    int m = (int)ls__tree_split((size_t)n);
    return ls__parallel_tree_sum(x, m) + ls__parallel_tree_sum(x + m, n - m);
}

/* Each part is summed by its rank. Where ranks have several, other ranks' are 0, and the sum over the ranks collects them. */
ls_status ls__parallel_sum(ls_train *t, const double *own, double shares[LS__SHARES])
{
    const ls__parallel *p = &t->parallel;
    const ls__slot_parts *parts = ls__ddp_parts(p->ddp);
    size_t n = parts ? (size_t)parts->n : 1;
    size_t count = LS__SHARES * n + 1 + (t->kept != NULL);
    double few[FEW_SHARES] = { 0 }, *all = count <= FEW_SHARES ? few : calloc(count, sizeof *all);
    if (!all) return ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step + 1);
    for (int i = 0; i < LS__SHARES; i++) {
        const double *x = own + i * p->each;
        if (!parts) all[i] = ls__parallel_tree_sum(x, p->each);
        for (int k = parts ? parts->of_rank[p->rank] : 0; parts && k < parts->of_rank[p->rank + 1]; k++)
            all[(size_t)i * n + (size_t)k] =
                ls__parallel_tree_sum(x + parts->part[k].first - p->first, parts->part[k].count);
    }
    all[LS__SHARES * n] = atomic_load(&t->stop_wanted);
    if (t->kept) all[count - 1] = ls__train_kept_change(t);
    ls_status status = ls_allreduce(ls_world_group(p->world), all, count, LS_F64, LS_SUM);
    for (size_t i = 0; i < LS__SHARES; i++) shares[i] = parts ? ls__slot_parts_sum_f64(parts, all + i * n) : all[i];
    t->stopping = all[LS__SHARES * n] > 0;
    if (t->kept && !status) ls__train_kept_agree(t, all[count - 1]);
    if (all != few) free(all);
    return status;
}

static const float *reduced(const ls_train *t)
{
    const ls_place *places;
    return ls_ddp_reduced(t->parallel.ddp, ls_model_places(t->model, &places) - 1); /* the last span comes first */
}

const float *ls__parallel_grads(const ls_train *t)
{
    return t->kept ? ls__train_kept_sums(t) : reduced(t);
}

/* Shared by the ranks of the node, or all of it on every rank. */
static ls_status do_elements(ls_train *t, ls__chunk_fn fn, void *user)
{
    const ls__parallel *p = &t->parallel;
    size_t elements = ls_model_elements(t->model);
    if (p->shared && ls_group_size(p->node_group) > 1)
        return ls__parallel_for(p->node_group, NULL, elements, LS_F32, CHUNK, fn, user);
    fn(user, NULL, 0, elements);
    return LS_OK;
}

/* Of one rank, and on several nodes, whose sums come from the network: they are kept from here on, and their squares summed in the same
 * pass. */
static void keep_and_square(const ls_train *t, size_t begin, size_t end)
{
    _Static_assert(CHUNK % LS__NORM_BLOCK == 0, "chunks consist of blocks of the norm");
    const float *from = t->parallel.size > 1 ? reduced(t) : ls_model_grads(t->model);
    float *sums = ls__train_kept_sums(t);
#pragma omp parallel for num_threads(t->options.threads) schedule(static) if (end - begin > CHUNK)
    for (size_t at = begin; at < end; at += CHUNK) {
        size_t next = end - at < CHUNK ? end : at + CHUNK;
        memcpy(sums + at, from + at, (next - at) * sizeof *sums);
        ls__norm_sums(sums, at, next, t->parallel.norm_sums, 1);
    }
}

static void norm_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const ls_train *t = user;
    (void)data;
    if (t->kept)
        keep_and_square(t, begin, end);
    else
        ls__norm_sums(reduced(t), begin, end, t->parallel.norm_sums, t->options.threads);
}

/* All blocks except those at the ends of buckets are done. Every rank computes those few itself, so that none waits. */
static double complete_norm(const ls_train *t)
{
    const ls__parallel *p = &t->parallel;
    size_t elements = ls_model_elements(t->model), blocks = ls__norm_blocks(elements);
    size_t buckets = (size_t)ls_ddp_get_stats(p->ddp).buckets;
    memcpy(p->own_sums, p->norm_sums, blocks * sizeof *p->own_sums);
    for (size_t i = 0; i < buckets; i++) {
        size_t at = ls__ddp_bucket_begin(p->ddp, i), first = at / LS__NORM_BLOCK * LS__NORM_BLOCK;
        if (at == first) continue;
        size_t end = elements - first < LS__NORM_BLOCK ? elements : first + LS__NORM_BLOCK;
        ls__norm_sums(ls__parallel_grads(t), first, end, p->own_sums, 1);
    }
    return ls__norm_total(p->own_sums, blocks);
}

ls_status ls__parallel_norm(ls_train *t, double *norm)
{
    *norm = 0;
    if (ls__train_kept_is_summed(t)) {
        *norm = ls__norm_total(t->parallel.norm_sums, ls__norm_blocks(ls_model_elements(t->model)));
        return LS_OK;
    }
    if (t->parallel.own_sums) {
        *norm = complete_norm(t);
        return LS_OK;
    }
    ls_status status = do_elements(t, norm_chunk, t);
    if (!status) *norm = ls__norm_total(t->parallel.norm_sums, ls__norm_blocks(ls_model_elements(t->model)));
    return status;
}

bool ls__parallel_is_consistent(const ls_train *t)
{
    const ls__update_marks *m = t->parallel.marks;
    int64_t done = atomic_load(&m->done);
    /* After an update whose step failed here, the weights are one step ahead of `step`. */
    return atomic_load(&m->begun) == done && done <= t->step;
}

typedef struct update_job {
    ls_train *t;
    float lr, grad_scale;
} update_job;

static void update_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const update_job *j = user;
    (void)data;
    begin_update(j->t);
    if (j->t->kept) {
        ls__train_kept_update(j->t, begin, end, j->lr, j->grad_scale);
        return;
    }
    /* The range is the optimizer's own, so it cannot fail. */
    ls_status status =
        ls__optimizer_update_range(j->t->optimizer, ls_model_values(j->t->model), ls__parallel_grads(j->t), begin, end,
                                   j->t->step, j->lr, j->grad_scale, NULL);
    (void)status;
}

static void prepare_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const update_job *j = user;
    (void)data;
    ls__optimizer_prepare(j->t->optimizer, ls__parallel_grads(j->t), begin, end, j->grad_scale);
}

/* What Muon needs of whole matrices. Ranks that share the state take one after the other; all are done before the first weight
 * changes, so a rank that is lost later finds them. */
static ls_status prepare_matrices(update_job *j)
{
    const ls__parallel *p = &j->t->parallel;
    size_t n = ls__optimizer_matrices(j->t->optimizer);
    if (n && p->shared && ls_group_size(p->node_group) > 1)
        return ls__parallel_for(p->node_group, NULL, n, LS_F32, 1, prepare_chunk, j);
    prepare_chunk(j, NULL, 0, n);
    return LS_OK;
}

ls_status ls__parallel_update(ls_train *t, float lr, float grad_scale)
{
    update_job job = { .t = t, .lr = lr, .grad_scale = grad_scale };
    ls_status status = prepare_matrices(&job);
    if (!status) status = do_elements(t, update_chunk, &job);
    if (!status) atomic_store(&t->parallel.marks->done, t->step + 1);
    return status;
}
