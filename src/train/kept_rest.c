/* Completes a step that was interrupted while gradients were summed: what no rank had finished is computed, the rest is not.
 *
 * The first rank reads what earlier ranks have left (kept_sums.c), and all get its list of sums. Slots that are in none of them are
 * dealt over the ranks of this generation as evenly as possible, in contiguous runs. A rank computes the largest subtrees of the canonical
 * tree within its run, and notes each sum as it is complete: if this generation is interrupted, too, the next one has all of them. Then the
 * tree is finished from the old sums and the new ones, and the step continues with its update. Every addition is one of the canonical
 * tree, so bits are those of an undisturbed step.
 *
 * This happens at most once in a generation, in its first step, and does not overlap with communication. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/slots.h"
#include "base/status.h"
#include "base/tree.h"
#include "comm/parallel_for.h"
#include "comm/private.h"
#include "comm/slot_parts.h"
#include "ddp/on_sum.h"
#include "kern/vector.h"
#include "nn/lora.h"
#include "nn/model.h"
#include "nn/norm.h"
#include "train/kept_parts.h"
#include "train/record.h"

enum { CHUNK = 64 * LS__NORM_BLOCK }; /* elements that are added at a time */

bool ls__train_kept_has_rest(const ls_train *t)
{
    return t->kept && t->kept->parts && !t->kept->summed;
}

bool ls__train_kept_is_summed(const ls_train *t)
{
    return t->kept && t->kept->summed == t->step + 1;
}

/* ---- What is missing, and who computes it. */

typedef struct rest {
    ls_train *t;
    ls_train_metrics *metrics;
    bool *mine;            /* [slots]: computed here */
    ls__kept_part *target; /* [targets]: subtrees that are computed here */
    int targets, spares;   /* spares: blocks for inner sums */
    bool *ready;           /* [parameters]: have a gradient in this slot */
    float *work;           /* this rank's block: where gradients are computed */
    size_t stride;         /* elements of a block */
} rest;

/* The largest subtrees of `count` slots from `first` on that are all this rank's. */
static void find_targets(rest *r, int first, int count)
{
    int own = 0;
    for (int i = 0; i < count; i++) own += r->mine[first + i];
    if (own == count) r->target[r->targets++] = (ls__kept_part){ .first = first, .count = count };
    if (!own || own == count) return;
    int m = (int)ls__tree_split((size_t)count);
    find_targets(r, first, m);
    find_targets(r, first + m, count - m);
}

/* Blocks that compute() needs beside its output. */
static int spares_of(int count)
{
    if (count <= 2) return 0;
    int m = (int)ls__tree_split((size_t)count), left = spares_of(m),
        right = count - m > 1 ? 1 + spares_of(count - m) : 0;
    return left > right ? left : right;
}

/* Which slots are missing, and which of them are `rank`'s. */
static ls_status deal(rest *r, int rank)
{
    const ls_train *t = r->t;
    const struct ls__train_kept *k = t->kept;
    int slots = t->options.slots, missing = 0, at = 0;
    const ls_place *places;
    r->mine = malloc((size_t)slots * sizeof *r->mine);
    r->target = malloc((size_t)slots * sizeof *r->target);
    r->ready = malloc(ls_model_places(t->model, &places) * sizeof *r->ready);
    if (!r->mine || !r->target || !r->ready) return ls__fail(LS_ENOMEM, "train: out of memory");
    memset(r->mine, true, (size_t)slots * sizeof *r->mine);
    for (int i = 0; i < k->n_parts; i++)
        memset(r->mine + k->parts[i].first, false, (size_t)k->parts[i].count * sizeof *r->mine);
    for (int i = 0; i < slots; i++) missing += r->mine[i];
    int begin = ls__slots_first(missing, t->parallel.size, rank),
        end = ls__slots_first(missing, t->parallel.size, rank + 1);
    for (int i = 0; i < slots; i++)
        if (r->mine[i]) r->mine[i] = at >= begin && at < end, at++;
    find_targets(r, 0, slots);
    for (int i = 0; i < r->targets; i++) {
        int spares = spares_of(r->target[i].count);
        if (spares > r->spares) r->spares = spares;
    }
    return LS_OK;
}

static void free_rest(rest *r)
{
    free(r->mine);
    free(r->target);
    free(r->ready);
}

/* The last subtree stays in the block that it was computed in, if it is one slot. */
static bool last_stays(const rest *r)
{
    return r->targets && r->target[r->targets - 1].count == 1;
}

/* Blocks that are needed besides that one. */
static int blocks_of(const rest *r)
{
    return r->targets - last_stays(r) + r->spares;
}

