/* The reducer: from "span i is ready" to reduced gradients.
 *
 * All gradients lie in one flat block in memory that the ranks of a machine share, bucket behind bucket. A bucket goes
 *
 *     FILLING --last span ready--> FULL --its turn--> STARTED --reduced--> DONE
 *
 * and buckets are started in index order on every rank, whatever the order in which they fill: so all ranks make the
 * same calls. Progress on what is started is made from ls_ddp_ready() and from the wait at the end. There is no helper
 * thread: a bucket is reduced by whichever rank is awake (see comm/shm_reduce.c), and a rank that computes is best left
 * computing.
 *
 * Micro-batches are added up in canonical order by the counter (counter.h), span by span, as they become ready. */
#include "lockstep/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "comm/parallel_for.h"
#include "comm/events.h"
#include "comm/group.h"
#include "ddp/reducer.h"
#include "kern/reduce.h"
#include "kern/vector.h"

enum {
    SUM_CHUNK = 8 * LS__SUM_BLOCK, /* what a rank takes on at a time */
    WORTH_NOTING = 1000,           /* ns */
    POLL_NS = 200000,              /* a message of 16 KiB takes that long at 700 Mbit/s */
};
/* Gradients are float32: beyond these, a mean of them would not be exact, or not finite. */
static const double LEAST_WEIGHT = 1e-30, MOST_WEIGHT = 1e30;

/* ---- Failing. */

void ls__ddp_drain(ls_ddp *d)
{
    for (size_t i = 0; i < d->n_buckets; i++) {
        ls__bucket *b = &d->buckets[i];
        if (b->state != LS__STARTED) continue;
        if (!b->work || ls_work_wait(&b->work)) d->touched = true; /* a work that failed is gone */
        b->state = LS__DONE;
    }
    ls_status ignored = d->agreement ? ls_work_wait(&d->agreement) : LS_OK; /* in memory that only this rank uses */
    (void)ignored;
}

/* The step cannot be completed. The other ranks wait for this one, in this bucket or a later one: they get this thread's
 * message, at once. What is started is waited for, so that no call of this rank uses the block any more. */
static ls_status abandon(ls_ddp *d, ls_status status)
{
    d->failed = status;
    snprintf(d->failed_text, sizeof d->failed_text, "%s", ls_error());
    if (!d->group->broken) ls_group_abort(d->group, d->failed_text);
    if (d->machine != d->group && !d->machine->broken) ls_group_abort(d->machine, d->failed_text);
    ls__ddp_drain(d);
    d->running = false;
    return ls__fail(status, "%s", d->failed_text);
}

static ls_status check_usable(const ls_ddp *d)
{
    if (d->failed) return ls__fail(d->failed, "%s", d->failed_text);
    if (d->in_hook) return ls__fail(LS_ESTATE, "ddp: a hook of this ddp has called it; it is in the middle of a call");
    return LS_OK;
}

/* A caller's function has no way to leave a message but by a call of ours that failed in it: it starts with none. */
static void clear_message(void)
{
    ls_status ok = ls__fail(LS_OK, "%s", "");
    (void)ok;
}
static ls_status fail_in(ls_status status, const char *where)
{
    char text[LS__JOB_FAILURE_BYTES];
    snprintf(text, sizeof text, "%s", *ls_error() ? ls_error() : ls_status_text(status));
    return ls__fail(status, "ddp: %s: %s", where, text);
}

static ls_status call_hook(ls_ddp *d, const char *which, ls_bucket_fn hook, size_t index, float *data)
{
    char where[64];
    if (!hook) return LS_OK;
    clear_message();
    d->in_hook = true;
    ls_status status = hook(d->options.user, (int)index, data, d->buckets[index].plan.count);
    d->in_hook = false;
    if (!status) return LS_OK;
    snprintf(where, sizeof where, "the hook '%s' failed for bucket %zu", which, index);
    return fail_in(status, where);
}

/* ---- A micro-batch. */

