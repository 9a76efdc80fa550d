/* Energy counters, in a folder of the shape of /sys/class/powercap: packages are added up, once each, over the end of a counter. */
#include "check.h"
#include <sys/stat.h>
#include "record/energy.h"
#include "base/file.h"
#include "record/counters.h"
#include "folder.h"

static void put(const char *zone, const char *file, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", zone, file);
    FILE *f = fopen(path, "w"); /* in place, as the kernel's files stay the same */
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_zone(const char *zone, const char *name, const char *energy)
{
    check_ok(ls__file_make_dir(zone));
    put(zone, "name", name);
    put(zone, "max_energy_range_uj", "1000000\n");
    if (energy) put(zone, "energy_uj", energy);
}

/* Two packages, the cores of one of them, the whole board, and what else is there. */
static void make_machine(const char *at)
{
    char zone[100];
    static const char *const zones[][3] = { { "intel-rapl:0", "package-0\n", "1000\n" },
                                            { "intel-rapl:0:0", "core\n", "700\n" },
                                            { "intel-rapl:1", "package-1\n", "2000\n" },
                                            { "intel-rapl:2", "psys\n", "5000\n" },
                                            { "intel-rapl-mmio:0", "package-0\n", "1000\n" },
                                            { "intel-rapl", "\n", NULL },
                                            { "dtpm", "package-9\n", "100\n" } };
    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
        snprintf(zone, sizeof zone, "%s/%s", at, zones[i][0]);
        make_zone(zone, zones[i][1], zones[i][2]);
    }
}

static void packages_are_added_up(void **state)
{
    (void)state;
    ls__energy e;
    make_machine("two");
    ls__energy_open(&e, "two");
    assert_int_equal(e.access, LS__ENERGY_OPEN);
    assert_int_equal(e.packages, 2);
    assert_true(ls__energy_read(&e));
    assert_int_equal(e.total, 0);
    put("two/intel-rapl:0", "energy_uj", "1500\n");
    put("two/intel-rapl:1", "energy_uj", "2030\n");
    put("two/intel-rapl:2", "energy_uj", "9000\n");
    assert_true(ls__energy_read(&e));
    assert_int_equal(e.total, 530);
    ls__energy_close(&e);
    assert_false(ls__energy_read(&e));
}

static void a_counter_that_starts_again_goes_on(void **state)
{
    (void)state;
    ls__energy e;
    make_zone("turn/intel-rapl:0", "package-0\n", "999000\n");
    ls__energy_open(&e, "turn");
    put("turn/intel-rapl:0", "energy_uj", "500\n");
    assert_true(ls__energy_read(&e));
    assert_int_equal(e.total, 1500);
    put("turn/intel-rapl:0", "energy_uj", "600\n");
    assert_true(ls__energy_read(&e));
    assert_int_equal(e.total, 1600);
    ls__energy_close(&e);
}

static void absent_and_unreadable_counters_are_distinguished(void **state)
{
    (void)state;
    ls__energy e;
    ls__energy_open(&e, "nowhere");
    assert_int_equal(e.access, LS__ENERGY_NONE);
    assert_false(ls__energy_read(&e));
    make_zone("board/intel-rapl:0", "psys\n", "5\n");
    ls__energy_open(&e, "board");
    assert_int_equal(e.access, LS__ENERGY_NONE);
    /* A file that cannot be read; to root, a folder is one. */
    make_zone("locked/intel-rapl:0", "package-0\n", NULL);
    check_ok(ls__file_make_dir("locked/intel-rapl:0/energy_uj"));
    ls__energy_open(&e, "locked");
    assert_int_equal(e.access, LS__ENERGY_FORBIDDEN);
    assert_int_equal(e.packages, 0);
    assert_false(ls__energy_read(&e));
    ls__energy_close(&e);
}

/* What a run records of it. */
static void samples_have_it(void **state)
{
    (void)state;
    ls__counters s;
    ls_event got[256];
    uint64_t position = 0, missed = 0, seen[2] = { 0 };
    size_t bytes = (ls__ring_bytes(256) + 63) / 64 * 64, n = 0;
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    ls__ring *ring = ls__ring_init(memory, 256);
    make_machine("sampled");
    ls__counters_open(&s, "sampled");
    ls__counters_sample_process(&s, ring, ls_now(), true);
    put("sampled/intel-rapl:0", "energy_uj", "4000\n");
    ls__counters_sample_process(&s, ring, ls_now(), false); /* not yet due */
    ls__counters_sample_process(&s, ring, ls_now(), true);
    size_t count = ls__ring_read(ring, &position, got, 256, &missed);
    for (size_t i = 0; i < count; i++)
        if (got[i].kind == LS_EVENT_SAMPLE && got[i].a == LS_SAMPLE_ENERGY) {
            assert_true(n < 2);
            seen[n++] = got[i].b;
        }
    assert_int_equal(n, 2);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 3000);
    ls__counters_close(&s);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_are_added_up),
        cmocka_unit_test(a_counter_that_starts_again_goes_on),
        cmocka_unit_test(absent_and_unreadable_counters_are_distinguished),
        cmocka_unit_test(samples_have_it),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
