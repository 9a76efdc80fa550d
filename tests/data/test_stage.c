/* Staging: a copy is whole and of the very file that is there now, or it is not used. */
#include "folder.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "base/random.h"
#include "data/datasets.h"
#include "lockstep/data.h"

enum { SMALL = 300000, LARGE = 9 << 20 }; /* LARGE is copied in three blocks */

static uint8_t bytes_of(uint64_t stream, size_t i)
{
    return (uint8_t)(i * 31 + stream * 7 + (i >> 12));
}

static void write_data(const char *path, uint64_t stream, size_t count)
{
    uint8_t *data = malloc(count);
    for (size_t i = 0; i < count; i++) data[i] = bytes_of(stream, i);
    write_file(path, data, count);
    free(data);
}

static void check_data(const char *path, uint64_t stream, size_t count)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is not there", path);
    uint8_t *data = malloc(count + 1);
    assert_int_equal(fread(data, 1, count + 1, f), count);
    for (size_t i = 0; i < count; i++)
        if (data[i] != bytes_of(stream, i))
            fail_msg("%s: byte %zu is %d, not %d", path, i, data[i], bytes_of(stream, i));
    fclose(f);
    free(data);
}

static ls_status open_stage(ls_stage **s, const char *path, ls_stage_options o)
{
    const char *paths[] = { path };
    if (!o.folder) o.folder = "stage";
    o.strict = true;
    return ls_stage_open(s, paths, 1, &o);
}

/* In this user's part of the folder. */
static int files_like(const char *folder_name, const char *end)
{
    int n = 0;
    char own[300];
    snprintf(own, sizeof own, "%s/%u", folder_name, geteuid());
    DIR *d = opendir(own);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        n += length > strlen(end) && !strcmp(e->d_name + length - strlen(end), end);
    }
    if (d) closedir(d);
    return n;
}

static void a_copy_is_made_once_and_found_again(void **state)
{
    (void)state;
    ls_stage *s;
    check_ok(open_stage(&s, "a.bin", (ls_stage_options){ 0 }));
    ls_stage_report r = ls_stage_get_report(s);
    assert_int_equal(r.copied, 1);
    assert_int_equal(r.copied_bytes, SMALL);
    assert_true(r.source_rate > 0 && r.local_rate > 0);
    char first[300];
    snprintf(first, sizeof first, "%s", ls_stage_path(s, 0));
    assert_non_null(strstr(first, "/stage/"));
    assert_null(ls_stage_path(s, 1));
    check_data(first, 1, SMALL);
    assert_true(r.verdict == (r.saved_seconds > 0.05 * SMALL / r.source_rate ? LS_STAGE_FASTER : LS_STAGE_NOT_FASTER));
    ls_stage_free(&s);

    check_ok(open_stage(&s, "./a.bin", (ls_stage_options){ .verify = true }));
    r = ls_stage_get_report(s);
    assert_int_equal(r.copied, 0);
    assert_int_equal(r.found, 1);
    assert_string_equal(ls_stage_path(s, 0), first);
    ls_stage_free(&s);
    assert_int_equal(files_like("stage", ".part"), 0);
}

static void a_changed_original_is_copied_anew(void **state)
{
    (void)state;
    ls_stage *s;
    write_data("b.bin", 2, SMALL);
    check_ok(open_stage(&s, "b.bin", (ls_stage_options){ 0 }));
    check_data(ls_stage_path(s, 0), 2, SMALL);
    ls_stage_free(&s);
    struct stat st;
    stat("b.bin", &st);
    write_data("b.bin", 3, SMALL); /* same size, and the time of change set back */
    utimensat(AT_FDCWD, "b.bin", (struct timespec[2]){ st.st_atim, st.st_mtim }, 0);
    check_ok(open_stage(&s, "b.bin", (ls_stage_options){ 0 }));
    assert_int_equal(ls_stage_get_report(s).copied, 1);
    check_data(ls_stage_path(s, 0), 3, SMALL);
    ls_stage_free(&s);
}

