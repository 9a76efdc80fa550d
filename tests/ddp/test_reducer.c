/* The reducer on ranks that are threads: the canonical sum, bit for bit, for any spread of micro-batches over ranks; exact
 * means; and misuse that is reported. */
#include <math.h>
#include <unistd.h>
#include "comm/ranks.h"
#include "ddp/on_sum.h"
#include "ddp/reducer.h"
#include "lockstep/ddp.h"

enum { SPANS = 9, SLOTS = 8 };
static const size_t span_counts[SPANS] = { 5, 1000, 16, 1, 33333, 70, 2048, 0, 123 };
enum { ALL = 5 + 1000 + 16 + 1 + 33333 + 70 + 2048 + 0 + 123 };

/* Gradient of element k of span i in slot s: sizes differ wildly, so the order of additions shows. */
static float gradient(int s, size_t i, size_t k)
{
    uint32_t x = (uint32_t)((size_t)s * 2654435761u + i * 40503u + k * 9973u);
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    return ((float)(x & 0xffff) - 32768.0f) * ldexpf(1, (int)(x >> 28) - 8);
}

/* tree(n) = tree(m) + tree(n - m) over slots [begin, begin + n). */
static float tree(int begin, int n, size_t i, size_t k)
{
    if (n == 1) return gradient(begin, i, k);
    int m = 1;
    while (m * 2 < n) m *= 2;
    return tree(begin, m, i, k) + tree(begin + m, n - m, i, k);
}

typedef struct plan {
    int slots, steps;
    bool user_owned, shuffled;
    ls_ddp_options options;
} plan;

static void span_names(ls_span *spans)
{
    static const char *const names[SPANS] = { "a", "b", "c", "d", "e", "f", "g", "h", "i" };
    for (size_t i = 0; i < SPANS; i++) spans[i] = (ls_span){ .name = names[i], .count = span_counts[i] };
}

static int train(ls_world *world, void *arg, char *why)
{
    const plan *p = arg;
    ls_span spans[SPANS];
    static _Thread_local float own[ALL];
    span_names(spans);
    for (size_t i = 0, at = 0; i < SPANS && p->user_owned; at += span_counts[i++]) spans[i].grad = own + at;
    ls_ddp *ddp;
    ls_ddp_options o = p->options;
    o.slots = p->slots;
    need_ok(ls_ddp_open(&ddp, world, spans, SPANS, &o));
    int rank = ls_world_rank(world), each = p->slots / ls_world_size(world);
    for (int step = 0; step < p->steps; step++) {
        ls_ddp_result result = { 0 };
        for (int micro = 0; micro < each; micro++) {
            int slot = rank * each + micro;
            need_ok(ls_ddp_begin(ddp, micro + 1 < each ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, 1));
            for (size_t n = 0; n < SPANS; n++) {
                size_t i = p->shuffled ? (n * 4 + 2) % SPANS : n;
                float *grad = ls_ddp_grad(ddp, i);
                for (size_t k = 0; k < span_counts[i]; k++) grad[k] = gradient(slot + 100 * step, i, k);
                need_ok(ls_ddp_ready(ddp, i));
                need_ok(ls_ddp_poll(ddp));
            }
            need_ok(ls_ddp_finish(ddp, &result));
        }
        need(result.weight == p->slots && result.unused == 0, "weight %g, unused %lld", result.weight,
             (long long)result.unused);
        need(result.moved == (step == 0 && p->shuffled && !p->user_owned && !p->options.fixed_order),
             "step %d: moved is %d", step, result.moved);
        for (size_t i = 0; i < SPANS; i++)
            for (size_t k = 0; k < span_counts[i]; k++) {
                float sum = tree(100 * step, p->slots, i, k);
                float expected = o.keep_sums || p->slots == 1 ? sum : sum * (float)(1.0 / p->slots);
                float got = ls_ddp_grad(ddp, i)[k];
                need(!memcmp(&got, &expected, sizeof got), "step %d, span %zu, element %zu: %a, expected %a", step, i,
                     k, (double)got, (double)expected);
            }
    }
    ls_ddp_stats stats = ls_ddp_get_stats(ddp);
    need(stats.steps == p->steps && stats.micro_batches == (int64_t)p->steps * each, "stats");
    if (!o.no_overlap && stats.buckets > 1) need(stats.started_early > 0, "no bucket was started early");
    if (o.no_overlap) need(stats.started_early == 0, "%lld buckets were started early", (long long)stats.started_early);
    ls_ddp_free(&ddp);
    need(!ddp, "free leaves the pointer");
    return 0;
}

