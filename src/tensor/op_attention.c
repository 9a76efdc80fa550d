/* Multi-head attention.
 *
 * A task is one head of one sequence. It packs the head's keys and values once, then processes the queries in strips of STRIP rows.
 * The scores of a strip are scratch memory of (STRIP, T), so memory is linear in T and the (T, T) matrix is never stored. Scores
 * above the diagonal are not computed, to within GROUP rows and a panel of columns. Forward keeps two numbers per row, the maximum
 * and 1/sum of its softmax; backward recomputes the strip's scores from them.
 *
 * The gradients of keys and values are sums over the strips. The last strip is processed first: it attends to every key,
 * so it can overwrite where the others add. With a window it does not, so the sums begin with zeros.
 *
 * Heads may share keys and values (grouped queries). Each head then sums its own gradients of them, and the sums of a group are
 * added in the order of the heads, so that heads remain tasks of their own. */
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
    DIRECT = 4,            /* up to this many queries are multiplied without packing */
    DIRECT_WORK = 1 << 18, /* multiplications from which several threads share even those */
};

typedef struct attention {
    int64_t B, T, C, heads, D; /* D = C / heads */
    int64_t kv_heads, row;     /* floats of a row of qkv: (heads + 2 kv_heads) D */
    int64_t window;            /* keys that a query attends to at most */
    int64_t keys;              /* T, or more with a cache, or those of a sequence without its padding */
    int32_t *lengths;          /* (B): keys of each sequence; NULL: T */
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
    int64_t from;        /* the first key that the first query attends to, rounded down to a panel */
    int64_t seen;        /* the end of the keys that the last query attends to */
    int64_t ld;          /* of scores */
} strip;

static strip strip_at(const attention *s, int64_t head, int64_t index)
{
    strip at = { .head = head, .first = index * STRIP };
    at.rows = ls__min(STRIP, s->T - at.first);
    at.seen = s->full ? s->keys : s->keys - s->T + at.first + at.rows;
    int64_t before = at.seen - at.rows + 1 - s->window; /* keys that the first query no longer attends to */
    at.from = before > 0 ? before / LS__PANEL * LS__PANEL : 0;
    at.ld = scores_ld(at.seen);
    return at;
}

/* The end of the keys that row r of the strip attends to. */
static int64_t row_sees(const attention *s, const strip *at, int64_t r)
{
    return s->full ? s->keys : at->seen - at->rows + r + 1;
}

/* The first of them. */
static int64_t row_from(const attention *s, const strip *at, int64_t r)
{
    int64_t before = row_sees(s, at, r) - s->window;
    return before > 0 ? before : 0;
}

/* Applies dropout to elements [0, n) of row r of the strip. */
static void drop_row(const attention *s, const strip *at, int64_t r, float *x, int64_t n)
{
    uint64_t row = (uint64_t)(at->head * s->T + at->first + r);
    ls__dropout_apply(&s->dropping, x, x, (size_t)n, row * (uint64_t)s->T); /* a training pass has no cache */
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
    for (int64_t j = at->from, cols; j < at->seen; j += cols) {
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
            int64_t rows = ls__min(GROUP, at->rows - r), n = row_sees(s, at, r + rows - 1) - at->from;
            ls__left left = { scores + r * at->ld + at->from, at->ld, 1, k->rows * at->ld };
            k->panel_product(out + r * ldo + j, ldo, &left, panels + j * s->keys + at->from * LS__PANEL, s->keys, rows,
                             ls__min(2 * LS__PANEL, s->D - j), n, add);
        }
}

/* out (seen, D) = (add: out +) scores^T (seen, rows) times panels (rows, D): each key with the queries that see it. */
static void spread_rows(const attention *s, const strip *at, const float *scores, const float *panels, float *out,
                        int64_t ldo, bool add)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (int64_t i = at->from; i < at->seen; i += GROUP) {
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
    for (int64_t j = at->from; j < at->seen; j += 2 * LS__PANEL) {
        int64_t cols = ls__min(2 * LS__PANEL, at->seen - j);
        k->pack_transposed(panels, p->k + j * p->ldk, p->ldk, s->D, cols);
        k->panel_product(scores + j, at->ld, &left, panels, s->D, at->rows, cols, s->D, false);
    }
}

