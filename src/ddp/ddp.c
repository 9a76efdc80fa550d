/* The reducer: from "span i is ready" to reduced gradients.
 *
 * All gradients are in one flat block in memory that the ranks of a node share, bucket after bucket. The states of a bucket:
 *
 *     FILLING --last span ready--> FULL --hook's start--> STARTED --reduced--> DONE
 *
 * Buckets are started in index order on every rank, whatever the order in which they fill, so all ranks make the same
 * collective calls. Progress on what is started is made in ls_ddp_ready() and in the wait at the end. There is no helper
 * thread: a bucket is reduced by the ranks that are free (see comm/shm_reduce.c), and a second thread would only take time
 * from a rank that computes.
 *
 * Micro-batches are added in canonical order by the counter (counter.h), span by span, as they become ready. */
#include "lockstep/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/slots.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/private.h"
#include "ddp/reducer.h"
#include "kern/vector.h"

enum {
    WORTH_RECORDING = 1000, /* ns */
    POLL_NS = 200000,       /* a message of 16 KiB takes that long at 700 Mbit/s */
};
/* Gradients are float32: with other weights their mean would not be exact, or not finite. */
static const double MIN_WEIGHT = 1e-30, MAX_WEIGHT = 1e30;

/* ---- Failing. */

void ls__ddp_drain(ls_ddp *d)
{
    for (size_t i = 0; i < d->n_buckets; i++) {
        ls__reduce_bucket *b = &d->buckets[i];
        if (b->state != LS__STARTED) continue;
        if (b->work && ls_work_wait(&b->work)) d->block_in_use = true;
        b->state = LS__DONE;
    }
    ls_status ignored = d->totals_work ? ls_work_wait(&d->totals_work) : LS_OK; /* in memory that only this rank uses */
    (void)ignored;
}

static const char JOIN_HINT[] = "; a rank that has run out of data before the others must call ls_ddp_join()";

/* Whether the message of LS_EPEER is about a rank that ended by itself. */
static bool left_early(const char *message)
{
    return strstr(message, "left the group") || strstr(message, "exited with code 0");
}

/* The step cannot be completed. The other ranks wait for this one, in this bucket or a later one: the abort gives them this
 * thread's message at once. What is started is waited for, so that no call of this rank uses the block any more. */
static ls_status abandon(ls_ddp *d, ls_status status)
{
    d->failed = status;
    snprintf(d->failed_text, sizeof d->failed_text, "%s%s", ls_error(),
             status == LS_EPEER && left_early(ls_error()) ? JOIN_HINT : "");
    if (!ls__group_is_broken(d->group)) ls_group_abort(d->group, d->failed_text);
    if (d->node_group != d->group && !ls__group_is_broken(d->node_group)) ls_group_abort(d->node_group, d->failed_text);
    ls__ddp_drain(d);
    d->running = false;
    return ls__fail(status, "%s", d->failed_text);
}

static ls_status check_usable(const ls_ddp *d)
{
    if (d->failed) return ls__fail(d->failed, "%s", d->failed_text);
    if (d->in_hook) return ls__fail(LS_ESTATE, "ddp: called from a hook of this ddp");
    return LS_OK;
}

/* ---- A micro-batch. */

static ls_status check_slot(const ls_ddp *d, ls_ddp_mode mode)
{
    if (!d->options.slots || d->joining) return LS_OK;
    int p = ls_world_size(d->world), rank = ls_world_rank(d->world);
    int each = ls__slots_count(d->options.slots, p, rank);
    if (each == 0) each = 1; /* a rank without a slot takes part with a weight of 0 */
    if ((mode == LS_DDP_SYNC) == ((int)d->micro + 1 == each)) return LS_OK;
    return ls__fail(
        LS_ESTATE,
        "ddp: micro-batch %u of %d of this rank's step (%d slot%s over %d rank%s): begin it with %s; only the "
        "last of a step is begun with LS_DDP_SYNC",
        d->micro + 1, each, d->options.slots, ls__s(d->options.slots), p, ls__s(p),
        mode == LS_DDP_SYNC ? "LS_DDP_ACCUMULATE" : "LS_DDP_SYNC");
}

