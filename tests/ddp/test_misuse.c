/* Orders of calls that a program may make when something goes wrong, on ranks that are threads: hooks that fail, ddps that are freed
 * in the middle of a step, groups that were aborted, ranks of which one cannot open. Nobody waits in vain, everybody gets the
 * reason, and nobody's memory is written to behind their back. */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>
#include "comm/nodes.h"
#include "lockstep/ddp.h"

enum { SPANS = 4, COUNT = 50000, TIMEOUT_MS = 30000 };
/* The timeout of a wait that cannot end; a test that takes half of it has waited. */
static const ls_world_options patient = { .timeout_ms = TIMEOUT_MS };

static ls_status open_four(ls_ddp **ddp, ls_world *world, const ls_ddp_options *more)
{
    ls_span spans[SPANS];
    ls_ddp_options o = *more;
    for (int i = 0; i < SPANS; i++) spans[i] = (ls_span){ .name = "w", .count = COUNT };
    o.bucket_bytes = o.first_bucket_bytes = 4; /* a bucket a span */
    return ls_ddp_open(ddp, world, spans, SPANS, &o);
}

static ls_status one_step(ls_ddp *ddp, float value)
{
    ls_status status = ls_ddp_begin(ddp, LS_DDP_SYNC, 1);
    for (size_t i = 0; i < SPANS && !status; i++) {
        for (size_t k = 0; k < COUNT; k++) ls_ddp_grad(ddp, i)[k] = value;
        status = ls_ddp_ready(ddp, i);
    }
    return status ? status : ls_ddp_finish(ddp, NULL);
}

/* A barrier outside of the library: an abort ends also calls that are nearly done, and tests want to know which call it ends. */
static atomic_int arrived;

static void barrier(const ls_world *world)
{
    int size = ls_world_size(world), before = atomic_fetch_add(&arrived, 1), all = (before / size + 1) * size;
    for (int64_t begin = ls_now(); atomic_load(&arrived) < all; usleep(100))
        if (ls_now() - begin > (int64_t)TIMEOUT_MS * 1000000) return; /* another rank failed, and says why */
}

/* ---- Hooks that fail. */

typedef struct hook_plan {
    bool finish, no_overlap, to_local_root;
    int rank, bucket; /* whose hook fails, and when */
    ls_status status;
} hook_plan;

typedef struct hook_state {
    const hook_plan *plan;
    int rank;
} hook_state;

static ls_status start_sum(void *user, const ls_bucket *bucket, ls_work **work)
{
    (void)user;
    return ls_bucket_reduce(bucket, bucket->grads, bucket->count, LS_F32, work);
}

/* Every second failure leaves a work behind, which is waited for. */
static ls_status fail_in_start(void *user, const ls_bucket *bucket, ls_work **work)
{
    const hook_state *s = user;
    bool fails = s->rank == s->plan->rank && bucket->index == s->plan->bucket;
    if (fails && bucket->index % 2) return s->plan->status;
    ls_status status = start_sum(NULL, bucket, work);
    return fails && !status ? s->plan->status : status;
}

static ls_status fail_in_finish(void *user, const ls_bucket *bucket)
{
    const hook_state *s = user;
    return s->rank == s->plan->rank && bucket->index == s->plan->bucket ? s->plan->status : LS_OK;
}

static atomic_int done;

/* Fills memory of this world with a pattern, and sees to it that it stays. */
static int check_memory(ls_world *world, char *why)
{
    void *memory[2 * SPANS];
    for (int i = 0; i < 2 * SPANS; i++) {
        need_ok(ls_world_alloc(world, COUNT * sizeof(float), &memory[i]));
        memset(memory[i], 0x5a, COUNT * sizeof(float));
    }
    for (int64_t begin = ls_now(); atomic_load(&done) < ls_world_size(world) - 1; usleep(100))
        if (ls_now() - begin > (int64_t)TIMEOUT_MS * 1000000) return 0; /* another rank failed, and says why */
    for (int i = 0; i < 2 * SPANS; i++)
        for (size_t k = 0; k < COUNT * sizeof(float); k++)
            need(((uint8_t *)memory[i])[k] == 0x5a, "byte %zu of block %d was overwritten", k, i);
    return 0;
}

