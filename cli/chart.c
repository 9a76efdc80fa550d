/* Charts as SVG. See chart.h. */
#include "cli/chart.h"

#include <math.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/escape.h"

void chart_open(const chart *c, const char *label)
{
    fprintf(c->to, "<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" aria-label=\"", c->width,
            c->height, c->width, c->height);
    put_html(c->to, label);
    fputs("\">", c->to);
}

void chart_close(const chart *c)
{
    fputs("</svg>\n", c->to);
}

double chart_x(const chart *c, double x)
{
    double range = c->x1 - c->x0;
    return c->left + (range > 0 ? (x - c->x0) / range : 0) * (c->width - c->left - c->right);
}

double chart_y(const chart *c, double y)
{
    double from = c->y0, to = c->y1;
    double share = to > from ? (y - from) / (to - from) : 0;
    return c->height - c->bottom - share * (c->height - c->top - c->bottom);
}

double nice_step(double range, int count)
{
    if (!(range > 0) || count < 1) return 1;
    double raw = range / count, ten = pow(10, floor(log10(raw))), x = raw / ten;
    return ten * (x <= 1.4 ? 1 : x <= 3.1 ? 2 : x <= 7 ? 5 : 10);
}

void tick_plain(double value, double step, char text[32])
{
    static const char *const units[] = { "", "k", "M", "G", "T" };
    int i = 0, digits = 0;
    double most = fabs(value) > step ? fabs(value) : step;
    for (; most >= 10000 && i < 4; i++) most /= 1000, value /= 1000, step /= 1000;
    while (digits < 6 && step * pow(10, digits) < 0.999) digits++;
    while (digits < 6 && fabs(step * pow(10, digits) - round(step * pow(10, digits))) > 1e-6) digits++;
    snprintf(text, 32, "%.*f%s", digits, value, value != 0 ? units[i] : "");
}

void chart_text(const chart *c, double x, double y, const char *anchor, const char *class_name, const char *text)
{
    fprintf(c->to, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
    if (strcmp(anchor, "start") != 0) fprintf(c->to, " text-anchor=\"%s\"", anchor);
    if (*class_name) fprintf(c->to, " class=\"%s\"", class_name);
    fputc('>', c->to);
    put_html(c->to, text);
    fputs("</text>", c->to);
}

void chart_rect(const chart *c, double x, double y, double w, double h, const char *class_name, const char *tip)
{
    if (!(w > 0 && h > 0)) return;
    fprintf(c->to, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"", x, y, w, h, class_name);
    if (tip) {
        fputs(" data-t=\"", c->to);
        put_html(c->to, tip);
        fputc('"', c->to);
    }
    fputs("/>", c->to);
}

void chart_hatch(const chart *c, double x, double y, double w, double h)
{
    if (w >= 1) chart_rect(c, x, y, w, h, "hatch", NULL);
}

/* Columns of UTF-8 text, at the width of a wide system font. */
static double text_width(const char *text)
{
    double n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return 7.3 * n;
}

void chart_label(const chart *c, double x, double y, double w, double h, const char *phase, const char *const *texts)
{
    char class_name[48];
    while (*texts && text_width(*texts) + 6 > w) texts++;
    if (!*texts) return;
    double plate = text_width(*texts) + 4;
    fputs("<g class=\"in\">", c->to);
    chart_rect(c, x + (w - plate) / 2, y + 3, plate, h - 6, phase, NULL);
    snprintf(class_name, sizeof class_name, "t-%s", phase);
    chart_text(c, x + w / 2, y + h / 2 + 4, "middle", class_name, *texts);
    fputs("</g>", c->to);
}

time_unit time_unit_of(double most_ns)
{
    static const time_unit units[] = { { 60e9, "min" }, { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "\u00b5s" } };
    static const double from[] = { 600e9, 2e9, 2e6, 2e3 };
    for (int i = 0; i < 4; i++)
        if (most_ns >= from[i]) return units[i];
    return (time_unit){ 1, "ns" };
}

/* Ticks of an axis. They are counted, not added up: at 2^53 and more a sum may stay what it was. */
typedef struct ticks {
    double first;
    int count;
} ticks;

static ticks find_ticks(double from, double to, double step)
{
    double first = ceil(from / step - 1e-9) * step, more = floor((to - first) / step + 1e-6);
    return (ticks){ first, more >= 0 ? (int)fmin(more, 99) + 1 : 0 };
}

void chart_axis_y(const chart *c, const char *title, tick_text text)
{
    double step = nice_step(c->y1 - c->y0, (int)((c->height - c->top - c->bottom) / 36)), right = c->width - c->right;
    ticks t = find_ticks(c->y0, c->y1, step);
    fputs("<path class=\"grid\" d=\"", c->to);
    for (int i = 0; i < t.count; i++) fprintf(c->to, "M%.1f %.1fH%.1f", c->left, chart_y(c, t.first + i * step), right);
    fputs("\"/>", c->to);
    for (int i = 0; i < t.count; i++) {
        char label[32];
        double y = t.first + i * step, at = chart_y(c, y);
        text(fabs(y) < step * 1e-6 ? 0 : y, step, label);
        chart_text(c, c->left - 6, at + 4, "end", "", label);
    }
    chart_text(c, 0, c->top - 9, "start", "unit", title);
}

void chart_axis_x(const chart *c, const char *title, tick_text text)
{
    double step = nice_step(c->x1 - c->x0, (int)((c->width - c->left - c->right) / (c->width < 400 ? 48 : 70))),
           base = c->height - c->bottom;
    if (c->whole_x && step < 1) step = 1;
    ticks t = find_ticks(c->x0, c->x1, step);
    fprintf(c->to, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f", c->left, base, c->width - c->right);
    for (int i = 0; i < t.count; i++) fprintf(c->to, "M%.1f %.1fv4", chart_x(c, t.first + i * step), base);
    fputs("\"/>", c->to);
    double last = -1e9;
    for (int i = 0; i < t.count; i++) {
        double x = t.first + i * step;
        char label[32];
        text(fabs(x) < step * 1e-6 ? 0 : x, step, label);
        double at = chart_x(c, x), half = text_width(label) / 2;
        if (at - half < last + 6) continue;
        last = at + half;
        bool over = at + half > c->width;
        chart_text(c, over ? c->width : at, base + 17, over ? "end" : "middle", "", label);
    }
    chart_text(c, c->left + (c->width - c->left - c->right) / 2, c->height - 4, "middle", "unit", title);
}
