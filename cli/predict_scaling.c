/* The chart of `lockstep predict --html` with the speed over the number of ranks, both logarithmic: a curve for each number of nodes, slots
 * or buckets that was asked for. */
#include <math.h>
#include <stdlib.h>
#include "base/text.h"
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/escape.h"
#include "cli/predict_table.h"

enum { MOST_TICKS = 64 };

/* Slots per second, or tokens where they are known. */
static double speed_of(const ls_prediction *p, double step)
{
    double tokens = isfinite(p->tokens_per_s) ? p->tokens_per_s * p->step : p->setup.slots * 1e9;
    return tokens / step;
}

/* The upper end of the band, which has none if the step may take no time at all. */
static double fastest_of(const ls_prediction *p)
{
    return speed_of(p, fmax(p->low, p->step / 10));
}

/* ---- Curves: rows in which only ranks differ, and nodes with them. Each has more ranks than the one before. */

static bool begins(const predict_table *t, size_t i)
{
    return !i || t->rows[i].p.setup.ranks <= t->rows[i - 1].p.setup.ranks;
}

static bool continues(const predict_table *t, size_t i)
{
    return !begins(t, i) && !t->rows[i - 1].refused && !t->rows[i].refused;
}

static size_t curve_points(const predict_table *t)
{
    size_t most = 0, n = 0;
    for (size_t i = 0; i < t->count; i++) {
        n = continues(t, i) ? n + 1 : 1;
        if (!t->rows[i].refused && n > most) most = n;
    }
    return most;
}

static int count_curves(const predict_table *t)
{
    int n = 0;
    for (size_t i = 0; i < t->count; i++) n += begins(t, i);
    return n;
}

/* Of curve k of n. Neighbours in the legend differ in dashes, too, for those who see colours alike. */
typedef struct curve_style {
    char colour[40];
    const char *dashes;
} curve_style;

static curve_style style_of(int k, int n)
{
    static const char *const dashes[] = { "none", "7 4", "2 3" };
    curve_style s = { .colour = "var(--ink)", .dashes = dashes[n > 1 ? k % 3 : 0] };
    if (n > 1) snprintf(s.colour, sizeof s.colour, "hsl(%d 65%% 50%%)", 210 + 360 * k / n);
    return s;
}

/* ---- Axes. */

static amount tick_label(double value)
{
    static const char *const units[] = { "", "k", "M", "G", "T" };
    amount a;
    int i = 0;
    for (; value >= (i ? 1e3 : 1e4) && i < 4; i++) value /= 1000;
    snprintf(a.text, sizeof a.text, "%.4g%s", value, units[i]);
    return a;
}

/* Round values from `low` to `high`: of less than a decade at equal distances, otherwise 1, 2 and 5, or powers of ten alone. */
static int list_ticks(double low, double high, double *out)
{
    static const double steps[] = { 1, 2, 5 };
    double decades = log10(high / low);
    int n = 0;
    if (decades < 1) {
        double step = nice_step(high - low, 5);
        for (double x = ceil(low / step - 1e-9) * step; x <= high * (1 + 1e-9) && n < MOST_TICKS; x += step)
            out[n++] = x;
        return n;
    }
    for (double ten = pow(10, floor(log10(low))); ten <= high && n + 3 < MOST_TICKS; ten *= 10)
        for (int i = 0; i < (decades < 3 ? 3 : 1); i++)
            if (steps[i] * ten >= low && steps[i] * ten <= high * (1 + 1e-9)) out[n++] = steps[i] * ten;
    return n;
}

