/* Event files: what was written is read; disk is bounded; and whatever is wrong with a file, the rest is read and the fault is reported. */
#include "records.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "folder.h"
#include "measure/read.h"

static size_t count_kind(const ls_run_rank *r, uint32_t kind)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_events; i++) n += r->events[i].kind == kind;
    return n;
}

static void write_rank(const char *at, int rank, int ranks, int events)
{
    rank_record r;
    begin_record(&r, at, rank, ranks, 0, 0);
    ls__event_file_name(r.file, LS_NAME_SPAN, 2, "h.1.weight");
    ls__event_file_metadata(r.file, LS_METADATA_TOKENS, 512);
    for (int i = 0; i < events; i++) {
        add(&r, 1000 + i * 10, i % 4 ? LS_EVENT_SPAN_READY : LS_EVENT_STEP, i / 4 + 1, UINT64_MAX - i);
        if (i % 1000 == 0) ls__event_file_drain(r.file, false);
    }
    end_record(&r);
}

static void round_trip(void **state)
{
    (void)state;
    ls_run *run;
    write_rank("a/events", 0, 1, 5000);
    assert_int_equal(ls_run_open(&run, "a", NULL), LS_OK);
    assert_int_equal(run->ranks, 1);
    const ls_run_rank *r = &run->rank[0];
    assert_true(r->present && r->closed && !r->cut);
    assert_string_equal(r->cores, "0");
    assert_int_equal(count_kind(r, LS_EVENT_SPAN_READY), 3750);
    assert_int_equal(count_kind(r, LS_EVENT_STEP), 1250);
    assert_true(r->metadata[LS_METADATA_TOKENS] == 512);
    assert_true(r->metadata[LS_METADATA_SLOTS] != r->metadata[LS_METADATA_SLOTS]);
    assert_int_equal(r->n_spans, 3);
    assert_string_equal(r->span_names[2], "h.1.weight");
    assert_null(r->span_names[0]);
    size_t i = 0;
    while (r->events[i].kind != LS_EVENT_SPAN_READY) i++;
    assert_int_equal(r->events[i].time, 1010);
    assert_true(r->events[i].b == UINT64_MAX - 1);
    ls_run_free(&run);
    assert_null(run);
}

static void disk_is_bounded(void **state)
{
    (void)state;
    enum { LIMIT = 1 << 18, EVENTS = 400000 };
    rank_record r;
    struct stat now, old;
    ls_run *run;
    begin_record(&r, "bounded/events", 0, 1, 0, LIMIT);
    ls__event_file_metadata(r.file, LS_METADATA_SLOTS, 8);
    for (int i = 0; i < EVENTS; i++) {
        add(&r, 1000 + i * INT64_C(10000), LS_EVENT_STEP, i + 1, 0);
        if (i % 1000 == 999) ls__event_file_drain(r.file, false);
    }
    end_record(&r);
    assert_int_equal(stat("bounded/events/rank-0.bin", &now), 0);
    assert_int_equal(stat("bounded/events/rank-0.old.bin", &old), 0);
    assert_true(now.st_size <= LIMIT && old.st_size <= LIMIT);
    assert_int_equal(ls_run_open(&run, "bounded", NULL), LS_OK);
    assert_true(run->rank[0].metadata[LS_METADATA_SLOTS] == 8);
    assert_int_equal(run->steps[run->n_steps - 1].number, EVENTS); /* the newest are there, without gaps */
    assert_true(run->n_steps > 10000);
    assert_int_equal(run->steps[0].number, EVENTS - (int64_t)run->n_steps + 1);
    for (size_t i = 0; i + 1 < run->n_steps; i++) /* no gap where the one file ends and the other begins */
        assert_int_equal(run->steps[i].rank[0].end, run->steps[i + 1].rank[0].begin);
    assert_int_equal(run->n_notes, 1);
    assert_int_equal(run->notes[0].kind, LS_NOTE_NO_BEGINNING);
    ls_run_free(&run);
}

