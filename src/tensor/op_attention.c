/* Multi-head attention.
 *
 * A task is QUERIES rows of queries of one head. Its scores against all the keys it may see fill a strip of scratch,
 * (QUERIES, T), so memory grows linearly in T and the (T, T) matrix never exists. What lies above the diagonal in
 * whole strips is not computed. Forward keeps two numbers per row, the maximum and 1/sum of its softmax; backward
 * computes the strip's scores again from them.
 *
 * In backward a task is a head: its key and value gradients are sums over the strips, in one order. The last strip goes
 * first: it sees every key, so it can overwrite where the others add. */
#include "tensor/tape.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include "tensor/blas.h"
#include "tensor/dropout.h"
#include "tensor/rows.h"

enum { QUERIES = 64 }; /* a strip for T = 1024 is 256 KiB: it stays in the L2 cache */

typedef struct attention {
    int64_t B, T, C, heads, D; /* D = C / heads */
    int64_t keys;              /* T, or more with a cache */
    bool full, drops;
    ls__dropping dropping;
    float factor;     /* 1 / sqrt(D) */
    ls__buffer *rows; /* (2, B, heads, T): factor * maximum, 1 / sum; NULL in an eval pass */
} attention;

/* The queries of one strip, and what they see. */
typedef struct strip {
    int64_t head;        /* b * heads + h */
    int64_t first, rows; /* queries */
    int64_t seen;        /* keys that the last of them sees */
} strip;

static strip strip_at(const attention *s, int64_t head, int64_t index)
{
    strip at = { .head = head, .first = index * QUERIES };
    at.rows = ls__min(QUERIES, s->T - at.first);
    at.seen = s->full ? s->keys : s->keys - s->T + at.first + at.rows;
    return at;
}

/* Keys that row r of the strip sees. */
static int64_t row_sees(const attention *s, const strip *at, int64_t r)
{
    return s->full ? s->keys : at->seen - at->rows + r + 1;
}

/* Drops elements [0, n) of row r of the strip. */
static void drop_row(const attention *s, const strip *at, int64_t r, float *x, int64_t n)
{
    uint64_t row = (uint64_t)(at->head * s->T + at->first + r);
    ls__drop(&s->dropping, x, x, (size_t)n, row * (uint64_t)s->keys);
}

/* Where a head's rows lie: keys and values may be in a cache. */
typedef struct places {
    const float *q, *k, *v;
    int64_t ldq, ldk;
} places;

static void forward_strip(const attention *s, const strip *at, const places *p, float *out, float *scores)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    float inverse[QUERIES];
    ls__gemm_one(&(ls__gemm){ .m = at->rows,
                              .n = at->seen,
                              .k = s->D,
                              .a = p->q + at->first * p->ldq,
                              .lda = p->ldq,
                              .b = p->k,
                              .ldb = p->ldk,
                              .b_trans = true,
                              .c = scores,
                              .ldc = at->seen });
    for (int64_t r = 0; r < at->rows; r++) {
        int64_t n = row_sees(s, at, r);
        float *row = scores + r * at->seen;
        float shift = s->factor * k->max(row, (size_t)n);
        inverse[r] = 1.0f / k->exp_shift_sum(row, (size_t)n, s->factor, shift);
        memset(row + n, 0, (size_t)(at->seen - n) * sizeof *row);
        if (s->drops) drop_row(s, at, r, row, n);
        if (s->rows) {
            float *kept = s->rows->data + at->head * s->T + at->first + r;
            kept[0] = shift;
            kept[s->B * s->heads * s->T] = inverse[r];
        }
    }
    out += at->first * s->C;
    ls__gemm_one(&(ls__gemm){ .m = at->rows,
                              .n = s->D,
                              .k = at->seen,
                              .a = scores,
                              .lda = at->seen,
                              .b = p->v,
                              .ldb = p->ldk,
                              .c = out,
                              .ldc = s->C });
    for (int64_t r = 0; r < at->rows; r++) k->scale(out + r * s->C, inverse[r], out + r * s->C, (size_t)s->D);
}

/* Probabilities and gradients of the scores of a strip, from the scores in p and the gradients of the probabilities
 * in ds. */
