/* Tables: collectives, ranks and their machines, the data pipeline; and two runs side by side. */
#include "cli/html.h"

#include <math.h>
#include "base/ring.h"
#include "cli/amount.h"
#include "cli/devices.h"
#include "cli/escape.h"

static void put_communication(const page *p)
{
    const ls_run *run = p->run;
    size_t n;
    counted(p, &n);
    double steps = n ? (double)n : 1;
    html_card(
        p, "communication", "", "Communication",
        "Per step. <i>Busy</i>: from the last rank's arrival until done. Exposed: a rank stood in the call "
        "meanwhile; the rest was hidden "
        "behind computing. <i>Of bound</i>: the time that the memory needs to move the bytes, as measured when the run "
        "began, beside the time taken; above 100 % where caches hold them.");
    fputs("<div class=\"scroll\"><table><tr><th>call<th>calls<th>bytes of a "
          "rank<th>busy<th>bandwidth<th>of bound<th>exposed<th>hidden<th>waited before</tr>",
          p->to);
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *c = &run->comm[i];
        double busy = (double)c->busy, hidden = busy > 0 ? 1 - fmin(1, (double)c->exposed / busy) : 0;
        char rate[48] = "-";
        if (busy > 0 && c->bytes > 0)
            snprintf(rate, sizeof rate, "%s/s", amount_bytes((double)c->bytes / busy * 1e9).text);
        fprintf(p->to, "<tr><td>%s%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s</tr>", ls_call_name(c->kind),
                c->bucket ? " (buckets)" : "", amount_count((double)c->count / steps).text,
                amount_bytes((double)c->bytes / steps).text, amount_ns(busy / steps).text, rate,
                busy > 0 && c->bound > 0 ? amount_share((double)c->bound / busy).text : "-",
                amount_ns((double)c->exposed / steps).text, busy > 0 ? amount_share(hidden).text : "-",
                amount_ns((double)c->waited / steps).text);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

/* Sums of a rank over the steps that count. */
typedef struct sums {
    double steps, wall, batches, ready, batch_ns, read, data;
} sums;

static sums sum_rank(const page *p, int rank)
{
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    sums s = { 0 };
    for (size_t i = 0; i < n; i++) {
        const ls_step_rank *r = &steps[i].rank[rank];
        if (!r->present) continue;
        s.steps++;
        s.wall += (double)(r->end - r->begin);
        s.batches += r->batches;
        s.ready += r->batches_ready;
        s.batch_ns += (double)r->batch_ns;
        s.read += (double)r->read_bytes;
        s.data += (double)r->ns[LS_PHASE_DATA];
    }
    if (!(s.steps > 0)) s.steps = 1;
    return s;
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
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) batches += sum_rank(p, r).batches;
    if (!(batches > 0)) return;
    html_card(p, "pipeline", "", "Data pipeline",
              "<i>Ready when asked</i>: batches that were waiting when the training wanted one; 0 means that it had to "
              "wait.");
    fputs("<div class=\"scroll\"><table><tr><th>rank<th>workers<th>batches a step<th>to build one<th>ready when "
          "asked<th>training waited<th>workers "
          "busy<th>read from disk</tr>",
          p->to);
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++) {
        const ls_run_rank *k = &run->rank[r];
        sums s = sum_rank(p, r);
        if (!k->present || !(s.batches > 0)) continue;
        double workers = k->facts[LS_FACT_WORKERS], busy = s.batch_ns / s.wall / (workers >= 1 ? workers : 1);
        char count[32] = "-";
        if (isfinite(workers)) snprintf(count, sizeof count, "%.0f%s", workers, workers < 1 ? " (none)" : "");
        bool waited = s.data > 0.05 * s.wall;
        fprintf(p->to, "<tr><td>%d<td>%s<td>%s<td>%s<td>%.1f<td%s>%s a step<td>%s<td>%s</tr>", r, count,
                amount_count(s.batches / s.steps).text, amount_ns(s.batch_ns / s.batches).text, s.ready / s.batches,
                waited ? " class=\"warn\"" : "", amount_ns(s.data / s.steps).text, amount_share(busy).text,
                amount_bytes(s.read / s.steps).text);
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

static void compare_row(const page *p, const char *name, double a, double b)
{
    double change = a > 0 ? b / a - 1 : 0;
    char share[48] = "-";
    if (a > 0) snprintf(share, sizeof share, "%+.1f%%", 100 * change);
    bool matters = fabs(b - a) > 0.01 * ls_run_step_mean(p->run) && fabs(change) > 0.02;
    fprintf(p->to, "<tr><td>%s<td>%s<td>%s<td class=\"w\">%s%s<td class=\"%s\">%s</tr>", name, amount_ns(a).text,
            amount_ns(b).text, b >= a ? "+" : "\u2212", amount_ns(fabs(b - a)).text,
            !matters ? ""
            : b > a  ? "bad"
                     : "good",
            share);
}

static double tokens_of(const ls_run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].facts[LS_FACT_TOKENS] > 0) return run->rank[r].facts[LS_FACT_TOKENS];
    return 0;
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

void html_compare(const page *p)
{
    if (!p->other) return;
    double x = tokens_of(p->run), y = tokens_of(p->other);
    html_card(p, "compare", "", "Compared with", NULL);
    fputs("<p>", p->to);
    put_html(p->to, p->other->path);
    fprintf(p->to, ": %d rank%s, %zu steps. Means of a step over all ranks; green: the other run is faster there.</p>",
            p->other->ranks, p->other->ranks == 1 ? "" : "s", p->other->n_steps);
    if (x > 0 && y > 0 && x != y)
        fprintf(p->to,
                "<p>Steps do different work: %.0f tokens in this run, %.0f in the other. Compare tokens a second.</p>",
                x, y);
    fputs(
        "<div class=\"scroll\"><table><tr><th>phase<th>this run<th>the other<th class=\"w\">difference<th>change</tr>",
        p->to);
    compare_speed(p, x, y);
    compare_row(p, "<b>step</b>", ls_run_step_mean(p->run), ls_run_step_mean(p->other));
    for (int i = 0; i < LS_PHASES; i++) {
        double a = ls_run_mean(p->run, -1, html_phases[i]), b = ls_run_mean(p->other, -1, html_phases[i]);
        if (a > 0 || b > 0) compare_row(p, ls_phase_name(html_phases[i]), a, b);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}
