/* The report's page of runs whose every number is known: what is first, what is hatched, units by magnitude, and what is left out where
 * there is nothing to show. tests/cli/report_page looks at pages of real runs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "record/ring.h"
#include "cli/html.h"
#include "tests/check.h"
#include "tests/folder.h"

enum { MOST_RANKS = 8, MOST_STEPS = 64 };

/* A run of steps that are all equal. */
typedef struct made {
    ls_run run;
    ls_run_rank rank[MOST_RANKS];
    ls_run_step steps[MOST_STEPS];
    ls_step_rank of[MOST_STEPS][MOST_RANKS];
    ls_interval intervals[MOST_RANKS][4 * MOST_STEPS + 1];
    int64_t waits[MOST_RANKS * MOST_RANKS];
    ls_finding finding;
    char path[64];
} made;

/* A tenth of a step is data, three are forward, six backward; `lost` is the share of forward that was not scheduled. */
static made *make_run(const char *name, int ranks, int steps, double step_ns, double lost)
{
    static const struct {
        ls_phase phase;
        double share;
    } parts[] = { { LS_PHASE_DATA, 0.1 }, { LS_PHASE_FORWARD, 0.3 }, { LS_PHASE_BACKWARD, 0.6 } };
    made *m = calloc(1, sizeof *m);
    snprintf(m->path, sizeof m->path, "%s", name);
    m->run = (ls_run){ .path = m->path,
                       .ranks = ranks,
                       .rank = m->rank,
                       .steps = m->steps,
                       .n_steps = steps,
                       .step_mean = step_ns,
                       .tokens = 1000,
                       .wait_matrix = m->waits };
    for (int r = 0; r < ranks; r++) {
        ls_run_rank *k = &m->rank[r];
        *k = (ls_run_rank){
            .present = true, .closed = true, .rank = r, .ranks = ranks, .threads = 1, .intervals = m->intervals[r]
        };
        snprintf(k->host, sizeof k->host, "host");
        snprintf(k->transport, sizeof k->transport, "shm");
        for (int i = 0; i < LS_METADATA_MAX; i++) k->metadata[i] = NAN;
        k->use = (ls_resource_use){ .wall = step_ns,
                                    .cpu = 0.5 * step_ns,
                                    .busy = step_ns,
                                    .sched_delay = 0.3 * lost * step_ns,
                                    .resident = 64 << 20,
                                    .mfu = 0.5,
                                    .watts = NAN };
    }
    for (int i = 0; i < steps; i++) {
        m->steps[i] =
            (ls_run_step){ .number = i + 1, .begin = i * step_ns, .end = (i + 1) * step_ns, .rank = m->of[i] };
        for (int r = 0; r < ranks; r++) {
            ls_step_rank *s = &m->of[i][r];
            double at = i * step_ns;
            *s = (ls_step_rank){
                .present = true, .begin = at, .end = at + step_ns, .cpu = 0.5 * step_ns, .resident = 64 << 20
            };
            for (int k = 0; k < 3; k++) {
                s->ns[parts[k].phase] = parts[k].share * step_ns;
                m->intervals[r][m->rank[r].n_intervals++] =
                    (ls_interval){ .begin = at,
                                   .phase = parts[k].phase,
                                   .cpu = -1,
                                   .sched_delay = k == 1 ? lost * parts[k].share * step_ns : 0 };
                at += parts[k].share * step_ns;
            }
            s->sched_delay[LS_PHASE_FORWARD] = lost * 0.3 * step_ns;
        }
    }
    for (int r = 0; r < ranks; r++)
        m->intervals[r][m->rank[r].n_intervals++] = (ls_interval){ .begin = steps * step_ns, .phase = LS_PHASE_OTHER };
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) m->waits[a * ranks + b] = a == b ? 0 : 1000000 * (a + 1);
    return m;
}

