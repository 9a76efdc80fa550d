/* Multi-head attention.
 *
 * A task is one head of one sequence. It packs the head's keys and values once, then processes the queries in strips of STRIP
 * rows. The scores of a strip are scratch memory of (STRIP, T), so memory is linear in T and the (T, T) matrix is never stored. Scores above the diagonal are not computed, to within GROUP rows and
 * a panel of columns. Forward keeps two numbers per row, the maximum and 1/sum of its softmax; backward recomputes the
 * strip's scores from them.
 *
 * The gradients of keys and values are sums over the strips. The last strip is processed first: it attends to every key,
 * so it can overwrite where the others add. */
#include "tensor/tape.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include "tensor/dropout.h"
#include "tensor/rows.h"

enum {
    STRIP = 72, /* scores of a strip for T = 1024 are 288 KiB: they stay in the L2 cache */
    GROUP =
        12, /* rows that are multiplied at a time, zeros included: the same on every CPU, or signs of zeros differ */
    DIRECT = 4, /* up to this many queries are multiplied without packing */
};

typedef struct attention {
    int64_t B, T, C, heads, D; /* D = C / heads */
    int64_t keys;              /* T, or more with a cache */
    bool full, drops;
    ls__dropout_mask dropping;
    float factor;     /* 1 / sqrt(D) */
    ls__buffer *rows; /* (2, B, heads, T): factor * maximum, 1 / sum; NULL in an eval pass */
} attention;

static int64_t round_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Floats from one row of scores to the next: panels, and an odd number of cache lines, so that the elements of a
 * column are in different sets of the cache. */
static int64_t scores_ld(int64_t keys)
{
    return (round_up(keys, LS__PANEL) / LS__PANEL | 1) * LS__PANEL;
}

/* The scratch of one thread, in floats. */
typedef struct scratch {
    float *k, *kt, *v, *vt; /* keys and values in panels, and transposed: forward has kt and v */
    float *q, *dy;          /* a strip of them in panels; backward */
    float *p, *ds;          /* scores: (STRIP, scores_ld(keys)); forward has p */
} scratch;

static size_t scratch_size(const attention *s, bool backward)
{
    int64_t keys = round_up(s->keys, LS__PANEL), D = round_up(s->D, LS__PANEL);
    int64_t ld = scores_ld(s->keys);
    return (size_t)(backward ? 4 * keys * D + 2 * STRIP * D + 2 * STRIP * ld : 2 * keys * D + STRIP * ld);
}

static scratch scratch_at(const attention *s, bool backward, float *at)
{
    int64_t keys = round_up(s->keys, LS__PANEL), D = round_up(s->D, LS__PANEL), ld = scores_ld(s->keys);
    scratch w = { .kt = at, .v = at + keys * D, .p = at + 2 * keys * D };
    if (!backward) return w;
    w.ds = w.p + STRIP * ld;
    w.k = w.ds + STRIP * ld;
    w.vt = w.k + keys * D;
    w.q = w.vt + keys * D;
    w.dy = w.q + STRIP * D;
    return w;
}

/* The queries of one strip, and the keys that they attend to. */
typedef struct strip {
    int64_t head;        /* b * heads + h */
    int64_t first, rows; /* queries */
    int64_t seen;        /* keys that the last query attends to */
    int64_t ld;          /* of scores */
} strip;

static strip strip_at(const attention *s, int64_t head, int64_t index)
{
    strip at = { .head = head, .first = index * STRIP };
    at.rows = ls__min(STRIP, s->T - at.first);
    at.seen = s->full ? s->keys : s->keys - s->T + at.first + at.rows;
    at.ld = scores_ld(at.seen);
    return at;
}

/* Keys that row r of the strip attends to. */
static int64_t row_sees(const attention *s, const strip *at, int64_t r)
{
    return s->full ? s->keys : at->seen - at->rows + r + 1;
}

/* Applies dropout to elements [0, n) of row r of the strip. */
static void drop_row(const attention *s, const strip *at, int64_t r, float *x, int64_t n)
{
    uint64_t row = (uint64_t)(at->head * s->T + at->first + r);
    ls__dropout_apply(&s->dropping, x, x, (size_t)n, row * (uint64_t)s->keys);
}

