/* The page of `lockstep predict --html`: a bar for each set-up, divided into the terms of its step, with the band of the median; and the
 * same as a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/escape.h"
#include "cli/html.h"
#include "cli/predict_table.h"

enum { BAR = 20, GAP = 26, MOST_BARS = 100 };

/* Colours of the phases that a term is closest to. */
static const char *const class_of[LS_TERM_COUNT] = {
    [LS_TERM_DATA] = "data",         [LS_TERM_COMPUTE] = "forward",    [LS_TERM_SHARING] = "backward",
    [LS_TERM_IMBALANCE] = "waiting", [LS_TERM_COMM] = "communication", [LS_TERM_UPDATE] = "update",
    [LS_TERM_OTHER] = "other",
};

/* "8 ranks, 2 nodes", and slots and buckets if they differ between rows; the tooltip has all. */
static setup_text label_of(const predict_table *t, const ls_setup *s)
{
    setup_text l;
    int n = snprintf(l.text, sizeof l.text, "%d rank%s", s->ranks, ls__s(s->ranks));
    if (s->nodes > 1) n += snprintf(l.text + n, sizeof l.text - (size_t)n, ", %d nodes", s->nodes);
    if (t->slots) n += snprintf(l.text + n, sizeof l.text - (size_t)n, ", %d slots", s->slots);
    if (t->buckets) snprintf(l.text + n, sizeof l.text - (size_t)n, ", %s", amount_bytes((double)s->bucket_bytes).text);
    return l;
}

/* Room for the longest label. */
static double label_width(const predict_table *t, size_t shown)
{
    size_t most = 0;
    for (size_t i = 0; i < shown; i++) {
        size_t n = strlen(label_of(t, &t->rows[i].p.setup).text);
        if (n > most) most = n;
    }
    return 16 + 6.3 * (double)most;
}

/* By how much bars are drawn shorter: with a negative term, the others are more than the step. */
static double shown_share(const ls_prediction *p)
{
    double sum = 0;
    for (int i = 0; i < LS_TERM_COUNT; i++) sum += fmax(0, p->term[i]);
    return sum > p->step && sum > 0 ? p->step / sum : 1;
}

static bool any_negative(const predict_table *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (!t->rows[i].refused && shown_share(&t->rows[i].p) < 0.995) return true;
    return false;
}

static void draw_row(const chart *c, const predict_table *t, const predict_row *r, double y)
{
    const ls_prediction *p = &r->p;
    double from = 0, share = shown_share(p);
    chart_text(c, c->left - 8, y + BAR * 0.7, "end", "", label_of(t, &p->setup).text);
    for (int i = 0; i < LS_TERM_COUNT && !r->refused; i++) {
        char tip[320];
        double to = from + fmax(0, p->term[i]) * share;
        snprintf(tip, sizeof tip, "%s\nstep %s (%s to %s)\n%s %s", predict_setup_text(&p->setup).text,
                 amount_ns(p->step).text, amount_ns(p->low).text, amount_ns(p->high).text, ls_term_name((ls_term)i),
                 amount_ns(p->term[i]).text);
        chart_rect(c, chart_x(c, from), y, chart_x(c, to) - chart_x(c, from), BAR, class_of[i], tip);
        from = to;
    }
    if (r->refused)
        chart_text(c, c->left + 4, y + BAR * 0.7, "start", "", "cannot say");
    else
        fprintf(c->to,
                "<path class=\"curve\" style=\"stroke:var(--ink)\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8\"/>",
                chart_x(c, p->low), y + BAR / 2.0, chart_x(c, p->high), chart_x(c, p->low), y + BAR / 2.0 - 4,
                chart_x(c, p->high), y + BAR / 2.0 - 4);
}

static void tick_ms(double value, double step, char text[32])
{
    (void)step;
    snprintf(text, 32, "%s", value > 0 ? amount_ns(value).text : "0");
}

