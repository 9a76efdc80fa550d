/* From curves to SVG text, by way of a stream in memory. */
#include "cli/bench/plot.h"

#include <float.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

enum { WIDTH = 760, HEIGHT = 460, LEFT = 84, RIGHT = 24, TOP = 44, BOTTOM = 62 };

/* Of middle lightness: each has a contrast of more than 3 to 1 against white and against black. */
static const char *const colours[PLOT_MAX_SERIES] = {
    "#2f7ed8", "#d9622b", "#3a9a4b", "#a45bc4", "#b08a1e", "#c4407a"
};
static const char grey[] = "#7a7a7a";

/* An axis: values low..high onto pixels from..to. */
typedef struct axis {
    double low, high;
    double from, to;
    bool linear;
} axis;

static double place(const axis *a, double value)
{
    if (a->linear) return a->from + (a->to - a->from) * (value - a->low) / (a->high - a->low);
    return a->from + (a->to - a->from) * (log(value) - log(a->low)) / (log(a->high) - log(a->low));
}

static void span(const plot *p, bool is_x, double *low, double *high)
{
    *low = DBL_MAX;
    *high = 0;
    for (int s = 0; s < p->series_count; s++)
        for (int i = 0; i < p->series[s].count && !p->series[s].dashed; i++) {
            double x = p->series[s].x[i], y = p->series[s].y[i], v = is_x ? x : y;
            if (!p->linear && !(x > 0 && y > 0)) continue;
            if (v < *low) *low = v;
            if (!is_x && p->series[s].high && p->series[s].high[i] > v) v = p->series[s].high[i];
            if (v > *high) *high = v;
        }
    if (*high == 0) *low = 1, *high = 10;
}

/* Where a legend's line is, from the top of the plot. */
static double legend_line(int i)
{
    return 18 + 20 * i;
}

/* y ends at full decades, on linear axes above the legend; x at its data with a little air. */
static axis make_axis(const plot *p, bool is_x)
{
    axis a = { .linear = p->linear };
    span(p, is_x, &a.low, &a.high);
    if (p->linear) {
        a.low = 0;
        a.high *= is_x ? 1.05 : 1 / (1 - legend_line(p->series_count) / (HEIGHT - BOTTOM - TOP));
        a.from = is_x ? LEFT : HEIGHT - BOTTOM;
        a.to = is_x ? WIDTH - RIGHT : TOP;
    } else if (is_x) {
        a.low /= 1.3;
        a.high *= 1.3;
        a.from = LEFT;
        a.to = WIDTH - RIGHT;
    } else {
        a.low = pow(10, floor(log10(a.low) + 1e-9));
        a.high = pow(10, ceil(log10(a.high * 1.05) - 1e-9));
        a.from = HEIGHT - BOTTOM;
        a.to = TOP;
    }
    return a;
}

static void text_escaped(FILE *f, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        default: fputc(*text, f);
        }
    }
}

static void put_text(FILE *f, double x, double y, const char *anchor, const char *more, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more);
    text_escaped(f, text);
    fputs("</text>\n", f);
}

static void put_line(FILE *f, double x1, double y1, double x2, double y2, double opacity)
{
    fprintf(f, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-opacity=\"%g\"/>\n", x1, y1, x2, y2, grey,
            opacity);
}

typedef enum scale { PLAIN, BYTES, SECONDS } scale;

/* "10 K", "4 MiB", "100 µs" */
static void tick_text(char *out, size_t room, double value, scale how)
{
    static const char *const units[][5] = { { "", " K", " M", " G", " T" },
                                            { " B", " KiB", " MiB", " GiB", " TiB" },
                                            { " ns", " \u00b5s", " ms", " s", "000 s" } };
    double step = how == BYTES ? 1024 : 1000;
    int unit = 0;
    if (value == 0) how = PLAIN;
    if (how == SECONDS) value *= 1e9;
    for (; value >= step * 0.999 && unit < 4; unit++) value /= step;
    snprintf(out, room, "%.4g%s", value, units[how][unit]);
}