static void the_sum_does_not_depend_on_the_spread(void **state)
{
    (void)state;
    static const int spreads[][2] = { { 8, 1 },  { 8, 2 },  { 8, 4 },   { 8, 8 }, { 12, 1 },
                                      { 12, 3 }, { 12, 6 }, { 12, 12 }, { 7, 1 }, { 1, 1 } };
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        plan p = { .slots = spreads[i][0], .steps = 2, .options = { .bucket_bytes = 4096, .keep_sums = i % 2 } };
        on_ranks(spreads[i][1], train, &p, NULL);
        p.user_owned = true;
        on_ranks(spreads[i][1], train, &p, NULL);
    }
}

static void order_of_readiness_and_overlap_change_no_bit(void **state)
{
    (void)state;
    plan p = { .slots = 4, .steps = 3, .shuffled = true, .options = { .bucket_bytes = 1 << 14 } };
    on_ranks(2, train, &p, NULL);
    p.user_owned = true;
    on_ranks(2, train, &p, NULL);
    p.user_owned = false;
    p.options.fixed_order = true;
    on_ranks(2, train, &p, NULL);
    p.options.no_overlap = true;
    on_ranks(4, train, &p, NULL);
    p.options.first_bucket_bytes = p.options.bucket_bytes = 1; /* a bucket per span */
    p.options.no_overlap = false;
    on_ranks(4, train, &p, NULL);
}

/* ---- One update for all ranks of a machine. */

typedef struct weights {
    float *values;          /* memory that the ranks share */
    float *seen;            /* likewise: what on_sum was shown */
    _Atomic int64_t *count; /* likewise: of how many elements */
} weights;

static void descend(const weights *w, const float *sums, size_t elements)
{
    for (size_t i = 0; i < elements; i++) w->values[i] -= sums[i];
}

static void see(void *user, const float *sums, size_t begin, size_t end)
{
    const weights *w = user;
    memcpy(w->seen + begin, sums + begin, (end - begin) * sizeof *sums);
    atomic_fetch_add(w->count, (int64_t)(end - begin));
}

