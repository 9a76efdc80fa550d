/* Where a step's time goes: a bar per rank, and all of it over time. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"

/* ---- A bar per rank */

enum { BARS = 16 };

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
    return ((const bar *)a)->rank - ((const bar *)b)->rank;
}

/* The ranks to show: all, or those that waited least and those that waited most. Returns how many; the caller frees *out. */
static int choose(const ls_run *run, bar **out)
{
    bar *all = calloc((size_t)run->ranks + 1, sizeof *all);
    int n = 0;
    *out = all;
    for (int r = 0; all && r < run->ranks; r++)
        if (run->rank[r].present) all[n++] = (bar){ r, ls_run_mean(run, r, LS_PHASE_WAIT) };
    if (n <= BARS) return n;
    qsort(all, (size_t)n, sizeof *all, by_wait);
    for (int i = 0; i < BARS / 2; i++) all[BARS / 2 + i] = all[n - BARS / 2 + i];
    qsort(all, BARS, sizeof *all, by_rank);
    return BARS;
}

static double total(const ls_run *run, int rank)
{
    double sum = 0;
    for (int i = 0; i < LS_PHASES; i++) sum += ls_run_mean(run, rank, (ls_phase)i);
    return sum;
}

static void draw_bar(const page *p, const chart *c, int rank, double y)
{
    const ls_run *run = p->run;
    double at = 0, sum = total(run, rank), hidden = ls_run_overlapped(run, rank);
    char text[200];
    snprintf(text, sizeof text, "rank %d", rank);
    chart_text(c, c->left - 8, y + 16, "end", "ink", text);
    for (int i = 0; i < LS_PHASES; i++) {
        double ns = ls_run_mean(run, rank, html_phases[i]), x = chart_x(c, at / 1e6),
               w = chart_x(c, (at + ns) / 1e6) - x;
        const char *name = ls_phase_name(html_phases[i]);
        snprintf(text, sizeof text, "rank %d: %s\n%s a step, %s", rank, name, amount_ns(ns).text,
                 amount_share(sum > 0 ? ns / sum : 0).text);
        chart_rect(c, x, y, w, 24, name, text);
        if (w > 60) {
            fputs("<g pointer-events=\"none\">", c->to);
            chart_text(c, x + w / 2, y + 16, "middle", "on", amount_ns(ns).text);
            fputs("</g>", c->to);
        }
        at += ns;
    }
    snprintf(text, sizeof text, "rank %d: communication hidden behind computing\n%s a step", rank,
             amount_ns(hidden).text);
    chart_rect(c, c->left, y + 26, chart_x(c, hidden / 1e6) - c->left, 5, "overlap", text);
}

static void draw_breakdown(const page *p, double width)
{
    bar *bars;
    int n = choose(p->run, &bars);
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, total(p->run, bars[i].rank));
    chart c = { .to = p->to, .width = width, .height = 40 + 40.0 * n, .left = 54, .right = 10, .top = 4, .bottom = 40 };
    c.x1 = most / 1e6;
    chart_open(&c, "Mean time of a step by phase, for each rank");
    for (int i = 0; i < n; i++) draw_bar(p, &c, bars[i].rank, 4 + 40.0 * i);
    chart_axis_x(&c, "milliseconds of a step (mean)", tick_plain);
    chart_close(&c);
    free(bars);
}

void html_breakdown(const page *p)
{
    static const char *const more[] = { "overlap", "communication hidden behind computing", NULL, NULL };
    html_card(
        p, "ranks", "", "Where a step goes, rank by rank",
        p->run->ranks > BARS
            ? "Mean over the steps that count. Shown are the eight ranks that waited least, which the others wait "
              "for, and the eight that waited most."
            : "Mean over the steps that count. A rank that waits little while others wait much is the one they wait "
              "for.");
    html_legend(p, more);
    html_chart(p, false, draw_breakdown);
    html_card_end(p);
}

/* ---- Over time */

typedef struct bins {
    size_t count;
    double *ns; /* [count * LS_PHASES]: means of a step over steps and ranks */
    int64_t *first, *last;
} bins;

