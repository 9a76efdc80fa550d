/* Parts of the canonical tree: which there are, and adding them up. See slot_parts.h. */
#include "comm/slot_parts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/slots.h"
#include "base/status.h"
#include "base/tree.h"
#include "kern/vector.h"

enum {
    BLOCK = 1024, /* elements added at a time: values of inner subtrees stay in the L1 cache */
    DEPTH = 33,   /* of a tree over 2^31 leaves */
};

/* ---- Which parts there are. */

static int find(const ls__slot_parts *p, int rank, int first, int count, ls__slot_part *out, int n)
{
    int begin = ls__slots_first(p->leaves, p->ranks, rank), end = ls__slots_first(p->leaves, p->ranks, rank + 1);
    if (first >= end || first + count <= begin) return n;
    if (first >= begin && first + count <= end) {
        if (out) out[n] = (ls__slot_part){ .first = first, .count = count, .rank = rank };
        return n + 1;
    }
    int m = (int)ls__tree_split((size_t)count);
    n = find(p, rank, first, m, out, n);
    return find(p, rank, first + m, count - m, out, n);
}

/* Whether the tree over `parts` parts, the first of which is `at`, has the shape of the tree over as many ranks. */
static bool is_tree_of_ranks(const ls__slot_parts *p, int first, int count, int at, int parts)
{
    if (parts == 1) return p->part[at].count == count;
    if (p->part[at].count == count) return false;
    int m = (int)ls__tree_split((size_t)count), left = (int)ls__tree_split((size_t)parts);
    return p->part[at + left].first == first + m && is_tree_of_ranks(p, first, m, at, left) &&
           is_tree_of_ranks(p, first + m, count - m, at + left, parts - left);
}

ls_status ls__slot_parts_open(ls__slot_parts **out, int leaves, int ranks, size_t stride)
{
    ls__slot_parts shape = { .leaves = leaves, .ranks = ranks, .stride = stride }, *p = NULL;
    *out = NULL;
    if (ranks == 1) return LS_OK;
    for (int r = 0; r < ranks; r++) shape.n = find(&shape, r, 0, leaves, NULL, shape.n);
    p = malloc(sizeof *p);
    if (!p) goto fail;
    *p = shape;
    p->part = calloc((size_t)p->n, sizeof *p->part);
    p->of_rank = calloc((size_t)ranks + 1, sizeof *p->of_rank);
    p->in = calloc((size_t)p->n, sizeof *p->in);
    if (!p->part || !p->of_rank || !p->in) goto fail;
    for (int r = 0; r < ranks; r++) {
        int begin = p->of_rank[r], end = find(p, r, 0, leaves, p->part, begin);
        p->of_rank[r + 1] = end;
        for (int i = begin; i < end; i++) p->part[i].place = i + 1 == end ? 0 : i - begin + 1;
    }
    if (p->n == ranks && is_tree_of_ranks(p, 0, leaves, 0, p->n)) ls__slot_parts_free(&p);
    *out = p;
    return LS_OK;
fail:
    ls__slot_parts_free(&p);
    return ls__fail(LS_ENOMEM, "out of memory for %d slots on %d ranks", leaves, ranks);
}

void ls__slot_parts_free(ls__slot_parts **parts)
{
    ls__slot_parts *p = *parts;
    if (!p) return;
    free(p->part);
    free(p->of_rank);
    free(p->in);
    free(p->node_sums);
    free(p);
    *parts = NULL;
}

/* ---- Adding up. */

/* A subtree's walk: where its parts begin, and where the values of inner subtrees go. */
typedef struct walk {
    const ls__slot_part *part; /* the next one */
    const void *const *in;
    size_t begin, n; /* elements of this block */
    float (*inner)[BLOCK];
} walk;

/* The values of the next `count` leaves. Those of inner subtrees are at inner[depth], and deeper ones are no longer needed. */
static const float *value(walk *w, int count, int depth)
{
    if (w->part->count == count) {
        w->part++;
        return (const float *)*w->in++ + w->begin;
    }
    int m = (int)ls__tree_split((size_t)count);
    const float *left = value(w, m, depth), *right = value(w, count - m, depth + 1);
    ls__add_f32(w->inner[depth], left, right, w->n);
    return w->inner[depth];
}

void ls__slot_parts_sum(const ls__slot_parts *p, int count, int at, void *const *out, int outs, const void *const *in,
                        size_t elements)
{
    float inner[DEPTH][BLOCK];
    for (size_t begin = 0; begin < elements; begin += BLOCK) {
        walk w = { .part = p->part + at, .in = in, .begin = begin, .inner = inner };
        w.n = elements - begin < BLOCK ? elements - begin : BLOCK;
        const float *sum = value(&w, count, 0);
        for (int k = 0; k < outs; k++)
            if ((float *)out[k] + begin != sum) memcpy((float *)out[k] + begin, sum, w.n * sizeof *sum);
    }
}

static double value_f64(const ls__slot_part **part, const double **x, int count)
{
    if ((*part)->count == count) {
        (*part)++;
        return *(*x)++;
    }
    int m = (int)ls__tree_split((size_t)count);
    double left = value_f64(part, x, m);
    return left + value_f64(part, x, count - m);
}

double ls__slot_parts_sum_f64(const ls__slot_parts *p, const double *x)
{
    const ls__slot_part *part = p->part;
    return value_f64(&part, &x, p->leaves);
}
