/* Two runs side by side: A is the page's own, B the other. */
#include "cli/html.h"

#include <math.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/escape.h"
#include "cli/job_figures.h"
#include "cli/report.h"

/* Which is which: name, folder, and what kind of run it is. */
static void put_run(const page *p, const ls_run *run, char letter, const char *words)
{
    double step = run->step_mean, tokens = run->tokens;
    size_t n = run->n_steps - run->first_counted;
    fprintf(p->to, "<dt>%c</dt><dd><b>", letter);
    put_html(p->to, html_name(run->path));
    fprintf(p->to, "</b> (%s)", words);
    if (strcmp(html_name(run->path), run->path) != 0) {
        fputs(" \u00b7 ", p->to);
        put_html(p->to, run->path);
    }
    fprintf(p->to, " \u00b7 %d rank%s \u00b7 %zu step%s", run->ranks, run->ranks == 1 ? "" : "s", n, n == 1 ? "" : "s");
    if (report_is_counted(run)) fprintf(p->to, " \u00b7 %s per step", amount_ns(step).text);
    if (report_is_counted(run) && tokens > 0)
        fprintf(p->to, " \u00b7 %s tokens/s", amount_count(tokens / step * 1e9).text);
    fputs("</dd>", p->to);
}

static void draw_run(const chart *c, const ls_run *run, char letter, double y, double unit)
{
    enum { HEIGHT = 24 };
    double at = 0;
    char text[200], name[2] = { letter, 0 };
    chart_text(c, c->left - 10, y + 16, "end", "ink b", name);
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        const char *phase = ls_phase_name(report_phase(i));
        double ns = ls_run_mean(run, -1, report_phase(i)), x = chart_x(c, at / unit),
               end = chart_x(c, (at + ns) / unit);
        char both[64], initial[2] = { report_letter(report_phase(i)), 0 };
        double lost = ns > 0 ? fmin(1, ls_run_unscheduled(run, -1, report_phase(i)) / ns) * (end - x) : 0;
        snprintf(text, sizeof text, "%c: %s\n%s per step", letter, phase, amount_ns(ns).text);
        snprintf(both, sizeof both, "%s %s", phase, amount_ns(ns).text);
        chart_rect(c, x, y, end - x, HEIGHT, phase, text);
        chart_hatch(c, end - lost, y, lost, HEIGHT);
        chart_label(c, x, y, end - x, HEIGHT, phase, (const char *const[]){ both, phase, initial, NULL });
        at += ns;
    }
    chart_text(c, chart_x(c, at / unit) + 6, y + 16, "start", "ink b", amount_ns(at).text);
}

static void draw_runs(const page *p, double width)
{
    double most = fmax(p->run->step_mean, p->other->step_mean);
    time_unit unit = time_unit_of(most);
    chart c = { .to = p->to, .width = width, .height = 108, .left = 24, .right = 64, .top = 4, .bottom = 40 };
    char title[48];
    c.x1 = most / unit.ns;
    chart_open(&c, "Mean time of a step by phase, for both runs");
    draw_run(&c, p->run, 'A', 4, unit.ns);
    draw_run(&c, p->other, 'B', 36, unit.ns);
    snprintf(title, sizeof title, "time of a step (%s), mean of all ranks", unit.name);
    chart_axis_x(&c, title, tick_plain);
    chart_close(&c);
}

static const char *verdict(double share, bool more_is_better)
{
    if (fabs(share) < 0.01) return "";
    return (share > 0) == more_is_better ? "good" : "bad";
}

static void put_row(const page *p, const char *name, int phase)
{
    run_change c = run_compare(p->run, p->other, phase);
    if (!(c.before > 0 || c.after > 0)) return;
    fprintf(p->to, "<tr><td>%s<td>%s<td>%s<td class=\"w\">%s%s<td class=\"%s\">%s</tr>", name, amount_ns(c.before).text,
            amount_ns(c.after).text, c.after >= c.before ? "+" : "\u2212", amount_ns(fabs(c.after - c.before)).text,
            verdict(c.share, false), amount_change(c.share).text);
}

static void put_speed(const page *p, double x, double y)
{
    double a = x / p->run->step_mean * 1e9, b = y / p->other->step_mean * 1e9;
    if (!(a > 0 && b > 0)) return;
    fprintf(p->to, "<tr><td><b>tokens/s</b><td>%s<td>%s<td class=\"w\">%s%s<td class=\"%s\">%s</tr>",
            amount_count(a).text, amount_count(b).text, b >= a ? "+" : "\u2212", amount_count(fabs(b - a)).text,
            verdict(b / a - 1, true), amount_change(b / a - 1).text);
}

static void put_settings(const page *p)
{
    report_settings s;
    report_settings_find(p->run, p->other, &s);
    if (!s.count) return;
    fputs("<div class=\"scroll\"><table><tr><th>settings that differ<th>A<th>B</tr>", p->to);
    for (int i = 0; i < s.count; i++)
        fprintf(p->to, "<tr><td>%s<td>%s<td>%s</tr>", s.row[i].name, s.row[i].before, s.row[i].after);
    fputs("</table></div>\n", p->to);
}

static void put_head(const page *p, const char *letter, const ls_run *run)
{
    fprintf(p->to, "<th>%s: ", letter);
    put_html(p->to, html_name(run->path));
}

void html_compare(const page *p)
{
    static const char *const hatched[] = { "hatch", html_unscheduled_words, NULL };
    if (!p->other) return;
    double x = p->run->tokens, y = p->other->tokens;
    html_card(p, "compare", "", "Two runs compared", NULL);
    fputs("<dl class=\"runs\">", p->to);
    put_run(p, p->run, 'A', "this page");
    put_run(p, p->other, 'B', "compared with");
    fputs("</dl>", p->to);
    if (!report_is_counted(p->other)) {
        fputs("<p>B has no counted step, so there is nothing to compare.</p>", p->to);
        html_card_end(p);
        return;
    }
    if (x > 0 && y > 0 && x != y)
        fprintf(p->to, "<p>Steps do different work: %.0f tokens in A, %.0f in B. Compare tokens/s.</p>", x, y);
    html_legend(p, p->other, html_has_unscheduled(p->run) || html_has_unscheduled(p->other) ? hatched : NULL);
    html_chart(p, false, draw_runs);
    fputs("<p>Means of all ranks. Changes of phases are shares of A's step.</p><div "
          "class=\"scroll\"><table><tr><th>phase",
          p->to);
    put_head(p, "A", p->run);
    put_head(p, "B", p->other);
    fputs("<th class=\"w\">B \u2212 A<th>change</tr>", p->to);
    put_speed(p, x, y);
    put_row(p, "<b>step</b>", LS_PHASE_COUNT);
    for (int i = 0; i < LS_PHASE_COUNT; i++) put_row(p, ls_phase_name(report_phase(i)), (int)report_phase(i));
    fputs("</table></div>\n", p->to);
    put_settings(p);
    html_card_end(p);
}
