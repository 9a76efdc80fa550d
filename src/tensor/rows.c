/* Sums over rows. See rows.h. */
#include "tensor/rows.h"

#include <string.h>

void ls__fold_blocks(const ls_tape *t, float *out, bool add, const float *partial, int64_t blocks, int64_t stride,
                     int64_t cols)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    enum { CHUNK = 256 };
#pragma omp parallel for num_threads(t->threads) schedule(static) if (blocks * cols > LS__WORTH_THREADS)
    for (int64_t c = 0; c < cols; c += CHUNK) {
        size_t n = (size_t)ls__min(CHUNK, cols - c);
        if (!add) memcpy(out + c, partial + c, n * sizeof *out);
        for (int64_t b = add ? 0 : 1; b < blocks; b++) k->add(out + c, out + c, partial + b * stride + c, n);
    }
}

ls_status ls__column_sums(ls_tape *t, float *out, bool add, const float *x, int64_t rows, int64_t cols)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t blocks = ls__row_blocks(rows);
    ls__buffer *partial = ls__buffer_take(t, (size_t)(blocks * cols));
    if (!partial) return t->status;
    float *sums = partial->data; /* (blocks, cols) */
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * cols > LS__WORTH_THREADS)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t first = b * LS__ROW_BLOCK, end = ls__min(rows, first + LS__ROW_BLOCK);
        float *to = sums + b * cols;
        memcpy(to, x + first * cols, (size_t)cols * sizeof *to);
        for (int64_t r = first + 1; r < end; r++) k->add(to, to, x + r * cols, (size_t)cols);
    }
    ls__fold_blocks(t, out, add, sums, blocks, cols, cols);
    ls__buffer_drop(t, partial);
    return LS_OK;
}