/* Which part the next micro-batch belongs to. */
static void find_part(ls_ddp *d, ls_ddp_mode mode)
{
    d->part = 0;
    d->before = d->micro;
    d->ends_part = mode == LS_DDP_SYNC;
    if (!d->parts) return;
    const ls__slot_part *own = d->parts->part + d->parts->of_rank[ls_world_rank(d->world)];
    while (d->before >= (uint32_t)own[d->part].count) d->before -= (uint32_t)own[d->part++].count;
    if (d->before + 1 == (uint32_t)own[d->part].count) d->ends_part = true;
}

/* Where the sum of a part of this rank is. */
static float *part_block(const ls_ddp *d, int part)
{
    if (!d->parts) return d->block;
    return d->block + d->total * (size_t)d->parts->part[d->parts->of_rank[ls_world_rank(d->world)] + part].place;
}

/* The weight of a part of this rank, as it is summed over the ranks. */
static double *part_weight(const ls_ddp *d, int part)
{
    return d->totals + LS__TOTAL_WEIGHT + (d->parts ? d->parts->of_rank[ls_world_rank(d->world)] + part : 0);
}

/* Where the sum that this micro-batch completes is written; NULL: memory that is not allocated yet. */
static float *destination(const ls_ddp *d)
{
    return d->ends_part ? part_block(d, d->part) : d->counter.level[__builtin_ctz(~d->before)];
}

/* All of this micro-batch is added. */
static void note_own_sum(const ls_ddp *d, double weight)
{
    uint32_t count = d->ends_part ? d->before + 1 : 1u << __builtin_ctz(~d->before);
    if (d->own_sums.end)
        d->own_sums.end(d->own_sums.user, destination(d), (int)(d->micro + 1 - count), (int)count, weight);
}

ls_status ls_ddp_begin(ls_ddp *d, ls_ddp_mode mode, double weight)
{
    LS__NEED(d, "ddp");
    ls_status status = check_usable(d);
    if (status) return status;
    if (d->running) return ls__fail(LS_ESTATE, "ddp: begin was already called; call finish first");
    if (mode != LS_DDP_SYNC && mode != LS_DDP_ACCUMULATE)
        return ls__fail(LS_EINVAL, "ddp: mode %d is neither LS_DDP_SYNC nor LS_DDP_ACCUMULATE", (int)mode);
    if (weight != 0 && !(weight >= MIN_WEIGHT && weight <= MAX_WEIGHT))
        return ls__fail(LS_EINVAL, "ddp: weight %g: must be 0, or from %g to %g", weight, MIN_WEIGHT, MAX_WEIGHT);
    status = check_slot(d, mode);
    if (status) return status;
    find_part(d, mode);
    if (d->own_sums.begin) d->own_sums.begin(d->own_sums.user, destination(d));
    if (!d->ends_part) status = ls__counter_reserve(&d->counter, d->before);
    if (status) return status;
    if (d->micro == 0) {
        memset(d->used, 0, d->n);
        memset(d->totals, 0, d->n_totals * sizeof *d->totals);
    }
    for (size_t b = 0; b < d->n_buckets; b++) {
        d->buckets[b].state = LS__FILLING;
        d->buckets[b].left = d->buckets[b].plan.spans;
    }
    d->next_start = d->next_done = 0;
    d->running = true;
    d->mode = mode;
    d->weight = weight;
    d->n_ready = 0;
    d->epoch++;
    return LS_OK;
}

ls_status ls__ddp_on_sum(ls_ddp *d, ls__sum_fn fn, void *user)
{
    const ls_ddp_options *o = &d->options;
    if (fn && (ls_world_get_info(d->world).nodes > 1 || !o->reduce_to_local_root || o->wire || o->hook.start))
        return ls__fail(LS_EUNSUPPORTED,
                        "ddp: sums can be observed only with reduce_to_local_root on one node, with the "
                        "default hook in float32");
    d->on_sum = fn;
    d->on_sum_user = user;
    return LS_OK;
}

