/* The report for a terminal: a page that is read in a minute. The bars of a step come first, then the findings, then tables. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/findings_text.h"
#include "cli/job_figures.h"
#include "cli/report.h"
#include "cli/generations.h"
#include "cli/report_import.h"

/* Phases in the order of the bar: letter, colour of the terminal, name of the column, and name in the legend. */
static const struct look {
    ls_phase phase;
    char letter;
    const char *color, *column, *words;
} looks[LS_PHASE_COUNT] = {
    { LS_PHASE_DATA, 'd', "33", "data", "data" },
    { LS_PHASE_FORWARD, 'f', "32", "forward", "forward" },
    { LS_PHASE_BACKWARD, 'b', "34", "backward", "backward" },
    { LS_PHASE_UPDATE, 'u', "35", "update", "update" },
    { LS_PHASE_COMM, 'c', "36", "exposed", "exposed communication" },
    { LS_PHASE_WAIT, 'w', "31", "waiting", "waiting" },
    { LS_PHASE_EVAL, 'e', "37", "eval", "evaluation" },
    { LS_PHASE_CHECKPOINT, 'k', "37", "ckpt", "checkpoint" },
    { LS_PHASE_OTHER, '.', "90", "other", "other" },
};
enum { LOOKS = LS_PHASE_COUNT };

ls_phase report_phase(int i)
{
    return looks[i].phase;
}

char report_letter(ls_phase phase)
{
    for (int i = 0; i < LOOKS; i++)
        if (looks[i].phase == phase) return looks[i].letter;
    return '.';
}

