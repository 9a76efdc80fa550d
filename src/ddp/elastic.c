/* State of a program that outlives its ranks: two copies in kept memory (comm/kept.h), of which one is complete at every moment.
 *
 * A commit writes to the copy that is not current, each rank a part, and then makes it current with one store. Whoever is killed
 * meanwhile leaves the other copy as it was. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>
#include "base/status.h"
#include "comm/kept.h"
#include "comm/private.h"
#include "ddp/verify.h"
#include "lockstep/ddp.h"

/* Where the program's part of kept memory begins. */
typedef struct elastic_header {
    _Atomic uint64_t current; /* the step that was committed last, times 2, plus the number of its copy; 0: none yet */
    uint64_t digest, floats;
} elastic_header;

enum { COPIES_AT = 4096 };

struct ls_elastic {
    ls_world *world;
    ls__kept *job; /* NULL: the job is not elastic, and nothing is kept */
    const ls_named *arrays;
    size_t n, floats, bytes;
    elastic_header *header; /* the mapping */
};

static float *copy_of(const ls_elastic *k, uint64_t which)
{
    return (float *)(void *)((char *)k->header + COPIES_AT) + which * k->floats;
}

/* Elements [begin, end) of all arrays, one after another: to a copy, or from it. */
static void move(const ls_elastic *k, float *copy, size_t begin, size_t end, bool save)
{
    size_t at = 0;
    for (size_t i = 0; i < k->n; at += k->arrays[i++].count) {
        size_t from = begin > at ? begin - at : 0, to = k->arrays[i].count;
        if (at >= end || from >= to) continue;
        if (to > end - at) to = end - at;
        float *own = k->arrays[i].data + from, *kept = copy + at + from;
        memcpy(save ? kept : own, save ? own : kept, (to - from) * sizeof(float));
    }
}

static ls_status attach(ls_elastic *k, uint64_t digest)
{
    int fd = ls__world_kept_fd(k->world);
    ls_status status = ls__kept_attach(fd, &k->job);
    k->bytes = COPIES_AT + 2 * k->floats * sizeof(float);
    bool first = ls_world_rank(k->world) == 0, ready = !status && atomic_load(&k->job->ready);
    if (!status && first && !ready) status = ls__kept_allocate(fd, k->bytes);
    status = ls__verify_success(k->world, status);
    void *memory = NULL;
    if (!status) status = ls__verify_success(k->world, ls__kept_map(fd, k->bytes, &memory));
    if (status) return status;
    k->header = memory;
    if (ready && (k->header->digest != digest || k->header->floats != k->floats))
        status =
            ls__fail(LS_EMISMATCH,
                     "elastic: earlier ranks of this job have kept other arrays; names and counts must stay the same");
    if (first && !ready) { /* a start that was interrupted may have left something */
        atomic_store(&k->header->current, 0);
        k->header->digest = digest;
        k->header->floats = k->floats;
        atomic_store(&k->job->ready, 1);
    }
    return ls__verify_success(k->world, status);
}

static ls_status open_arrays(ls_elastic **out, ls_world *world, const ls_named *arrays, size_t n, int64_t *step)
{
    ls_status status = ls__verify_success(world, ls__verify_named("ls_elastic_open: arrays", arrays, n));
    if (status) return status;
    ls_elastic *k = calloc(1, sizeof *k);
    if (!k) return ls__fail(LS_ENOMEM, "elastic: out of memory");
    k->world = world;
    k->arrays = arrays;
    k->n = n;
    uint64_t digest = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = arrays[i].name ? arrays[i].name : "";
        digest = XXH3_64bits_withSeed(name, strlen(name), digest ^ arrays[i].count);
        k->floats += arrays[i].count;
    }
    if (ls__world_kept_fd(world) > 0) status = attach(k, digest);
    if (status) {
        ls_elastic_free(&k);
        return status;
    }
    uint64_t current = k->header ? atomic_load(&k->header->current) : 0;
    *step = (int64_t)(current / 2);
    if (current) move(k, copy_of(k, current % 2), 0, k->floats, false);
    *out = k;
    return LS_OK;
}

ls_status ls_elastic_open(ls_elastic **out, ls_world *world, const ls_named *arrays, size_t n, int64_t *step)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(world, "world");
    LS__NEED(step, "step");
    *step = 0;
    ls__caller before = ls__group_begin_call(ls_world_group(world), LS__CALLER_ELASTIC_OPEN);
    ls_status status = open_arrays(out, world, arrays, n, step);
    ls__group_end_call(ls_world_group(world), before);
    return status;
}

ls_status ls_elastic_commit(ls_elastic *k, int64_t step)
{
    LS__NEED(k, "elastic");
    if (step < 1) return ls__fail(LS_EINVAL, "elastic: step %lld: must be at least 1", (long long)step);
    if (!k->header) return LS_OK;
    uint64_t other = 1 - atomic_load(&k->header->current) % 2;
    size_t ranks = (size_t)ls_world_size(k->world), rank = (size_t)ls_world_rank(k->world);
    size_t each = (k->floats + ranks - 1) / ranks, begin = rank * each, end = begin + each;
    if (begin < k->floats) move(k, copy_of(k, other), begin, end < k->floats ? end : k->floats, true);
    ls_status status = ls_barrier(ls_world_group(k->world));
    if (status) return status;
    atomic_store(&k->header->current, (uint64_t)step * 2 + other);
    atomic_store(&k->job->step, step);
    return LS_OK;
}

void ls_elastic_free(ls_elastic **elastic)
{
    ls_elastic *k = elastic ? *elastic : NULL;
    if (!k) return;
    if (k->header) munmap(k->header, k->bytes);
    ls__kept_detach(&k->job);
    free(k);
    *elastic = NULL;
}