static void mix_directly(const attention *s, const strip *at, const places *p, const float *scores, float *out)
{
    ls__nn_kernels_best()->direct_product(out, s->C, scores + at->from, at->ld, 1, p->v + at->from * p->ldk, p->ldk,
                                          at->rows, s->D, at->seen - at->from, false);
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
        int64_t from = row_from(s, at, r), whole = round_up(n, LS__PANEL) - at->from;
        float *row = scores + r * at->ld, *first = row + at->from;
        for (int64_t j = at->from; j < from; j++) row[j] = UNSEEN;
        for (int64_t j = n; j < at->from + whole; j++) row[j] = UNSEEN;
        float shift = s->factor * k->max(first, (size_t)whole);
        inverse[r] = 1.0f / k->exp_shift_sum(first, (size_t)whole, s->factor, shift);
        memset(first, 0, (size_t)(from - at->from) * sizeof *row);
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
        k->softmax_back(prow + at->from, dsrow + at->from, (size_t)(round_up(n, LS__PANEL) - at->from), s->factor,
                        kept[0], kept[s->B * s->heads * s->T], d);
        if (s->drops) drop_row(s, at, r, prow, n);
        size_t before = (size_t)(row_from(s, at, r) - at->from) * sizeof *prow;
        memset(prow + at->from, 0, before);
        memset(dsrow + at->from, 0, before);
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

/* The places of a head in qkv (or its gradient), x being those of its sequence. */
static places places_in(const attention *s, const float *x, int64_t h)
{
    int64_t group = h / (s->heads / s->kv_heads);
    const float *k = x + (s->heads + group) * s->D;
    return (places){ .q = x + h * s->D, .ldq = s->row, .k = k, .v = k + s->kv_heads * s->D, .ldk = s->row };
}

/* Where a head's gradients go; ldk is that of keys and values. */
typedef struct targets {
    float *q, *k, *v;
    int64_t ldk;
    bool add_q, add_kv; /* to their contents */
} targets;

/* One head: y and dy are its part of the result. */
static void head_back(const attention *s, int64_t head, const places *x, const targets *to, const float *y,
                      const float *dy, const scratch *w)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t C = s->C, last = (s->T - 1) / STRIP;
    bool add = to->add_kv;
    bool windowed = s->window < s->T;
    for (int64_t i = windowed ? 0 : s->keys; !add && i < s->T; i++) {
        memset(to->k + i * to->ldk, 0, (size_t)s->D * sizeof(float));
        memset(to->v + i * to->ldk, 0, (size_t)s->D * sizeof(float));
    }
    add = add || windowed;
    k->pack_transposed(w->kt, x->k, x->ldk, s->D, s->keys);
    k->pack_transposed(w->vt, x->v, x->ldk, s->D, s->keys);
    k->pack(w->k, x->k, x->ldk, s->keys, s->D);
    for (int64_t i = last; i >= 0; i--) {
        strip at = strip_at(s, head, i);
        const float *q = x->q + at.first * x->ldq, *dyi = dy + at.first * C;
        fetch_rows(y + at.first * C, C, at.rows, s->D); /* for softmax_back() */
        k->pack(w->q, q, x->ldq, at.rows, s->D);
        k->pack(w->dy, dyi, C, at.rows, s->D);
        score_rows(s, &at, q, x->ldq, w->kt, w->p);
        score_rows(s, &at, dyi, C, w->vt, w->ds);
        softmax_back(s, &at, w->p, w->ds, dyi, y + at.first * C);
        mix_rows(s, &at, w->ds, w->k, to->q + at.first * s->row, s->row, to->add_q);
        spread_rows(s, &at, w->ds, w->q, to->k, to->ldk, add || i != last);
        spread_rows(s, &at, w->p, w->dy, to->v, to->ldk, add || i != last);
    }
}

/* The gradients of keys and values, which are equally far apart in `parts` (B, heads, 2, T, D) and in dx: sums over the heads
 * of a group. */
