/* The global norm of a flat block. Each sum of LS_NORM_BLOCK squares is made by one kernel in an order that no compiler
 * and no thread count changes; the sums are added as the canonical tree (base/tree.h). */
#include "lockstep/nn.h"

#include <math.h>
#include <omp.h>
#include "base/tree.h"
#include "kern/optim.h"

size_t ls_norm_blocks(size_t count)
{
    return (count + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK;
}

void ls_norm_sums(const float *x, size_t begin, size_t end, double *sums, int threads)
{
    size_t first = begin / LS_NORM_BLOCK, blocks = ls_norm_blocks(end);
    if (threads <= 0) threads = omp_get_max_threads();
#pragma omp parallel for num_threads(threads) schedule(static) if (blocks - first > 16)
    for (size_t b = first; b < blocks; b++) {
        size_t at = b * LS_NORM_BLOCK, left = end - at;
        sums[b] = ls__sum_squares(x + at, left < LS_NORM_BLOCK ? left : LS_NORM_BLOCK);
    }
}

static double tree(const double *sums, size_t n)
{
    if (n == 1) return sums[0];
    size_t m = ls__tree_split(n);
    return tree(sums, m) + tree(sums + m, n - m);
}

double ls_norm_total(const double *sums, size_t blocks)
{
    return blocks ? sqrt(tree(sums, blocks)) : 0;
}

float ls_clip_scale(double norm, double limit)
{
    /* As torch: the small number keeps a norm that is just at the limit from being divided by zero or less. */
    double scale = limit > 0 ? limit / (norm + 1e-6) : 1;
    return scale < 1 ? (float)scale : 1.0f;
}
