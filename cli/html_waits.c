/* Who waited for whom, as bars or, of more ranks, a matrix; and why. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/findings_text.h"
#include "cli/report.h"

enum { MOST_CELLS = 16, MOST_BARS = 3, CAUSES = 8 };
static const double TRIFLE = 0.001; /* of a step: a cause below it is not shown */

/* Ranks that share a row: one, or as many as keep rows readable. */
static int block_of(const ls_run *run)
{
    return (run->ranks + MOST_CELLS - 1) / MOST_CELLS;
}

/* Mean ns of a step that ranks of block `a` waited for ranks of block `b`, each of them. */
static double cell(const page *p, int a, int b)
{
    const ls_run *run = p->run;
    int each = block_of(run), waiters = 0;
    size_t n;
    double sum = 0;
    counted(p, &n);
    for (int r = a * each; r < (a + 1) * each && r < run->ranks; r++, waiters++) {
        if (!run->rank[r].present) continue;
        for (int q = b * each; q < (b + 1) * each && q < run->ranks; q++)
            sum += (double)run->wait_matrix[(size_t)r * (size_t)run->ranks + (size_t)q];
    }
    return n && waiters ? sum / (double)n / waiters : 0;
}

static void block_name(const ls_run *run, int block, char text[32])
{
    int each = block_of(run), last = (block + 1) * each - 1;
    if (last >= run->ranks) last = run->ranks - 1;
    if (each == 1)
        snprintf(text, 32, "%d", block);
    else
        snprintf(text, 32, "%d\u2013%d", block * each, last);
}

static void draw_cell(const page *p, const chart *c, int a, int b, double size, double most)
{
    double ns = cell(p, a, b), x = c->left + size * b, y = c->top + size * a, share = most > 0 ? ns / most : 0;
    char tip[160], from[32], to[32];
    block_name(p->run, a, from);
    block_name(p->run, b, to);
    snprintf(tip, sizeof tip, "rank %s waited for rank %s\n%s per step", from, to, amount_ns(ns).text);
    if (share > 0) fprintf(c->to, "<g fill-opacity=\"%.3f\">", 0.06 + 0.64 * share);
    if (share > 0) chart_rect(c, x, y, size, size, "heat", NULL);
    if (share > 0) fputs("</g>", c->to);
    chart_rect(c, x, y, size, size, "cell", NULL);
    if (ns > 0 && size >= 42) {
        amount text = amount_ns(ns);
        char *unit = strchr(text.text, ' ');
        if (unit) *unit++ = 0;
        chart_text(c, x + size / 2, y + size / 2 + (unit ? -1 : 4), "middle", "ink", text.text);
        if (unit) chart_text(c, x + size / 2, y + size / 2 + 12, "middle", "ink", unit);
    }
    chart_rect(c, x, y, size, size, "hit", tip);
}

static void draw_matrix(const page *p, double width)
{
    int n = (p->run->ranks + block_of(p->run) - 1) / block_of(p->run);
    double most = 0, size = fmin(64, (width - 74) / n);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) most = fmax(most, cell(p, a, b));
    chart c = { .to = p->to, .width = width, .left = 64, .right = 10, .top = 44, .bottom = 8 };
    c.height = c.top + size * n + c.bottom;
    chart_open(&c, "Which rank waited for which, mean of a step");
    chart_text(&c, c.left, 14, "start", "unit", "\u2026 for the rank that arrived last");
    chart_text(&c, 0, c.top - 6, "start", "unit", "rank waits");
    for (int i = 0; i < n; i++) {
        char text[32];
        block_name(p->run, i, text);
        if (size >= 26 || i % 2 == 0) {
            chart_text(&c, c.left + size * (i + 0.5), c.top - 6, "middle", "ink", text);
            chart_text(&c, c.left - 8, c.top + size * (i + 0.5) + 4, "end", "ink", text);
        }
    }
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) draw_cell(p, &c, a, b, size, most);
    chart_close(&c);
}

/* A few ranks: a bar for each pair. */
static void draw_pairs(const page *p, double width)
{
    enum { ROW = 34 };
    int n = p->run->ranks, present = 0;
    double most = 0;
    for (int a = 0; a < n; a++) present += p->run->rank[a].present;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) most = fmax(most, cell(p, a, b));
    chart c = { .to = p->to, .width = width, .left = 118, .right = 66, .top = 4, .x1 = most };
    c.height = c.top + ROW * present * (present - 1);
    chart_open(&c, "How long each rank waited for each other, mean of a step");
    double y = c.top;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            char text[120];
            double ns = cell(p, a, b), end = chart_x(&c, ns);
            if (a == b || !p->run->rank[a].present || !p->run->rank[b].present) continue;
            snprintf(text, sizeof text, "rank %d for rank %d", a, b);
            chart_text(&c, c.left - 8, y + 16, "end", "ink", text);
            chart_rect(&c, c.left, y, fmax(1, end - c.left), 24, "waiting", text);
            chart_text(&c, end + 6, y + 16, "start", "ink b", amount_ns(ns).text);
            y += ROW;
        }
    chart_close(&c);
}

/* ---- Why */

static void put_cause(const page *p, const ls_wait_cause *c, double steps)
{
    bool no_phase = c->unscheduled && c->phase == LS_PHASE_OTHER;
    fprintf(p->to, "<tr><td>rank %d<td class=\"l\"><span class=\"legend\"><span>", c->rank);
    if (!no_phase)
        fprintf(p->to, "<i class=\"%s\">%c</i>%s%s", ls_phase_name(c->phase), report_letter(c->phase),
                ls_phase_name(c->phase), c->unscheduled ? ", unscheduled" : "");
    else
        fputs("<i class=\"hatch\"></i>unscheduled", p->to);
    fprintf(p->to, "</span></span><td class=\"w\">%lld<td>%s<td class=\"w\">%s</tr>", (long long)c->count,
            amount_ns((double)c->cost / steps).text, amount_ns((double)c->longest).text);
}

static void put_causes(const page *p)
{
    const ls_run *run = p->run;
    size_t steps, n = run->n_wait_causes;
    counted(p, &steps);
    while (n && (double)run->wait_causes[n - 1].cost < TRIFLE * run->step_mean * (double)steps) n--;
    html_card(p, "causes", "half", "Why they waited",
              "A delay belongs to the rank that arrived last, and to the phase in which it lost the time since the "
              "previous collective.");
    if (!n) {
        fputs("<p>No rank waited long enough for a cause to be found.</p>", p->to);
    } else {
        fputs("<div class=\"scroll\"><table><tr><th>straggler<th class=\"l\">lost time in<th class=\"w\">times<th>cost "
              "per "
              "step<th class=\"w\">worst</tr>",
              p->to);
        for (size_t i = 0; i < n && i < CAUSES; i++) put_cause(p, &run->wait_causes[i], (double)steps);
        fputs("</table></div>", p->to);
    }
    html_card_end(p);
}

void html_waits(const page *p)
{
    if (report_recorded(p->run) < 2 || !p->run->wait_matrix || !findings_waits_known(p->run)) return;
    fputs("<div class=\"two\">", p->to);
    html_card(p, "waits", "", "Who waited for whom",
              p->run->ranks > MOST_CELLS ? "Mean of a step and of a rank, neighbouring ranks combined."
                                         : "Mean of a step.");
    html_chart(p, true, p->run->ranks > MOST_BARS ? draw_matrix : draw_pairs);
    html_card_end(p);
    put_causes(p);
    fputs("</div>\n", p->to);
}
