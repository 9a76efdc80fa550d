/* Tables: collectives, ranks and their nodes, threads, the data pipeline. */
#include "cli/html.h"

#include <math.h>
#include "record/ring.h"
#include "cli/amount.h"
#include "cli/rank_use.h"
#include "cli/escape.h"
#include "cli/findings_text.h"
#include "cli/report.h"
#include "measure/findings.h"
#include "measure/limits.h"

static void put_communication(const page *p)
{
    const ls_run *run = p->run;
    bool known = findings_waits_known(run);
    html_card(
        p, "communication", "", "Communication",
        "Per step. <i>Busy</i>: from the last rank's arrival until done. <i>Exposed</i>: the part in which ranks were "
        "blocked in the collective; the rest was overlapped with computing. <i>Waited</i>: before the last rank "
        "arrived, mean "
        "of a rank. <i>Of peak</i>: % of peak bandwidth, which is the rate of copies in memory; above 100% if data "
        "stays in caches. Between nodes the bandwidth is that of a link in each direction, and the peak is the "
        "best rate that it sustained in this run.");
    fputs("<div class=\"scroll\"><table><tr><th>collective<th>calls<th>bytes of a "
          "rank<th>busy<th>bandwidth<th>of peak<th>exposed<th>overlapped<th>waited</tr>",
          p->to);
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *c = &run->comm[i];
        ls_comm_mean m = ls_run_get_comm_mean(run, c);
        fprintf(p->to, "<tr><td>%s%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s</tr>", ls_collective_name(c->kind),
                c->bucket ? " buckets" : "", amount_count(m.count).text, amount_bytes(m.bytes > 0 ? m.bytes : NAN).text,
                amount_ns(m.busy).text, amount_rate(m.rate, c->network).text, amount_share(m.of_peak).text,
                amount_ns(m.exposed).text, amount_share(m.hidden).text, amount_ns(known ? m.waited : NAN).text);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

enum { MOST_ROWS = 64 };

static void put_share_cell(const page *p, double part, double whole, double limit)
{
    fprintf(p->to, "<td%s>%s", part > limit * whole ? " class=\"warn\"" : "", amount_share(part / whole).text);
}

static void put_rank(const page *p, const ls_run_rank *k, bool clocks)
{
    const ls_resource_use *u = &k->use;
    fprintf(p->to, "<tr><td>%d<td class=\"l\">", k->rank);
    put_html(p->to, k->host);
    fputs("<td class=\"l\">", p->to);
    put_html(p->to, k->cores);
    bool known = u->cpu > 0; /* an imported run has no samples of the kernel's counters */
    char cores[32] = "-";
    if (known) snprintf(cores, sizeof cores, "%.2f", u->cpu / u->wall);
    fprintf(p->to, "<td>%s<td%s>%s<td>%s", cores, u->level ? " class=\"warn\"" : "",
            amount_share(u->busy / u->wall).text, amount_share(u->mfu).text);
    if (known) {
        put_share_cell(p, u->sched_delay, u->wall, LS__CONTENTION_SHARE);
        put_share_cell(p, u->steal, u->wall, LS__STEAL_SHARE);
        put_share_cell(p, u->off_cpu, u->wall, INFINITY);
        fprintf(p->to, "<td>%s / %s<td>%s / ", amount_count(u->voluntary).text, amount_count(u->involuntary).text,
                amount_count(u->minor).text);
        fprintf(p->to, u->major > 1 ? "<b>%s</b>" : "%s", amount_count(u->major).text);
    } else {
        fputs("<td>-<td>-<td>-<td>-<td>-", p->to);
    }
    fprintf(p->to, "<td>%s", u->resident > 0 ? amount_bytes(u->resident).text : "-");
    if (clocks && (k->clock_ahead || k->clock_uncertainty))
        fprintf(p->to, "<td>%s%s \u00b1 %s", k->clock_ahead < 0 ? "\u2212" : "+",
                amount_ns(fabs((double)k->clock_ahead)).text, amount_ns((double)k->clock_uncertainty).text);
    else if (clocks)
        fputs("<td>shared", p->to);
    fputs("</tr>", p->to);
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
        if (!device_power(p->run, r, power, sizeof power)) continue; /* an imported run */
        fputs("<li>power of ", p->to);
        put_html(p->to, p->run->rank[r].host);
        fprintf(p->to, ": %s</li>", power);
    }
    fputs("</ul>", p->to);
}

/* Whether there is more than one clock. */
static bool has_clocks(const ls_run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].clock_ahead || run->rank[r].clock_uncertainty) return true;
    return false;
}

