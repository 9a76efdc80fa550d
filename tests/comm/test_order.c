/* Memory order of the shared-memory protocol: each pattern in which one rank's memory is read or overwritten by another. On x86-64 a
 * missing order seldom shows, so what counts is ThreadSanitizer: tests/soak/memory_order weakens every atomic access in turn and
 * runs this under it. */
#include <unistd.h>
#include "comm/parallel_for.h"
#include "mix.h"
#include "ranks.h"

enum { SMALL = 100, LARGE = 6000, ROUNDS = 12, MANY = 200 };

/* More works under way than slots: a slot is used again as soon as its last reader is done. Their data are read after
 * the arrival of later works was seen, so nothing but `finished` orders that. */
static int slots_are_used_again(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    int p = ls_world_size(world);
    static _Thread_local float x[MANY][SMALL];
    ls_work *works[MANY];
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < SMALL; j++) x[i][j] = (float)(i + j);
        need_ok(ls_allreduce_start(g, x[i], SMALL, LS_F32, LS_SUM, &works[i]));
    }
    for (int i = 0; i < MANY; i++) {
        need_ok(ls_work_wait(&works[i]));
        for (int j = 0; j < SMALL; j++) need(x[i][j] == (float)(p * (i + j)), "work %d is %g", i, (double)x[i][j]);
    }
    return 0;
}

/* All-reduce in job memory or staged: inputs are read, sums written to all, and the buffer is written by its owner at once. */
static int sums(ls_world *world, void *arg, char *why)
{
    const bool shared = *(const bool *)arg;
    ls_group *g = ls_world_group(world);
    int p = ls_world_size(world);
    void *memory;
    if (shared)
        need_ok(ls_world_alloc(world, LARGE * sizeof(float), &memory));
    else
        memory = malloc(LARGE * sizeof(float));
    float *x = memory;
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < LARGE; j++) x[j] = (float)(i + j);
        need_ok(ls_allreduce(g, x, LARGE, LS_F32, LS_SUM));
        for (int j = 0; j < LARGE; j++) need(x[j] == (float)(p * (i + j)), "sum %d is %g", i, (double)x[j]);
        for (int j = 0; j < LARGE; j++) x[j] = (float)(i + j);
        need_ok(ls_reduce(g, x, LARGE, LS_F32, LS_SUM, i % p));
    }
    if (shared)
        ls_world_dealloc(world, &memory);
    else
        free(memory);
    return 0;
}

/* Receivers copy out of the sender's memory, which the sender overwrites as soon as its call returns. */
static int copies(ls_world *world, void *arg, char *why)
{
    const bool shared = *(const bool *)arg;
    ls_group *g = ls_world_group(world);
    int p = ls_world_size(world), rank = ls_world_rank(world);
    void *memory;
    if (shared)
        need_ok(ls_world_alloc(world, LARGE * sizeof(float), &memory));
    else
        memory = malloc(LARGE * sizeof(float));
    float *x = memory, *all = malloc((size_t)p * LARGE * sizeof *all);
    for (int i = 0; i < ROUNDS; i++) {
        int root = i % p;
        for (int j = 0; j < LARGE; j++) x[j] = (float)(rank + i + j);
        need_ok(ls_broadcast(g, x, LARGE, LS_F32, root));
        for (int j = 0; j < LARGE; j++) need(x[j] == (float)(root + i + j), "copy %d is %g", i, (double)x[j]);
        for (int j = 0; j < LARGE; j++) x[j] = (float)(rank + i + j);
        need_ok(ls_allgather(g, x, all, LARGE, LS_F32));
        for (int j = 0; j < p * LARGE; j++)
            need(all[j] == (float)(j / LARGE + i + j % LARGE), "block %d is %g", i, (double)all[j]);
    }
    free(all);
    if (shared)
        ls_world_dealloc(world, &memory);
    else
        free(memory);
    return 0;
}