static int failing_hook(ls_world *world, void *arg, char *why)
{
    const hook_plan *p = arg;
    int rank = ls_world_rank(world), bad = 0;
    hook_state hook = { p, rank };
    ls_ddp *ddp;
    ls_ddp_options o = { .no_overlap = p->no_overlap,
                         .reduce_to_local_root = p->to_local_root,
                         .hook = { .user = &hook } };
    o.hook.start = p->finish ? start_sum : fail_in_start;
    o.hook.finish = p->finish ? fail_in_finish : NULL;
    need_ok(open_four(&ddp, world, &o));
    barrier(world);
    if (rank != p->rank) usleep(20000); /* the other ranks begin when it has failed */
    ls_status status = LS_OK;
    int steps = 0;
    for (; !status && steps < 2; steps++) status = one_step(ddp, 2);
    char text[64];
    snprintf(text, sizeof text, "the hook's %s failed for bucket %d", p->finish ? "finish" : "start", p->bucket);
    need(status == (rank == p->rank ? p->status : LS_EABORTED), "rank %d: %s: %s", rank, ls_status_name(status),
         ls_error());
    need(strstr(ls_error(), text), "rank %d: '%s' lacks '%s'", rank, ls_error(), text);
    need(steps == 1, "rank %d made %d steps", rank, steps - 1);
    /* It stays so. */
    need(ls_ddp_begin(ddp, LS_DDP_SYNC, 1) == status && strstr(ls_error(), text), "begin: %s", ls_error());
    need(ls_ddp_ready(ddp, 0) == status && ls_ddp_poll(ddp) == status, "ready and poll: %s", ls_error());
    need(ls_ddp_finish(ddp, NULL) == status && ls_ddp_join(ddp, NULL, NULL) == status, "finish: %s", ls_error());
    ls_ddp_free(&ddp);
    if (rank == p->rank)
        bad = check_memory(world, why);
    else
        atomic_fetch_add(&done, 1);
    return bad;
}

static void a_hook_that_fails_ends_the_step_for_all(void **state)
{
    (void)state;
    int64_t begin = ls_now();
    for (int size = 1; size <= 3; size++)
        for (int kind = 0; kind < 8; kind++) {
            hook_plan p = { .finish = kind & 1,
                            .no_overlap = kind & 2,
                            .to_local_root = kind & 4,
                            .bucket = kind % SPANS,
                            .status = kind % 3 ? LS_EIO : LS_ENOMEM };
            p.rank = size - 1;
            atomic_store(&done, 0), atomic_store(&arrived, 0);
            on_ranks(size, failing_hook, &p, &patient);
            if (size != 3) continue;
            p.rank = 0;
            atomic_store(&done, 0), atomic_store(&arrived, 0);
            on_nodes(kind & 1 ? "011" : "0011", failing_hook, &p, patient);
        }
    assert_true(ls_now() - begin < (int64_t)TIMEOUT_MS * 1000000 / 2);
}

/* A group that breaks while a bucket is being added up, by some of the ranks, into the buffers of all of them: who gives up first
 * has memory of its own again while others are still at it. */
static int break_within(ls_world *world, void *arg, char *why)
{
    enum { LARGE = 1 << 20 };
    unsigned delay = *(unsigned *)arg;
    ls_span span = { .name = "w", .count = LARGE };
    ls_ddp *ddp;
    void *memory;
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .fixed_order = true }));
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    barrier(world);
    ls_status status = ls_ddp_ready(ddp, 0);
    if (ls_world_rank(world) == 2) {
        usleep(delay);
        ls_group_abort(ls_world_group(world), "enough");
    }
    if (!status) status = ls_ddp_finish(ddp, NULL);
    need(!status || status == LS_EABORTED, "%s", ls_error());
    ls_ddp_free(&ddp);
    need_ok(ls_world_alloc(world, LARGE * sizeof(float), &memory));
    memset(memory, 0x5a, LARGE * sizeof(float));
    barrier(world);
    for (size_t k = 0; k < LARGE; k++) need(((uint32_t *)memory)[k] == 0x5a5a5a5a, "element %zu was overwritten", k);
    return 0;
}