/* Whether there is memory for what all ranks compute. A rank that finds too little ends the run. */
static bool fits(ls_train *t)
{
    size_t blocks = 0, elements;
    ls_status status = LS_OK;
    for (int i = 0; i < t->parallel.size && !status; i++) {
        rest r = { .t = t };
        status = deal(&r, i);
        if (!status) blocks += (size_t)blocks_of(&r);
        free_rest(&r);
    }
    ls__ddp_levels(t->parallel.ddp, &elements);
    return !status && ls__kept_fits(blocks * elements * sizeof(float));
}

ls_status ls__kept_rest_find(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    ls_group *world = ls_world_group(t->parallel.world);
    int64_t n = 0;
    if (ls__train_is_first(t)) {
        n = ls__kept_sums_collect(t, t->step, &k->parts);
        k->n_parts = n > 0 ? (int)n : 0;
        if (n <= 0 || !fits(t)) {
            n = k->n_parts = 0;
            free(k->parts);
            k->parts = NULL;
            ls__kept_drop_held(k->job, t->parallel.world, false);
        }
    }
    ls_status status = ls_broadcast(world, &n, 1, LS_I64, 0);
    if (status || n <= 0) return status;
    if (!k->parts) k->parts = malloc((size_t)n * sizeof *k->parts);
    status = ls__parallel_agree(t, k->parts ? LS_OK : ls__fail(LS_ENOMEM, "train: out of memory"));
    if (!status) status = ls_broadcast(world, k->parts, (size_t)n * sizeof *k->parts, LS_U8, 0);
    k->n_parts = (int)n;
    for (int i = 0; i < k->n_parts && !status; i++) k->kept_slots += k->parts[i].count;
    return status;
}

void ls__kept_rest_close(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    void *memory = k->rest_memory, *list = k->rest;
    k->rest = NULL;
    if (list) ls__kept_let_go(k->job, t->parallel.world, list);
    if (memory) ls__kept_let_go(k->job, t->parallel.world, memory);
    ls_world_dealloc(t->parallel.world, &list);
    ls_world_dealloc(t->parallel.world, &memory);
    k->rest_memory = NULL;
    if (ls__train_is_first(t)) ls__kept_drop_held(k->job, t->parallel.world, false);
    free(k->parts);
    k->parts = NULL;
}

/* ---- Computing. */

static ls_status on_ready(void *user, ls_param *param)
{
    rest *r = user;
    r->ready[(size_t)param->index - ls__model_frozen(r->t->model)] = true;
    return LS_OK;
}

/* As the reducer has it: a parameter without a gradient, and all of a micro-batch without weight, count as zero. */
static void zero_the_rest(const rest *r, double weight)
{
    const ls_place *places;
    size_t n = ls_model_places(r->t->model, &places);
    for (size_t i = 0; i < n; i++)
        if (!r->ready[i] || weight == 0) memset(r->work + places[i].offset, 0, places[i].count * sizeof(float));
}

/* One slot: its gradient is in the block that this rank works in. */
static ls_status compute_slot(rest *r, int slot, ls__kept_part *out)
{
    ls_train *t = r->t;
    ls_train_metrics *m = r->metrics;
    ls_tensor *loss = NULL;
    ls__micro_batch batch;
    const ls_place *places;
    ls__kept_sums_clear(ls__kept_sums_find(t, r->work));
    ls_status status = ls__train_enter(t, LS_PHASE_DATA);
    if (!status) status = ls__train_load_slot(t, slot, &batch);
    m->data_ms += ls__train_leave(t, LS_PHASE_DATA);
    if (!status) status = ls__train_enter(t, LS_PHASE_FORWARD);
    if (status) return status;
    memset(r->ready, false, ls_model_places(t->model, &places) * sizeof *r->ready);
    ls__statistics_slot(t, slot);
    if (batch.model.batch_size) status = ls__train_forward(t, slot, &batch.model, false, &loss);
    m->forward_ms += ls__train_leave(t, LS_PHASE_FORWARD);
    if (!status) status = ls__train_enter(t, LS_PHASE_BACKWARD);
    if (status) return status;
    *out = (ls__kept_part){ .first = slot,
                            .count = 1,
                            .loss = loss ? (double)loss->data[0] : 0,
                            .tokens = batch.tokens,
                            .weight = batch.weight };
    if (loss) status = ls_tape_backward(t->tape, loss);
    zero_the_rest(r, batch.weight);
    m->backward_ms += ls__train_leave(t, LS_PHASE_BACKWARD);
    return status;
}

static void add(const rest *r, float *out, const float *right)
{
    int64_t n = (int64_t)r->stride;
#pragma omp parallel for num_threads(r->t->options.threads) schedule(static) if (n > CHUNK)
    for (int64_t i = 0; i < n; i += CHUNK)
        ls__add_f32(out + i, out + i, right + i, (size_t)(n - i < CHUNK ? n - i : CHUNK));
}