/* The rows of a head; keys and values may be in a cache. */
typedef struct places {
    const float *q, *k, *v;
    int64_t ldq, ldk;
} places;

/* scores (rows, seen) = a (rows, D) times panels (D, keys), where they are seen: panel after panel, each for all rows. */
static void score_rows(const attention *s, const strip *at, const float *a, int64_t lda, const float *panels,
                       float *scores)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t j = 0, cols; j < at->seen; j += cols) {
        cols = ls__min(2 * LS__PANEL, round_up(at->seen, LS__PANEL) - j);
        int64_t r = s->full ? 0 : j - (at->seen - at->rows); /* the first row that attends to it */
        r = r < 0 ? 0 : r / GROUP * GROUP;
        ls__left left = { a + r * lda, lda, 1, k->rows * lda };
        k->panel_product(scores + r * at->ld + j, at->ld, &left, panels + j * s->D, s->D, at->rows - r, cols, s->D,
                         false);
    }
}

/* out (rows, D) = (add: out +) scores (rows, seen) times panels (keys, D). */
static void mix_rows(const attention *s, const strip *at, const float *scores, const float *panels, float *out,
                     int64_t ldo, bool add)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t j = 0; j < s->D; j += 2 * LS__PANEL)
        for (int64_t r = 0; r < at->rows; r += GROUP) {
            int64_t rows = ls__min(GROUP, at->rows - r), n = row_sees(s, at, r + rows - 1);
            ls__left left = { scores + r * at->ld, at->ld, 1, k->rows * at->ld };
            k->panel_product(out + r * ldo + j, ldo, &left, panels + j * s->keys, s->keys, rows,
                             ls__min(2 * LS__PANEL, s->D - j), n, add);
        }
}

/* out (seen, D) = (add: out +) scores^T (seen, rows) times panels (rows, D): each key with the queries that see it. */
static void spread_rows(const attention *s, const strip *at, const float *scores, const float *panels, float *out,
                        int64_t ldo, bool add)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t i = 0; i < at->seen; i += GROUP) {
        int64_t rows = ls__min(GROUP, at->seen - i), from = s->full ? 0 : i - (at->seen - at->rows);
        if (from < 0) from = 0;
        ls__left left = { scores + from * at->ld + i, 1, at->ld, k->rows };
        k->panel_product(out + i * ldo, ldo, &left, panels + from * LS__PANEL, at->rows, rows, s->D, at->rows - from,
                         add);
    }
}

/* The same for a few queries: two panels of keys are packed at a time and used at once, values are read in place. */
static void score_directly(const attention *s, const strip *at, const places *p, float *panels, float *scores)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    ls__left left = { p->q + at->first * p->ldq, p->ldq, 1, k->rows * p->ldq };
    for (int64_t j = 0; j < at->seen; j += 2 * LS__PANEL) {
        int64_t cols = ls__min(2 * LS__PANEL, at->seen - j);
        k->pack_transposed(panels, p->k + j * p->ldk, p->ldk, s->D, cols);
        k->panel_product(scores + j, at->ld, &left, panels, s->D, at->rows, cols, s->D, false);
    }
}

static void mix_directly(const attention *s, const strip *at, const places *p, const float *scores, float *out)
{
    ls__nn_kernels_best()->direct_product(out, s->C, scores, at->ld, 1, p->v, p->ldk, at->rows, s->D, at->seen, false);
}

/* Loops over a row of scores run to the end of its last panel, since the results for masked scores are not used. Only sums must not
 * include them, hence this value, whose exponential is negligible. */
static const float UNSEEN = -1e30f;