static void change_once(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    int *times = user;
    if (done < 1 || done > LARGE / 2 || (*times)++) return;
    write_data("c.bin", 5, LARGE);
}

static void an_original_that_changes_meanwhile_is_noticed(void **state)
{
    (void)state;
    ls_stage *s;
    int times = 0;
    write_data("c.bin", 4, LARGE);
    check_ok(open_stage(&s, "c.bin", (ls_stage_options){ .progress = change_once, .user = &times }));
    assert_true(times > 0);
    assert_int_equal(ls_stage_get_report(s).copied, 1);
    check_data(ls_stage_path(s, 0), 5, LARGE);
    ls_stage_free(&s);
}

static void many_processes_make_one_copy(void **state)
{
    (void)state;
    pid_t children[6];
    for (int i = 0; i < 6; i++) {
        children[i] = fork();
        if (children[i]) continue;
        ls_stage *s;
        const char *paths[] = { "d.bin", "a.bin" };
        if (ls_stage_open(&s, paths, 2, &(ls_stage_options){ .folder = "many", .strict = true })) _exit(100);
        check_data(ls_stage_path(s, 0), 6, LARGE);
        _exit((int)ls_stage_get_report(s).copied);
    }
    int copied = 0;
    for (int i = 0; i < 6; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_true(WIFEXITED(status));
        copied += WEXITSTATUS(status);
    }
    assert_int_equal(copied, 2); /* one of each file */
}

static void those_not_used_for_longest_go_first(void **state)
{
    (void)state;
    ls_stage *s, *held;
    const ls_stage_options o = { .folder = "lru", .limit = 3 * SMALL + 10 };
    const char *names[] = { "a.bin", "e1.bin", "e2.bin" };
    for (int i = 0; i < 3; i++) {
        check_ok(open_stage(&s, names[i], o));
        ls_stage_free(&s);
    }
    check_ok(open_stage(&s, "a.bin", o)); /* used again: e1 is now the oldest */
    assert_int_equal(ls_stage_get_report(s).found, 1);
    ls_stage_free(&s);
    check_ok(open_stage(&held, "e3.bin", o));
    assert_int_equal(files_like("lru", ".data"), 3);
    check_ok(open_stage(&s, "a.bin", o));
    assert_int_equal(ls_stage_get_report(s).found, 1); /* still there */
    ls_stage_free(&s);
    check_ok(open_stage(&s, "e1.bin", o));
    assert_int_equal(ls_stage_get_report(s).copied, 1); /* had gone; now e2 is gone */
    check_data(ls_stage_path(held, 0), 9, SMALL);       /* e3 is in use and stays */

    /* All are in use: an error, or the original. */
    ls_stage *third;
    check_ok(open_stage(&third, "a.bin", o));
    ls_stage *fourth;
    check_fails(open_stage(&fourth, "e2.bin", o), LS_EIO, "are used by copies that are in use");
    const char *paths[] = { "e2.bin" };
    check_ok(ls_stage_open(&fourth, paths, 1, &o));
    assert_string_equal(ls_stage_path(fourth, 0), "e2.bin");
    assert_int_equal(ls_stage_get_report(fourth).failed, 1);
    ls_stage_free(&fourth);
    ls_stage_free(&third);
    ls_stage_free(&s);
    ls_stage_free(&held);
}

