/* The views of a run (trace, page, report, live view) over records that no training would write: whole files with right checksums, whose
 * events, names, metadata and times are wild. Whatever they hold, the views end, write valid JSON and text, and touch no memory that is not
 * theirs (under the sanitizers that is checked). */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/random.h"
#include "record/event_file.h"
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/html.h"
#include "cli/report.h"
#include "cli/top_view.h"
#include "cli/trace_write.h"
#include "tests/check.h"
#include "tests/folder.h"

enum { RING = 1 << 12, SEEDS = 60 };

typedef struct wild {
    uint64_t seed, at;
} wild;

static uint32_t any(wild *w, uint32_t below)
{
    return ls__random_u32(w->seed, 1, w->at++) % below;
}

/* Small numbers mostly; now and then the largest there are. */
static uint64_t number(wild *w)
{
    uint64_t high = ls__random_u32(w->seed, 2, w->at++);
    uint64_t x = high << 32 | ls__random_u32(w->seed, 3, w->at++);
    switch (any(w, 8)) {
    case 0: return x;
    case 1: return UINT64_MAX - any(w, 3);
    case 2: return x >> 20;
    case 3: return x >> 40;
    default: return any(w, 12);
    }
}

static const char *const names[] = {
    "h.0.mlp.c_fc.weight", "<script>\"&'</script>", "\xff\xfe\x80", "\xe2\x80\xae\xc3", "", "a\\\"b\nc\x1b[31m"
};
static const ls_event_kind kinds[] = { LS_EVENT_COLL_START,   LS_EVENT_COLL_DONE,    LS_EVENT_PHASE_BEGIN,
                                       LS_EVENT_PHASE_END,    LS_EVENT_STEP,         LS_EVENT_BLOCKED,
                                       LS_EVENT_COMM_WORK,    LS_EVENT_BUCKET_READY, LS_EVENT_SPAN_READY,
                                       LS_EVENT_BUCKET_START, LS_EVENT_BATCH,        LS_EVENT_SAMPLE,
                                       LS_EVENT_METADATA,     LS_EVENT_CLOCK,        LS_EVENT_OPERATION,
                                       LS_EVENT_END };

static void write_rank(wild *w, const char *at, int rank)
{
    char head[512];
    void *memory = aligned_alloc(64, (ls__ring_bytes(RING) + 63) / 64 * 64);
    memset(memory, 0, ls__ring_bytes(RING));
    ls__ring *ring = ls__ring_init(memory, RING);
    snprintf(head, sizeof head,
             "{\"lockstep\":\"0\",\"rank\":%d,\"ranks\":%d,\"node\":%d,\"local_rank\":0,\"host\":\"<b>&amp;\\u0007\","
             "\"pid\":%d,"
             "\"cores\":\"\\\"><i>\",\"threads\":%d,\"transport\":\"shm\",\"start\":0,\"time\":%g}",
             rank, 1 + (int)any(w, 5), (int)any(w, 3), any(w, 2) ? (int)getpid() : -1, (int)any(w, 3),
             any(w, 2) ? 1e300 : 1e9);
    ls__event_file *record = ls__event_file_new(ring);
    check_ok(ls__event_file_start(record, at, rank, head, 0));
    for (uint32_t i = 0; i < 6; i++) {
        ls__event_file_name(record, LS_NAME_SPAN, i, names[any(w, 6)]);
        ls__event_file_name(record, LS_NAME_OPERATION, i, names[any(w, 6)]);
        ls__event_file_name(record, LS_NAME_THREAD, i, names[any(w, 6)]);
    }
    int64_t time = 1000000;
    uint64_t call = 0, step = 0;
    int n = 200 + (int)any(w, 1500);
    for (int i = 0; i < n; i++) {
        ls_event_kind kind = kinds[any(w, 16)];
        uint64_t a = number(w), b = number(w);
        time += any(w, 50) ? (int64_t)any(w, 2000000) : (int64_t)(number(w) >> 12) - (int64_t)any(w, 9000000);
        /* Some sense in it, or nothing would be found that could be shown. */
        if (kind == LS_EVENT_STEP && any(w, 8)) a = ++step;
        if (kind == LS_EVENT_COLL_START && any(w, 8)) a = ++call, b = (uint64_t)any(w, 12) << 56 | number(w) >> 8;
        if ((kind == LS_EVENT_COLL_DONE || kind == LS_EVENT_BLOCKED) && any(w, 8)) a = call;
        if (kind == LS_EVENT_COLL_DONE && any(w, 8)) b = (uint64_t)any(w, 4) << 48 | any(w, 1000000);
        if (kind == LS_EVENT_BLOCKED && any(w, 4)) b = any(w, 3000000);
        if (kind == LS_EVENT_BUCKET_START && any(w, 4)) b = call;
        if (kind == LS_EVENT_OPERATION && any(w, 4)) b = any(w, 1000000);
        if (kind == LS_EVENT_SAMPLE && any(w, 4)) a = (uint64_t)any(w, 8) << 8 | LS_SAMPLE_THREAD;
        if (kind == LS_EVENT_CLOCK && any(w, 4)) continue;
        if (kind == LS_EVENT_END && any(w, 50)) continue;
        ls__ring_add_at(ring, time, kind, a, b);
        if (i % 1000 == 999) ls__event_file_drain(record, false);
    }
    ls__event_file_free(&record);
    free(memory);
}

