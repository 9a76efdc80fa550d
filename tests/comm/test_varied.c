/* Blocks of different sizes, the multiplication before a sum, messages with tags, and calls of two threads. Ranks are threads. */
#include <math.h>
#include <time.h>
#include <unistd.h>
#include "base/thread.h"
#include "comm/ranks.h"
#include "kern/vector.h"

/* ---- Blocks of different sizes. */

/* Elements that rank r sends to rank q: some none, some more than a round holds. */
static size_t between(int r, int q, int p, size_t scale)
{
    return (size_t)((r * 5 + q * 3) % (p + 2)) * scale;
}

static int32_t value(int r, int q, size_t i)
{
    return (int32_t)(r * 1000003 + q * 10007 + (int)(i % 9973));
}

static int exchange(ls_world *world, size_t scale, char *why)
{
    ls_group *g = ls_world_group(world);
    int p = ls_group_size(g), me = ls_group_rank(g);
    size_t sends[8], takes[8], total[2] = { 0 }, at = 0;
    for (int q = 0; q < p; q++) {
        total[0] += sends[q] = between(me, q, p, scale);
        total[1] += takes[q] = between(q, me, p, scale);
    }
    int32_t *in = malloc((total[0] + 1) * sizeof *in), *out = malloc((total[1] + 1) * sizeof *out);
    for (int q = 0; q < p; q++)
        for (size_t i = 0; i < sends[q]; i++) in[at++] = value(me, q, i);
    out[total[1]] = 77;
    NEED(!ls_alltoallv(g, in, sends, out, takes, LS_I32));
    at = 0;
    for (int q = 0; q < p; q++)
        for (size_t i = 0; i < takes[q]; i++) NEED(out[at++] == value(q, me, i));
    NEED(out[total[1]] == 77);
    free(in);
    free(out);

    size_t counts[8], all = 0;
    for (int q = 0; q < p; q++) all += counts[q] = between(q, 1, p, scale);
    int32_t *mine = malloc((counts[me] + 1) * sizeof *mine), *gathered = malloc((all + 1) * sizeof *gathered);
    for (size_t i = 0; i < counts[me]; i++) mine[i] = value(me, 9, i);
    gathered[all] = 77;
    NEED(!ls_allgatherv(g, mine, gathered, counts, LS_I32));
    at = 0;
    for (int q = 0; q < p; q++)
        for (size_t i = 0; i < counts[q]; i++) NEED(gathered[at++] == value(q, 9, i));
    NEED(gathered[all] == 77);
    free(mine);
    free(gathered);
    return 0;
}

static int blocks_of_all_sizes(ls_world *world, void *arg, char *why)
{
    (void)arg;
    return exchange(world, 0, why) || exchange(world, 1, why) || exchange(world, 777, why) ||
           exchange(world, 150000, why);
}

static int equal_blocks(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    int p = ls_group_size(g), me = ls_group_rank(g);
    size_t counts[8];
    float in[8], out[8];
    for (int q = 0; q < p; q++) {
        counts[q] = 1;
        in[q] = (float)(10 * me + q);
    }
    NEED(!ls_alltoallv(g, in, counts, out, counts, LS_F32));
    for (int q = 0; q < p; q++) NEED(out[q] == (float)(10 * q + me));
    NEED(!ls_allgatherv(g, in, out, counts, LS_F32));
    for (int q = 0; q < p; q++) NEED(out[q] == (float)(10 * q));
    return 0;
}

static int refused(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    size_t counts[8] = { 1, 1, 1 }, huge[8] = { SIZE_MAX, 2, 0 };
    float a[8] = { 0 }, b[8];
    NEED(ls_alltoallv(g, NULL, counts, b, counts, LS_F32) == LS_EINVAL && strstr(ls_error(), "input buffer is NULL"));
    NEED(ls_alltoallv(g, a, NULL, b, counts, LS_F32) == LS_EINVAL && strstr(ls_error(), "counts are NULL"));
    NEED(ls_alltoallv(g, a, counts, a + 1, counts, LS_F32) == LS_EINVAL && strstr(ls_error(), "overlap"));
    NEED(ls_alltoallv(g, a, huge, b, counts, LS_F32) == LS_EINVAL && strstr(ls_error(), "overflows"));
    NEED(ls_allgatherv(g, a, b, NULL, LS_F32) == LS_EINVAL);
    NEED(ls_allgatherv(g, a, NULL, counts, LS_F32) == LS_EINVAL && strstr(ls_error(), "output buffer is NULL"));
    NEED(ls_allreduce(g, a, 1, LS_F32, LS_XOR) == LS_EINVAL && strstr(ls_error(), "bitwise"));
    NEED(!ls_barrier(g)); /* nothing of that had an effect */
    return 0;
}

