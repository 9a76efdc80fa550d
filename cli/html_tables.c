/* Tables: collectives, ranks and their machines, the data pipeline; and two runs side by side. */
#include "cli/html.h"

#include <math.h>
#include "base/ring.h"
#include "cli/amount.h"
#include "cli/devices.h"
#include "cli/escape.h"
#include "cli/report.h"

static void put_communication(const page *p)
{
    const ls_run *run = p->run;
    html_card(
        p, "communication", "", "Communication",
        "Per step. <i>Busy</i>: from the last rank's arrival until done. Exposed: a rank stood in the call "
        "meanwhile; the rest was hidden "
        "behind computing. <i>Waited</i>: mean of a rank, before the last one arrived. <i>Of peak</i>: the time that "
        "the "
        "memory needs to move the bytes at the rate of a copy, beside the time taken, above 100 % where caches hold "
        "them; between machines, the bandwidth is what a link carries in each direction, and the peak the best that "
        "it sustained in this run.");
    fputs("<div class=\"scroll\"><table><tr><th>call<th>calls<th>bytes of a "
          "rank<th>busy<th>bandwidth<th>of peak<th>exposed<th>hidden<th>waited</tr>",
          p->to);
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *c = &run->comm[i];
        ls_comm_mean m = ls_run_comm_mean(run, c);
        fprintf(p->to, "<tr><td>%s%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s</tr>", ls_call_name(c->kind),
                c->bucket ? " (buckets)" : "", amount_count(m.count).text, amount_bytes(m.bytes).text,
                amount_ns(m.busy).text, amount_rate(m.rate, c->network).text, amount_share(m.of_peak).text,
                amount_ns(m.exposed).text, amount_share(m.hidden).text, amount_ns(m.waited).text);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

enum { MOST_ROWS = 64 };

static void put_share_cell(const page *p, double part, double whole, double limit)
{
    fprintf(p->to, "<td%s>%s", part > limit * whole ? " class=\"warn\"" : "", amount_share(part / whole).text);
}

static void put_rank(const page *p, const ls_run_rank *k)
{
    const ls_run_use *u = &k->use;
    fprintf(p->to, "<tr><td>%d<td class=\"l\">", k->rank);
    put_html(p->to, k->host);
    fputs("<td class=\"l\">", p->to);
    put_html(p->to, k->cores);
    fprintf(p->to, "<td>%.2f<td%s>%s<td>%s", u->cpu / u->wall, u->verdict ? " class=\"warn\"" : "",
            amount_share(u->busy / u->wall).text, amount_share(u->peak).text);
    put_share_cell(p, u->delay, u->wall, 0.05);
    put_share_cell(p, u->stolen, u->wall, 0.05);
    put_share_cell(p, u->asleep, u->wall, 2);
    fprintf(p->to, "<td>%s<td>%s<td>%s<td%s>%s<td>%s", amount_count(u->voluntary).text,
            amount_count(u->involuntary).text, amount_count(u->minor).text, u->major > 1 ? " class=\"warn\"" : "",
            amount_count(u->major).text, u->resident > 0 ? amount_bytes(u->resident).text : "-");
    if (k->clock_ahead || k->clock_uncertainty)
        fprintf(p->to, "<td>%+.3f ms \u00b1 %s</tr>", (double)k->clock_ahead / 1e6,
                amount_ns((double)k->clock_uncertainty).text);
    else
        fputs("<td>shared</tr>", p->to);
}

static void put_verdicts(const page *p)
{
    device_lines lines;
    int machines = 0;
    device_verdicts(p->run, &lines);
    fputs("<ul class=\"notes\">", p->to);
    for (int i = 0; i < lines.count; i++) fprintf(p->to, "<li>%s</li>", lines.line[i]);
    for (int r = 0; (r = device_next_machine(p->run, r)) >= 0 && machines < MOST_ROWS; r++, machines++) {
        char power[160];
        device_power(p->run, r, power, sizeof power);
        fputs("<li>power of ", p->to);
        put_html(p->to, p->run->rank[r].host);
        fprintf(p->to, ": %s</li>", power);
    }
    fputs("</ul>", p->to);
}

static void put_ranks(const page *p)
{
    const ls_run *run = p->run;
    html_card(
        p, "devices", "", "Ranks and their machines",
        "Per step. <i>Busy</i>: the thread that makes the steps had or wanted a core. <i>Without a core</i>: it could "
        "run, but another one had its core. <i>Stolen</i>: the machine itself had no core to give. <i>Asleep</i>: it "
        "waited of its own accord, for a device or another thread.");
    fputs("<div class=\"scroll\"><table><tr><th>rank<th class=\"l\">host<th class=\"l\">cores<th>cores "
          "used<th>busy<th>of SGEMM<th>without a core<th>stolen<th>asleep<th>switches<th>forced<th>page faults<th>from "
          "disk<th>memory<th>clock</tr>",
          p->to);
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++) {
        const ls_run_rank *k = &run->rank[r];
        if (k->present && k->use.wall > 0)
            put_rank(p, k);
        else
            fprintf(p->to, "<tr><td>%d<td class=\"l\" colspan=\"14\">%s</tr>", r,
                    k->present ? "no step of it was recorded from begin to end" : "its record is missing");
    }
    fputs("</table></div>", p->to);
    if (run->ranks > MOST_ROWS) fprintf(p->to, "<p>The first %d of %d ranks.</p>", MOST_ROWS, run->ranks);
    put_verdicts(p);
    html_card_end(p);
}

