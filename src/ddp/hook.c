/* Communication hooks: how a bucket is reduced.
 *
 * The reducer knows only start() and finish() of a hook. lockstep's own are the all-reduces in the types of ls_wire. A hook of the
 * caller runs with d->in_hook set, so that calls of the ddp from within it are refused. */
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "comm/parallel_for.h"
#include "comm/private.h"
#include "ddp/reducer.h"
#include "kern/reduce.h"
#include "kern/vector.h"

enum { SUM_CHUNK = 8 * LS__SUM_BLOCK }; /* elements that a rank sums at a time */

/* ---- Calling. */

void ls__hook_enter(ls_ddp *d)
{
    ls_status ok = ls__fail(LS_OK, "%s", "");
    (void)ok;
    d->in_hook = true;
}

/* From a ddp's functions LS_EINVAL and LS_ESTATE mean that nothing has happened, and a status above zero is no error, but a failed
 * hook ends the step. */
static bool can_be_returned(ls_status status)
{
    return status < 0 && status != LS_EINVAL && status != LS_ESTATE && strcmp(ls_status_name(status), "LS_UNKNOWN");
}

ls_status ls__hook_leave(ls_ddp *d, ls_status status, const char *where)
{
    char text[LS__FAILURE_BYTES];
    d->in_hook = false;
    if (!status) return LS_OK;
    snprintf(text, sizeof text, "%s", *ls_error() ? ls_error() : ls_status_text(status));
    /* The group failed first, perhaps by another rank's hook, and this one only passes that on. */
    if (*ls_error() && can_be_returned(status) && status == ls__group_status(d->group))
        return ls__fail(status, "%s", text);
    if (can_be_returned(status)) return ls__fail(status, "ddp: %s: %s", where, text);
    return ls__fail(LS_EABORTED, "ddp: %s: it returned %d (%s): %s", where, (int)status, ls_status_name(status), text);
}

static bool is_users(const ls_ddp *d)
{
    return d->options.hook.start != NULL;
}

/* The hook may have started collectives on the bucket that are not done. */
static ls_status leave(ls_ddp *d, ls_status status, const char *which, const ls__reduce_bucket *b)
{
    char where[64];
    snprintf(where, sizeof where, "the hook's %s failed for bucket %d", which, b->seen.index);
    if (status) d->block_in_use = true;
    return ls__hook_leave(d, status, where);
}

ls_status ls__hook_start(ls_ddp *d, ls__reduce_bucket *b)
{
    if (!is_users(d)) return d->hook.start(d->hook.user, &b->seen, &b->work);
    ls__hook_enter(d);
    return leave(d, d->hook.start(d->hook.user, &b->seen, &b->work), "start", b);
}

ls_status ls__hook_finish(ls_ddp *d, ls__reduce_bucket *b, double weight)
{
    if (!d->hook.finish) return LS_OK;
    b->seen.weight = weight;
    if (!is_users(d)) return d->hook.finish(d->hook.user, &b->seen);
    ls__hook_enter(d);
    return leave(d, d->hook.finish(d->hook.user, &b->seen), "finish", b);
}

ls_status ls_bucket_reduce(const ls_bucket *bucket, void *buf, size_t count, ls_dtype type, ls_work **work)
{
    LS__NEED(bucket, "bucket");
    const ls_ddp *d = ((const ls__reduce_bucket *)(const void *)bucket)->ddp;
    if (d->options.reduce_to_local_root && d->node_group == d->group)
        return ls_reduce_start(d->group, buf, count, type, LS_SUM, 0, work);
    return ls_allreduce_start(d->group, buf, count, type, LS_SUM, work);
}

/* ---- The default. */

/* Blocks are counted from the beginning of the flat block, so the first and the last of a bucket may be incomplete. */
static size_t first_block(const ls__reduce_bucket *b)
{
    return b->plan.begin / LS__SUM_BLOCK * LS__SUM_BLOCK;
}

static void sum_parts(const ls__slot_parts *p, const void *const *data, size_t begin, size_t end, void *out)
{
    for (int i = 0; i < p->n; i++)
        p->in[i] = (const char *)data[p->part[i].rank] + (size_t)p->part[i].place * p->stride + begin * sizeof(float);
    ls__slot_parts_sum(p, p->leaves, 0, &out, 1, p->in, end - begin);
}

/* Sums elements [begin, end), counted from the bucket's first block, and passes the sums on block by block. */
static void sum_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const ls__reduce_bucket *b = user;
    const ls_ddp *d = b->ddp;
    int p = ls_world_size(d->world);
    size_t base = first_block(b);
    const void *in[LS__SUM_RANKS];
    for (size_t at = begin; at < end; at += LS__SUM_BLOCK) {
        size_t first = base + at < b->plan.begin ? b->plan.begin - base : at;
        size_t last = end - at < LS__SUM_BLOCK ? end : at + LS__SUM_BLOCK;
        void *out = d->reduced + base + first;
        if (d->parts) {
            sum_parts(d->parts, data, first, last, out);
        } else {
            for (int r = 0; r < p; r++) in[r] = (const float *)data[r] + first;
            ls__reduce_arrays(LS_F32, LS_SUM, &out, 1, in, p, last - first, false);
        }
        d->on_sum(d->on_sum_user, d->reduced, base + first, base + last);
    }
}

static ls_status start_f32(void *user, const ls_bucket *bucket, ls_work **work)
{
    const ls_ddp *d = user;
    if (!d->on_sum && d->parts)
        return ls__slot_parts_reduce_start(d->group, bucket->grads, bucket->count, d->parts,
                                           d->options.reduce_to_local_root && d->node_group == d->group ? 0 : -1, work);
    if (!d->on_sum) return ls_bucket_reduce(bucket, bucket->grads, bucket->count, LS_F32, work);
    ls__reduce_bucket *b = &d->buckets[bucket->index];
    return ls__parallel_for_start(d->group, d->block + first_block(b), b->plan.begin + b->plan.count - first_block(b),
                                  LS_F32, SUM_CHUNK, sum_chunk, b, work);
}

/* ---- bfloat16. */

static ls_status start_bf16(void *user, const ls_bucket *bucket, ls_work **work)
{
    const ls_ddp *d = user;
    uint16_t *wire = (uint16_t *)d->wire + d->buckets[bucket->index].plan.begin;
    ls__f32_to_bf16(wire, bucket->grads, bucket->count);
    return ls_bucket_reduce(bucket, wire, bucket->count, LS_BF16, work);
}

static ls_status finish_bf16(void *user, const ls_bucket *bucket)
{
    const ls_ddp *d = user;
    const uint16_t *wire = (const uint16_t *)d->wire + d->buckets[bucket->index].plan.begin;
    if (bucket->is_read) ls__bf16_to_f32(bucket->grads, wire, bucket->count);
    return LS_OK;
}

/* ---- The table of wire types. */

static const struct {
    ls_comm_hook hook;
    size_t bytes; /* of an element */
} own[LS_WIRE_COUNT] = {
    [LS_WIRE_F32] = { { start_f32, NULL, NULL }, sizeof(float) },
    [LS_WIRE_BF16] = { { start_bf16, finish_bf16, NULL }, sizeof(uint16_t) },
};

size_t ls__wire_bytes(ls_wire wire)
{
    return own[wire].bytes;
}

void ls__hook_choose(ls_ddp *d)
{
    d->hook = is_users(d) ? d->options.hook : own[d->options.wire].hook;
    if (!is_users(d)) d->hook.user = d;
}
