/* Collectives whose blocks differ in size, made of those whose blocks do not, and so the same over every transport.
 *
 * Members first exchange the sizes, which finds a difference before data moves. Equal blocks are then one ordinary call. Others are
 * moved in rounds of equal blocks, through a buffer of ROUND_BYTES: a block that ends early is padded in the rounds that follow. Also
 * here: the multiplication before a sum. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/failure.h"
#include "comm/group.h"
#include "kern/reduce.h"
#include "kern/vector.h"

enum { ROUND_BYTES = 1 << 20, WIDE = 1024 };

/* One side of an exchange: p blocks of different sizes, one after the other. */
typedef struct blocks {
    uint8_t *data;
    const size_t *counts;
    size_t total; /* elements */
} blocks;

/* Sums up counts[0..p) and checks the buffer. */
static ls_status check_blocks(const ls_group *g, const char *call, const char *side, blocks *b, size_t size)
{
    size_t bytes;
    int rank = g->world->rank;
    if (!b->counts) return ls__fail(LS_EINVAL, "rank %d: %s: the %s counts are NULL", rank, call, side);
    b->total = 0;
    for (int q = 0; q < g->size; q++)
        if (__builtin_add_overflow(b->total, b->counts[q], &b->total))
            return ls__fail(LS_EINVAL, "rank %d: %s: the size overflows", rank, call);
    if (__builtin_mul_overflow(b->total, size, &bytes) || bytes > (size_t)PTRDIFF_MAX)
        return ls__fail(LS_EINVAL, "rank %d: %s: the size overflows", rank, call);
    if (bytes && !b->data) return ls__fail(LS_EINVAL, "rank %d: %s: the %s buffer is NULL", rank, call, side);
    if ((uintptr_t)b->data % size)
        return ls__fail(LS_EINVAL, "rank %d: %s: a buffer is not aligned to its element type", rank, call);
    return LS_OK;
}

static bool overlap(const blocks *a, const blocks *b, size_t size)
{
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return a->total && b->total && x < y + b->total * size && y < x + a->total * size;
}

static ls_status no_memory(const ls_group *g, const char *call)
{
    return ls__fail(LS_ENOMEM, "rank %d: %s: out of memory", g->world->rank, call);
}

/* Elements [begin, begin + n) of block `at`, as far as it has them, from or to `round`. */
static void copy_part(const blocks *b, int q, size_t at, size_t begin, size_t n, uint8_t *round, size_t size, bool out)
{
    size_t count = b->counts[q];
    if (begin >= count) return;
    if (n > count - begin) n = count - begin;
    uint8_t *block = b->data + (at + begin) * size;
    if (out)
        memcpy(round, block, n * size);
    else
        memcpy(block, round, n * size);
}

/* Copies one round of all blocks between their memory and `rounds`, where each has room for n elements. */
static void copy_round(const ls_group *g, const blocks *b, size_t begin, size_t n, uint8_t *rounds, size_t size,
                       bool out)
{
    size_t at = 0;
    for (int q = 0; q < g->size; q++) {
        copy_part(b, q, at, begin, n, rounds + (size_t)q * n * size, size, out);
        at += b->counts[q];
    }
}

static size_t elements_per_round(const ls_group *g, size_t largest, size_t size)
{
    size_t most = ROUND_BYTES / size / (size_t)g->size;
    if (!most) most = 1;
    return largest < most ? largest : most;
}

/* ---- All-to-all. */

/* Sends every rank how much it gets, and compares that with what it expects. *equal: all blocks of all ranks have one size; *largest:
 * the size of the largest. */
static ls_status exchange_counts(ls_group *g, const blocks *in, const blocks *out, size_t *largest, bool *equal)
{
    int p = g->size;
    int64_t *sent = malloc((size_t)p * sizeof *sent), *coming = malloc((size_t)p * sizeof *coming);
    int64_t range[2] = { 0, INT64_MIN }; /* the largest, and the smallest, negated */
    ls_status status = sent && coming ? LS_OK : no_memory(g, "alltoallv");
    for (int q = 0; q < p && !status; q++) {
        sent[q] = (int64_t)in->counts[q];
        if (sent[q] > range[0]) range[0] = sent[q];
        if (-sent[q] > range[1]) range[1] = -sent[q];
    }
    if (!status) status = ls_alltoall(g, sent, coming, 1, LS_I64);
    for (int q = 0; q < p && !status; q++)
        if (coming[q] != (int64_t)out->counts[q])
            status = ls__group_fail(
                g, LS_EMISMATCH,
                "rank %d: alltoallv: rank %d of the group sends %lld elements, and %zu are expected from "
                "it; the counts of both must agree",
                g->world->rank, q, (long long)coming[q], out->counts[q]);
    if (!status) status = ls_allreduce(g, range, 2, LS_I64, LS_MAX);
    *largest = (size_t)range[0];
    *equal = range[0] == -range[1];
    free(sent);
    free(coming);
    return status;
}

