/* Opening and freeing a reducer, and its getters. See ddp.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/private.h"
#include "ddp/reducer.h"
#include "ddp/slots.h"
#include "ddp/verify.h"

/* On one node two ranks' buckets fit the L3 cache, and bench/ddp finds no difference from 1 to 25 MiB. Over a network backward
 * cannot hide the last bucket, so it should be small: at 500 Mbit/s a step with 256 KiB takes 0.87 of the time that it takes with
 * 4 MiB. A larger parameter is one bucket, so there are never more buckets than parameters. */
enum {
    DEFAULT_BUCKET = 4 << 20,
    DEFAULT_FIRST_BUCKET = 1 << 20,
    NETWORK_BUCKET = 256 << 10,
};

ls_status ls__ddp_plan(ls_ddp *d)
{
    ls__bucket_plan *plans = malloc((d->n + 1) * sizeof *plans);
    if (!plans) return ls__fail(LS_ENOMEM, "ddp: out of memory");
    d->n_buckets = ls__plan_buckets(d->counts, d->order, d->n, d->options.first_bucket_bytes, d->options.bucket_bytes,
                                    d->offsets, plans, &d->total);
    for (size_t b = 0; b < d->n_buckets; b++) {
        ls_bucket_span *spans = d->bucket_spans + plans[b].first;
        for (size_t k = 0; k < plans[b].spans; k++) {
            size_t i = d->order[plans[b].first + k];
            d->bucket_of[i] = (uint32_t)b;
            spans[k] = (ls_bucket_span){ .span = i, .offset = d->offsets[i] - plans[b].begin, .count = d->counts[i] };
        }
        ls_bucket seen = {
            .index = (int)b, .count = plans[b].count, .spans = spans, .n_spans = plans[b].spans, .group = d->group
        };
        seen.is_read = !d->options.reduce_to_local_root || ls_group_rank(d->node_group) == 0;
        d->buckets[b] = (ls__reduce_bucket){ .seen = seen, .plan = plans[b], .ddp = d };
    }
    free(plans);
    d->stats.buckets = (int64_t)d->n_buckets;
    d->stats.bytes = (int64_t)(d->total * ls__wire_bytes(d->options.wire));
    d->stats.buffer_bytes = 0;
    for (size_t i = 0; i < d->options.n_buffers; i++)
        d->stats.buffer_bytes += (int64_t)(d->options.buffers[i].count * sizeof(float));
    return LS_OK;
}

static ls_status copy_spans(ls_ddp *d, const ls_span *spans)
{
    size_t total = 0;
    for (size_t i = 0; i < d->n; i++) {
        char number[32];
        snprintf(number, sizeof number, "span %zu", i);
        d->names[i] = strdup(spans[i].name ? spans[i].name : number);
        if (!d->names[i]) return ls__fail(LS_ENOMEM, "ddp: out of memory");
        if ((spans[i].grad != NULL) != (spans[0].grad != NULL))
            return ls__fail(
                LS_EINVAL,
                "ddp: span '%s' has gradient memory of its own, and '%s' has none; give all spans memory, or none",
                d->names[spans[0].grad ? 0 : i], d->names[spans[0].grad ? i : 0]);
        size_t room = (size_t)PTRDIFF_MAX / sizeof(float) - total;
        if (spans[i].count > room || room - spans[i].count < LS__SPAN_ALIGN)
            return ls__fail(LS_EINVAL, "ddp: span '%s' has %zu elements; the total is too large", d->names[i],
                            spans[i].count);
        total += spans[i].count + LS__SPAN_ALIGN;
        d->counts[i] = spans[i].count;
        d->order[i] = (uint32_t)i;
        if (d->user_grads) d->user_grads[i] = spans[i].grad;
    }
    return LS_OK;
}

static ls_status allocate(ls_ddp *d, bool user_owned)
{
    size_t n = d->n + 1;
    d->names = calloc(n, sizeof *d->names);
    d->counts = calloc(n, sizeof *d->counts);
    d->offsets = calloc(n, sizeof *d->offsets);
    d->bucket_of = calloc(n, sizeof *d->bucket_of);
    d->order = calloc(n, sizeof *d->order);
    d->bucket_spans = calloc(n, sizeof *d->bucket_spans);
    d->buckets = calloc(n, sizeof *d->buckets);
    d->ready_mark = calloc(n, sizeof *d->ready_mark);
    d->used = calloc(n, sizeof *d->used);
    d->ready_order = calloc(n, sizeof *d->ready_order);
    if (user_owned) d->user_grads = calloc(n, sizeof *d->user_grads);
    bool all = d->names && d->counts && d->offsets && d->bucket_of && d->order && d->bucket_spans && d->buckets &&
               d->ready_mark && d->used && d->ready_order && (d->user_grads || !user_owned);
    return all ? LS_OK : ls__fail(LS_ENOMEM, "ddp: no memory for %zu spans", d->n);
}