static void softmax_back(const attention *s, const strip *at, float *p, float *ds, const float *dy, const float *y)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t r = 0; r < at->rows; r++) {
        int64_t n = row_sees(s, at, r), unseen = at->seen - n;
        const float *kept = s->rows->data + at->head * s->T + at->first + r;
        float *prow = p + r * at->seen, *dsrow = ds + r * at->seen;
        float d = k->dot(dy + r * s->C, y + r * s->C, (size_t)s->D);
        if (s->drops) drop_row(s, at, r, dsrow, n);
        k->softmax_back(prow, dsrow, (size_t)n, s->factor, kept[0], kept[s->B * s->heads * s->T], d);
        if (s->drops) drop_row(s, at, r, prow, n);
        memset(prow + n, 0, (size_t)unseen * sizeof *prow);
        memset(dsrow + n, 0, (size_t)unseen * sizeof *dsrow);
    }
}

/* One head: x and dx are its queries in qkv and in the gradient, y and dy its part of the result; add: to what dx is.
 */
static void head_back(const attention *s, int64_t head, const float *x, float *dx, const float *y, const float *dy,
                      bool add, float *scratch)
{
    int64_t C = s->C, D = s->D, ld = 3 * C;
    for (int64_t i = (s->T - 1) / QUERIES; i >= 0; i--) {
        strip at = strip_at(s, head, i);
        bool last = i == (s->T - 1) / QUERIES;
        int64_t n = at.seen;
        float *p = scratch, *ds = scratch + QUERIES * s->T; /* (rows, n) each */
        const float *q = x + at.first * ld, *dyi = dy + at.first * C;
        ls__gemm_one(&(ls__gemm){ .m = at.rows,
                                  .n = n,
                                  .k = D,
                                  .a = q,
                                  .lda = ld,
                                  .b = x + C,
                                  .ldb = ld,
                                  .b_trans = true,
                                  .c = p,
                                  .ldc = n });
        ls__gemm_one(&(ls__gemm){ .m = at.rows,
                                  .n = n,
                                  .k = D,
                                  .a = dyi,
                                  .lda = C,
                                  .b = x + 2 * C,
                                  .ldb = ld,
                                  .b_trans = true,
                                  .c = ds,
                                  .ldc = n });
        softmax_back(s, &at, p, ds, dyi, y + at.first * C);
        ls__gemm_one(&(ls__gemm){ .m = at.rows,
                                  .n = D,
                                  .k = n,
                                  .a = ds,
                                  .lda = n,
                                  .b = x + C,
                                  .ldb = ld,
                                  .c = dx + at.first * ld,
                                  .ldc = ld,
                                  .alpha = s->factor,
                                  .beta = add });
        ls__gemm_one(&(ls__gemm){ .m = n,
                                  .n = D,
                                  .k = at.rows,
                                  .a = ds,
                                  .lda = n,
                                  .a_trans = true,
                                  .b = q,
                                  .ldb = ld,
                                  .c = dx + C,
                                  .ldc = ld,
                                  .alpha = s->factor,
                                  .beta = add || !last });
        ls__gemm_one(&(ls__gemm){ .m = n,
                                  .n = D,
                                  .k = at.rows,
                                  .a = p,
                                  .lda = n,
                                  .a_trans = true,
                                  .b = dyi,
                                  .ldb = C,
                                  .c = dx + 2 * C,
                                  .ldc = ld,
                                  .beta = add || !last });
    }
}

static ls_status attention_back(ls_tape *t, ls__node *n)
{
    const attention *s = n->state;
    const float *x = n->in[0]->data, *y = n->out->data, *dy = n->out->grad->data;
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    size_t each = (size_t)(2 * QUERIES * s->T);
    ls__buffer *scratch = ls__buffer_take(t, each * (size_t)t->threads);
    if (t->status) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t head = 0; head < s->B * s->heads; head++) {
        int64_t b = head / s->heads, h = head % s->heads;
        int64_t in = b * s->T * 3 * s->C + h * s->D, out = b * s->T * s->C + h * s->D;
        head_back(s, head, x + in, dx + in, y + out, dy + out, add,
                  scratch->data + each * (size_t)omp_get_thread_num());
    }
    ls__buffer_drop(t, scratch);
    ls__buffer_drop(t, s->rows);
    return LS_OK;
}

static const ls__op op_attention = { "attention", attention_back };