static void a_group_that_breaks_within_a_sum_leaves_new_memory_alone(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 25; i++) {
        unsigned delay = i * 40;
        atomic_store(&arrived, 0);
        on_ranks(4, break_within, &delay, &patient);
    }
}

/* A hook, or a step while joining, that calls its ddp gets an error without any effect. */
static ls_status call_back(void *user, const ls_bucket *bucket)
{
    ls_ddp *ddp = *(ls_ddp **)user;
    bool refused = ls_ddp_ready(ddp, SPANS - 1) == LS_ESTATE && ls_ddp_finish(ddp, NULL) == LS_ESTATE &&
                   ls_ddp_begin(ddp, LS_DDP_SYNC, 1) == LS_ESTATE && ls_ddp_poll(ddp) == LS_ESTATE &&
                   ls_ddp_join(ddp, NULL, NULL) == LS_ESTATE && strstr(ls_error(), "a hook");
    return refused && (!bucket || bucket->count >= COUNT) ? LS_OK : LS_EFORMAT;
}

static ls_status call_back_first(void *user, const ls_bucket *bucket, ls_work **work)
{
    ls_status status = call_back(user, bucket);
    return status ? status : start_sum(NULL, bucket, work);
}

static ls_status step_back(void *user, const ls_ddp_result *result)
{
    return result->joined == 1 ? call_back(user, NULL) : LS_EFORMAT;
}

static int reenter(ls_world *world, void *arg, char *why)
{
    ls_ddp *ddp;
    (void)arg;
    need_ok(open_four(&ddp, world, &(ls_ddp_options){ .hook = { call_back_first, call_back, &ddp } }));
    need_ok(one_step(ddp, 4));
    need(ls_ddp_grad(ddp, 0)[0] == 4, "%g", (double)ls_ddp_grad(ddp, 0)[0]);
    if (ls_world_rank(world) == 0) need_ok(one_step(ddp, 4));
    need_ok(ls_ddp_join(ddp, step_back, &ddp));
    ls_ddp_free(&ddp);
    return 0;
}

static void a_hook_may_not_call_its_ddp(void **state)
{
    (void)state;
    on_ranks(2, reenter, NULL, &patient);
}

/* ---- Freeing at the wrong time. */

typedef enum moment { AFTER_BEGIN, AFTER_SOME, AFTER_ALL, ACCUMULATING, AFTER_ABORT, MOMENTS } moment;

static int free_early(ls_world *world, void *arg, char *why)
{
    moment at = *(moment *)arg;
    int rank = ls_world_rank(world);
    ls_ddp *ddp, *none = NULL;
    ls_ddp_free(&none);
    need_ok(open_four(&ddp, world, &(ls_ddp_options){ .fixed_order = true }));
    need_ok(one_step(ddp, 1));
    barrier(world);
    if (rank == 0) {
        need_ok(ls_ddp_begin(ddp, at == ACCUMULATING ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, 1));
        for (size_t i = 0; i < (at == AFTER_BEGIN ? 0 : at == AFTER_SOME ? 2 : SPANS); i++)
            need_ok(ls_ddp_ready(ddp, i));
        if (at == AFTER_ABORT) ls_group_abort(ls_world_group(world), "the data are gone");
        ls_ddp_free(&ddp);
        need(!ddp, "free leaves the pointer");
        return check_memory(world, why);
    }
    usleep(20000);
    if (at == AFTER_BEGIN || at == ACCUMULATING) { /* nothing was started, and nothing is broken */
        atomic_fetch_add(&done, 1);
        ls_ddp_free(&ddp);
        return 0;
    }
    ls_status status = one_step(ddp, 1);
    const char *text = at == AFTER_ABORT ? "the data are gone" : "freed in the middle of a step";
    need(status == LS_EABORTED && strstr(ls_error(), text), "rank %d: %s: %s", rank, ls_status_name(status),
         ls_error());
    ls_ddp_free(&ddp);
    atomic_fetch_add(&done, 1);
    return 0;
}

