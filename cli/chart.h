/* Parts of charts as SVG inside a page: a frame with axes and ticks, texts, and tooltips. Colours are classes of the page's style
 * sheet, so that they follow light and dark. Coordinates are CSS pixels at the width the chart is made for. */
#ifndef LS_CLI_CHART_H
#define LS_CLI_CHART_H

#include <stdbool.h>
#include <stdio.h>

typedef struct chart {
    FILE *to;
    double width, height;
    double left, right, top, bottom; /* of the plot within it: margins */
    double x0, x1, y0, y1;           /* the data's range */
    bool whole_x;                    /* x are numbers of steps: no ticks between them */
} chart;

/* Opens the picture. `label` describes it, for screen readers. */
void chart_open(const chart *c, const char *label);
void chart_close(const chart *c);

/* The place of a value in the chart. */
double chart_x(const chart *c, double x);
double chart_y(const chart *c, double y);

typedef void (*tick_text)(double value, double step, char text[32]);
void tick_plain(double value, double step, char text[32]); /* "0.5", "20k" */
/* Lines and numbers at round values; `title` is above the axis (y) or below it (x). */
void chart_axis_y(const chart *c, const char *title, tick_text text);
void chart_axis_x(const chart *c, const char *title, tick_text text);

/* `anchor`: start, middle or end. */
void chart_text(const chart *c, double x, double y, const char *anchor, const char *class_name, const char *text);
/* A rectangle; `tip` (NULL: none) is shown under the pointer, lines parted by '\n'. */
void chart_rect(const chart *c, double x, double y, double w, double h, const char *class_name, const char *tip);

/* Hatching over a part of a rectangle; the one below keeps its tip. */
void chart_hatch(const chart *c, double x, double y, double w, double h);
/* Text within a phase's rectangle (x, y, w, h), on a plate that covers hatching: the first of `texts` (ended by NULL) that fits. */
void chart_label(const chart *c, double x, double y, double w, double h, const char *phase, const char *const *texts);

/* The distance of about `count` round values over a range. */
double nice_step(double range, int count);

/* The unit of an axis up to that many ns. */
typedef struct time_unit {
    double ns;
    const char *name; /* "ms" */
} time_unit;
time_unit time_unit_of(double most_ns);

#endif
