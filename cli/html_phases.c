/* Where the time of a step is spent: a bar per rank, and all of it over time. Hatched in both: unscheduled. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/report.h"

/* ---- A bar per rank */

enum { BAR = 24, ROW = 40 };

typedef struct bar {
    int rank;
    double wait;
} bar;

static int by_wait(const void *a, const void *b)
{
    double x = ((const bar *)a)->wait, y = ((const bar *)b)->wait;
    return (x > y) - (x < y);
}

static int by_rank(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int html_ranks_shown(const ls_run *run, int ranks[HTML_RANKS])
{
    bar *all = calloc((size_t)run->ranks + 1, sizeof *all);
    int n = 0, shown;
    for (int r = 0; all && r < run->ranks; r++)
        if (run->rank[r].present) all[n++] = (bar){ r, ls_run_mean(run, r, LS_PHASE_WAIT) };
    if (n > HTML_RANKS) qsort(all, (size_t)n, sizeof *all, by_wait);
    shown = n < HTML_RANKS ? n : HTML_RANKS;
    for (int i = 0; i < shown; i++) ranks[i] = all[i < shown / 2 ? i : n - shown + i].rank;
    qsort(ranks, (size_t)shown, sizeof *ranks, by_rank);
    free(all);
    return shown;
}

static double total(const ls_run *run, int rank)
{
    double sum = 0;
    for (int i = 0; i < LS_PHASE_COUNT; i++) sum += ls_run_mean(run, rank, (ls_phase)i);
    return sum;
}

static void draw_phase_of_bar(const page *p, const chart *c, int rank, ls_phase phase, double *at, double y,
                              double ns_unit)
{
    double ns = ls_run_mean(p->run, rank, phase), lost = fmin(ns, ls_run_unscheduled(p->run, rank, phase)),
           sum = total(p->run, rank), x = chart_x(c, *at / ns_unit), end = chart_x(c, (*at + ns) / ns_unit);
    const char *name = ls_phase_name(phase);
    char tip[240], both[64], letter[2] = { report_letter(phase), 0 };
    int n = snprintf(tip, sizeof tip, "rank %d: %s\n%s per step, %s", rank, name, amount_ns(ns).text,
                     amount_share(sum > 0 ? ns / sum : 0).text);
    if (lost >= 0.001 * sum) snprintf(tip + n, sizeof tip - (size_t)n, "\nof it unscheduled: %s", amount_ns(lost).text);
    *at += ns;
    if (!report_has_phase(p->run, phase)) return;
    chart_rect(c, x, y, end - x, BAR, name, tip);
    if (ns > 0) chart_hatch(c, end - (end - x) * lost / ns, y, (end - x) * lost / ns, BAR);
    snprintf(both, sizeof both, "%s %s", name, amount_ns(ns).text);
    chart_label(c, x, y, end - x, BAR, name, (const char *const[]){ both, name, letter, NULL });
}

static void draw_bar(const page *p, const chart *c, int rank, double y, double ns_unit)
{
    double at = 0, hidden = ls_run_overlapped(p->run, rank);
    char text[200];
    snprintf(text, sizeof text, "rank %d", rank);
    chart_text(c, c->left - 8, y + 16, "end", "ink", text);
    for (int i = 0; i < LS_PHASE_COUNT; i++) draw_phase_of_bar(p, c, rank, report_phase(i), &at, y, ns_unit);
    chart_text(c, chart_x(c, at / ns_unit) + 6, y + 16, "start", "ink b", amount_ns(at).text);
    if (p->run->ranks < 2) return;
    snprintf(text, sizeof text, "rank %d: communication overlapped with computing\n%s per step", rank,
             amount_ns(hidden).text);
    chart_rect(c, c->left, y + BAR + 2, chart_x(c, hidden / ns_unit) - c->left, 5, "communication", text);
}

static void draw_breakdown(const page *p, double width)
{
    int ranks[HTML_RANKS], n = html_ranks_shown(p->run, ranks);
    double most = 0;
    char title[40];
    for (int i = 0; i < n; i++) most = fmax(most, total(p->run, ranks[i]));
    time_unit unit = time_unit_of(most);
    chart c = { .to = p->to,
                .width = width,
                .height = 40 + (double)ROW * n,
                .left = 54,
                .right = 64,
                .top = 4,
                .bottom = 40,
                .x1 = most / unit.ns };
    chart_open(&c, "Mean time of a step by phase, for each rank");
    for (int i = 0; i < n; i++) draw_bar(p, &c, ranks[i], 4 + (double)ROW * i, unit.ns);
    snprintf(title, sizeof title, "time of a step (%s), mean", unit.name);
    chart_axis_x(&c, title, tick_plain);
    chart_close(&c);
}

static void put_numbers(const page *p)
{
    const ls_run *run = p->run;
    int ranks[HTML_RANKS], n = html_ranks_shown(run, ranks);
    fputs("<details><summary>the numbers</summary><div class=\"scroll\"><table><tr><th>rank", p->to);
    for (int i = 0; i < LS_PHASE_COUNT; i++)
        if (report_has_phase(run, report_phase(i))) fprintf(p->to, "<th>%s", ls_phase_name(report_phase(i)));
    if (run->ranks > 1) fputs("<th>overlapped", p->to);
    for (int k = 0; k < n; k++) {
        fprintf(p->to, "<tr><td>%d", ranks[k]);
        for (int i = 0; i < LS_PHASE_COUNT; i++)
            if (report_has_phase(run, report_phase(i)))
                fprintf(p->to, "<td>%s", amount_ns(ls_run_mean(run, ranks[k], report_phase(i))).text);
        if (run->ranks > 1) fprintf(p->to, "<td>%s", amount_ns(ls_run_overlapped(run, ranks[k])).text);
    }
    fputs("</table></div></details>", p->to);
}

void html_breakdown(const page *p)
{
    const char *more[5] = { NULL };
    int n = 0;
    if (html_has_unscheduled(p->run)) more[n++] = "hatch", more[n++] = html_unscheduled_words;
    if (p->run->ranks > 1) more[n++] = "communication thin", more[n++] = "communication overlapped with computing";
    html_card(p, "ranks", "",
              p->run->ranks > 1 ? "Where the time of a step is spent, rank by rank"
                                : "Where the time of a step is spent",
              report_recorded(p->run) > HTML_RANKS
                  ? "Mean of the counted steps. Shown are the eight ranks that waited least, which "
                    "the others wait for, and the eight that waited most."
              : p->run->ranks > 1 ? "Mean of the counted steps. A rank that waits little while others wait much is "
                                    "the one they wait for."
                                  : "Mean of the counted steps.");
    html_legend(p, NULL, more);
    html_chart(p, false, draw_breakdown);
    put_numbers(p);
    html_card_end(p);
}

/* ---- Over time */

typedef struct bins {
    size_t count;
    double *ns, *lost; /* [count * LS_PHASE_COUNT]: means of a step over steps and ranks; of that, unscheduled */
    int64_t *first, *last;
} bins;

static bool make_bins(const page *p, double width, bins *b)
{
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    b->count = n < (size_t)(width / 4) ? n : (size_t)(width / 4);
    b->ns = calloc(b->count * LS_PHASE_COUNT + 1, sizeof *b->ns);
    b->lost = calloc(b->count * LS_PHASE_COUNT + 1, sizeof *b->lost);
    b->first = calloc(b->count + 1, sizeof *b->first);
    b->last = calloc(b->count + 1, sizeof *b->last);
    if (!b->ns || !b->lost || !b->first || !b->last) return false;
    for (size_t k = 0; k < b->count; k++) {
        size_t from = n * k / b->count, to = n * (k + 1) / b->count, seen = 0;
        double *ns = b->ns + k * LS_PHASE_COUNT, *lost = b->lost + k * LS_PHASE_COUNT;
        b->first[k] = steps[from].number;
        b->last[k] = steps[to - 1].number;
        for (size_t i = from; i < to; i++)
            for (int r = 0; r < p->run->ranks; r++) {
                const ls_step_rank *s = &steps[i].rank[r];
                if (!s->present) continue;
                seen++;
                for (int f = 0; f < LS_PHASE_COUNT; f++) ns[f] += (double)s->ns[f];
                for (int f = 0; f < LS_PHASE_COUNT; f++) lost[f] += (double)s->sched_delay[f] + (double)s->steal[f];
            }
        for (int f = 0; f < LS_PHASE_COUNT && seen; f++) {
            ns[f] /= (double)seen;
            lost[f] = fmin(ns[f], lost[f] / (double)seen);
        }
    }
    return true;
}

static void free_bins(bins *b)
{
    free(b->ns);
    free(b->lost);
    free(b->first);
    free(b->last);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The height of the axis: the highest bin, unless a few are outliers; those are cut and marked. */
static double axis_height(const bins *b)
{
    double *sums = calloc(b->count + 1, sizeof *sums);
    if (!sums || !b->count) {
        free(sums);
        return 1;
    }
    for (size_t k = 0; k < b->count; k++)
        for (int f = 0; f < LS_PHASE_COUNT; f++) sums[k] += b->ns[k * LS_PHASE_COUNT + (size_t)f];
    qsort(sums, b->count, sizeof *sums, by_value);
    double typical = sums[(b->count - 1) * 95 / 100], most = sums[b->count - 1];
    free(sums);
    return most > 3 * typical ? 1.6 * typical : most;
}

static bool is_cut(const page *p, double width)
{
    bins b = { 0 };
    bool cut = false;
    if (make_bins(p, width, &b))
        for (size_t k = 0; k < b.count; k++) {
            double sum = 0;
            for (int f = 0; f < LS_PHASE_COUNT; f++) sum += b.ns[k * LS_PHASE_COUNT + (size_t)f];
            cut = cut || sum > axis_height(&b);
        }
    free_bins(&b);
    return cut;
}

/* A band from low[k] to high[k] in each bin. */
static void draw_band(const chart *c, size_t count, const double *low, const double *high, double unit,
                      const char *class_name)
{
    double step = (c->width - c->left - c->right) / (double)count;
    fprintf(c->to, "<path class=\"%s\" d=\"M%.1f %.1f", class_name, c->left, chart_y(c, fmin(c->y1, low[0] / unit)));
    for (size_t k = 0; k < count; k++)
        fprintf(c->to, "V%.1fH%.1f", chart_y(c, fmin(c->y1, high[k] / unit)), c->left + step * (double)(k + 1));
    for (size_t k = count; k-- > 0;)
        fprintf(c->to, "V%.1fH%.1f", chart_y(c, fmin(c->y1, low[k] / unit)), c->left + step * (double)k);
    fputs("Z\"/>", c->to);
}

/* A phase on top of those below it; its hatched part is the upper one. `room` holds two arrays. */
static void draw_phase(const chart *c, const bins *b, double *base, double *room, double unit, ls_phase phase)
{
    double *top = room, *solid = room + b->count;
    for (size_t k = 0; k < b->count; k++) {
        top[k] = base[k] + b->ns[k * LS_PHASE_COUNT + (size_t)phase];
        solid[k] = top[k] - b->lost[k * LS_PHASE_COUNT + (size_t)phase];
    }
    draw_band(c, b->count, base, top, unit, ls_phase_name(phase));
    for (size_t k = 0; k < b->count; k++)
        if (top[k] - solid[k] > 0.002 * c->y1 * unit) {
            draw_band(c, b->count, solid, top, unit, "hatch");
            break;
        }
    for (size_t k = 0; k < b->count; k++) base[k] = top[k];
}

static void draw_hits(const page *p, const chart *c, const bins *b, const double *sums, double unit)
{
    double step = (c->width - c->left - c->right) / (double)b->count;
    for (size_t k = 0; k < b->count; k++) {
        char tip[700];
        double lost = 0;
        int n = b->first[k] == b->last[k]
                    ? snprintf(tip, sizeof tip, "step %lld: %s", (long long)b->first[k], amount_ns(sums[k]).text)
                    : snprintf(tip, sizeof tip, "steps %lld to %lld: %s", (long long)b->first[k], (long long)b->last[k],
                               amount_ns(sums[k]).text);
        for (int i = 0; i < LS_PHASE_COUNT; i++) {
            double ns = b->ns[k * LS_PHASE_COUNT + (size_t)report_phase(i)];
            lost += b->lost[k * LS_PHASE_COUNT + (size_t)report_phase(i)];
            if (ns > 0 && report_has_phase(p->run, report_phase(i)) && n < (int)sizeof tip - 128)
                n += snprintf(tip + n, sizeof tip - (size_t)n, "\n%s %s", ls_phase_name(report_phase(i)),
                              amount_ns(ns).text);
        }
        if (lost >= 0.001 * sums[k])
            snprintf(tip + n, sizeof tip - (size_t)n, "\nunscheduled: %s", amount_ns(lost).text);
        chart_rect(c, c->left + step * (double)k, c->top, step, c->height - c->top - c->bottom, "hit", tip);
        if (sums[k] / unit > c->y1 * 1.0001)
            fprintf(c->to, "<path class=\"ink cut\" d=\"M%.1f %.1fl4 7h-8z\"/>", c->left + step * ((double)k + 0.5),
                    c->top - 9);
    }
}

static void draw_over_time(const page *p, double width)
{
    enum { WIDEST = 120 }; /* a bar, where there are few */
    bins b = { 0 };
    double *base = NULL;
    char title[24];
    if (!make_bins(p, width, &b) || !b.count || !(base = calloc(3 * b.count, sizeof *base))) goto done;
    time_unit unit = time_unit_of(axis_height(&b));
    chart c = {
        .to = p->to, .width = width, .height = width < 400 ? 230 : 280, .left = 44, .right = 10, .top = 24, .bottom = 40
    };
    c.right = fmax(c.right, width - c.left - WIDEST * (double)b.count);
    c.y1 = axis_height(&b) / unit.ns;
    c.x0 = (double)b.first[0] - 0.5;
    c.x1 = (double)b.last[b.count - 1] + 0.5;
    c.whole_x = true;
    chart_open(&c, "Time of a step by phase, over the run");
    snprintf(title, sizeof title, "%s per step", unit.name);
    if (is_cut(p, width)) c.top = 38; /* the marks are between the title and the bars */
    chart_axis_y(&c, "", tick_plain);
    chart_text(&c, 0, 13, "start", "unit", title);
    for (int i = 0; i < LS_PHASE_COUNT; i++)
        if (report_has_phase(p->run, report_phase(i)))
            draw_phase(&c, &b, base, base + b.count, unit.ns, report_phase(i));
    draw_hits(p, &c, &b, base, unit.ns);
    chart_axis_x(&c, "step", tick_plain);
    chart_close(&c);
done:
    free(base);
    free_bins(&b);
}

void html_over_time(const page *p)
{
    static const char *const hatched[] = { "hatch", html_unscheduled_words, NULL };
    size_t n;
    counted(p, &n);
    if (n < HTML_POINTS) return;
    html_card(p, "time", "", "Phases over time",
              is_cut(p, 330)      ? "Mean of the ranks. Outliers are cut and marked with \u25b4."
              : p->run->ranks > 1 ? "Mean of the ranks."
                                  : NULL);
    html_legend(p, NULL, html_has_unscheduled(p->run) ? hatched : NULL);
    html_chart(p, false, draw_over_time);
    html_card_end(p);
}
