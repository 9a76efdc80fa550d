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

void report_text(const ls_run *run, const report_form *form);
void report_compare(const ls_run *before, const ls_run *after, const report_form *form);
/* LS_OK, or LS_ENOMEM. */
int report_json(const ls_run *run, FILE *to);

/* "12.3 ms"; one of a few buffers that are used in turn. */
const char *report_time(double ns);
const char *report_bytes(double bytes);

#endif