/* Rank 1 expects another number from rank 0 than it sends: all ranks learn of it. */
static int different_counts(ls_world *world, void *arg, char *why)
{
    const bool *gather = arg;
    ls_group *g = ls_world_group(world);
    size_t counts[3] = { 2, 2, 2 }, other[3] = { 3, 2, 2 };
    float a[12] = { 0 }, b[12];
    bool odd = ls_group_rank(g) == 1;
    ls_status status = *gather ? ls_allgatherv(g, a, b, odd ? other : counts, LS_F32)
                               : ls_alltoallv(g, a, counts, b, odd ? other : counts, LS_F32);
    if (!status) status = ls_barrier(g); /* a rank may have its data before another finds the difference */
    NEED(status == LS_EMISMATCH);
    NEED(strstr(ls_error(), "rank 0 of the group") && strstr(ls_error(), "and 3 are expected"));
    return 0;
}

/* ---- The multiplication before a sum. */

static void products_are_rounded_once(void **state)
{
    (void)state;
    float f[3] = { 1, -2.5f, 1e-3f };
    double d[2] = { 1, 3 };
    uint16_t half[3000], expected;
    check_ok(ls_premultiply(f, f, 3, LS_F32, 0.1));
    assert_true(f[0] == 0.1f && f[1] == -2.5f * 0.1f && f[2] == 1e-3f * 0.1f);
    check_ok(ls_premultiply(d, d, 2, LS_F64, 1.0 / 3));
    assert_true(d[0] == 1.0 / 3 && d[1] == 3 * (1.0 / 3));
    for (int type = 0; type < 2; type++) {
        void (*narrow)(uint16_t *, const float *, size_t) = type ? ls__f32_to_f16 : ls__f32_to_bf16;
        void (*widen)(float *, const uint16_t *, size_t) = type ? ls__f16_to_f32 : ls__bf16_to_f32;
        for (int i = 0; i < 3000; i++) narrow(&half[i], &(float){ (float)i * 0.01f }, 1);
        float wide;
        widen(&wide, &half[2999], 1);
        wide *= 0.3f;
        narrow(&expected, &wide, 1);
        check_ok(ls_premultiply(half, half, 3000, type ? LS_F16 : LS_BF16, 0.3f));
        assert_int_equal(half[2999], expected);
    }
    assert_int_equal(ls_premultiply(d, d, 2, LS_I32, 2), LS_EINVAL);
    assert_int_equal(ls_premultiply(NULL, d, 2, LS_F64, 2), LS_EINVAL);
}

/* ---- Messages with tags. */

static int tags_choose(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    int me = ls_group_rank(g), from;
    enum { BIG = 1 << 20 }; /* more than a channel holds */
    static uint8_t sent[BIG];
    uint8_t *got = calloc(1, BIG);
    int64_t a = 0, b = 0, c = 0;
    ls_p2p *m[4];
    if (me == 0) { /* rank 1 receives in another order than this */
        NEED(!ls_send_tagged(g, &(int64_t){ 11 }, 8, 1, 5, &m[0]) && !ls_p2p_wait(&m[0], NULL) && !m[0]);
        NEED(!ls_send_tagged(g, sent, BIG, 1, -3, &m[0]));
        int64_t first = 21, second = 22;
        NEED(!ls_send_tagged(g, &first, 8, 1, 7, &m[1]) && !ls_send_tagged(g, &second, 8, 1, 7, &m[2]));
        NEED(!ls_send_tagged(g, NULL, 0, 1, 8, &m[3]));
        for (int i = 0; i < 4; i++) NEED(!ls_p2p_wait(&m[i], NULL));
    } else if (me == 1) {
        NEED(!ls_recv_tagged(g, &b, 8, 0, 7, &m[0]) && !ls_recv_tagged(g, &c, 8, 0, 7, &m[1]));
        NEED(!ls_p2p_wait(&m[1], &from) && from == 0 && c == 22);
        NEED(!ls_p2p_wait(&m[0], &from) && b == 21);
        NEED(!ls_recv_tagged(g, NULL, 0, 0, 8, &m[0]) && !ls_p2p_wait(&m[0], NULL));
        NEED(!ls_recv_tagged(g, got, BIG, 0, -3, &m[0]) && !ls_p2p_wait(&m[0], NULL));
        NEED(!ls_recv_tagged(g, &a, 8, 0, 5, &m[0]) && !ls_p2p_wait(&m[0], NULL) && a == 11);
    }
    free(got);
    /* Both send more than fits before they receive. */
    uint8_t *in = malloc(BIG);
    if (me < 2) {
        NEED(!ls_recv_tagged(g, in, BIG, 1 - me, 1, &m[0]) && !ls_send_tagged(g, sent, BIG, 1 - me, 1, &m[1]));
        NEED(!ls_p2p_wait(&m[1], NULL) && !ls_p2p_wait(&m[0], NULL));
    }
    /* From whoever comes first. */
    NEED(!ls_barrier(g));
    if (me == 0) {
        int seen = 0;
        for (int i = 1; i < ls_group_size(g); i++) {
            NEED(!ls_recv_tagged(g, &a, 8, LS_ANY_RANK, 9, &m[0]) && !ls_p2p_wait(&m[0], &from));
            NEED(a == from);
            seen |= 1 << from;
        }
        NEED(seen == (1 << ls_group_size(g)) - 2);
    } else {
        a = me;
        NEED(!ls_send_tagged(g, &a, 8, 0, 9, &m[0]) && !ls_p2p_wait(&m[0], NULL));
    }
    NEED(!ls_barrier(g));
    free(in);
    return 0;
}

