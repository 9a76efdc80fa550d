/* Files: whole or not at all, and every strange file is refused with its name. */
#include "check.h"
#include "base/file.h"
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/lockstep-test-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") || system(command);
}

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void written_is_what_is_read(void **state)
{
    (void)state;
    size_t sizes[] = { 0, 1, 65535, 65536, 65537, 300000 };
    for (int i = 0; i < 6; i++) {
        char *data = malloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++) data[k] = (char)(k * 7 + (size_t)i);
        check_ok(ls__file_write("a", data, sizes[i]));
        char *got;
        size_t bytes;
        check_ok(ls__file_read("a", 1 << 20, &got, &bytes));
        assert_int_equal(bytes, sizes[i]);
        assert_memory_equal(got, data, sizes[i]);
        assert_int_equal(got[bytes], 0);
        ls__file_map map;
        check_ok(ls__file_map_open(&map, "a"));
        assert_int_equal(map.bytes, sizes[i]);
        if (sizes[i]) assert_memory_equal(map.data, data, sizes[i]);
        ls__file_map_close(&map);
        free(got);
        free(data);
    }
}

static void a_cancelled_or_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    check_ok(ls__file_make_dir("one/two//three"));
    check_ok(ls__file_make_dir("one/two"));
    check_ok(ls__file_write("one/f", "old", 3));
    ls__file_writer *w;
    check_ok(ls__file_writer_open(&w, "one/f"));
    check_ok(ls__file_writer_add(w, "new and longer", 14));
    ls__file_writer_cancel(&w);
    assert_null(w);
    ls__file_writer_cancel(&w);
    char *got;
    size_t bytes;
    check_ok(ls__file_read("one/f", 100, &got, &bytes));
    assert_string_equal(got, "old");
    free(got);
    assert_int_equal(entries("one"), 2); /* f and two: no temporary left */

    check_fails(ls__file_write("nowhere/f", "x", 1), LS_ENOENT, "nowhere/f");
    /* A folder cannot be replaced by a file: the rename fails, and nothing stays behind. */
    assert_int_not_equal(ls__file_write("one/two", "x", 1), LS_OK);
    assert_int_equal(entries("one"), 2);
}

/* The kernel's limit on file sizes stands in for a full disk: writing fails in the middle. */
static void a_write_that_fails_midway_leaves_the_old_file(void **state)
{
    (void)state;
    struct rlimit before, small;
    char *big = calloc(1, 1 << 20), *got;
    size_t bytes;
    check_ok(ls__file_write("disk", "old", 3));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1 << 18;
    setrlimit(RLIMIT_FSIZE, &small);
    ls_status status = ls__file_write("disk", big, 1 << 20);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, LS_EIO);
    assert_non_null(strstr(ls_error(), "disk: writing"));
    check_ok(ls__file_read("disk", 100, &got, &bytes));
    assert_string_equal(got, "old");
    free(got);
    free(big);
}

static void strange_files_are_refused(void **state)
{
    (void)state;
    char *got;
    size_t bytes;
    ls__file_map map;
    check_fails(ls__file_read("missing", 10, &got, &bytes), LS_ENOENT, "missing: cannot be opened");
    check_fails(ls__file_read(".", 10, &got, &bytes), LS_EINVAL, "is a folder");
    check_fails(ls__file_map_open(&map, "."), LS_EINVAL, "is a folder");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    check_fails(ls__file_read("pipe", 10, &got, &bytes), LS_EINVAL, "not a regular file");
    check_ok(ls__file_write("big", "0123456789", 10));
    check_fails(ls__file_read("big", 9, &got, &bytes), LS_EFORMAT, "10 bytes, more than the 9");
    check_fails(ls__file_make_dir("big/sub"), LS_ESYS, "big");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_is_what_is_read),
        cmocka_unit_test(a_cancelled_or_failed_write_leaves_the_old_file),
        cmocka_unit_test(a_write_that_fails_midway_leaves_the_old_file),
        cmocka_unit_test(strange_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