static void fold_groups(ls_tape *t, const attention *s, const float *parts, float *dx, bool add)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t each = s->heads / s->kv_heads, part = 2 * s->T * s->D;
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t i = 0; i < s->B * s->T; i++) {
        int64_t b = i / s->T, row = i % s->T;
        for (int64_t kv = 0; kv < 2 * s->kv_heads; kv++) {
            int64_t group = kv % s->kv_heads, which = kv / s->kv_heads;
            const float *from = parts + (b * s->heads + group * each) * part + (which * s->T + row) * s->D;
            float *to = dx + i * s->row + (s->heads + kv) * s->D;
            if (!add) memcpy(to, from, (size_t)s->D * sizeof *to);
            for (int64_t h = add ? 0 : 1; h < each; h++) k->add(to, to, from + h * part, (size_t)s->D);
        }
    }
}

static ls_status attention_back(ls_tape *t, ls__node *n)
{
    const attention *s = n->state;
    const float *x = n->in[0]->data, *y = n->out->data, *dy = n->out->grad->data;
    bool add, grouped = s->heads != s->kv_heads;
    float *dx = ls__grad(t, n->in[0], &add);
    size_t each = scratch_size(s, true);
    ls__buffer *memory = ls__buffer_take(t, each * (size_t)t->threads), *parts = NULL;
    if (grouped) parts = ls__buffer_take(t, (size_t)(2 * s->B * s->heads * s->T * s->D));
    if (t->status) return t->status;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t head = 0; head < s->B * s->heads; head++) {
        int64_t b = head / s->heads, h = head % s->heads, in = b * s->T * s->row, out = b * s->T * s->C + h * s->D;
        scratch w = scratch_at(s, true, memory->data + each * (size_t)omp_get_thread_num());
        places from = places_in(s, x + in, h);
        targets to = { .q = dx + in + h * s->D, .ldk = s->row, .add_q = add, .add_kv = add };
        to.k = to.q + s->heads * s->D;
        to.v = to.k + s->kv_heads * s->D;
        if (grouped) {
            to.k = parts->data + head * 2 * s->T * s->D;
            to.v = to.k + s->T * s->D;
            to.ldk = s->D;
            to.add_kv = false;
        }
        attention own = *s;
        if (s->lengths) own.keys = s->lengths[b];
        head_back(&own, head, &from, &to, y + out, dy + out, &w);
        ls__tick_now(&t->tick);
    }
    if (grouped) fold_groups(t, s, parts->data, dx, add);
    ls__buffer_drop(t, parts);
    ls__buffer_drop(t, memory);
    ls__buffer_drop(t, s->rows);
    return LS_OK;
}

static const ls__operation op_attention = { "attention", attention_back };

/* Appends the new keys and values of each sequence to its cache. */
static bool extend_caches(ls_tape *t, const attention *s, ls_kv_cache *caches, const float *qkv)
{
    size_t width = (size_t)(s->kv_heads * s->D);
    for (int64_t b = 0; b < s->B; b++) {
        const ls_kv_cache *c = &caches[b];
        if (t->pass.mode == LS_PASS_EVAL && !s->full && c->length + s->T <= c->capacity) continue;
        ls__tape_fail(t,
                      ls__fail(LS_EINVAL,
                               "attention: %lld tokens with a cache of %lld of %lld rows; a cache needs an eval pass, "
                               "causal attention, and room",
                               (long long)s->T, (long long)c->length, (long long)c->capacity));
        return false;
    }
    for (int64_t i = 0; i < s->B * s->T; i++) {
        ls_kv_cache *c = &caches[i / s->T];
        const float *k = qkv + i * s->row + s->heads * s->D;
        memcpy(c->k + (size_t)c->length * width, k, width * sizeof(float));
        memcpy(c->v + (size_t)c->length * width, k + width, width * sizeof(float));
        c->length++;
    }
    return true;
}

