/* What a data-parallel job has besides sums: ranks that run out of data, parameters that nobody uses, and buffers. */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>
#include "comm/ranks.h"
#include "lockstep/ddp.h"
#include "lockstep/nn.h"

/* ---- Ranks that run out of data. */

enum { RANKS = 3, COUNT = 40 };
static const int batches_of[RANKS] = { 1, 4, 2 };

typedef struct learner {
    ls_ddp *ddp;
    double w;
    int updates;
} learner;

static ls_status learn(void *user, const ls_ddp_result *result)
{
    learner *l = user;
    (void)result;
    l->w += (double)ls_ddp_grad(l->ddp, 0)[COUNT - 1];
    l->updates++;
    return LS_OK;
}

/* Batch b of rank r has b + 1 samples whose gradients sum to 8 * r + b. */
static int uneven(ls_world *world, void *arg, char *why)
{
    ls_span span = { .name = "w", .count = COUNT };
    learner l = { 0 };
    int rank = ls_world_rank(world);
    double expected = 0;
    need_ok(ls_ddp_open(&l.ddp, world, &span, 1, &(ls_ddp_options){ .slots = arg ? RANKS : 0 }));
    for (int b = 0; b < batches_of[rank]; b++) {
        ls_ddp_result result;
        need_ok(ls_ddp_begin(l.ddp, LS_DDP_SYNC, b + 1));
        for (int k = 0; k < COUNT; k++) ls_ddp_grad(l.ddp, 0)[k] = (float)(8 * rank + b);
        need_ok(ls_ddp_ready(l.ddp, 0));
        need_ok(ls_ddp_finish(l.ddp, &result));
        int out = 0;
        for (int r = 0; r < RANKS; r++) out += batches_of[r] <= b;
        need(result.joined == out, "batch %d: %d ranks have joined, expected %d", b, result.joined, out);
        need_ok(learn(&l, &result));
    }
    need_ok(ls_ddp_join(l.ddp, learn, &l));
    for (int b = 0; b < 4; b++) {
        double sum = 0, samples = 0;
        for (int r = 0; r < RANKS; r++)
            if (b < batches_of[r]) sum += 8 * r + b, samples += b + 1;
        expected += (double)((float)sum * (float)(1 / samples));
    }
    need(l.updates == 4, "%d updates, expected 4", l.updates);
    need(l.w == expected, "rank %d: %.9g, expected %.9g", rank, l.w, expected);
    ls_ddp_stats stats = ls_ddp_get_stats(l.ddp);
    need(stats.joined == 4 - batches_of[rank], "joined %lld steps", (long long)stats.joined);
    /* And again, in another epoch. */
    need_ok(ls_ddp_join(l.ddp, NULL, NULL));
    ls_ddp_free(&l.ddp);
    return 0;
}

static void ranks_that_run_out_join_and_the_mean_stays_exact(void **state)
{
    (void)state;
    on_ranks(RANKS, uneven, NULL, NULL);
    on_ranks(RANKS, uneven, "slots", NULL);
}

/* Every rank accumulates, synchronizes, and accumulates once more before its data end. */
static int ends_with_some_left(ls_world *world, void *arg, char *why)
{
    ls_span span = { .name = "w", .count = COUNT };
    learner l = { 0 };
    int rank = ls_world_rank(world), size = ls_world_size(world);
    int last = arg && rank ? 2 : 3; /* with arg, only rank 0 has some left */
    ls_ddp_result result;
    need_ok(ls_ddp_open(&l.ddp, world, &span, 1, NULL));
    for (int b = 0; b < last; b++) {
        need_ok(ls_ddp_begin(l.ddp, b % 2 ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, 1));
        for (int k = 0; k < COUNT; k++) ls_ddp_grad(l.ddp, 0)[k] = (float)(b + rank);
        need_ok(ls_ddp_ready(l.ddp, 0));
        need_ok(ls_ddp_finish(l.ddp, &result));
        if (b % 2) need_ok(learn(&l, &result));
    }
    need_ok(ls_ddp_join(l.ddp, learn, &l));
    double others = (size - 1) / 2.0;
    need(l.updates == 2, "%d updates, expected 2", l.updates);
    need(l.w == 0.5 + others + (arg ? 2 : 2 + others), "rank %d: %g", rank, l.w);
    ls_ddp_stats stats = ls_ddp_get_stats(l.ddp);
    need(stats.steps == 2 && stats.micro_batches == last + 1, "%lld steps, %lld micro-batches", (long long)stats.steps,
         (long long)stats.micro_batches);
    need(stats.unused == 0 && !ls_ddp_unused(l.ddp, 0), "a span counts as unused");
    need_ok(ls_ddp_join(l.ddp, learn, &l)); /* nothing is left: not a step */
    stats = ls_ddp_get_stats(l.ddp);
    need(l.updates == 2 && stats.steps == 2 && stats.micro_batches == last + 1 && stats.joined == 1,
         "%d updates, %lld steps, %lld micro-batches, joined %lld", l.updates, (long long)stats.steps,
         (long long)stats.micro_batches, (long long)stats.joined);
    ls_ddp_free(&l.ddp);
    return 0;
}

