/* Loss, throughput and memory over the run. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"

enum { MOST_CURVES = 8 };

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
    /* A single point is a dot, or nobody would see it. */
    fprintf(c->to, "<path class=\"curve %s%s\" d=\"", class_name, v->count == 1 ? " one" : "");
    for (size_t i = 0; i < v->count; i++)
        fprintf(c->to, "%c%.1f %.1f", i ? 'L' : 'M', chart_x(c, v->x[i]), chart_y(c, v->y[i]));
    fputs(v->count == 1 ? "h.01\"/>" : "\"/>", c->to);
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
static void settle(chart *c, bool from_zero)
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
    settle(&c, false);
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
    curve fine = make_curve(&p->lines, speed_of, (size_t)(width / 2)), coarse = make_curve(&p->lines, speed_of, 24);
    chart c = frame(p, width);
    widen(&c, &fine);
    settle(&c, true);
    chart_open(&c, "Tokens a second over the steps");
    chart_axis_y(&c, "tokens/s", tick_plain);
    draw_curve(&c, &fine, "faint");
    draw_curve(&c, &coarse, "");
    draw_tips(&c, &fine, "tokens/s", amount_count);
    chart_axis_x(&c, "step", tick_plain);
    chart_close(&c);
    free_curve(&fine);
    free_curve(&coarse);
}

/* ---- Per rank: memory and cores */

static bool memory_at(const ls_step_rank *s, double *out)
{
    *out = (double)s->resident / (1 << 20);
    return s->resident > 0;
}

static bool cores_at(const ls_step_rank *s, double *out)
{
    *out = s->end > s->begin ? (double)s->cpu / (double)(s->end - s->begin) : 0;
    return s->cpu >= 0;
}

typedef bool (*rank_value_fn)(const ls_step_rank *s, double *out);

static curve make_rank_curve(const page *p, int rank, rank_value_fn value, size_t most)
{
    curve c = { 0 };
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    size_t bins = n < most ? n : most;
    for (size_t k = 0; k < bins; k++) {
        double x = 0, y = 0, seen = 0, v;
        for (size_t i = n * k / bins; i < n * (k + 1) / bins; i++)
            if (steps[i].rank[rank].present && value(&steps[i].rank[rank], &v)) {
                x += (double)steps[i].number;
                y += v;
                seen++;
            }
        if (seen > 0 && !add_point(&c, bins, x / seen, y / seen)) break;
    }
    return c;
}

static amount mebibytes(double x)
{
    return amount_bytes(x * (1 << 20));
}

/* The point of a curve that is nearest to x; it has one. */
static size_t nearest(const curve *v, double x)
{
    size_t best = 0;
    for (size_t i = 1; i < v->count; i++)
        if (fabs(v->x[i] - x) < fabs(v->x[best] - x)) best = i;
    return best;
}

/* Strips that tell the numbers of all ranks. */
static void draw_rank_tips(const chart *c, const curve *curves, int n, amount (*text)(double))
{
    const curve *v = &curves[0];
    for (int r = 1; r < n; r++)
        if (curves[r].count > v->count) v = &curves[r];
    for (size_t i = 0; i < v->count; i++) {
        char tip[400];
        int at = snprintf(tip, sizeof tip, "step %.0f", v->x[i]);
        for (int r = 0; r < n; r++)
            if (curves[r].count && at < (int)sizeof tip - 48)
                at += snprintf(tip + at, sizeof tip - (size_t)at, "\nrank %d: %s", r,
                               text(curves[r].y[nearest(&curves[r], v->x[i])]).text);
        put_strip(c, v, i, tip);
    }
}

static void draw_ranks(const page *p, double width, rank_value_fn value, const char *unit, const char *what,
                       amount (*text)(double))
{
    curve curves[MOST_CURVES] = { 0 };
    int n = p->run->ranks < MOST_CURVES ? p->run->ranks : MOST_CURVES;
    chart c = frame(p, width);
    for (int r = 0; r < n; r++) {
        curves[r] = make_rank_curve(p, r, value, (size_t)(width / 3));
        widen(&c, &curves[r]);
    }
    size_t count;
    const ls_run_step *steps = counted(p, &count);
    if (c.x1 >= c.x0 && count) { /* all charts show the same steps */
        c.x0 = (double)steps[0].number;
        c.x1 = (double)steps[count - 1].number;
        settle(&c, true);
        chart_open(&c, what);
        chart_axis_y(&c, unit, tick_plain);
        for (int r = 0; r < n; r++) {
            char class_name[8];
            snprintf(class_name, sizeof class_name, "s%d", r);
            draw_curve(&c, &curves[r], class_name);
        }
        draw_rank_tips(&c, curves, n, text);
        chart_axis_x(&c, "step", tick_plain);
        chart_close(&c);
    }
    for (int r = 0; r < n; r++) free_curve(&curves[r]);
}

static void draw_memory(const page *p, double width)
{
    draw_ranks(p, width, memory_at, "MiB", "Resident memory of each rank", mebibytes);
}

static void draw_cores(const page *p, double width)
{
    draw_ranks(p, width, cores_at, "cores", "Cores that each rank kept busy", amount_count);
}

static void rank_legend(const page *p)
{
    int n = p->run->ranks < MOST_CURVES ? p->run->ranks : MOST_CURVES;
    fputs("<div class=\"legend\">", p->to);
    for (int r = 0; r < n; r++) fprintf(p->to, "<span><i class=\"b%d\"></i>rank %d</span>", r, r);
    if (n < p->run->ranks) fprintf(p->to, "<span>(the first %d of %d)</span>", n, p->run->ranks);
    fputs("</div>", p->to);
}

static bool any_rank_has(const page *p, rank_value_fn value)
{
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    double x;
    for (size_t i = 0; i < n; i++)
        for (int r = 0; r < p->run->ranks; r++)
            if (steps[i].rank[r].present && value(&steps[i].rank[r], &x)) return true;
    return false;
}

static bool has(const metrics *m, value_fn value)
{
    for (size_t i = 0; i < m->count; i++)
        if (isfinite(value(&m->lines[i]))) return true;
    return false;
}

void html_curves(const page *p)
{
    fputs("<div class=\"two\">", p->to);
    if (has(&p->lines, loss_of)) {
        html_card(p, "loss", "", "Loss", NULL);
        fputs("<div class=\"legend\"><span><i class=\"mark\"></i>training</span>", p->to);
        if (has(&p->lines, eval_of)) fputs("<span><i class=\"dot\"></i>evaluation</span>", p->to);
        fputs("</div>", p->to);
        html_chart(p, true, draw_loss);
        html_card_end(p);
    }
    if (has(&p->lines, speed_of)) {
        html_card(p, "speed", "", "Throughput", NULL);
        fputs("<div class=\"legend\"><span><i class=\"mark\"></i>tokens a second; bold: mean over a 24th of the "
              "run</span></div>",
              p->to);
        html_chart(p, true, draw_speed);
        html_card_end(p);
    }
    if (any_rank_has(p, memory_at)) {
        html_card(p, "memory", "", "Memory", NULL);
        rank_legend(p);
        html_chart(p, true, draw_memory);
        html_card_end(p);
    }
    if (any_rank_has(p, cores_at)) {
        html_card(p, "cores", "", "CPU use", NULL);
        rank_legend(p);
        html_chart(p, true, draw_cores);
        html_card_end(p);
    }
    fputs("</div>\n", p->to);
}
