/* See suite.h. Inputs are a function of (rank, index, salt), so every rank can compute everyone's. */
#include "suite.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kern/reduce.h"
#include "kern/vector.h"

typedef enum place { SHARED, PRIVATE, MIXED, PLACES } place;

typedef struct run {
    ls_world *world;
    ls_group *g;
    int rank, p;
    char *why;
    uint64_t salt; /* changes from case to case, so stale data cannot pass */
    size_t capacity;
    uint8_t *shared[2], *private[2];
} run;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31, x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29, x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static uint16_t bf16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Values of very different sizes: sums of them show the order they were made in. */
static void fill(const run *r, int rank, ls_dtype type, void *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t x = mix(r->salt * 1000003 + (uint64_t)rank * 7919 + i);
        float f = ((float)(x % 20001) - 10000.0f) * (x >> 40 & 1 ? 1.0f : 1.0f / 4096);
        switch (type) {
        case LS_F32: ((float *)out)[i] = f; break;
        case LS_F64: ((double *)out)[i] = (double)f * 1.1; break;
        case LS_BF16: ((uint16_t *)out)[i] = bf16_of(f); break;
        case LS_I32: ((int32_t *)out)[i] = (int32_t)(x % 2000003) - 1000000; break;
        case LS_I64: ((int64_t *)out)[i] = (int64_t)(x % 2000000000003) - 1000000000000; break;
        case LS_U8: ((uint8_t *)out)[i] = (uint8_t)x; break;
        case LS_F16: ls__f32_to_f16((uint16_t *)out + i, &f, 1); break;
        case LS_I8: ((int8_t *)out)[i] = (int8_t)x; break;
        case LS_I16: ((int16_t *)out)[i] = (int16_t)x; break;
        case LS_BOOL: ((uint8_t *)out)[i] = x & 1; break;
        }
    }
}

static int complain(run *r, const char *call, ls_dtype type, int op, size_t count, place where, const char *what)
{
    static const char *const places[] = { "shared", "private", "mixed" };
    snprintf(r->why, SUITE_WHY, "rank %d of %d: %s of %zu %s, op %d, %s memory: %s", r->rank, r->p, call, count,
             ls_dtype_name(type), op, places[where], what);
    ls_group_abort(r->g, r->why);
    return 1;
}

static int compare(run *r, const char *call, ls_dtype type, int op, size_t count, place where, const void *got,
                   const void *expected)
{
    size_t size = ls_dtype_size(type);
    if (!count || !memcmp(got, expected, count * size)) return 0;
    size_t i = 0;
    while (!memcmp((const char *)got + i * size, (const char *)expected + i * size, size)) i++;
    char what[160];
    uint64_t a = 0, b = 0;
    memcpy(&a, (const char *)got + i * size, size);
    memcpy(&b, (const char *)expected + i * size, size);
    snprintf(what, sizeof what, "element %zu is %#llx, expected %#llx", i, (unsigned long long)a,
             (unsigned long long)b);
    return complain(r, call, type, op, count, where, what);
}

static uint8_t *memory(run *r, place where, int which)
{
    bool shared = where == SHARED || (where == MIXED && (r->rank + which) % 2 == 0);
    return shared ? r->shared[which] : r->private[which];
}

/* expected = op over all ranks' inputs [begin, begin + count) */
static void expect_reduced(run *r, ls_dtype type, ls_op op, size_t total, size_t begin, size_t count, void *expected)
{
    size_t size = ls_dtype_size(type);
    const void **in = malloc((size_t)r->p * sizeof *in);
    for (int k = 0; k < r->p; k++) {
        char *all = malloc(total * size + 1);
        fill(r, k, type, all, total);
        in[k] = memmove(all, all + begin * size, count * size);
    }
    ls__reduce_reference(type, op, &expected, 1, in, r->p, count, false);
    for (int k = 0; k < r->p; k++) free((void *)in[k]);
    free(in);
}

#define TRY(call_name, expression)                                           \
    do {                                                                     \
        if ((expression) != LS_OK) {                                         \
            complain(r, call_name, type, (int)op, count, where, ls_error()); \
            goto done;                                                       \
        }                                                                    \
    } while (0)
#define SAME(call_name, n, got, expected)                                             \
    do {                                                                              \
        if (compare(r, call_name, type, (int)op, n, where, got, expected)) goto done; \
    } while (0)

