/* The text report of made-up records: no line is wider than the terminal, whatever the run; power is shown where the kernel exposes it, and
 * why not where it does not; every thread has a name that says what it does. */
#include "tests/measure/records.h"

#include "record/energy.h"
#include "cli/rank_use.h"
#include "cli/report.h"
#include "folder.h"

enum { STEPS = 20 };

typedef struct plan {
    int ranks;
    int64_t step;               /* ms */
    int64_t us;                 /* the same, if it is shorter than that; 0: it is not */
    const char *host;           /* cores are a long list, too, if it is long */
    double access;              /* LS_METADATA_ENERGY */
    uint64_t watts;             /* of all machines */
    int nodes;                  /* that the ranks are dealt to; 0: one */
    int computing;              /* threads */
    bool phases;                /* evaluation and checkpoints too */
    int late;                   /* this rank; 0: none */
    const char *library_thread; /* name of two more threads */
    bool queued;                /* half of each phase it is runnable but not scheduled */
} plan;

static int add_threads(rank_record *r, const plan *p, int64_t now, uint64_t ns, bool name)
{
    char text[32];
    int row = 0;
    for (int i = 0; i < 5 + p->computing + (p->library_thread ? 2 : 0); i++) {
        static const char *const own[] = { "main", "ls-load-0", "ls-load-1", "ls-checkpoint", "ls-stage" };
        if (i < 5)
            snprintf(text, sizeof text, "%s", own[i]);
        else if (i < 5 + p->computing)
            snprintf(text, sizeof text, "ls-compute-%d", i - 4);
        else
            snprintf(text, sizeof text, "%s", p->library_thread);
        if (name) ls__event_file_name(r->file, LS_NAME_THREAD, (uint32_t)row, text);
        add(r, now, LS_EVENT_SAMPLE, (uint64_t)row << 8 | LS_SAMPLE_THREAD,
            i == 0  ? ns / 2
            : i < 5 ? ns / 200
                    : ns / 4 + ns / 100 * (uint64_t)i);
        row++;
    }
    return row;
}