static char *page_of(const ls_run *run, const ls_run *other)
{
    static char text[4 << 20];
    check_ok(html_write(run, other, "page.html"));
    FILE *f = fopen("page.html", "r");
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void has(const char *text, const char *what)
{
    if (!strstr(text, what)) fail_msg("the page has no '%s'", what);
}

static void lacks(const char *text, const char *what)
{
    const char *at = strstr(text, what);
    if (at) fail_msg("the page has '%s': %.80s", what, at);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

/* From the section's tag to its end. */
static char *section(const char *html, const char *id)
{
    char mark[40];
    snprintf(mark, sizeof mark, "id=\"%s\"", id);
    const char *from = strstr(html, mark), *to = from ? strstr(from, "</section>") : NULL;
    if (!to) fail_msg("there is no section %s", id);
    return strndup(from, to - from);
}

static void what_to_change_stands_first(void **state)
{
    (void)state;
    made *m = make_run("run", 2, 20, 45e6, 0);
    m->finding = (ls_finding){
        .kind = LS_FINDING_STRAGGLER,
        .rank = 1,
        .cost = 30000000,
        .expected = 15000000,
        .weight = 1,
        .phase = LS_PHASE_DATA,
        .remedy = LS_REMEDY_FASTER_READS,
        .evidence
            .rank = { .own = 9e3, .others = 380, .build = 1e6, .others_build = 2e5, .persistent = true, .span = -1 }
    };
    m->rank[1].metadata[LS_METADATA_TRAIN] = m->rank[0].metadata[LS_METADATA_TRAIN] = 1;
    m->run.findings = &m->finding;
    m->run.n_findings = 1;
    const char *html = page_of(&m->run, NULL);
    char *verdict = section(html, "verdict");
    const char *number = strstr(verdict, "<b>45.0<small>ms</small></b>"),
               *what = strstr(verdict, "rank 1 stalls all ranks 30.0 ms per step in data loading"),
               *change = strstr(verdict,
                                "on a local disk (--stage), or prefetch with more <span class=\"o\">--workers</span>"),
               *gain = strstr(verdict, "15.0 ms, 3.0\u00d7 as fast"), *figures = strstr(verdict, "class=\"figures\"");
    assert_true(number && what && change && gain && figures);
    assert_true(number < what && what < change && change < gain && gain < figures);
    has(verdict, "its data loading takes 9.00 \u00b5s, the other rank&#39;s 380 ns");
    has(verdict, "width:33.3%"); /* the bar of what to expect */
    has(verdict, "22.2k tokens/s");
    has(verdict, "MFU (% of measured SGEMM)</dt><dd>50%");
    lacks(html, "id=\"findings\""); /* there is no second one */
    assert_int_equal(count(html, "class=\"now\""), 1);
    free(verdict);
    m->rank[0].use.mfu = m->rank[1].use.mfu = 1.4; /* SGEMM had no cores when it was measured */
    has(page_of(&m->run, NULL), "MFU (% of measured SGEMM); above 100% because other programs used the cores while "
                                "SGEMM was measured</dt><dd>140%");
    /* A promise that nobody could see is none. */
    m->finding.expected = 44990000;
    lacks(page_of(&m->run, NULL), "as fast");
    lacks(page_of(&m->run, NULL), "class=\"gain\"");
    free(m);
}

/* As the text's title and table say it, of all ranks. */
static void the_page_says_how_the_record_ended_and_the_numbers(void **state)
{
    (void)state;
    made *m = make_run("run", 2, 20, 45e6, 0);
    const char *html = page_of(&m->run, NULL);
    has(html, "2 ranks of 1 thread on host (shm)");
    has(html, "mean of steps 1 to 20");
    lacks(html, "still running or killed");
    char *ranks = section(html, "ranks");
    has(ranks,
        "<tr><th>rank<th>data<th>forward<th>backward<th>overlapped<tr><td>0<td>4.50 ms<td>13.5 ms<td>27.0 ms<td>0");
    free(ranks);
    m->rank[1].closed = false;
    has(page_of(&m->run, NULL), "<b>still running or killed</b>");
    ls_note note = { .kind = LS_NOTE_UNREADABLE, .rank = 1, .text = (char *)"rank-1.bin: wrong checksum" };
    m->run.notes = &note;
    m->run.n_notes = 1;
    html = page_of(&m->run, NULL);
    has(html, "<b>not all could be read</b>");
    has(html, "rank-1.bin: wrong checksum");
    free(m);
}

/* The rectangle after `from` with this class: its x and width. */
static const char *rect_after(const char *from, const char *class_name, double *x, double *w)
{
    char mark[40];
    snprintf(mark, sizeof mark, "class=\"%s\"", class_name);
    const char *at = strstr(from, mark), *begin = at;
    if (!at) fail_msg("there is no %s", class_name);
    while (strncmp(begin, "<rect", 5) != 0) begin--;
    assert_int_equal(sscanf(begin, "<rect x=\"%lf\" y=\"%*f\" width=\"%lf\"", x, w), 2);
    return at + 1;
}

static void time_without_a_core_is_hatched(void **state)
{
    (void)state;
    made *m = make_run("run", 2, 20, 45e6, 0.4);
    const char *html = page_of(&m->run, NULL);
    for (int i = 0; i < 2; i++) {
        char *part = section(html, i ? "timeline" : "ranks");
        double x, w, hatch_x, hatch_w;
        const char *at = rect_after(strstr(part, "<svg"), "forward", &x, &w);
        rect_after(at, "hatch", &hatch_x, &hatch_w);
        assert_true(fabs(hatch_w / w - 0.4) < 0.01);          /* as much of forward as was lost */
        assert_true(fabs(hatch_x + hatch_w - (x + w)) < 0.1); /* at its end */
        has(part, "of it unscheduled: 5.40 ms");              /* 0.4 * 0.3 * 45 ms */
        has(part, "unscheduled (run-queue delay or steal)");
        free(part);
    }
    char *part = section(html, "time");
    has(part, "<path class=\"hatch\"");
    has(part, "unscheduled: 5.40 ms");
    free(part);
    part = section(html, "cores");
    has(part, "<path class=\"hatch\"");
    free(part);
    made *other = make_run("other", 2, 20, 45e6, 0);
    part = section(page_of(&other->run, &m->run), "compare"); /* B has it, A has not */
    has(part, "class=\"hatch\"");
    free(part);
    free(m);
    lacks(page_of(&other->run, NULL), "class=\"hatch\"");
    free(other);
}

static void units_follow_the_magnitude(void **state)
{
    (void)state;
    static const struct {
        double step_ns;
        const char *number, *axis, *time;
    } cases[] = { { 900, "900<small>ns", "time of a step (ns)", "ns per step" },
                  { 300e3, "300<small>\u00b5s", "time of a step (\u00b5s)", "\u00b5s per step" },
                  { 45e6, "45.0<small>ms", "time of a step (ms)", "ms per step" },
                  { 40e9, "40.0<small>s", "time of a step (s)", "s per step" },
                  { 3600e9, "60.0<small>min", "time of a step (min)", "min per step" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made *m = make_run("run", 1, 12, cases[i].step_ns, 0);
        const char *html = page_of(&m->run, NULL);
        has(html, cases[i].number);
        has(html, cases[i].axis);
        char *part = section(html, "time");
        has(part, cases[i].time);
        free(part);
        lacks(html, " us<");
        free(m);
    }
}

/* Texts of the charts of a part that are at the x axis: below the line, above the title. */
static void check_whole(const char *part)
{
    for (const char *svg = part; (svg = strstr(svg, "<svg")); svg++) {
        double height, y;
        int labels = 0;
        assert_int_equal(sscanf(strstr(svg, "viewBox=\"0 0 ") + 13, "%*f %lf", &height), 1);
        const char *end = strstr(svg, "</svg>");
        for (const char *t = svg; (t = strstr(t, "<text")) && t < end; t++) {
            assert_int_equal(sscanf(strstr(t, "y=\"") + 3, "%lf", &y), 1);
            const char *text = strchr(t, '>') + 1;
            if (fabs(y - (height - 23)) > 0.5) continue;
            labels++;
            if (strspn(text, "0123456789") != strcspn(text, "<")) fail_msg("a step is called '%.12s'", text);
        }
        assert_true(labels > 1);
    }
}

static void steps_have_whole_numbers(void **state)
{
    (void)state;
    for (int steps = HTML_POINTS; steps < 60; steps += 7) {
        made *m = make_run("run", 2, steps, 45e6, 0);
        char *part = section(page_of(&m->run, NULL), "time");
        check_whole(part);
        free(part);
        free(m);
    }
}

/* The bar of an outlier is cut, and its mark is below the title of the axis. */
static void a_long_step_is_cut_and_marked(void **state)
{
    (void)state;
    made *m = make_run("run", 2, 40, 45e6, 0);
    for (int r = 0; r < 2; r++) m->of[0][r].ns[LS_PHASE_BACKWARD] = 20 * 45e6;
    char *part = section(page_of(&m->run, NULL), "time");
    double title, mark;
    has(part, "cut and marked");
    const char *at = strstr(part, ">ms per step<"), *path = strstr(part, "class=\"ink cut\"");
    assert_true(at && path);
    while (strncmp(at, "<text", 5) != 0) at--;
    assert_int_equal(sscanf(at, "<text x=\"%*f\" y=\"%lf\"", &title), 1);
    assert_int_equal(sscanf(path, "class=\"ink cut\" d=\"M%*f %lf", &mark), 1);
    assert_true(mark > title + 4);
    free(part);
    free(m);
}

static void a_rank_alone_waits_for_nobody(void **state)
{
    (void)state;
    ls_comm_row row = { .kind = 1, .bucket = true, .count = 40, .bytes = 40 << 20, .busy = 3000 };
    made *m = make_run("run", 1, 20, 45e6, 0.2);
    m->run.comm = &row;
    m->run.n_comm = 1;
    for (int i = 0; i < 20; i++) m->of[i][0].ns[LS_PHASE_COMM] = 100; /* it calls itself */
    const char *html = page_of(&m->run, NULL), *body = strstr(html, "<body");
    static const char *const parts[] = { "id=\"waits\"", "id=\"causes\"", "id=\"communication\"",
                                         "aiting",       "communication", "bucket",
                                         "B/s",          "of the ranks",  "rank by rank" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) lacks(body, parts[i]);
    free(m);
    m = make_run("run", 2, 20, 45e6, 0.2);
    m->run.comm = &row;
    m->run.n_comm = 1;
    html = page_of(&m->run, NULL);
    for (size_t i = 0; i < 4; i++) has(html, parts[i]);
    free(m);
}

static void a_chart_needs_a_few_values(void **state)
{
    (void)state;
    static const char *const parts[] = { "id=\"time\"", "id=\"cores\"", "id=\"memory\"" };
    for (int steps = 1; steps <= HTML_POINTS; steps++) {
        made *m = make_run("run", 2, steps, 45e6, 0.2);
        const char *html = page_of(&m->run, NULL);
        for (int i = 0; i < 3; i++) {
            if (steps < HTML_POINTS)
                lacks(html, parts[i]);
            else
                has(html, parts[i]);
        }
        has(html, "64.0 MiB"); /* the number is there */
        free(m);
    }
}

/* A double cannot count by one there. */
static void step_numbers_may_be_huge(void **state)
{
    (void)state;
    made *m = make_run("run", 2, 20, 45e6, 0.2);
    for (int i = 0; i < 20; i++) m->steps[i].number = (INT64_C(1) << 56) + i;
    const char *html = page_of(&m->run, NULL);
    has(html, "id=\"time\"");
    assert_true(strlen(html) < 1000000);
    free(m);
}

static void each_rank_has_a_small_chart_on_one_scale(void **state)
{
    (void)state;
    made *m = make_run("run", 8, 20, 45e6, 0);
    for (int i = 0; i < 20; i++) m->of[i][5].cpu = 45e6; /* one core, the others half of one */
    char *part = section(page_of(&m->run, NULL), "cores");
    assert_int_equal(count(part, "class=\"curve\""), 2 * 8); /* for each width of a screen */
    for (int r = 0; r < 8; r++) {
        char name[24];
        snprintf(name, sizeof name, ">rank %d</text>", r);
        assert_int_equal(count(part, name), 2);
    }
    /* Half a core is halfway up to one core: panels have one scale. The first path begins at M x y; rank 5's panel is lower by a row. */
    double y[8], top[8];
    const char *at = part;
    for (int r = 0; r < 8; r++) {
        at = strstr(at, ">rank ");
        const char *text = at;
        while (strncmp(text, "<text", 5) != 0) text--;
        assert_int_equal(sscanf(text, "<text x=\"%*f\" y=\"%lf\"", &top[r]), 1);
        at = strstr(at, "class=\"curve\" d=\"M");
        assert_int_equal(sscanf(at, "class=\"curve\" d=\"M%*f %lf", &y[r]), 1);
    }
    double half = y[0] - top[0], whole = y[5] - top[5];
    for (int r = 1; r < 8; r++)
        if (r != 5) assert_true(fabs(y[r] - top[r] - half) < 0.2);
    assert_true(half > whole + 15);
    free(part);
    free(m);
}

static void a_rank_without_a_record_waits_for_nobody(void **state)
{
    (void)state;
    made *m = make_run("run", 3, 20, 45e6, 0);
    char *part = section(page_of(&m->run, NULL), "waits");
    assert_int_equal(count(part, "class=\"waiting\""), 2 * 6);
    free(part);
    m->rank[1].present = false;
    for (int i = 0; i < 20; i++) m->of[i][1].present = false;
    part = section(page_of(&m->run, NULL), "waits");
    assert_int_equal(count(part, "class=\"waiting\""), 2 * 2);
    lacks(part, "rank 1");
    free(part);
    free(m);
}

static void compared_runs_have_their_names(void **state)
{
    (void)state;
    made *a = make_run("runs/<first>", 2, 20, 45e6, 0), *b = make_run("runs/second&", 1, 10, 90e6, 0);
    const char *html = page_of(&a->run, &b->run);
    char *part = section(html, "compare");
    has(part, "<dt>A</dt><dd><b>&lt;first&gt;</b> (this page) \u00b7 runs/&lt;first&gt; \u00b7 2 ranks \u00b7 20 steps "
              "\u00b7 45.0 ms per step");
    has(part, "<dt>B</dt><dd><b>second&amp;</b> (compared with) \u00b7 runs/second&amp; \u00b7 1 rank \u00b7 10 steps "
              "\u00b7 90.0 ms per step");
    has(part, "<th>A: &lt;first&gt;<th>B: second&amp;");
    has(html, "<h1>Run &lt;first&gt; <span>compared with second&amp;</span></h1>");
    has(part, "<b>step</b><td>45.0 ms<td>90.0 ms<td class=\"w\">+45.0 ms<td class=\"bad\">+100.0%");
    free(part);
    b->run.first_counted = b->run.n_steps; /* it has nothing to compare */
    part = section(page_of(&a->run, &b->run), "compare");
    has(part, "nothing to compare");
    free(part);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_to_change_stands_first),
        cmocka_unit_test(the_page_says_how_the_record_ended_and_the_numbers),
        cmocka_unit_test(time_without_a_core_is_hatched),
        cmocka_unit_test(units_follow_the_magnitude),
        cmocka_unit_test(steps_have_whole_numbers),
        cmocka_unit_test(a_long_step_is_cut_and_marked),
        cmocka_unit_test(a_rank_alone_waits_for_nobody),
        cmocka_unit_test(a_chart_needs_a_few_values),
        cmocka_unit_test(step_numbers_may_be_huge),
        cmocka_unit_test(each_rank_has_a_small_chart_on_one_scale),
        cmocka_unit_test(a_rank_without_a_record_waits_for_nobody),
        cmocka_unit_test(compared_runs_have_their_names),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
