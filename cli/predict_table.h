/* The answers of `lockstep predict`. */
#ifndef LS_CLI_PREDICT_TABLE_H
#define LS_CLI_PREDICT_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include "cli/html.h"
#include "lockstep/predict.h"

typedef struct predict_row {
    ls_prediction p;
    char *refused; /* why nothing can be said; NULL: it could */
} predict_row;

typedef struct predict_table {
    predict_row *rows;
    size_t count;
    double recorded;            /* median step, ns */
    bool nodes, slots, buckets; /* lists of them were asked for, so that a row names its own */
    char asked[512];    /* "link 10 Gbit/s, 30 µs; a rank 2 times as slow": what holds for all rows; "": nothing */
    json_t *asked_json; /* the same by the names of ls_setup */
} predict_table;

typedef struct predict_page {
    page p; /* first: what draws gets a pointer to it */
    const predict_table *table;
} predict_page;

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

/* A card with the speed over the number of ranks; nothing, if no curve has three points. predict_scaling.c */
void predict_put_scaling(const predict_page *out);

/* A run as far as comparisons are concerned. */
typedef struct predict_source {
    const char *run;           /* its folder */
    double peak;               /* GFLOP/s of matrix products at its start; 0: not known */
    double parameters, tokens; /* of its model and of a slot; 0: not known */
    char id[160];              /* a copy has the same */
} predict_source;
predict_source predict_source_of(const ls_run *run, const char *path);
/* Predicts the set-up of the run at `path`, prints the comparison, and logs it. `factor`: of the band. Returns the exit code.
 * predict_check.c */
int predict_check(const ls_predictor *p, const predict_source *source, const char *path, double factor, bool json);

/* Makes a short run with the options of `run` and then `options`, or finds the one that an earlier call made. *folder: of that run, to be
 * freed; NULL on failure. LS_EINVAL: options that do not train, by name. predict_probe.c */
LS_MUST_CHECK ls_status predict_probe(const char *run, const char *options, bool quiet, char **folder);

#endif