static void make_rank(const plan *p, int k, int node)
{
    rank_record r = { 0 };
    char head[600];
    size_t bytes = (ls__ring_bytes(1 << 14) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    r.ring = ls__ring_init(memory, 1 << 14);
    snprintf(
        head, sizeof head,
        "{\"rank\":%d,\"ranks\":%d,\"node\":%d,\"host\":\"%s\",\"cores\":\"%s\",\"threads\":1,\"transport\":\"shm\","
        "\"start\":1}",
        k, p->ranks, node, p->host, strlen(p->host) > 10 ? "0-3,8-11,16-19,24-27,32-35" : "0");
    r.file = ls__event_file_new(r.ring);
    assert_int_equal(ls__event_file_start(r.file, "live", k, head, 0), LS_OK);
    ls__event_file_metadata(r.file, LS_METADATA_ENERGY, p->access);
    ls__event_file_metadata(r.file, LS_METADATA_TOKENS, 1000);
    ls__event_file_metadata(r.file, LS_METADATA_FLOPS, 1e9);
    ls__event_file_metadata(r.file, LS_METADATA_PEAK, 1e9 / (double)p->step / MS * 2);
    int64_t start = INT64_C(3600) * 1000 * MS, begin = start, step = p->us ? p->us * 1000 : p->step * MS;
    for (int i = 1; i <= STEPS + 1; i++) {
        uint64_t ns = (uint64_t)(begin - start);
        if (i == 1 || i == STEPS + 1) {
            add_threads(&r, p, begin, ns, i == 1);
            add(&r, begin, LS_EVENT_SAMPLE, LS_SAMPLE_RESIDENT, UINT64_C(123456789012));
            if (p->watts) add(&r, begin, LS_EVENT_SAMPLE, LS_SAMPLE_ENERGY, ns / 1000 * p->watts);
        }
        add(&r, begin, LS_EVENT_STEP, (uint64_t)i, 0);
        int64_t share = p->late && k != p->late ? 2 : 4, at = begin;
        static const ls_phase phases[] = { LS_PHASE_DATA,   LS_PHASE_FORWARD, LS_PHASE_BACKWARD,
                                           LS_PHASE_UPDATE, LS_PHASE_EVAL,    LS_PHASE_CHECKPOINT };
        for (int f = 0; f < (p->phases ? 6 : 4); f++) {
            add(&r, at, LS_EVENT_PHASE_BEGIN, phases[f], 0);
            if (p->queued && !f) sample(&r, at, i > 1 ? step - 4 * (step * share / 30) : 0, 0, false);
            at += step * share / 30;
            if (p->queued) sample(&r, at, step * share / 60, step * share / 60, false);
            add(&r, at, LS_EVENT_PHASE_END, phases[f], 0);
        }
        int64_t last = begin + step * 25 / 30;
        if (!p->late || k == p->late) last = at + step / 30;
        if (p->late) last = begin + step * 4 * (p->phases ? 6 : 4) / 30 + step / 30;
        add(&r, at, LS_EVENT_BATCH, 1000, 1);
        add(&r, at, LS_EVENT_COLL_START, (uint64_t)i, 1 << 20);
        add(&r, last, LS_EVENT_COLL_DONE, (uint64_t)i, 0);
        add(&r, last, LS_EVENT_BLOCKED, (uint64_t)i, (uint64_t)(last - at));
        begin += step;
        ls__event_file_drain(r.file, false);
    }
    end_killed(&r, "live", "run/events", k);
}

/* What is said of the run, at this width. */
static char *report_of(const plan *p, int width)
{
    char *text = NULL;
    size_t bytes;
    ls_run *run;
    for (int k = 0; k < p->ranks; k++) make_rank(p, k, p->nodes ? k * p->nodes / p->ranks : 0);
    assert_int_equal(ls_run_open(&run, "run", NULL), LS_OK);
    FILE *f = open_memstream(&text, &bytes);
    report_text(run, &(report_form){ .to = f, .width = width });
    fclose(f);
    ls_run_free(&run);
    nftw("run", remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    return text;
}

static void check_has(const char *text, const char *what)
{
    if (!strstr(text, what)) fail_msg("'%s' is not in:\n%s", what, text);
}

static void check_says(const plan *p, const char *what)
{
    char *text = report_of(p, 100);
    check_has(text, what);
    free(text);
}

static void lines_fit_the_terminal(void **state)
{
    (void)state;
    static const plan plans[] = {
        { .ranks = 1, .step = 1, .host = "vm" },
        { .ranks = 2, .step = 50, .host = "vm", .phases = true, .late = 1, .access = 1 },
        { .ranks = 8, .step = 900, .host = "node0123.cluster.example.org", .phases = true, .late = 3, .computing = 3 },
        { .ranks = 24,
          .step = 99999,
          .host = "a-name-that-is-as-long-as-a-host-may-have-one.example.com",
          .nodes = 20,
          .phases = true,
          .computing = 31,
          .watts = 123,
          .access = 2,
          .late = 7,
          .library_thread = "some-library" },
        { .ranks = 2, .step = 3000000, .host = "vm", .phases = true, .computing = 1, .late = 1 },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int width = 80; width <= 120; width += 20) {
            char *text = report_of(&plans[i], width), *save = NULL;
            check_has(text, "Threads");
            for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                int columns = 0; /* of UTF-8 */
                for (const char *c = line; *c; c++) columns += (*c & 0xc0) != 0x80;
                if (columns > width) fail_msg("plan %zu: %d columns, not %d:\n%s", i, columns, width, line);
                if (line[strlen(line) - 1] == ' ' && strncmp(line, "  rank ", 7) != 0)
                    fail_msg("ends in a space: '%s'", line);
            }
            free(text);
        }
}

static void power_is_shown_or_why_not(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .step = 100, .host = "vm", .access = LS__ENERGY_NONE };
    check_says(&p, "power: not exposed by this kernel");
    p.access = LS__ENERGY_FORBIDDEN;
    check_says(&p, "power: exposed by the kernel, but this user may not read it");
    p.access = LS__ENERGY_OPEN;
    p.watts = 80;
    check_says(&p, "power: 80.0 W, 8 J per step, 125 tokens per joule");
    p.nodes = 2;
    check_says(&p, "power of vm: 80.0 W, 8 J per step\n");
}

static void threads_are_named_by_what_they_do(void **state)
{
    (void)state;
    plan p = { .ranks = 1, .step = 100, .host = "vm" };
    check_says(&p, "rank 0   main 50%, 2 loaders 0.5% each, checkpoint writer 0.5%, staging 0.5%\n");
    p.computing = 1;
    check_says(&p, "main 50%, computing thread 30%, 2 loaders");
    p.computing = 3;
    check_says(&p, "main 50%, 3 computing threads 30% 31% 32%, 2 loaders");
    p.computing = 9;
    check_says(&p, "main 50%, 9 computing threads 30% to 38%, 2 loaders");
    p.computing = 0;
    p.library_thread = "mlp";
    check_says(&p, "staging 0.5%, 2 mlp 30% 31%\n");
    p.library_thread = "main-loop";
    check_says(&p, "main 50%, 2 loaders 0.5% each, checkpoint writer 0.5%, staging 0.5%, 2 main-loop 30% 31%\n");
}