static void put_ranks(const page *p)
{
    const ls_run *run = p->run;
    bool clocks = has_clocks(run);
    html_card(
        p, "devices", "", "Ranks and their nodes",
        "Shares of a step, of the main thread. <i>Busy</i>: on a core or runnable. <i>MFU</i>: % of measured SGEMM. "
        "<i>Run-queue delay</i>: the part of busy that is runnable but not scheduled. "
        "<i>Steal</i>: "
        "taken by the hypervisor. <i>Off-CPU</i>: not runnable, it waited for a device or another thread.");
    fprintf(p->to,
            "<div class=\"scroll\"><table><tr><th>rank<th class=\"l\">host<th class=\"l\">cores<th>cores "
            "used<th>busy<th>MFU<th>run-queue delay<th>steal<th>off-CPU<th>context switches<br>vol. / invol.<th>page "
            "faults<br>minor / major<th>memory%s</tr>",
            clocks ? "<th>clock" : "");
    int shown = 0;
    for (int row = 0; row < MOST_ROWS && shown < run->ranks; row++, shown++) {
        int first = shown;
        while (!run->rank[first].present && shown + 1 < run->ranks && !run->rank[shown + 1].present) shown++;
        if (report_has(run, first))
            put_rank(p, &run->rank[first], clocks);
        else if (shown > first)
            fprintf(p->to, "<tr><td>%d\u2013%d<td class=\"l\" colspan=\"12\">their records are missing</tr>", first,
                    shown);
        else
            fprintf(p->to, "<tr><td>%d<td class=\"l\" colspan=\"12\">%s</tr>", first,
                    run->rank[first].present ? "no complete step was recorded" : "its record is missing");
    }
    fputs("</table></div>", p->to);
    if (shown < run->ranks) fprintf(p->to, "<p>The first %d of %d ranks.</p>", shown, run->ranks);
    put_verdicts(p);
    html_card_end(p);
}

/* A row for each role that a thread of the run has, a column for each rank. */
static void put_threads(const page *p)
{
    const ls_run *run = p->run;
    int ranks[HTML_RANKS], n = html_ranks_shown(run, ranks);
    bool has[DEVICE_ROLES + 1] = { false }, any = false;
    char text[DEVICE_TEXT];
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < run->rank[ranks[i]].n_thread; k++)
            any = has[device_role(run->rank[ranks[i]].thread[k].name)] = true;
    if (!any) return;
    html_card(p, "threads", "", "Threads",
              report_recorded(run) > HTML_RANKS ? "CPU time of each thread, as a share of a core, of the ranks that "
                                                  "waited least and most."
                                                : "CPU time of each thread, as a share of a core.");
    fputs("<div class=\"scroll\"><table><tr><th>thread", p->to);
    for (int i = 0; i < n; i++) fprintf(p->to, "<th>rank %d", ranks[i]);
    fputs("</tr>", p->to);
    for (int role = 0; role <= DEVICE_ROLES; role++) {
        if (!has[role]) continue;
        fprintf(p->to, "<tr><td>%s", device_role_name(role));
        for (int i = 0; i < n; i++) {
            device_role_text(&run->rank[ranks[i]], role, false, text);
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
    for (int r = 0; r < run->ranks; r++) batches += ls_run_get_loading(run, r).batches;
    if (!(batches > 0)) return;
    html_card(p, "pipeline", "", "Data pipeline",
              "<i>Ready when asked</i>: batches that were ready when one was requested, and how many there were; "
              "otherwise the rank had to wait.");
    fputs("<div class=\"scroll\"><table><tr><th>rank<th>workers<th>batches per step<th>to build one<th>ready when "
          "asked<th>queue<th>training waited<th>workers "
          "busy<th>read from disk</tr>",
          p->to);
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++) {
        ls_run_loading l = ls_run_get_loading(run, r);
        if (!(l.batches > 0)) continue;
        char count[32] = "-";
        if (isfinite(l.workers)) snprintf(count, sizeof count, "%.0f%s", l.workers, l.workers < 1 ? " (none)" : "");
        ls__data_load load = ls__data_load_of(run, r);
        fprintf(p->to, "<tr><td>%d<td>%s<td>%s<td>%s<td>%s<td>%.1f<td%s>%s per step<td>%s<td>%s</tr>", r, count,
                amount_count(l.batches).text, amount_ns(l.build).text, amount_share(l.ready).text, l.queue,
                ls__data_stalls(&load) ? " class=\"warn\"" : "", amount_ns(l.waited).text, amount_share(l.busy).text,
                amount_bytes(l.read_bytes).text);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

void html_tables(const page *p)
{
    if (p->run->ranks > 1 && p->run->n_comm) put_communication(p); /* one rank does not communicate */
    put_ranks(p);
    put_threads(p);
    put_data(p);
}