static ls_status check_slot(const ls_ddp *d, ls_ddp_mode mode)
{
    if (!d->options.slots || d->joining) return LS_OK;
    int p = ls_world_size(d->world), rank = ls_world_rank(d->world);
    int each = d->options.slots / p + (rank < d->options.slots % p); /* uneven only with any_order */
    if (each == 0) each = 1; /* a rank without any takes part with a weight of 0 */
    if ((mode == LS_DDP_SYNC) == ((int)d->micro + 1 == each)) return LS_OK;
    return ls__fail(LS_ESTATE, "ddp: micro-batch %u of %d of this rank's step cannot %s (%d slots over %d ranks)",
                    d->micro + 1, each, mode == LS_DDP_SYNC ? "be the last" : "have more after it", d->options.slots,
                    p);
}

ls_status ls_ddp_begin(ls_ddp *d, ls_ddp_mode mode, double weight)
{
    ls_status status = check_usable(d);
    if (status) return status;
    if (d->running) return ls__fail(LS_ESTATE, "ddp: begin was called before; call finish first");
    if (mode != LS_DDP_SYNC && mode != LS_DDP_ACCUMULATE)
        return ls__fail(LS_EINVAL, "ddp: mode %d is neither LS_DDP_SYNC nor LS_DDP_ACCUMULATE", (int)mode);
    if (weight != 0 && !(weight >= LEAST_WEIGHT && weight <= MOST_WEIGHT))
        return ls__fail(LS_EINVAL, "ddp: a weight of %g is not possible; it must be 0, or from %g to %g", weight,
                        LEAST_WEIGHT, MOST_WEIGHT);
    status = check_slot(d, mode);
    if (!status && mode == LS_DDP_ACCUMULATE) status = ls__counter_reserve(&d->counter, d->micro);
    if (status) return status;
    if (d->micro == 0) memset(d->used, 0, d->n);
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
    if (fn &&
        (ls_world_node_count(d->world) > 1 || !d->options.to_first || d->wire || d->options.before || d->options.after))
        return ls__fail(LS_EUNSUPPORTED,
                        "ddp: sums can be seen only with to_first on one machine, without bf16 or hooks");
    d->on_sum = fn;
    d->on_sum_user = user;
    return LS_OK;
}

size_t ls__ddp_bucket_bytes(const ls_ddp *d)
{
    return d->options.bucket_bytes;
}

size_t ls__ddp_bucket_begin(const ls_ddp *d, size_t bucket)
{
    return d->buckets[bucket].plan.begin;
}

/* Blocks are counted from the beginning of the flat block, so the first and the last of a bucket may be parts of one. */
static size_t first_block(const ls__bucket *b)
{
    return b->plan.begin / LS__SUM_BLOCK * LS__SUM_BLOCK;
}

/* Adds up elements [begin, end), counted from the bucket's first block, and shows the sums block by block. */
static void sum_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const ls__bucket *b = user;
    const ls_ddp *d = b->ddp;
    int p = ls_world_size(d->world);
    size_t base = first_block(b);
    const void *in[LS__SUM_RANKS];
    for (size_t at = begin; at < end; at += LS__SUM_BLOCK) {
        size_t first = base + at < b->plan.begin ? b->plan.begin - base : at;
        size_t last = end - at < LS__SUM_BLOCK ? end : at + LS__SUM_BLOCK;
        void *out = d->sums + base + first;
        for (int r = 0; r < p; r++) in[r] = (const float *)data[r] + first;
        ls__reduce(LS_F32, LS_SUM, &out, 1, in, p, last - first, false);
        d->on_sum(d->on_sum_user, d->sums, base + first, base + last);
    }
}