/* How the slots are spread over the ranks. What hooks and bfloat16 send is one sum of each rank, whatever its slots. */
static ls_status find_parts(ls_ddp *d)
{
    const ls_ddp_options *o = &d->options;
    int ranks = ls_world_size(d->world), rank = ls_world_rank(d->world);
    ls_status status = LS_OK;
    if (o->slots && o->sum_order == LS_SUM_ORDER_CANONICAL && !o->hook.start && o->wire == LS_WIRE_F32)
        status = ls__slot_parts_open(&d->parts, o->slots, ranks, d->total * sizeof(float));
    d->n_parts = d->parts ? d->parts->of_rank[rank + 1] - d->parts->of_rank[rank] : 1;
    d->n_totals = LS__TOTAL_WEIGHT + (size_t)(d->parts ? d->parts->n : 1);
    d->totals = calloc(d->n_totals, sizeof *d->totals);
    return status || d->totals ? status : ls__fail(LS_ENOMEM, "ddp: out of memory");
}

/* Plans and allocates the block of gradients. With reduce_to_local_root, all ranks of the node map the local root's block. */
static ls_status make_block(ls_ddp *d)
{
    void *memory = NULL, *shared = NULL;
    ls_status status = LS_OK;
    if (d->options.reduce_to_local_root && ls_world_get_info(d->world).nodes > 1) {
        d->node_group = NULL;
        status = ls_group_split(d->group, ls_world_get_info(d->world).node, ls_world_rank(d->world), &d->node_group);
    }
    if (!status) status = ls__ddp_plan(d);
    if (!status) status = find_parts(d);
    size_t bytes = d->total * sizeof(float);
    bool first = d->options.reduce_to_local_root && ls_group_rank(d->node_group) == 0;
    int64_t parts = d->n_parts; /* of the local root: what it shares has room for them */
    if (!status && d->options.reduce_to_local_root) status = ls_broadcast(d->node_group, &parts, 1, LS_I64, 0);
    /* All ranks at once, the local root by sharing: the pages of a large block take milliseconds. */
    ls_status own = LS_OK;
    if (!status && !first) own = ls_world_alloc(d->world, bytes * (size_t)d->n_parts, &memory);
    if (d->options.reduce_to_local_root) {
        if (!status) status = ls__group_share(d->node_group, bytes * (size_t)parts + sizeof *d->freed, &shared);
        if (status) return status;
        d->freed = (_Atomic uint32_t *)(void *)((char *)shared + bytes * (size_t)parts);
    }
    if (!status) status = own;
    d->block = first ? shared : memory;
    d->reduced = shared ? shared : d->block;
    if (!status && d->options.wire)
        status = ls_world_alloc(d->world, d->total * ls__wire_bytes(d->options.wire), &d->wire);
    return status;
}

/* What a rank can check by itself: memory for the spans, and invalid options. */
static ls_status prepare(ls_ddp *d, const ls_span *spans)
{
    const ls_ddp_options *o = &d->options;
    if (d->n && !spans) return ls__fail(LS_EINVAL, "ddp: spans must not be NULL for a count of %zu", d->n);
    ls_status status = ls__verify_named("ls_ddp_open: options.buffers", o->buffers, o->n_buffers);
    if (!status) status = allocate(d, d->n && spans[0].grad);
    if (!status) status = copy_spans(d, spans);
    if (!status && o->slots < 0) status = ls__fail(LS_EINVAL, "ddp: slots=%d: must not be negative", o->slots);
    if (!status && o->slots && o->sum_order == LS_SUM_ORDER_CANONICAL)
        status = ls__slots_check(o->slots, ls_world_size(d->world));
    if (!status && d->user_grads && o->reduce_to_local_root)
        status = ls__fail(LS_EINVAL, "ddp: reduce_to_local_root needs gradients that lockstep allocates; pass spans "
                                     "without memory");
    if (!status && o->sum_order != LS_SUM_ORDER_CANONICAL && o->sum_order != LS_SUM_ORDER_ANY)
        status = ls__fail(LS_EINVAL, "ddp: sum_order %d is neither LS_SUM_ORDER_CANONICAL nor LS_SUM_ORDER_ANY",
                          (int)o->sum_order);
    if (!status && (unsigned)o->wire >= LS_WIRE_COUNT)
        status = ls__fail(LS_EINVAL, "ddp: wire %d is not a value of ls_wire", (int)o->wire);
    if (!status && o->hook.start && o->wire != LS_WIRE_F32)
        status = ls__fail(LS_EINVAL, "ddp: a hook determines what is sent; leave wire at LS_WIRE_F32");
    if (!status && o->hook.finish && !o->hook.start)
        status = ls__fail(LS_EINVAL,
                          "ddp: the hook has a finish function but no start function; set both (ls_bucket_reduce() is "
                          "the start of the default), or neither");
    if (!status && o->buffer_mode != LS_BUFFERS_BROADCAST && o->buffer_mode != LS_BUFFERS_MEAN)
        status = ls__fail(LS_EINVAL, "ddp: buffer_mode %d is neither LS_BUFFERS_BROADCAST nor LS_BUFFERS_MEAN",
                          (int)o->buffer_mode);
    return status;
}