static void check_trace(const ls_run *run)
{
    char *text = NULL;
    size_t bytes;
    json_error_t error;
    FILE *f = open_memstream(&text, &bytes);
    int64_t steps = trace_write(f, run, &(trace_options){ .first = INT64_MIN, .last = INT64_MAX });
    fclose(f);
    assert_true(steps == (int64_t)run->n_steps);
    json_t *root = json_loadb(text, bytes, 0, &error);
    if (!root) fail_msg("the trace is no JSON: line %d: %s", error.line, error.text);
    json_t *e;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        const json_t *ts = json_object_get(e, "ts"), *dur = json_object_get(e, "dur");
        if (ts && json_number_value(ts) < 0) fail_msg("event %zu begins before the trace", i);
        if (dur && json_number_value(dur) < 0) fail_msg("event %zu ends before it begins", i);
    }
    json_decref(root);
    free(text);
}

static void check_page(const ls_run *run, const char *at)
{
    static char text[1 << 20];
    char path[300];
    snprintf(path, sizeof path, "%s/page.html", at);
    check_ok(html_write(run, run, path));
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    /* One script, the page's own; nothing of the files became a tag. */
    const char *first = strstr(text, "<script");
    if (first && strstr(first + 1, "<script")) fail_msg("a name became a tag");
    assert_null(strstr(text, "<b>&amp;"));
    assert_null(strstr(text, "\"><i>"));
}

static void check_report(const ls_run *run)
{
    char *text = NULL;
    size_t bytes;
    json_error_t error;
    FILE *f = open_memstream(&text, &bytes);
    report_text(run, &(report_form){ .to = f, .width = 80 });
    report_compare(run, run, &(report_form){ .to = f, .width = 40 });
    fclose(f);
    assert_null(memchr(text, '\x1b', bytes));
    free(text);
    f = open_memstream(&text, &bytes);
    check_ok(report_json(run, f));
    fclose(f);
    json_t *root = json_loadb(text, bytes, 0, &error);
    if (!root) fail_msg("the report is no JSON: line %d: %s", error.line, error.text);
    assert_int_equal(json_array_size(json_object_get(root, "by_rank")), run->ranks);
    json_decref(root);
    free(text);
}

static void check_top(const char *at)
{
    char *text = NULL;
    size_t bytes;
    top_view before, v;
    if (top_look(&before, at, NULL)) return;
    check_ok(top_look(&v, at, &before));
    FILE *f = open_memstream(&text, &bytes);
    for (int columns = 10; columns < 200; columns += 60)
        top_draw(&v, at, &(top_form){ .to = f, .columns = columns, .rows = columns / 10 });
    fclose(f);
    assert_null(memchr(text, '\x1b', bytes));
    free(text);
    top_view_free(&before);
    top_view_free(&v);
}

static void wild_records_are_shown_as_far_as_they_make_sense(void **state)
{
    (void)state;
    size_t shown = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        wild w = { .seed = seed };
        char name[32];
        snprintf(name, sizeof name, "run-%d", (int)seed);
        int ranks = 1 + (int)any(&w, 4);
        for (int r = 0; r < ranks; r++)
            if (any(&w, 5)) write_rank(&w, name, r);
        ls_run *run;
        if (ls_run_open(&run, name, NULL) == LS_OK) {
            shown += run->n_steps > 0;
            check_trace(run);
            check_page(run, name);
            check_report(run);
            check_top(name);
            ls_run_free(&run);
        }
    }
    assert_true(shown > SEEDS / 4); /* or nothing was tested */
}

static void check_escaped(void (*put)(FILE *, const char *), const char *from, const char *expected)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    put(f, from);
    fclose(f);
    assert_string_equal(text, expected);
    free(text);
}

