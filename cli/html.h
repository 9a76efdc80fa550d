/* The report as one page: what its parts share. Each part writes its own section; html_page.c puts them together. */
#ifndef LS_CLI_HTML_H
#define LS_CLI_HTML_H

#include <stdio.h>
#include "cli/metrics.h"
#include "lockstep/measure.h"

/* Writes the page of `run`; of `other` (NULL: none) a comparison with it. */
LS_MUST_CHECK ls_status html_write(const ls_run *run, const ls_run *other, const char *path);

typedef struct page {
    FILE *to;
    const ls_run *run;
    const ls_run *other; /* NULL: nothing to compare with */
    metrics lines;
} page;

/* A chart is drawn once for each width that it is shown at; the style sheet picks one. */
typedef void (*draw_fn)(const page *p, double width);
void html_chart(const page *p, bool half, draw_fn draw);
/* A card with a heading and a line of explanation below it. */
void html_card(const page *p, const char *id, const char *class_name, const char *title, const char *words);
void html_card_end(const page *p);
/* Names and colours of the phases that the run has, and of what a chart adds ("overlap", "queue": 0 ends the list). */
void html_legend(const page *p, const char *const *more);

/* ---- The parts */
void html_breakdown(const page *p); /* html_phases.c */
void html_over_time(const page *p);
void html_timeline(const page *p); /* html_timeline.c */
void html_waits(const page *p);    /* html_waits.c */
void html_curves(const page *p);   /* html_curves.c */
void html_tables(const page *p);   /* html_tables.c */
void html_compare(const page *p);
void html_profile(const page *p); /* html_profile.c */

/* ---- Numbers */
/* The steps that count: all but the start. */
static inline const ls_run_step *counted(const page *p, size_t *n)
{
    *n = p->run->n_steps - p->run->n_warm;
    return *n ? p->run->steps + p->run->n_warm : NULL;
}
/* The order in which phases are shown: a step's own. */
extern const ls_phase html_phases[LS_PHASES];
/* Whether the phase takes any time in this run. */
bool html_has_phase(const ls_run *run, ls_phase phase);

#endif
