/* The report as one page: what its parts share. Each part writes its own section; html_page.c puts them together. */
#ifndef LS_CLI_HTML_H
#define LS_CLI_HTML_H

#include <stdio.h>
#include "cli/metrics.h"
#include "lockstep/measure.h"

/* Writes the page of `run`; of `other` (NULL: none) a comparison with it. */
LS_MUST_CHECK ls_status html_write(const ls_run *run, const ls_run *other, const char *path);

/* What all pages begin and end with. `name` is escaped. */
void html_open(FILE *to, const char *name, const char *command);
void html_close(FILE *to);
/* Writes a page that was made in memory to a file, or "-" for the standard output; closes `to` and frees *text. */
LS_MUST_CHECK ls_status html_save(FILE *to, char **text, const size_t *bytes, const char *path);

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
/* Names, letters and colours of the phases that the run has, or `also` (NULL: none); and of what a chart adds: pairs of class and words,
 * ended by NULL. */
void html_legend(const page *p, const ls_run *also, const char *const *more);

/* ---- The parts */
void html_verdict(const page *p); /* html_verdict.c */
void html_findings(const page *p);
void html_breakdown(const page *p); /* html_phases.c */
void html_over_time(const page *p);
void html_timeline(const page *p); /* html_timeline.c */
void html_waits(const page *p);    /* html_waits.c */
void html_curves(const page *p);   /* html_curves.c */
void html_memory(const page *p);   /* html_ranks.c */
void html_cores(const page *p);
void html_tables(const page *p);      /* html_tables.c */
void html_compare(const page *p);     /* html_compare.c */
void html_profile(const page *p);     /* html_profile.c */
void html_generations(const page *p); /* html_generations.c */
void html_import(const page *p);      /* html_import.c */

/* ---- Numbers */
/* The steps that count: all but the start. */
static inline const ls_run_step *counted(const page *p, size_t *n)
{
    *n = p->run->n_steps - p->run->first_counted;
    return *n ? p->run->steps + p->run->first_counted : NULL;
}
/* Whether there is time, runnable but not scheduled, that is worth hatching. */
bool html_has_unscheduled(const ls_run *run);
extern const char html_unscheduled_words[];

enum { HTML_RANKS = 16, HTML_POINTS = 3 }; /* ranks that a chart shows; values that a chart needs at least */
/* The ranks to show: all, or those that waited least and those that waited most. Returns how many. */
int html_ranks_shown(const ls_run *run, int ranks[HTML_RANKS]);
/* The last name of a path. */
const char *html_name(const char *path);

#endif