static void draw_axis_y(const chart *c, const char *title)
{
    double ticks[MOST_TICKS];
    int n = list_ticks(pow(10, c->y0), pow(10, c->y1), ticks);
    fputs("<path class=\"grid\" d=\"", c->to);
    for (int i = 0; i < n; i++)
        fprintf(c->to, "M%.1f %.1fH%.1f", c->left, chart_y(c, log10(ticks[i])), c->width - c->right);
    fputs("\"/>", c->to);
    for (int i = 0; i < n; i++)
        chart_text(c, c->left - 6, chart_y(c, log10(ticks[i])) + 4, "end", "", tick_label(ticks[i]).text);
    chart_text(c, 0, c->top - 9, "start", "unit", title);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The numbers of ranks themselves; without a label where there is no room. */
static void draw_axis_x(const chart *c, const predict_table *t)
{
    double base = c->height - c->bottom, last = -1e9, *ranks = malloc((t->count + 1) * sizeof *ranks);
    size_t n = 0;
    for (size_t i = 0; i < t->count && ranks; i++)
        if (!t->rows[i].refused) ranks[n++] = t->rows[i].p.setup.ranks;
    if (n) qsort(ranks, n, sizeof *ranks, by_value);
    fprintf(c->to, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f", c->left, base, c->width - c->right);
    for (size_t i = 0; i < n; i++) fprintf(c->to, "M%.1f %.1fv4", chart_x(c, log10(ranks[i])), base);
    fputs("\"/>", c->to);
    for (size_t i = 0; i < n; i++) {
        double at = chart_x(c, log10(ranks[i]));
        if (at < last + 44) continue;
        chart_text(c, at, base + 17, "middle", "", tick_label(ranks[i]).text);
        last = at;
    }
    free(ranks);
    chart_text(c, c->left + (c->width - c->left - c->right) / 2, c->height - 4, "middle", "unit", "ranks");
}

/* ---- The card. */

static void draw_point(const chart *c, const ls_prediction *r, const curve_style *s)
{
    char tip[320];
    double x = chart_x(c, log10(r->setup.ranks)), y = chart_y(c, log10(speed_of(r, r->step)));
    fprintf(c->to, "<path class=\"curve\" style=\"stroke:%s\" d=\"M%.1f %.1fV%.1f\"/>", s->colour, x,
            chart_y(c, log10(speed_of(r, r->high))), chart_y(c, log10(fastest_of(r))));
    snprintf(tip, sizeof tip, "%s\n%s per second", predict_setup_text(&r->setup).text,
             amount_count(speed_of(r, r->step)).text);
    fprintf(c->to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\" style=\"fill:%s\" data-t=\"", x - 4, y - 4,
            s->colour);
    put_html(c->to, tip);
    fputs("\"/>", c->to);
}

static void draw_curves(const chart *c, const predict_table *t)
{
    int n = count_curves(t), k = -1;
    for (size_t i = 0; i < t->count; i++) {
        const ls_prediction *r = &t->rows[i].p, *before = i ? &t->rows[i - 1].p : NULL;
        k += begins(t, i);
        if (t->rows[i].refused) continue;
        curve_style s = style_of(k, n);
        if (continues(t, i))
            fprintf(c->to, "<path class=\"curve\" style=\"stroke:%s;stroke-dasharray:%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>",
                    s.colour, s.dashes, chart_x(c, log10(before->setup.ranks)),
                    chart_y(c, log10(speed_of(before, before->step))), chart_x(c, log10(r->setup.ranks)),
                    chart_y(c, log10(speed_of(r, r->step))));
        draw_point(c, r, &s);
    }
}

static void draw_scaling(const page *p, double width)
{
    const predict_table *t = ((const predict_page *)p)->table;
    chart c = { .to = p->to,
                .width = width,
                .height = 320,
                .left = 60,
                .right = 16,
                .top = 26,
                .bottom = 42,
                .x0 = INFINITY,
                .x1 = -INFINITY,
                .y0 = INFINITY,
                .y1 = -INFINITY };
    for (size_t i = 0; i < t->count; i++) {
        const ls_prediction *r = &t->rows[i].p;
        if (t->rows[i].refused) continue;
        double slowest = log10(speed_of(r, r->high)), fastest = log10(fastest_of(r));
        c.x0 = fmin(c.x0, log10(r->setup.ranks) - 0.03);
        c.x1 = fmax(c.x1, log10(r->setup.ranks) + 0.03);
        c.y0 = fmin(c.y0, slowest - 0.03);
        c.y1 = fmax(c.y1, fastest + 0.03);
    }
    chart_open(&c, "Predicted speed over the number of ranks, with the band");
    draw_axis_x(&c, t);
    draw_axis_y(&c, isfinite(t->rows[0].p.tokens_per_s) ? "tokens/s" : "micro-batches/s");
    draw_curves(&c, t);
    chart_close(&c);
}

/* What the rows of a curve have in common. */
static void put_curve_name(FILE *to, const predict_table *t, const ls_setup *s)
{
    const char *between = "";
    if (t->nodes) fprintf(to, "%d node%s", s->nodes, ls__s(s->nodes)), between = ", ";
    if (t->slots) fprintf(to, "%s%d slots", between, s->slots), between = ", ";
    if (t->buckets) fprintf(to, "%sbuckets of %s", between, amount_bytes((double)s->bucket_bytes).text);
}

static void put_curve_legend(FILE *to, const predict_table *t)
{
    int n = count_curves(t), k = 0;
    if (n < 2) return;
    fputs("<div class=\"legend\">", to);
    for (size_t i = 0; i < t->count; i++) {
        if (!begins(t, i)) continue;
        curve_style s = style_of(k++, n);
        fprintf(to,
                "<span><svg width=\"34\" height=\"12\" style=\"margin-right:6px\"><path class=\"curve\" "
                "style=\"stroke:%s;stroke-dasharray:%s\" d=\"M0 6H34\"/><rect x=\"13\" y=\"2\" width=\"8\" "
                "height=\"8\" style=\"fill:%s\"/></svg>",
                s.colour, s.dashes, s.colour);
        put_curve_name(to, t, &t->rows[i].p.setup);
        fputs("</span>", to);
    }
    fputs("</div>\n", to);
}

void predict_put_scaling(const predict_page *out)
{
    if (curve_points(out->table) < 3) return;
    html_card(&out->p, "scaling", "", "Scaling",
              "Speed over the number of ranks, with the band of each; both axes are logarithmic.");
    put_curve_legend(out->p.to, out->table);
    html_chart(&out->p, false, draw_scaling);
    html_card_end(&out->p);
}