static int reductions(run *r, ls_dtype type, ls_op op, size_t count, place where)
{
    int bad = 1;
    size_t size = ls_dtype_size(type), all = count * (size_t)r->p;
    int root = (int)(r->salt % (uint64_t)r->p);
    char *expected = malloc(all * size + 1), *before = malloc(all * size + 1);
    void *a = memory(r, where, 0), *b = memory(r, where, 1);

    r->salt++;
    fill(r, r->rank, type, a, count);
    TRY("allreduce", ls_allreduce(r->g, a, count, type, op));
    expect_reduced(r, type, op, count, 0, count, expected);
    SAME("allreduce", count, a, expected);

    r->salt++;
    fill(r, r->rank, type, a, count);
    memcpy(before, a, count * size);
    TRY("reduce", ls_reduce(r->g, a, count, type, op, root));
    expect_reduced(r, type, op, count, 0, count, expected);
    SAME("reduce", count, a, r->rank == root ? expected : before);

    r->salt++;
    fill(r, r->rank, type, a, all);
    memset(b, 0xee, count * size);
    TRY("reduce_scatter", ls_reduce_scatter(r->g, a, b, count, type, op));
    expect_reduced(r, type, op, all, (size_t)r->rank * count, count, expected);
    SAME("reduce_scatter", count, b, expected);

    r->salt++;
    fill(r, r->rank, type, a, all);
    char *own = (char *)a + (size_t)r->rank * count * size;
    TRY("reduce_scatter in place", ls_reduce_scatter(r->g, a, own, count, type, op));
    expect_reduced(r, type, op, all, (size_t)r->rank * count, count, expected);
    SAME("reduce_scatter in place", count, own, expected);
    bad = 0;
done:
    free(expected);
    free(before);
    return bad;
}

static int moves(run *r, ls_dtype type, size_t count, place where)
{
    int bad = 1, op = 0;
    size_t size = ls_dtype_size(type), all = count * (size_t)r->p, block = count * size;
    int root = (int)(r->salt % (uint64_t)r->p);
    char *expected = malloc(all * size + 1), *one = malloc(all * size + 1);
    char *a = (char *)memory(r, where, 0), *b = (char *)memory(r, where, 1);

    r->salt++;
    fill(r, r->rank, type, a, count);
    memset(b, 0xee, all * size);
    TRY("allgather", ls_allgather(r->g, a, b, count, type));
    for (int k = 0; k < r->p; k++) fill(r, k, type, expected + (size_t)k * block, count);
    SAME("allgather", all, b, expected);

    r->salt++;
    memset(b, 0xee, all * size);
    fill(r, r->rank, type, b + (size_t)r->rank * block, count);
    TRY("allgather in place", ls_allgather(r->g, b + (size_t)r->rank * block, b, count, type));
    for (int k = 0; k < r->p; k++) fill(r, k, type, expected + (size_t)k * block, count);
    SAME("allgather in place", all, b, expected);

    r->salt++;
    fill(r, r->rank, type, a, count);
    memset(b, 0xee, all * size);
    TRY("gather", ls_gather(r->g, a, r->rank == root ? b : NULL, count, type, root));
    memset(expected, 0xee, all * size);
    for (int k = 0; k < r->p && r->rank == root; k++) fill(r, k, type, expected + (size_t)k * block, count);
    SAME("gather", all, b, expected);

    r->salt++;
    fill(r, r->rank, type, a, count);
    TRY("broadcast", ls_broadcast(r->g, a, count, type, root));
    fill(r, root, type, expected, count);
    SAME("broadcast", count, a, expected);

    r->salt++;
    fill(r, r->rank, type, a, all);
    memset(b, 0xee, block);
    TRY("scatter", ls_scatter(r->g, r->rank == root ? a : NULL, b, count, type, root));
    fill(r, root, type, one, all);
    SAME("scatter", count, b, one + (size_t)r->rank * block);

    r->salt++;
    fill(r, r->rank, type, a, all);
    memset(b, 0xee, all * size);
    TRY("alltoall", ls_alltoall(r->g, a, b, count, type));
    for (int k = 0; k < r->p; k++) {
        fill(r, k, type, one, all);
        memcpy(expected + (size_t)k * block, one + (size_t)r->rank * block, block);
    }
    SAME("alltoall", all, b, expected);
    TRY("barrier", ls_barrier(r->g));

    r->salt++; /* everyone sends to the next and receives from the one before, both under way at once */
    if (r->p > 1) {
        ls_work *sending, *receiving;
        int next = (r->rank + 1) % r->p, previous = (r->rank + r->p - 1) % r->p;
        fill(r, r->rank, type, a, count);
        memset(b, 0xee, block);
        TRY("recv", ls_recv_start(r->g, b, count, type, previous, &receiving));
        TRY("send", ls_send_start(r->g, a, count, type, next, &sending));
        TRY("send", ls_work_wait(&sending));
        TRY("recv", ls_work_wait(&receiving));
        fill(r, previous, type, expected, count);
        SAME("receive", count, b, expected);
    }
    bad = 0;
done:
    free(expected);
    free(one);
    return bad;
}

