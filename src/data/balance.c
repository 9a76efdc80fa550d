/* Equal work in every slot of a step, with the same number of rows in each.
 *
 * Sort the window by length and cut it into tuples of `slots` samples: those of one tuple are nearly equal, and each
 * slot gets one. Of the tuples, taken from the longest to the shortest, each run of `steps` is spread over the steps at
 * random, one a step: so steps are alike too, and none is made of long samples only. Inside a step each tuple's longest
 * goes to the slot that has least so far. What difference is left comes from the few tuples of very long samples; it is
 * worked off by exchanging rows between the fullest and the emptiest slot as long as that helps.
 *
 * It never asks how many ranks there are: slots that are equal stay equal in any block of slots. */
#include "data/balance.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "data/permute.h"

/* Exchanges a step may take; each at least shrinks the largest difference, and a few dozen reach its bottom. */
enum { MAX_EXCHANGES = 200 };

static int longer_first(const void *va, const void *vb)
{
    const ls__weighed *a = va, *b = vb;
    if (a->length != b->length) return a->length > b->length ? -1 : 1;
    return (a->sample > b->sample) - (a->sample < b->sample);
}

/* Deals a step's tuple: its longest to the slot with the least work so far, and so on. A load's `sample` is the number
 * of its slot, its `length` the work of that slot. */
static void deal_tuple(ls__weighed *step, ls__weighed *loads, const ls__weighed *tuple, size_t slots, size_t rows,
                       size_t row)
{
    qsort(loads, slots, sizeof *loads, longer_first);
    for (size_t i = 0; i < slots; i++) {
        ls__weighed *load = &loads[slots - 1 - i];
        step[load->sample * rows + row] = tuple[i];
        load->length += tuple[i].length;
    }
}

/* Exchanges the two rows that bring the fullest and the emptiest slot closest together; false if none does. */
static bool exchange(ls__weighed *step, ls__weighed *loads, size_t slots, size_t rows)
{
    ls__weighed *full = loads, *empty = loads;
    for (ls__weighed *l = loads; l < loads + slots; l++) {
        if (l->length > full->length) full = l;
        if (l->length < empty->length) empty = l;
    }
    uint64_t gap = full->length - empty->length, best = gap;
    ls__weighed *give = NULL, *take = NULL;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < rows; j++) {
            ls__weighed *f = &step[full->sample * rows + i], *e = &step[empty->sample * rows + j];
            if (f->length <= e->length) continue;
            uint64_t moved = 2 * (f->length - e->length);
            uint64_t left = moved > gap ? moved - gap : gap - moved;
            if (left < best) best = left, give = f, take = e;
        }
    }
    if (!give) return false;
    uint64_t moved = give->length - take->length;
    full->length -= moved;
    empty->length += moved;
    ls__weighed kept = *give;
    *give = *take;
    *take = kept;
    return true;
}

void ls__balance(ls__weighed *samples, ls__weighed *scratch, size_t steps, size_t slots, size_t rows, uint64_t key)
{
    size_t per_step = slots * rows;
    ls__weighed *sorted = scratch, *loads = scratch + steps * per_step;
    memcpy(sorted, samples, steps * per_step * sizeof *samples);
    qsort(sorted, steps * per_step, sizeof *sorted, longer_first);
    for (size_t s = 0; s < steps; s++) {
        ls__weighed *step = samples + s * per_step;
        for (size_t i = 0; i < slots; i++) loads[i] = (ls__weighed){ .sample = i };
        for (size_t row = 0; row < rows; row++) {
            ls__permutation p;
            ls__permutation_init(&p, steps, key, row);
            deal_tuple(step, loads, sorted + (row * steps + ls__permute(&p, s)) * slots, slots, rows, row);
        }
        for (int i = 0; i < MAX_EXCHANGES && exchange(step, loads, slots, rows); i++) continue;
    }
}