static void a_ddp_freed_in_the_middle_keeps_nobody_waiting(void **state)
{
    (void)state;
    int64_t begin = ls_now();
    for (int size = 2; size <= 4; size++)
        for (moment at = 0; at < MOMENTS; at++) {
            atomic_store(&done, 0), atomic_store(&arrived, 0);
            on_ranks(size, free_early, &at, &patient);
            if (size != 4) continue;
            atomic_store(&done, 0), atomic_store(&arrived, 0);
            on_nodes("0011", free_early, &at, patient);
        }
    assert_true(ls_now() - begin < (int64_t)TIMEOUT_MS * 1000000 / 2);
}

/* Micro-batches that are given up before their sync leave nothing behind, neither in a new ddp nor in the group. */
static int give_up(ls_world *world, void *arg, char *why)
{
    ls_ddp *ddp;
    (void)arg;
    for (int kind = 0; kind < 3; kind++) {
        need_ok(open_four(&ddp, world, &(ls_ddp_options){ 0 }));
        need_ok(ls_ddp_begin(ddp, kind == 2 ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, 1));
        for (size_t i = 0; i < SPANS && kind < 2; i++) {
            for (size_t k = 0; k < COUNT; k++) ls_ddp_grad(ddp, i)[k] = 100;
            need_ok(ls_ddp_ready(ddp, i));
        }
        if (kind == 1) need_ok(ls_ddp_finish(ddp, NULL));
        ls_ddp_free(&ddp);
        need_ok(open_four(&ddp, world, &(ls_ddp_options){ 0 }));
        need_ok(one_step(ddp, 3));
        need(ls_ddp_grad(ddp, 2)[COUNT - 1] == 3, "%g", (double)ls_ddp_grad(ddp, 2)[COUNT - 1]);
        ls_ddp_free(&ddp);
    }
    return 0;
}

static void given_up_micro_batches_leave_nothing(void **state)
{
    (void)state;
    on_ranks(1, give_up, NULL, NULL);
    on_ranks(3, give_up, NULL, NULL);
}

/* ---- One rank cannot open. */

static int open_badly(ls_world *world, void *arg, char *why)
{
    int kind = *(int *)arg, rank = ls_world_rank(world);
    float x[4];
    ls_span spans[2] = { { .name = "a", .count = 4 }, { .name = "b", .count = 4 } };
    ls_ddp_options o = { 0 };
    static const char *const texts[] = { "give all spans memory, or none", "total is too large", "cannot be spread",
                                         "buffer_mode 7" };
    ls_named buffer = { "x", x, 4 };
    if (rank == 1 && kind == 0) spans[1].grad = x;
    if (rank == 1 && kind == 1) spans[1].count = SIZE_MAX / 4 - 2;
    if (rank == 1 && kind == 2) o.slots = 1;
    if (kind == 3) o = (ls_ddp_options){ .buffers = &buffer, .n_buffers = 1, .buffer_mode = rank == 1 ? 7 : 0 };
    ls_ddp *ddp = (ls_ddp *)x;
    ls_status status = ls_ddp_open(&ddp, world, spans, 2, &o);
    need(status == LS_EINVAL && !ddp && strstr(ls_error(), texts[kind]), "rank %d: %s: %s", rank,
         ls_status_name(status), ls_error());
    need(rank == 1 || strstr(ls_error(), "rank 1: "), "rank %d: %s", rank, ls_error());
    /* And the world is as good as before. */
    need_ok(open_four(&ddp, world, &(ls_ddp_options){ 0 }));
    need_ok(one_step(ddp, 5));
    ls_ddp_free(&ddp);
    return 0;
}

/* Fewer micro-batches than ranks: those without any take part with nothing. */
static int few_slots(ls_world *world, void *arg, char *why)
{
    ls_span span = { .name = "w", .count = 4 };
    ls_ddp *ddp;
    ls_ddp_result result;
    int rank = ls_world_rank(world);
    (void)arg;
    need(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .slots = -3, .sum_order = LS_SUM_ORDER_ANY }) ==
             LS_EINVAL,
         "-3 slots");
    need_ok(ls_ddp_open(&ddp, world, &span, 1, &(ls_ddp_options){ .slots = 2, .sum_order = LS_SUM_ORDER_ANY }));
    for (int step = 0; step < 2; step++) {
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, rank < 2));
        for (int k = 0; k < 4; k++) ls_ddp_grad(ddp, 0)[k] = rank < 2 ? 8 : NAN;
        need_ok(ls_ddp_ready(ddp, 0));
        need_ok(ls_ddp_finish(ddp, &result));
        need(result.weight == 2 && ls_ddp_grad(ddp, 0)[3] == 8, "weight %g, mean %g", result.weight,
             (double)ls_ddp_grad(ddp, 0)[3]);
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void more_ranks_than_micro_batches_are_possible_in_any_order(void **state)
{
    (void)state;
    on_ranks(3, few_slots, NULL, &patient);
}

