/* The answers of `lockstep predict`. */
#ifndef LS_CLI_PREDICT_TABLE_H
#define LS_CLI_PREDICT_TABLE_H

#include <stdbool.h>
#include "lockstep/predict.h"

typedef struct predict_row {
    ls_prediction p;
    char *refused; /* why nothing can be said; NULL: it could */
} predict_row;

typedef struct predict_table {
    predict_row *rows;
    size_t count;
    double recorded;     /* median step, ns */
    bool slots, buckets; /* differ between rows, so that a row names its own */
} predict_table;

/* "8 ranks on 2 nodes, 8 slots, buckets of 4 MiB" */
typedef struct setup_text {
    char text[160];
} setup_text;
setup_text predict_setup_text(const ls_setup *s);

/* The row with the least product of step time and cost; NULL: none can be predicted. */
const predict_row *predict_best_value(const predict_table *t);

/* The table as a page with a chart. "-": the standard output. predict_page.c */
LS_MUST_CHECK ls_status predict_page_write(const predict_table *t, const ls_prediction *recorded, const char *run,
                                           const char *path);

/* Makes a short run with the options of `run` and then `options`, or finds the one that an earlier call made. *folder: of that run, to be
 * freed; NULL on failure. predict_probe.c */
LS_MUST_CHECK ls_status predict_probe(const char *run, const char *options, bool quiet, char **folder);

#endif
