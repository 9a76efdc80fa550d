/* What ranks have summed of the step that is being computed, for the generation that completes it if a rank is lost.
 *
 * A rank adds its slots up in blocks of job memory: its gradients, and the partial sums of the reducer's counter. These blocks outlive
 * it (comm/kept.h), so nothing is copied: a list beside them says what each holds. A sum counts if its entry has the step that was
 * interrupted. A rank clears an entry before it overwrites the sum, and sets it when the new one is complete; entries of earlier
 * steps count no more, so a step begins without clearing. A rank may be killed between any two of these, and then one sum fewer
 * counts.
 *
 * Not on several nodes, where job memory ends with its ranks, and not with synchronized norms, whose slots are computed together. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/status.h"
#include "base/tree.h"
#include "comm/private.h"
#include "ddp/on_sum.h"
#include "nn/model.h"
#include "train/kept_parts.h"

enum { MOST_GENERATIONS = 3 }; /* after the one that left a sum, that may try to use it */

static bool is_possible(const ls_train *t)
{
    return ls_world_get_info(t->parallel.world).nodes == 1 && !t->options.sync_norm;
}

/* ---- Noting. */

ls__kept_sum *ls__kept_sums_find(const ls_train *t, const float *memory)
{
    const struct ls__train_kept *k = t->kept;
    uint64_t at = memory ? ls__world_offset(t->parallel.world, memory) : 0;
    ls__kept_list *lists[] = { k->own, k->rest };
    for (int i = 0; at && i < 2; i++)
        for (int64_t j = 0; lists[i] && j < lists[i]->n; j++)
            if (lists[i]->sum[j].part.at == at) return &lists[i]->sum[j];
    return NULL;
}

void ls__kept_sums_note(const ls_train *t, ls__kept_sum *s, const ls__kept_part *part, int slot)
{
    const struct ls__train_kept *k = t->kept;
    size_t row = (size_t)k->state->buffers;
    if (row && slot >= 0)
        memcpy(k->rows + (size_t)slot * row, t->statistics + (size_t)slot * row, row * sizeof *k->rows);
    if (!s) return;
    uint64_t at = s->part.at;
    s->part = *part;
    s->part.at = at;
    ls__train_point(t, LS__POINT_SLOT_ADDED);
    atomic_store_explicit(&s->step, t->step + 1, memory_order_release);
    ls__train_point(t, LS__POINT_SLOT_NOTED);
}

void ls__kept_sums_clear(ls__kept_sum *s)
{
    if (!s) return;
    atomic_store_explicit(&s->step, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* no write to the sum comes before it */
}

static void before_sum(void *user, const float *memory)
{
    ls__kept_sums_clear(ls__kept_sums_find(user, memory));
}

static void after_sum(void *user, const float *memory, int first, int count, double weight)
{
    const ls_train *t = user;
    const struct ls__train_kept *k = t->kept;
    int slot = t->parallel.first + first;
    ls__kept_part part = { .first = slot,
                           .count = count,
                           .loss = ls__parallel_tree_sum(k->losses + first, count),
                           .tokens = ls__parallel_tree_sum(k->tokens + first, count),
                           .weight = weight };
    ls__kept_sums_note(t, ls__kept_sums_find(t, memory), &part, slot + count - 1);
}

/* ---- Places. */

ls_status ls__kept_sums_list(ls_train *t, float *memory, int n, size_t elements, ls__kept_list **out)
{
    ls__kept *job = t->kept->job;
    ls_world *world = t->parallel.world;
    void *p;
    *out = NULL;
    ls_status status = ls_world_alloc(world, sizeof **out + (size_t)n * sizeof *(*out)->sum, &p);
    if (status) return status;
    ls__kept_list *list = p;
    list->elements = elements;
    list->n = n;
    for (int i = 0; i < n; i++) list->sum[i].part.at = ls__world_offset(world, memory + (size_t)i * elements);
    if (!ls__kept_hold(job, world, memory, LS__KEPT_HELD_SUMS)) return LS_OK;
    if (ls__kept_hold(job, world, list, LS__KEPT_HELD_LIST))
        *out = list;
    else
        ls__kept_let_go(job, world, memory);
    return LS_OK;
}

ls_status ls__train_kept_open_sums(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    int parts;
    size_t elements;
    float *block = ls__ddp_block(t->parallel.ddp, &parts);
    if (!is_possible(t) || !ls__world_offset(t->parallel.world, block)) return LS_OK;
    k->n_levels = ls__ddp_levels(t->parallel.ddp, &elements);
    ls_status status = ls__kept_sums_list(t, block, parts + k->n_levels, elements, &k->own);
    if (!k->own) return status;
    for (int i = 0; i < k->n_levels; i++) k->own->sum[parts + i].part.at = 0; /* none yet */
    ls__ddp_on_own_sums(t->parallel.ddp, &(ls__own_sums){ .begin = before_sum, .end = after_sum, .user = t });
    return status;
}

/* The reducer writes parameters, and what is between them must be zero: a sum that outlives its rank is added up as a whole. */
static void zero_gaps(const ls_train *t, float *block, size_t elements)
{
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places), end = 0;
    for (size_t i = 0; i <= n; i++) {
        size_t next = i < n ? places[i].offset : elements;
        memset(block + end, 0, (next - end) * sizeof *block);
        if (i < n) end = next + places[i].count;
    }
}