/* A column for each role that a thread of the run has. */
static void put_threads(const page *p)
{
    const ls_run *run = p->run;
    bool has[DEVICE_ROLES + 1] = { false }, any = false;
    char text[DEVICE_TEXT];
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++)
        for (size_t i = 0; i < run->rank[r].n_thread; i++) any = has[device_role(run->rank[r].thread[i].name)] = true;
    if (!any) return;
    html_card(p, "threads", "", "Threads", "CPU time of each thread, as a share of a core.");
    fputs("<div class=\"scroll\"><table><tr><th>rank", p->to);
    for (int role = 0; role <= DEVICE_ROLES; role++)
        if (has[role]) fprintf(p->to, "<th>%s", device_role_name(role));
    fputs("</tr>", p->to);
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++) {
        if (!run->rank[r].n_thread) continue;
        fprintf(p->to, "<tr><td>%d", r);
        for (int role = 0; role <= DEVICE_ROLES; role++) {
            if (!has[role]) continue;
            device_role_text(&run->rank[r], role, false, text);
            fputs("<td>", p->to);
            put_html(p->to, *text ? text : "-");
        }
        fputs("</tr>", p->to);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

static void put_data(const page *p)
{
    const ls_run *run = p->run;
    double batches = 0;
    for (int r = 0; r < run->ranks; r++) batches += ls_run_loading_of(run, r).batches;
    if (!(batches > 0)) return;
    html_card(p, "pipeline", "", "Data pipeline",
              "<i>Ready when asked</i>: batches that were ready when the training wanted one, and how many there were; "
              "otherwise it had to wait.");
    fputs("<div class=\"scroll\"><table><tr><th>rank<th>workers<th>batches a step<th>to build one<th>ready when "
          "asked<th>queue<th>training waited<th>workers "
          "busy<th>read from disk</tr>",
          p->to);
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++) {
        ls_run_loading l = ls_run_loading_of(run, r);
        if (!(l.batches > 0)) continue;
        char count[32] = "-";
        if (isfinite(l.workers)) snprintf(count, sizeof count, "%.0f%s", l.workers, l.workers < 1 ? " (none)" : "");
        bool waited = l.waited > 0.05 * run->rank[r].use.wall;
        fprintf(p->to, "<tr><td>%d<td>%s<td>%s<td>%s<td>%s<td>%.1f<td%s>%s a step<td>%s<td>%s</tr>", r, count,
                amount_count(l.batches).text, amount_ns(l.build).text, amount_share(l.ready).text, l.queue,
                waited ? " class=\"warn\"" : "", amount_ns(l.waited).text, amount_share(l.busy).text,
                amount_bytes(l.read_bytes).text);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

void html_tables(const page *p)
{
    if (p->run->n_comm) put_communication(p);
    put_ranks(p);
    put_threads(p);
    put_data(p);
}

/* ---- Two runs */

static void compare_row(const page *p, const char *name, int phase)
{
    ls_run_change c = ls_run_compare(p->run, p->other, phase);
    if (!(c.before > 0 || c.after > 0)) return;
    bool matters = fabs(c.share) > 0.01;
    fprintf(p->to, "<tr><td>%s<td>%s<td>%s<td class=\"w\">%s%s<td class=\"%s\">%+.1f%%</tr>", name,
            amount_ns(c.before).text, amount_ns(c.after).text, c.share >= 0 ? "+" : "\u2212",
            amount_ns(fabs(c.after - c.before)).text,
            !matters      ? ""
            : c.share > 0 ? "bad"
                          : "good",
            100 * c.share);
}

/* More is better here. */
static void compare_speed(const page *p, double x, double y)
{
    double a = x / ls_run_step_mean(p->run) * 1e9, b = y / ls_run_step_mean(p->other) * 1e9;
    if (!(a > 0 && b > 0)) return;
    fprintf(p->to, "<tr><td><b>tokens/s</b><td>%s<td>%s<td class=\"w\">%s%s<td class=\"%s\">%+.1f%%</tr>",
            amount_count(a).text, amount_count(b).text, b >= a ? "+" : "\u2212", amount_count(fabs(b - a)).text,
            fabs(b / a - 1) < 0.02 ? ""
            : b > a                ? "good"
                                   : "bad",
            100 * (b / a - 1));
}

static void compare_settings(const page *p)
{
    report_settings s;
    report_settings_find(p->run, p->other, &s);
    if (!s.count) return;
    fputs("<div class=\"scroll\"><table><tr><th class=\"l\">settings that differ<th>this run<th>the other</tr>", p->to);
    for (int i = 0; i < s.count; i++)
        fprintf(p->to, "<tr><td class=\"l\">%s<td>%s<td>%s</tr>", s.row[i].name, s.row[i].before, s.row[i].after);
    fputs("</table></div>\n", p->to);
}

void html_compare(const page *p)
{
    if (!p->other) return;
    double x = ls_run_tokens(p->run), y = ls_run_tokens(p->other);
    html_card(p, "compare", "", "Compared with", NULL);
    fputs("<p>", p->to);
    put_html(p->to, p->other->path);
    fprintf(p->to, ": %d rank%s, %zu steps. Means of a step over all ranks; green: the other run is faster there.</p>",
            p->other->ranks, p->other->ranks == 1 ? "" : "s", p->other->n_steps);
    if (x > 0 && y > 0 && x != y)
        fprintf(p->to,
                "<p>Steps do different work: %.0f tokens in this run, %.0f in the other. Compare tokens a second.</p>",
                x, y);
    compare_settings(p);
    fputs("<div class=\"scroll\"><table><tr><th>phase<th>this run<th>the other<th class=\"w\">difference<th>change, of "
          "the step</tr>",
          p->to);
    compare_speed(p, x, y);
    compare_row(p, "<b>step</b>", LS_PHASES);
    for (int i = 0; i < LS_PHASES; i++) compare_row(p, ls_phase_name(html_phases[i]), (int)html_phases[i]);
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}
