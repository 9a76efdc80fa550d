/* How fast collectives of each kind and size were. What a collective takes on a rank is its transfer and the wait for the last rank;
 * the rank that came last did not wait, so the least of all ranks is the transfer, whatever the clocks show. */
#include <stdlib.h>
#include "base/status.h"
#include "import/write.h"

typedef struct entry {
    uint64_t group, number;
    int64_t bytes, ns;
    uint32_t ranks; /* of the group */
    uint8_t kind;
} entry;

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->group != y->group) return x->group > y->group ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

static ls_status list_entries(ls__trace **traces, size_t count, int ranks, entry **out, size_t *n)
{
    size_t all = 0;
    *n = 0;
    for (size_t i = 0; i < count; i++) all += traces[i]->calls.count;
    *out = malloc((all + 1) * sizeof **out);
    if (!*out) return ls__fail(LS_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const ls__trace *t = traces[i];
        for (size_t k = 0; k < t->calls.count; k++) {
            const ls__call *c = &t->calls.at[k];
            const ls__trace_group *g = &t->groups.at[c->group];
            uint32_t members = g->count ? g->count : (uint32_t)ranks;
            if (c->sends || c->bytes <= 0 || c->done <= c->arrived || (count > 1 && !c->joined)) continue;
            (*out)[(*n)++] = (entry){ .group = g->key,
                                      .number = count > 1 ? c->number : k,
                                      .bytes = c->bytes,
                                      .ns = c->done - c->arrived,
                                      .ranks = members,
                                      .kind = c->kind };
        }
    }
    if (*n) qsort(*out, *n, sizeof **out, by_key);
    return LS_OK;
}

/* The whole array's bytes, of which an all-gather's `bytes` is one rank's part. */
static double array_bytes(const entry *e)
{
    bool part = e->kind == LS_COLLECTIVE_ALLGATHER || e->kind == LS_COLLECTIVE_GATHER;
    return (double)e->bytes * (part && e->ranks ? e->ranks : 1);
}

/* What each rank's link must carry of it, as nccl-tests count it. */
static double link_share(uint8_t kind, uint32_t ranks)
{
    double part = ranks > 1 ? (double)(ranks - 1) / ranks : 0;
    switch (kind) {
    case LS_COLLECTIVE_ALLREDUCE: return 2 * part;
    case LS_COLLECTIVE_ALLGATHER:
    case LS_COLLECTIVE_REDUCE_SCATTER:
    case LS_COLLECTIVE_ALLTOALL:
    case LS_COLLECTIVE_GATHER:
    case LS_COLLECTIVE_SCATTER: return part;
    default: return ranks > 1 ? 1 : 0;
    }
}

enum { CLASSES = 8, CLASS_STEP = 16 }; /* up to 1 KiB, 16 KiB, ..., 16 GiB, and more */

typedef struct sum {
    uint64_t count;
    double bytes, carried, ns;
} sum;

static int class_of(double bytes)
{
    double limit = 1024;
    int class = 0;
    for (; class + 1 < CLASSES && bytes > limit; class ++) limit *= CLASS_STEP;
    return class;
}

ls_status ls__describe_sizes(ls__trace **traces, size_t count, int ranks, json_t **out)
{
    sum(*sums)[CLASSES] = calloc(LS_COLLECTIVE_KINDS, sizeof *sums);
    entry *list = NULL;
    size_t n = 0;
    *out = NULL;
    ls_status status = sums ? list_entries(traces, count, ranks, &list, &n) : ls__fail(LS_ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !status;) {
        entry least = list[i];
        for (; i < n && !by_key(&list[i], &least); i++)
            if (list[i].ns < least.ns) least.ns = list[i].ns;
        double bytes = array_bytes(&least);
        if (least.kind >= LS_COLLECTIVE_KINDS) continue;
        sum *s = &sums[least.kind][class_of(bytes)];
        s->count++;
        s->bytes += bytes;
        s->carried += bytes * link_share(least.kind, least.ranks);
        s->ns += (double)least.ns;
    }
    json_t *rows = status ? NULL : json_array();
    for (int k = 0; rows && k < LS_COLLECTIVE_KINDS; k++)
        for (int c = 0; c < CLASSES; c++) {
            const sum *s = &sums[k][c];
            if (s->count)
                json_array_append_new(rows, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "kind",
                                                      ls_collective_name((ls_collective_kind)k), "count",
                                                      (json_int_t)s->count, "mean_bytes", s->bytes / (double)s->count,
                                                      "mean_ms", s->ns / (double)s->count / 1e6, "gbit_per_s",
                                                      8 * s->bytes / s->ns, "bus_gbit_per_s", 8 * s->carried / s->ns));
        }
    if (!status && !rows) status = ls__fail(LS_ENOMEM, "out of memory");
    free(list);
    free(sums);
    *out = rows;
    return status;
}