/* A subtree: its sum is at `out`, and noted. `spare`: blocks for what is added to it. A slot by itself may be left where it was computed. */
static ls_status compute(rest *r, int first, int count, float *out, float *spare, ls__kept_part *part)
{
    ls__kept_sum *place = ls__kept_sums_find(r->t, out);
    if (count == 1) {
        ls_status status = compute_slot(r, first, part);
        if (status) return status;
        ls__kept_sums_clear(place);
        if (out != r->work) memcpy(out, r->work, r->stride * sizeof *out);
        ls__kept_sums_note(r->t, place, part, first);
        return LS_OK;
    }
    int m = (int)ls__tree_split((size_t)count);
    ls__kept_part left, right;
    float *other = count - m == 1 ? r->work : spare;
    ls_status status = compute(r, first, m, out, spare, &left);
    if (!status) status = compute(r, first + m, count - m, other, spare + r->stride, &right);
    if (status) return status;
    ls__kept_sums_clear(place);
    add(r, out, other);
    *part = (ls__kept_part){ .first = first,
                             .count = count,
                             .loss = left.loss + right.loss,
                             .tokens = left.tokens + right.tokens,
                             .weight = left.weight + right.weight };
    ls__kept_sums_note(r->t, place, part, -1);
    return LS_OK;
}

/* Memory for the sums of this rank. */
static ls_status allocate(rest *r)
{
    ls_train *t = r->t;
    struct ls__train_kept *k = t->kept;
    int parts, blocks = blocks_of(r), slots = 0;
    ls__ddp_levels(t->parallel.ddp, &r->stride);
    r->work = ls__ddp_block(t->parallel.ddp, &parts);
    if (!r->targets || !blocks) return LS_OK;
    for (int i = 0; i < r->targets; i++) slots += r->target[i].count;
    size_t bytes = (size_t)blocks * r->stride * sizeof(float);
    if (!(k->rest_memory = ls__kept_alloc(t->parallel.world, bytes)))
        return ls__fail(LS_ENOMEM, "elastic: cannot allocate %.1f MiB for the sums of %d slots: %s",
                        (double)bytes / (1 << 20), slots, ls_error());
    return ls__kept_sums_list(t, k->rest_memory, blocks, r->stride, &k->rest);
}

/* All of this rank's. */
static ls_status compute_own(rest *r)
{
    ls_train *t = r->t;
    const struct ls__train_kept *k = t->kept;
    int stays = last_stays(r);
    ls_status status = LS_OK;
    float *spare = k->rest_memory ? k->rest_memory + (size_t)(r->targets - stays) * r->stride : NULL;
    ls_tape_on_ready(t->tape, on_ready, r);
    for (int i = 0; i < r->targets && !status; i++) {
        ls__kept_part *p = &r->target[i];
        float *out = i + 1 == r->targets && stays ? r->work : k->rest_memory + (size_t)i * r->stride;
        status = compute(r, p->first, p->count, out, spare, p);
        p->at = ls__world_offset(t->parallel.world, out);
    }
    ls__parallel_listen(t);
    return status;
}

/* ---- Adding up. */

typedef struct joined {
    ls_train *t;
    ls__slot_parts tree;
    const float **at; /* [parts] */
    const void **in;  /* [threads * parts] */
} joined;

static int by_slot(const void *a, const void *b)
{
    const ls__kept_part *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static void sum_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const joined *j = user;
    const ls_train *t = j->t;
    float *sums = ls__train_kept_sums(t);
    const void **in = j->in + omp_get_thread_num() * j->tree.n;
    void *out = sums + begin;
    (void)data;
    for (int i = 0; i < j->tree.n; i++) in[i] = j->at[i] + begin;
    ls__slot_parts_sum(&j->tree, j->tree.leaves, 0, &out, 1, in, end - begin);
    ls__norm_sums(sums, begin, end, t->parallel.norm_sums, 1);
}

static ls_status sum_all(joined *j)
{
    const ls_train *t = j->t;
    int64_t elements = (int64_t)ls_model_elements(t->model);
    if (t->parallel.size > 1)
        return ls__parallel_for(t->parallel.node_group, NULL, (size_t)elements, LS_F32, CHUNK, sum_chunk, j);
#pragma omp parallel for num_threads(t->options.threads) schedule(static)
    for (int64_t i = 0; i < elements; i += CHUNK)
        sum_chunk(j, NULL, (size_t)i, (size_t)(i + CHUNK < elements ? i + CHUNK : elements));
    return LS_OK;
}