/* The collective that reduces a bucket. */
static ls_status start_bucket(ls_ddp *d, ls__bucket *b, float *data)
{
    size_t count = b->plan.count;
    void *buffer = data;
    ls_dtype type = LS_F32;
    if (d->wire) {
        buffer = d->wire + b->plan.begin;
        type = LS_BF16;
        ls__f32_to_bf16(buffer, data, count);
    }
    if (d->on_sum)
        return ls__parallel_for_start(d->group, d->block + first_block(b), b->plan.begin + count - first_block(b),
                                      LS_F32, SUM_CHUNK, sum_chunk, b, &b->work);
    if (d->options.to_first && d->machine == d->group)
        return ls_reduce_start(d->group, buffer, count, type, LS_SUM, 0, &b->work);
    return ls_allreduce_start(d->group, buffer, count, type, LS_SUM, &b->work);
}

/* Starts full buckets whose turn it is. */
static ls_status launch(ls_ddp *d)
{
    for (; d->next_start < d->n_buckets && d->buckets[d->next_start].state == LS__FULL; d->next_start++) {
        ls__bucket *b = &d->buckets[d->next_start];
        float *data = d->block + b->plan.begin;
        ls_status status = call_hook(d, "before", d->options.before, d->next_start, data);
        if (status) return status;
        ls_record_event(d->record, 0, LS_EVENT_BUCKET_START, d->next_start, ls__group_next_word(d->group));
        status = start_bucket(d, b, data);
        if (status) return status;
        b->state = LS__STARTED;
    }
    return LS_OK;
}

/* Makes progress on what is started, without waiting. */
static ls_status advance_now(ls_ddp *d)
{
    while (d->next_done < d->next_start) {
        ls__bucket *b = &d->buckets[d->next_done];
        ls_status status = ls_work_test(&b->work);
        if (status == LS_PENDING) return LS_OK;
        if (status) return status;
        b->state = LS__DONE;
        d->next_done++;
    }
    return LS_OK;
}

/* The same, with a note of the time if it took any. */
static ls_status advance(ls_ddp *d)
{
    int64_t begin = ls_now();
    ls_status status = advance_now(d);
    int64_t end = ls_now();
    if (end - begin > WORTH_NOTING) ls_record_event(d->record, end, LS_EVENT_COMM_WORK, (uint64_t)(end - begin), 0);
    return status;
}

/* Takes in span i's gradient, which is at `grad` (NULL: zero). What counts nothing adds nothing, whatever it holds: the mean
 * of an empty micro-batch is a NaN. */
static ls_status take(ls_ddp *d, size_t i, const float *grad)
{
    size_t at = d->offsets[i], count = d->counts[i];
    float *place = d->block + at;
    if (!grad || d->weight == 0) {
        memset(place, 0, count * sizeof *place);
        grad = place;
    } else if (d->options.means && d->weight != 1) {
        ls__scale_f32(place, grad, (float)d->weight, count);
        grad = place;
    }
    if (d->mode == LS_DDP_ACCUMULATE) {
        ls__counter_add(&d->counter, d->micro, at, grad, count);
        return LS_OK;
    }
    ls__counter_finish(&d->counter, d->micro, at, grad, place, count);
    ls__bucket *b = &d->buckets[d->bucket_of[i]];
    if (--b->left) return LS_OK;
    b->state = LS__FULL;
    ls_record_event(d->record, 0, LS_EVENT_BUCKET_READY, (uint64_t)(b - d->buckets), b->plan.count * sizeof(float));
    return d->options.no_overlap ? LS_OK : launch(d);
}

ls_status ls_ddp_ready(ls_ddp *d, size_t span)
{
    ls_status status = check_usable(d);
    if (status) return status;
    if (span >= d->n) return ls__fail(LS_EINVAL, "ddp: there is no span %zu; there are %zu", span, d->n);
    if (!d->running) return ls__fail(LS_ESTATE, "ddp: '%s' is ready outside of begin and finish", d->names[span]);
    if (d->ready_mark[span] == d->epoch)
        return ls__fail(LS_ESTATE, "ddp: '%s' was ready before in this micro-batch; say so once, after its last use",
                        d->names[span]);
    d->ready_mark[span] = d->epoch;
    d->used[span] = 1;
    d->ready_order[d->n_ready++] = (uint32_t)span;
    ls_record_event(d->record, 0, LS_EVENT_SPAN_READY, span, d->micro);
    status = take(d, span, d->foreign ? d->foreign[span] : d->block + d->offsets[span]);
    if (!status && d->next_done < d->next_start) status = advance(d);
    return status ? abandon(d, status) : LS_OK;
}