static void what_was_accumulated_last_is_one_more_step(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        on_ranks(size, ends_with_some_left, NULL, NULL);
        on_ranks(size, ends_with_some_left, "rank 0", NULL);
    }
}

static ls_status give_up(void *user, const ls_ddp_result *result)
{
    (void)user;
    (void)result;
    return LS_EABORTED;
}

static int ends_early(ls_world *world, void *arg, char *why)
{
    ls_span span = { .name = "w", .count = COUNT };
    ls_ddp *ddp;
    (void)arg;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, NULL));
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    ls_status status = ls_ddp_join(ddp, NULL, NULL);
    need(status == LS_ESTATE, "join within a micro-batch: %d", status);
    need_ok(ls_ddp_finish(ddp, NULL));
    if (ls_world_rank(world) == 0) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        status = ls_ddp_finish(ddp, NULL); /* the other one aborts the group after this step, or at its end */
        need(!status || status == LS_EABORTED, "%s", ls_error());
    } else {
        status = ls_ddp_join(ddp, give_up, NULL);
        need(status == LS_EABORTED, "the step's status was not passed on: %d", status);
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void a_step_that_fails_ends_joining(void **state)
{
    (void)state;
    on_ranks(2, ends_early, NULL, NULL);
}

/* ---- Parameters that nobody uses. */

static atomic_int warnings;
static char warning[1024];

static void listen(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level != LS_LOG_WARNING) return;
    atomic_fetch_add(&warnings, 1);
    snprintf(warning, sizeof warning, "%s", text);
}

static int some_unused(ls_world *world, void *arg, char *why)
{
    enum { MANY = 30 };
    static const char *const names[3] = { "used", "first idle", "idle" };
    ls_span spans[MANY];
    ls_ddp *ddp;
    (void)arg;
    for (int i = 0; i < MANY; i++) spans[i] = (ls_span){ .name = names[i < 2 ? i : 2], .count = 5 };
    need_ok(ls_ddp_open(&ddp, world, spans, MANY, NULL));
    for (int step = 0; step < 3; step++) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        need_ok(ls_ddp_ready(ddp, 0));
        need_ok(ls_ddp_finish(ddp, NULL));
    }
    need(ls_ddp_get_stats(ddp).unused == MANY - 1, "%lld unused", (long long)ls_ddp_get_stats(ddp).unused);
    ls_ddp_free(&ddp);
    return 0;
}

static void unused_parameters_are_named_once(void **state)
{
    (void)state;
    ls_log_set(listen, NULL);
    on_ranks(2, some_unused, NULL, NULL);
    ls_log_set(NULL, NULL);
    assert_int_equal(atomic_load(&warnings), 1);
    assert_non_null(strstr(warning, "29 of 30 parameters"));
    assert_non_null(strstr(warning, "'first idle', 'idle'"));
    assert_non_null(strstr(warning, "more"));
    assert_null(strstr(warning, "'used'"));
}

/* ---- Buffers. */

enum { BUFFER_RANKS = 2, PICTURES = 2, SIDE = 8 };