static void a_damaged_copy_is_not_used(void **state)
{
    (void)state;
    ls_stage *s;
    char path[300];
    check_ok(open_stage(&s, "a.bin", (ls_stage_options){ .folder = "damage" }));
    snprintf(path, sizeof path, "%s", ls_stage_path(s, 0));
    ls_stage_free(&s);
    for (int kind = 0; kind < 3; kind++) {
        struct stat st;
        stat(path, &st);
        chmod(path, 0666);
        if (kind == 0) assert_int_equal(truncate(path, 1000), 0);
        if (kind > 0) {
            FILE *f = fopen(path, "r+b");
            fputc('!', f);
            fclose(f);
        }
        /* 2: the time is forged too; only reading all of it shows */
        if (kind == 2) utimensat(AT_FDCWD, path, (struct timespec[2]){ st.st_atim, st.st_mtim }, 0);
        check_ok(open_stage(&s, "a.bin", (ls_stage_options){ .folder = "damage", .verify = kind == 2 }));
        assert_int_equal(ls_stage_get_report(s).copied, 1);
        check_data(ls_stage_path(s, 0), 1, SMALL);
        ls_stage_free(&s);
    }
}

static void a_full_disk_costs_only_the_copy(void **state)
{
    (void)state;
    struct rlimit before, little;
    getrlimit(RLIMIT_FSIZE, &before);
    little = before;
    little.rlim_cur = SMALL / 2; /* stands for a full disk: writing beyond fails */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    ls_stage *s;
    ls_status status = open_stage(&s, "a.bin", (ls_stage_options){ .folder = "full" });
    const char *paths[] = { "a.bin" };
    ls_status second = ls_stage_open(&s, paths, 1, &(ls_stage_options){ .folder = "full" });
    setrlimit(RLIMIT_FSIZE, &before);
    check_fails(status, LS_EIO, "staging a.bin: ");
    assert_int_equal(second, LS_OK);
    check_data(ls_stage_path(s, 0), 1, SMALL); /* the original */
    ls_stage_free(&s);
    assert_int_equal(files_like("full", ".part") + files_like("full", ".data"), 0);
    check_ok(open_stage(&s, "a.bin", (ls_stage_options){ .folder = "full" })); /* with room, it goes */
    check_data(ls_stage_path(s, 0), 1, SMALL);
    ls_stage_free(&s);
}

typedef struct background {
    ls_dataset *dataset;
    _Atomic int ready;
    ls_status status;
} background;

static void redirect(void *user, size_t file, const char *path)
{
    background *b = user;
    b->status = b->dataset->redirect(b->dataset->self, file, path);
    atomic_fetch_add(&b->ready, 1);
}

/* Samples are read from three files while those are being staged one after the other; all are right, before and after.
 * Reads of the originals take 1 ms, those of the copies do not. */
static void data_are_read_while_they_are_staged(void **state)
{
    (void)state;
    enum { T = 100 };
    const char *paths[] = { "a.bin", "e1.bin", "e2.bin" };
    background b = { 0 };
    check_ok(ls_tokens_open(&b.dataset, &(ls_tokens_options){
                                            .paths = paths, .n_paths = 3, .seq_len = T, .format = LS_FORMAT_U16 }));
    ls__tokens_set_read_delay(b.dataset, 1000);
    ls_stage *s;
    check_ok(ls_stage_open(&s, paths, 3,
                           &(ls_stage_options){
                               .folder = "background", .background = true, .ready = redirect, .user = &b }));
    assert_string_equal(ls_stage_path(s, 0), "a.bin");
    uint64_t extra = 200; /* samples after all were redirected */
    for (uint64_t i = 0; extra && i < 100000; i++) {
        int32_t x[T], y[T];
        uint64_t sample = ls__random_u32(1, 2, i) % b.dataset->count;
        ls_row row = { .fields = { x, y } };
        check_ok(b.dataset->get(b.dataset->self, NULL, sample, &row));
        for (size_t k = 0; k < T; k++) {
            size_t at = (sample * T + k) * 2, file = at / SMALL, byte = at % SMALL;
            uint64_t stream = file ? 6 + file : 1;
            int expected = bytes_of(stream, byte) | bytes_of(stream, byte + 1) << 8;
            if (x[k] != expected) fail_msg("sample %zu, token %zu: %d, not %d", sample, k, x[k], expected);
        }
        extra -= b.ready == 3;
    }
    assert_int_equal(extra, 0);
    assert_int_equal(b.status, LS_OK);
    ls_stage_free(&s);

    /* An original that was changed since the dataset was opened is not replaced under it. */
    write_data("e2.bin", 8, SMALL);
    check_fails(b.dataset->redirect(b.dataset->self, 2, "e1.bin"), LS_EIO,
                "e2.bin: the file was changed after it was opened");
    check_fails(b.dataset->redirect(b.dataset->self, 3, "e1.bin"), LS_EINVAL, "file 3 is out of range");
    ls_dataset_free(&b.dataset);
}