/* Flushed in one batch of many blocks, and within a fraction of a second. */
static void files_keep_their_limit_and_a_short_loss_is_noted(void **state)
{
    enum { LIMIT = 200000 };
    (void)state;
    for (int loses = 0; loses < 2; loses++) {
        rank_record r;
        struct stat now, old;
        ls_run *run;
        const char *events = loses ? "short/events" : "twice/events";
        begin_record(&r, events, 0, 1, 0, LIMIT);
        for (int i = 0; i < (loses ? 60000 : 20000); i++) {
            add(&r, 1000 + i * INT64_C(1000), LS_EVENT_STEP, i + 1, UINT64_MAX);
            if (i % 10000 == 9999) ls__event_file_drain(r.file, true);
        }
        end_record(&r);
        char path[64];
        snprintf(path, sizeof path, "%s/rank-0.bin", events);
        assert_int_equal(stat(path, &now), 0);
        snprintf(path, sizeof path, "%s/rank-0.old.bin", events);
        assert_int_equal(stat(path, &old), 0);
        assert_true(now.st_size <= LIMIT && old.st_size <= LIMIT && old.st_size > LIMIT / 2);
        assert_int_equal(ls_run_open(&run, loses ? "short" : "twice", NULL), LS_OK);
        assert_int_equal(run->rank[0].segment_bytes, LIMIT);
        assert_int_equal(run->rank[0].lost_files > 0, loses);
        assert_int_equal(run->n_notes, loses);
        if (loses) assert_int_equal(run->notes[0].kind, LS_NOTE_NO_BEGINNING);
        if (!loses) assert_int_equal(run->steps[0].number, 1);
        ls_run_free(&run);
    }
}

