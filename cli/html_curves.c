/* Loss and throughput over the run. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"

enum { COARSE = 24 }; /* points of a curve without its noise */

/* A curve of many points, thinned to the width: the mean of each bin. */
typedef struct curve {
    double *x, *y;
    size_t count;
} curve;

typedef double (*value_fn)(const metrics_line *line);

static double loss_of(const metrics_line *l)
{
    return l->loss;
}

static double eval_of(const metrics_line *l)
{
    return l->eval_loss;
}

static double speed_of(const metrics_line *l)
{
    return l->tokens_per_s;
}

static bool add_point(curve *c, size_t room, double x, double y)
{
    if (!c->x) c->x = calloc(room, sizeof *c->x);
    if (!c->y) c->y = calloc(room, sizeof *c->y);
    if (!c->x || !c->y || c->count == room) return false;
    c->x[c->count] = x;
    c->y[c->count++] = y;
    return true;
}

static curve make_curve(const metrics *m, value_fn value, size_t most)
{
    curve c = { 0 };
    size_t bins = m->count < most ? m->count : most;
    for (size_t k = 0; k < bins; k++) {
        double x = 0, y = 0, n = 0;
        for (size_t i = m->count * k / bins; i < m->count * (k + 1) / bins; i++) {
            double v = value(&m->lines[i]);
            if (!isfinite(v)) continue;
            x += m->lines[i].step;
            y += v;
            n++;
        }
        if (n > 0 && !add_point(&c, bins, x / n, y / n)) break;
    }
    return c;
}

static void free_curve(curve *c)
{
    free(c->x);
    free(c->y);
}

static void widen(chart *c, const curve *v)
{
    for (size_t i = 0; i < v->count; i++) {
        c->x0 = fmin(c->x0, v->x[i]);
        c->x1 = fmax(c->x1, v->x[i]);
        c->y0 = fmin(c->y0, v->y[i]);
        c->y1 = fmax(c->y1, v->y[i]);
    }
}

static void draw_curve(const chart *c, const curve *v, const char *class_name)
{
    if (!v->count) return;
    fprintf(c->to, "<path class=\"curve %s\" d=\"", class_name);
    for (size_t i = 0; i < v->count; i++)
        fprintf(c->to, "%c%.1f %.1f", i ? 'L' : 'M', chart_x(c, v->x[i]), chart_y(c, v->y[i]));
    fputs("\"/>", c->to);
}

static void draw_points(const chart *c, const curve *v)
{
    for (size_t i = 0; i < v->count; i++)
        fprintf(c->to,
                "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\" data-t=\"step %.0f\nevaluation %.4f\"/>",
                chart_x(c, v->x[i]), chart_y(c, v->y[i]), v->x[i], v->y[i]);
}

/* A strip over the whole height around point i. */
static void put_strip(const chart *c, const curve *v, size_t i, const char *tip)
{
    double at = chart_x(c, v->x[i]);
    double from = i ? (chart_x(c, v->x[i - 1]) + at) / 2 : c->left;
    double to = i + 1 < v->count ? (at + chart_x(c, v->x[i + 1])) / 2 : c->width - c->right;
    chart_rect(c, from, c->top, to - from, c->height - c->top - c->bottom, "hit", tip);
}

static void draw_tips(const chart *c, const curve *v, const char *what, amount (*text)(double))
{
    for (size_t i = 0; i < v->count; i++) {
        char tip[96];
        snprintf(tip, sizeof tip, "step %.0f\n%s %s", v->x[i], what, text(v->y[i]).text);
        put_strip(c, v, i, tip);
    }
}

static chart frame(const page *p, double width)
{
    return (chart){ .to = p->to,
                    .width = width,
                    .height = 230,
                    .left = 46,
                    .right = 12,
                    .top = 24,
                    .bottom = 40,
                    .whole_x = true,
                    .x0 = INFINITY,
                    .x1 = -INFINITY,
                    .y0 = INFINITY,
                    .y1 = -INFINITY };
}

/* Some air above and below; from zero where that is asked for. */
static void pad_range(chart *c, bool from_zero)
{
    double air = 0.06 * (c->y1 - c->y0);
    if (!(air > 0)) air = fabs(c->y1) > 0 ? 0.05 * fabs(c->y1) : 1;
    c->y0 = from_zero ? 0 : c->y0 - air;
    c->y1 += air;
    if (!(c->x1 > c->x0)) c->x0 -= 1, c->x1 += 1;
}

static amount plain(double x)
{
    amount a;
    snprintf(a.text, sizeof a.text, "%.4f", x);
    return a;
}

static void draw_loss(const page *p, double width)
{
    curve loss = make_curve(&p->lines, loss_of, (size_t)(width / 2)),
          eval = make_curve(&p->lines, eval_of, (size_t)(width / 8));
    chart c = frame(p, width);
    widen(&c, &loss);
    widen(&c, &eval);
    pad_range(&c, false);
    chart_open(&c, "Loss over the steps");
    chart_axis_y(&c, "loss", tick_plain);
    draw_curve(&c, &loss, "");
    draw_tips(&c, &loss, "loss", plain);
    draw_points(&c, &eval);
    chart_axis_x(&c, "step", tick_plain);
    chart_close(&c);
    free_curve(&loss);
    free_curve(&eval);
}

static void draw_speed(const page *p, double width)
{
    curve fine = make_curve(&p->lines, speed_of, (size_t)(width / 2)), coarse = make_curve(&p->lines, speed_of, COARSE);
    chart c = frame(p, width);
    widen(&c, &fine);
    pad_range(&c, true);
    chart_open(&c, "Tokens per second over the steps");
    chart_axis_y(&c, "tokens/s", tick_plain);
    if (fine.count > coarse.count) draw_curve(&c, &fine, "faint");
    draw_curve(&c, &coarse, "");
    draw_tips(&c, &fine, "tokens/s", amount_count);
    chart_axis_x(&c, "step", tick_plain);
    chart_close(&c);
    free_curve(&fine);
    free_curve(&coarse);
}

/* How many steps have the value. */
static size_t count_of(const metrics *m, value_fn value)
{
    size_t n = 0;
    for (size_t i = 0; i < m->count; i++) n += isfinite(value(&m->lines[i])) ? 1 : 0;
    return n;
}

void html_curves(const page *p)
{
    fputs("<div class=\"two\">", p->to);
    if (count_of(&p->lines, loss_of) >= HTML_POINTS) {
        html_card(p, "loss", "", "Loss", NULL);
        fputs("<div class=\"legend\"><span><i class=\"line\"></i>training</span>", p->to);
        if (count_of(&p->lines, eval_of)) fputs("<span><i class=\"dot\"></i>evaluation</span>", p->to);
        fputs("</div>", p->to);
        html_chart(p, true, draw_loss);
        html_card_end(p);
    }
    if (count_of(&p->lines, speed_of) >= HTML_POINTS) {
        html_card(p, "speed", "", "Throughput", NULL);
        fputs(
            "<div class=\"legend\"><span><i class=\"line\"></i>tokens/s; bold: mean of a 24th of the run</span></div>",
            p->to);
        html_chart(p, true, draw_speed);
        html_card_end(p);
    }
    html_cores(p);
    html_memory(p);
    fputs("</div>\n", p->to);
}
