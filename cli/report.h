/* The forms of a report. Each writes what `lockstep/measure.h` found to a stream. */
#ifndef LS_CLI_REPORT_H
#define LS_CLI_REPORT_H

#include <stdbool.h>
#include <stdio.h>
#include "lockstep/measure.h"

typedef struct report_form {
    FILE *to;
    bool color;
    int width; /* of the terminal */
} report_form;

enum { REPORT_ROWS = 16, REPORT_FEW = 8 }; /* ranks that a table shows; and one that matters less */

void report_text(const ls_run *run, const report_form *form);
void report_compare(const ls_run *before, const ls_run *after, const report_form *form);
/* LS_OK, or LS_ENOMEM. */
int report_json(const ls_run *run, FILE *to);

/* ---- What text and page have in common. */
/* The letter of a phase, in the text's bars and on those of the page. */
char report_letter(ls_phase phase);
/* Ranks whose record is there. */
int report_recorded(const ls_run *run);
/* Whether the phase takes time in this run that is worth showing. */
bool report_has_phase(const ls_run *run, ls_phase phase);
/* Why the record has no end: "still running or killed", or that not all could be read; NULL: it ended in order. */
const char *report_end(const ls_run *run);
/* Whether a finding's remedy makes the step shorter by a difference that is visible in the times as shown. */
bool report_gains(const ls_run *run, const ls_finding *finding);
/* What there is to say of a run without findings, as a sentence without its full stop. */
const char *report_nothing(const ls_run *run);

/* ---- What both forms of a comparison show: report_compare.c. */
enum { REPORT_SETTINGS = 12 };
typedef struct report_settings { /* what the runs were started with and differ in */
    int count;
    struct {
        const char *name; /* "overlap of communication and backward" */
        char before[32], after[32];
    } row[REPORT_SETTINGS];
} report_settings;
void report_settings_find(const ls_run *before, const ls_run *after, report_settings *out);

/* ---- Parts of the text. */
/* Whether there are steps to report. */
static inline bool report_is_counted(const ls_run *run)
{
    return run->n_steps > run->first_counted;
}
/* What run it is, and what is missing of it. */
void report_title(const ls_run *run, const report_form *form);
/* The phases in the order in which they are shown; i < LS_PHASE_COUNT. */
ls_phase report_phase(int i);
/* Whether steps of rank r were recorded. */
static inline bool report_has(const ls_run *run, int r)
{
    return run->rank[r].present && run->rank[r].use.wall > 0;
}
/* After a table of `shown` ranks: how many it left out, if any. */
void report_left_out(const report_form *form, const ls_run *run, int shown);
/* report_tables.c: what follows the findings. The run has counted steps. */
void report_tables(const ls_run *run, const report_form *form);
void report_head(const report_form *form, const char *text);
/* A paragraph, broken at the form's width: `label` and text indented by `first`, its further lines by `rest` columns. */
void report_wrap(const report_form *form, int first, int rest, const char *label, const char *text);
#endif