static int sizes_are_compared(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    int me = ls_group_rank(g);
    int64_t x[2] = { 1, 2 };
    ls_p2p *m;
    if (me == 0) {
        NEED(!ls_send_tagged(g, x, 16, 1, 1, &m) && !ls_p2p_wait(&m, NULL));
        NEED(!ls_send_tagged(g, x, 8, 1, 1, &m) && !ls_p2p_wait(&m, NULL));
    } else if (me == 1) {
        NEED(!ls_recv_tagged(g, x, 8, 0, 1, &m) && ls_p2p_wait(&m, NULL) == LS_EMISMATCH && !m);
        NEED(strstr(ls_error(), "the message has 16 bytes, and the buffer 8; both must be equal"));
        NEED(!ls_recv_tagged(g, x + 1, 8, 0, 1, &m) && !ls_p2p_wait(&m, NULL) && x[1] == 1);
        NEED(!ls_recv_tagged(g, x, 8, 0, 2, &m) && ls_p2p_test(&m, NULL) == LS_PENDING);
        ls_p2p_cancel(&m);
        NEED(!m);
    }
    NEED(ls_send_tagged(g, x, 8, me, 0, &m) == LS_EINVAL && ls_send_tagged(g, x, 8, 9, 0, &m) == LS_EINVAL);
    NEED(ls_send_tagged(g, x, 8, LS_ANY_RANK, 0, &m) == LS_EINVAL &&
         ls_recv_tagged(g, NULL, 8, LS_ANY_RANK, 0, &m) == LS_EINVAL);
    NEED(ls_p2p_wait(&m, NULL) == LS_EINVAL);
    NEED(!ls_barrier(g));
    return 0;
}

/* ---- Two threads. */

typedef struct second {
    ls_group *group;
    int pause_ms, times, bad;
} second;

static void *second_thread(void *p)
{
    second *s = p;
    nanosleep(&(struct timespec){ .tv_nsec = (long)s->pause_ms * 1000000 }, NULL);
    for (int i = 0; i < s->times && !s->bad; i++) {
        float x[3] = { 1, 2, (float)i };
        s->bad = ls_allreduce(s->group, x, 3, LS_F32, LS_SUM) || x[2] != (float)(i * ls_group_size(s->group));
    }
    return NULL;
}

/* Rank 0 waits for the others in one thread, and they for its other thread. */
static int threads_take_turns(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world), *other;
    pthread_t thread;
    NEED(!ls_group_split(g, 0, 0, &other));
    second s = { .group = other, .times = 1, .pause_ms = 20 };
    if (ls_world_rank(world) == 0) {
        NEED(!ls__thread_start(&thread, "second", second_thread, &s));
        NEED(!ls_barrier(g));
        pthread_join(thread, NULL);
    } else {
        s.pause_ms = 0;
        second_thread(&s);
        NEED(!ls_barrier(g));
    }
    NEED(!s.bad);
    /* Both threads of all ranks at once. */
    s = (second){ .group = other, .times = 200 };
    second mine = { .group = g, .times = 200 };
    NEED(!ls__thread_start(&thread, "second", second_thread, &s));
    second_thread(&mine);
    pthread_join(thread, NULL);
    NEED(!s.bad && !mine.bad);
    ls_group_free(&other);
    return 0;
}

/* ---- */

static void blocks_may_differ_in_size(void **state)
{
    (void)state;
    for (int p = 1; p <= 4; p++) {
        on_ranks(p, blocks_of_all_sizes, NULL, NULL);
        on_ranks(p, equal_blocks, NULL, NULL);
    }
    on_ranks(3, refused, NULL, NULL);
}

static void different_counts_are_named(void **state)
{
    (void)state;
    on_ranks(3, different_counts, &(bool){ false }, NULL);
    on_ranks(3, different_counts, &(bool){ true }, NULL);
}

static void messages_have_tags(void **state)
{
    (void)state;
    on_ranks(2, tags_choose, NULL, NULL);
    on_ranks(4, tags_choose, NULL, NULL);
    on_ranks(3, sizes_are_compared, NULL, NULL);
}

static void two_threads_of_a_rank(void **state)
{
    (void)state;
    on_ranks(2, threads_take_turns, NULL, NULL);
    on_ranks(3, threads_take_turns, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_may_differ_in_size), cmocka_unit_test(different_counts_are_named),
        cmocka_unit_test(products_are_rounded_once), cmocka_unit_test(messages_have_tags),
        cmocka_unit_test(two_threads_of_a_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