/* Two steps of gradient descent on shared weights: sums are read from the first rank, and seen while they are made. */
static int descend_together(ls_world *world, void *arg, char *why)
{
    bool seeing = *(bool *)arg;
    ls_span spans[SPANS];
    ls_ddp *ddp;
    span_names(spans);
    ls_ddp_options o = { .slots = SLOTS, .reduce_to_local_root = true, .keep_sums = true, .bucket_bytes = 4096 };
    need_ok(ls_ddp_open(&ddp, world, spans, SPANS, &o));
    void *memory[3];
    size_t elements = ddp->total;
    for (int i = 0; i < 3; i++)
        need_ok(ls__group_share(ls_world_group(world), elements * sizeof(float) + 8, &memory[i]));
    weights w = { memory[0], memory[1], memory[2] };
    if (seeing) need_ok(ls__ddp_on_sum(ddp, see, &w));
    int rank = ls_world_rank(world), each = SLOTS / ls_world_size(world);
    for (int step = 0; step < 2; step++) {
        for (int micro = 0; micro < each; micro++) {
            need_ok(ls_ddp_begin(ddp, micro + 1 < each ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, 1));
            for (size_t i = 0; i < SPANS; i++) {
                for (size_t k = 0; k < span_counts[i]; k++)
                    ls_ddp_grad(ddp, i)[k] = gradient(rank * each + micro + 100 * step, i, k);
                need_ok(ls_ddp_ready(ddp, i));
            }
            need_ok(ls_ddp_finish(ddp, NULL));
        }
        if (seeing) {
            int64_t count = atomic_load(w.count);
            need(count == (int64_t)elements * (step + 1), "step %d: %lld elements seen", step, (long long)count);
            need(!memcmp(w.seen, ls_ddp_reduced(ddp, SPANS - 1), elements * sizeof(float)),
                 "step %d: other sums were seen", step);
        }
        if (rank == 0) descend(&w, ls_ddp_reduced(ddp, SPANS - 1), elements);
        need_ok(ls_barrier(ls_world_group(world)));
        for (size_t i = 0; i < SPANS; i++)
            for (size_t k = 0; k < span_counts[i]; k++) {
                float expected = 0.0f - tree(0, SLOTS, i, k);
                if (step) expected -= tree(100, SLOTS, i, k);
                float got = w.values[ddp->offsets[i] + k];
                need(!memcmp(&got, &expected, sizeof got), "step %d, span %zu, element %zu: %a, expected %a", step, i,
                     k, (double)got, (double)expected);
            }
        need_ok(ls_barrier(ls_world_group(world)));
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void one_update_serves_all_ranks(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p *= 2)
        for (int seeing = 0; seeing < 2; seeing++) on_ranks(p, descend_together, &(bool){ seeing }, NULL);
}

/* ---- Means. */

static int uneven(ls_world *world, void *arg, char *why)
{
    ls_ddp_options o = { .grads_averaged = arg != NULL };
    ls_span span = { .name = "w", .count = 3 };
    ls_ddp *ddp;
    ls_ddp_result result;
    int rank = ls_world_rank(world);
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &o));
    /* Rank 0 has 3 samples in two micro-batches, rank 1 has 1 in two, rank 2 has run out. The gradient of a sample is 6
     * times its number. */
    static const double samples[3][2] = { { 2, 1 }, { 0, 1 }, { 0, 0 } },
                        sums[3][2] = { { 6, 12 }, { 0, 18 }, { 0, 0 } };
    for (int micro = 0; micro < 2; micro++) {
        double n = samples[rank][micro];
        need_ok(ls_ddp_begin(ddp, micro ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, n));
        if (n > 0) {
            for (int k = 0; k < 3; k++)
                ls_ddp_grad(ddp, 0)[k] = (float)(sums[rank][micro] / (o.grads_averaged ? n : 1));
            need_ok(ls_ddp_ready(ddp, 0));
        }
        need_ok(ls_ddp_finish(ddp, &result));
    }
    need(result.weight == 4, "weight %g", result.weight);
    need(ls_ddp_grad(ddp, 0)[2] == 9, "mean %g, expected 36 / 4", (double)ls_ddp_grad(ddp, 0)[2]);
    need(result.unused == 0 && !ls_ddp_unused(ddp, 0), "it was used on two of the ranks");
    ls_ddp_free(&ddp);
    return 0;
}

static void the_mean_is_exact_for_uneven_micro_batches(void **state)
{
    (void)state;
    on_ranks(3, uneven, NULL, NULL);
    on_ranks(3, uneven, "means", NULL);
}

/* An empty micro-batch has a mean of 0 / 0; what it holds is nobody's business. */
static int empty(ls_world *world, void *arg, char *why)
{
    ls_ddp_options o = { .grads_averaged = arg != NULL };
    ls_span span = { .name = "w", .count = 3 };
    ls_ddp *ddp;
    ls_ddp_result result;
    int rank = ls_world_rank(world);
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &o));
    for (int step = 0; step < 3; step++) {
        for (int micro = 0; micro < 2; micro++) {
            double weight = step == 2 || (rank == 1 && micro == step) ? 0 : 2;
            need_ok(ls_ddp_begin(ddp, micro ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, weight));
            for (int k = 0; k < 3; k++) ls_ddp_grad(ddp, 0)[k] = weight > 0 ? 6 : k ? NAN : INFINITY;
            need_ok(ls_ddp_ready(ddp, 0));
            need_ok(ls_ddp_finish(ddp, &result));
        }
        float expected = step == 2 ? 0 : o.grads_averaged ? 6 : 3, *grad = ls_ddp_grad(ddp, 0);
        need(grad[0] == expected && grad[2] == expected, "step %d: %g and %g, expected %g", step, (double)grad[0],
             (double)grad[2], (double)expected);
        need(result.weight == (step == 2 ? 0 : 6), "step %d: weight %g", step, result.weight);
    }
    ls_ddp_free(&ddp);
    return 0;
}