/* Copies the new keys and values behind those of the cache. */
static bool extend_cache(ls_tape *t, const attention *s, ls_kv_cache *cache, const float *qkv)
{
    if (!t->pass.eval || s->B != 1 || s->full || cache->length + s->T > cache->capacity) {
        ls__tape_fail(t,
                      ls__fail(LS_EINVAL,
                               "attention: %lld x %lld tokens with a cache of %lld of %lld rows; a cache needs an "
                               "eval pass, one causal sequence, and room",
                               (long long)s->B, (long long)s->T, (long long)cache->length, (long long)cache->capacity));
        return false;
    }
    for (int64_t i = 0; i < s->T; i++) {
        int64_t to = (cache->length + i) * s->C;
        memcpy(cache->k + to, qkv + i * 3 * s->C + s->C, (size_t)s->C * sizeof(float));
        memcpy(cache->v + to, qkv + i * 3 * s->C + 2 * s->C, (size_t)s->C * sizeof(float));
    }
    cache->length += s->T;
    return true;
}

static void attention_forward(ls_tape *t, const attention *s, const float *qkv, const ls_kv_cache *cache, float *out,
                              float *scratch)
{
    int64_t C = s->C, strips = (s->T + QUERIES - 1) / QUERIES;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < s->B * s->heads * strips; task++) {
        int64_t head = task / strips, b = head / s->heads, h = head % s->heads;
        strip at = strip_at(s, head, strips - 1 - task % strips); /* the longest first */
        const float *x = qkv + b * s->T * 3 * C + h * s->D;
        places p = { .q = x, .ldq = 3 * C, .k = x + C, .v = x + 2 * C, .ldk = 3 * C };
        if (cache) p.k = cache->k + h * s->D, p.v = cache->v + h * s->D, p.ldk = C;
        forward_strip(s, &at, &p, out + b * s->T * C + h * s->D,
                      scratch + (size_t)(QUERIES * s->keys) * (size_t)omp_get_thread_num());
    }
}

ls_tensor *ls_attention(ls_tape *t, ls_tensor *qkv, const ls_attention_options *o)
{
    if (!ls__begin(t, qkv, qkv)) return NULL;
    char text[LS__SHAPE_TEXT];
    if (qkv->dims != 3 || o->heads < 1 || qkv->shape[2] % (3 * (int64_t)o->heads))
        return ls__tape_fail(t, ls__fail(LS_EINVAL,
                                         "attention: input %s does not fit %d heads; it must be (B, T, 3 C) "
                                         "with C a multiple of the heads",
                                         ls__shape_text(text, qkv->dims, qkv->shape), o->heads));
    if (!(o->dropout >= 0 && o->dropout < 1))
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "attention: dropout is %g; it must be at least 0 and below 1",
                                         (double)o->dropout));
    attention s = {
        .B = qkv->shape[0], .T = qkv->shape[1], .C = qkv->shape[2] / 3, .heads = o->heads, .full = o->full
    };
    s.D = s.C / s.heads;
    s.keys = s.T;
    s.factor = 1.0f / sqrtf((float)s.D);
    s.drops = o->dropout > 0 && !t->pass.eval;
    if (s.drops) s.dropping = ls__dropping_next(t, o->dropout);
    if (o->cache) {
        if (!extend_cache(t, &s, o->cache, qkv->data)) return NULL;
        s.keys = o->cache->length;
    }
    double pairs = (double)(s.B * s.heads * s.T) * (double)s.keys * (s.full ? 1 : 0.5);
    ls__record_args record = {
        .op = &op_attention, .in = { qkv }, .state = &s, .state_bytes = sizeof s, .flops = 4 * pairs * (double)s.D
    };
    ls_tensor *y = ls__result(t, 3, (int64_t[]){ s.B, s.T, s.C });
    ls__buffer *scratch = ls__buffer_take(t, (size_t)(QUERIES * s.keys) * (size_t)t->threads);
    if (ls__will_record(t, &record)) s.rows = ls__buffer_take(t, (size_t)(2 * s.B * s.heads * s.T));
    if (t->status) return NULL;
    attention_forward(t, &s, qkv->data, o->cache, y->data, scratch->data);
    ls__buffer_drop(t, scratch);
    return ls__record(t, y, &record);
}
