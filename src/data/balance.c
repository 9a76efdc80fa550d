/* Batches of samples of similar length, for little padding, with equal work for all ranks of a step, so that none waits.
 *
 * A micro-batch costs batch_size * its longest sample, and a step as much as its slowest rank. Sorted by length, `batch_size`
 * neighbours form a micro-batch, which is the minimum of padding in a window, and `slots` neighbouring micro-batches form a step,
 * so that they are nearly equal. The steps are then put into random order.
 *
 * The result does not depend on the number of ranks. A rank owns a contiguous range of slots, so the micro-batches of a step are
 * distributed such that both halves of the slots get equal work, and recursively the halves of the halves. */
#include "data/balance.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "data/permute.h"

static int longer_first(const void *va, const void *vb)
{
    const ls__weighed *a = va, *b = vb;
    if (a->length != b->length) return a->length > b->length ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* The slot of micro-batch `i` of `slots`, counted from the most expensive one. Of each two neighbours one goes to either
 * half, the larger one to the first half and to the second in turn. */
static size_t slot_of(size_t i, size_t slots)
{
    size_t first = 0;
    while (slots > 1) {
        size_t upper = slots - slots / 2, pair = i / 2;
        bool alone = slots % 2 && i == slots - 1;
        if (alone || (i ^ pair) % 2 == 0) {
            slots = upper;
        } else {
            first += upper;
            slots /= 2;
        }
        i = pair;
    }
    return first;
}

void ls__balance(ls__weighed *samples, ls__weighed *scratch, size_t count, size_t slots, size_t rows, uint64_t key)
{
    size_t per_step = slots * rows, steps = count / per_step, rest = count % per_step;
    memcpy(scratch, samples, count * sizeof *samples);
    for (size_t i = 0; i < count; i++) scratch[i].place = i;
    qsort(scratch, count, sizeof *scratch, longer_first);

    /* The samples of a short last step are neighbours, too, from some place between two full steps. */
    ls__permutation p;
    ls__permutation_init(&p, steps + 1, key, 0);
    size_t hole = ls__permute(&p, 0) * per_step;
    ls__permutation_init(&p, steps ? steps : 1, key, 1);
    for (size_t s = 0; s < steps; s++) {
        size_t from = ls__permute(&p, s) * per_step;
        if (from >= hole) from += rest;
        for (size_t i = 0; i < slots; i++)
            memcpy(samples + s * per_step + slot_of(i, slots) * rows, scratch + from + i * rows,
                   rows * sizeof *samples);
    }
    memcpy(samples + steps * per_step, scratch + hole, rest * sizeof *samples);
}