/* A ResNet's running statistics, from different pictures on each rank. */
static int statistics(ls_world *world, void *arg, char *why)
{
    ls_buffers mode = arg ? LS_BUFFERS_MEAN : LS_BUFFERS_BROADCAST;
    int rank = ls_world_rank(world);
    float pictures[PICTURES * 3 * SIDE * SIDE];
    int32_t targets[PICTURES] = { 1, 2 };
    const ls_place *places;
    ls_model *model;
    ls_tape *tape;
    ls_ddp *ddp;
    float *data;
    ls_param *params;
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
        pictures[i] = sinf((float)i * (float)(rank + 1)) + (float)rank;
    need_ok(
        ls_model_open(&model, &(ls_model_options){ .kind = LS_MODEL_RESNET,
                                                   .resnet = { .blocks = { 1, 1, 1 }, .width = 4, .size = SIDE } }));
    need_ok(ls_model_bind(model, NULL, NULL, true));
    need_ok(ls_model_init(model, 1));
    need_ok(ls_tape_open(&tape, &(ls_tape_options){ .threads = 1 }));
    size_t n = ls_model_buffers(model, &places, &data), total = 0;
    need(n >= 2 && data, "the model has %zu buffers", n);
    ls_named buffers[64];
    need(n <= 64, "%zu buffers", n);
    for (size_t i = 0; i < n; i++) {
        buffers[i] = (ls_named){ .name = places[i].name, .data = data + places[i].offset, .count = places[i].count };
        total += places[i].count;
    }
    ls_span span = { .name = "all", .count = ls_model_elements(model) };
    need_ok(ls_ddp_open(&ddp, world, &span, 1,
                        &(ls_ddp_options){ .buffers = buffers, .n_buffers = n, .buffer_mode = mode }));
    need(ls_ddp_get_stats(ddp).buffer_bytes == (int64_t)(4 * total), "%lld bytes",
         (long long)ls_ddp_get_stats(ddp).buffer_bytes);
    int n_params = ls_model_params(model, &params);
    need_ok(ls_tape_begin(tape, params, n_params, &(ls_pass){ 0 }));
    ls_tensor *loss =
        ls_model_loss(model, tape, &(ls_model_batch){ .batch_size = PICTURES, .inputs = pictures, .targets = targets });
    need_ok(ls_tape_backward(tape, loss));

    /* What each rank has before, and what both must have after. */
    enum { MAX = 4096 };
    static float before[BUFFER_RANKS][MAX];
    need(total <= MAX, "%zu elements", total);
    size_t at = 0;
    for (size_t i = 0; i < n; at += buffers[i++].count)
        memcpy(before[rank] + at, buffers[i].data, buffers[i].count * sizeof(float));
    need_ok(ls_barrier(ls_world_group(world)));
    need(memcmp(before[0], before[1], total * sizeof(float)) != 0, "the statistics were the same before");
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    need_ok(ls_ddp_finish(ddp, NULL));
    at = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < buffers[i].count; k++, at++) {
            float expected = arg ? (before[0][at] + before[1][at]) / 2 : before[0][at];
            need(buffers[i].data[k] == expected, "rank %d: '%s'[%zu] is %g, expected %g", rank, buffers[i].name, k,
                 (double)buffers[i].data[k], (double)expected);
        }
    need_ok(ls_barrier(ls_world_group(world)));
    ls_ddp_free(&ddp);
    ls_tape_free(&tape);
    ls_model_free(&model);
    return 0;
}

static void batch_norm_statistics_are_broadcast_or_averaged(void **state)
{
    (void)state;
    on_ranks(BUFFER_RANKS, statistics, NULL, NULL);
    on_ranks(BUFFER_RANKS, statistics, "mean", NULL);
}

static int one_has_buffers(ls_world *world, void *arg, char *why)
{
    ls_span span = { .name = "w", .count = 4 };
    float x[4] = { 0 };
    ls_named buffer = { .name = "x", .data = x, .count = 4 };
    ls_ddp *ddp;
    (void)arg;
    ls_ddp_options o = { .buffers = &buffer, .n_buffers = ls_world_rank(world) == 0 };
    ls_status status = ls_ddp_open(&ddp, world, &span, 1, &o);
    need(status == LS_EMISMATCH && strstr(ls_error(), "n_buffers"), "%d: %s", status, ls_error());
    return 0;
}

static void different_buffers_are_told(void **state)
{
    (void)state;
    on_ranks(2, one_has_buffers, NULL, NULL);
}

/* ---- Statistics. */

static int never_early(ls_world *world, void *arg, char *why)
{
    ls_span spans[2] = { { .name = "a", .count = 4 }, { .name = "b", .count = 4 } };
    ls_ddp *ddp;
    (void)arg;
    need_ok(ls_ddp_open(&ddp, world, spans, 2, NULL));
    for (int i = 0; i < 3; i++) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        need_ok(ls_ddp_ready(ddp, 0)); /* finish completes their bucket */
        need_ok(ls_ddp_finish(ddp, NULL));
    }
    ls_ddp_stats s = ls_ddp_get_stats(ddp);
    need(s.buckets == 1 && s.steps == 3, "%lld buckets, %lld steps", (long long)s.buckets, (long long)s.steps);
    need(s.started_early == 0, "%lld buckets started early, expected 0", (long long)s.started_early);
    for (int i = 0; i < 3; i++) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        need_ok(ls_ddp_ready(ddp, 1));
        need_ok(ls_ddp_ready(ddp, 0));
        need_ok(ls_ddp_finish(ddp, NULL));
    }
    s = ls_ddp_get_stats(ddp);
    need(s.started_early == 3, "%lld buckets started early, expected 3", (long long)s.started_early);
    ls_ddp_free(&ddp);
    return 0;
}

