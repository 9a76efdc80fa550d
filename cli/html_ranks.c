/* Cores and memory of each rank over the run: a small chart for each rank, all on one scale, so that ranks need no colours. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/report.h"

/* False: not known of that step. */
typedef bool (*value_fn)(const ls_step_rank *s, double *out);

typedef struct subject {
    const char *label, *unit, *words;
    value_fn value;
    value_fn lost; /* hatched on top of it; NULL: nothing is */
    amount (*text)(double);
} subject;

static bool memory_of(const ls_step_rank *s, double *out)
{
    *out = (double)s->resident / (1 << 20);
    return s->resident > 0;
}

static bool cores_of(const ls_step_rank *s, double *out)
{
    *out = s->end > s->begin ? (double)s->cpu / (double)(s->end - s->begin) : 0;
    return s->cpu >= 0;
}

static bool unscheduled_of(const ls_step_rank *s, double *out)
{
    double sum = 0;
    for (int f = 0; f < LS_PHASE_COUNT; f++) sum += (double)s->sched_delay[f] + (double)s->steal[f];
    *out = s->end > s->begin ? sum / (double)(s->end - s->begin) : 0;
    return s->cpu >= 0;
}

static amount mebibytes(double x)
{
    return amount_bytes(x * (1 << 20));
}

static const subject memory = { "Resident memory of each rank", "MiB", "resident", memory_of, NULL, mebibytes };
static const subject cores = {
    "Cores that each rank kept busy", "cores", "cores busy", cores_of, unscheduled_of, amount_count
};

/* ---- One rank */

/* The means of bins of steps; only of those that are known. */
typedef struct series {
    int rank;
    size_t count;
    double *x, *y, *lost;
    double mean;
} series;

static bool make_series(const page *p, const subject *what, int rank, size_t most, series *out)
{
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    size_t bins = n < most ? n : most;
    *out = (series){ .rank = rank, .x = calloc(3 * bins + 1, sizeof *out->x) };
    if (!out->x) return false;
    out->y = out->x + bins;
    out->lost = out->y + bins;
    for (size_t k = 0; k < bins; k++) {
        double x = 0, y = 0, lost = 0, seen = 0, v;
        for (size_t i = n * k / bins; i < n * (k + 1) / bins; i++) {
            const ls_step_rank *s = &steps[i].rank[rank];
            if (!s->present || !what->value(s, &v)) continue;
            x += (double)steps[i].number;
            y += v;
            if (what->lost && what->lost(s, &v)) lost += v;
            seen++;
        }
        if (!(seen > 0)) continue;
        out->x[out->count] = x / seen;
        out->y[out->count] = y / seen;
        out->lost[out->count++] = lost / seen;
        out->mean += y / seen;
    }
    if (out->count) out->mean /= (double)out->count;
    return true;
}

/* A band between two lines over the points. */
static void draw_band(const chart *c, const series *s, const char *class_name, double low, double high)
{
    fprintf(c->to, "<path class=\"%s\" d=\"", class_name);
    for (size_t i = 0; i < s->count; i++)
        fprintf(c->to, "%c%.1f %.1f", i ? 'L' : 'M', chart_x(c, s->x[i]), chart_y(c, s->y[i] + high * s->lost[i]));
    for (size_t i = s->count; i-- > 0;) fprintf(c->to, "L%.1f %.1f", chart_x(c, s->x[i]), chart_y(c, low * s->y[i]));
    fputs("Z\"/>", c->to);
}

static void draw_tips(const chart *c, const subject *what, const series *s)
{
    for (size_t i = 0; i < s->count; i++) {
        char tip[160];
        double at = chart_x(c, s->x[i]), from = i ? (chart_x(c, s->x[i - 1]) + at) / 2 : c->left,
               to = i + 1 < s->count ? (at + chart_x(c, s->x[i + 1])) / 2 : c->width - c->right;
        int n = snprintf(tip, sizeof tip, "rank %d, step %.0f\n%s: %s", s->rank, s->x[i], what->words,
                         what->text(s->y[i]).text);
        if (what->lost && s->lost[i] >= 0.001)
            snprintf(tip + n, sizeof tip - (size_t)n, "\nunscheduled: %s", amount_share(s->lost[i]).text);
        chart_rect(c, from, c->top, to - from, c->height - c->top - c->bottom, "hit", tip);
    }
}

/* ---- All of them */

enum { PANEL = 58, HIGH_PANEL = 120, HEAD = 20, FOOT = 20, LEFT = 40, GAP = 14 };