/* 1, 2 or 5 times a power of ten, so that about five of them reach `high`. */
static double nice_step(double high)
{
    double power = pow(10, floor(log10(high / 5))), times = high / 5 / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static void put_linear_ticks(FILE *f, const plot *p, const axis *x, const axis *y)
{
    char text[32];
    for (double v = 0; v <= x->high; v += nice_step(x->high)) {
        put_line(f, place(x, v), HEIGHT - BOTTOM, place(x, v), TOP, 0.25);
        tick_text(text, sizeof text, v, p->x_in_bytes ? BYTES : PLAIN);
        put_text(f, place(x, v), HEIGHT - BOTTOM + 18, "middle", "", text);
    }
    for (double v = 0; v <= y->high; v += nice_step(y->high)) {
        put_line(f, LEFT, place(y, v), WIDTH - RIGHT, place(y, v), 0.25);
        tick_text(text, sizeof text, v, p->y_in_seconds ? SECONDS : PLAIN);
        put_text(f, LEFT - 8, place(y, v) + 4, "end", "", text);
    }
}

static void put_log_ticks(FILE *f, const plot *p, const axis *x, const axis *y)
{
    char text[32];
    double step = p->x_in_bytes ? 16 : 10; /* 16 divides 1024's powers into steps that are not crowded */
    for (double v = pow(step, ceil(log(x->low) / log(step))); v <= x->high; v *= step) {
        put_line(f, place(x, v), HEIGHT - BOTTOM, place(x, v), TOP, 0.25);
        tick_text(text, sizeof text, v, p->x_in_bytes ? BYTES : PLAIN);
        put_text(f, place(x, v), HEIGHT - BOTTOM + 18, "middle", "", text);
    }
    for (double v = y->low; v <= y->high * 1.001; v *= 10) {
        put_line(f, LEFT, place(y, v), WIDTH - RIGHT, place(y, v), 0.25);
        tick_text(text, sizeof text, v, p->y_in_seconds ? SECONDS : PLAIN);
        put_text(f, LEFT - 8, place(y, v) + 4, "end", "", text);
    }
}

static void put_axes(FILE *f, const plot *p, const axis *x, const axis *y)
{
    char text[32];
    p->linear ? put_linear_ticks(f, p, x, y) : put_log_ticks(f, p, x, y);
    put_line(f, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, 1);
    put_line(f, LEFT, HEIGHT - BOTTOM, LEFT, TOP, 1);
    put_text(f, WIDTH / 2.0, 24, "middle", " font-size=\"15\" font-weight=\"bold\"", p->title);
    put_text(f, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16, "middle", "", p->x_label);
    snprintf(text, sizeof text, " transform=\"rotate(-90)\"");
    put_text(f, -(TOP + HEIGHT - BOTTOM) / 2.0, 18, "middle", text, p->y_label);
}

static bool has_place(const plot_series *s, int i, const axis *x)
{
    return x->linear || (s->x[i] > 0 && s->y[i] > 0);
}

static void put_series(FILE *f, const plot_series *s, int number, const axis *x, const axis *y)
{
    const char *colour = s->dashed ? grey : colours[number];
    fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s d=\"", colour,
            s->dashed ? " stroke-dasharray=\"6 4\" clip-path=\"url(#area)\"" : "");
    bool begun = false;
    for (int i = 0; i < s->count; i++) {
        if (!has_place(s, i, x)) continue;
        fprintf(f, "%c%.1f %.1f", begun ? 'L' : 'M', place(x, s->x[i]), place(y, s->y[i]));
        begun = true;
    }
    fputs("\"/>\n", f);
    for (int i = 0; s->low && i < s->count; i++)
        if (has_place(s, i, x) && (x->linear || s->low[i] > 0))
            fprintf(f, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-opacity=\"0.6\"/>\n", place(x, s->x[i]),
                    place(y, s->low[i]), place(y, s->high[i]), colour);
    for (int i = 0; !s->dashed && i < s->count; i++)
        if (has_place(s, i, x))
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", place(x, s->x[i]), place(y, s->y[i]),
                    colour);
}

/* Where no curve begins: times grow to the right, so the upper left is free; a falling curve leaves the upper right. */
static void put_legend(FILE *f, const plot *p)
{
    const plot_series *s = &p->series[0];
    bool falls = s->count > 1 && s->y[0] > s->y[s->count - 1];
    double left = falls ? WIDTH - RIGHT - 210 : LEFT + 16;
    for (int i = 0; i < p->series_count; i++) {
        double at = TOP + legend_line(i);
        fprintf(f, "<path d=\"M%.1f %.1fh26\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", left, at - 4,
                p->series[i].dashed ? grey : colours[i], p->series[i].dashed ? " stroke-dasharray=\"6 4\"" : "");
        put_text(f, left + 34, at, "start", "", p->series[i].name);
    }
}

static ls_status make_png(const char *svg, const char *png)
{
    pid_t pid;
    int how;
    const char *const words[] = { "rsvg-convert", "-z", "2", "-o", png, svg, NULL };
    if (posix_spawnp(&pid, words[0], NULL, NULL, (char *const *)words, environ) || waitpid(pid, &how, 0) != pid ||
        !WIFEXITED(how) || WEXITSTATUS(how))
        return ls__fail(LS_ENOENT, "%s: rsvg-convert is missing or failed (package librsvg2-bin); the plot is in %s",
                        png, svg);
    return LS_OK;
}

