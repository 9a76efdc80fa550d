/* Two runs compared: settings, times and findings. */
#include <math.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/findings_text.h"
#include "cli/job_figures.h"
#include "cli/report.h"

/* ---- Settings. */

static double metadata_of(const ls_run *run, ls_metadata_kind kind)
{
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) return run->rank[r].metadata[kind];
    return (double)NAN;
}

static int machines(const ls_run *run)
{
    int most = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].node > most) most = run->rank[r].node;
    return most + 1;
}

static void put_number(char out[32], double x)
{
    snprintf(out, 32, "%.6g", x);
}
static void put_bytes(char out[32], double x)
{
    snprintf(out, 32, "%s", amount_bytes(x).text);
}
static void put_switch(char out[32], double x)
{
    snprintf(out, 32, "%s", x != 0 ? "on" : "off");
}
static void put_wire(char out[32], double x)
{
    snprintf(out, 32, "%s", x == 2 ? "bfloat16" : "float32");
}

static void add(report_settings *out, const char *name, double a, double b, void (*put)(char out[32], double x))
{
    if (!isfinite(a) || !isfinite(b) || a == b || out->count == REPORT_SETTINGS) return;
    out->row[out->count].name = name;
    put(out->row[out->count].before, a);
    put(out->row[out->count].after, b);
    out->count++;
}

void report_settings_find(const ls_run *before, const ls_run *after, report_settings *out)
{
    static const struct {
        ls_metadata_kind kind;
        const char *name;
        void (*put)(char out[32], double x);
    } rows[] = {
        { LS_METADATA_OVERLAP, "overlap of communication and backward", put_switch },
        { LS_METADATA_WIRE, "gradient communication dtype", put_wire },
        { LS_METADATA_BUCKET, "gradient bucket size", put_bytes },
        { LS_METADATA_SLOTS, "micro-batches of a step", put_number },
        { LS_METADATA_TOKENS, "tokens of a step", put_number },
        { LS_METADATA_THREADS, "threads of a rank", put_number },
        { LS_METADATA_WORKERS, "loader workers", put_number },
        { LS_METADATA_STAGED, "data staged", put_switch },
        { LS_METADATA_PARAMETERS, "parameters", put_number },
        { LS_METADATA_BARRIERS, "barriers before phases", put_switch },
    };
    out->count = 0;
    add(out, "ranks", before->ranks, after->ranks, put_number);
    add(out, "nodes", machines(before), machines(after), put_number);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add(out, rows[i].name, metadata_of(before, rows[i].kind), metadata_of(after, rows[i].kind), rows[i].put);
}

static void show_settings(const ls_run *before, const ls_run *after, const report_form *f)
{
    report_settings s;
    report_settings_find(before, after, &s);
    if (!s.count) return;
    report_head(f, "Settings that differ");
    fprintf(f->to, "  %-38s %12s %12s\n", "", "before", "after");
    for (int i = 0; i < s.count; i++)
        fprintf(f->to, "  %-38s %12s %12s\n", s.row[i].name, s.row[i].before, s.row[i].after);
}

/* ---- Times. */

/* Steps of different work cannot be compared by their time; tokens per second can. */
static void show_speed(const ls_run *before, const ls_run *after, const report_form *f)
{
    double x = before->tokens, y = after->tokens, a = x / before->step_mean * 1e9, b = y / after->step_mean * 1e9;
    if (!(x > 0 && y > 0)) return;
    fprintf(f->to, "  %-16s %12.0f %12.0f %12s\n", "tokens/s", a, b, amount_change(b / a - 1).text);
    char text[256];
    snprintf(text, sizeof text,
             "a step before has %.0f tokens, one after %.0f: compare tokens/s, not times; a token takes %s and %s", x,
             y, amount_ns(1e9 / a).text, amount_ns(1e9 / b).text);
    if (x != y) report_wrap(f, 2, 2, "", text);
}

static void show_row(const ls_run *before, const ls_run *after, int phase, const report_form *f)
{
    run_change c = run_compare(before, after, phase);
    if (c.before > 0 || c.after > 0)
        fprintf(f->to, "  %-16s %s %s %12s\n", phase < LS_PHASE_COUNT ? ls_phase_name((ls_phase)phase) : "step",
                amount_field(amount_ns(c.before), 12).text, amount_field(amount_ns(c.after), 12).text,
                amount_change(c.share).text);
}

void report_compare(const ls_run *before, const ls_run *after, const report_form *f)
{
    report_title(before, f);
    report_title(after, f);
    show_settings(before, after, f);
    if (!report_is_counted(before) || !report_is_counted(after)) return;
    report_head(f, "Average step, mean of all ranks");
    fprintf(f->to, "  %-16s %12s %12s %12s\n", "", "before", "after", "change");
    for (int i = 0; i < LS_PHASE_COUNT; i++) show_row(before, after, (int)report_phase(i), f);
    show_row(before, after, LS_PHASE_COUNT, f);
    fprintf(f->to, "  (changes are shares of the step before)\n");
    show_speed(before, after, f);
    report_head(f, "Findings");
    for (int second = 0; second < 2; second++) {
        const ls_run *run = second ? after : before;
        for (size_t i = 0; i < run->n_findings; i++)
            report_wrap(f, 2, 10, second ? "after:  " : "before: ", finding_describe(run, &run->findings[i]).what);
        if (!run->n_findings) report_wrap(f, 2, 10, second ? "after:  " : "before: ", "nothing stands out");
    }
}