static void staging_in_the_background_can_be_ended(void **state)
{
    (void)state;
    ls_stage *s;
    const char *paths[] = { "d.bin" };
    for (int i = 0; i < 5; i++) {
        check_ok(ls_stage_open(&s, paths, 1, &(ls_stage_options){ .folder = "ended", .background = true }));
        nanosleep(&(struct timespec){ .tv_nsec = i * 3000000 }, NULL);
        ls_stage_free(&s);
        assert_int_equal(files_like("ended", ".part"), 0);
    }
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : st.st_mode & 07777;
}

static void a_copy_is_no_more_readable_than_its_original(void **state)
{
    (void)state;
    ls_stage *s;
    write_data("secret.bin", 1, SMALL);
    chmod("secret.bin", 0600);
    check_ok(open_stage(&s, "secret.bin", (ls_stage_options){ .folder = "private/deep" }));
    char path[300];
    snprintf(path, sizeof path, "%s", ls_stage_path(s, 0));
    assert_int_equal(mode_of(path) & ~0600u, 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(mode_of(path), 0700);
    assert_int_equal(mode_of("private/deep"), 01777); /* other users can stage there, too */
    ls_stage_free(&s);
    chmod(path, 0770); /* others may have put something there */
    check_fails(open_stage(&s, "secret.bin", (ls_stage_options){ .folder = "private/deep" }), LS_EINVAL,
                "is not private to you");
    chmod(path, 0700);
    check_ok(open_stage(&s, "secret.bin", (ls_stage_options){ .folder = "private/deep" }));
    ls_stage_free(&s);
}

static void what_cannot_be_staged_is_named(void **state)
{
    (void)state;
    ls_stage *s;
    check_fails(open_stage(&s, "missing.bin", (ls_stage_options){ 0 }), LS_ENOENT, "missing.bin");
    assert_null(s);
    check_fails(open_stage(&s, "a.bin", (ls_stage_options){ .folder = "" }), LS_EINVAL, "no folder given");
    write_text("file", "x");
    check_fails(open_stage(&s, "a.bin", (ls_stage_options){ .folder = "file" }), LS_EINVAL, "file");
}

static int prepare(void **state)
{
    if (make_folder(state)) return -1;
    write_data("a.bin", 1, SMALL);
    write_data("d.bin", 6, LARGE);
    write_data("e1.bin", 7, SMALL);
    write_data("e2.bin", 8, SMALL);
    write_data("e3.bin", 9, SMALL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_made_once_and_found_again),
        cmocka_unit_test(a_changed_original_is_copied_anew),
        cmocka_unit_test(an_original_that_changes_meanwhile_is_noticed),
        cmocka_unit_test(many_processes_make_one_copy),
        cmocka_unit_test(those_not_used_for_longest_go_first),
        cmocka_unit_test(a_damaged_copy_is_not_used),
        cmocka_unit_test(a_full_disk_costs_only_the_copy),
        cmocka_unit_test(data_are_read_while_they_are_staged),
        cmocka_unit_test(staging_in_the_background_can_be_ended),
        cmocka_unit_test(a_copy_is_no_more_readable_than_its_original),
        cmocka_unit_test(what_cannot_be_staged_is_named),
    };
    return cmocka_run_group_tests(tests, prepare, remove_folder);
}