ls_status ls_ddp_poll(ls_ddp *d)
{
    ls_status status = check_usable(d);
    if (status) return status;
    if (!d->driven || !d->running || d->next_done == d->next_start) return LS_OK;
    int64_t now = ls_now();
    if (now - d->polled < POLL_NS) return LS_OK;
    d->polled = now;
    status = advance(d);
    return status ? abandon(d, status) : LS_OK;
}

/* ---- The end of a step. */

/* Lays the block out in the order in which rank 0's spans became ready; those that did not come last. */
static ls_status rebuild(ls_ddp *d, bool *moved)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->ready_mark[i] != d->epoch) d->ready_order[d->n_ready++] = (uint32_t)i;
    ls_status status = ls_broadcast(d->group, d->ready_order, d->n, LS_I32, 0);
    if (status || !memcmp(d->order, d->ready_order, d->n * sizeof *d->order)) return status;
    void *memory;
    size_t *before = malloc(d->n * sizeof *before);
    status = before ? ls_world_alloc(d->world, d->total * sizeof(float), &memory)
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
    d->block = d->sums = block;
    *moved = true;
done:
    free(before);
    return status;
}

/* "'a', 'b' and 5 more", once. */
static void name_unused(ls_ddp *d, int64_t count)
{
    char names[8 * 46 + 32];
    size_t at = 0;
    int64_t shown = 0;
    if (d->named_unused || ls_world_rank(d->world)) return;
    d->named_unused = true;
    for (size_t i = 0; i < d->n && shown < 8; i++) {
        if (d->used[i]) continue;
        at += (size_t)snprintf(names + at, sizeof names - at, "%s'%.40s'", shown ? ", " : "", d->names[i]);
        shown++;
    }
    if (shown < count) snprintf(names + at, sizeof names - at, " and %lld more", (long long)(count - shown));
    ls__log(
        LS_LOG_WARNING,
        "%lld of %zu parameters got no gradient on any rank, and count as zero: %s; if that is not meant, they are not "
        "part of the loss",
        (long long)count, d->n, names);
}

/* Starts to add up the weight of the step, the ranks that have run out of data, and the spans that were not used. */
static ls_status start_agreement(ls_ddp *d)
{
    d->totals[LS__TOTAL_WEIGHT] = d->weight_sum;
    d->totals[LS__TOTAL_UNUSED] = 0;
    d->totals[LS__TOTAL_JOINED] = d->joining;
    for (size_t i = 0; i < d->n; i++) d->totals[LS__TOTAL_UNUSED] += !d->used[i];
    return ls_allreduce_start(d->group, d->totals, LS__TOTALS, LS_F64, LS_SUM, &d->agreement);
}

/* All ranks know the totals; if spans were unused somewhere, they find out which were so everywhere. */
static ls_status agree(ls_ddp *d, ls_ddp_result *r)
{
    ls_status status = ls_work_wait(&d->agreement);
    r->weight = d->totals[LS__TOTAL_WEIGHT];
    r->joined = (int)d->totals[LS__TOTAL_JOINED];
    if (!status && d->totals[LS__TOTAL_UNUSED] != 0 && r->joined < ls_world_size(d->world)) {
        status = ls_allreduce(d->group, d->used, d->n, LS_U8, LS_MAX);
        for (size_t i = 0; i < d->n; i++) r->unused += !d->used[i];
        if (r->unused && !status) name_unused(d, r->unused);
    }
    d->stats.unused = r->unused;
    return status;
}