/* A picture's text, begun; plot_end() writes it. */
static FILE *plot_begin(char **text, size_t *bytes, const char *path)
{
    FILE *f = open_memstream(text, bytes);
    if (!f) {
        ls__fail_errno("%s: memory for the plot", path);
        return NULL;
    }
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"%s\">\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, grey);
    return f;
}

static ls_status plot_end(FILE *f, char **text, const size_t *bytes, const char *path)
{
    size_t n = strlen(path);
    fputs("</svg>\n", f);
    if (fclose(f)) {
        free(*text);
        return ls__fail(LS_ENOMEM, "%s: no memory for the plot", path);
    }
    char svg[4096];
    bool png = n > 4 && !strcmp(path + n - 4, ".png");
    snprintf(svg, sizeof svg, "%.*s%s", (int)(png ? n - 4 : n), path, png ? ".svg" : "");
    ls_status status = ls__file_write_named(svg, *text, *bytes);
    free(*text);
    return status || !png ? status : make_png(svg, path);
}

ls_status plot_write(const plot *p, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = plot_begin(&text, &bytes, path);
    if (!f) return LS_ESYS;
    axis x = make_axis(p, true), y = make_axis(p, false);
    fprintf(f, "<clipPath id=\"area\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n", LEFT, TOP,
            WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    put_axes(f, p, &x, &y);
    for (int s = 0; s < p->series_count; s++) put_series(f, &p->series[s], s, &x, &y);
    put_legend(f, p);
    return plot_end(f, &text, &bytes, path);
}

/* ---- Bars. */

static void put_bar(FILE *f, const plot_bars *p, int i, double per_ms)
{
    double room = (double)(WIDTH - LEFT - RIGHT) / p->bar_count, width = room * 0.5, at = HEIGHT - BOTTOM;
    double left = LEFT + room * i + (room - width) / 2;
    for (int k = 0; k < p->part_count; k++) {
        double height = p->bars[i].parts[k] * per_ms;
        at -= height;
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", left, at, width,
                height, colours[k]);
    }
    if (p->bars[i].spread > 0) {
        double half = p->bars[i].spread * per_ms, middle = left + width / 2;
        double top = at - half < TOP ? TOP : at - half,
               bottom = at + half > HEIGHT - BOTTOM ? HEIGHT - BOTTOM : at + half;
        put_line(f, middle, top, middle, bottom, 1);
    }
    const char *name = p->bars[i].name, *second = strchr(name, '\n');
    char first[64];
    snprintf(first, sizeof first, "%.*s", second ? (int)(second - name) : (int)strlen(name), name);
    put_text(f, left + width / 2, HEIGHT - BOTTOM + 18, "middle", "", first);
    if (second) put_text(f, left + width / 2, HEIGHT - BOTTOM + 34, "middle", "", second + 1);
}

ls_status plot_bars_write(const plot_bars *p, const char *path)
{
    char *text = NULL, tick[32];
    size_t bytes = 0;
    double high = 1e-9;
    FILE *f = plot_begin(&text, &bytes, path);
    if (!f) return LS_ESYS;
    for (int i = 0; i < p->bar_count; i++) {
        double sum = 0;
        for (int k = 0; k < p->part_count; k++) sum += p->bars[i].parts[k];
        sum += p->bars[i].spread;
        if (sum > high) high = sum;
    }
    double step = nice_step(high), per_ms = (HEIGHT - BOTTOM - TOP) / (high * 1.4); /* the legend is above */
    for (double v = 0; v <= high * 1.05; v += step) {
        put_line(f, LEFT, HEIGHT - BOTTOM - v * per_ms, WIDTH - RIGHT, HEIGHT - BOTTOM - v * per_ms, v > 0 ? 0.25 : 1);
        snprintf(tick, sizeof tick, "%.4g", v);
        put_text(f, LEFT - 8, HEIGHT - BOTTOM - v * per_ms + 4, "end", "", tick);
    }
    for (int i = 0; i < p->bar_count; i++) put_bar(f, p, i, per_ms);
    for (int k = 0; k < p->part_count; k++) {
        fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"12\" fill=\"%s\"/>\n", LEFT + 16, TOP + 8 + 20 * k,
                colours[k]);
        put_text(f, LEFT + 38, TOP + 18 + 20 * k, "start", "", p->parts[k]);
    }
    put_text(f, WIDTH / 2.0, 24, "middle", " font-size=\"15\" font-weight=\"bold\"", p->title);
    put_text(f, -(TOP + HEIGHT - BOTTOM) / 2.0, 18, "middle", " transform=\"rotate(-90)\"", p->y_label);
    return plot_end(f, &text, &bytes, path);
}