/* From all parts, in the order of slots: the gradients, and the sums of losses and weights. */
static ls_status join(ls_train *t, const ls__kept_part *all, int n, double *shares, double *weight)
{
    joined j = { .t = t, .tree = { .leaves = t->options.slots, .ranks = 1, .n = n } };
    double *x = malloc((size_t)n * sizeof *x);
    int end = 0;
    ls_status status = LS_OK;
    j.tree.part = calloc((size_t)n, sizeof *j.tree.part);
    j.at = malloc((size_t)n * sizeof *j.at);
    j.in = malloc((size_t)n * (size_t)t->options.threads * sizeof *j.in);
    if (!x || !j.tree.part || !j.at || !j.in) status = ls__fail(LS_ENOMEM, "train: out of memory");
    for (int i = 0; i < n && !status; end = all[i].first + all[i].count, i++) {
        j.tree.part[i] = (ls__slot_part){ .first = all[i].first, .count = all[i].count };
        j.at[i] = ls__world_at(t->parallel.world, all[i].at, ls_model_elements(t->model) * sizeof(float));
        if (!j.at[i] || all[i].first != end)
            status = ls__fail(LS_ESTATE, "elastic: sums of step %lld do not fit together", (long long)t->step + 1);
        x[i] = all[i].loss;
    }
    if (!status) shares[LS__LOSS] = ls__slot_parts_sum_f64(&j.tree, x);
    for (int i = 0; i < n && !status; i++) x[i] = all[i].weight;
    if (!status) *weight = ls__slot_parts_sum_f64(&j.tree, x);
    if (!status) status = sum_all(&j);
    free(j.in);
    free(j.at);
    free(j.tree.part);
    free(x);
    return status;
}

/* Every rank gets the parts of all, with those that were there. */
static ls_status gather(rest *r, ls__kept_part **out, int *n, double *tokens)
{
    const ls_train *t = r->t;
    const struct ls__train_kept *k = t->kept;
    int size = t->parallel.size, each = 1;
    int64_t most = r->targets;
    ls_group *world = ls_world_group(t->parallel.world);
    ls_status status = ls_allreduce(world, &most, 1, LS_I64, LS_MAX);
    if (status) return status;
    if (most > each) each = (int)most;
    ls__kept_part *mine = calloc((size_t)each, sizeof *mine);
    ls__kept_part *all = malloc(((size_t)size * (size_t)each + (size_t)k->n_parts) * sizeof *all);
    if (mine) memcpy(mine, r->target, (size_t)r->targets * sizeof *mine);
    status = mine && all ? ls_allgather(world, mine, all, (size_t)each * sizeof *mine, LS_U8)
                         : ls__fail(LS_ENOMEM, "train: out of memory");
    free(mine);
    *out = all;
    *n = 0;
    *tokens = 0;
    for (int i = 0; i < size * each && !status; i++) {
        if (!all[i].count) continue;
        *tokens += all[i].tokens;
        all[(*n)++] = all[i];
    }
    if (status) return status;
    memcpy(all + *n, k->parts, (size_t)k->n_parts * sizeof *all);
    *n += k->n_parts;
    qsort(all, (size_t)*n, sizeof *all, by_slot);
    return LS_OK;
}

/* As the sum of losses does it for other steps. */
static ls_status agree_on_the_end(ls_train *t)
{
    double all[2] = { atomic_load(&t->stop_wanted), ls__train_kept_change(t) };
    ls_status status = ls_allreduce(ls_world_group(t->parallel.world), all, 2, LS_F64, LS_SUM);
    t->stopping = all[0] > 0;
    if (!status) ls__train_kept_agree(t, all[1]);
    return status;
}

ls_status ls__train_kept_run_rest(ls_train *t, ls_train_metrics *m, double *shares, double *weight)
{
    struct ls__train_kept *k = t->kept;
    rest r = { .t = t, .metrics = m };
    ls__kept_part *all = NULL;
    int n = 0;
    ls_status status = deal(&r, t->parallel.rank);
    if (!status) status = allocate(&r);
    status = ls__parallel_agree(t, status);
    if (!status) status = compute_own(&r);
    ls__train_point(t, LS__POINT_REST_COMPUTED);
    if (!status) status = gather(&r, &all, &n, &shares[LS__TOKENS]);
    if (!status) status = join(t, all, n, shares, weight);
    if (!status && t->statistics)
        memcpy(t->statistics, k->rows, (size_t)(k->state->buffers * (uint64_t)t->options.slots) * sizeof *k->rows);
    if (!status) status = agree_on_the_end(t);
    ls__train_point(t, LS__POINT_REST_SUMMED);
    if (!status) k->summed = t->step + 1;
    free(all);
    free_rest(&r);
    return status;
}