static void under_and_over_used_ranks_are_named(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .step = 100, .host = "vm", .late = 1 };
    char *text = report_of(&p, 100);
    check_has(text, "rank 1 is busier than the median: 97% of a step, the median 83%");
    check_has(text, "rank 0 is less busy than the median: 70% of a step, the median 83%");
    free(text);
    p = (plan){ .ranks = 8, .step = 100, .host = "vm", .late = 5 };
    text = report_of(&p, 100);
    check_has(text, "rank 5 is busier than the median: 97% of a step, the median 70%");
    assert_null(strstr(text, "less busy"));
    free(text);
    p.late = 0;
    check_says(&p, "no rank is busier or less busy than the median: they are busy for 97% of a step");
}

/* "No rank is busier" and "other programs use their cores" cannot both be read. */
static void ranks_without_cores_are_not_called_even(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .step = 100, .host = "vm", .queued = true };
    char *text = report_of(&p, 100);
    check_has(text, "ranks 0, 1 were runnable but not scheduled for 27% of a step: other programs or other ranks use");
    check_has(text, "ranks are busy for 97% of a step");
    check_has(text, " 1. more ranks than cores: ranks 0, 1 were runnable but not scheduled for 26.7 ms");
    if (strstr(text, "busier")) fail_msg("busier:\n%s", text);
    free(text);
    p.ranks = 1;
    text = report_of(&p, 100);
    check_has(text, "rank 0 was runnable but not scheduled for 27% of a step");
    if (strstr(text, "busier") || strstr(text, "Nothing stands out")) fail_msg("nothing:\n%s", text);
    free(text);
}

/* A table of zeros says nothing. */
static void short_steps_are_shown_in_microseconds(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .us = 9, .step = 1, .host = "vm" };
    char *text = report_of(&p, 100);
    check_has(text, "9.00 \u00b5s per step");
    check_has(text, "times below in \u00b5s");
    check_has(text, "\n  0      1.20    1.20     1.20   1.20"); /* 4 / 30 of a step each */
    if (strstr(text, "0.00 ms") || strstr(text, "0 ms")) fail_msg("a zero:\n%s", text);
    free(text);
    p.us = 900;
    check_says(&p, "900 \u00b5s per step");
    p.us = 0;
    p.step = 12;
    check_says(&p, "12.0 ms per step");
}

/* A clock or a time that cannot be is left out with a note, and the record is read to its end. */
static void what_follows_an_impossible_clock_is_read(void **state)
{
    (void)state;
    ls_record *r;
    ls_run *run;
    char *text = NULL;
    size_t bytes;
    assert_int_equal(ls_record_open(&r, "clock", NULL), LS_OK);
    for (int i = 1; i <= 10; i++) {
        ls_record_step(r, i);
        if (i == 3) ls_record_clock(r, INT64_MIN, INT64_MAX);
        if (i == 4) ls_record_event(r, INT64_MAX, LS_EVENT_BUCKET_READY, 1, 2);
    }
    ls_record_free(&r);
    assert_int_equal(ls_run_open(&run, "clock", NULL), LS_OK);
    FILE *f = open_memstream(&text, &bytes);
    report_title(run, &(report_form){ .to = f, .width = 1000 });
    fclose(f);
    assert_int_equal(run->n_steps, 10);
    assert_int_equal(run->steps[9].number, 10);
    assert_true(run->steps[9].end - run->steps[0].begin < 60 * INT64_C(1000000000));
    check_has(text,
              "rank 0: 2 events with an impossible time or clock (ls_record_event(), ls_record_clock()) are left out");
    if (strstr(text, "killed") || strstr(text, "not all")) fail_msg("it was closed:\n%s", text);
    free(text);
    ls_run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_fit_the_terminal),
        cmocka_unit_test(power_is_shown_or_why_not),
        cmocka_unit_test(threads_are_named_by_what_they_do),
        cmocka_unit_test(under_and_over_used_ranks_are_named),
        cmocka_unit_test(ranks_without_cores_are_not_called_even),
        cmocka_unit_test(short_steps_are_shown_in_microseconds),
        cmocka_unit_test(what_follows_an_impossible_clock_is_read),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