/* Weights whose sum depends on the order in which they are added. */
static int fractional(ls_world *world, void *arg, char *why)
{
    static const double slot_weights[SLOTS] = { 0.1, 1e9, 0.3, 7e-4, 0.7, 1e5, 3e-7, 0.2 };
    double expected = ((slot_weights[0] + slot_weights[1]) + (slot_weights[2] + slot_weights[3])) +
                      ((slot_weights[4] + slot_weights[5]) + (slot_weights[6] + slot_weights[7]));
    ls_span span = { .name = "w", .count = 3 };
    ls_ddp *ddp;
    ls_ddp_result result;
    int each = SLOTS / ls_world_size(world), first = ls_world_rank(world) * each;
    (void)arg;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .slots = SLOTS }));
    for (int step = 0; step < 2; step++) {
        for (int micro = 0; micro < each; micro++) {
            need_ok(ls_ddp_begin(ddp, micro + 1 < each ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, slot_weights[first + micro]));
            need_ok(ls_ddp_ready(ddp, 0));
            need_ok(ls_ddp_finish(ddp, &result));
        }
        need(result.weight == expected, "step %d: %a, expected %a", step, result.weight, expected);
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void weights_are_added_in_canonical_order(void **state)
{
    (void)state;
    _Static_assert(SLOTS == 8, "as many as there are weights");
    for (int p = 1; p <= 8; p *= 2) on_ranks(p, fractional, NULL, NULL);
}

static void what_counts_nothing_adds_nothing(void **state)
{
    (void)state;
    on_ranks(2, empty, NULL, NULL);
    on_ranks(2, empty, "means", NULL);
}

static int unused(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_span spans[SPANS];
    ls_ddp *ddp;
    ls_ddp_result result;
    span_names(spans);
    need_ok(ls_ddp_open(&ddp, world, spans, SPANS, &(ls_ddp_options){ .bucket_bytes = 4096 }));
    int rank = ls_world_rank(world);
    for (int step = 0; step < 3; step++) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        for (size_t i = 0; i < SPANS;
             i++) { /* 1 is used by nobody, 4 by rank 1 alone; the gradients hold old numbers */
            if (i == 1 || (i == 4 && rank != 1)) continue;
            for (size_t k = 0; k < span_counts[i]; k++) ls_ddp_grad(ddp, i)[k] = 2;
            need_ok(ls_ddp_ready(ddp, i));
        }
        need_ok(ls_ddp_finish(ddp, &result));
        need(result.unused == 1 && ls_ddp_unused(ddp, 1) && !ls_ddp_unused(ddp, 4), "unused: %lld",
             (long long)result.unused);
        need(ls_ddp_grad(ddp, 1)[0] == 0 && ls_ddp_grad(ddp, 4)[0] == 1 && ls_ddp_grad(ddp, 0)[0] == 2,
             "gradients %g %g %g", (double)ls_ddp_grad(ddp, 1)[0], (double)ls_ddp_grad(ddp, 4)[0],
             (double)ls_ddp_grad(ddp, 0)[0]);
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void unused_spans_are_found_and_hang_nobody(void **state)
{
    (void)state;
    on_ranks(2, unused, NULL, NULL);
}

static int halves(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_span span = { .name = "w", .count = 1000 };
    ls_ddp *ddp;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .wire = LS_WIRE_BF16, .keep_sums = true }));
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    /* 256 and 1 are bfloat16 numbers, 257 is not; three of them added in float32 and rounded once are 770 -> 768. */
    for (int k = 0; k < 1000; k++) ls_ddp_grad(ddp, 0)[k] = ls_world_rank(world) == 0 ? 512.0f : 129.0f;
    need_ok(ls_ddp_ready(ddp, 0));
    need_ok(ls_ddp_finish(ddp, NULL));
    need(ls_ddp_grad(ddp, 0)[999] == 768, "%g", (double)ls_ddp_grad(ddp, 0)[999]);
    ls_ddp_free(&ddp);
    return 0;
}

