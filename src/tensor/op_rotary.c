/* Rotary positions: pairs of elements of each head are rotated by angles that grow with the position.
 *
 * The pairs are (i, i + D/2), as Hugging Face's files have them. The cosines and sines of a pass are computed once, in float64 by
 * series of our own, from angles that are products in float32, as in transformers. Rotation is done in place where nothing reads
 * what was there; backward rotates the gradient back, so it needs no activation. */
#include "tensor/tape.h"

#include <string.h>
#include "base/math.h"
#include "tensor/rows.h"

/* The angle per position of pair i of D / 2. */
static float frequency(const ls_rope *r, int64_t i, int64_t D)
{
    double f = ls__math_exp(-2.0 * (double)i / (double)D * ls__math_log((double)r->theta));
    if (r->kind == LS_ROPE_LINEAR) return (float)(f / (double)r->factor);
    if (r->kind != LS_ROPE_LLAMA3) return (float)f;
    /* High frequencies stay, low ones are divided by the factor, and those between are interpolated. */
    double turns = (double)r->original_context * f / 6.283185307179586, low = (double)r->low_freq_factor,
           high = (double)r->high_freq_factor, slow = f / (double)r->factor;
    if (turns < low) return (float)slow;
    if (turns > high) return (float)f;
    double smooth = (turns - low) / (high - low);
    return (float)((1 - smooth) * slow + smooth * f);
}

ls_tensor *ls_rotary_table(ls_tape *t, const ls_rope *rope, int64_t D, const int64_t *first, int64_t n_first,
                           int64_t length)
{
    static const ls_tensor none;
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, &none, &none)) return NULL;
    if (!rope || D < 2 || D % 2 || !(rope->theta >= 1) || n_first < 1 || length < 1 || (n_first > 1 && !first))
        return ls__tape_fail(t, ls__fail(LS_EINVAL,
                                         "rotary_table: %lld elements of a head, %lld positions of %lld sequences, and "
                                         "theta %g; heads must be even, positions at least 1, theta at least 1",
                                         (long long)D, (long long)length, (long long)n_first,
                                         rope ? (double)rope->theta : 0));
    int64_t rows = n_first * length, half = D / 2;
    ls_tensor *y = ls__result(t, 2, (int64_t[]){ rows, D });
    ls__buffer *memory = ls__buffer_take(t, (size_t)half);
    if (t->status) return NULL;
    float *each = memory->data;
    for (int64_t i = 0; i < half; i++) each[i] = frequency(rope, i, D);
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * D > LS__WORTH_THREADS / 16)
    for (int64_t r = 0; r < rows; r++) {
        float position = (float)((first ? first[r / length] : 0) + r % length);
        float *cosines = y->data + r * D, *sines = cosines + half;
        for (int64_t i = 0; i < half; i++) {
            double sine, cosine;
            float angle = position * each[i];
            ls__math_sin_cos((double)angle, &sine, &cosine);
            cosines[i] = (float)cosine;
            sines[i] = (float)sine;
        }
    }
    ls__buffer_drop(t, memory);
    return y;
}

typedef struct rotary {
    const ls_tensor *table; /* (positions, D) */
    int64_t heads;
} rotary;

static void rotate_rows(const ls_tape *t, const rotary *s, float *x, int64_t rows, int64_t cols, bool back)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t D = s->table->shape[1], positions = s->table->shape[0];
#pragma omp parallel for num_threads(t->threads) schedule(static) if (rows * cols > LS__WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *angles = s->table->data + r % positions * D;
        for (int64_t h = 0; h < s->heads; h++)
            k->rotate(x + r * cols + h * D, angles, angles + D / 2, (size_t)(D / 2), back);
    }
}

static ls_status rotary_back(ls_tape *t, ls__node *n)
{
    const rotary *s = n->state;
    ls__buffer *d = n->out->grad;
    int64_t rows = ls__rows(n->out), cols = ls__cols(n->out);
    if (d->refs > 1) {
        if (!(d = ls__buffer_take(t, (size_t)(rows * cols)))) return t->status;
        memcpy(d->data, n->out->grad->data, (size_t)(rows * cols) * sizeof(float));
        ls__buffer_drop(t, n->out->grad);
        n->out->grad = d;
    }
    rotate_rows(t, s, d->data, rows, cols, true);
    return ls__grad_share(t, n->in[0], d);
}
static const ls__operation op_rotary = { "rotary", rotary_back };

ls_tensor *ls_rotary(ls_tape *t, ls_tensor *x, const ls_tensor *table, int heads)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, table)) return NULL;
    int64_t rows = ls__rows(x), cols = ls__cols(x);
    if (table->dims != 2 || rows % table->shape[0] || heads < 1 || cols < heads * table->shape[1])
        return ls__shape_error(t, "rotary", "input", x->dims, x->shape, "table", table->dims, table->shape,
                               "rows must be a multiple of the positions, and each have room for the heads");
    bool in_place = x->memory && x->memory->refs == 1 && x->maker && x->maker->unread;
    if (t->pass.mode == LS_PASS_EVAL || t->discarding) in_place = x->memory && x->memory->refs == 1;
    ls_tensor *y = in_place ? ls__view(t, x->data, x->dims, x->shape) : ls__result(t, x->dims, x->shape);
    if (!y) return NULL;
    if (in_place) {
        y->memory = x->memory;
        y->memory->refs++;
    } else {
        memcpy(y->data, x->data, (size_t)(rows * cols) * sizeof *y->data);
    }
    rotary s = { table, heads };
    rotate_rows(t, &s, y->data, rows, cols, false);
    return ls__tape_record(t, y,
                           &(ls__tape_record_args){
                               .op = &op_rotary, .in = { x }, .state = &s, .state_bytes = sizeof s, .unread = true });
}
