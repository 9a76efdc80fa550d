/* See noise.h. A draw is a recorded step, with what its ranks had in common; the slowest rank of as many ranks as were recorded is
 * the one of that step, and of another number the largest of so many draws of what is a rank's own. */
#include "predict/noise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "base/status.h"
#include "measure/stats.h"

enum {
    CENTRE_DRAWS = 400,
    HALVINGS = 40,
    NEAR = 4, /* steps before and after one */
};

static double uniform(uint64_t stream, uint64_t index)
{
    return ((double)ls__random_u32(1, stream, index) + 0.5) / 4294967296.0;
}

static int by_common(const void *a, const void *b)
{
    double x = ((const ls__noise_step *)a)->common, y = ((const ls__noise_step *)b)->common;
    return (x > y) - (x < y);
}

static double at_quantile(const double *sorted, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (sorted[i + 1] - sorted[i]) * (at - (double)i);
}

/* Variation of a sum of more slots is smaller, relative to the sum. */
static double shrink(const ls__noise *n, int slots)
{
    return sqrt((double)n->slots / fmax(1, slots));
}

double ls__noise_draw_rank(const ls__noise *n, int rank, int slots, uint64_t draw)
{
    double rest = at_quantile(n->rest, n->n_rest, uniform(2 + (uint64_t)rank, draw));
    return fmax(0.1, 1 + (rest - 1) * shrink(n, slots));
}

/* The share of ranks that take at most x, to the power of their number: of the recorded means, each belongs to as many ranks as any
 * other. */
static double all_below(const ls__noise *n, double x, int ranks, double shrunk)
{
    double log_share = 0;
    for (int r = 0; r < n->ranks; r++) {
        double rest = 1 + (x / n->mean[r] - 1) / shrunk;
        size_t low = 0, high = n->n_rest;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (n->rest[middle] <= rest)
                low = middle + 1;
            else
                high = middle;
        }
        if (!low) return 0;
        log_share += log((double)low / (double)n->n_rest) / n->ranks;
    }
    return exp(log_share * ranks);
}

static double largest_of(const ls__noise *n, int ranks, int slots, double u)
{
    double shrunk = shrink(n, slots), low = 0, high = 0;
    for (int r = 0; r < n->ranks; r++) high = fmax(high, n->mean[r] * (1 + (n->rest[n->n_rest - 1] - 1) * shrunk));
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;
        if (all_below(n, middle, ranks, shrunk) < u)
            low = middle;
        else
            high = middle;
    }
    return high;
}

ls__noise_draw ls__noise_draw_step(const ls__noise *n, int ranks, int nodes, int slots, uint64_t draw)
{
    double u = pow(uniform(0, draw), 1.0 / nodes);
    size_t at = (size_t)(u * (double)n->n_steps);
    const ls__noise_step *s = &n->steps[at < n->n_steps ? at : n->n_steps - 1];
    if (ranks == n->ranks && slots == n->slots)
        return (ls__noise_draw){ .typical = s->common, .slowest = s->common * s->largest };
    double typical = s->common * n->centre;
    if (ranks == 1) {
        double one = typical * ls__noise_draw_rank(n, 0, slots, draw);
        return (ls__noise_draw){ .typical = one, .slowest = one };
    }
    return (ls__noise_draw){ .typical = typical, .slowest = typical * largest_of(n, ranks, slots, uniform(1, draw)) };
}

static double middle(const double *times, size_t n, double *scratch)
{
    memcpy(scratch, times, n * sizeof *scratch);
    return ls__median(scratch, n);
}

/* One rank does not show what others would have had in common with it. What lasts for several steps is taken for that. */
static double neighbours(const double *times, size_t steps, size_t step, double *scratch)
{
    size_t from = step > NEAR ? step - NEAR : 0, to = step + NEAR + 1 < steps ? step + NEAR + 1 : steps;
    return middle(times + from, to - from, scratch);
}

static void split(ls__noise *n, const double *times, size_t steps, double *scratch)
{
    size_t p = (size_t)n->ranks;
    double unbiased = p > 1 ? sqrt((double)p / (double)(p - 1)) : 1; /* their middle follows the ranks */
    for (size_t r = 0; r < p; r++) {
        for (size_t s = 0; s < steps; s++) scratch[s] = times[s * p + r] / n->steps[s].common;
        n->mean[r] = ls__median(scratch, steps);
    }
    for (size_t s = 0; s < steps; s++)
        for (size_t r = 0; r < p; r++) {
            double own = times[s * p + r] / n->steps[s].common;
            n->rest[n->n_rest++] = 1 + (own / n->mean[r] - 1) * unbiased;
            n->steps[s].largest = fmax(n->steps[s].largest, own);
        }
}

/* The median of independent draws is not that of the recorded times, where a step in which a rank is slow has a larger middle, too. */
static double find_centre(const ls__noise *n)
{
    double drawn[CENTRE_DRAWS];
    for (uint64_t i = 0; i < CENTRE_DRAWS; i++) {
        double common = n->steps[(size_t)(uniform(0, i) * (double)n->n_steps)].common;
        drawn[i] = common * ls__noise_draw_rank(n, 0, n->slots, i);
    }
    return 1 / ls__median(drawn, CENTRE_DRAWS);
}

ls_status ls__noise_open(ls__noise *n, const double *times, size_t steps, int ranks, int slots)
{
    size_t p = (size_t)ranks, room = (p > steps ? p : steps) + 2 * NEAR + 1;
    double *scratch = malloc(room * sizeof *scratch);
    *n = (ls__noise){ .ranks = ranks, .slots = slots, .n_steps = steps };
    n->steps = calloc(steps, sizeof *n->steps);
    n->mean = calloc(p, sizeof *n->mean);
    n->rest = calloc(steps * p, sizeof *n->rest);
    if (!scratch || !n->steps || !n->mean || !n->rest) {
        free(scratch);
        ls__noise_close(n);
        return ls__fail(LS_ENOMEM, "predict: out of memory");
    }
    for (size_t s = 0; s < steps; s++)
        n->steps[s].common = ranks > 1 ? middle(times + s * p, p, scratch) : neighbours(times, steps, s, scratch);
    split(n, times, steps, scratch);
    qsort(n->steps, n->n_steps, sizeof *n->steps, by_common);
    ls__sort(n->rest, n->n_rest);
    n->centre = find_centre(n);
    free(scratch);
    return LS_OK;
}

void ls__noise_close(ls__noise *n)
{
    free(n->steps);
    free(n->mean);
    free(n->rest);
    *n = (ls__noise){ 0 };
}
