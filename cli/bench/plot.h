/* Plots as SVG: a few curves, or bars of stacked parts. Grey and mid-tone colours on nothing: it reads on white and on
 * black. */
#ifndef LS_CLI_BENCH_PLOT_H
#define LS_CLI_BENCH_PLOT_H

#include <stdbool.h>
#include "lockstep/base.h"

enum { PLOT_MAX_SERIES = 6 };

/* Points with x <= 0 or y <= 0 have no place on logarithmic axes and are left out. */
typedef struct plot_series {
    const char *name;
    const double *x, *y;
    int count;
    bool dashed;              /* a bound or a model, not a measurement: cut where it leaves the others' range */
    const double *low, *high; /* of y, drawn as a line through each point; NULL: not */
} plot_series;

typedef struct plot {
    const char *title, *x_label, *y_label;
    bool x_in_bytes;   /* ticks like "4 KiB"; otherwise powers of ten ("10 K") */
    bool y_in_seconds; /* ticks like "10 ms"; otherwise powers of ten */
    bool linear;       /* both axes, from 0 on; otherwise both are logarithmic */
    plot_series series[PLOT_MAX_SERIES];
    int series_count;
} plot;

/* Writes `path`. If it ends in .png, the SVG is also written, and rsvg-convert converts it. */
LS_MUST_CHECK ls_status plot_write(const plot *p, const char *path);

enum { PLOT_MAX_BARS = 24 }; /* twelve bucket sizes of ours and of a peer */

/* Each bar is made of parts, one on the other. */
typedef struct plot_bar {
    const char *name; /* may have two lines */
    double parts[PLOT_MAX_SERIES];
    double spread; /* drawn as a line of twice this length through the top; 0: none */
} plot_bar;

typedef struct plot_bars {
    const char *title, *y_label;
    const char *parts[PLOT_MAX_SERIES]; /* their names */
    int part_count;
    plot_bar bars[PLOT_MAX_BARS];
    int bar_count;
} plot_bars;

/* The same for bars, on a linear axis. */
LS_MUST_CHECK ls_status plot_bars_write(const plot_bars *p, const char *path);

#endif
