/* Memory of another library's descriptor that becomes job memory where it is. Ranks are threads. */
#include <sys/mman.h>
#include <unistd.h>
#include "comm/ranks.h"

enum { FLOATS = 300 * 1024, BYTES = FLOATS * 4 };

/* A mapping as another library makes it: of a descriptor of its own, which it closes. */
static float *map_foreign(void *where)
{
    int fd = memfd_create("foreign", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, BYTES)) return NULL;
    void *p = mmap(where, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static void fill(float *x, int rank)
{
    for (int i = 0; i < FLOATS; i++) x[i] = (float)((rank + 1) * (i % 1000));
}

/* Whether x is the sum over p ranks of what fill() wrote. */
static bool is_sum(const float *x, int p)
{
    for (int i = 0; i < FLOATS; i++)
        if (x[i] != (float)(p * (p + 1) / 2 * (i % 1000))) return false;
    return true;
}

static uint32_t extents(const ls_world *world)
{
    return world->job->heap.extents;
}

static int reduce(ls_world *world, void *only_rank, char *why)
{
    ls_group *g = ls_world_group(world);
    int p = ls_world_size(world), me = ls_world_rank(world);
    bool adopts = !only_rank || *(int *)only_rank == me;
    float *x = map_foreign(NULL);
    NEED(x);
    fill(x, me);
    if (adopts) NEED(!ls_world_adopt(world, x, BYTES));
    NEED(!adopts == !ls__adopted_offset(world, x, BYTES));
    NEED(x[FLOATS - 1] == (float)((me + 1) * ((FLOATS - 1) % 1000)));
    for (int times = 0; times < 2; times++) {
        fill(x, me);
        NEED(!ls_allreduce(g, x, FLOATS, LS_F32, LS_SUM) && is_sum(x, p));
    }
    /* A part of it; the rest does not change. */
    fill(x, me);
    NEED(!ls_allreduce(g, x + 1000, FLOATS - 2000, LS_F32, LS_SUM));
    NEED(x[999] == (float)((me + 1) * 999) && x[1999] == (float)(p * (p + 1) / 2 * 999));
    /* Other collectives, which may share the buffer with one another. */
    float *all = malloc((size_t)p * BYTES);
    ls_work *works[2];
    fill(x, me);
    NEED(all && !ls_allgather(g, x, all, FLOATS, LS_F32) && all[999] == 999 &&
         all[(p - 1) * FLOATS + 999] == (float)p * 999);
    NEED(!ls_broadcast_start(g, x, FLOATS, LS_F32, 0, &works[0]) && !ls_work_wait(&works[0]) && x[999] == 999);
    free(all);
    munmap(x, BYTES);
    ls_world_disown(world, x);
    NEED(!ls__adopted_offset(world, x, BYTES));
    return 0;
}

/* The owner unmaps its memory without a word, and the address becomes other memory. */
static int reuse(ls_world *world, void *unused, char *why)
{
    ls_group *g = ls_world_group(world);
    int p = ls_world_size(world), me = ls_world_rank(world);
    (void)unused;
    float *x = map_foreign(NULL);
    NEED(x && !ls_world_adopt(world, x, BYTES));
    NEED(!ls_barrier(g));
    uint32_t before = extents(world);
    NEED(!ls_barrier(g));
    NEED(map_foreign(x) == x); /* replaces it */
    fill(x, me);
    NEED(!ls_allreduce(g, x, FLOATS, LS_F32, LS_SUM) && is_sum(x, p));
    NEED(!ls_barrier(g));
    NEED(extents(world) == before - (uint32_t)p); /* what was behind it is free again */
    NEED(!ls_barrier(g));
    /* Adopted again, twice: the second time there is nothing to do. */
    fill(x, me);
    NEED(!ls_world_adopt(world, x, BYTES) && !ls_world_adopt(world, x, BYTES) && x[999] == (float)(me + 1) * 999);
    NEED(ls__adopted_offset(world, x, BYTES));
    NEED(!ls_allreduce(g, x, FLOATS, LS_F32, LS_SUM) && is_sum(x, p));
    NEED(ls_world_adopt(world, x + 1024, BYTES - 4096) == LS_EINVAL && strstr(ls_error(), "adopted before"));
    /* New memory at the same address is adopted anew. */
    NEED(map_foreign(x) == x && !ls_world_adopt(world, x, BYTES));
    fill(x, me);
    NEED(!ls_allreduce(g, x, FLOATS, LS_F32, LS_SUM) && is_sum(x, p));
    munmap(x, BYTES);
    return 0;
}

static int refuse(ls_world *world, void *unused, char *why)
{
    (void)unused;
    float *x = map_foreign(NULL);
    void *own;
    NEED(x && ls_world_adopt(world, x + 1, BYTES) == LS_EINVAL && strstr(ls_error(), "whole pages"));
    NEED(ls_world_adopt(world, x, BYTES - 1) == LS_EINVAL && ls_world_adopt(world, x, 0) == LS_EINVAL);
    NEED(ls_world_adopt(world, NULL, BYTES) == LS_EINVAL && ls_world_adopt(NULL, x, BYTES) == LS_EINVAL);
    NEED(!ls_world_alloc(world, 4096, &own) && ls_world_adopt(world, own, 4096) == LS_EINVAL);
    NEED(strstr(ls_error(), "shared memory of the job already"));
    ls_world_disown(world, NULL);
    ls_world_disown(NULL, x);
    ls_world_disown(world, x); /* was never adopted */
    ls_world_dealloc(world, &own);
    munmap(x, BYTES);
    /* Addresses that no other thread takes meanwhile: beyond what the kernel gives out. */
    NEED(ls_world_adopt(world, (void *)4096, 4096) == LS_EINVAL && strstr(ls_error(), "mapped"));
    return 0;
}

static void test_allreduce_on_adopted_memory(void **state)
{
    (void)state;
    for (int p = 2; p <= 3; p++) {
        int one = p - 1;
        on_ranks(p, reduce, NULL, NULL);
        on_ranks(p, reduce, &one, NULL);
        on_ranks(p, reduce, NULL, &(ls_world_options){ .staging_bytes = 16384 });
    }
}

static void test_addresses_that_are_used_again(void **state)
{
    (void)state;
    on_ranks(2, reuse, NULL, NULL);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    on_ranks(2, refuse, NULL, NULL);
}

static void test_one_rank(void **state)
{
    (void)state;
    ls_world *world;
    check_ok(ls__world_open_alone(&world, NULL));
    float *x = map_foreign(NULL);
    assert_non_null(x);
    fill(x, 0);
    check_ok(ls_world_adopt(world, x, BYTES));
    check_ok(ls_allreduce(ls_world_group(world), x, FLOATS, LS_F32, LS_SUM));
    assert_true(is_sum(x, 1));
    ls_world_disown(world, x);
    munmap(x, BYTES);
    ls_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_on_adopted_memory),
        cmocka_unit_test(test_addresses_that_are_used_again),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
