/* Any number of ranks from 1 to the slots: the sum is that of the tree over the slots, bit for bit, on one node and on several, for
 * gradients that lockstep allocates and the caller's, for one result per node, and when a rank runs out of data. */
#include <math.h>
#include "comm/nodes.h"
#include "comm/slot_parts.h"
#include "ddp/on_sum.h"
#include "ddp/reducer.h"

enum { SPANS = 4, SLOTS = 16 };
static const size_t span_counts[SPANS] = { 5, 3000, 1, 9000 };
enum { ALL = 5 + 3000 + 1 + 9000 };

/* Sizes differ wildly, so the order of additions shows. */
static float gradient(int s, size_t i, size_t k)
{
    uint32_t x = (uint32_t)((size_t)s * 2654435761u + i * 40503u + k * 9973u);
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    return ((float)(x & 0xffff) - 32768.0f) * ldexpf(1, (int)(x >> 28) - 8);
}

static double weight(int s)
{
    return ldexp(1.0 + s % 7 / 10.0, s % 5 * 9);
}

/* The oracles: tree(n) = tree(m) + tree(n - m). Slots from `end` on have no data. */
static float tree(int begin, int n, int end, size_t i, size_t k, int step)
{
    if (n == 1) return begin < end ? gradient(begin + 100 * step, i, k) : 0;
    int m = 1;
    while (m * 2 < n) m *= 2;
    return tree(begin, m, end, i, k, step) + tree(begin + m, n - m, end, i, k, step);
}

static double weights(int begin, int n)
{
    if (n == 1) return weight(begin);
    int m = 1;
    while (m * 2 < n) m *= 2;
    return weights(begin, m) + weights(begin + m, n - m);
}

typedef struct plan {
    int slots;
    bool foreign, on_sum;
    ls_ddp_options options;
} plan;

static void seen(void *user, const float *sums, size_t begin, size_t end)
{
    (void)user, (void)sums, (void)begin, (void)end;
}

static int micro_batch(ls_ddp *ddp, ls_ddp_mode mode, int slot, int step, bool shuffled, ls_ddp_result *result,
                       ls_world *world, char *why)
{
    need_ok(ls_ddp_begin(ddp, mode, weight(slot)));
    for (size_t n = 0; n < SPANS; n++) {
        size_t i = shuffled ? (n + 2) % SPANS : n;
        float *grad = ls_ddp_grad(ddp, i);
        for (size_t k = 0; k < span_counts[i]; k++) grad[k] = gradient(slot + 100 * step, i, k);
        need_ok(ls_ddp_ready(ddp, i));
        need_ok(ls_ddp_poll(ddp));
    }
    need_ok(ls_ddp_finish(ddp, result));
    return 0;
}

