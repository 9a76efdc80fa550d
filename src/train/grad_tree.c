/* The binary counter: slot s, when it is done, is added to the sums of the levels whose bits are set in s, as a carry
 * is. See grad_tree.h. */
#include "train/grad_tree.h"

#include <stdbool.h>

#include "base/status.h"
#include "kern/vector.h"

enum { CHUNK = 1 << 14 }; /* elements that a thread adds at a time */

ls_status ls__grad_tree_open(ls__grad_tree *t, float *first, size_t elements, int slots, int threads)
{
    *t = (ls__grad_tree){ .elements = elements, .slots = slots, .threads = threads, .current = first };
    /* While slot s runs, the set bits of s are held: the most is for s = slots - 1 and below. */
    int levels = 0;
    for (int s = 1; s < slots; s = 2 * s + 1) levels++;
    if (!levels) return LS_OK;
    if (levels > LS__GRAD_LEVELS) return ls__fail(LS_EINVAL, "%d slots are too many", slots);
    size_t bytes = (elements * sizeof(float) + 63) / 64 * 64;
    ls_status status = ls__arena_open(&t->memory, (size_t)levels * bytes);
    if (status) return status;
    for (; t->n_spare < levels; t->n_spare++) t->spare[t->n_spare] = ls__arena_take(&t->memory, bytes);
    return LS_OK;
}

void ls__grad_tree_close(ls__grad_tree *t)
{
    ls__arena_close(&t->memory);
    *t = (ls__grad_tree){ 0 };
}

/* current = left + current; the left block is free then. */
static void add_held(ls__grad_tree *t, int level)
{
    float *left = t->held[level], *sum = t->current;
    size_t chunks = (t->elements + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (size_t c = 0; c < chunks; c++) {
        size_t at = c * CHUNK, n = t->elements - at < CHUNK ? t->elements - at : CHUNK;
        ls__add_f32(sum + at, left + at, sum + at, n);
    }
    t->spare[t->n_spare++] = left;
    t->held[level] = NULL;
}

void ls__grad_tree_add(ls__grad_tree *t, int slot)
{
    int level = 0;
    bool last = slot == t->slots - 1;
    for (; (slot >> level) & 1; level++) add_held(t, level);
    if (!last) {
        t->held[level] = t->current;
        t->current = t->spare[--t->n_spare];
        return;
    }
    /* tree(n) = tree(m) + tree(n - m): what is left over is added from the small sums to the large. */
    for (; level < LS__GRAD_LEVELS; level++)
        if (t->held[level]) add_held(t, level);
}