static void draw(const page *p, double width)
{
    const predict_table *t = ((const predict_page *)p)->table;
    size_t shown = t->count < MOST_BARS ? t->count : MOST_BARS;
    chart c = { .to = p->to,
                .width = width,
                .height = (double)shown * GAP + 50,
                .left = label_width(t, shown),
                .right = 16,
                .top = 8,
                .bottom = 42 };
    for (size_t i = 0; i < shown; i++)
        if (!t->rows[i].refused) c.x1 = fmax(c.x1, t->rows[i].p.high);
    c.x1 = c.x1 > 0 ? c.x1 : 1;
    c.y1 = 1;
    chart_open(&c, "Predicted step time of each set-up, divided into terms");
    chart_axis_x(&c, "step", tick_ms);
    for (size_t i = 0; i < shown; i++) draw_row(&c, t, &t->rows[i], 8 + (double)i * GAP);
    chart_close(&c);
}

static void put_legend(const page *p)
{
    fputs("<div class=\"legend\">", p->to);
    for (int i = 0; i < LS_TERM_COUNT; i++)
        fprintf(p->to, "<span><i class=\"%s\"></i>%s</span>", class_of[i], ls_term_name((ls_term)i));
    fputs("</div>\n", p->to);
}

static void put_row(const page *p, const predict_row *r, bool best)
{
    fprintf(p->to, "<tr><td>%s%s</td>", predict_setup_text(&r->p.setup).text, best ? " *" : "");
    if (r->refused) {
        fputs("<td colspan=\"5\">cannot say: ", p->to);
        put_html(p->to, r->refused);
        fputs("</td></tr>\n", p->to);
        return;
    }
    fprintf(p->to, "<td>%s</td><td>%s \u2013 %s</td><td>%s</td><td>%.0f%%</td><td>%s</td></tr>\n",
            amount_ns(r->p.step).text, amount_ns(r->p.low).text, amount_ns(r->p.high).text,
            isfinite(r->p.tokens_per_s) ? amount_count(r->p.tokens_per_s).text : "", 100 * r->p.efficiency,
            ls_term_name(r->p.bottleneck));
}

static void put_table(const predict_page *out)
{
    const predict_row *best = out->table->count > 1 ? predict_best_value(out->table) : NULL;
    html_card(&out->p, "table", "", "All set-ups", "*: the least product of step time and cost.");
    fputs("<div class=\"wide\"><table><thead><tr><th>set-up</th><th>step</th><th>5\u201395% band</th><th>tokens/s</th>"
          "<th>efficiency</th><th>largest term</th></tr></thead><tbody>\n",
          out->p.to);
    for (size_t i = 0; i < out->table->count; i++) put_row(&out->p, &out->table->rows[i], &out->table->rows[i] == best);
    fputs("</tbody></table></div>\n", out->p.to);
    html_card_end(&out->p);
}

ls_status predict_page_write(const predict_table *t, const ls_prediction *recorded, const char *run, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    predict_page out = { .p = { .to = open_memstream(&text, &bytes) }, .table = t };
    FILE *to = out.p.to;
    if (!to) return ls__fail_errno("%s: memory for the page", path);
    html_open(to, html_name(run), "predict");
    fputs("<header><h1>Run ", to);
    put_html(to, html_name(run));
    fprintf(to, " <span>under other settings</span></h1><p class=\"lead\">recorded: %s, %s per step",
            predict_setup_text(&recorded->setup).text, amount_ns(t->recorded).text);
    if (*t->asked) fputs("<br>asked: ", to);
    put_html(to, t->asked);
    fputs("</p></header>\n", to);
    html_card(&out.p, "steps", "", "Step time",
              "The terms add up to the median step. The line is the band that should contain it in nine of ten cases.");
    put_legend(&out.p);
    html_chart(&out.p, false, draw);
    if (any_negative(t))
        fputs(
            "<p>A negative term is what the others explain too much of the step. They are drawn shorter by as much, so "
            "that the bar ends at the step; under the pointer is the true time of each.</p>\n",
            to);
    if (t->count > MOST_BARS) fprintf(to, "<p>The first %d of %zu set-ups.</p>\n", (int)MOST_BARS, t->count);
    html_card_end(&out.p);
    predict_put_scaling(&out);
    put_table(&out);
    fprintf(
        to,
        "<footer>Made by lockstep %s. Efficiency: work per rank and second, relative to the recorded run.</footer>\n",
        ls_version());
    html_close(to);
    return html_save(to, &text, &bytes, path);
}