static void a_rank_that_cannot_open_is_named_by_all(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) on_ranks(3, open_badly, &kind, &patient);
}

/* ---- Nothing at all. */

static int nothing(ls_world *world, void *arg, char *why)
{
    int kind = *(int *)arg;
    ls_span spans[3] = { { 0 } }; /* no names, no elements */
    ls_ddp *ddp;
    ls_ddp_result result;
    ls_ddp_options o = { .reduce_to_local_root = kind & 1, .wire = kind & 2 ? LS_WIRE_BF16 : LS_WIRE_F32 };
    need_ok(ls_ddp_open(&ddp, world, kind & 4 ? spans : NULL, kind & 4 ? 3 : 0, &o));
    for (int step = 0; step < 3; step++) {
        for (int micro = 0; micro < 3; micro++) {
            need_ok(ls_ddp_begin(ddp, micro < 2 ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, 1));
            if (kind & 4) need_ok(ls_ddp_ready(ddp, (size_t)micro));
            need(ls_ddp_ready(ddp, 3) == LS_EINVAL, "span 3 does not exist");
            need_ok(ls_ddp_finish(ddp, &result));
        }
        need(result.weight == 3 * ls_world_size(world), "weight %g", result.weight);
    }
    need(ls_ddp_get_stats(ddp).bytes == 0, "%lld bytes", (long long)ls_ddp_get_stats(ddp).bytes);
    ls_ddp_free(&ddp);
    return 0;
}

static void no_spans_and_empty_spans_are_fine(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        on_ranks(1, nothing, &kind, NULL);
        on_ranks(3, nothing, &kind, NULL);
    }
}

/* ---- A group that is broken from outside. */

static int broken(ls_world *world, void *arg, char *why)
{
    int rank = ls_world_rank(world);
    ls_ddp *ddp[2];
    (void)arg;
    for (int i = 0; i < 2; i++) need_ok(open_four(&ddp[i], world, &(ls_ddp_options){ .fixed_order = true }));
    need_ok(one_step(ddp[0], 1));
    barrier(world);
    if (rank == 1) ls_group_abort(ls_world_group(world), "no more");
    for (int i = 0; i < 2; i++) { /* a second ddp of the same world gets the same reason */
        ls_status status = LS_OK;
        for (int steps = 0; steps < 2 && !status; steps++) status = one_step(ddp[i], 1);
        need(status == LS_EABORTED && strstr(ls_error(), "no more"), "rank %d: %s: %s", rank, ls_status_name(status),
             ls_error());
        need(ls_ddp_begin(ddp[i], LS_DDP_SYNC, 1) == LS_EABORTED, "begin after that");
    }
    ls_ddp *third;
    need(open_four(&third, world, &(ls_ddp_options){ 0 }) == LS_EABORTED && !third, "open: %s", ls_error());
    for (int i = 0; i < 2; i++) ls_ddp_free(&ddp[i]);
    return 0;
}

static void an_aborted_group_ends_all_its_ddps(void **state)
{
    (void)state;
    atomic_store(&arrived, 0);
    on_ranks(2, broken, NULL, &patient);
    atomic_store(&arrived, 0);
    on_ranks(4, broken, NULL, &patient);
    on_nodes("0011", broken, NULL, patient);
}

/* ---- Joining. */

static ls_status stop(void *user, const ls_ddp_result *result)
{
    (void)user;
    (void)result;
    return LS_EFORMAT;
}