void report_head(const report_form *f, const char *text)
{
    fprintf(f->to, f->color ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

static double total(const ls_run *run, int rank)
{
    double sum = 0;
    for (int p = 0; p < LS_PHASE_COUNT; p++) sum += ls_run_mean(run, rank, (ls_phase)p);
    return sum;
}

/* ---- The step as a bar. */

static void bar(const ls_run *run, int rank, int width, double longest, const report_form *f)
{
    double until = 0;
    int at = 0;
    for (int i = 0; i < LOOKS; i++) {
        until += ls_run_mean(run, rank, looks[i].phase);
        int end = (int)(until / longest * width + 0.5);
        if (end <= at) continue;
        if (f->color) fprintf(f->to, "\033[%sm", looks[i].color);
        for (; at < end && at < width; at++) fputc(looks[i].letter, f->to);
        if (f->color) fputs("\033[0m", f->to);
    }
    for (; at < width; at++) fputc(' ', f->to);
}

/* A single rank spends next to nothing in collectives. */
int report_recorded(const ls_run *run)
{
    int n = 0;
    for (int r = 0; r < run->ranks; r++) n += run->rank[r].present;
    return n;
}

bool report_has_phase(const ls_run *run, ls_phase phase)
{
    double alone = run->ranks > 1 || phase != LS_PHASE_COMM ? 0 : 0.005;
    return ls_run_mean(run, -1, phase) > alone * run->step_mean;
}

static bool has(const ls_run *run, const struct look *l)
{
    return report_has_phase(run, l->phase);
}

/* The unit of a table: one for all its cells, by the longest. */
typedef struct table_unit {
    double ns;
    const char *name;
} table_unit;

static table_unit unit_for(double longest)
{
    if (longest >= 1e11) return (table_unit){ 1e9, "s" }; /* a step that takes minutes */
    return longest < 1e6 ? (table_unit){ 1e3, "\u00b5s" } : (table_unit){ 1e6, "ms" };
}

static void show_legend(const ls_run *run, const report_form *f, const char *below)
{
    char text[400] = "";
    for (int i = 0; i < LOOKS; i++) {
        size_t at = strlen(text);
        if (has(run, &looks[i]))
            snprintf(text + at, sizeof text - at, "%s%c=%s", at ? ", " : "", looks[i].letter, looks[i].words);
    }
    size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "; times below in %s", below);
    report_wrap(f, 2, 2, "", text);
}

/* Times in one unit and with as many digits as fit five columns. */
static void show_phases(const ls_run *run, const report_form *f, double longest, double unit)
{
    int digits = longest / unit < 99.99 ? 2 : longest / unit < 999.9 ? 1 : 0, shown = 0;
    fprintf(f->to, "\n  %-5s", "rank");
    for (int i = 0; i < LOOKS; i++)
        if (has(run, &looks[i])) fprintf(f->to, " %5s", looks[i].column);
    fprintf(f->to, "%s\n", run->ranks > 1 ? " overlap" : "");
    for (int r = 0; r < run->ranks && shown < REPORT_ROWS; r++) {
        if (!report_has(run, r)) continue;
        shown++;
        fprintf(f->to, "  %-5d", r);
        for (int i = 0; i < LOOKS; i++)
            if (has(run, &looks[i]))
                fprintf(f->to, " %*.*f", (int)fmax(5, (double)strlen(looks[i].column)), digits,
                        ls_run_mean(run, r, looks[i].phase) / unit);
        if (run->ranks > 1) fprintf(f->to, " %7.*f", digits, ls_run_overlapped(run, r) / unit);
        fputc('\n', f->to);
    }
}

void report_left_out(const report_form *f, const ls_run *run, int shown)
{
    int all = 0;
    for (int r = 0; r < run->ranks; r++) all += report_has(run, r);
    if (all > shown) fprintf(f->to, "  (%d more rank%s; --json has all)\n", all - shown, all - shown == 1 ? "" : "s");
}

static void show_steps(const ls_run *run, const report_form *f)
{
    double longest = 1;
    int shown = 0;
    for (int r = 0; r < run->ranks; r++) longest = fmax(longest, total(run, r));
    report_head(f, "Average step");
    for (int r = 0; r < run->ranks && shown < REPORT_ROWS; r++) {
        if (!report_has(run, r)) continue;
        shown++;
        fprintf(f->to, "  rank %-3d ", r);
        bar(run, r, f->width - 20, longest, f);
        fprintf(f->to, " %s\n", amount_ns(total(run, r)).text);
    }
    report_left_out(f, run, shown);
    table_unit u = unit_for(longest);
    show_legend(run, f, u.name);
    show_phases(run, f, longest, u.ns);
}

/* ---- Findings. */

void report_wrap(const report_form *f, int first, int rest, const char *label, const char *text)
{
    int at = fprintf(f->to, "%*s%s", first, "", label);
    for (bool begun = false; *text; begun = true) {
        int n = (int)strcspn(text, " ");
        bool fits = at + begun + n <= f->width;
        if (begun && fits) at += fprintf(f->to, " ");
        if (begun && !fits) at = fprintf(f->to, "\n%*s", rest, "") - 1;
        at += fprintf(f->to, "%.*s", n, text);
        text += n;
        while (*text == ' ') text++;
    }
    fputc('\n', f->to);
}

bool report_gains(const ls_run *run, const ls_finding *x)
{
    double step = run->step_mean, then = (double)x->expected;
    return then > 0 && then < 0.995 * step && strcmp(amount_ns(step).text, amount_ns(then).text) != 0;
}

const char *report_nothing(const ls_run *run)
{
    if (run->ranks < 2) return "No phase costs more than it has to";
    if (!findings_waits_known(run))
        return "No phase costs more than it has to; who waits for whom is unknown: no collective is known on two ranks";
    return "No rank makes others wait, and no phase costs more than it has to";
}

static void show_findings(const ls_run *run, const report_form *f)
{
    double step = run->step_mean;
    report_head(f, run->n_findings ? "What to change, most expensive first" : "Nothing stands out");
    if (!run->n_findings) {
        char text[200];
        snprintf(text, sizeof text, "%s", report_nothing(run));
        *text = (char)tolower((unsigned char)*text);
        report_wrap(f, 2, 2, "", text);
    }
    for (size_t i = 0; i < run->n_findings && i < REPORT_ROWS; i++) {
        const ls_finding *x = &run->findings[i];
        char gain[96], number[24];
        finding_text words = finding_describe(run, x);
        snprintf(number, sizeof number, "%2zu. ", i + 1);
        report_wrap(f, 0, 4, number, words.what);
        report_wrap(f, 4, 14, "evidence: ", words.evidence);
        report_wrap(f, 4, 14, "change:   ", words.remedy);
        if (report_gains(run, x)) {
            snprintf(gain, sizeof gain, "step %s -> %s", amount_ns(step).text, amount_ns((double)x->expected).text);
            report_wrap(f, 4, 14, "expected: ", gain);
        }
    }
    if (run->n_findings > REPORT_ROWS)
        fprintf(f->to, "    (%zu more that cost less; --json has all)\n", run->n_findings - REPORT_ROWS);
}

const char *report_end(const ls_run *run)
{
    bool closed = true, unreadable = false;
    for (int r = 0; r < run->ranks; r++) closed = closed && (!run->rank[r].present || run->rank[r].closed);
    if (closed) return NULL;
    /* Of a file that could not be read to its end, it is not known how it ended; its note says why. */
    for (size_t i = 0; i < run->n_notes; i++) unreadable = unreadable || run->notes[i].kind == LS_NOTE_UNREADABLE;
    return unreadable ? "not all could be read" : "still running or killed";
}

void report_title(const ls_run *run, const report_form *f)
{
    int nodes = 0;
    const char *transport = "", *end = report_end(run);
    for (int r = 0; r < run->ranks; r++) {
        const ls_run_rank *x = &run->rank[r];
        if (!x->present) continue;
        if (x->node >= nodes) nodes = x->node + 1;
        transport = x->transport;
    }
    char text[400] = "";
    FILE *t = fmemopen(text, sizeof text - 1, "w");
    if (!t) return;
    fprintf(t, "%d rank%s", run->ranks, run->ranks == 1 ? "" : "s");
    if (run->ranks > 1) fprintf(t, " on %d node%s (%s)", nodes, nodes == 1 ? "" : "s", transport);
    if (run->n_steps)
        fprintf(t, ", steps %lld to %lld", (long long)run->steps[run->first_counted].number,
                (long long)run->steps[run->n_steps - 1].number);
    for (int i = 0; i < n_job_figures && report_is_counted(run); i++) {
        char figure[64];
        double x = job_figures[i].title ? job_figures[i].of(run) : (double)NAN;
        if (!isfinite(x)) continue;
        job_figures[i].title(x, figure, sizeof figure);
        fputs(figure, t);
    }
    if (end) fprintf(t, ", %s", end);
    fclose(t);
    char label[4200];
    snprintf(label, sizeof label, "%s: ", printable(run->path));
    report_wrap(f, 0, 4, label, text);
    for (size_t i = 0; i < run->n_notes; i++) report_wrap(f, 0, 6, "note: ", note_describe(run, &run->notes[i]).text);
}

void report_text(const ls_run *run, const report_form *form)
{
    report_title(run, form);
    report_import_notes(run, form);
    generations_report(run, form);
    if (!report_is_counted(run)) return;
    show_steps(run, form);
    show_findings(run, form);
    report_tables(run, form);
    report_import_devices(run, form);
}