static void a_bucket_that_finish_starts_is_not_early(void **state)
{
    (void)state;
    on_ranks(1, never_early, NULL, NULL);
    on_ranks(2, never_early, NULL, NULL);
}

/* ---- What is wrong with a call. */

static ls_status no_finish(void *user, const ls_bucket *bucket)
{
    (void)user;
    (void)bucket;
    return LS_OK;
}

static int wrong_calls(ls_world *world, void *arg, char *why)
{
    ls_span spans[2] = { { .name = "a", .count = 4 }, { .name = "b", .count = 4 } };
    float grad[4];
    ls_ddp *ddp;
    int first, slots, p = ls_world_size(world);
    (void)arg;
#define need_refused(call, expected, text)                                                                       \
    do {                                                                                                         \
        ls_status s_ = (call);                                                                                   \
        need(s_ == (expected) && strstr(ls_error(), text), "%s: %s: %s", #call, ls_status_name(s_), ls_error()); \
    } while (0)
    need_ok(ls_ddp_open(&ddp, world, spans, 2, &(ls_ddp_options){ .slots = 2 * p }));
    need_refused(ls_ddp_begin(ddp, LS_DDP_SYNC, 1), LS_ESTATE, "micro-batch 1 of 2");
    need_refused(ls_ddp_begin(ddp, LS_DDP_SYNC, 1), LS_ESTATE, "begin it with LS_DDP_ACCUMULATE");
    need_ok(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1));
    need_ok(ls_ddp_finish(ddp, NULL));
    need_refused(ls_ddp_begin(ddp, LS_DDP_ACCUMULATE, 1), LS_ESTATE, "begin it with LS_DDP_SYNC");
    ls_ddp_free(&ddp);
    spans[1].grad = grad;
    need_refused(ls_ddp_open(&ddp, world, spans, 2, NULL), LS_EINVAL,
                 "span 'b' has gradient memory of its own, and 'a' has none; give all spans memory, or none");
    need_refused(ls_ddp_open(&ddp, world, NULL, 1, NULL), LS_EINVAL, "spans must not be NULL for a count of 1");
    spans[1].grad = NULL;
    need_refused(ls_ddp_open(&ddp, world, spans, 2, &(ls_ddp_options){ .hook.finish = no_finish }), LS_EINVAL,
                 "finish function but no start function; set both");
    need_refused(ls_slots_of_rank(4, 2, 2, &first, &slots), LS_EINVAL,
                 "rank 2 does not exist; with ranks=2 it must be from 0 to 1");
    need_refused(ls_slots_of_rank(0, 2, 0, &first, &slots), LS_EINVAL, "slots=0, ranks=2: both must be at least 1");
    return 0;
}

static void wrong_calls_say_what_to_do(void **state)
{
    (void)state;
    on_ranks(1, wrong_calls, NULL, NULL);
    on_ranks(2, wrong_calls, NULL, NULL);
}

static int stops_early(ls_world *world, void *arg, char *why)
{
    ls_span span = { .name = "w", .count = COUNT };
    ls_ddp *ddp;
    ls_status status = LS_OK;
    (void)arg;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, NULL));
    for (int i = 0; i < (ls_world_rank(world) ? 1 : 2) && !status; i++) {
        status = ls_ddp_begin(ddp, LS_DDP_SYNC, 1);
        if (!status) status = ls_ddp_finish(ddp, NULL);
    }
    if (ls_world_rank(world) == 0)
        need(status == LS_EPEER && strstr(ls_error(), "out of data before the others must call ls_ddp_join()"),
             "%s: %s", ls_status_name(status), ls_error());
    ls_ddp_free(&ddp);
    return 0;
}

static void a_rank_that_stops_early_is_told_of_join(void **state)
{
    (void)state;
    on_ranks(2, stops_early, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_that_finish_starts_is_not_early),
        cmocka_unit_test(wrong_calls_say_what_to_do),
        cmocka_unit_test(a_rank_that_stops_early_is_told_of_join),
        cmocka_unit_test(ranks_that_run_out_join_and_the_mean_stays_exact),
        cmocka_unit_test(what_was_accumulated_last_is_one_more_step),
        cmocka_unit_test(a_step_that_fails_ends_joining),
        cmocka_unit_test(unused_parameters_are_named_once),
        cmocka_unit_test(batch_norm_statistics_are_broadcast_or_averaged),
        cmocka_unit_test(different_buffers_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