static int train(ls_world *world, void *arg, char *why)
{
    const plan *p = arg;
    ls_span spans[SPANS] = { { 0 } };
    static _Thread_local float own[ALL];
    for (size_t i = 0, at = 0; i < SPANS; at += span_counts[i++])
        spans[i] = (ls_span){ .grad = p->foreign ? own + at : NULL, .count = span_counts[i] };
    ls_ddp *ddp;
    ls_ddp_options o = p->options;
    o.slots = p->slots;
    need_ok(ls_ddp_open(&ddp, world, spans, SPANS, &o));
    if (p->on_sum) need_ok(ls__ddp_on_sum(ddp, seen, NULL));
    int rank = ls_world_rank(world), first, count;
    need_ok(ls_slots_of_rank(p->slots, ls_world_size(world), rank, &first, &count));
    for (int step = 0; step < 3; step++) {
        ls_ddp_result r = { 0 };
        for (int micro = 0; micro < count; micro++)
            if (micro_batch(ddp, micro + 1 < count ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, first + micro, step, step, &r,
                            world, why))
                return 1;
        double all = weights(0, p->slots);
        need(!memcmp(&r.weight, &all, sizeof all), "step %d: weight %a, expected %a", step, r.weight, all);
        for (size_t i = 0; i < SPANS; i++)
            for (size_t k = 0; k < span_counts[i]; k++) {
                float sum = tree(0, p->slots, p->slots, i, k, step), got = ls_ddp_reduced(ddp, i)[k];
                float expected = o.keep_sums || all == 1 ? sum : sum * (float)(1 / all);
                need(!memcmp(&got, &expected, sizeof got), "%d slots, step %d, span %zu, element %zu: %a, expected %a",
                     p->slots, step, i, k, (double)got, (double)expected);
            }
        need_ok(ls_barrier(ls_world_group(world)));
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void any_number_of_ranks_makes_the_same_sum(void **state)
{
    (void)state;
    static const int slots[] = { 2, 3, 5, 7, 8, 11, 12, 13, 16 };
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        for (int ranks = 1; ranks <= slots[i]; ranks++) {
            plan p = { .slots = slots[i], .options = { .bucket_bytes = 4096, .keep_sums = ranks % 2 } };
            p.foreign = ranks % 3 == 0;
            p.options.no_overlap = ranks % 4 == 0;
            on_ranks(ranks, train, &p, NULL);
        }
}

static void one_result_serves_the_node(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 12; ranks++) {
        plan p = { .slots = 12, .options = { .bucket_bytes = 4096, .keep_sums = true, .reduce_to_local_root = true } };
        on_ranks(ranks, train, &p, NULL);
        p.on_sum = true;
        on_ranks(ranks, train, &p, NULL);
    }
}

static void any_number_of_ranks_on_any_nodes(void **state)
{
    (void)state;
    static const char *const places[] = { "01",    "001",   "010",    "0011",    "0101",
                                          "00011", "01201", "000111", "0123456", "00112233" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int slots = 8; slots <= 13; slots++) {
            plan p = { .slots = slots, .options = { .bucket_bytes = 4096, .keep_sums = slots % 2 } };
            p.options.reduce_to_local_root = slots % 3 == 0;
            on_nodes(places[i], train, &p, (ls_world_options){ .staging_bytes = i % 2 ? 32768 : 0 });
        }
}

/* ---- A rank that runs out of data in the middle of its slots. */

typedef struct leaver {
    ls_ddp *ddp;
    int slots, end, steps, bad;
} leaver;

static ls_status check_rest(void *user, const ls_ddp_result *r)
{
    leaver *l = user;
    (void)r;
    for (size_t i = 0; i < SPANS; i++)
        for (size_t k = 0; k < span_counts[i]; k++) {
            float expected = tree(0, l->slots, l->end, i, k, 0), got = ls_ddp_grad(l->ddp, i)[k];
            l->bad += memcmp(&got, &expected, sizeof got) != 0;
        }
    l->steps++;
    return LS_OK;
}

/* The last rank has one slot of its run, or none. */
static int run_out(ls_world *world, void *arg, char *why)
{
    leaver l = *(leaver *)arg;
    ls_span spans[SPANS] = { { 0 } };
    for (size_t i = 0; i < SPANS; i++) spans[i].count = span_counts[i];
    need_ok(ls_ddp_open(&l.ddp, world, spans, SPANS, &(ls_ddp_options){ .slots = l.slots, .keep_sums = true }));
    int size = ls_world_size(world), rank = ls_world_rank(world), first, count;
    need_ok(ls_slots_of_rank(l.slots, size, rank, &first, &count));
    bool leaves = rank == size - 1;
    l.end = l.slots;
    for (int r = 0; r < size; r++) {
        int f, c;
        need_ok(ls_slots_of_rank(l.slots, size, r, &f, &c));
        if (r == size - 1) l.end = f + ((leaver *)arg)->end;
    }
    for (int micro = 0; micro < (leaves ? ((leaver *)arg)->end : count); micro++)
        if (micro_batch(l.ddp, micro + 1 < count ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, first + micro, 0, false, NULL,
                        world, why))
            return 1;
    if (!leaves) check_rest(&l, NULL);
    need_ok(ls_ddp_join(l.ddp, check_rest, &l));
    need(l.bad == 0 && l.steps == 1, "%d slots on %d ranks: %d elements differ, %d steps", l.slots, size, l.bad,
         l.steps);
    ls_ddp_free(&l.ddp);
    return 0;
}

static void slots_without_data_count_as_zero(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++)
        for (int end = 0; end < 2; end++) on_ranks(ranks, run_out, &(leaver){ .slots = 13, .end = end }, NULL);
}

/* ---- Pure functions. */

static void runs_are_even_and_cover_all_slots(void **state)
{
    (void)state;
    for (int slots = 1; slots <= 40; slots++)
        for (int ranks = 1; ranks <= slots; ranks++) {
            int at = 0, most = 0, least = slots;
            for (int r = 0; r < ranks; r++) {
                int first, count;
                check_ok(ls_slots_of_rank(slots, ranks, r, &first, &count));
                assert_int_equal(first, at);
                at += count;
                if (count > most) most = count;
                if (count < least) least = count;
            }
            assert_int_equal(at, slots);
            assert_true(most - least <= 1);
        }
    int first, count;
    check_ok(ls_slots_of_rank(8, 3, 2, &first, &count));
    assert_int_equal(first, 6);
    assert_int_equal(count, 2);
    check_fails(ls_slots_of_rank(8, 3, 3, &first, &count), LS_EINVAL, "rank 3 does not exist");
    check_fails(ls_slots_of_rank(0, 1, 0, &first, &count), LS_EINVAL, "slots=0");
    check_fails(ls_slots_of_rank(8, 3, 0, NULL, &count), LS_EINVAL, "first");
}

/* Equal powers of two need no parts, and nor do a few others. */
static void parts_are_there_only_where_they_are_needed(void **state)
{
    (void)state;
    static const struct {
        int slots, ranks, parts;
    } cases[] = { { 8, 1, 0 }, { 8, 2, 0 }, { 8, 8, 0 }, { 12, 3, 0 }, { 12, 6, 0 }, { 12, 12, 0 },
                  { 3, 2, 0 }, { 7, 7, 0 }, { 8, 3, 5 }, { 12, 2, 4 }, { 16, 3, 7 }, { 1 << 20, 2, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls__slot_parts *p;
        check_ok(ls__slot_parts_open(&p, cases[i].slots, cases[i].ranks, 64));
        if ((p ? p->n : 0) != cases[i].parts)
            fail_msg("%d slots on %d ranks: %d parts, expected %d", cases[i].slots, cases[i].ranks, p ? p->n : 0,
                     cases[i].parts);
        ls__slot_parts_free(&p);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_even_and_cover_all_slots),
        cmocka_unit_test(parts_are_there_only_where_they_are_needed),
        cmocka_unit_test(any_number_of_ranks_makes_the_same_sum),
        cmocka_unit_test(one_result_serves_the_node),
        cmocka_unit_test(any_number_of_ranks_on_any_nodes),
        cmocka_unit_test(slots_without_data_count_as_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
