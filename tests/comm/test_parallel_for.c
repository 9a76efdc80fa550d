/* parallel_for: every chunk is run once, by any rank, and shared memory is visible to all of them. */
#include <unistd.h>
#include "ranks.h"

typedef struct job {
    int64_t *shared; /* [COUNT] */
    size_t chunk;
    int rank, p, bad;
} job;
enum { COUNT = 100003 };

static void add_up(void *user, const void *const *data, size_t begin, size_t end)
{
    job *j = user;
    if (end - begin > j->chunk || end <= begin || end > COUNT) j->bad = 1;
    for (size_t i = begin; i < end; i++)
        for (int r = 0; r < j->p; r++) j->shared[i] += ((const int64_t *)data[r])[i];
}

static void count_up(void *user, const void *const *data, size_t begin, size_t end)
{
    job *j = user;
    if (data[0]) j->bad = 1;
    for (size_t i = begin; i < end; i++) j->shared[i] += 7;
}

static int together(ls_world *world, void *arg, char *why)
{
    (void)arg;
    ls_group *g = ls_world_group(world);
    job j = { .rank = ls_world_rank(world), .p = ls_world_size(world) };
    void *shared, *own;
    need_ok(ls__group_share(g, COUNT * sizeof(int64_t), &shared));
    need_ok(ls_world_alloc(world, COUNT * sizeof(int64_t), &own));
    j.shared = shared;
    for (int64_t i = 0; i < COUNT; i++) ((int64_t *)own)[i] = i * (j.rank + 1);
    static const size_t chunks[] = { 1000, COUNT, 1, 33331 };
    for (int k = 0; k < 4; k++) {
        j.chunk = chunks[k];
        ls_work *work;
        need_ok(ls__parallel_for_start(g, own, COUNT, LS_I64, chunks[k], add_up, &j, &work));
        need_ok(ls_work_wait(&work));
        need_ok(ls__parallel_for(g, NULL, COUNT, LS_I64, chunks[k], count_up, &j));
        int64_t ranks = j.p * (j.p + 1) / 2;
        for (int64_t i = 0; i < COUNT; i++)
            need(j.shared[i] == (k + 1) * (i * ranks + 7), "chunk %zu, element %lld: %lld", chunks[k], (long long)i,
                 (long long)j.shared[i]);
        need_ok(ls_barrier(g)); /* no rank continues while another still reads */
    }
    need(!j.bad, "a chunk was not what was asked for");
    need(ls__parallel_for(g, NULL, COUNT, LS_I64, 0, count_up, &j) == LS_EINVAL, "a chunk of nothing");
    int64_t not_shared = 0;
    if (j.p > 1)
        need(ls__parallel_for(g, &not_shared, 1, LS_I64, 1, count_up, &j) == LS_EINVAL, "memory that is not shared");
    need_ok(ls__parallel_for(g, NULL, 0, LS_I64, 10, count_up, &j));
    return 0;
}

static void every_piece_is_done_once(void **state)
{
    (void)state;
    for (int p = 1; p <= 4; p++) on_ranks(p, together, NULL, NULL);
    ls_world *world;
    char why[RANKS_WHY] = "";
    check_ok(ls_world_open(&world, NULL));
    if (together(world, NULL, why)) fail_msg("%s", why);
    ls_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_piece_is_done_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