ls_status ls_alltoallv(ls_group *g, const void *send, const size_t *send_counts, void *recv, const size_t *recv_counts,
                       ls_dtype type)
{
    LS__NEED(g, "group");
    size_t size = ls_dtype_size(type), largest;
    bool equal;
    blocks in = { .data = (uint8_t *)(uintptr_t)send, .counts = send_counts },
           out = { .data = recv, .counts = recv_counts };
    if (!size) return ls__fail(LS_EINVAL, "rank %d: alltoallv: unknown element type", g->world->rank);
    ls_status status = check_blocks(g, "alltoallv", "input", &in, size);
    if (!status) status = check_blocks(g, "alltoallv", "output", &out, size);
    if (!status && overlap(&in, &out, size))
        status = ls__fail(LS_EINVAL, "rank %d: alltoallv: input and output overlap", g->world->rank);
    if (!status) status = exchange_counts(g, &in, &out, &largest, &equal);
    if (status || equal) return status ? status : ls_alltoall(g, send, recv, largest, type);
    size_t n = elements_per_round(g, largest, size), room = n * size * (size_t)g->size;
    uint8_t *rounds = calloc(2, room);
    if (!rounds) return ls__group_fail(g, LS_ENOMEM, "rank %d: alltoallv: out of memory", g->world->rank);
    for (size_t begin = 0; begin < largest && !status; begin += n) {
        copy_round(g, &in, begin, n, rounds, size, true);
        status = ls_alltoall(g, rounds, rounds + room, n, type);
        if (!status) copy_round(g, &out, begin, n, rounds + room, size, false);
    }
    free(rounds);
    return status;
}

/* ---- All-gather. */

/* Compares the counts that this rank has with what the others contribute. */
static ls_status check_counts(ls_group *g, const size_t *counts)
{
    int64_t *all = malloc((size_t)g->size * sizeof *all), mine = (int64_t)counts[g->rank];
    ls_status status = all ? ls_allgather(g, &mine, all, 1, LS_I64) : no_memory(g, "allgatherv");
    for (int q = 0; q < g->size && !status; q++)
        if (all[q] != (int64_t)counts[q])
            status = ls__group_fail(
                g, LS_EMISMATCH,
                "rank %d: allgatherv: rank %d of the group has %lld elements, and %zu are expected from it; "
                "all ranks must pass the same counts",
                g->world->rank, q, (long long)all[q], counts[q]);
    free(all);
    return status;
}

ls_status ls_allgatherv(ls_group *g, const void *send, void *recv, const size_t *counts, ls_dtype type)
{
    LS__NEED(g, "group");
    size_t size = ls_dtype_size(type), largest = 0, smallest = SIZE_MAX;
    blocks out = { .data = recv, .counts = counts };
    if (!size) return ls__fail(LS_EINVAL, "rank %d: allgatherv: unknown element type", g->world->rank);
    ls_status status = check_blocks(g, "allgatherv", "output", &out, size);
    if (status) return status;
    size_t own = counts[g->rank];
    if (own && (!send || (uintptr_t)send % size))
        return ls__fail(LS_EINVAL, "rank %d: allgatherv: the input buffer is NULL or not aligned", g->world->rank);
    status = check_counts(g, counts);
    for (int q = 0; q < g->size; q++) {
        if (counts[q] > largest) largest = counts[q];
        if (counts[q] < smallest) smallest = counts[q];
    }
    if (status || largest == smallest) return status ? status : ls_allgather(g, send, recv, largest, type);
    size_t n = elements_per_round(g, largest, size);
    uint8_t *rounds = calloc((size_t)g->size + 1, n * size),
            *mine = rounds ? rounds + (size_t)g->size * n * size : NULL;
    if (!rounds) return ls__group_fail(g, LS_ENOMEM, "rank %d: allgatherv: out of memory", g->world->rank);
    for (size_t begin = 0; begin < largest && !status; begin += n) {
        size_t part = begin < own ? (own - begin < n ? own - begin : n) : 0;
        if (part) memcpy(mine, (const uint8_t *)send + begin * size, part * size);
        status = ls_allgather(g, mine, rounds, n, type);
        if (!status) copy_round(g, &out, begin, n, rounds, size, false);
    }
    free(rounds);
    return status;
}

/* ---- The multiplication before a sum. */

/* 16-bit floats: multiplied in float32, a block at a time, and rounded once. */
static void multiply_narrow(uint16_t *out, const uint16_t *in, size_t count, ls_dtype type, float factor)
{
    float wide[WIDE];
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < WIDE ? count - at : WIDE;
        if (type == LS_BF16)
            ls__bf16_to_f32(wide, in + at, n);
        else
            ls__f16_to_f32(wide, in + at, n);
        ls__scale_f32(wide, wide, factor, n);
        if (type == LS_BF16)
            ls__f32_to_bf16(out + at, wide, n);
        else
            ls__f32_to_f16(out + at, wide, n);
    }
}

ls_status ls_premultiply(void *out, const void *in, size_t count, ls_dtype type, double factor)
{
    if (!ls__is_floating(type))
        return ls__fail(LS_EINVAL, "premultiply: %s has no fractions; use a floating-point type", ls_dtype_name(type));
    if (count && (!out || !in)) return ls__fail(LS_EINVAL, "premultiply: a buffer is NULL");
    if (type == LS_F32)
        ls__scale_f32(out, in, (float)factor, count);
    else if (type == LS_F64)
        for (size_t i = 0; i < count; i++) ((double *)out)[i] = factor * ((const double *)in)[i];
    else
        multiply_narrow(out, in, count, type, (float)factor);
    return LS_OK;
}
