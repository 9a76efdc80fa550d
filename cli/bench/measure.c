/* What every rank of `lockstep bench allreduce` does.
 *
 * The run consists of passes. In each, every row has a block of rounds, followed by a copy on all ranks at once and by the
 * peer's block: noise affects all three alike, and medians and ratios are of one run. Rank 0 decides when time is up.
 *
 * A round: each rank writes its whole buffer (so that caches are in the same state), all ranks wait in a barrier, and each measures
 * its call. The time of a round is the slowest rank's. The peer does the same. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "cli/bench/allreduce.h"
#include "kern/copy.h"

enum { MAX_ROUNDS = 100, MIN_PASSES = 3, MiB = 1 << 20 };
typedef struct bench {
    bench_options *o;
    ls_world *world;
    ls_group *group;
    int rank, size;
    float *buf;    /* the largest row's total */
    uint8_t *copy; /* its first half is copied to the second */
    size_t copy_bytes;
    bench_peer *peer;   /* rank 0's; NULL: none */
    bench_times copies; /* their times; rank 0's */
} bench;

ls_status bench_times_add(bench_times *t, const double *us, size_t count)
{
    if (t->count + count > t->room) {
        size_t room = 2 * t->room + count;
        double *grown = realloc(t->us, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for the times of %zu rounds", room);
        t->us = grown;
        t->room = room;
    }
    memcpy(t->us + t->count, us, count * sizeof *us);
    t->count += count;
    return LS_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_times_quantile(bench_times *t, double share)
{
    if (!t->count) return 0;
    qsort(t->us, t->count, sizeof *t->us, ascending);
    double at = share * (double)(t->count - 1);
    size_t i = (size_t)at, next = i + 1 < t->count ? i + 1 : i;
    return t->us[i] + (at - (double)i) * (t->us[next] - t->us[i]);
}

double bench_times_median(bench_times *t)
{
    return bench_times_quantile(t, 0.5);
}

void bench_options_release(bench_options *o)
{
    for (int i = 0; i < o->row_count; i++) {
        free(o->rows[i].ours.us);
        free(o->rows[i].peers.us);
    }
}

static int rounds_of(size_t bytes)
{
    return bytes <= (256u << 10) ? MAX_ROUNDS : bytes <= (4u << 20) ? 20 : bytes <= (32u << 20) ? 5 : 3;
}

/* Were all values summed? The values are small whole numbers, so the sum is exact. */
static ls_status verify(const bench *b, size_t from, size_t to, size_t step)
{
    for (size_t i = from; i < to; i += step)
        if (b->buf[i] != (float)b->size)
            return ls__fail(LS_ESTATE, "rank %d: element %zu is %g, expected %d: wrong result of the all-reduce",
                            b->rank, i, (double)b->buf[i], b->size);
    return LS_OK;
}

/* Plain stores, one after the other, as a backward pass would. (memset may go past the cache.) */
static void fill(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) x[i] = 1;
}

static ls_status one_round(bench *b, const bench_row *row, double *us)
{
    size_t total = row->total / 4, chunk = row->chunk / 4;
    fill(b->buf, total);
    ls_status status = ls_barrier(b->group);
    if (status) return status;
    int64_t begin = ls_now();
    for (size_t at = 0; at < total && !status; at += chunk)
        status = ls_allreduce(b->group, b->buf + at, total - at < chunk ? total - at : chunk, LS_F32, LS_SUM);
    *us = (double)(ls_now() - begin) / 1e3;
    return status;
}

static ls_status our_block(bench *b, bench_row *row, bool warm_up)
{
    double us[MAX_ROUNDS];
    int rounds = warm_up ? 1 : rounds_of(row->total);
    size_t total = row->total / 4;
    ls_status status = LS_OK;
    for (int i = 0; i < rounds && !status; i++) {
        status = one_round(b, row, &us[i]);
        if (!status) status = verify(b, 0, total, warm_up ? 1 : total > 1 ? total - 1 : 1);
    }
    if (!status) status = ls_allreduce(b->group, us, (size_t)rounds, LS_F64, LS_MAX);
    if (!status && !warm_up && b->rank == 0) status = bench_times_add(&row->ours, us, (size_t)rounds);
    return status;
}

static ls_status copy_block(bench *b, bool warm_up)
{
    fill((float *)b->copy, b->copy_bytes / 4);
    ls_status status = ls_barrier(b->group);
    if (status) return status;
    int64_t begin = ls_now();
    ls__copy_bytes(b->copy + b->copy_bytes / 2, b->copy, b->copy_bytes / 2, true);
    double seconds = (double)(ls_now() - begin) / 1e9;
    status = ls_allreduce(b->group, &seconds, 1, LS_F64, LS_MAX);
    if (status || warm_up) return status;
    double us = seconds * 1e6;
    return b->rank == 0 ? bench_times_add(&b->copies, &us, 1) : LS_OK;
}

static ls_status peer_block(bench *b, bench_row *row, bool warm_up)
{
    ls_status status = LS_OK;
    if (b->peer)
        status = bench_peer_ask(b->peer, row->total, row->chunk, warm_up ? 1 : rounds_of(row->total),
                                warm_up ? NULL : &row->peers);
    /* A peer that failed ends the run on all ranks, with rank 0's message. */
    if (status) {
        ls_group_abort(b->group, ls_error());
        return status;
    }
    return b->o->against ? ls_barrier(b->group) : LS_OK;
}

static ls_status passes(bench *b)
{
    int64_t end = ls_now() + (int64_t)(b->o->seconds * 1e9);
    ls_status status = LS_OK;
    for (int pass = -1, more = 1; more && !status; pass++) {
        bool warm_up = pass < 0;
        for (int i = 0; i < b->o->row_count && !status; i++) {
            status = our_block(b, &b->o->rows[i], warm_up);
            /* B matters to large arrays, and a copy between small ones would only take their time. */
            bool copies = b->o->rows[i].total >= MiB || i == b->o->row_count - 1;
            if (!status && copies) status = copy_block(b, warm_up);
            if (!status) status = peer_block(b, &b->o->rows[i], warm_up);
        }
        int32_t go_on = pass + 1 < MIN_PASSES || ls_now() < end;
        if (!status) status = ls_broadcast(b->group, &go_on, 1, LS_I32, 0);
        more = go_on;
    }
    return status;
}

static ls_status allocate(bench *b)
{
    size_t largest = 0;
    for (int i = 0; i < b->o->row_count; i++)
        if (b->o->rows[i].total > largest) largest = b->o->rows[i].total;
    /* All ranks' regions together are far larger than any cache, and not more than there is memory for. */
    b->copy_bytes = (b->size <= 8 ? 100u : b->size <= 64 ? 800u / (unsigned)b->size : 12u) * MiB;
    void *memory;
    ls_status status = ls_world_alloc(b->world, b->copy_bytes, &memory);
    if (status) return status;
    b->copy = memory;
    if (b->o->user_owned) {
        b->buf = aligned_alloc(4096, (largest + 4095) / 4096 * 4096);
        return b->buf ? LS_OK : ls__fail(LS_ENOMEM, "no memory for an array of %zu bytes", largest);
    }
    status = ls_world_alloc(b->world, largest, &memory);
    if (!status) b->buf = memory;
    return status;
}

ls_status bench_measure(bench_options *o, int *rank)
{
    bench b = { .o = o };
    ls_world_options options = { .timeout_ms = o->against ? -1 : 0 };
    ls_status status = ls_world_open(&b.world, &options);
    if (status) return status;
    b.group = ls_world_group(b.world);
    *rank = b.rank = ls_world_rank(b.world);
    o->world_size = b.size = ls_world_size(b.world);
    snprintf(o->transport, sizeof o->transport, "%s", ls_world_get_info(b.world).transport);
    if (o->ranks && o->ranks != b.size) {
        status = ls__fail(LS_EINVAL, "-n %d, but the launcher started %d rank%s; leave out -n", o->ranks, b.size,
                          ls__s(b.size));
        goto done;
    }
    status = allocate(&b);
    if (!status && o->against && b.rank == 0)
        status = bench_peer_open(&b.peer, o->against, b.size, o->peer_name, sizeof o->peer_name);
    if (!status)
        status = passes(&b);
    else
        ls_group_abort(b.group, ls_error()); /* the others would wait for us */
    double copied = (double)b.copy_bytes * b.size, fastest = bench_times_quantile(&b.copies, 0);
    if (fastest > 0) {
        o->copy_bandwidth = copied / fastest * 1e6;
        o->copy_median = copied / bench_times_median(&b.copies) * 1e6;
    }
done:
    bench_peer_free(&b.peer);
    free(b.copies.us);
    if (o->user_owned) free(b.buf);
    ls_world_free(&b.world);
    return status;
}