/* Where there is no memory for it, the reducer has partial sums of its own, which are lost with the rank. */
static void give_levels(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    int parts, levels = k->n_levels;
    size_t elements;
    k->n_levels = 0;
    ls__ddp_block(t->parallel.ddp, &parts);
    ls__ddp_levels(t->parallel.ddp, &elements);
    float *memory = ls__kept_alloc(t->parallel.world, (size_t)levels * elements * sizeof(float));
    if (!memory) return;
    for (int i = 0; i < levels; i++) zero_gaps(t, memory + (size_t)i * elements, elements);
    ls__ddp_give_levels(t->parallel.ddp, memory);
    if (!ls__kept_hold(k->job, t->parallel.world, memory, LS__KEPT_HELD_SUMS)) return;
    for (int i = 0; i < levels; i++)
        k->own->sum[parts + i].part.at = ls__world_offset(t->parallel.world, memory + (size_t)i * elements);
}

void ls__train_kept_begin(ls_train *t, const double *losses, const double *tokens)
{
    if (!t->kept) return;
    t->kept->losses = losses;
    t->kept->tokens = tokens;
    if (t->kept->own && t->kept->n_levels)
        give_levels(t); /* not while an interrupted step is completed, which needs none */
}

void ls__train_kept_forget_sums(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k) return;
    ls__kept_list *lists[] = { k->own, k->rest };
    for (int i = 0; i < 2; i++) {
        if (lists[i]) ls__kept_let_go(k->job, t->parallel.world, lists[i]);
        for (int64_t j = 0; lists[i] && j < lists[i]->n; j++) {
            atomic_store(&lists[i]->sum[j].step, 0);
            ls__kept_let_go(k->job, t->parallel.world,
                            ls__world_at(t->parallel.world, lists[i]->sum[j].part.at, sizeof(float)));
        }
    }
    k->own = k->rest = NULL;
}

/* ---- Finding. */

static bool is_subtree(int slots, int first, int count)
{
    int at = 0, n = slots;
    while (n > count && n > 1) {
        int m = (int)ls__tree_split((size_t)n);
        if (first < at + m) {
            n = m;
        } else {
            at += m;
            n -= m;
        }
    }
    return at == first && n == count;
}

/* Whether all of a sum is in memory that the generation of its list still holds: another one may have got it since. */
static bool is_held(const ls_train *t, int32_t generation, uint64_t at, uint64_t bytes)
{
    const ls__kept *job = t->kept->job;
    for (int i = 0; i < LS__KEPT_HELD; i++) {
        const ls__kept_held *h = &job->held[i];
        uint64_t begin = atomic_load(&h->offset);
        if (begin > 1 && h->kind == LS__KEPT_HELD_SUMS && h->generation == generation && at >= begin &&
            h->bytes >= bytes && at - begin <= h->bytes - bytes)
            return true;
    }
    return false;
}

