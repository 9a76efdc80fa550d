/* The global norm of a flat block, and clipping by it. One kernel computes each sum of LS__NORM_BLOCK squares, in an order that
 * no compiler and no thread count changes; the sums are added in the canonical tree (base/tree.h). */
#include "nn/norm.h"

#include <math.h>
#include <omp.h>
#include "base/tree.h"
#include "kern/optim.h"
#include "kern/vector.h"
#include "lockstep/nn.h"

size_t ls__norm_blocks(size_t count)
{
    return (count + LS__NORM_BLOCK - 1) / LS__NORM_BLOCK;
}

static size_t block_count(size_t begin, size_t end)
{
    return end - begin < LS__NORM_BLOCK ? end - begin : LS__NORM_BLOCK;
}

void ls__norm_sums(const float *x, size_t begin, size_t end, double *sums, int threads)
{
    size_t first = begin / LS__NORM_BLOCK, blocks = ls__norm_blocks(end);
    if (threads <= 0) threads = omp_get_max_threads();
#pragma omp parallel for num_threads(threads) schedule(static) if (blocks - first > 16)
    for (size_t b = first; b < blocks; b++) {
        size_t at = b * LS__NORM_BLOCK;
        sums[b] = ls__sum_squares(x + at, block_count(at, end));
    }
}

static double tree(const double *sums, size_t n)
{
    if (n == 1) return sums[0];
    size_t m = ls__tree_split(n);
    return tree(sums, m) + tree(sums + m, n - m);
}

double ls__norm_total(const double *sums, size_t blocks)
{
    return blocks ? sqrt(tree(sums, blocks)) : 0;
}

float ls__clip_scale(double norm, double max_norm)
{
    /* As torch: the small number avoids a division by zero. */
    double scale = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
    return scale < 1 ? (float)scale : 1.0f;
}

/* The sum of squares of `n` blocks from the block `first` on: the same tree, without memory for all sums. Subtrees of a power of
 * two blocks are computed by one thread each. */
enum { TASK_BLOCKS = 256 };

static double squares(const float *x, size_t count, size_t first, size_t n)
{
    if (n == 1) return ls__sum_squares(x + first * LS__NORM_BLOCK, block_count(first * LS__NORM_BLOCK, count));
    size_t m = ls__tree_split(n);
    double low, high;
#pragma omp task shared(low) if (m >= TASK_BLOCKS)
    low = squares(x, count, first, m);
    high = squares(x, count, first + m, n - m);
#pragma omp taskwait
    return low + high;
}

double ls_clip_grad_norm(float *grads, size_t count, double max_norm, int threads)
{
    size_t blocks = ls__norm_blocks(count);
    double sum = 0;
    if (threads <= 0) threads = omp_get_max_threads();
#pragma omp parallel num_threads(threads) if (blocks > TASK_BLOCKS)
#pragma omp single
    sum = blocks ? squares(grads, count, 0, blocks) : 0;
    double norm = sqrt(sum);
    float scale = isfinite(norm) ? ls__clip_scale(norm, max_norm) : 1;
    if (scale == 1) return norm;
#pragma omp parallel for num_threads(threads) schedule(static) if (blocks > 16)
    for (size_t b = 0; b < blocks; b++) {
        size_t at = b * LS__NORM_BLOCK;
        ls__scale_f32(grads + at, grads + at, scale, block_count(at, count));
    }
    return norm;
}