/* Messages longer than the ring, in both directions at once. */
static int messages(ls_world *world, void *arg, char *why)
{
    (void)arg;
    enum { COUNT = 30000 };
    ls_group *g = ls_world_group(world);
    int p = ls_world_size(world), rank = ls_world_rank(world), next = (rank + 1) % p, before = (rank + p - 1) % p;
    float *x = malloc(2 * COUNT * sizeof *x), *y = x + COUNT;
    for (int i = 0; i < 3; i++) {
        ls_work *send;
        for (int j = 0; j < COUNT; j++) x[j] = (float)(rank + i + j);
        need_ok(ls_send_start(g, x, COUNT, LS_F32, next, &send));
        need_ok(ls_recv(g, y, COUNT, LS_F32, before));
        need_ok(ls_work_wait(&send));
        for (int j = 0; j < COUNT; j++) need(y[j] == (float)(before + i + j), "message %d is %g", i, (double)y[j]);
    }
    free(x);
    return 0;
}

static void add_one(void *user, const void *const *data, size_t begin, size_t end)
{
    (void)data;
    for (size_t i = begin; i < end; i++) ((float *)user)[i] += 1;
}

/* Chunks of shared memory that any rank may have written. Nothing but the collective itself orders the two loops. */
static int chunks(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    void *shared;
    need_ok(ls__group_share(g, LARGE * sizeof(float), &shared));
    for (int i = 0; i < ROUNDS; i++) {
        need_ok(ls__parallel_for(g, NULL, LARGE, LS_F32, 200, add_one, shared));
        for (int j = 0; j < LARGE; j++)
            need(((float *)shared)[j] == (float)(i + 1), "element %d is %g", j, (double)((float *)shared)[j]);
        need_ok(ls_barrier(g));
    }
    return 0;
}

/* Ranks take and give job memory at the same time; what one gave is zero for the next. */
static int memory_of_others(ls_world *world, void *arg, char *why)
{
    (void)arg;
    for (int i = 0; i < 60; i++) {
        void *memory;
        size_t count = (size_t)(1000 + 700 * ((i + ls_world_rank(world)) % 5));
        need_ok(ls_world_alloc(world, count * sizeof(float), &memory));
        float *x = memory;
        for (size_t j = 0; j < count; j++) {
            need(x[j] == 0, "memory %d is %g", i, (double)x[j]);
            x[j] = (float)j;
        }
        ls_world_dealloc(world, &memory);
    }
    return 0;
}

/* The last to leave frees the control block, which becomes another group's. */
static int groups_come_and_go(ls_world *world, void *arg, char *why)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        ls_group *part;
        float x = 1;
        need_ok(ls_group_split(ls_world_group(world), ls_world_rank(world) == i % 3 ? 1 : 0, 0, &part));
        need_ok(ls_allreduce(part, &x, 1, LS_F32, LS_SUM));
        need(x == (float)ls_group_size(part), "sum %g", (double)x);
        ls_group_free(&part);
    }
    return 0;
}

/* The reason of an abort is read by ranks that wait. */
static int reasons(ls_world *world, void *arg, char *why)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        ls_group *part;
        float x = 1;
        need_ok(ls_group_split(ls_world_group(world), 0, 0, &part));
        if (ls_world_rank(world) == 0)
            ls_group_abort(part, "the reason");
        else {
            need(ls_allreduce(part, &x, 1, LS_F32, LS_SUM) == LS_EABORTED, "not aborted: %s", ls_error());
            need(strstr(ls_error(), "the reason"), "%s", ls_error());
        }
        ls_group_free(&part);
    }
    return 0;
}

static int run_mix(ls_world *world, void *arg, char *why)
{
    return mix_run(world, arg, why);
}

static void on_two_and_three(rank_fn run, void *arg)
{
    const ls_world_options little = { .staging_bytes = 16384 };
    for (int p = 2; p <= 3; p++) on_ranks(p, run, arg, &little);
}

static void slots(void **state)
{
    (void)state;
    on_two_and_three(slots_are_used_again, NULL);
}

static void large_buffers(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        on_two_and_three(sums, &(bool){ shared });
        on_two_and_three(copies, &(bool){ shared });
    }
    on_two_and_three(chunks, NULL);
}

static void rings(void **state)
{
    (void)state;
    on_two_and_three(messages, NULL);
}

static void heap(void **state)
{
    (void)state;
    on_two_and_three(memory_of_others, NULL);
    on_two_and_three(groups_come_and_go, NULL);
    on_two_and_three(reasons, NULL);
}

static void mixes(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 12; seed++)
        on_two_and_three(run_mix, &(mix_options){ .seed = seed, .calls = 60, .largest = 20000 });
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(slots), cmocka_unit_test(large_buffers),
                                        cmocka_unit_test(rings), cmocka_unit_test(heap), cmocka_unit_test(mixes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
