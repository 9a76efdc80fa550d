/* Communication hooks: what they are given, that they may make any collective calls, and what happens when one fails while
 * works are under way. */
#include <stdatomic.h>
#include <unistd.h>
#include "comm/nodes.h"
#include "lockstep/ddp.h"

enum { SPANS = 5, COUNT = 20000, TIMEOUT_MS = 30000 };
static const ls_world_options patient = { .timeout_ms = TIMEOUT_MS };
static const size_t span_counts[SPANS] = { COUNT, 3, 0, 17, COUNT };

static ls_status open_spans(ls_ddp **ddp, ls_world *world, const ls_ddp_options *more)
{
    ls_span spans[SPANS];
    ls_ddp_options o = *more;
    for (size_t i = 0; i < SPANS; i++) spans[i] = (ls_span){ .name = "w", .count = span_counts[i] };
    if (!o.bucket_bytes) o.bucket_bytes = o.first_bucket_bytes = 64;
    return ls_ddp_open(ddp, world, spans, SPANS, &o);
}

static float gradient(int rank, int step, size_t span, size_t k)
{
    return (float)((k * 7 + span * 5 + (size_t)step * 3) % 11) + (float)(rank + 1);
}

static ls_status one_step(ls_ddp *ddp, int rank, int step, ls_ddp_result *result)
{
    ls_status status = ls_ddp_begin(ddp, LS_DDP_SYNC, 2);
    for (size_t i = 0; i < SPANS && !status; i++) {
        for (size_t k = 0; k < span_counts[i]; k++) ls_ddp_grad(ddp, i)[k] = gradient(rank, step, i, k);
        status = ls_ddp_ready(ddp, i);
    }
    return status ? status : ls_ddp_finish(ddp, result);
}

static int check_means(ls_ddp *ddp, ls_world *world, int step, char *why)
{
    int size = ls_world_size(world);
    for (size_t i = 0; i < SPANS; i++)
        for (size_t k = 0; k < span_counts[i]; k++) {
            float sum = 0, got = ls_ddp_reduced(ddp, i)[k];
            for (int r = 0; r < size; r++) sum += gradient(r, step, i, k);
            float expected = sum * (float)(1.0 / (2 * size));
            need(got == expected, "step %d, span %zu, element %zu: %g, expected %g", step, i, k, (double)got,
                 (double)expected);
        }
    return 0;
}

/* ---- Hooks that sum in other ways. */

typedef enum way { WAITS_ITSELF, GATHERS, WAYS } way;

typedef struct hook_state {
    way way;
    int ranks, starts, finishes;
    bool wrong;                   /* it was given something unexpected */
    float *sent[8], *gathered[8]; /* by bucket */
} hook_state;

static bool is_described(const ls_bucket *b, int index)
{
    size_t end = b->count;
    bool good = b->index == index && b->n_spans >= 1 && b->grads && b->group && b->count % 16 == 0;
    for (size_t i = 0; i < b->n_spans; i++) { /* the first span is last */
        const ls_bucket_span *s = &b->spans[i];
        good = good && s->count == span_counts[s->span] && s->offset % 16 == 0 && s->offset + s->count <= end;
        for (size_t k = s->offset + s->count; k < end; k++) good = good && b->grads[k] == 0;
        end = s->offset;
    }
    return good && end == 0;
}

/* A blocking call in start(), or an all-gather of copies that are added in finish(). */
static ls_status start(void *user, const ls_bucket *b, ls_work **work)
{
    hook_state *s = user;
    s->wrong = s->wrong || !is_described(b, s->starts++);
    if (s->way == WAITS_ITSELF) return ls_allreduce(b->group, b->grads, b->count, LS_F32, LS_SUM);
    if (!s->sent[b->index]) s->sent[b->index] = malloc(b->count * sizeof(float) + 1);
    if (!s->gathered[b->index]) s->gathered[b->index] = malloc(b->count * (size_t)s->ranks * sizeof(float) + 1);
    memcpy(s->sent[b->index], b->grads, b->count * sizeof(float));
    return ls_allgather_start(b->group, s->sent[b->index], s->gathered[b->index], b->count, LS_F32, work);
}