/* Many all-reduces under way at once, waited for in another order, some tested first. */
static int many_under_way(run *r)
{
    enum { MANY = 150, COUNT = 700 };
    ls_work *works[MANY];
    ls_dtype type = LS_F32;
    ls_op op = LS_SUM;
    size_t count = COUNT;
    int bad = 1;
    place where = SHARED;
    float *buffers = malloc(sizeof(float) * MANY * COUNT), *expected = malloc(sizeof(float) * COUNT);
    float *shared = (float *)(void *)r->shared[0];
    uint64_t salt = r->salt + 1;
    for (int i = 0; i < MANY; i++) {
        float *x = i % 2 && (size_t)(i + 1) * COUNT * 4 <= r->capacity ? shared + i * COUNT : buffers + i * COUNT;
        r->salt = salt + (uint64_t)i;
        fill(r, r->rank, type, x, (size_t)(i % COUNT + 1));
        TRY("allreduce_start", ls_allreduce_start(r->g, x, (size_t)(i % COUNT + 1), type, op, &works[i]));
        if (i % 7 == 3 && ls_work_test(&works[i]) < 0) TRY("test", LS_EABORTED);
    }
    for (int k = MANY - 1; k >= 0; k--) {
        int i = (k * 37) % MANY;
        if (works[i]) TRY("wait", ls_work_wait(&works[i]));
        float *x = i % 2 && (size_t)(i + 1) * COUNT * 4 <= r->capacity ? shared + i * COUNT : buffers + i * COUNT;
        r->salt = salt + (uint64_t)i;
        count = (size_t)(i % COUNT + 1);
        expect_reduced(r, type, op, count, 0, count, expected);
        SAME("allreduce under way", count, x, expected);
    }
    r->salt = salt + MANY;
    bad = 0;
done:
    free(buffers);
    free(expected);
    return bad;
}

int suite_run(ls_world *world, const suite_options *o, char *why)
{
    run r = { .world = world, .g = ls_world_group(world), .why = why };
    r.rank = ls_group_rank(r.g);
    r.p = ls_group_size(r.g);
    int bad = 1;
    size_t largest = 0;
    for (int i = 0; o->counts[i] != SIZE_MAX; i++)
        if (o->counts[i] > largest) largest = o->counts[i];
    r.capacity = (largest * (size_t)r.p + 64) * 8;
    for (int i = 0; i < 2; i++) {
        void *p;
        if (ls_world_alloc(world, r.capacity, &p)) {
            snprintf(why, SUITE_WHY, "alloc: %s", ls_error());
            goto done;
        }
        r.shared[i] = p;
        r.private[i] = malloc(r.capacity);
    }
    for (int c = 0; o->counts[c] != SIZE_MAX; c++)
        for (int type = 0; type < LS_DTYPE_COUNT; type++)
            for (int where = 0; where < PLACES; where++) {
                if (o->quick && type != LS_F32 && type != LS_BF16) continue;
                if (moves(&r, (ls_dtype)type, o->counts[c], (place)where)) goto done;
                for (int op = 0; op < LS_OP_COUNT; op++)
                    if ((!o->quick || op < 2) && !(op >= LS_AND && ls__is_floating((ls_dtype)type)) &&
                        reductions(&r, (ls_dtype)type, (ls_op)op, o->counts[c], (place)where))
                        goto done;
            }
    if (many_under_way(&r)) goto done;
    bad = 0;
done:
    for (int i = 0; i < 2; i++) {
        void *p = r.shared[i];
        ls_world_dealloc(world, &p);
        free(r.private[i]);
    }
    return bad;
}
