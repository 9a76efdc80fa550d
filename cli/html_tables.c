/* Tables: collectives, ranks and their machines, the data pipeline; and two runs side by side. */
#include "cli/html.h"

#include <math.h>
#include "base/ring.h"
#include "cli/amount.h"
#include "cli/escape.h"

static void put_communication(const page *p)
{
    const ls_run *run = p->run;
    size_t n;
    counted(p, &n);
    double steps = n ? (double)n : 1;
    html_card(p, "communication", "", "Communication",
              "Per step. <i>Busy</i>: from the last rank's arrival until done. Exposed: a rank stood in the call "
              "meanwhile; the rest was hidden "
              "behind computing.");
    fputs("<div class=\"scroll\"><table><tr><th>call<th>calls<th>bytes of a "
          "rank<th>busy<th>bandwidth<th>exposed<th>hidden<th>waited before</tr>",
          p->to);
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *c = &run->comm[i];
        double busy = (double)c->busy, hidden = busy > 0 ? 1 - fmin(1, (double)c->exposed / busy) : 0;
        char rate[48] = "-";
        if (busy > 0 && c->bytes > 0)
            snprintf(rate, sizeof rate, "%s/s", amount_bytes((double)c->bytes / busy * 1e9).text);
        fprintf(p->to, "<tr><td>%s%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s<td>%s</tr>", ls_call_name(c->kind),
                c->bucket ? " (buckets)" : "", amount_count((double)c->count / steps).text,
                amount_bytes((double)c->bytes / steps).text, amount_ns(busy / steps).text, rate,
                amount_ns((double)c->exposed / steps).text, busy > 0 ? amount_share(hidden).text : "-",
                amount_ns((double)c->waited / steps).text);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}

/* Sums of a rank over the steps that count. */
typedef struct sums {
    double steps, wall, cpu, delay, stolen, switches, forced, minor, major, resident, batches, ready, batch_ns, read,
        data;
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
        if (r->cpu > 0) s.cpu += (double)r->cpu;
        for (int f = 0; f < LS_PHASES; f++) s.delay += (double)r->delay[f], s.stolen += (double)r->stolen[f];
        s.switches += (double)r->voluntary;
        s.forced += (double)r->involuntary;
        s.minor += (double)r->minor;
        s.major += (double)r->major;
        s.resident = fmax(s.resident, (double)r->resident);
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

static void put_ranks(const page *p)
{
    const ls_run *run = p->run;
    html_card(
        p, "devices", "", "Ranks and their machines",
        "Per step. <i>Without a core</i>: the thread that makes the steps could run, but another one had its core. "
        "<i>Stolen</i>: the machine itself had no core to give.");
    fputs("<div class=\"scroll\"><table><tr><th>rank<th class=\"l\">host<th class=\"l\">cores<th>busy cores<th>of "
          "SGEMM<th>without a "
          "core<th>stolen<th>switches<th>forced<th>page faults<th>from disk<th>memory<th>clock</tr>",
          p->to);
    for (int r = 0; r < run->ranks && r < MOST_ROWS; r++) {
        const ls_run_rank *k = &run->rank[r];
        if (!k->present) {
            fprintf(p->to, "<tr><td>%d<td class=\"l\" colspan=\"12\">its record is missing</tr>", r);
            continue;
        }
        sums s = sum_rank(p, r);
        double share = k->facts[LS_FACT_FLOPS] / (s.wall / s.steps) / k->facts[LS_FACT_PEAK];
        fprintf(p->to, "<tr><td>%d<td class=\"l\">", r);
        put_html(p->to, k->host);
        fputs("<td class=\"l\">", p->to);
        put_html(p->to, k->cores);
        bool starved = s.delay > 0.05 * s.wall, stolen = s.stolen > 0.05 * s.wall;
        fprintf(p->to, "<td>%.2f<td>%s<td%s>%s<td%s>%s<td>%s<td>%s<td>%s<td%s>%s<td>%s",
                s.wall > 0 ? s.cpu / s.wall : 0, isfinite(share) && share > 0 ? amount_share(share).text : "-",
                starved ? " class=\"warn\"" : "", amount_ns(s.delay / s.steps).text, stolen ? " class=\"warn\"" : "",
                amount_ns(s.stolen / s.steps).text, amount_count(s.switches / s.steps).text,
                amount_count(s.forced / s.steps).text, amount_count(s.minor / s.steps).text,
                s.major > s.steps ? " class=\"warn\"" : "", amount_count(s.major / s.steps).text,
                s.resident > 0 ? amount_bytes(s.resident).text : "-");
        if (k->clock_ahead || k->clock_uncertainty)
            fprintf(p->to, "<td>%+.3f ms \u00b1 %s</tr>", (double)k->clock_ahead / 1e6,
                    amount_ns((double)k->clock_uncertainty).text);
        else
            fputs("<td>shared</tr>", p->to);
    }
    fputs("</table></div>", p->to);
    if (run->ranks > MOST_ROWS) fprintf(p->to, "<p>The first %d of %d ranks.</p>", MOST_ROWS, run->ranks);
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

void html_compare(const page *p)
{
    if (!p->other) return;
    html_card(p, "compare", "", "Compared with", NULL);
    fputs("<p>", p->to);
    put_html(p->to, p->other->path);
    fprintf(p->to, ": %d rank%s, %zu steps. Means of a step over all ranks; green: the other run is faster there.</p>",
            p->other->ranks, p->other->ranks == 1 ? "" : "s", p->other->n_steps);
    fputs(
        "<div class=\"scroll\"><table><tr><th>phase<th>this run<th>the other<th class=\"w\">difference<th>change</tr>",
        p->to);
    compare_row(p, "<b>step</b>", ls_run_step_mean(p->run), ls_run_step_mean(p->other));
    for (int i = 0; i < LS_PHASES; i++) {
        double a = ls_run_mean(p->run, -1, html_phases[i]), b = ls_run_mean(p->other, -1, html_phases[i]);
        if (a > 0 || b > 0) compare_row(p, ls_phase_name(html_phases[i]), a, b);
    }
    fputs("</table></div>\n", p->to);
    html_card_end(p);
}