/* `c` is the panel: margins around it within the whole picture. */
static void draw_panel(const chart *c, const subject *what, const series *s, bool hatched, bool first, bool last)
{
    char text[48];
    double step = nice_step(c->y1, 2), right = c->width - c->right, base = c->height - c->bottom;
    fputs("<path class=\"grid\" d=\"", c->to);
    for (double y = 0; y <= c->y1 * 1.0001; y += step) fprintf(c->to, "M%.1f %.1fH%.1f", c->left, chart_y(c, y), right);
    fputs("\"/>", c->to);
    for (double y = 0; first && y <= c->y1 * 1.0001; y += step) {
        tick_plain(y, step, text);
        chart_text(c, c->left - 6, chart_y(c, y) + 4, "end", "", text);
    }
    snprintf(text, sizeof text, "rank %d", s->rank);
    chart_text(c, c->left, c->top - 6, "start", "ink b", text);
    if (s->count) chart_text(c, right, c->top - 6, "end", "", what->text(s->mean).text);
    if (s->count > 1) {
        if (hatched) draw_band(c, s, "lost", 1, 1), draw_band(c, s, "hatch", 1, 1);
        draw_band(c, s, "area", 0, 0);
        fputs("<path class=\"curve\" d=\"", c->to);
        for (size_t i = 0; i < s->count; i++)
            fprintf(c->to, "%c%.1f %.1f", i ? 'L' : 'M', chart_x(c, s->x[i]), chart_y(c, s->y[i]));
        fputs("\"/>", c->to);
    }
    draw_tips(c, what, s);
    if (!last) return;
    snprintf(text, sizeof text, "%s%.0f", first ? "step " : "", c->x0);
    chart_text(c, c->left, base + 15, "start", "unit", text);
    snprintf(text, sizeof text, "%.0f", c->x1);
    chart_text(c, right, base + 15, "end", "unit", text);
}

static void draw_panels(const page *p, double width, const subject *what)
{
    int ranks[HTML_RANKS], n = html_ranks_shown(p->run, ranks),
                           most_across = width < 400   ? 2
                                         : width < 900 ? 4
                                                       : 8,
                           across = n < most_across ? n : most_across;
    size_t count;
    const ls_run_step *steps = counted(p, &count);
    series all[HTML_RANKS] = { 0 };
    double most = 0, panel = (width - LEFT - GAP * (across - 1)) / fmax(1, across), tall = n > 2 ? PANEL : HIGH_PANEL;
    int rows = across ? (n + across - 1) / across : 0;
    for (int i = 0; i < n; i++) {
        if (!make_series(p, what, ranks[i], (size_t)(panel / 3), &all[i])) goto done;
        for (size_t k = 0; k < all[i].count; k++) most = fmax(most, all[i].y[k] + all[i].lost[k]);
    }
    if (!(most > 0) || !count) goto done;
    chart c = { .to = p->to, .width = width, .height = rows * (HEAD + tall + 6) + FOOT + 8 };
    c.y1 = ceil(most / nice_step(most, 2) - 0.05) * nice_step(most, 2);
    c.x0 = (double)steps[0].number;
    c.x1 = (double)steps[count - 1].number;
    chart_open(&c, what->label);
    for (int i = 0; i < n; i++) {
        int row = i / across, column = i % across;
        c.left = LEFT + column * (panel + GAP);
        c.right = width - c.left - panel;
        c.top = 8 + HEAD + row * (HEAD + tall + 6);
        c.bottom = c.height - c.top - tall;
        draw_panel(&c, what, &all[i], what->lost && html_has_unscheduled(p->run), !column, i + across >= n);
    }
    chart_text(&c, 0, 10, "start", "unit", what->unit);
    chart_close(&c);
done:
    for (int i = 0; i < n; i++) free(all[i].x);
}

static void draw_cores(const page *p, double width)
{
    draw_panels(p, width, &cores);
}

static void draw_memory(const page *p, double width)
{
    draw_panels(p, width, &memory);
}

/* Whether a rank has enough values for a chart. */
static bool has(const page *p, const subject *what)
{
    int ranks[HTML_RANKS], n = html_ranks_shown(p->run, ranks);
    bool enough = false;
    for (int i = 0; i < n && !enough; i++) {
        series s;
        enough = make_series(p, what, ranks[i], 32, &s) && s.count >= HTML_POINTS;
        free(s.x);
    }
    return enough;
}

static const char *scale_words(const ls_run *run)
{
    int recorded = report_recorded(run);
    return recorded > HTML_RANKS ? "One chart per rank, on a common scale: the ranks that waited least and most."
           : recorded > 1        ? "One chart per rank, on a common scale; the number is the mean."
                                 : NULL;
}

void html_cores(const page *p)
{
    if (!has(p, &cores)) return;
    bool alone = !has(p, &memory); /* then the row is its own */
    html_card(p, "cores", alone ? "wide" : "", "CPU use", scale_words(p->run));
    fputs("<div class=\"legend\"><span><i class=\"area\"></i>cores busy</span>", p->to);
    if (html_has_unscheduled(p->run)) fprintf(p->to, "<span><i class=\"hatch\"></i>%s</span>", html_unscheduled_words);
    fputs("</div>", p->to);
    html_chart(p, !alone, draw_cores);
    html_card_end(p);
}

void html_memory(const page *p)
{
    if (!has(p, &memory)) return;
    html_card(p, "memory", "", "Memory", scale_words(p->run));
    html_chart(p, true, draw_memory);
    html_card_end(p);
}