/* Scores become exp(score - maximum), zero to the end of the group where not seen; inverse gets 1/sum of each row. */
static void softmax_rows(const attention *s, const strip *at, float *scores, float *inverse)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t r = 0; r < at->rows; r++) {
        int64_t n = row_sees(s, at, r), zeros = ls__min(GROUP, at->seen - n);
        int64_t whole = round_up(n, LS__PANEL);
        float *row = scores + r * at->ld;
        for (int64_t j = n; j < whole; j++) row[j] = UNSEEN;
        float shift = s->factor * k->max(row, (size_t)whole);
        inverse[r] = 1.0f / k->exp_shift_sum(row, (size_t)whole, s->factor, shift);
        memset(row + n, 0, (size_t)zeros * sizeof *row);
        if (s->drops) drop_row(s, at, r, row, n);
        if (!s->rows) continue;
        float *kept = s->rows->data + at->head * s->T + at->first + r;
        kept[0] = shift;
        kept[s->B * s->heads * s->T] = inverse[r];
    }
}

static void head_forward(const attention *s, int64_t head, const places *p, float *out, const scratch *w)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    bool direct = s->T <= DIRECT;
    if (!direct) {
        k->pack_transposed(w->kt, p->k, p->ldk, s->D, s->keys);
        k->pack(w->v, p->v, p->ldk, s->keys, s->D);
    }
    for (int64_t i = 0; i * STRIP < s->T; i++) {
        strip at = strip_at(s, head, i);
        float inverse[STRIP], *to = out + at.first * s->C;
        if (direct)
            score_directly(s, &at, p, w->kt, w->p);
        else
            score_rows(s, &at, p->q + at.first * p->ldq, p->ldq, w->kt, w->p);
        softmax_rows(s, &at, w->p, inverse);
        if (direct)
            mix_directly(s, &at, p, w->p, to);
        else
            mix_rows(s, &at, w->p, w->v, to, s->C, false);
        for (int64_t r = 0; r < at.rows; r++) k->scale(to + r * s->C, inverse[r], to + r * s->C, (size_t)s->D);
    }
}

/* Probabilities and gradients of the scores of a strip, from the scores in p and the gradients of the probabilities
 * in ds. */
static void softmax_back(const attention *s, const strip *at, float *p, float *ds, const float *dy, const float *y)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t r = 0; r < at->rows; r++) {
        int64_t n = row_sees(s, at, r), zeros = ls__min(GROUP, at->seen - n);
        const float *kept = s->rows->data + at->head * s->T + at->first + r;
        float *prow = p + r * at->ld, *dsrow = ds + r * at->ld;
        float d = k->dot(dy + r * s->C, y + r * s->C, (size_t)s->D);
        if (s->drops) drop_row(s, at, r, dsrow, n);
        k->softmax_back(prow, dsrow, (size_t)round_up(n, LS__PANEL), s->factor, kept[0], kept[s->B * s->heads * s->T],
                        d);
        if (s->drops) drop_row(s, at, r, prow, n);
        memset(prow + n, 0, (size_t)zeros * sizeof *prow);
        memset(dsrow + n, 0, (size_t)zeros * sizeof *dsrow);
    }
}

/* A head's rows are far apart, so the CPU does not prefetch them. */
static void fetch_rows(const float *x, int64_t ld, int64_t rows, int64_t D)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < D; i += 16) __builtin_prefetch(x + r * ld + i);
}

/* One head: x and dx are its queries in qkv and in the gradient, y and dy its part of the result; add: to what dx is. */
static void head_back(const attention *s, int64_t head, const float *x, float *dx, const float *y, const float *dy,
                      bool add, const scratch *w)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t C = s->C, ld = 3 * C, last = (s->T - 1) / STRIP;
    k->pack_transposed(w->kt, x + C, ld, s->D, s->T);
    k->pack_transposed(w->vt, x + 2 * C, ld, s->D, s->T);
    k->pack(w->k, x + C, ld, s->T, s->D);
    for (int64_t i = last; i >= 0; i--) {
        strip at = strip_at(s, head, i);
        const float *q = x + at.first * ld, *dyi = dy + at.first * C;
        fetch_rows(y + at.first * C, C, at.rows, s->D); /* for softmax_back() */
        k->pack(w->q, q, ld, at.rows, s->D);
        k->pack(w->dy, dyi, C, at.rows, s->D);
        score_rows(s, &at, q, ld, w->kt, w->p);
        score_rows(s, &at, dyi, C, w->vt, w->ds);
        softmax_back(s, &at, w->p, w->ds, dyi, y + at.first * C);
        mix_rows(s, &at, w->ds, w->k, dx + at.first * ld, ld, add);
        spread_rows(s, &at, w->ds, w->q, dx + C, ld, add || i != last);
        spread_rows(s, &at, w->p, w->dy, dx + 2 * C, ld, add || i != last);
    }
}