ls_status ls_ddp_open(ls_ddp **out, ls_world *world, const ls_span *spans, size_t n_spans,
                      const ls_ddp_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(world, "world");
    if (n_spans > UINT32_MAX) return ls__fail(LS_EINVAL, "ddp: %zu spans: too many", n_spans);
    ls_ddp *d = calloc(1, sizeof *d);
    if (!d) return ls__fail(LS_ENOMEM, "ddp: out of memory");
    d->world = world;
    d->group = d->node_group = ls_world_group(world);
    d->record = ls_world_record(world);
    d->n = n_spans;
    if (options) d->options = *options;
    d->over_network = ls_world_get_info(world).nodes > 1;
    if (!d->options.first_bucket_bytes)
        d->options.first_bucket_bytes =
            d->over_network && !d->options.bucket_bytes ? NETWORK_BUCKET : DEFAULT_FIRST_BUCKET;
    if (!d->options.bucket_bytes) d->options.bucket_bytes = d->over_network ? NETWORK_BUCKET : DEFAULT_BUCKET;
    /* Hooks keep state per bucket, and shared weights have the layout of the first step. */
    if (d->options.reduce_to_local_root || d->options.wire || d->options.hook.start) d->options.fixed_order = true;
    ls__caller before = ls__group_begin_call(d->group, LS__CALLER_DDP_OPEN);
    ls_status status = ls__verify_success(world, prepare(d, spans));
    if (!status) status = ls__verify_options(world, &d->options);
    if (!status) status = ls__verify_spans(world, (const char *const *)d->names, d->counts, n_spans);
    if (!status) ls__hook_choose(d);
    if (!status) status = ls__verify_success(world, make_block(d));
    ls__group_end_call(d->group, before);
    d->counter.total = d->total;
    d->rebuilt = d->options.fixed_order;
    if (!status) {
        for (size_t i = 0; i < d->n; i++) ls_record_name(d->record, LS_NAME_SPAN, (uint32_t)i, d->names[i]);
        ls_record_metadata(d->record, LS_METADATA_BUCKET, (double)d->options.bucket_bytes);
        ls_record_metadata(d->record, LS_METADATA_BUCKETS, (double)d->n_buckets);
        ls_record_metadata(d->record, LS_METADATA_OVERLAP, !d->options.no_overlap);
        ls_record_metadata(d->record, LS_METADATA_WIRE, (double)ls__wire_bytes(d->options.wire));
    }
    if (status) ls_ddp_free(&d);
    *out = d;
    return status;
}

/* Other ranks of the node may still read the result, so the last rank that frees its ddp deallocates it. */
static void dealloc(ls_ddp *d)
{
    void *reduced = d->shared_block ? d->shared_block : d->reduced, *block = d->block == reduced ? NULL : d->block;
    void *wire = d->wire;
    bool last = !d->freed || atomic_fetch_add(d->freed, 1) + 1 == (uint32_t)ls_group_size(d->node_group);
    if (last) ls_world_dealloc(d->world, &reduced);
    ls_world_dealloc(d->world, &block);
    ls_world_dealloc(d->world, &wire);
}

void ls_ddp_free(ls_ddp **pd)
{
    ls_ddp *d = pd ? *pd : NULL;
    if (!d) return;
    if (d->running && d->next_start && !ls__group_is_broken(d->group))
        ls_group_abort(d->group, "a ddp was freed in the middle of a step");
    ls__ddp_drain(d);
    /* Another rank may still sum a bucket that this one no longer waits for. The memory is then freed with the world. */
    if (!d->block_in_use) dealloc(d);
    for (size_t i = 0; i < d->n && d->names; i++) free(d->names[i]);
    free(d->names);
    free(d->counts);
    free(d->offsets);
    free(d->bucket_of);
    free(d->order);
    free(d->bucket_spans);
    free(d->buckets);
    free(d->ready_mark);
    free(d->used);
    free(d->ready_order);
    free(d->user_grads);
    free(d->totals);
    ls__slot_parts_free(&d->parts);
    ls__counter_free(&d->counter);
    if (d->node_group != d->group) ls_group_free(&d->node_group);
    free(d);
    *pd = NULL;
}

float *ls_ddp_grad(const ls_ddp *ddp, size_t span)
{
    if (span >= ddp->n) return NULL;
    return ddp->user_grads ? ddp->user_grads[span] : ddp->block + ddp->offsets[span];
}

const float *ls_ddp_reduced(const ls_ddp *ddp, size_t span)
{
    if (span >= ddp->n) return NULL;
    return ddp->user_grads ? ddp->user_grads[span] : ddp->reduced + ddp->offsets[span];
}

bool ls_ddp_unused(const ls_ddp *ddp, size_t span)
{
    return span < ddp->n && !ddp->used[span];
}

ls_ddp_stats ls_ddp_get_stats(const ls_ddp *ddp)
{
    return ddp->stats;
}