static void text_stays_text(void **state)
{
    (void)state;
    check_escaped(put_html, "a<b>&\"'\n", "a&lt;b&gt;&amp;&quot;&#39;\n");
    check_escaped(put_html, "\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80");
    check_escaped(put_html, "\x1b[31m\xc2\x9b", "\xef\xbf\xbd[31m\xef\xbf\xbd");
    check_escaped(put_html, "\xe2\x80\xae", "\xef\xbf\xbd"); /* turns the text around */
    check_escaped(put_html, "\xc0\xbc \xed\xa0\x80",
                  "\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* no UTF-8 */
    check_escaped(put_html, "\xf0\x9f", "\xef\xbf\xbd\xef\xbf\xbd");                /* cut off */
    check_escaped(put_json, "\"\\\n\t\x01", "\\\"\\\\\\n\\t\\u0001");
    check_escaped(put_json, "\r\x7f\xc2\x85\xe2\x80\xae\xf3\xa0\x80\x81\xff",
                  "\\u000d\\u007f\\u0085\\u202e\\udb40\\udc01\xef\xbf\xbd");
}

static void numbers_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    assert_string_equal(amount_ns(0).text, "0 s");
    assert_string_equal(amount_ns(81.2).text, "81 ns");
    assert_string_equal(amount_ns(1234).text, "1.23 \u00b5s");
    assert_string_equal(amount_ns(999.6e3).text, "1.00 ms");
    assert_string_equal(amount_ns(41.04e6).text, "41.0 ms");
    assert_string_equal(amount_ns(2.5e9).text, "2.50 s");
    assert_string_equal(amount_ns(3600e9).text, "60.0 min");
    assert_string_equal(amount_field(amount_ns(1234), 8).text, " 1.23 \u00b5s"); /* 8 columns, 9 bytes */
    assert_string_equal(amount_field(amount_ns(1234), 3).text, "1.23 \u00b5s");
    assert_string_equal(amount_bytes(512).text, "512 B");
    assert_string_equal(amount_bytes(4 << 20).text, "4.00 MiB");
    assert_string_equal(amount_count(9999).text, "9999");
    assert_string_equal(amount_count(20100).text, "20.1k");
    assert_string_equal(amount_count(1.5e6).text, "1.50M");
    assert_string_equal(amount_share(0.004).text, "0.4%");
    assert_string_equal(amount_share(0.12).text, "12%");
    assert_string_equal(amount_change(1.122).text, "+112.2%");
    assert_string_equal(amount_change(-0.0451).text, "-4.5%");
    assert_string_equal(amount_change(-0.0004).text, "0.0%"); /* not -0.0% */
    assert_string_equal(amount_change(0).text, "0.0%");
}

/* Columns of a line, "µ" being one. */
static int columns_of(const char *line, size_t bytes)
{
    int n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)line[i] & 0xc0) != 0x80;
    return n;
}

static void top_fits_the_terminal(void **state)
{
    (void)state;
    enum { RANKS = 8 };
    top_rank ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (top_rank){ .present = true,
                               .local = true,
                               .host = "a-machine-of-a-long-name",
                               .state = 'R',
                               .step_ns = 9e6,
                               .sched_delay_ns = 2e5,
                               .cpu = 0.93,
                               .memory = 40e6,
                               .waits_for = 1 };
        for (int p = 0; p < LS_PHASE_COUNT; p++) ranks[r].ns[p] = 1e6;
    }
    top_view v = { .ranks = RANKS,
                   .rank = ranks,
                   .step = 5,
                   .steps = 10,
                   .loss = NAN,
                   .step_ns = 9e6,
                   .window = 4,
                   .findings = 1,
                   .finding = { "rank 1 stalls all ranks 1.00 ms per step in data loading" } };
    for (int columns = 40; columns <= 200; columns += 4)
        for (int rows = 16; rows <= 30; rows += 7) {
            char *text = NULL;
            size_t bytes;
            FILE *f = open_memstream(&text, &bytes);
            top_draw(&v, "run", &(top_form){ .to = f, .columns = columns, .rows = rows });
            fclose(f);
            int lines = 0, shown = 0, more = 0;
            for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
                int wide = columns_of(line, (size_t)(end - line));
                bool of_rank = !strncmp(line, "   ", 3) && line[3] >= '0' && line[3] <= '7';
                if (wide > columns && (of_rank || strstr(line, "memory")))
                    fail_msg("%d columns in %d: %.*s", wide, columns, wide, line);
                if (of_rank) assert_non_null(memmem(line, (size_t)(end - line), "38.1 MiB  runs", 14));
                shown += of_rank;
                sscanf(line, " and %d more", &more);
            }
            assert_int_equal(shown + more, RANKS);
            assert_true(lines < rows); /* a line is left for the caller */
            assert_non_null(strstr(text, "rank 1 stalls all ranks 1.00 ms per step in data loading"));
            free(text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wild_records_are_shown_as_far_as_they_make_sense),
        cmocka_unit_test(text_stays_text),
        cmocka_unit_test(top_fits_the_terminal),
        cmocka_unit_test(numbers_have_three_digits_and_a_unit),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
