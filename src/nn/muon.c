/* Muon (Keller Jordan's; torch.optim.Muon with nesterov and adjust_lr_fn="match_rms_adamw").
 *
 * A matrix is the unit of work: it needs the whole momentum. So an update has two parts. First, for each matrix, the direction: a function
 * of momentum and gradient that is written to the second state and changes nothing else, so it may be computed by any rank, and again.
 * Then, element by element like other optimizers, momentum and weight. A rank that dies in between leaves nothing that is half done.
 *
 * Products are float32 with our one order of operations; torch rounds the iteration to bfloat16. */
#include "nn/muon.h"

#include <math.h>
#include <string.h>
#include "kern/float_mode.h"
#include "kern/gemm.h"
#include "kern/optim.h"

/* The polynomial a x + b x^3 + c x^5 of each iteration moves singular values towards 1: to between 0.7 and 1.2. An odd number of them ends
 * in the caller's memory. */
static const float A = 3.4445f, B = -4.775f, C = 2.0315f;
enum { ITERATIONS = 5 };
static const double SMALLEST_NORM = 1e-7;

bool ls__muon_has(const ls_place *p)
{
    return p->dims == 2 && !p->is_table;
}

double ls__muon_rate(int64_t rows, int64_t cols)
{
    return 0.2 * sqrt((double)(rows > cols ? rows : cols));
}

ls_status ls__muon_open(ls__muon *m, const ls_place *places, size_t n_places, int threads)
{
    size_t largest = 0, side = 0, aligned = 15;
    *m = (ls__muon){ .threads = threads };
    for (size_t i = 0; i < n_places; i++) {
        const ls_place *p = &places[i];
        if (!ls__muon_has(p)) continue;
        size_t n = (size_t)(p->shape[0] < p->shape[1] ? p->shape[0] : p->shape[1]);
        if (p->count > largest) largest = p->count;
        if (n > side) side = n;
    }
    if (!largest) return LS_OK;
    size_t copy = (largest + aligned) & ~aligned, square = (side * side + aligned) & ~aligned;
    ls_status status =
        ls__arena_open(&m->memory, (copy + 2 * square + ls__gemm_workspace(threads)) * sizeof(float) + 4 * 64);
    if (status) return status;
    m->copy = ls__arena_take(&m->memory, copy * sizeof(float));
    m->gram = ls__arena_take(&m->memory, square * sizeof(float));
    m->square = ls__arena_take(&m->memory, square * sizeof(float));
    m->workspace = ls__arena_take(&m->memory, ls__gemm_workspace(threads) * sizeof(float));
    return LS_OK;
}

void ls__muon_close(ls__muon *m)
{
    ls__arena_close(&m->memory);
    *m = (ls__muon){ 0 };
}

static void multiply(const ls__muon *m, const ls__gemm *g)
{
    ls__gemm_run(g, 1, m->threads, m->workspace, NULL);
}

/* out = (A + B G + C G^2) x with G = x x^T; for a matrix with more rows than columns x (A + ...) with G = x^T x. That is a third of the
 * operations of powers of x. */
static void iterate(const ls__muon *m, float *out, const float *x, int64_t rows, int64_t cols)
{
    bool tall = rows > cols;
    int64_t n = tall ? cols : rows, k = tall ? rows : cols;
    multiply(m, &(ls__gemm){ .m = n,
                             .n = n,
                             .k = k,
                             .a_trans = tall,
                             .b_trans = !tall,
                             .a = x,
                             .lda = cols,
                             .b = x,
                             .ldb = cols,
                             .c = m->gram,
                             .ldc = n });
    multiply(m, &(ls__gemm){
                    .m = n, .n = n, .k = n, .a = m->gram, .lda = n, .b = m->gram, .ldb = n, .c = m->square, .ldc = n });
    for (int64_t i = 0; i < n * n; i++) m->gram[i] = B * m->gram[i] + C * m->square[i];
    for (int64_t i = 0; i < n; i++) m->gram[i * n + i] += A;
    multiply(m, &(ls__gemm){ .m = rows,
                             .n = cols,
                             .k = n,
                             .a = tall ? x : m->gram,
                             .lda = n, /* a tall matrix has n columns */
                             .b = tall ? m->gram : x,
                             .ldb = cols,
                             .c = out,
                             .ldc = cols });
}

void ls__muon_direction(const ls__muon *m, float *out, const float *momentum, const float *grad, int64_t rows,
                        int64_t cols, float decay, float grad_scale)
{
    LS__FLUSH_DENORMALS();
    size_t count = (size_t)rows * (size_t)cols;
    for (size_t i = 0; i < count; i++) {
        float g = grad[i] * grad_scale, mean = ls__muon_momentum(momentum[i], g, decay);
        m->copy[i] = ls__muon_momentum(mean, g, decay); /* Nesterov's: as if the gradient came once more */
    }
    double norm = sqrt(ls__sum_squares(m->copy, count));
    float scale = (float)(1 / (norm > SMALLEST_NORM ? norm : SMALLEST_NORM));
    for (size_t i = 0; i < count; i++) m->copy[i] *= scale;
    float *from = m->copy, *to = out;
    for (int i = 0; i < ITERATIONS; i++) {
        iterate(m, to, from, rows, cols);
        float *other = from;
        from = to;
        to = other;
    }
}