static void bfloat16_is_added_in_float32(void **state)
{
    (void)state;
    on_ranks(3, halves, NULL, NULL);
}

/* ---- Hooks. */

typedef struct calls {
    int start, finish;
} calls;

static ls_status double_it(void *user, const ls_bucket *bucket, ls_work **work)
{
    ((calls *)user)->start += bucket->index + 1;
    for (size_t i = 0; i < bucket->count; i++) bucket->grads[i] *= 2;
    return ls_bucket_reduce(bucket, bucket->grads, bucket->count, LS_F32, work);
}
static ls_status count_it(void *user, const ls_bucket *bucket)
{
    if (bucket->weight == 2) ((calls *)user)->finish += bucket->index + 1;
    return LS_OK;
}

static int hooks(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_span spans[2] = { { .name = "a", .count = 100 }, { .name = "b", .count = 100 } };
    ls_ddp *ddp;
    calls c = { 0 };
    ls_ddp_options o = { .hook = { double_it, count_it, &c }, .bucket_bytes = 4, .first_bucket_bytes = 4 };
    need_ok(ls_ddp_open(&ddp, world, spans, 2, &o));
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    for (size_t i = 0; i < 2; i++) {
        for (int k = 0; k < 100; k++) ls_ddp_grad(ddp, i)[k] = 1;
        need_ok(ls_ddp_ready(ddp, i));
    }
    need_ok(ls_ddp_finish(ddp, NULL));
    need(c.start == 3 && c.finish == 3, "hooks ran %d, %d", c.start, c.finish);
    need(ls_ddp_grad(ddp, 1)[99] == 2, "%g", (double)ls_ddp_grad(ddp, 1)[99]);
    ls_ddp_free(&ddp);
    return 0;
}

static void hooks_see_every_bucket(void **state)
{
    (void)state;
    on_ranks(2, hooks, NULL, NULL);
}

/* ---- Misuse. */

static int misuse(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_span spans[2] = { { .name = "first", .count = 4 }, { .name = "second", .count = 4 } };
    float x[4];
    ls_ddp *ddp;
    need(ls_ddp_open(&ddp, world, spans, 2, &(ls_ddp_options){ .slots = 1 }) == LS_EINVAL && !ddp, "1 slot, 2 ranks");
    need(strstr(ls_error(), "use at most 1 rank"), "message: %s", ls_error());
    spans[1].grad = x;
    need(ls_ddp_open(&ddp, world, spans, 2, NULL) == LS_EINVAL && !ddp, "half user-owned");
    spans[1].grad = NULL;
    need_ok(ls_ddp_open(&ddp, world, spans, 2, &(ls_ddp_options){ .slots = 4 }));
    need(ls_ddp_ready(ddp, 0) == LS_ESTATE && strstr(ls_error(), "'first'"), "ready before begin: %s", ls_error());
    need(ls_ddp_finish(ddp, NULL) == LS_ESTATE, "finish before begin");
    need(ls_ddp_begin(ddp, LS_DDP_SYNC, 1) == LS_ESTATE, "sync in the first of two micro-batches");
    need(strstr(ls_error(), "micro-batch 1 of 2"), "message: %s", ls_error());
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, -1) == LS_EINVAL, "negative weight");
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, NAN) == LS_EINVAL, "NaN weight");
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, INFINITY) == LS_EINVAL, "infinite weight");
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1e200) == LS_EINVAL, "a weight that float32 has not");
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1e-200) == LS_EINVAL, "a weight that float32 has not");
    need(ls_ddp_begin(ddp, (ls_ddp_mode)2, 1) == LS_EINVAL && strstr(ls_error(), "mode 2"), "mode 2: %s", ls_error());
    need(ls_ddp_begin(ddp, (ls_ddp_mode)-1, 1) == LS_EINVAL, "mode -1");
    need_ok(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1));
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1) == LS_ESTATE, "begin twice");
    need(ls_ddp_ready(ddp, 2) == LS_EINVAL, "span 2 of 2");
    need_ok(ls_ddp_ready(ddp, 1));
    need(ls_ddp_ready(ddp, 1) == LS_ESTATE && strstr(ls_error(), "'second' was ready before"), "%s", ls_error());
    need_ok(ls_ddp_finish(ddp, NULL));
    need(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1) == LS_ESTATE, "a third micro-batch announced");
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    need_ok(ls_ddp_finish(ddp, NULL));
    ls_ddp_free(&ddp);
    return 0;
}