const ls__slot_parts *ls__ddp_parts(const ls_ddp *d)
{
    return d->parts;
}

size_t ls__ddp_bucket_bytes(const ls_ddp *d)
{
    return d->options.bucket_bytes;
}

void ls__ddp_sum_into(ls_ddp *d, float *sums)
{
    d->shared_block = d->reduced;
    d->reduced = sums;
}

void ls__ddp_on_own_sums(ls_ddp *d, const ls__own_sums *calls)
{
    d->own_sums = *calls;
}

int ls__ddp_levels(const ls_ddp *d, size_t *elements)
{
    int most = 1, rank = ls_world_rank(d->world);
    *elements = d->total;
    if (!d->parts) most = ls__slots_count(d->options.slots, ls_world_size(d->world), rank);
    for (int k = d->parts ? d->parts->of_rank[rank] : 0; d->parts && k < d->parts->of_rank[rank + 1]; k++)
        if (d->parts->part[k].count > most) most = d->parts->part[k].count;
    return most > 1 ? 32 - __builtin_clz((unsigned)most - 1) : 0;
}

void ls__ddp_give_levels(ls_ddp *d, float *memory)
{
    size_t elements;
    d->counter.given = ls__ddp_levels(d, &elements);
    for (int k = 0; k < d->counter.given; k++) d->counter.level[k] = memory + (size_t)k * elements;
}

float *ls__ddp_block(const ls_ddp *d, int *parts)
{
    *parts = d->n_parts;
    return d->block;
}

size_t ls__ddp_bucket_begin(const ls_ddp *d, size_t bucket)
{
    return d->buckets[bucket].plan.begin;
}

/* Starts full buckets in order. A work that a failing hook has left is waited for, too. */
static ls_status launch(ls_ddp *d)
{
    for (; d->next_start < d->n_buckets && d->buckets[d->next_start].state == LS__FULL; d->next_start++) {
        ls__reduce_bucket *b = &d->buckets[d->next_start];
        b->seen.grads = d->block + b->plan.begin;
        ls_record_event(d->record, 0, LS_EVENT_BUCKET_START, d->next_start, ls__group_next_collective_id(d->group));
        ls_status status = ls__hook_start(d, b);
        if (!status || b->work) b->state = LS__STARTED;
        if (status) return status;
    }
    return LS_OK;
}

/* The work is gone, and other ranks may not have noticed yet. */
static ls_status work_failed(ls_ddp *d, ls_status status)
{
    d->block_in_use = true;
    return status;
}

/* Makes progress on what is started, without waiting. */
static ls_status advance_now(ls_ddp *d)
{
    while (d->next_done < d->next_start) {
        ls__reduce_bucket *b = &d->buckets[d->next_done];
        ls_status status = b->work ? ls_work_test(&b->work) : LS_OK;
        if (status == LS_PENDING) return LS_OK;
        if (status) return work_failed(d, status);
        b->state = LS__DONE;
        d->next_done++;
    }
    return LS_OK;
}

/* The same, and records the time if it took any. */
static ls_status advance(ls_ddp *d)
{
    int64_t begin = ls_now();
    ls_status status = advance_now(d);
    int64_t end = ls_now();
    if (end - begin > WORTH_RECORDING) ls_record_event(d->record, end, LS_EVENT_COMM_WORK, (uint64_t)(end - begin), 0);
    return status;
}

/* Adds span i's gradient, which is at `grad` (NULL: zero). With a weight of 0 it adds zero, whatever it holds: the mean of an
 * empty micro-batch is a NaN. */