/* A reduced bucket: back from bfloat16, divided, shown to the hook, copied to where the caller wants it. */
static ls_status deliver(ls_ddp *d, size_t index, double weight)
{
    ls__bucket *b = &d->buckets[index];
    float *data = d->block + b->plan.begin;
    if (d->block != d->sums) return LS_OK; /* the machine's first rank does it */
    if (d->wire) ls__bf16_to_f32(data, d->wire + b->plan.begin, b->plan.count);
    if (!d->options.keep_sums && weight > 0 && weight != 1)
        ls__scale_f32(data, data, (float)(1 / weight), b->plan.count);
    ls_status status = call_hook(d, "after", d->options.after, index, data);
    for (size_t k = 0; k < b->plan.spans && d->foreign && !status; k++) {
        size_t i = d->order[b->plan.first + k];
        memcpy(d->foreign[i], d->block + d->offsets[i], d->counts[i] * sizeof(float));
    }
    return status;
}

static ls_status synchronise(ls_ddp *d, ls_ddp_result *r)
{
    const ls_ddp_options *o = &d->options;
    /* With to_first, the others read what the machine's first rank has. It comes to the last collective when that is there: to a
     * barrier if it has something to do that needs the weight, otherwise to the agreement. */
    bool barrier = o->to_first && (d->wire || o->after || !o->keep_sums), agree_last = o->to_first && !barrier;
    d->stats.started_early += (int64_t)d->next_start;
    ls_status status = launch(d);
    if (!status && !agree_last) status = start_agreement(d);
    int64_t begin = ls_now();
    for (size_t i = d->next_done; i < d->n_buckets && !status; i++) {
        status = ls_work_wait(&d->buckets[i].work);
        if (status) break;
        d->buckets[i].state = LS__DONE;
        d->next_done = i + 1;
    }
    if (!status && agree_last) status = start_agreement(d);
    if (!status) status = agree(d, r);
    d->stats.wait_ns += ls_now() - begin;
    for (size_t i = 0; i < d->n_buckets && !status; i++) status = deliver(d, i, r->weight);
    if (!status && barrier) status = ls_barrier(d->machine);
    if (!status && o->n_buffers) status = ls_buffers_sync(d->world, o->buffers, o->n_buffers, o->buffer_mode);
    if (!status && !d->rebuilt && !d->wire) status = rebuild(d, &r->moved);
    d->rebuilt = true;
    d->stats.steps += !status;
    return status;
}

ls_status ls_ddp_finish(ls_ddp *d, ls_ddp_result *result)
{
    ls_ddp_result r = { 0 };
    ls_status status = check_usable(d);
    if (status) return status;
    if (!d->running) return ls__fail(LS_ESTATE, "ddp: finish without begin");
    for (size_t i = 0; i < d->n && !status && d->n_ready < d->n; i++)
        if (d->ready_mark[i] != d->epoch) status = take(d, i, NULL);
    d->weight_sum += d->weight;
    d->stats.micro_batches++;
    if (!status && d->mode == LS_DDP_SYNC) {
        status = synchronise(d, &r);
        d->weight_sum = 0;
        d->micro = 0;
    } else {
        d->micro++;
    }
    if (status) return abandon(d, status);
    d->running = false;
    if (result) *result = r;
    return LS_OK;
}

ls_status ls_ddp_join(ls_ddp *d, ls_step_fn step, void *user)
{
    ls_status status = check_usable(d);
    if (status) return status;
    if (d->running) return ls__fail(LS_ESTATE, "ddp: join in the middle of a micro-batch; call finish first");
    for (d->joining = true; !status;) {
        ls_ddp_result r = { 0 };
        status = ls_ddp_begin(d, LS_DDP_SYNC, 0);
        if (!status) status = ls_ddp_finish(d, &r);
        if (status || r.joined == ls_world_size(d->world)) break;
        d->stats.joined++;
        if (!step) continue;
        clear_message();
        d->in_hook = true;
        status = step(user, &r);
        d->in_hook = false;
        /* The others count on this rank until all of them have joined. */
        if (status) status = abandon(d, fail_in(status, "the step of a rank that has joined failed"));
    }
    d->joining = false;
    return status;
}
