/* Files: whole or not at all, and every strange file is refused with its name. */
#include "check.h"
#include "base/file.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
        int fd;
        check_ok(ls__file_open("a", &fd, &bytes));
        assert_int_equal(bytes, sizes[i]);
        memset(got, 0, sizes[i]);
        check_ok(ls__file_read_at(fd, "a", got, sizes[i] / 2, sizes[i] - sizes[i] / 2));
        assert_memory_equal(got, data + sizes[i] - sizes[i] / 2, sizes[i] / 2);
        check_fails(ls__file_read_at(fd, "a", got, 1, sizes[i]), LS_EFORMAT, "a: was truncated at byte");
        close(fd);
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
    assert_non_null(strstr(ls_error(), "disk: writing (the file at that place is unchanged)"));
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
    int fd;
    check_fails(ls__file_read("missing", 10, &got, &bytes), LS_ENOENT, "missing: cannot be opened");
    check_fails(ls__file_read(".", 10, &got, &bytes), LS_EINVAL, "is a folder");
    check_fails(ls__file_open(".", &fd, &bytes), LS_EINVAL, "is a folder");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    check_fails(ls__file_read("pipe", 10, &got, &bytes), LS_EINVAL, "not a regular file");
    check_ok(ls__file_write("big", "0123456789", 10));
    check_fails(ls__file_read("big", 9, &got, &bytes), LS_EFORMAT, "10 bytes; at most 9 are allowed");
    check_fails(ls__file_make_dir("big/sub"), LS_EINVAL, "big' cannot be created: Not a directory");
    check_fails(ls__file_write("big/f", "x", 1), LS_EINVAL, "big/f: cannot be written: Not a directory");
}

static void an_empty_name_is_refused(void **state)
{
    (void)state;
    /* One byte of its own, so that a sanitizer sees a look beyond it. */
    char *empty = calloc(1, 1);
    check_fails(ls__file_make_dir(empty), LS_EINVAL, "the folder name is empty");
    check_fails(ls__file_make_own_dir(empty), LS_EINVAL, "the folder name is empty");
    check_fails(ls__file_write(empty, "x", 1), LS_EINVAL, "the output file name is empty");
    free(empty);
}

/* The one entry of folder "temps" while a file is written there. */
static void name_of_temporary(char *out, struct stat *st)
{
    ls__file_writer *w;
    check_ok(ls__file_writer_open(&w, "temps/f"));
    DIR *d = opendir("temps");
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) strcpy(out, e->d_name);
    assert_int_equal(fstatat(dirfd(d), out, st, AT_SYMLINK_NOFOLLOW), 0);
    closedir(d);
    ls__file_writer_cancel(&w);
}