static ls_status finish(void *user, const ls_bucket *b)
{
    hook_state *s = user;
    s->wrong = s->wrong || b->index != s->finishes++ || b->weight != 2 * s->ranks;
    if (s->way == WAITS_ITSELF) return LS_OK;
    memset(b->grads, 0, b->count * sizeof(float));
    for (int r = 0; r < s->ranks; r++)
        for (size_t k = 0; k < b->count; k++) b->grads[k] += s->gathered[b->index][(size_t)r * b->count + k];
    return ls_barrier(b->group); /* a collective in finish */
}

static int sum_by_hook(ls_world *world, void *arg, char *why)
{
    int kind = *(int *)arg, rank = ls_world_rank(world), size = ls_world_size(world);
    hook_state s = { .way = (way)(kind % WAYS), .ranks = size };
    ls_ddp *ddp;
    ls_ddp_options o = { .no_overlap = kind & 2, .reduce_to_local_root = kind & 4, .hook = { start, finish, &s } };
    if (kind & 8) o.bucket_bytes = 1 << 20;
    need_ok(open_spans(&ddp, world, &o));
    int buckets = (int)ls_ddp_get_stats(ddp).buckets;
    for (int step = 0; step < 4; step++) {
        ls_ddp_result result;
        s.starts = s.finishes = 0;
        need_ok(one_step(ddp, rank, step, &result));
        need(s.starts == buckets && s.finishes == buckets, "%d and %d calls, %d buckets", s.starts, s.finishes,
             buckets);
        need(!s.wrong, "step %d: the hook was given something unexpected", step);
        need(!result.moved, "gradients moved though a hook keeps state");
        if (check_means(ddp, world, step, why)) return 1;
        need_ok(ls_barrier(ls_world_group(world)));
    }
    ls_ddp_free(&ddp);
    for (int i = 0; i < 8; i++) free(s.sent[i]), free(s.gathered[i]);
    return 0;
}

static void a_hook_replaces_the_all_reduce(void **state)
{
    (void)state;
    for (int kind = 0; kind < 16; kind++) {
        on_ranks(1, sum_by_hook, &kind, NULL);
        on_ranks(3, sum_by_hook, &kind, NULL);
        on_nodes("0011", sum_by_hook, &kind, patient);
    }
}

/* ---- A hook that fails for the second bucket on one rank, while the other ranks have works under way. */

typedef struct failure {
    int rank;     /* whose hook fails */
    bool gathers; /* in buffers of the hook, not in the bucket */
    bool leaves;  /* it leaves the work that it has started */
} failure;

typedef struct failing_state {
    const failure *f;
    int rank;
    void *sent, *gathered;
} failing_state;

static atomic_int failed, under_way;

static ls_status start_or_fail(void *user, const ls_bucket *b, ls_work **work)
{
    failing_state *s = user;
    bool fails = s->rank == s->f->rank && b->index == 1;
    if (fails) /* until all other ranks have two buckets under way */
        while (atomic_load(&under_way) < ls_group_size(b->group) - 1) usleep(100);
    if (fails && !s->f->leaves) {
        atomic_store(&failed, 1);
        return LS_EIO;
    }
    size_t bytes = b->count * sizeof(float), each = bytes * (size_t)ls_group_size(b->group);
    ls_status status = LS_OK;
    if (s->f->gathers && b->index < 2) {
        char *sent = (char *)s->sent + (size_t)b->index * COUNT * 8,
             *gathered = (char *)s->gathered + (size_t)b->index * COUNT * 32;
        memset(sent, 1, bytes);
        status = each <= COUNT * 32 ? ls_allgather_start(b->group, sent, gathered, b->count, LS_F32, work) : LS_EFORMAT;
    } else {
        status = ls_bucket_reduce(b, b->grads, b->count, LS_F32, work);
    }
    if (!status && b->index == 1 && !fails) atomic_fetch_add(&under_way, 1);
    if (fails) atomic_store(&failed, 1);
    return fails && !status ? LS_EIO : status;
}

static int fail_second(ls_world *world, void *arg, char *why)
{
    const failure *f = arg;
    int rank = ls_world_rank(world);
    failing_state s = { .f = f, .rank = rank };
    ls_ddp *ddp;
    need_ok(ls_world_alloc(world, 2 * COUNT * 8, &s.sent));
    need_ok(ls_world_alloc(world, 2 * COUNT * 32, &s.gathered));
    need_ok(open_spans(&ddp, world, &(ls_ddp_options){ .hook = { start_or_fail, NULL, &s } }));
    ls_status status = one_step(ddp, rank, 0, NULL);
    need(status == (rank == f->rank ? LS_EIO : LS_EABORTED), "rank %d: %s: %s", rank, ls_status_name(status),
         ls_error());
    need(strstr(ls_error(), "the hook's start failed for bucket 1"), "rank %d: %s", rank, ls_error());
    need(ls_ddp_begin(ddp, LS_DDP_SYNC, 1) == status, "rank %d: the ddp continues", rank);
    ls_ddp_free(&ddp);
    return 0;
}