static ls_status add_span(ls_ddp *d, size_t i, const float *grad)
{
    size_t at = d->offsets[i], count = d->counts[i];
    float *place = d->block + at;
    if (!grad || d->weight == 0) {
        memset(place, 0, count * sizeof *place);
        grad = place;
    } else if (d->options.grads_averaged && d->weight != 1) {
        ls__scale_f32(place, grad, (float)d->weight, count);
        grad = place;
    }
    if (!d->ends_part) {
        ls__counter_add(&d->counter, d->before, at, grad, count);
        return LS_OK;
    }
    ls__counter_finish(&d->counter, d->before, at, grad, part_block(d, d->part) + at, count);
    if (d->mode == LS_DDP_ACCUMULATE) return LS_OK;
    for (int k = d->part + 1; k < d->n_parts; k++) /* this rank has run out of data before them */
        memset(part_block(d, k) + at, 0, count * sizeof *place);
    ls__reduce_bucket *b = &d->buckets[d->bucket_of[i]];
    if (--b->left) return LS_OK;
    b->state = LS__FULL;
    ls_record_event(d->record, 0, LS_EVENT_BUCKET_READY, (uint64_t)(b - d->buckets), b->plan.count * sizeof(float));
    return d->options.no_overlap ? LS_OK : launch(d);
}

ls_status ls_ddp_ready(ls_ddp *d, size_t span)
{
    LS__NEED(d, "ddp");
    ls_status status = check_usable(d);
    if (status) return status;
    if (span >= d->n) return ls__fail(LS_EINVAL, "ddp: span %zu does not exist; there are %zu", span, d->n);
    if (!d->running) return ls__fail(LS_ESTATE, "ddp: '%s' is ready outside of begin and finish", d->names[span]);
    if (d->ready_mark[span] == d->epoch)
        return ls__fail(LS_ESTATE, "ddp: '%s' was ready before in this micro-batch; report it once, after its last use",
                        d->names[span]);
    d->ready_mark[span] = d->epoch;
    d->used[span] = 1;
    d->ready_order[d->n_ready++] = (uint32_t)span;
    ls_record_event(d->record, 0, LS_EVENT_SPAN_READY, span,
                    (uint64_t)d->counts[span] * sizeof(float) << 16 | (d->micro & 0xffff));
    status = add_span(d, span, d->user_grads ? d->user_grads[span] : d->block + d->offsets[span]);
    if (!status && d->next_done < d->next_start) status = advance(d);
    return status ? abandon(d, status) : LS_OK;
}

ls_status ls_ddp_poll(ls_ddp *d)
{
    LS__NEED(d, "ddp");
    ls_status status = check_usable(d);
    if (status) return status;
    if (!d->over_network || !d->running || d->next_done == d->next_start) return LS_OK;
    int64_t now = ls_now();
    if (now - d->polled < POLL_NS) return LS_OK;
    d->polled = now;
    status = advance(d);
    return status ? abandon(d, status) : LS_OK;
}

/* ---- The end of a step. */

/* Lays the block out in the order in which rank 0's spans became ready; those that did not become ready are last. */
static ls_status rebuild(ls_ddp *d, bool *moved)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->ready_mark[i] != d->epoch) d->ready_order[d->n_ready++] = (uint32_t)i;
    ls_status status = ls_broadcast(d->group, d->ready_order, d->n, LS_I32, 0);
    if (status || !memcmp(d->order, d->ready_order, d->n * sizeof *d->order)) return status;
    void *memory;
    size_t *before = malloc(d->n * sizeof *before);
    status = before ? ls_world_alloc(d->world, d->total * (size_t)d->n_parts * sizeof(float), &memory)
                    : ls__fail(LS_ENOMEM, "ddp: out of memory");
    if (status) goto done;
    memcpy(before, d->offsets, d->n * sizeof *before);
    memcpy(d->order, d->ready_order, d->n * sizeof *d->order);
    status = ls__ddp_plan(d);
    if (status) goto done;
    float *block = memory;
    for (size_t i = 0; i < d->n; i++) memcpy(block + d->offsets[i], d->block + before[i], d->counts[i] * sizeof(float));
    memory = d->block;
    ls_world_dealloc(d->world, &memory);
    d->block = d->reduced = block;
    *moved = !d->user_grads;