static ls_status attention_back(ls_tape *t, ls__node *n)
{
    const attention *s = n->state;
    const float *x = n->in[0]->data, *y = n->out->data, *dy = n->out->grad->data;
    bool add;
    float *dx = ls__grad(t, n->in[0], &add);
    size_t each = scratch_size(s, true);
    ls__buffer *memory = ls__buffer_take(t, each * (size_t)t->threads);
    if (t->status) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t head = 0; head < s->B * s->heads; head++) {
        int64_t b = head / s->heads, h = head % s->heads;
        int64_t in = b * s->T * 3 * s->C + h * s->D, out = b * s->T * s->C + h * s->D;
        scratch w = scratch_at(s, true, memory->data + each * (size_t)omp_get_thread_num());
        head_back(s, head, x + in, dx + in, y + out, dy + out, add, &w);
        ls__tick_now(&t->tick);
    }
    ls__buffer_drop(t, memory);
    ls__buffer_drop(t, s->rows);
    return LS_OK;
}

static const ls__operation op_attention = { "attention", attention_back };

/* Appends the new keys and values to the cache. */
static bool extend_cache(ls_tape *t, const attention *s, ls_kv_cache *cache, const float *qkv)
{
    if (t->pass.mode != LS_PASS_EVAL || s->B != 1 || s->full || cache->length + s->T > cache->capacity) {
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
                              float *memory)
{
    int64_t C = s->C;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1) if (s->T > DIRECT)
    for (int64_t head = 0; head < s->B * s->heads; head++) {
        int64_t b = head / s->heads, h = head % s->heads;
        const float *x = qkv + b * s->T * 3 * C + h * s->D;
        places p = { .q = x, .ldq = 3 * C, .k = x + C, .v = x + 2 * C, .ldk = 3 * C };
        if (cache) p.k = cache->k + h * s->D, p.v = cache->v + h * s->D, p.ldk = C;
        scratch w = scratch_at(s, false, memory + scratch_size(s, false) * (size_t)omp_get_thread_num());
        head_forward(s, head, &p, out + b * s->T * C + h * s->D, &w);
    }
}

ls_tensor *ls_attention(ls_tape *t, ls_tensor *qkv, const ls_attention_options *o)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, qkv, qkv)) return NULL;
    char text[LS__SHAPE_TEXT];
    if (!o) return ls__tape_fail(t, ls__fail(LS_EINVAL, "attention: options must not be NULL: heads is required"));
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
    s.drops = o->dropout > 0 && t->pass.mode != LS_PASS_EVAL;
    if (s.drops) s.dropping = ls__dropout_next(t, o->dropout);
    if (o->cache) {
        if (!extend_cache(t, &s, o->cache, qkv->data)) return NULL;
        s.keys = o->cache->length;
    }
    double pairs = (double)(s.B * s.heads * s.T) * (double)s.keys * (s.full ? 1 : 0.5);
    ls__tape_record_args record = {
        .op = &op_attention,
        .in = { qkv },
        .state = &s,
        .state_bytes = sizeof s,
        .flops = 4 * pairs * (double)s.D,
        .back_flops = 10 * pairs * (double)s.D, /* scores, recomputed, and four gradients */
    };
    ls_tensor *y = ls__result(t, 3, (int64_t[]){ s.B, s.T, s.C });
    ls__buffer *memory = ls__buffer_take(t, scratch_size(&s, false) * (size_t)t->threads);
    if (ls__tape_will_record(t, &record)) s.rows = ls__buffer_take(t, (size_t)(2 * s.B * s.heads * s.T));
    if (t->status) return NULL;
    attention_forward(t, &s, qkv->data, o->cache, y->data, memory->data);
    ls__buffer_drop(t, memory);
    return ls__tape_record(t, y, &record);
}