static void a_hook_that_fails_for_the_second_bucket_ends_all_works(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        for (int kind = 0; kind < 8; kind++) {
            failure f = { .rank = kind & 1 ? size - 1 : 0, .gathers = kind & 2, .leaves = kind & 4 };
            atomic_store(&failed, 0), atomic_store(&under_way, 0);
            on_ranks(size, fail_second, &f, &patient);
            assert_int_equal(atomic_load(&failed), 1);
            if (size != 4) continue;
            atomic_store(&failed, 0), atomic_store(&under_way, 0);
            on_nodes("0011", fail_second, &f, patient);
        }
}

/* ---- After a failed step, nothing uses the hook's buffers any more, also not a call on another group. */

typedef struct reused {
    int rank;
    float sum[8]; /* what the hook sums for bucket 0 */
    _Atomic int *turn;
} reused;
enum { FIRST_STARTED = 1, BUFFER_CHECKED = 2 };

static ls_status sum_own_buffer(void *user, const ls_bucket *b, ls_work **work)
{
    reused *s = user;
    if (b->index == 0) {
        ls_status status = ls_allreduce_start(b->group, s->sum, 8, LS_F32, LS_SUM, work);
        if (s->rank == 1) atomic_store(s->turn, FIRST_STARTED);
        return status;
    }
    if (s->rank == 1) return LS_OK;
    while (atomic_load(s->turn) < FIRST_STARTED) usleep(20);
    return ls_error_set(LS_EIO, "no");
}

static int reuse_the_buffer(ls_world *world, void *arg, char *why)
{
    ls_ddp *ddp;
    ls_group *other;
    ls_work *barrier;
    reused s = { .rank = ls_world_rank(world), .turn = arg };
    for (int i = 0; i < 8; i++) s.sum[i] = 1;
    need_ok(ls_group_split(ls_world_group(world), 0, 0, &other));
    need_ok(open_spans(&ddp, world, &(ls_ddp_options){ .hook = { sum_own_buffer, NULL, &s } }));
    need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
    ls_status status = LS_OK;
    /* The last span first: all buckets are started in one call, without a test of the first one in between. */
    for (size_t i = SPANS; i-- > 0 && !status;) status = ls_ddp_ready(ddp, i);
    if (!status) status = ls_ddp_finish(ddp, NULL);
    need(status == (s.rank == 0 ? LS_EIO : LS_EABORTED), "rank %d: %s: %s", s.rank, ls_status_name(status), ls_error());
    for (int i = 0; i < 8; i++) s.sum[i] = 7; /* the buffer is the caller's again */
    if (s.rank == 0) {
        need_ok(ls_barrier_start(other, &barrier));
        need(ls_work_test(&barrier) == LS_PENDING, "rank 1 is too early: %s", ls_error());
        float after = s.sum[0];
        atomic_store(s.turn, BUFFER_CHECKED);
        need_ok(ls_work_wait(&barrier));
        need(after == 7, "a call on another group wrote %g", (double)after);
    } else {
        while (atomic_load(s.turn) < BUFFER_CHECKED) usleep(20);
        need_ok(ls_barrier(other));
    }
    ls_ddp_free(&ddp);
    ls_group_free(&other);
    return 0;
}

static void a_failed_step_leaves_the_hooks_buffers_alone(void **state)
{
    (void)state;
    _Atomic int turn = 0;
    on_ranks(2, reuse_the_buffer, &turn, &patient);
}

/* ---- What a failed hook returns, and what the other ranks get. */

typedef struct refusal {
    ls_status returned, expected; /* by the hook; by the ddp */
    bool in_finish;
    int rank; /* this rank, filled by refuse_bucket() */
} refusal;

static ls_status start_refusing(void *user, const ls_bucket *b, ls_work **work)
{
    const refusal *r = user;
    (void)work;
    if (!r->in_finish && r->rank == 1 && b->index == 1) return r->returned;
    return ls_allreduce(b->group, b->grads, b->count, LS_F32, LS_SUM); /* fails in the other ranks' start */
}