static void attention_forward(ls_tape *t, const attention *s, const float *qkv, const ls_kv_cache *caches, float *out,
                              float *memory)
{
    size_t each = scratch_size(s, false);
    int64_t work = s->B * s->heads * s->T * s->keys * s->D;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1) if (s->T > DIRECT || work > DIRECT_WORK)
    for (int64_t head = 0; head < s->B * s->heads; head++) {
        int64_t b = head / s->heads, h = head % s->heads;
        attention own = *s;
        places p = places_in(s, qkv + b * s->T * s->row, h);
        if (caches) {
            int64_t at = h / (s->heads / s->kv_heads) * s->D;
            own.keys = caches[b].length;
            p.k = caches[b].k + at, p.v = caches[b].v + at, p.ldk = s->kv_heads * s->D;
        } else if (s->lengths) {
            own.keys = s->lengths[b];
        }
        scratch w = scratch_at(&own, false, memory + each * (size_t)omp_get_thread_num());
        head_forward(&own, head, &p, out + b * s->T * s->C + h * s->D, &w);
    }
}

/* Fills in s; fails the pass for what does not fit. */
static bool read_options(ls_tape *t, const ls_tensor *qkv, const ls_attention_options *o, attention *s)
{
    char text[LS__SHAPE_TEXT];
    int64_t kv = o->kv_heads ? o->kv_heads : o->heads;
    bool fits = qkv->dims == 3 && o->heads >= 1 && kv >= 1 && o->heads % kv == 0;
    if (!fits || qkv->shape[2] % (o->heads + 2 * kv)) {
        ls__tape_fail(t, ls__fail(LS_EINVAL,
                                  "attention: input %s does not fit %d heads and %lld of keys; it must be (B, T, "
                                  "(heads + 2 kv_heads) D), with heads a multiple of kv_heads",
                                  ls__shape_text(text, qkv->dims, qkv->shape), o->heads, (long long)kv));
        return false;
    }
    if (!(o->dropout >= 0 && o->dropout < 1) || o->window < 0 || (o->window && o->full)) {
        ls__tape_fail(t, ls__fail(LS_EINVAL,
                                  "attention: dropout is %g, the window %lld; dropout must be at least 0 and below 1, "
                                  "the window at least 0 and causal",
                                  (double)o->dropout, (long long)o->window));
        return false;
    }
    *s = (attention){ .B = qkv->shape[0], .T = qkv->shape[1], .heads = o->heads, .kv_heads = kv, .full = o->full };
    s->row = qkv->shape[2];
    s->D = s->row / (s->heads + 2 * kv);
    s->C = s->heads * s->D;
    s->window = o->window ? o->window : INT64_MAX / 2;
    s->keys = s->T;
    s->factor = 1.0f / sqrtf((float)s->D);
    return true;
}

/* Copies the lengths; fails the pass for those that do not fit. */
static bool read_lengths(ls_tape *t, const ls_attention_options *o, attention *s)
{
    if (!o->lengths) return true;
    if (!(s->lengths = ls__tape_array(t, (size_t)s->B, sizeof *s->lengths))) return false;
    for (int64_t b = 0; b < s->B; b++) {
        s->lengths[b] = o->lengths[b];
        if (s->full && o->lengths[b] >= 1 && o->lengths[b] <= s->T) continue;
        ls__tape_fail(t, ls__fail(LS_EINVAL,
                                  "attention: sequence %lld of %lld tokens has a length of %d; lengths must be from 1 "
                                  "to the tokens, and are for full attention",
                                  (long long)b, (long long)s->T, o->lengths[b]));
        return false;
    }
    return true;
}

ls_tensor *ls_attention(ls_tape *t, ls_tensor *qkv, const ls_attention_options *o)
{
    LS__FLUSH_DENORMALS();
    attention s;
    if (!ls__operation_begin(t, qkv, qkv)) return NULL;
    if (!o) return ls__tape_fail(t, ls__fail(LS_EINVAL, "attention: options must not be NULL: heads is required"));
    if (!read_options(t, qkv, o, &s) || !read_lengths(t, o, &s)) return NULL;
    s.drops = o->dropout > 0 && t->pass.mode != LS_PASS_EVAL;
    if (s.drops) s.dropping = ls__dropout_next(t, o->dropout);
    if (o->cache && !extend_caches(t, &s, o->cache, qkv->data)) return NULL;
    for (int64_t b = 0; b < s.B && o->cache; b++)
        if (o->cache[b].length > s.keys) s.keys = o->cache[b].length;
    double seen = (double)s.keys * (s.full ? 1 : 0.5);
    if ((double)s.window < seen) seen = (double)s.window;
    double pairs = (double)(s.B * s.heads * s.T) * seen;
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