static bool make_bins(const page *p, double width, bins *b)
{
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    b->count = n < (size_t)(width / 4) ? n : (size_t)(width / 4);
    b->ns = calloc(b->count * LS_PHASES + 1, sizeof *b->ns);
    b->first = calloc(b->count + 1, sizeof *b->first);
    b->last = calloc(b->count + 1, sizeof *b->last);
    if (!b->ns || !b->first || !b->last) return false;
    for (size_t k = 0; k < b->count; k++) {
        size_t from = n * k / b->count, to = n * (k + 1) / b->count, seen = 0;
        b->first[k] = steps[from].number;
        b->last[k] = steps[to - 1].number;
        for (size_t i = from; i < to; i++)
            for (int r = 0; r < p->run->ranks; r++) {
                if (!steps[i].rank[r].present) continue;
                seen++;
                for (int f = 0; f < LS_PHASES; f++) b->ns[k * LS_PHASES + (size_t)f] += (double)steps[i].rank[r].ns[f];
            }
        for (int f = 0; f < LS_PHASES && seen; f++) b->ns[k * LS_PHASES + (size_t)f] /= (double)seen;
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The height of the axis: the highest bin, unless a few stand far out; those are cut and marked. */
static double settle_height(const bins *b)
{
    double *sums = calloc(b->count + 1, sizeof *sums);
    if (!sums || !b->count) {
        free(sums);
        return 1;
    }
    for (size_t k = 0; k < b->count; k++)
        for (int f = 0; f < LS_PHASES; f++) sums[k] += b->ns[k * LS_PHASES + (size_t)f];
    qsort(sums, b->count, sizeof *sums, by_value);
    double typical = sums[(b->count - 1) * 95 / 100], most = sums[b->count - 1];
    free(sums);
    return most > 3 * typical ? 1.6 * typical : most;
}

static void draw_phase(const chart *c, const bins *b, double *base, ls_phase phase)
{
    double step = (c->width - c->left - c->right) / (double)b->count;
    fprintf(c->to, "<path class=\"%s\" d=\"M%.1f %.1f", ls_phase_name(phase), c->left, chart_y(c, base[0] / 1e6));
    for (size_t k = 0; k < b->count; k++)
        fprintf(c->to, "V%.1fH%.1f", chart_y(c, fmin(c->y1, (base[k] + b->ns[k * LS_PHASES + (size_t)phase]) / 1e6)),
                c->left + step * (double)(k + 1));
    for (size_t k = b->count; k-- > 0;)
        fprintf(c->to, "V%.1fH%.1f", chart_y(c, fmin(c->y1, base[k] / 1e6)), c->left + step * (double)k);
    fputs("Z\"/>", c->to);
    for (size_t k = 0; k < b->count; k++) base[k] += b->ns[k * LS_PHASES + (size_t)phase];
}

static void draw_hits(const chart *c, const bins *b, const double *sums)
{
    double step = (c->width - c->left - c->right) / (double)b->count;
    for (size_t k = 0; k < b->count; k++) {
        char tip[600];
        int n = b->first[k] == b->last[k]
                    ? snprintf(tip, sizeof tip, "step %lld: %s", (long long)b->first[k], amount_ns(sums[k]).text)
                    : snprintf(tip, sizeof tip, "steps %lld to %lld: %s", (long long)b->first[k], (long long)b->last[k],
                               amount_ns(sums[k]).text);
        for (int i = 0; i < LS_PHASES; i++) {
            double ns = b->ns[k * LS_PHASES + (size_t)html_phases[i]];
            if (ns > 0 && n < (int)sizeof tip - 64)
                n += snprintf(tip + n, sizeof tip - (size_t)n, "\n%s %s", ls_phase_name(html_phases[i]),
                              amount_ns(ns).text);
        }
        chart_rect(c, c->left + step * (double)k, c->top, step, c->height - c->top - c->bottom, "hit", tip);
        if (sums[k] / 1e6 > c->y1 * 1.0001)
            chart_text(c, c->left + step * ((double)k + 0.5), c->top - 1, "middle", "ink", "\u25b4");
    }
}

static void draw_over_time(const page *p, double width)
{
    bins b = { 0 };
    double *base = NULL;
    if (!make_bins(p, width, &b) || !b.count || !(base = calloc(b.count, sizeof *base))) goto done;
    chart c = {
        .to = p->to, .width = width, .height = width < 400 ? 230 : 280, .left = 44, .right = 10, .top = 24, .bottom = 40
    };
    c.y1 = settle_height(&b) / 1e6;
    c.x0 = (double)b.first[0];
    c.x1 = (double)b.last[b.count - 1] + 1;
    chart_open(&c, "Time of a step by phase, over the run");
    chart_axis_y(&c, "ms a step", tick_plain);
    for (int i = 0; i < LS_PHASES; i++)
        if (html_has_phase(p->run, html_phases[i])) draw_phase(&c, &b, base, html_phases[i]);
    draw_hits(&c, &b, base);
    chart_axis_x(&c, "step", tick_plain);
    chart_close(&c);
done:
    free(base);
    free(b.ns);
    free(b.first);
    free(b.last);
}

void html_over_time(const page *p)
{
    html_card(p, "time", "", "Phases over time",
              "Mean over the ranks. Steps that stand far out are cut and marked with \u25b4.");
    html_legend(p, NULL);
    html_chart(p, false, draw_over_time);
    html_card_end(p);
}