/* Another user who may write to the folder has put links where the files will be. */
static void a_record_goes_through_no_link(void **state)
{
    (void)state;
    rank_record r;
    struct stat st;
    FILE *f = fopen("mine", "w");
    fputs("mine", f);
    fclose(f);
    assert_int_equal(mkdir("linked", 0777), 0);
    assert_int_equal(mkdir("linked/events", 0777), 0);
    assert_int_equal(symlink("../../mine", "linked/events/rank-0.bin"), 0);
    assert_int_equal(symlink("../../mine", "linked/events/rank-0.old.bin"), 0);
    begin_record(&r, "linked/events", 0, 1, 0, 0);
    add(&r, 1000, LS_EVENT_STEP, 1, 0);
    end_record(&r);
    assert_int_equal(stat("mine", &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(lstat("linked/events/rank-0.bin", &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

/* The training continues, and what was written before is read. */
static void a_full_disk_ends_the_record_only(void **state)
{
    (void)state;
    enum { ROOM = 1 << 17 };
    rank_record r;
    struct rlimit before, small;
    ls_run *run;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){ .rlim_cur = ROOM, .rlim_max = before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    begin_record(&r, "full/events", 0, 1, 0, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 100000; i++) {
        add(&r, 1000 + i * INT64_C(10000), LS_EVENT_STEP, i + 1, 0);
        if (i % 1000 == 999) ls__event_file_drain(r.file, true);
    }
    end_record(&r);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(ls_run_open(&run, "full", NULL), LS_OK);
    assert_false(run->rank[0].closed);
    assert_true(run->n_steps > 1000 && run->n_steps < 99000);
    assert_int_equal(run->steps[0].number, 1);
    ls_run_free(&run);
}

/* A quick look at the newest events, just after a new file was begun. */
static void a_look_sees_what_was_before_the_new_file(void **state)
{
    (void)state;
    rank_record r;
    struct stat s;
    ls_run *run;
    int i = 0;
    begin_record(&r, "seam/events", 0, 1, 0, 1 << 20);
    ls__event_file_metadata(r.file, LS_METADATA_TOKENS, 77);
    do {
        add(&r, 1000 + i, LS_EVENT_STEP, i + 1, 0);
        if (++i % 1000 == 0) ls__event_file_drain(r.file, true);
    } while (stat("seam/events/rank-0.old.bin", &s));
    ls_run_options look = { .newest_bytes = 1 << 16 };
    assert_int_equal(ls_run_open(&run, "seam", &look), LS_OK);
    assert_in_range(run->n_steps, 1000, 20000);
    assert_int_equal(run->steps[run->n_steps - 1].number, i - 1); /* the last one is under way */
    assert_true(run->rank[0].metadata[LS_METADATA_TOKENS] == 77);
    ls_run_free(&run);
    end_record(&r);
}

static void too_fast_is_reported(void **state)
{
    (void)state;
    rank_record r;
    ls_run *run;
    begin_record(&r, "fast/events", 0, 1, 0, 0);
    for (int i = 0; i < 20000; i++) add(&r, 1000 + i, LS_EVENT_STEP, i + 1, 0);
    end_record(&r);
    assert_int_equal(ls_run_open(&run, "fast", NULL), LS_OK);
    assert_int_equal(run->rank[0].lost, 20000 - (1 << 14));
    assert_int_equal(run->n_notes, 1);
    assert_int_equal(run->notes[0].kind, LS_NOTE_LOST);
    ls_run_free(&run);
}

/* The end of the step in which events were lost is not known: it does not last until the next one that is known. */
static void a_gap_is_no_long_step(void **state)
{
    (void)state;
    rank_record r;
    ls_run *run;
    begin_record(&r, "gap/events", 0, 1, 0, 0);
    for (int i = 1; i <= 5; i++) {
        add(&r, i * MS, LS_EVENT_STEP, i, 0);
        add(&r, i * MS, LS_EVENT_PHASE_BEGIN, LS_PHASE_FORWARD, 0);
        if (i < 5) add(&r, i * MS + MS / 2, LS_EVENT_PHASE_END, LS_PHASE_FORWARD, 0);
        ls__event_file_drain(r.file, false);
    }
    for (int i = 0; i < 20000; i++) add(&r, 6 * MS + i, i ? LS_EVENT_SPAN_READY : LS_EVENT_STEP, 6, 0);
    for (int i = 100; i <= 103; i++) add(&r, i * MS, LS_EVENT_STEP, i, 0);
    end_record(&r);
    assert_int_equal(ls_run_open(&run, "gap", NULL), LS_OK);
    static const int64_t want[] = { 1, 2, 3, 4, 100, 101, 102 };
    assert_int_equal(run->n_steps, 8); /* the last one ends with the record */
    for (size_t i = 0; i < 7; i++) {
        const ls_step_rank *s = &run->steps[i].rank[0];
        assert_int_equal(run->steps[i].number, want[i]);
        assert_int_equal(s->end - s->begin, MS);
        assert_int_equal(s->ns[LS_PHASE_FORWARD], i < 4 ? MS / 2 : 0); /* its end was lost */
        assert_int_equal(s->ns[LS_PHASE_OTHER], i < 4 ? MS / 2 : MS);
    }
    ls_run_free(&run);
}

/* The file of rank 0, cut or changed, as a run of its own. */
static ls_status read_changed(const char *data, size_t bytes, ls_run **run)
{
    assert_int_equal(ls__file_make_dir("changed/events"), LS_OK);
    FILE *f = fopen("changed/events/rank-0.bin", "wb"); /* without a sync: there are thousands */
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
    return ls_run_open(run, "changed", NULL);
}

static void cut_anywhere(void **state)
{
    (void)state;
    char *data;
    size_t bytes, before = 0, grew = 0;
    write_rank("cut/events", 0, 1, 9000);
    assert_int_equal(ls__file_read("cut/events/rank-0.bin", 1 << 24, &data, &bytes), LS_OK);
    for (size_t n = 0; n <= bytes; n += n < 400 || n + 997 > bytes ? 1 : 997) {
        ls_run *run;
        ls_status status = read_changed(data, n, &run);
        if (status) {
            assert_int_equal(status, LS_EFORMAT);
            assert_int_equal(before, 0); /* only where not even the head is there */
            continue;
        }
        assert_true(run->rank[0].n_events >= before);
        grew += run->rank[0].n_events > before;
        before = run->rank[0].n_events;
        if (n < bytes) assert_true(run->rank[0].cut || !run->rank[0].closed);
        ls_run_free(&run);
    }
    assert_in_range(grew, 2, 10); /* block by block */
    assert_in_range(before, 9000, 9010);
    free(data);
}

static void changed_bytes_are_not_believed(void **state)
{
    (void)state;
    char *data;
    size_t bytes;
    write_rank("flip/events", 0, 1, 9000);
    assert_int_equal(ls__file_read("flip/events/rank-0.bin", 1 << 24, &data, &bytes), LS_OK);
    for (size_t at = 0; at < bytes; at += 101) {
        ls_run *run;
        data[at] ^= 0x10;
        ls_status status = read_changed(data, bytes, &run);
        data[at] ^= 0x10;
        if (status) continue;
        assert_true(run->rank[0].cut);
        assert_true(run->rank[0].n_events < 9000);
        ls_run_free(&run);
    }
    free(data);
}

/* Truncated by another program after it was opened: what is left is read. (A mapped file would raise SIGBUS.) */
static void a_file_may_shrink_while_it_is_read(void **state)
{
    (void)state;
    write_rank("shrink", 0, 1, 9000);
    int fd;
    size_t bytes;
    assert_int_equal(ls__file_open("shrink/rank-0.bin", &fd, &bytes), LS_OK);
    for (size_t left = bytes - 1; left > 0; left /= 3) {
        ls_run_rank r = { 0 };
        assert_int_equal(truncate("shrink/rank-0.bin", (off_t)left), 0);
        ls_status status = ls__events_read(&r, fd, bytes, 0); /* as large as it was */
        assert_true(status == LS_EFORMAT || (status == LS_OK && r.cut));
        ls__events_free(&r);
    }
    close(fd);
}

static void faults_have_names(void **state)
{
    (void)state;
    ls_run *run;
    char *data;
    size_t bytes;
    assert_int_equal(ls_run_open(&run, "nowhere", NULL), LS_ENOENT);
    assert_null(run);
    assert_int_equal(ls__file_make_dir("empty/events"), LS_OK);
    assert_int_equal(ls_run_open(&run, "empty", NULL), LS_ENOENT);
    assert_non_null(strstr(ls_error(), "no_record"));
    FILE *file = fopen("file", "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(ls_run_open(&run, "file", NULL), LS_EINVAL);
    assert_non_null(strstr(ls_error(), "is a file; name the folder of a run"));
    if (geteuid()) { /* root may read everything */
        assert_int_equal(chmod("empty/events", 0), 0);
        assert_int_not_equal(ls_run_open(&run, "empty", NULL), LS_OK);
        assert_non_null(strstr(ls_error(), "empty/events: cannot be read"));
        assert_int_equal(chmod("empty/events", 0700), 0);
    }

    write_rank("two/events", 1, 2, 100);
    assert_int_equal(ls_run_open(&run, "two", NULL), LS_OK);
    assert_int_equal(run->ranks, 2);
    assert_false(run->rank[0].present);
    assert_true(run->rank[1].present);
    assert_true(run->notes[0].kind == LS_NOTE_MISSING && run->notes[0].rank == 0 && run->notes[0].number == 1);
    assert_int_equal(run->n_steps, 25); /* what is there is reported */
    ls_run_free(&run);

    assert_int_equal(ls__file_read("two/events/rank-1.bin", 1 << 24, &data, &bytes), LS_OK);
    data[8] = 9; /* the version */
    assert_int_equal(read_changed(data, bytes, &run), LS_EFORMAT);
    assert_non_null(strstr(ls_error(), "version 9"));
    free(data);
}

/* As with ranks that are threads, or a loop with two worlds: one thread writes two records alternately. */
static void two_records_of_one_thread(void **state)
{
    (void)state;
    rank_record r[2];
    for (int k = 0; k < 2; k++) begin_record(&r[k], k ? "turns-1/events" : "turns-0/events", 0, 1, 0, 0);
    for (int step = 1; step <= 10; step++)
        for (int k = 0; k < 2; k++) {
            add(&r[k], 1000 * step, LS_EVENT_STEP, (uint64_t)step, 0);
            add(&r[k], 1000 * step + 100, LS_EVENT_PHASE_BEGIN, LS_PHASE_FORWARD, 0);
        }
    for (int step = 1; step <= 10; step++)
        for (int k = 0; k < 2; k++) add(&r[k], 1000 * step + 600 + k, LS_EVENT_PHASE_END, LS_PHASE_FORWARD, 0);
    for (int k = 0; k < 2; k++) {
        ls_run *run;
        end_record(&r[k]);
        assert_int_equal(ls_run_open(&run, k ? "turns-1" : "turns-0", NULL), LS_OK);
        assert_int_equal(run->n_steps, 10);
        for (int i = 0; i < 9; i++) assert_int_equal(run->steps[i].rank[0].ns[LS_PHASE_FORWARD], 500 + k);
        ls_run_free(&run);
    }
}

/* Names and hosts come from files, and go to terminals. */
static void names_are_printable(void **state)
{
    (void)state;
    rank_record r;
    ls_run *run;
    size_t bytes = (ls__ring_bytes(1 << 10) + 63) / 64 * 64;
    r = (rank_record){ .ring = ls__ring_init(memset(aligned_alloc(64, bytes), 0, bytes), 1 << 10) };
    r.file = ls__event_file_new(r.ring);
    assert_int_equal(ls__event_file_start(r.file, "names/events", 0,
                                          "{\"rank\":0,\"ranks\":1,\"host\":\"a\\u001b[2J\\u009b\\u202eb\"}", 0),
                     LS_OK);
    ls__event_file_name(r.file, LS_NAME_SPAN, 0, "w\xc3\xa4\033]0;x\007\xff");
    end_record(&r);
    assert_int_equal(ls_run_open(&run, "names", NULL), LS_OK);
    assert_string_equal(run->rank[0].host, "a\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xaeb");
    assert_string_equal(run->rank[0].span_names[0], "w\xc3\xa4\\x1b]0;x\\x07\\xff");
    ls_run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(disk_is_bounded),
        cmocka_unit_test(files_keep_their_limit_and_a_short_loss_is_noted),
        cmocka_unit_test(a_record_goes_through_no_link),
        cmocka_unit_test(a_full_disk_ends_the_record_only),
        cmocka_unit_test(a_look_sees_what_was_before_the_new_file),
        cmocka_unit_test(too_fast_is_reported),
        cmocka_unit_test(a_gap_is_no_long_step),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(changed_bytes_are_not_believed),
        cmocka_unit_test(a_file_may_shrink_while_it_is_read),
        cmocka_unit_test(faults_have_names),
        cmocka_unit_test(two_records_of_one_thread),
        cmocka_unit_test(names_are_printable),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
