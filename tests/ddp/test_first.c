/* reduce_to_local_root: when finish returns, every rank of the node sees the result in the local root's block, whatever the
 * local root had to do to it: divide, convert from bfloat16, or call a hook. */
#include <math.h>
#include <unistd.h>
#include "comm/nodes.h"
#include "lockstep/ddp.h"

enum { SPANS = 5, STEPS = 8 };
static const size_t span_counts[SPANS] = { 60000, 3, 0, 17, 30000 };

typedef struct plan {
    bool bf16, keep_sums, hook;
    int delayed_rank; /* sleeps before finish; -1: nobody */
} plan;

static float value(int rank, int step, size_t k)
{
    return (float)((k * 7 + (size_t)step * 3) % 5) +
           (float)(8 * (rank + 1)); /* exact in bfloat16, and so are the sums */
}

static ls_status start_sum(void *user, const ls_bucket *bucket, ls_work **work)
{
    (void)user;
    return ls_bucket_reduce(bucket, bucket->grads, bucket->count, LS_F32, work);
}

/* Long enough for other ranks to read too early. */
static ls_status slow_negate(void *user, const ls_bucket *bucket)
{
    (void)user;
    usleep(300);
    for (size_t i = 0; i < bucket->count && bucket->is_read; i++) bucket->grads[i] = -bucket->grads[i];
    return LS_OK;
}

static int see_result(ls_world *world, void *arg, char *why)
{
    const plan *p = arg;
    int rank = ls_world_rank(world), size = ls_world_size(world);
    ls_span spans[SPANS];
    ls_ddp *ddp;
    for (size_t i = 0; i < SPANS; i++) spans[i] = (ls_span){ .name = "w", .count = span_counts[i] };
    ls_ddp_options o = { .reduce_to_local_root = true,
                         .wire = p->bf16 ? LS_WIRE_BF16 : LS_WIRE_F32,
                         .keep_sums = p->keep_sums,
                         .bucket_bytes = 1 << 16 };
    if (p->hook) o.hook = (ls_comm_hook){ start_sum, slow_negate, NULL };
    need_ok(ls_ddp_open(&ddp, world, spans, SPANS, &o));
    for (int step = 0; step < STEPS; step++) {
        ls_ddp_result result;
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 3));
        for (size_t i = 0; i < SPANS; i++) {
            for (size_t k = 0; k < span_counts[i]; k++) ls_ddp_grad(ddp, i)[k] = value(rank, step, k);
            need_ok(ls_ddp_ready(ddp, i));
        }
        if (rank == p->delayed_rank || (p->delayed_rank == size && (step + rank) % 3 == 0)) usleep(400);
        need_ok(ls_ddp_finish(ddp, &result));
        for (size_t n = 0; n < SPANS; n++) {
            size_t i = SPANS - 1 - n; /* what the local root has written last comes first */
            const float *at = ls_ddp_reduced(ddp, i);
            for (size_t k = span_counts[i]; k-- > 0;) {
                float sum = 0;
                for (int r = 0; r < size; r++) sum += value(r, step, k);
                float expected = p->keep_sums ? sum : sum * (float)(1 / result.weight);
                if (p->hook) expected = -expected;
                need(at[k] == expected, "rank %d, step %d, span %zu, element %zu: %g, expected %g", rank, step, i, k,
                     (double)at[k], (double)expected);
            }
        }
        need_ok(ls_barrier(ls_world_group(world)));
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void every_rank_reads_the_local_roots_result(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        for (int kind = 0; kind < 8; kind++)
            for (int delayed = 0; delayed <= size; delayed += size == 4 ? 2 : 1) {
                plan p = {
                    .bf16 = kind == 1 || kind == 3, .keep_sums = kind & 2, .hook = kind & 4, .delayed_rank = delayed
                };
                on_ranks(size, see_result, &p, NULL);
            }
    static const char *const places[] = { "01", "0011", "0102" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) /* each node has a local root */
        for (int kind = 0; kind < 8; kind++) {
            plan p = {
                .bf16 = kind == 1 || kind == 3, .keep_sums = kind & 2, .hook = kind & 4, .delayed_rank = (int)i
            };
            on_nodes(places[i], see_result, &p, (ls_world_options){ 0 });
        }
}

/* Buckets so small that each rank takes part in a reduce by itself: the root's result is no other rank's business. */
static int see_small(ls_world *world, void *arg, char *why)
{
    int rank = ls_world_rank(world), size = ls_world_size(world);
    ls_span span = { .name = "w", .count = 40 };
    ls_ddp *ddp;
    (void)arg;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .reduce_to_local_root = true, .keep_sums = true }));
    for (int step = 0; step < 400; step++) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        for (int k = 0; k < 40; k++) ls_ddp_grad(ddp, 0)[k] = (float)(step + 1000 * rank);
        need_ok(ls_ddp_ready(ddp, 0));
        if (rank == 0 && step % 4 == 0) usleep(50);
        need_ok(ls_ddp_finish(ddp, NULL));
        float expected = (float)(step * size + 1000 * size * (size - 1) / 2), got = ls_ddp_reduced(ddp, 0)[39];
        need(got == expected, "rank %d, step %d: %g, expected %g", rank, step, (double)got, (double)expected);
        need_ok(ls_barrier(ls_world_group(world)));
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void small_buckets_are_there_too(void **state)
{
    (void)state;
    on_ranks(2, see_small, NULL, NULL);
    on_ranks(3, see_small, NULL, NULL);
}

/* The local root may free its ddp while other ranks still read. */
static int leave_early(ls_world *world, void *arg, char *why)
{
    int rank = ls_world_rank(world), size = ls_world_size(world);
    ls_span span = { .name = "w", .count = 100000 };
    ls_ddp *ddp;
    void *memory;
    (void)arg;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .reduce_to_local_root = true }));
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    for (size_t k = 0; k < span.count; k++) ls_ddp_grad(ddp, 0)[k] = 3;
    need_ok(ls_ddp_ready(ddp, 0));
    need_ok(ls_ddp_finish(ddp, NULL));
    if (rank == 0) {
        ls_ddp_free(&ddp);
        need_ok(ls_world_alloc(world, span.count * sizeof(float), &memory));
        memset(memory, 0xff, span.count * sizeof(float));
    } else {
        usleep(20000);
        const float *sums = ls_ddp_reduced(ddp, 0);
        for (size_t k = 0; k < span.count; k++) need(sums[k] == 3, "element %zu is %g", k, (double)sums[k]);
        ls_ddp_free(&ddp);
    }
    /* It is given back when the last one has left: many such blocks do not fill the memory. */
    need_ok(ls_barrier(ls_world_group(world)));
    for (int i = 0; i < 200; i++) {
        need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .reduce_to_local_root = true }));
        ls_ddp_free(&ddp);
    }
    need_ok(ls_barrier(ls_world_group(world)));
    uint32_t extents = world->job->heap.extents;
    need(extents < 20 + 4 * (uint32_t)size, "%u parts of shared memory are taken", extents);
    need_ok(ls_barrier(ls_world_group(world)));
    return 0;
}

static void the_result_stays_until_the_last_rank_has_left(void **state)
{
    (void)state;
    on_ranks(3, leave_early, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_reads_the_local_roots_result),
        cmocka_unit_test(small_buckets_are_there_too),
        cmocka_unit_test(the_result_stays_until_the_last_rank_has_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