done:
    free(before);
    return status;
}

/* "'a', 'b' and 5 more", once. */
static void log_unused(ls_ddp *d, int64_t count)
{
    char names[8 * 46 + 32];
    size_t at = 0;
    int64_t shown = 0;
    if (d->unused_logged || ls_world_rank(d->world)) return;
    d->unused_logged = true;
    for (size_t i = 0; i < d->n && shown < 8; i++) {
        if (d->used[i]) continue;
        at += (size_t)snprintf(names + at, sizeof names - at, "%s'%.40s'", shown ? ", " : "", d->names[i]);
        shown++;
    }
    if (shown < count) snprintf(names + at, sizeof names - at, " and %lld more", (long long)(count - shown));
    ls__log(LS_LOG_WARNING,
            "%lld of %zu parameters have no gradient on any rank, which counts as zero: %s; perhaps they are not part "
            "of the "
            "loss",
            (long long)count, d->n, names);
}

/* Starts to sum the weight of the step, the ranks that have run out of data, and the unused spans. */
static ls_status start_totals(ls_ddp *d)
{
    *part_weight(d, d->part) = ls__counter_finish_weight(&d->counter, d->before, d->weight);
    d->totals[LS__TOTAL_UNUSED] = 0;
    d->totals[LS__TOTAL_JOINED] = d->joining;
    for (size_t i = 0; i < d->n; i++) d->totals[LS__TOTAL_UNUSED] += !d->used[i];
    return ls_allreduce_start(d->group, d->totals, d->n_totals, LS_F64, LS_SUM, &d->totals_work);
}

/* All ranks have run out of data, and none had micro-batches left to synchronize: this was no step. */
static bool is_end(const ls_ddp *d, const ls_ddp_result *r)
{
    return r->joined == ls_world_size(d->world) && r->weight == 0;
}

/* If spans were unused on some rank, finds those that were unused on all ranks. */
static ls_status wait_for_totals(ls_ddp *d, ls_ddp_result *r)
{
    ls_status status = ls_work_wait(&d->totals_work);
    const double *weights = d->totals + LS__TOTAL_WEIGHT;
    r->weight = d->parts ? ls__slot_parts_sum_f64(d->parts, weights) : *weights;
    r->joined = (int)d->totals[LS__TOTAL_JOINED];
    if (!status && d->totals[LS__TOTAL_UNUSED] != 0 && !is_end(d, r)) {
        status = ls_allreduce(d->group, d->used, d->n, LS_U8, LS_MAX);
        for (size_t i = 0; i < d->n; i++) r->unused += !d->used[i];
        if (r->unused && !status) log_unused(d, r->unused);
    }
    d->stats.unused = r->unused;
    return status;
}

/* A reduced bucket: the hook's end, the division, and the copy to user-owned gradients. */
static ls_status deliver(ls_ddp *d, size_t index, double weight)
{
    ls__reduce_bucket *b = &d->buckets[index];
    float *data = d->block + b->plan.begin;
    ls_status status = ls__hook_finish(d, b, weight);
    if (status || d->block != d->reduced) return status; /* the local root does the rest */
    if (!d->options.keep_sums && weight > 0 && weight != 1)
        ls__scale_f32(data, data, (float)(1 / weight), b->plan.count);
    for (size_t k = 0; k < b->plan.spans && d->user_grads; k++) {
        size_t i = d->order[b->plan.first + k];
        memcpy(d->user_grads[i], d->block + d->offsets[i], d->counts[i] * sizeof(float));
    }
    return LS_OK;
}

static ls_status wait_for_buckets(ls_ddp *d)
{
    for (; d->next_done < d->n_buckets; d->next_done++) {
        ls__reduce_bucket *b = &d->buckets[d->next_done];
        ls_status status = b->work ? ls_work_wait(&b->work) : LS_OK;
        if (status) return work_failed(d, status);
        b->state = LS__DONE;
    }
    return LS_OK;
}