static ls_status finish_refusing(void *user, const ls_bucket *b)
{
    const refusal *r = user;
    return r->in_finish && r->rank == 1 && b->index == 1 ? r->returned : LS_OK;
}

static int refuse_bucket(ls_world *world, void *arg, char *why)
{
    refusal r = *(const refusal *)arg;
    ls_ddp *ddp;
    char text[64];
    r.rank = ls_world_rank(world);
    need_ok(open_spans(&ddp, world, &(ls_ddp_options){ .hook = { start_refusing, finish_refusing, &r } }));
    ls_status status = one_step(ddp, r.rank, 0, NULL), expected = r.rank == 1 ? r.expected : LS_EABORTED;
    need(status == expected, "rank %d, the hook returned %d: %s: %s", r.rank, r.returned, ls_status_name(status),
         ls_error());
    snprintf(text, sizeof text, "the hook's %s failed for bucket 1", r.in_finish ? "finish" : "start");
    const char *first = strstr(ls_error(), text);
    need(first && !strstr(first + strlen(text), "hook's"), "not named once: %s", ls_error());
    need(r.rank == 1 || !strncmp(ls_error(), "rank 1 aborted the group: ddp: the hook's", 38), "rank %d: %s", r.rank,
         ls_error());
    if (r.rank == 1 && r.returned != r.expected)
        need(strstr(ls_error(), ls_status_name(r.returned)), "the hook's status is lost: %s", ls_error());
    need(ls_ddp_begin(ddp, LS_DDP_SYNC, 1) == status, "rank %d: the ddp continues", r.rank);
    ls_ddp_free(&ddp);
    return 0;
}

static void a_failed_hook_fails_the_step_on_all_ranks(void **state)
{
    static const refusal refusals[] = {
        { LS_EIO, LS_EIO, false, 0 },         { LS_EINVAL, LS_EABORTED, false, 0 },
        { LS_ESTATE, LS_EABORTED, false, 0 }, { LS_PENDING, LS_EABORTED, false, 0 },
        { LS_END, LS_EABORTED, false, 0 },    { (ls_status)-77, LS_EABORTED, false, 0 }
    };
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        for (int in_finish = 0; in_finish < 2; in_finish++) {
            refusal r = refusals[i];
            r.in_finish = in_finish;
            on_ranks(3, refuse_bucket, &r, &patient);
            if (i < 2) on_nodes("001", refuse_bucket, &r, patient);
        }
}

/* ---- Options. */

static int refuse(ls_world *world, void *arg, char *why)
{
    ls_ddp *ddp;
    hook_state s = { 0 };
    (void)arg;
    ls_ddp_options o = { .hook = { start, finish, &s }, .wire = LS_WIRE_BF16 };
    need(open_spans(&ddp, world, &o) == LS_EINVAL && strstr(ls_error(), "leave wire"), "%s", ls_error());
    o = (ls_ddp_options){ .hook = { NULL, finish, &s } };
    need(open_spans(&ddp, world, &o) == LS_EINVAL && strstr(ls_error(), "no start"), "%s", ls_error());
    o = (ls_ddp_options){ .wire = (ls_wire)7 };
    need(open_spans(&ddp, world, &o) == LS_EINVAL && strstr(ls_error(), "wire 7"), "%s", ls_error());
    o = (ls_ddp_options){ .sum_order = (ls_sum_order)7 };
    need(open_spans(&ddp, world, &o) == LS_EINVAL && strstr(ls_error(), "sum_order 7"), "%s", ls_error());
    o = (ls_ddp_options){ .fixed_order = true };
    if (ls_world_rank(world) == 1) o.hook = (ls_comm_hook){ start, NULL, &s };
    need(open_spans(&ddp, world, &o) == LS_EMISMATCH && strstr(ls_error(), "hook.start"), "%s", ls_error());
    return 0;
}

static void hooks_that_cannot_work_are_refused(void **state)
{
    (void)state;
    on_ranks(2, refuse, NULL, &patient);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hook_replaces_the_all_reduce),
        cmocka_unit_test(a_hook_that_fails_for_the_second_bucket_ends_all_works),
        cmocka_unit_test(a_failed_step_leaves_the_hooks_buffers_alone),
        cmocka_unit_test(a_failed_hook_fails_the_step_on_all_ranks),
        cmocka_unit_test(hooks_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