/* What one list has of the step: appended to found[n..]; returns the new number. `found` NULL: only counted. */
static int read_list(const ls_train *t, const ls__kept_held *h, int64_t step, ls__kept_part *found, int n)
{
    const ls__kept_list *list = ls__world_at(t->parallel.world, atomic_load(&h->offset), (size_t)h->bytes);
    size_t elements;
    if (list && t->parallel.ddp && (ls__ddp_levels(t->parallel.ddp, &elements), list->elements != elements)) return n;
    if (!list || list->n < 0 || (uint64_t)list->n > (h->bytes - sizeof *list) / sizeof *list->sum) return n;
    for (int64_t i = 0; i < list->n; i++) {
        const ls__kept_sum *s = &list->sum[i];
        if (atomic_load_explicit(&s->step, memory_order_acquire) != step + 1) continue;
        if (s->part.first < 0 || s->part.count < 1 || !is_subtree(t->options.slots, s->part.first, s->part.count) ||
            !is_held(t, h->generation, s->part.at, list->elements * sizeof(float)))
            continue;
        if (found) found[n] = s->part;
        n++;
    }
    return n;
}

static int read_lists(const ls_train *t, int64_t step, ls__kept_part *found)
{
    const ls__kept *job = t->kept->job;
    int n = 0;
    for (int i = 0; i < LS__KEPT_HELD; i++) {
        const ls__kept_held *h = &job->held[i];
        if (atomic_load(&h->offset) > 1 && h->kind == LS__KEPT_HELD_LIST &&
            h->generation != atomic_load(&job->generation))
            n = read_list(t, h, step, found, n);
    }
    return n;
}

/* Subtrees that begin with the same slot: the largest first. */
static int in_order(const void *a, const void *b)
{
    const ls__kept_part *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->count < y->count) - (x->count > y->count);
}

int ls__kept_sums_collect(const ls_train *t, int64_t step, ls__kept_part **out)
{
    int n = is_possible(t) ? read_lists(t, step, NULL) : 0, used = 0, end = 0;
    *out = NULL;
    if (!n) return 0;
    if (!(*out = malloc((size_t)n * sizeof **out))) return -1;
    n = read_lists(t, step, *out);
    qsort(*out, (size_t)n, sizeof **out, in_order);
    /* Subtrees are disjoint, or one contains the other. */
    for (int i = 0; i < n; i++) {
        ls__kept_part part = (*out)[i];
        if (part.first < end) continue;
        end = part.first + part.count;
        (*out)[used++] = part;
    }
    return used;
}

/* Whether one of the parts is in this allocation, or may be listed there. */
static bool is_used(const ls__kept_held *h, const ls__kept_part *parts, int n)
{
    uint64_t begin = atomic_load(&h->offset);
    if (h->kind == LS__KEPT_HELD_LIST) return n > 0;
    for (int i = 0; i < n; i++)
        if (parts[i].at >= begin && parts[i].at - begin < h->bytes) return true;
    return false;
}

void ls__kept_sums_review(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    void *p = NULL;
    size_t held = 0;
    int64_t begun = 0, done = 0;
    ls__kept_part *parts = NULL;
    int n = 0, oldest = 0; /* in generations */
    for (int i = 0; i < LS__KEPT_HELD; i++) {
        const ls__kept_held *h = &k->job->held[i];
        if (atomic_load(&h->offset) <= 1) continue;
        int age = atomic_load(&k->job->generation) - h->generation;
        held += h->bytes;
        if (age > oldest) oldest = age;
    }
    if (!held) return;
    if (!ls__kept_map(k->fd, sizeof(ls__kept_state), &p)) {
        const ls__kept_state *s = p;
        begun = atomic_load(&s->marks.begun);
        done = atomic_load(&s->marks.done);
        munmap(p, sizeof(ls__kept_state));
    }
    /* This generation needs about as much again. If several could not complete the step from these sums, perhaps because memory ran out,
     * it is computed without them. */
    if (begun <= done && oldest <= MOST_GENERATIONS && ls__kept_fits(held)) n = ls__kept_sums_collect(t, done, &parts);
    for (int i = 0; i < LS__KEPT_HELD; i++)
        if (!is_used(&k->job->held[i], parts, n)) ls__kept_drop(k->job, t->parallel.world, i, true);
    free(parts);
}