static ls_status synchronize(ls_ddp *d, ls_ddp_result *r)
{
    const ls_ddp_options *o = &d->options;
    /* With reduce_to_local_root, all ranks of the node read the local root's memory. The last collective shows that it is
     * complete: a barrier if the local root has something to do after the totals, otherwise the totals themselves. */
    bool barrier = o->reduce_to_local_root && (d->hook.finish || !o->keep_sums);
    bool totals_last = o->reduce_to_local_root && !barrier;
    ls_status status = launch(d);
    if (!status && !totals_last) status = start_totals(d);
    int64_t begin = ls_now();
    if (!status) status = wait_for_buckets(d);
    if (!status && totals_last) status = start_totals(d);
    if (!status) status = wait_for_totals(d, r);
    d->stats.wait_ns += ls_now() - begin;
    for (size_t i = 0; i < d->n_buckets && !status; i++) status = deliver(d, i, r->weight);
    /* A finish of the caller's may fail on one rank, which aborts the group: the others wait for its outcome. */
    if (!status && (barrier || o->hook.finish)) status = ls_barrier(o->hook.finish ? d->group : d->node_group);
    if (!status && o->n_buffers) status = ls__buffers_sync(d->world, o->buffers, o->n_buffers, o->buffer_mode);
    if (!status && !d->rebuilt) status = rebuild(d, &r->moved);
    d->rebuilt = true;
    d->stats.steps += !status && !is_end(d, r);
    return status;
}

ls_status ls_ddp_finish(ls_ddp *d, ls_ddp_result *result)
{
    LS__NEED(d, "ddp");
    ls_ddp_result r = { 0 };
    ls_status status = check_usable(d);
    if (status) return status;
    if (!d->running) return ls__fail(LS_ESTATE, "ddp: finish without begin; call ls_ddp_begin() first");
    d->stats.started_early += (int64_t)d->next_start; /* spans that were not ready may complete more buckets below */
    for (size_t i = 0; i < d->n && !status && d->n_ready < d->n; i++)
        if (d->ready_mark[i] != d->epoch) status = add_span(d, i, NULL);
    if (!status && d->mode == LS_DDP_SYNC) {
        note_own_sum(d, ls__counter_finish_weight(&d->counter, d->before, d->weight));
        status = synchronize(d, &r);
        d->micro = 0;
    } else {
        double weight;
        if (d->ends_part)
            *part_weight(d, d->part) = weight = ls__counter_finish_weight(&d->counter, d->before, d->weight);
        else
            weight = ls__counter_add_weight(&d->counter, d->before, d->weight);
        note_own_sum(d, weight);
        d->micro++;
    }
    if (status) return abandon(d, status);
    d->stats.micro_batches += !is_end(d, &r);
    d->running = false;
    if (result) *result = r;
    return LS_OK;
}

ls_status ls_ddp_join(ls_ddp *d, ls_step_fn step, void *user)
{
    LS__NEED(d, "ddp");
    ls_status status = check_usable(d);
    if (status) return status;
    if (d->running) return ls__fail(LS_ESTATE, "ddp: join in the middle of a micro-batch; call finish first");
    ls_ddp_result r = { 0 };
    for (d->joining = true; !status && r.joined < ls_world_size(d->world);) {
        status = ls_ddp_begin(d, LS_DDP_SYNC, 0);
        if (!status) status = ls_ddp_finish(d, &r);
        if (status || is_end(d, &r)) break;
        d->stats.joined++;
        if (!step) continue;
        ls__hook_enter(d);
        status = ls__hook_leave(d, step(user, &r), "the step callback of ls_ddp_join() failed");
        if (status) status = abandon(d, status); /* the other ranks' steps need this rank */
    }
    d->joining = false;
    return status;
}