static int join_badly(ls_world *world, void *arg, char *why)
{
    int rank = ls_world_rank(world), steps = 0;
    ls_ddp *ddp;
    ls_status status = LS_OK;
    (void)arg;
    need_ok(open_four(&ddp, world, &(ls_ddp_options){ .fixed_order = true }));
    if (rank == 1) {
        status = ls_ddp_join(ddp, stop, NULL);
        need(status == LS_EFORMAT, "%s", ls_status_name(status));
    } else {
        while (!(status = one_step(ddp, 1))) steps++;
        need(status == LS_EABORTED && steps <= 1, "%s after %d steps", ls_status_name(status), steps);
    }
    need(strstr(ls_error(), "step callback of ls_ddp_join() failed"), "rank %d: %s", rank, ls_error());
    ls_ddp_free(&ddp);
    return 0;
}

static void a_rank_that_cannot_go_on_joining_is_named(void **state)
{
    (void)state;
    on_ranks(3, join_badly, NULL, &patient);
}

/* ---- NULL where there are elements. */

static int nulls(ls_world *world, void *arg, char *why)
{
    ls_ddp *ddp = (ls_ddp *)1;
    float values[3] = { 1, 2, 3 };
    const ls_named named[2] = { { "a", values, 3 }, { "b", NULL, 3 } }, empty = { "c", NULL, 0 };
    (void)arg;
#define need_invalid(call, text)                                                                                \
    do {                                                                                                        \
        ls_status s_ = (call);                                                                                  \
        need(s_ == LS_EINVAL && strstr(ls_error(), text), "%s: %s: %s", #call, ls_status_name(s_), ls_error()); \
    } while (0)
    need_invalid(ls_ddp_open(&ddp, world, NULL, 2, NULL), "spans must not be NULL for a count of 2");
    need(!ddp, "ddp is not NULL");
    need_invalid(ls_ddp_open(NULL, world, NULL, 0, NULL), "out must not be NULL");
    need_invalid(ls_ddp_open(&ddp, world, NULL, 0, &(ls_ddp_options){ .slots = -1 }), "slots=-1: must not be negative");
    need_invalid(ls_ddp_open(&ddp, NULL, NULL, 0, NULL), "world must not be NULL");
    need_invalid(open_four(&ddp, world, &(ls_ddp_options){ .n_buffers = 2 }),
                 "options.buffers must not be NULL for a count of 2");
    need_invalid(open_four(&ddp, world, &(ls_ddp_options){ .buffers = named, .n_buffers = 2 }), "'b' (number 1)");
    need_invalid(open_four(&ddp, world, &(ls_ddp_options){ .buffer_mode = (ls_buffers)9 }), "buffer_mode 9");
    need_invalid(ls_params_broadcast(world, NULL, 1, 0),
                 "ls_params_broadcast: params must not be NULL for a count of 1");
    need_invalid(ls_params_broadcast(world, named, 2, 0), "data must not be NULL for a count of 3");
    need_invalid(ls_params_verify(world, NULL, 1), "ls_params_verify: params must not be NULL");
    need_invalid(ls_params_verify(world, named, 2), "'b' (number 1): data must not be NULL for a count of 3");
    need_ok(ls_params_broadcast(world, &empty, 1, 0));
    need_ok(ls_params_verify(world, named, 1)); /* nothing was sent, and nobody waits */
    ls_ddp_free(NULL);
    return 0;
}

static void null_arguments_are_refused(void **state)
{
    (void)state;
    on_ranks(1, nulls, NULL, NULL);
    on_ranks(2, nulls, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hook_that_fails_ends_the_step_for_all),
        cmocka_unit_test(a_group_that_breaks_within_a_sum_leaves_new_memory_alone),
        cmocka_unit_test(a_ddp_freed_in_the_middle_keeps_nobody_waiting),
        cmocka_unit_test(given_up_micro_batches_leave_nothing),
        cmocka_unit_test(a_rank_that_cannot_open_is_named_by_all),
        cmocka_unit_test(a_hook_may_not_call_its_ddp),
        cmocka_unit_test(more_ranks_than_micro_batches_are_possible_in_any_order),
        cmocka_unit_test(no_spans_and_empty_spans_are_fine),
        cmocka_unit_test(an_aborted_group_ends_all_its_ddps),
        cmocka_unit_test(a_rank_that_cannot_go_on_joining_is_named),
        cmocka_unit_test(null_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
