/* Subtrees of the canonical tree, partial sums over them, and finishing. See canonical.h. */
#include "comm/canonical.h"

#include <string.h>
#include "base/tree.h"
#include "kern/reduce.h"
#include "kern/vector.h"

enum { BLOCK = 1024 }; /* 16-bit floats widened at a time; stays in the L1 cache */

static int split(int n)
{
    return (int)ls__tree_split((size_t)n);
}

static bool on_one_node(const int *node_of, int first, int count)
{
    for (int r = first + 1; r < first + count; r++)
        if (node_of[r] != node_of[first]) return false;
    return true;
}

static int find_subtrees(const int *node_of, int first, int count, bool leaves, ls__subtree *out, int n)
{
    if (count == 1 || (!leaves && on_one_node(node_of, first, count))) {
        out[n] = (ls__subtree){ .first = first, .count = count, .node = node_of[first] };
        return n + 1;
    }
    int m = split(count);
    n = find_subtrees(node_of, first, m, leaves, out, n);
    return find_subtrees(node_of, first + m, count - m, leaves, out, n);
}

int ls__canonical_subtrees(const int *node_of, int p, bool leaves, ls__subtree *out)
{
    return find_subtrees(node_of, 0, p, leaves, out, 0);
}

/* Steps for the ranks first..first+count-1, whose first subtree is number `at`; returns the number of the subtree after them. */
static int steps(const ls__subtree *subtrees, int first, int count, int at, ls__canonical_step *out, int *n)
{
    if (subtrees[at].first == first && subtrees[at].count == count) return at + 1;
    int m = split(count);
    int middle = steps(subtrees, first, m, at, out, n);
    int end = steps(subtrees, first + m, count - m, middle, out, n);
    out[(*n)++] = (ls__canonical_step){ .left = at, .right = middle };
    return end;
}

void ls__canonical_steps(const ls__subtree *subtrees, int n, int p, ls__canonical_step *out)
{
    int written = 0;
    if (n > 1) steps(subtrees, 0, p, 0, out, &written);
}

bool ls__canonical_has_partials(ls_dtype type, ls_op op)
{
    return op != LS_MEAN || ls__is_floating(type);
}

bool ls__canonical_widens(ls_dtype type)
{
    return type == LS_BF16 || type == LS_F16;
}

static void widen(ls_dtype type, float *out, const void *in, size_t elements)
{
    if (type == LS_BF16)
        ls__bf16_to_f32(out, in, elements);
    else
        ls__f16_to_f32(out, in, elements);
}

ls_dtype ls__canonical_partial_type(ls_dtype type)
{
    return ls__canonical_widens(type) ? LS_F32 : type;
}

size_t ls__canonical_partial_bytes(ls_dtype type, const ls__subtree *c, size_t elements)
{
    size_t bytes = elements * ls_dtype_size(c->count == 1 ? type : ls__canonical_partial_type(type));
    return (bytes + 15) / 16 * 16;
}

size_t ls__canonical_scratch(int count)
{
    return (size_t)count * (BLOCK * sizeof(float) + sizeof(void *));
}

/* A mean is divided at the end. */
static ls_op partial_op(ls_op op)
{
    return op == LS_MEAN ? LS_SUM : op;
}

void ls__canonical_partial(ls_dtype type, ls_op op, void *out, const void *const *in, int count, size_t elements,
                           void *scratch)
{
    if (count == 1) {
        if (elements) memcpy(out, in[0], elements * ls_dtype_size(type));
        return;
    }
    if (!ls__canonical_widens(type)) {
        ls__reduce_arrays(type, partial_op(op), &out, 1, in, count, elements, false);
        return;
    }
    float *wide = scratch;
    const void **rows = (const void **)((char *)scratch + (size_t)count * BLOCK * sizeof(float));
    for (size_t at = 0, n; at < elements; at += n) {
        n = elements - at < BLOCK ? elements - at : BLOCK;
        for (int i = 0; i < count; i++) {
            rows[i] = wide + (size_t)i * BLOCK;
            widen(type, wide + (size_t)i * BLOCK, (const uint16_t *)in[i] + at, n);
        }
        void *to = (float *)out + at;
        ls__reduce_arrays(LS_F32, partial_op(op), &to, 1, rows, count, n, false);
    }
}

static void scale(ls_dtype type, void *x, int p, size_t elements)
{
    if (type == LS_F32) {
        ls__scale_f32(x, x, 1.0f / (float)p, elements);
    } else {
        double *d = x, factor = 1.0 / (double)p;
        for (size_t i = 0; i < elements; i++) d[i] = factor * d[i];
    }
}

void ls__canonical_finish(ls_dtype type, ls_op op, void *out, void **partials, const ls__subtree *subtrees, int n,
                          const ls__canonical_step *todo, int p, size_t elements, float *widened)
{
    if (n == p) { /* nothing was added in advance */
        ls__reduce_arrays(type, op, &out, 1, (const void *const *)partials, p, elements, false);
        return;
    }
    ls_dtype wide = ls__canonical_partial_type(type);
    for (int i = 0; i < n && ls__canonical_widens(type); i++) /* the values of single ranks are not widened yet */
        if (subtrees[i].count == 1) {
            widen(type, widened + (size_t)i * elements, partials[i], elements);
            partials[i] = widened + (size_t)i * elements;
        }
    void *first = partials[0];
    for (int i = 0; i < n - 1; i++) {
        void *left = partials[todo[i].left];
        const void *pair[] = { left, partials[todo[i].right] };
        ls__reduce_arrays(wide, partial_op(op), &left, 1, pair, 2, elements, false);
    }
    if (op == LS_MEAN) scale(wide, first, p, elements);
    if (type == LS_BF16)
        ls__f32_to_bf16(out, first, elements);
    else if (type == LS_F16)
        ls__f32_to_f16(out, first, elements);
    else if (elements)
        memcpy(out, first, elements * ls_dtype_size(type));
}