static void misuse_is_told_and_harms_nothing(void **state)
{
    (void)state;
    on_ranks(2, misuse, NULL, NULL);
}

static int different(ls_world *world, void *arg, char *why)
{
    int kind = *(int *)arg, odd = ls_world_rank(world) == 1;
    ls_span spans[3] = { { .name = "wte", .count = 40 }, { .name = "wpe", .count = 50 }, { .name = "ln", .count = 6 } };
    ls_ddp_options o = { 0 };
    size_t n = 3;
    const char *const expected[] = { odd ? "rank 1 has 2 parameters, but rank 0 has 3"
                                         : " has 3 parameters, but rank 1 has 2",
                                     "'wpe' with 50 elements on rank 0, but 'wpe' with 51 on rank 1",
                                     "'ln' with 6 elements on rank 0, but 'nl' with 6 on rank 1",
                                     "option bucket_bytes" };
    if (odd && kind == 0) n = 2;
    if (odd && kind == 1) spans[1].count = 51;
    if (odd && kind == 2) spans[2].name = "nl";
    if (odd && kind == 3) o.bucket_bytes = 12345;
    ls_ddp *ddp;
    ls_status status = ls_ddp_open(&ddp, world, spans, n, &o);
    need(status == LS_EMISMATCH && !ddp && strstr(ls_error(), expected[kind]), "kind %d: %s: %s", kind,
         ls_status_name(status), ls_error());
    return 0;
}

static void different_models_are_told_apart_by_name(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) on_ranks(3, different, &kind, NULL);
}

static int values(ls_world *world, void *arg, char *why)
{
    (void)arg;
    float a[100], b[100];
    ls_named params[2] = { { "alpha", a, 100 }, { "beta", b, 100 } };
    for (int i = 0; i < 100; i++) a[i] = 1, b[i] = ls_world_rank(world) == 2 && i == 57 ? 3 : 2;
    ls_status status = ls_params_verify(world, params, 2);
    need(status == LS_EMISMATCH && strstr(ls_error(), "parameter 'beta' has other values on rank 2"), "%s: %s",
         ls_status_name(status), ls_error());
    need_ok(ls_params_broadcast(world, params, 2, 2));
    need(b[57] == 3, "broadcast: %g", (double)b[57]);
    need_ok(ls_params_verify(world, params, 2));
    return 0;
}

static void different_values_are_told_apart_by_name(void **state)
{
    (void)state;
    on_ranks(3, values, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_does_not_depend_on_the_spread),
        cmocka_unit_test(order_of_readiness_and_overlap_change_no_bit),
        cmocka_unit_test(one_update_serves_all_ranks),
        cmocka_unit_test(the_mean_is_exact_for_uneven_micro_batches),
        cmocka_unit_test(weights_are_added_in_canonical_order),
        cmocka_unit_test(what_counts_nothing_adds_nothing),
        cmocka_unit_test(unused_spans_are_found_and_hang_nobody),
        cmocka_unit_test(bfloat16_is_added_in_float32),
        cmocka_unit_test(hooks_see_every_bucket),
        cmocka_unit_test(misuse_is_told_and_harms_nothing),
        cmocka_unit_test(different_models_are_told_apart_by_name),
        cmocka_unit_test(different_values_are_told_apart_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