/* The library's calls of open() come here: a file of that name cannot be prepared, but how it would be met can be seen. */
static int temporary_flags;
static int seen_open(const char *path, int flags, unsigned mode)
{
    if (strstr(path, LS__FILE_TEMPORARY)) temporary_flags = flags;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    return seen_open(path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    return seen_open(path, flags, mode);
}

static void temporary_files_are_new_files(void **state)
{
    (void)state;
    temporary_flags = 0;
    check_ok(ls__file_write("new", "x", 1));
    assert_int_equal(temporary_flags & (O_CREAT | O_EXCL | O_NOFOLLOW), O_CREAT | O_EXCL | O_NOFOLLOW);
}

static void temporary_files_have_unpredictable_names(void **state)
{
    (void)state;
    char one[300] = "", two[300] = "", pid[20];
    struct stat st;
    check_ok(ls__file_make_dir("temps"));
    mode_t before = umask(027);
    name_of_temporary(one, &st);
    umask(before);
    assert_int_equal(st.st_mode & 0777, 0640);
    name_of_temporary(two, &st);
    /* The 64 bits after the name have nothing in common by chance but for once in 2^64 times. */
    assert_memory_equal(one, ".f.tmp-", 7);
    assert_int_equal(strlen(one), 7 + 16);
    assert_int_equal(strlen(two), 7 + 16);
    assert_string_not_equal(one, two);
    snprintf(pid, sizeof pid, "-%d-", getpid());
    assert_null(strstr(one, pid));
    assert_int_equal(entries("temps"), 0);
}

static void what_killed_writers_left_is_removed_by_its_name(void **state)
{
    (void)state;
    check_ok(ls__file_make_dir("left"));
    static const char *const names[] = { ".a.bin.tmp-0123456789abcdef", ".a.bin.tmp-77-0",
                                         ".b.bin.tmp-0123456789abcdef", "a.bin", ".a.bin" };
    for (int i = 0; i < 5; i++) {
        char path[100];
        snprintf(path, sizeof path, "left/%s", names[i]);
        check_ok(ls__file_write(path, "x", 1));
    }
    ls__file_remove_temporaries("left", "a.bin");
    assert_int_equal(entries("left"), 3);
    assert_int_equal(access("left/.b.bin.tmp-0123456789abcdef", F_OK), 0);
    ls__file_remove_temporaries("nowhere", "a.bin");
}

static void devices_and_pipes_are_written_to_and_not_replaced(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(symlink("/dev/null", "null"), 0);
    check_ok(ls__file_write_named("null", "x", 1));
    assert_int_equal(lstat("null", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(symlink("/dev/full", "full"), 0);
    check_fails(ls__file_write_named("full", "x", 1), LS_EIO, "full: writing: No space left");
    assert_int_equal(lstat("full", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    char text[4] = "";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char path[100];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    check_ok(ls__file_write_named(path, "xyz", 3));
    assert_int_equal(read(ends[0], text, 3), 3);
    assert_string_equal(text, "xyz");
    close(ends[0]), close(ends[1]);
}

/* One of our own descriptors keeps its place in its file: nothing is cut off, nothing overwritten. */
static void a_descriptor_is_written_to_where_it_is(void **state)
{
    (void)state;
    char path[100], *got;
    size_t bytes;
    int fd = open("appended", O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "old ", 4), 4);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, i ? "/dev/fd/%d" : "/proc/self/fd/%d", fd);
        check_ok(ls__file_write_named(path, "new ", 4));
    }
    close(fd);
    check_ok(ls__file_read("appended", 100, &got, &bytes));
    assert_string_equal(got, "old new new ");
    free(got);
}

static void what_the_user_did_not_name_is_replaced_and_never_followed(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(symlink("/dev/null", "model"), 0);
    check_ok(ls__file_write("model", "x", 1));
    assert_int_equal(lstat("model", &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(mkfifo("settings", 0600), 0);
    check_ok(ls__file_write("settings", "x", 1));
    assert_int_equal(lstat("settings", &st), 0);
    assert_true(S_ISREG(st.st_mode));
    check_fails(ls__file_write("/dev/null", "x", 1), LS_EINVAL, "is a device");
    /* A link of another user is not followed, even if the user named it. Only root can create one here. */
    if (geteuid()) return;
    assert_int_equal(symlink("/dev/full", "theirs"), 0);
    assert_int_equal(lchown("theirs", 12345, 12345), 0);
    assert_int_equal(symlink("theirs", "chain"), 0);
    check_ok(ls__file_write_named("chain", "x", 1));
    check_ok(ls__file_write_named("theirs", "x", 1));
    assert_int_equal(mkfifo("their-pipe", 0666), 0);
    assert_int_equal(chown("their-pipe", 12345, 12345), 0);
    check_ok(ls__file_write_named("their-pipe", "x", 1));
    static const char *const names[] = { "chain", "theirs", "their-pipe" };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lstat(names[i], &st), 0);
        assert_true(S_ISREG(st.st_mode));
    }
}

static void a_new_file_goes_through_no_link(void **state)
{
    (void)state;
    int fd;
    char *got;
    size_t bytes;
    check_ok(ls__file_write("victim", "mine", 4));
    assert_int_equal(symlink("victim", "planted"), 0);
    check_ok(ls__file_create("planted", O_WRONLY, &fd));
    assert_int_equal(write(fd, "new", 3), 3);
    close(fd);
    check_ok(ls__file_read("victim", 100, &got, &bytes));
    assert_string_equal(got, "mine");
    free(got);
    check_ok(ls__file_read("planted", 100, &got, &bytes));
    assert_string_equal(got, "new");
    free(got);
    check_fails(ls__file_create("nowhere/f", O_WRONLY, &fd), LS_ENOENT, "nowhere/f");
    assert_int_equal(fd, -1);
    /* A link of one's own may stand for a folder; one of another user may not. Only root can make the latter. */
    check_ok(ls__file_make_dir("elsewhere"));
    assert_int_equal(symlink("elsewhere", "link"), 0);
    check_ok(ls__file_make_own_dir("link"));
    if (geteuid() == 0) {
        assert_int_equal(lchown("link", 12345, 12345), 0);
        check_fails(ls__file_make_own_dir("link"), LS_EINVAL, "link: is a link of another user");
        check_fails(ls__file_check_own_dir("link"), LS_EINVAL, "link: is a link of another user");
        check_ok(ls__file_write("elsewhere/rank-0", "x", 1));
        ls__file_remove("link", "rank-", "");
        assert_int_equal(access("elsewhere/rank-0", F_OK), 0);
        assert_int_equal(lchown("link", 0, 0), 0);
        ls__file_remove("link", "rank-", "");
        assert_int_equal(access("elsewhere/rank-0", F_OK), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_is_what_is_read),
        cmocka_unit_test(a_cancelled_or_failed_write_leaves_the_old_file),
        cmocka_unit_test(a_write_that_fails_midway_leaves_the_old_file),
        cmocka_unit_test(strange_files_are_refused),
        cmocka_unit_test(an_empty_name_is_refused),
        cmocka_unit_test(temporary_files_are_new_files),
        cmocka_unit_test(temporary_files_have_unpredictable_names),
        cmocka_unit_test(what_killed_writers_left_is_removed_by_its_name),
        cmocka_unit_test(devices_and_pipes_are_written_to_and_not_replaced),
        cmocka_unit_test(a_descriptor_is_written_to_where_it_is),
        cmocka_unit_test(what_the_user_did_not_name_is_replaced_and_never_followed),
        cmocka_unit_test(a_new_file_goes_through_no_link),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
