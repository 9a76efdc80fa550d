/* The figures of a whole job, as one table: text, JSON and page show what is in it. */
#ifndef LS_CLI_JOB_FIGURES_H
#define LS_CLI_JOB_FIGURES_H

#include "lockstep/measure.h"

enum { JOB_FIGURE_TEXT = 160 };

typedef struct job_figure_text {
    char value[64], label[JOB_FIGURE_TEXT];
    bool warn; /* worse than it should be */
} job_figure_text;

/* A form that does not show a figure has NULL in its place. Values are NaN if they are not known. */
typedef struct job_figure {
    const char *key; /* in JSON */
    double (*of)(const ls_run *run);
    void (*title)(double x, char *out, size_t bytes);                /* in the text's first line */
    void (*page)(const ls_run *run, double x, job_figure_text *out); /* below the page's verdict */
} job_figure;

/* Two runs: ns of a step, mean of all ranks, and the difference as a share of the first run's step. */
typedef struct run_change {
    double before, after, share;
} run_change;
/* Of a phase, or of the whole step (LS_PHASE_COUNT). */
run_change run_compare(const ls_run *before, const ls_run *after, int phase);

extern const job_figure job_figures[];
extern const int n_job_figures;

#endif
